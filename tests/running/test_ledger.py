from __future__ import annotations

import json
import multiprocessing

import pytest

from builders import make_data, make_plan, make_schema
from ledger_cases import COST, DIGEST, EVENT, contents, narrow
from privmix import InvalidInputError, release
from privmix.accounting import (
    ComposedEvent,
    GaussianEvent,
    PoissonGaussianEvent,
    UniformGaussianEvent,
    account,
    adaptive_reading,
)
from privmix.running import journal
from privmix.running.ledger import Ledger
from privmix.spending import read_spent


class TestCharges:
    def test_they_compose(self, ledger):
        assert ledger.balance("d").epsilon_spent == 0
        first = ledger.charge("d", EVENT, name="first", who="ana")
        assert first.balance.epsilon_spent == COST
        balance = ledger.charge("d", EVENT).balance
        both = account(ComposedEvent(events=(EVENT, EVENT)), 1e-6).epsilon
        assert balance.epsilon_planned == both < balance.epsilon_spent < 2 * COST
        assert [charge.name for charge in balance.charges] == ["first", ""]
        assert [charge.event for charge in balance.charges] == [EVENT, EVENT]
        assert balance.charges[0].who == "ana"
        assert balance.charges[0].epsilon_alone == COST
        assert balance.charges[1].mechanism == "poisson_gaussian x 50, add_or_remove_one"
        assert balance == ledger.balance("d")

    def test_past_the_limit_nothing_is_charged(self, tmp_path):
        ledger = narrow(tmp_path)
        ledger.charge("d", EVENT)
        before = ledger.balance("d")
        with pytest.raises(InvalidInputError, match="of which .* is spent"):
            ledger.charge("d", EVENT)
        assert ledger.balance("d") == before

    def test_the_limit_holds_against_a_choice_by_earlier_outputs(self, tmp_path):
        """Design 4.4, item 8: what composed loss distributions would admit is not admitted."""
        first = GaussianEvent(noise_multiplier=5.0)
        low, high = 3.0, 30.0  # the least noise at which the composed distribution keeps the limit
        while high / low > 1.002:
            middle = (low * high) ** 0.5
            pair = ComposedEvent(events=(first, rare(middle)))
            low, high = (low, middle) if account(pair, 1e-5).epsilon <= 1 else (middle, high)
        ledger = Ledger(tmp_path / "l.db").open_dataset("d", epsilon_limit=1.0, delta=1e-5)
        ledger.charge("d", first)
        with pytest.raises(InvalidInputError, match=r"had all plans been fixed .* ledger reserve"):
            ledger.charge("d", rare(high))
        assert adaptive_reading([first, rare(high)], epsilon_limit=1.0, delta=1e-5).epsilon != 1
        receipt = ledger.open_dataset("e", epsilon_limit=1.0, delta=1e-5).reserve(
            "e", [first, rare(high)]
        )
        assert receipt.balance.epsilon_spent <= 1  # both fixed in advance

    def test_deltas_and_limits_are_told_in_full(self, tmp_path):
        limit, delta = COST * 1.2, 1.0000004e-6
        ledger = Ledger(tmp_path / "l.db").open_dataset("d", epsilon_limit=limit, delta=delta)
        ledger.charge("d", EVENT)
        told = f"epsilon {limit!r} at delta 1.0000004e-06"
        with pytest.raises(InvalidInputError, match=told):
            ledger.charge("d", EVENT)
        with pytest.raises(InvalidInputError, match=r"1\.0000004e-06\), the limit"):
            ledger.open_dataset("d", epsilon_limit=limit, delta=1e-6)
        ledger.record("d", EVENT, digest=DIGEST)
        assert f"past the limit of {limit!r}" in ledger.balance("d").refusal

    def test_the_rule_says_that_the_limit_holds_and_not_the_figure(self, ledger):
        rule = ledger.balance("d").rule
        assert "what holds, however earlier outputs chose the later plans, is the limit" in rule
        assert "no guarantee of its own" in rule

    def test_a_limit_stays_as_it_was_set(self, ledger):
        ledger.open_dataset("d", epsilon_limit=3 * COST, delta=1e-6)
        with pytest.raises(InvalidInputError, match="the limit it was entered with"):
            ledger.open_dataset("d", epsilon_limit=100.0, delta=1e-6)

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            *(
                ({"dataset_id": name}, "dataset_id: expected .* without blanks at its ends, got '")
                for name in (
                    "",
                    " ",
                    "d ",
                    " d",
                    "d\t",
                    "d\n",
                    "\u00a0d",
                    "d\x00",
                    "d\u202e",
                    "d\u200b",
                )
            ),
            ({"epsilon_limit": 0.0}, "epsilon_limit"),
            ({"epsilon_limit": float("nan")}, "epsilon_limit"),
            ({"delta": 1.0}, "delta"),
        ],
    )
    def test_bad_data_sets(self, ledger, options, words):
        given = {"dataset_id": "e", "epsilon_limit": 1.0, "delta": 1e-6} | options
        with pytest.raises(InvalidInputError, match=words):
            ledger.open_dataset(**given)

    def test_unknown_data_sets_and_other_relations(self, ledger):
        with pytest.raises(InvalidInputError, match="dataset_id.*'other'"):
            ledger.charge("other", EVENT)
        ledger.charge("d", EVENT)
        uniform = UniformGaussianEvent(num_records=9, mix_size=3, noise_multiplier=90.0, count=1)
        with pytest.raises(InvalidInputError, match="neighboring_relation"):
            ledger.charge("d", uniform)
        assert len(ledger.balance("d").charges) == 1

    def test_a_run_is_charged_once(self, ledger):
        once = ledger.charge("d", EVENT, run_id="run")
        again = ledger.charge("d", EVENT, run_id="run")
        assert again.balance == once.balance == ledger.balance("d")
        assert (once.news, again.news) == ("charged", "known")
        assert "nothing more to charge" in again.told("it")
        assert len(ledger.charge("d", EVENT, run_id="other").balance.charges) == 2
        with pytest.raises(InvalidInputError, match="is spent"):
            ledger.open_dataset("e", epsilon_limit=COST / 2, delta=1e-6).charge(
                "e", EVENT, run_id="third"
            )
        third = ledger.charge("d", EVENT, run_id="third")
        assert len(third.balance.charges) == 3  # a refusal leaves no name

    def test_names_need_not_be_utf_8(self, ledger):
        ledger.charge("d", EVENT, name="r\udcff", who="o\udc80")
        assert ledger.balance("d").charges[0].name == "r\\udcff"
        assert ledger.problems() == []


