from __future__ import annotations

import json
import multiprocessing
import sqlite3
from contextlib import closing

import pytest

from builders import make_data, make_plan, make_schema
from privmix import InvalidInputError, release
from privmix.accounting import (
    ComposedEvent,
    GaussianEvent,
    PoissonGaussianEvent,
    UniformGaussianEvent,
    account,
)
from privmix.running import journal
from privmix.running.ledger import Ledger

EVENT = PoissonGaussianEvent(sampling_prob=0.1, noise_multiplier=4.0, count=50)
COST = account(EVENT, 1e-6).epsilon


@pytest.fixture
def ledger(tmp_path):
    return Ledger(tmp_path / "ledger.db").open_dataset("d", epsilon_limit=3 * COST, delta=1e-6)


def test_charges_compose(ledger):
    assert ledger.balance("d").epsilon_spent == 0
    assert ledger.charge("d", EVENT, note="first").epsilon_spent == pytest.approx(COST, rel=1e-3)
    balance = ledger.charge("d", EVENT)
    both = account(ComposedEvent(events=(EVENT, EVENT)), 1e-6).epsilon
    assert balance.epsilon_spent == both < 2 * COST
    assert [charge.note for charge in balance.charges] == ["first", ""]
    assert [charge.event for charge in balance.charges] == [EVENT, EVENT]


def test_past_the_limit_nothing_is_charged(tmp_path):
    ledger = Ledger(tmp_path / "l.db").open_dataset("d", epsilon_limit=1.2 * COST, delta=1e-6)
    ledger.charge("d", EVENT)
    before = ledger.balance("d")
    with pytest.raises(InvalidInputError, match="of which .* is spent"):
        ledger.charge("d", EVENT)
    assert ledger.balance("d") == before


def test_a_limit_stays_as_it_was_set(ledger):
    ledger.open_dataset("d", epsilon_limit=3 * COST, delta=1e-6)
    with pytest.raises(InvalidInputError, match="the limit it was entered with"):
        ledger.open_dataset("d", epsilon_limit=100.0, delta=1e-6)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"dataset_id": " "}, "dataset_id"),
        ({"epsilon_limit": 0.0}, "epsilon_limit"),
        ({"epsilon_limit": float("nan")}, "epsilon_limit"),
        ({"delta": 1.0}, "delta"),
    ],
)
def test_bad_data_sets(ledger, options, words):
    with pytest.raises(InvalidInputError, match=words):
        ledger.open_dataset(**({"dataset_id": "e", "epsilon_limit": 1.0, "delta": 1e-6} | options))


def test_unknown_data_sets_and_other_relations(ledger):
    with pytest.raises(InvalidInputError, match="dataset_id.*'other'"):
        ledger.charge("other", EVENT)
    ledger.charge("d", EVENT)
    uniform = UniformGaussianEvent(num_records=9, mix_size=3, noise_multiplier=90.0, count=1)
    with pytest.raises(InvalidInputError, match="neighboring_relation"):
        ledger.charge("d", uniform)
    assert len(ledger.balance("d").charges) == 1


def test_bad_files(tmp_path):
    (tmp_path / "text").write_text("this is no database, but long enough to be looked at")
    with pytest.raises(InvalidInputError, match="a ledger that can be opened"):
        Ledger(tmp_path / "text")
    with pytest.raises(InvalidInputError, match="existing folder"):
        Ledger(tmp_path / "no" / "ledger.db")
    with sqlite3.connect(tmp_path / "new.db") as connection:
        connection.execute("PRAGMA user_version = 7")
    connection.close()
    with pytest.raises(InvalidInputError, match="format 1; received 7"):
        Ledger(tmp_path / "new.db")


@pytest.mark.parametrize("version", [0, 1])
def test_another_programs_database_is_left_alone(tmp_path, version):
    path = tmp_path / "other.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE datasets (name TEXT)")
        connection.execute(f"PRAGMA user_version = {version}")
        connection.commit()
    content = path.read_bytes()
    with pytest.raises(InvalidInputError, match=r"other\.db: allowed is a ledger; .* another prog"):
        Ledger(path)
    assert path.read_bytes() == content


def test_a_ledger_with_tables_of_another_program_beside_its_own(ledger):
    with closing(sqlite3.connect(ledger.path)) as connection:
        connection.execute("CREATE TABLE backups (number INTEGER)")
    assert Ledger(ledger.path).dataset_ids() == ["d"]


def test_it_is_private_and_exports(ledger):
    assert ledger.path.stat().st_mode & 0o777 == 0o600
    ledger.charge("d", GaussianEvent(noise_multiplier=100.0, count=1), note="counts")
    exported = json.loads(ledger.to_json())
    assert exported["datasets"][0]["charges"][0]["note"] == "counts"


RACES = 50


def release_in_races(folder, place, barrier, outcomes) -> None:
    """One of two runs that start a release at the same moment, again and again."""
    plan = TestReleases.plan
    data = make_data(plan.data_schema, 60)
    for race in range(RACES):
        barrier.wait()
        try:
            release(
                *data,
                plan,
                out=folder / f"{place}-{race}",
                ledger=folder / "l.db",
                dataset_id=f"d{race}",
                threads=1,
            )
            outcomes.put((race, "released"))
        except InvalidInputError as error:
            outcomes.put((race, "refused" if "is spent" in str(error) else str(error)))


