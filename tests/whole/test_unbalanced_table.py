"""A table with few positives, by the plan and the learner that one gets without a choice."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import balanced_accuracy_score, roc_auc_score

import privmix
from privmix import NoiseAwareClassifier, Schema, plan_release
from privmix.features import make_extractor

pytestmark = pytest.mark.filterwarnings("ignore::privmix.accounting.guarantee.NotPrivateWarning")
COUNT, SHARE = 12_000, 0.08
COLUMNS = [
    {"name": "age", "type": "numeric", "lower": 18, "upper": 98},
    {"name": "visits", "type": "numeric", "lower": 0, "upper": 20},
    {"name": "zone", "type": "categorical", "categories": ["a", "b", "c", "d"]},
    {"name": "smokes", "type": "boolean"},
    {"name": "stage", "type": "ordinal", "categories": ["I", "II", "III"]},
]


def make_table(seed: int, count: int) -> tuple[pd.DataFrame, np.ndarray]:
    """Positives are older, smoke more and live elsewhere, all of them a little."""
    rng = np.random.default_rng(seed)
    yes = rng.random(count) < SHARE
    frame = pd.DataFrame(
        {
            "age": np.clip(rng.normal(np.where(yes, 64, 52), 14, count), 18, 98),
            "visits": np.minimum(rng.poisson(np.where(yes, 5, 4), count), 20).astype(float),
            "zone": np.where(
                yes,
                rng.choice(list("abcd"), count, p=[0.2, 0.2, 0.2, 0.4]),
                rng.choice(list("abcd"), count, p=[0.3, 0.3, 0.2, 0.2]),
            ),
            "smokes": rng.random(count) < np.where(yes, 0.5, 0.3),
            "stage": rng.choice(["I", "II", "III"], count),
        }
    )
    frame.loc[rng.random(count) < 0.05, "age"] = np.nan
    return frame, np.where(yes, "yes", "no")


def test_the_default_release_serves_rare_classes(tmp_path):
    """At epsilon 1. Each of three tables by itself, but for the probabilities: these are the mean of three.

    A single release of this size is off by up to two points.
    """
    schema = Schema(classes=["no", "yes"], num_records=COUNT, table={"columns": COLUMNS})
    plan = plan_release(schema, target_epsilon=1.0, target_delta=1e-5)
    extractor = make_extractor("tabular", table=schema.table)
    apart = []
    for seed in range(3):
        out, (frame, labels) = tmp_path / f"r{seed}", make_table(seed, COUNT)
        made = privmix.release(frame, labels, plan, out=out, test_seed=seed, extractor=extractor)
        test, truth = make_table(100 + seed, COUNT)
        likely = NoiseAwareClassifier().fit(made).predict_proba(test)[:, 1]
        apart.append(likely.mean() - np.mean(truth == "yes"))
        assert roc_auc_score(truth == "yes", likely) > 0.74
        balanced = NoiseAwareClassifier(class_weight="balanced").fit(made)
        assert balanced_accuracy_score(truth, balanced.predict(test)) > 0.65
    assert abs(np.mean(apart)) < 0.02, apart
