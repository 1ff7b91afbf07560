"""Results of experiments outlive a stop, and stand beside the papers' values."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(
    not (ROOT / "experiments").is_dir(), reason="needs a checkout with its experiments"
)


@pytest.fixture
def experiment(tmp_path):
    from experiments.harness import Experiment

    script = tmp_path / "paper" / "table.py"
    script.parent.mkdir()
    script.with_suffix(".paper.csv").write_text(
        "epsilon,method,accuracy,source\n1,,50.5,Table 1\n2,a,70,Table 1\n"
    )
    arguments = argparse.Namespace(quick=True, out=str(tmp_path / "out"))

    def make():
        return Experiment(str(script), ["epsilon", "method"], arguments)

    return make


def test_a_row_is_measured_once_and_found_again_after_a_stop(experiment):
    calls = []

    def figures():
        calls.append(1)
        return {"accuracy": 0.123456789}

    first = experiment().measure({"epsilon": 1.0, "method": "a"}, figures)
    again = experiment().measure({"epsilon": 1.0, "method": "a"}, figures)
    assert calls == [1]
    assert first == again
    assert again["accuracy"] == "0.12346"
    experiment().measure({"epsilon": 2.0, "method": "a"}, figures)
    assert calls == [1, 1]


def test_a_run_that_fails_leaves_earlier_rows(experiment):
    table = experiment()
    table.measure({"epsilon": 1, "method": "a"}, lambda: {"accuracy": 1})
    with pytest.raises(ZeroDivisionError):
        table.measure({"epsilon": 2, "method": "a"}, lambda: {"accuracy": 1 / 0})
    assert [row["epsilon"] for row in experiment().rows] == ["1"]


def test_the_papers_value_agrees_on_every_key_that_it_states(experiment, capsys):
    table = experiment()
    assert table.expected({"epsilon": "1", "method": "any"})["accuracy"] == "50.5"
    assert table.expected({"epsilon": "2", "method": "a"})["accuracy"] == "70"
    assert table.expected({"epsilon": "2", "method": "b"}) == {}
    table.measure({"epsilon": 2, "method": "a"}, lambda: {"accuracy": 69.0})
    table.show("accuracy")
    assert "2  a  69 (70)" in capsys.readouterr().out


def test_every_script_of_the_list_exists():
    lines = (ROOT / "experiments" / "all.txt").read_text().splitlines()
    for name in (line.split()[0] for line in lines if line and not line.startswith("#")):
        assert (ROOT / "experiments" / f"{name.replace('.', '/')}.py").is_file(), name
