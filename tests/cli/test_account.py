"""``privmix account``: golden values, and what composes."""

from __future__ import annotations

import pytest


def test_account_poisson(run):
    told = run(
        "account",
        "--design",
        "poisson",
        "--num-records",
        50000,
        "--num-mixtures",
        50000,
        "--mix-size",
        64,
        "--noise-multiplier",
        1.26,
        "--delta",
        "1e-5",
        "--json",
    ).json
    assert told["epsilon"] == pytest.approx(1.0108, rel=0.005)
    assert set(told["accountants"]) >= {"pld", "rdp", "gdp"}
    pld, gdp = told["accountants"]["pld"], told["accountants"]["gdp"]
    assert pld["lower"] <= pld["epsilon"] <= pld["upper"] == told["epsilon"]
    assert gdp["epsilon"] == pytest.approx(1.0, abs=0.002)
    assert gdp["guarantee"] is False
    assert told["accountants"]["rdp"]["guarantee"] is True


@pytest.mark.parametrize(
    "others", [("--design", "poisson"), ("--mix-size", 5), ("--noise-multiplier", 3)]
)
def test_nothing_is_ignored_beside_releases_to_account_for(run, tmp_path, others):
    told = run("account", "--release", tmp_path, "--delta", "1e-5", *others)
    assert told.code == 2
    assert f"{others[0]}: not accepted beside --release" in told.err


def test_account_stratified(run):
    told = run(
        "account",
        "--design",
        "stratified",
        "--rows-per-class",
        1500,
        "--sampling-prob",
        0.0427,
        "--noise-multiplier",
        1.26,
        "--delta",
        "1e-5",
        "--json",
    ).json
    assert told["epsilon"] == pytest.approx(7.604, rel=0.01)
    assert (
        run(
            "account",
            "--design",
            "stratified",
            "--rows-per-class",
            1500,
            "--sampling-prob",
            0.0427,
            "--noise-multiplier",
            1.26,
            "--delta",
            "1e-5",
        ).out.count("yes")
        >= 2
    )


GOLDEN = {
    "signed": (["--num-records", 10000, "--num-mixtures", 10003, "--mix-size", 36,
                "--noise-multiplier", 1], 1.031),
    "hierarchical": (["--num-records", 50000, "--num-mixtures", 50000, "--mix-size", 64,
                      "--class-prob", 0.03, "--noise-multiplier", 1.26], 7.604),
    "hierarchical-random": (["--num-records", 50000, "--num-mixtures", 50000, "--mix-size", 64,
                             "--classes-per-row", 3, "--num-classes", 100, "--eligibility",
                             "random", "--noise-multiplier", 1.26], 7.617),
    "hierarchical-many": (["--num-records", 50000, "--num-mixtures", 50000, "--mix-size", 64,
                           "--class-prob", 0.3, "--noise-multiplier", 1.26], 1.981),
    # one Gaussian with sensitivity 8 under noise 8 / 0.268051: (1, 1e-5)
    "transposed": (["--num-records", 1000, "--num-mixtures", 50000, "--rows-per-record", 64,
                    "--noise-multiplier", 1.26], 1.003),
}  # fmt: skip


@pytest.mark.parametrize("name", GOLDEN)
def test_account_golden_values(run, name):
    arguments, epsilon = GOLDEN[name]
    told = run("account", "--design", name.split("-")[0], *arguments, "--delta", "1e-5", "--json")
    assert told.code == 0, told.err
    assert told.json["epsilon"] == pytest.approx(epsilon, rel=0.005)
    if name.startswith("hierarchical"):
        claimed = told.json["claimed_by_paper"]
        assert claimed["epsilon"] == pytest.approx(1.011, rel=0.005)
        assert claimed["epsilon_central_limit"] == pytest.approx(1.0, rel=0.005)
        assert claimed["guarantee"] is False
    if name == "transposed":
        assert told.json["accountants"]["gdp"]["guarantee"] is False


def test_account_uniform_and_hybrid(run):
    told = run("account", "--design", "uniform", "--num-records", 5000, "--num-mixtures", 100,
               "--mix-size", 50, "--noise-multiplier", 4, "--delta", "1e-5", "--json").json  # fmt: skip
    readings = told["accountants"]
    assert told["epsilon"] == readings["pld"]["epsilon"] < readings["rdp"]["epsilon"]
    told = run("account", "--design", "hybrid", "--num-records", 5000, "--num-mixtures", 1000,
               "--mix-size", 500, "--feature-budget", 0.3, "--noise-multiplier", 2, "--delta",
               "1e-5", "--json").json  # fmt: skip
    parts = [part["epsilon"] for part in told["components"]]
    assert max(parts) < told["epsilon"] < sum(parts)


def test_releases_and_groups_compose(run, files):
    for name in ("a", "b"):
        run("release", files / "train.parquet", "--label", "label", "--schema",
            files / "schema.json", "--epsilon", 1, "--delta", "1e-5", "--num-mixtures", 20,
            "--out", files / name)  # fmt: skip
    one = run("account", "--release", files / "a", "--delta", "1e-5", "--json").json
    both = run("account", "--release", files / "a", "--release", files / "b", "--delta", "1e-5",
               "--group-size", 2, "--json").json  # fmt: skip
    assert 0.99 < one["epsilon"] <= 1 + 1e-3
    assert one["epsilon"] < both["epsilon"] < 2 * one["epsilon"]
    assert len(both["components"]) == 2
    assert both["group_epsilon"] > both["epsilon"]
