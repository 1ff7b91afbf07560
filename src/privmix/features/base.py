"""What extractors share: scikit-learn's methods, fixed batches, digests, loading of libraries."""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import FrozenInstanceError, fields
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin

from privmix import _validate
from privmix.inputs.extractor import ExtractorIdentity, InputKind, Progress
from privmix.inputs.raw.frames import by_position, is_frame
from privmix.running.resources import torch_pool


class WrongRecord(_validate.InvalidInputError):
    """A record of another kind or shape than the extractor takes."""

    def __init__(self, record: Any, expected: str, got: object) -> None:
        super().__init__("record", expected, got)
        self.record = record


class BaseExtractor(TransformerMixin, BaseEstimator, ABC):  # type: ignore[misc]
    """A frozen extractor; subclasses are frozen dataclasses of their public parameters."""

    name: ClassVar[str]
    kind: ClassVar[InputKind]

    @property
    @abstractmethod
    def num_features(self) -> int:
        """Width of a feature vector."""

    @cached_property
    @abstractmethod
    def identity(self) -> ExtractorIdentity:
        """Name, parameters and digest, for the certificate."""

    @property
    def norm_bound(self) -> float | None:
        """The largest L2 norm that a vector can have, where that is publicly known."""
        return None

    @abstractmethod
    def _features(self, records: Sequence[Any]) -> NDArray[np.float32]:
        """Return the features of a few records, none of them None; may raise WrongRecord."""

    def __setattr__(self, name: str, value: Any) -> None:
        """Refuse to change a parameter: features and identity follow from them.

        Attributes of scikit-learn's own, which it sets on the steps of a pipeline, are allowed.
        """
        if name in self.__dict__ and name in {field.name for field in fields(self)}:
            raise FrozenInstanceError(f"cannot assign to field {name!r}")
        super().__setattr__(name, value)

    def fit(self, records: Any = None, labels: Any = None) -> BaseExtractor:
        """Do nothing: an extractor learns nothing from the records."""
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def transform(
        self, records: Sequence[Any], progress: Progress | None = None
    ) -> NDArray[np.float32]:
        """Return the features of records.

        Args:
            records: Vectors, images, texts or rows, by ``kind``. None stands for a bad record, and
                becomes a zero vector.
            progress: Called with (records done, records in all).

        Returns:
            (count, num_features) float32.

        Raises:
            InvalidInputError: A record of another kind or shape; its position is named.

        """
        records = by_position(records)
        if isinstance(records, str | bytes) or is_frame(records):
            _validate.fail("records", f"a sequence of {self.kind}s", type(records).__name__)
        features = np.zeros((len(records), self.num_features), dtype=np.float32)
        for start in range(0, len(records), _STEP):
            chunk = list(records[start : start + _STEP])
            there = [i for i, record in enumerate(chunk) if record is not None]
            if there:
                try:
                    found = self._features([chunk[i] for i in there])
                except WrongRecord as problem:
                    rows = [i for i in there if chunk[i] is problem.record]
                    position = f"records[{start + rows[0]}]" if rows else "records"
                    _validate.fail(position, problem.expected, problem.got)
                features[[start + i for i in there]] = found
            if progress is not None:
                progress(start + len(chunk), len(records))
        return features


_STEP = 256


