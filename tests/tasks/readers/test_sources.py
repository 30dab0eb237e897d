"""Other sources of tables: Parquet, pandas DataFrames and data sets of the Hub, with rows named in every error."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from bertvision.core.errors import BadInput
from bertvision.core.records import Example
from bertvision.tasks.readers.files import read_table
from bertvision.tasks.task import BadRows, Task, load_task

TONES = ("bad", "good")


def load_error(**options: Any) -> str:
    with pytest.raises(BadInput) as error:
        load_task("text", **options)
    return str(error.value)


def by_id(task: Task) -> dict[str, Example]:
    return {example.id: example for split in task.splits.values() for example in split}


def columns(rows: int = 20) -> dict[str, list[Any]]:
    return {"text": [f"review {i}" for i in range(rows)], "label": [TONES[i % 2] for i in range(rows)]}


def write(path: Path, content: dict[str, Any], features: dict[str, Any] | None = None, **options: Any) -> Path:
    table = pyarrow.table(content)
    if features is not None:
        metadata = {"huggingface": json.dumps({"info": {"features": features}})}
        table = table.replace_schema_metadata(metadata)
    parquet.write_table(table, path, **options)
    return path


def test_parquet_file_is_read_as_a_table(tmp_path: Path) -> None:
    path = write(tmp_path / "my.parquet", {**columns(), "more": list(range(20))}, row_group_size=7)
    task = load_task("text", train=path)
    assert (task.kind, task.labels) == ("classify", TONES)
    examples = by_id(task)
    assert set(examples) == {f"my:{i}" for i in range(20)}
    assert examples["my:9"] == Example("my:9", "review 9", label=1.0)


def test_files_of_several_formats_are_combined(tmp_path: Path) -> None:
    csv = tmp_path / "a.csv"
    csv.write_text("text,label\n" + "".join(f"row {i},{TONES[i % 2]}\n" for i in range(10)), "utf-8")
    lines = tmp_path / "b.jsonl"
    lines.write_text(
        "".join(json.dumps({"text": f"line {i}", "label": TONES[i % 2]}) + "\n" for i in range(10)), "utf-8"
    )
    task = load_task("text", train=[csv, lines], dev=write(tmp_path / "c.parquet", columns(4)))
    assert len(task["train"]) + len(task["inner"]) == 20
    assert [e.id for e in task["dev"]] == ["c:0", "c:1", "c:2", "c:3"]


def test_parquet_numbers_booleans_and_nulls(tmp_path: Path) -> None:
    stars = pyarrow.array([1, 2, None, 2, 1, 1], pyarrow.int64())
    path = write(tmp_path / "n.parquet", {"text": ["a", "b", "c", None, "e", "f"], "label": stars})
    assert f"{path}, row 2: missing label: column 'label' is blank" in load_error(train=path)
    task = load_task("text", train=path, skip_bad=True)
    assert task.labels == ("1", "2")
    assert task.skipped == {"missing label": 1, "missing text": 1}
    path = write(tmp_path / "v.parquet", {"text": list("abcd"), "score": [0.5, 2.0, -1.25, 0.0]})
    task = load_task("text", train=path)
    assert (task.kind, by_id(task)["v:2"].label) == ("regress", -1.25)
    path = write(tmp_path / "b.parquet", {"text": [b"a", b"b"], "label": [True, False]})
    assert f"{path}, row 0: wrong type: column 'text': got b'a'" in load_error(train=path)


def test_label_names_in_hub_metadata_are_used(tmp_path: Path) -> None:
    features = {"text": {"dtype": "string"}, "label": {"names": ["neg", "pos"], "_type": "ClassLabel"}}
    content = {"text": list("abcdef"), "label": [0, 1, 0, 1, 1, -1]}
    path = write(tmp_path / "h.parquet", content, features)
    assert f"{path}, row 5: missing label" in load_error(train=path)  # -1 marks a hidden label
    assert load_task("text", train=path, skip_bad=True).labels == ("neg", "pos")
    class_label = {"names": ["x", "y", "z"], "_type": "ClassLabel"}
    content = {"text": list("abcd"), "label": [[0, 2], [], [1], [1, 2]]}
    for feature in ({"feature": class_label, "_type": "Sequence"}, [class_label]):
        task = load_task("text", train=write(tmp_path / "l.parquet", content, {"label": feature}), kind="multilabel")
        assert task.labels == ("x", "y", "z")
        assert [by_id(task)[f"l:{i}"].labels for i in range(4)] == [(0, 2), (), (1,), (1, 2)]


@pytest.mark.parametrize("features", [None, [], {"label": 5}, {"label": {"names": None}}, {"label": {}}])
def test_other_hub_metadata_is_ignored(tmp_path: Path, features: Any) -> None:
    path = write(tmp_path / "m.parquet", {"text": list("abcd"), "label": [3, 4, 3, 4]}, features)
    assert load_task("text", train=path).labels == ("3", "4")


def test_broken_parquet_is_a_one_line_error(tmp_path: Path) -> None:
    path = tmp_path / "my.parquet"
    path.write_text("text,label\na,b\n", "utf-8")
    assert load_error(train=path).startswith(f"{path}: cannot be read as Parquet: ")
    content = write(path, columns(500)).read_bytes()
    path.write_bytes(content[:100] + b"\xff" * 50 + content[150:])
    assert str(path) in load_error(train=path)
    assert f"{path}: got a table without rows" in load_error(train=write(path, {"text": [], "label": []}))
    duplicate_columns = pyarrow.Table.from_arrays([pyarrow.array(["a"])] * 2, names=["text", "text"])
    parquet.write_table(duplicate_columns, path)
    assert f"{path}: two columns are named 'text'" in load_error(train=path)
    assert "no such file" in load_error(train=tmp_path / "none.parquet")


def test_missing_pyarrow_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "my.parquet", columns())
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    assert "pyarrow is not installed; this needs it: pip install -e '.[tables]'" in load_error(train=path)


def test_parquet_is_streamed(tmp_path: Path) -> None:
    path = write(tmp_path / "my.parquet", columns(1000), row_group_size=100)
    rows = read_table(path, BadRows(skip=False))
    assert next(rows) == (0, {"text": "review 0", "label": "bad"})
    assert sum(1 for _ in rows) == 999


class NAType:
    """Like ``pandas.NA``, the missing value that is neither equal nor unequal to anything."""

    def __eq__(self, other: object) -> Any:
        return self

    def __bool__(self) -> bool:
        raise TypeError("boolean value of NA is ambiguous")

    __hash__ = object.__hash__


class Frame:
    """The part of a DataFrame that is used: names of columns, and rows as tuples."""

    def __init__(self, content: dict[Any, Sequence[Any]]) -> None:
        self.columns, self.content = list(content), content

    def itertuples(self, index: bool = True, name: str | None = "Pandas") -> Iterable[tuple[Any, ...]]:
        assert (index, name) == (False, None)
        return zip(*self.content.values(), strict=True)


def test_data_frame_is_read_as_a_table(tmp_path: Path) -> None:
    task = load_task("text", train=Frame(columns()))
    assert task.labels == TONES
    assert by_id(task)["train:9"] == Example("train:9", "review 9", label=1.0)
    task = load_task("text", train=[Frame(columns()), Frame(columns(8))], dev=Frame(columns(4)))
    assert {e.id.partition(":")[0] for e in task["train"]} == {"train", "train-2"}
    assert [e.id for e in task["dev"]] == ["dev:0", "dev:1", "dev:2", "dev:3"]
    mixed = load_task("text", train=[Frame(columns()), write(tmp_path / "my.parquet", columns())])
    assert {e.id.partition(":")[0] for e in mixed["train"]} == {"train", "my"}


def test_data_frame_with_missing_and_numpy_values() -> None:
    labels = [np.int64(1), 2.0, np.float64("nan"), None, NAType(), 1, 2, np.bool_(True)]
    frame = Frame({"text": [f"t{i}" for i in range(8)], "label": labels})
    assert "the train DataFrame, row 2: missing label: column 'label' is blank" in load_error(train=frame)
    task = load_task("text", train=frame, skip_bad=True)
    assert task.labels == ("1", "2", "true")
    assert task.skipped == {"missing label": 3}
    sets = Frame({"text": list("abc"), "label": [np.array(["x", "y"]), [], ["y"]]})
    assert by_id(load_task("text", train=sets, kind="multilabel"))["train:0"].labels == (0, 1)


def test_invalid_data_frames_are_errors() -> None:
    frame = Frame(columns())
    assert "the train DataFrame: no column 'stars'; the file has: text, label" in load_error(
        train=frame, label_column="stars"
    )
    assert "the dev DataFrame: given twice" in load_error(train=frame, dev=frame)
    assert "the train DataFrame has no rows" in load_error(train=Frame({"text": [], "label": []}))
    assert "the train DataFrame: two columns are named '1'" in load_error(train=Frame({1: ["a"], "1": ["b"]}))
    assert "train: got {'text': [], 'label': []}, expected one file or a list of files" in load_error(
        train={"text": [], "label": []}
    )


class HubRows(list[dict[str, Any]]):
    """Rows with ``features``, as ``datasets`` gives them."""

    def __init__(self, rows: Iterable[dict[str, Any]], names: Sequence[str] = (), as_list: bool = False) -> None:
        super().__init__(rows)
        label = SimpleNamespace(names=list(names)) if names else SimpleNamespace(dtype="string")
        self.features = {"text": SimpleNamespace(dtype="string")}
        self.features["label"] = SimpleNamespace(feature=label) if as_list else label


def rows(split: str, labels: Iterable[object]) -> Iterator[dict[str, Any]]:
    return ({"text": f"{split} {i}", "label": label} for i, label in enumerate(labels))


Hub = Callable[[dict[str, HubRows]], list[tuple[Any, ...]]]


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Hub:
    """Install a fake ``datasets`` library that returns given splits and records its requests."""

    def install(splits: dict[str, HubRows]) -> list[tuple[Any, ...]]:
        requests: list[tuple[Any, ...]] = []

        def load(*names: Any) -> dict[str, HubRows]:
            requests.append(names)
            return splits

        monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load))
        return requests

    return install


def test_hub_data_set_is_loaded(hub: Hub, capsys: pytest.CaptureFixture[str]) -> None:
    requests = hub(
        {split: HubRows(rows(split, [0, 1] * 6), ("neg", "pos")) for split in ("test", "train", "validation")}
    )
    task = load_task("text", hub="some/reviews")
    assert requests == [("some/reviews", None)]
    assert task.labels == ("neg", "pos")
    assert [e.id for e in task["dev"]] == [f"validation:{i}" for i in range(12)]
    assert [e.label for e in task["dev"]] == [0.0, 1.0] * 6
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("columns: ")
    load_task("text", hub="some/tweets:sentiment")
    assert requests[1:] == [("some/tweets", "sentiment")]


def test_dev_of_a_hub_data_set_without_validation(hub: Hub, capsys: pytest.CaptureFixture[str]) -> None:
    hub({split: HubRows(rows(split, ["a", "b"] * 10)) for split in ("train", "test")})
    assert {e.id.partition(":")[0] for e in load_task("text", hub="x")["dev"]} == {"test"}
    assert "note: x has no validation split; using 'test' as dev" in capsys.readouterr().err
    given_dev = load_task("text", hub="x", dev=Frame({"text": ["q"], "label": ["a"]}))
    assert [e.id for e in given_dev["dev"]] == ["dev:0"]
    hub({"train": HubRows(rows("train", ["a", "b"] * 10))})
    split_off = load_task("text", hub="x")
    assert {e.id.partition(":")[0] for e in split_off["dev"]} == {"train"}
    assert len(split_off["dev"]) == 2


def test_hub_label_lists_are_multilabel(hub: Hub) -> None:
    hub({"train": HubRows(rows("train", [[0, 1], [], [2]] * 5), ("x", "y", "z"), as_list=True)})
    task = load_task("text", hub="go/emotions", kind="multilabel")
    assert task.labels == ("x", "y", "z")
    assert by_id(task)["train:3"].labels == (0, 1)
    assert "go/emotions, train, row 0: wrong type" in load_error(hub="go/emotions")
    assert "kind=multilabel" in load_error(hub="go/emotions")


def test_errors_name_rows_of_the_hub(hub: Hub) -> None:
    hub({"train": HubRows(rows("train", [0, 1, -1, 0, 1, 0]), ("neg", "pos"))})
    assert "some/reviews, train, row 2: missing label: column 'label' is blank" in load_error(hub="some/reviews")
    assert load_task("text", hub="some/reviews", skip_bad=True).skipped == {"missing label": 1}


def test_missing_or_conflicting_sources_are_errors(hub: Hub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = write(tmp_path / "my.parquet", columns())
    assert "needs train (files) or hub (a dataset's name): got both" in load_error(train=path, hub="x")
    assert "needs train (files) or hub (a dataset's name): got neither" in load_error(dev=path)
    hub({"test": HubRows(rows("test", "ab"))})
    assert "hub: x has no split 'train'; it has test" in load_error(hub="x")
    monkeypatch.setitem(sys.modules, "datasets", None)
    assert "datasets is not installed; this needs it: pip install -e '.[hub]'" in load_error(hub="x")


def test_unreachable_hub_is_a_one_line_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(*names: Any) -> None:
        raise ConnectionError("no route\nto the Hub")

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load))
    assert load_error(hub="x").startswith("hub: cannot load it of x: ConnectionError")
    assert load_error(hub="x:y").startswith("hub: cannot load y of x: ConnectionError")
