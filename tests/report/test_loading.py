"""The code that a report gives runs where the folder is."""

from __future__ import annotations

import numpy as np
import pytest

from privmix.report.facts import report_facts


@pytest.mark.parametrize("tool", ["privmix", "pandas", "scikit-learn", "torch"])
def test_it_runs(released, monkeypatch, tool):
    if tool in ("pandas", "torch"):
        pytest.importorskip(tool)
    monkeypatch.chdir(released.parent)
    names: dict[str, object] = {}
    exec(report_facts(released).loading[tool], names)
    if tool == "pandas":
        assert len(names["rows"]) == 40
    elif tool == "torch":
        assert tuple(names["features"].shape) == (40, 12)
    elif tool == "scikit-learn":
        assert np.shape(names["X"]) == (10_000, 12)
    else:
        assert names["model"].predict(np.zeros((1, 12))).shape == (1,)


def test_datasets_opens_it(released, monkeypatch, tmp_path):
    datasets = pytest.importorskip("datasets")
    monkeypatch.chdir(released.parent)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path)
    code = report_facts(released).loading["datasets"]
    assert "load_dataset('made')" in code
