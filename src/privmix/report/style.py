"""How the page looks, and the few lines that make its figures readable by pointer and keyboard.

Colours are named once, for light and for dark, so that their contrast can be computed
(``tests/report/test_style.py``). Nothing is loaded from anywhere.
"""

from __future__ import annotations

import base64
import hashlib

# Name: (light, dark). Text stands on page, panel or stamp.
COLORS: dict[str, tuple[str, str]] = {
    "page": ("#ffffff", "#12161c"),
    "panel": ("#f3f5f8", "#1c222b"),
    "ink": ("#1a1f26", "#e8ecf1"),
    "soft": ("#4d5866", "#aab4c0"),
    "line": ("#7b8794", "#77828f"),
    "link": ("#0a52a0", "#82b8ff"),
    "gain": ("#b42318", "#ff8f84"),
    "guess": ("#0a52a0", "#82b8ff"),
    "rest": ("#c3ccd6", "#46515e"),
    "stamp": ("#8f1208", "#ffb4ab"),
}

_SHEET = """
*{box-sizing:border-box}
html{color-scheme:light dark;scroll-padding-top:1rem}
body{margin:0;background:var(--page);color:var(--ink);font:1rem/1.55 system-ui,-apple-system,"Segoe UI",
"Liberation Sans",Arial,sans-serif;overflow-wrap:break-word}
header,nav,main,footer{max-width:62rem;margin:0 auto;padding:0 1.1rem}
header{padding-top:2rem}
h1{font-size:1.7rem;line-height:1.25;margin:0 0 .4rem}
h2{font-size:1.3rem;margin:2.4rem 0 .6rem;padding-top:.9rem;border-top:1px solid var(--line)}
h3{font-size:1.05rem;margin:1.4rem 0 .4rem}
p,ul,ol,dl,figure,table{margin:.6rem 0}
a{color:var(--link)}
a:focus-visible,summary:focus-visible,input:focus-visible,[tabindex]:focus-visible{outline:3px solid
var(--link);outline-offset:2px}
.skip{position:absolute;left:-99rem}
.skip:focus{left:1rem;top:.5rem;background:var(--page);padding:.4rem .8rem;z-index:1}
nav ul{list-style:none;padding:0;display:flex;flex-wrap:wrap;gap:.2rem 1.1rem}
.soft{color:var(--soft)}
.stamp{border:4px solid var(--stamp);color:var(--stamp);padding:.8rem 1rem;font-weight:700;margin:1rem 0}
.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(15rem,1fr));gap:.9rem;padding:0;
list-style:none}
.cards>li{background:var(--panel);border:1px solid var(--line);border-radius:.4rem;padding:.2rem 1rem .6rem}
.cards h3{margin:.6rem 0 .2rem}
.cards p{margin:.3rem 0}
.big{font-size:1.5rem;font-weight:700}
table{border-collapse:collapse;min-width:min(100%,20rem)}
caption{text-align:left;font-weight:600;padding:.3rem 0}
th,td{text-align:left;vertical-align:top;padding:.3rem .9rem .3rem 0;border-bottom:1px solid var(--rest)}
.number{text-align:right;font-variant-numeric:tabular-nums}
.wide{overflow-x:auto}
pre{background:var(--panel);border:1px solid var(--line);border-radius:.3rem;padding:.7rem .9rem;
overflow-x:auto;font:.9rem/1.45 ui-monospace,"Liberation Mono",Consolas,monospace}
code{font-family:ui-monospace,"Liberation Mono",Consolas,monospace;font-size:.93em}
.long{max-height:28rem;overflow:auto}
figure svg{display:block;width:100%;height:auto}
figcaption{margin-top:.3rem}
.people{display:grid;grid-template-columns:repeat(auto-fit,minmax(16rem,1fr));gap:1.4rem}
.people figure{margin:0}
.curve{max-width:30rem}
svg text{fill:var(--ink);font-size:13px}
.axis{stroke:var(--line);fill:none}
.grid{stroke:var(--rest);fill:none}
.certified{stroke:var(--link);fill:none;stroke-width:2.5}
.perfect{stroke:var(--line);fill:none;stroke-dasharray:5 4}
.reading{stroke:var(--gain);fill:var(--gain)}
.gain{fill:var(--gain)}
.guess{fill:var(--guess)}
.rest{fill:var(--rest)}
.bar{fill:var(--link)}
.key{display:inline-block;print-color-adjust:exact;width:.8em;height:.8em;margin-right:.35em;border:1px solid var(--line)}
.key.gain{background:var(--gain)}
.key.guess{background:var(--guess)}
.key.rest{background:var(--rest)}
.reader{display:flex;flex-wrap:wrap;gap:.4rem .9rem;align-items:center}
.reader[hidden]{display:none}
.reader input{flex:1 1 12rem;accent-color:var(--link)}
.blank{border-bottom:1px solid var(--ink);display:inline-block;min-width:14rem;color:var(--soft)}
.sign td{border-bottom:1px solid var(--ink);min-width:14rem;height:2.4rem}
dt{font-weight:600;margin-top:.6rem}
dd{margin:0}
footer{padding-bottom:3rem}
@media print{
@page{margin:16mm 15mm}
body{font-size:10pt}
header,nav,main,footer{max-width:none;padding:0}
nav,.skip,.reader{display:none}
h2{break-after:avoid}
h3,caption{break-after:avoid}
figure,.cards>li,tr,.stamp,.sign{break-inside:avoid}
pre,.long{white-space:pre-wrap;max-height:none;overflow:visible;word-break:break-all}
.wide{overflow:visible}
.people{grid-template-columns:repeat(3,1fr)}
a{color:inherit}
}
"""

