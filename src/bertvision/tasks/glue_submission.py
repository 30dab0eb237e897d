"""Predictions for the hidden test sets, as the GLUE server takes them: ``index<TAB>prediction``.

https://gluebenchmark.com/faq: one file a test set, all of them zipped without a folder. A model that
learned MNLI answers three: matched, mismatched and the diagnostic set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bertvision.core.errors import BadInput, shorten
from bertvision.core.files import atomic_open
from bertvision.core.progress import log_line
from bertvision.tasks.glue import (
    check_folder,
    choose_columns,
    expected_names,
    find_file,
    log_rows,
    read_rows,
    read_texts,
)
from bertvision.tasks.glue_table import GLUE, HIGHEST, LOWEST, GlueTask
from bertvision.tasks.task import BadRow, BadRows

Texts = tuple[str, str | None]
Labeller = Callable[[Sequence[Texts]], Iterable[Mapping[str, Any]]]
"""Texts to ``{"label": name}`` or ``{"value": number}``, in order."""

INDEXES = ("index", "id", "idx")


EVERY_ROW = "the server wants every row: fetch the file again"


def write_submission(name: str, label: Labeller, data: Path, out: Path) -> dict[str, int]:
    """Answer every test file of a task that is there; gives rows by name of the file written."""
    if name not in GLUE:
        raise BadInput(f"this model's task is {name}, which is not in GLUE; expected one of {', '.join(GLUE)}")
    task, written = GLUE[name], dict[str, int]()
    check_folder(task, data)
    for target, file in task.files.tests.items():
        path = find_file(data, file)
        if path is None:
            log_line(f"note: no {target} without its test file: {expected_names(data, file)}")
            continue
        rows = read_test(task, path)
        log_rows(str(path), len(rows), file)
        answers = label(list(rows.values()))
        with atomic_open(out / target) as output:
            output.write("index\tprediction\n")
            for index, answer in zip(rows, answers, strict=True):
                output.write(f"{index}\t{format_prediction(task, answer)}\n")
        written[target] = len(rows)
    if not written:
        looked = expected_names(data, next(iter(task.files.tests.values())))
        raise BadInput(f"task {name} has no test file: {looked}; give another --data")
    return written


def read_test(task: GlueTask, path: Path) -> dict[str, Texts]:
    """Index -> texts of a test file; without a column of indexes the row's number from 0. Blank texts pass."""
    bad, texts = BadRows(skip=False, advice=EVERY_ROW), dict[str, Texts]()
    rows, first = read_rows(task, path, bad, labelled=False)
    columns = None
    for line, row in rows:
        columns = columns or choose_columns(task, row, str(path), labelled=False)
        with bad.row(f"{path}, line {line}"):
            index = str(next((row[column] for column in INDEXES if column in row), line - first)).strip()
            if not (index.isascii() and index.isdigit()):
                raise BadRow("not an index", f"got {shorten(index)}, expected a whole number")
            if index in texts:
                raise BadRow("duplicate index", f"{index} is the index of a row above too")
            texts[index] = read_texts(row, columns, blank=True)
    return texts


def format_prediction(task: GlueTask, answer: Mapping[str, Any]) -> str:
    """What the server wants: a score within its scale, the label's name, or its number."""
    if not task.labels:
        return f"{min(max(LOWEST, float(answer['value'])), HIGHEST):.3f}"
    name = str(answer["label"])
    return name if task.words else str(task.labels.index(name))
