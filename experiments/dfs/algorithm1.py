"""What the DFS paper's Algorithm 1 claims, and what two attacks on it prove from below.

    python -m experiments.dfs.algorithm1 --quick

``scale``: a record twice as long as any other is there or is another one; the noise is scaled by the
largest norm, so all rows show it. ``selection``: a record changes which feature is kept; the means that
are ranked have no noise. ``rows``: both granted, one published row whose record is replaced; the noise is
that of a sensitivity N, and two records of norm N differ by 2 N. ``proven`` is a lower bound on epsilon
at delta = 1e-5, at 95 % confidence (for ``rows`` exact); ``sound`` what a release whose ranking and norm
are charged and public spends at the same claim.
"""

from __future__ import annotations

import numpy as np
from experiments.dfs.common import DELTA, algorithm_1, printed_stddev
from experiments.harness import Experiment, parser

from privmix import Schema, plan_release
from privmix.accounting import gdp_epsilon
from privmix.auditing import Counts, epsilon_from_rates, error_rates
from privmix.preprocess import SelectFeatures

RECORDS, FEATURES, KEPT = 200, 20, 5


def neighbours(attack: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return two data sets that differ in one record, and their common labels."""
    rng = np.random.default_rng(0)
    y = np.arange(RECORDS) % 2
    x = 0.1 * rng.standard_normal((RECORDS, FEATURES))
    x[:, :KEPT] += 0.5 * y[:, None]
    x /= np.linalg.norm(x, axis=1).max()
    other = x.copy()
    if attack == "scale":
        other[0] = 0.0
        other[0, :KEPT] = 2 / np.sqrt(KEPT)
    else:  # two features that are exactly alike but for the first record
        x[:, 0] *= 1.5
        x[:, 1] = x[:, 0]
        x[0, 0] -= 0.1  # of class 0: its class means are further apart in feature 0
        other = x.copy()
        other[0, [0, 1]] = x[0, [1, 0]]
    return x, other, y


def score(attack: str, columns: np.ndarray, rows: np.ndarray) -> float:
    """Return what the attack looks at: larger for the second data set."""
    if attack == "scale":
        return float(np.square(rows).mean())
    return float(columns[0] == 1)


def proven(attack: str, epsilon: float, trials: int) -> dict[str, float]:
    """Attack Algorithm 1 and bound its epsilon from below."""
    if attack == "rows":
        return {"claimed": epsilon, "proven": gdp_epsilon(2 / printed_stddev(1.0, epsilon), DELTA)}
    first, second, y = neighbours(attack)
    kept = 1 if attack == "selection" else KEPT
    rng = np.random.default_rng(1)
    scores = [
        np.array([score(attack, *algorithm_1(x, y, 2, kept, epsilon, rng)) for _ in range(trials)])
        for x in (first, second)
    ]
    half = trials // 2  # the threshold is chosen on one half of the trials, and judged on the other
    threshold = (scores[0][:half].mean() + scores[1][:half].mean()) / 2
    counts = Counts(
        false_positives=int((scores[0][half:] > threshold).sum()),
        negatives=trials - half,
        false_negatives=int((scores[1][half:] <= threshold).sum()),
        positives=trials - half,
    )
    return {"claimed": epsilon, "proven": epsilon_from_rates(error_rates(counts, 0.95), DELTA)}


def sound(epsilon: float) -> dict[str, float]:
    """Return what a charged selection with a mixture release is certified for."""
    schema = Schema(
        classes=range(2), num_features=FEATURES, num_records=RECORDS, feature_clip_norm=1.0
    )
    steps = [SelectFeatures(num_selected=KEPT, budget_share=0.3)]
    plan = plan_release(
        schema, target_epsilon=epsilon, target_delta=DELTA, preprocessing=steps, design="stratified"
    )
    return {"claimed": epsilon, "certified": plan.epsilon}


def main() -> None:
    """Print claims beside what holds."""
    arguments = parser(__doc__).parse_args()
    experiment = Experiment(__file__, ("release", "epsilon"), arguments)
    trials = 2000 if arguments.quick else 20_000
    for epsilon in (0.1, 1.0, 4.0):
        for attack in ("scale", "selection", "rows"):
            experiment.measure(
                {"release": f"Algorithm 1, {attack}", "epsilon": epsilon},
                lambda attack=attack, epsilon=epsilon: proven(attack, epsilon, trials),
            )
        experiment.measure(
            {"release": "privmix", "epsilon": epsilon}, lambda epsilon=epsilon: sound(epsilon)
        )
    experiment.show("claimed", "proven", "certified")


if __name__ == "__main__":
    main()
