"""Neural networks trained on rows of pixels, with PyTorch (extra ``torch``)."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from privmix import _validate
from privmix.learners.base import (
    Matrix,
    ReleaseLike,
    ReleaseModel,
    ReleaseOrFolder,
    Scored,
    as_release,
    refuse_numbers,
)
from privmix.learners.moments import RowMoments
from privmix.learners.softmax import DISTRIBUTIONS, Progress, Rows, training_rows
from privmix.theory.spectrum import signal_variances

if TYPE_CHECKING:
    import torch

_DENOISERS = ("none", "posterior", "gaussian")
_LOSSES = ("kl", "cross-entropy")
_PREDICT_BATCH = 1024

ImageShape = tuple[int, int, int]


def require_torch() -> Any:
    """Import PyTorch, or say which extra installs it."""
    try:
        import torch
    except ModuleNotFoundError:
        _validate.fail(
            "learner network", "an environment with PyTorch: pip install 'privmix[torch]'", "none"
        )
    return torch


def dpmix_network(image_shape: ImageShape, num_outputs: int) -> torch.nn.Module:
    """Build the convolutional network of DPMix (Lee et al. 2019, appendix C).

    Convolution 5x5 to 32 maps, max-pooling 2x2, convolution 5x5 to 48 maps, max-pooling 2x2, and
    fully connected layers of 100, 100 and ``num_outputs`` units; padding 2 and ReLU after all
    but the last (DPFMix, Table 5). The papers state 357,690 parameters: that is the count for
    (1, 32, 32) and ten outputs. For (3, 32, 32) the same layers have 359,290.

    Args:
        image_shape: (channels, height, width), height and width at least 4.
        num_outputs: Number of classes.

    Raises:
        InvalidInputError: PyTorch is not installed, or a shape out of range.

    """
    nn = require_torch().nn
    channels, height, width = _checked_shape(image_shape)
    return nn.Sequential(  # type: ignore[no-any-return]
        *(nn.Conv2d(channels, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(32, 48, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
        *(nn.Linear(48 * (height // 4) * (width // 4), 100), nn.ReLU()),
        *(nn.Linear(100, 100), nn.ReLU(), nn.Linear(100, num_outputs)),
    )


def _checked_shape(image_shape: Sequence[int] | None) -> ImageShape:
    allowed = "(channels, height, width), height and width at least 4"
    if not isinstance(image_shape, Sequence) or len(image_shape) != 3:
        _validate.fail("image_shape", allowed, repr(image_shape))
    least = (1, 4, 4)
    sizes = [
        _validate.integer("image_shape", size, at_least=low)
        for size, low in zip(image_shape, least, strict=True)
    ]
    return sizes[0], sizes[1], sizes[2]


def _check_device(device: object) -> None:
    """Refuse a device that PyTorch does not know, or that is not here."""
    torch = require_torch()
    allowed = "a device that PyTorch has here, such as cpu or cuda"
    if not isinstance(device, str | torch.device):
        _validate.fail("device", allowed, repr(device))
    try:
        torch.zeros(1, device=device).cpu()
    except (RuntimeError, AssertionError, NotImplementedError, ImportError):  # by the device's kind
        _validate.fail("device", allowed, repr(str(device)))


class TorchNetworkClassifier(Scored, ClassifierMixin, ReleaseModel):  # type: ignore[misc]
    """A network trained on the rows by the generalised KL divergence, as the papers do.

    The loss and its schedule are those of ``KLSoftmaxClassifier``. All rows are held in float32,
    and batches are drawn from them. The same seed gives the same network on the same machine and
    number of threads. Records to classify pass through as they are, clipped to the clip norm.

    **Noisy rows of many records.** What tells such rows apart is small beside their mean, and label weights
    have noise above them: a network on them as they are may stay at chance. ``standardize`` takes
    the rows' mean off and brings what is left to variance one, for rows and for records to classify.
    ``loss="cross-entropy"`` takes label weights as they are, below 0 too, so that their noise
    averages out; the divergence clips them to 0, which is a bias. Both use published rows alone.

    **Denoising.** ``posterior`` replaces a row by its Gaussian posterior mean,
    mean + C (C + v I)^-1 (row - mean), where v is the known noise variance and C the covariance of
    the rows less v, its eigenvalues corrected by random-matrix theory; d x d matrices are held.
    ``gaussian`` smooths each channel with a Gaussian of standard deviation one pixel (DPMix, section
    IV: "Gaussian denoising filters of unit variance").

    Args:
        module: Any ``torch.nn.Module`` that maps a batch to (count, K) logits; it is copied, and
            trained from the weights it has. None: ``dpmix_network``.
        image_shape: (channels, height, width) that a batch's features are shaped to, channels
            first. None: batches of shape (count, d), and a module is required.
        epochs: Passes over the rows.
        batch_size: Rows of a step.
        learning_rate: Adam's initial step size.
        decay_epochs: Epochs after which the step size is multiplied by ``decay_factor``. DPMix halves
            every ten: ``decay_epochs=range(10, 50, 10), decay_factor=0.5``.
        decay_factor: A tenth by default; above 0, at most 1.
        loss: ``kl``, or ``cross-entropy``: -sum(y log q) with the label weights y as published.
        standardize: Whether features are centred and scaled by the rows' mean and spread.
        validation_share: Share of the rows, below 1, that are set aside; the weights of the epoch are
            kept whose logits correlate most with their label weights. (The loss on noisy rows rises
            with the logits' scale, long before accuracy falls.) 0: the weights of the last epoch.
        denoise: ``none``, ``posterior`` or ``gaussian``.
        device: Where PyTorch trains: ``cpu``, ``cuda``.
        seed: Of initial weights and the order of rows; it protects nothing.
        progress: Called with (epoch, epochs, mean loss) after each epoch.

    Attributes:
        module_: The trained module.
        classes_: (K,) classes, in the release's order.
        center_, scale_: (d,) and a number: the module sees (x - center_) * scale_. 0 and 1 unless
            ``standardize``.
        validation_scores_: By which the epoch was chosen, one an epoch; empty if it was the last.

    And those of ``ReleaseModel``.

    """

    module_: torch.nn.Module
    classes_: NDArray[Any]
    center_: Rows
    scale_: np.float32
    validation_scores_: list[float]

    def __init__(
        self,
        module: torch.nn.Module | None = None,
        *,
        image_shape: Sequence[int] | None = None,
        epochs: int = 200,
        batch_size: int = 256,
        learning_rate: float = 1e-3,
        decay_epochs: Sequence[int] = (80, 120, 160),
        decay_factor: float = 0.1,
        loss: str = "kl",
        standardize: bool = False,
        validation_share: float = 0.0,
        denoise: str = "none",
        device: str = "cpu",
        seed: int = 0,
        progress: Progress | None = None,
    ) -> None:
        self.module = module
        self.image_shape = image_shape
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.decay_epochs = decay_epochs
        self.decay_factor = decay_factor
        self.loss = loss
        self.standardize = standardize
        self.validation_share = validation_share
        self.denoise = denoise
        self.device = device
        self.seed = seed
        self.progress = progress

    def fit(
        self,
        release: ReleaseOrFolder,
        public_validation: tuple[ArrayLike, ArrayLike] | None = None,
    ) -> Self:
        """Learn from a release.

        Args:
            release: A release, or its folder, of any design but ``signed`` and ``hybrid``, whose
                rows have no label distribution.
            public_validation: Labelled public records, (count, d) features and (count,) classes: the
                weights of the epoch of best accuracy on them are kept, as DPMix does. Never records of
                people whom the release protects, in its rows or not: nothing bounds what the choice
                says about them.

        Returns:
            self

        Raises:
            InvalidInputError: Another design, records for validation of another shape or class, or beside
                a validation_share; PyTorch is not installed, a parameter out of range, or an image
                shape or a module that does not fit the features or the classes.

        """
        torch = require_torch()
        release = as_release(release)
        refuse_numbers(release)
        _validate.one_of("release.design", release.design, DISTRIBUTIONS)
        self._check_parameters()
        if public_validation is not None and self.validation_share:
            _validate.fail("validation_share", "0 beside public_validation", self.validation_share)
        shape = self._input_shape(release)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            module = self._new_module(shape, release.num_classes).to(self.device)
            features, targets = training_rows(release, clip=self.loss == "kl")
            features = denoised(features, release, self.denoise, self.image_shape)
            self.center_ = np.zeros(features.shape[1], np.float32)
            self.scale_ = np.float32(1.0)
            if self.standardize:
                self.center_, self.scale_ = _center_and_scale(features)
                features = (features - self.center_) * self.scale_
            _check_outputs(module, torch.from_numpy(features[:1]).reshape(-1, *shape), release)
            self.classes_ = np.array(release.classes)
            self._remember(release)
            held = self._checked_validation(public_validation)
            features = features.reshape(-1, *shape)
            self._train(module, features, targets, held)
        if not np.isfinite(self._outputs(module, features[:_PREDICT_BATCH])).all():
            allowed = "one at which logits stay finite"
            _validate.fail("learning_rate", allowed, self.learning_rate)
        self.module_ = module.cpu().eval()
        return self

    def _check_parameters(self) -> None:
        """Refuse, before anything is trained, what no training can use."""
        torch = require_torch()
        _validate.one_of("denoise", self.denoise, _DENOISERS)
        _validate.one_of("loss", self.loss, _LOSSES)
        _validate.integer("epochs", self.epochs)
        _validate.integer("batch_size", self.batch_size)
        _validate.integer("seed", self.seed, at_least=0)
        _validate.real("learning_rate", self.learning_rate, above=0.0)
        _validate.real("decay_factor", self.decay_factor, above=0.0, at_most=1.0)
        _validate.real("validation_share", self.validation_share, at_least=0.0, below=1.0)
        epochs: object = self.decay_epochs
        if isinstance(epochs, str) or not isinstance(epochs, Sequence | np.ndarray):
            allowed = "a sequence of epochs, such as (80, 120)"
            _validate.fail("decay_epochs", allowed, repr(epochs)[:80])
        for epoch in epochs:
            _validate.integer("decay_epochs", epoch, at_least=0)
        module, progress, flag = self.module, self.progress, self.standardize
        kinds: tuple[tuple[str, str, object, bool], ...] = (
            ("module", "a torch.nn.Module or None", module, isinstance(module, torch.nn.Module)),
            ("progress", "a function or None", progress, callable(progress)),
            ("standardize", "True or False", flag, isinstance(flag, bool | np.bool_)),
        )
        for name, allowed, given, fits in kinds:
            if not fits and (given is not None or name == "standardize"):
                _validate.fail(name, allowed, type(given).__name__)
        _check_device(self.device)

    def _checked_validation(self, given: Any) -> tuple[Rows, Rows] | None:
        """Return records as the module sees them, and their one-hot labels."""
        if given is None:
            return None
        if not isinstance(given, tuple) or len(given) != 2:
            allowed = "a pair of features and classes"
            _validate.fail("public_validation", allowed, type(given).__name__)
        labels, records = np.asarray(given[1]), self._inputs(given[0])
        if labels.shape != (len(records),) or not len(records):
            allowed = f"({len(records)},) classes, one for each record, and at least one"
            _validate.fail("public_validation", allowed, labels.shape)
        unknown = labels[~np.isin(labels, self.classes_)]
        if len(unknown):
            _validate.fail("public_validation", "classes of the release", unknown[0])
        return records, (labels[:, None] == self.classes_).astype(np.float32)

    def _input_shape(self, release: ReleaseLike) -> tuple[int, ...]:
        if self.image_shape is None:
            if self.module is None:
                _validate.fail("image_shape", "(channels, height, width) without a module", "None")
            return (release.num_features,)
        shape = _checked_shape(self.image_shape)
        if int(np.prod(shape)) != release.num_features:
            _validate.fail("image_shape", f"a shape of {release.num_features} numbers", shape)
        return shape

    def _new_module(self, shape: tuple[int, ...], num_classes: int) -> torch.nn.Module:
        if self.module is None:
            return dpmix_network((shape[0], shape[1], shape[2]), num_classes)
        return copy.deepcopy(self.module)

    def _train(
        self,
        module: torch.nn.Module,
        features: Rows,
        targets: Rows,
        records: tuple[Rows, Rows] | None,
    ) -> None:
        torch = require_torch()
        x, y = torch.from_numpy(features), torch.from_numpy(targets)
        held, order = self._set_aside(len(x))
        loss_of = _kl_loss if self.loss == "kl" else _cross_entropy
        optimizer = torch.optim.Adam(module.parameters(), lr=self.learning_rate)
        schedule = torch.optim.lr_scheduler.MultiStepLR(
            optimizer, list(self.decay_epochs), self.decay_factor
        )
        self.validation_scores_, best = [], None
        for epoch in range(self.epochs):
            total = 0.0
            module.train()
            for batch in order[torch.randperm(len(order))].split(self.batch_size):
                loss = loss_of(torch, module(x[batch].to(self.device)), y[batch].to(self.device))
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                total += float(loss.detach()) * len(batch)
            schedule.step()
            if records is not None:
                found = self._outputs(module, records[0]).argmax(axis=1)
                score = float((found == records[1].argmax(axis=1)).mean())
                self.validation_scores_.append(score)
            elif len(held):
                score = _correlation(self._outputs(module, features[held]), targets[held])
                self.validation_scores_.append(score)
            if self.validation_scores_ and score == max(self.validation_scores_):
                best = copy.deepcopy(module.state_dict())
            if self.progress is not None:
                self.progress(epoch + 1, self.epochs, total / len(order))
        if best is not None:
            module.load_state_dict(best)

    def _set_aside(self, num_rows: int) -> tuple[NDArray[np.int64], Any]:
        """Return the indices of rows for validation, and a tensor of those of rows to train on."""
        torch = require_torch()
        count = int(self.validation_share * num_rows)
        if self.validation_share and not count:
            allowed = f"0, or at least one of {num_rows} rows"
            _validate.fail("validation_share", allowed, self.validation_share)
        shuffled = torch.randperm(num_rows) if count else torch.arange(num_rows)
        return shuffled[:count].numpy(), shuffled[count:]

    def _outputs(self, module: torch.nn.Module, inputs: Rows) -> Rows:
        """Return (count, K) logits of what a module sees."""
        torch = require_torch()
        module.eval()
        parts = torch.from_numpy(inputs).split(_PREDICT_BATCH)
        with torch.no_grad():
            return np.concatenate([module(part.to(self.device)).cpu().numpy() for part in parts])

    def _inputs(self, features: ArrayLike) -> Rows:
        """Return records as the module sees them."""
        records = (self._records(features).astype(np.float32) - self.center_) * self.scale_
        if self.image_shape is None:
            return records
        return records.reshape(-1, *tuple(self.image_shape))

    def decision_function(self, features: ArrayLike) -> Matrix:
        """Return logits of records; shape and errors as of ``LinearClassifier``."""
        logits = self._logits(features)
        two = logits.shape[1] == 2 and self.target_ != "multilabel"
        return logits[:, 1] - logits[:, 0] if two else logits

    def _logits(self, features: ArrayLike) -> Matrix:
        check_is_fitted(self, "module_")
        inputs = self._inputs(features)
        torch = require_torch()
        parts = torch.from_numpy(inputs).split(_PREDICT_BATCH)
        with torch.no_grad():
            logits = [self.module_(part).numpy() for part in parts]
        return np.concatenate(logits).astype(np.float64)

    def predict(self, features: ArrayLike) -> NDArray[Any]:
        """Return the (count,) classes of highest logit; arguments as ``decision_function``.

        Raises:
            InvalidInputError: Several labels a record, which a network ranks by ``predict_proba``.

        """
        if self.target_ == "multilabel":
            allowed = "classes: of several labels a network knows their order alone (predict_proba)"
            _validate.fail("release.target", allowed, self.target_)
        return np.asarray(self.classes_[self._logits(features).argmax(axis=1)])

    def predict_proba(self, features: ArrayLike) -> Matrix:
        """Return (count, K) probabilities: the softmax of the logits, which nothing calibrates."""
        from scipy.special import softmax

        return np.asarray(softmax(self._logits(features), axis=1))


def _check_outputs(module: torch.nn.Module, example: torch.Tensor, release: ReleaseLike) -> None:
    """Run a module once, so that a wrong one is refused before it is trained."""
    torch = require_torch()
    try:
        with torch.no_grad():
            device = next(module.parameters()).device
            found = tuple(module.eval()(example.to(device)).shape)
    except (RuntimeError, ValueError) as error:
        _validate.fail(
            "module", f"one that takes {tuple(example.shape)}", str(error).split("\n")[0]
        )
    if found != (1, release.num_classes):
        _validate.fail("module", f"one that returns (count, {release.num_classes})", found)


def _kl_loss(torch: Any, logits: Any, targets: Any) -> Any:
    """Generalised KL divergence sum(p log(p/q) - p + q), averaged over rows."""
    log_q = torch.log_softmax(logits, dim=1)
    entropy = torch.special.xlogy(targets, targets)
    return ((entropy - targets * log_q - targets).sum(dim=1) + 1).mean()


def _cross_entropy(torch: Any, logits: Any, targets: Any) -> Any:
    """-sum(p log q), averaged over rows: linear in p, so that noise of mean 0 adds no bias."""
    return -(targets * torch.log_softmax(logits, dim=1)).sum(dim=1).mean()


def _correlation(logits: Rows, targets: Rows) -> float:
    """Return the correlation of logits and label weights, each less its row and column means."""
    first, second = (
        part - part.mean(axis=0) - part.mean(axis=1, keepdims=True) + part.mean()
        for part in (logits.astype(np.float64), targets.astype(np.float64))
    )
    size = float(np.linalg.norm(first) * np.linalg.norm(second))
    return float((first * second).sum()) / max(size, float(np.finfo(float).tiny))


def _center_and_scale(features: Rows) -> tuple[Rows, np.float32]:
    """Return the mean row and one over the spread about it.

    One scale for all coordinates, so that their noise stays alike.
    """
    center = features.mean(axis=0, dtype=np.float64).astype(np.float32)
    spread = math.sqrt(float(((features - center) ** 2).mean(dtype=np.float64)))
    return center, np.float32(1.0 / max(spread, float(np.finfo(np.float32).tiny)))


def denoised(
    features: Rows, release: ReleaseLike, how: str, image_shape: Sequence[int] | None
) -> Rows:
    """Denoise (T, d) rows as ``TorchNetworkClassifier`` says; ``none`` returns them as they are."""
    if how == "posterior":
        return _posterior_means(features, release)
    if how == "gaussian":
        from scipy.ndimage import gaussian_filter

        images = features.reshape(-1, *_checked_shape(image_shape))
        smooth = gaussian_filter(images, sigma=(0, 0, 1, 1), mode="nearest")
        return np.ascontiguousarray(smooth.reshape(features.shape))
    return features


def _posterior_means(features: Rows, release: ReleaseLike) -> Rows:
    moments = RowMoments.zero(features.shape[1], 0)
    for start in range(0, len(features), 4096):
        part = features[start : start + 4096].astype(np.float64)
        moments.include(part, np.empty((len(part), 0)))
    mean = moments.features / moments.count
    covariance = moments.gram / moments.count - np.outer(mean, mean)
    noise = release.feature_noise_stddev**2
    eigenvalues, basis = np.linalg.eigh(covariance)
    signal = signal_variances(eigenvalues, noise, moments.count)
    gain = signal / np.maximum(signal + noise, np.finfo(float).tiny)
    keep = ((basis * gain) @ basis.T).astype(np.float32)
    center = mean.astype(np.float32)
    return np.asarray(center + (features - center) @ keep, dtype=np.float32)
