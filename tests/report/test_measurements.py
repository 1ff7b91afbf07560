"""Files beside a release are strangers' files: read strictly, and told as they are."""

from __future__ import annotations

import json
import os

import pytest

from privmix import InvalidInputError
from privmix.accounting import GaussianEvent
from privmix.auditing.audit import AuditReport
from privmix.report.measurements import read_audit, read_ledger, read_utility
from privmix.running.ledger import Ledger

AUDIT = {"epsilon": 1.0, "lower_bound": 0.2, "confidence": 0.95, "verdict": "consistent"}
CERTIFICATE, PARAMETERS, OTHER = "a" * 64, "b" * 64, "c" * 64


def write(path, value):
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    return path


def test_an_evaluation_of_classes(evaluation, evil_names):
    found = read_utility(evaluation)
    assert [one.name for one in found.measures] == ["accuracy"] and found.num_test_records == 100
    (recalls,) = found.parts.values()
    assert found.num_parts == {"recall": 3} and len(recalls) == 3
    assert [one.value for one in recalls] == sorted(one.value for one in recalls)
    assert "\u202e" not in "".join(one.name for one in recalls)


def test_only_the_lowest_of_many_classes_are_told(tmp_path):
    many = {str(k): k / 100 for k in range(100)}
    path = write(tmp_path / "e.json", {"accuracy": 1, "recall": many, "num_test_records": 7})
    found = read_utility(path)
    assert len(found.parts["recall"]) == 20 and found.num_parts["recall"] == 100
    assert found.parts["recall"][0].name == "0"


def test_an_evaluation_of_numbers(tmp_path):
    data = {"r2": 0.5, "rmse": {"y": 1.5}, "num_test_records": 7, "private": False}
    found = read_utility(write(tmp_path / "e.json", data))
    assert found.measures[0].name == "r2" and found.parts["rmse"][0].value == 1.5


@pytest.mark.parametrize(
    "content",
    [
        "[]",
        "no JSON",
        "{}",
        '{"num_test_records": 5}',
        '{"accuracy": 1}',
        '{"accuracy": 1, "num_test_records": 0}',
        '{"accuracy": 1, "accuracy": 0, "num_test_records": 5}',
        '{"accuracy": NaN, "num_test_records": 5}',
        '{"accuracy": 1' + 400 * "0" + ', "num_test_records": 5}',
    ],
)
def test_what_is_no_evaluation_is_refused(tmp_path, content):
    with pytest.raises(InvalidInputError):
        read_utility(write(tmp_path / "e.json", content))


@pytest.mark.parametrize(
    ("changed", "place"),
    [
        ({"accuracy": 1.5}, "accuracy: expected"),
        ({"accuracy": -0.1}, "accuracy: expected"),
        ({"auc": 2}, "auc: expected"),
        ({"recall": {"a": 0.5, "b": 7.0}}, r"recall\['b'\]: expected"),
        ({"accuracy_interval": [0.6, 0.9]}, "accuracy_interval: expected ends about accuracy, 0.5"),
        ({"accuracy_interval": [0.9, 0.1]}, "accuracy_interval: expected ends about accuracy, 0.5"),
        ({"accuracy_interval": [0.4, 1.1]}, "accuracy_interval: expected a finite number"),
        ({"accuracy_interval": [0.4]}, "accuracy_interval: expected two numbers"),
        ({"log_loss_interval": [3.0, 4.0]}, "log_loss_interval: expected ends about log_loss, 2.5"),
    ],
)
def test_scores_that_cannot_be_are_refused_by_name(tmp_path, changed, place):
    data = {"accuracy": 0.5, "accuracy_interval": [0.4, 0.6], "log_loss": 2.5, "r2": -3.0}
    data |= {"coverage_error": 4.0, "num_test_records": 9}
    assert len(read_utility(write(tmp_path / "sound.json", data)).measures) == 4
    with pytest.raises(InvalidInputError, match=place):
        read_utility(write(tmp_path / "e.json", data | changed))


def test_a_pipe_is_no_evaluation(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InvalidInputError):
        read_utility(tmp_path / "pipe")


def test_an_audit_and_what_it_says_of_the_certificate(tmp_path):
    path = write(tmp_path / "a.json", AUDIT | {"attacks": [1, 2]})
    found = read_audit(path, 1.0, CERTIFICATE, PARAMETERS)
    assert found.same_claim and not found.contradicts
    lower = read_audit(path, 0.1, CERTIFICATE, PARAMETERS)
    assert lower.contradicts and not lower.same_claim
    broken = AUDIT | {"verdict": "violated", "findings": ["less noise\x1b"]}
    found = read_audit(write(tmp_path / "b.json", broken), 1.0, CERTIFICATE, PARAMETERS)
    assert found.contradicts and found.findings == ("less noise\\x1b",)


