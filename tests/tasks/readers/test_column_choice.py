"""Choice of columns by name and by values: guessed if there is a single candidate, otherwise an error asks for them."""

from __future__ import annotations

import datetime
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertvision.core.errors import BadInput
from bertvision.tasks.readers.column_choice import choose_columns
from bertvision.tasks.readers.columns import Columns, RequestedColumns

FILE = Path("my.csv")
WORDS = ("plain", "old", "town", "bridge", "river", "small", "quiet", "late", "warm", "grey", "tall", "bright")


def blank_rows(header: Sequence[str]) -> list[dict[str, object]]:
    return [dict.fromkeys(header, "")]


def choice_error(header: list[str], requested: RequestedColumns) -> str:
    with pytest.raises(BadInput) as error:
        choose_columns(blank_rows(header), requested, FILE)
    return str(error.value)


@pytest.mark.parametrize(
    ("header", "columns"),
    [
        (["text", "label"], Columns("text", None, "label")),
        (["id", "Sentiment", "CONTENT"], Columns("CONTENT", None, "Sentiment")),
        (["sentence1", "sentence2", "score"], Columns("sentence1", "sentence2", "score")),
        (["label", "text_pair", "text"], Columns("text", "text_pair", "label")),
        (["question", "sentence", "label"], Columns("question", "sentence", "label")),
        (["stars", "review", "score of it"], Columns("review", None, "stars")),
    ],
)
def test_known_column_names_are_guessed(header: list[str], columns: Columns) -> None:
    assert choose_columns(blank_rows(header), RequestedColumns(), FILE) == columns


@pytest.mark.parametrize(
    ("header", "parts"),
    [
        (
            ["text", "bias"],
            ["no column has a known name for a label", "the file has: 'bias' (blank); give label_column"],
        ),
        (["text", "label", "score"], ["the label may be 'label' (blank) or 'score' (blank); give label_column"]),
        (["a", "label"], ["no column has a known name for a text", "the file has: 'a' (blank); give text_column"]),
        (["content", "label", "text"], ["the text may be 'content' (blank) or 'text' (blank); give text_column"]),
        (["premise", "hypothesis", "text", "label"], ["may be 'premise' (blank) with 'hypothesis' (blank) or 'text'"]),
        (["text", "Text", "label"], ["the text may be 'text' (blank) or 'Text' (blank)"]),
        (["text_a", "text_b", "Text_A", "label"], ["may be 'text_a' (blank) with 'text_b' (blank) or 'Text_A'"]),
        (["label", "x" * 500], ["x" * 36 + "... (blank);"]),
        (["text", *(f"column {i}" for i in range(30))], ["'column 4' (blank) and 25 more; give label_column"]),
    ],
)
def test_ambiguous_columns_are_errors(header: list[str], parts: list[str]) -> None:
    message = choice_error(header, RequestedColumns())
    assert all(part in message for part in ["my.csv: ", *parts]), message


@pytest.mark.parametrize(
    ("requested", "columns"),
    [
        (RequestedColumns(text="text"), Columns("text", None, "label")),
        (RequestedColumns(text="#2", pair="text"), Columns("#2", "text", "label")),
        (RequestedColumns(pair="#2"), Columns("text", "#2", "label")),
        (RequestedColumns(label="#2"), Columns("text", "text_pair", "#2")),
        (RequestedColumns(text="label", label="text"), Columns("label", None, "text")),
    ],
)
def test_columns_can_be_given(requested: RequestedColumns, columns: Columns) -> None:
    assert choose_columns(blank_rows(["text", "text_pair", "label", "#2"]), requested, FILE) == columns


def test_missing_or_duplicate_column_is_an_error() -> None:
    header = ["a", "b", "c"]
    expected = "my.csv: no column 'stars'; the file has: a, b, c; give label_column (--label-column)"
    assert choice_error(header, RequestedColumns(text="a", label="stars")) == expected
    assert "no column 'A'; the file has: a, b, c; give pair_column" in choice_error(header, RequestedColumns(pair="A"))
    assert "column 'a' is named twice" in choice_error(header, RequestedColumns(text="a", label="a"))


def sentence(number: int, words: int = 9) -> str:
    draw = random.Random(number)
    return " ".join(draw.choice(WORDS) for _ in range(words)) + f" {number}."


def table(**columns: Sequence[object]) -> list[dict[str, object]]:
    return [dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True)]


def guess(
    rows: Sequence[Mapping[str, object]], kind: str | None = None, **requested: Any
) -> tuple[str, str | None, str]:
    columns = choose_columns(rows, RequestedColumns(**requested), FILE, kind)
    return columns.text, columns.pair, columns.label


def guess_error(rows: Sequence[Mapping[str, object]], kind: str | None = None, **requested: Any) -> str:
    with pytest.raises(BadInput) as error:
        guess(rows, kind, **requested)
    return str(error.value)


