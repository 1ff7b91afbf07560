"""The model folder: certificate, weights; write, read, verify.

A folder holds ``certificate.json`` and ``model.safetensors``. As with a release, an edit that is
consistent throughout cannot be told from the original without the digest printed at sealing, or a
signature.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, model_validator
from safetensors.numpy import save

from privmix import _validate
from privmix._validate import FrozenModel, InvalidInputError
from privmix.accounting import Event, Reading
from privmix.accounting.stated import Statement, TradeoffCurve, statements
from privmix.dpsgd.grid import HeadGrid, SumGrid, network_grid
from privmix.dpsgd.training_plan import TrainingConfig, TrainingPlan
from privmix.foreign.files import MOST_JSON_BYTES, ForeignFolder
from privmix.foreign.tensors import read_tensors
from privmix.inputs.extractor import ExtractorIdentity
from privmix.publishing.certificate import (
    FILE_NAME,
    check_versions,
    disagreements,
    stated_fields,
)
from privmix.publishing.folder import check_listed
from privmix.publishing.sealing import Sealable
from privmix.publishing.signature import check_origin
from privmix.publishing.verification import OriginCheck, Verification, told
from privmix.running.resources import default_memory

MODEL_NAME = "model.safetensors"
RESEARCH_NAME = "research.json"
_LONGEST_NAME = 200
_HEADER = "privmix_trained_model"
_LIBRARIES = ("privmix", "cryptography", "numba", "numpy", "scipy", "torch")


class ModelFacts(FrozenModel):
    """What was trained.

    Attributes:
        kind: ``linear_head`` on a frozen backbone, or a whole ``network``.
        architecture: Name of the backbone's or the network's class.
        public_digest: SHA-256 of the public weights: the backbone's, or the network's before
            training.
        num_parameters: Number of trained parameters.
        feature_cache: Approximation used by a linear head; ``none`` is none.
        shapes: Shapes of the tensors in the model file.

    """

    kind: Literal["linear_head", "network"]
    architecture: str
    public_digest: str
    num_parameters: int
    feature_cache: Literal["none", "views", "base"] = "none"
    shapes: dict[str, tuple[int, ...]]

    def grid(self, config: TrainingConfig) -> SumGrid:
        """Return the grid that noise was added on."""
        if self.kind == "network":
            return network_grid(config.clip_norm, config.microbatch_size)
        views = config.augmentation.num_augmentations
        return HeadGrid(config.clip_norm, views, self.num_parameters).published

    @model_validator(mode="after")
    def _check(self) -> Self:
        _validate.integer("num_parameters", self.num_parameters)
        if not self.architecture.isidentifier() or len(self.architecture) > _LONGEST_NAME:
            _validate.fail("architecture", "the name of a class", repr(self.architecture)[:80])
        if not re.fullmatch(r"[0-9a-f]{64}", self.public_digest):
            _validate.fail("public_digest", "64 hexadecimal digits", repr(self.public_digest)[:80])
        for name in self.shapes:
            if not re.fullmatch(rf"\S{{1,{_LONGEST_NAME}}}", name) or not name.isprintable():
                _validate.fail("shapes", "names of tensors, without spaces", repr(name)[:80])
        if self.kind == "linear_head" and set(self.shapes) != {"coef", "intercept"}:
            _validate.fail("shapes", "coef and intercept for a linear head", list(self.shapes))
        return self


class _ModelKind(FrozenModel):
    """What tells a model's certificate from that of a release; it stands before all else."""

    kind: Literal["model"] = "model"


