"""Examples in the report: sampling, classification of errors, highlighted spans, and charts."""

from __future__ import annotations

import html
import re
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_file import write_report

from bertvision.core.records import Example
from bertvision.evaluation.analyses.result import Finding, Plot
from bertvision.report.charts import _text_anchor, draw, line_chart, number_labels
from bertvision.report.examples import OTHERS, Case, confusion_table, label_table, sample_cases
from bertvision.report.highlight import MARGIN, MAX_EXCERPT, highlight_answers, nearest_occurrence
from bertvision.report.markup import (
    Html,
    escape_html,
    format_bytes,
    format_duration,
    format_percent,
    join,
    tag,
    truncate,
)
from bertvision.report.svg import Scale, scale_for, tick_text
from bertvision.runs.reader import gather
from bertvision.workflows.file_analyses import save_findings

WORDS = st.text(alphabet="ab <>&\"'\n", max_size=60)


def visible_text(markup: str) -> str:
    """The visible text without tags and superscripts."""
    return html.unescape(re.sub(r"<[^>]*>", "", re.sub(r"<sup>[^<]*</sup>", "", markup)))


@given(st.text())
def test_escape_html_removes_markup_and_keeps_the_text(text: str) -> None:
    safe = escape_html(text)
    assert not set(safe) & set("<>\"'")
    assert len(html.unescape(safe)) == len(text)
    pairs = list(zip(text, html.unescape(safe), strict=True))
    assert all(after in (before, " " if before in "\r\x0b\x0c\x85" else "\ufffd") for before, after in pairs)
    assert text.isprintable() <= (html.unescape(safe) == text)


def test_markup_is_escaped_once_and_concatenation_loses_the_mark() -> None:
    inner = tag("b", "a < b", title='"')
    assert inner == '<b title="&quot;">a &lt; b</b>'
    assert tag("p", inner) == f"<p>{inner}</p>"
    assert tag("p", inner + "") == f"<p>{html.escape(inner)}</p>"
    assert tag("i", x1=0, x2=0.123, hidden=False, none=None, class_="c") == '<i x1="0" x2="0.12" class="c"></i>'
    assert isinstance(join(["<", inner]), Html)


@given(WORDS, st.integers(0, 60), st.integers(0, 20), st.integers(0, 60), st.integers(0, 20))
def test_highlight_answers_keeps_every_character(
    context: str, start: int, length: int, predicted_start: int, predicted_length: int
) -> None:
    gold = min(start, len(context)), min(start + length, len(context))
    predicted = min(predicted_start, len(context)), min(predicted_start + predicted_length, len(context))
    assert visible_text(highlight_answers(context, [gold], predicted)) == context


@given(WORDS, st.integers(0, 60), st.integers(1, 5), st.integers(0, 60))
def test_nearest_occurrence_is_closest_to_the_gold(context: str, start: int, length: int, gold_start: int) -> None:
    answer = context[start : start + length]
    span = nearest_occurrence(answer, context, [gold_start])
    if not answer:
        assert span is None
        return
    assert span is not None
    assert context[span[0] : span[1]] == answer
    assert abs(span[0] - gold_start) == min(
        abs(m.start() - gold_start) for m in re.finditer(f"(?={re.escape(answer)})", context)
    )


def test_nearest_occurrence_of_a_missing_answer_is_none() -> None:
    assert nearest_occurrence("no", "yes", [0]) is None
    assert nearest_occurrence("b", "a b b", []) == (2, 3)


def test_overlapping_spans_are_marked_in_pieces() -> None:
    assert highlight_answers("a flood in the cellar", [(2, 21)], (0, 7)) == (
        '<mark class="predicted">a </mark><mark class="gold predicted">flood<sup>predicted</sup></mark>'
        '<mark class="gold"> in the cellar<sup>gold</sup></mark>'
    )


