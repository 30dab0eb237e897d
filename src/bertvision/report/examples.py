"""Examples that the best head gets right and wrong, sampled by hash."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from bertvision.core.records import Example
from bertvision.evaluation.analyses.answers import gold_names, gold_text
from bertvision.evaluation.metrics.squad import best_over_golds, exact, f1
from bertvision.report.charts import scatter_plot
from bertvision.report.highlight import Card, answer_span, highlight_answers
from bertvision.report.markup import Html, format_number, truncate
from bertvision.report.render import Section, render, render_section
from bertvision.runs.reader import Line, Run, best_head
from bertvision.tasks.splits import stable_hash

MAX_LABELS = 15
"""Rows of a table of labels; the rarest labels beyond it are merged or left out."""
MAX_POINTS = 1500
"""Points of the scatter plot; larger datasets are sampled by hash."""
MAX_CARDS = 8
"""Cards per group."""
LABEL_WIDTH, CARD_LABEL_WIDTH, MAX_TEXT, MAX_ANSWER = 24, 40, 600, 200
"""Maximum characters of a label in a table and on a card, of a text and of an answer."""
OTHERS = "other labels"
NO_LABEL, NO_ANSWER = Html("<em>no label</em>"), Html("<em>no answer</em>")
Content = tuple[Html, list[tuple[str, str]], list[tuple[str, list[Card]]]]
"""An overview, counts, and groups of cards by title."""


def confusion_table(labels: Sequence[str], pairs: Sequence[tuple[str, str]]) -> Html:
    """Gold labels in rows, predicted labels in columns; the rarest of many labels are merged."""
    names = list(labels)
    if len(labels) > MAX_LABELS:
        frequent = {name for name, _ in Counter(gold for gold, _ in pairs).most_common(MAX_LABELS)}
        names = [*(name for name in labels if name in frequent), OTHERS]
    listed = set(names)
    merged = [tuple(name if name in listed else OTHERS for name in pair) for pair in pairs]
    counts, totals = Counter(merged), Counter(gold for gold, _ in merged)
    return render("confusion", names=names, counts=counts, totals=totals, others=OTHERS, longest=LABEL_WIDTH)


def label_table(labels: Sequence[str], pairs: Sequence[tuple[Sequence[str], Sequence[str]]]) -> Html:
    """Counts of each label in gold and predictions, and its F1; most frequent first."""
    gold, predicted, both = (Counter[str]() for _ in range(3))
    for golds, answers in pairs:
        gold.update(golds)
        predicted.update(answers)
        both.update(set(golds) & set(answers))
    rows = []
    for label in sorted(labels, key=lambda label: -gold[label])[:MAX_LABELS]:
        counts = gold[label], predicted[label], both[label]
        f1_score = 200 * both[label] / (gold[label] + predicted[label]) if gold[label] + predicted[label] else 0.0
        rows.append((label, counts, f1_score))
    return render("labels", rows=rows, left=max(0, len(labels) - MAX_LABELS), longest=LABEL_WIDTH)


@dataclass(frozen=True)
class Case:
    """An example with the answers of the head and the encoder, and the kind of success or error of the head."""

    example: Example
    answer: object
    encoder: object  # the encoder's answer; None if there is none
    right: bool
    outcome: str
    span: Sequence[int] | None = None  # offsets of the answer, if they were saved


def examples_section(run: Run, lines: Sequence[Line]) -> Section | None:
    """Error analysis of the best head; None without a head or its answers."""
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
            answer = answers[example.id]
            right, outcome = CLASSIFIERS[run.task.kind](run, example, answer)
            span = None if spans is None else spans.get(example.id, (0, 0))
            cases.append(Case(example, answer, encoder.get(example.id), right, outcome, span))
    overview, counts, groups = _regression_content(run, cases) if run.task.kind == "regress" else _content(run, cases)
    return render_section(
        "examples",
        "Examples",
        name=best.name,
        seed=seed,
        split=run.board.split,
        kind=run.task.kind,
        guessing=any(case.span is None for case in cases),
        overview=overview,
        counts=counts,
        groups=groups,
    )


def _classify_span(run: Run, example: Example, answer: object) -> tuple[bool, str]:
    golds = [gold.text for gold in example.answers]
    if best_over_golds(exact, golds, str(answer)) == 1.0:
        return True, "correct answer" if golds else "correctly unanswered"
    if not golds:
        return False, "answered, but unanswerable"
    return False, "wrong span" if answer else "missed answer"


def _classify_label(run: Run, example: Example, answer: object) -> tuple[bool, str]:
    gold = gold_names(run.task, example)[0]
    outcome = truncate(gold, CARD_LABEL_WIDTH)
    if answer != gold:
        outcome = f"{outcome} predicted as {truncate(str(answer), CARD_LABEL_WIDTH)}"
    return answer == gold, outcome


def _classify_label_set(run: Run, example: Example, answer: object) -> tuple[bool, str]:
    gold, predicted = set(gold_names(run.task, example)), set(_label_list(answer))
    if gold == predicted:
        return True, "all labels correct" if gold else "correctly no label"
    missing, extra = gold - predicted, predicted - gold
    if missing and extra:
        return False, "missing and extra labels"
    return False, "missing labels" if missing else "extra labels"


def _label_list(answer: object) -> list[str]:
    return [str(label) for label in answer] if isinstance(answer, list) else []


def _error(example: Example, answer: object) -> float:
    return abs(float(str(answer)) - float(example.label or 0.0))


CLASSIFIERS: Mapping[str, Callable[[Run, Example, object], tuple[bool, str]]] = {
    "span": _classify_span,
    "classify": _classify_label,
    "multilabel": _classify_label_set,
    "regress": lambda run, example, answer: (False, f"error {format_number(_error(example, answer))}"),
}
"""By kind of task: whether an answer is right, and the kind of success or error."""


def sample_cases(cases: Iterable[Case], count: int = MAX_CARDS) -> list[Case]:
    """A sample with all kinds in turn, most frequent first; within a kind in the order of the ids' hashes."""
    by_outcome: dict[str, list[Case]] = {}
    for case in sorted(cases, key=lambda case: stable_hash(case.example.id)):
        by_outcome.setdefault(case.outcome, []).append(case)
    queues = sorted(by_outcome.values(), key=lambda queue: (-len(queue), queue[0].outcome))
    turns = max((len(queue) for queue in queues), default=0)
    return [queue[turn] for turn in range(turns) for queue in queues if turn < len(queue)][:count]


