"""Draw docs/theory/tradeoff.svg: where the central limit is close, and where it is not.

python docs/figures/tradeoff.py
"""

from __future__ import annotations

from _style import panels, save

from privmix.accounting import PoissonGaussianEvent
from privmix.plotting import plot_epsilon, plot_tradeoff

# At m = 1, n = T = 50000 the approximation says 0.99 where 4.92 is true.
EVENT = PoissonGaussianEvent(sampling_prob=1 / 50000, noise_multiplier=0.35, count=50000)


def main() -> None:
    """Trade-off curve, and epsilon over delta."""
    figure, (left, right) = panels(2)
    plot_tradeoff(EVENT, left)
    plot_epsilon(EVENT, right)
    save(figure, "tradeoff")


if __name__ == "__main__":
    main()
