"""Trained models as files that load without executing code."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Literal

import numpy as np
from safetensors.numpy import save

from privmix import _validate
from privmix._validate import FrozenModel
from privmix.foreign.files import read_file
from privmix.foreign.tensors import read_tensors
from privmix.inputs.extractor import ExtractorIdentity
from privmix.learners.adaptive import AdaptiveClassifier
from privmix.learners.base import LinearClassifier, LinearRegressor
from privmix.learners.bias_corrected_sgd import (
    BiasCorrectedSGDClassifier,
    BiasCorrectedSGDRegressor,
)
from privmix.learners.fisher import FisherClassifier
from privmix.learners.network import TorchNetworkClassifier, dpmix_network, require_torch
from privmix.learners.noise_aware import NoiseAwareClassifier
from privmix.learners.regression import NoiseAwareRegressor
from privmix.learners.softmax import KLSoftmaxClassifier
from privmix.preprocess import Preprocessor, RecordFacts, Step
from privmix.running.durable import put_in_place
from privmix.running.resources import default_memory
from privmix.schema import Target

Learner = LinearClassifier | LinearRegressor | TorchNetworkClassifier

LEARNERS: dict[str, type[Learner]] = {
    "noise-aware": NoiseAwareClassifier,
    "adaptive": AdaptiveClassifier,
    "kl-softmax": KLSoftmaxClassifier,
    "fisher": FisherClassifier,
    "bias-corrected-sgd": BiasCorrectedSGDClassifier,
    "network": TorchNetworkClassifier,
    "noise-aware-regression": NoiseAwareRegressor,
    "bias-corrected-sgd-regression": BiasCorrectedSGDRegressor,
}

_HEADER = "privmix_model"
_PREPROCESSING = "preprocessing."
_NETWORK = "network."
_ALLOWED = "a model file written by privmix"


class ModelHeader(FrozenModel):
    """What a model file says besides its weights; public, JSON.

    ``private`` is False for what was learnt from a release that protects nobody, and None where the
    release had no certificate to say. ``verified`` is True where that certificate was found to state
    what its own parameters give before the model was trained, as ``privmix train`` does.
    """

    format_version: Literal[1] = 1
    learner: str
    target: Target = "class"
    classes: tuple[int, ...] | tuple[str, ...]
    num_features: int
    feature_clip_norm: float
    logit_scale: float
    certificate_digest: str | None
    private: bool | None
    verified: bool = False
    extractor: ExtractorIdentity | None
    preprocessing: tuple[Step, ...] = ()
    facts: RecordFacts | None = None
    target_bounds: tuple[tuple[float, float], ...] | None = None
    feature_names: tuple[str, ...] | None = None
    image_shape: tuple[int, int, int] | None = None


def save_model(model: Learner, path: str | Path) -> None:
    """Write a fitted learner to ``path``, whole or not at all.

    The file is in the safetensors format: two float64 tensors (``coef``, ``intercept``; a
    regression's ``coef_stderr``) or a network's float32 tensors, and a JSON header. Parameters of
    the training are not kept. Of networks, those of the default module can be saved; what any other
    module is, a file that executes no code cannot say.

    Raises:
        InvalidInputError: Not a fitted learner of this package, a network of another module, or a
            folder that cannot be written to.

    Example:
        >>> import numpy as np
        >>> from privmix import NoiseAwareClassifier, Schema, load_model, plan_release, release, save_model
        >>> schema = Schema(classes=[0, 1], num_features=2, num_records=200, feature_clip_norm=1.0)
        >>> plan = plan_release(schema, target_epsilon=2.0, target_delta=1e-5, design="stratified")
        >>> x, y = np.eye(2)[np.arange(200) % 2], np.arange(200) % 2
        >>> model = NoiseAwareClassifier().fit(release(x, y, plan, out="saved"))
        >>> save_model(model, "model.safetensors")
        >>> bool((load_model("model.safetensors").coef_ == model.coef_).all())
        True

    """
    names = {kind: name for name, kind in LEARNERS.items()}
    if type(model) not in names or not hasattr(model, "n_features_in_"):
        _validate.fail("model", f"a fitted learner: {', '.join(LEARNERS)}", repr(model))
    names_in = getattr(model, "feature_names_in_", None)
    header = ModelHeader(
        learner=names[type(model)],
        target=model.target_,
        classes=_names_of(model),
        num_features=_width_of(model),
        feature_clip_norm=model.feature_clip_norm_,
        logit_scale=getattr(model, "logit_scale_", 1.0),
        certificate_digest=model.certificate_digest_,
        private=model.private_,
        verified=model.verified_,
        extractor=model.extractor_,
        target_bounds=_bounds_of(model),
        feature_names=None if names_in is None else tuple(names_in),
        image_shape=_image_shape_of(model),
        preprocessing=() if (done := model.preprocessor_) is None else done.steps,
        facts=None if done is None else done.facts,
    )
    tensors = _network_tensors(model) if header.image_shape else _linear_tensors(model)
    if done is not None:
        tensors |= {_PREPROCESSING + name: tensor for name, tensor in done.tensors().items()}
    _write_atomically(Path(path), save(tensors, {_HEADER: header.model_dump_json()}))


def _names_of(model: Learner) -> tuple[int, ...] | tuple[str, ...]:
    if isinstance(model, LinearRegressor):
        return model.output_names_
    return tuple(model.classes_.tolist())


def _width_of(model: Learner) -> int:
    """Width of a record after preprocessing."""
    if isinstance(model, TorchNetworkClassifier):
        return int(np.prod(model.image_shape or (0,)))
    return int(model.coef_.shape[1])


def _bounds_of(model: Learner) -> tuple[tuple[float, float], ...] | None:
    if not isinstance(model, LinearRegressor):
        return None
    return tuple((low, high) for low, high in model.target_bounds_.tolist())


def _image_shape_of(model: Learner) -> tuple[int, int, int] | None:
    if not isinstance(model, TorchNetworkClassifier):
        return None
    if model.module is not None or model.image_shape is None:
        _validate.fail("model", "a network of the default module", "another; save it with PyTorch")
    channels, height, width = model.image_shape
    return channels, height, width


def _linear_tensors(model: Any) -> dict[str, np.ndarray]:
    names = ("coef", "intercept", "coef_stderr")
    found = {name: getattr(model, f"{name}_", None) for name in names}
    return {
        name: np.ascontiguousarray(tensor, dtype=np.float64)
        for name, tensor in found.items()
        if tensor is not None
    }


def _network_tensors(model: Any) -> dict[str, np.ndarray]:
    state = model.module_.state_dict()
    found = {f"{_NETWORK}{name}": tensor.numpy() for name, tensor in state.items()}
    if model.center_.any() or model.scale_ != 1:
        found |= {"center": model.center_, "scale": np.array([model.scale_])}
    return found


def load_model(path: str | Path) -> Learner:
    """Read a model file; never executes code from it.

    Returns:
        The fitted learner, with default training parameters.

    Raises:
        InvalidInputError: No such file, not a model file of this package, or a network where
            PyTorch is not installed.

    """
    position = str(path)
    if not Path(path).is_file():
        allowed = "an existing model file, which privmix train writes"
        if Path(path, "model.safetensors").is_file():
            allowed += "; read the folder of privmix fit by privmix.load_model"
        _validate.fail(position, allowed, _what(Path(path)))
    content = read_file(path, default_memory() // 2, _ALLOWED)
    tensors, metadata = read_tensors(content, position, _ALLOWED)
    if _HEADER not in metadata:
        _validate.fail(position, _ALLOWED, "another safetensors file")
    header = ModelHeader.from_json(metadata[_HEADER], position)
    _validate.one_of(f"{position}.learner", header.learner, LEARNERS)
    _validate.real(f"{position}.feature_clip_norm", header.feature_clip_norm, above=0.0)
    if len(set(header.classes)) != len(header.classes):
        _validate.fail(f"{position}.classes", "each class once", "one of them twice")
    results = {
        name.removeprefix(_PREPROCESSING): tensors.pop(name)
        for name in list(tensors)
        if name.startswith(_PREPROCESSING)
    }
    preprocessor = _preprocessor(position, header, results)
    model = LEARNERS[header.learner]()
    if isinstance(model, LinearRegressor) != (header.target == "regression"):
        _validate.fail(f"{position}.target", f"one that {header.learner} learns", header.target)
    model.target_ = header.target
    if isinstance(model, TorchNetworkClassifier):
        _fill_network(model, position, header, tensors)
    else:
        _fill_linear(model, position, header, tensors)
    model.preprocessor_ = preprocessor
    model.n_features_in_ = header.num_features if preprocessor is None else preprocessor.num_inputs
    model.feature_clip_norm_ = header.feature_clip_norm
    model.certificate_digest_, model.extractor_ = header.certificate_digest, header.extractor
    model.private_, model.verified_ = header.private, header.verified
    if (names := header.feature_names) is not None and len(names) != model.n_features_in_:
        allowed = f"{model.n_features_in_} names"
        _validate.fail(f"{position}.feature_names", allowed, len(names))
    model._remember_names(header.feature_names)
    return model


def _what(path: Path) -> str:
    if path.is_dir():
        return "a folder"
    return "no regular file" if path.exists() else "no such file"


def _preprocessor(
    position: str, header: ModelHeader, results: dict[str, np.ndarray]
) -> Preprocessor | None:
    if header.facts is None:
        if header.preprocessing or results:
            _validate.fail(f"{position}.facts", "a value beside preprocessing", "none")
        return None
    made = Preprocessor(header.preprocessing, header.facts).with_tensors(results, position)
    if not made.is_complete or made.num_outputs != header.num_features:
        _validate.fail(
            f"{position}.preprocessing", f"steps to {header.num_features} features", "others"
        )
    return made


def _fill_linear(
    model: LinearClassifier | LinearRegressor,
    position: str,
    header: ModelHeader,
    tensors: dict[str, np.ndarray],
) -> None:
    names = {"coef", "intercept"}
    if isinstance(model, NoiseAwareRegressor):
        names.add("coef_stderr")
    if set(tensors) != names:
        _validate.fail(position, _ALLOWED, "another safetensors file")
    _check_tensors(position, header, tensors["coef"], tensors["intercept"])
    model.coef_, model.intercept_ = tensors["coef"], tensors["intercept"]
    if isinstance(model, LinearClassifier):
        model.classes_, model.logit_scale_ = np.array(header.classes), header.logit_scale
        return
    bounds = header.target_bounds or ()
    if len(bounds) != len(header.classes) or not all(low < high for low, high in bounds):
        _validate.fail(f"{position}.target_bounds", "low below high for each output", bounds)
    model.target_bounds_, model.output_names_ = np.array(bounds), header.classes
    if isinstance(model, NoiseAwareRegressor):
        model.coef_stderr_ = tensors["coef_stderr"]
        if model.coef_stderr_.shape != model.coef_.shape or not (model.coef_stderr_ >= 0).all():
            _validate.fail(f"{position}.coef_stderr", "a number for each coefficient", "others")


def _fill_network(
    model: TorchNetworkClassifier,
    position: str,
    header: ModelHeader,
    tensors: dict[str, np.ndarray],
) -> None:
    torch = require_torch()
    if header.image_shape is None or math.prod(header.image_shape) != header.num_features:
        _validate.fail(
            f"{position}.image_shape", f"{header.num_features} numbers", header.image_shape
        )
    _validate.size("num_features", header.num_features, position=f"{position}.num_features")
    model.center_ = np.zeros(header.num_features, np.float32)
    model.scale_ = np.float32(1.0)
    if {"center", "scale"} <= set(tensors):
        center, scale = tensors.pop("center"), tensors.pop("scale")
        shapes, kinds = (center.shape, scale.shape), {center.dtype, scale.dtype}
        fits = shapes == ((header.num_features,), (1,)) and kinds == {np.dtype(np.float32)}
        if not fits or not np.isfinite([*center, *scale]).all() or scale[0] <= 0:
            allowed = f"center of {header.num_features} finite float32 numbers, one scale above 0"
            _validate.fail(position, allowed, "others")
        model.center_, model.scale_ = center, np.float32(scale[0])
    # Shapes first, without memory: a file may state an image of any size.
    with torch.device("meta"):
        module = dpmix_network(header.image_shape, len(header.classes))
    state = {name: tuple(value.shape) for name, value in module.state_dict().items()}
    found = {name.removeprefix(_NETWORK): value for name, value in tensors.items()}
    same = {name: value.shape for name, value in found.items()} == state
    if not same or not all(np.isfinite(value).all() for value in found.values()):
        _validate.fail(position, "the finite tensors of DPMix's network", "others")
    module = dpmix_network(header.image_shape, len(header.classes))
    module.load_state_dict({name: torch.from_numpy(value) for name, value in found.items()})
    model.image_shape, model.module_ = header.image_shape, module.eval()
    model.classes_ = np.array(header.classes)


def _check_tensors(
    position: str, header: ModelHeader, coef: np.ndarray, intercept: np.ndarray
) -> None:
    _validate.real(f"{position}.logit_scale", header.logit_scale, at_least=0.0)
    shape = (len(header.classes), header.num_features)
    least = 1 if header.target_bounds else 2
    if len(header.classes) < least or coef.shape != shape or intercept.shape != shape[:1]:
        _validate.fail(position, f"coef of shape {shape}, an intercept for each row", coef.shape)
    for name, tensor in (("coef", coef), ("intercept", intercept)):
        if tensor.dtype != np.float64 or not np.isfinite(tensor).all():
            _validate.fail(f"{position}.{name}", "finite float64 numbers", "others")


def _write_atomically(path: Path, content: bytes) -> None:
    if path.exists() and not path.is_file():  # a pipe or a device, which it would replace
        _validate.fail(str(path), "a file in a writable folder", "something else of this name")
    try:
        with put_in_place(path) as file:
            file.write(content)
    except OSError as error:
        _validate.fail(str(path), "a file in a writable folder", error.strerror)
