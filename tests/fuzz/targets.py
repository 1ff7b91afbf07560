"""What is read of strangers: how a sample is made, how it is changed, and what may come of it.

A target writes a sample into a folder once, yields changed contents of one of its files, and reads
each: ``check`` raises ``InvalidInputError`` for what is refused, returns for what is accepted, and
fails by any other exception. What is accepted must mean the same as the sample.
"""

from __future__ import annotations

import io
import json
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np

from builders import make_data, make_plan, make_schema
from fuzz.mutations import Place, byte_mutants, document_mutants
from pages import ReadPage, check_structure
from privmix import InvalidInputError, NoiseAwareClassifier, Schema, release, verify
from privmix.accounting import account, event_from_json
from privmix.inputs.readers import read_labelled
from privmix.learners import load_model, save_model
from privmix.planning.plan import ReleasePlan
from privmix.preprocess import Center
from privmix.publishing.release import Release
from privmix.schema.table import TableSchema

CERTIFICATE, PART = "certificate.json", "data/part-00000.parquet"
# What a certificate says and nobody can check: with another digest, it is another certificate.
UNCHECKED = ("library_versions", "extractor")
_SLACK = 2e-6


class Case(NamedTuple):
    """One changed file."""

    name: str
    content: bytes
    place: Place = ()


class Target(NamedTuple):
    """A kind of input.

    Attributes:
        make: Writes the sample into an empty folder.
        file: The file that is changed, below the folder.
        check: Reads the folder after a change.
        documents: Whether the file is JSON, to be changed field by field.

    """

    make: Callable[[Path], None]
    file: str
    check: Callable[[Path, Case], None]
    documents: bool

    def cases(self, folder: Path, seed: int, num_random: int) -> Iterator[Case]:
        """Yield the changes, the same ones for the same seed."""
        content = (folder / self.file).read_bytes()
        if self.documents:
            for number, (place, changed) in enumerate(document_mutants(json.loads(content))):
                if changed != content:
                    yield Case(f"{'.'.join(map(str, place))}#{number}", changed, place)
        for number, changed in enumerate(byte_mutants(content, num_random, seed)):
            yield Case(f"bytes#{seed}.{number}", changed)


def _publish(folder: Path, design: str, **options: Any) -> None:
    schema = make_schema(num_features=4)
    plan = make_plan(schema, design, 1.0, **options)
    release(*make_data(schema, 60), plan, out=folder, test_seed=None)


def _make_poisson(folder: Path) -> None:
    _publish(folder, "poisson", num_mixtures=24, mix_size=6)


def _make_hybrid(folder: Path) -> None:
    _publish(folder, "hybrid", num_mixtures=30, mix_size=6)


def _make_centred(folder: Path) -> None:
    schema = make_schema(num_features=4)
    made = make_plan(schema, "stratified", 1.0, rows_per_class=4)
    steps = (Center(noise_multiplier=3.0),)
    plan = ReleasePlan.for_config(made.mechanism, 1e-5, schema, steps)
    release(*make_data(schema, 60), plan, out=folder)


def check_release(folder: Path, case: Case) -> None:
    """A release is valid only if it says what it said; and it is read, or refused by name."""
    outcome = verify(folder)
    if outcome.valid:
        assert _says_the_same(folder, case), f"valid, with another {case.place}"
    else:
        assert outcome.reasons, "neither valid nor a reason"
        assert all(reason.isprintable() for reason in outcome.reasons)
    NoiseAwareClassifier().fit(folder)


def _says_the_same(folder: Path, case: Case) -> bool:
    if case.place[:1] and case.place[0] in UNCHECKED:
        return True
    if not case.place:  # changed bytes: of a document that is otherwise the same, or not at all
        return False
    before = json.loads((folder.parent / "sample" / CERTIFICATE).read_bytes())
    after = json.loads(case.content)
    for step in case.place:
        if after is None or (isinstance(after, dict) and step not in after):
            return False
        before, after = before[step], after[step]
    near = isinstance(before, float) and isinstance(after, float)
    return near and abs(after - before) <= _SLACK * abs(before)


