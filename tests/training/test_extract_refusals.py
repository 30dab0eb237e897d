"""Errors of extraction: mismatched stores and invalid settings, without changes on disk."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from bertvision.core.errors import BadInput
from bertvision.encoders.loading import Encoder
from bertvision.tasks.task import Task
from bertvision.training.extract import extract, extract_share

SMALL_SHARDS: dict[str, Any] = {"batch_tokens": 96, "shard_mb": 1}


pytestmark = pytest.mark.usefixtures("small_shards")


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def modification_times(folder: Path) -> dict[str, int]:
    return {str(path.relative_to(folder)): path.stat().st_mtime_ns for path in folder.rglob("*")}


def extract_error(*arguments: Any, **settings: Any) -> str:
    with pytest.raises(BadInput) as error:
        extract(*arguments, **settings)
    assert "\n" not in str(error.value)
    return str(error.value)


def with_changed_weight(encoder: Encoder) -> Encoder:
    other = encoder.copy()
    with torch.no_grad():
        other.model.embeddings.word_embeddings.weight[7, 3] += 1e-3
    return other


def with_fewer_attention_heads(encoder: Encoder) -> Encoder:
    """The same weights with another number of attention heads."""
    other = encoder.copy()
    other.model.config.num_attention_heads = 1
    return other


def with_other_native_head(encoder: Encoder) -> Encoder:
    assert encoder.own is not None
    return replace(encoder, own=replace(encoder.own, spec="probe:layers=first1"))


def with_cased_tokenizer(encoder: Encoder) -> Encoder:
    other = copy.deepcopy(encoder.tokenizer)
    other.backend_tokenizer.normalizer.lowercase = False
    return replace(encoder, tokenizer=other)


@pytest.mark.parametrize(
    "change", [with_changed_weight, with_fewer_attention_heads, with_other_native_head, with_cased_tokenizer]
)
def test_store_of_another_encoder_is_an_error(
    span_encoder: Encoder, span_task: Task, tmp_path: Path, change: Callable[[Encoder], Encoder]
) -> None:
    extract(span_encoder, span_task, tmp_path / "store", **SMALL_SHARDS)
    before = modification_times(tmp_path)
    text = extract_error(change(span_encoder), span_task, tmp_path / "store", **SMALL_SHARDS)
    assert f"store {tmp_path / 'store'} was made from other inputs" in text
    assert ("tokenizer is " if change is with_cased_tokenizer else "encoder is ") in text
    assert "there and" in text
    assert "choose another folder" in text
    assert modification_times(tmp_path) == before


def with_first_dev_example_changed(task: Task, **changes: Any) -> Task:
    first, *others = task["dev"]
    return replace(task, splits={**task.splits, "dev": (replace(first, **changes), *others)})


@pytest.mark.parametrize(
    "change",
    [
        lambda task: with_first_dev_example_changed(task, text="where does Ben live"),
        lambda task: with_first_dev_example_changed(task, pair=task["dev"][0].pair + " "),
        lambda task: with_first_dev_example_changed(task, answers=()),
        lambda task: with_first_dev_example_changed(task, id="other"),
        lambda task: replace(task, splits={**task.splits, "dev": task["dev"][:-1]}),
        lambda task: replace(task, no_answer=False),
        lambda task: replace(task, name="squad1"),
    ],
)
def test_part_of_a_store_of_other_data_is_an_error(
    tiny_encoder: Encoder, span_task: Task, tmp_path: Path, change: Callable[[Task], Task]
) -> None:
    """Whole stores are replaced: see test_reuse.py."""
    extract(tiny_encoder, span_task, tmp_path / "store", **SMALL_SHARDS)
    before = modification_times(tmp_path)
    with pytest.raises(BadInput, match=r"was made from other inputs: data is [^;]*; choose another folder"):
        extract_share(tiny_encoder, change(span_task), tmp_path / "store", (1, 2), **SMALL_SHARDS)
    assert modification_times(tmp_path) == before


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"max_length": 31}, "windows.max_length is 32 there and 31 here"),
        ({"overlap": 7}, "windows.overlap is 8 there and 7 here"),
    ],
)
def test_store_of_other_windows_is_an_error(
    tiny_encoder: Encoder, span_task: Task, tmp_path: Path, change: dict[str, int], expected: str
) -> None:
    extract(tiny_encoder, span_task, tmp_path / "store", **SMALL_SHARDS)
    before = modification_times(tmp_path)
    text = extract_error(tiny_encoder, replace(span_task, **change), tmp_path / "store", **SMALL_SHARDS)
    assert expected in text
    assert text.count(" there and ") == 1
    assert modification_times(tmp_path) == before


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"dtype": "f32"}, "dtype is f16 there and f32 here"),
        ({"layers": "last2"}, "layers is [0, 1, 2] there and [1, 2] here"),
        ({"batch_tokens": 97}, "plan.batch_tokens is 96 there and 97 here"),
        ({"seed": 4}, "plan.seed is 0 there and 4 here"),
    ],
)
def test_store_with_other_settings_is_an_error(
    tiny_encoder: Encoder, label_task: Task, tmp_path: Path, settings: dict[str, Any], expected: str
) -> None:
    extract(tiny_encoder, label_task, tmp_path / "store", **SMALL_SHARDS)
    before = modification_times(tmp_path)
    assert expected in extract_error(tiny_encoder, label_task, tmp_path / "store", **{**SMALL_SHARDS, **settings})
    assert modification_times(tmp_path) == before


def test_equivalent_layer_specs_match_the_store(tiny_encoder: Encoder, label_task: Task, tmp_path: Path) -> None:
    store = extract(tiny_encoder, label_task, tmp_path / "store", layers="all")
    assert extract(tiny_encoder, label_task, tmp_path / "store", layers="0+1+2").id == store.id


def with_large_states(encoder: Encoder) -> Encoder:
    other = encoder.copy()
    with torch.no_grad():
        other.model.embeddings.LayerNorm.weight.mul_(1e5)
    return other


def test_states_beyond_f16_are_an_error_and_f32_works(tiny_encoder: Encoder, label_task: Task, tmp_path: Path) -> None:
    text = extract_error(with_large_states(tiny_encoder), label_task, tmp_path / "store")
    assert "not finite in f16" in text
    assert "--dtype f32" in text
    assert not list(tmp_path.rglob("*.safetensors"))
    store = extract(with_large_states(tiny_encoder), label_task, tmp_path / "store", dtype="f32")
    assert max(float(batch.hidden.abs().max()) for batch in store["dev"].batches(9)) > 65504


def test_folder_with_other_files_is_an_error(tiny_encoder: Encoder, label_task: Task, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    assert "is not empty and not a store" in extract_error(tiny_encoder, label_task, tmp_path)
    assert "is not empty and not a store" in extract_error(tiny_encoder, label_task, tmp_path / "notes.txt")
    assert "cannot write" in extract_error(tiny_encoder, label_task, tmp_path / "notes.txt" / "below")
    assert contents(tmp_path) == {"notes.txt": b"mine"}


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"dtype": "f8"}, "extract.dtype is 'f8'; expected f32, f16 or int8"),
        ({"layers": "last9"}, "there are 3 states"),
        ({"device": "abacus"}, "unknown device 'abacus'"),
        ({"shard_mb": 0}, "extract.shard_mb is 0; expected at least 1"),
        ({"batch_tokens": 0}, "extract.batch_tokens is 0; expected at least 1"),
    ],
)
def test_bad_setting_is_an_error_before_anything_is_written(
    tiny_encoder: Encoder, label_task: Task, tmp_path: Path, settings: dict[str, Any], reason: str
) -> None:
    assert reason in extract_error(tiny_encoder, label_task, tmp_path / "store", **settings)
    assert not list(tmp_path.iterdir())


def with_long_question(task: Task) -> Task:
    return with_first_dev_example_changed(task, text="where " * 40)


def test_too_long_question_is_an_error_before_anything_is_written(
    tiny_encoder: Encoder, span_task: Task, tmp_path: Path
) -> None:
    """The question is in the last split, and the error comes before the first is extracted."""
    assert "question longer than the window" in extract_error(
        tiny_encoder, with_long_question(span_task), tmp_path / "store"
    )
    assert not list(tmp_path.iterdir())


def test_too_long_question_is_skipped_and_counted(
    tiny_encoder: Encoder, span_task: Task, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task = replace(with_long_question(span_task), skip_bad=True)
    store = extract(tiny_encoder, task, tmp_path / "store", **SMALL_SHARDS)
    assert 0 not in store["dev"].table().example
    assert 1 in store["dev"].table().example
    log = capsys.readouterr().err
    assert log.count("skipped") == 1
    assert "dev: skipped 1 bad rows: question longer than the window (1)" in log


def test_split_without_windows_is_an_error(tiny_encoder: Encoder, span_task: Task, tmp_path: Path) -> None:
    long_example = replace(span_task["dev"][0], text="where " * 40)
    task = replace(span_task, splits={**span_task.splits, "dev": (long_example,)}, skip_bad=True)
    assert "no example of the dev split" in extract_error(tiny_encoder, task, tmp_path / "store")


def test_windows_longer_than_the_encoder_allows_are_an_error(
    tiny_encoder: Encoder, span_task: Task, tmp_path: Path
) -> None:
    text = extract_error(tiny_encoder, replace(span_task, max_length=65), tmp_path / "store")
    assert "max_length is 65, but encoder" in text
    assert "at most 64" in text
