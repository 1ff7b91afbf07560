"""Train a model under a plan: sample, sum, add noise, move; resume; seal."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from safetensors.numpy import load, save
from scipy.special import softmax

from privmix import _validate
from privmix._validate import printable
from privmix.dpsgd.augmentation import check_augmentation
from privmix.dpsgd.gradients import GradientSource
from privmix.dpsgd.head import LinearHead
from privmix.dpsgd.model_certificate import (
    MODEL_NAME,
    RESEARCH_NAME,
    ModelCertificate,
    ModelFacts,
    model_bytes,
    read_certificate,
    read_state,
)
from privmix.dpsgd.modules import deterministic, environment
from privmix.dpsgd.network import Network
from privmix.dpsgd.private_views import PrivateViews
from privmix.dpsgd.research import GradientHistograms
from privmix.dpsgd.training_plan import TrainingConfig, TrainingPlan
from privmix.dpsgd.training_records import (
    TrainingRecords,
    as_samples,
    as_tensor,
    check_inputs,
    check_records,
    require,
)
from privmix.features.applying import apply_extractor
from privmix.inputs.extractor import ExtractorIdentity
from privmix.inputs.feature_names import check_names, names_of
from privmix.inputs.labels import refuse_missing
from privmix.noise import noise_stddev, rounded_gaussian
from privmix.planning.recheck import recheck
from privmix.publishing.folder import seal_folder
from privmix.publishing.sealing import set_file_times
from privmix.records.bounded import Progress
from privmix.rng import MasterKey
from privmix.running.durable import write_durably
from privmix.running.finished import check_sealed, read_checked, warn_of_damage, write_checked
from privmix.running.journal import Journal, RunFolder, RunTerms, check_out, make_once
from privmix.running.ledger import ledger_charge
from privmix.running.unrecorded import unrecorded
from privmix.sampling import bernoulli_inclusions
from privmix.schema import Target

_STATE_NAME = "state.safetensors"
_CHECKPOINT_SECONDS = 30.0


class TrainedModel:
    """A model out of a private training, with its certificate.

    Args:
        folder: The model folder.
        model: The backbone or network that it was trained on.

    """

    def __init__(self, folder: str | Path, model: LinearHead | Network) -> None:
        self.folder, self.model = Path(folder), model
        self.certificate = read_certificate(folder)
        self.state = read_state(folder)
        facts = self.certificate.model
        if facts.kind != model.kind or facts.architecture != model.architecture:
            allowed = f"a {facts.kind} of {facts.architecture}"
            _validate.fail("model", allowed, f"a {model.kind} of {model.architecture}")
        if isinstance(model, LinearHead) and model.digest().hex() != facts.public_digest:
            _validate.fail("model", "the backbone that the head was trained on", "other weights")

    def __repr__(self) -> str:
        return f"TrainedModel({str(self.folder)!r}, {self.certificate.statement})"

    @property
    def classes(self) -> tuple[int, ...] | tuple[str, ...]:
        """The classes, in the order of the scores."""
        return self.certificate.config.classes

    @property
    def classes_(self) -> NDArray[Any]:
        """The classes as an array, by scikit-learn's name."""
        return np.asarray(self.classes)

    @property
    def target_(self) -> Target:
        """What labels are: classes, or weights of them. Learners of releases have this, and the next two, as well."""
        return self.certificate.config.target

    @property
    def extractor_(self) -> ExtractorIdentity | None:
        """Identity of the feature extractor, or None."""
        return self.certificate.extractor

    @property
    def private_(self) -> bool:
        """Whether the training protects anybody."""
        return self.certificate.private

    def scores(self, inputs: ArrayLike, *, batch_size: int = 32) -> NDArray[np.float64]:
        """Return scores of shape (count, num_classes): logarithms of probabilities, unnormalised."""
        inputs = apply_extractor(inputs, self.certificate.extractor)
        due = self.certificate.feature_names
        check_names("inputs", names_of(inputs), due, "the model's certificate")
        array = check_inputs(inputs, self.certificate.config.input_shape, "inputs")
        parts = _scores_in_batches(self.model, array, self.state, batch_size)
        return np.asarray(np.concatenate(list(parts)))

    def predict(self, inputs: ArrayLike, *, batch_size: int = 32) -> NDArray[Any]:
        """Return the likeliest class of each input."""
        best = self.scores(inputs, batch_size=batch_size).argmax(axis=1)
        return np.asarray(self.classes_[best])

    def predict_proba(self, inputs: ArrayLike, *, batch_size: int = 32) -> NDArray[np.float64]:
        """Return class probabilities, (count, num_classes); nothing calibrates them."""
        return np.asarray(softmax(self.scores(inputs, batch_size=batch_size), axis=1))

    def score(self, inputs: ArrayLike, labels: ArrayLike) -> float:
        """Return the accuracy on (count,) labels out of the classes."""
        refuse_missing(labels)
        return float(np.mean(self.predict(inputs) == np.asarray(labels)))


