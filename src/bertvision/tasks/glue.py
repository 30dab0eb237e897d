"""Loaders of the GLUE tasks: from a folder of official files, from given files, or from the Hub."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from bertvision.core.errors import BadInput, shorten
from bertvision.core.progress import log_line
from bertvision.core.records import Example
from bertvision.tasks.glue_table import GLUE, HIGHEST, LOWEST, GlueFile, GlueTask
from bertvision.tasks.readers.columns import Columns
from bertvision.tasks.readers.encodings import describe_bad_character, is_unicode
from bertvision.tasks.readers.files import Row, read_headerless, read_table
from bertvision.tasks.readers.hub import load_hub
from bertvision.tasks.readers.sources import unique_name
from bertvision.tasks.splits import make_splits
from bertvision.tasks.task import TASKS, BadRow, BadRows, PathsLike, Task, as_paths, check_integer

SUFFIXES = (".tsv", ".jsonl", ".ndjson")


def check_folder(task: GlueTask, data: Path) -> None:
    """Check that the data folder exists and is not another task's, whose files may have the same columns."""
    if not data.is_dir():
        folder = _folders(task)[0]
        raise BadInput(f"data: no such folder {data}; expected the folder {folder} or the one that contains it")
    other_folders = {folder for other in GLUE.values() for folder in _folders(other)} - set(_folders(task))
    if data.resolve().name in other_folders and not any((data / folder).is_dir() for folder in _folders(task)):
        raise BadInput(f"data: {data} is the folder of another task; task {task.name} is in {_folders(task)[0]}")


def _folders(task: GlueTask) -> list[str]:
    files = (task.files.train, task.files.dev, *task.files.tests.values())
    return list(dict.fromkeys(folder for file in files for folder in file.folders))


def find_file(data: Path, file: GlueFile) -> Path | None:
    """The official file in a data folder, else the only file whose name starts the same (a sample)."""
    folders = [*(data / folder for folder in file.folders), data]
    for folder in folders:
        for name in _file_names(file):
            if (folder / name).is_file():
                return folder / name
    for folder in folders:
        matches = [path for stem in file.stems for path in folder.glob(f"{stem}*") if path.suffix in SUFFIXES]
        if len(set(matches)) == 1:
            return matches[0]
    return None


def _file_names(file: GlueFile) -> list[str]:
    return [f"{stem}{suffix}" for stem in file.stems for suffix in SUFFIXES[:2]]


def expected_names(data: Path, file: GlueFile) -> str:
    """The file names that were tried and the files that exist, for messages."""
    folder = next((folder for folder in file.folders if (data / folder).is_dir()), "")
    existing = ", ".join(sorted(path.name for path in (data / folder).iterdir())) or "nothing"
    if len(existing) > 120:
        existing = f"{existing[:117]}..."
    names = [f"{prefix}{stem}.tsv" for stem in file.stems for prefix in (f"{file.folders[0]}/", "")]
    return f"expected {' or '.join(names)} (or .jsonl) in {data}; {folder or 'it'} contains {existing}"


def log_rows(where: str, rows: int, file: GlueFile) -> None:
    """Log a note if the number of rows is not the official one: the file is a sample, or truncated."""
    if rows != file.rows:
        log_line(f"note: {where}: {rows:,} of {file.rows:,} official rows; unless it is a sample, it is incomplete")


def read_examples(task: GlueTask, path: Path, bad: BadRows, name: str | None = None) -> list[Example]:
    """The good rows of a labelled file; ids are the file's name (or ``name``) and the row's line."""
    rows, _ = read_rows(task, path, bad, labelled=True)
    located = ((f"{path}, line {line}", f"{name or path.stem}:{line}", row) for line, row in rows)
    return _make_examples(task, located, str(path), bad)


def read_rows(task: GlueTask, path: Path, bad: BadRows, labelled: bool) -> tuple[Iterator[Row], int]:
    """The rows of a TSV or JSON-lines file, and the line of the first one."""
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise BadInput(f"{path}: unknown extension {suffix!r}; expected {' or '.join(SUFFIXES)}")
    if suffix == ".tsv" and task.header and labelled:
        return read_headerless(path, task.header, bad), 1
    return read_table(path, bad), 2 if suffix == ".tsv" else 1


