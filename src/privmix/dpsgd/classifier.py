"""DP-Mix in scikit-learn's manner."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from privmix import _validate
from privmix.dpsgd.augmentation import AugmentationPlan
from privmix.dpsgd.head import FeatureCache, LinearHead
from privmix.dpsgd.trainer import fit
from privmix.dpsgd.training_plan import class_weights, plan_training
from privmix.dpsgd.training_records import as_inputs
from privmix.inputs.feature_names import check_names, names_of
from privmix.learners.base import Scored

if TYPE_CHECKING:
    from torch import nn


class DPMixClassifier(Scored, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A linear classifier on a frozen backbone, trained privately on mixed augmentations.

    Args:
        backbone: Public torch module from inputs to (count, width) features, or None for features
            as given.
        target_epsilon: Largest epsilon that ``fit`` may spend; each call spends it anew.
        target_delta: Its delta.
        classes: The closed set of labels: public, hence no fact to be read from the records.
        num_records: Public planning constant for the number of records.
        batch_size: Expected number of records in a step; by default a twentieth of ``num_records``, from 64
            to 1,000.
        epochs: Expected number of times that a record takes part.
        augmentation: By default DP-Mix-Self for images, and the record itself for features.
        learning_rate: See :class:`TrainingConfig`.
        momentum: As there.
        clip_norm: As there.
        class_weight: What the loss of a record of each class counts, a number for each; see
            :class:`TrainingConfig`. ``balanced`` with ``class_balance``: one over a class's share.
        class_balance: Public shares of the classes, for ``class_weight``; without one it is not used.
        unit_column: See :func:`plan_training`; ``fit`` is then told the owners.
        max_records_per_unit: As there.
        feature_cache: See :class:`LinearHead`.
        device: As there.
        out: Folder for the model and its certificate; a temporary one by default.
        ledger: Ledger file that each ``fit`` is charged to before anything is drawn, those of a grid
            search or a cross-validation too. Without one, a second ``fit`` or release in a
            process warns with what all of them cost together.
        dataset_id: The data set's name in the ledger.

    Attributes:
        model_: The :class:`TrainedModel`.
        certificate_: What the training guarantees.
        classes_: The classes in the order of scores.
        feature_names_in_: Names of the columns, where ``fit`` was given a frame; frames with other
            columns, or in another order, are then refused.

    """

    def __init__(
        self,
        backbone: nn.Module | None,
        target_epsilon: float,
        target_delta: float = 1e-5,
        *,
        classes: Sequence[int] | Sequence[str] | None = None,
        num_records: int | None = None,
        batch_size: int | None = None,
        epochs: float = 10,
        augmentation: AugmentationPlan | None = None,
        learning_rate: float = 1.0,
        momentum: float = 0.0,
        clip_norm: float = 1.0,
        class_weight: Sequence[float] | Literal["balanced"] | None = None,
        class_balance: Sequence[float] | None = None,
        unit_column: str | None = None,
        max_records_per_unit: int | None = None,
        feature_cache: FeatureCache = "none",
        device: Any = "cpu",
        out: str | Path | None = None,
        ledger: str | Path | None = None,
        dataset_id: str | None = None,
    ) -> None:
        self.backbone, self.target_epsilon, self.target_delta = (
            backbone,
            target_epsilon,
            target_delta,
        )
        self.classes, self.num_records = classes, num_records
        self.batch_size, self.epochs, self.augmentation = batch_size, epochs, augmentation
        self.learning_rate, self.momentum, self.clip_norm = learning_rate, momentum, clip_norm
        self.class_weight, self.class_balance = class_weight, class_balance
        self.unit_column, self.max_records_per_unit = unit_column, max_records_per_unit
        self.feature_cache, self.device, self.out = feature_cache, device, out
        self.ledger, self.dataset_id = ledger, dataset_id

    def fit(self, inputs: ArrayLike, labels: ArrayLike, units: ArrayLike | None = None) -> Self:
        """Train on private records: (count, *shape) inputs, and (count,) labels.

        With a ``unit_column``, ``units`` are the (count,) owners of the records.

        Raises:
            InvalidInputError: ``classes`` or ``num_records`` missing, bad input, or a cost past the
                ledger's limit; nothing has been spent.

        """
        for name in ("classes", "num_records"):
            if getattr(self, name) is None:
                _validate.fail(name, "a public constant, stated beforehand", "nothing")
        names = names_of(inputs)
        array = as_inputs(inputs, "inputs")
        default = AugmentationPlan.dp_mix_self() if array.ndim == 4 else AugmentationPlan.plain()
        plan = plan_training(
            target_epsilon=self.target_epsilon,
            target_delta=self.target_delta,
            epochs=self.epochs,
            classes=_as_tuple(self.classes),
            input_shape=array.shape[1:],
            num_records=self.num_records,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            momentum=self.momentum,
            clip_norm=self.clip_norm,
            class_weight=class_weights(self.class_weight, self.class_balance),
            unit_column=self.unit_column,
            max_records_per_unit=self.max_records_per_unit,
            augmentation=self.augmentation or default,
        )
        head = LinearHead(self.backbone, feature_cache=self.feature_cache, device=self.device)
        name = type(self).__name__
        with ExitStack() as kept:
            out = self.out
            if out is None:
                out = Path(kept.enter_context(tempfile.TemporaryDirectory())) / name
            self.model_ = fit(
                array,
                labels,
                plan,
                model=head,
                out=out,
                units=units,
                ledger=self.ledger,
                dataset_id=self.dataset_id,
            )
        self.certificate_ = self.model_.certificate
        self.classes_ = np.asarray(self.model_.classes)
        self.n_features_in_ = int(np.prod(array.shape[1:]))
        if names is not None:
            self.feature_names_in_ = np.array(names, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        return self

    def decision_function(self, inputs: ArrayLike) -> NDArray[np.float64]:
        """Return (count, num_classes) scores; of two classes (count,), the second's minus the first's."""
        scores = self._scores(inputs)
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    def predict_proba(self, inputs: ArrayLike) -> NDArray[np.float64]:
        """Return class probabilities, (count, num_classes)."""
        return np.asarray(softmax(self._scores(inputs), axis=1))

    def predict(self, inputs: ArrayLike) -> NDArray[Any]:
        """Return the likeliest class of each input."""
        best = self._scores(inputs).argmax(axis=1)
        return np.asarray(self.classes_[best])

    def _scores(self, inputs: ArrayLike) -> NDArray[np.float64]:
        self._check_names(inputs)
        return self.model_.scores(inputs)

    def _check_names(self, inputs: ArrayLike) -> None:
        check_is_fitted(self, "model_")
        due = getattr(self, "feature_names_in_", None)
        names = None if due is None else tuple(due)
        check_names("inputs", names_of(inputs), names, "fit")


def _as_tuple(classes: Any) -> tuple[Any, ...]:
    """Return classes, an array of them or a sequence, as Python's own values in their order."""
    if isinstance(classes, str | set | frozenset | dict):
        allowed = "a sequence of integers or of strings, in an order of its own"
        _validate.fail("classes", allowed, type(classes).__name__)
    return tuple(one.item() if isinstance(one, np.generic) else one for one in classes)
