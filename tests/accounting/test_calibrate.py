import numpy as np
import pytest

from privmix._validate import InvalidInputError
from privmix.accounting import (
    ComposedEvent,
    EligibleGaussianEvent,
    GaussianEvent,
    PoissonGaussianEvent,
    SignedGaussianEvent,
    UniformGaussianEvent,
    account,
    calibrate,
    calibrate_noise_multiplier,
)
from privmix.accounting.calibrate import certified_epsilon


def poisson(sampling_prob, count):
    return lambda noise: PoissonGaussianEvent(
        sampling_prob=sampling_prob, noise_multiplier=noise, count=count
    )


def check(make_event, epsilon, delta):
    noise = calibrate_noise_multiplier(make_event, epsilon, delta)
    reached = account(make_event(noise), delta).epsilon
    assert 0.99 * epsilon <= reached <= epsilon
    return noise


def test_random_configs_land_at_or_just_below_the_target():
    """Field case 2."""
    rng = np.random.default_rng(7)
    for _ in range(20):
        sampling_prob, count = 10 ** rng.uniform(-4, -0.5), int(10 ** rng.uniform(1, 5))
        kind = rng.integers(3)

        def make_event(noise, kind=kind, sampling_prob=sampling_prob, count=count):
            facts = {"sampling_prob": sampling_prob, "noise_multiplier": noise, "count": count}
            if kind == 0:
                return PoissonGaussianEvent(**facts)
            if kind == 1:
                return SignedGaussianEvent(**facts)
            return EligibleGaussianEvent(eligible_prob=0.3, **facts)

        check(make_event, 10 ** rng.uniform(-1, 1.3), 10 ** rng.uniform(-8, -4))


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 50.0, 1000.0])
@pytest.mark.parametrize("delta", [1e-12, 1e-3])
def test_extreme_targets(epsilon, delta):
    """Field case 3."""
    check(poisson(64 / 50000, 50000), epsilon, delta)


def test_other_events():
    check(lambda noise: GaussianEvent(noise_multiplier=noise, count=3), 2.0, 1e-5)
    check(
        lambda noise: UniformGaussianEvent(
            num_records=5000, mix_size=50, noise_multiplier=noise, count=1000
        ),
        2.0,
        1e-5,
    )
    check(
        lambda noise: ComposedEvent(
            events=[GaussianEvent(noise_multiplier=4.0), poisson(0.01, 500)(noise)]
        ),
        3.0,
        1e-6,
    )


def test_a_decimal_of_seven_digits():
    noise = check(poisson(0.01, 1000), 1.0, 1e-5)
    assert noise == float(f"{noise:.7g}")


def test_an_unreachable_target_names_itself_and_the_range():
    def make_event(noise):
        return ComposedEvent(
            events=[GaussianEvent(noise_multiplier=1.0), GaussianEvent(noise_multiplier=noise)]
        )

    with pytest.raises(InvalidInputError, match=r"target_epsilon: expected at least 4\.377"):
        calibrate_noise_multiplier(make_event, 1.0, 1e-5)


@pytest.mark.parametrize(
    ("epsilon", "delta", "name"),
    [
        (0.0, 1e-5, "target_epsilon"),
        (float("nan"), 1e-5, "target_epsilon"),
        (1.0, 0.0, "target_delta"),
        (1.0, 1.0, "target_delta"),
    ],
)
def test_bad_targets(epsilon, delta, name):
    with pytest.raises(InvalidInputError, match=name):
        calibrate_noise_multiplier(poisson(0.01, 10), epsilon, delta)


def test_the_last_number_of_mixtures_within_the_target():
    def make_event(count):
        return PoissonGaussianEvent(sampling_prob=0.01, noise_multiplier=1.0, count=count)

    found = calibrate(
        make_event,
        "num_mixtures",
        target_epsilon=1.0,
        target_delta=1e-5,
        lower=1,
        upper=10**5,
        increasing=True,
        integer=True,
    )
    assert isinstance(found, int)
    assert account(make_event(found), 1e-5).epsilon <= 1.0
    assert account(make_event(found + 1), 1e-5).epsilon > 1.0 - 1e-3


def test_the_smallest_noise_and_the_largest_mix_size():
    def of_noise(noise):
        return GaussianEvent(noise_multiplier=noise)

    noise = calibrate(
        of_noise,
        "noise_multiplier",
        target_epsilon=1.0,
        target_delta=1e-5,
        lower=0.1,
        upper=100.0,
        increasing=False,
    )
    assert 0.997 <= account(of_noise(noise), 1e-5).epsilon <= 1.0

    def of_prob(prob):
        return SignedGaussianEvent(sampling_prob=prob, noise_multiplier=1.0, count=1000)

    prob = calibrate(
        of_prob,
        "sampling_prob",
        target_epsilon=1.0,
        target_delta=1e-5,
        lower=1e-6,
        upper=1.0,
        increasing=True,
    )
    assert 0.997 <= account(of_prob(prob), 1e-5).epsilon <= 1.0


def test_a_range_wholly_within_the_target_gives_its_least_private_end():
    found = calibrate(
        lambda count: GaussianEvent(noise_multiplier=100.0, count=count),
        "count",
        target_epsilon=5.0,
        target_delta=1e-5,
        lower=1,
        upper=10,
        increasing=True,
        integer=True,
    )
    assert found == 10


def test_a_range_wholly_beyond_the_target_is_refused():
    with pytest.raises(InvalidInputError, match=r"target_epsilon: expected from .* for count in"):
        calibrate(
            lambda count: GaussianEvent(noise_multiplier=0.1, count=count),
            "count",
            target_epsilon=1.0,
            target_delta=1e-5,
            lower=1,
            upper=10,
            increasing=True,
            integer=True,
        )


def test_a_record_that_hardly_takes_part_needs_no_noise():
    """Its probability to enter at all is below delta: the error says to lower delta."""
    with pytest.raises(InvalidInputError, match="target_delta 0.0003.*lower it"):
        calibrate_noise_multiplier(
            lambda noise: PoissonGaussianEvent(sampling_prob=6e-5, noise_multiplier=noise, count=1),
            6.0,
            3e-4,
        )


def test_what_is_told_as_reachable_is_reached():
    def make_event(noise):
        fixed = GaussianEvent(noise_multiplier=1.0)
        return ComposedEvent(events=[fixed, GaussianEvent(noise_multiplier=noise)])

    with pytest.raises(InvalidInputError, match="at least") as error:
        calibrate_noise_multiplier(make_event, 1.0, 1e-5)
    least = float(error.value.expected.split()[-1])
    assert least >= certified_epsilon(make_event(1e9), 1e-5)

    def steps(count):
        return PoissonGaussianEvent(sampling_prob=0.01, noise_multiplier=1.0, count=count)

    unknown = {"lower": 7, "upper": 100, "increasing": True, "integer": True}
    with pytest.raises(InvalidInputError, match="from .* to") as error:
        calibrate(steps, "count", target_epsilon=0.01, target_delta=1e-5, **unknown)
    _, least, _, most, *_ = error.value.expected.split()
    assert float(most) <= certified_epsilon(steps(100), 1e-5)
    reached = calibrate(steps, "count", target_epsilon=float(least), target_delta=1e-5, **unknown)
    assert reached == 7


def test_an_error_tells_a_delta_in_full():
    with pytest.raises(InvalidInputError, match="target_delta 0.50000004 even"):
        calibrate_noise_multiplier(
            lambda noise: PoissonGaussianEvent(sampling_prob=1e-3, noise_multiplier=noise, count=1),
            1.0, 0.50000004,
        )  # fmt: skip
