import pytest
from hypothesis import given
from hypothesis import strategies as st

from privmix._validate import InvalidInputError
from privmix.accounting import (
    ComposedEvent,
    EligibleGaussianEvent,
    GaussianEvent,
    PoissonGaussianEvent,
    SignedGaussianEvent,
    UniformGaussianEvent,
    event_from_json,
)
from privmix.accounting.events import simple_events

PROBABILITY = st.floats(1e-9, 1.0)
NOISE = st.floats(1e-3, 1e3)
COUNT = st.integers(1, 10**6)
SIMPLE = st.one_of(
    st.builds(GaussianEvent, noise_multiplier=NOISE, count=COUNT),
    st.builds(PoissonGaussianEvent, sampling_prob=PROBABILITY, noise_multiplier=NOISE, count=COUNT),
    st.builds(SignedGaussianEvent, sampling_prob=PROBABILITY, noise_multiplier=NOISE, count=COUNT),
    st.builds(
        EligibleGaussianEvent,
        eligible_prob=PROBABILITY,
        sampling_prob=PROBABILITY,
        noise_multiplier=NOISE,
        count=COUNT,
    ),
)
POISSON = PoissonGaussianEvent(sampling_prob=0.01, noise_multiplier=1.0, count=10)
REPLACE = GaussianEvent(noise_multiplier=1.0, neighboring_relation="replace_one")
UNIFORM = UniformGaussianEvent(num_records=100, mix_size=10, noise_multiplier=2.0, count=5)


@given(st.lists(SIMPLE, min_size=1, max_size=3))
def test_json_round_trip(events):
    event = ComposedEvent(events=[*events, ComposedEvent(events=events)])
    assert event_from_json(event.model_dump_json()) == event
    assert event_from_json(event.model_dump(mode="json")) == event


def test_every_mechanism_is_told_by_its_name():
    assert {e.mechanism for e in (POISSON, REPLACE, UNIFORM, ComposedEvent(events=[POISSON]))} == {
        "poisson_gaussian",
        "gaussian",
        "uniform_gaussian",
        "composed",
    }


def test_relations():
    assert GaussianEvent(noise_multiplier=1.0).neighboring_relation == "add_or_remove_one"
    assert POISSON.neighboring_relation == "add_or_remove_one"
    assert UNIFORM.neighboring_relation == "replace_one"
    assert ComposedEvent(events=[UNIFORM, REPLACE]).neighboring_relation == "replace_one"


def test_composing_different_relations_is_refused_by_name():
    with pytest.raises(
        InvalidInputError,
        match="poisson_gaussian under add_or_remove_one and uniform_gaussian under replace_one",
    ):
        ComposedEvent(events=[POISSON, UNIFORM])


@pytest.mark.parametrize(
    ("document", "place"),
    [
        ('{"mechanism": "laplace"}', "event"),
        ("{", "event"),
        ({"mechanism": "gaussian"}, "noise_multiplier"),
        ({"mechanism": "gaussian", "noise_multiplier": 1.0, "sensitivity": 2}, "sensitivity"),
        ({"mechanism": "poisson_gaussian", "sampling_prob": 2, "noise_multiplier": 1}, "sampling"),
        ({"mechanism": "composed", "events": []}, "events"),
    ],
)
def test_bad_documents_name_the_field(document, place):
    with pytest.raises(InvalidInputError, match=place):
        event_from_json(document)


@pytest.mark.parametrize("bad", [0.0, -1.0, float("nan"), float("inf"), True, "1", None])
def test_bad_numbers_are_refused(bad):
    for name in ("sampling_prob", "noise_multiplier"):
        with pytest.raises(InvalidInputError, match=name):
            PoissonGaussianEvent(**{"sampling_prob": 0.1, "noise_multiplier": 1.0, name: bad})
    with pytest.raises(InvalidInputError, match="count"):
        GaussianEvent(noise_multiplier=1.0, count=bad)


def test_mix_size_above_num_records_is_refused():
    with pytest.raises(InvalidInputError, match="mix_size"):
        UniformGaussianEvent(num_records=3, mix_size=4, noise_multiplier=1.0)


def test_simple_events_add_up_counts_in_a_fixed_order():
    other = POISSON.model_copy(update={"count": 3})
    one = simple_events(ComposedEvent(events=[POISSON, GaussianEvent(noise_multiplier=2.0), other]))
    two = simple_events(ComposedEvent(events=[GaussianEvent(noise_multiplier=2.0), other, POISSON]))
    assert one == two
    assert sorted(event.count for event in one) == [1, 13]


def test_special_cases_are_the_plain_mechanism():
    plain = GaussianEvent(noise_multiplier=2.0, count=7)
    whole = PoissonGaussianEvent(sampling_prob=1.0, noise_multiplier=2.0, count=7)
    sure = EligibleGaussianEvent(
        eligible_prob=1.0, sampling_prob=1.0, noise_multiplier=2.0, count=7
    )
    everyone = UniformGaussianEvent(num_records=9, mix_size=9, noise_multiplier=2.0, count=7)
    assert simple_events(whole) == simple_events(sure) == [plain]
    assert simple_events(everyone) == [
        plain.model_copy(update={"neighboring_relation": "replace_one"})
    ]
