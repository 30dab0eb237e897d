"""Predictions for the hidden test sets in the format of the GLUE server: ``index<TAB>prediction``.

https://gluebenchmark.com/faq: one file per test set, zipped together without a folder. A model trained on
MNLI predicts three test sets: matched, mismatched and the diagnostic set.
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
"""Maps texts to ``{"label": name}`` or ``{"value": number}``, in order."""

INDEX_COLUMNS = ("index", "id", "idx")

ADVICE = "the server expects every row: download the file again"


def write_submission(name: str, label: Labeller, data: Path, out: Path) -> dict[str, int]:
    """Predict every test file of a task found in ``data``; returns the number of rows by file written."""
    if name not in GLUE:
        raise BadInput(f"this model's task is {name}, which is not a GLUE task; expected one of {', '.join(GLUE)}")
    task, written = GLUE[name], dict[str, int]()
    check_folder(task, data)
    for target, file in task.files.tests.items():
        path = find_file(data, file)
        if path is None:
            log_line(f"note: skipping {target}, its test file is missing: {expected_names(data, file)}")
            continue
        texts = read_test(task, path)
        log_rows(str(path), len(texts), file)
        predictions = label(list(texts.values()))
        with atomic_open(out / target) as output:
            output.write("index\tprediction\n")
            for index, prediction in zip(texts, predictions, strict=True):
                output.write(f"{index}\t{format_prediction(task, prediction)}\n")
        written[target] = len(texts)
    if not written:
        expected = expected_names(data, next(iter(task.files.tests.values())))
        raise BadInput(f"task {name} has no test file: {expected}; give another data folder")
    return written


def read_test(task: GlueTask, path: Path) -> dict[str, Texts]:
    """Index -> texts of a test file; without an index column, row numbers from 0. Blank texts are allowed."""
    bad, texts = BadRows(skip=False, advice=ADVICE), dict[str, Texts]()
    rows, first = read_rows(task, path, bad, labelled=False)
    columns = None
    for line, row in rows:
        columns = columns or choose_columns(task, row, str(path), labelled=False)
        with bad.row(f"{path}, line {line}"):
            index = str(next((row[column] for column in INDEX_COLUMNS if column in row), line - first)).strip()
            if not (index.isascii() and index.isdigit()):
                raise BadRow("not an index", f"got {shorten(index)}, expected an integer")
            if index in texts:
                raise BadRow("duplicate index", f"{index} is already the index of a row above")
            texts[index] = read_texts(row, columns, blank=True)
    return texts


def format_prediction(task: GlueTask, answer: Mapping[str, Any]) -> str:
    """A prediction as the server expects it: a score clipped to its scale, the label's name, or its index."""
    if not task.labels:
        return f"{min(max(LOWEST, float(answer['value'])), HIGHEST):.3f}"
    name = str(answer["label"])
    return name if task.words else str(task.labels.index(name))
