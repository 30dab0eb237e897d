"""Commands that use what was made: predict, score."""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import Any

from bertvision.cli.options import Result, positive_int
from bertvision.core.errors import BadInput, shorten


def add_commands(commands: Any) -> None:
    predict = commands.add_parser("predict", help="ask a saved model: a question, a text, or a file of them")
    predict.add_argument("model", metavar="MODEL", help="a model folder, e.g. RUN/model")
    predict.add_argument("--question", metavar="Q", help="for a question-answering model, with --context")
    predict.add_argument("--context", metavar="C", help="text to find the answer in")
    predict.add_argument("--text", metavar="T", help="for a model that predicts labels or numbers")
    predict.add_argument("--pair", metavar="T", help="second text of a pair")
    predict.add_argument("--file", metavar="in.jsonl", help='JSON lines {"question", "context"} or {"text", "pair"}')
    predict.add_argument("--glue-submission", metavar="DIR", help="write files for the GLUE server; needs --data")
    predict.add_argument("--data", metavar="FOLDER", help="GLUE's official files, with the test files")
    predict.add_argument("--base", metavar="ENCODER", help="base encoder of an adapted model, if it was moved")
    predict.add_argument("--top-k", type=positive_int, default=1, metavar="N", help="number of answers; default 1")

    score = commands.add_parser("score", help="score a file of predictions as the official script does")
    score.add_argument("task", metavar="TASK", help="squad1, squad2, classify, regress, or a GLUE task such as mrpc")
    score.add_argument("files", nargs="+", metavar="GOLD... PREDICTIONS", help="gold files, then one predictions file")
    squad = score.add_argument_group("squad2")
    squad.add_argument("--na-probs", metavar="F", help="no-answer probabilities as JSON; adds best_exact and best_f1")
    squad.add_argument("--na-prob-thresh", type=float, metavar="X", help="above X a question is unanswered; default 1")
    labels = score.add_argument_group("labels and numbers")
    labels.add_argument("--label-column", metavar="NAME", help="column of the gold file; guessed by default")
    labels.add_argument("--labels", metavar="A,B", help="all labels; of two, the second is the positive one")
    labels.add_argument("--encoding", metavar="NAME", help="encoding of CSV and TSV files, e.g. cp1252")


def predict_command(options: argparse.Namespace) -> Result:
    from bertvision.model import QuestionAnswerer, load_model

    inputs = [options.question, options.text, options.file, options.glue_submission]
    if sum(value is not None for value in inputs) != 1:
        raise BadInput(
            "predict needs one of --question Q --context C, --text T [--pair T], --file in.jsonl, --glue-submission DIR"
        )
    if options.glue_submission is not None:
        return _submit(options)
    if options.data is not None:
        raise BadInput("--data is for --glue-submission DIR; leave it out")
    model = load_model(options.model, base=options.base)
    spans = isinstance(model, QuestionAnswerer)
    keys = ("question", "context") if spans else ("text", "pair")
    from_file = options.file is not None
    rows = _read_lines(Path(options.file), keys, spans) if from_file else [_single(options, keys, spans)]
    answers = list(model.answers(rows, options.top_k) if isinstance(model, QuestionAnswerer) else model.labels(rows))
    text = "\n".join(json.dumps(answer, ensure_ascii=False) for answer in answers)
    return answers if from_file else answers[0], text


def _submit(options: argparse.Namespace) -> Result:
    """Write the model's answers to the hidden test sets of its task."""
    from bertvision.model import TextClassifier
    from bertvision.tasks.glue_submission import write_submission

    if options.data is None:
        raise BadInput("--glue-submission needs --data FOLDER, where GLUE's test files are")
    model = TextClassifier.from_pretrained(options.model, base=options.base)
    out = Path(options.glue_submission)
    written = write_submission(model.task.name, model.labels, Path(options.data), out)
    text = "\n".join(f"{out / name}: {rows:,} predictions" for name, rows in written.items())
    return {"task": model.task.name, "folder": str(out), "files": written}, text