def read_hub(task: GlueTask, hub: str, file: GlueFile, bad: BadRows) -> list[Example]:
    """The good rows of a split on the Hub, loaded with the ``datasets`` library."""
    where = f"{hub}, {task.hub}, {file.split}"
    if not file.split:
        names = " or ".join(_file_names(file))
        raise BadInput(f"hub: {hub} has no labels for task {task.name}; give a data folder with {names}")
    rows = load_hub(hub, task.hub, file.split)
    label_names = getattr(rows.features.get("label"), "names", None) or ()

    def located_rows() -> Iterator[tuple[str, str, Mapping[str, object]]]:
        for number, row in enumerate(rows):
            label = row.get("label")
            if isinstance(label, int) and 0 <= label < len(label_names):  # a copy may number its labels differently
                row = {**row, "label": label_names[label]}
            yield f"{where}, row {number}", f"{file.split}:{number}", row

    return _make_examples(task, located_rows(), where, bad)


def _make_examples(
    task: GlueTask, located: Iterable[tuple[str, str, Mapping[str, object]]], where: str, bad: BadRows
) -> list[Example]:
    """Examples from (location, id, row); the columns are those of the first row."""
    columns = None
    examples = []
    for row_where, row_id, row in located:
        columns = columns or choose_columns(task, row, where, labelled=True)
        with bad.row(row_where):
            text, pair = read_texts(row, columns)
            examples.append(Example(row_id, text, pair, label=read_label(task, row.get(columns.label))))
    if not examples:
        raise BadInput(f"{where}: no usable row; {bad}")
    return examples


def choose_columns(task: GlueTask, row: Mapping[str, object], where: str, labelled: bool) -> Columns:
    """The first of the task's column sets that are all in the file."""
    expected = []
    for columns in task.columns:
        names = [columns.text, columns.pair, columns.label if labelled else None]
        expected.append([name for name in names if name])
        if set(expected[-1]) <= set(row):
            return columns
    actual = shorten(", ".join(row), 200)
    raise BadInput(f"{where}: not a file of task {task.name}: got columns {actual}; expected {', '.join(expected[0])}")


def read_texts(row: Mapping[str, object], columns: Columns, blank: bool = False) -> tuple[str, str | None]:
    """The text and, for tasks on pairs, the second text; ``blank`` allows empty texts."""
    text = _read_text(row.get(columns.text), columns.text, blank)
    return text, None if columns.pair is None else _read_text(row.get(columns.pair), columns.pair, blank)


def _read_text(value: object, column: str, blank: bool) -> str:
    if value is not None and not isinstance(value, str):
        raise BadRow("wrong type", f"column {column!r}: got {shorten(value)}, expected text")
    text = (value or "").strip()
    if not text and not blank:
        raise BadRow("missing text", f"column {column!r} is blank")
    if not is_unicode(text):
        raise BadRow("broken character", f"column {column!r}: {describe_bad_character(text)}")
    return text


def read_label(task: GlueTask, value: object) -> float:
    """The index of a label written as index or name; or the score."""
    text = "" if value is None else str(value).strip()
    if not text:
        raise BadRow("missing label", "the label is blank")
    if text == "-":
        raise BadRow("no gold label", "got '-': the annotators disagreed; such rows are not used")
    if not task.labels:
        try:
            score = float(text)
        except ValueError:
            score = float("nan")
        if not LOWEST <= score <= HIGHEST:
            raise BadRow("not a score", f"got {shorten(text)}, expected a number from {LOWEST:g} to {HIGHEST:g}")
        return score
    for index, label in enumerate(task.labels):
        if text in (str(index), label):
            return float(index)
    hint = "; -1 marks the hidden labels of a test set" if text == "-1" else ""
    expected = ", ".join(f"{index} or {label}" for index, label in enumerate(task.labels))
    raise BadRow("unknown label", f"got {shorten(text)}, expected {expected}{hint}")


