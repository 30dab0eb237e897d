"""Shard files: the states of some windows as flat tensors, without padding, in a safetensors file.

hidden       (tokens, layers, width)  every layer's state of every token, f32, f16 or int8
scales       (tokens, layers)         int8 only, with mean and spread (layers, width): see codec.py
lengths      (windows,)               tokens per window, in the order of ``hidden``
windows      (windows,)               window number within the split
examples     (windows,)               example number within the split
keys         (windows, 2)             hash of the whole window, see stored_windows.py; missing in old shards
cls          (windows,)               position of the CLS token
input_ids    (tokens,), token_types (tokens,), offsets (tokens, 2)
targets      (windows, 1 or 2)        label, value, or start and end token; or (windows, labels), 0 or 1 for each
pooled       (windows, width)         if the encoder has a pooler
logits       (tokens, 2) or (windows, outputs)   of the native head, if the encoder was tuned
apart        (windows, 2, layers, width)   means over the tokens of each text of a pair, if each was encoded by itself
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import IO

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from bertvision.core.errors import BadInput
from bertvision.core.records import ROW_KINDS, Window
from bertvision.core.summaries import summary_names
from bertvision.store.codec import decode_states
from bertvision.store.lazy_batch import RaggedBatch, pad_tokens

CHUNK = 4 * 2**20
"""Bytes that are hashed and written at a time."""

NAMES = {
    torch.int64: "I64",
    torch.float32: "F32",
    torch.int32: "I32",
    torch.float16: "F16",
    torch.int8: "I8",
    torch.uint8: "U8",
}
"""Types in the order of their tensors in a file, which keeps all tensors aligned."""

Shard = Mapping[str, Tensor]


def write_hashed(tensors: Mapping[str, Tensor], file: IO[bytes]) -> str:
    """Write contiguous CPU tensors in safetensors format; return the sha256 of the file."""
    types, digest = list(NAMES), hashlib.sha256()
    ordered = dict(sorted(tensors.items(), key=lambda item: (types.index(item[1].dtype), item[0])))
    for chunk in _chunks(ordered):
        digest.update(chunk)
        file.write(chunk)
    return digest.hexdigest()


def _chunks(tensors: Mapping[str, Tensor]) -> Iterator[memoryview]:
    """The bytes of a safetensors file: length of the header, header, tensors."""
    entries, start = {}, 0
    for name, tensor in tensors.items():
        end = start + tensor.nbytes
        entries[name] = {"dtype": NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [start, end]}
        start = end
    header = json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode()
    header += b" " * (-len(header) % 8)
    yield memoryview(len(header).to_bytes(8, "little") + header)
    for tensor in tensors.values():
        data = tensor.reshape(-1).numpy().view(np.uint8).data
        for start in range(0, len(data), CHUNK):
            yield data[start : start + CHUNK]


def window_tensors(windows: Sequence[Window], numbers: Sequence[int]) -> dict[str, Tensor]:
    """The tensors of a shard that are known before the encoder runs."""
    return {
        "lengths": torch.tensor([len(window) for window in windows], dtype=torch.int32),
        "windows": torch.tensor(list(numbers), dtype=torch.int64),
        "examples": torch.tensor([window.example for window in windows], dtype=torch.int64),
        "cls": torch.tensor([window.cls for window in windows], dtype=torch.int32),
        "input_ids": torch.from_numpy(np.concatenate([window.input_ids for window in windows])),
        "token_types": torch.from_numpy(np.concatenate([window.token_types for window in windows])),
        "offsets": torch.from_numpy(np.concatenate([window.offsets for window in windows])),
        "targets": torch.tensor([window.target for window in windows], dtype=torch.float32),
    }


def stored_windows(shard: Shard) -> dict[int, Window]:
    """The inverse of :func:`window_tensors`: windows by their number within the split."""
    lengths = shard["lengths"].tolist()
    # Clone, since views would keep the whole file in memory.
    ids, types, offsets = (shard[name].clone().split(lengths) for name in ("input_ids", "token_types", "offsets"))
    examples, cls, targets = (shard[name].tolist() for name in ("examples", "cls", "targets"))
    windows = {}
    for row, number in enumerate(shard["windows"].tolist()):
        arrays = ids[row].numpy(), types[row].numpy(), offsets[row].numpy()
        windows[number] = Window(examples[row], *arrays, cls[row], tuple(targets[row]))
    return windows


def write_shard(shard: Shard, path: Path) -> str:
    """Write a shard atomically and durably; return its sha256."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as file:
            digest = write_hashed({key: value.contiguous() for key, value in shard.items()}, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
        # A rename survives a power failure only after its folder was synced.
        descriptor = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise BadInput(f"cannot write shard {path}: {error}; free some space or choose another folder") from error
    return digest


def read_shard(path: Path) -> Shard:
    """The tensors of a shard, memory-mapped."""
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        store = path.parent.parent
        repair = f"bertvision store verify {store} --repair"
        raise BadInput(f"store shard {path} cannot be read: {error}; recompute it with: {repair}") from error


def layer_batch(shard: Shard, windows: np.ndarray, kind: str, tokens: str = "all") -> RaggedBatch:
    """A batch of the windows at these indices of a shard; states are decoded to f32 on demand."""
    lengths = shard["lengths"].numpy().astype(np.int64)
    starts = np.cumsum(lengths) - lengths
    sizes = lengths[windows]
    positions = np.arange(sizes.max())[None, :]  # (1, tokens)
    mask = positions < sizes[:, None]  # (batch, tokens)
    rows = torch.from_numpy((starts[windows][:, None] + positions)[mask])  # (real tokens,)
    index = torch.from_numpy(np.asarray(windows))
    targets = shard["targets"][index]  # (batch, 1, 2 or labels)
    return RaggedBatch(
        read=partial(decode_states, shard),
        rows=rows,
        mask=torch.from_numpy(mask),
        targets=targets if kind in ROW_KINDS else targets[:, 0],
        windows=shard["windows"][index],
        pooled=shard["pooled"][index].float() if "pooled" in shard else None,
        logits=_logits(shard, rows if kind == "span" else index, torch.from_numpy(mask), kind),
        summaries=summary_names(tokens),
        apart=shard["apart"][index].float() if "apart" in shard else None,
    )


def _logits(shard: Shard, index: Tensor, mask: Tensor, kind: str) -> Tensor | None:
    """Logits of the native head, if there is one: (batch, tokens, 2) or (batch, outputs)."""
    if "logits" not in shard:
        return None
    logits = shard["logits"][index].float()
    return pad_tokens(logits, mask) if kind == "span" else logits
