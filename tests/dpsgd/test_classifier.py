"""The scikit-learn face of private training."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from privmix import InvalidInputError
from privmix.accounting import ComposedEvent, account, format_epsilon
from privmix.dpsgd import (
    AugmentationPlan,
    DPMixClassifier,
    verify_model,
)
from privmix.running.ledger import Ledger
from privmix.running.unrecorded import UnrecordedSpendingWarning
from training_cases import Pooled, make_images

SETTINGS = {
    "classes": (0, 1, 2),
    "input_shape": (3, 8, 8),
    "num_records": 60,
    "batch_size": 15,
    "augmentation": AugmentationPlan.dp_mix_self(3, 2, crop_padding=2),
}


@pytest.fixture
def ledger(tmp_path):
    path = tmp_path / "ledger.db"
    Ledger(path).open_dataset("people", epsilon_limit=1000.0, delta=1e-5)
    return path


def test_classifier_follows_scikit_learn(tmp_path, ledger):
    images, labels = make_images(200)
    model = DPMixClassifier(
        Pooled(), 8.0, classes=[0, 1, 2], num_records=200, batch_size=40, epochs=10,
        augmentation=SETTINGS["augmentation"], learning_rate=2.0, out=tmp_path / "m",
    )  # fmt: skip
    assert model.get_params()["target_epsilon"] == 8.0
    model.fit(images, labels)
    assert model.score(images, labels) > 0.55
    assert np.allclose(model.predict_proba(images).sum(axis=1), 1)
    assert verify_model(tmp_path / "m").valid
    flat = images.reshape(200, -1)[:, :12] / 255
    plain = DPMixClassifier(
        None, 8.0, classes=[0, 1, 2], num_records=200, batch_size=40,
        ledger=ledger, dataset_id="people",
    )  # fmt: skip
    assert plain.fit(flat, labels).certificate_.config.augmentation == AugmentationPlan.plain()
    for classes in (np.arange(3), [np.int64(k) for k in range(3)]):
        plain.set_params(classes=classes).fit(flat, labels)
        assert plain.certificate_.config.classes == (0, 1, 2)
    for classes in ({0, 1, 2}, "012"):
        with pytest.raises(InvalidInputError, match="classes: expected a sequence of"):
            plain.set_params(classes=classes).fit(flat, labels)
    with pytest.raises(InvalidInputError, match="num_records"):
        DPMixClassifier(None, 8.0, classes=[0, 1, 2]).fit(flat, labels)


def small_classifier(**options):
    return DPMixClassifier(
        None, 2.0, classes=[0, 1, 2], num_records=200, batch_size=40, epochs=1, **options
    )


def small_records():
    images, labels = make_images(200)
    return images.reshape(200, -1)[:, :12] / 255, labels


def test_each_fit_of_a_grid_search_is_charged(ledger):
    """Five fits of parts and one of the whole, each a clone: six charges."""
    search = GridSearchCV(
        small_classifier(ledger=ledger, dataset_id="people"), {"learning_rate": [0.5]}, cv=5
    )
    search.fit(*small_records())
    balance = Ledger(ledger).balance("people")
    assert len(balance.charges) == 6
    assert balance.epsilon_spent > search.best_estimator_.certificate_.epsilon
    assert balance.charges[-1].digest == search.best_estimator_.certificate_.digest()
    assert {charge.kind for charge in balance.charges} == {"model"}


def test_a_fit_past_the_limit_is_refused(tmp_path):
    book = Ledger(tmp_path / "l.db").open_dataset("people", epsilon_limit=2.5, delta=1e-5)
    model = small_classifier(ledger=book.path, dataset_id="people")
    model.fit(*small_records())
    with pytest.raises(InvalidInputError, match="is spent"):
        clone(model).fit(*small_records())
    assert len(book.balance("people").charges) == 1
    with pytest.raises(InvalidInputError, match="both, or neither"):
        small_classifier(dataset_id="people").fit(*small_records())


def test_a_second_fit_without_a_ledger_warns_with_what_both_cost():
    model = small_classifier()
    inputs, labels = small_records()
    with pytest.raises(InvalidInputError, match="labels"):
        model.fit(inputs, labels[1:])  # spends nothing, and is not counted
    event = model.fit(inputs, labels).certificate_.event
    both = format_epsilon(account(ComposedEvent(events=(event, event)), 1e-5).epsilon)
    with pytest.warns(UnrecordedSpendingWarning, match=f"all 2 times cost epsilon {both} at"):
        clone(model).fit(inputs, labels)
    with (
        warnings.catch_warnings(action="error"),
        pytest.raises(UnrecordedSpendingWarning, match="all 3 times"),
    ):
        model.fit(inputs, labels)
