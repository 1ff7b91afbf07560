"""The table of options: what flags, defaults, checks and the docstring say is one thing."""

from __future__ import annotations

import inspect

import pytest

from builders import make_schema
from privmix import plan_release
from privmix.cli._app import load_command
from privmix.mechanism import DESIGNS
from privmix.planning.flags import STEP_FLAGS
from privmix.planning.options import DESIGN_FLAGS, OPTIONS, RISK_FLAGS, chosen_options, options_of


def test_every_design_takes_its_options_and_no_others():
    taken = {name for design in DESIGNS for name in options_of(design)}
    assert taken == set(OPTIONS)
    for design in DESIGNS:
        for name in set(OPTIONS) - set(options_of(design)):
            with pytest.raises(ValueError, match=f"{name}: .* design {design}"):
                chosen_options(design, {name: 0.5})


def test_defaults_pass_their_own_checks():
    for name, option in OPTIONS.items():
        for default in option.defaults.values():
            assert default is None or option.check(name, default) == default


@pytest.mark.parametrize("command", ["plan", "release", "account"])
def test_commands_have_the_flags_of_the_table(command):
    due = {flag.option: flag.help for flag in (*DESIGN_FLAGS, *STEP_FLAGS)}
    if command == "plan":
        due |= {flag.option: flag.help for flag in RISK_FLAGS}
    if command == "account":
        free = [flag.option for flag in STEP_FLAGS]
        due = {name: text for name, text in due.items() if name not in {*free, "--label-balance"}}
    found = {param.opts[0]: param for param in load_command(command).params}
    assert {name: found[name].help for name in due} == due
    assert {param.opts[0] for param in load_command(command).params if getattr(param, "is_flag", False)} <= {
        "--class-counts", "--unit-norm", "--json", "--explain", "--dry-run", "--resume",
    }  # fmt: skip


def test_planning_in_python_describes_every_option():
    text = inspect.getdoc(plan_release) or ""
    assert not [name for name in OPTIONS if f"``{name}``" not in text]


@pytest.mark.parametrize(
    ("option", "value"),
    [("sampling_prob", float("nan")), ("rows_per_class", 2.5), ("sampling_prob", 0)],
)
def test_options_are_checked_by_the_table(option, value):
    with pytest.raises(ValueError, match=f"^{option}: "):
        plan_release(
            make_schema(),
            target_epsilon=1,
            target_delta=1e-5,
            design="stratified",
            **{option: value},
        )
