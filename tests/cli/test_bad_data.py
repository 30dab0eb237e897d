"""Bad data on the command line: one line and exit 2, or counted under --skip-bad."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Call = Callable[..., Any]


def first_question(content: dict[str, Any]) -> dict[str, Any]:
    question: dict[str, Any] = content["data"][0]["paragraphs"][0]["qas"][0]
    return question


def wrong_offset(content: dict[str, Any]) -> None:
    first_question(content)["answers"][0]["answer_start"] += 1


def duplicate_id(content: dict[str, Any]) -> None:
    first_question(content)["id"] = "q1a"


def empty_context(content: dict[str, Any]) -> None:
    content["data"][0]["paragraphs"][0]["context"] = " "


def long_question(content: dict[str, Any]) -> None:
    first_question(content)["question"] = "where " * 90


SQUAD_CASES = [
    (wrong_offset, "answer is not at its offset", 1),
    (duplicate_id, "duplicate id", 1),
    (empty_context, "empty context", 2),
]


@pytest.mark.parametrize(("change", "reason", "count"), SQUAD_CASES)
def test_bad_questions_are_refused_or_skipped_and_counted(
    samples: Any,
    call: Call,
    tmp_path: Path,
    tiny_encoder_folder: Path,
    change: Callable[[Any], None],
    reason: str,
    count: int,
) -> None:
    content = samples.squad()
    change(content)
    data = samples.write_squad(tmp_path / "train.json", content)
    result = call(*samples.extraction(data, tiny_encoder_folder))
    line = result.refused()
    assert result.err.count("\n") == 1
    assert f"{data}, data[" in line
    assert reason in line
    assert "--skip-bad" in line
    assert not (tmp_path / "store").exists()
    result = call(*samples.extraction(data, tiny_encoder_folder), "--skip-bad")
    assert result.code == 0
    assert f"{count} bad rows skipped: {reason} ({count})" in result.err


def test_question_longer_than_the_window_is_refused_or_skipped(
    samples: Any, call: Call, tmp_path: Path, tiny_encoder_folder: Path
) -> None:
    content = samples.squad()
    long_question(content)
    data = samples.write_squad(tmp_path / "train.json", content)
    line = call(*samples.extraction(data, tiny_encoder_folder)).refused()
    assert "question 'q0a': question longer than the window: 90 tokens, at most 37 fit" in line
    assert "--max-length" in line
    assert not (tmp_path / "store").exists()
    result = call(*samples.extraction(data, tiny_encoder_folder), "--skip-bad")
    assert result.code == 0
    assert "skipped 1 bad rows: question longer than the window (1)" in result.err


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "the file is empty"),
        (b'{"data": [', "not JSON"),
        (b"[]", "expected SQuAD JSON"),
        (b'{"data": []}', "contains no questions"),
        ('{"data": "é"}'.encode("latin-1"), "not UTF-8 (byte 0xe9"),
    ],
)
def test_broken_squad_file_is_never_skipped(
    samples: Any, call: Call, tmp_path: Path, tiny_encoder_folder: Path, content: bytes, reason: str
) -> None:
    data = tmp_path / "train.json"
    data.write_bytes(content)
    for more in ([], ["--skip-bad"]):
        result = call(*samples.extraction(data, tiny_encoder_folder), *more)
        line = result.refused()
        assert result.err.count("\n") == 1
        assert str(data) in line
        assert reason in line


def test_missing_data_file_is_an_error(samples: Any, call: Call, tmp_path: Path, tiny_encoder_folder: Path) -> None:
    assert "no such file" in call(*samples.extraction(tmp_path / "none.json", tiny_encoder_folder)).refused()
    assert "this is a folder" in call(*samples.extraction(tmp_path, tiny_encoder_folder)).refused()


def test_bad_table_rows_are_refused_or_skipped_and_counted(
    samples: Any, call: Call, tmp_path: Path, tiny_encoder_folder: Path
) -> None:
    data = samples.write_csv(tmp_path / "my.csv")
    lines = data.read_text(encoding="utf-8").splitlines()
    data.write_text("\n".join([*lines[:3], ",", "the old town,", *lines[3:], "a,b,c"]) + "\n", encoding="utf-8")
    line = call(*samples.extraction(data, tiny_encoder_folder, "text")).refused()
    assert f"{data}, line 4: blank row" in line
    result = call(*samples.extraction(data, tiny_encoder_folder, "text"), "--skip-bad")
    assert result.code == 0
    assert "3 bad rows skipped" in result.err
    assert all(f"{reason} (1)" in result.err for reason in ("blank row", "missing label", "wrong number of cells"))


def test_table_without_a_label_column_is_refused(
    samples: Any, call: Call, tmp_path: Path, tiny_encoder_folder: Path
) -> None:
    data = samples.write_csv(tmp_path / "my.csv", header=("text", "verdict"))
    command = samples.extraction(data, tiny_encoder_folder, "text")
    assert "no column 'stars'" in call(*command, "--label-column", "stars").refused()
    result = call(*command)
    assert result.code == 0
    assert "columns: text 'text', label 'verdict', guessed; set with text_column (--text-column), " in result.err
    data.write_text("text,verdict\n" + "".join(f"the old town {i},good\n" for i in range(9)), encoding="utf-8")
    for more in ([], ["--skip-bad"]):
        line = call(*command, *more).refused()
        assert "the file has: 'verdict' (1 value, e.g. 'good'); give label_column (--label-column)" in line


def test_table_encoding_is_detected_unless_given(
    samples: Any, call: Call, tmp_path: Path, tiny_encoder_folder: Path
) -> None:
    data = samples.write_csv(tmp_path / "my.csv")
    data.write_bytes(data.read_bytes() + "naïve,good\r\n".encode("cp1252"))
    command = samples.extraction(data, tiny_encoder_folder, "text")
    for more in ([], ["--skip-bad"]):
        line = call(*command, *more, "--encoding", "utf-8").refused()
        assert "not utf-8 (byte 0xef" in line
        assert "give the encoding it was saved in" in line
    assert "encoding: got 'klingon'" in call(*command, "--encoding", "klingon").refused()
    result = call(*command)
    assert result.code == 0
    assert result.err.count("reading it as cp1252; if letters look wrong, give the encoding it was saved in") == 1
    assert "reading it as" not in call(*command, "--encoding", "cp1252").err


def test_undetectable_table_encoding_must_be_given(
    samples: Any, call: Call, tmp_path: Path, tiny_encoder_folder: Path
) -> None:
    data = samples.write_csv(tmp_path / "my.csv")
    data.write_bytes(data.read_bytes() + "город,good\r\n".encode("cp1251"))
    command = samples.extraction(data, tiny_encoder_folder, "text")
    result = call(*command)
    assert "not UTF-8 (byte 0xe3 at offset" in result.refused()
    assert "the text does not look Latin-script; give the encoding" in result.refused()
    assert result.err.count("\n") == 1
    assert call(*command, "--encoding", "cp1251").code == 0


def test_option_of_another_task_is_refused(samples: Any, call: Call, tmp_path: Path, tiny_encoder_folder: Path) -> None:
    data = samples.write_squad(tmp_path / "train.json")
    line = call(*samples.extraction(data, tiny_encoder_folder), "--label-column", "x").refused()
    assert "no option of task 'squad2' named 'label_column'" in line


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        (["--max-length", "65"], "max_length is 65, but encoder"),
        (["--max-length", "5"], "max_length: got 5, which has no room for text"),
        (["--max-length", "0"], "expected an integer of at least 1"),
        (["--limit", "0"], "expected an integer of at least 1"),
        (["--overlap", "-1"], "expected an integer of at least 0"),
        (["--encoder", "./nowhere"], "no encoder folder at ./nowhere"),
        (["--set", "extract.dtype=f8"], "extract.dtype is 'f8'; expected f32, f16 or int8"),
        (["--layers", "last9"], "layers=last9: there are 3 states"),
        (["--set", "extract.device=abacus"], "unknown device 'abacus'"),
    ],
)
def test_invalid_settings_write_nothing(
    samples: Any, call: Call, tmp_path: Path, tiny_encoder_folder: Path, more: list[str], reason: str
) -> None:
    data = samples.write_squad(tmp_path / "train.json")
    assert reason in call(*samples.extraction(data, tiny_encoder_folder), *more).refused()
    assert not (tmp_path / "store").exists()
