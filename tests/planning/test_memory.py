from __future__ import annotations

import pytest

from privmix import InvalidInputError, mechanism
from privmix.planning.memory import memory_layout, sum_bytes
from privmix.planning.plan import ReleasePlan
from privmix.planning.solve import configure
from privmix.records.bounded import batch_records, shard_records

SIZES = {"num_records": 10**6, "num_classes": 10, "num_features": 2048}


def config(design: str = "poisson", **options) -> mechanism.MixtureConfig:
    rows = {} if design == "stratified" else {"num_mixtures": 10**6}
    return configure(SIZES, design, {**rows, **options}, 1.0)  # type: ignore[arg-type]


def test_a_million_wide_records_fit_into_a_gigabyte():
    layout = memory_layout(config(), 10**6, 10**9, threads=2)
    assert not layout.in_memory
    assert layout.peak_bytes <= 10**9
    assert layout.sums_bytes > 10**8


def test_records_that_fit_stay_in_memory():
    layout = memory_layout(config(), 10**6, 10**10, threads=2)
    assert layout.in_memory
    assert 4.1e9 < layout.peak_bytes < 6e9
    less = memory_layout(config(), 10**6, layout.peak_bytes - 1, threads=2)
    assert not less.in_memory
    assert less.peak_bytes < layout.peak_bytes


def test_an_impossible_budget_names_the_least_that_works():
    with pytest.raises(InvalidInputError, match="at least .*MB for this release") as error:
        memory_layout(config(), 10**6, 10**8, threads=2, position="--max-memory")
    least = int(error.value.expected.split()[2].removesuffix("MB")) * 10**6
    assert memory_layout(config(), 10**6, least, threads=2).peak_bytes <= least
    with pytest.raises(InvalidInputError):
        memory_layout(config(), 10**6, least - 2 * 10**6, threads=2)


def test_what_the_input_holds_counts():
    plain = memory_layout(config(), 10**6, 10**9, threads=2)
    held = memory_layout(config(), 10**6, 10**9, threads=2, other_bytes=10**8)
    assert plain.sums_bytes - held.sums_bytes == 10**8


def test_sums_of_many_records_are_wide():
    narrow, wide = config(mix_size=64), config(mix_size=40_000)
    assert sum_bytes(narrow, 100, 10**6) < 100 * 2100 * 4
    assert sum_bytes(wide, 100, 10**6) > 100 * 2048 * 8


@pytest.mark.parametrize("design", ["poisson", "stratified"])
@pytest.mark.parametrize("rows", [1, 15, 17, 3000, 10**6])
def test_the_longest_block_is_known_without_a_list(design, rows):
    made = config(design, **({"rows_per_class": rows} if design == "stratified" else {}))
    made = made.model_copy(update={"num_mixtures": rows * (10 if design == "stratified" else 1)})
    assert made.longest_block == max(block.num_rows for block in made.blocks)


def test_a_plan_tells_the_peak_for_a_given_memory():
    made = config(design="signed")
    small = ReleasePlan.for_config(made, 1e-5, max_memory=10**9)
    large = ReleasePlan.for_config(made, 1e-5, max_memory=10**11)
    assert small.peak_memory_bytes <= 10**9 < large.peak_memory_bytes
    assert small.digest() == large.digest()


def test_processors_that_memory_does_not_suffice_for_stay_idle(monkeypatch):
    """A gigabyte is enough on a large machine, too; only threads that were asked for are refused."""
    monkeypatch.setattr("privmix.planning.plan.default_threads", lambda: 64)
    made = ReleasePlan.for_config(config(design="signed"), 1e-5, max_memory=10**9)
    assert made.peak_memory_bytes <= 10**9
    threads = made.most_threads(10**9)
    assert 2 <= threads < 64
    assert made.memory(10**6, 10**9, threads).peak_bytes <= 10**9
    with pytest.raises(InvalidInputError, match=f"with {threads + 1} threads, or fewer threads"):
        made.memory(10**6, 10**9, threads + 1)
    assert made.most_threads(None) == 64


def test_blocks_hold_fewer_rows_of_more_records():
    rows = [config(mix_size=m).blocks[0].num_rows for m in (64, 4096, 40_000, 10**6)]
    assert rows == [1024, 1024, 64, 16]


@pytest.mark.parametrize("width", [1, 2, 5, 64, 384, 1280, 2048, 10**5, 10**7])
def test_pieces_divide_shards(width):
    piece, shard = batch_records(width), shard_records(width)
    assert shard % piece == 0
    assert 16 <= shard <= 65536
    assert piece == 1 or piece * width * 8 <= 8 << 20


def test_a_small_release_needs_little_more_than_the_accountant():
    small = {"num_records": 100, "num_classes": 3, "num_features": 8}
    made = configure(small, "poisson", {"num_mixtures": 64, "mix_size": 10}, 1.0)  # type: ignore[arg-type]
    assert memory_layout(made, 100, 800 * 10**6, threads=2).in_memory
    with pytest.raises(InvalidInputError, match="at least 7..MB for this release"):
        memory_layout(made, 100, 10**8, threads=2)
    at_ease = memory_layout(made, 100, None, threads=2)
    assert at_ease.peak_bytes > 800 * 10**6
