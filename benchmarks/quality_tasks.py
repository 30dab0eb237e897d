"""The tasks of ``quality.py``, read from a folder of real data files (not part of the project), and draws of rows.

Defaults may be chosen on the tasks of the group ``fitted``; those of ``held-out`` only measure them. CrowdFlower's
tables have no dev, so a sample of each is held out, after texts that occur twice are removed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bertvision.tasks.readers.encodings import is_unicode
from bertvision.tasks.readers.files import read_headerless, read_table
from bertvision.tasks.splits import stable_hash
from bertvision.tasks.task import BadRows

Group = Literal["fitted", "held-out"]
GROUPS: tuple[Group, ...] = ("fitted", "held-out")
VALUES = "spearmanr"  # the metric of tasks whose labels are numbers
DEV_ROWS = 1500
LEAST_PER_CLASS = 2  # in a draw of a fixed number of rows; a class without rows cannot be scored


@dataclass(frozen=True)
class LabelledText:
    """A text or pair of texts; ``label`` is the name of a class, or a number as text."""

    id: str
    text: str
    pair: str | None
    label: str


@dataclass(frozen=True)
class QualityTask:
    """Where the rows of a task are, and what is measured on them."""

    name: str
    title: str
    group: Group
    train: str  # file in the data folder
    dev: str | None  # None to hold out rows of train
    text: str  # column
    label: str  # column
    pair: str | None = None  # column
    metric: str = "accuracy"
    header: tuple[str, ...] = ()  # columns of files without a header
    dev_rows: int | None = None  # size of the sample of dev; None for all rows
    read_label: Callable[[str], str] = str  # "" leaves the row out

    @property
    def is_regression(self) -> bool:
        return self.metric == VALUES

    def read(self, data: Path) -> tuple[list[LabelledText], list[LabelledText]]:
        """The rows to draw from, and dev."""
        rows = self._read_file(data / self.train)
        if self.dev is not None:
            return rows, hash_order(self._read_file(data / self.dev), "dev")[: self.dev_rows]
        order = hash_order(distinct_texts(rows), "dev")
        size = min(DEV_ROWS, len(order) // 4)
        return order[size:], order[:size]

    def _read_file(self, path: Path) -> list[LabelledText]:
        bad = BadRows(skip=True)
        table = read_headerless(path, self.header, bad) if self.header else read_table(path, bad)
        rows = []
        for number, cells in table:
            text, pair, label = (_cell(cells, column) for column in (self.text, self.pair, self.label))
            label = self.read_label(label)
            if text and label and (pair or self.pair is None):
                rows.append(LabelledText(f"{path.stem}:{number}", text, pair or None, label))
        return rows


def _cell(cells: Mapping[str, object], column: str | None) -> str:
    text = "" if column is None else str(cells[column] or "").strip()
    return text if is_unicode(text) else ""


def hash_order(rows: Sequence[LabelledText], salt: str) -> list[LabelledText]:
    """The rows in an order that looks random and is the same on every machine."""
    return sorted(rows, key=lambda row: stable_hash(f"{salt}:{row.id}"))


def distinct_texts(rows: Sequence[LabelledText]) -> list[LabelledText]:
    """The first row of every text."""
    first: dict[tuple[str, str | None], LabelledText] = {}
    for row in rows:
        first.setdefault((row.text, row.pair), row)
    return list(first.values())


@dataclass(frozen=True)
class Regime:
    """How many training rows a method gets, and how often they are drawn."""

    name: str
    title: str
    draws: int
    per_class: int | None = None
    total: int | None = None

    def draw(self, task: QualityTask, rows: Sequence[LabelledText], number: int) -> list[LabelledText]:
        """The training rows of a draw, in random order."""
        order = hash_order(rows, f"draw{number}")
        if self.total is not None:
            return order[: self.total] if task.is_regression else _with_every_class(order, self.total)
        assert self.per_class is not None
        if task.is_regression:  # as many rows as a task with two classes gets
            return order[: 2 * self.per_class]
        ranks = _ranks_in_class(order)
        return [row for row in order if ranks[row.id] < self.per_class]


def _ranks_in_class(order: Sequence[LabelledText]) -> dict[str, int]:
    """For every row, how many rows of its class come before it."""
    seen: dict[str, int] = defaultdict(int)
    ranks = {}
    for row in order:
        ranks[row.id] = seen[row.label]
        seen[row.label] += 1
    return ranks


def _with_every_class(order: Sequence[LabelledText], total: int) -> list[LabelledText]:
    """The first rows, except that the first two of every class are among them."""
    ranks = _ranks_in_class(order)
    required = [row.id for row in order if ranks[row.id] < LEAST_PER_CLASS]
    others = [row.id for row in order if ranks[row.id] >= LEAST_PER_CLASS]
    kept = {*required, *others[: max(0, total - len(required))]}
    return [row for row in order if row.id in kept]


REGIMES = {
    regime.name: regime
    for regime in (
        Regime("8", "8 rows per class", 3, per_class=8),
        Regime("64", "64 rows per class", 3, per_class=64),
        Regime("2000", "2,000 rows", 2, total=2000),
    )
}


def _acceptable(label: str) -> str:
    return {"0": "unacceptable", "1": "acceptable"}[label]


def _decided(label: str) -> str:
    return "" if label == "Can't Decide" else label


def _relevant(positivity: str) -> str:
    """Only articles that are relevant to the US economy were rated."""
    return "relevant" if positivity else "not relevant"


TASKS = {
    task.name: task
    for task in (
        QualityTask("sst2", "SST-2", "fitted", "glue/SST-2/train.tsv", "glue/SST-2/dev.tsv", "sentence", "label"),
        QualityTask(
            "cola",
            "CoLA",
            "fitted",
            "glue/CoLA/train.tsv",
            "glue/CoLA/dev.tsv",
            "sentence",
            "label",
            metric="matthews_correlation",
            header=("source", "label", "notation", "sentence"),
            read_label=_acceptable,
        ),
        QualityTask(
            "mrpc",
            "MRPC",
            "fitted",
            "glue/MRPC/train.tsv",
            "glue/MRPC/dev.tsv",
            "#1 String",
            "Quality",
            pair="#2 String",
        ),
        QualityTask(
            "stsb",
            "STS-B",
            "fitted",
            "glue/STS-B/train.tsv",
            "glue/STS-B/dev.tsv",
            "sentence1",
            "score",
            pair="sentence2",
            metric=VALUES,
        ),
        QualityTask(
            "airline",
            "airline sentiment",
            "fitted",
            "crowdflower/Airline-Sentiment-2-w-AA.csv",
            None,
            "text",
            "airline_sentiment",
        ),
        QualityTask(
            "disasters",
            "disasters",
            "fitted",
            "crowdflower/socialmedia-disaster-tweets-DFE.csv",
            None,
            "text",
            "choose_one",
            read_label=_decided,
        ),
        QualityTask("emotion", "emotion", "held-out", "crowdflower/text_emotion.csv", None, "content", "sentiment"),
        QualityTask(
            "bias", "political bias", "held-out", "crowdflower/political_social_media.csv", None, "text", "bias"
        ),
        QualityTask(
            "economy",
            "US economy relevance",
            "held-out",
            "crowdflower/us-economic-newspaper.csv",
            None,
            "text",
            "positivity",
            read_label=_relevant,
        ),
        QualityTask(
            "mnli",
            "MNLI",
            "held-out",
            "glue/MNLI/train_10k.jsonl",
            "glue/MNLI/dev_matched.jsonl",
            "premise",
            "label",
            pair="hypothesis",
            dev_rows=DEV_ROWS,
        ),
    )
}