def _content(run: Run, cases: Sequence[Case]) -> Content:
    """A table of labels, the count of each kind of success and error, and wrong and right examples."""
    kind, overview = run.task.kind, Html("")
    golds = [gold_names(run.task, case.example) for case in cases]
    if kind == "classify":
        overview = confusion_table(run.task.labels, [(g[0], str(c.answer)) for g, c in zip(golds, cases, strict=True)])
    elif kind == "multilabel":
        pairs = [(gold, _label_list(case.answer)) for gold, case in zip(golds, cases, strict=True)]
        overview = label_table(run.task.labels, pairs)
    counts: Counter[tuple[bool, str]] = Counter((case.right, case.outcome) for case in cases)
    ranked = sorted(counts.items(), key=lambda item: (not item[0][0], -item[1], item[0][1]))
    tiles = []
    for (right, outcome), count in ranked if kind != "classify" else ():
        tiles.append((f"{'right' if right else 'wrong'}: {outcome}", f"{count:,} ({100 * count / len(cases):.0f} %)"))
    groups = []
    for right, title in ((False, "Wrong"), (True, "Right")):
        group = [case for case in cases if case.right == right]
        cards = [_span_card(case) if kind == "span" else _text_card(run, case) for case in sample_cases(group)]
        groups.append((f"{title}: {len(group):,} of {len(cases):,}", cards))
    return overview, tiles, groups


def _regression_content(run: Run, cases: Sequence[Case]) -> Content:
    """Predicted against gold values, and the largest errors."""
    worst = sorted(cases, key=lambda case: (-_error(case.example, case.answer), case.example.id))[:MAX_CARDS]
    sample = sorted(cases, key=lambda case: stable_hash(case.example.id))[:MAX_POINTS]
    points = [(float(case.example.label or 0.0), float(str(case.answer)), case.example.id) for case in sample]
    return scatter_plot(points), [], [("Largest errors", [_text_card(run, case) for case in worst])]


def _span_card(case: Case) -> Card:
    question, context = case.example.text, case.example.pair or ""
    gold_spans = sorted({(gold.start, gold.start + len(gold.text)) for gold in case.example.answers})
    gold_texts = list(dict.fromkeys(gold.text for gold in case.example.answers))
    predicted_text, predicted = str(case.answer), _format_answer(case.answer)
    overlap = best_over_golds(f1, gold_texts, predicted_text)
    if 0 < overlap < 1:
        predicted += f" (F1 {100 * overlap:.0f})"
    predicted_span = answer_span(predicted_text, context, [start for start, _ in gold_spans], case.span)
    excerpt = highlight_answers(context, gold_spans, predicted_span)
    return _card(case, truncate(question, MAX_TEXT), [excerpt], _format_answer(" / ".join(gold_texts)), predicted)


def _text_card(run: Run, case: Case) -> Card:
    texts = [case.example.text, *([case.example.pair] if case.example.pair else [])]
    if run.task.kind == "classify":
        gold = gold_text(run.task, case.example)
    else:
        gold = _format_answer(case.example.label if run.task.kind == "regress" else gold_names(run.task, case.example))
    return _card(case, None, [truncate(text, MAX_TEXT) for text in texts], gold, _format_answer(case.answer))


def _card(case: Case, question: str | None, texts: Sequence[str], gold: str, predicted: str) -> Card:
    answers = [("gold", gold), ("predicted", predicted)]
    if case.encoder is not None:
        answers.append(("encoder", _format_answer(case.encoder)))
    return Card(case.outcome, truncate(case.example.id, MAX_TEXT), question, texts, answers, case.right)


def _format_answer(answer: object) -> str:
    """An answer as shown on a card: labels are joined, values rounded, and empty answers named."""
    if isinstance(answer, list):
        return truncate(", ".join(map(str, answer)), MAX_ANSWER) if answer else NO_LABEL
    if answer is None or answer == "":
        return NO_ANSWER
    return format_number(answer, 3) if isinstance(answer, float) else truncate(str(answer), MAX_ANSWER)
