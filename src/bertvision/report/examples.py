"""Examples of what the best head gets right and wrong: chosen by a hash, so that nobody picked them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from bertvision.core.records import Example
from bertvision.evaluation.analyses.answers import gold_names, gold_text
from bertvision.evaluation.metrics.squad import best_over_golds, exact, f1
from bertvision.report.charts import scatter
from bertvision.report.highlight import Card, marked, place_of
from bertvision.report.markup import Html, cut, number
from bertvision.report.render import Section, render, section
from bertvision.runs.reader import Line, Run, best_head
from bertvision.tasks.splits import stable_hash

MOST_LABELS = 15
"""More labels than this are folded: the rarest become one."""
MOST_POINTS = 1500
"""A cloud of more points than this is thinned, by hash."""
SHOWN = 8
"""Cards of a sort."""
LONGEST, LONGEST_LABEL, LONGEST_TEXT, LONGEST_ANSWER = 24, 40, 600, 200
"""Characters of a label in a table and in a card, of a text and of an answer."""
OTHERS = "all others"
NO_LABEL, NO_ANSWER = Html("<em>no label</em>"), Html("<em>no answer</em>")
Parts = tuple[Html, list[tuple[str, str]], list[tuple[str, list[Card]]]]
"""An overview, tiles and groups of cards by title."""


def confusion_table(labels: Sequence[str], pairs: Sequence[tuple[str, str]]) -> Html:
    """Gold labels down, predicted labels across; of many labels the rarest are one."""
    names = list(labels)
    if len(labels) > MOST_LABELS:
        common = {name for name, _ in Counter(gold for gold, _ in pairs).most_common(MOST_LABELS)}
        names = [*(name for name in labels if name in common), OTHERS]
    known = set(names)
    folded = [tuple(name if name in known else OTHERS for name in pair) for pair in pairs]
    counts, totals = Counter(folded), Counter(gold for gold, _ in folded)
    return render("confusion", names=names, counts=counts, totals=totals, others=OTHERS, longest=LONGEST)


def label_table(labels: Sequence[str], pairs: Sequence[tuple[Sequence[str], Sequence[str]]]) -> Html:
    """For each label how often it is in gold, was predicted, and was predicted rightly; the commonest first."""
    gold, predicted, both = (Counter[str]() for _ in range(3))
    for golds, answers in pairs:
        gold.update(golds)
        predicted.update(answers)
        both.update(set(golds) & set(answers))
    rows = []
    for label in sorted(labels, key=lambda label: -gold[label])[:MOST_LABELS]:
        counts = gold[label], predicted[label], both[label]
        f1_score = 200 * both[label] / (gold[label] + predicted[label]) if gold[label] + predicted[label] else 0.0
        rows.append((label, counts, f1_score))
    return render("labels", rows=rows, left=max(0, len(labels) - MOST_LABELS), longest=LONGEST)


@dataclass(frozen=True)
class Case:
    """An example, what the head and the encoder said of it, and what sort of success or failure that is."""

    example: Example
    said: object
    encoder: object  # None where the encoder said nothing
    right: bool
    sort: str
    place: Sequence[int] | None = None  # of a span, as it was kept


def examples_section(run: Run, lines: Sequence[Line]) -> Section | None:
    """Nothing if there is no head or its answers are not there."""
    best = best_head(lines)
    if best is None:
        return None
    name, seed = best.rows[0].name, best.rows[0].seed
    answers = run.answers.get((name, seed))
    if not answers:
        return None
    encoder = next((run.answers.get((line.name, None), {}) for line in lines if line.kind == "encoder"), {})
    spans = run.places.get((name, seed))
    cases = []
    for example in run.task[run.board.split]:
        if example.id in answers:
            case = CASE_BUILDERS[run.task.kind](run, example, answers[example.id], encoder.get(example.id))
            cases.append(case if spans is None else replace(case, place=spans.get(example.id, (0, 0))))
    overview, counts, groups = _value_parts(run, cases) if run.task.kind == "regress" else _parts(run, cases)
    return section(
        "examples",
        "Examples",
        name=best.name,
        seed=seed,
        split=run.board.split,
        kind=run.task.kind,
        guessing=any(case.place is None for case in cases),
        overview=overview,
        counts=counts,
        groups=groups,
    )


def _span_case(run: Run, example: Example, said: object, own: object) -> Case:
    golds = [answer.text for answer in example.answers]
    right = best_over_golds(exact, golds, str(said)) == 1.0
    if right:
        sort = "answer found" if golds else "rightly no answer"
    elif not golds:
        sort = "answered, but there is no answer"
    else:
        sort = "another answer" if said else "answer missed"
    return Case(example, said, own, right, sort)


def _label_case(run: Run, example: Example, said: object, own: object) -> Case:
    gold = gold_names(run.task, example)[0]
    sort = cut(gold, LONGEST_LABEL)
    if said != gold:
        sort = f"{sort} taken for {cut(str(said), LONGEST_LABEL)}"
    return Case(example, said, own, said == gold, sort)


def _set_case(run: Run, example: Example, said: object, own: object) -> Case:
    gold, predicted = set(gold_names(run.task, example)), set(_listed(said))
    missed, more = gold - predicted, predicted - gold
    if missed:
        sort = "labels missed and too many" if more else "labels missed"
    elif more:
        sort = "labels too many"
    else:
        sort = "all labels" if gold else "rightly no label"
    return Case(example, said, own, gold == predicted, sort)


def _listed(said: object) -> list[str]:
    return [str(label) for label in said] if isinstance(said, list) else []


def _value_case(run: Run, example: Example, said: object, own: object) -> Case:
    return Case(example, said, own, False, f"off by {number(_error(example, said))}")


def _error(example: Example, said: object) -> float:
    return abs(float(str(said)) - float(example.label or 0.0))


CASE_BUILDERS = {"span": _span_case, "classify": _label_case, "multilabel": _set_case, "regress": _value_case}
"""For each kind of task how an example is judged."""


def choose(cases: Iterable[Case], count: int = SHOWN) -> list[Case]:
    """Sorts in turn, the commonest first; within a sort the order of the ids' hashes."""
    sorts: dict[str, list[Case]] = {}
    for case in sorted(cases, key=lambda case: stable_hash(case.example.id)):
        sorts.setdefault(case.sort, []).append(case)
    queues = sorted(sorts.values(), key=lambda queue: (-len(queue), queue[0].sort))
    turns = max((len(queue) for queue in queues), default=0)
    return [queue[turn] for turn in range(turns) for queue in queues if turn < len(queue)][:count]


