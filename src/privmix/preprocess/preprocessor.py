"""Run the steps of a plan, and apply what they learnt: to private records, and to test records."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from safetensors.numpy import save

from privmix import _validate
from privmix.clipping import FixedPoint, clipped, rescaled
from privmix.foreign.tensors import read_tensors
from privmix.preprocess.statistics import noisy_statistics
from privmix.preprocess.steps import (
    Center,
    ClassCounts,
    Intercept,
    PublicStatistics,
    RandomProjection,
    RecordFacts,
    SelectFeatures,
    Step,
    Subspace,
    UnitNorm,
    charged,
    step_facts,
)
from privmix.preprocess.transforms import projected, random_signs, with_constant
from privmix.records.bounded import BoundedRecords, Records, TransformedRecords

if TYPE_CHECKING:
    from privmix.rng import MasterKey

Matrix = NDArray[np.float64]
Tensors = dict[str, NDArray[Any]]

FILE_NAME = "preprocessing.safetensors"
# A class of fewer records than this share of its planned number is ranked as if it had as many:
# dividing by a count near zero would rank features by noise.
_LEAST_SHARE = 0.1
# Two machines' eigenvectors span the same subspace up to this.
_SUBSPACE_TOLERANCE = 1e-6


class FeatureStatistics(NamedTuple):
    """What a feature selection published, in the units of the records it saw.

    Attributes:
        means: (K, d) noisy class means.
        mean_noise: (K,) noise stddev of a coordinate of each class's mean.
        squares: (d,) noisy mean of the squares over the planned records, or None.
        square_noise: Its noise stddev, or None.

    """

    means: Matrix
    mean_noise: NDArray[np.float64]
    squares: NDArray[np.float64] | None
    square_noise: float | None


@dataclass(frozen=True)
class Preprocessor:
    """The steps of a release with what they published: a public function of feature vectors.

    Attributes:
        steps: The steps, in order.
        facts: Public facts of the records before the first step.
        results: For each step done, its published integers by kind, and what follows from them:
            ``mean`` (d,) float64 of :class:`Center`, ``columns`` int64 of :class:`SelectFeatures`,
            ``basis`` (r, d) float64 of :class:`Subspace`.

    """

    steps: tuple[Step, ...]
    facts: RecordFacts
    results: tuple[Tensors, ...] = ()

    @property
    def num_inputs(self) -> int:
        """Width of a raw feature vector."""
        return self.facts.num_features

    @property
    def num_outputs(self) -> int:
        """Width after the steps."""
        return step_facts(self.steps, self.facts)[-1].num_features

    @property
    def is_charged(self) -> bool:
        """Whether any step is charged, and so has results."""
        return bool(charged(self.steps))

    @property
    def is_complete(self) -> bool:
        """Whether every step is done."""
        return len(self.results) == len(self.steps)

    def transform(self, features: ArrayLike) -> Matrix:
        """Apply the steps done so far to feature vectors, one record at a time.

        Args:
            features: (count, num_inputs) finite numbers; longer vectors are clipped.

        Returns:
            (count, width) float64 vectors no longer than the clip norm. A record's result is the
            same, bit for bit, whatever records are transformed beside it.

        """
        rows = clipped(np.asarray(features, dtype=np.float64), self.facts.clip_norm)
        for step, result in zip(self.steps, self.results, strict=False):
            rows = clipped(self._apply(step, result, rows), self.facts.clip_norm)
        return rows

    def _apply(self, step: Step, result: Tensors, rows: Matrix) -> Matrix:
        if isinstance(step, Center):
            return rows - result["mean"]
        if isinstance(step, SelectFeatures):
            return rows[:, result["columns"]]
        if isinstance(step, Subspace):
            return projected(rows, result["basis"])
        if isinstance(step, RandomProjection):
            return projected(rows, random_signs(step.seed, step.num_directions, rows.shape[1]))
        if isinstance(step, PublicStatistics):
            return np.asarray((rows - np.array(step.mean)) / np.array(step.stddev or 1.0))
        if isinstance(step, UnitNorm):
            return rescaled(rows, self.facts.clip_norm)
        if isinstance(step, Intercept):
            return with_constant(rows, step.share, self.facts.clip_norm)
        return rows

    def transform_records(self, records: Records) -> Records:
        """Apply the steps done so far to bounded records, and bound them again. Private.

        Records that were replaced by zero stay zero. Records that are read again whenever needed
        are transformed as often.
        """
        if not self.results:
            return records
        grid, scale = FixedPoint(self.facts.clip_norm), records.feature_grid.scale
        width = step_facts(self.steps, self.facts)[len(self.results)].num_features

        def transform(
            features: NDArray[np.int16], blank: NDArray[np.bool_], out: NDArray[np.int16]
        ) -> None:
            block = self.transform(features / scale)
            block[blank] = 0.0
            grid.quantise(block, out)

        facts: dict[str, Any] = {
            "labels": records.labels,
            "blank": records.blank,
            "units": records.units,
            "feature_grid": grid,
            "label_grid": records.label_grid,
            "num_clipped": records.num_clipped,
            "num_replaced": records.num_replaced,
            "num_labels_clipped": records.num_labels_clipped,
        }
        if not records.in_memory:
            return TransformedRecords(
                original=records, transform=transform, num_features=width, **facts
            )
        kept = np.empty((records.count, width), dtype=np.int16)
        for start in range(0, records.count, records.stretch_records):
            stop = min(start + records.stretch_records, records.count)
            transform(records.read(start, stop), records.blank[start:stop], kept[start:stop])
        return BoundedRecords(features=kept, **facts)

    def run_next(self, records: Records, key: MasterKey) -> Preprocessor:
        """Run the next step on raw records. Private in, public out."""
        number = len(self.results)
        step, facts = self.steps[number], step_facts(self.steps, self.facts)[number]
        published: Tensors = {}
        if step.is_charged:
            seen = self.transform_records(records)
            (paid,) = charged((step,))
            published = dict(noisy_statistics(paid, facts, seen, key, number))
        return self._with_result(published)

    def _with_result(self, published: Mapping[str, NDArray[Any]]) -> Preprocessor:
        number = len(self.results)
        step, facts = self.steps[number], step_facts(self.steps, self.facts)[number]
        result = {**published, **self._derived(step, facts, published)}
        return Preprocessor(self.steps, self.facts, (*self.results, result))

    def _derived(
        self, step: Step, facts: RecordFacts, published: Mapping[str, NDArray[Any]]
    ) -> Tensors:
        """Compute from published integers what a step applies to records."""
        unit = FixedPoint(facts.clip_norm).scale
        if isinstance(step, Center):
            return {"mean": published["feature_sums"] / (unit * facts.num_records)}
        if isinstance(step, SelectFeatures):
            means = published["class_sums"] / (unit * self.class_sizes[:, None])
            spread = means.max(axis=0) - means.min(axis=0)
            # Ties go to the feature that comes first.
            best = np.argsort(-spread, kind="stable")[: step.num_selected]
            return {"columns": np.sort(best).astype(np.int64)}
        if isinstance(step, Subspace):
            moments = _symmetric(published["second_moments"], facts.num_features)
            basis = np.linalg.eigh(moments.astype(np.float64))[1]
            return {"basis": np.ascontiguousarray(basis[:, : -step.num_directions - 1 : -1].T)}
        return {}

    @property
    def class_counts(self) -> NDArray[np.int64] | None:
        """(K,) noisy numbers of records, negative ones included; None if no step counted."""
        for step, result in zip(self.steps, self.results, strict=False):
            if isinstance(step, ClassCounts):
                return np.asarray(result["class_counts"], dtype=np.int64)
        return None

    @property
    def counted(self) -> tuple[NDArray[np.float64], float] | None:
        """(K,) noisy numbers of records over the planned number of all, and their standard error.

        None if no step counted.
        """
        seen = step_facts(self.steps, self.facts)
        for step, facts, result in zip(self.steps, seen, self.results, strict=False):
            if isinstance(step, ClassCounts):
                planned = self.facts.num_records
                return result["class_counts"] / planned, step.stddevs(facts)[0] / planned
        return None

    @property
    def class_sizes(self) -> NDArray[np.float64]:
        """(K,) records of each class: counted by the steps done so far, or else planned.

        Never below a tenth of the planned number.
        """
        planned = np.full(self.facts.num_classes, self.facts.num_records / self.facts.num_classes)
        counts = self.class_counts
        return planned if counts is None else np.maximum(counts, _LEAST_SHARE * planned)

    def before(self, number: int) -> Preprocessor:
        """Return the steps before ``number`` alone: what its records had been through."""
        return Preprocessor(self.steps[:number], self.facts, self.results[:number])

    def feature_statistics(self, number: int) -> FeatureStatistics:
        """Return what the :class:`SelectFeatures` at ``number`` published, for all its features."""
        step, facts = self.steps[number], step_facts(self.steps, self.facts)[number]
        if not isinstance(step, SelectFeatures):
            _validate.fail(f"preprocessing[{number}]", "select_features", step.step)
        unit, result = FixedPoint(facts.clip_norm).scale, self.results[number]
        sizes = self.before(number).class_sizes
        stddevs = step.stddevs(facts)
        squares = noise = None
        if step.with_squares:
            squares = result["square_sums"] / (unit**2 * facts.num_records)
            noise = stddevs[1] / (unit**2 * facts.num_records)
        means = result["class_sums"] / (unit * sizes[:, None])
        return FeatureStatistics(means, stddevs[0] / (unit * sizes), squares, noise)

    def to_bytes(self) -> bytes:
        """Return the results as the bytes of their file, the same for the same results."""
        return save(self.tensors())

    def tensors(self) -> Tensors:
        """Return all results under names of their own: number, step, name."""
        return {
            f"{number}.{step.step}.{name}": np.ascontiguousarray(tensor)
            for number, (step, result) in enumerate(zip(self.steps, self.results, strict=False))
            for name, tensor in sorted(result.items())
        }

    def with_results(self, content: bytes | None, position: str = FILE_NAME) -> Preprocessor:
        """Read results from the bytes of a file; None is no file. See :meth:`with_tensors`."""
        if content is None:
            return self.with_tensors({}, position)
        tensors, _ = read_tensors(content, position, "a safetensors file of privmix")
        return self.with_tensors(tensors, position)

    def size_bounds(self) -> tuple[int, int]:
        """Return the least and the most bytes of the file of all results."""
        parts = [
            part for number in range(len(self.steps)) for part in self._layout(number).values()
        ]
        least = sum(math.prod(shape) * kind.itemsize for shape, kind in parts)
        return least, least + 8 + 256 * (len(parts) + 1)

    def with_tensors(self, tensors: Tensors, position: str = FILE_NAME) -> Preprocessor:
        """Take results over, as many steps as are there.

        Raises:
            InvalidInputError: Tensors of other names, shapes or types than those of the steps, or
                numbers that are not finite.

        """
        tensors = dict(tensors)
        results: list[Tensors] = []
        seen = step_facts(self.steps, self.facts)
        for number, step in enumerate(self.steps):
            prefix = f"{number}.{step.step}."
            names = [name for name in tensors if name.startswith(prefix)]
            due = self._layout(number)
            if due and not names:
                break
            result = {name.removeprefix(prefix): tensors.pop(name) for name in names}
            found = {name: (tensor.shape, tensor.dtype) for name, tensor in result.items()}
            if found != due:
                _validate.fail(f"{position}: {prefix[:-1]}", str(due), str(found))
            if not all(np.isfinite(tensor).all() for tensor in result.values()):
                _validate.fail(f"{position}: {prefix[:-1]}", "finite numbers", "others")
            columns = result.get("columns", np.zeros(0))
            if (np.diff(columns, prepend=-1) < 1).any() or columns.max(initial=0) >= seen[
                number
            ].num_features:
                allowed = f"increasing numbers below {seen[number].num_features}"
                _validate.fail(f"{position}: {prefix}columns", allowed, "others")
            results.append(result)
        if tensors:
            _validate.fail(position, "results of the plan's steps", min(tensors))
        return Preprocessor(self.steps, self.facts, tuple(results))

    def _layout(self, number: int) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
        """Return shape and type of each tensor of a step."""
        step = self.steps[number]
        seen, left = step_facts(self.steps, self.facts)[number : number + 2]
        due: dict[str, tuple[tuple[int, ...], np.dtype[Any]]] = {
            part.kind: (part.shape, np.dtype(np.int64)) for part in step.statistics(seen)
        }
        if isinstance(step, Center):
            due["mean"] = ((seen.num_features,), np.dtype(np.float64))
        elif isinstance(step, SelectFeatures):
            due["columns"] = ((left.num_features,), np.dtype(np.int64))
        elif isinstance(step, Subspace):
            due["basis"] = ((left.num_features, seen.num_features), np.dtype(np.float64))
        return due

    def published(self) -> Iterator[tuple[str, NDArray[np.int64], float]]:
        """Yield (name, integers, noise stddev) of everything that charged steps published."""
        seen = step_facts(self.steps, self.facts)
        for number, (step, result) in enumerate(zip(self.steps, self.results, strict=False)):
            for paid in charged((step,)):
                parts = paid.statistics(seen[number])
                for part, stddev in zip(parts, paid.stddevs(seen[number]), strict=True):
                    integers = np.asarray(result[part.kind], dtype=np.int64)
                    yield f"{number}.{step.step}.{part.kind}", integers, stddev

    def problems(self) -> list[str]:
        """Recompute everything that follows from the published integers; say what differs.

        Eigenvectors are compared by the second moments that their subspace holds, since machines
        round them apart.
        """
        again = Preprocessor(self.steps, self.facts)
        found = []
        for number, (step, result) in enumerate(zip(self.steps, self.results, strict=True)):
            position = f"{FILE_NAME}: {number}.{step.step}"
            kinds = {part.kind for part in step.statistics(self.facts)}
            published = {name: tensor for name, tensor in result.items() if name in kinds}
            again = again._with_result(published)
            for name in result.keys() - kinds:
                if name == "basis":
                    same = _same_subspace(published["second_moments"], result, again.results[-1])
                else:
                    same = np.array_equal(result[name], again.results[-1][name])
                if not same:
                    found.append(f"{position}.{name} does not follow from what was published")
            # What follows is judged by what the release itself used.
            again = Preprocessor(self.steps, self.facts, self.results[: number + 1])
        return found


def _same_subspace(triangle: NDArray[Any], found: Tensors, due: Tensors) -> bool:
    basis, expected = found["basis"], due["basis"]
    overlap = basis @ basis.T - np.eye(len(basis))
    moments = _symmetric(triangle, basis.shape[1]).astype(np.float64)
    held, most = (float(np.sum((b @ moments) * b)) for b in (basis, expected))
    scale = float(np.abs(np.linalg.eigvalsh(moments)).max())
    return bool(
        np.abs(overlap).max() <= _SUBSPACE_TOLERANCE
        and abs(held - most) <= _SUBSPACE_TOLERANCE * len(basis) * scale
    )


def _symmetric(triangle: NDArray[Any], width: int) -> NDArray[np.int64]:
    """Return the symmetric matrix of an upper triangle given row by row."""
    matrix = np.zeros((width, width), dtype=np.int64)
    matrix[np.triu_indices(width)] = triangle
    return np.asarray(np.triu(matrix) + np.triu(matrix, 1).T)
