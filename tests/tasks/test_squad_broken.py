"""Randomly broken SQuAD documents: each question is read or counted, and only BadInput is raised."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertvision.core.errors import BadInput
from bertvision.tasks.squad import read_squad
from bertvision.tasks.task import BadRows

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=4,
)


def document() -> dict[str, Any]:
    """Three articles of two paragraphs of two questions, one of each two unanswerable."""
    data = [{"title": f"article {a}", "paragraphs": [paragraph(f"{a}{p}") for p in range(2)]} for a in range(3)]
    return {"version": "v2.0", "data": data}


def paragraph(name: str) -> dict[str, Any]:
    answered = {"answers": [{"text": "Ada", "answer_start": 1}], "is_impossible": False}
    unanswered: dict[str, Any] = {"answers": [], "is_impossible": True}
    questions = [{"id": f"{name}{q}", "question": "Who?", **fields} for q, fields in enumerate([answered, unanswered])]
    return {"context": f" Ada wrote {name}.", "qas": questions}


def json_nodes(node: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) of a JSON document."""
    keys = list(node) if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else []
    return [pair for key in keys for pair in [(node, key), *json_nodes(node[key])]]


def break_document(draw: st.DataObject) -> Any:
    doc: Any = document()
    for _ in range(draw.draw(st.integers(1, 4))):
        nodes = json_nodes(doc)
        if not nodes:
            break
        container, key = draw.draw(st.sampled_from(nodes))
        if draw.draw(st.booleans()):
            del container[key]
        else:
            container[key] = draw.draw(JSON)
    return doc


def rows_present(doc: Any) -> int:
    """Number of questions, plus one for each part that should contain questions but does not."""
    total = 0
    for article in doc["data"]:
        paragraphs = article.get("paragraphs") if isinstance(article, dict) else None
        for paragraph in paragraphs if isinstance(paragraphs, list) else [None]:
            questions = paragraph.get("qas") if isinstance(paragraph, dict) else None
            total += len(questions) if isinstance(questions, list) else 1
    return total


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.data())
def test_randomly_broken_document_is_an_error_or_counted(draw: st.DataObject) -> None:
    doc = break_document(draw)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "train.json"
        path.write_text(json.dumps(doc), encoding="utf-8")
        strict, lenient = BadRows(skip=False), BadRows(skip=True)
        try:
            examples = read_squad([path], lenient, {}, no_answer=True)
        except BadInput as error:
            assert any(why in str(error) for why in ("expected SQuAD JSON", "no question")), error
            return
        assert len(examples) + lenient.counts.total() == rows_present(doc)
        if lenient.counts:
            with pytest.raises(BadInput, match="--skip-bad"):
                read_squad([path], strict, {}, no_answer=True)
        else:
            assert read_squad([path], strict, {}, no_answer=True) == examples


def test_duplicate_key_is_an_error(tmp_path: Path) -> None:
    text = json.dumps(document())
    (tmp_path / "twice.json").write_text(text.replace('"qas":', '"qas": [], "qas":', 1), encoding="utf-8")
    with pytest.raises(BadInput, match="cannot be read as JSON: the key 'qas' is given twice"):
        read_squad([tmp_path / "twice.json"], BadRows(skip=True), {}, no_answer=True)
