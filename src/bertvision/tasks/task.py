"""A task: examples in three splits, with the metric and the preprocessing that belong to the data.

``inner`` is held out from the training data before anything is trained. Everything that is chosen or
fitted after training (epoch, model, threshold, ensemble weights) is chosen on ``inner``; ``dev`` is
used for reporting only.
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
from bertvision.core.records import FOLDS, SPLITS, Answer, Example, Kind
from bertvision.core.registry import Registry, unknown_name
from bertvision.tasks.class_weights import with_class_weights

TASKS: Registry[Callable[..., Task]] = Registry("task", "bertvision.tasks")
"""Loaders by name; a loader may have ``defaults``, recipe settings by section for its task."""

PathsLike = str | Path | Sequence[str | Path]

REPR_LABELS = 5

METRICS: Mapping[Kind, tuple[str, ...]] = {
    "span": ("f1", "exact"),
    "classify": ("accuracy", "f1", "macro_f1", "matthews_correlation"),
    "multilabel": ("f1_micro", "f1_macro", "exact"),
    "regress": ("spearmanr", "pearson"),
}
"""Metrics that can be chosen by, for each kind of task; f1 of labels is that of the second of two."""


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
    """A dataset: examples in splits, with the settings that belong to the data and not to a model.

    Usually made by :func:`load_task`. ``task["train"]`` is the tuple of examples of a split.

    Args:
        name: Name of the loader that made the task, e.g. ``"text"`` or ``"squad2"``.
        kind: ``"span"``, ``"classify"``, ``"multilabel"`` or ``"regress"``.
        splits: Examples of ``"train"``, ``"inner"`` (held out from train, for every choice made after
            training) and ``"dev"`` (for reporting).
        metric: Metric by which epochs and models are chosen, e.g. ``"accuracy"`` or ``"f1"``.
        labels: Label names; an example's label is an index into them. Empty for spans and values.
        no_answer: Whether a question may have no answer (``squad2``).
        threshold: No-answer threshold; None to fit it on ``inner``.
        max_length: Largest number of tokens in a window, special tokens included.
        overlap: Tokens that neighbouring windows of a long context share.
        center: Values to predict are standardised to ``(value - center) / spread``.
        spread: See ``center``.
        merge: How the windows of an example become one prediction: ``"mean"``, or ``"any-LABEL"`` to
            predict LABEL if any window does.
        class_weights: Weight of each label in the loss; empty for equal weights.
        skip_bad: Whether rows that cannot be used are skipped instead of raising :class:`BadInput`.
        skipped: Number of skipped rows by reason.

    Example:
        >>> from bertvision import Example, Task
        >>> rows = (Example("1", "good film", label=1.0), Example("2", "dull film", label=0.0))
        >>> splits = {"train": rows, "inner": rows, "dev": rows}
        >>> task = Task("reviews", "classify", splits, metric="accuracy", labels=("neg", "pos"))
        >>> task
        Task('reviews', classify, train=2, inner=2, dev=2, labels=neg, pos)
        >>> task["dev"][0].text
        'good film'
        >>> task.outputs
        2
    """

    name: str
    kind: Kind
    splits: Mapping[str, tuple[Example, ...]]
    metric: str
    labels: tuple[str, ...] = ()
    no_answer: bool = False
    threshold: float | None = None
    max_length: int = 384
    overlap: int = 128
    center: float = 0.0
    spread: float = 1.0
    merge: str = "mean"
    class_weights: tuple[float, ...] = ()
    skip_bad: bool = False
    skipped: Mapping[str, int] = field(default_factory=dict)

    @property
    def outputs(self) -> int:
        """Number of logits per token (spans: start and end) or per text (one per label, or the value)."""
        return len(self.labels) if self.kind in ("classify", "multilabel") else 2 if self.kind == "span" else 1

    @property
    def merge_label(self) -> int | None:
        """Index of LABEL for ``merge="any-LABEL"``, None for ``"mean"``."""
        return None if self.merge == "mean" else self.labels.index(self.merge.removeprefix("any-"))

    def __getitem__(self, split: str) -> tuple[Example, ...]:
        return (*self.splits["train"], *self.splits["inner"]) if split == FOLDS else self.splits[split]

    def __repr__(self) -> str:
        counts = [f"{split}={len(examples)}" for split, examples in self.splits.items()]
        labels = ", ".join(self.labels[:REPR_LABELS]) + (", ..." if len(self.labels) > REPR_LABELS else "")
        return f"Task({', '.join([repr(self.name), self.kind, *counts])}{f', labels={labels}' if labels else ''})"


def task_defaults(name: str) -> Mapping[str, Mapping[str, object]]:
    """Recipe settings, by section, that a task changes; empty for most tasks and for unknown names."""
    return getattr(TASKS[name], "defaults", {}) if name in TASKS else {}


def load_task(name: str, **options: object) -> Task:
    """Load the data of a task and split it into train, inner and dev.

    Args:
        name: A registered task: ``"text"`` (your own table), ``"squad1"``, ``"squad2"``,
            ``"answerability"``, or a GLUE task such as ``"mrpc"``; ``bertvision tasks`` lists them.
        **options: Options of that task's loader; None means not given. Most take ``train``, ``dev``,
            ``limit``, ``skip_bad`` and ``max_length``; all take ``metric``. Tasks with labels also take
            ``class_weights="balanced"``, which weights labels by inverse frequency in the loss.

    Returns:
        The task. Without ``dev``, a tenth of the training data is held out as dev; a further tenth is
        always held out as inner.

    Raises:
        BadInput: An option is unknown or missing, or the data cannot be used; the message names the
            file and the row.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from bertvision import load_task
        >>> folder = tempfile.TemporaryDirectory()
        >>> path = Path(folder.name, "reviews.csv")
        >>> rows = [f"film number {i},{'pos' if i % 2 else 'neg'}" for i in range(100)]
        >>> _ = path.write_text("\\n".join(["review,sentiment", *rows]))
        >>> task = load_task("text", train=path, text_column="review", label_column="sentiment")
        >>> task
        Task('text', classify, train=81, inner=9, dev=10, labels=neg, pos)
        >>> len(load_task("text", train=path, limit=50)["train"])
        45
        >>> folder.cleanup()
    """
    loader = TASKS[name]
    given = {key: value for key, value in options.items() if value is not None}
    weights, metric = given.pop("class_weights", "none"), given.pop("metric", None)
    _check_options(name, loader, given)
    task = replace(loader(**given), skip_bad=bool(given.get("skip_bad")))
    if task.kind == "regress":  # standardise the values to predict to mean 0 and standard deviation 1 on train
        values = [example.label for example in task["train"] if example.label is not None]
        center = math.fsum(values) / len(values)
        spread = math.sqrt(math.fsum((value - center) ** 2 for value in values) / len(values))
        task = replace(task, center=center, spread=spread or 1.0)
    if metric is not None:
        task = replace(task, metric=_check_metric(metric, task))
    return with_class_weights(task, weights)


def _check_metric(metric: object, task: Task) -> str:
    """A metric that a task of this kind can be chosen by: larger is better."""
    names = [name for name in METRICS[task.kind] if name != "f1" or task.kind == "span" or len(task.labels) == 2]
    if metric not in names:
        raise BadInput(f"metric: got {shorten(metric)}, expected one of {', '.join(names)} for task {task.name}")
    return str(metric)


def _check_options(name: str, loader: Callable[..., Task], given: Mapping[str, object]) -> None:
    """Raise BadInput, not TypeError, for an unknown or a missing option."""
    parameters = inspect.signature(loader).parameters
    unexpected = [key for key in given if key not in parameters]
    if unexpected and not any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        raise BadInput(unknown_name(f"option of task {name!r}", unexpected[0], list(parameters)))
    required = [key for key, p in parameters.items() if p.default is p.empty and p.kind is not p.VAR_KEYWORD]
    missing = [key for key in required if key not in given]
    if missing:
        raise BadInput(f"task {name!r} needs {', '.join(missing)}")


class BadRow(Exception):
    """One row cannot be used; :meth:`BadRows.row` catches this, and skips the row or raises BadInput."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(reason, detail)
        self.reason = reason
        self.detail = detail


