"""``privmix ledger`` and ``account --release``: releases and models of the same people, on one account."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import sqlite3
import stat
from contextlib import closing
from itertools import permutations

import numpy as np
import pytest

from builders import make_data, make_plan, make_schema
from ledger_cases import rehashed
from privmix import InvalidInputError, dpsgd, plan_release, release
from privmix.accounting import ComposedEvent, GaussianEvent, account
from privmix.preprocess import Center, ClassCounts
from privmix.running.ledger import Ledger
from privmix.spending import Spent, distinct, read_spent, together

SCHEMA = make_schema()
BUDGET = {"target_epsilon": 3.0, "target_delta": 1e-5}
STEPS = {"preprocessing": (Center(), ClassCounts())}
RELEASES = {
    "counted": {"design": "poisson", "mix_size": 6, "num_mixtures": 20, **STEPS},
    "uniform": {"design": "uniform", "mix_size": 6, "num_mixtures": 20, **STEPS},
    "transposed": {
        "design": "transposed",
        "rows_per_record": 2,
        "num_mixtures": 20,
        "neighboring_relation": "replace_one",
    },
    "patients": {
        "design": "poisson",
        "mix_size": 6,
        "num_mixtures": 20,
        "unit_column": "patient",
        "max_records_per_unit": 3,
    },
}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Folders of releases under both relations, of one with preprocessing, and of a model."""
    place = tmp_path_factory.mktemp("made")
    x, y = make_data(SCHEMA, SCHEMA.num_records)
    for name, options in RELEASES.items():
        plan = plan_release(SCHEMA, **BUDGET, **options)
        (place / f"{name}.json").write_text(plan.to_json())
        units = np.arange(len(x)) if name == "patients" else None
        release(x, y, plan, out=place / name, units=units)
    release(x, y, make_plan(SCHEMA, "stratified", 5.0), out=place / "seeded", test_seed=1)
    training = dpsgd.plan_training(
        target_epsilon=2.0, target_delta=1e-5, epochs=1, classes=SCHEMA.classes,
        input_shape=x.shape[1:], num_records=len(x), batch_size=10,
        augmentation=dpsgd.AugmentationPlan.plain(),
    )  # fmt: skip
    head = dpsgd.LinearHead(None)
    dpsgd.fit(x, y, training, model=head, out=place / "model")
    dpsgd.fit(x, y, training, model=head, out=place / "seeded-model", test_seed=1)
    return place


@pytest.fixture
def book(tmp_path):
    return Ledger(tmp_path / "l.db").open_dataset("d", epsilon_limit=50.0, delta=1e-5)


def ok(result):
    assert result.code == 0, result.err
    return result


def named(*folders):
    return [word for folder in folders for word in ("--release", folder)]


