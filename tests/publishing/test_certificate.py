from __future__ import annotations

import json

import pytest

from privmix import Certificate, MixtureConfig
from privmix.accounting import account


@pytest.fixture(params=["poisson", "stratified"])
def plan(request, poisson_plan, stratified_plan):
    return poisson_plan if request.param == "poisson" else stratified_plan


@pytest.fixture
def certificate(plan):
    return Certificate.for_plan(plan, private=True, files={"README.md": "0" * 64})


def test_json_round_trip(certificate):
    again = Certificate.from_json(certificate.to_bytes())
    assert again == certificate
    assert again.digest() == certificate.digest()


def test_it_states_the_mechanism_and_its_guarantee(plan, certificate):
    document = json.loads(certificate.to_bytes())
    assert document["schema"]["num_records"] == 60
    assert plan.epsilon < document["epsilon"] <= plan.epsilon + 1.1e-5
    assert document["epsilon"] <= 2.0
    assert document["statement"].startswith(
        f"({document['epsilon']}, 1e-05)-differentially private"
    )
    assert document["private"] is True
    assert document["privacy_unit"] == "record"
    assert document["neighboring_relation"] == "add_or_remove_one"
    assert MixtureConfig(**document["mechanism"]).event == plan.event
    assert set(document["epsilon_by_delta"]) == {
        "0.001", "0.0001", "1e-05", "1e-06", "1e-07", "1e-08", "1e-09",
    }  # fmt: skip
    for delta, epsilon in document["epsilon_by_delta"].items():
        assert epsilon == pytest.approx(account(plan.event, float(delta)).epsilon, rel=1e-4)
    assert document["epsilon_by_delta"]["1e-05"] == document["epsilon"]
    assert document["sampler_error"] == 0
    mechanism = plan.mechanism
    (facts,) = document["tables"]
    assert facts["feature_noise_stddev"] == pytest.approx(
        mechanism.feature_noise_multiplier / mechanism.mix_size
    )
    assert facts["feature_step"] == 1 / (16384 * mechanism.mix_size)


def test_the_curve_falls_from_one_to_zero(certificate):
    curve = certificate.tradeoff_curve
    rates = list(zip(curve.false_positive_rate, curve.false_negative_rate, strict=True))
    assert rates == sorted(rates, key=lambda rate: (rate[0], -rate[1]))
    assert rates[0][0] == 0
    assert rates[-1] == (1.0, 0.0)
    assert all(positive + negative <= 1 + 1e-12 for positive, negative in rates)


def test_a_true_certificate_holds(certificate):
    assert certificate.recheck() == []


@pytest.mark.parametrize("factor", [1 - 1e-6, 1 + 1e-6, 1 - 1e-9])
def test_a_statement_that_is_off_by_a_millionth_is_found(certificate, factor):
    """Whatever an accountant said, and in either direction."""
    document = json.loads(certificate.to_bytes())
    told = [(document, "epsilon")]
    told += [(document["epsilon_by_delta"], delta) for delta in document["epsilon_by_delta"]]
    told += [(document["accountants"]["pld"], name) for name in ("epsilon", "lower", "upper")]
    for rates in document["tradeoff_curve"].values():
        told += [(rates, i) for i in (5, 15, 25)]
    for node, name in told:
        before = node[name]
        node[name] *= factor
        assert node[name] != before
        found = Certificate.from_json(json.dumps(document)).recheck()
        assert any(reason.startswith("certificate: ") for reason in found), name
        node[name] = before
    assert Certificate.from_json(json.dumps(document)).recheck() == []


def test_the_words_of_a_certificate_are_rechecked(certificate):
    changed = certificate.model_copy(update={"statement": "(0.1, 1e-09)-differentially private"})
    assert any("statement" in reason for reason in changed.recheck())


def test_every_number_is_rechecked(certificate):
    """Any float of the certificate that is off by one in a thousand is found."""
    document = json.loads(certificate.to_bytes())

    def places(node, path=()):
        items = node.items() if isinstance(node, dict) else enumerate(node)
        for name, value in items:
            if isinstance(value, dict | list):
                yield from places(value, (*path, name))
            elif isinstance(value, float) and value not in (0.0, 1.0):
                yield (*path, name)

    found = [p for p in places(document) if p[0] not in ("delta", "tradeoff_curve")]
    assert len(found) > 15
    for path in found:
        changed = json.loads(json.dumps(document))
        node = changed
        for part in path[:-1]:
            node = node[part]
        node[path[-1]] *= 1.001
        try:
            reasons = Certificate.from_json(json.dumps(changed)).recheck()
        except ValueError:
            continue  # refused already when read
        assert reasons, f"{path} was not rechecked"
