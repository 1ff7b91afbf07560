from __future__ import annotations

import os
import sys
from pathlib import Path

# As many processes as cores test at once: threads of theirs would spin while they wait for each other.
# Before NumPy is loaded; what starts from here inherits it. Threads of privmix's own are not meant.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Every process that tests start would compile all modules anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

import numpy as np
import pytest

from builders import make_schema
from commands import Result
from privmix import cli, plan_release
from privmix.planning.plan import ReleasePlan
from privmix.rng import MasterKey
from privmix.running import unrecorded


@pytest.fixture(autouse=True)
def nothing_spent_before():
    """Private fits of one test do not count in the next one."""
    unrecorded._spent.clear()


@pytest.fixture
def key() -> MasterKey:
    return MasterKey.for_test(0, b"tests")


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture(scope="session")
def poisson_plan() -> ReleasePlan:
    return plan_release(
        make_schema(),
        target_epsilon=2.0,
        target_delta=1e-5,
        design="poisson",
        mix_size=6,
        num_mixtures=40,
        preprocessing=(),
    )


@pytest.fixture(scope="session")
def stratified_plan() -> ReleasePlan:
    return plan_release(
        make_schema(),
        target_epsilon=2.0,
        target_delta=1e-5,
        design="stratified",
        rows_per_class=10,
        preprocessing=(),
    )


@pytest.fixture
def run(capsys, monkeypatch):
    """Run the command line in this process, which is much quicker than a new one."""

    def call(*arguments: object) -> Result:
        monkeypatch.setattr(sys, "argv", ["privmix", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as stop:
            cli.main()
        streams = capsys.readouterr()
        return Result(int(stop.value.code or 0), streams.out, streams.err)

    return call


@pytest.fixture
def one_torch_thread():
    """One thread for tiny tensors: more would only wait for one another."""
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that ``slow.txt`` lists, with all their parameters; see ``slowest.py``."""
    folder = Path(__file__).parent
    listed = set((folder / "slow.txt").read_text(encoding="utf-8").splitlines())
    for item in items:
        if item.nodeid.removeprefix(f"{folder.name}/").partition("[")[0] in listed:
            item.add_marker(pytest.mark.slow)