def check_opened(folder: Path, case: Case) -> None:
    """What reads a release without a check of it."""
    opened = Release(folder)
    for table in opened.tables:
        assert sum(len(rows.features) for rows in table.iter_rows()) == table.config.num_mixtures
    repr(opened)
    if (made := opened.preprocessor) is not None:
        made.transform(np.zeros((1, made.num_inputs)))


def check_commands(folder: Path, case: Case) -> None:
    """The commands say what is wrong in one line, and end with 0, 1 or 2."""
    from privmix.cli import main

    model = folder.parent / "m.safetensors"
    for words in (
        ["verify", str(folder)],
        ["train", str(folder), "--out", str(model)],
    ):
        out, err = io.StringIO(), io.StringIO()
        argv = patch.object(sys, "argv", ["privmix", *words])
        with argv, redirect_stdout(out), redirect_stderr(err):
            try:
                main()
            except SystemExit as error:
                code = error.code
        assert code in (0, 1, 2), code
        errors = [line for line in err.getvalue().splitlines() if line.startswith("error:")]
        assert len(errors) <= 1
        assert not any(_is_raw(line) for line in errors), errors
        assert (code == 2) == bool(errors), (code, errors)
    raise InvalidInputError("", "", "")  # what the release itself says is another target's


def _is_raw(line: str) -> bool:
    return line.split(":")[1].strip().endswith(("Error", "Exception")) and line.count(":") > 1


def _make_plan_file(folder: Path) -> None:
    plan = make_plan(make_schema(num_features=4), "hybrid", num_mixtures=30, mix_size=6)
    folder.mkdir()
    (folder / "plan.json").write_text(plan.to_json())


def check_plan(folder: Path, case: Case) -> None:
    plan = ReleasePlan.from_json((folder / "plan.json").read_bytes(), position="plan.json")
    assert ReleasePlan.from_json(plan.to_json()) == plan
    plan.digest()


_TABLE = {
    "columns": [
        {"name": "age", "type": "numeric", "lower": 0.0, "upper": 100.0},
        {"name": "job", "type": "categorical", "categories": ["a", "b"]},
        {"name": "town", "type": "categorical", "num_buckets": 8},
        {"name": "size", "type": "ordinal", "categories": ["s", "m"]},
        {"name": "since", "type": "datetime", "earliest": "2000-01-01", "latest": "2030-01-01"},
        {"name": "member", "type": "boolean"},
    ],
    "fourier": {"num_features": 8},
}


def _make_schema_file(folder: Path) -> None:
    folder.mkdir()
    schema = {"classes": ["no", "yes"], "num_records": 100, "table": _TABLE}
    (folder / "schema.json").write_text(json.dumps(schema))


def check_schema(folder: Path, case: Case) -> None:
    schema = Schema.from_json((folder / "schema.json").read_bytes(), position="schema.json")
    assert Schema.from_json(schema.to_json()) == schema
    if isinstance(schema.table, TableSchema):
        assert schema.table.num_features == schema.num_features


def _make_event_file(folder: Path) -> None:
    folder.mkdir()
    schema = make_schema(num_features=4)
    plan = make_plan(schema, "hybrid", num_mixtures=30, mix_size=6)
    (folder / "event.json").write_text(plan.event.model_dump_json())


def check_event(folder: Path, case: Case) -> None:
    event = event_from_json((folder / "event.json").read_bytes())
    assert account(event, 1e-5).epsilon >= 0


def _make_model_file(folder: Path) -> None:
    _make_poisson(folder)
    save_model(NoiseAwareClassifier().fit(folder), folder / "m.safetensors")


def check_model(folder: Path, case: Case) -> None:
    model = load_model(folder / "m.safetensors")
    if model.n_features_in_ < 10_000:
        model.predict(np.zeros((2, model.n_features_in_)))


def _make_header_file(folder: Path) -> None:
    """The header of a model file alone: its JSON is what is changed."""
    _make_model_file(folder)
    content = (folder / "m.safetensors").read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    header["__metadata__"] = {k: json.loads(v) for k, v in header["__metadata__"].items()}
    (folder / "header.json").write_text(json.dumps(header))
    (folder / "tensors").write_bytes(content[8 + length :])