def test_long_contexts_are_shortened_around_the_spans() -> None:
    context = "word " * 400 + "GOLD " + "word " * 400 + "PRED " + "word " * 400
    gold, predicted = context.index("GOLD"), context.index("PRED")
    text = visible_text(highlight_answers(context, [(gold, gold + 4)], (predicted, predicted + 4)))
    assert "GOLD" in text
    assert "PRED" in text
    assert text.count("\N{HORIZONTAL ELLIPSIS}") == 3
    assert len(text) < 4 * MARGIN + 100
    assert not re.search(r"(?<!w)ord|wor(?!d)", text)
    assert len(visible_text(highlight_answers(context, [], None))) < MAX_EXCERPT + 10


def test_chosen_examples_mix_all_sorts_in_a_fixed_order() -> None:
    cases = [Case(Example(f"e{i}", ""), "", None, True, "rare" if i < 2 else "common") for i in range(40)]
    chosen = sample_cases(cases)
    assert [case.outcome for case in chosen] == ["common", "rare"] * 2 + ["common"] * 4
    assert chosen == sample_cases(cases[::-1])
    assert sample_cases([]) == []


@pytest.mark.parametrize(
    ("kind", "facts"),
    [
        ("span", ["missed answer", "correctly unanswered", "no answer", "Wrong: 2 of 4", "Right: 2 of 4", "gold"]),
        ("classify", ["label-yes predicted as label-no", "Wrong: 2 of 4", "Right: 2 of 4", "gold (rows)"]),
        (
            "multilabel",
            ["correctly no label", "all labels correct", "missing and extra labels", "no label", "correct</th>"],
        ),
        ("regress", ["Largest errors", "error 1.50", "12.500"]),
    ],
)
def test_examples_are_sorted_by_kind_of_error(make_run: Any, kind: str, facts: list[str]) -> None:
    content = write_report(*make_run(kind)).read_text(encoding="utf-8")
    examples = html.unescape(content[content.index('id="examples"') : content.index('id="reproducibility"')])
    for fact in facts:
        assert fact in examples
    assert "<dt>encoder</dt>" in examples


def test_label_table_counts_and_f1() -> None:
    table = label_table(["a", "b", "c"], [(["a", "b"], ["a"]), (["b"], ["b", "a"]), (["b"], []), ([], [])])
    cells = re.findall(r"<td[^>]*>([^<]*)</td>", table)
    assert re.findall(r'scope="row"[^>]*>([^<]*)</th>', table) == ["b", "a", "c"]
    assert cells == ["3", "1", "1", "50.0", "1", "2", "1", "66.7", "0", "0", "0", "0.0"]
    many = label_table([str(i) for i in range(20)], [([str(i)], []) for i in range(20)])
    assert "5 rarer labels are not shown" in many


def test_confusion_table_merges_rare_labels() -> None:
    labels = [f"l{number}" for number in range(30)]
    pairs = [(label, "l0") for number, label in enumerate(labels) for _ in range(30 - number)]
    table = confusion_table(labels, pairs)
    assert table.count("<tr>") == 1 + 15 + 1
    assert OTHERS in table
    counts = [int(cell) for cell in re.findall(r"<td[^>]*>(\d+)</td>", table)]
    assert sum(counts) == len(pairs)


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=5))
def test_scale_covers_all_values_with_a_few_round_ticks(values: list[float]) -> None:
    scale = scale_for(values)
    assert all(0 <= scale.fraction(value) <= 1 for value in values if abs(value) < 1e300)
    ticks = scale.ticks()
    assert 2 <= len(ticks) <= 12
    assert all(before < after for before, after in pairwise(ticks))
    assert all(len(scale.ticks(target)) > 2 for target in (4, 6, 8))
    assert Scale(0, 10).ticks() == [0, 2, 4, 6, 8, 10]
    assert Scale(5, 96).ticks(4) == [20, 40, 60, 80]


def test_tick_text_is_short() -> None:
    values = (-0.05, 0.0, 2500.0, 99_999.0, 100_000.0, -1e6, 2.5e7, 1e8, 1e12)
    labels = ["-0.05", "0", "2500", "99999", "100k", "-1M", "25M", "100M", "1e+12"]
    assert [tick_text(value) for value in values] == labels


