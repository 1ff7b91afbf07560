"""Runs: fresh keys and fair coins, resumed where they were cut off; what their noise adds up to."""

from __future__ import annotations

import json

import numpy as np
import pytest

from audit_cases import DESIGNS, plan_of
from privmix import InvalidInputError
from privmix.auditing import audit, run_trials, subject_of
from privmix.auditing.audit import noise_findings
from privmix.auditing.trials import NoiseTotals


def subject():
    return subject_of(plan_of("signed", 5.0), 8)[0]


def same(one, two) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(one, two, strict=True))


def test_without_a_seed_no_two_audits_are_alike():
    one, two = run_trials(subject(), 4), run_trials(subject(), 4)
    assert not np.array_equal(one.scores, two.scores)
    assert len(np.unique(one.scores)) == one.scores.size


def test_coins_are_fair_and_of_no_use_to_the_release():
    """1024 coins; false alarm 1e-4 (3.9 standard deviations)."""
    trials = run_trials(subject(), 128, test_seed=1)
    assert abs(trials.present.sum() - 512) < 3.9 * 16


def test_an_audit_goes_on_where_it_was_cut_off(tmp_path):
    whole = run_trials(subject(), 12, test_seed=3)
    out = tmp_path / "runs"
    seen = []
    run_trials(subject(), 5, out=out, test_seed=3)
    out.write_bytes(out.read_bytes() + b'{"present": [1, 0')  # a line that was cut off
    resumed = run_trials(
        subject(), 12, out=out, test_seed=3, progress=lambda done, total: seen.append((done, total))
    )
    assert seen == [(n, 12) for n in range(5, 13)]  # the first: what the file had
    assert np.array_equal(resumed.present, whole.present)
    assert np.array_equal(resumed.scores, whole.scores)  # so that the verdict is the same
    assert resumed.noise[:1] + resumed.noise[2:] == whole.noise[:1] + whole.noise[2:]
    assert len(out.read_text().splitlines()) == 13
    with pytest.raises(InvalidInputError, match="runs, line 8: expected 6 runs at most, got 12"):
        run_trials(subject(), 6, out=out, test_seed=3)  # fewer than there are: a choice among them


@pytest.mark.parametrize("content", ["{}\n", "not JSON\n", '{"audited": "other"}\n', "[1]\n2\n"])
def test_the_file_of_another_audit_is_refused(tmp_path, content):
    out = tmp_path / "runs"
    out.write_text(content)
    with pytest.raises(InvalidInputError, match="the file of an audit of the same plan"):
        run_trials(subject(), 2, out=out)
    assert out.read_text() == content


def test_another_plan_is_another_audit(tmp_path):
    out = tmp_path / "runs"
    run_trials(subject(), 2, out=out)
    other, _ = subject_of(plan_of("signed", 8.0), 8)
    with pytest.raises(InvalidInputError, match="the file of an audit of the same plan"):
        run_trials(other, 3, out=out)


def test_a_damaged_run_is_refused(tmp_path):
    out = tmp_path / "runs"
    run_trials(subject(), 3, out=out)
    lines = out.read_text().splitlines()
    run = json.loads(lines[2])
    del run["noise"]
    out.write_text("\n".join([*lines[:2], json.dumps(run), lines[3]]) + "\n")
    with pytest.raises(InvalidInputError, match="runs, line 3: expected a finished run"):
        run_trials(subject(), 4, out=out)