class BadRows:
    """Raises BadInput at the first bad row or, with ``skip``, skips and counts bad rows."""

    def __init__(self, skip: bool, advice: str = "use skip_bad (--skip-bad) to skip and count such rows") -> None:
        self.skip = skip
        self.advice = f" ({advice})" if advice else ""
        self.counts: Counter[str] = Counter()

    def add(self, reason: str, where: str, detail: str) -> None:
        """Count a bad row by ``reason``, or raise: ``where`` is file and row, ``detail`` is got, expected, do."""
        if not self.skip:
            raise BadInput(f"{where}: {reason}: {detail}{self.advice}")
        self.counts[reason] += 1

    @contextmanager
    def row(self, where: str) -> Iterator[None]:
        """Read one row in this context: a :class:`BadRow` raised inside is added with ``where``."""
        try:
            yield
        except BadRow as error:
            self.add(error.reason, where, error.detail)

    def __str__(self) -> str:
        counts = ", ".join(f"{reason} ({count})" for reason, count in self.counts.most_common())
        return f"skipped {self.counts.total()} bad rows: {counts}" if counts else "no bad rows"


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
    settings = {key: value for key, value in asdict(replace(task, splits={})).items() if key != "splits"}
    (folder / "task.json").write_text(json.dumps(settings, indent=1), encoding="utf-8")


def read_task(folder: Path) -> Task:
    """Read a task that :func:`save_task` wrote."""
    settings = json.loads((folder / "task.json").read_text(encoding="utf-8"))
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
    tuples = {key: tuple(settings.get(key, ())) for key in ("labels", "class_weights")}
    return Task(**{**settings, **tuples, "splits": splits})


def as_paths(option: str, value: PathsLike) -> tuple[Path, ...]:
    """Convert one path or several to a tuple."""
    paths = [value] if isinstance(value, str | Path) else value
    if not isinstance(paths, Sequence) or not paths or not all(isinstance(p, str | Path) and p for p in paths):
        raise BadInput(f"{option}: got {shorten(value)}, expected one file or a list of files")
    return tuple(Path(path) for path in paths)


def check_integer(option: str, value: object, least: int) -> None:
    """Raise BadInput unless the value is an integer of at least ``least``."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise BadInput(f"{option}: got {shorten(value)}, expected an integer of at least {least}")
