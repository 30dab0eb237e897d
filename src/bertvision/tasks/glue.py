"""The GLUE tasks as loaders: from a folder of official files, from files of one's own, or from the Hub."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from bertvision.core.errors import BadInput
from bertvision.core.records import Example
from bertvision.tasks.glue_files import check_folder, find_file, looked_for, note_rows, read_examples, read_hub
from bertvision.tasks.glue_table import GLUE, GlueFile, GlueTask
from bertvision.tasks.options import PathsLike, as_paths, check_whole
from bertvision.tasks.splits import make_splits
from bertvision.tasks.task import TASKS, BadRows, Task


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
        check_whole("max_length", length, 1)
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
            looked = looked_for(self.data, self.official(split))
            raise BadInput(f"task {self.task.name} has no {split} file: {looked}; give another, or --{split} FILE")
        return (found,)

    def read(
        self, split: str, files: tuple[Path, ...] | None, names: Mapping[Path, str], bad: BadRows
    ) -> list[Example] | None:
        """The examples of a split; None where it comes from nowhere."""
        official = self.official(split)
        if files is not None:
            examples = [e for path in files for e in read_examples(self.task, path, bad, names[path])]
            note_rows(", ".join(map(str, files)), len(examples), official)
        elif self.hub is not None:
            examples = read_hub(self.task, self.hub, official, bad)
            note_rows(f"{self.hub}, {self.task.hub}, {official.split}", len(examples), official)
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
        numbered = (f"{path.stem}-{number}" for number in count(2))
        names[path] = path.stem if path.stem not in taken else next(name for name in numbered if name not in taken)
    return names


for _record in GLUE.values():
    TASKS.register(_record.name)(GlueLoader(_record))
