"""Draw docs/theory/optimal-mixing.svg: the regression simulation, and two accountants' optima.

python docs/figures/optimal_mixing.py
"""

from __future__ import annotations

import numpy as np
from _style import panels, save

from privmix.accounting import PoissonGaussianEvent, calibrate_noise_multiplier, gdp_mu_from
from privmix.plotting import CERTIFIED_COLOR, NEUTRAL_COLOR, UNCERTIFIED_COLOR, plot_regression
from privmix.theory.noise import central_limit_noise_multiplier
from privmix.theory.regression import optimal_mix_size, simulate_regression


def certified_noise(mix_size: float, size: int, epsilon: float) -> float:
    """Noise multiplier at which the release really costs ``epsilon``; n = T = ``size``."""
    return calibrate_noise_multiplier(
        lambda s: PoissonGaussianEvent(
            sampling_prob=mix_size / size, noise_multiplier=s, count=size
        ),
        epsilon,
        1e-5,
    )


def main() -> None:
    """Error over the mix size, and signal against noise over the mix size."""
    figure, (left, right) = panels(2)
    sizes = [float(m) for m in np.geomspace(0.6, 100.0, 21)]
    simulation = simulate_regression(sizes)
    plot_regression(simulation, left)
    left.axvline(optimal_mix_size(300, 900, 1.0), color=UNCERTIFIED_COLOR, linestyle="--")
    zero = float(np.median(simulation.coefficient_norms))
    left.axhline(zero, color=NEUTRAL_COLOR, linewidth=0.8)
    left.set_title("n = 300, T = 900, 1-GDP: dashed m*, line: answer zero", fontsize=8)
    size, epsilon = 50000, 1.0
    gdp_mu = gdp_mu_from(epsilon, 1e-5)
    sizes = [float(m) for m in np.geomspace(4.0, 500.0, 19)]
    limit = [m / central_limit_noise_multiplier(m / size, size, gdp_mu) ** 2 for m in sizes]
    certified = [m / certified_noise(m, size, epsilon) ** 2 for m in sizes]
    right.plot(sizes, certified, color=CERTIFIED_COLOR, label="certified noise")
    right.plot(sizes, limit, color=UNCERTIFIED_COLOR, linestyle="--", label="central limit")
    right.set(xscale="log", xlabel="mix size m", ylabel="signal against noise, m / s^2")
    right.set_ylim(bottom=0.0)
    right.set_title("n = T = 50000, epsilon = 1", fontsize=8)
    right.legend()
    save(figure, "optimal-mixing")


if __name__ == "__main__":
    main()
