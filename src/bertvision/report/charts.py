"""The pictures: scores as dots, layer weights as bars, learning as lines, values as a cloud.

Shapes and dashes tell apart what colours tell apart, so that nothing is lost in print or to the
colour-blind.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from bertvision.report.markup import Html, cut, join, number, tag
from bertvision.report.svg import Frame, Scale, dot, drawable, scale_of, short_text, thinned, tick_text
from bertvision.runs.lines import Line
from bertvision.runs.reader import HeadFacts

SEED_DASHES = ("none", "6 3", "2 3", "8 3 2 3")
"""How the lines of the first, second, ... seed are drawn."""

ROW, DOTS_TOP = 42, 46
LONGEST_DOT_NAME = 48


def dot_plot(lines: Sequence[Line], metric: str, rules: Mapping[str, float]) -> Html:
    """A strip a predictor, a mark a seed; ``rules`` are vertical lines through all strips.

    Places across are percentages, so that the picture takes any width and its text keeps its size.
    """
    rules = {name: value for name, value in rules.items() if drawable(value)}
    ends = [end for line in lines for end in line.interval or ()]
    scale = scale_of([*(value for line in lines for value in line.values(metric)), *rules.values(), *ends])
    floor = DOTS_TOP + ROW * len(lines) + 4
    parts = [_ticks(scale, floor), *(_rule(name, rules[name], i, scale, floor) for i, name in enumerate(rules))]
    parts += [_strip(line, DOTS_TOP + ROW * i, metric, scale) for i, line in enumerate(lines)]
    told = "; ".join(f"{line.name} {number(line.mean(metric))}{_told_interval(line)}" for line in lines)
    ruled = "; ".join(f"{name} {number(value)}" for name, value in rules.items())
    alternative = f"Mean {metric} of every predictor: {told}. Vertical lines: {ruled}."
    return tag("svg", *parts, width="100%", height=floor + 26, role="img", aria_label=alternative, class_="dots")


def _told_interval(line: Line) -> str:
    return "" if line.interval is None else f" ({number(line.interval[0])} to {number(line.interval[1])})"


def _across(scale: Scale, value: float) -> str:
    return f"{1 + 98 * scale.share(value):.2f}%"


def _anchor(share: float) -> str:
    """Text near an edge grows away from it; on a phone the longest fills two thirds of the picture."""
    return "start" if share < 0.35 else "end" if share > 0.65 else "middle"


def _ticks(scale: Scale, floor: int) -> Html:
    parts = []
    for value in scale.ticks(6):
        x = _across(scale, value)
        parts.append(tag("line", x1=x, x2=x, y1=DOTS_TOP - 10, y2=floor, class_="grid"))
        parts.append(tag("text", tick_text(value), x=x, y=floor + 18, text_anchor="middle"))
    return join(parts)


def _rule(name: str, value: float, place: int, scale: Scale, floor: int) -> Html:
    """A vertical line; names stand on lines of their own, so that close rules stay readable."""
    x, y = _across(scale, value), 13 + 16 * place
    line = tag("line", x1=x, x2=x, y1=y + 5, y2=floor, class_=f"rule rule{place}")
    text = tag("text", f"{cut(name, 34)} {number(value)}", x=x, y=y, text_anchor=_anchor(scale.share(value)))
    return tag("g", line, text, class_="halo")


def _strip(line: Line, top: int, metric: str, scale: Scale) -> Html:
    name = short_text(line.name, LONGEST_DOT_NAME, x="1%", y=top + 12, class_="label")
    mean = tag("text", number(line.mean(metric)), x="99%", y=top + 12, text_anchor="end", class_="label")
    y = top + 26
    track = tag("line", x1="1%", x2="99%", y1=y, y2=y, class_="track")
    marks = [_mark(line, row.seed, row.scores.get(metric, float("nan")), y, scale) for row in line.rows]
    under = [track, *_band(line, y, scale), *_mean_mark(line, metric, y, scale)]
    return tag("g", *under, *marks, name, mean, class_="halo")


def _band(line: Line, y: int, scale: Scale) -> list[Html]:
    """The interval of the mean."""
    if line.interval is None or not all(map(drawable, line.interval)):
        return []
    low, high = (_across(scale, end) for end in line.interval)
    return [tag("line", x1=low, x2=high, y1=y, y2=y, class_="band")]


def _mean_mark(line: Line, metric: str, y: int, scale: Scale) -> list[Html]:
    mean = line.mean(metric)
    if len(line.rows) < 2 or not drawable(mean):
        return []
    x = _across(scale, mean)
    return [tag("line", x1=x, x2=x, y1=y - 8, y2=y + 8, class_="mean")]


def _mark(line: Line, seed: int | None, value: float, y: int, scale: Scale) -> Html:
    """Heads are dots, the control a ring, the encoder a square, ensembles diamonds."""
    if not drawable(value):
        return Html("")
    title = tag("title", f"{line.name}{'' if seed is None else f', seed {seed}'}: {number(value)}")
    x = _across(scale, value)
    if line.kind in ("head", "control"):
        return tag("circle", title, cx=x, cy=y, r=5, class_=f"mark {line.kind}")
    return tag("rect", title, x=x, y=y - 4.5, width=9, height=9, class_=f"mark {line.kind}")


def weights_picture(heads: Sequence[HeadFacts]) -> Html:
    """Bars: mean weight over the seeds of one spec; dots: each seed; dashed: what equal weights would be."""
    states, count = heads[0].states, len(heads[0].states)
    means = [sum(head.weights[i] for head in heads) / len(heads) for i in range(count)]
    tallest = max((weight for head in heads for weight in head.weights if drawable(weight)), default=1.0)
    frame = Frame(Scale(-0.6, count - 0.4), Scale(0.0, 1.15 * tallest or 1.0), 460, 230)
    bars = [_layer_bar(frame, i, mean, f"state {states[i]}: {mean:.3f}") for i, mean in enumerate(means)]
    equal = frame.at(0, 1 / count)[1]
    right = frame.width - frame.right
    rule = tag("line", x1=frame.left, x2=right, y1=equal, y2=equal, class_="equal")
    dots = [_seed_dot(frame, head, i) for head in heads for i in range(count) if len(heads) > 1]
    told = ", ".join(f"{state}: {mean:.3f}" for state, mean in zip(states, means, strict=True))
    axes = frame.axes(thinned(states), "state", "weight")
    return frame.picture(f"Mean layer weights of {heads[0].spec} by state. {told}.", axes, *bars, rule, *dots)


def _layer_bar(frame: Frame, place: int, value: float, title: str) -> Html:
    if not drawable(value):
        return Html("")
    (left, top), (right, floor) = frame.at(place - 0.36, value), frame.at(place + 0.36, 0.0)
    name = tag("title", title)
    return tag("rect", name, x=left, y=top, width=right - left, height=max(0.0, floor - top), class_="bar")


def _seed_dot(frame: Frame, head: HeadFacts, place: int) -> Html:
    if not drawable(head.weights[place]):
        return Html("")
    x, y = frame.at(place, head.weights[place])
    return dot(x, y, f"seed {head.seed}, state {head.states[place]}: {head.weights[place]:.3f}", 3.0, "seed")


def seed_dashes(seeds: Iterable[int]) -> dict[int, str]:
    """How the line of each seed is drawn; after four the dashes come again."""
    return {seed: SEED_DASHES[place % len(SEED_DASHES)] for place, seed in enumerate(sorted(set(seeds)))}


def curves_legend(dashes: Mapping[int, str]) -> Html:
    """Which dashes are which seed, and what a ring is."""
    parts = []
    for seed, dash in dashes.items():
        line = tag("line", x1=0, x2=34, y1=7, y2=7, class_="curve", stroke_dasharray=dash)
        parts.append(tag("span", tag("svg", line, width=34, height=14, aria_hidden="true"), f"seed {seed}"))
    ring = tag("circle", cx=7, cy=7, r=5.5, class_="kept")
    parts.append(tag("span", tag("svg", ring, width=14, height=14, aria_hidden="true"), "the epoch that was kept"))
    return tag("p", *parts, class_="legend")


def curves_picture(
    heads: Sequence[HeadFacts], others: Sequence[HeadFacts], metric: str, y: Scale, dashes: Mapping[int, str]
) -> Html:
    """One spec's seeds in front of all other heads, in grey; a ring marks the epoch that was kept."""
    longest = max((len(head.history) for head in [*heads, *others]), default=1)
    frame = Frame(Scale(0.7, max(longest, 2) + 0.3), y, 340, 210)
    behind = [tag("polyline", points=frame.points(_curve(head)), class_="other") for head in others]
    front = [_seed_curve(frame, head, dashes[head.seed]) for head in heads]
    named = thinned([str(epoch) for epoch in range(1, longest + 1)], 10)
    axes = frame.axes([(place + 1, name) for place, name in named], "epoch", f"inner {metric}")
    told = "; ".join(f"seed {head.seed}: {_told_curve(head)}" for head in heads)
    return frame.picture(f"Inner {metric} of {heads[0].spec} by epoch. {told}.", axes, *behind, *front)


