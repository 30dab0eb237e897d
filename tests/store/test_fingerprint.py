"""Fingerprints: hashes notice every change, and differences name it."""

from __future__ import annotations

import json

import torch

from bertvision.core.files import hash_json, hash_lines, hash_tensors
from bertvision.store.fingerprint import differences


def test_hashes_depend_on_names_types_shapes_and_values() -> None:
    base = {"a": torch.arange(4.0), "b": torch.ones(())}
    others = [
        {"a": torch.arange(4.0), "c": torch.ones(())},
        {"a": torch.arange(4.0).reshape(2, 2), "b": torch.ones(())},
        {"a": torch.arange(4.0).double(), "b": torch.ones(())},
        {"a": torch.arange(4.0) + 1e-6, "b": torch.ones(())},
        {"a": torch.arange(4.0)},
    ]
    assert len({hash_tensors(tensors.items()) for tensors in (base, *others)}) == 6
    assert hash_tensors(base.items()) == hash_tensors(reversed(list(base.items())))
    transposed = torch.arange(6.0).reshape(2, 3).T
    assert hash_tensors([("a", transposed)]) == hash_tensors([("a", transposed.contiguous())])
    assert hash_json({"a": 1, "b": [2]}) == hash_json({"b": [2], "a": 1}) != hash_json({"a": 1, "b": [3]})
    assert hash_lines(["ab", "c"]) != hash_lines(["a", "bc"])


def test_differences_list_every_changed_field() -> None:
    stored = {"encoder": "a" * 64, "windows": {"max_length": 32, "overlap": 8}, "format": 1}
    wanted = {"encoder": "b" * 64, "windows": {"max_length": 32, "overlap": 9}, "new": True, "format": 1}
    assert differences(stored, json.loads(json.dumps(stored))) == []
    assert differences(stored, wanted) == [
        "encoder is aaaaaaaaaa... there and bbbbbbbbbb... here",
        "new is None there and True here",
        "windows.overlap is 8 there and 9 here",
    ]
