"""The GLUE tasks as loaders: from a folder of official files, from files of one's own, or from the Hub."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
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
    """Refuse what is no folder, and the folder of another task: its files may well have the same columns."""
    if not data.is_dir():
        raise BadInput(f"--data {data}: no such folder; expected the one with GLUE's folders, or {_own(task)[0]}")
    others = {folder for other in GLUE.values() for folder in _own(other)} - set(_own(task))
    if data.resolve().name in others and not any((data / folder).is_dir() for folder in _own(task)):
        raise BadInput(f"--data {data}: this is the folder of another task; task {task.name} is in {_own(task)[0]}")


def _own(task: GlueTask) -> list[str]:
    files = (task.files.train, task.files.dev, *task.files.tests.values())
    return list(dict.fromkeys(folder for file in files for folder in file.folders))


def find_file(data: Path, file: GlueFile) -> Path | None:
    """The official file below a folder; failing that the only one whose name begins the same (a sample)."""
    places = [*(data / folder for folder in file.folders), data]
    for place in places:
        for name in _names(file):
            if (place / name).is_file():
                return place / name
    for place in places:
        alike = [path for stem in file.stems for path in place.glob(f"{stem}*") if path.suffix in SUFFIXES]
        if len(set(alike)) == 1:
            return alike[0]
    return None


def _names(file: GlueFile) -> list[str]:
    return [f"{stem}{suffix}" for stem in file.stems for suffix in SUFFIXES[:2]]


def expected_names(data: Path, file: GlueFile) -> str:
    """Which names were tried where, and what there is instead."""
    folder = next((folder for folder in file.folders if (data / folder).is_dir()), "")
    there = ", ".join(sorted(path.name for path in (data / folder).iterdir())) or "nothing"
    listed = there if len(there) <= 120 else f"{there[:117]}..."
    names = [f"{place}{stem}.tsv" for stem in file.stems for place in (f"{file.folders[0]}/", "")]
    return f"looked for {' or '.join(names)} (or .jsonl) in {data}; {folder or 'it'} holds {listed}"


def log_rows(where: str, rows: int, file: GlueFile) -> None:
    """A sample is fine and a file cut short is not; only its user can tell."""
    if rows != file.rows:
        log_line(f"note: {where}: {rows:,} rows, officially {file.rows:,}; if this is no sample, the file is not whole")


def read_examples(task: GlueTask, path: Path, bad: BadRows, name: str | None = None) -> list[Example]:
    """The good rows of a labelled file; ids are the file's name (or ``name``) and the row's line."""
    rows, _ = read_rows(task, path, bad, labelled=True)
    named = ((f"{path}, line {line}", f"{name or path.stem}:{line}", row) for line, row in rows)
    return _examples(task, named, str(path), bad)


def read_rows(task: GlueTask, path: Path, bad: BadRows, labelled: bool) -> tuple[Iterator[Row], int]:
    """The rows of a TSV or JSON-lines file, and the line of the first one."""
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise BadInput(f"{path}: unknown extension {suffix!r}; GLUE's files are {' or '.join(SUFFIXES)}")
    if suffix == ".tsv" and task.header and labelled:
        return read_headerless(path, task.header, bad), 1
    return read_table(path, bad), 2 if suffix == ".tsv" else 1


def read_hub(task: GlueTask, hub: str, file: GlueFile, bad: BadRows) -> list[Example]:
    """The same rows with the ``datasets`` library."""
    where = f"{hub}, {task.hub}, {file.split}"
    if not file.split:
        wanted = " or ".join(_names(file))
        raise BadInput(f"--hub {hub}: the Hub has no labels for task {task.name}; give --data FOLDER with {wanted}")
    rows = load_hub(hub, task.hub, file.split)
    names = getattr(rows.features.get("label"), "names", None) or ()
    named = ((f"{where}, row {i}", f"{file.split}:{i}", _with_name(row, names)) for i, row in enumerate(rows))
    return _examples(task, named, where, bad)


def _with_name(row: Mapping[str, object], names: Sequence[str]) -> Mapping[str, object]:
    """Another copy of the data may number its labels in another order; their names say what they are."""
    label = row.get("label")
    return {**row, "label": names[label]} if isinstance(label, int) and 0 <= label < len(names) else row


def _examples(
    task: GlueTask, rows: Iterable[tuple[str, str, Mapping[str, object]]], where: str, bad: BadRows
) -> list[Example]:
    """Examples from (place, id, row); the first row says which of the known columns the file has."""
    rows = iter(rows)
    first = next(rows, None)
    if first is None:
        raise BadInput(f"{where}: no row can be used; {bad}")
    columns = choose_columns(task, first[2], where, labelled=True)
    examples = []
    for place, name, row in chain([first], rows):
        with bad.row(place):
            text, pair = read_texts(row, columns)
            examples.append(Example(name, text, pair, label=read_label(task, row.get(columns.label))))
    if not examples:
        raise BadInput(f"{where}: no row can be used; {bad}")
    return examples


def choose_columns(task: GlueTask, row: Mapping[str, object], where: str, labelled: bool) -> Columns:
    """The first of the task's sets of columns that the file has whole."""
    for columns in task.columns:
        if {column for column in _named(columns, labelled) if column} <= set(row):
            return columns
    expected = ", ".join(column for column in _named(task.columns[0], labelled) if column)
    has = shorten(", ".join(row), 200)
    raise BadInput(f"{where}: not a file of task {task.name}: it has the columns {has}; expected {expected}")


