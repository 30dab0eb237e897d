"""Which labels are taken for which; where a text may have several, how each label fares."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from bertvision.report.markup import Html, cut, scrolling, tag

MOST_LABELS = 15
"""More labels than this are folded: the rarest become one."""
OTHERS = "all others"
LONGEST = 24


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
