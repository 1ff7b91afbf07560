"""``privmix train``."""

from __future__ import annotations


def test_training_keeps_releases_whole(run, files):
    run(
        "release", files / "train.parquet", "--label", "label", "--schema", files / "schema.json",
        "--epsilon", 2, "--delta", "1e-5", "--num-mixtures", 20, "--test-seed", 3, "--out",
        files / "r",
    )  # fmt: skip
    told = run("train", files / "r", "--out", files / "r" / "m.safetensors")
    assert told.code == 2
    assert "outside of any release" in told.err
    told = run("train", files / "r", "--out", files / "m.safetensors")
    assert told.code == 0
    assert "protects nobody" in told.err
    (files / "r" / "README.md").write_text("another")
    told = run("train", files / "r", "--out", files / "m.safetensors", "--replace")
    assert told.code == 2
    assert "README.md: changed since" in told.err
