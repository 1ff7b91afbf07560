"""A plan in lines for people: what is released, at which noise, for whom."""

from __future__ import annotations

from privmix.accounting.guarantee import number
from privmix.accounting.rounding import rounded_up
from privmix.mechanism import ResidualConfig
from privmix.planning.plan import ReleasePlan
from privmix.preprocess import Step, charged


def plan_lines(plan: ReleasePlan) -> list[tuple[str, str]]:
    """Return (name, value) of every quantity of a plan that costs or publishes something."""
    mechanism, told = plan.mechanism, plan.guarantee
    spent = f"{number(told.epsilon)}, {number(told.delta)} ({mechanism.neighboring_relation})"
    whose = "one record"
    if plan.unit_column is not None:
        whose = f"{plan.unit_column}, at most {plan.max_records_per_unit} records of each"
    rows = [("design", plan.design), ("epsilon, delta", spent), ("protects", whose)]
    if plan.risk is not None:
        reached = rounded_up(plan.risk.of(plan.event), 4)
        rows.append(("risk", f"{plan.risk.statement} ({reached:.4g})"))
    schema = plan.data_schema
    if schema is not None and schema.table is not None and schema.table.bins:
        rows.append(("bins of columns", f"{schema.table.bins} (num_bins in the schema)"))
    rows += [("preprocessing", _describe_step(step)) for step in plan.preprocessing]
    for component in mechanism.components:
        label = component.label_noise_multiplier
        name = f"{component.design} " if len(mechanism.components) > 1 else ""
        rows += [
            (f"{name}rows", str(component.num_mixtures)),
            ("records in a row, planned", f"{component.mix_size:.6g}"),
            ("sampling probability", f"{component.sampling_prob:.6g}"),
            ("noise multiplier, joint", f"{component.noise_multiplier:.6g}"),
        ]
        if isinstance(component, ResidualConfig):
            continue
        rows += [
            ("noise multiplier, features", f"{component.feature_noise_multiplier:.6g}"),
            (
                "noise multiplier, labels",
                f"{component.labels}" if label is None else f"{label:.6g}",
            ),
        ]
    return rows


def plan_notes(plan: ReleasePlan) -> list[tuple[str, str]]:
    """Return (name, value) of what a plan does not allow, and what would."""
    target = "class" if plan.data_schema is None else plan.data_schema.target
    if plan.design != "adaptive" or target != "regression":
        return []
    told = "none can be drawn from rounds of numbers; --design signed allows them"
    return [("synthetic records", told)]


def _describe_step(step: Step) -> str:
    cost = "no cost"
    for paid in charged((step,)):
        cost = f"noise multiplier {paid.joint_noise:.6g}"
    return f"{step.step} ({cost})"
