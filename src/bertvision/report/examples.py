"""Examples of what the best head gets right and wrong: chosen by a hash, so that nobody picked them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from bertvision.core.records import Example
from bertvision.evaluation.analyses.answers import gold_names, gold_text
from bertvision.evaluation.metrics.squad import best_over_golds, exact, f1
from bertvision.report.charts import scatter
from bertvision.report.highlight import GUESSED, Span, marked, place_of
from bertvision.report.markup import Html, Section, cut, facts, number, scrolling, section, tag
from bertvision.runs.reader import Line, Run, best_head
from bertvision.tasks.splits import stable_hash

MOST_LABELS = 15
"""More labels than this are folded: the rarest become one."""

OTHERS = "all others"

LONGEST = 24

SHOWN = 8

LONGEST_TEXT = 600

LONGEST_ANSWER = 200

LONGEST_LABEL = 40

MOST_POINTS = 1500
"""A cloud of more points than this is thinned, by hash."""

LEGEND = (
    "In the contexts a solid line below marks the gold answer, a dashed frame the predicted one; small raised words "
    "say the same."
)


def confusion_table(labels: Sequence[str], pairs: Sequence[tuple[str, str]]) -> Html:
    """Gold labels down, predicted labels across; shaded by the share of the gold label's examples."""
    names = _names(labels, pairs)
    counts = Counter((_folded(gold, names), _folded(said, names)) for gold, said in pairs)
    totals = Counter(_folded(gold, names) for gold, _ in pairs)
    head = [tag("th", "gold (down), predicted (across)", scope="col"), *(_heading(name, "col") for name in names)]
    rows = [_row(gold, names, counts, totals[gold]) for gold in names]
    caption = tag("caption", "Counts; the darker, the larger the share of the gold label. Right answers are framed.")
    body = tag("table", caption, tag("thead", tag("tr", *head)), tag("tbody", *rows), class_="confusion")
    return scrolling(body, "Confusion table")


def label_table(labels: Sequence[str], pairs: Sequence[tuple[Sequence[str], Sequence[str]]]) -> Html:
    """For each label how often it is in gold, how often it was said, and how often rightly; the commonest first."""
    gold, said, both = (Counter[str]() for _ in range(3))
    for true, told in pairs:
        gold.update(true)
        said.update(told)
        both.update(set(true) & set(told))
    ranked = sorted(labels, key=lambda label: -gold[label])
    head = tag("tr", *(tag("th", name, scope="col") for name in ("label", "gold", "said", "rightly", "F1")))
    rows = [_fares(label, gold[label], said[label], both[label]) for label in ranked[:MOST_LABELS]]
    left = f" {len(labels) - MOST_LABELS} rarer labels are left out." if len(labels) > MOST_LABELS else ""
    caption = tag("caption", f"Texts with each label, in gold and as said.{left}")
    return scrolling(tag("table", caption, tag("thead", head), tag("tbody", *rows)), "Labels")


def _fares(label: str, gold: int, said: int, both: int) -> Html:
    f1 = 200 * both / (gold + said) if gold + said else 0.0
    return tag("tr", _heading(label, "row"), *(tag("td", f"{n:,}") for n in (gold, said, both)), tag("td", f"{f1:.1f}"))


def _names(labels: Sequence[str], pairs: Sequence[tuple[str, str]]) -> list[str]:
    if len(labels) <= MOST_LABELS:
        return list(labels)
    common = {name for name, _ in Counter(gold for gold, _ in pairs).most_common(MOST_LABELS)}
    return [*(name for name in labels if name in common), OTHERS]


def _folded(name: str, names: Sequence[str]) -> str:
    return name if name in names else OTHERS


def _heading(name: str, scope: str) -> Html:
    return tag("th", cut(name, LONGEST), scope=scope, title=name if len(name) > LONGEST else None)


def _row(gold: str, names: Sequence[str], counts: Counter[tuple[str, str]], total: int) -> Html:
    cells = [_cell(counts[gold, said], total, gold == said and gold != OTHERS) for said in names]
    return tag("tr", _heading(gold, "row"), *cells)