class ModelCertificate(Sealable, _ModelKind):
    """What a training did and what it guarantees; public, JSON in and out.

    Attributes:
        kind: ``model``, which tells it from the certificate of a release.
        private: False for a model trained with a test seed or for research, which protects nobody.
        statement: The guarantee in words, or that there is none.
        privacy_unit: Whose presence is protected: one ``record``, or one ``unit`` with all of its
            records.
        unit_column: ``unit``: the public name of what a unit is; None for ``record``.
        max_records_per_unit: ``unit``: how many records of a unit took part at most.
        config: The mechanism.
        event: The same as the accountants see it.
        epsilon: Certified at ``delta``, for everything that was computed from the records:
            the weights after every step.
        gradient_sensitivity: L2 bound on what one record changes in a sum of clipped gradients,
            allowance for the grid included.
        gradient_noise_stddev: Standard deviation of the noise on each of its entries.
        sampler_error: Both samplers are exact, given uniform random words.
        model: What was trained.
        extractor: What made the features that the model was trained on, where that is known.
        feature_names: Public names of the features, in their order, where they have any.
        files: SHA-256 of every file of the folder but this one.

    """

    _what: ClassVar[Literal["release", "model"]] = "model"
    _omitted_if_default: ClassVar[tuple[str, ...]] = (
        "unit_column",
        "max_records_per_unit",
        "extractor",
        "feature_names",
    )

    config: TrainingConfig
    event: Event
    accountants: dict[str, Reading | None]
    epsilon_by_delta: dict[str, float]
    tradeoff_curve: TradeoffCurve
    sampler_error: Literal[0] = 0
    gradient_sensitivity: float
    gradient_noise_stddev: float
    model: ModelFacts
    extractor: ExtractorIdentity | None = None
    feature_names: tuple[str, ...] | None = None
    library_versions: dict[str, str]
    files: dict[str, str]

    @model_validator(mode="after")
    def _check(self) -> Self:
        check_versions(self.library_versions, _LIBRARIES)
        names, width = self.feature_names, math.prod(self.config.input_shape)
        if names is not None and not len(names) == len(set(names)) == width:
            _validate.fail("feature_names", f"{width} distinct names", len(names))
        if names is not None and not all(name.strip() for name in names):
            _validate.fail("feature_names", "names, none empty", "an empty one")
        return self

    @property
    def num_records(self) -> int:
        """The public number of records that was planned for."""
        return self.config.num_records

    @classmethod
    def for_plan(
        cls,
        plan: TrainingPlan,
        model: ModelFacts,
        *,
        private: bool,
        files: dict[str, str],
        extractor: ExtractorIdentity | None = None,
        feature_names: tuple[str, ...] | None = None,
        stated: Statement | None = None,
    ) -> ModelCertificate:
        """Certify a plan and a model, accounting anew unless told what accountants say of it."""
        if stated is None:
            stated, *_ = statements(plan.event, plan.delta)
        config = plan.config
        sensitivity = model.grid(config).unit_sensitivity
        made = cls(
            private=private,
            statement="",
            neighboring_relation=config.event.neighboring_relation,
            config=config,
            gradient_sensitivity=sensitivity,
            gradient_noise_stddev=config.noise_multiplier * sensitivity,
            model=model,
            extractor=extractor,
            feature_names=feature_names,
            **stated_fields(plan, stated, _LIBRARIES),
            files=files,
        )
        return made.sealed(private=private, files=files)

    def to_plan(self) -> TrainingPlan:
        """Return the plan that the certificate states."""
        return TrainingPlan(
            config=self.config,
            epsilon=self.epsilon,
            delta=self.delta,
            unit_column=self.unit_column,
            max_records_per_unit=self.max_records_per_unit,
            accountants=self.accountants,
        )

    def recheck(self) -> list[str]:
        """Recompute everything that follows from the parameters; return what does not hold."""
        plan = self.to_plan()
        dues = [
            ModelCertificate.for_plan(
                plan,
                self.model,
                private=self.private,
                files=self.files,
                extractor=self.extractor,
                feature_names=self.feature_names,
                stated=stated,
            )
            for stated in statements(plan.event, plan.delta)
        ]
        reasons = disagreements(self, dues)
        sizes = {name: math.prod(shape) for name, shape in self.model.shapes.items()}
        if self.model.kind == "linear_head":
            classes, count = self.config.num_classes, sum(sizes.values())
            if sizes["intercept"] != classes or self.model.num_parameters != count:
                reasons.append("certificate: shapes and num_parameters of the head do not agree")
        elif self.model.num_parameters > sum(sizes.values()):
            reasons.append("certificate: more parameters than the tensors hold")
        reasons += self.not_private()
        if self.config.microbatch_size != 1 and self.private:
            reasons.append("certificate: microbatches are a baseline and never private")
        return reasons


def model_bytes(certificate: ModelCertificate, state: dict[str, NDArray[Any]]) -> bytes:
    """Return the model file: the tensors, and in its header what they are for."""
    tensors = {name: value.copy(order="C") for name, value in state.items()}
    return save(tensors, _metadata(certificate))


def _metadata(certificate: ModelCertificate) -> dict[str, str]:
    header = {"classes": certificate.config.classes, "kind": certificate.model.kind}
    return {_HEADER: json.dumps(header)}


def read_certificate(folder: str | Path) -> ModelCertificate:
    """Read a model folder's certificate; InvalidInputError if there is none."""
    return ModelCertificate.from_json(_certificate_bytes(ForeignFolder(folder)), position=FILE_NAME)


def _certificate_bytes(files: ForeignFolder) -> bytes:
    if not files.exists(FILE_NAME):
        _validate.fail(str(files.path), "a model folder", f"no {FILE_NAME}")
    return files.read(FILE_NAME, MOST_JSON_BYTES)


