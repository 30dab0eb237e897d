"""``bertvision demo``: a whole run on generated questions with the embedded encoder, in a few minutes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bertvision.core.config import built_in_recipe
from bertvision.core.progress import Timer, log_line
from bertvision.model import QuestionAnswerer
from bertvision.tasks.demo_data import DEMO_CONTEXT, DEMO_QUESTION, DEMO_UNANSWERABLE, write
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
    """Generate data, run, and ask the saved model; the leaderboard document and the text to print."""
    timer = Timer()
    train, dev = folder / "data" / "train.json", folder / "data" / "dev.json"
    if not (train.exists() and dev.exists()):
        log_line("demo: writing generated questions")
        write(folder / "data")
    recipe = built_in_recipe("squad2", data={"train": [str(train)], "dev": [str(dev)]}, **SETTINGS)
    result = run(recipe, folder)
    # Two questions about a text that is in no split; the second cannot be answered from it.
    model = QuestionAnswerer.from_pretrained(folder / "model")
    questions = [DEMO_QUESTION, DEMO_UNANSWERABLE]
    answers = model(questions, [DEMO_CONTEXT, DEMO_CONTEXT])
    lines = [str(result), "", f"Asked about: {DEMO_CONTEXT}"]
    asked = []
    for question, answer in zip(questions, answers, strict=True):
        asked.append({"question": question, **answer})
        text = answer["answer"] or "(no answer in the text)"
        lines.append(f"  {question}\n    -> {text}  (score {answer['score']:.2f})")
    lines.append(f"\nReport: {folder / 'report.html'}")
    lines.append(NEXT.format(model=folder / "model"))
    document = {**result.document, "asked": asked, "seconds": timer.seconds, "run": str(folder)}
    return document, "\n".join(lines)
