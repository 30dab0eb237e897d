"""``predict`` with a saved model: one question, one text, a file, and invalid input."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bertvision.cli.predict import round_numbers

Call = Callable[..., Any]
TONES = ("bad", "plain", "good")


def test_predict_answers_one_question(call: Call, squad_run: Path) -> None:
    command = ["predict", squad_run / "model", "--question", "where does Anna live", "--context", "Anna lives in Rome."]
    answer = call(*command, "--json").document()
    assert set(answer) == {"answer", "score", "start", "end", "no_answer_probability"}
    assert answer["answer"] == "Anna lives in Rome."[answer["start"] : answer["end"]]
    assert json.loads(call(*command).out) == round_numbers(answer)
    several = call(*command, "--top-k", 3, "--json").document()
    assert several[0] == answer
    assert len(several) == 3


def test_predict_labels_one_text(call: Call, text_run: Path) -> None:
    answer = call("predict", text_run / "model", "--text", "the good old town", "--json").document()
    assert answer["label"] in TONES
    assert set(answer["scores"]) == set(TONES)
    assert sum(answer["scores"].values()) == pytest.approx(1)


def test_printed_numbers_have_six_digits() -> None:
    answers = [{"score": 0.95877220095, "start": 1234567, "none": None}, {"value": -1234.56789, "tiny": 1.23456789e-9}]
    rounded = [{"score": 0.958772, "start": 1234567, "none": None}, {"value": -1234.57, "tiny": 1.23457e-09}]
    assert round_numbers(answers) == rounded


def test_predict_reads_a_file(call: Call, squad_run: Path, tmp_path: Path) -> None:
    """A line separator inside a text does not end a line; a byte order mark is ignored."""
    contexts = ["Anna lives in Rome.", "Ben lives\u2028in Oslo.\u0085 So does Anna", "Cleo lives in Lima"]
    rows = [{"question": "where does Anna live", "context": context, "id": i} for i, context in enumerate(contexts)]
    path = tmp_path / "in.jsonl"
    lines = "\r\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    path.write_bytes(f"\ufeff{lines}\n\n".encode())
    answers = call("predict", squad_run / "model", "--file", path, "--json").document()
    assert len(answers) == 3
    for answer, context in zip(answers, contexts, strict=True):
        assert answer["answer"] == context[answer["start"] : answer["end"]]
    printed = call("predict", squad_run / "model", "--file", path).out.split("\n")
    assert [json.loads(line) for line in printed[:-1]] == round_numbers(answers)
    alone = call(
        "predict", squad_run / "model", "--question", rows[2]["question"], "--context", contexts[2], "--json"
    ).document()
    assert alone["answer"] == answers[2]["answer"]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "not JSON"),
        ("", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("7", "got 7, expected an object with 'question'"),
        ('{"question": "who"}', "'context' is None, expected a text"),
        ('{"question": "who", "context": 3}', "'context' is 3, expected a text"),
        ('{"question": "who", "context": " "}', "'context' is ' ', expected a text"),
        ('{"question": "", "context": "x"}', "'question' is '', expected a text"),
        ('{"text": "who"}', "'question' is None, expected a text"),
        ('{"question": "who", "context": "\\ud83d"}', "which is not valid Unicode"),
    ],
)
def test_bad_line_error_names_the_line(call: Call, squad_run: Path, tmp_path: Path, line: str, reason: str) -> None:
    path = tmp_path / "in.jsonl"
    good = json.dumps({"question": "who", "context": "Anna"})
    path.write_text(f"{good}\n{line}\n{good}\n", encoding="utf-8")
    error = call("predict", squad_run / "model", "--file", path).refused()
    assert f"{path}, line 2: " in error
    assert reason in error


def test_unreadable_files_are_errors(call: Call, squad_run: Path, tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    assert "cannot read" in call("predict", squad_run / "model", "--file", path).refused()
    path.write_bytes(b"\n \n")
    assert "is empty; expected JSON Lines" in call("predict", squad_run / "model", "--file", path).refused()
    path.write_bytes('{"question": "é"}'.encode("latin-1"))
    assert "expected JSON Lines in UTF-8" in call("predict", squad_run / "model", "--file", path).refused()


def test_inputs_that_do_not_fit_the_model_are_refused(
    call: Call, squad_run: Path, text_run: Path, tmp_path: Path
) -> None:
    qa, labels = squad_run / "model", text_run / "model"
    assert (
        "this model predicts from questions, expected --question Q --context C"
        in call("predict", qa, "--text", "x").refused()
    )
    assert "expected --question Q --context C" in call("predict", qa, "--question", "x").refused()
    assert "--context is ' ', expected a text" in call("predict", qa, "--question", "x", "--context", " ").refused()
    assert (
        "this model predicts from texts, expected --text T [--pair T]"
        in call("predict", labels, "--question", "x").refused()
    )
    assert "--text is '', expected a text" in call("predict", labels, "--text", "").refused()
    assert "not valid Unicode" in call("predict", labels, "--text", "a\udcff").refused()
    line = call("predict", qa, "--question", "where " * 90, "--context", "Anna lives in Rome").refused()
    assert "question '1': question longer than the window: 90 tokens, at most 37 fit" in line
    assert "--skip-bad" not in line
    (tmp_path / "config.json").write_text("{}")
    assert "is not a BERTVision model" in call("predict", tmp_path, "--text", "x").refused()


def test_pairs_and_texts_in_one_file_do_not_change_each_other(call: Call, text_run: Path, tmp_path: Path) -> None:
    rows = [{"text": "the good old town"}, {"text": "the bad old town", "pair": "of Rome"}, {"text": "plain"}]
    path = tmp_path / "in.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    together = call("predict", text_run / "model", "--file", path, "--json").document()
    alone = call("predict", text_run / "model", "--text", rows[0]["text"], "--json").document()
    assert together[0]["scores"] == pytest.approx(alone["scores"], abs=1e-5)
