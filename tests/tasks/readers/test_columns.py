"""Choice of columns: guessed if there is a single candidate, otherwise an error asks for them."""

from __future__ import annotations

from pathlib import Path

import pytest

from bertvision.core.errors import BadInput
from bertvision.tasks.readers.columns import Columns, RequestedColumns, choose_columns

FILE = Path("my.csv")


def choice_error(header: list[str], requested: RequestedColumns) -> str:
    with pytest.raises(BadInput) as error:
        choose_columns(header, requested, FILE)
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
    assert choose_columns(header, RequestedColumns(), FILE) == columns


@pytest.mark.parametrize(
    ("header", "parts"),
    [
        (["text", "bias"], ["no column has a known name for a label", "the file has: text, bias", "give label_column"]),
        (["text", "label", "score"], ["the label may be 'label' or 'score'", "give label_column"]),
        (["a", "label"], ["no column has a known name for a text", "the file has: a, label", "give text_column"]),
        (["content", "label", "text"], ["the text may be 'content' or 'text'", "give text_column"]),
        (["premise", "hypothesis", "text", "label"], ["the text may be 'premise' with 'hypothesis' or 'text'"]),
        (["text", "Text", "label"], ["the text may be 'text' or 'Text'"]),
        (["label", "x" * 500], ["x" * 37 + "...;"]),
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
    assert choose_columns(["text", "text_pair", "label", "#2"], requested, FILE) == columns


def test_missing_or_duplicate_column_is_an_error() -> None:
    header = ["a", "b", "c"]
    expected = "my.csv: no column 'stars'; the file has: a, b, c; give label_column"
    assert choice_error(header, RequestedColumns(text="a", label="stars")) == expected
    assert "no column 'A'; the file has: a, b, c; give pair_column" in choice_error(header, RequestedColumns(pair="A"))
    assert "column 'a' is named twice" in choice_error(header, RequestedColumns(text="a", label="a"))
