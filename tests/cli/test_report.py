"""``privmix report``: a page, or the same as JSON; nothing for what does not verify."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

import privmix
from builders import make_data, make_plan, make_schema
from privmix.auditing import audit
from privmix.cli import app
from signing_keys import KEY, OTHER, public_line


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    plan = make_plan(make_schema(), "poisson", 2.0, mix_size=6, num_mixtures=20)
    folder = tmp_path_factory.mktemp("made") / "r"
    privmix.release(*make_data(plan.data_schema, 60), plan, out=folder)
    return folder


def run(*words):
    return CliRunner().invoke(app, ["report", *map(str, words)])


def test_a_page(made, tmp_path):
    done = run(made, "--out", tmp_path / "report.html")
    assert done.exit_code == 0, done.output
    assert (tmp_path / "report.html").read_text().startswith("<!doctype html>")
    assert done.output == f"report of release r: {tmp_path}/report.html\n"


def test_json_alone_and_beside_the_page(made, tmp_path):
    told = json.loads(run(made, "--json").stdout)
    digest = privmix.Release(made).certificate_digest
    assert told["digest"] == digest and told["checklist"] and told["deployment"]
    both = run(made, "--json", "--out", tmp_path / "report.html")
    assert json.loads(both.stdout) == told and (tmp_path / "report.html").exists()


def test_what_it_refuses(made, tmp_path):
    (tmp_path / "there.html").write_text("mine")
    (tmp_path / "link.html").symlink_to(tmp_path / "nowhere")
    for words, reason in (
        ([made], "--out: required"),
        ([made, "--out", tmp_path / "there.html"], "which exists"),
        ([made, "--out", tmp_path / "link.html"], "--out: expected a new file, got"),
        ([tmp_path / "none", "--json"], "no such folder"),
        ([made, "--json", "--audit", tmp_path / "none.json"], "JSON of an audit"),
    ):
        done = run(*words)
        assert done.exit_code != 0 and reason in str(done.exception)
    assert (tmp_path / "there.html").read_text() == "mine"


def test_an_audit_of_another_plan_is_refused_and_one_of_the_same_plan_is_told(made, tmp_path):
    plan = privmix.Release(made).certificate.to_plan()
    other = make_plan(make_schema(), "poisson", 2.5, mix_size=6, num_mixtures=20)
    path = tmp_path / "audit.json"
    path.write_text(json.dumps(audit(other, runs=8).to_dict()))
    done = run(made, "--json", "--audit", path)
    assert "parameters_digest: expected" in str(done.exception)
    path.write_text(json.dumps(audit(plan, runs=8).to_dict()))
    told = json.loads(run(made, "--json", "--audit", path).stdout)
    assert told["audit"]["subject"] == "same_parameters"
    assert told["parameters_digest"] == plan.parameters_digest()
    run(made, "--audit", path, "--out", tmp_path / "page.html")
    assert "for a plan or for another certificate" in (tmp_path / "page.html").read_text()


def test_what_protects_nobody_gets_a_stamped_page_as_the_help_says(tmp_path):
    plan = make_plan(make_schema(), "poisson", 2.0, mix_size=6, num_mixtures=20)
    privmix.release(*make_data(plan.data_schema, 60), plan, out=tmp_path / "r", test_seed=0)
    done = run(tmp_path / "r", "--out", tmp_path / "page.html")
    assert done.exit_code == 0 and "NOT PRIVATE" in done.stderr
    digest = privmix.Release(tmp_path / "r").certificate_digest
    told = json.loads(run(tmp_path / "r", "--json", "--expect-digest", digest).stdout)
    assert told["signature"]["statement"].startswith("as expected: it protects nobody")
    assert told["signature"]["digest_expected"]
    assert "NOT PRIVATE" in (tmp_path / "page.html").read_text()
    told = " ".join(run("--help").stdout.split())
    assert "made with a test seed or for research, gets a report with that stamp" in told


def test_a_page_names_who_signed_and_none_is_written_for_another_signer(tmp_path):
    plan = make_plan(make_schema(), "poisson", 2.0, mix_size=6, num_mixtures=20)
    data = make_data(plan.data_schema, 60)
    made = tmp_path / "r"
    privmix.release(*data, plan, out=made, sign_key=KEY)
    (tmp_path / "mine").write_text(f"alice@example.org {public_line(KEY)}\n")
    (tmp_path / "theirs").write_text(f"bob@example.org {public_line(OTHER)}\n")
    page = tmp_path / "page.html"
    assert run(made, "--signer", tmp_path / "theirs", "--out", page).exit_code != 0
    assert run(made, "--expect-digest", "0" * 64, "--out", page).exit_code != 0
    assert not page.exists()
    done = run(
        made, "--signer", tmp_path / "mine", "--identity", "alice@example.org", "--out", page
    )
    assert done.exit_code == 0, done.exception
    assert "signed by alice@example.org" in page.read_text()