def check_header(folder: Path, case: Case) -> None:
    try:
        header = json.loads((folder / "header.json").read_bytes())
        header["__metadata__"] = {k: json.dumps(v) for k, v in header["__metadata__"].items()}
    except (ValueError, RecursionError, TypeError, KeyError, AttributeError):
        pass
    else:
        text = json.dumps(header, separators=(",", ":")).encode()
        content = len(text).to_bytes(8, "little") + text + (folder / "tensors").read_bytes()
        (folder / "m.safetensors").write_bytes(content)
        check_model(folder, case)


def _make_model_folder(folder: Path) -> None:
    from privmix.dpsgd import LinearHead, TrainingPlan, fit

    plan = _training_plan(TrainingPlan)
    data = make_data(make_schema(num_features=4), 60)
    fit(*data, plan, model=LinearHead(), out=folder)


def _training_plan(kind: Any) -> Any:
    from privmix.dpsgd import AugmentationPlan
    from training_cases import make_plan as make_training_plan

    return make_training_plan(input_shape=(4,), augmentation=AugmentationPlan.plain())


def check_model_folder(folder: Path, case: Case) -> None:
    from privmix.dpsgd import LinearHead, TrainedModel, verify_model

    outcome = verify_model(folder)
    if outcome.valid:
        assert _says_the_same(folder, case), f"valid, with another {case.place}"
    else:
        assert outcome.reasons
    TrainedModel(folder, LinearHead())


def _make_reader(suffix: str) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        import pyarrow as pa
        import pyarrow.csv
        import pyarrow.parquet as pq

        folder.mkdir()
        x, y = make_data(make_schema(num_features=3), 40)
        table = pa.table({**{f"f{i}": x[:, i] for i in range(3)}, "y": y})
        path = folder / f"d.{suffix}"
        if suffix == "npz":
            np.savez(path, x=x, y=y)
        elif suffix == "npy":
            np.save(path, x)
            np.save(folder / "y.npy", y)
        elif suffix == "csv":
            pyarrow.csv.write_csv(table, path)
        else:
            pq.write_table(table, path)

    return make


def _check_reader(suffix: str) -> Callable[[Path, Case], None]:
    options: dict[str, dict[str, Any]] = {
        "npz": {"features_key": "x", "label_key": "y"},
        "csv": {"label": "y"},
        "parquet": {"label": "y"},
        "npy": {},
    }

    def check(folder: Path, case: Case) -> None:
        given = options[suffix]
        if suffix == "npy":
            given = {"labels": folder / "y.npy"}
        found = read_labelled(folder / f"d.{suffix}", classes=(0, 1, 2), **given)
        assert len(found.features) == len(found.labels) or suffix in ("npz", "npy")

    return check


def _make_ledger_export(folder: Path) -> None:
    from privmix.running.ledger import Ledger

    folder.mkdir()
    book = Ledger(folder / "ledger.db").open_dataset("people", epsilon_limit=9.0, delta=1e-5)
    plan = make_plan(make_schema(num_features=4), "poisson", num_mixtures=24, mix_size=6)
    book.charge("people", plan.event, note="a release")
    (folder / "ledger.json").write_text(json.dumps(book.export()))


def check_ledger_export(folder: Path, case: Case) -> None:
    from privmix.running.ledger import Ledger

    (folder / "copy.db").unlink(missing_ok=True)
    text = (folder / "ledger.json").read_text()
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return
    Ledger(folder / "copy.db").import_(document)


def _make_report_files(folder: Path) -> None:
    folder.mkdir()
    _make_poisson(folder / "release")
    scores = {
        "accuracy": 0.8,
        "accuracy_interval": [0.7, 0.9],
        "recall": {"0": 0.9, "1": None},
        "num_test_records": 50,
        "note": "a note",
    }
    audit = {"epsilon": 2.0, "lower_bound": 0.5, "confidence": 0.9, "verdict": "consistent"}
    audit |= {"certificate_digest": "0" * 64, "parameters_digest": "1" * 64}
    (folder / "scores.json").write_text(json.dumps(scores))
    (folder / "audit.json").write_text(json.dumps({**audit, "findings": ["none"]}))