def _single(options: argparse.Namespace, keys: tuple[str, str], spans: bool) -> tuple[str, Any]:
    """The one row that was typed."""
    first, second = (getattr(options, key) for key in keys)
    if first is None or (spans and second is None):
        expected = "--question Q --context C" if spans else "--text T [--pair T]"
        raise BadInput(f"this model is for {'questions' if spans else 'texts'}: give {expected}")
    _check_text(first, f"--{keys[0]}")
    if second is not None:
        _check_text(second, f"--{keys[1]}")
    return first, second


def _check_text(value: object, where: str) -> None:
    """Reject blank text and lone surrogates, which JSON and a terminal can send."""
    from bertvision.tasks.readers.encodings import is_unicode

    if not isinstance(value, str) or not value.strip():
        raise BadInput(f"{where} is {shorten(value)}, expected a text")
    if not is_unicode(value):
        raise BadInput(f"{where} is {shorten(value)}, which is not valid Unicode; expected a text in UTF-8")


def _read_lines(path: Path, keys: tuple[str, str], spans: bool) -> list[tuple[str, Any]]:
    """One row per line; a blank line is an error, because answers are matched to rows by position."""
    try:
        text = path.read_bytes().decode("utf-8-sig").rstrip()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"cannot read {path}: {error}; expected UTF-8 JSON lines") from error
    if not text:
        raise BadInput(f"{path} has no lines; expected JSON lines with {keys[0]!r} and {keys[1]!r}")
    rows: list[tuple[str, Any]] = []
    # Not splitlines: it also splits at characters that may occur inside a JSON string.
    for number, line in enumerate(text.split("\n"), 1):
        where = f"{path}, line {number}"
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise BadInput(f"{where}: not JSON: {error}; expected one object a line") from error
        if not isinstance(row, dict):
            raise BadInput(f"{where}: got {shorten(row)}, expected an object with {keys[0]!r}")
        first, second = row.get(keys[0]), row.get(keys[1])
        _check_text(first, f"{where}: {keys[0]!r}")
        if spans or second is not None:
            _check_text(second, f"{where}: {keys[1]!r}")
        rows.append((str(first), second))
    return rows


def score_command(options: argparse.Namespace) -> Result:
    if len(options.files) < 2:
        raise BadInput("score needs gold files and then one file of predictions: score TASK GOLD... PREDICTIONS")
    paths = [Path(path) for path in options.files]
    squad = options.task in ("squad1", "squad2")
    _refuse(options, ("label_column", "labels", "encoding") if squad else ("na_probs", "na_prob_thresh"))
    task, count, scores = (_score_squad if squad else _score_labels)(options, paths)
    lines = [f"{name:20} {value:10.4f}" for name, value in scores.items()]
    return {"task": task, "n": count, "scores": scores}, "\n".join(lines)


def _refuse(options: argparse.Namespace, names: tuple[str, ...]) -> None:
    for name in names:
        if getattr(options, name) is not None:
            raise BadInput(f"--{name.replace('_', '-')} is not for {options.task}; leave it out")


def _score_squad(options: argparse.Namespace, paths: list[Path]) -> tuple[str, int, dict[str, float]]:
    from bertvision.evaluation.metrics.squad import (
        no_answer_scores,
        read_gold,
        read_na_probs,
        read_predictions,
        squad_scores,
    )

    if options.task == "squad1":
        _refuse(options, ("na_probs", "na_prob_thresh"))
    threshold = 1.0 if options.na_prob_thresh is None else options.na_prob_thresh
    if math.isnan(threshold) or (options.na_prob_thresh is not None and options.na_probs is None):
        raise BadInput(f"--na-prob-thresh {threshold}: expected a number, and the probabilities by --na-probs F")
    gold, predictions = read_gold(paths[:-1]), read_predictions(paths[-1])
    if options.na_probs is None:
        return options.task, len(gold), squad_scores(gold, predictions)
    scores = no_answer_scores(gold, predictions, read_na_probs(Path(options.na_probs)), threshold)
    return options.task, len(gold), scores


def _score_labels(options: argparse.Namespace, paths: list[Path]) -> tuple[str, int, dict[str, float]]:
    from bertvision.evaluation.score_files import score_label_files

    labels = tuple(part.strip() for part in options.labels.split(",")) if options.labels is not None else ()
    return score_label_files(options.task, paths[:-1], paths[-1], options.label_column, labels, options.encoding)
