"""Plans of private training: every number fixed in advance, without a look at the data."""

from __future__ import annotations

import hashlib
import json
import math
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_validator, model_validator

from privmix import _validate
from privmix._validate import FrozenModel
from privmix.accounting import (
    Event,
    PoissonGaussianEvent,
    Reading,
    account,
    calibrate,
    calibrate_noise_multiplier,
)
from privmix.accounting.stated import stated_epsilon
from privmix.dpsgd.augmentation import AugmentationPlan
from privmix.planning.plan import RECORD, PrivacyUnit
from privmix.schema import check_classes
from privmix.schema.facts import SHARES_TOLERANCE

# At this multiplier the noise on the integer grid is still within what the sampler can draw.
MAX_NOISE_MULTIPLIER = 1000.0
_MOST_STEPS = 10**7
# Where none is stated: 200 steps in ten passes, whatever the number of records. With 46 a linear model of 4,634
# records still gave all of them the larger class; beyond 1,000 records a step only costs time.
_STEPS_IN_A_PASS = 20
_USUAL_BATCH = 64, 1000


class TrainingConfig(FrozenModel):
    """The mechanism: what builds the sampler, the noise and the accounting event.

    Attributes:
        classes: The closed set of labels, integers or strings, in a fixed order.
        input_shape: Shape of a record: (channels, height, width), or (features,).
        num_records: Public planning constant for the number of records.
        batch_size: Expected number of records in a step, a public divisor.
        num_steps: Number of steps.
        noise_multiplier: Noise standard deviation over the sensitivity of the clipped sum.
        clip_norm: L2 bound on a record's mean gradient over its augmentations.
        learning_rate: Step width.
        momentum: Share of the previous update that is kept, in [0, 1).
        augmentation: What a record is turned into.
        microbatch_size: 1, or 2 for the baseline that clips the mean gradient of pairs of records:
            its sensitivity, and with it its noise, is 2 ``clip_norm``.
        target: ``class``, or ``soft``: a weight for each class, which is a record's target in the
            loss. Whatever the weights, ``clip_norm`` bounds the record's gradient.
        class_weight: Of each class: what the loss of a record of it counts, before its gradient is
            clipped; of linear heads alone. From public facts, such as shares of the classes. None:
            all count alike.

    """

    _omitted_if_default: ClassVar[tuple[str, ...]] = ("target", "class_weight")

    classes: tuple[int, ...] | tuple[str, ...]
    input_shape: tuple[int, ...]
    num_records: int
    batch_size: int
    num_steps: int
    noise_multiplier: float
    clip_norm: float = 1.0
    learning_rate: float = 1.0
    momentum: float = 0.0
    augmentation: AugmentationPlan = Field(default_factory=AugmentationPlan)
    microbatch_size: Literal[1, 2] = 1
    target: Literal["class", "soft"] = "class"
    class_weight: tuple[float, ...] | None = None

    @field_validator("class_weight", mode="before")
    @classmethod
    def _check_class_weight(cls, value: object) -> object:
        if value is None:
            return None
        if not isinstance(value, list | tuple):
            _validate.fail("class_weight", "a number for each class", repr(value)[:80])
        return tuple(_validate.real("class_weight", w, at_least=1e-6, at_most=1e6) for w in value)

    @field_validator("classes", mode="before")
    @classmethod
    def _check_classes(cls, value: object) -> object:
        names = check_classes(value)
        if len(names) < 2 or len(set(names)) != len(names):
            _validate.fail("classes", "at least two distinct classes", repr(value)[:80])
        return names

    @field_validator("input_shape", mode="before")
    @classmethod
    def _check_shape(cls, value: object) -> object:
        sizes = tuple(value) if isinstance(value, list | tuple) else ()
        if len(sizes) not in (1, 3):
            allowed = "(features,) or (channels, height, width)"
            _validate.fail("input_shape", allowed, repr(value))
        return tuple(_validate.integer("input_shape", size) for size in sizes)

    @field_validator("num_records", "batch_size", mode="before")
    @classmethod
    def _check_counts(cls, value: object, info: Any) -> int:
        return _validate.integer(info.field_name, value, at_most=2**31 - 1)

    @field_validator("num_steps", mode="before")
    @classmethod
    def _check_steps(cls, value: object) -> int:
        return _validate.integer("num_steps", value, at_most=_MOST_STEPS)

    @field_validator("noise_multiplier", mode="before")
    @classmethod
    def _check_noise(cls, value: object) -> float:
        return _validate.real(
            "noise_multiplier", value, at_least=1e-4, at_most=MAX_NOISE_MULTIPLIER
        )

    @field_validator("clip_norm", mode="before")
    @classmethod
    def _check_clip_norm(cls, value: object) -> float:
        return _validate.real("clip_norm", value, at_least=1e-6, at_most=1e6)

    @field_validator("learning_rate", mode="before")
    @classmethod
    def _check_learning_rate(cls, value: object) -> float:
        return _validate.real("learning_rate", value, above=0.0, at_most=1e9)

    @field_validator("momentum", mode="before")
    @classmethod
    def _check_momentum(cls, value: object) -> float:
        return _validate.real("momentum", value, at_least=0.0, below=1.0)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.batch_size > self.num_records:
            allowed = f"at most num_records = {self.num_records}"
            _validate.fail("batch_size", allowed, self.batch_size)
        if self.class_weight is not None and len(self.class_weight) != len(self.classes):
            allowed = f"{len(self.classes)} numbers, one for each class"
            _validate.fail("class_weight", allowed, len(self.class_weight))
        if self.microbatch_size == 2 and self.augmentation.num_synthetic:
            _validate.fail("augmentation", "no synthetic images in microbatches of 2", "some")
        self.augmentation.check_mixtures(self.microbatch_size)
        return self

    @property
    def num_classes(self) -> int:
        """Number of classes."""
        return len(self.classes)

    @property
    def sampling_prob(self) -> float:
        """Probability that a record (a pair of them, in microbatches of 2) enters a step."""
        return self.batch_size / self.num_records

    @property
    def event(self) -> PoissonGaussianEvent:
        """The mechanism as the accountants see it, of records."""
        return self.event_after(self.num_steps)

    def event_after(self, num_steps: int) -> PoissonGaussianEvent:
        """Return the event of the first ``num_steps`` steps."""
        return PoissonGaussianEvent(
            sampling_prob=self.sampling_prob,
            noise_multiplier=self.noise_multiplier,
            count=num_steps,
        )


