"""A sample of the long form, ``python -m tests.fuzz``; and texts that hypothesis makes up."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fuzz.mutations import STRANGE, document_mutants, leaves, mutants, same
from fuzz.runner import run
from fuzz.targets import TARGETS
from privmix import InvalidInputError, Schema
from privmix._validate import printable
from privmix.accounting import event_from_json
from privmix.foreign.tensors import read_tensors
from privmix.foreign.thrift import ThriftError, ThriftReader
from privmix.planning.plan import ReleasePlan
from privmix.publishing.certificate import Certificate

# Cases that take long each: of these, fewer. The others are run together with many more.
EVERY = {
    "certificate": 211, "certificate-hybrid": 397, "certificate-centred": 397, "opened": 59,
    "commands": 397, "part": 37, "part-opened": 11, "preprocessing": 11, "card": 97, "event": 97,
    "model-folder": 199, "model-tensors": 37,
}  # fmt: skip


@pytest.mark.parametrize("name", [name for name in TARGETS if not name.startswith("model-f")])
def test_a_sample_of_each_kind(name):
    done, failures = run(name, every=EVERY.get(name, 23), num_random=120, seconds=20)
    assert done
    assert failures == []


def test_every_strange_value_stands_at_every_place():
    document = {"a": 1, "b": [0.5, {"c": "x"}]}
    places = {place for place, _ in leaves(document)}
    assert places == {(), ("a",), ("b",), ("b", 0), ("b", 1), ("b", 1, "c")}
    found = list(document_mutants(document))
    assert {place for place, _ in found} == places
    assert len([f for f in found if f[0] == ("a",)]) >= len(STRANGE)
    assert not any(same(other, 1) for other in mutants(1))


def test_a_fault_is_found(monkeypatch):
    """Hangs, memory and raw errors of a case are told apart from refusals."""
    # The targets are looked up in the worker: those that fail stand there for this test alone.
    done, failures = run("faulty", seconds=60)
    assert done == 5
    faults = "\n".join(failures)
    assert len(failures) == 4, faults
    for word in ("KeyError", "MemoryError", "no end", "not printable"):
        assert word in faults


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
FIELDS = sorted(
    {*Schema.model_fields, *ReleasePlan.model_fields, *Certificate.model_fields, "schema", "design"}
)
DOCUMENTS = st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=12)
QUICK = settings(
    max_examples=150, deadline=2000, derandomize=True, suppress_health_check=list(HealthCheck)
)


@QUICK
@given(DOCUMENTS | JSON)
def test_documents_are_read_or_refused_by_name(document):
    text = json.dumps(document)
    for read in (
        lambda: Schema.from_json(text),
        lambda: ReleasePlan.from_json(text),
        lambda: Certificate.from_json(text),
        lambda: event_from_json(text),
    ):
        try:
            read()
        except InvalidInputError as error:
            assert str(error).isprintable()


@QUICK
@given(st.binary(max_size=200))
def test_bytes_are_read_or_refused_by_name(content):
    for read in (
        lambda: Schema.from_json(content),
        lambda: ReleasePlan.from_json(content),
        lambda: Certificate.from_json(content),
        lambda: read_tensors(content, "place", "a file"),
    ):
        try:
            read()
        except InvalidInputError as error:
            assert str(error).isprintable()
    reader = ThriftReader(content)
    with contextlib.suppress(ThriftError):
        reader.struct()
    assert reader.offset <= len(content)


@QUICK
@given(st.text(st.characters(), max_size=60))
def test_what_is_printable_is_one_line_and_stays_so(text):
    shown = printable(text)
    assert shown.isprintable()
    assert printable(shown) == shown
    shown.encode()
    if text.isprintable():
        assert shown == text
