"""What the papers prove about random mixup, in numbers; nothing here certifies anything.

The optimal number of records in a row, the noise of a planned row, bounds and simulations of a
regression learnt from rows, what a membership test can do, and what hierarchical sampling costs
against what it was said to cost; how stochastic gradients on rows converge. Sources: DPMix (Lee et al.
2019), DPFMix (Li, Cao, Yao 2022), NeuroMixGDP (Li, Cao, Yao 2023). Where a printed
formula is wrong, the docstring says what was printed.

These results rest on the central limit approximation of the privacy loss, which under-reports.
Plan with them, and account with :func:`privmix.accounting.account`.
"""

from privmix.theory.descent import descent_error_bound, mixed_squared_gradient
from privmix.theory.diagnostics import (
    LabelHistogram,
    label_histogram,
    mixed_distances,
    neural_collapse,
)
from privmix.theory.hierarchical import HierarchicalCost, hierarchical_cost
from privmix.theory.membership import MembershipErrors, membership_errors, membership_separation
from privmix.theory.noise import (
    OPTIMAL_NOISE_MULTIPLIER,
    PublishedNoise,
    central_limit_noise_multiplier,
    published_noise,
    step_chi_square,
)
from privmix.theory.regression import (
    ErrorBound,
    RegressionSetting,
    RegressionSimulation,
    limiting_regression_error_bound,
    optimal_mix_size,
    optimal_rate,
    regression_error_bound,
    simulate_regression,
)

__all__ = [
    "OPTIMAL_NOISE_MULTIPLIER",
    "ErrorBound",
    "HierarchicalCost",
    "LabelHistogram",
    "MembershipErrors",
    "PublishedNoise",
    "RegressionSetting",
    "RegressionSimulation",
    "central_limit_noise_multiplier",
    "descent_error_bound",
    "hierarchical_cost",
    "label_histogram",
    "limiting_regression_error_bound",
    "membership_errors",
    "membership_separation",
    "mixed_distances",
    "mixed_squared_gradient",
    "neural_collapse",
    "optimal_mix_size",
    "optimal_rate",
    "published_noise",
    "regression_error_bound",
    "simulate_regression",
    "step_chi_square",
]