class TrainingPlan(FrozenModel):
    """A training mechanism with its guarantee.

    Attributes:
        config: The mechanism.
        epsilon: Certified privacy loss of all steps at ``delta``.
        delta: The delta asked for.
        accountants: What each accountant says.
        unit_column: The public name of what owns several records each and is protected as a whole,
            ``patient`` say. None where single records are protected.
        max_records_per_unit: How many records of a unit take part at most; of the others nothing is
            used. None where single records are protected.

    """

    _omitted_if_default: ClassVar[tuple[str, ...]] = ("unit_column", "max_records_per_unit")

    format_version: Literal[1] = 1
    config: TrainingConfig
    epsilon: float
    delta: float
    accountants: dict[str, Reading | None]
    unit_column: str | None = None
    max_records_per_unit: int | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        self.unit.check(self.config.event.neighboring_relation)
        if self.unit != RECORD and self.config.microbatch_size != 1:
            _validate.fail("unit_column", "nothing in microbatches of 2", self.unit_column)
        return self

    @property
    def unit(self) -> PrivacyUnit:
        """Whose presence the model protects."""
        return PrivacyUnit(self.unit_column, self.max_records_per_unit)

    @property
    def event(self) -> Event:
        """All steps as the accountants see them."""
        return self.event_after(self.config.num_steps)

    def event_after(self, num_steps: int) -> Event:
        """Return the event of the first ``num_steps`` steps."""
        return self.unit.event(self.config.event_after(num_steps))

    @classmethod
    def for_config(
        cls, config: TrainingConfig, delta: float, unit: PrivacyUnit = RECORD
    ) -> TrainingPlan:
        """Account for a mechanism."""
        unit.check(config.event.neighboring_relation)
        accounting = account(unit.event(config.event), delta)
        return cls(
            config=config,
            epsilon=accounting.epsilon,
            delta=delta,
            accountants=accounting.accountants,
            unit_column=unit.column,
            max_records_per_unit=unit.max_records,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, ready for JSON."""
        return self.model_dump(mode="json")

    def to_json(self) -> str:
        """Return the plan as JSON."""
        return json.dumps(self.to_dict(), indent=2)

    def digest(self) -> bytes:
        """Return a SHA-256 of the mechanism; it binds the keys of a training."""
        text = self.model_dump_json(exclude={"accountants"})
        return hashlib.sha256(b"privmix training plan 1" + text.encode()).digest()

    def parameters_digest(self) -> str:
        """Return a SHA-256, in hexadecimal, of what the guarantee follows from, which a certificate keeps."""
        text = self.model_dump_json(exclude={"accountants", "epsilon"})
        return hashlib.sha256(b"privmix training parameters 1" + text.encode()).hexdigest()


def class_weights(given: object, balance: object) -> tuple[float, ...] | None:
    """Return a number for each class from what is given and from public shares of the classes.

    ``balanced`` is one over the class's share and over the number of classes, so that a record counts 1
    on average. Shares come from public facts, never from the records.

    Raises:
        InvalidInputError: ``balanced`` without a share for each class, or with shares that do not add up
            to 1; another word, or what is no list of numbers.

    """
    if given is None:
        return None
    if not isinstance(given, str):
        return tuple(_numbers("class_weight", given).tolist())
    _validate.one_of("class_weight", given, ("balanced",))
    if balance is None or isinstance(balance, str):
        allowed = "public shares of the classes beside balanced"
        _validate.fail("class_balance", allowed, "nothing" if balance is None else balance)
    shares = _numbers("class_balance", balance)
    for share in shares:
        _validate.real("class_balance", float(share), above=0.0, at_most=1.0)
    if abs(shares.sum() - 1) > SHARES_TOLERANCE:
        _validate.fail("class_balance", "shares that add up to 1", f"{shares.sum():.6g}")
    return tuple((1 / (len(shares) * shares)).tolist())


def _numbers(name: str, value: object) -> NDArray[np.float64]:
    try:
        found = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        found = None
    if found is None or found.ndim != 1:
        _validate.fail(name, "a number for each class", repr(value)[:80])
    return found


def usual_batch_size(num_records: int) -> int:
    """Return a twentieth of the records, from 64 to 1,000, or all of fewer: what is taken where none is stated."""
    least, most = _USUAL_BATCH
    return min(num_records, max(least, min(most, math.ceil(num_records / _STEPS_IN_A_PASS))))


def plan_training(
    *,
    target_epsilon: float,
    target_delta: float,
    epochs: float | None = None,
    noise_multiplier: float | None = None,
    unit_column: str | None = None,
    max_records_per_unit: int | None = None,
    **settings: Any,
) -> TrainingPlan:
    """Plan a training that costs at most (``target_epsilon``, ``target_delta``). Sees no data.

    Args:
        target_epsilon: Largest epsilon allowed.
        target_delta: Its delta.
        epochs: Expected number of times that a record takes part; the noise is solved for.
        noise_multiplier: Instead: the noise; the number of steps is solved for.
        unit_column: Name of what owns several records each, ``patient`` say: the guarantee is then
            for all records of one owner together. Needs ``max_records_per_unit``. ``num_records``
            is what is left of the records once at most that many of each owner are.
        max_records_per_unit: How many records of one owner take part at most, chosen at random.
        **settings: The other fields of :class:`TrainingConfig`, by keyword. Without ``batch_size`` it is a
            twentieth of ``num_records``, from 64 to 1,000.

    Returns:
        A plan whose certified epsilon is at or below the target.

    Raises:
        InvalidInputError: A setting out of range, both or neither of ``epochs`` and
            ``noise_multiplier``, or a target that no noise or number of steps meets.

    Example:
        >>> from privmix.dpsgd import AugmentationPlan, plan_training
        >>> plan = plan_training(
        ...     target_epsilon=1.0,
        ...     target_delta=1e-5,
        ...     epochs=2,
        ...     batch_size=100,
        ...     num_records=1000,
        ...     classes=range(3),
        ...     input_shape=(16,),
        ...     augmentation=AugmentationPlan.plain(),
        ... )
        >>> plan.epsilon <= 1.0, plan.config.num_steps
        (True, 20)

    """
    target = _validate.real("target_epsilon", target_epsilon, at_least=1e-6, at_most=1e4)
    delta = _validate.delta("target_delta", target_delta)
    unit = PrivacyUnit(unit_column, max_records_per_unit)
    unit.check("add_or_remove_one")
    if (epochs is None) == (noise_multiplier is None):
        both = "neither" if epochs is None else "both"
        _validate.fail("epochs and noise_multiplier", "one of the two", both)
    for name in ("num_steps", "noise_multiplier"):
        if name in settings:
            _validate.fail(name, "nothing where it is solved for", settings[name])
    count = settings.get("num_records")
    if settings.get("batch_size") is None and count is not None:
        settings["batch_size"] = usual_batch_size(_validate.size("num_records", count))
    if noise_multiplier is not None:
        config = TrainingConfig(num_steps=1, noise_multiplier=noise_multiplier, **settings)
        steps = calibrate(
            lambda count: unit.event(config.event_after(round(count))),
            "num_steps",
            target_epsilon=target,
            target_delta=delta,
            lower=1.0,
            upper=float(_MOST_STEPS),
            increasing=True,
            integer=True,
        )
        return TrainingPlan.for_config(
            TrainingConfig(num_steps=round(steps), noise_multiplier=noise_multiplier, **settings),
            delta,
            unit,
        )
    probe = TrainingConfig(num_steps=1, noise_multiplier=1.0, **settings)
    passes = _validate.real("epochs", epochs, above=0.0, at_most=1e6)
    num_steps = max(1, math.ceil(passes / probe.sampling_prob))

    def event(value: float) -> Event:
        steps = probe.event_after(num_steps).model_copy(update={"noise_multiplier": value})
        return unit.event(steps)

    noise = calibrate_noise_multiplier(event, target, delta)
    if noise > MAX_NOISE_MULTIPLIER:
        allowed = f"one met by a noise multiplier of at most {MAX_NOISE_MULTIPLIER:g}"
        _validate.fail("target_epsilon", allowed, f"{target:g}, which asks for {noise:.6g}")
    config = TrainingConfig(num_steps=num_steps, noise_multiplier=noise, **settings)
    while stated_epsilon(account(unit.event(config.event), delta).epsilon) > target:
        noise *= 1 + 1e-6
        config = config.model_copy(update={"noise_multiplier": noise})
    return TrainingPlan.for_config(config, delta, unit)
