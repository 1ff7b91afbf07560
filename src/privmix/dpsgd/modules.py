"""What is asked of modules: that a record's result is a function of that record and of public weights."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from privmix import _validate
from privmix._validate import InvalidInputError
from privmix.dpsgd.training_plan import TrainingConfig

if TYPE_CHECKING:
    from torch import Tensor, nn


class Buffers:
    """A module's buffers as they are now, to be put back whatever a call has written into them.

    So nothing of a record is there for the next call, or for the model file. What a module keeps
    elsewhere is for :func:`check_memoryless` to find.
    """

    def __init__(self, module: nn.Module | None) -> None:
        parts = [] if module is None else module.modules()
        self._kept = [
            (part._buffers, name, tensor, None if tensor is None else tensor.detach().clone())
            for part in parts
            for name, tensor in part._buffers.items()
        ]

    def restore(self) -> None:
        """Put them back."""
        import torch

        with torch.no_grad():
            for holder, name, tensor, values in self._kept:
                holder[name] = tensor
                if tensor is None or values is None:
                    continue
                if tensor.is_inference():  # a trial run left it, and it cannot be written to
                    holder[name] = values.clone()
                else:
                    tensor.copy_(values)


def require_module(position: str, module: Any) -> None:
    """Refuse what is no module of torch."""
    from torch import nn

    if not isinstance(module, nn.Module):
        _validate.fail(position, "a torch.nn.Module", type(module).__name__)


@contextmanager
def failures_refused(position: str, allowed: str) -> Iterator[None]:
    """Turn what goes wrong in a module's own code, in a trial with public inputs, into a refusal."""
    try:
        yield
    except InvalidInputError:
        raise
    except (RuntimeError, ValueError, TypeError, AttributeError, LookupError) as error:
        reason = (str(error).splitlines() or [""])[0]
        _validate.fail(position, allowed, f"{type(error).__name__}: {reason}")


def check_module(module: nn.Module) -> None:
    """Refuse modules that mix records: batch normalisation, in training its statistics are shared."""
    from torch import nn

    require_module("module", module)
    for name, part in module.named_modules():
        if isinstance(part, nn.modules.batchnorm._BatchNorm):
            position = f"module.{name}" if name else "module"
            allowed = "no batch normalisation, which mixes records; use group normalisation"
            _validate.fail(position, allowed, type(part).__name__)
    if not any(p.requires_grad for p in module.parameters()):
        _validate.fail("module", "at least one parameter to train", "none")


def check_device(device: Any) -> None:
    """Refuse a device without 64-bit numbers, which exact sums need."""
    import torch

    try:
        torch.zeros(1, dtype=torch.float64, device=device).cpu()
    except (RuntimeError, NotImplementedError, TypeError, AssertionError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        _validate.fail("device", "an available device with 64-bit numbers", f"{device}: {reason}")


def check_memoryless(
    position: str,
    module: nn.Module,
    use: Callable[[Tensor], Tensor],
    config: TrainingConfig,
    device: Any,
) -> None:
    """Refuse modules that keep something of what they see, or that draw at random.

    Statistics that a module gathers would carry one record into another's gradient, and without
    noise into the model file; random draws would let a repeated step come out otherwise.
    """
    import torch

    random = torch.Generator().manual_seed(0)
    shape = (config.augmentation.num_augmentations, *config.input_shape)
    one = torch.rand(shape, generator=random).to(device)
    buffers, before, first = Buffers(module), module_digest(module), use(one)
    if first.dtype not in (torch.float32, torch.float64):
        _validate.fail(position, "one that computes in single or double precision", first.dtype)
    due = first.cpu().numpy().tobytes()  # at once: it may be a tensor that the next call writes to
    # A largest value seen, for example, stays the same for small inputs: hence large ones, too.
    for scale in (1.0, 1e3, 1e6):
        use(scale * torch.randn(shape, generator=random).to(device))
    again, after = use(one).cpu().numpy().tobytes(), module_digest(module)
    buffers.restore()
    if after != before:
        allowed = "one that keeps nothing of its inputs, such as running statistics"
        _validate.fail(position, allowed, f"{type(module).__name__}, whose buffers change")
    if again != due:
        allowed = "one that gives the same for the same input, whatever it saw before"
        _validate.fail(position, allowed, f"{type(module).__name__}, which does not")


def module_digest(module: nn.Module | None) -> bytes:
    """Return a SHA-256 of a module's weights and their names."""
    hasher = hashlib.sha256(b"privmix module 1")
    if module is not None:
        hasher.update(type(module).__name__.encode())
        for name, tensor in module.state_dict().items():
            values = tensor.detach().cpu().contiguous().numpy()
            hasher.update(f"{name} {values.dtype.str} {values.shape}".encode())
            hasher.update(values.tobytes())
    return hasher.digest()


@contextmanager
def deterministic(device: Any) -> Iterator[None]:
    """Let torch use repeatable kernels only; those used on a processor are."""
    import torch

    if "cuda" not in str(device):
        yield
        return
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # as cuBLAS asks for it
    before = torch.are_deterministic_algorithms_enabled()
    benchmark = torch.backends.cudnn.benchmark
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)
        torch.backends.cudnn.benchmark = benchmark


def environment(device: Any) -> str:
    """Describe what floating-point results depend on besides their inputs."""
    import torch

    capability = torch.backends.cpu.get_cpu_capability()
    card = torch.cuda.get_device_name(device) if "cuda" in str(device) else "none"
    return f"{torch.__version__} {torch.get_num_threads()} {capability} {device} {card}"