class TestAccount:
    def test_a_model_and_a_release_compose_in_any_order(self, run, made):
        folders = [made / "counted", made / "model"]
        events = tuple(read_spent(folder).event for folder in folders)
        due = account(ComposedEvent(events=events), 1e-5).epsilon
        for order in permutations(folders):
            told = ok(run("account", *named(*order), "--delta", "1e-5", "--json")).json
            assert told["epsilon"] == due
            assert [one["kind"] for one in told["releases"]] == [
                "model" if folder.name == "model" else "release" for folder in order
            ]
        assert due > max(account(event, 1e-5).epsilon for event in events)
        assert (
            "if all of them were fixed before"
            in ok(run("account", *named(*folders), "--delta", "1e-5")).out
        )

    def test_releases_under_replace_one_compose(self, run, made):
        folders = (made / "uniform", made / "transposed")
        told = ok(run("account", *named(*folders), "--delta", "1e-5", "--json")).json
        events = tuple(read_spent(folder).event for folder in folders)
        assert told["epsilon"] == account(ComposedEvent(events=events), 1e-5).epsilon

    @pytest.mark.parametrize(
        ("names", "words"),
        [
            (("model", "uniform"), "one neighbouring relation.*model .add_.*uniform .replace_one"),
            (("transposed", "counted"), "one neighbouring relation, .*transposed .replace_one"),
            (("patients", "model"), "one kind of unit, .*patients .patient., .*model .record."),
        ],
    )
    def test_folders_without_a_common_account_are_refused_by_name(self, run, made, names, words):
        for order in permutations(names):
            told = run("account", *named(*(made / name for name in order)), "--delta", "1e-5")
            assert told.code == 2
            assert re.search(words, told.err) or order != names
            assert all(str(made / name) in told.err for name in names)

    @pytest.mark.parametrize("name", ["seeded", "seeded-model"])
    def test_a_test_seed_is_stamped(self, run, made, name):
        folders = named(made / "model", made / name)
        told = run("account", *folders, "--delta", "1e-5")
        assert told.code == 1
        assert f"{made / name}: NOT PRIVATE" in told.out
        assert "certified" not in told.out
        told = run("account", *folders, "--delta", "1e-5", "--json")
        assert told.code == 1
        assert (told.json["epsilon"], told.json["private"]) == (None, False)
        assert told.json["protects_nobody"] == [str(made / name)]

    def test_the_same_certificate_counts_once(self, run, made, tmp_path):
        shutil.copytree(made / "model", tmp_path / "copy")
        folders = (made / "model", made / "model", tmp_path / "copy")
        told = ok(run("account", *named(*folders), "--delta", "1e-5", "--json")).json
        assert told["epsilon"] == account(read_spent(made / "model").event, 1e-5).epsilon
        assert told["counted_once"] == [str(made / "model"), str(tmp_path / "copy")]
        assert len(distinct(read_spent(folder) for folder in folders)) == 1

    @pytest.mark.parametrize("name", ["counted", "model"])
    def test_an_event_of_another_mechanism_is_refused(self, run, made, tmp_path, name):
        shutil.copytree(made / name, tmp_path / "r")
        path = tmp_path / "r" / "certificate.json"
        found = json.loads(path.read_text())
        found["event"] = {"mechanism": "gaussian", "noise_multiplier": 1e6, "count": 1}
        path.write_text(json.dumps(found))
        told = run("account", *named(tmp_path / "r"), "--delta", "1e-5")
        assert told.code == 2
        assert "event: expected what the certificate's mechanism costs" in told.err

    def test_printed_deltas_are_told_in_full(self, run, made, tmp_path):
        told = run("account", "--release", made / "counted", "--delta", "1.0000004e-5").out
        assert "at delta 1.0000004e-05 (certified)" in told
        opened = run(
            "ledger", "open", "--ledger", tmp_path / "x.db", "--dataset-id", "d",
            "--epsilon-limit", "3.0000004", "--delta", "1.0000004e-5",
        ).out  # fmt: skip
        assert "epsilon 0 of the limit 3.0000004 is used, at delta 1.0000004e-05" in opened

    def test_printed_epsilons_are_rounded_up(self, run, made):
        for name in ("model", "uniform", "counted"):
            folder = named(made / name)
            due = ok(run("account", *folder, "--delta", "1e-5", "--json")).json["epsilon"]
            shown = ok(run("account", *folder, "--delta", "1e-5")).out
            assert due <= float(shown.split()[1]) < due * (1 + 1e-5)

    def test_more_mechanisms_than_can_be_accounted_for_are_refused_at_once(self):
        def spent(count):
            return [
                Spent(
                    folder=f"r{i}", kind="release", digest=f"{i}", private=True,
                    event=GaussianEvent(noise_multiplier=10 + i),
                )
                for i in range(count)
            ]  # fmt: skip

        assert len(together(spent(100)).events) == 100
        assert len(together(spent(100) * 5).events) == 500  # no more different ones
        with pytest.raises(InvalidInputError, match="100 different mechanisms, got 1000"):
            together(spent(1000))

    def test_none_has_no_cost(self):
        with pytest.raises(ValueError, match="at least one folder"):
            together([])


