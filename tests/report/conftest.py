from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from builders import make_data
from privmix import Schema, plan_release, release

# Names that would do harm in a page that took them for markup, in a terminal, or in a reader's eyes.
EVIL = (
    "</script><script>document.title='evil'</script>",
    '"><img src=x onerror="document.title=\'evil\'">',
    "x\u202egnp.exe",
)


@pytest.fixture(scope="session")
def evil_names() -> tuple[str, ...]:
    return EVIL


@pytest.fixture(scope="session")
def plan():
    schema = Schema(classes=list(EVIL), num_features=12, num_records=60, feature_clip_norm=1.0)
    return plan_release(
        schema, target_epsilon=2.0, target_delta=1e-5, design="poisson", mix_size=6, num_mixtures=40
    )


@pytest.fixture(scope="session")
def released(plan, tmp_path_factory) -> Path:
    """A release of three classes with hostile names, charged to the ledger beside it."""
    from privmix.running.ledger import Ledger

    folder = tmp_path_factory.mktemp("report")
    Ledger(folder / "ledger.db").open_dataset("people", epsilon_limit=10.0, delta=1e-5)
    release(
        *make_data(plan.data_schema, 60),
        plan,
        out=folder / "made",
        ledger=folder / "ledger.db",
        dataset_id="people",
    )
    return folder / "made"


@pytest.fixture(scope="session")
def for_tests(plan, tmp_path_factory) -> Path:
    """The same with a test seed, which protects nobody."""
    folder = tmp_path_factory.mktemp("report") / "for_tests"
    release(*make_data(plan.data_schema, 60), plan, out=folder, test_seed=0)
    return folder


@pytest.fixture
def damaged(released, tmp_path) -> Path:
    """The release with one byte of a part changed."""
    folder = tmp_path / "damaged"
    shutil.copytree(released, folder)
    part = folder / "data" / "part-00000.parquet"
    content = bytearray(part.read_bytes())
    content[len(content) // 2] ^= 1
    part.write_bytes(bytes(content))
    return folder


@pytest.fixture
def evaluation(tmp_path) -> Path:
    import json

    rng = np.random.default_rng(0)
    found = {
        "accuracy": 0.8,
        "accuracy_interval": [0.7, 0.9],
        "auc": None,
        "recall": {name: float(rng.random()) for name in EVIL},
        "confusion": {EVIL[0]: {EVIL[1]: 3}},
        "num_test_records": 100,
        "note": "a fact about the test set",
        "private": True,
    }
    path = tmp_path / "scores.json"
    path.write_text(json.dumps(found))
    return path


@pytest.fixture
def audit(tmp_path) -> Path:
    import json

    path = tmp_path / "audit.json"
    told = {"epsilon": 2.0, "lower_bound": 0.4, "confidence": 0.95, "verdict": "consistent"}
    told["findings"] = ["<b>sound</b>"]
    path.write_text(json.dumps(told))
    return path