@dataclass(frozen=True)
class GlueLoader:
    """Loader of one GLUE task; its docstring is the task's description."""

    task: GlueTask

    def __post_init__(self) -> None:
        object.__setattr__(self, "__doc__", self.task.about)

    @property
    def defaults(self) -> Mapping[str, Mapping[str, object]]:
        """Recipe settings by section; the length is a default of the loader instead."""
        return {"tune": {"bert_lr": self.task.lr, "batch": self.task.batch}}

    def __call__(
        self,
        train: PathsLike | None = None,
        dev: PathsLike | None = None,
        *,
        data: str | Path | None = None,
        hub: str | None = None,
        limit: int | None = None,
        skip_bad: bool = False,
        max_length: int | None = None,
    ) -> Task:
        """Load the task from files, from a data folder, or from the Hub.

        ``data`` is the task's official folder or its parent; ``train`` and ``dev`` files take precedence.
        With ``train`` files alone, a tenth is held out as dev. ``hub`` is the name of a dataset, e.g.
        nyu-mll/glue. ``limit`` samples that many training rows by hash, and at most as many for dev.
        """
        length = self.task.max_length if max_length is None else max_length
        check_integer("max_length", length, 1)
        bad = BadRows(skip_bad)
        source = _Source(self.task, None if data is None else Path(data), hub)
        train_files, dev_files = source.files("train", train), source.files("dev", dev)
        names = _name_files((*(train_files or ()), *(dev_files or ())))
        train_rows = source.read("train", train_files, names, bad)
        dev_rows = source.read("dev", dev_files, names, bad)
        if train_rows is None:
            raise BadInput(f"task {self.task.name!r} needs data (a folder), train (files) or hub (a dataset's name)")
        return Task(
            name=self.task.name,
            kind="classify" if self.task.labels else "regress",
            splits=make_splits(train_rows, dev_rows, stratify=bool(self.task.labels), limit=limit),
            metric=self.task.metrics[0],
            labels=self.task.labels,
            max_length=length,
            overlap=0,
            skipped=dict(bad.counts),
        )


@dataclass(frozen=True)
class _Source:
    """Where a split comes from: given files, else a data folder, else the Hub."""

    task: GlueTask
    data: Path | None
    hub: str | None

    def __post_init__(self) -> None:
        if self.data is not None and self.hub is not None:
            raise BadInput("data, hub: got both, expected one of them")
        if self.data is not None:
            check_folder(self.task, self.data)

    def official(self, split: str) -> GlueFile:
        return self.task.files.train if split == "train" else self.task.files.dev

    def files(self, split: str, given: PathsLike | None) -> tuple[Path, ...] | None:
        """The files of a split; None if it comes from the Hub or was not given."""
        if given is not None:
            return as_paths(split, given)
        if self.data is None:
            return None
        path = find_file(self.data, self.official(split))
        if path is None:
            expected = expected_names(self.data, self.official(split))
            raise BadInput(f"task {self.task.name} has no {split} file: {expected}; give {split} files")
        return (path,)

    def read(
        self, split: str, files: tuple[Path, ...] | None, names: Mapping[Path, str], bad: BadRows
    ) -> list[Example] | None:
        """The examples of a split; None if neither files nor the Hub were given."""
        official = self.official(split)
        if files is not None:
            examples = [e for path in files for e in read_examples(self.task, path, bad, names[path])]
            log_rows(", ".join(map(str, files)), len(examples), official)
        elif self.hub is not None:
            examples = read_hub(self.task, self.hub, official, bad)
            log_rows(f"{self.hub}, {self.task.hub}, {official.split}", len(examples), official)
        else:
            return None
        return examples


def _name_files(paths: Iterable[Path]) -> dict[Path, str]:
    """The prefix of the ids of each file's rows: its stem, numbered if several files share it."""
    names: dict[Path, str] = {}
    seen: set[Path] = set()
    for path in paths:
        if path.resolve() in seen:
            raise BadInput(f"{path}: given twice; give other rows as dev, or no dev to hold it out from train")
        seen.add(path.resolve())
        names[path] = unique_name(path.stem, set(names.values()))
    return names


for _record in GLUE.values():
    TASKS.register(_record.name)(GlueLoader(_record))