@pytest.mark.parametrize(
    ("change", "finding"),
    [
        (lambda run: run["scores"][0].__setitem__(0, float("nan")), "scores: expected finite"),
        (lambda run: run["scores"][0].__setitem__(1, float("inf")), "scores: expected finite"),
        (lambda run: run["scores"][0].__setitem__(1, 10**400), "scores: expected finite"),
        (lambda run: run["scores"].pop(), "expected present, scores and noise of shapes"),
        (lambda run: run["scores"][0].pop(), "expected a finished run"),
        (lambda run: run["present"].pop(), "expected present, scores and noise of shapes"),
        (lambda run: run["present"].__setitem__(0, 2), "present: expected 0 or 1"),
        (lambda run: run["present"].__setitem__(0, 0.5), "present: expected 0 or 1"),
        (lambda run: run["noise"].pop(), "expected present, scores and noise of shapes"),
        (lambda run: run["noise"].__setitem__(1, float("nan")), "noise: expected finite"),
        (lambda run: run["noise"].__setitem__(1, -1.0), "noise: expected no number below 0"),
        (lambda run: run.update(more=1), "expected present, scores and noise of shapes"),
    ],
)
def test_a_line_that_is_no_run_is_refused_by_its_number(tmp_path, change, finding):
    out = tmp_path / "runs"
    run_trials(subject(), 3, out=out, test_seed=1)
    lines = out.read_text().splitlines()
    run = json.loads(lines[2])
    change(run)
    text = "\n".join([*lines[:2], json.dumps(run), lines[3]]).replace("Infinity", "1e999") + "\n"
    out.write_text(text)
    with pytest.raises(InvalidInputError, match="runs, line 3.*" + finding):
        run_trials(subject(), 4, out=out, test_seed=1)
    assert out.read_text() == text


def test_a_run_that_is_there_twice_is_refused(tmp_path):
    out = tmp_path / "runs"
    run_trials(subject(), 3, out=out, test_seed=1)
    lines = out.read_text().splitlines()
    out.write_text("\n".join([*lines, " " + lines[2]]) + "\n")
    with pytest.raises(InvalidInputError, match="line 5: expected a run of its own, got that of l"):
        run_trials(subject(), 8, out=out, test_seed=1)


@pytest.mark.parametrize(
    ("settings", "place"),
    [
        ({"runs": 7}, "runs"),
        ({"num_canaries": 65}, "num_canaries"),
        ({"confidence": 1.0}, "confidence"),
    ],
)
def test_settings_out_of_range(settings, place):
    with pytest.raises(InvalidInputError, match=f"^{place}: "):
        audit(plan_of("signed", 5.0), **{"runs": 8, "test_seed": 1} | settings)


def test_noise_of_the_certified_size_passes_and_a_factor_of_1_05_does_not():
    """100 audits of 20000 numbers each, with a false alarm in 1 % of them: 7 or more once in 1e4."""
    generator = np.random.default_rng(0)
    found = {}
    for factor in (1.0, 1.05, 0.95):
        noise = factor * generator.standard_normal((100, 5000, 4))
        found[factor] = sum(
            bool(noise_findings(NoiseTotals.of([one], [1e9]), 0.99)) for one in noise
        )
    assert found[1.0] < 7 and found[1.05] == found[0.95] == 100


def test_repeated_rows_are_found_within_a_table_and_not_between_tables():
    noise = np.random.default_rng(0).standard_normal((6, 4))
    assert NoiseTotals.of([noise, noise], [1e9, 1e9]).repeated == 0
    twice = NoiseTotals.of([np.concatenate([noise, noise[2:3]])], [1e9])
    assert twice.repeated == 1
    assert noise_findings(twice, 0.999) == ["noise: 1 of 7 rows repeat that of another row"]
    assert noise_findings(NoiseTotals(0, 0.0, 0, 0), 0.999) == []


def test_noise_of_few_points_repeats_by_chance_and_is_no_finding():
    """Rounded Gaussians: pairs are about as many as bounded.

    Their number's standard deviation is 7 % at most, so that half as many again come up once in 1e9.
    """
    generator = np.random.default_rng(0)
    for stddev in (1.0, 2.0, 3.0):
        noise = np.rint(stddev * generator.standard_normal((400, 2))) / stddev
        total = NoiseTotals.of([noise], [stddev])
        _, times = np.unique(noise, axis=0, return_counts=True)
        pairs = int((times * (times - 1) // 2).sum())
        assert total.repeated > 40 and 0.5 < pairs / total.by_chance < 1.5
        assert not any("repeat" in found for found in noise_findings(total, 0.999))
        told = noise_findings(total._replace(by_chance=1e-5), 0.999)
        assert told[-1].endswith("rows repeat that of another row")


@pytest.mark.parametrize("design", DESIGNS)
def test_noise_of_the_designs_has_next_to_no_chance_of_repeats(design):
    canaries = subject_of(plan_of(design, 5.0), 1)[0].canaries
    noise = [np.zeros((10_000, 4))] * len(canaries.mechanism.components)
    assert NoiseTotals.of(noise, canaries.grid_stddevs()).by_chance < 1e-10