def rare(noise_multiplier):
    return PoissonGaussianEvent(sampling_prob=0.5, noise_multiplier=noise_multiplier, count=40)


class TestRecords:
    """What exists is recorded in any case."""

    def test_past_the_limit_too_and_then_nothing_is_admitted(self, tmp_path):
        ledger = narrow(tmp_path)
        ledger.charge("d", EVENT)
        balance = ledger.record("d", EVENT, digest=DIGEST, name="january").balance
        assert balance.epsilon_spent > balance.epsilon_limit
        assert "charge 3 (january) was recorded past the limit" in balance.refusal
        tiny = GaussianEvent(noise_multiplier=1e6)
        for refused in (
            lambda: ledger.charge("d", tiny),
            lambda: ledger.check("d", tiny),
            lambda: ledger.reserve("d", [tiny]),
        ):
            with pytest.raises(InvalidInputError, match="january.* recorded past the limit"):
                refused()
        assert len(ledger.record("d", tiny, digest="cd" * 32).balance.charges) == 3

    def test_the_same_certificate_costs_once(self, ledger):
        first = ledger.record("d", EVENT, digest=DIGEST, name="a")
        again = ledger.record("d", EVENT, digest=DIGEST, name="a copy of it")
        assert again.news == "known"
        assert again.balance == first.balance
        assert again.number == first.number

    def test_without_a_common_account_the_cost_is_unbounded(self, ledger):
        ledger.charge("d", EVENT)
        uniform = UniformGaussianEvent(num_records=9, mix_size=3, noise_multiplier=90.0, count=1)
        balance = ledger.record("d", uniform, digest=DIGEST, name="other").balance
        assert (balance.epsilon_spent, balance.epsilon_planned) == (None, None)
        assert balance.charges[1].epsilon_alone == account(uniform, 1e-6).epsilon
        assert "uniform_gaussian under replace_one" in balance.refusal
        with pytest.raises(InvalidInputError, match="no common account"):
            ledger.charge("d", EVENT)

    def test_one_that_may_have_come_first_costs_no_less(self, tmp_path):
        """A charge chosen after its output was not fixed in advance, whatever the ledger's order."""
        small, large = GaussianEvent(noise_multiplier=20.0), GaussianEvent(noise_multiplier=5.0)
        spent = []
        for name, order in (("a", (small, large)), ("b", (large, small))):
            book = Ledger(tmp_path / name).open_dataset("d", epsilon_limit=3.0, delta=1e-5)
            book.charge("d", order[0])
            spent.append(book.record("d", order[1], digest=DIGEST).balance.epsilon_spent)
        assert spent[0] == pytest.approx(spent[1], rel=1e-6)

    def test_what_a_run_made_is_known(self, ledger):
        ledger.charge("d", EVENT, run_id="run")
        ledger.seal("d", "run", DIGEST)
        ledger.seal("d", "run", DIGEST)
        assert ledger.record("d", EVENT, digest=DIGEST).news == "known"
        assert len(contents(ledger)) == 3
        with pytest.raises(InvalidInputError, match="does not have the run"):
            ledger.seal("d", "another", DIGEST)


