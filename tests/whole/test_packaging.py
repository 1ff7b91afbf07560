"""What is handed out: a wheel that works alone, with the newest dependencies and with the oldest allowed.

The wheel is installed into a fresh environment from the package registry, which takes minutes.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
pytest.importorskip("build", reason="needs build")
pytest.importorskip("hatchling", reason="needs hatchling")
NO_NETWORK = ("NewConnectionError", "name resolution", "Connection refused", "timed out")

# In one process: to load the libraries takes longer than all else.
RELEASE = """
import sys

import numpy as np
import privmix
from privmix.cli import main

y = np.arange(300) % 3
x = np.eye(3, 6)[y] + 0.1 * np.random.default_rng(0).normal(size=(300, 6))
schema = privmix.Schema(classes=[0, 1, 2], num_features=6, num_records=300, feature_clip_norm=1.0)
plan = privmix.plan_release(schema, target_epsilon=4.0, target_delta=1e-5)
made = privmix.release(x, y, plan, out="made")
assert privmix.verify("made", expect_digest=made.certificate_digest).valid
model = privmix.NoiseAwareClassifier().fit(made)
X, labels = privmix.synthesize(made, 50, seed=0)
sys.argv = ["privmix", "report", "made", "--out", "report.html"]
try:
    main()
except SystemExit as stop:
    assert not stop.code
print(model.score(x, y), X.shape)
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> tuple[Path, Path]:
    """Build the sdist, and the wheel from the sdist."""
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(ROOT)]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    (wheel,), (sdist,) = out.glob("*.whl"), out.glob("*.tar.gz")
    return wheel, sdist


def lowest() -> list[str]:
    """Return each dependency at the lowest version that the project allows."""
    found = [re.fullmatch(r"([\w-]+)>=([\w.]+)", line) for line in PROJECT["dependencies"]]
    assert all(found), "a dependency without a lowest version"
    return [f"{one[1]}=={one[2]}" for one in found if one is not None]


def test_the_wheel_holds_the_library_and_nothing_else(built):
    names = zipfile.ZipFile(built[0]).namelist()
    assert {name.split("/")[0] for name in names} == {
        "privmix",
        f"privmix-{PROJECT['version']}.dist-info",
    }
    own = {p.relative_to(ROOT / "src").as_posix() for p in (ROOT / "src/privmix").rglob("*.py")}
    assert own <= set(names) and "privmix/py.typed" in names
    assert "privmix/datasets/data/banking77-minilm.npz" in names


def test_the_sdist_can_be_tested_and_documented(built):
    with tarfile.open(built[1]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    for name in ("pyproject.toml", "mkdocs.yml", "Makefile", "SECURITY.md", "CITATION.cff"):
        assert name in names
    assert {"tests/conftest.py", "docs/index.md", "docs/building/hooks.py"} <= names


def test_the_versions_agree():
    text = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {PROJECT['version']}\n" in text
    assert f"## [{PROJECT['version']}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("which", ["newest", "lowest"])
def test_the_wheel_works_alone(built, which, tmp_path):
    venv = [sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")]
    subprocess.run(venv, check=True)
    python = tmp_path / "venv" / "bin" / "python"
    extra = lowest() if which == "lowest" else []
    # Not a pip of its own, and no bytecode of modules that nothing here imports: half of the time.
    command = [sys.executable, "-m", "pip", "--python", str(python), "install", "--no-compile"]
    command += ["--quiet", str(built[0]), *extra]
    installed = subprocess.run(command, capture_output=True, text=True)
    if installed.returncode and any(sign in installed.stderr for sign in NO_NETWORK):
        pytest.skip("no package registry is reached")
    assert installed.returncode == 0, installed.stderr

    def run(*words: str) -> str:
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    where = run(str(python), "-c", "import privmix; print(privmix.__file__)")
    assert str(tmp_path) in where, "the wheel's own, not the checkout's"
    assert run(str(python), "-c", RELEASE).strip().endswith("(50, 6)")
    privmix = str(tmp_path / "venv" / "bin" / "privmix")
    assert "verified" in run(privmix, "demo", "--out", "demo")
    assert (tmp_path / "report.html").stat().st_size > 50_000
