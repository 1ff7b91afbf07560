"""Private training records: checked before anything is spent, turned into tensors one by one."""

from __future__ import annotations

import hashlib
import importlib.util
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privmix import _validate
from privmix.dpsgd.augmentation import Samples
from privmix.dpsgd.training_plan import TrainingConfig
from privmix.inputs.labels import match_labels

if TYPE_CHECKING:
    from torch import Tensor

_BLOCK = 1024


def require(*libraries: str) -> None:
    """Refuse to go on without a library of the extra."""
    for name in libraries:
        if importlib.util.find_spec(name) is None:
            allowed = "one that is installed: pip install 'privmix[dpsgd]'"
            _validate.fail(f"library {name}", allowed, "none")


@dataclass(frozen=True, repr=False)
class TrainingRecords:
    """Private records. Never shown, never written.

    Attributes:
        inputs: (count, *input_shape), uint8 or float32.
        labels: (count,) class indices.

    """

    inputs: NDArray[Any]
    labels: NDArray[np.int32]

    def __repr__(self) -> str:
        return "TrainingRecords(<private>)"

    @property
    def count(self) -> int:
        """The actual number of records: private."""
        return self.labels.size

    def digest(self) -> bytes:
        """Return a SHA-256 of the records; it binds the keys and is never published."""
        hasher = hashlib.sha256(b"privmix training records 1")
        hasher.update(repr((self.inputs.shape, self.inputs.dtype.str)).encode())
        hasher.update(np.ascontiguousarray(self.inputs).data)
        hasher.update(np.ascontiguousarray(self.labels).data)
        return hasher.digest()

    def tensor(self, record: int, device: Any) -> Tensor:
        """Return one record as a float tensor; bytes become numbers from 0 to 1."""
        return as_tensor(self.inputs[record], device)


def as_tensor(inputs: NDArray[Any], device: Any) -> Tensor:
    """Return a float32 tensor; bytes become numbers from 0 to 1."""
    import torch

    tensor = torch.tensor(inputs, device=device)
    return tensor.float() / 255 if inputs.dtype == np.uint8 else tensor


def check_inputs(inputs: ArrayLike, shape: tuple[int, ...], place: str) -> NDArray[Any]:
    """Return inputs as uint8 or float32, all finite, each of ``shape``."""
    if isinstance(inputs, list | tuple):
        are_bytes = {np.asarray(one).dtype == np.uint8 for one in inputs}
        if len(are_bytes) > 1:  # one of numbers would make numbers, from 0 to 255, of the others
            _validate.fail(place, "all of them bytes, or none", "both")
    array = np.asarray(inputs)
    if array.dtype.kind not in "fiu":
        _validate.fail(place, "an array of real numbers", f"an array of {array.dtype}")
    if array.ndim != len(shape) + 1 or array.shape[1:] != shape:
        wanted = ", ".join(map(str, shape))
        _validate.fail(place, f"shape (records, {wanted})", f"shape {array.shape}")
    if len(array) == 0:
        _validate.fail(place, "at least one record", "none")
    if array.dtype != np.uint8:
        with np.errstate(over="ignore"):
            array = array.astype(np.float32, copy=False)
        for start in range(0, len(array), _BLOCK):
            block = array[start : start + _BLOCK]
            bad = ~np.isfinite(block.reshape(len(block), -1)).all(axis=1)
            if bad.any():
                first = start + int(np.flatnonzero(bad)[0])
                _validate.fail(f"{place}[{first}]", "finite numbers", "NaN or infinity")
    return array


def check_records(
    inputs: ArrayLike, labels: ArrayLike, config: TrainingConfig, place: str = "inputs"
) -> TrainingRecords:
    """Check records against a plan.

    Raises:
        InvalidInputError: A wrong shape, a number that is not finite, a label that is no class.

    """
    array = check_inputs(inputs, config.input_shape, place)
    indices = match_labels(labels, config.classes)
    if len(array) != indices.size:
        _validate.fail("labels", f"one label for each of the {len(array)} records", indices.size)
    return TrainingRecords(array, indices)


def as_samples(records: TrainingRecords, num_classes: int, device: Any) -> Samples:
    """Return public examples as tensors with one-hot targets."""
    import torch

    targets = torch.eye(num_classes, device=device)[
        torch.as_tensor(records.labels, device=device).long()
    ]
    return Samples(as_tensor(records.inputs, device), targets)