class TestReservations:
    def test_plans_are_charged_together_and_drawn_once_each(self, tmp_path):
        both = account(ComposedEvent(events=(EVENT, EVENT)), 1e-6).epsilon
        ledger = Ledger(tmp_path / "l.db").open_dataset("d", epsilon_limit=both, delta=1e-6)
        before = ledger.reserve("d", [EVENT, EVENT], name="two", who="ana").balance
        assert before.epsilon_spent == pytest.approx(both, rel=1e-9)
        for run in ("a", "b"):
            ledger.check("d", EVENT)
            receipt = ledger.charge("d", EVENT, run_id=run, kind="release", name=run)
            assert (receipt.news, receipt.reservation) == ("drawn", 2)
            assert ledger.charge("d", EVENT, run_id=run).news == "known"
        assert receipt.balance.epsilon_spent == before.epsilon_spent
        assert [draw.place for draw in receipt.balance.charges[0].draws] == [0, 1]
        for refused in (ledger.charge, ledger.check):
            with pytest.raises(InvalidInputError, match="is spent"):
                refused("d", EVENT)
        with pytest.raises(InvalidInputError, match="is spent"):
            ledger.charge("d", EVENT, run_id="c")

    def test_a_draw_is_sealed_and_known(self, ledger):
        ledger.reserve("d", [EVENT])
        ledger.charge("d", EVENT, run_id="a")
        ledger.seal("d", "a", DIGEST)
        assert ledger.record("d", EVENT, digest=DIGEST).news == "known"
        assert ledger.problems([("a", DIGEST, EVENT)]) == []
        other = GaussianEvent(noise_multiplier=9.0)
        assert "another mechanism" in ledger.problems([("a", DIGEST, other)])[0]

    def test_past_the_limit_none_is_charged(self, tmp_path):
        ledger = narrow(tmp_path)
        with pytest.raises(InvalidInputError, match="is spent"):
            ledger.reserve("d", [EVENT, EVENT])
        assert ledger.balance("d").charges == ()
        with pytest.raises(InvalidInputError, match="at least one"):
            ledger.reserve("d", [])

    def test_what_exists_draws_on_none(self, ledger):
        """It may have been seen before the plans were fixed."""
        ledger.reserve("d", [EVENT])
        assert ledger.record("d", EVENT, digest=DIGEST).news == "charged"