class BatchExtractor(BaseExtractor):
    """An extractor that runs a torch function on batches of one fixed shape.

    Kernels may round a record's features by its position in a batch, so positions are compared first, on
    made-up records: where two of them differ by a bit, every batch holds one record.
    """

    device: str | None
    batch_size: ClassVar[int]

    @abstractmethod
    def _prepare(self, record: Any) -> Any:
        """Turn one record, by itself, into a float32 tensor of a fixed shape."""

    @abstractmethod
    def _forward(self, batch: Any) -> Any:
        """Map a (batch, ...) tensor on the device to (batch, num_features)."""

    @property
    @abstractmethod
    def _input_shape(self) -> tuple[int, ...]:
        """Shape of a prepared record."""

    def torch_features(self, batch: Any) -> Any:
        """Map a (count, ...) tensor of prepared records to (count, num_features), with gradients.

        For attacks, and not for a release: a record's bits may depend on its position in the batch.
        """
        return self._forward(batch.contiguous())

    @cached_property
    def _trial_width(self) -> int:
        """Width of the features of a made-up record, which must come out the same twice.

        It also loads the network, once for all threads.
        """
        torch = load("torch", "torch")
        record = torch.randn((1, *self._input_shape), generator=torch.Generator().manual_seed(1))
        allowed = "a model that makes one vector of an image, the same each time"
        try:
            first, second = self._run(record), self._run(record)
        except _validate.InvalidInputError:
            raise
        except Exception as error:  # a model's own code on what it is not made for
            reason = (str(error).strip().splitlines() or [""])[0]
            _validate.fail(f"extractor {self.name}", allowed, f"{type(error).__name__}: {reason}")
        if first.ndim != 2 or len(first) != 1:
            _validate.fail(f"extractor {self.name}", allowed, f"shape {tuple(first.shape)}")
        if not torch.equal(first, second):
            _validate.fail(f"extractor {self.name}", allowed, "other numbers at the second time")
        return int(first.shape[1])

    @cached_property
    def _agreed_batch_size(self) -> int:
        torch = load("torch", "torch")
        generator = torch.Generator().manual_seed(0)

        def made_up(count: int) -> Any:
            return torch.randn((count, *self._input_shape), generator=generator)

        if self._trial_width != self.num_features:
            allowed = f"a model with vectors of {self.num_features} numbers, as it states"
            _validate.fail(f"extractor {self.name}", allowed, self._trial_width)
        probe, others = made_up(1)[0], made_up(self.batch_size)
        same = all(positions_agree(self._run_all, probe, beside) for beside in (others, 0 * others))
        return self.batch_size if same else 1

    def _features(self, records: Sequence[Any]) -> NDArray[np.float32]:
        torch = load("torch", "torch")
        size = self._agreed_batch_size

        def run(chunk: Sequence[Any]) -> NDArray[np.float32]:
            batch = torch.zeros((size, *self._input_shape))
            for index, record in enumerate(chunk):
                batch[index] = self._prepare(record)
            found: NDArray[np.float32] = self._on_device(batch)[: len(chunk)].numpy()
            return found

        chunks = [records[start : start + size] for start in range(0, len(records), size)]
        return np.concatenate(run_batches(run, chunks, choose_device(self.device)))

    def _run(self, batch: Any) -> Any:
        return self._run_all([batch])[0]

    def _run_all(self, batches: Sequence[Any]) -> list[Any]:
        return run_batches(self._on_device, batches, choose_device(self.device))

    def _on_device(self, batch: Any) -> Any:
        return self._forward(batch.to(choose_device(self.device))).cpu()


def run_batches(run: Callable[[Any], Any], batches: Sequence[Any], device: str) -> list[Any]:
    """Return ``run`` of each batch, without gradients and repeatably.

    On a CPU in one thread of its own: the order of additions does not depend on how many there are.
    Batches run one after another, since a network may keep something of its input while it runs.
    """
    torch = load("torch", "torch")

    def infer(batch: Any) -> Any:
        with torch.inference_mode():  # which holds for the thread that enters it
            return run(batch)

    if torch.device(device).type != "cpu":
        with repeatable():
            return [infer(batch) for batch in batches]
    with repeatable(), torch_pool(1) as pool:
        return list(pool.map(infer, batches))


def positions_agree(run: Callable[[list[Any]], list[Any]], probe: Any, companions: Any) -> bool:
    """Whether ``run`` gives ``probe`` the same bits at every position of a batch, whatever is beside it.

    The order of a kernel's additions follows from shapes and positions, not from values, so that one
    probe at every position shows a difference: at all positions at once, and at every second one.

    Args:
        run: Maps batches to their results.
        probe: A record.
        companions: Other records, as many as a batch holds.

    """
    torch = load("torch", "torch")
    positions = torch.arange(len(companions))
    chosen = [positions >= 0, positions % 2 == 0, positions % 2 == 1]
    batches = []
    for mask in chosen:
        batch = companions.clone()
        batch[mask] = probe
        batches.append(batch)
    found = torch.cat([out[mask] for out, mask in zip(run(batches), chosen, strict=True)])
    return bool((found == found[0]).all())


