"""The experiments on attacks, at a size for tests and on made-up records."""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from privmix import Schema

FOLDER = Path(__file__).parents[2] / "experiments" / "attacks"
pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="needs a checkout with its experiments")


def load(name):
    spec = importlib.util.spec_from_file_location(f"attacks_{name}", FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_membership_goes_on_where_it_was_cut_off(tmp_path, monkeypatch, rng, capsys):
    pytest.importorskip("torch")
    module = load("membership")
    y = rng.integers(3, size=400)
    x = module.unit_norm(np.eye(12)[y] + 0.5 * rng.standard_normal((400, 12)))
    data = module.divide((x, y), 240, 160, seed=0)
    assert not {*map(bytes, data.candidates[0])} & {*map(bytes, data.population[0])}
    options = argparse.Namespace(
        kinds=["poisson", "auto", "fit"], epsilons=[8.0], releases=3, row_attacks=2, seed=0
    )
    first = module.run(data, tmp_path / "out", options)
    assert list(first) == ["non-private", "noiseless", "poisson 8", "auto 8", "fit 8"]
    assert first["poisson 8"]["rows auc"]["runs"] == 2
    assert first["auto 8"]["lira auc"]["runs"] == 3
    for name in ("poisson 8", "auto 8", "fit 8"):
        certified = first[name]["certified"]
        assert certified["epsilon"] <= 8
        assert certified["tpr at 0.001"] < certified["tpr at 0.01"] < certified["auc"] < 1
    (tmp_path / "out" / "auto-8-2.npz").unlink()
    monkeypatch.setattr(module, "MIX_SIZE", None)  # what is there is not made again
    again = module.run(data, tmp_path / "out", options)
    assert again["poisson 8"] == first["poisson 8"]
    assert json.loads((tmp_path / "out" / "results.json").read_text()) == again
    module.print_tables(again)
    assert "| auto 8 |" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="expected a model of the same candidates"):
        module.run(data, tmp_path / "out", argparse.Namespace(**{**vars(options), "seed": 1}))


def test_the_papers_values_stand_beside_it():
    papers = json.loads((FOLDER / "papers.json").read_text())
    for table in papers.values():
        width = len(table["columns"])
        assert {"epsilon 8", "epsilon 4", "epsilon 2", "epsilon 1"} <= set(table)
        assert all(len(row) == width for name, row in table.items() if name != "columns")


def test_inversion_draws_and_compares(tmp_path, monkeypatch, rng):
    pytest.importorskip("torch")
    pytest.importorskip("kymatio.scattering2d.frontend.torch_frontend")
    module = load("inversion")
    images = rng.random((8, 1, 12, 12)).astype(np.float32)
    monkeypatch.setattr(module, "load", lambda name, folder, count, seed: (images[:count], 500))
    options = argparse.Namespace(
        dataset="mnist", out=tmp_path / "grid", mix_sizes=[1, 2], pictures=2, steps=2, seed=0
    )
    results = module.run(options, tmp_path)
    assert len(results) == 6
    noise = [results[f"m=2, {name}, 2 steps"]["noise_stddev"] for name in module.SETTINGS]
    assert noise[0] == 0 < noise[1] < noise[2]
    with module.Image.open(tmp_path / "grid.png") as picture:
        assert picture.size == (2 * 2 * 12, 2 * (2 * 4 * 12 + 4))
    monkeypatch.setattr(module, "invert", None)  # what is there is not made again
    assert module.run(options, tmp_path) == results
    assert module.as_table(results).count("\n") == 7


def test_attribute_inference_compares_members_with_others(rng):
    module = load("attribute")
    columns = [
        {"name": name, "type": "categorical", "categories": list(values), "nullable": False}
        for name, values in (("town", "abcdef"), ("secret", "xyz"))
    ]
    facts = {"classes": ["no", "yes"], "num_records": 9, "table": {"columns": columns}}
    rows = pa.table({"town": rng.choice([*"abcdef"], 300), "secret": rng.choice([*"xyz"], 300)})
    options = argparse.Namespace(
        column="secret", records=60, population=120, releases=2, epsilons=[2.0], seed=0
    )
    schema = Schema.from_json(json.dumps(facts))
    results = module.run(schema, rows, rng.choice(["no", "yes"], 300), options)
    assert list(results) == [f"epsilon 2, {name}" for name in module.METHODS]
    for one in results.values():
        (inside, _), (outside, _), (advantage, _) = (
            one[name] for name in ("members", "non-members", "advantage")
        )
        assert advantage == pytest.approx(inside - outside)