class TestExports:
    def test_a_round_trip(self, ledger, tmp_path):
        ledger.charge("d", GaussianEvent(noise_multiplier=100.0, count=1), name="counts")
        exported = json.loads(ledger.to_json())
        assert exported["entries"][1]["content"]["name"] == "counts"
        copy = Ledger(tmp_path / "copy.db")
        assert copy.import_json(ledger.to_json()) == 2
        assert (copy.head(), copy.balances()) == (ledger.head(), ledger.balances())
        assert copy.problems() == []

    def test_an_older_one_lowers_nothing_and_a_newer_one_goes_on(self, ledger, tmp_path):
        ledger.charge("d", EVENT)
        old = ledger.to_json()
        ledger.charge("d", EVENT)
        before = ledger.balances()
        assert ledger.import_json(old) == 0
        assert ledger.balances() == before
        copy = Ledger(tmp_path / "copy.db")
        assert [copy.import_json(text) for text in (old, ledger.to_json())] == [2, 1]
        assert copy.balances() == before

    def test_one_that_parted_is_refused(self, ledger, tmp_path):
        copy = Ledger(tmp_path / "copy.db")
        copy.import_json(ledger.to_json())
        ledger.charge("d", EVENT, name="here")
        copy.charge("d", EVENT, name="there")
        with pytest.raises(InvalidInputError, match="another entry 2"):
            ledger.import_json(copy.to_json())

    @pytest.mark.parametrize(
        ("change", "words"),
        [
            (lambda e: e["entries"][1]["content"].update(name="x"), "entry 2: changed"),
            (lambda e: e["entries"].pop(), "up to the head"),
            (lambda e: e["entries"].pop(0), "entry 1: removed"),
            (lambda e: e["entries"].reverse(), "head"),
            (lambda e: e.update(ledger_format=1), "format 2, got 1"),
            (lambda e: e.update(entries=None), "number, hash and content"),
            (lambda e: e["entries"][0].update(number="1"), "number"),
            (lambda e: e.pop("ledger_format"), "another file"),
        ],
    )
    def test_an_edited_one_is_refused(self, ledger, tmp_path, change, words):
        ledger.charge("d", EVENT)
        exported = json.loads(ledger.to_json())
        change(exported)
        copy = Ledger(tmp_path / "copy.db")
        with pytest.raises(InvalidInputError, match=words):
            copy.import_json(json.dumps(exported))
        assert copy.balances() == {}

    @pytest.mark.parametrize("text", ["", "[]", "7", "[" * 100_000, '{"a": NaN}'])
    def test_other_files_are_refused(self, ledger, text):
        with pytest.raises(InvalidInputError, match="another file"):
            ledger.import_json(text)


RACES = 20


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
    """Budget for one, two processes at once: exactly one succeeds, 20 times out of 20."""
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
    assert ledger.problems() == []
    for race in range(RACES):
        assert len(ledger.balance(f"d{race}").charges) == 1
        assert sum((tmp_path / f"{place}-{race}").exists() for place in "ab") == 1


