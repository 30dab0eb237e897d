"""Commands that use a model or its predictions: predict, score."""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import Any

from bertvision.cli.options import Result, add_command, positive_int
from bertvision.core.errors import BadInput, shorten


def add_commands(subparsers: Any) -> None:
    predict = add_command(
        subparsers,
        "predict",
        "predict with a saved model: one question or text, or a file of them",
        'runs/reviews/model --text "Great crew, on time."',
        'runs/squad/model --question "Who wrote it?" --context "Emma was written by Jane Austen." --top-k 3',
        "runs/reviews/model --file texts.jsonl",
    )
    predict.add_argument("model", metavar="MODEL", help="model folder, e.g. RUN/model")
    predict.add_argument("--question", metavar="Q", help="question for a question-answering model; needs --context")
    predict.add_argument("--context", metavar="C", help="context that contains the answer")
    predict.add_argument("--text", metavar="T", help="text for a model that predicts labels or numbers")
    predict.add_argument("--pair", metavar="T", help="second text of a pair")
    predict.add_argument(
        "--file", metavar="in.jsonl", help='JSON Lines with {"question", "context"} or {"text", "pair"}, one per line'
    )
    predict.add_argument(
        "--glue-submission", metavar="DIR", help="write prediction files for the GLUE server to DIR; needs --data"
    )
    predict.add_argument("--data", metavar="FOLDER", help="folder of GLUE's official files, test files included")
    predict.add_argument(
        "--base", metavar="ENCODER", help="base encoder of a model that stores weight deltas only, if it was moved"
    )
    predict.add_argument(
        "--top-k", type=positive_int, default=1, metavar="N", help="number of answers per question (default: 1)"
    )

    score = add_command(
        subparsers,
        "score",
        "score a predictions file with the metrics of the official scripts",
        "squad2 dev-v2.0.json predictions.json --na-probs na_probs.json",
        "classify dev.csv predictions.csv --label-column stars",
    )
    score.add_argument("task", metavar="TASK", help="squad1, squad2, classify, regress, or a GLUE task such as mrpc")
    score.add_argument(
        "files", nargs="+", metavar="GOLD... PREDICTIONS", help="one or more gold files, then one predictions file"
    )
    squad = score.add_argument_group("squad2")
    squad.add_argument(
        "--na-probs", metavar="F", help="JSON file of no-answer probabilities; adds best_exact and best_f1"
    )
    squad.add_argument(
        "--na-prob-thresh",
        type=float,
        metavar="X",
        help="questions with a no-answer probability above X count as unanswered (default: 1)",
    )
    labels = score.add_argument_group("labels and numbers")
    labels.add_argument("--label-column", metavar="NAME", help="label column of the gold files (default: detected)")
    labels.add_argument("--labels", metavar="A,B", help="all labels; of two labels, the second is the positive one")
    labels.add_argument("--encoding", metavar="NAME", help="text encoding of CSV and TSV files, e.g. cp1252")


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
        raise BadInput("--data works only with --glue-submission DIR; leave out --data")
    model = load_model(options.model, base=options.base)
    spans = isinstance(model, QuestionAnswerer)
    keys = ("question", "context") if spans else ("text", "pair")
    from_file = options.file is not None
    rows = _read_lines(Path(options.file), keys, spans) if from_file else [_single(options, keys, spans)]
    results = list(model.answers(rows, options.top_k) if isinstance(model, QuestionAnswerer) else model.labels(rows))
    text = "\n".join(json.dumps(round_numbers(result), ensure_ascii=False) for result in results)
    return results if from_file else results[0], text