# Reads the trade-off curve under the pointer or at the slider, and unfolds everything for print.
SCRIPT = """
(() => {
  const figure = document.getElementById("curve");
  const slider = document.getElementById("rate");
  if (figure && slider) {
    const [left, top, size] = figure.dataset.box.split(" ").map(Number);
    const alarms = figure.dataset.alarms.split(" ").map(Number);
    const misses = figure.dataset.misses.split(" ").map(Number);
    const told = document.getElementById("told");
    const mark = document.getElementById("mark");
    const at = (rate) => {
      let i = 1;
      while (i < alarms.length - 1 && alarms[i] < rate) i += 1;
      const span = alarms[i] - alarms[i - 1];
      const share = span > 0 ? (rate - alarms[i - 1]) / span : 1;
      return misses[i - 1] + share * (misses[i] - misses[i - 1]);
    };
    const show = (rate) => {
      const missed = at(rate);
      mark.setAttribute("cx", left + rate * size);
      mark.setAttribute("cy", top + missed * size);
      const found = Math.ceil(1e4 * (1 - missed)) / 100;
      told.textContent = `With ${(100 * rate).toFixed(1)} % false alarms, at most ` +
        `${found.toFixed(2)} % of the people in the data are found.`;
    };
    const point = (event) => {
      const box = figure.getBoundingClientRect();
      const scale = figure.viewBox.baseVal.width / box.width;
      const rate = ((event.clientX - box.left) * scale - left) / size;
      slider.value = Math.round(1000 * Math.min(1, Math.max(0, rate)));
      show(slider.value / 1000);
    };
    slider.addEventListener("input", () => show(slider.value / 1000));
    figure.addEventListener("pointermove", point);
    figure.addEventListener("pointerdown", point);
    slider.closest(".reader").hidden = false;
    show(slider.value / 1000);
  }
  addEventListener("beforeprint", () => {
    for (const one of document.querySelectorAll("details")) one.open = true;
  });
})();
"""


def _variables(place: int) -> str:
    return ":root{" + "".join(f"--{name}:{pair[place]};" for name, pair in COLORS.items()) + "}"


STYLE = f"{_variables(0)}\n@media screen and (prefers-color-scheme:dark){{{_variables(1)}}}{_SHEET}"


def content_policy() -> str:
    """Return what a browser may do with the page: these very styles and lines, and nothing else.

    Even a text that became markup could neither run nor load anything.
    """

    def digest(text: str) -> str:
        return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

    return f"default-src 'none'; style-src {digest(STYLE)}; script-src {digest(SCRIPT)}"