def test_lines_of_a_chart_differ_in_style() -> None:
    picture = str(line_chart({f"line {n}": [(0.0, n), (1.0, n)] for n in range(12)}, "x", "y"))
    line_styles = re.findall(r'<g class="(s\d)"><polyline [^>]*stroke-dasharray="([^"]*)"', picture)
    assert len(line_styles) == len(set(line_styles)) == 12
    legend_styles = re.findall(r'<line [^>]*stroke-dasharray="([^"]*)" class="(s\d)"', picture)
    assert [(colour, dash) for dash, colour in legend_styles] == line_styles


def test_legend_truncates_long_names_with_a_title() -> None:
    name = "encoder limited too: " + "compress:size=64," * 8
    legend = re.findall(
        r"<text [^>]*><title>([^<]*)</title>([^<]*)</text>", str(line_chart({name: [(0, 1)]}, "x", "y"))
    )
    assert legend == [(name, truncate(name, 44))]


def test_large_heat_map_scrolls(make_run: Any) -> None:
    folder, task = make_run("span")
    run = gather(folder, task)
    names = tuple(map(str, range(1, 13)))
    plot = Plot("heat", "last", "first", {name: [(11.0, 1.0, "")] for name in names}, names, legend="lost")
    save_findings(folder, run, [Finding("ablation", "Adapters", "", {"first": "first"}, ({"first": 1},), (plot,))])
    content = write_report(folder, task).read_text(encoding="utf-8")
    width = 56 + 46 * 12 + 14
    position = content.index(f'style="min-width:{0.9 * width:.0f}px')
    assert content[:position].rstrip().endswith(f'viewBox="0 0 {width} 644"')
    assert '<div class="scroll" role="region" aria-label="Adapters" tabindex="0"><svg' in content


def test_small_heat_map_has_room_for_its_axis_names() -> None:
    axes = {"x": "last layer without", "y": "first layer without adapters"}
    picture = str(draw(Plot("heat", **axes, series={"1": [(0, 1.0, "")]}, names=("1", "2"), legend="lost")))
    width, height = map(int, re.findall(r'viewBox="0 0 (\d+) (\d+)"', picture)[0])
    assert min(width - 56 - 14, height - 14 - 78) >= 28 * 7


@pytest.mark.parametrize(("xs", "labels"), [((0, 1, 2), ["0", "1", "2"]), ((0.0, 0.5, 1.0), ["0", "0.2", "0.4"])])
def test_integer_axis_has_integer_ticks(xs: tuple[float, ...], labels: list[str]) -> None:
    picture = str(line_chart({"a": [(x, x) for x in xs]}, "x", "y"))
    assert re.findall(r'text-anchor="middle">([\d.]+)<', picture)[:3] == labels


def test_overlapping_marks_share_a_number_label() -> None:
    assert number_labels([(0, 0), (50, 0), (3, 5), (50, 20), (50, 1)]) == {0: "1, 3", 1: "2, 5", 3: "4"}


def test_format_bytes_duration_percent_and_truncate() -> None:
    assert [format_bytes(n) for n in (999, 91_580_924, 1_067_328_627)] == ["999 bytes", "91.6 MB", "1.07 GB"]
    assert [format_duration(s) for s in (7.66, 198, 7300)] == ["7.7 s", "3 min 18 s", "2 h 1 min"]
    assert [format_percent(p) for p in (100.0, 0.1124, 0.0004)] == ["100.000", "0.112", "0.0004"]
    assert truncate("abcdef", 4) == "abc\N{HORIZONTAL ELLIPSIS}"


@given(st.floats(0, 1))
def test_rule_labels_stay_within_a_narrow_chart(share: float) -> None:
    """228 pixels is the width of the longest label, 358 that of a phone's screen."""
    anchor_share = {"start": 0.0, "middle": 0.5, "end": 1.0}[_text_anchor(share)]
    left = 358 * (0.01 + 0.98 * share) - 228 * anchor_share
    assert left > 0
    assert left + 228 < 358
