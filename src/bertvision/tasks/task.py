"""What a task is: examples in three splits, and how they are asked and scored.

``inner`` is cut off the training data before anything is trained. Everything that is chosen or
fitted after training (epoch, model, threshold, ensemble weights) is chosen on ``inner``; ``dev`` is
only ever reported.
"""

from __future__ import annotations

import inspect
import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from bertvision.core.errors import BadInput, shorten
from bertvision.core.files import hashed_as
from bertvision.core.records import SPLITS, Answer, Example, Kind
from bertvision.core.registry import Registry, unknown_name
from bertvision.tasks.class_weights import weighed

TASKS: Registry[Callable[..., Task]] = Registry("task", "bertvision.tasks")
"""Loaders by name; a loader may have ``defaults``: recipe settings by section that suit its task."""

PathsLike = str | Path | Sequence[str | Path]


@hashed_as(
    "name",
    "kind",
    "splits",
    "metric",
    "labels",
    "no_answer",
    "threshold",
    "max_length",
    "overlap",
    "center",
    "spread",
    "merge",
    "class_weights",
    "skip_bad",
    "skipped",
)
@dataclass(frozen=True)
class Task:
    """Examples in splits, with the settings that belong to the data and not to a model."""

    name: str
    kind: Kind
    splits: Mapping[str, tuple[Example, ...]]
    metric: str
    labels: tuple[str, ...] = ()
    no_answer: bool = False
    threshold: float | None = None  # of no answer; None: fitted on inner
    max_length: int = 384
    overlap: int = 128
    center: float = 0.0  # values are learned as (value - center) / spread
    spread: float = 1.0
    merge: str = "mean"  # of an example's windows: their mean, or any-LABEL: one that gives this label is enough
    class_weights: tuple[float, ...] = ()  # what each label weighs in the loss; () is alike
    skip_bad: bool = False
    skipped: Mapping[str, int] = field(default_factory=dict)

    @property
    def outputs(self) -> int:
        """Numbers a head gives: start and end, one per label, or the value."""
        return len(self.labels) if self.kind in ("classify", "multilabel") else 2 if self.kind == "span" else 1

    @property
    def merge_label(self) -> int | None:
        """Under ``any-LABEL`` that label's number; None for the mean."""
        return None if self.merge == "mean" else self.labels.index(self.merge.removeprefix("any-"))

    def __getitem__(self, split: str) -> tuple[Example, ...]:
        return self.splits[split]


def task_defaults(name: str) -> Mapping[str, Mapping[str, object]]:
    """What a task sets differently from the defaults of a recipe; nothing for most, or for a name unknown."""
    return getattr(TASKS[name], "defaults", {}) if name in TASKS else {}


def load_task(name: str, **options: object) -> Task:
    """Load a task by name, e.g. ``load_task("squad2", train="train.json", dev="dev.json")``.

    An option that is None counts as not given, so that a command can pass on all it has.
    ``class_weights="balanced"``, which every task with labels takes, weighs them in the loss.
    """
    loader = TASKS[name]
    given = {key: value for key, value in options.items() if value is not None}
    weights = given.pop("class_weights", "none")
    _check_options(name, loader, given)
    task = replace(loader(**given), skip_bad=bool(given.get("skip_bad")))
    if task.kind == "regress":  # values of any scale are learned at mean 0 and spread 1 of the training values
        values = [example.label for example in task["train"] if example.label is not None]
        center = math.fsum(values) / len(values)
        spread = math.sqrt(math.fsum((value - center) ** 2 for value in values) / len(values))
        task = replace(task, center=center, spread=spread or 1.0)
    return weighed(task, weights)


