"""Private training records: checked before anything is spent, turned into tensors one by one."""

from __future__ import annotations

import hashlib
import importlib.util
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privmix import _validate
from privmix.dpsgd.augmentation import Samples
from privmix.dpsgd.training_plan import TrainingConfig
from privmix.inputs.arrays import to_array
from privmix.inputs.labels import LABEL_RULES, match_labels
from privmix.inputs.owners import Owned, Units, match_units

if TYPE_CHECKING:
    from torch import Tensor

    from privmix.rng import KeyStream

_BLOCK = 1024


def require(*libraries: str) -> None:
    """Refuse to go on without a library of the extra."""
    for name in libraries:
        if importlib.util.find_spec(name) is None:
            allowed = "one that is installed: pip install 'privmix[dpsgd]'"
            _validate.fail(f"library {name}", allowed, "none")


@dataclass(frozen=True, repr=False)
class TrainingRecords(Owned):
    """Private records. Never shown, never written.

    Attributes:
        inputs: (count, *input_shape), uint8 or float32.
        labels: (count,) class indices, int32; or (count, num_classes) weights, float32.
        units: Who owns each record, as long as no sample of each owner's has been taken.

    """

    inputs: NDArray[Any]
    labels: NDArray[Any]
    units: Units | None = None

    def __repr__(self) -> str:
        return "TrainingRecords(<private>)"

    @property
    def count(self) -> int:
        """The actual number of records: private."""
        return len(self.labels)

    def digest(self) -> bytes:
        """Return a SHA-256 of the records; it binds the keys and is never published."""
        hasher = hashlib.sha256(b"privmix training records 1")
        hasher.update(repr((self.inputs.shape, self.inputs.dtype.str)).encode())
        hasher.update(np.ascontiguousarray(self.inputs).data)
        hasher.update(np.ascontiguousarray(self.labels).data)
        if self.units is not None:
            hasher.update(self.units.digest())
        return hasher.digest()

    def sampled(self, stream: KeyStream, max_records_per_unit: int) -> TrainingRecords:
        """Return the records of a sample of each unit's, in their order, and nothing of the others."""
        if self.units is None:
            raise ValueError("these records have no units")
        chosen = self.units.chosen(stream, max_records_per_unit)
        if chosen.size == self.count:
            return TrainingRecords(self.inputs, self.labels)
        return TrainingRecords(self.inputs[chosen], self.labels[chosen])

    def label_bytes(self, record: int) -> bytes:
        """Return what a record's label is, in full."""
        label = self.labels[record]
        return str(label).encode() if self.labels.ndim == 1 else label.tobytes()

    def tensor(self, record: int, device: Any) -> Tensor:
        """Return one record as a float tensor; bytes become numbers from 0 to 1."""
        return as_tensor(self.inputs[record], device)


def as_tensor(inputs: NDArray[Any], device: Any) -> Tensor:
    """Return a float32 tensor; bytes become numbers from 0 to 1."""
    import torch

    tensor = torch.tensor(inputs, device=device)
    return tensor.float() / 255 if inputs.dtype == np.uint8 else tensor


def as_inputs(inputs: ArrayLike, position: str) -> NDArray[Any]:
    """Return inputs as an array, of a type that no record decides alone.

    Neighbouring data sets differ in one record, and all others must be trained on as the same numbers in
    both. Bytes stand for 0 to 1, so that the type of an array is part of what its records are; it is a
    fact of the data set as a whole, as its shape is. Of a sequence NumPy would find one type for all
    records: a single one of other numbers would turn the bytes of all others into numbers up to 255.
    So a sequence of both is refused, before anything is spent.

    Raises:
        InvalidInputError: A sequence of arrays of bytes and of other numbers.

    """
    if _is_sequence(inputs):
        are_bytes = {to_array(position, one).dtype == np.uint8 for one in inputs}  # type: ignore[union-attr]
        if len(are_bytes) > 1:
            _validate.fail(position, "all of them bytes, or none", "both")
    return to_array(position, inputs)


def _is_sequence(inputs: object) -> bool:
    """Whether NumPy would look for a type in the items: lists, and all that can be indexed like one."""
    typed = isinstance(inputs, str | bytes | memoryview) or hasattr(inputs, "__array__")
    return not typed and hasattr(inputs, "__len__") and hasattr(inputs, "__getitem__")


