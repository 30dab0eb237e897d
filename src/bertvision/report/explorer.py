"""Every example with what several predictors said of it, to be filtered: data beside one small script.

The data are a block that no browser runs, and the script (``assets/explorer.js``) writes them as
text, never as markup. The page's policy names the script by its hash: no other can run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bertvision.core.records import Example
from bertvision.evaluation.analyses.answers import gold_names, gold_text
from bertvision.evaluation.metrics.squad import best_over_golds, exact
from bertvision.report.highlight import place_of
from bertvision.report.markup import cut, printable
from bertvision.report.render import Section, section
from bertvision.runs.reader import Line, Run, best_head
from bertvision.tasks.splits import stable_hash

Answers = Mapping[str, Any]
"""By example's id what was said, or where it stands."""
MOST = 1000
"""Examples that are put into the page; of more, a sample by hash."""
LONGEST, BEFORE = 12_000, 500
"""Characters of a text, and those before the first mark of a context that is longer."""
LONGEST_NAME = 60
RESULTS = (("", "any answer"), ("right", "right"), ("wrong", "wrong"), ("silent", "no answer given"))


def explorer_section(run: Run, lines: Sequence[Line]) -> Section | None:
    """Nothing for numbers, which are neither right nor wrong, nor where no answers are."""
    rows = [line.rows[0] for line in _shown(lines) if (line.rows[0].name, line.rows[0].seed) in run.answers]
    if run.task.kind == "regress" or not rows:
        return None
    names = [row.name if row.seed is None else f"{row.name}, seed {row.seed}" for row in rows]
    answers = [run.answers[row.name, row.seed] for row in rows]
    places = [run.places.get((row.name, row.seed)) for row in rows]
    data = explorer_data(run, names, answers, places)
    examples = run.task[run.board.split]
    return section(
        "explorer",
        "Explore the examples",
        split=run.board.split,
        shown=len(data["examples"]),
        total=len(examples),
        cut_at=LONGEST if any(len(example.pair or "") > LONGEST for example in examples) else None,
        guessing=run.task.kind == "span" and None in places,
        models=[(str(rank), cut(name, LONGEST_NAME)) for rank, name in enumerate(names)],
        results=[pair for pair in RESULTS if pair[0] != "silent" or run.task.kind != "classify"],
        data=data,
    )


def _shown(lines: Sequence[Line]) -> list[Line]:
    """The best row, the best head, the control and the encoder."""
    best = best_head(lines)
    wanted = [*lines[:1], *([best] if best else []), *(x for x in lines if x.kind in ("control", "encoder"))]
    return list({line.name: line for line in wanted}.values())


def explorer_data(
    run: Run, names: Sequence[str], answers: Sequence[Answers], spans: Sequence[Answers | None]
) -> dict[str, Any]:
    """Contexts once, and for every example its gold and what each predictor answered."""
    answered = [example for example in run.task[run.board.split] if all(example.id in given for given in answers)]
    chosen = sorted(answered, key=lambda example: stable_hash(example.id))[:MOST]
    numbers: dict[str, int] = {}
    examples = []
    for example in chosen:
        entry = _example(run, example, list(zip(answers, spans, strict=True)))
        examples.append({**entry, "context": numbers.setdefault(entry["context"], len(numbers))})
    return {"models": [_text(name) for name in names], "contexts": list(numbers), "examples": examples}


def _example(run: Run, example: Example, predictors: Sequence[tuple[Answers, Answers | None]]) -> dict[str, Any]:
    context = printable(example.pair or "")
    golds: list[tuple[int, ...]] = []
    if run.task.kind == "span":
        golds = sorted({(answer.start, answer.start + len(answer.text)) for answer in example.answers})
    answers = [_answer(run, example, given, context, spans) for given, spans in predictors]
    # Of a long context the page holds a part, which begins a little before the first span.
    first = min((span[0] for span in [*golds, *(span for *_, span in answers)] if span), default=0)
    begin = max(0, min(first - BEFORE, len(context) - LONGEST))
    return {
        "id": _text(example.id),
        "text": _text(example.text),
        "context": context[begin : begin + LONGEST],
        "gold": _text(gold_text(run.task, example)),
        "spans": [shown for span in golds if (shown := _within(span, begin))],
        "said": [[text, right, *_within(span, begin)] for text, right, span in answers],
    }


def _within(span: tuple[int, ...], begin: int) -> list[int]:
    """A span, counted from where the part begins; nothing where it is not in that part."""
    return [offset - begin for offset in span] if span and span[1] - begin <= LONGEST else []


def _answer(
    run: Run, example: Example, answers: Answers, context: str, spans: Answers | None
) -> tuple[str, int, tuple[int, ...]]:
    """Text, 1 if it is right, and where it stands in the context."""
    given, gold = answers[example.id], gold_names(run.task, example)
    if run.task.kind == "span":
        text = _text(str(given))
        # A question that was not answered has no place among those that were kept.
        known = None if spans is None else spans.get(example.id, (0, 0))
        span = place_of(text, context, [answer.start for answer in example.answers], known)
        return text, int(best_over_golds(exact, gold, str(given)) == 1.0), span or ()
    if run.task.kind == "multilabel":
        labels = sorted(map(str, given)) if isinstance(given, list) else []
        return _text(", ".join(labels)), int(labels == sorted(gold)), ()
    return _text(str(given)), int([given] == gold), ()


def _text(text: str) -> str:
    """As the rest of the page shows it."""
    return cut(printable(text), LONGEST)
