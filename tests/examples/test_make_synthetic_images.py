"""The example that makes synthetic images, on a tiny pipeline with random weights."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import ClassVar

import pytest
import torch

from privmix.dpsgd import read_synthetic

pytestmark = pytest.mark.filterwarnings("ignore")
SCRIPT = Path(__file__).parents[2] / "examples" / "make_synthetic_images.py"


def load_script():
    spec = importlib.util.spec_from_file_location("make_synthetic_images", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Words:
    """A tokenizer of letters, as far as the pipeline asks for one."""

    model_max_length = 16
    added_tokens_encoder: ClassVar[dict[str, int]] = {}

    def tokenize(self, text):
        return list(text)

    def batch_decode(self, ids):
        return [""] * len(ids)

    def __call__(self, text, **options):
        texts = [text] if isinstance(text, str) else text
        rows = [[ord(c) % 90 + 3 for c in line][: self.model_max_length] for line in texts]
        ids = torch.tensor([row + [2] * (self.model_max_length - len(row)) for row in rows])
        return type("Encoded", (), {"input_ids": ids, "attention_mask": torch.ones_like(ids)})()


def tiny_pipeline():
    diffusers = pytest.importorskip("diffusers", exc_type=ImportError)
    from transformers import CLIPTextConfig, CLIPTextModel

    torch.manual_seed(0)
    unet = diffusers.UNet2DConditionModel(
        block_out_channels=(4, 8),
        layers_per_block=1,
        sample_size=8,
        in_channels=4,
        out_channels=4,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        cross_attention_dim=8,
        attention_head_dim=2,
        norm_num_groups=2,
    )
    vae = diffusers.AutoencoderKL(
        block_out_channels=(4, 8),
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
        latent_channels=4,
        norm_num_groups=2,
    )
    config = CLIPTextConfig(
        hidden_size=8,
        intermediate_size=8,
        num_attention_heads=2,
        num_hidden_layers=1,
        vocab_size=100,
        max_position_embeddings=16,
        bos_token_id=0,
        eos_token_id=2,
        pad_token_id=1,
    )
    pipeline = diffusers.StableDiffusionPipeline(
        vae=vae,
        text_encoder=CLIPTextModel(config),
        tokenizer=None,
        unet=unet,
        scheduler=diffusers.DDIMScheduler(),
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    )
    pipeline.tokenizer = Words()
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def test_images_of_every_class_are_made_and_read(tmp_path):
    script, pipeline = load_script(), tiny_pipeline()
    asked = []
    encode = pipeline.encode_prompt

    def listen(prompt, *rest, **options):
        asked.append(prompt)
        return encode(prompt, *rest, **options)

    pipeline.encode_prompt = listen
    made = script.make_images(
        pipeline, ["cat", "dog"], 2, tmp_path / "made", steps=2, height=16, width=16
    )
    assert made == 4
    assert asked == ["a photo of a cat"] * 2 + ["a photo of a dog"] * 2
    found = read_synthetic(tmp_path / "made", ["cat", "dog"], (3, 16, 16))
    assert found.labels.tolist() == ["cat", "cat", "dog", "dog"]
    assert (found.inputs[0] != found.inputs[1]).any()
    # A second run keeps what is there.
    (tmp_path / "made" / "dog" / "00001.png").unlink()
    again = script.make_images(
        pipeline, ["cat", "dog"], 2, tmp_path / "made", steps=2, height=16, width=16
    )
    assert again == 1
    twice = read_synthetic(tmp_path / "made", ["cat", "dog"], (3, 16, 16))
    assert (twice.inputs == found.inputs).all()
