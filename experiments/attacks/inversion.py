"""Model inversion of mixed scattering features: pictures from published rows.

    PRIVMIX_DATA=... python experiments/attacks/inversion.py --quick --out inversion
    PRIVMIX_DATA=... python experiments/attacks/inversion.py --dataset cifar10 --out inversion-cifar10

The attack of DPFMix, appendix G, and NeuroMixGDP, appendix K: regularised maximum likelihood with total
variation, against rows of m records without noise and with the noise of a release of the whole training
set at epsilon 8 and 1. Writes ``NAME.json`` and a grid of pictures, ``NAME.png``: in each block first
the originals, then the recovered picture nearest to each without noise, at epsilon 8 and at epsilon 1.

``similarity`` is the structural similarity of originals and the recovered pictures nearest to them,
``error`` the root of their mean squared difference; ``chance`` are the same numbers for as many
pictures that were not in the rows. Mix sizes that are in the file are not computed again.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

import privmix
from privmix import attacks
from privmix.features.scattering import ScatteringExtractor

DELTA = 1e-5
SETTINGS = ("noiseless", "epsilon 8", "epsilon 1")
ENLARGED = 2
SHOWN = 16  # pictures of a line, at most


def load(name: str, folder: Path, count: int, seed: int) -> tuple[NDArray[np.float32], int]:
    """Return (count, channels, side, side) pictures in [0, 1], drawn at random, and how many there are."""
    random = np.random.default_rng(seed)
    if name == "mnist":
        with np.load(folder / "mnist.npz") as file:
            images = file["x_train"][:, None]
        chosen = images[random.permutation(len(images))[:count]]
        return chosen.astype(np.float32) / 255, len(images)
    import pyarrow.parquet as pq

    column = pq.read_table(folder / "cifar10-train.parquet", columns=["img"])["img"]
    places = random.permutation(len(column))[:count]
    found = [np.asarray(Image.open(io.BytesIO(column[int(i)].as_py()["bytes"]))) for i in places]
    return np.stack(found).transpose(0, 3, 1, 2).astype(np.float32) / 255, len(column)


def noise_stddev(setting: str, mix_size: int, num_records: int, num_features: int) -> float:
    """Return the noise of a published feature in the papers' setting: as many rows as records."""
    if setting == "noiseless":
        return 0.0
    schema = privmix.Schema(
        classes=range(10),
        num_features=num_features,
        num_records=num_records,
        feature_clip_norm=1.0,
    )
    plan = privmix.plan_release(
        schema,
        target_epsilon=float(setting.split()[1]),
        target_delta=DELTA,
        design="poisson",
        mix_size=mix_size,
        num_mixtures=num_records,
        label_balance=1.0,
        preprocessing=(),
    )
    return float(plan.mechanism.published_stddev(1.0, "feature"))


def invert(
    pictures: NDArray[np.float32],
    strangers: NDArray[np.float32],
    extractor: ScatteringExtractor,
    mix_size: int,
    stddevs: list[float],
    steps: int,
    seed: int,
) -> list[tuple[dict[str, Any], NDArray[np.float32]]]:
    """Attack the same rows behind several noises, together, which is faster than one by one.

    Returns, for each noise, numbers and the recovered picture nearest to each original.
    """
    with torch.no_grad():
        features = extractor.torch_features(torch.from_numpy(pictures)).numpy()
    means = features.reshape(-1, mix_size, features.shape[1]).mean(axis=1)
    random = np.random.default_rng(seed)
    rows = [means + stddev * random.standard_normal(means.shape) for stddev in stddevs]
    recovered = attacks.invert_rows(
        np.concatenate(rows), extractor, images_per_row=mix_size, steps=steps, seed=seed
    )
    parts = recovered.reshape(len(stddevs), len(means), *recovered.shape[1:])
    return [
        compare(pictures, strangers, part, {"noise_stddev": stddev, "rows": len(means)})
        for stddev, part in zip(stddevs, parts, strict=True)
    ]


