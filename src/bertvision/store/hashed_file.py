"""Tensors into a safetensors file and its sha256 in one go, a piece at a time.

The library writes a whole file and leaves it to be read again for its hash, at more than twice the
processor time, which the encoder that computes the next shard has to do without. What is written is byte
by byte what the library writes (tested): the header's length as eight bytes, the header as JSON padded with
spaces to a multiple of eight, then the tensors.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import IO

import torch
from torch import Tensor

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
