"""Time and memory of the fast linear head, against Opacus and against the backbone alone.

    python benchmarks/dpsgd.py [--json] [--repeats 9] [--records 1000] [--backbone-records 24]

Each number is the median over repeats that alternate between the sides:

- ratio_opacus, ratio_opacus_ghost: seconds of an optimisation step of Opacus on the same head over
  seconds of ours, with its GradSampleModule and with its ghost clipping. Features are at hand: 1,000
  records, K = 36 augmentations, 1,280 features, 100 classes; each sample in its own fresh process,
  first step of that process, on all threads. Opacus is given the (records, K, features) tensor, so that
  it keeps a gradient or a norm for each record and not for each augmentation, which is its quickest way.
  processor_ratio_opacus, processor_ratio_opacus_ghost: the same in processor time, for busy machines.
- memory_ratio_opacus, memory_ratio_opacus_ghost: growth of the peak resident memory over the step, ours
  over Opacus's, in the same processes. What both have in memory before the step (library and features)
  is not counted.
- ratio_inference: seconds of a whole training step (augment, backbone, head, noise) over seconds of
  the backbone alone on the same augmented images.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
import warnings

import numpy as np

from stamp import stamp

VIEWS, WIDTH, CLASSES, SIDE = 36, 1280, 100, 64


def features_at_hand(records: int):
    import torch

    random = torch.Generator().manual_seed(0)
    features = torch.randn((records, VIEWS, WIDTH), generator=random).relu_()
    labels = torch.randint(CLASSES, (records,), generator=random)
    targets = torch.eye(CLASSES)[labels][:, None].expand(-1, VIEWS, -1)
    weights = 0.02 * torch.randn((CLASSES, WIDTH + 1), generator=random)
    return features, targets, weights.double().numpy()


def our_step(features, targets, weights):
    """Exact clipped sum, exactly sampled noise, update."""
    from privmix.dpsgd.grid import HeadGrid
    from privmix.dpsgd.linear_head import clipped_head_sum
    from privmix.noise import rounded_gaussian
    from privmix.rng import MasterKey

    key = MasterKey.for_test(0, b"benchmark")
    grid = HeadGrid(1.0, VIEWS, weights.size)
    total = clipped_head_sum(features, targets, weights, grid).shifted(grid.shift)
    noise = rounded_gaussian(
        key.stream("noise"), key.stream("extra"), grid.published.sensitivity, total.size
    )
    total = total + noise.reshape(total.shape)
    return weights - 0.1 * total / (grid.published.scale * len(features))


def opacus_step(features, targets, weights):
    """Gradients of single records, clipped sum, noise, update."""
    import torch
    from opacus import GradSampleModule

    head = torch.nn.Linear(WIDTH, CLASSES)
    with torch.no_grad():
        head.weight.copy_(torch.as_tensor(weights[:, :-1]))
        head.bias.copy_(torch.as_tensor(weights[:, -1]))
    sampled = GradSampleModule(head, loss_reduction="sum")
    losses = -(targets * torch.log_softmax(sampled(features), dim=2)).sum(dim=2)
    losses.mean(dim=1).sum().backward()
    lengths = torch.stack(
        [p.grad_sample.flatten(1).norm(dim=1) for p in head.parameters()], dim=1
    ).norm(dim=1)
    shares = (1.0 / (lengths + 1e-6)).clamp(max=1.0)
    with torch.no_grad():
        for p in head.parameters():
            total = torch.einsum("i,i...->...", shares, p.grad_sample)
            p -= 0.1 * (total + torch.randn_like(total)) / len(features)
    return torch.cat([head.weight, head.bias[:, None]], dim=1).detach().numpy()


def opacus_ghost_step(features, targets, weights):
    """Norms of single records' gradients, a second pass for the clipped sum, noise, update."""
    import torch
    from opacus import GradSampleModuleFastGradientClipping
    from opacus.optimizers import DPOptimizerFastGradientClipping
    from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping

    class MeanOverViews(torch.nn.Module):
        reduction = "sum"

        def forward(self, scores, targets):
            return -(targets * torch.log_softmax(scores, dim=2)).sum(dim=2).mean(dim=1)

    head = torch.nn.Linear(WIDTH, CLASSES)
    with torch.no_grad():
        head.weight.copy_(torch.as_tensor(weights[:, :-1]))
        head.bias.copy_(torch.as_tensor(weights[:, -1]))
    sampled = GradSampleModuleFastGradientClipping(head, loss_reduction="sum", max_grad_norm=1.0)
    optimizer = DPOptimizerFastGradientClipping(
        torch.optim.SGD(head.parameters(), lr=0.1 / len(features)),
        noise_multiplier=1.0,
        max_grad_norm=1.0,
        expected_batch_size=len(features),
        loss_reduction="sum",
    )
    loss = DPLossFastGradientClipping(sampled, optimizer, MeanOverViews(), loss_reduction="sum")
    loss(sampled(features), targets).backward()
    optimizer.step()
    return torch.cat([head.weight, head.bias[:, None]], dim=1).detach().numpy()


STEPS = {"ours": our_step, "opacus": opacus_step, "opacus_ghost": opacus_ghost_step}