ROWS = 60
SENTENCES = [sentence(i) for i in range(ROWS)]
LONG = [sentence(i, 40) for i in range(ROWS)]
MOODS = [("glad", "sad", "neither")[i % 3] for i in range(ROWS)]
NEITHER: dict[str, Sequence[object]] = {
    "row": list(range(ROWS)),
    "shuffled": [7919 * i % 10_007 for i in range(ROWS)],
    "account id": [str(i % 9) for i in range(ROWS)],
    "key": [f"8f3a{i:04x}-77aa-4bcd-9{i:03x}-0123456789ab" for i in range(ROWS)],
    "mail": [f"{WORDS[i % 12]}{i}@example.org" for i in range(ROWS)],
    "unix": [1_700_000_000 + i // 2 for i in range(ROWS)],
    "day": [f"{i % 28 + 1}/{i % 12 + 1}/24" for i in range(ROWS)],
    "at": [f"Mon Apr 06 22:19:{i:02} PDT 2009" for i in range(ROWS)],
    "shared day": [datetime.date(2024, 5, i % 5 + 1) for i in range(ROWS)],
    "link": [f"https://example.org/{i}" for i in range(ROWS)],
    "shared link": ["https://example.org", "www.example.com"] * (ROWS // 2),
    "constant": ["en"] * ROWS,
    "blank": [None] * ROWS,
    "nan": [float("nan")] * ROWS,
    "nested": [{"a": 1}, ["x"]] * (ROWS // 2),
    "_golden": ["true", "false"] * (ROWS // 2),
}
"""Columns that are neither a text nor a label."""


def test_text_and_label_are_guessed_from_values() -> None:
    assert guess(table(mood=MOODS, remark=SENTENCES)) == ("remark", None, "mood")
    assert guess(table(remark=SENTENCES, price=[i * 1.37 for i in range(ROWS)])) == ("remark", None, "price")
    assert guess(table(remark=SENTENCES, points=[i % 7 for i in range(ROWS)])) == ("remark", None, "points")
    assert guess(table(remark=SENTENCES, spam=[i % 2 == 0 for i in range(ROWS)])) == ("remark", None, "spam")


@pytest.mark.parametrize("name", NEITHER)
def test_ids_dates_addresses_and_constants_are_never_guessed(name: str) -> None:
    rows = table(**{"mood": MOODS, name: NEITHER[name], "remark": SENTENCES})
    assert guess(rows) == ("remark", None, "mood")
    assert "no column has a known name for a label, or holds" in guess_error(
        table(**{"remark": SENTENCES, name: NEITHER[name]})
    )
    assert "no column has a known name for a text, or holds" in guess_error(
        table(**{"mood": MOODS, name: NEITHER[name]})
    )


def test_half_blank_column_is_a_label_only_if_there_is_no_other() -> None:
    reasons = [("late", "rude", None)[i % 3] for i in range(ROWS)]
    assert guess(table(remark=SENTENCES, reason=reasons)) == ("remark", None, "reason")
    assert guess(table(reason=reasons, remark=SENTENCES, mood=MOODS)) == ("remark", None, "mood")


def test_clearly_longer_text_is_chosen_unless_the_others_are_sentences() -> None:
    names = [f"{WORDS[i % 12]} {WORDS[i // 12]}" for i in range(ROWS)]
    assert guess(table(article=LONG, author=names, mood=MOODS)) == ("article", None, "mood")
    without_spaces = [f"{'这座老桥很安静' * 5}{i}" for i in range(ROWS)]
    assert guess(table(remark=without_spaces, author=names, mood=MOODS)) == ("remark", None, "mood")
    assert guess(table(author=names, mood=MOODS)) == ("author", None, "mood")
    message = guess_error(table(headline=SENTENCES, article=LONG, author=names, mood=MOODS))
    assert message.startswith(
        f"my.csv: the text may be 'headline' (60 different values, e.g. {repr(min(SENTENCES))[:20]}"
    )
    assert "or 'article' (60 different values, e.g. " in message
    assert "'author'" not in message
    assert message.endswith("give text_column (--text-column), and pair_column (--pair-column) if two belong together")


def test_several_possible_labels_are_an_error_with_their_values() -> None:
    rows = table(remark=SENTENCES, mood=MOODS, points=[i % 5 for i in range(ROWS)])
    assert guess_error(rows) == (
        "my.csv: the label may be 'mood' (3 different values, e.g. 'glad') or 'points' (5 different values, e.g. '0'); "
        "give label_column (--label-column)"
    )
    assert guess(rows, label="points") == ("remark", None, "points")
    assert guess(rows, kind="regress") == ("remark", None, "points")


def test_no_label_is_an_error_with_the_values_of_columns() -> None:
    message = guess_error(table(remark=SENTENCES, verdict=["good"] * ROWS, row=range(ROWS)))
    assert "or holds short values that repeat, or numbers; the file has: 'verdict' (1 value, e.g. 'good'), " in message
    assert "'row' (60 different values, e.g. '0'); give label_column (--label-column)" in message


def test_names_that_end_with_a_known_name_win() -> None:
    rows = table(
        user_comment=SENTENCES,
        description=[f"{text}!" for text in SENTENCES],
        starRating=[i % 5 for i in range(ROWS)],
        shop=MOODS,
    )
    assert guess(rows) == ("user_comment", None, "starRating")


def test_column_that_describes_another_one_is_not_the_label() -> None:
    shares = [1 - i % 7 / 10 for i in range(ROWS)]
    rows = table(remark=SENTENCES, **{"mood:confidence": shares, "mood": MOODS, "mood_gold": MOODS})
    assert guess(rows) == ("remark", None, "mood")


def test_known_names_win_unless_values_decide_between_them() -> None:
    points = [i % 5 for i in range(ROWS)]
    rows = table(label=MOODS, remark=LONG, mood=MOODS, text=["odd", "even"] * (ROWS // 2))
    assert guess(rows) == ("text", None, "label")
    rows = table(review=points, content=SENTENCES, sentiment=MOODS, score=["1"] * ROWS)
    assert guess(rows) == ("content", None, "sentiment")
    assert "the text may be 'content' (60 different" in guess_error(table(content=SENTENCES, text=LONG, label=MOODS))
    assert "the label may be 'stars' (5 different" in guess_error(table(text=LONG, stars=points, label=MOODS))


def test_pairs_are_guessed_from_names_only() -> None:
    others = [f"{text}!" for text in SENTENCES]
    assert guess(table(premise=SENTENCES, hypothesis=others, mood=MOODS)) == ("premise", "hypothesis", "mood")
    rows = table(first=SENTENCES, second=others, mood=MOODS)
    assert "the text may be 'first'" in guess_error(rows)
    assert guess(rows, text="first") == ("first", None, "mood")
    assert guess(rows, pair="second") == ("first", "second", "mood")


def test_first_row_is_not_taken_for_a_header() -> None:
    rows = [dict(zip(["glad", SENTENCES[0]], cells, strict=True)) for cells in zip(MOODS, SENTENCES, strict=True)][1:]
    assert "the column name 'glad' looks like a value; is there a header?" in guess_error(rows)
    rows = table(**{"1": [i % 2 for i in range(ROWS)], "remark": SENTENCES})
    assert "the column name '1' looks like a value; is there a header?" in guess_error(rows)
    assert guess(rows, label="1") == ("remark", None, "1")


def test_lists_are_labels_of_several_labels_only() -> None:
    rows = table(remark=SENTENCES, topics=[["sport"], ["sport", "local"], []] * (ROWS // 3))
    assert guess(rows, kind="multilabel") == ("remark", None, "topics")
    assert "no column has a known name for a label" in guess_error(rows)


CELLS = st.one_of(
    st.sampled_from(
        ["good", "bad", "2024-05-01", "10:30", "https://a.b", "1e5", "7", "a b c d e f", "", "\ud83d", "x1"]
    ),
    st.text(max_size=12),
    st.integers(),
    st.floats(),
    st.none(),
    st.booleans(),
    st.lists(st.integers(), max_size=2),
    st.dictionaries(st.text(max_size=2), st.integers(), max_size=1),
    st.datetimes(),
    st.binary(max_size=3),
)
NAMES = st.one_of(
    st.sampled_from(
        ["text", "Text", "text_a", "text_b", "TEXT_B", "label", "score", "my_label", "tweetText", "id", "a:b"]
    ),
    st.text(max_size=4),
)


@st.composite
def tables(draw: st.DrawFn) -> list[dict[str, object]]:
    """Rows of one to five columns, each of a few different values, or of any."""
    size = draw(st.integers(1, 12))
    columns: dict[str, list[object]] = {}
    for name in draw(st.lists(NAMES, min_size=1, max_size=5, unique=True)):
        pool = draw(st.lists(CELLS, min_size=1, max_size=12))
        columns[name] = draw(st.lists(st.sampled_from(pool), min_size=size, max_size=size))
    rows = [dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True)]
    for row in rows:  # keys may be missing in JSON lines
        if draw(st.integers(0, 9)) == 0:
            row.pop(draw(st.sampled_from(list(columns))))
    return rows if any(rows) else [dict.fromkeys(columns)]


def outcome(rows: Sequence[Mapping[str, object]], kind: str | None) -> Columns | None:
    try:
        return choose_columns(rows, RequestedColumns(), FILE, kind)
    except BadInput as error:
        assert 10 < len(str(error)) < 1000
        return None


@settings(max_examples=300, deadline=None, derandomize=True)
@given(tables(), st.sampled_from([None, "classify", "multilabel", "regress"]), st.randoms(use_true_random=False))
def test_guess_depends_neither_on_the_order_of_rows_nor_of_columns(
    rows: list[dict[str, object]], kind: str | None, draw: random.Random
) -> None:
    guessed = outcome(rows, kind)
    shuffled = [dict(draw.sample(list(row.items()), len(row))) for row in draw.sample(rows, len(rows))]
    assert outcome(shuffled, kind) == guessed
    if guessed:
        names = [guessed.text, guessed.label, *([guessed.pair] if guessed.pair else [])]
        assert len(set(names)) == len(names)
        assert all(any(name in row for row in rows) for name in names)
