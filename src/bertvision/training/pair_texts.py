"""The texts of pairs, each encoded by itself: in every layer the mean over its tokens.

First and second texts of all splits share one table, so each distinct text is encoded once, in batches that depend only
on the texts and the settings. The means wait in a temporary file until shards take them; it has no name, so nothing is
left of it when the process ends or is killed.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bertvision.core.config import ExtractConfig
from bertvision.core.errors import BadInput
from bertvision.core.progress import progress_bar
from bertvision.core.records import SPLITS, Window
from bertvision.core.runtime import trim_memory
from bertvision.core.summaries import APART, BOTH, TOGETHER, summarise
from bertvision.encoders.hidden_states import collate, hidden_states
from bertvision.store.batching import Batch, plan_batches
from bertvision.store.codec import check_finite, vector_dtype
from bertvision.store.shard_file import Shard
from bertvision.tasks.task import Task
from bertvision.tasks.windows import Tokenizer, windows_of_texts

if TYPE_CHECKING:
    from bertvision.training.shard_builder import ShardBuilder


def resolve_pairs(config: ExtractConfig, task: Task, tuned: bool) -> ExtractConfig:
    """``pairs="auto"``: both if the encoder is as it came and every example is a pair, else together.

    A tuned encoder has learned from pairs together, and apart its states say less.
    """
    if config.pairs != "auto":
        return config
    single = (example.pair is None for split in SPLITS for example in task[split])
    together = tuned or config.live or task.kind == "span" or config.dtype == "int8" or any(single)
    return replace(config, pairs=TOGETHER if together else BOTH)


def check_pairs(config: ExtractConfig, task: Task) -> None:
    """Raise an error if the texts of the task cannot be encoded as the settings say."""
    option = f"--pairs {config.pairs}"
    if config.pairs == TOGETHER:
        return
    if task.kind == "span":
        raise BadInput(f"{option} is for labels and values of pairs of texts; questions and contexts are read together")
    for split in SPLITS:
        for example in task[split]:
            if example.pair is None:
                raise BadInput(
                    f"{option} is for pairs of texts, but example {example.id} of {split} is a single text; leave it "
                    "out, or name the column of the second texts with --pair-column"
                )
    if config.pairs == APART and config.tokens not in ("all", "auto"):
        raise BadInput(f"{option} stores no states of whole inputs; leave --tokens {config.tokens} out, or use both")
    if config.pairs == APART and config.dtype == "int8":
        raise BadInput(f"{option} stores means of texts, for which there is no int8; use --dtype f16 or f32")


def refuse_parts(config: ExtractConfig, option: str) -> None:
    """Raise an error if shards are made by several processes, each of which would encode the same texts."""
    if config.pairs != TOGETHER:
        raise BadInput(
            f"{option} divides the shards among processes, but --pairs {config.pairs} encodes each text once, in one "
            f"process; leave {option} out"
        )


def apart_bytes(config: ExtractConfig, layers: int, width: int) -> int:
    """Stored bytes of the two texts of a pair, each encoded by itself; 0 if they are not."""
    return 0 if config.pairs == TOGETHER else 2 * layers * width * vector_dtype(config.dtype).itemsize


class PairTexts:
    """The distinct texts of a task's pairs, as windows, and where each example has its two."""

    def __init__(self, task: Task, tokenizer: Tokenizer) -> None:
        numbers: dict[str, int] = {}
        self.numbers: dict[str, NDArray[np.int64]] = {}  # by split: (examples, 2)
        for split in SPLITS:
            pairs = [(example.text, example.pair or "") for example in task[split]]
            rows = [[numbers.setdefault(text, len(numbers)) for text in pair] for pair in pairs]
            self.numbers[split] = np.array(rows, np.int64).reshape(-1, 2)
        self.windows = windows_of_texts(list(numbers), tokenizer, task.max_length)

    def __len__(self) -> int:
        return len(self.windows)


class TextEncoder:
    """Encodes each text of a task's pairs by itself, once, when the first shard needs it."""

    def __init__(self, texts: PairTexts, builder: ShardBuilder) -> None:
        config, self.texts, self.builder = builder.config, texts, builder
        self.dtype = vector_dtype(config.dtype)
        self.batches = plan_batches([len(window) for window in texts.windows], config.batch_tokens, config.seed)
        self._batch_of = np.empty(len(texts), np.int64)
        for number, batch in enumerate(self.batches):
            self._batch_of[batch] = number
        self._done = np.zeros(len(self.batches), bool)
        self._means: NDArray[Any] | None = None  # (texts, layers, width)

    @property
    def bytes(self) -> int:
        """Bytes of the temporary file."""
        return len(self.texts) * len(self.builder.layers) * self.builder.width * self.dtype.itemsize

    def add_to(self, shard: Shard, split: str, folder: Path | None = None) -> Shard:
        """The shard with the texts of its windows; ``folder`` holds the temporary file."""
        numbers = self.texts.numbers[split][shard["examples"].numpy()]  # (windows, 2)
        apart = torch.from_numpy(np.asarray(self._encode(numbers, folder)[numbers]))  # (windows, 2, layers, width)
        check_finite({"apart": apart}, self.builder.config.dtype)
        return {**shard, "apart": apart}

    def _encode(self, numbers: NDArray[np.int64], folder: Path | None) -> NDArray[Any]:
        """The means of all texts, of which at least those with these numbers have been computed."""
        if self._means is None:
            shape = len(self.texts), len(self.builder.layers), self.builder.width
            self._means = _temporary_array(shape, self.dtype, folder)
        needed = np.unique(self._batch_of[numbers])
        waiting = [self.batches[number] for number in needed[~self._done[needed]]]
        if waiting:
            with progress_bar("encode texts", sum(map(len, waiting)), "text") as advance:
                for batch in waiting:
                    self._means[batch] = self.run_batch(batch).to("cpu", self.dtype).numpy()
                    advance(len(batch))
            self._done[needed] = True
            trim_memory()
        return self._means

    def run_batch(self, batch: Batch) -> Tensor:
        """One forward pass: (texts, layers, width)."""
        builder, members = self.builder, [self.texts.windows[int(number)] for number in batch]
        return mean_states(builder.model, members, builder.layers, builder.pad_id, builder.device)


@torch.inference_mode()
def mean_states(
    model: Any, windows: Sequence[Window], layers: Sequence[int], pad_id: int, device: torch.device
) -> Tensor:
    """The mean over the tokens of each window, special tokens included: (windows, layers, width)."""
    batch = collate(windows, pad_id, device)
    states = hidden_states(model, batch, layers)
    return torch.stack([summarise(layer, batch.mask, "mean") for layer in states.layers], dim=1)


def _temporary_array(shape: tuple[int, ...], dtype: torch.dtype, folder: Path | None) -> NDArray[Any]:
    """An array in a file without a name, whose space is freed with the array."""
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder) as file:
        return np.memmap(file, dtype=str(dtype).removeprefix("torch."), shape=shape)
