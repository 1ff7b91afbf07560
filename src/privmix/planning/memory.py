"""How a release fits into memory: what it will hold at most, and what it can do with less.

The records either stay in memory, bounded, or are read again in **sweeps**: each sweep passes over
all of them, shard by shard, and adds them to the sums of as many rows as there is room for. The
published bits are the same.
"""

from __future__ import annotations

from typing import NamedTuple

from privmix import _validate
from privmix.mechanism import MixtureConfig, ReleaseConfig, ResidualConfig, TableConfig
from privmix.records.bounded import batch_records, shard_records
from privmix.running.resources import default_memory

_INTERPRETER = 460 << 20  # with the libraries, compiled kernels, and what the allocator keeps
# The accountant at its peak, before there are any sums, at the finest grids: where freed arrays go
# back to the system at once (``resources.spare_memory``), and where they do not.
_ACCOUNTANT = 720 << 20
_ACCOUNTANT_AT_EASE = 900 << 20
_PER_THREAD = 4 << 20


class MemoryLayout(NamedTuple):
    """Where the records are, and what that takes.

    Attributes:
        in_memory: Whether the bounded records stay in memory.
        sums_bytes: What the sums of one sweep may take.
        peak_bytes: Expected peak of the whole process.

    """

    in_memory: bool
    sums_bytes: int
    peak_bytes: int


def memory_layout(
    mechanism: ReleaseConfig,
    num_records: int,
    max_memory: int | None,
    threads: int,
    *,
    raw_width: int | None = None,
    sampled: bool = False,
    other_bytes: int = 0,
    position: str = "max_memory",
) -> MemoryLayout:
    """Lay a release out for a given memory.

    Args:
        mechanism: What is to be released.
        num_records: How many records there are, or are planned.
        max_memory: Bytes that the process may take; half of the machine's by default, or the least
            that works.
        threads: Number of threads.
        raw_width: Number of features before preprocessing, if there is any.
        sampled: Whether a sample of each unit's records is taken, which makes a copy.
        other_bytes: What the input and the preprocessing keep in memory by themselves.
        position: What an error names.

    Raises:
        InvalidInputError: Too little memory; the error says the least that works.

    """
    components = mechanism.components
    width = mechanism.num_features
    widest = max(width, raw_width or 0)
    kept = width + (raw_width or 0) + ((raw_width or width) if sampled else 0)
    limit = default_memory() if max_memory is None else max_memory
    fixed = _INTERPRETER + other_bytes + 16 * num_records
    if sampled:  # identifiers as Python objects, and who owns what
        fixed += 128 * num_records
    if any(
        component.target != "class" for component in components
    ):  # label vectors, also as they came
        fixed += (8 + 8 + 2) * num_records * components[0].num_classes
    fixed += max(_working_bytes(component, threads) for component in components)
    fixed += threads * batch_records(raw_width or width) * widest * (8 + 8 + 2)
    choices = 8 * max(component.rows_per_record or 0 for component in components)
    whole = fixed + num_records * (2 * kept + choices)
    accountant = _ACCOUNTANT_AT_EASE if max_memory is None else _ACCOUNTANT
    whole = max(whole, accountant)
    if whole <= limit:
        return MemoryLayout(True, 0, whole)
    shard = min(num_records, shard_records(width))
    # One shard is added while the next is read.
    fixed += 2 * shard * 2 * width + 3 * shard * choices
    swept = [one for one in components if isinstance(one, MixtureConfig)]
    largest = max(sum_bytes(one, one.longest_block, num_records) for one in swept)
    least = max(fixed + largest, accountant)
    if max_memory is not None and least > limit:
        needed = f"at least {-(-min(least, whole) // 10**6)}MB for this release"
        needed += f" with {threads} threads, or fewer threads" if threads > 1 else ""
        _validate.fail(position, needed, f"{limit // 10**6}MB")
    every = sum(sum_bytes(one, one.num_mixtures, num_records) for one in swept)
    sums = min(every, max(limit - fixed, largest))
    return MemoryLayout(False, sums, max(fixed + sums, accountant))


def sum_bytes(config: MixtureConfig, num_rows: int, num_records: int) -> int:
    """Bytes that the sums of rows take in a sweep, with what must be kept beside them."""
    # A row of more than 65536 records no longer fits into 32 bits.
    wide = config.weight_clip is not None or config.mix_size > 1 << 15
    row = config.num_features * (8 if wide else 4) + 8
    row += 8 * config.num_classes if config.labels == "mixed" else 0
    if config.design == "uniform":  # drawn for all shards at once, and divided
        shards = -(-num_records // config.shard_records)
        row += 8 * shards + (8 if config.weight_clip else 4) * round(config.mix_size)
    return row * num_rows


def _working_bytes(config: TableConfig, threads: int) -> int:
    """Blocks in the making, and finished ones that wait to be written."""
    if isinstance(config, ResidualConfig):
        return _round_bytes(config, threads)
    rows = config.longest_block
    numbers = rows * config.row_width
    # Sums, published values, and their copies on the way into a file.
    block = numbers * (4 + 4 + 4 + 4)
    mixed = min(config.inclusion_prob * config.shard_records, 2 * config.mix_size + 16)
    certain = config.inclusion_prob == 1 and not isinstance(config.class_prob, tuple)
    drawing = 0 if certain else 64 * rows * max(1, round(mixed))
    return (threads + 2) * block + threads * (drawing + _PER_THREAD)


def _round_bytes(config: ResidualConfig, threads: int) -> int:
    """Sums of a round in every thread, its weights, and the second moments of the signed rows.

    Of these there are the matrix, a part of it in the making, and its eigenvectors with what finding
    them takes.
    """
    width, numbers = config.num_features, config.num_classes * config.num_features
    records = batch_records(width) * 10 * config.num_classes
    return 8 * (6 * width**2 + (3 * threads + 8) * numbers) + threads * (records + _PER_THREAD)
