"""Commands that use what was made: predict, score."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from bertvision.errors import BadInput, shorten

Result = tuple[Any, str]


def add_commands(commands: Any) -> None:
    predict = commands.add_parser("predict", help="ask a saved model: a question, a text, or a file of them")
    predict.add_argument("model", metavar="MODEL", help="a model folder, e.g. RUN/model")
    predict.add_argument("--question", metavar="Q")
    predict.add_argument("--context", metavar="C")
    predict.add_argument("--text", metavar="T")
    predict.add_argument("--pair", metavar="T", help="second text of a pair")
    predict.add_argument("--file", metavar="in.jsonl", help="JSON lines with question and context, or text and pair")
    predict.add_argument("--top-k", type=int, default=1, metavar="N", help="that many answers")
    predict.set_defaults(run=_predict)

    score = commands.add_parser("score", help="score a file of predictions as the official script does")
    score.add_argument("task", metavar="TASK", choices=("squad1", "squad2"))
    score.add_argument("files", nargs="+", metavar="GOLD... PREDICTIONS", help="gold files, then one predictions file")
    score.set_defaults(run=_score)


def _predict(options: argparse.Namespace) -> Result:
    from bertvision.model import QuestionAnswerer, load_model

    asked = [options.question is not None, options.text is not None, options.file is not None]
    if sum(asked) != 1:
        raise BadInput("predict needs one of --question Q --context C, --text T [--pair T], or --file in.jsonl")
    if options.top_k < 1:
        raise BadInput(f"--top-k {options.top_k}: expected at least 1")
    model = load_model(options.model)
    spans = isinstance(model, QuestionAnswerer)
    keys = ("question", "context") if spans else ("text", "pair")
    from_file = options.file is not None
    rows = _read_lines(Path(options.file), keys, spans) if from_file else [_single(options, keys, spans)]
    found = model.answers(rows, options.top_k) if isinstance(model, QuestionAnswerer) else model.labels(rows)
    answers = list(found)
    data = answers if from_file else answers[0]
    return data, "\n".join(json.dumps(answer, ensure_ascii=False) for answer in answers)


def _single(options: argparse.Namespace, keys: tuple[str, str], spans: bool) -> tuple[str, Any]:
    first, second = (getattr(options, key) for key in keys)
    if first is None or (spans and second is None):
        expected = "--question Q --context C" if spans else "--text T [--pair T]"
        raise BadInput(f"this model answers {'questions' if spans else 'texts'}: give {expected}")
    return first, second


def _read_lines(path: Path, keys: tuple[str, str], spans: bool) -> list[tuple[str, Any]]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"cannot read {path}: {error}; expected UTF-8 JSON lines") from error
    rows = [
        _read_line(line, f"{path}, line {number}", keys, spans) for number, line in enumerate(lines, 1) if line.strip()
    ]
    if not rows:
        raise BadInput(f"{path} has no lines; expected JSON lines with {keys[0]!r} and {keys[1]!r}")
    return rows


def _read_line(line: str, where: str, keys: tuple[str, str], spans: bool) -> tuple[str, Any]:
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise BadInput(f"{where}: not JSON: {error}") from error
    if not isinstance(row, dict):
        raise BadInput(f"{where}: got {shorten(row)}, expected an object with {keys[0]!r}")
    first, second = row.get(keys[0]), row.get(keys[1])
    wanted = [(keys[0], first, True), (keys[1], second, spans)]
    for key, value, required in wanted:
        if not isinstance(value, str) and (required or value is not None):
            raise BadInput(f"{where}: {key!r} is {shorten(value)}, expected a text")
    return str(first), second


def _score(options: argparse.Namespace) -> Result:
    from bertvision.scoring.squad import read_gold, read_predictions, squad_scores

    if len(options.files) < 2:
        raise BadInput("score needs gold files and then one file of predictions: score TASK GOLD... PREDICTIONS")
    gold = read_gold([Path(path) for path in options.files[:-1]])
    scores = squad_scores(gold, read_predictions(Path(options.files[-1])))
    lines = [f"{name:15} {value:10.4f}" for name, value in scores.items()]
    return {"task": options.task, "n": len(gold), "scores": scores}, "\n".join(lines)
