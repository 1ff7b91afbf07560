"""Tiny records and randomly initialised models for the extractors' tests; nothing is downloaded."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch


def make_images(
    count: int, shape: tuple[int, ...] = (16, 16, 3), seed: int = 0
) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return list(rng.integers(256, size=(count, *shape), dtype=np.uint8))


def make_texts(count: int, seed: int = 0) -> list[str]:
    rng = np.random.default_rng(seed)
    words = ["card", "lost", "my", "pay", "when", "rate", "top", "up"]
    return [" ".join(rng.choice(words, size=rng.integers(1, 30))) for _ in range(count)]


def save_vision_model(folder: Path, kind: str) -> Path:
    """Save a tiny ViT, ConvNeXt, CLIP, or a model without a pooled output (MAE, SegFormer).

    The weights are random; the image processor is saved too.
    """
    import transformers as t

    torch.manual_seed(0)
    small = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 16}
    patches = {"image_size": 16, "patch_size": 8, "num_hidden_layers": 1}
    side = {"height": 16, "width": 16}
    if kind in ("vit", "vit-without-pooler"):
        config = t.ViTConfig(**small, **patches)
        without = t.ViTForImageClassification(config)
        model = t.ViTModel(config) if kind == "vit" else without
        processor = t.ViTImageProcessorPil(size=side)
    elif kind == "mae":
        decoder = {f"decoder_{key}": value for key, value in small.items()}
        config = t.ViTMAEConfig(**small, **patches, **decoder, decoder_num_hidden_layers=1)
        model, processor = t.ViTMAEModel(config), t.ViTImageProcessorPil(size=side)
    elif kind == "segformer":
        one = {"depths": [1], "sr_ratios": [1], "patch_sizes": [3], "strides": [2]}
        wide = {"hidden_sizes": [8], "num_attention_heads": [1], "mlp_ratios": [1]}
        model = t.SegformerModel(t.SegformerConfig(num_encoder_blocks=1, **one, **wide))
        processor = t.ViTImageProcessorPil(size=side)
    elif kind == "convnext":
        sizes = {"hidden_sizes": [8, 12], "depths": [1, 1], "num_stages": 2, "image_size": 16}
        model = t.ConvNextModel(t.ConvNextConfig(**sizes))
        processor = t.ConvNextImageProcessorPil(size={"shortest_edge": 16}, crop_pct=0.875)
    else:
        text = {**small, "num_hidden_layers": 1, "vocab_size": 10, "bos_token_id": 0}
        config = t.CLIPConfig(
            text_config={**text, "eos_token_id": 1, "pad_token_id": 2},
            vision_config={**small, **patches},
            projection_dim=6,
        )
        model = t.CLIPModel(config)
        processor = t.CLIPImageProcessorPil(size={"shortest_edge": 16}, crop_size=side)
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder


def save_sentence_model(folder: Path) -> Path:
    """Save a tiny sentence-transformers model (BERT, mean pooling, unit norm), random weights."""
    import transformers as t
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer

    torch.manual_seed(0)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "card", "lost", "my", "pay", "when"]
    bert = folder / "bert"
    bert.mkdir(parents=True)
    (bert / "vocab.txt").write_text("\n".join(words))
    sizes = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 16}
    config = t.BertConfig(vocab_size=len(words), num_hidden_layers=1, **sizes)
    t.BertModel(config).save_pretrained(bert)
    t.BertTokenizer(str(bert / "vocab.txt")).save_pretrained(bert)
    layers = [Transformer(str(bert), max_seq_length=20), Pooling(16), Normalize()]
    model = SentenceTransformer(modules=layers, device="cpu")
    model.save(str(folder / "model"))
    return folder / "model"