def check_inputs(inputs: ArrayLike, shape: tuple[int, ...], position: str) -> NDArray[Any]:
    """Return inputs as uint8 or float32, all finite, each of ``shape``; see :func:`as_inputs`."""
    array = as_inputs(inputs, position)
    if array.dtype.kind not in "fiu":
        _validate.fail(position, "an array of real numbers", f"an array of {array.dtype}")
    if array.ndim != len(shape) + 1 or array.shape[1:] != shape:
        wanted = ", ".join(map(str, shape))
        _validate.fail(position, f"shape (records, {wanted})", f"shape {array.shape}")
    if len(array) == 0:
        _validate.fail(position, "at least one record", "none")
    if array.dtype != np.uint8:
        array = _single(array)
        for start in range(0, len(array), _BLOCK):
            block = array[start : start + _BLOCK]
            bad = ~np.isfinite(block.reshape(len(block), -1)).all(axis=1)
            if bad.any():
                first = start + int(np.flatnonzero(bad)[0])
                _validate.fail(f"{position}[{first}]", "finite numbers", "NaN or infinity")
    return array


def _single(array: NDArray[Any]) -> NDArray[np.float32]:
    """Return numbers as float32, each rounded to float64 first.

    NumPy makes float64 of integers beside numbers with a fraction: so rounded twice in any case, a
    number does not depend on what the others are.
    """
    kind, size = array.dtype.kind, array.dtype.itemsize
    if size < 8 or (kind == "f" and size == 8):  # which float64 holds
        with np.errstate(over="ignore"):
            return array.astype(np.float32, copy=False)
    rounded = np.empty(array.shape, dtype=np.float32)
    for start in range(0, len(array), _BLOCK):
        with np.errstate(over="ignore"):
            rounded[start : start + _BLOCK] = array[start : start + _BLOCK].astype(np.float64)
    return rounded


def check_records(
    inputs: ArrayLike,
    labels: ArrayLike,
    config: TrainingConfig,
    position: str = "inputs",
    *,
    target: Literal["class", "soft"] | None = None,
    units: ArrayLike | None = None,
) -> TrainingRecords:
    """Check records against a plan.

    Args:
        inputs: (count, *input_shape).
        labels: (count,) classes; (count, num_classes) weights where the target is ``soft``.
        config: The plan's.
        position: What errors call the inputs.
        target: What labels are; the plan's by default.
        units: (count,) identifiers of the records' owners, for a plan that protects units.

    Raises:
        InvalidInputError: A wrong shape, a number that is not finite, a label that is no class,
            weights that are negative or do not add up to 1, a record without an owner.

    """
    array = check_inputs(inputs, config.input_shape, position)
    soft = (target or config.target) == "soft"
    found: NDArray[Any] = (
        _weights(labels, config.num_classes) if soft else match_labels(labels, config.classes)
    )
    if len(array) != len(found):
        _validate.fail("labels", f"one label for each of the {len(array)} records", len(found))
    owners = None if units is None else _owners(units, len(array))
    return TrainingRecords(array, found, owners)


def _owners(units: ArrayLike, count: int) -> Units:
    """Match owners; each record must have one."""
    found = match_units(units, strict=False)
    if found.codes.size != count:
        allowed = f"one identifier for each of the {count} records"
        _validate.fail("units", allowed, found.codes.size)
    if found.missing.any():
        first = int(np.flatnonzero(found.missing)[0])
        _validate.fail(f"units[{first}]", "an identifier", "nothing, or bytes that are no text")
    return found


def _weights(labels: ArrayLike, num_classes: int) -> NDArray[np.float32]:
    """Return (count, num_classes) weights: the loss is that of a distribution over the classes."""
    found = np.asarray(labels)
    if found.dtype.kind not in "fiub":
        _validate.fail("labels", "an array of weights", f"an array of {found.dtype}")
    if found.ndim != 2 or found.shape[1] != num_classes:
        _validate.fail("labels", f"shape (records, {num_classes})", f"shape {found.shape}")
    weights = found.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        holds = LABEL_RULES["soft"].holds(weights).all(axis=1) & (weights.sum(axis=1) >= 1 - 1e-5)
    if not holds.all():
        first = int(np.flatnonzero(~holds)[0])
        allowed = "weights of at least 0 that add up to 1"
        _validate.fail(f"labels[{first}]", allowed, "others")
    return weights.astype(np.float32)


def as_samples(records: TrainingRecords, num_classes: int, device: Any) -> Samples:
    """Return public examples as tensors with one-hot targets."""
    import torch

    targets = torch.eye(num_classes, device=device)[
        torch.as_tensor(records.labels, device=device).long()
    ]
    return Samples(as_tensor(records.inputs, device), targets)
