"""Audit hierarchical sampling against the paper's claim; draw docs/theory/hierarchical-audit.svg.

python docs/figures/hierarchical_audit.py [RUNS] [FILE]   (2000 runs of 16 canaries by default; a minute)

Finished runs are kept in FILE, if it is given: a run that was cut off goes on from there.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from _style import panels, save

from privmix.accounting import account, tradeoff_curve
from privmix.auditing import Counts, NoiseFamily, Trials, error_rates, judge, run_trials, subject_of
from privmix.planning.plan import ReleasePlan
from privmix.planning.solve import configure
from privmix.plotting import CERTIFIED_COLOR, NEUTRAL_COLOR, UNCERTIFIED_COLOR

DELTA, CONFIDENCE = 1e-5, 0.999
# NeuroMixGDP-HS scaled down: fewer records and rows, of which each record enters as large a share as
# makes the claim 1 again.
SIZES = {"num_records": 800, "num_classes": 10, "num_features": 5}
OPTIONS = {
    "num_mixtures": 800,
    "mix_size": 12.8,
    "class_prob": 0.04,
    "eligibility": "random",
    "label_balance": 4.0,
}
NOISE_MULTIPLIER = 1.83


def measured(trials: Trials, num_points: int) -> np.ndarray:
    """Upper bounds on both error rates at thresholds fixed by other runs, (points, 2), jointly valid."""
    tuning = np.arange(len(trials.present)) % 4 == 0
    scores, present = trials.scores[~tuning][..., 0].ravel(), trials.present[~tuning].ravel()
    levels = np.linspace(0.02, 0.98, num_points)
    each = 1 - (1 - CONFIDENCE) / num_points
    points = []
    for threshold in np.quantile(trials.scores[tuning][..., 0], levels):
        accused = scores > threshold
        counts = Counts(
            int((accused & ~present).sum()),
            int((~present).sum()),
            int((~accused & present).sum()),
            int(present.sum()),
        )
        points.append(error_rates(counts, each))
    return np.array(points)


def main() -> None:
    """Run, draw what was measured between the claim and the certified curve, and print the bounds."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    kept = Path(sys.argv[2]) if len(sys.argv) > 2 else None
    config = configure(SIZES, "hierarchical", OPTIONS, NOISE_MULTIPLIER)
    plan = ReleasePlan.for_config(config, DELTA)
    subject, event = subject_of(plan, 16)
    trials = run_trials(subject, runs, out=kept)
    report = judge(trials, event, DELTA, CONFIDENCE)
    claimed = config.claimed_event
    assert claimed is not None
    print(f"claimed epsilon {account(claimed, DELTA).epsilon:.3f}, certified {plan.epsilon:.3f}")
    print(
        f"at {100 * CONFIDENCE:g} %: epsilon at least {report.lower_bound_without_assumptions:.3f}, "
        f"and {report.lower_bound:.3f} if only the size of the noise is in doubt"
    )
    points = measured(trials, 25)
    beyond = NoiseFamily(claimed).least_false_negative_rates(points[:, 0]) > points[:, 1]
    print(
        f"{int(beyond.sum())} of {len(points)} points are below the claimed curve; {report.verdict}"
    )
    figure, (axes,) = panels(1)
    curves = (
        (event, CERTIFIED_COLOR, "-", f"certified, epsilon {plan.epsilon:.2f}"),
        (claimed, UNCERTIFIED_COLOR, "--", "claimed by the paper, epsilon 1"),
    )
    for curve, color, style, label in curves:
        axes.plot(*tradeoff_curve(curve), color=color, linestyle=style, label=label)
    axes.plot(
        *points.T, color=NEUTRAL_COLOR, marker=".", linestyle="", label="measured, upper bounds"
    )
    axes.set(xlabel="false-positive rate", ylabel="false-negative rate", xlim=(0, 1), ylim=(0, 1))
    axes.legend()
    save(figure, "hierarchical-audit")


if __name__ == "__main__":
    main()
