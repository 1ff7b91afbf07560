"""Several labels of a record: predictions are 0 or 1 for each, and probabilities its own."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import accuracy_score

import privmix
from privmix import (
    BiasCorrectedSGDClassifier,
    InvalidInputError,
    KLSoftmaxClassifier,
    NoiseAwareClassifier,
    Schema,
    plan_release,
)
from privmix.learners.several_labels import label_logits

pytestmark = pytest.mark.filterwarnings("ignore::privmix.accounting.guarantee.NotPrivateWarning")
SHARES = np.array([0.5, 0.25, 0.1])


def records(count=3000, seed=0):
    """Three labels of their own shares, each of which moves a feature; two features are noise."""
    rng = np.random.default_rng(seed)
    labels = (rng.random((count, 3)) < SHARES).astype(int)
    x = np.hstack([2.5 * (labels - SHARES), np.zeros((count, 2))]) + rng.normal(size=(count, 5))
    return x / 6, labels


@pytest.fixture(scope="module", params=["poisson", "signed", "uniform"])
def release(request, tmp_path_factory):
    schema = Schema(
        classes=["a", "b", "c"], num_features=5, num_records=3000, feature_clip_norm=1.0,
        target="multilabel", max_labels=3,
    )  # fmt: skip
    plan = plan_release(schema, target_epsilon=30.0, target_delta=1e-5, design=request.param)
    out = tmp_path_factory.mktemp("several") / "release"
    return privmix.release(*records(), plan, out=out, test_seed=1)


def test_each_label_is_predicted_and_its_probability_is_calibrated(release):
    x, labels = records(seed=1)
    model = NoiseAwareClassifier().fit(release)
    found, likely = model.predict(x), model.predict_proba(x)
    assert found.shape == labels.shape and set(np.unique(found)) == {0, 1}
    np.testing.assert_array_equal(found, likely > 0.5)
    # Both are near the best that there is: labels that are independent, in noise of deviation 1.
    odds = np.log(SHARES / (1 - SHARES)) + 2.5 * (6 * x[:, :3] - 2.5 * (0.5 - SHARES))
    best = accuracy_score(labels, (odds > 0).astype(int))
    assert model.score(x, labels) == accuracy_score(labels, found) > best - 0.05
    np.testing.assert_allclose(likely.mean(axis=0), labels.mean(axis=0), atol=0.05)
    told = privmix.learners.score(model, x, labels)
    assert told["subset_accuracy"] == model.score(x, labels) and told["micro_f1"] > 0.7


def test_a_model_from_a_file_predicts_the_same(release, tmp_path):
    x, _ = records(20, seed=2)
    model = NoiseAwareClassifier().fit(release)
    privmix.save_model(model, tmp_path / "m.safetensors")
    again = privmix.load_model(tmp_path / "m.safetensors")
    np.testing.assert_array_equal(again.predict_proba(x), model.predict_proba(x))
    np.testing.assert_array_equal(again.predict(x), model.predict(x))


def test_the_commands_write_and_score_every_label(release, tmp_path, run):
    x, labels = records(50, seed=2)
    frame = pd.DataFrame({f"x{i}": x[:, i] for i in range(5)})
    frame.to_csv(tmp_path / "x.csv", index=False)
    frame.assign(**dict(zip("abc", labels.T, strict=True))).to_csv(tmp_path / "t.csv", index=False)
    model = NoiseAwareClassifier().fit(release)
    privmix.save_model(model, tmp_path / "m.safetensors")
    where = ("m.safetensors", "x.csv", "--out", "p.csv")
    assert run("predict", *(tmp_path / word if "." in word else word for word in where)).code == 0
    found = pd.read_csv(tmp_path / "p.csv")
    assert list(found) == ["a", "b", "c", *(f"probability of {name}" for name in "abc")]
    np.testing.assert_array_equal(found[["a", "b", "c"]], model.predict(x))
    told = run("evaluate", tmp_path / "m.safetensors", tmp_path / "t.csv", "--json")
    assert json.loads(told.out)["subset_accuracy"] == model.score(x, labels)


def test_the_papers_learners_predict_labels_too(release):
    x, labels = records(seed=1)
    learners = [BiasCorrectedSGDClassifier(epochs=5)]
    if release.design != "signed":  # the divergence knows no negative weights
        learners.append(KLSoftmaxClassifier(epochs=5))
    for learner in learners:
        assert learner.fit(release).score(x, labels) > 0.5


def test_priors_of_classes_are_refused(release):
    with pytest.raises(InvalidInputError, match="several labels"):
        NoiseAwareClassifier(class_weight="balanced").fit(release)


def test_scores_that_say_nothing_leave_the_shares(release):
    """Zero weights, and weights that nothing vouches for, make every record as likely as the next."""
    x, labels = records(500, seed=1)
    coef, intercept = label_logits(release, np.zeros((3, 5)), np.zeros(3))
    assert not coef.any()
    np.testing.assert_allclose(1 / (1 + np.exp(-intercept)), labels.mean(axis=0), atol=0.06)
    coef, _ = label_logits(release, np.eye(3, 5), np.zeros(3), attenuation=0.0)
    assert 0 < np.abs(x @ coef.T).max() < 0.1