def _curve(head: HeadFacts) -> list[tuple[float, float]]:
    return [(float(point["epoch"]), float(point["inner"])) for point in head.history]


def _told_curve(head: HeadFacts) -> str:
    scores = ", ".join(number(score) for _, score in _curve(head))
    return f"{scores}, epoch {head.best_epoch} kept"


def _seed_curve(frame: Frame, head: HeadFacts, dash: str) -> Html:
    line = tag("polyline", points=frame.points(_curve(head)), class_="curve", stroke_dasharray=dash)
    marks = []
    for epoch, score in _curve(head):
        if drawable(score):
            kept = epoch == head.best_epoch
            title = f"seed {head.seed}, epoch {epoch:g}: {number(score)}{' (kept)' if kept else ''}"
            marks.append(dot(*frame.at(epoch, score), title, 5.5 if kept else 2.5, "kept" if kept else "dot"))
    return tag("g", line, *marks)


def scatter(pairs: Sequence[tuple[float, float, str]]) -> Html:
    """Gold values across, predicted ones up, and the diagonal on which both are equal."""
    shown = [pair for pair in pairs if drawable(pair[0]) and drawable(pair[1])]
    both = scale_of([value for gold, said, _ in shown for value in (gold, said)])
    frame = Frame(both, both, 460, 440, left=58)
    (x1, y1), (x2, y2) = frame.at(both.low, both.low), frame.at(both.high, both.high)
    diagonal = tag("line", x1=x1, x2=x2, y1=y1, y2=y2, class_="equal")
    dots = [dot(*frame.at(gold, said), f"{name}: gold {gold:g}, predicted {said:g}") for gold, said, name in shown]
    axes = frame.axes([(value, tick_text(value)) for value in both.ticks(5)], "gold", "predicted")
    alternative = f"Predicted against gold values of {len(shown)} examples, with the diagonal where both are equal."
    return frame.picture(alternative, axes, diagonal, *dots)
