"""Audits: what runs of the real code prove about its guarantee, from below.

report = privmix.auditing.audit(plan)
report.verdict, report.lower_bound, report.epsilon
"""

from __future__ import annotations

from privmix.auditing.audit import (
    AuditReport,
    audit,
    audit_one_run,
    epsilon_from_scores,
    judge,
    judge_one_run,
    subject_of,
)
from privmix.auditing.bounds import (
    Counts,
    ErrorRates,
    NoiseFamily,
    clopper_pearson_upper,
    epsilon_from_rates,
    error_rates,
    gdp_mu_from_rates,
)
from privmix.auditing.one_run import (
    one_run_epsilon,
    one_run_p_value,
    one_run_refutes,
)
from privmix.auditing.trials import Trials, run_trials

__all__ = [
    "AuditReport",
    "Counts",
    "ErrorRates",
    "NoiseFamily",
    "Trials",
    "audit",
    "audit_one_run",
    "clopper_pearson_upper",
    "epsilon_from_rates",
    "epsilon_from_scores",
    "error_rates",
    "gdp_mu_from_rates",
    "judge",
    "judge_one_run",
    "one_run_epsilon",
    "one_run_p_value",
    "one_run_refutes",
    "run_trials",
    "subject_of",
]
