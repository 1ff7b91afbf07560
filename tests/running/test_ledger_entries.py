"""Entries of a ledger are a chain: whatever was done to them is found."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import ClassVar

import pytest

from ledger_cases import COST, DIGEST, EVENT, altered, contents, rehashed, stored
from privmix import InvalidInputError
from privmix.accounting import GaussianEvent, UniformGaussianEvent, account
from privmix.running import ledger_account, ledger_entries, ledger_file
from privmix.running.ledger import Ledger


class TestChain:
    @pytest.fixture
    def ledger(self, ledger):
        ledger.charge("d", EVENT, name="one", run_id="run")
        ledger.seal("d", "run", DIGEST)
        ledger.charge("d", EVENT, name="two")
        assert ledger.problems() == []
        return ledger

    def test_an_edited_entry_is_found_and_stops_everything(self, ledger):
        content = contents(ledger)[1][1].replace('"count":50', '"count":5')
        altered(ledger, "UPDATE entries SET content = ? WHERE number = 2", content)
        assert ledger.problems() == ["entry 2: changed since it was written"]
        for use in (ledger.balances, ledger.to_json, lambda: ledger.charge("d", EVENT)):
            with pytest.raises(InvalidInputError, match="entry 2: changed"):
                use()

    def test_an_entry_edited_with_its_own_hash_made_anew_is_found_by_the_next(self, ledger):
        first, second = contents(ledger)[:2]
        content = second[1].replace('"count":50', '"count":5')
        mark = ledger_entries._hash(first[2], 2, content)
        altered(ledger, "UPDATE entries SET content = ?, hash = ? WHERE number = 2", content, mark)
        assert ledger.problems() == ["entry 3: changed since it was written"]

    def test_a_removed_entry_is_found(self, ledger):
        altered(ledger, "DELETE FROM entries WHERE number = 2")
        assert ledger.problems()[0] == "entry 2: removed"

    def test_reordered_entries_are_found(self, ledger):
        for old, new in ((2, -2), (3, 2), (-2, 3)):
            altered(ledger, "UPDATE entries SET number = ? WHERE number = ?", new, old)
        assert "entry 2: changed since it was written" in ledger.problems()

    def test_entries_gone_from_the_end_are_found(self, ledger):
        altered(ledger, "DELETE FROM entries WHERE number = 4")
        assert ledger.problems() == ["entry 4: removed from the end"]

    def test_a_cost_that_says_too_little_is_found(self, ledger, tmp_path):
        """Edited, and every hash after it made anew."""
        exported = json.loads(ledger.to_json())
        exported["entries"][1]["content"]["cost"]["epsilon_spent"] = 0.1
        book = stored(Ledger(tmp_path / "forged.db"), rehashed(exported))
        assert "entry 2: epsilon_spent is 0.1, but it is" in book.problems()[0]

    @pytest.mark.parametrize("part", ["epsilon_alone", "epsilon_spent", "epsilon_planned"])
    def test_a_cost_that_says_too_little_is_not_imported(self, ledger, tmp_path, part):
        exported = json.loads(ledger.to_json())
        exported["entries"][3]["content"]["cost"][part] *= 0.99
        book = Ledger(tmp_path / "forged.db")
        with pytest.raises(InvalidInputError, match=f"at least .* got 1 .*: entry 4: {part} is"):
            book.import_json(json.dumps(rehashed(exported)))
        assert contents(book) == []

    def test_a_ledger_that_was_rolled_back_is_found_by_head_and_by_releases(self, ledger):
        old = ledger.path.read_bytes()
        ledger.record("d", EVENT, digest="cd" * 32, name="r")
        made, head = [("r", "cd" * 32, EVENT)], ledger.head()
        assert ledger.problems(made, expect_head=head) == []
        ledger.path.write_bytes(old)
        assert ledger.problems() == []
        assert "r: not recorded" in ledger.problems(made)[0]
        assert "rolled back" in ledger.problems(expect_head=head)[0]

    def test_an_entry_or_a_mechanism_of_a_later_version(self, ledger):
        for found in ({"entry": "refunded"}, {"event": {"mechanism": "laplace"}}):
            exported = json.loads(ledger.to_json())
            exported["entries"][3]["content"] |= found
            links = [
                ledger_entries.Link(
                    number=one["number"],
                    hash=one["hash"],
                    content=ledger_entries.canonical(one["content"]),
                )
                for one in rehashed(exported)["entries"]
            ]
            words = r"entry 4: expected .* this version of privmix knows, got '(ref|lap)"
            with pytest.raises(InvalidInputError, match=words):
                ledger_entries.read_entries(links, "ledger")

    def test_an_append_in_between_is_no_removal(self, ledger, monkeypatch):
        opened = ledger_file.LedgerFile._opened

        @contextmanager
        def then_appended(self, **options):
            with opened(self, **options) as connection:
                yield connection
            monkeypatch.setattr(ledger_file.LedgerFile, "_opened", opened)
            Ledger(ledger.path).charge("d", GaussianEvent(noise_multiplier=100.0))

        monkeypatch.setattr(ledger_file.LedgerFile, "_opened", then_appended)
        assert ledger.problems() == []
        assert len(contents(ledger)) == 5

    DRAW: ClassVar = {
        "entry": "drawn", "at": "", "who": "", "dataset_id": "d", "kind": "release", "name": "",
    }  # fmt: skip

    @pytest.mark.parametrize(
        ("entries", "number", "words"),
        [
            ([{"run_id": "a", "reservation": 2, "place": 0}] * 2, 4, "not charged yet"),
            (
                [{"run_id": run, "reservation": 2, "place": 0} for run in "ab"],
                4,
                "plan 1 of entry 2",
            ),
            ([{"run_id": "a", "reservation": 2, "place": 9}], 3, "plan 10 of entry 2"),
            ([{"run_id": "a", "reservation": 2, "place": -1}], 3, "plan 0 of entry 2"),
            ([{"run_id": "a", "reservation": 77, "place": 0}], 3, "of entry 77"),
            ([{"run_id": "a", "reservation": 1, "place": 0}], 3, "of entry 1"),
        ],
    )
    def test_a_draw_on_what_is_not_free_is_found(self, tmp_path, entries, number, words):
        """Written by somebody who makes every hash anew."""
        ledger = Ledger(tmp_path / "l.db").open_dataset("d", epsilon_limit=3 * COST, delta=1e-6)
        ledger.reserve("d", [EVENT])
        exported = json.loads(ledger.to_json())
        seal = {"entry": "sealed", "at": "", "who": "", "dataset_id": "d"}
        seal |= {"run_id": "a", "digest": DIGEST}
        contents = [*({**self.DRAW, **one} for one in entries), seal]
        for count, content in enumerate(contents, start=3):
            exported["entries"].append({"number": count, "content": content, "hash": ""})
        forged = json.dumps(rehashed(exported))
        book = Ledger(tmp_path / "forged.db")
        with pytest.raises(InvalidInputError, match=f"entry {number}: .*{words}"):
            book.import_json(forged)
        stored(book, rehashed(exported))
        (problem,) = book.problems([("r", DIGEST, EVENT)])
        assert f"entry {number}: " in problem
        assert words in problem

    @pytest.mark.parametrize(
        ("content", "words"),
        [
            ({"entry": "sealed", "run_id": "other", "digest": DIGEST}, "a run that was charged"),
            ({"entry": "opened", "dataset_id": "e", "epsilon_limit": -1.0, "delta": 0.1}, "limit"),
            ({"entry": "opened", "dataset_id": "e", "epsilon_limit": 1.0, "delta": 2.0}, "delta"),
        ],
    )
    def test_an_entry_that_does_not_follow_is_found(self, ledger, tmp_path, content, words):
        exported = json.loads(ledger.to_json())
        content = {"at": "", "who": "", "dataset_id": "d"} | content
        exported["entries"].append({"number": 5, "content": content, "hash": ""})
        with pytest.raises(InvalidInputError, match=f"entry 5: ?.*{words}"):
            Ledger(tmp_path / "forged.db").import_json(json.dumps(rehashed(exported)))

    def test_a_run_that_is_charged_twice_is_found(self, ledger, tmp_path):
        exported = json.loads(ledger.to_json())
        again = dict(exported["entries"][3]["content"], run_id="run")
        exported["entries"][3]["content"] = again
        with pytest.raises(InvalidInputError, match="entry 4: .*not charged yet"):
            Ledger(tmp_path / "forged.db").import_json(json.dumps(rehashed(exported)))


class TestAnotherMechanism:
    """Under a digest or a run that is known, something else was recorded, and every hash made anew."""

    OTHER = GaussianEvent(noise_multiplier=1000.0)

    def test_a_record_is_refused(self, ledger):
        ledger.record("d", self.OTHER, digest=DIGEST, name="r")
        with pytest.raises(InvalidInputError) as refused:
            ledger.record("d", EVENT, digest=DIGEST, name="january")
        told = str(refused.value)
        assert told.startswith(
            "january: expected what entry 2 of the ledger records of it, gaussian x 1"
        )
        assert f"(epsilon {ledger_account.shown(account(EVENT, 1e-6).epsilon)} alone)" in told
        assert "not charged. The ledger was edited: import an export of before" in told
        assert len(ledger.balance("d").charges) == 1
        assert ledger.record("d", self.OTHER, digest=DIGEST).news == "known"

    def test_another_relation_is_refused(self, ledger):
        uniform = UniformGaussianEvent(num_records=9, mix_size=3, noise_multiplier=90.0, count=1)
        ledger.record("d", uniform, digest=DIGEST)
        with pytest.raises(
            InvalidInputError, match="entry 2 .*replace_one.* got .*add_or_remove_one"
        ):
            ledger.record("d", EVENT, digest=DIGEST)

    def test_a_digest_in_the_seal_of_a_draw_is_refused(self, ledger):
        ledger.reserve("d", [self.OTHER])
        ledger.charge("d", self.OTHER, run_id="run")
        ledger.seal("d", "run", DIGEST)
        with pytest.raises(
            InvalidInputError, match="entry 3 of the ledger records of it, gaussian"
        ):
            ledger.record("d", EVENT, digest=DIGEST)

    def test_a_run_is_refused(self, ledger):
        ledger.charge("d", self.OTHER, run_id="run")
        with pytest.raises(
            InvalidInputError, match="entry 2 of the ledger records of it, gaussian"
        ):
            ledger.charge("d", EVENT, run_id="run")