def test_what_the_audit_command_writes_is_read():
    """The names that are read are fields of the audit's own report."""
    read = {"epsilon", "lower_bound", "confidence", "verdict", "findings"}
    read |= {"certificate_digest", "parameters_digest"}
    assert read <= set(AuditReport.model_fields)


@pytest.mark.parametrize(
    ("certificate", "parameters", "subject"),
    [
        (CERTIFICATE, PARAMETERS, "this"),
        (CERTIFICATE, None, "this"),
        (OTHER, PARAMETERS, "same_parameters"),
        (None, PARAMETERS, "same_parameters"),
        (None, None, "unknown"),
    ],
)
def test_an_audit_says_what_it_is_of(tmp_path, certificate, parameters, subject):
    named = AUDIT | {"certificate_digest": certificate, "parameters_digest": parameters}
    path = write(tmp_path / "a.json", named)
    assert read_audit(path, 1.0, CERTIFICATE, PARAMETERS).subject == subject


@pytest.mark.parametrize(
    ("named", "reason"),
    [
        ({"certificate_digest": OTHER}, "certificate_digest: .*aaaa, of this certificate"),
        ({"parameters_digest": OTHER}, "parameters_digest: .*bbbb, of the parameters"),
        ({"certificate_digest": CERTIFICATE, "parameters_digest": OTHER}, "parameters_digest"),
        ({"certificate_digest": "A" * 64}, "64 hexadecimal digits"),
        ({"parameters_digest": 7}, "64 hexadecimal digits"),
    ],
)
def test_an_audit_of_something_else_is_refused(tmp_path, named, reason):
    with pytest.raises(InvalidInputError, match=reason):
        read_audit(write(tmp_path / "a.json", AUDIT | named), 1.0, CERTIFICATE, PARAMETERS)


@pytest.mark.parametrize(
    "changed",
    [
        {"epsilon": None},
        {"epsilon": -1},
        {"lower_bound": "0.2"},
        {"lower_bound": True},
        {"confidence": 1.0},
        {"confidence": 0},
        {"verdict": ""},
        {"verdict": 3},
        {"verdict": "sound"},
        {"verdict": "Violated"},
        {"findings": "all"},
    ],
)
def test_what_is_no_audit_is_refused(tmp_path, changed):
    with pytest.raises(InvalidInputError):
        read_audit(write(tmp_path / "a.json", AUDIT | changed), 1.0, CERTIFICATE, PARAMETERS)


def test_a_ledger_tells_before_after_and_now(tmp_path):
    book = Ledger(tmp_path / "l.db").open_dataset("a", epsilon_limit=5.0, delta=1e-5)
    event = GaussianEvent(noise_multiplier=8.0)
    for digest in "123":
        book.record("a", event, digest=digest * 64)
    (found,) = read_ledger(tmp_path / "l.db", "2" * 64)
    charges = book.balance("a").charges
    assert found.epsilon_before == charges[0].epsilon_spent < found.epsilon_after
    assert found.epsilon_after == charges[1].epsilon_spent < found.epsilon_now
    assert read_ledger(tmp_path / "l.db", "1" * 64)[0].epsilon_before == 0.0
    assert found.head == book.head() and found.refusal is None


def test_a_charge_past_the_limit_is_told(tmp_path):
    book = Ledger(tmp_path / "l.db").open_dataset("a", epsilon_limit=0.1, delta=1e-5)
    book.record("a", GaussianEvent(noise_multiplier=1.0), digest="1" * 64)
    assert "past the limit" in read_ledger(tmp_path / "l.db", "1" * 64)[0].refusal


def test_a_ledger_that_does_not_know_it_is_refused(tmp_path):
    Ledger(tmp_path / "l.db").open_dataset("a", epsilon_limit=5.0, delta=1e-5)
    with pytest.raises(InvalidInputError, match="one without the certificate"):
        read_ledger(tmp_path / "l.db", "1" * 64)
    with pytest.raises(InvalidInputError, match="--ledger: expected an existing ledger"):
        read_ledger(tmp_path / "none.db", "1" * 64)
    assert not (tmp_path / "none.db").exists()