def _parts(run: Run, cases: Sequence[Case]) -> Parts:
    """A table of labels, how often each sort occurs, and examples of what is wrong and what is right."""
    kind, overview = run.task.kind, Html("")
    golds = [gold_names(run.task, case.example) for case in cases]
    if kind == "classify":
        overview = confusion_table(run.task.labels, [(g[0], str(c.said)) for g, c in zip(golds, cases, strict=True)])
    elif kind == "multilabel":
        overview = label_table(run.task.labels, [(g, _listed(c.said)) for g, c in zip(golds, cases, strict=True)])
    counts: Counter[tuple[bool, str]] = Counter((case.right, case.sort) for case in cases)
    ranked = sorted(counts.items(), key=lambda item: (not item[0][0], -item[1], item[0][1]))
    tiles = [
        (f"{'right' if right else 'wrong'}: {sort}", f"{count:,} ({100 * count / len(cases):.0f} %)")
        for (right, sort), count in ranked
    ]
    groups = []
    for right, title in ((False, "Wrong"), (True, "Right")):
        group = [case for case in cases if case.right == right]
        cards = [_span_card(case) if kind == "span" else _text_card(run, case) for case in choose(group)]
        groups.append((f"{title}: {len(group):,} of {len(cases):,}", cards))
    return overview, [] if kind == "classify" else tiles, groups


def _value_parts(run: Run, cases: Sequence[Case]) -> Parts:
    """Predicted against gold values, and the largest errors."""
    worst = sorted(cases, key=lambda case: (-_error(case.example, case.said), case.example.id))[:SHOWN]
    drawn = sorted(cases, key=lambda case: stable_hash(case.example.id))[:MOST_POINTS]
    points = [(float(case.example.label or 0.0), float(str(case.said)), case.example.id) for case in drawn]
    return scatter(points), [], [("Largest errors", [_text_card(run, case) for case in worst])]


def _span_card(case: Case) -> Card:
    context, said = case.example.pair or "", str(case.said)
    golds = sorted({(answer.start, answer.start + len(answer.text)) for answer in case.example.answers})
    texts = list(dict.fromkeys(answer.text for answer in case.example.answers))
    predicted = _answer_text(case.said)
    overlap = best_over_golds(f1, texts, said)
    if 0 < overlap < 1:
        predicted += f" (F1 {100 * overlap:.0f})"
    span = place_of(said, context, [start for start, _ in golds], case.place)
    question = cut(case.example.text, LONGEST_TEXT)
    return _card(case, question, [marked(context, golds, span)], _answer_text(" / ".join(texts)), predicted)


def _text_card(run: Run, case: Case) -> Card:
    texts = [case.example.text, *([case.example.pair] if case.example.pair else [])]
    if run.task.kind == "classify":
        gold = gold_text(run.task, case.example)
    else:
        gold = _answer_text(case.example.label if run.task.kind == "regress" else gold_names(run.task, case.example))
    return _card(case, None, [cut(text, LONGEST_TEXT) for text in texts], gold, _answer_text(case.said))


def _card(case: Case, question: str | None, texts: Sequence[str], gold: str, predicted: str) -> Card:
    answers = [("gold", gold), ("predicted", predicted)]
    if case.encoder is not None:
        answers.append(("encoder", _answer_text(case.encoder)))
    return Card(case.sort, cut(case.example.id, LONGEST_TEXT), question, texts, answers, case.right)


def _answer_text(said: object) -> str:
    """An answer as one reads it: none is said in words, labels are joined, values are rounded."""
    if isinstance(said, list):
        return cut(", ".join(map(str, said)), LONGEST_ANSWER) if said else NO_LABEL
    if said is None or said == "":
        return NO_ANSWER
    return number(said, 3) if isinstance(said, float) else cut(str(said), LONGEST_ANSWER)
