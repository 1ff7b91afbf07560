"""The loss distribution against prv-accountant (Gopi, Lee, Wutschitz 2021), an independent one.

Its bounds are valid for the removal direction, the worse one here.
"""

import numpy as np
import pytest
from prv_accountant import PoissonSubsampledGaussianMechanism, PRVAccountant

from privmix.accounting import PoissonGaussianEvent
from privmix.accounting.pld import epsilon_bounds


def prv_bounds(event, delta, eps_error):
    step = PoissonSubsampledGaussianMechanism(
        noise_multiplier=event.noise_multiplier, sampling_probability=event.sampling_prob
    )
    accountant = PRVAccountant(
        prvs=[step],
        max_self_compositions=[event.count],
        eps_error=eps_error,
        delta_error=delta / 1000,
    )
    return accountant.compute_epsilon(delta=delta, num_self_compositions=[event.count])


def agree(event, delta, eps_error):
    lower, _, upper = prv_bounds(event, delta, eps_error)
    found_lower, found_upper = epsilon_bounds(event, delta)
    assert found_lower <= upper
    assert found_upper >= lower
    # Ours are far tighter, so they should lie within.
    assert lower <= found_lower <= found_upper <= upper


@pytest.mark.parametrize(
    ("sampling_prob", "noise_multiplier", "count", "delta"),
    [(0.01, 1.0, 1000, 1e-5), (0.02, 2.0, 5000, 1e-6), (0.1, 3.0, 2000, 1e-5)],
)
def test_known_events(sampling_prob, noise_multiplier, count, delta):
    event = PoissonGaussianEvent(
        sampling_prob=sampling_prob, noise_multiplier=noise_multiplier, count=count
    )
    agree(event, delta, eps_error=0.02)


def test_random_events():
    """Within epsilon 20 and few enough steps for its memory and this suite's time."""
    rng = np.random.default_rng(5)
    tried = 0
    while tried < 8:
        event = PoissonGaussianEvent(
            sampling_prob=10 ** rng.uniform(-3.5, -0.7),
            noise_multiplier=10 ** rng.uniform(-0.2, 0.7),
            count=int(10 ** rng.uniform(2, 4)),
        )
        delta = 10 ** rng.uniform(-7, -4)
        if not 0.05 < epsilon_bounds(event, delta)[1] < 20.0:
            continue
        tried += 1
        agree(event, delta, eps_error=0.1)