def fit(
    inputs: ArrayLike,
    labels: ArrayLike,
    plan: TrainingPlan,
    *,
    model: LinearHead | Network,
    out: str | Path,
    synthetic: tuple[ArrayLike, ArrayLike] | None = None,
    resume: bool = False,
    ledger: str | Path | None = None,
    dataset_id: str | None = None,
    who: str | None = None,
    units: ArrayLike | None = None,
    research: bool = False,
    test_seed: int | None = None,
    extractor: ExtractorIdentity | None = None,
    feature_names: Sequence[str] | None = None,
    progress: Progress | None = None,
    watch: Callable[[int, float], object] | None = None,
) -> TrainedModel:
    """Train a model on private records under a plan. Spends the plan's budget.

    Args:
        inputs: (count, *input_shape): bytes, which stand for 0 to 1, or finite real numbers.
            ``count`` need not be ``num_records``.
        labels: (count,) values out of the plan's classes; (count, num_classes) weights, each record's
            adding up to 1, for a plan with the target ``soft``.
        plan: What :func:`plan_training` returned.
        model: A linear head on a public backbone, or a network with public weights.
        out: Model folder; must not exist, or be empty. It appears whole or not at all.
        synthetic: Public inputs and labels, for ``num_synthetic`` above 0.
        resume: Go on with a training into ``out`` that was cut off: same plan, records, model and
            machine, same bits, no second charge.
        ledger: Ledger file to charge before anything is drawn. Without one, a second training or
            release in a process warns with what all of them cost together.
        dataset_id: The data set's name in the ledger.
        who: Who trains, for the ledger: free text; the login name by default.
        units: (count,) integers or strings, the owner of each record, for a plan with a
            ``unit_column``; a sample of at most ``max_records_per_unit`` of each takes part.
        research: Keep histograms of gradients before clipping, uncharged functions of private
            records: the model is stamped ``private: false``, and ``verify`` rejects it.
        test_seed: For tests only: a repeatable model that is **not private**.
        extractor: What made the inputs, for the certificate, where they are features.
        feature_names: Public names of the features, for the certificate. A frame must have them
            as columns, in this order; its own names are not published without.
        progress: Called with (steps done, steps in all).
        watch: Called with (steps done, L2 norm of the step's published gradient). That is a function
            of noisy numbers alone, which the guarantee covers. A training that goes on tells of the
            steps that are left.

    Returns:
        The trained model.

    Raises:
        InvalidInputError: Bad input, or a budget that does not suffice; nothing has been drawn or
            written.

    """
    target = check_out(out)
    public = check_training(plan, model, synthetic=synthetic, research=research)
    config = plan.config
    names = None if feature_names is None else tuple(feature_names)
    check_names("inputs", names_of(inputs), names, "feature_names")
    plan.unit.check_given(units is not None)
    records = check_records(inputs, labels, config, units=units)
    parameters = model.initial_parameters(config)
    facts = _facts(model, config, parameters)
    certificate = ModelCertificate.for_plan(
        plan, facts, private=True, files={}, extractor=extractor, feature_names=names
    )
    charge = ledger_charge(
        ledger,
        dataset_id,
        plan.event,
        name=printable(out),
        kind="model",
        private=not research and test_seed is None,
        who=who,
    )
    context = hashlib.sha256(
        plan.digest()
        + records.digest()
        + bytes.fromhex(facts.public_digest)
        + (b"" if public is None else public.digest())
        + f"{environment(model.device)} {facts.model_dump_json()} {research}".encode()
        + f" {getattr(model, 'records_per_call', 1)}".encode()
        + (b"" if extractor is None else extractor.content())
        + (parameters.tobytes() if getattr(model, "initial", None) is not None else b"")
    ).digest()

    made_here = False

    def make(run: RunFolder, journal: Journal) -> str:
        nonlocal made_here
        key, device = journal.key, model.device
        own = records
        if plan.max_records_per_unit is not None:
            own = records.sampled(key.stream("units"), plan.max_records_per_unit)
        samples = None if public is None else as_samples(public, config.num_classes, device)
        histograms = GradientHistograms(config) if research else None
        with deterministic(device):
            views = PrivateViews(own, config, key, samples, device)
            source = model.bind(views, len(parameters))
            steps = Steps(config, own, source, key)
            trained = _train(steps, parameters, run.folder, histograms, progress, watch)
        stamped = certificate.sealed(private=journal.private, files={})
        digest = _seal(run.release_folder, stamped, model.state(config, trained), histograms)
        made_here = True
        return digest

    def finish(run: RunFolder) -> None:
        sealed = read_certificate(run.release_folder)
        if sealed.sealed(private=True, files={}) != certificate:
            _validate.fail(f"resuming {out}", "the plan it was begun with", "another")
        if not made_here:  # the key is gone, so that nothing can be made again
            check_sealed(run, sealed.files)

    begun = Journal(context=context.hex(), private=not research)
    # A run that goes on was counted when it began, in this process or in another one.
    silent = charge is not None or research or test_seed is not None or resume
    what = "privmix.dpsgd.fit"
    with nullcontext() if silent else unrecorded(plan.event, plan.delta, what):
        make_once(RunTerms(target, resume, charge, test_seed), begun, make, finish)
    return TrainedModel(target, model)


