"""The main job on bundled data: Banking77 questions as sentence embeddings.

Data: Banking77, 10,003 + 3,080 questions to a bank in 77 intents (PolyAI, CC BY 4.0), embedded as
384-dimensional unit vectors by all-MiniLM-L6-v2. See ``data/ATTRIBUTION.md``.
"""

from __future__ import annotations

import tempfile
import time
from contextlib import nullcontext
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import RidgeClassifier

from privmix.engine import release
from privmix.learners import NoiseAwareClassifier
from privmix.planning.solve import plan_release
from privmix.publishing.verification import verify
from privmix.records.bounded import Progress
from privmix.schema import Schema


class DemoData(NamedTuple):
    """Bundled training and test records; labels are indices into ``classes``."""

    x_train: NDArray[np.float32]
    y_train: NDArray[np.int64]
    x_test: NDArray[np.float32]
    y_test: NDArray[np.int64]
    classes: tuple[str, ...]


def load_demo_data() -> DemoData:
    """Load the bundled Banking77 embeddings."""
    resource = files("privmix") / "datasets" / "data" / "banking77-minilm.npz"
    with as_file(resource) as path, np.load(path, allow_pickle=False) as arrays:
        return DemoData(
            arrays["x_train"].astype(np.float32),
            arrays["y_train"].astype(np.int64),
            arrays["x_test"].astype(np.float32),
            arrays["y_test"].astype(np.int64),
            tuple(map(str, arrays["classes"])),
        )


def run_demo(
    *,
    target_epsilon: float = 1.0,
    target_delta: float = 1e-5,
    out: str | Path | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Plan, release, verify, train and evaluate; return the figures of the table.

    Args:
        target_epsilon: Privacy budget.
        target_delta: Its delta.
        out: Where to keep the release; by default it is thrown away.
        progress: Called with (rows done, rows in all) during the release.

    """
    start = time.perf_counter()
    data = load_demo_data()
    schema = Schema(
        classes=data.classes,
        num_features=data.x_train.shape[1],
        num_records=10_003,
        feature_clip_norm=1.0,
    )
    plan = plan_release(schema, target_epsilon=target_epsilon, target_delta=target_delta)
    names = np.array(data.classes)
    scratch = tempfile.TemporaryDirectory() if out is None else nullcontext(None)
    with scratch as folder:
        target = Path(folder) / "release" if folder is not None else Path(str(out))
        published = release(data.x_train, names[data.y_train], plan, out=target, progress=progress)
        verification = verify(target)
        model = NoiseAwareClassifier().fit(published)
        accuracy = float(model.score(data.x_test, names[data.y_test]))
        size = sum(path.stat().st_size for path in target.rglob("*") if path.is_file())
    without_privacy = RidgeClassifier().fit(data.x_train, data.y_train)
    return {
        "dataset": "Banking77 (MiniLM embeddings)",
        "design": plan.design,
        "epsilon": published.certificate.epsilon,
        "delta": plan.delta,
        "valid": verification.valid,
        "accuracy": accuracy,
        "accuracy_without_privacy": float(without_privacy.score(data.x_test, data.y_test)),
        "num_mixtures": plan.num_mixtures,
        "size_bytes": size,
        "seconds": time.perf_counter() - start,
    }
