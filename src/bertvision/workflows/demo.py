"""Everything once, on questions that the project generates, with the embedded encoder: a few minutes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bertvision.core.config import built_in_recipe
from bertvision.core.progress import Timer, log_line
from bertvision.model import QuestionAnswerer
from bertvision.tasks.demo_data import DEMO_CONTEXT, DEMO_QUESTION, DEMO_UNANSWERABLE, write
from bertvision.workflows.conclude import RunResult
from bertvision.workflows.run import run

SETTINGS: dict[str, Any] = {
    "tune": {"epochs": 1.0, "lr": 3e-4},
    "fit": {"epochs": 3},
}

NEXT = """
Your own data, three ways:
  bertvision run text --train my.csv --text-column review --label-column stars --out runs/my
  bertvision run squad2 --train train-v2.0.json --dev dev-v2.0.json --out runs/squad
  bertvision predict {model} --question "..." --context "..."
"""


def demo(folder: Path) -> tuple[dict[str, Any], str]:
    """Generate, run, ask; gives the leaderboard document and the text to print."""
    timer = Timer()
    train, dev = folder / "data" / "train.json", folder / "data" / "dev.json"
    if not (train.exists() and dev.exists()):
        log_line("demo: writing generated questions")
        write(folder / "data")
    recipe = built_in_recipe("squad2", data={"train": [str(train)], "dev": [str(dev)]}, **SETTINGS)
    result = run(recipe, folder)
    asked = _ask(folder)
    document = {**result.document, "asked": asked, "seconds": timer.seconds, "run": str(folder)}
    return document, _text(result, asked, folder)


def _ask(folder: Path) -> list[dict[str, Any]]:
    """Two questions about a text that was in no split; the second cannot be answered from it."""
    model = QuestionAnswerer.from_pretrained(folder / "model")
    questions = [DEMO_QUESTION, DEMO_UNANSWERABLE]
    answers = model(questions, [DEMO_CONTEXT, DEMO_CONTEXT])
    return [{"question": question, **answer} for question, answer in zip(questions, answers, strict=True)]


def _text(result: RunResult, asked: list[dict[str, Any]], folder: Path) -> str:
    lines = [str(result), "", f"Asked about: {DEMO_CONTEXT}"]
    for one in asked:
        said = one["answer"] or "(no answer in the text)"
        lines.append(f"  {one['question']}\n    -> {said}  (score {one['score']:.2f})")
    lines.append(f"\nReport: {folder / 'report.html'}")
    lines.append(NEXT.format(model=folder / "model"))
    return "\n".join(lines)
