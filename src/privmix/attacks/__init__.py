"""Attacks: scores of records, and what they show of who took part or of what records hold.

An attack gives numbers to records, larger where the attacker believes, and states no epsilon::

    scores = MembershipScores(loss_scores(model, x_in, y_in), loss_scores(model, x_out, y_out))
    scores.auc, scores.detection(0.01).true_positive_rate

See ``docs/security.md`` for what each attacker knows, and for results.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from privmix.attacks.attribute import (
        AttributeGuesses,
        infer_from_records,
        infer_from_rows,
        with_value,
    )
    from privmix.attacks.inversion import Recovery, invert_rows, nearest_pictures
    from privmix.attacks.membership import accuracy, log_odds, loss_scores
    from privmix.attacks.nearest import nearest_record_scores
    from privmix.attacks.rows import Background, row_scores
    from privmix.attacks.scores import Detection, Interval, MembershipScores
    from privmix.attacks.shadows import (
        Shadows,
        fit_shadows,
        likelihood_ratio_scores,
        relative_membership_scores,
    )
    from privmix.attacks.similarity import structural_similarity

# The module that each public name comes from.
_HOMES = {
    "AttributeGuesses": "attribute",
    "Background": "rows",
    "Detection": "scores",
    "Interval": "scores",
    "MembershipScores": "scores",
    "Recovery": "inversion",
    "Shadows": "shadows",
    "accuracy": "membership",
    "fit_shadows": "shadows",
    "infer_from_records": "attribute",
    "infer_from_rows": "attribute",
    "invert_rows": "inversion",
    "likelihood_ratio_scores": "shadows",
    "log_odds": "membership",
    "loss_scores": "membership",
    "nearest_pictures": "inversion",
    "nearest_record_scores": "nearest",
    "relative_membership_scores": "shadows",
    "row_scores": "rows",
    "structural_similarity": "similarity",
    "with_value": "attribute",
}

__all__ = [
    "AttributeGuesses",
    "Background",
    "Detection",
    "Interval",
    "MembershipScores",
    "Recovery",
    "Shadows",
    "accuracy",
    "fit_shadows",
    "infer_from_records",
    "infer_from_rows",
    "invert_rows",
    "likelihood_ratio_scores",
    "log_odds",
    "loss_scores",
    "nearest_pictures",
    "nearest_record_scores",
    "relative_membership_scores",
    "row_scores",
    "structural_similarity",
    "with_value",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"privmix.attacks.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
