"""Other implementations of extraction, timed in a process of their own.

In a process with this project they would reuse the large blocks of memory that it retains, and be faster than they
are. Workers are spawned, so they inherit nothing from the parent.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import IO, Any

import torch

import bertvision as bv
from bertvision.core.progress import Timer
from bertvision.core.records import Window
from bertvision.encoders.hidden_states import TokenBatch, collate
from bertvision.encoders.loading import Encoder

BATCH = 16
CPU = torch.device("cpu")


def named_encoder(name: str) -> Encoder:
    """``minilm``, or ``base``: the shape of BERT-base with random weights."""
    small = bv.load_encoder("minilm")
    if name == "minilm":
        return small
    import transformers

    torch.manual_seed(0)
    return Encoder("base", transformers.BertModel(transformers.BertConfig()).eval(), small.tokenizer)


class SeparateProcess:
    """A worker process that measures the valid tokens per second of an implementation."""

    def __init__(self, encoder: str, windows: Sequence[Window], folder: Path) -> None:
        method = multiprocessing.get_context("spawn")
        self.pool = ProcessPoolExecutor(1, method, _start_worker, (encoder, list(windows), folder))

    def rate(self, way: str, *options: int) -> float:
        return self.pool.submit(_rate, way, *options).result()

    def close(self) -> None:
        self.pool.shutdown()


class OtherImplementations:
    """Batches of sixteen windows in the given order, with stock transformers."""

    def __init__(self, encoder: str, windows: Sequence[Window], folder: Path) -> None:
        self.encoder, self.windows, self.folder = named_encoder(encoder), windows, folder
        self.eager = self.encoder.copy().model
        self.eager.set_attn_implementation("eager")

    def loop(self) -> None:
        """Padded to the longest window of the batch, states written as f16."""
        with (self.folder / "plain").open("wb") as file:
            for batch in self._batches():
                states = torch.stack(_all_states(self.encoder.model, batch), dim=2)
                file.write(states.half().numpy().tobytes())
            _sync(file)

    def original(self, longest: int) -> None:
        """As the original: eager attention, all padded to one length, f32 (windows, tokens, width, layers) in HDF5."""
        import h5py

        shape = (len(self.windows), longest, self.encoder.width, self.encoder.layers)
        with h5py.File(self.folder / "original.h5", "w") as file:
            data = file.create_dataset("hidden", shape, "f4", chunks=(1, *shape[1:]))
            for number, batch in enumerate(self._batches(longest)):
                states = torch.stack(_all_states(self.eager, batch), dim=3)
                data[number * BATCH : number * BATCH + len(states)] = states.numpy()
        with (self.folder / "original.h5").open("rb") as written:
            _sync(written)

    def _batches(self, pad_to: int = 0) -> Iterator[TokenBatch]:
        for start in range(0, len(self.windows), BATCH):
            yield _padded(collate(self.windows[start : start + BATCH], 0, CPU), pad_to)


_implementations: list[OtherImplementations] = []
"""Set once in the worker process."""


def _start_worker(encoder: str, windows: Sequence[Window], folder: Path) -> None:
    _implementations.append(OtherImplementations(encoder, windows, folder))


@torch.inference_mode()
def _rate(way: str, *options: int) -> float:
    """Valid tokens per second."""
    (implementations,) = _implementations
    work: Callable[..., None] = getattr(implementations, way)
    timer = Timer()
    work(*options)
    return sum(len(window) for window in implementations.windows) / timer.seconds


def _sync(file: IO[bytes]) -> None:
    """Wait until the file is on disk, as our extraction does."""
    file.flush()
    os.fsync(file.fileno())


def _all_states(model: Any, batch: TokenBatch) -> tuple[torch.Tensor, ...]:
    output = model(batch.input_ids, batch.mask.long(), batch.token_types, output_hidden_states=True)
    return tuple(output.hidden_states)


def _padded(batch: TokenBatch, to: int) -> TokenBatch:
    padding = max(0, to - batch.mask.shape[1])
    pad = torch.nn.functional.pad
    return TokenBatch(
        pad(batch.input_ids, (0, padding)), pad(batch.mask, (0, padding)), pad(batch.token_types, (0, padding))
    )