class TestCharge:
    def test_a_model_and_a_release_are_recorded_once(self, run, made, book):
        given = ("--ledger", book.path, "--dataset-id", "d", "--who", "ana [b]x[/b]")
        folders = named(made / "counted", made / "model")
        first = ok(run("ledger", "charge", *given, *folders, "--json")).json
        assert [one["news"] for one in first["recorded"]] == ["charged", "charged"]
        again = ok(run("ledger", "charge", *given, *folders))
        assert again.out.count("was charged before") == 2
        told = ok(run("ledger", "show", "--ledger", book.path, "--json")).json
        charges = told["datasets"][0]["charges"]
        assert [c["kind"] for c in charges] == ["release", "model"]
        assert [c["digest"] for c in charges] == [
            read_spent(made / name).digest for name in ("counted", "model")
        ]
        assert "reference process" in told["rule"]
        assert charges[1]["epsilon_spent"] > charges[1]["epsilon_alone"]
        shown = ok(run("ledger", "show", "--ledger", book.path)).out
        for words in (
            "ana [b]x[/b]",
            str(made / "model"),
            charges[0]["digest"][:16],
            "recorded later",
            "poisson_gaussian x",
            f"head {book.head()}",
        ):
            assert words in shown

    @pytest.mark.parametrize("name", ["seeded", "seeded-model"])
    def test_a_test_seed_is_refused(self, run, made, book, name):
        given = ("--ledger", book.path, "--dataset-id", "d")
        told = run("ledger", "charge", *given, *named(made / "model", made / name))
        assert told.code == 2
        assert f"{made / name}: " in told.err
        assert "protects nobody" in told.err
        assert book.balance("d").charges == ()

    def test_past_the_limit_show_says_why(self, run, made, tmp_path):
        book = Ledger(tmp_path / "n.db").open_dataset("d", epsilon_limit=0.5, delta=1e-5)
        given = ("--ledger", book.path, "--dataset-id", "d")
        ok(run("ledger", "charge", *given, *named(made / "model")))
        shown = ok(run("ledger", "show", "--ledger", book.path)).out
        assert "NOTHING MORE is admitted: charge 2" in shown
        told = run("ledger", "reserve", *given, "--plan", made / "counted.json")
        assert (told.code, "recorded past the limit" in told.err) == (2, True)

    def test_names_cannot_steer_a_terminal(self, run, made, book, tmp_path):
        folder = tmp_path / "r\x1b[2Kvalid: x\n"
        shutil.copytree(made / "model", folder)
        given = ("--ledger", book.path, "--dataset-id", "d")
        run("ledger", "charge", *given, *named(folder))
        shown = ok(run("ledger", "show", "--ledger", book.path)).out
        assert "\x1b" not in shown
        assert "r\\x1b[2Kvalid: x\\n" in shown


class TestRuns:
    def test_a_test_seed_beside_a_ledger_is_refused_before_the_records(self, run, made, book):
        given = ("--ledger", book.path, "--dataset-id", "d", "--test-seed", 1)
        np.savez(book.path.parent / "t.npz", x=np.zeros((0, 0)))  # no records: nobody looks
        source = (book.path.parent / "t.npz", "--features-key", "x", "--label-key", "y")
        out = book.path.parent / "out"
        told = run("release", *source, "--plan", made / "counted.json", *given, "--out", out)
        assert (told.code, "which protects nobody" in told.err) == (2, True)
        assert not out.exists()

    def test_a_training_is_charged_with_its_digest(self, run, book, tmp_path):
        x, y = make_data(SCHEMA, SCHEMA.num_records)
        np.savez(tmp_path / "t.npz", x=x, y=y)
        words = ("fit", tmp_path / "t.npz", "--features-key", "x", "--label-key", "y")
        sizes = ("--num-records", len(x), "--batch-size", 10, "--epochs", 1, "--epsilon", 2)
        classes = ("--classes", ",".join(map(str, SCHEMA.classes)), "--delta", "1e-5")
        given = ("--ledger", book.path, "--dataset-id", "d", "--who", "ana")
        out = tmp_path / "m"
        told = ok(run(*words, *sizes, *classes, *given, "--out", out, "--json")).json
        (charge,) = book.balance("d").charges
        assert (charge.kind, charge.who, charge.digest) == ("model", "ana", told["digest"])
        assert charge.name == str(out)
        seeded = run(*words, *sizes, *classes, *given, "--out", tmp_path / "s", "--test-seed", 1)
        assert (seeded.code, "which protects nobody" in seeded.err) == (2, True)


