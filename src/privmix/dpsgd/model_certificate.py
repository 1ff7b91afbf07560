"""The model folder: certificate, weights; write, read, verify.

A folder holds ``certificate.json`` and ``model.safetensors``. As with a release, an edit that is
consistent throughout cannot be told from the original without the digest printed at sealing, or a
signature.
"""

from __future__ import annotations

import hashlib
import json
import math
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import model_validator
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from privmix import _validate
from privmix._validate import FrozenModel, InvalidInputError
from privmix.accounting import Event, Reading
from privmix.accounting.events import NeighboringRelation
from privmix.accounting.guarantee import FALSE_ALARMS, Guarantee
from privmix.accounting.stated import Statement, TradeoffCurve, statements
from privmix.dpsgd.grid import HeadGrid, SumGrid, network_grid
from privmix.dpsgd.training_plan import TrainingConfig, TrainingPlan
from privmix.inputs.extractor import ExtractorIdentity
from privmix.publishing.certificate import FILE_NAME, disagreements
from privmix.publishing.folder import file_digests
from privmix.publishing.signature import check_origin
from privmix.publishing.verification import Verification

MODEL_NAME = "model.safetensors"
RESEARCH_NAME = "research.json"
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
        if self.kind == "linear_head" and set(self.shapes) != {"coef", "intercept"}:
            _validate.fail("shapes", "coef and intercept for a linear head", list(self.shapes))
        return self


class ModelCertificate(FrozenModel):
    """What a training did and what it guarantees; public, JSON in and out.

    Attributes:
        kind: ``model``, which tells it from the certificate of a release.
        private: False for a model trained with a test seed or for research, which protects nobody.
        statement: The guarantee in words, or that there is none.
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

    _seldom: ClassVar[tuple[str, ...]] = ("extractor", "feature_names")

    kind: Literal["model"] = "model"
    format_version: Literal[1] = 1
    private: bool
    statement: str
    privacy_unit: Literal["record"] = "record"
    neighboring_relation: NeighboringRelation
    epsilon: float
    delta: float
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
        if not set(self.library_versions) <= {*_LIBRARIES, "python"}:
            _validate.fail("library_versions", "versions of known libraries", "others")
        names, width = self.feature_names, math.prod(self.config.input_shape)
        if names is not None and not len(names) == len(set(names)) == width:
            _validate.fail("feature_names", f"{width} distinct names", len(names))
        return self

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
    ) -> ModelCertificate:
        """Certify a plan and a model, accounting anew."""
        stated, *_ = statements(plan.config.event, plan.delta)
        return cls._state(
            plan,
            stated,
            model,
            private=private,
            files=files,
            extractor=extractor,
            feature_names=feature_names,
        )

    @classmethod
    def _state(
        cls,
        plan: TrainingPlan,
        stated: Statement,
        model: ModelFacts,
        *,
        private: bool,
        files: dict[str, str],
        extractor: ExtractorIdentity | None,
        feature_names: tuple[str, ...] | None,
    ) -> ModelCertificate:
        config = plan.config
        sensitivity = model.grid(config).unit_sensitivity
        made = cls(
            private=private,
            statement="",
            neighboring_relation=config.event.neighboring_relation,
            epsilon=stated.epsilon,
            delta=plan.delta,
            config=config,
            event=config.event,
            accountants=stated.accountants,
            epsilon_by_delta=stated.epsilon_by_delta,
            tradeoff_curve=stated.tradeoff_curve,
            gradient_sensitivity=sensitivity,
            gradient_noise_stddev=config.noise_multiplier * sensitivity,
            model=model,
            extractor=extractor,
            feature_names=feature_names,
            library_versions={name: version(name) for name in _LIBRARIES}
            | {"python": platform.python_version()},
            files=files,
        )
        return made.sealed(private=private, files=files)

    def sealed(self, *, private: bool, files: dict[str, str]) -> ModelCertificate:
        """Return the certificate of these files; its words follow from ``private``."""
        changed = self.model_copy(update={"private": private, "files": files})
        return changed.model_copy(update={"statement": changed.guarantee.statement})

    @property
    def guarantee(self) -> Guarantee:
        """What is guaranteed, in words."""
        return Guarantee.of(
            self.epsilon,
            self.delta,
            self.neighboring_relation,
            num_records=self.config.num_records,
            private=self.private,
            what="model",
            true_positive_rate=self.tradeoff_curve.true_positive_rate(FALSE_ALARMS),
        )

    def to_plan(self) -> TrainingPlan:
        """Return the plan that the certificate states."""
        return TrainingPlan(
            config=self.config,
            epsilon=self.epsilon,
            delta=self.delta,
            accountants=self.accountants,
        )

    def to_bytes(self) -> bytes:
        """Return the certificate as the bytes of its file."""
        return (self.model_dump_json(indent=2) + "\n").encode()

    def digest(self) -> str:
        """Return the SHA-256 of the certificate's file: 64 hexadecimal digits."""
        return hashlib.sha256(self.to_bytes()).hexdigest()

    def recheck(self) -> list[str]:
        """Recompute everything that follows from the parameters; return what does not hold."""
        plan = self.to_plan()
        dues = [
            ModelCertificate._state(
                plan,
                stated,
                self.model,
                private=self.private,
                files=self.files,
                extractor=self.extractor,
                feature_names=self.feature_names,
            )
            for stated in statements(plan.config.event, plan.delta)
        ]
        reasons = disagreements(self, dues)
        sizes = {name: math.prod(shape) for name, shape in self.model.shapes.items()}
        if self.model.kind == "linear_head":
            classes, count = self.config.num_classes, sum(sizes.values())
            if sizes["intercept"] != classes or self.model.num_parameters != count:
                reasons.append("certificate: shapes and num_parameters of the head do not agree")
        elif self.model.num_parameters > sum(sizes.values()):
            reasons.append("certificate: more parameters than the tensors hold")
        if not self.private:
            reasons.append(f"certificate: private is false: {self.guarantee.statement}")
        if self.config.microbatch_size != 1 and self.private:
            reasons.append("certificate: microbatches are a baseline and never private")
        return reasons


