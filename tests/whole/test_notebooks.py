"""The notebooks run from top to bottom, and print what they show."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path

import matplotlib
import pytest

FOLDER = Path(__file__).parents[2] / "docs" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
pytestmark = pytest.mark.skipif(
    not FOLDER.is_dir(), reason="needs a checkout with its documentation"
)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs_and_prints_what_it_shows(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    matplotlib.use("agg")
    names: dict[str, object] = {"__name__": "notebook"}
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    assert cells[0]["cell_type"] == "markdown" and cells[0]["source"][0].startswith("# ")
    for place, cell in enumerate(cells):
        if cell["cell_type"] != "code":
            continue
        printed = io.StringIO()
        code = compile("".join(cell["source"]), f"{path.name}, cell {place}", "exec")
        with contextlib.redirect_stdout(printed):
            exec(code, names)
        shown = "".join("".join(output["text"]) for output in cell["outputs"])
        assert printed.getvalue() == shown, f"cell {place}"
    matplotlib.pyplot.close("all")


def test_there_is_one_for_everybody():
    assert [path.stem for path in NOTEBOOKS] == ["analyst", "data-holder", "privacy-officer"]