@contextmanager
def repeatable() -> Iterator[None]:
    """Run torch with deterministic algorithms in full precision; no two threads may enter this."""
    torch = load("torch", "torch")
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # as cuBLAS asks for it
    before = torch.are_deterministic_algorithms_enabled()
    warned_only = torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        with torch.backends.cudnn.flags(
            enabled=True, benchmark=False, deterministic=True, allow_tf32=False
        ):
            yield
    finally:
        torch.use_deterministic_algorithms(before, warn_only=warned_only)


def choose_device(device: str | None) -> str:
    """Return the device to run on: a GPU where there is one, unless another is asked for."""
    if device is not None:
        torch = load("torch", "torch")
        try:
            return str(torch.device(device))
        except (RuntimeError, TypeError) as error:
            _validate.fail("device", "cpu, cuda, cuda:0 or the like", str(error).splitlines()[0])
    return "cuda" if load("torch", "torch").cuda.is_available() else "cpu"


def load(module: str, extra: str) -> Any:
    """Import a library of an extra, or say how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        name = module.partition(".")[0]
        remedy = f"pip install 'privmix[{extra}]'" if extra else f"pip install {name}"
        _validate.fail(f"library {name}", f"one that is installed: {remedy}", str(error))


@contextmanager
def quiet() -> Iterator[None]:
    """Keep transformers from writing progress bars and remarks to standard error."""
    logging = load("transformers", "vision").utils.logging
    verbosity, shown = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if shown:
            logging.enable_progress_bar()


_LOCAL_ONLY: ContextVar[bool] = ContextVar("local_only", default=False)


@contextmanager
def local_only() -> Iterator[None]:
    """Let models be loaded from this machine alone: no hub hears of what is asked for."""
    before = _LOCAL_ONLY.set(True)
    try:
        yield
    finally:
        _LOCAL_ONLY.reset(before)


def is_local_only() -> bool:
    """Whether models are looked for on this machine alone."""
    return _LOCAL_ONLY.get()


def refuse_download(model: str) -> None:
    """Refuse a model whose library may fetch it, where that is not asked for."""
    if is_local_only():
        allowed = "a model of this machine, or --allow-download to fetch what a certificate names"
        _validate.fail(f"model {model}", allowed, "one that is fetched by its name")


def download_remedy() -> str:
    """Return what an error about a model that is not there adds."""
    return "; --allow-download fetches one that is not on this machine" if is_local_only() else ""


def public_model(model: str) -> dict[str, str | int | float | bool]:
    """Return the parameter that names a model, or nothing where it may be a path.

    A path tells of the machine that it lies on, and certificates are public. Names of hubs have at
    most one slash; ``ARCHITECTURE/WEIGHTS`` and ``hf-hub:OWNER/NAME`` are names.
    """
    bare = model.removeprefix("hf-hub:").removeprefix("hf_hub:")
    parts = [bare, *bare.split("/", 1)]
    named = re.fullmatch(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?(@[\w.-]+)?", bare)
    if named is None or any(Path(part).exists() for part in parts if part):
        return {}
    return {"model": model}


def make_identity(
    name: str,
    parameters: dict[str, str | int | float | bool],
    weights: str = "",
    *,
    libraries: Sequence[str] = (),
    **behaviour: Any,
) -> ExtractorIdentity:
    """Make an identity whose digest covers the name, the parameters, the weights and ``behaviour``.

    ``behaviour`` is what else decides the features. A parameter ``model`` only says where weights
    are found, so it is left out: the same weights under another name are the same extractor. Of
    ``libraries``, distributions that run it, the versions are told beside it.
    """
    covered = {k: v for k, v in parameters.items() if k != "model"}
    content = json.dumps([name, covered, weights, behaviour], sort_keys=True, allow_nan=False)
    digest = hashlib.sha256(content.encode()).hexdigest()
    versions = {library: version(library) for library in ("privmix", *libraries)}
    return ExtractorIdentity(name=name, parameters=parameters, digest=digest, versions=versions)


def weights_digest(network: Any, unused: Collection[str] = ()) -> str:
    """Return the SHA-256 over a torch module's parameters and buffers, by name."""
    hasher = hashlib.sha256(b"privmix weights 1")
    for name, tensor in sorted(network.state_dict().items()):
        if name in unused:
            continue
        array = tensor.detach().cpu().contiguous().numpy()
        hasher.update(f"{name} {array.dtype.str} {array.shape}".encode())
        hasher.update(array.data if array.size else b"")
    return hasher.hexdigest()
