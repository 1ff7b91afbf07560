"""A plan as the command line asks for it: its flags, and what they make. Errors name flags."""

from __future__ import annotations

from typing import Any, cast

from privmix import _validate
from privmix.accounting import Risk
from privmix.planning.options import DESIGN_FLAGS, OPTIONS, DesignOptions, Flag
from privmix.planning.plan import RECORD, PrivacyUnit, ReleasePlan
from privmix.planning.solve import (
    calibrate_config,
    choose_design,
    configure,
    fix_steps,
    guiding_epsilon,
    solve_config,
    width_after,
)
from privmix.preprocess import (
    Center,
    ClassCounts,
    RandomProjection,
    SelectFeatures,
    Step,
    Subspace,
    UnitNorm,
)
from privmix.schema import Schema

# Steps run in this order.
STEP_FLAGS = (
    Flag(
        "center",
        float,
        "Centre records by a private mean with this share of the budget, then scale them "
        "to the clip norm [auto decides; 0: do not].",
    ),
    Flag("class_counts", bool, "Publish noisy class counts (2 % of the budget)."),
    Flag("select_features", int, "Keep this many features, chosen privately (10 %)."),
    Flag("subspace", int, "Project onto this many principal directions (10 %)."),
    Flag("random_projection", int, "Project at random, by public signs, at no cost."),
    Flag("unit_norm", bool, "Scale records to the clip norm, at no cost."),
)


def design_options(
    num_classes: int | None,
    *,
    classes_per_row: float | None,
    weights: str | None,
    alpha: float | None,
    **options: Any,
) -> DesignOptions:
    """Turn the design's flags into options; flags that are another way to say something go."""
    if classes_per_row is not None:
        if options["class_prob"] is not None:
            _validate.fail("--classes-per-row", "nothing beside --class-prob", classes_per_row)
        assert num_classes is not None
        _validate.real("--classes-per-row", classes_per_row, above=0.0, at_most=num_classes)
        options["class_prob"] = classes_per_row / num_classes
    elif options["class_prob"] is not None:
        allowed = "a probability, or one for each class, as in 0.9,0.3"
        found = _validate.numbers("--class-prob", options["class_prob"], allowed)
        options["class_prob"] = found if len(found) > 1 else found[0]
    if weights is not None:
        _validate.one_of("--weights", weights, ("dirichlet",))
        for option, value in (("--alpha", alpha), ("--weight-clip", options["weight_clip"])):
            if value is None:
                _validate.fail(option, "a number beside --weights", "nothing")
    elif alpha is not None or options["weight_clip"] is not None:
        _validate.fail("--weights", "dirichlet beside --alpha and --weight-clip", "nothing")
    for flag in DESIGN_FLAGS:
        if flag.name in OPTIONS and options.get(flag.name) is not None:
            OPTIONS[flag.name].check(flag.option, options[flag.name])
    return cast(DesignOptions, {"weight_alpha": alpha, **options})


def preprocessing_steps(
    *,
    center: float | None,
    class_counts: bool,
    select_features: int | None,
    subspace: int | None,
    random_projection: int | None,
    unit_norm: bool,
) -> tuple[Step, ...] | None:
    """Turn flags into steps, in the order of the flags' help; None where none is given.

    What changes records is followed by scaling to the clip norm once ``--center`` or
    ``--unit-norm`` asks for it.
    """
    flags = (class_counts, select_features, subspace, random_projection, unit_norm)
    if center is None and not any(flag is not None and flag is not False for flag in flags):
        return None
    scale: tuple[Step, ...] = (UnitNorm(),) if center or unit_norm else ()
    steps: tuple[Step, ...] = scale if unit_norm and not center else ()
    if center:
        steps += (Center(budget_share=center), *scale)
    if class_counts:
        steps += (ClassCounts(),)
    if select_features is not None:
        steps += (SelectFeatures(num_selected=select_features), *scale)
    if subspace is not None:
        steps += (Subspace(num_directions=subspace), *scale)
    if random_projection is not None:
        steps += (RandomProjection(num_directions=random_projection), *scale)
    return steps


