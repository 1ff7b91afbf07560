// Search runs in a worker, and a browser starts none for a page that was opened from disk. There a hidden
// frame stands in for it: the same script, the same messages.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.waiting = [];
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      this.frame.title = "search";
      const start = () => {
        document.body.append(this.frame);
        const inside = this.frame.contentWindow;
        const load = (source) =>
          new Promise((done, failed) => {
            const script = inside.document.createElement("script");
            script.src = source;
            script.onload = done;
            script.onerror = failed;
            inside.document.body.append(script);
          });
        inside.importScripts = async (...sources) => {
          for (const source of sources) await load(source);
        };
        inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
        load(url).then(() => {
          this.ready = inside;
          for (const data of this.waiting.splice(0)) this.postMessage(data);
        });
      };
      if (document.body) start();
      else addEventListener("DOMContentLoaded", start);
    }

    postMessage(data) {
      if (!this.ready) this.waiting.push(data);
      else this.ready.dispatchEvent(new this.ready.MessageEvent("message", { data }));
    }

    terminate() {
      this.frame.remove();
    }
  };
}