class TestReleases:
    plan = make_plan(make_schema(), "poisson", 5.0, mix_size=6, num_mixtures=20)

    def book(self, tmp_path, share: float) -> Ledger:
        cost = account(self.plan.event, 1e-6).epsilon
        return Ledger(tmp_path / "l.db").open_dataset("d", epsilon_limit=share * cost, delta=1e-6)

    def test_a_release_is_charged_before_it_is_drawn(self, tmp_path):
        ledger, data = self.book(tmp_path, 1.2), make_data(self.plan.data_schema, 60)
        options = {"ledger": ledger.path, "dataset_id": "d", "who": "ana"}

        def stop(done, total):
            (charge,) = ledger.balance("d").charges
            assert charge.digest is None
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            release(*data, self.plan, out=tmp_path / "r", progress=stop, **options)
        made = release(*data, self.plan, out=tmp_path / "r", resume=True, **options)
        (charge,) = ledger.balance("d").charges  # resuming costs nothing more
        assert charge.digest == made.certificate_digest
        assert (charge.kind, charge.name) == ("release", str(tmp_path / "r"))
        assert charge.who == "ana"
        with pytest.raises(InvalidInputError, match="is spent"):
            release(*data, self.plan, out=tmp_path / "again", **options)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["l.db", "r"]

    def test_a_release_is_known_by_its_digest(self, tmp_path):
        ledger, data = self.book(tmp_path, 1.2), make_data(self.plan.data_schema, 60)
        release(*data, self.plan, out=tmp_path / "r", ledger=ledger.path, dataset_id="d")
        spent = read_spent(tmp_path / "r")
        assert ledger.problems([("r", spent.digest, spent.event)]) == []
        assert ledger.record("d", spent.event, digest=spent.digest).news == "known"

    def test_cut_off_between_the_seal_and_the_ledger(self, tmp_path, monkeypatch):
        """The release does not appear before the ledger has its digest."""
        ledger, data = self.book(tmp_path, 1.2), make_data(self.plan.data_schema, 60)
        options = {"ledger": ledger.path, "dataset_id": "d"}

        def stop(*_):
            raise KeyboardInterrupt

        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(Ledger, "seal", stop)
            release(*data, self.plan, out=tmp_path / "r", **options)
        assert not (tmp_path / "r").exists()
        with pytest.raises(InvalidInputError, match="the ledger it was begun with"):
            release(*data, self.plan, out=tmp_path / "r", resume=True)
        made = release(*data, self.plan, out=tmp_path / "r", resume=True, **options)
        assert [c.digest for c in ledger.balance("d").charges] == [made.certificate_digest]

    def test_releases_draw_on_a_reservation(self, tmp_path):
        both = account(ComposedEvent(events=(self.plan.event,) * 2), 1e-6).epsilon
        ledger = Ledger(tmp_path / "l.db").open_dataset("d", epsilon_limit=both, delta=1e-6)
        ledger.reserve("d", [self.plan.event] * 2)
        data = make_data(self.plan.data_schema, 60)
        options = {"ledger": ledger.path, "dataset_id": "d"}
        made = [release(*data, self.plan, out=tmp_path / name, **options) for name in "ab"]
        (charge,) = ledger.balance("d").charges
        assert [draw.digest for draw in charge.draws] == [m.certificate_digest for m in made]
        with pytest.raises(InvalidInputError, match="is spent"):
            release(*data, self.plan, out=tmp_path / "c", **options)

    def test_a_test_seed_is_not_charged(self, tmp_path):
        """It protects nobody: no epsilon accounts for it."""
        ledger, data = self.book(tmp_path, 1.2), make_data(self.plan.data_schema, 60)
        options = {"ledger": ledger.path, "dataset_id": "d"}
        with pytest.raises(InvalidInputError, match="no ledger for a run with a test seed"):
            release(*data, self.plan, out=tmp_path / "r", test_seed=1, **options)
        assert not (tmp_path / "r").exists()

        def stop(done, total):
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            release(*data, self.plan, out=tmp_path / "r", test_seed=1, progress=stop)
        with pytest.raises(InvalidInputError, match="no ledger for a run with a test seed"):
            release(*data, self.plan, out=tmp_path / "r", resume=True, **options)
        assert ledger.balance("d").charges == ()

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
    """What a charge costs is admitted to the last bit; a limit a hair below refuses it."""
    for number, (limit, admitted) in enumerate(
        [(COST, True), (COST * (1 - 1e-12), False), (COST / 1.005, False)]
    ):
        name = f"d{number}"
        ledger = Ledger(tmp_path / "l.db").open_dataset(name, epsilon_limit=limit, delta=1e-6)
        if admitted:
            ledger.charge(name, EVENT)
        else:
            with pytest.raises(InvalidInputError, match="of which .* is spent"):
                ledger.charge(name, EVENT)
        assert len(ledger.balance(name).charges) == admitted