def _check_options(name: str, loader: Callable[..., Task], given: Mapping[str, object]) -> None:
    """A stray or a missing option is the user's mistake, and named; it must not become a TypeError."""
    parameters = inspect.signature(loader).parameters
    stray = [key for key in given if key not in parameters]
    if stray and not any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        raise BadInput(unknown_name(f"option of task {name!r}", stray[0], list(parameters)))
    needed = [key for key, p in parameters.items() if p.default is p.empty and p.kind is not p.VAR_KEYWORD]
    missing = [f"--{key.replace('_', '-')}" for key in needed if key not in given]
    if missing:
        raise BadInput(f"task {name!r} needs {', '.join(missing)}")


class BadRow(Exception):
    """One row that cannot be used; raised where that is seen, judged in :meth:`BadRows.row`."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(reason, detail)
        self.reason = reason
        self.detail = detail


class BadRows:
    """Bad rows end the loading, or are counted and left out if the user asked for that."""

    def __init__(self, skip: bool, advice: str = "--skip-bad leaves such rows out and counts them") -> None:
        self.skip = skip
        self.advice = f" ({advice})" if advice else ""
        self.counts: Counter[str] = Counter()

    def add(self, reason: str, where: str, detail: str) -> None:
        """``reason`` is what to count by; ``where`` is file and row; ``detail`` says got, expected, do."""
        if not self.skip:
            raise BadInput(f"{where}: {reason}: {detail}{self.advice}")
        self.counts[reason] += 1

    @contextmanager
    def row(self, where: str) -> Iterator[None]:
        """Whatever is read inside is one row: a :class:`BadRow` raised in it ends here."""
        try:
            yield
        except BadRow as row:
            self.add(row.reason, where, row.detail)

    def __str__(self) -> str:
        counts = ", ".join(f"{reason} ({count})" for reason, count in self.counts.most_common())
        return f"{self.counts.total()} bad rows were skipped: {counts}" if counts else "no bad rows"


def save_task(task: Task, folder: Path) -> None:
    """Write a task as ``task.json`` and one JSON-lines file per split."""
    folder.mkdir(parents=True, exist_ok=True)
    for split in SPLITS:
        lines = []
        for example in task[split]:
            answers = [(answer.text, answer.start) for answer in example.answers]
            row: dict[str, object] = {
                "id": example.id,
                "text": example.text,
                "pair": example.pair,
                "answers": answers,
                "label": example.label,
                "group": example.group,
            }
            if example.labels is not None:
                row["labels"] = example.labels
            lines.append(json.dumps(row, ensure_ascii=True) + "\n")
        (folder / f"{split}.jsonl").write_text("".join(lines), encoding="utf-8")
    head = {key: value for key, value in asdict(replace(task, splits={})).items() if key != "splits"}
    (folder / "task.json").write_text(json.dumps(head, indent=1), encoding="utf-8")


def read_task(folder: Path) -> Task:
    """The inverse of :func:`save_task`."""
    head = json.loads((folder / "task.json").read_text(encoding="utf-8"))
    splits = {}
    for split in SPLITS:
        examples = []
        with (folder / f"{split}.jsonl").open(encoding="utf-8") as lines:
            for line in lines:
                fields: dict[str, Any] = json.loads(line)
                fields["answers"] = tuple(Answer(*answer) for answer in fields["answers"])
                if "labels" in fields:
                    fields["labels"] = tuple(fields["labels"])
                examples.append(Example(**fields))
        splits[split] = tuple(examples)
    listed = {key: tuple(head.get(key, ())) for key in ("labels", "class_weights")}
    return Task(**{**head, **listed, "splits": splits})


def as_paths(option: str, value: PathsLike) -> tuple[Path, ...]:
    """One path or several, as a tuple."""
    several = [value] if isinstance(value, str | Path) else value
    if not isinstance(several, Sequence) or not several or not all(isinstance(p, str | Path) and p for p in several):
        raise BadInput(f"--{option}: got {shorten(value)}, expected a file or several")
    return tuple(Path(path) for path in several)


def check_integer(option: str, value: object, least: int) -> None:
    """Refuse what is not a whole number of at least ``least``."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise BadInput(f"option {option}: got {shorten(value)}, expected a whole number of at least {least}")
