"""One shard: the states of some windows as flat tensors in a safetensors file, padding left out.

hidden       (tokens, layers, width)  every layer's state of every token, f32, f16 or int8
scales       (tokens, layers)         int8 only, with mean and spread (layers, width): see codec.py
lengths      (windows,)               tokens per window, in the order they lie in ``hidden``
windows      (windows,)               window number within the split
examples     (windows,)               example number within the split
cls          (windows,)               position of the CLS token
input_ids    (tokens,), token_types (tokens,), offsets (tokens, 2)
targets      (windows, 1 or 2)        label, value, or start and end token; or (windows, labels), 0 or 1 for each
pooled       (windows, width)         where the encoder has a pooler
logits       (tokens, 2) or (windows, outputs)   the encoder's own head, where it has one
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
from bertvision.store.codec import decoded
from bertvision.store.lazy_batch import RaggedBatch, padded

PIECE = 4 * 2**20

NAMES = {
    torch.int64: "I64",
    torch.float32: "F32",
    torch.int32: "I32",
    torch.float16: "F16",
    torch.int8: "I8",
    torch.uint8: "U8",
}
"""Types in the order their tensors lie in a file: none begins where its numbers would not be aligned."""

Shard = Mapping[str, Tensor]


def write_hashed(tensors: Mapping[str, Tensor], file: IO[bytes]) -> str:
    """Write contiguous tensors of the CPU; the sha256 of all that was written."""
    types, digest = list(NAMES), hashlib.sha256()
    ordered = dict(sorted(tensors.items(), key=lambda item: (types.index(item[1].dtype), item[0])))
    for piece in _pieces(ordered):
        digest.update(piece)
        file.write(piece)
    return digest.hexdigest()


def _header(tensors: Mapping[str, Tensor]) -> bytes:
    entries, at = {}, 0
    for name, tensor in tensors.items():
        end = at + tensor.nbytes
        entries[name] = {"dtype": NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _pieces(tensors: Mapping[str, Tensor]) -> Iterator[memoryview]:
    yield memoryview(_header(tensors))
    for tensor in tensors.values():
        whole = tensor.reshape(-1).view(torch.uint8).numpy().data
        for at in range(0, len(whole), PIECE):
            yield whole[at : at + PIECE]


def window_tensors(windows: Sequence[Window], numbers: Sequence[int]) -> dict[str, Tensor]:
    """Everything of a shard that is known before the encoder runs."""
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
    # Copies: a view would keep the whole file in memory.
    ids, types, offsets = (shard[name].clone().split(lengths) for name in ("input_ids", "token_types", "offsets"))
    examples, cls, targets = (shard[name].tolist() for name in ("examples", "cls", "targets"))
    windows = {}
    for row, number in enumerate(shard["windows"].tolist()):
        arrays = ids[row].numpy(), types[row].numpy(), offsets[row].numpy()
        windows[number] = Window(examples[row], *arrays, cls[row], tuple(targets[row]))
    return windows


def write_shard(shard: Shard, path: Path) -> str:
    """Write under a temporary name, sync, rename; return the sha256 of the bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as file:
            digest = write_hashed({key: value.contiguous() for key, value in shard.items()}, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
        _sync_folder(path.parent)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise BadInput(f"cannot write shard {path}: {error}; free some space or choose another folder") from error
    return digest


def _sync_folder(folder: Path) -> None:
    """A rename outlives a power cut once its folder is on the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_shard(path: Path) -> Shard:
    """A shard as memory-mapped tensors; pages are read when touched."""
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        store = path.parent.parent
        way = f"bertvision store verify {store} --repair makes it again"
        raise BadInput(f"store shard {path} cannot be read: {error}; {way}") from error


def layer_batch(shard: Shard, chosen: np.ndarray, kind: str) -> RaggedBatch:
    """Some windows of a shard; their states are decoded, to f32, once they are looked at."""
    lengths = shard["lengths"].numpy().astype(np.int64)
    starts = np.cumsum(lengths) - lengths
    sizes = lengths[chosen]
    places = np.arange(sizes.max())[None, :]  # (1, tokens)
    mask = places < sizes[:, None]  # (batch, tokens)
    rows = torch.from_numpy((starts[chosen][:, None] + places)[mask])  # (real tokens,)
    index = torch.from_numpy(np.asarray(chosen))
    targets = shard["targets"][index]  # (batch, 1, 2 or labels)
    return RaggedBatch(
        read=partial(decoded, shard),
        rows=rows,
        mask=torch.from_numpy(mask),
        targets=targets if kind in ROW_KINDS else targets[:, 0],
        windows=shard["windows"][index],
        pooled=shard["pooled"][index].float() if "pooled" in shard else None,
        logits=_logits(shard, rows if kind == "span" else index, torch.from_numpy(mask), kind),
    )


def _logits(shard: Shard, index: Tensor, mask: Tensor, kind: str) -> Tensor | None:
    """The encoder's own, where it has any: (batch, tokens, 2) or (batch, outputs)."""
    if "logits" not in shard:
        return None
    chosen = shard["logits"][index].float()
    return padded(chosen, mask) if kind == "span" else chosen
