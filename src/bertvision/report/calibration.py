"""Thresholds and probabilities: what was fitted on inner, and how far it holds on the split that is shown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from bertvision.core.records import Reliability, Row
from bertvision.report.markup import Html, Section, number, section, table, tag
from bertvision.report.svg import Frame, Scale, dot
from bertvision.runs.reader import Line, Run

WHATS: Mapping[str, tuple[str, str]] = {
    "label": ("label", "the stated probability of the label that is given (of each, where there may be several)"),
    "answer": ("answer", "the stated probability that what is said is exactly right"),
    "no_answer": ("no answer", "the stated probability that there is no answer"),
}
"""Sorts of probability: a short name, and what it is."""

HOW_TO_READ = (
    "The best head on inner and the encoder. Rings: before the temperature; dots: after; on the dashed line what is "
    "stated comes true, below it too much was promised. The larger, the more examples."
)

SMALLEST, LARGEST = 3.0, 11.0
"""Radius of the dots for few and for all examples."""


def no_answer_section(run: Run, lines: Sequence[Line]) -> Section | None:
    """The score at 0, at the fitted threshold and at the oracle; nothing for tasks without "no answer"."""
    rows = [line.rows[0] for line in lines if line.rows[0].thresholds]
    if not rows:
        return None
    split = run.board.split
    how = (
        "A question goes unanswered where the score of no answer beats that of the best span by more than a "
        "threshold. The leaderboard uses the one that was fitted on inner. Beside it: 0, that is no fitting at all, "
        f"and the oracle, which is the best threshold for {split} found by looking at {split}. The oracle is an upper "
        "bound and no result: nothing is chosen by it."
    )
    head = ["predictor", "exact at 0", "F1 at 0", "fitted threshold", "exact at it", "F1 at it", "oracle's exact"]
    head.append("oracle's F1")
    return section(
        "no-answer",
        "When to say nothing",
        tag("p", how),
        table(head, [_threshold_row(row) for row in rows], "Scores by no-answer threshold"),
    )


def _threshold_row(row: Row) -> list[object]:
    zero, oracle = row.thresholds["zero"], row.thresholds["oracle"]
    fitted = row.thresholds.get("fitted", {})
    told = [zero["exact"], zero["f1"], *(fitted.get(name, float("nan")) for name in ("threshold", "exact", "f1"))]
    return [title_of(row), *map(number, told), *(_oracle(oracle, name) for name in ("exact", "f1"))]


def _oracle(oracle: Mapping[str, float], name: str) -> Html:
    at = tag("small", f"at {number(oracle[f'best_{name}_thresh'])}")
    return tag("span", number(oracle[f"best_{name}"]), at)


def title_of(row: Row) -> Html:
    seed = "" if row.seed is None else f" seed {row.seed}"
    return tag("span", tag("code", row.name), seed)


def calibration_section(run: Run, lines: Sequence[Line]) -> Section | None:
    """Temperatures, calibration errors and the reliability picture; nothing for values."""
    rows = [line.rows[0] for line in lines if line.rows[0].calibration]
    if not rows:
        return None
    whats = list(rows[0].calibration)
    told = "; ".join(f"{WHATS[what][0]}: {WHATS[what][1]}" for what in whats)
    how = (
        "Logits are divided by a temperature, fitted on inner, to become probabilities. It changes no answer, only "
        f"how sure it sounds; the saved model gives the probabilities after it. Told are {told}. The calibration "
        "error (ECE) is how far stated and found part on average, in points, over ten bins; a few hundred examples "
        "leave an error of some points to chance alone."
    )
    head = [
        "predictor",
        *(f"{WHATS[what][0]}: {name}" for what in whats for name in ("temperature", "ECE before", "ECE after")),
    ]
    cells = [[title_of(row), *_errors(row, whats)] for row in rows]
    panels = [_panel(one, run) for one in run.board.reliability]
    return section(
        "calibration",
        "What the probabilities are worth",
        tag("p", how),
        table(head, cells, "Temperatures and calibration errors"),
        *([tag("p", HOW_TO_READ), tag("div", *panels, class_="panels wide")] if panels else []),
    )


def _errors(row: Row, whats: Iterable[str]) -> list[str]:
    found = [row.calibration.get(what, {}) for what in whats]
    nothing = float("nan")
    return [
        cell
        for one in found
        for cell in (
            number(one.get("temperature", nothing)),
            number(100 * one.get("ece_raw", nothing), 1),
            number(100 * one.get("ece", nothing), 1),
        )
    ]


def _panel(one: Reliability, run: Run) -> Html:
    title = tag("h3", tag("code", one.name), f": {WHATS[one.what][0]}")
    row = next((row for row in run.board.rows if (row.name, row.seed) == (one.name, one.seed)), None)
    told = {} if row is None else row.calibration.get(one.what, {})
    before, after = (100 * told.get(name, float("nan")) for name in ("ece_raw", "ece"))
    numbers = f"Temperature {told['temperature']:.2f}; ECE {before:.1f} before, {after:.1f} after." if told else ""
    return tag("figure", title, reliability_picture(one), tag("figcaption", numbers))


def reliability_picture(one: Reliability) -> Html:
    """Stated probability across, how often it came true up."""
    whole = Scale(0.0, 1.0)
    frame = Frame(whole, whole, 340, 320)
    (x1, y1), (x2, y2) = frame.at(0, 0), frame.at(1, 1)
    diagonal = tag("line", x1=x1, x2=x2, y1=y1, y2=y2, class_="equal")
    curve = tag("polyline", points=frame.points((stated, found) for stated, found, _ in one.calibrated), class_="curve")
    marks = [*_dots(frame, one.raw, "kept", "before"), *_dots(frame, one.calibrated, "dot", "after")]
    ticks = [(value, f"{value:g}") for value in whole.ticks(4)]
    axes = frame.axes(ticks, "stated probability", "share that came true")
    return frame.picture(f"{_told(one)}", axes, diagonal, curve, *marks)


def _dots(frame: Frame, bins: Sequence[tuple[float, float, int]], look: str, when: str) -> list[Html]:
    total = sum(count for *_, count in bins) or 1
    return [
        dot(
            *frame.at(stated, found),
            f"{when}: stated {stated:.2f}, came true {found:.2f}, {count:,} examples",
            SMALLEST + (LARGEST - SMALLEST) * (count / total) ** 0.5,
            look,
        )
        for stated, found, count in bins
    ]


def _told(one: Reliability) -> str:
    bins = [f"{found:.2f} of {count} stated at {stated:.2f}" for stated, found, count in one.calibrated]
    return f"Reliability of {one.name}, {WHATS[one.what][1]}, after the temperature. Came true: {', '.join(bins)}."
