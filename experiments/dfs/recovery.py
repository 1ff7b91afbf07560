"""Does private feature selection find the features in which two classes differ?

    python -m experiments.dfs.recovery --quick

The DFS paper's synthetic setting: two Gaussian classes of equal size, whose means differ in a few of
many independent features. A trial is a success if exactly those features are selected. ``theory``
is the probability of that for Gaussian features of known variance; ``distance`` ranks features by
the distance of noisy class means (DFS); ``t-test`` divides it by a standard deviation that is
estimated with half of the budget, and so meets noise twice. The paper's appendix leaves sizes open;
those below are ours.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from experiments.harness import Experiment, parser
from numpy.typing import NDArray
from scipy.stats import foldnorm, halfnorm

from privmix import BoundedRecords, Schema, bound_records
from privmix.accounting import gdp_mu_from
from privmix.preprocess import Preprocessor, RecordFacts, SelectFeatures
from privmix.rng import MasterKey, fresh_secret

DELTA = 1e-5


@dataclass(frozen=True)
class Setting:
    """Two classes N(+-distance/2 on the support, I), equally many records of each."""

    num_records: int = 2000
    num_features: int = 500
    support: int = 10
    distance: float = 0.7

    @property
    def clip_norm(self) -> float:
        """Public: a norm of sqrt(num_features) varies little, so that hardly a record is clipped."""
        return 1.2 * math.sqrt(self.num_features)

    def draw(self, rng: np.random.Generator) -> BoundedRecords:
        """Draw the private records of one trial; the first features are the support."""
        y = np.arange(self.num_records) % 2
        x = rng.standard_normal((self.num_records, self.num_features))
        x[:, : self.support] += self.distance * (y[:, None] - 0.5)
        schema = Schema(
            classes=(0, 1),
            num_features=self.num_features,
            num_records=self.num_records,
            feature_clip_norm=self.clip_norm,
        )
        return bound_records(x, y, schema)

    def preprocessor(self, gdp_mu: float, *, with_squares: bool) -> Preprocessor:
        """Return a selection that spends everything."""
        facts = RecordFacts(
            num_records=self.num_records,
            num_classes=2,
            num_features=self.num_features,
            clip_norm=self.clip_norm,
            neighboring_relation="add_or_remove_one",
        )
        step = SelectFeatures(
            num_selected=self.support, with_squares=with_squares, noise_multiplier=1 / gdp_mu
        )
        return Preprocessor((step,), facts)

    def probability(self, gdp_mu: float) -> float:
        """Return the probability that the smallest distance on the support exceeds all others.

        A distance is normal with variance (1 + s^2) times 4/n, s^2 the noise of a class mean over
        its sampling variance: its largest absolute value off the support has the distribution
        function F^(p - s), and each on the support exceeds t with the folded normal's probability.
        """
        per_class = self.num_records / 2
        stddev = math.sqrt(2 / per_class + 2 * (self.clip_norm / (gdp_mu * per_class)) ** 2)
        ratio, others = self.distance / stddev, self.num_features - self.support
        t = np.linspace(0, 12 + ratio, 20_001)
        density = others * halfnorm.cdf(t) ** (others - 1) * halfnorm.pdf(t)
        return float(np.trapezoid(density * foldnorm.sf(t, ratio) ** self.support, t))


def selected_by_t(preprocessor: Preprocessor, support: int) -> NDArray[np.int64]:
    """Rank by distance over estimated standard deviation."""
    found = preprocessor.feature_statistics(0)
    assert found.squares is not None and found.square_noise is not None
    variances = found.squares - (found.means**2 - found.mean_noise[:, None] ** 2).mean(axis=0)
    # The noise leaves variances below zero: they count as one stddev of the noise.
    statistic = np.ptp(found.means, axis=0) / np.sqrt(np.maximum(variances, found.square_noise))
    return np.sort(np.argsort(-statistic, kind="stable")[:support])


def success_rates(
    setting: Setting, epsilon: float, trials: int, rng: np.random.Generator
) -> dict[str, float]:
    """Return theory's probability and the two criteria's shares of successes."""
    gdp_mu = gdp_mu_from(epsilon, DELTA)
    due = np.arange(setting.support)
    hits = {"distance": 0, "t-test": 0}
    for _ in range(trials):
        records = setting.draw(rng)
        key = MasterKey(fresh_secret(), b"dfs")
        plain = setting.preprocessor(gdp_mu, with_squares=False).run_next(records, key)
        hits["distance"] += np.array_equal(plain.results[0]["columns"], due)
        both = setting.preprocessor(gdp_mu, with_squares=True).run_next(records, key)
        hits["t-test"] += np.array_equal(selected_by_t(both, setting.support), due)
    shares = {name: count / trials for name, count in hits.items()}
    return {"theory": setting.probability(gdp_mu), **shares}


def main() -> None:
    """Print one line for each epsilon, and draw the shares."""
    arguments = parser(__doc__).parse_args()
    experiment = Experiment(__file__, ("epsilon",), arguments)
    trials = 40 if arguments.quick else 200
    epsilons = (1.0, 2.0, 4.0) if arguments.quick else (0.5, 1.0, 1.5, 2.0, 4.0, 8.0)
    for number, epsilon in enumerate(epsilons):
        rng = np.random.default_rng(number)
        experiment.measure(
            {"epsilon": epsilon},
            lambda epsilon=epsilon, rng=rng: success_rates(Setting(), epsilon, trials, rng),
        )
    experiment.show("theory", "distance", "t-test")

    def draw(axes: Any) -> None:
        for name in ("theory", "distance", "t-test"):
            shares = [float(row[name]) for row in experiment.rows]
            axes.plot([float(row["epsilon"]) for row in experiment.rows], shares, label=name)
        axes.set(xlabel="epsilon", ylabel="share of trials with the right features", xscale="log")
        axes.legend()

    experiment.figure(draw)


if __name__ == "__main__":
    main()
