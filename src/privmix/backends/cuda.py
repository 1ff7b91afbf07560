"""Mixing on a GPU through PyTorch, exactly: the same index sets and the same bits as elsewhere."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self, cast

import numpy as np
from numpy.typing import NDArray

from privmix import _validate
from privmix.backends import Job
from privmix.backends.local import LocalBackend
from privmix.mixer import Rows
from privmix.mixing import BlockSums
from privmix.publishing.folder import TableBlock
from privmix.records.bounded import BoundedRecords, Records, shard_records
from privmix.sampling import Inclusions

if TYPE_CHECKING:
    import torch

_LARGEST = 32767  # magnitude of an int16 feature, the same on both sides of zero
_EXACT_FLOAT32 = 1 << 24  # every integer up to this is a float32, and likewise for float64
_EXACT_FLOAT64 = 1 << 53
_COPY_BYTES = 1 << 30


class CudaBackend(LocalBackend):
    """A GPU gathers and adds the feature vectors; threads draw index sets and noise meanwhile.

    The records are kept on the device as float32, 4 bytes a number. Sums are taken in float32 where
    no partial sum can reach 2^24, else in float64: every addition is then one of integers that the
    type holds exactly, so that neither the order of additions nor a fused multiplication matters.

    Args:
        threads: Threads that draw.
        device: PyTorch device; ``cpu`` gives the same bits, for tests.

    Raises:
        InvalidInputError: No PyTorch, or no such device.

    """

    def __init__(self, threads: int, device: str = "cuda") -> None:
        super().__init__(threads)
        self._device = device

    def __enter__(self) -> Self:
        try:
            import torch
        except ImportError:
            _validate.fail(
                "backend", "cuda with PyTorch: pip install 'privmix[torch]'", "no PyTorch"
            )
        try:
            torch.zeros(1, device=self._device)
        except (RuntimeError, AssertionError) as error:
            _validate.fail("backend", f"a PyTorch device {self._device!r}", _first_line(error))
        return self

    def rows(self, job: Job, table_blocks: Sequence[TableBlock]) -> Generator[Rows]:
        """Yield the published rows of blocks in order, adding up on the device."""
        job = replace(
            job,
            records=records_on_device(job.records, self._device),
            sums=DeviceSums,
        )
        yield from super().rows(job, table_blocks)


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def records_on_device(records: Records, device: str) -> Records:
    """Return records whose features are a float32 tensor on a device."""
    import torch

    features = torch.empty((records.count, records.num_features), device=device)
    step = shard_records(records.num_features)
    for start in range(0, records.count, step):
        values = np.ascontiguousarray(records.read(start, min(start + step, records.count)))
        features[start : start + len(values)] = torch.from_numpy(values).to(device)
    return BoundedRecords(
        labels=records.labels,
        blank=records.blank,
        feature_grid=records.feature_grid,
        label_grid=records.label_grid,
        num_clipped=records.num_clipped,
        num_replaced=records.num_replaced,
        features=cast(Any, features),
    )


class DeviceSums(BlockSums):
    """Sums whose features are added up, and stay, where :func:`records_on_device` put the records.

    They are int32 for as long as no row can overflow it, as in ``mixing.BlockSums``.
    """

    _total: torch.Tensor | None = None

    @property
    def features(self) -> NDArray[Any]:
        """A copy of the sums, in the processor's memory."""
        return self._features if self._total is None else self._total.cpu().numpy()

    @features.setter
    def features(self, features: NDArray[Any]) -> None:
        self._features = features
        self._total = None

    def _on(self, values: Any) -> torch.Tensor:
        """Return the sums on the device of some values, wide enough for what was counted."""
        import torch

        if self._total is None:
            self._total = torch.from_numpy(self._features).to(values.device)
        return self._total

    def _widen(self) -> None:
        import torch

        if self._total is None:
            super()._widen()
        else:
            self._total = self._total.to(torch.int64)

    def _add_features(self, values: Any, rows: NDArray[np.int64], inclusions: Inclusions) -> None:
        total = self._on(values)
        if inclusions.records.size:
            import torch

            where = torch.from_numpy(rows).to(values.device)
            total.index_add_(0, where, bag_sums(values, inclusions).to(total.dtype))

    def _add_once(self, values: Any, rows: NDArray[np.int64], once: Self) -> None:
        import torch

        total = self._on(values)
        total[torch.from_numpy(rows).to(values.device)] += once._on(values).to(total.dtype)


def bag_sums(values: torch.Tensor, inclusions: Inclusions) -> torch.Tensor:
    """Return the exact sums of the vectors of each row, (rows, width) integers on the device.

    Args:
        values: (num_records, width) float32, integers of magnitude at most 32767.
        inclusions: Which of them each row includes, and with what weight.

    """
    import torch

    starts, records, weights = inclusions
    largest = 1 if weights is None else int(np.abs(weights).max(initial=0))
    bound = int(np.diff(starts).max(initial=0)) * largest * _LARGEST
    if bound >= _EXACT_FLOAT64:
        raise OverflowError("a row of more than 2^24 records has no exact sum on this device")
    small = bound < _EXACT_FLOAT32
    kind = torch.float32 if small else torch.float64
    device, width = values.device, values.shape[1]
    # In float64, a stretch of columns at a time: a copy of all records would be twice as large.
    step = width if small else max(1, _COPY_BYTES // (8 * len(values)))
    members = torch.from_numpy(records.astype(np.int64)).to(device)
    offsets = torch.from_numpy(starts).to(device)
    factors = None if weights is None else torch.from_numpy(weights).to(device, kind)
    columns = [
        torch.nn.functional.embedding_bag(
            members,
            values[:, first : first + step].to(kind),
            offsets,
            mode="sum",
            include_last_offset=True,
            per_sample_weights=factors,
        ).to(torch.int32 if small else torch.int64)
        for first in range(0, width, step)
    ]
    return torch.cat(columns, dim=1)
