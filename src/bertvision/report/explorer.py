"""Every example with what several predictors said of it, to be filtered: data beside one small script.

The data are a block that no browser runs, and the script writes them as text, never as markup. The
page's policy names the script by its hash, so that it is the only one that can run.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from bertvision.core.records import Example
from bertvision.evaluation.analyses.answers import gold_names, gold_text
from bertvision.evaluation.metrics.squad import best_over_golds, exact
from bertvision.report.explorer_script import SCRIPT
from bertvision.report.highlight import GUESSED, place_of
from bertvision.report.markup import Html, Section, cut, opened, printable, section, tag
from bertvision.runs.reader import Line, Run, best_head
from bertvision.tasks.splits import stable_hash

Answers = Mapping[str, Any]
"""By example's id what was said, or where it stands."""
MOST = 1000
"""Examples that are put into the page; of more, a sample by hash."""
LONGEST, BEFORE = 12_000, 500
"""Characters of a text, and those before the first mark of a context that is longer."""
RESULTS = (("", "any answer"), ("right", "right"), ("wrong", "wrong"), ("silent", "no answer given"))


def explorer_section(run: Run, lines: Sequence[Line]) -> Section | None:
    """Nothing for numbers, which are neither right nor wrong, nor where no answers are."""
    chosen = [line for line in _shown(lines) if (line.rows[0].name, line.rows[0].seed) in run.answers]
    if run.task.kind == "regress" or not chosen:
        return None
    rows = [line.rows[0] for line in chosen]
    names = [row.name if row.seed is None else f"{row.name}, seed {row.seed}" for row in rows]
    answers = [run.answers[row.name, row.seed] for row in rows]
    places = [run.places.get((row.name, row.seed)) for row in rows]
    data = explorer_data(run, names, answers, places)
    whole, held = len(run.task[run.board.split]), len(data["examples"])
    sample = "" if whole == held else f" Here are {held:,} of {whole:,}, drawn by a hash."
    guessed = f" {GUESSED}" if run.task.kind == "span" and None in places else ""
    long = any(len(example.pair or "") > LONGEST for example in run.task[run.board.split])
    part = f" Of contexts above {LONGEST:,} characters it holds the part around the answers." if long else ""
    intro = f"What several predictors say of the examples of {run.board.split}.{sample}{part}{guessed}"
    box = tag("div", _controls(names, run), tag("div", class_="found cards"), _block(data), class_="explorer")
    off = tag("noscript", tag("p", "Filtering needs the page's own script; single examples stand below without it."))
    return section("explorer", "Explore the examples", tag("p", intro), off, box)


def _shown(lines: Sequence[Line]) -> list[Line]:
    """The best row, the best head, the control and the encoder."""
    best = best_head(lines)
    wanted = [*lines[:1], *([best] if best else []), *(x for x in lines if x.kind in ("control", "encoder"))]
    return list({line.name: line for line in wanted}.values())


def explorer_data(
    run: Run, names: Sequence[str], answers: Sequence[Answers], kept: Sequence[Answers | None]
) -> dict[str, Any]:
    """Contexts once, and for every example its gold and what each predictor said."""
    asked = [e for e in run.task[run.board.split] if all(e.id in said for said in answers)]
    shown = sorted(asked, key=lambda example: stable_hash(example.id))[:MOST]
    told = [_example(run, example, list(zip(answers, kept, strict=True))) for example in shown]
    contexts = list(dict.fromkeys(one["context"] for one in told))
    numbers = {context: number for number, context in enumerate(contexts)}
    examples = [{**one, "context": numbers[one["context"]]} for one in told]
    return {"models": [_text(name) for name in names], "contexts": contexts, "examples": examples}


def _example(run: Run, example: Example, sides: Sequence[tuple[Answers, Answers | None]]) -> dict[str, Any]:
    context = printable(example.pair or "")
    golds = [] if run.task.kind != "span" else _gold_spans(example)
    said = [_said(run, example, told, context, places) for told, places in sides]
    begin = _begin(context, [*golds, *(place for _, _, *place in said if place)])
    return {
        "id": _text(example.id),
        "text": _text(example.text),
        "context": context[begin : begin + LONGEST],
        "gold": _text(gold_text(run.task, example)),
        "spans": [place for span in golds if (place := _seen(span, begin))],
        "said": [[text, right, *_seen(place, begin)] for text, right, *place in said],
    }


def _gold_spans(example: Example) -> list[list[int]]:
    return [list(span) for span in sorted({(a.start, a.start + len(a.text)) for a in example.answers})]


def _begin(context: str, spans: Sequence[Sequence[int]]) -> int:
    """Where the part of a context begins that the page holds: of a long one a little before the first span."""
    first = min((start for start, _ in spans), default=0)
    return max(0, min(first - BEFORE, len(context) - LONGEST))


def _seen(span: Sequence[int], begin: int) -> list[int]:
    """A span, counted from there; nothing where it is not within that part."""
    place = [at - begin for at in span]
    return place if place and place[1] <= LONGEST else []


def _said(run: Run, example: Example, answers: Answers, context: str, places: Answers | None) -> list[Any]:
    """Text, right or not, and where it stands in the context."""
    said, gold = answers[example.id], gold_names(run.task, example)
    if run.task.kind == "span":
        text = _text(str(said))
        # A question that was not answered has no place among those that were kept.
        known = None if places is None else places.get(example.id, (0, 0))
        place = place_of(text, context, [answer.start for answer in example.answers], known)
        return [text, int(best_over_golds(exact, gold, str(said)) == 1.0), *(place or ())]
    if run.task.kind == "multilabel":
        labels = sorted(map(str, said)) if isinstance(said, list) else []
        return [_text(", ".join(labels)), int(labels == sorted(gold))]
    return [_text(str(said)), int([said] == gold)]


def _text(text: str) -> str:
    """As the rest of the page shows it."""
    return cut(printable(text), LONGEST)


def _block(data: object) -> Html:
    """Data for the script; no character in it can end the block."""
    text = json.dumps(data, separators=(",", ":"))
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return tag("script", Html(text), type="application/json")


def _controls(names: Sequence[str], run: Run) -> Html:
    results = [pair for pair in RESULTS if pair[0] != "silent" or run.task.kind != "classify"]
    models = [(str(place), cut(name, 60)) for place, name in enumerate(names)]
    parts = [
        tag("label", "Predictor ", _select("model", models)),
        tag("label", "gave ", _select("result", results)),
    ]
    if len(names) > 1:
        other = [*models[1:], models[0]]
        parts += [
            tag("label", "while ", _select("second", other)),
            tag("label", "gave ", _select("secondresult", results)),
        ]
    parts.append(tag("label", "Text ", opened("input", type="search", class_="query", size=16)))
    told = tag("p", class_="count", aria_live="polite")
    turn = tag("p", tag("button", "Back", type="button", class_="back"), tag("button", "More", type="button"))
    return tag("div", *parts, told, turn, class_="controls", hidden="")


def _select(name: str, options: Sequence[tuple[str, str]]) -> Html:
    return tag("select", *(tag("option", text, value=value) for value, text in options), class_=name)


def script_tag() -> Html:
    """The page's one script."""
    return tag("script", Html(SCRIPT))


def script_hash() -> str:
    """How a content policy names it."""
    digest = base64.b64encode(hashlib.sha256(SCRIPT.encode("utf-8")).digest()).decode("ascii")
    return f"'sha256-{digest}'"