def _cell(count: int, total: int, right: bool) -> Html:
    share = count / total if total else 0.0
    return tag("td", f"{count:,}", style=f"--share:{share:.3f}", class_="right" if right else None)


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
    answers = run.answers.get((best.rows[0].name, best.rows[0].seed)) if best else None
    if best is None or not answers:
        return None
    own = next((run.answers.get((line.name, None), {}) for line in lines if line.kind == "encoder"), {})
    judge, write = WAYS[run.task.kind]
    shown = [example for example in run.task[run.board.split] if example.id in answers]
    places = run.places.get((best.rows[0].name, best.rows[0].seed))
    cases = [judge(run, example, answers[example.id], own.get(example.id)) for example in shown]
    if places is not None:
        cases = [replace(case, place=places.get(case.example.id, (0, 0))) for case in cases]
    intro = f"What {best.name} (seed {best.rows[0].seed}) says about {run.board.split}."
    return section("examples", "Examples", *write(run, intro, cases))


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
    taken = f"{cut(gold, LONGEST_LABEL)} taken for {cut(str(said), LONGEST_LABEL)}"
    return Case(example, said, own, said == gold, cut(gold, LONGEST_LABEL) if said == gold else taken)


def _set_case(run: Run, example: Example, said: object, own: object) -> Case:
    gold, told = set(gold_names(run.task, example)), set(_listed(said))
    missed, more = gold - told, told - gold
    sort = "labels missed and too many" if missed and more else "labels missed" if missed else "labels too many"
    sort = sort if missed or more else "all labels" if gold else "rightly no label"
    return Case(example, said, own, gold == told, sort)


def _listed(said: object) -> list[str]:
    return [str(label) for label in said] if isinstance(said, list) else []


def _value_case(run: Run, example: Example, said: object, own: object) -> Case:
    return Case(example, said, own, False, f"off by {number(_error(example, said))}")


def _error(example: Example, said: object) -> float:
    return abs(float(str(said)) - float(example.label or 0.0))


def choose(cases: Iterable[Case], count: int = SHOWN) -> list[Case]:
    """Sorts in turn, the commonest first; within a sort the order of the ids' hashes."""
    sorts: dict[str, list[Case]] = {}
    for case in sorted(cases, key=lambda case: stable_hash(case.example.id)):
        sorts.setdefault(case.sort, []).append(case)
    queues = sorted(sorts.values(), key=lambda queue: (-len(queue), queue[0].sort))
    turns = max((len(queue) for queue in queues), default=0)
    return [queue[turn] for turn in range(turns) for queue in queues if turn < len(queue)][:count]


def _span_parts(run: Run, intro: str, cases: Sequence[Case]) -> list[Html]:
    guessed = f" {GUESSED}" if any(case.place is None for case in cases) else ""
    return [tag("p", f"{intro} {LEGEND}{guessed}"), _counts(cases), *_both(cases, _span_card)]


def _label_parts(run: Run, intro: str, cases: Sequence[Case]) -> list[Html]:
    pairs = [(gold_names(run.task, case.example)[0], str(case.said)) for case in cases]
    table = confusion_table(run.task.labels, pairs)
    return [tag("p", intro), table, *_both(cases, lambda case: _text_card(case, gold_text(run.task, case.example)))]


def _set_parts(run: Run, intro: str, cases: Sequence[Case]) -> list[Html]:
    pairs = [(gold_names(run.task, case.example), _listed(case.said)) for case in cases]
    cards = _both(cases, lambda case: _text_card(case, _told(gold_names(run.task, case.example))))
    return [tag("p", intro), label_table(run.task.labels, pairs), _counts(cases), *cards]