def one_cold_step(side: str, records: int) -> None:
    """In a process of its own: prepare, take one step, report its time and memory."""
    import opacus  # noqa: F401 - both sides import the same
    import torch

    import privmix.dpsgd  # noqa: F401

    # Thread pools and compiled kernels are up before the clock starts, on either side.
    STEPS[side](*features_at_hand(2))
    torch.mm(torch.ones(600, 600), torch.ones(600, 600))
    given = features_at_hand(records)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start, busy = time.perf_counter(), time.process_time()
    STEPS[side](*given)
    told = {"seconds": time.perf_counter() - start, "processor": time.process_time() - busy}
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({**told, "grown": after - before, "peak": after}))


def compare_with_opacus(records: int, repeats: int) -> dict[str, float]:
    found: dict[str, list[dict[str, float]]] = {side: [] for side in STEPS}
    for _ in range(repeats):
        for side in found:
            command = [sys.executable, "-W", "ignore", __file__, "--side", side]
            done = subprocess.run(
                [*command, "--records", str(records)], check=True, capture_output=True, text=True
            )
            found[side].append(json.loads(done.stdout.splitlines()[-1]))
    middle = {
        (side, name): statistics.median(sample[name] for sample in samples)
        for side, samples in found.items()
        for name in ("seconds", "grown", "peak")
    }
    told = {}
    for side in ("opacus", "opacus_ghost"):
        pairs = list(zip(found["ours"], found[side], strict=True))
        for name, kind in (("ratio", "seconds"), ("processor_ratio", "processor")):
            ratios = [theirs[kind] / ours[kind] for ours, theirs in pairs]
            told[f"{name}_{side}"] = statistics.median(ratios)
        told[f"memory_ratio_{side}"] = middle["ours", "grown"] / middle[side, "grown"]
    for side in STEPS:
        prefix = "" if side == "ours" else f"{side}_"
        told[f"{prefix}step_seconds"] = middle[side, "seconds"]
        told[f"{prefix}step_megabytes"] = middle[side, "grown"] / 1024
        told[f"{prefix}process_megabytes"] = middle[side, "peak"] / 1024
    return told


def make_backbone():
    """EfficientNet-Lite0 if it is installed; its weights do not change the time."""
    import torch

    try:
        from efficientnet_lite_pytorch import EfficientNet

        network = EfficientNet.from_name("efficientnet-lite0")
    except ImportError:
        return torch.nn.Sequential(
            torch.nn.Conv2d(3, 64, 3, 2, 1),
            torch.nn.ReLU(),
            torch.nn.Conv2d(64, WIDTH, 3, 4, 1),
            torch.nn.ReLU(),
            torch.nn.AdaptiveAvgPool2d(1),
            torch.nn.Flatten(),
        )

    class Features(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.network = network

        def forward(self, inputs):
            return self.network.extract_features(inputs).mean(dim=(2, 3))

    return Features()


def compare_with_inference(records: int, repeats: int) -> dict[str, float]:
    import torch

    from privmix.dpsgd import AugmentationPlan, LinearHead, TrainingConfig
    from privmix.dpsgd.private_views import PrivateViews
    from privmix.dpsgd.trainer import Steps
    from privmix.dpsgd.training_records import as_samples, check_records
    from privmix.rng import MasterKey

    generator = np.random.default_rng(0)
    shape = (3, SIDE, SIDE)
    images = generator.integers(256, size=(records + 8, *shape)).astype(np.uint8)
    labels = np.arange(records + 8) % CLASSES
    config = TrainingConfig(
        classes=range(CLASSES),
        input_shape=shape,
        num_records=records,
        batch_size=records,
        num_steps=10 * repeats,
        noise_multiplier=1.0,
        augmentation=AugmentationPlan.dp_mix_diff(),
    )
    head = LinearHead(make_backbone())
    key = MasterKey.for_test(0, b"benchmark")
    private = check_records(images[:records], labels[:records], config)
    public = as_samples(check_records(images[records:], labels[records:], config), CLASSES, "cpu")
    views = PrivateViews(private, config, key, public, "cpu")
    parameters = head.initial_parameters(config)
    source = head.bind(views, parameters.size)
    steps = Steps(config, private, source, key)
    batches = [views.of(record, views.generator(record, 0)).inputs for record in range(records)]

    def inference(size: int) -> float:
        """Seconds for all augmented images, in batches of ``size`` records' views."""
        whole = [torch.cat(batches[i : i + size]) for i in range(0, records, size)]
        start = time.perf_counter()
        for batch in whole:
            head.features(batch)
        return time.perf_counter() - start

    def training(step: int) -> float:
        start = time.perf_counter()
        steps.gradient(step, parameters)
        return time.perf_counter() - start

    training(0), inference(1), inference(4)
    samples = []
    for repeat in range(repeats):
        # Larger batches are no faster on every machine: the quicker way counts.
        alone = min(inference(1), inference(4))
        samples.append((training(repeat + 1), alone))
    return {
        "ratio_inference": statistics.median(step / alone for step, alone in samples),
        "training_step_seconds": statistics.median(step for step, _ in samples),
        "inference_seconds": statistics.median(alone for _, alone in samples),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--records", type=int, default=1000)
    parser.add_argument("--backbone-records", type=int, default=24)
    parser.add_argument("--side", choices=tuple(STEPS), help=argparse.SUPPRESS)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.side:
        one_cold_step(options.side, options.records)
        return
    found = compare_with_opacus(options.records, options.repeats)
    found |= compare_with_inference(options.backbone_records, options.repeats)
    if options.json:
        print(json.dumps({**stamp(), **found}, indent=2))
    else:
        for name, value in found.items():
            print(f"{name:28s}{value:12.3f}")


if __name__ == "__main__":
    main()
