import pickle

import numpy as np
import pytest
from safetensors.numpy import save_file

from builders import fed_pipe
from privmix import InvalidInputError
from privmix.learners import (
    LEARNERS,
    KLSoftmaxClassifier,
    NoiseAwareClassifier,
    load_model,
    save_model,
)


@pytest.mark.parametrize("classes", [(3, 1, 2, 7), ("pay", "é", "a b", "")])
@pytest.mark.parametrize("name", ["poisson", "stratified"])
@pytest.mark.parametrize("make", [NoiseAwareClassifier, lambda: KLSoftmaxClassifier(epochs=2)])
def test_round_trip(designs, make_blobs, tmp_path, name, classes, make):
    x, y = make_blobs()
    model = make().fit(designs[name](x, y, classes))
    path = tmp_path / "model.safetensors"
    save_model(model, path)
    loaded = load_model(path)
    assert type(loaded) is type(model)
    assert loaded.classes_.dtype == model.classes_.dtype
    assert (loaded.predict(x) == model.predict(x)).all()
    assert (loaded.predict_proba(x) == model.predict_proba(x)).all()
    assert loaded.certificate_digest_ == "ab" * 32
    assert loaded.feature_clip_norm_ == model.feature_clip_norm_
    assert [p.name for p in tmp_path.iterdir()] == ["model.safetensors"]


def test_bytes_repeat_and_overwrite(designs, make_blobs, tmp_path):
    model = NoiseAwareClassifier().fit(designs["stratified"](*make_blobs(), range(4)))
    path = tmp_path / "model"
    save_model(model, path)
    first = path.read_bytes()
    save_model(model, path)
    assert path.read_bytes() == first


def test_wrong_files_are_refused(tmp_path):
    with pytest.raises(InvalidInputError, match="no such file"):
        load_model(tmp_path / "none")
    (tmp_path / "fitted").mkdir()
    (tmp_path / "fitted" / "model.safetensors").write_bytes(b"")
    with pytest.raises(InvalidInputError, match=r"privmix\.load_model, got a folder"):
        load_model(tmp_path / "fitted")
    for name, content in (("empty", b""), ("text", b"hello, world"), ("pickle", pickle.dumps(1))):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InvalidInputError, match=f"{name}: expected a model file"):
            load_model(tmp_path / name)
    save_file({"coef": np.zeros((2, 3))}, tmp_path / "other")
    with pytest.raises(InvalidInputError, match="another safetensors file"):
        load_model(tmp_path / "other")


GOOD = (
    '{"format_version":1,"learner":"noise-aware","classes":[0,1],"num_features":3,'
    '"feature_clip_norm":1.0,"logit_scale":1.0,"certificate_digest":null,"private":null,"extractor":null}'
)


def test_classes_of_a_file_are_distinct(tmp_path):
    tensors = {"coef": np.zeros((2, 3)), "intercept": np.zeros(2)}
    save_file(tensors, tmp_path / "good", {"privmix_model": GOOD})
    assert load_model(tmp_path / "good").classes_.tolist() == [0, 1]
    save_file(tensors, tmp_path / "twice", {"privmix_model": GOOD.replace("[0,1]", "[1,1]")})
    with pytest.raises(InvalidInputError, match="classes: expected each class once"):
        load_model(tmp_path / "twice")


@pytest.mark.parametrize(
    ("header", "coef"),
    [
        (GOOD.replace(":1,", ":2,"), np.zeros((2, 3))),
        (GOOD.replace("noise-aware", "os.system"), np.zeros((2, 3))),
        (GOOD.replace('"feature_clip_norm":1.0', '"feature_clip_norm":-1.0'), np.zeros((2, 3))),
        (GOOD.replace("[0,1]", "[0]"), np.zeros((1, 3))),
        ("{", np.zeros((2, 3))),
        (GOOD, np.zeros((2, 4))),
        (GOOD, np.full((2, 3), np.nan)),
        (GOOD, np.zeros((2, 3), dtype=np.float32)),
    ],
)
def test_inconsistent_files_are_refused(tmp_path, header, coef):
    path = tmp_path / "model"
    save_file({"coef": coef, "intercept": np.zeros(len(coef))}, path, {"privmix_model": header})
    with pytest.raises(InvalidInputError, match=str(path)):
        load_model(path)


def test_what_cannot_be_saved(designs, make_blobs, tmp_path):
    with pytest.raises(InvalidInputError, match="a fitted learner"):
        save_model(NoiseAwareClassifier(), tmp_path / "model")
    model = NoiseAwareClassifier().fit(designs["stratified"](*make_blobs(), range(4)))
    with pytest.raises(InvalidInputError, match="writable folder"):
        save_model(model, tmp_path / "absent" / "model")
    with pytest.raises(InvalidInputError, match="writable folder"):
        save_model(model, tmp_path)
    assert list(tmp_path.iterdir()) == []
    pipe = fed_pipe(tmp_path / "pipe")
    with pytest.raises(InvalidInputError, match="pipe: expected a file"):
        save_model(model, pipe)
    assert pipe.is_fifo()


def test_learners_by_name():
    assert set(LEARNERS) == {
        "noise-aware",
        "adaptive",
        "kl-softmax",
        "fisher",
        "bias-corrected-sgd",
        "network",
        "noise-aware-regression",
        "bias-corrected-sgd-regression",
    }