def model_bytes(certificate: ModelCertificate, state: dict[str, NDArray[Any]]) -> bytes:
    """Return the model file: the tensors, and in its header what they are for."""
    header = {"classes": certificate.config.classes, "kind": certificate.model.kind}
    tensors = {name: value.copy(order="C") for name, value in state.items()}
    return save(tensors, {_HEADER: json.dumps(header)})


def read_certificate(folder: str | Path) -> ModelCertificate:
    """Read a model folder's certificate; InvalidInputError if there is none."""
    path = Path(folder) / FILE_NAME
    if not path.is_file():
        _validate.fail(str(folder), "a model folder", f"no {FILE_NAME}")
    return ModelCertificate.from_json(path.read_bytes(), place=FILE_NAME)


def read_state(folder: str | Path) -> dict[str, NDArray[Any]]:
    """Read the tensors of a model folder; never executes code from it."""
    path = Path(folder) / MODEL_NAME
    try:
        with safe_open(str(path), framework="numpy") as file:
            if _HEADER not in (file.metadata() or {}):
                _validate.fail(str(path), "a model file of privmix.dpsgd", "another one")
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, TypeError) as error:  # TypeError: bfloat16, for one
        _validate.fail(str(path), "a model file of privmix.dpsgd", str(error).splitlines()[0])


def is_model_folder(folder: str | Path) -> bool:
    """Whether a folder's certificate says that it is a model's."""
    path = Path(folder) / FILE_NAME
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(found, dict) and found.get("kind") == "model"


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
    path = Path(folder) / FILE_NAME
    if not path.is_file():
        _validate.fail(str(folder), "a model folder", f"no {FILE_NAME}")
    raw = path.read_bytes()
    digest = hashlib.sha256(raw).hexdigest()
    try:
        certificate = ModelCertificate.from_json(raw, place=FILE_NAME)
        reasons = _reasons(Path(folder), certificate, raw)
    except (InvalidInputError, ArithmeticError, ValueError, OSError, MemoryError) as error:
        reason = f"{FILE_NAME}: not a model's certificate of format 1: {error}"
        return Verification(valid=False, epsilon=None, delta=None, digest=digest, reasons=(reason,))
    origin, strange = check_origin(
        Path(folder), raw, expect_digest=expect_digest, signers=signers, identity=identity
    )
    reasons = strange + reasons
    return Verification(
        valid=not reasons,
        epsilon=certificate.epsilon,
        delta=certificate.delta,
        digest=digest,
        reasons=tuple(reasons),
        guarantee=None if reasons else certificate.guarantee,
        origin=None if reasons else origin,
    )


def _reasons(folder: Path, certificate: ModelCertificate, raw: bytes) -> list[str]:
    found, stated = file_digests(folder), certificate.files
    reasons = [f"{name}: missing" for name in sorted(stated.keys() - found.keys())]
    reasons += [f"{name}: not part of the model" for name in sorted(found.keys() - stated.keys())]
    reasons += [
        f"{name}: changed since the model was sealed"
        for name in sorted(stated.keys() & found.keys())
        if stated[name] != found[name]
    ]
    if set(stated) - {RESEARCH_NAME} != {MODEL_NAME}:
        reasons.append(f"certificate: files are not {MODEL_NAME} alone")
    if RESEARCH_NAME in stated and certificate.private:
        reasons.append(f"certificate: private is true beside {RESEARCH_NAME}")
    if raw != certificate.to_bytes():
        reasons.append(f"{FILE_NAME}: not written as privmix writes it")
    reasons += certificate.recheck()
    if not reasons:
        state = read_state(folder)
        shapes = {name: tuple(value.shape) for name, value in state.items()}
        if shapes != certificate.model.shapes:
            reasons.append(f"{MODEL_NAME}: other tensors than the certificate states")
        elif not all(np.isfinite(value).all() for value in state.values()):
            reasons.append(f"{MODEL_NAME}: a number is not finite")
    return reasons
