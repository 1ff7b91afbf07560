"""``privmix verify``."""

from __future__ import annotations


def test_an_invalid_release_exits_with_one(run, files):
    run(
        "release",
        files / "train.parquet",
        "--label",
        "label",
        "--schema",
        files / "schema.json",
        "--epsilon",
        2,
        "--delta",
        "1e-5",
        "--num-mixtures",
        20,
        "--test-seed",
        3,
        "--out",
        files / "r",
    )
    told = run("verify", files / "r")
    assert told.code == 1
    assert "protects nobody" in told.out
    told = run("verify", files / "r", "--json")
    assert (told.code, told.json["valid"]) == (1, False)
