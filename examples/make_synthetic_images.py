"""Make public images for DP-Mix-Diff with a text-to-image model, a folder of them for each class.

    python examples/make_synthetic_images.py --model PATH_OR_NAME --classes cat,dog --per-class 100 \
        --out made/ [--prompt "a photo of a {class}"] [--device cuda] [--steps 50] [--seed 0]

The model must not have seen the private records, and prompts must name public facts only: then the
images cost no budget. The folder is what `privmix fit --synthetic made/` reads. Images that are
there already are kept, so that a run that was cut off goes on where it stopped. Needs
`pip install diffusers transformers`.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

PROMPT = "a photo of a {class}"


def make_images(
    pipeline: Any,
    classes: Sequence[str],
    per_class: int,
    out: Path,
    *,
    prompt: str = PROMPT,
    steps: int = 50,
    seed: int = 0,
    **options: Any,
) -> int:
    """Make images of every class; return how many were made.

    Args:
        pipeline: A diffusers text-to-image pipeline.
        classes: Names of the classes; each becomes a folder.
        per_class: Images of each class.
        out: Where the folders go.
        prompt: Text with ``{class}`` in it.
        steps: Denoising steps.
        seed: Of the first image; every image has its own.
        **options: Passed on to the pipeline (``height``, ``width``, ``guidance_scale``).

    """
    import torch

    made = 0
    for k, name in enumerate(classes):
        folder = out / name
        folder.mkdir(parents=True, exist_ok=True)
        for number in range(per_class):
            path = folder / f"{number:05d}.png"
            if path.exists():
                continue
            generator = torch.Generator().manual_seed(seed + k * per_class + number)
            text = prompt.replace("{class}", name)
            result = pipeline(
                text, num_inference_steps=steps, generator=generator, output_type="pil", **options
            )
            temporary = path.with_suffix(".tmp")
            result.images[0].save(temporary, "PNG")
            temporary.rename(path)
            made += 1
    return made


def main() -> None:
    """Parse, load the model, make the images."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--classes", required=True)
    parser.add_argument("--per-class", type=int, default=100)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--prompt", default=PROMPT)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    from diffusers import DiffusionPipeline

    pipeline = DiffusionPipeline.from_pretrained(options.model).to(options.device)
    names = [name.strip() for name in options.classes.split(",")]
    count = make_images(
        pipeline,
        names,
        options.per_class,
        options.out,
        prompt=options.prompt,
        steps=options.steps,
        seed=options.seed,
    )
    print(f"{count} images made in {options.out}")


if __name__ == "__main__":
    main()
