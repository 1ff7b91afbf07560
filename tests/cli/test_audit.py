"""``privmix audit`` of a plan, a release and a model; ``privmix plan`` to a risk."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

import privmix
from audit_cases import training_plan
from builders import make_data, make_plan, make_schema
from planted_faults import too_little_noise
from privmix import cli, dpsgd
from privmix.accounting import Risk
from privmix.planning.plan import ReleasePlan
from privmix.planning.solve import plan_release
from privmix.preprocess import Center, UnitNorm


@pytest.fixture
def run(capsys, monkeypatch):
    def call(*arguments: object, status: int = 0) -> tuple[str, str]:
        monkeypatch.setattr(sys, "argv", ["privmix", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as stop:
            cli.main()
        streams = capsys.readouterr()
        assert (stop.value.code or 0) == status, streams
        return streams.out, streams.err

    return call


def signed_plan() -> ReleasePlan:
    return make_plan(make_schema(), "signed", 0.8, num_mixtures=20, mix_size=10)


@pytest.fixture
def plan_file(tmp_path) -> Path:
    path = tmp_path / "plan.json"
    path.write_text(signed_plan().to_json())
    return path


def test_a_plan_is_audited_in_words_and_in_json(run, plan_file):
    out, _ = run("audit", plan_file, "--runs", 32)
    lines = out.splitlines()
    assert [line.split(":")[0] for line in lines[:5]] == [
        "certified", "measured", "runs", "tightness", "verdict",
    ]  # fmt: skip
    assert "consistent with the certificate" in lines[4]
    out, _ = run("audit", plan_file, "--runs", 32, "--confidence", 0.9999, "--json")
    told = json.loads(out)
    assert told["verdict"] == "consistent" and told["confidence"] == 0.9999
    assert 0 <= told["lower_bound"] < told["epsilon"] == signed_plan().epsilon
    assert told["num_trials"] == 32 * 64
    assert told["parameters_digest"] == signed_plan().parameters_digest()
    assert told["certificate_digest"] is None
    assert lines[-1].endswith(told["parameters_digest"])


def test_an_audit_is_kept_and_gone_on_with(run, plan_file, tmp_path):
    report = tmp_path / "audit.json"
    run("audit", plan_file, "--runs", 16, "--out", report)
    runs = (tmp_path / "audit.json.runs").read_text()
    _, err = run("audit", plan_file, "--runs", 24, "--out", report)
    assert f"16 of 24 runs taken from {report}.runs, not run again" in err
    more = (tmp_path / "audit.json.runs").read_text()
    assert more.startswith(runs) and len(more.splitlines()) == 25
    assert json.loads(report.read_text())["num_runs"] == 24


def test_a_violation_is_exit_status_1_and_says_what_it_means(run, plan_file, monkeypatch):
    too_little_noise(monkeypatch)
    out, _ = run("audit", plan_file, "--runs", 32, status=1)
    found = re.search(r"noise: its standard deviation is ([0-9.]+) times", out)
    assert found is not None and 0.6 < float(found[1]) < 0.8
    assert "verdict: violated" in out and "publish nothing made by it" in out
    out, _ = run("audit", plan_file, "--runs", 32, "--json", status=1)
    assert json.loads(out)["verdict"] == "violated"


def test_a_release_is_audited_by_its_certificate(run, tmp_path):
    plan = signed_plan()
    x, y = make_data(make_schema(), 60)
    privmix.release(x, y, plan, out=tmp_path / "made", test_seed=0)
    out, _ = run("audit", tmp_path / "made", "--runs", 8, "--json")
    told = json.loads(out)
    assert told["epsilon"] == pytest.approx(plan.epsilon, rel=1e-5) and told["private"] is False
    out, _ = run("audit", tmp_path / "made", "--runs", 8, "--out", tmp_path / "audit.json")
    assert out.startswith("NOT PRIVATE: made with a test seed") and "code of its plan" in out
    told = json.loads((tmp_path / "audit.json").read_text())
    digest = privmix.Release(tmp_path / "made").certificate_digest
    assert told["private"] is False and told["certificate_digest"] == digest
    assert out.splitlines()[-1] == f"audited: certificate digest {digest}"
    assert told["parameters_digest"] == plan.parameters_digest()


def test_charged_preprocessing_is_said_to_be_left_out(run, tmp_path):
    plan = plan_release(
        make_schema(num_records=2000),
        target_epsilon=2.0,
        target_delta=1e-5,
        design="stratified",
        preprocessing=[Center(budget_share=0.1), UnitNorm()],
    )
    (tmp_path / "plan.json").write_text(plan.to_json())
    out, err = run("audit", tmp_path / "plan.json", "--runs", 8)
    assert "note: charged preprocessing (center) was not run" in out and "taken from" not in err
    assert "with preprocessing it is " in out


def test_a_model_is_audited_by_its_certificate_in_one_run(run, tmp_path):
    plan = training_plan(6.0)
    x, y = make_data(make_schema(num_features=16), 60)
    out = tmp_path / "model"
    made = dpsgd.fit(x, y, plan, model=dpsgd.LinearHead(), out=out, test_seed=0)
    told = json.loads(run("audit", out, "--one-run", "--json")[0])
    assert told["certificate_digest"] == made.certificate.digest()
    assert told["parameters_digest"] == plan.parameters_digest()
    assert told["verdict"] == "consistent" and told["num_runs"] == 1
    assert told["epsilon"] == pytest.approx(plan.epsilon)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("nowhere",), "nowhere: expected a plan file, or a release or model folder"),
        (("--one-run", "--runs", 9), "--runs: not accepted beside --one-run"),
        (("--confidence", 1), "confidence: expected"),
        (("--runs", 3), "runs: expected"),
        (("--out", "nowhere/audit.json"), "--out: "),
    ],
)
def test_what_cannot_be_audited_is_one_line(run, plan_file, monkeypatch, arguments, error):
    monkeypatch.chdir(plan_file.parent)
    source = () if arguments[0] == "nowhere" else (plan_file.name,)
    _, err = run("audit", *source, *arguments, status=2)
    assert error in err and len(err.splitlines()) == 1


SIZES = ("--num-records", 2000, "--num-classes", 4, "--num-features", 8, "--delta", 1e-5)


def test_a_plan_to_a_risk_states_the_risk_and_the_epsilon(run, tmp_path):
    (tmp_path / "schema.json").write_text(make_schema(num_records=2000).model_dump_json())
    path = tmp_path / "plan.json"
    out, _ = run(
        "plan", "--schema", tmp_path / "schema.json", "--max-tpr", 0.02, "--at-fpr", 0.01,
        "--delta", 1e-5, "--design", "stratified", "--out", path,
    )  # fmt: skip
    assert "true-positive rate" in out and "epsilon, delta" in out
    plan = ReleasePlan.from_json(path.read_text())
    assert plan.risk == Risk(measure="tpr", most=0.02, at=0.01)
    assert 0.0198 < plan.risk.of(plan.event) <= 0.02
    assert 0.9 < plan.epsilon < 1.1
    x, y = make_data(make_schema(num_records=2000), 300)
    made = privmix.release(x, y, plan, out=tmp_path / "made", test_seed=0)
    assert made.certificate.epsilon == pytest.approx(plan.epsilon, rel=1e-5)


def test_a_plan_that_promises_less_risk_than_it_has_is_refused(tmp_path):
    plan = plan_release(
        make_schema(num_records=2000),
        risk=Risk(measure="advantage", most=0.2),
        target_delta=1e-5,
        design="stratified",
    )
    better = plan.model_copy(update={"risk": Risk(measure="advantage", most=0.1)})
    x, y = make_data(make_schema(num_records=2000), 300)
    with pytest.raises(privmix.InvalidInputError, match=r"plan\.risk: expected at least 0\.19"):
        privmix.release(x, y, better, out=tmp_path / "made")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("--max-tpr", 0.02), "--at-fpr: required: a number beside --max-tpr"),
        (("--at-fpr", 0.02), "--at-fpr: not accepted without --max-tpr"),
        (("--max-tpr", 0.02, "--at-fpr", 0.05), "--max-tpr: expected"),
        (("--max-reconstruction", 0.02), "--at-prior: required"),
        (("--max-advantage", 0.1, "--epsilon", 1), "--epsilon: not accepted beside a risk"),
        (("--max-advantage", 0.1, "--max-tpr", 0.2, "--at-fpr", 0.1), "--max-advantage: not"),
        (("--max-advantage", 0.1, "--noise-multiplier", 1), "--noise-multiplier: not accepted"),
        (("--max-advantage", 0.1, "--explain"), "--max-advantage: not accepted beside --explain"),
    ],
)
def test_risks_are_asked_for_one_by_one(run, arguments, error):
    _, err = run("plan", *SIZES, *arguments, status=2)
    assert error in err and len(err.splitlines()) == 1


def test_planning_in_python_takes_an_epsilon_or_a_risk():
    schema, risk = make_schema(), Risk(measure="advantage", most=0.2)
    for both in ({}, {"target_epsilon": 1.0, "risk": risk}):
        with pytest.raises(privmix.InvalidInputError, match="target_epsilon and risk: "):
            plan_release(schema, target_delta=1e-5, **both)
