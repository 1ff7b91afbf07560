"""Planning: from the public facts and a target to a plan, without a look at the data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Unpack, cast

import numpy as np

from privmix import _validate
from privmix.accounting import (
    Event,
    Risk,
    account,
    calibrate,
    calibrate_noise_multiplier,
    calibrate_noise_to_risk,
    gdp_epsilon,
    gdp_mu_from,
)
from privmix.accounting.stated import stated_epsilon
from privmix.mechanism import (
    DESIGNS,
    Design,
    ReleaseConfig,
    adaptive_config,
    admits,
    check_target,
    hybrid_config,
    mixture_config,
)
from privmix.planning.options import (
    OPTIONS,
    DesignOptions,
    chosen_options,
    options_of,
    without_none,
)
from privmix.planning.plan import RECORD, PrivacyUnit, ReleasePlan, planned_sizes, whole_event
from privmix.planning.rule import TUNED_DESIGNS, counts_share, recommend_design
from privmix.preprocess import ClassCounts, Intercept, Step, UnitNorm, charged, plan_steps
from privmix.schema import Schema

_MOST_MIXTURES = 10**8


# Of the public model. Clipped at 1/2, records that the model gets wrong count alike, and those that
# it gets right count for less; on records set aside, 1/4 and 1 lost. See docs/theory/adaptive.md.
_RESIDUAL_CLIP_NORM = 0.5


def plan_release(
    schema: Schema,
    *,
    target_epsilon: float | None = None,
    target_delta: float,
    risk: Risk | None = None,
    design: Design | Literal["auto"] = "auto",
    preprocessing: Sequence[Step] | None = None,
    unit_column: str | None = None,
    max_records_per_unit: int | None = None,
    **options: Unpack[DesignOptions],
) -> ReleasePlan:
    """Plan a release that costs at most (``target_epsilon``, ``target_delta``). Sees no data.

    Args:
        schema: The public facts.
        target_epsilon: Largest epsilon allowed, above 0.
        target_delta: Its delta, in (0, 1).
        risk: Instead of ``target_epsilon``: the most that an attacker may gain. The noise is the least
            at which the certified trade-off curve keeps to it; the plan states the epsilon that follows.
        design: One of ``mechanism.DESIGNS``, or ``auto``: what
            ``privmix.planning.rule.recommend_design`` puts first among the designs that have the
            options given. ``hybrid``, ``adaptive``, ``signed``, ``poisson`` and ``stratified`` get that rule's
            sizes and centring by name, too: each option that is not given, one by one.
            ``stratified``, ``hybrid`` and ``hierarchical`` need the target ``class``.
        preprocessing: Steps of ``privmix.preprocess``, in order. Charged ones spend their
            ``budget_share`` of the squared GDP parameter of the target; the mechanism gets what
            they leave. By default centring where the rule of ``auto`` predicts that it helps, with a
            constant that keeps the lengths of a table's rows, and counts of few classes; and none for
            the designs that it does not know; ``()`` for none.
        unit_column: Name of what owns several records each, ``patient`` say: the guarantee is then
            for all records of one owner together. Needs ``max_records_per_unit``, and a design
            under add_or_remove_one. ``num_records`` of the schema is what is left of the records
            once at most that many of each owner are.
        max_records_per_unit: How many records of one owner take part at most, chosen at random.
        **options: What the design lets you set, by keyword:

            - ``num_mixtures``: number of rows; by the rule, else ``schema.num_records`` (all but
              ``stratified``; ``hybrid`` and ``adaptive``: their signed rows).
            - ``mix_size``: planned number of records in a row; by the rule, else 64, or half of all
              of them (all but ``stratified`` and ``transposed``).
            - ``label_balance``: label over feature noise multiplier; by the rule, else sqrt(2)
              (designs with noisy labels).
            - ``sampling_prob``, ``rows_per_class``: ``stratified``: probability that a record
              enters a row of its class (0.5), and rows of each class (100).
            - ``rows_per_record``, ``neighboring_relation``: ``transposed``: rows that each record
              enters (64), and ``add_or_remove_one`` or ``replace_one``.
            - ``class_prob``, ``eligibility``: ``hierarchical``: share of the rows that a class is
              open to (no default), and ``balanced`` (default) or ``random``. A sequence of shares is
              one for each class; eligibility is then ``random``, and the smallest share sets the cost.
            - ``feature_budget``: ``hybrid`` and ``adaptive``: share of the budget for the signed
              rows (by the rule; ``adaptive``: 0.05).
            - ``num_rounds``: ``adaptive``: rounds of residual mixtures (20, or
              60 for few features and many records).
            - ``weight_alpha``, ``weight_clip``: ``uniform``: Dirichlet concentration and upper
              bound of random weights; equal weights by default.

    Returns:
        A plan whose certified epsilon is at or below the target.

    Raises:
        InvalidInputError: An argument out of range, or one that the design does not have.

    Example:
        >>> from privmix import Schema, plan_release
        >>> schema = Schema(classes=range(4), num_features=16, num_records=2000, feature_clip_norm=1.0)
        >>> plan = plan_release(schema, target_epsilon=1.0, target_delta=1e-5, design="stratified")
        >>> plan.epsilon <= 1.0, plan.mechanism.num_mixtures
        (True, 400)

    """
    sizes = planned_sizes(schema)
    unit = PrivacyUnit(unit_column, max_records_per_unit)
    unit.check("add_or_remove_one")
    if (target_epsilon is None) == (risk is None):
        both = "neither" if risk is None else "both"
        _validate.fail("target_epsilon and risk", "one of the two", both)
    if risk is not None:
        target_epsilon = guiding_epsilon(risk, target_delta)
    assert target_epsilon is not None
    target = {"target_epsilon": target_epsilon, "target_delta": target_delta}
    steps = None if preprocessing is None else _checked_steps(preprocessing)
    design, options, steps = choose_design(
        sizes, design, options, steps, **target, unit=unit, schema=schema
    )
    steps = fix_steps(steps, **target, unit=unit)
    config = calibrate_config(
        sizes | {"num_features": width_after(steps, sizes["num_features"])},
        design,
        options,
        target_epsilon=target_epsilon,
        target_delta=target_delta,
        preprocessing=steps,
        unit=unit,
        risk=risk,
    )
    return ReleasePlan.for_config(config, target_delta, schema, steps, unit, risk=risk)


def guiding_epsilon(risk: Risk, target_delta: float) -> float:
    """Epsilon of the Gaussian mechanism with just this risk: by it a design is chosen and steps get their
    noise. The rest of the noise follows from the certified curve of the whole.
    """
    epsilon = gdp_epsilon(risk.gdp_mu, _validate.delta("target_delta", target_delta))
    return min(max(epsilon, 1e-6), 1e4)


def _checked_steps(preprocessing: object) -> tuple[Step, ...]:
    many = isinstance(preprocessing, list | tuple)
    steps: Sequence[Any] = preprocessing if many else [preprocessing]  # type: ignore[assignment]
    allowed = "a list of steps of privmix.preprocess, such as [Center(budget_share=0.05)]"
    for step in steps:
        if not many or not hasattr(type(step), "num_outputs"):
            _validate.fail("preprocessing", allowed, repr(preprocessing))
    return tuple(steps)


def choose_design(
    sizes: dict[str, Any],
    design: Design | Literal["auto"],
    options: DesignOptions,
    preprocessing: tuple[Step, ...] | None,
    *,
    target_epsilon: float,
    target_delta: float,
    unit: PrivacyUnit = RECORD,
    schema: Schema | None = None,
) -> tuple[Design, DesignOptions, tuple[Step, ...]]:
    """Replace ``auto`` by a design with options, and None by steps; what is given stays.

    A design that is named gets the options and the centring that ``auto`` would give it, if ``auto``
    knows it; each that is given stays as it is given.

    Args:
        sizes: As :func:`planned_sizes` has them: those of raw records, and the target.
        design: A design or ``auto``.
        options: Those given; ``auto`` considers only designs that have them.
        preprocessing: Steps, or None to have ``auto`` decide on centring.
        target_epsilon: Largest epsilon allowed.
        target_delta: Its delta.
        unit: Whose presence is protected.
        schema: Where there is one: its ``class_balance`` decides whether classes are counted
            (``privmix.planning.rule.counts_share``), and records of a table keep their lengths.

    """
    named = None if design == "auto" else design
    if named is not None and named not in TUNED_DESIGNS:
        return named, options, preprocessing or ()
    given = without_none(options)
    spent = sum(step.budget_share for step in charged(preprocessing or ()))
    _validate.real("preprocessing: sum of budget_share", spent, below=1.0)
    width = width_after(preprocessing or (), sizes["num_features"])
    epsilon = _validate.real("target_epsilon", target_epsilon, at_least=1e-6, at_most=1e4)
    _validate.delta("target_delta", target_delta)
    if unit != RECORD:
        epsilon = max(gdp_epsilon(unit.record_mu(epsilon, target_delta), target_delta), 1e-6)
    found = recommend_design(
        num_records=sizes["num_records"],
        num_classes=max(2, sizes["num_classes"]),  # one output is as hard to learn as two classes
        num_features=width,
        epsilon=epsilon,
        delta=target_delta,
        budget_share=1 - spent,
        num_mixtures=options.get("num_mixtures"),
    )
    # Rounds of numbers are planned where they are asked for: see docs/theory/adaptive.md.
    # Centred records are scaled to one length, which keeps directions but not what is linear in x.
    numbers = sizes.get("target") == "regression"
    fitting = [
        alternative
        for alternative in found
        if (named is None or alternative.design == named)
        and given.keys() <= set(options_of(alternative.design))
        and admits(alternative.design, sizes.get("target", "class"))
        and (named is not None or alternative.design != "adaptive" or not numbers)
        and (alternative.center_share is None or (preprocessing is None and not numbers))
    ]
    if not fitting and named is not None:  # it says what does not fit where it is laid out
        return named, options, preprocessing or ()
    if not fitting:
        names = ", ".join(sorted(given))
        _validate.fail("design", f"one that has the options {names}", "auto, which considers none")
    best = fitting[0]
    chosen = cast(DesignOptions, best.options | given)
    if preprocessing is not None:
        return best.design, chosen, preprocessing
    steps = best.preprocessing
    if (
        best.design in ("hybrid", "stratified", "adaptive")
        and sizes.get("target", "class") == "class"
    ):
        n, k = sizes["num_records"], sizes["num_classes"]
        balance = None if schema is None else schema.class_balance
        share = counts_share(n, k, gdp_mu_from(epsilon, target_delta), balance)
        steps = steps if share is None else (ClassCounts(budget_share=share), *steps)
    room = width_after(steps, sizes["num_features"]) < _validate.LARGEST["num_features"]
    table = None if schema is None else schema.table
    if room and table is not None and table.fourier is None:
        steps = _with_lengths(steps, len(table.columns))
    return best.design, chosen, steps


def _with_lengths(steps: tuple[Step, ...], num_columns: int) -> tuple[Step, ...]:
    """Put a constant behind records before they are scaled to one norm: it shows by how much.

    Lengths of rows of few columns vary more, and each column has more of the squared norm to itself.
    """
    share = max(Intercept().share, 1 / (4 * num_columns))
    found: list[Step] = []
    for step in steps:
        found += [Intercept(share=share), step] if isinstance(step, UnitNorm) else [step]
    return tuple(found)


def width_after(steps: tuple[Step, ...], num_features: int) -> int:
    """Return the width of records after the steps."""
    for step in steps:
        num_features = step.num_outputs(num_features)
    return num_features


def fix_steps(
    preprocessing: Sequence[Step],
    *,
    target_epsilon: float,
    target_delta: float,
    unit: PrivacyUnit = RECORD,
) -> tuple[Step, ...]:
    """Fix the noise of the steps of a release that costs at most the target."""
    _validate.real("target_epsilon", target_epsilon, at_least=1e-6, at_most=1e4)
    gdp_mu = unit.record_mu(target_epsilon, _validate.delta("target_delta", target_delta))
    return plan_steps(tuple(preprocessing), gdp_mu)


def calibrate_config(
    sizes: dict[str, Any],
    design: Design,
    options: DesignOptions,
    *,
    target_epsilon: float,
    target_delta: float,
    preprocessing: tuple[Step, ...] = (),
    unit: PrivacyUnit = RECORD,
    risk: Risk | None = None,
) -> ReleaseConfig:
    """Find the least noise that keeps planned steps and a design at or below the target.

    With a ``risk`` that is the target, and not the epsilon.
    """
    _validate.real("target_epsilon", target_epsilon, at_least=1e-6, at_most=1e4)
    _validate.delta("target_delta", target_delta)
    unit.check(configure(sizes, design, options, 1.0).neighboring_relation)

    def event(noise: float) -> Event:
        return whole_event(preprocessing, configure(sizes, design, options, noise), unit)

    if risk is not None:
        return configure(sizes, design, options, calibrate_noise_to_risk(event, risk))
    joint = calibrate_noise_multiplier(event, target_epsilon, target_delta)
    config = configure(sizes, design, options, joint)
    # The full accounting may take other grids than the search did; it is the one that counts.
    # So is its epsilon as it is stated, a little above.
    while stated_epsilon(account(event(joint), target_delta).epsilon) > target_epsilon:
        joint *= 1 + 1e-6
        config = configure(sizes, design, options, joint)
    return config


def solve_config(
    sizes: dict[str, Any],
    design: Design,
    options: DesignOptions,
    unknown: Literal["mix_size", "num_mixtures"],
    *,
    noise_multiplier: float,
    target_epsilon: float,
    target_delta: float,
    preprocessing: tuple[Step, ...] = (),
    unit: PrivacyUnit = RECORD,
) -> ReleaseConfig:
    """Find the largest mix size, or number of mixtures, that a given noise affords.

    Args:
        sizes: As :func:`planned_sizes` has them.
        design: A design that has ``unknown`` among its options.
        options: The other options.
        unknown: What to solve for.
        noise_multiplier: Joint noise multiplier.
        target_epsilon: Largest epsilon allowed.
        target_delta: Its delta.
        preprocessing: Planned steps that the release runs before.
        unit: Whose presence is protected.

    Raises:
        InvalidInputError: The design has no such option, or no value meets the target; the error
            names the reachable range.

    """
    _validate.one_of("design", design, DESIGNS)
    own = options_of(design)
    if unknown not in own:
        _validate.fail("unknown", f"an option of {design}: {', '.join(own)}", unknown)
    whole = unknown == "num_mixtures" or design == "uniform"
    upper = float(sizes["num_records"]) if unknown == "mix_size" else float(_MOST_MIXTURES)
    if unknown == "mix_size" and options.get("class_prob") is not None:
        probs = OPTIONS["class_prob"].check("class_prob", options["class_prob"])
        upper *= float(np.min(probs))  # more would include records with certainty

    def with_value(value: float) -> ReleaseConfig:
        known = cast(DesignOptions, {**options, unknown: round(value) if whole else value})
        return configure(sizes, design, known, noise_multiplier)

    value = calibrate(
        lambda value: whole_event(preprocessing, with_value(value), unit),
        unknown,
        target_epsilon=target_epsilon,
        target_delta=target_delta,
        lower=1.0 if whole else min(1e-3, upper),
        upper=upper,
        increasing=True,
        integer=whole,
    )
    return with_value(value)


def configure(
    sizes: dict[str, Any],
    design: Design,
    options: DesignOptions,
    noise_multiplier: float,
) -> ReleaseConfig:
    """Build a mechanism from sizes, a design with its options, and a joint noise multiplier.

    ``hybrid``: ``noise_multiplier`` is one over the GDP parameter that is divided between its
    parts.
    """
    _validate.size("num_records", sizes["num_records"])
    _validate.size("num_features", sizes["num_features"])
    _validate.real("noise_multiplier", noise_multiplier, at_least=1e-9, at_most=1e12)
    _validate.one_of("design", design, DESIGNS)
    check_target(design, sizes.get("target", "class"), sizes["num_classes"])
    chosen = chosen_options(design, options)
    if design == "hybrid":
        sums = _layout("stratified", sizes, {"sampling_prob": 1.0, "rows_per_class": 1})
        rows = _layout("signed", sizes, chosen)
        return hybrid_config(sums, rows, noise_multiplier, chosen["feature_budget"])
    if design == "adaptive":
        rows = _layout("signed", sizes, chosen)
        rounds = dict(sizes)
        rounds["num_rounds"] = chosen["num_rounds"]
        rounds["residual_clip_norm"] = _RESIDUAL_CLIP_NORM
        return adaptive_config(rows, rounds, noise_multiplier, chosen["feature_budget"])
    return mixture_config(
        _layout(design, sizes, chosen), noise_multiplier, chosen.get("label_balance")
    )


def _layout(design: Design, sizes: dict[str, Any], chosen: dict[str, Any]) -> dict[str, Any]:
    """Derive everything but the noise."""
    num_records, num_classes = sizes["num_records"], sizes["num_classes"]
    layout: dict[str, Any] = {"design": design, **sizes}
    if design == "stratified":
        prob, rows = chosen["sampling_prob"], chosen["rows_per_class"]
        size = prob * num_records / num_classes
        return layout | {
            "num_mixtures": rows * num_classes,
            "sampling_prob": prob,
            "mix_size": size,
        }
    mixtures = chosen.get("num_mixtures", num_records)
    if design == "transposed":
        given = chosen.get("rows_per_record", min(64, mixtures))
        rows = _validate.integer("rows_per_record", given, at_most=mixtures)
        prob, size = rows / mixtures, rows / mixtures * num_records
        layout |= {"rows_per_record": rows, "neighboring_relation": chosen["neighboring_relation"]}
    else:
        given = chosen.get("mix_size", min(64, max(1, num_records // 2)))
        size = _validate.real("mix_size", given, above=0.0, at_most=num_records)
        prob = size / num_records
    layout |= {"num_mixtures": mixtures, "sampling_prob": prob, "mix_size": float(size)}
    if design == "uniform":
        layout["neighboring_relation"] = "replace_one"
    extras = ("class_prob", "eligibility", "weight_alpha", "weight_clip")
    return layout | {name: chosen[name] for name in extras if name in chosen}