def _check_report(name: str) -> Callable[[Path, Case], None]:
    """A report says what stands beside it, or refuses it; its page stays a page."""
    known: dict[Path, Any] = {}

    def check(folder: Path, case: Case) -> None:
        from privmix.report.facts import report_facts
        from privmix.report.measurements import read_audit, read_utility
        from privmix.report.page import report_page

        if name == "scores.json":
            beside: dict[str, Any] = {"utility": read_utility(folder / name)}
        else:
            beside = {"audit": read_audit(folder / name, 1.0, "0" * 64, "1" * 64)}
        if folder not in known:  # the release stays as it is
            known[folder] = report_facts(folder / "release")
        facts = known[folder].model_copy(update=beside)
        page = ReadPage(report_page(facts))
        check_structure(page)
        assert len(page.scripts) == 1
        json.dumps(facts.model_dump(mode="json"), allow_nan=False)

    return check


TARGETS: dict[str, Target] = {
    "evaluation": Target(_make_report_files, "scores.json", _check_report("scores.json"), True),
    "audit": Target(_make_report_files, "audit.json", _check_report("audit.json"), True),
    "certificate": Target(_make_poisson, CERTIFICATE, check_release, True),
    "certificate-hybrid": Target(_make_hybrid, CERTIFICATE, check_release, True),
    "certificate-centred": Target(_make_centred, CERTIFICATE, check_release, True),
    "opened": Target(_make_centred, CERTIFICATE, check_opened, True),
    "commands": Target(_make_poisson, CERTIFICATE, check_commands, True),
    "part": Target(_make_poisson, PART, check_release, False),
    "part-opened": Target(_make_hybrid, PART, check_opened, False),
    "preprocessing": Target(_make_centred, "preprocessing.safetensors", check_opened, False),
    "card": Target(_make_poisson, "README.md", check_release, False),
    "plan": Target(_make_plan_file, "plan.json", check_plan, True),
    "schema": Target(_make_schema_file, "schema.json", check_schema, True),
    "event": Target(_make_event_file, "event.json", check_event, True),
    "model-file": Target(_make_model_file, "m.safetensors", check_model, False),
    "model-header": Target(_make_header_file, "header.json", check_header, True),
    "model-folder": Target(_make_model_folder, CERTIFICATE, check_model_folder, True),
    "model-tensors": Target(_make_model_folder, "model.safetensors", check_model_folder, False),
    **{
        f"reader-{suffix}": Target(
            _make_reader(suffix), f"d.{suffix}", _check_reader(suffix), False
        )
        for suffix in ("npz", "npy", "csv", "parquet")
    },
}
# Until ledgers are exported, there is nothing to change.
try:
    from privmix.running.ledger import Ledger

    if hasattr(Ledger, "export") and hasattr(Ledger, "import_"):
        TARGETS["ledger-export"] = Target(
            _make_ledger_export, "ledger.json", check_ledger_export, True
        )
except ImportError:
    pass


def _make_nothing(folder: Path) -> None:
    folder.mkdir()
    (folder / "f").write_bytes(b"")


class _Faulty(Target):
    """Five cases, of which one is as it should be: a test of the runner."""

    def cases(self, folder: Path, seed: int, num_random: int) -> Iterator[Case]:
        for name in ("raw", "memory", "hang", "terminal", "refused"):
            yield Case(name, name.encode())


def _check_faulty(folder: Path, case: Case) -> None:
    if case.name == "raw":
        raise KeyError("x")
    if case.name == "memory":
        np.ones(1 << 33)
    if case.name == "hang":
        signal.alarm(1)
        while True:
            time.sleep(1)
    error = InvalidInputError("place", "a file", "none")
    if case.name == "terminal":
        error.args = ("\x1b[2J",)
    raise error


FAULTY = _Faulty(_make_nothing, "f", _check_faulty, False)


def prepare(target: Target, folder: Path) -> Path:
    """Make a sample, and the copy of it that is changed; return the copy."""
    target.make(folder / "sample")
    shutil.copytree(folder / "sample", folder / "copy")
    return folder / "copy"