def round_numbers(value: Any) -> Any:
    """A JSON value whose fractions have six significant digits, for people to read; ``--json`` has all digits."""
    if isinstance(value, dict):
        return {key: round_numbers(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [round_numbers(entry) for entry in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value


def _submit(options: argparse.Namespace) -> Result:
    """Write the model's predictions for the test files of its GLUE task."""
    from bertvision.model import TextClassifier
    from bertvision.tasks.glue_submission import write_submission

    if options.data is None:
        raise BadInput("--glue-submission needs --data FOLDER, the folder of GLUE's test files")
    model = TextClassifier.from_pretrained(options.model, base=options.base)
    out = Path(options.glue_submission)
    written = write_submission(model.task.name, model.labels, Path(options.data), out)
    text = "\n".join(f"{out / name}: {rows:,} predictions" for name, rows in written.items())
    return {"task": model.task.name, "folder": str(out), "files": written}, text


def _single(options: argparse.Namespace, keys: tuple[str, str], spans: bool) -> tuple[str, Any]:
    """The question or text given on the command line."""
    first, second = (getattr(options, key) for key in keys)
    if first is None or (spans and second is None):
        expected = "--question Q --context C" if spans else "--text T [--pair T]"
        raise BadInput(f"this model predicts from {'questions' if spans else 'texts'}, expected {expected}")
    _check_text(first, f"--{keys[0]}")
    if second is not None:
        _check_text(second, f"--{keys[1]}")
    return first, second


def _check_text(value: object, where: str) -> None:
    """Reject blank text, and lone surrogates, which JSON and terminals can contain."""
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
        raise BadInput(f"cannot read {path}: {error}; expected JSON Lines in UTF-8") from error
    if not text:
        raise BadInput(f"{path} is empty; expected JSON Lines with {keys[0]!r} and {keys[1]!r}")
    rows: list[tuple[str, Any]] = []
    # splitlines() would also split at characters that are legal inside JSON strings.
    for number, line in enumerate(text.split("\n"), 1):
        where = f"{path}, line {number}"
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise BadInput(f"{where}: not JSON: {error}; expected one JSON object per line") from error
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
        raise BadInput("score needs gold files and one predictions file: bertvision score TASK GOLD... PREDICTIONS")
    paths = [Path(path) for path in options.files]
    squad = options.task in ("squad1", "squad2")
    _reject(options, ("label_column", "labels", "encoding") if squad else ("na_probs", "na_prob_thresh"))
    if squad:
        task, count, scores = _score_squad(options, paths)
    else:
        from bertvision.evaluation.score_files import score_label_files

        labels = tuple(part.strip() for part in options.labels.split(",")) if options.labels is not None else ()
        task, count, scores = score_label_files(
            options.task, paths[:-1], paths[-1], options.label_column, labels, options.encoding
        )
    lines = [f"{name:20} {value:10.4f}" for name, value in scores.items()]
    return {"task": task, "n": count, "scores": scores}, "\n".join(lines)


def _reject(options: argparse.Namespace, names: tuple[str, ...]) -> None:
    for name in names:
        if getattr(options, name) is not None:
            raise BadInput(f"--{name.replace('_', '-')} does not apply to {options.task}; leave it out")


def _score_squad(options: argparse.Namespace, paths: list[Path]) -> tuple[str, int, dict[str, float]]:
    from bertvision.evaluation.metrics.squad import (
        no_answer_scores,
        read_gold,
        read_na_probs,
        read_predictions,
        squad_scores,
    )

    if options.task == "squad1":
        _reject(options, ("na_probs", "na_prob_thresh"))
    threshold = 1.0 if options.na_prob_thresh is None else options.na_prob_thresh
    if math.isnan(threshold) or (options.na_prob_thresh is not None and options.na_probs is None):
        raise BadInput(f"--na-prob-thresh {threshold}: expected a number, together with --na-probs F")
    gold, predictions = read_gold(paths[:-1]), read_predictions(paths[-1])
    if options.na_probs is None:
        return options.task, len(gold), squad_scores(gold, predictions)
    scores = no_answer_scores(gold, predictions, read_na_probs(Path(options.na_probs)), threshold)
    return options.task, len(gold), scores