def test_concurrent_releases_never_overspend(tmp_path):
    """Budget for one, two processes at once: exactly one succeeds, 50 times out of 50."""
    context = multiprocessing.get_context("spawn")
    cost = account(TestReleases.plan.event, 1e-6).epsilon
    ledger = Ledger(tmp_path / "l.db")
    for race in range(RACES):
        ledger.open_dataset(f"d{race}", epsilon_limit=1.2 * cost, delta=1e-6)
    barrier, outcomes = context.Barrier(2), context.Queue()
    processes = [
        context.Process(target=release_in_races, args=(tmp_path, place, barrier, outcomes))
        for place in "ab"
    ]
    for process in processes:
        process.start()
    found = sorted(outcomes.get(timeout=120) for _ in range(2 * RACES))
    for process in processes:
        process.join()
    assert found == sorted((race, o) for race in range(RACES) for o in ("released", "refused"))
    for race in range(RACES):
        assert len(ledger.balance(f"d{race}").charges) == 1
        assert sum((tmp_path / f"{place}-{race}").exists() for place in "ab") == 1


def test_a_run_is_charged_once(ledger):
    once = ledger.charge("d", EVENT, run_id="run")
    assert ledger.charge("d", EVENT, run_id="run") == once == ledger.balance("d")
    assert len(ledger.charge("d", EVENT, run_id="other").charges) == 2
    with pytest.raises(InvalidInputError, match="is spent"):
        ledger.open_dataset("e", epsilon_limit=COST / 2, delta=1e-6).charge(
            "e", EVENT, run_id="third"
        )
    assert len(ledger.charge("d", EVENT, run_id="third").charges) == 3  # a refusal leaves no name


class TestReleases:
    plan = make_plan(make_schema(), "poisson", 5.0, mix_size=6, num_mixtures=20)

    def book(self, tmp_path, share: float) -> Ledger:
        cost = account(self.plan.event, 1e-6).epsilon
        return Ledger(tmp_path / "l.db").open_dataset("d", epsilon_limit=share * cost, delta=1e-6)

    def test_a_release_is_charged_before_it_is_drawn(self, tmp_path):
        ledger, data = self.book(tmp_path, 1.2), make_data(self.plan.data_schema, 60)
        options = {"ledger": ledger.path, "dataset_id": "d"}

        def stop(done, total):
            assert len(ledger.balance("d").charges) == 1
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            release(*data, self.plan, out=tmp_path / "r", progress=stop, **options)
        release(*data, self.plan, out=tmp_path / "r", resume=True, **options)
        assert len(ledger.balance("d").charges) == 1  # resuming costs nothing more
        with pytest.raises(InvalidInputError, match="is spent"):
            release(*data, self.plan, out=tmp_path / "again", **options)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["l.db", "r"]

    def test_bad_input_is_not_charged(self, tmp_path):
        ledger, (x, y) = self.book(tmp_path, 1.2), make_data(self.plan.data_schema, 60)
        x[3, 1] = float("nan")
        with pytest.raises(InvalidInputError, match="features"):
            release(x, y, self.plan, out=tmp_path / "r", ledger=ledger.path, dataset_id="d")
        assert ledger.balance("d").charges == ()

    def test_a_mistyped_ledger_is_not_made(self, tmp_path):
        data = make_data(self.plan.data_schema, 60)
        options = {"ledger": tmp_path / "typo.db", "dataset_id": "d"}
        with pytest.raises(InvalidInputError, match="existing ledger"):
            release(*data, self.plan, out=tmp_path / "r", **options)
        assert list(tmp_path.iterdir()) == []

    def test_nothing_is_drawn_before_the_charge(self, tmp_path, monkeypatch):
        ledger, data = self.book(tmp_path, 0.5), make_data(self.plan.data_schema, 60)

        def never(*arguments):
            raise AssertionError("a key was drawn before the charge")

        monkeypatch.setattr(journal, "fresh_secret", never)
        with pytest.raises(InvalidInputError, match="is spent"):
            release(*data, self.plan, out=tmp_path / "r", ledger=ledger.path, dataset_id="d")

    def test_ledger_and_dataset_id_belong_together(self, tmp_path):
        data = make_data(self.plan.data_schema, 60)
        with pytest.raises(InvalidInputError, match="both, or neither"):
            release(*data, self.plan, out=tmp_path / "r", dataset_id="d")


def test_a_limit_is_met_exactly_and_not_passed_by_a_hair(tmp_path):
    """What two charges cost together is admitted to the last bit; a limit a hair below is not."""
    both = account(ComposedEvent(events=(EVENT, EVENT)), 1e-6).epsilon
    for limit, admitted in ((both, True), (both * (1 - 1e-12), False), (both / 1.005, False)):
        name = f"d{limit!r}"
        ledger = Ledger(tmp_path / "l.db").open_dataset(name, epsilon_limit=limit, delta=1e-6)
        ledger.charge(name, EVENT)
        ledger_check(ledger.check, name, admitted)
        ledger_check(ledger.charge, name, admitted)
        assert len(ledger.balance(name).charges) == 1 + admitted


def ledger_check(call, name, admitted):
    if admitted:
        call(name, EVENT)
        return
    with pytest.raises(InvalidInputError, match="of which .* is spent"):
        call(name, EVENT)
