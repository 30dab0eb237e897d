"""Interactive table of examples with the answers of several predictors: JSON data and a small script.

The JSON block is never executed, and the script (``assets/explorer.js``) inserts the data as text,
never as markup. The content security policy allows this script only, by its hash.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bertvision.core.records import Example
from bertvision.evaluation.analyses.answers import gold_names, gold_text
from bertvision.evaluation.metrics.squad import best_over_golds, exact
from bertvision.report.highlight import answer_span
from bertvision.report.markup import printable, truncate
from bertvision.report.render import Section, render_section
from bertvision.runs.reader import Line, Run, best_head
from bertvision.tasks.splits import stable_hash

ByExample = Mapping[str, Any]
"""Example id -> answer, or offsets of the answer."""
MAX_EXAMPLES = 1000
"""Examples included in the page; larger splits are sampled by hash."""
MAX_LENGTH, MARGIN = 12_000, 500
"""Maximum characters of a text, and characters kept before the first span of a longer context."""
MAX_NAME = 60
RESULTS = (("", "any"), ("right", "right"), ("wrong", "wrong"), ("silent", "no answer"))


def explorer_section(run: Run, lines: Sequence[Line]) -> Section | None:
    """The explorer of a run; None for regression, which has no right and wrong, and for runs without answers."""
    best = best_head(lines)
    references = [line for line in lines if line.kind in ("control", "encoder")]
    shown = {line.name: line.rows[0] for line in [*lines[:1], *([best] if best else []), *references]}
    rows = [row for row in shown.values() if (row.name, row.seed) in run.answers]
    if run.task.kind == "regress" or not rows:
        return None
    names = [row.name if row.seed is None else f"{row.name}, seed {row.seed}" for row in rows]
    answers = [run.answers[row.name, row.seed] for row in rows]
    spans = [run.places.get((row.name, row.seed)) for row in rows]
    data = explorer_data(run, names, answers, spans)
    examples = run.task[run.board.split]
    return render_section(
        "explorer",
        "Example explorer",
        split=run.board.split,
        shown=len(data["examples"]),
        total=len(examples),
        cut_at=MAX_LENGTH if any(len(example.pair or "") > MAX_LENGTH for example in examples) else None,
        guessing=run.task.kind == "span" and None in spans,
        models=[(str(rank), truncate(name, MAX_NAME)) for rank, name in enumerate(names)],
        results=[pair for pair in RESULTS if pair[0] != "silent" or run.task.kind != "classify"],
        data=data,
    )


def explorer_data(
    run: Run, names: Sequence[str], answers: Sequence[ByExample], spans: Sequence[ByExample | None]
) -> dict[str, Any]:
    """The JSON data: predictor names, distinct contexts, and each example with its gold and predicted answers."""
    answered = [example for example in run.task[run.board.split] if all(example.id in given for given in answers)]
    sample = sorted(answered, key=lambda example: stable_hash(example.id))[:MAX_EXAMPLES]
    context_ids: dict[str, int] = {}
    examples = []
    for example in sample:
        entry = _example_entry(run, example, list(zip(answers, spans, strict=True)))
        examples.append({**entry, "context": context_ids.setdefault(entry["context"], len(context_ids))})
    return {"models": [_clean(name) for name in names], "contexts": list(context_ids), "examples": examples}


def _example_entry(
    run: Run, example: Example, predictors: Sequence[tuple[ByExample, ByExample | None]]
) -> dict[str, Any]:
    context = printable(example.pair or "")
    golds: list[tuple[int, ...]] = []
    if run.task.kind == "span":
        golds = sorted({(answer.start, answer.start + len(answer.text)) for answer in example.answers})
    answers = [_answer_entry(run, example, by_example, context, spans) for by_example, spans in predictors]
    # Only a part of a long context is included, which starts a little before the first span.
    first = min((span[0] for span in [*golds, *(span for *_, span in answers)] if span), default=0)
    begin = max(0, min(first - MARGIN, len(context) - MAX_LENGTH))
    return {
        "id": _clean(example.id),
        "text": _clean(example.text),
        "context": context[begin : begin + MAX_LENGTH],
        "gold": _clean(gold_text(run.task, example)),
        "spans": [shifted for span in golds if (shifted := _shift(span, begin))],
        "said": [[text, right, *_shift(span, begin)] for text, right, span in answers],
    }


def _shift(span: tuple[int, ...], begin: int) -> list[int]:
    """A span relative to the start of the included part; empty if it lies beyond that part."""
    return [offset - begin for offset in span] if span and span[1] - begin <= MAX_LENGTH else []


def _answer_entry(
    run: Run, example: Example, answers: ByExample, context: str, spans: ByExample | None
) -> tuple[str, int, tuple[int, ...]]:
    """The text of an answer, 1 if it is right else 0, and its span in the context."""
    answer, gold = answers[example.id], gold_names(run.task, example)
    if run.task.kind == "span":
        text = _clean(str(answer))
        # Unanswered questions have no entry among the saved spans.
        saved = None if spans is None else spans.get(example.id, (0, 0))
        span = answer_span(text, context, [gold.start for gold in example.answers], saved)
        return text, int(best_over_golds(exact, gold, str(answer)) == 1.0), span or ()
    if run.task.kind == "multilabel":
        labels = sorted(map(str, answer)) if isinstance(answer, list) else []
        return _clean(", ".join(labels)), int(labels == sorted(gold)), ()
    return _clean(str(answer)), int([answer] == gold), ()


def _clean(text: str) -> str:
    """Printable characters only, like the rest of the page, and truncated."""
    return truncate(printable(text), MAX_LENGTH)
