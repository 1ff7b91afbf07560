"""How to load a release or a model, as code that runs where the folder is."""

from __future__ import annotations

from privmix.schema import Target


def release_snippets(folder: str, target: Target) -> dict[str, str]:
    """Return code by the name of what it loads a release into; ``folder`` is quoted as Python has it."""
    learner = "NoiseAwareRegressor" if target == "regression" else "NoiseAwareClassifier"
    tail = "" if target == "class" else "  # y: what the certificate calls its target"
    return {
        "privmix": f"import privmix\n\nrelease = privmix.Release({folder!r})\n"
        f"model = privmix.{learner}().fit(release)  # knows the noise\n",
        "pandas": f"import pandas as pd\n\nrows = pd.read_parquet({folder + '/data'!r})  # noisy sums\n",
        "scikit-learn": "import privmix\n\n"
        f"X, y = privmix.synthesize(privmix.Release({folder!r}), 10_000, seed=1){tail}\n"
        "# synthetic records, for any learner: learner.fit(X, y)\n",
        "torch": "import numpy as np\nimport pandas as pd\nimport torch\n\n"
        f"rows = pd.read_parquet({folder + '/data'!r})\n"
        'features = torch.from_numpy(np.stack(rows["features"].to_list()))\n',
        "datasets": f"import datasets\n\nrows = datasets.load_dataset({folder!r})\n",
    }


def model_snippets(folder: str) -> dict[str, str]:
    """Return code by the name of what it loads a model into."""
    return {
        "privmix": f"import privmix\n\nmodel = privmix.load_model({folder!r})\n"
        "# labels = model.predict(features)\n",
    }