def compare(
    pictures: NDArray[np.float32],
    strangers: NDArray[np.float32],
    recovered: NDArray[np.float32],
    told: dict[str, Any],
) -> tuple[dict[str, Any], NDArray[np.float32]]:
    """Add to what is told of rows how near their recovered pictures are to originals and to others."""
    mix_size, nearest = recovered.shape[1], np.empty_like(pictures)
    for name, group in (("originals", pictures), ("chance", strangers)):
        found = []
        for row, made in enumerate(recovered):
            place = slice(row * mix_size, (row + 1) * mix_size)
            found.append(attacks.nearest_pictures(group[place], made))
            if name == "originals":
                nearest[place] = made[found[-1].nearest]
        similarity = np.concatenate([one.similarity for one in found])
        error = np.concatenate([one.error for one in found])
        told[name] = {
            "similarity": [float(similarity.mean()), float(similarity.std())],
            "error": [float(error.mean()), float(error.std())],
        }
    return told, nearest


def grid(blocks: list[list[NDArray[np.float32]]], gap: int = 4) -> Image.Image:
    """Lay out blocks of lines of pictures on white, the first ones of each line."""
    lines = [line[:SHOWN] for block in blocks for line in block]
    side, channels = lines[0].shape[-1], lines[0].shape[1]
    height = len(lines) * side + (len(blocks) - 1) * gap
    canvas = np.ones((height, max(map(len, lines)) * side, channels))
    top = 0
    for block in blocks:
        for line in block:
            for column, picture in enumerate(line[:SHOWN]):
                place = slice(column * side, (column + 1) * side)
                canvas[top : top + side, place] = picture.transpose(1, 2, 0)
            top += side
        top += gap
    pixels = np.rint(canvas * 255).astype(np.uint8)
    pixels = pixels.repeat(ENLARGED, axis=0).repeat(ENLARGED, axis=1)
    return Image.fromarray(pixels[:, :, 0] if channels == 1 else pixels)


def run(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Compute what is not in the file yet, and draw."""
    out = options.out.with_suffix(".json")
    pictures_out = options.out.with_suffix(".npz")
    results: dict[str, Any] = json.loads(out.read_text()) if out.is_file() else {}
    drawn = dict(np.load(pictures_out)) if pictures_out.is_file() else {}
    most = max(max(options.mix_sizes), options.pictures)
    images, num_records = load(options.dataset, folder, 2 * most, options.seed)
    side, channels = images.shape[-1], images.shape[1]
    extractor = ScatteringExtractor(size=side, channels=channels, device="cpu")
    blocks = []
    for m in options.mix_sizes:
        count = m * max(1, options.pictures // m)
        inside, strangers = images[:count], images[most : most + count]
        names = {setting: f"m={m}, {setting}, {options.steps} steps" for setting in SETTINGS}
        missing = [setting for setting in SETTINGS if names[setting] not in results]
        if missing:
            stddevs = [noise_stddev(s, m, num_records, extractor.num_features) for s in missing]
            found = invert(inside, strangers, extractor, m, stddevs, options.steps, options.seed)
            for setting, (told, nearest) in zip(missing, found, strict=True):
                results[names[setting]] = told
                drawn[names[setting]] = np.rint(nearest[:SHOWN] * 255).astype(np.uint8)
                print(f"{names[setting]}: {told['originals']}", file=sys.stderr)
            np.savez(pictures_out, **drawn)
            out.write_text(json.dumps(results, indent=1) + "\n")
        block = [inside, *(drawn[name].astype(np.float32) / 255 for name in names.values())]
        blocks.append(block)
    grid(blocks).save(options.out.with_suffix(".png"), optimize=True)
    return results


def as_table(results: dict[str, Any]) -> str:
    head = "| rows | noise stddev | similarity | of strangers | error | of strangers |"
    lines = [head, "|---|---|---|---|---|---|"]
    for name, one in results.items():
        cells = [name, f"{one['noise_stddev']:.3g}"]
        for what in ("similarity", "error"):
            for group in ("originals", "chance"):
                mean, stddev = one[group][what]
                cells.append(f"{mean:.3f} ({stddev:.3f})")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--dataset", choices=["mnist", "cifar10"], default="mnist")
    parser.add_argument("--out", type=Path, required=True, help="name of the files, without ending")
    parser.add_argument("--mix-sizes", type=int, nargs="+", default=[1, 4, 8, 16, 32, 64])
    parser.add_argument("--pictures", type=int, default=16, help="at least, for each mix size")
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="m = 1, 4, 8; 300 steps")
    options = parser.parse_args()
    if options.quick:
        options.mix_sizes, options.pictures, options.steps = [1, 4, 8], 4, 300
    torch.set_num_threads(1)
    print(as_table(run(options, Path(os.environ["PRIVMIX_DATA"]))))


if __name__ == "__main__":
    main()