def _named(columns: Columns, labelled: bool) -> tuple[str | None, ...]:
    return (columns.text, columns.pair, columns.label) if labelled else (columns.text, columns.pair)


def read_texts(row: Mapping[str, object], columns: Columns, blank: bool = False) -> tuple[str, str | None]:
    """The text and, for tasks on pairs, the second one; ``blank`` lets empty ones pass."""
    text = _text(row.get(columns.text), columns.text, blank)
    return text, None if columns.pair is None else _text(row.get(columns.pair), columns.pair, blank)


def _text(value: object, column: str, blank: bool) -> str:
    if value is not None and not isinstance(value, str):
        raise BadRow("wrong type", f"column {column!r}: got {shorten(value)}, expected text")
    text = (value or "").strip()
    if not text and not blank:
        raise BadRow("missing text", f"column {column!r} is blank")
    if not is_unicode(text):
        raise BadRow("broken character", f"column {column!r}: {describe_bad_character(text)}")
    return text


def read_label(task: GlueTask, value: object) -> float:
    """The label's number, written as that or as its name; or the score."""
    written = "" if value is None else str(value).strip()
    if not written:
        raise BadRow("missing label", "the label is blank")
    if written == "-":
        raise BadRow("no gold label", "got '-': the annotators disagreed; such rows are neither learned nor scored")
    if not task.labels:
        try:
            score = float(written)
        except ValueError:
            score = float("nan")
        if not LOWEST <= score <= HIGHEST:
            raise BadRow("not a score", f"got {shorten(written)}, expected a number from {LOWEST:g} to {HIGHEST:g}")
        return score
    for number, label in enumerate(task.labels):
        if written in (str(number), label):
            return float(number)
    hidden = "; -1 marks labels that GLUE keeps to itself" if written == "-1" else ""
    expected = ", ".join(f"{number} or {label}" for number, label in enumerate(task.labels))
    raise BadRow("unknown label", f"got {shorten(written)}, expected {expected}{hidden}")


@dataclass(frozen=True)
class GlueLoader:
    """Loads one task of the table; its own docstring says which."""

    task: GlueTask

    def __post_init__(self) -> None:
        object.__setattr__(self, "__doc__", self.task.about)

    @property
    def defaults(self) -> Mapping[str, Mapping[str, object]]:
        """Recipe settings by section; the length is the loader's own default."""
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
        """``data`` is the task's official folder or the one above; ``train`` and ``dev`` files go before it.

        With ``train`` files alone, a tenth is cut off for dev. ``hub`` is a data set's name, e.g.
        nyu-mll/glue. ``limit`` takes that many training rows, spread by a hash, and as many for dev.
        """
        length = self.task.max_length if max_length is None else max_length
        check_integer("max_length", length, 1)
        bad = BadRows(skip_bad)
        source = _Source(self.task, None if data is None else Path(data), hub)
        files = source.files("train", train), source.files("dev", dev)
        names = _distinct_names(path for paths in files for path in paths or ())
        rows = source.read("train", files[0], names, bad), source.read("dev", files[1], names, bad)
        if rows[0] is None:
            raise BadInput(f"task {self.task.name!r} needs --data FOLDER, --train FILE or --hub NAME")
        return Task(
            name=self.task.name,
            kind="classify" if self.task.labels else "regress",
            splits=make_splits(rows[0], rows[1], stratify=bool(self.task.labels), limit=limit),
            metric=self.task.metrics[0],
            labels=self.task.labels,
            max_length=length,
            overlap=0,
            skipped=dict(bad.counts),
        )


@dataclass(frozen=True)
class _Source:
    """Where the splits come from that no files were given for."""

    task: GlueTask
    data: Path | None
    hub: str | None

    def __post_init__(self) -> None:
        if self.data is not None and self.hub is not None:
            raise BadInput("--data and --hub: got both, expected one place to take the data from")
        if self.data is not None:
            check_folder(self.task, self.data)

    def official(self, split: str) -> GlueFile:
        return self.task.files.train if split == "train" else self.task.files.dev

    def files(self, split: str, given: PathsLike | None) -> tuple[Path, ...] | None:
        """The files of a split; None where it comes from the Hub or from nowhere."""
        if given is not None:
            return as_paths(split, given)
        if self.data is None:
            return None
        found = find_file(self.data, self.official(split))
        if found is None:
            looked = expected_names(self.data, self.official(split))
            raise BadInput(f"task {self.task.name} has no {split} file: {looked}; give another, or --{split} FILE")
        return (found,)

    def read(
        self, split: str, files: tuple[Path, ...] | None, names: Mapping[Path, str], bad: BadRows
    ) -> list[Example] | None:
        """The examples of a split; None where it comes from nowhere."""
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


def _distinct_names(paths: Iterable[Path]) -> dict[Path, str]:
    """What ids begin with: the stem, numbered if another file has the same."""
    names: dict[Path, str] = {}
    seen: set[Path] = set()
    for path in paths:
        if path.resolve() in seen:
            raise BadInput(f"{path}: given twice; dev must be other rows than train, or left out to be cut off train")
        seen.add(path.resolve())
        taken = set(names.values())
        names[path] = unique_name(path.stem, taken)
    return names


for _record in GLUE.values():
    TASKS.register(_record.name)(GlueLoader(_record))
