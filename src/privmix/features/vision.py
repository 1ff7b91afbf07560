"""Pretrained vision models of Hugging Face ``transformers``, from a folder or by name."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from privmix import _validate
from privmix.features.base import (
    choose_device,
    download_remedy,
    is_local_only,
    load,
    make_identity,
    public_model,
    quiet,
    weights_digest,
)
from privmix.features.images import to_pil
from privmix.features.pretrained import PretrainedImageExtractor
from privmix.inputs.extractor import ExtractorIdentity

# What an image processor's configuration says about the numbers that it produces.
_PROCESSING = (
    "do_resize",
    "size",
    "resample",
    "crop_pct",
    "do_center_crop",
    "crop_size",
    "do_rescale",
    "rescale_factor",
    "do_normalize",
    "image_mean",
    "image_std",
    "do_pad",
    "pad_size",
    "do_convert_rgb",
)


class _Loaded(NamedTuple):
    network: Any
    processor: Any
    pooling: str
    untrained: frozenset[str]


@dataclass(eq=False)
class VisionExtractor(PretrainedImageExtractor):
    """The pooled output of any vision model that ``transformers.AutoModel`` loads.

    A model with an image projection (CLIP, SigLIP) gives that; others give their pooled output
    (DINOv2, ConvNeXt, ViT). Where the pooling layer has no trained weights, the first token is
    taken instead. Images are prepared as the model's image processor says, with Pillow.

    Attributes:
        model: A folder with the model and its image processor, or a name on the Hugging Face hub.
        device: Where to run; a GPU where there is one, by default.

    """

    name: ClassVar[str] = "vision"

    @cached_property
    def identity(self) -> ExtractorIdentity:
        """Name, parameters and digest, for the certificate."""
        loaded = self._loaded
        stated = loaded.processor.to_dict()
        return make_identity(
            self.name,
            public_model(self.model),
            weights_digest(loaded.network, loaded.untrained),
            libraries=("transformers", "torch"),
            architecture=loaded.network.config.model_type,
            pooling=loaded.pooling,
            processing={key: stated[key] for key in _PROCESSING if key in stated},
        )

    @cached_property
    def _loaded(self) -> _Loaded:
        transformers, torch = load("transformers", "vision"), load("torch", "vision")
        local = Path(self.model).is_dir() or is_local_only()
        where = {"local_files_only": True} if local else {}
        try:
            with quiet():  # missing weights are judged below
                network, report = transformers.AutoModel.from_pretrained(
                    self.model, output_loading_info=True, dtype=torch.float32, **where
                )
                processor = transformers.AutoImageProcessor.from_pretrained(
                    self.model, backend="pil", **where
                )
        except (OSError, ValueError, ImportError) as error:
            allowed = "a folder or hub name of a vision model with its preprocessor_config.json"
            _validate.fail(
                f"model {self.model}",
                allowed + download_remedy(),
                str(error).strip().splitlines()[0],
            )
        untrained = frozenset(report["missing_keys"]) | frozenset(report["mismatched_keys"])
        pooling = "first token" if untrained else "pooler"
        if any("pooler." not in key for key in untrained):
            _validate.fail(f"model {self.model}", "trained weights", f"none for {min(untrained)}")
        if hasattr(network, "get_image_features"):
            pooling = "projection"
        return _Loaded(network.eval().to(choose_device(self.device)), processor, pooling, untrained)

    @cached_property
    def _input_shape(self) -> tuple[int, ...]:
        return tuple(self._process(np.zeros((64, 48, 3), dtype=np.uint8)).shape)

    def _process(self, record: Any) -> Any:
        image = to_pil(record, 3)
        return self._loaded.processor(images=[image], return_tensors="pt")["pixel_values"][0]

    def _prepare(self, record: Any) -> Any:
        pixels = self._process(record)
        if tuple(pixels.shape) != self._input_shape:
            allowed = f"an image processor that gives one shape, {self._input_shape}"
            _validate.fail(f"model {self.model}", allowed, tuple(pixels.shape))
        return pixels

    def _forward(self, batch: Any) -> Any:
        network, pooling = self._loaded.network, self._loaded.pooling
        if pooling == "projection":
            output = network.get_image_features(pixel_values=batch)
            return output if hasattr(output, "shape") else output.pooler_output
        output = network(pixel_values=batch)
        if pooling == "first token":
            return output.last_hidden_state[:, 0]
        pooled = getattr(output, "pooler_output", None)
        if pooled is None:
            allowed = "a model with a pooled output (pooler_output) or an image projection"
            _validate.fail(f"model {self.model}", allowed, "neither")
        return pooled.reshape(len(batch), -1)