class TestReserve:
    def test_reserved_plans_are_released_at_no_new_charge(self, run, made, tmp_path):
        plans = ["--plan", made / "uniform.json", "--plan", made / "transposed.json"]
        events = tuple(read_spent(made / name).event for name in ("uniform", "transposed"))
        limit = account(ComposedEvent(events=events), 1e-5).epsilon * (1 + 1e-9)
        book = Ledger(tmp_path / "n.db").open_dataset("d", epsilon_limit=limit, delta=1e-5)
        given = ("--ledger", book.path, "--dataset-id", "d")
        ok(run("ledger", "reserve", *given, *plans, "--name", "both"))
        x, y = make_data(SCHEMA, SCHEMA.num_records)
        np.savez(tmp_path / "t.npz", x=x, y=y)
        source = ("release", tmp_path / "t.npz", "--features-key", "x", "--label-key", "y", *given)
        plan = ("--plan", made / "uniform.json")
        told = ok(run(*source, *plan, "--out", tmp_path / "r", "--who", "ana"))
        assert "the release draws on reservation 2: no new charge" in told.err
        refused = run(*source, *plan, "--out", tmp_path / "again")
        assert (refused.code, "is spent" in refused.err) == (2, True)
        shown = ok(run("ledger", "show", "--ledger", book.path)).out
        assert "reservation both" in shown
        assert "plan 1 of entry 2" in shown
        ok(run("ledger", "verify", "--ledger", book.path, *named(tmp_path / "r")))


