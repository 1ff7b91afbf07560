"""``--plot``: a new file beside what a command says, checked before any work."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import privmix
from builders import make_data, make_plan, make_schema
from privmix.cli import app
from privmix.cli._plots import check_plot, draw

pytest.importorskip("matplotlib")
PLAN = "plan --num-records 1000 --num-classes 3 --num-features 10 --epsilon 1 --delta 1e-5"
ACCOUNT = "account --design poisson --num-records 500 --num-mixtures 20 --mix-size 5 --noise-multiplier 2 --delta 1e-5"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    plan = make_plan(make_schema(), "hybrid", 1.0, num_mixtures=20, mix_size=6)
    folder = tmp_path_factory.mktemp("made") / "r"
    privmix.release(*make_data(plan.data_schema, 60), plan, out=folder)
    return folder


def run(line: str):
    return CliRunner().invoke(app, line.split())


@pytest.mark.parametrize("line", [PLAN, f"{PLAN} --explain", ACCOUNT])
def test_the_same_words_and_a_plot_that_is_the_same_again(line, tmp_path):
    plain = run(line)
    for name in ("a.svg", "b.svg"):
        drawn = run(f"{line} --plot {tmp_path / name}")
        assert drawn.exit_code == 0 and drawn.stdout == plain.stdout
    content = (tmp_path / "a.svg").read_bytes()
    assert content.startswith(b"<?xml") and (tmp_path / "b.svg").read_bytes() == content


@pytest.mark.parametrize("suffix", ["svg", "png", "pdf"])
def test_rows_and_costs_of_a_release(made, tmp_path, suffix):
    for line in (f"verify {made}", f"account --release {made} --delta 1e-5"):
        out = tmp_path / f"{line.split()[0]}.{suffix}"
        assert run(f"{line} --plot {out}").exit_code == 0
        assert out.stat().st_size > 2000


def test_the_budget_of_a_ledger(made, tmp_path):
    ledger = tmp_path / "l.db"
    run(f"ledger open --ledger {ledger} --dataset-id people --epsilon-limit 50 --delta 1e-5")
    run(f"ledger charge --ledger {ledger} --dataset-id people --release {made}")
    assert run(f"ledger show --ledger {ledger} --plot {tmp_path / 'b.svg'}").exit_code == 0
    assert (tmp_path / "b.svg").exists()


def test_a_training(tmp_path):
    pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    y = np.arange(120) % 3
    x = (np.eye(3, 8)[y] + 0.1 * rng.normal(size=(120, 8))).astype(np.float32)
    np.savez(tmp_path / "t.npz", x=x, y=y)
    done = run(
        f"fit {tmp_path}/t.npz --features-key x --label-key y --classes 0,1,2 --num-records 120 "
        f"--batch-size 30 --epochs 2 --epsilon 3 --delta 1e-4 --out {tmp_path}/m --plot {tmp_path}/c.svg"
    )
    assert done.exit_code == 0, done.output
    assert (tmp_path / "c.svg").exists()
    assert {path.name for path in (tmp_path / "m").iterdir()} == {
        "certificate.json",
        "model.safetensors",
    }


def test_nothing_is_drawn_through_a_link(tmp_path):
    link = tmp_path / "c.svg"
    link.symlink_to(tmp_path / "elsewhere.svg")
    with pytest.raises(privmix.InvalidInputError, match="--plot"):
        check_plot(link)
    with pytest.raises(privmix.InvalidInputError, match="--plot.*File exists"):
        draw(link, lambda ax: ax.plot([0, 1]))
    assert [path.name for path in tmp_path.iterdir()] == ["c.svg"] and link.is_symlink()


def test_a_training_is_told_of_before_it_is_drawn(tmp_path, monkeypatch):
    pytest.importorskip("torch")
    from privmix.cli import fit

    def full(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(fit, "draw_training", full)
    np.savez(tmp_path / "t.npz", x=np.zeros((60, 4), np.float32), y=np.arange(60) % 3)
    done = run(
        f"fit {tmp_path}/t.npz --features-key x --label-key y --classes 0,1,2 --num-records 60 --batch-size 30 "
        f"--epochs 1 --epsilon 3 --delta 1e-4 --out {tmp_path}/m --plot {tmp_path}/c.svg --json"
    )
    assert isinstance(done.exception, OSError)
    assert len(json.loads(done.stdout)["digest"]) == 64


def test_what_it_refuses_before_any_work(made, tmp_path):
    (tmp_path / "there.svg").write_text("mine")
    for name in ("there.svg", "x.txt", "none/x.svg"):
        refused = run(f"{PLAN} --plot {tmp_path / name}")
        assert refused.exit_code != 0 and "--plot: expected" in str(refused.exception)
        assert refused.stdout == ""
    assert (tmp_path / "there.svg").read_text() == "mine"


def test_nothing_is_drawn_of_what_is_not_sound(made, tmp_path):
    import shutil

    shutil.copytree(made, tmp_path / "r")
    (tmp_path / "r" / "README.md").write_text("another")
    refused = run(f"verify {tmp_path / 'r'} --plot {tmp_path / 'a.svg'}")
    assert refused.exit_code == 1 and not (tmp_path / "a.svg").exists()
