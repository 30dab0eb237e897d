"""Chart of tuning methods: the score of each alone (square) and with the head selected on inner (dot)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import mean

from bertvision.core.records import CONTROL
from bertvision.report.charts import write_svg
from bertvision.report.colours import LIGHT
from bertvision.report.markup import Html, join, tag
from bertvision.report.svg import Scale, scale_for, tick_text

Row = dict[str, str]
LEFT, RIGHT, STRIP, TOP, WIDTH = 360, 24, 30, 24, 860
FROM_STORE = " from store"
METHODS = (
    "full",
    "freeze:k=3",
    f"freeze:k=5{FROM_STORE}",
    "adapters:size=64,share=none",
    "adapters:size=64,share=layer,norms=false",
    "adapters:size=64,share=3,norms=false",
    "lora:r=8",
    "bitfit",
)
KINDS = ("encoder", "control", "head", "ensemble")
"""The encoder alone, its last layer's linear head refitted, the best head on all layers, the best ensemble."""
ALONE, ON_TOP = LIGHT["blue"], LIGHT["orange"]


def draw(rows: Sequence[Row], path: Path) -> None:
    """One strip per method, in the order of METHODS; marks are means over seeds, thin lines single seeds."""
    if rows:
        write_svg(chart(rows), path)


def by_method(rows: Sequence[Row]) -> dict[tuple[str, str], dict[str, list[float]]]:
    """(method, epochs) -> kind -> one score per seed, in the order of METHODS."""
    rows_by_method: dict[tuple[str, str], dict[str, list[Row]]] = {}
    for row in rows:
        rows_by_method.setdefault(key_of(row), {}).setdefault(row["seed"], []).append(row)
    return {
        key: {kind: [_selected_score(item, kind) for item in seeds.values()] for kind in KINDS}
        for key, seeds in sorted(rows_by_method.items(), key=lambda item: _rank(item[0]))
    }


def _rank(key: tuple[str, str]) -> tuple[int, float]:
    method = key[0].split(" at ")[0]
    return METHODS.index(method) if method in METHODS else len(METHODS), float(key[1])


def key_of(row: Row) -> tuple[str, str]:
    """Rows of a method with a given learning rate are a group of their own."""
    lr = row["asked_lr"]
    return row["method"] if lr == "default" else f"{row['method']} at {lr}", row["epochs"]


def _selected_score(rows: Sequence[Row], kind: str) -> float:
    """The dev score of the predictor of this kind that is best on inner."""
    candidates = [row for row in rows if kind == ("control" if row["predictor"] == CONTROL else row["kind"])]
    return float(max(candidates, key=lambda row: float(row["inner"]))["score"])


def chart(rows: Sequence[Row]) -> Html:
    groups, metric = by_method(rows), rows[0]["metric"]
    scale = scale_for([score for group in groups.values() for kind in ("encoder", "head") for score in group[kind]])
    floor = TOP + STRIP * len(groups) + 6
    trained = {key_of(row): int(row["trained"]) for row in rows}
    parts = [_axis(scale, floor, f"{rows[0]['task']}: {metric} on dev")]
    for index, (key, group) in enumerate(groups.items()):
        parts.append(_strip(key, trained[key], group, TOP + STRIP * index + STRIP / 2, scale))
    parts.append(_legend(floor + 52))
    text = "; ".join(
        f"{m}, {e} epochs: {mean(g['encoder']):.1f}, {mean(g['head']):.1f}" for (m, e), g in groups.items()
    )
    box = f"0 0 {WIDTH} {floor + 66}"
    return tag("svg", *parts, viewBox=box, style=f"max-width:{WIDTH}px", role="img", aria_label=f"{metric}. {text}.")


def _x(scale: Scale, value: float) -> float:
    return LEFT + scale.fraction(value) * (WIDTH - LEFT - RIGHT)


def _axis(scale: Scale, floor: float, name: str) -> Html:
    parts = []
    for value in scale.ticks(6):
        x = _x(scale, value)
        parts.append(tag("line", x1=x, x2=x, y1=TOP - 8, y2=floor, class_="grid"))
        parts.append(tag("text", tick_text(value), x=x, y=floor + 16, text_anchor="middle"))
    middle = (LEFT + WIDTH - RIGHT) / 2
    return join([*parts, tag("text", name, x=middle, y=floor + 34, text_anchor="middle", class_="name")])


def _strip(key: tuple[str, str], trained: int, group: dict[str, list[float]], y: float, scale: Scale) -> Html:
    method, epochs = key
    label = tag("text", method, x=10, y=y)
    text = f"{epochs} epochs, {trained:,} trained"
    details = tag("text", text, x=10, y=y + 12, style="fill:#777;font-size:10px")
    seed_marks = [
        tag("line", x1=_x(scale, s), x2=_x(scale, s), y1=y - 8, y2=y + 8, stroke=colour, stroke_width=1.5, opacity=0.5)
        for kind, colour in (("encoder", ALONE), ("head", ON_TOP))
        for s in group[kind]
    ]
    alone, on_top = (_x(scale, mean(group[kind])) for kind in ("encoder", "head"))
    square = tag("rect", x=alone - 5, y=y - 5, width=10, height=10, fill=ALONE)
    return tag("g", label, details, *seed_marks, square, tag("circle", cx=on_top, cy=y, r=5, fill=ON_TOP))


def _legend(y: float) -> Html:
    square = tag("rect", x=LEFT, y=y - 9, width=10, height=10, fill=ALONE)
    dot = tag("circle", cx=LEFT + 85, cy=y - 4, r=5, fill=ON_TOP)
    labels = tag("text", "alone", x=LEFT + 16, y=y), tag("text", "with the head selected on inner", x=LEFT + 96, y=y)
    return tag("g", square, dot, *labels, tag("text", "thin lines: seeds", x=LEFT + 300, y=y))
