"""Models of either kind from where they were written: by ``train`` or by ``fit``."""

from __future__ import annotations

from pathlib import Path

from privmix import _validate
from privmix.dpsgd.head import LinearHead
from privmix.dpsgd.model_certificate import check_model_files, is_model_folder, read_certificate
from privmix.dpsgd.trainer import TrainedModel
from privmix.foreign.files import ForeignFolder
from privmix.learners.model_file import Learner
from privmix.learners.model_file import load_model as load_file


def load_model(path: str | Path, *, device: str = "cpu") -> Learner | TrainedModel:
    """Open a model file of ``privmix train``, or a model folder of ``privmix fit``; no code is run.

    Both kinds have ``predict``, ``predict_proba`` and ``score``.

    Args:
        path: The file or the folder.
        device: Where a model of ``fit`` computes.

    Raises:
        InvalidInputError: Neither; a folder that was changed since it was sealed; or a model of
            ``fit`` on a backbone or of images, which its folder does not hold: give the network to
            ``dpsgd.TrainedModel``.

    """
    path = Path(path)
    if not is_model_folder(path):
        return load_file(path)
    certificate = read_certificate(path)
    if changed := check_model_files(ForeignFolder(path), certificate):
        _validate.fail(str(path), "a model as it was sealed; see privmix verify", changed[0])
    head = LinearHead(None, device=device)
    if (facts := certificate.model).architecture != head.architecture or facts.kind != head.kind:
        allowed = "a model of features; score one of images in Python, by dpsgd.TrainedModel"
        _validate.fail(str(path), allowed, f"a {facts.kind} of {facts.architecture}")
    return TrainedModel(path, head)
