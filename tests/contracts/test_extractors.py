"""The contract of an extractor, and extractors that break it.

The features of a record are bit for bit the same at every position, with any companions, whatever
the number of records. Batch norm in training, padding to the longest companion and scaling by the
whole data set all break that.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.base import clone

from extractors import make_images, make_texts, save_sentence_model, save_vision_model
from privmix import InvalidInputError
from privmix.features import get_extractor, make_extractor
from privmix.features.base import BaseExtractor, BatchExtractor, make_identity, positions_agree
from privmix.inputs.extractor import Extractor, ExtractorIdentity

torch = pytest.importorskip("torch")


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    kinds = ("vit", "vit-without-pooler", "convnext", "clip")
    found = {kind: save_vision_model(folder / kind, kind) for kind in kinds}
    return {**found, "sentence": save_sentence_model(folder / "sentence")}


def check_contract(extractor: Extractor, records: list) -> None:
    """Check all that the Protocol promises; ``records`` are at least 20, all different."""
    assert isinstance(extractor, Extractor)
    together = extractor.transform(records)
    assert together.shape == (len(records), extractor.num_features)
    assert together.dtype == np.float32 and np.isfinite(together).all()
    assert len(np.unique(together, axis=0)) > 1
    same = np.testing.assert_array_equal
    same(extractor.transform(records), together, "not the same twice")
    for i in (0, 7, len(records) - 1):
        same(extractor.transform([records[i]])[0], together[i], "not the same alone")
    same(extractor.transform(records[::-1])[::-1], together, "not the same in another order")
    for gone in range(9):  # one record less moves the others to other places of their batches
        rest = records[:gone] + records[gone + 1 :]
        due = np.delete(together, gone, axis=0)
        same(extractor.transform(rest), due, "not the same without another")
    blanked = extractor.transform([*records[:3], None, *records[4:]])
    due = together.copy()
    due[3] = 0
    same(blanked, due, "not the same beside a bad record")


def vision(model):
    return lambda models: get_extractor(f"vision:{models[model]}", device="cpu")


GOOD = {
    "pixels": lambda models: make_extractor("pixels", size=8, channels=3),
    "scattering": lambda models: get_extractor("scattering:size=16,channels=1"),
    "efficientnet-lite0": lambda models: make_extractor("efficientnet-lite0", size=32),
    "vit": vision("vit"),
    "vit-without-pooler": vision("vit-without-pooler"),
    "convnext": vision("convnext"),
    "clip": vision("clip"),
    "sentence": lambda models: get_extractor(f"sentence:{models['sentence']}", device="cpu"),
    "identity": lambda models: make_extractor("identity", width=4),
}


def records_for(extractor) -> list:
    if extractor.kind == "text":
        return make_texts(21)
    if extractor.kind == "vector":
        return list(np.random.default_rng(0).standard_normal((21, 4)))
    return make_images(21, (20, 24, 3))


@pytest.mark.parametrize("name", GOOD)
def test_good_extractors_pass(name, models):
    extractor = GOOD[name](models)
    check_contract(extractor, records_for(extractor))


@pytest.mark.parametrize("name", GOOD)
def test_identity_is_that_of_the_function(name, models):
    extractor, again = GOOD[name](models), GOOD[name](models)
    assert extractor.identity == again.identity
    text = extractor.identity.model_dump_json()
    assert ExtractorIdentity.from_json(text) == extractor.identity
    assert "/" not in text  # a folder's path is nobody's business
    copy = clone(extractor)
    assert copy.get_params() == extractor.get_params()
    assert copy.fit(None).identity == extractor.identity


def test_identities_differ_with_what_changes_features(models):
    made = [
        make_extractor("pixels", size=8),
        make_extractor("pixels", size=9),
        make_extractor("scattering", size=8),
        *(GOOD[name](models) for name in GOOD),
    ]
    assert len({extractor.identity.digest for extractor in made}) == len(made)


def test_an_untrained_pooler_is_not_used(models):
    """Its weights are drawn anew whenever the model is loaded."""
    images = make_images(3)
    first, second = (GOOD["vit-without-pooler"](models).transform(images) for _ in range(2))
    np.testing.assert_array_equal(first, second)


@dataclass(frozen=True, eq=False)
class _Bad(BaseExtractor):
    """Base of extractors that break the contract."""

    name = "bad"
    kind = "vector"

    @property
    def num_features(self):
        return 4

    @property
    def identity(self):
        return make_identity(type(self).__name__.lower().strip("_"), {})


class _BatchNorm(_Bad):
    def _features(self, records):
        layer = torch.nn.BatchNorm1d(4)  # in training, as PyTorch makes it
        batch = torch.from_numpy(np.stack(records).astype(np.float32))
        return layer(batch).detach().numpy() if len(records) > 1 else batch.numpy()


class _DatasetScaling(_Bad):
    def _features(self, records):
        matrix = np.stack(records)
        return matrix / np.abs(matrix).max()


class _Padding(_Bad):
    kind = "text"

    def _features(self, records):
        longest = max(len(text) for text in records)
        rows = np.zeros((len(records), longest, 4), dtype=np.float32)
        for row, text in enumerate(records):
            rows[row, : len(text)] = len(text)
        return rows.mean(axis=1)  # over the padding too


class _Random(_Bad):
    def _features(self, records):
        return np.random.default_rng().standard_normal((len(records), 4))


@pytest.mark.parametrize("kind", [_BatchNorm, _DatasetScaling, _Padding, _Random])
def test_bad_extractors_fail(kind):
    with pytest.raises(AssertionError, match="not the same"):
        check_contract(kind(), records_for(kind()))


@dataclass(frozen=True, eq=False)
class _ByPlace(BatchExtractor):
    """A kernel that rounds the last record of a batch in another way."""

    name = "by-place"
    kind = "vector"
    batch_size = 8
    device: str | None = "cpu"
    num_features = 4
    _input_shape = (4,)

    @property
    def identity(self):
        return make_identity(self.name, {})

    def _prepare(self, record):
        return torch.from_numpy(np.asarray(record, dtype=np.float32))

    def _forward(self, batch):
        moved = batch * 3
        moved[7:] = torch.nextafter(moved[7:], torch.tensor(torch.inf))
        return moved


def test_a_kernel_that_rounds_by_place_gets_batches_of_one():
    extractor = _ByPlace()
    assert extractor._agreed_batch_size == 1
    check_contract(extractor, records_for(extractor))
    assert make_extractor("scattering", size=8)._agreed_batch_size == 32


class _Masked(_ByPlace):
    """Masks drawn anew at each call, as masked autoencoders have them."""

    def _forward(self, batch):
        return batch + torch.randn(batch.shape)


class _Maps(_ByPlace):
    def _forward(self, batch):
        return batch[:, :, None]


class _Narrow(_ByPlace):
    def _forward(self, batch):
        return batch[:, :3]


class _Breaks(_ByPlace):
    def _forward(self, batch):
        raise TypeError("got an unexpected keyword")


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (_Masked, "the same each time, got other numbers at the second time"),
        (_Maps, r"one vector of an image, .* got shape \(1, 4, 1\)"),
        (_Narrow, "vectors of 4 numbers, as it states, got 3"),
        (_Breaks, "got TypeError: got an unexpected keyword"),
    ],
)
def test_models_that_make_no_features_are_refused(kind, words):
    with pytest.raises(InvalidInputError, match=f"extractor by-place: .*{words}"):
        kind().transform([np.zeros(4, np.float32)])


def test_a_timm_model_is_as_wide_as_its_output(monkeypatch):
    """Some of its models have a wider layer after the channels that ``num_features`` counts."""

    class Network(torch.nn.Module):
        num_features = 3

        def forward(self, batch):
            return batch.flatten(1)[:, :5]

    def create_transform(**_):
        return lambda image: torch.from_numpy(np.asarray(image, np.float32).T.copy())

    data = SimpleNamespace(
        resolve_data_config=lambda *_, **__: {"input_size": (3, 4, 4)},
        create_transform=create_transform,
    )
    package = SimpleNamespace(create_model=lambda *_, **__: Network(), data=data)
    monkeypatch.setitem(sys.modules, "timm", package)
    monkeypatch.setitem(sys.modules, "timm.data", data)
    extractor = make_extractor("timm", model="any", device="cpu")
    assert extractor.num_features == 5
    assert extractor.transform(make_images(2, (4, 4, 3))).shape == (2, 5)


@pytest.mark.parametrize("kind", ["segformer", "mae"])
def test_a_vision_model_without_a_pooled_output_is_refused(tmp_path, kind):
    model = make_extractor("vision", model=str(save_vision_model(tmp_path, kind)))
    with pytest.raises(InvalidInputError, match="a pooled output .*, got neither"):
        model.num_features


def test_places_agree_sees_companions():
    probe, companions = torch.ones(3), torch.randn(5, 3)
    assert positions_agree(lambda batches: [b * 2 for b in batches], probe, companions)
    assert not positions_agree(lambda batches: [b - b.mean() for b in batches], probe, companions)


@pytest.mark.parametrize("place", range(5))
def test_places_agree_sees_every_place(place):
    def run(batches):
        found = [batch * 3 for batch in batches]
        for batch in found:
            batch[place] = torch.nextafter(batch[place], torch.tensor(torch.inf))
        return found

    assert not positions_agree(run, torch.ones(3), torch.randn(5, 3))


@pytest.mark.parametrize("name", ["sentence", "vit", "scattering"])
def test_the_number_of_threads_changes_nothing(name, models):
    extractor = GOOD[name](models)
    records = records_for(extractor)
    found = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        found.append(GOOD[name](models).transform(records))
        assert torch.get_num_threads() == threads
    torch.set_num_threads(1)
    np.testing.assert_array_equal(*found)


def test_a_vector_of_another_shape_is_named():
    good = np.zeros(4)
    for bad in (np.zeros(3), ["a"] * 4):
        with pytest.raises(ValueError, match=r"records\[1\]: expected 4 real numbers"):
            make_extractor("identity", width=4).transform([good, bad, good, bad])


def test_names_and_parameters_are_checked():
    for spec, allowed in (
        ("nothing", "one of identity"),
        ("pixels:width=3", "parameters size, channels"),
        ("pixels:size=big", "an integer"),
        ("pixels:size=8,channels=2", r"1 \(grey\)"),
        ("scattering:size=30", "a multiple of 4"),
        ("vision", "parameters model, device"),
        ("vision:/nowhere/model", "vision model"),
        ("sentence:/nowhere/model", "sentence-transformers model"),
    ):
        with pytest.raises(ValueError, match=allowed):
            get_extractor(spec).num_features


def test_an_identity_makes_its_extractor_again(models):
    extractor = get_extractor("scattering:size=12")
    assert get_extractor(extractor.identity).get_params() == extractor.get_params()
    other = extractor.identity.model_copy(update={"digest": "0" * 64})
    with pytest.raises(ValueError, match="digest 000000000000"):
        get_extractor(other)
    with pytest.raises(ValueError, match=re.escape("parameters model")):
        get_extractor(GOOD["vit"](models).identity)


def test_missing_libraries_name_the_extra(monkeypatch):
    import privmix.features.base as base

    def absent(name):
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(base.importlib, "import_module", absent)
    with pytest.raises(ValueError, match=re.escape("pip install 'privmix[vision]'")):
        base.load("kymatio", "vision")