def asked_risk(
    *,
    max_tpr: float | None,
    at_fpr: float | None,
    max_advantage: float | None,
    max_reconstruction: float | None,
    at_prior: float | None,
) -> Risk | None:
    """Turn flags into the risk that is planned for, if one is."""
    asked = (
        ("tpr", "--max-tpr", max_tpr, "--at-fpr", at_fpr),
        ("advantage", "--max-advantage", max_advantage, "", None),
        ("reconstruction", "--max-reconstruction", max_reconstruction, "--at-prior", at_prior),
    )
    found: Risk | None = None
    for measure, flag, most, rate, at in asked:
        if most is None and at is not None:
            _validate.fail(rate, f"nothing without {flag}", at)
        if most is None:
            continue
        if found is not None:
            _validate.fail(flag, "nothing beside another risk", most)
        if rate and at is None:
            _validate.fail(rate, f"a number beside {flag}", "nothing")
        if at is not None:
            _validate.real(rate, at, above=0.0, below=1.0)
        _validate.real(flag, most, above=at or 0.0, below=1.0)
        found = Risk(measure=cast(Any, measure), most=most, at=at)
    return found


def make_plan(
    schema: Schema | None,
    sizes: dict[str, Any],
    design: str | None,
    options: DesignOptions,
    *,
    epsilon: float | None,
    delta: float,
    preprocessing: tuple[Step, ...] | None = None,
    noise_multiplier: float | None = None,
    solve_for: str | None = None,
    max_memory: int | None = None,
    unit: PrivacyUnit = RECORD,
    risk: Risk | None = None,
) -> ReleasePlan:
    """Plan with one unknown: the noise, epsilon, or what ``solve_for`` names.

    With a ``risk`` the noise follows from it, and epsilon from the noise.
    """
    for name in ("num_records", "num_classes", "num_features"):
        _validate.size(name, sizes[name])
    if epsilon is not None:
        _validate.real("--epsilon", epsilon, at_least=1e-6, at_most=1e4)
    _validate.delta("--delta", delta)
    unit.check("add_or_remove_one")
    if risk is not None:
        others = (("--noise-multiplier", noise_multiplier), ("--solve-for", solve_for))
        for flag, given in (("--epsilon", epsilon), *others):
            if given is not None:
                _validate.fail(flag, "nothing beside a risk, which it follows from", given)
        epsilon = guiding_epsilon(risk, delta)
    if epsilon is None and noise_multiplier is None:
        _validate.fail("--epsilon", "a value, or --noise-multiplier to compute it", "nothing")
    if (solve_for is not None) != (epsilon is not None and noise_multiplier is not None):
        allowed = (
            "mix_size or num_mixtures if, and only if, --epsilon and --noise-multiplier are set"
        )
        _validate.fail("--solve-for", allowed, solve_for or "nothing")
    if epsilon is None:
        for option, value in (("--design", design in (None, "auto")), ("--center", preprocessing)):
            if value:
                _validate.fail("--epsilon", f"a value, for what {option} asks for", "nothing")
        assert noise_multiplier is not None
        config = configure(sizes, cast(Any, design), options, noise_multiplier)
        return ReleasePlan.for_config(config, delta, schema, unit=unit)
    target = {"target_epsilon": epsilon, "target_delta": delta}
    kind, options, steps = choose_design(
        sizes,
        cast(Any, design or "auto"),
        options,
        preprocessing,
        **target,
        unit=unit,
        schema=schema,
    )
    steps = fix_steps(steps, **target, unit=unit)
    left = sizes | {"num_features": width_after(steps, sizes["num_features"])}
    if noise_multiplier is None:
        config = calibrate_config(
            left, kind, options, **target, preprocessing=steps, unit=unit, risk=risk
        )
    else:
        unknown: Any = _validate.one_of("--solve-for", solve_for, ("mix_size", "num_mixtures"))
        config = solve_config(
            left,
            kind,
            options,
            unknown,
            noise_multiplier=noise_multiplier,
            **target,
            preprocessing=steps,
            unit=unit,
        )
    return ReleasePlan.for_config(
        config, delta, schema, steps, unit, max_memory=max_memory, risk=risk
    )
