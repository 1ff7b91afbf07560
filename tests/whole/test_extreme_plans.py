"""Plans at extreme sizes are answered, or refused by name, within ten seconds of a processor's time."""

from __future__ import annotations

import signal
import time
from contextlib import contextmanager

import pytest

from pace import slowness
from privmix import InvalidInputError
from privmix.accounting import ComposedEvent, PoissonGaussianEvent, account
from privmix.planning.flags import make_plan
from privmix.planning.plan import RECORD, PrivacyUnit

SECONDS = 10.0
HANGS = 120.0
USUAL = {"num_records": 10_000, "num_classes": 10, "num_features": 64}


@contextmanager
def limited():
    """Fail for what takes longer, by this process's own clock: other work on the machine does not count."""

    def late(*_):
        raise AssertionError(f"no answer within {HANGS:g} s of processor time")

    before = signal.signal(signal.SIGVTALRM, late)
    signal.setitimer(signal.ITIMER_VIRTUAL, HANGS)
    slow, start = slowness(), time.process_time()
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
    spent, slow = time.process_time() - start, max(slow, slowness())
    assert spent <= SECONDS * slow, (
        f"{spent:.1f} s of a processor {slow:.1f} times slower than usual"
    )


def plan(design, sizes=(), *, epsilon=1.0, delta=1e-5, owners=1, **options):
    unit = RECORD if owners == 1 else PrivacyUnit("owner", owners)
    with limited():
        return make_plan(
            None, USUAL | dict(sizes), design, options, epsilon=epsilon, delta=delta, unit=unit
        )


@pytest.mark.parametrize(
    ("sizes", "named"),
    [
        ({"num_records": 10**9}, "num_records"),
        ({"num_records": 10**400}, "num_records"),
        ({"num_features": 10**7}, "num_features"),
        ({"num_features": 10**400}, "num_features"),
        ({"num_classes": 10**6}, "num_classes"),
    ],
)
def test_sizes_beyond_any_release_are_refused(sizes, named):
    with pytest.raises(InvalidInputError, match=named):
        plan(None, sizes)


LARGEST = {"num_records": 10**8}


@pytest.mark.parametrize(
    ("design", "sizes", "options"),
    [
        ("uniform", LARGEST, {}),
        ("uniform", LARGEST, {"epsilon": 0.1}),  # where bounds jumped with the grid of losses
        ("poisson", {"num_features": 10**6}, {}),
        (None, {"num_features": 10**6}, {}),
        ("hybrid", LARGEST, {}),
        ("signed", LARGEST, {"mix_size": 1e5}),
        ("signed", LARGEST, {"mix_size": 1e-3}),
        (None, LARGEST, {"owners": 10_000}),
    ],
)
def test_the_largest_sizes(design, sizes, options):
    target = options.get("epsilon", 1.0)
    assert 0.99 * target <= plan(design, sizes, **options).epsilon <= target


@pytest.mark.parametrize("design", [None, "adaptive", "signed", "transposed"])
@pytest.mark.parametrize("owners", [32, 10_000])
def test_owners_of_many_records(design, owners):
    try:
        made = plan(design, {"num_records": 10**6}, owners=owners)
    except InvalidInputError as error:  # noise beyond what is drawn: of rounds named by hand
        assert design == "adaptive" and "noise_multiplier" in str(error)
    else:
        assert 0.9 < made.epsilon <= 1.0


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(1e-6, 1e-5), (1e4, 1e-5), (1e4, 1e-300), (1e-6, 0.999), (0.1, 1e-12)]
)
@pytest.mark.parametrize("design", [None, "poisson", "transposed"])
def test_budgets_from_end_to_end(design, epsilon, delta):
    try:
        assert plan(design, epsilon=epsilon, delta=delta).epsilon <= epsilon
    except InvalidInputError as error:
        assert "epsilon" in str(error) or "noise_multiplier" in str(error)


@pytest.mark.parametrize(
    ("design", "options"),
    [
        ("poisson", {"mix_size": 1e-300}),
        ("signed", {"mix_size": 1e-5}),
        ("hybrid", {"mix_size": 10_000.0}),
        ("poisson", {"num_mixtures": 10**9}),
        ("poisson", {"num_mixtures": 1}),
        ("transposed", {"num_mixtures": 10**11}),
        ("transposed", {"num_mixtures": 10**8, "rows_per_record": 10**8}),
        ("transposed", {"num_mixtures": 10**8, "neighboring_relation": "replace_one"}),
        ("uniform", {"mix_size": 9_999, "num_mixtures": 10**6}),
        ("uniform", {"mix_size": 1, "num_mixtures": 1}),
        ("stratified", {"rows_per_class": 10**6, "sampling_prob": 1e-9}),
        ("adaptive", {"num_rounds": 1000}),
        ("adaptive", {"num_rounds": 10**6}),
    ],
)
def test_options_from_end_to_end(design, options):
    try:
        assert plan(design, **options).epsilon <= 1.0
    except InvalidInputError as error:
        named = set(options) | {"epsilon", "noise_multiplier", "num_mixtures", "mix_size"}
        assert any(name in str(error) for name in named), str(error)


def test_a_thousand_different_events_together():
    events = tuple(
        PoissonGaussianEvent(sampling_prob=1e-4 * (1 + i / 1000), noise_multiplier=2.0, count=i + 1)
        for i in range(1000)
    )
    with limited():
        found = account(ComposedEvent(events=events), 1e-5)
    assert 0 < found.epsilon < 10