class TestExportImportVerify:
    def test_a_round_trip(self, run, made, book, tmp_path):
        given = ("--ledger", book.path, "--dataset-id", "d")
        ok(run("ledger", "charge", *given, *named(made / "model")))
        text = ok(run("ledger", "export", "--ledger", book.path)).out
        told = ok(run("ledger", "export", "--ledger", book.path, "--out", tmp_path / "e.json")).out
        assert told.startswith(f"wrote {tmp_path / 'e.json'}: 1 data sets, head ")
        assert (tmp_path / "e.json").read_text() == text
        assert (tmp_path / "e.json").stat().st_mode & 0o777 == 0o600
        taken = run("ledger", "export", "--ledger", book.path, "--out", tmp_path / "e.json")
        assert (taken.code, "a new file" in taken.err) == (2, True)
        copy = tmp_path / "copy.db"
        assert (
            "2 new entries"
            in ok(run("ledger", "import", tmp_path / "e.json", "--ledger", copy)).out
        )
        assert (
            "nothing new" in ok(run("ledger", "import", tmp_path / "e.json", "--ledger", copy)).out
        )
        assert Ledger(copy).balances() == book.balances()

    def test_an_export_is_private_from_its_first_byte_and_whole_or_not_there(
        self, run, book, tmp_path, monkeypatch
    ):  # fmt: skip
        modes, real = [], os.fsync

        def full(handle):
            modes.append(stat.S_IMODE(os.fstat(handle).st_mode))
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(os, "fsync", full)
        failed = run("ledger", "export", "--ledger", book.path, "--out", tmp_path / "e.json")
        assert (failed.code, "No space left" in failed.err) == (2, True)
        assert modes == [0o600]
        assert [path.name for path in tmp_path.iterdir()] == ["l.db"]
        monkeypatch.setattr(os, "fsync", real)
        ok(run("ledger", "export", "--ledger", book.path, "--out", tmp_path / "e.json"))
        assert stat.S_IMODE((tmp_path / "e.json").stat().st_mode) == 0o600

    def test_a_failed_import_leaves_a_ledger_that_appeared_meanwhile(
        self, run, book, tmp_path, monkeypatch
    ):  # fmt: skip
        """Another process makes the ledger, and charges it, before the import opens it."""
        (tmp_path / "e.json").write_text(book.to_json())
        place, opened = tmp_path / "new.db", Ledger.__init__

        def meanwhile(self, path):
            monkeypatch.setattr(Ledger, "__init__", opened)
            other = Ledger(place).open_dataset("other", epsilon_limit=1.0, delta=1e-5)
            other.charge("other", GaussianEvent(noise_multiplier=9.0))
            opened(self, path)

        monkeypatch.setattr(Ledger, "__init__", meanwhile)
        assert run("ledger", "import", tmp_path / "e.json", "--ledger", place).code == 2
        assert len(Ledger(place).balance("other").charges) == 1

    def test_an_edited_export_makes_no_ledger(self, run, book, tmp_path):
        edited = book.to_json().replace("50.0", "500.0")
        (tmp_path / "e.json").write_text(edited)
        told = run("ledger", "import", tmp_path / "e.json", "--ledger", tmp_path / "copy.db")
        assert (told.code, "entry 1: changed" in told.err) == (2, True)
        assert not (tmp_path / "copy.db").exists()

    def test_an_export_that_states_too_little_makes_no_ledger(self, run, book, tmp_path):
        book.charge("d", GaussianEvent(noise_multiplier=9.0))
        exported = json.loads(book.to_json())
        exported["entries"][1]["content"]["cost"]["epsilon_spent"] = 0.01
        (tmp_path / "e.json").write_text(json.dumps(rehashed(exported)))
        told = run("ledger", "import", tmp_path / "e.json", "--ledger", tmp_path / "copy.db")
        assert (told.code, "entry 2: epsilon_spent is 0.01, but it is" in told.err) == (2, True)
        assert not (tmp_path / "copy.db").exists()

    def test_a_release_recorded_as_another_mechanism_is_refused(self, run, made, book):
        spent = read_spent(made / "counted")
        book.record("d", GaussianEvent(noise_multiplier=1e3), digest=spent.digest)
        given = ("--ledger", book.path, "--dataset-id", "d")
        told = run("ledger", "charge", *given, *named(made / "counted"))
        assert told.code == 2
        assert f"{made / 'counted'}: expected what entry 2 of the ledger records" in told.err
        assert "charged before" not in told.out

    def test_verify_finds_edits_and_releases_that_are_not_there(self, run, made, book):
        given = ("--ledger", book.path, "--dataset-id", "d")
        verify = ("ledger", "verify", "--ledger", book.path)
        old = book.path.read_bytes()
        ok(run("ledger", "charge", *given, *named(made / "model")))
        head = book.head()
        ok(run(*verify, *named(made / "model"), "--expect-head", head))
        missing = run(*verify, *named(made / "model", made / "counted"), "--json")
        assert missing.code == 1
        assert missing.json["problems"] == [
            f"{made / 'counted'}: not recorded; it was made without this ledger, or the ledger was "
            "rolled back: privmix ledger charge --release records it"
        ]
        book.path.write_bytes(old)
        assert run(*verify).code == 0
        assert run(*verify, *named(made / "model")).code == 1
        assert run(*verify, "--expect-head", head).code == 1
        with closing(sqlite3.connect(book.path)) as connection:
            connection.execute("UPDATE entries SET content = replace(content, '50.0', '500.0')")
            connection.commit()
        told = run(*verify)
        assert (told.code, "- entry 1: changed" in told.out) == (1, True)

    def test_a_ledger_that_vanished(self, run, made, tmp_path):
        told = run("ledger", "verify", "--ledger", tmp_path / "gone.db", *named(made / "model"))
        assert (told.code, "existing ledger" in told.err) == (2, True)
        assert not (tmp_path / "gone.db").exists()