def _value_parts(run: Run, intro: str, cases: Sequence[Case]) -> list[Html]:
    worst = sorted(cases, key=lambda case: (-_error(case.example, case.said), case.example.id))[:SHOWN]
    drawn = sorted(cases, key=lambda case: stable_hash(case.example.id))[:MOST_POINTS]
    points = [(float(case.example.label or 0.0), float(str(case.said)), case.example.id) for case in drawn]
    caption = "Each dot is an example: gold value across, predicted value up; on the dashed line both are equal."
    cards = [_text_card(case, _told(case.example.label)) for case in worst]
    picture = tag("figure", scatter(points), tag("figcaption", caption))
    return [tag("p", intro), picture, tag("h3", "Largest errors"), tag("div", *cards, class_="cards")]


def _counts(cases: Sequence[Case]) -> Html:
    """How often each sort of success and failure occurs."""
    counts: dict[tuple[bool, str], int] = {}
    for case in cases:
        counts[case.right, case.sort] = counts.get((case.right, case.sort), 0) + 1
    ranked = sorted(counts.items(), key=lambda item: (not item[0][0], -item[1], item[0][1]))
    pairs = [
        (f"{_verdict(right)}: {sort}", f"{count:,} ({100 * count / len(cases):.0f} %)")
        for (right, sort), count in ranked
    ]
    return facts(pairs, class_="tiles")


def _verdict(right: bool) -> str:
    return "right" if right else "wrong"


def _both(cases: Sequence[Case], card: Callable[[Case], Html]) -> list[Html]:
    parts = []
    for right in (False, True):
        group = [case for case in cases if case.right == right]
        title = f"{_verdict(right).capitalize()}: {len(group):,} of {len(cases):,}"
        parts += [tag("h3", title), tag("div", *(card(case) for case in choose(group)), class_="cards")]
    return parts


def _span_card(case: Case) -> Html:
    context = case.example.pair or ""
    golds: list[Span] = sorted({(answer.start, answer.start + len(answer.text)) for answer in case.example.answers})
    said = place_of(str(case.said), context, [start for start, _ in golds], case.place)
    texts = list(dict.fromkeys(answer.text for answer in case.example.answers))
    overlap = best_over_golds(f1, texts, str(case.said))
    shared = f" (F1 {100 * overlap:.0f})" if 0 < overlap < 1 else ""
    told = [
        ("gold", _told(" / ".join(texts))),
        ("predicted", tag("span", _told(case.said), shared)),
        *_encoder(case),
    ]
    question = tag("h4", cut(case.example.text, LONGEST_TEXT), dir="auto")
    return _card(case, [question, tag("p", marked(context, golds, said), dir="auto", class_="context")], told)


def _text_card(case: Case, gold: object) -> Html:
    texts = [case.example.text, *([case.example.pair] if case.example.pair else [])]
    parts = [tag("p", cut(text, LONGEST_TEXT), dir="auto", class_="context") for text in texts]
    told = [("gold", gold), ("predicted", _told(case.said)), *_encoder(case)]
    return _card(case, parts, told)


def _encoder(case: Case) -> list[tuple[str, object]]:
    return [] if case.encoder is None else [("encoder", _told(case.encoder))]


def _told(said: object) -> object:
    """An answer as one reads it: no answer is said in words, labels are joined, values are rounded."""
    if isinstance(said, list):
        return cut(", ".join(map(str, said)), LONGEST_ANSWER) if said else tag("em", "no label")
    if said is None or said == "":
        return tag("em", "no answer")
    return number(said, 3) if isinstance(said, float) else cut(str(said), LONGEST_ANSWER)


def _card(case: Case, content: Sequence[Html], told: Sequence[tuple[str, object]]) -> Html:
    top = tag("p", tag("span", case.sort, class_="tag"), tag("small", cut(case.example.id, LONGEST_TEXT)), class_="top")
    look = "card right" if case.right else "card wrong"
    return tag("article", top, *content, facts(told), class_=look)


WAYS = {
    "span": (_span_case, _span_parts),
    "classify": (_label_case, _label_parts),
    "multilabel": (_set_case, _set_parts),
    "regress": (_value_case, _value_parts),
}
"""For each kind of task how an example is judged and how the section is written."""