def check_training(
    plan: TrainingPlan,
    model: LinearHead | Network,
    *,
    synthetic: tuple[ArrayLike, ArrayLike] | None = None,
    research: bool = False,
) -> TrainingRecords | None:
    """Refuse what :func:`fit` would refuse of its public arguments; return the synthetic records."""
    config = plan.config
    recheck(plan.event, plan.epsilon, plan.delta, plan.accountants)
    with deterministic(model.device):
        model.check(config)
    if {"jitter", "blur", "sobel"} & set(config.augmentation.all_transforms):
        require("kornia")
    if config.microbatch_size != 1 and not research:
        allowed = "1, unless for research: pairs of records are formed by their order"
        _validate.fail("microbatch_size", allowed, config.microbatch_size)
    public = None
    if synthetic is not None:
        public = check_records(*synthetic, config, position="synthetic", target="class")
    config.augmentation.check_input(config.input_shape, 0 if public is None else public.count)
    with deterministic(model.device):
        check_augmentation(config.augmentation, config.input_shape, model.device)
    return public


class Steps:
    """Noisy gradients, step by step, under one master key.

    The same key, plan, records and parameters give the same bits.
    """

    def __init__(
        self,
        config: TrainingConfig,
        records: TrainingRecords,
        source: GradientSource,
        key: MasterKey,
    ) -> None:
        records.check_sampled()
        self.config, self.source, self._key = config, source, key
        self._num_microbatches = math.ceil(records.count / config.microbatch_size)

    def sample(self, step: int) -> NDArray[np.int32]:
        """Draw who takes part in a step: each independently, exactly with ``sampling_prob``."""
        return bernoulli_inclusions(
            self._key.stream("sample", block=step),
            self._key.stream("sample-extra", block=step),
            self.config.sampling_prob,
            1,
            self._num_microbatches,
        ).records

    def noiseless_sum(self, step: int, parameters: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the exact integer sum of a step: private."""
        return self.source.clipped_sum(self.sample(step), step, parameters)

    def gradient(self, step: int, parameters: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the published gradient of a step: a function of noisy integers alone."""
        if not 0 <= step < self.config.num_steps:
            raise RuntimeError("the budget is spent after num_steps steps")
        grid, config = self.source.grid, self.config
        total = self.noiseless_sum(step, parameters)
        total = total + rounded_gaussian(
            self._key.stream("noise", block=step),
            self._key.stream("noise-extra", block=step),
            noise_stddev(config.noise_multiplier, grid.sensitivity),
            total.size,
        )
        return np.asarray(total / (grid.scale * config.batch_size / config.microbatch_size))


def _train(
    steps: Steps,
    parameters: NDArray[np.float64],
    folder: Path,
    histograms: GradientHistograms | None,
    progress: Progress | None,
    watch: Callable[[int, float], object] | None,
) -> NDArray[np.float64]:
    """Run all steps, from the last checkpoint on if there is one."""
    config = steps.config
    checkpoint = folder / _STATE_NAME
    velocity, start = np.zeros_like(parameters), 0
    content = read_checked(checkpoint)
    if content is None and checkpoint.exists():
        warn_of_damage(_STATE_NAME)
    if content is not None:
        saved = load(content)
        parameters, velocity, start = saved["parameters"], saved["velocity"], int(saved["step"][0])
    due = monotonic() + _CHECKPOINT_SECONDS
    for step in range(start, config.num_steps):
        if histograms is not None:
            histograms.add(steps.source, steps.sample(step), step, parameters)
        gradient = steps.gradient(step, parameters)
        velocity = config.momentum * velocity + gradient
        parameters = parameters - config.learning_rate * velocity
        if progress is not None:
            progress(step + 1, config.num_steps)
        if watch is not None:
            watch(step + 1, float(np.linalg.norm(gradient)))
        if monotonic() > due:
            tensors = {
                "parameters": parameters,
                "velocity": velocity,
                "step": np.array([step + 1]),
            }
            write_checked(checkpoint, save(tensors))
            due = monotonic() + _CHECKPOINT_SECONDS
    return parameters


def _facts(
    model: LinearHead | Network, config: TrainingConfig, parameters: NDArray[np.float64]
) -> ModelFacts:
    shapes = {n: tuple(v.shape) for n, v in model.state(config, parameters).items()}
    return ModelFacts(
        kind=model.kind,
        architecture=model.architecture,
        public_digest=model.digest().hex(),
        num_parameters=parameters.size,
        feature_cache=getattr(model, "feature_cache", "none"),
        shapes=shapes,
    )


def _seal(
    folder: Path,
    certificate: ModelCertificate,
    state: dict[str, NDArray[Any]],
    histograms: GradientHistograms | None,
) -> str:
    """Write the model and then its certificate, which makes the folder a model; return its digest."""
    contents = {MODEL_NAME: model_bytes(certificate, state)}
    if histograms is not None:
        text = json.dumps(histograms.to_dict(), indent=2, allow_nan=False)
        contents[RESEARCH_NAME] = text.encode()
    for name, content in contents.items():
        write_durably(folder / name, content)
    due = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
    digest = seal_folder(folder, certificate, due.get)
    set_file_times(folder)
    return digest


def _scores_in_batches(
    model: LinearHead | Network, inputs: NDArray[Any], state: dict[str, NDArray[Any]], size: int
) -> Iterator[NDArray[np.float64]]:
    """Yield scores of ``size`` inputs at a time."""
    for start in range(0, len(inputs), size):
        yield model.scores(as_tensor(inputs[start : start + size], model.device), state)