def read_state(folder: str | Path) -> dict[str, NDArray[Any]]:
    """Read the tensors of a model folder; never executes code from it."""
    return _read_state(ForeignFolder(folder))[0]


def _read_state(files: ForeignFolder) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    allowed, position = "a model file of privmix.dpsgd", files.position(MODEL_NAME)
    content = files.read(MODEL_NAME, default_memory() // 2)
    tensors, metadata = read_tensors(content, position, allowed)
    if _HEADER not in metadata:
        _validate.fail(position, allowed, "another one")
    return tensors, metadata


class _Kind(BaseModel):
    """The one field that tells certificates apart."""

    kind: str = ""


def is_model_folder(folder: str | Path) -> bool:
    """Whether a folder's certificate says that it is a model's."""
    try:
        content = ForeignFolder(folder).read(FILE_NAME, MOST_JSON_BYTES)
        return _Kind.model_validate_json(content).kind == "model"
    except ValueError:  # none that can be read, or another's
        return False


def verify_model(
    folder: str | Path,
    *,
    expect_digest: str | None = None,
    signers: str | Path | None = None,
    identity: str | None = None,
) -> Verification:
    """Check a model folder: files against their digests, the certificate against its parameters,
    the tensors against the certificate.

    Args:
        folder: The model folder.
        expect_digest: Digest of the certificate as printed at sealing.
        signers: As for :func:`privmix.verify`.
        identity: As there.

    Raises:
        InvalidInputError: ``folder`` holds no certificate.

    """
    vouched = partial(check_origin, expect_digest=expect_digest, signers=signers, identity=identity)
    return _verified(folder, vouched)


def verify_unsigned_model(folder: str | Path) -> Verification:
    """Check a model but for its signature: whatever has that name is to be replaced."""
    return _verified(folder, None)


def _verified(folder: str | Path, find_origin: OriginCheck | None) -> Verification:
    """Check a model; without ``find_origin`` a signature is not looked at."""
    files, digest = ForeignFolder(folder), ""
    if not files.exists(FILE_NAME):
        _validate.fail(str(folder), "a model folder", f"no {FILE_NAME}")
    try:
        raw = _certificate_bytes(files)
        digest = hashlib.sha256(raw).hexdigest()
        certificate = ModelCertificate.from_json(raw, position=FILE_NAME)
        reasons = _reasons(files, certificate, raw)
    except (InvalidInputError, ArithmeticError, ValueError, OSError, MemoryError) as error:
        reasons = [f"{FILE_NAME}: not a model's certificate of format 1: {error}"]
        return Verification(
            valid=False, epsilon=None, delta=None, digest=digest, reasons=told(reasons)
        )
    origin, strange = (None, []) if find_origin is None else find_origin(Path(folder), raw)
    reasons = strange + reasons
    reasons += [f"{name}: changed while it was checked" for name in files.changed()]
    return Verification.of(certificate, digest, reasons, origin)


def check_model_files(files: ForeignFolder, certificate: ModelCertificate) -> list[str]:
    """Compare the files of a model folder with their digests; a line for each that differs."""
    sizes = [math.prod(shape) for shape in certificate.model.shapes.values()]
    names = sum(len(name) + 256 for name in certificate.model.shapes)
    header = 4096 + names + 8 * len(json.dumps(certificate.config.classes))
    bounds = {
        MODEL_NAME: (sum(sizes), 8 * sum(sizes) + header),  # of bytes, or of doubles
        RESEARCH_NAME: (0, MOST_JSON_BYTES),
    }
    return check_listed(files, certificate.files, "model", bounds)


def _reasons(files: ForeignFolder, certificate: ModelCertificate, raw: bytes) -> list[str]:
    stated = certificate.files
    reasons = check_model_files(files, certificate)
    if set(stated) - {RESEARCH_NAME} != {MODEL_NAME}:
        reasons.append(f"certificate: files are not {MODEL_NAME} alone")
    if RESEARCH_NAME in stated and certificate.private:
        reasons.append(f"certificate: private is true beside {RESEARCH_NAME}")
    if raw != certificate.to_bytes():
        reasons.append(f"{FILE_NAME}: not written as privmix writes it")
    reasons += certificate.recheck()
    if not reasons:
        state, metadata = _read_state(files)
        shapes = {name: tuple(value.shape) for name, value in state.items()}
        if shapes != certificate.model.shapes:
            reasons.append(f"{MODEL_NAME}: other tensors than the certificate states")
        elif metadata != _metadata(certificate):
            reasons.append(f"{MODEL_NAME}: another header than the certificate implies")
        elif not all(np.isfinite(value).all() for value in state.values()):
            reasons.append(f"{MODEL_NAME}: a number is not finite")
    return reasons
