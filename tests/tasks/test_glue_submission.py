"""GLUE submissions: one file per test set, every index once, in the server's format."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertvision.core.errors import BadInput
from bertvision.tasks.glue_submission import Texts, format_prediction, write_submission
from bertvision.tasks.glue_table import GLUE

SINGLE = {
    "cola": ("CoLA.tsv", ["0", "1"]),
    "sst2": ("SST-2.tsv", ["0", "1"]),
    "mrpc": ("MRPC.tsv", ["0", "1"]),
    "stsb": ("STS-B.tsv", ["0.000", "2.346", "5.000"]),
    "qqp": ("QQP.tsv", ["0", "1"]),
    "qnli": ("QNLI.tsv", ["entailment", "not_entailment"]),
    "rte": ("RTE.tsv", ["entailment", "not_entailment"]),
    "wnli": ("WNLI.tsv", ["0", "1"]),
}
VALUES = (-0.7, 2.3456, 9.1)


class FakeModel:
    """Predicts the labels in turn and records the texts that it received."""

    def __init__(self, name: str) -> None:
        self.names, self.received = GLUE[name].labels, list[Texts]()

    def __call__(self, texts: Sequence[Texts]) -> Iterator[dict[str, Any]]:
        self.received += texts
        for i in range(len(texts)):
            yield {"label": self.names[i % len(self.names)]} if self.names else {"value": VALUES[i % 3]}


def write_test(glue: Any, folder: Path, name: str, target: str, size: int = 5) -> Path:
    file = GLUE[name].files.tests[target]
    rows = [(f"text {i}", f'"pair {i}', "") for i in range(size)]
    return Path(glue.write(folder / file.folders[0] / f"{file.stems[0]}.tsv", glue.lines(glue.hidden[name], rows)))


@pytest.mark.parametrize("name", SINGLE)
def test_submission_of_a_single_test_set(
    name: str, tmp_path: Path, glue: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    target, predictions = SINGLE[name]
    write_test(glue, tmp_path / "data", name, target)
    model = FakeModel(name)
    assert write_submission(name, model, tmp_path / "data", tmp_path / "out") == {target: 5}
    expected = [f"{i}\t{predictions[i % len(predictions)]}" for i in range(5)]
    assert (tmp_path / "out" / target).read_bytes().decode() == "\n".join(["index\tprediction", *expected, ""])
    single = name in ("cola", "sst2")
    assert model.received == [(f"text {i}", None if single else f'"pair {i}') for i in range(5)]
    assert f"5 of {GLUE[name].files.tests[target].rows:,} official rows" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["mnli", "mnli-mm", "ax"])
def test_mnli_model_submits_three_files(name: str, tmp_path: Path, glue: Any) -> None:
    write_test(glue, tmp_path, "mnli", "MNLI-m.tsv", 4)
    write_test(glue, tmp_path, "mnli", "MNLI-mm.tsv", 3)
    glue.write(tmp_path / "diagnostic/diagnostic.tsv", ["index\tsentence1\tsentence2", "0\ta\tb", "1\tc\td"])
    out = tmp_path / "out"
    assert write_submission(name, FakeModel(name), tmp_path, out) == {"MNLI-m.tsv": 4, "MNLI-mm.tsv": 3, "AX.tsv": 2}
    assert (out / "AX.tsv").read_text() == "index\tprediction\n0\tentailment\n1\tneutral\n"


def test_labelled_diagnostic_set_is_numbered_by_row(tmp_path: Path, glue: Any) -> None:
    rows = [("a", "b", "neutral"), ("c", "d", "neutral")]
    glue.write(tmp_path / "AX/diagnostic-full.tsv", glue.lines(glue.diagnostic, rows))
    assert write_submission("mnli", FakeModel("mnli"), tmp_path, tmp_path / "out") == {"AX.tsv": 2}
    assert (tmp_path / "out/AX.tsv").read_text().splitlines()[1:] == ["0\tentailment", "1\tneutral"]


def test_missing_test_sets_are_skipped_with_a_note(
    tmp_path: Path, glue: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    write_test(glue, tmp_path, "mnli", "MNLI-m.tsv")
    write_submission("mnli", FakeModel("mnli"), tmp_path, tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["MNLI-m.tsv"]
    notes = capsys.readouterr().err
    assert "note: skipping MNLI-mm.tsv, its test file is missing: expected MNLI/test_mismatched.tsv" in notes
    assert "note: skipping AX.tsv, its test file is missing: expected AX/diagnostic.tsv" in notes


def test_submission_keeps_indexes_and_predicts_blank_texts(tmp_path: Path, glue: Any) -> None:
    glue.write(tmp_path / "QQP/test.tsv", ["id\tquestion1\tquestion2", "7\ta\t", "3\t\tb"])
    model = FakeModel("qqp")
    write_submission("qqp", model, tmp_path, tmp_path)
    assert (tmp_path / "QQP.tsv").read_text() == "index\tprediction\n7\t0\n3\t1\n"
    assert model.received == [("a", ""), ("", "b")]


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        (["0\ta\tb", "0\tc\td"], "line 3: duplicate index: 0 is already the index of a row above"),
        (["0\ta\tb", "x\tc\td"], "line 3: not an index: got 'x', expected an integer"),
        (["0\ta\tb", "1\tc"], "line 3: wrong number of cells: got 2, expected 3"),
        ([], "a header and no rows"),
    ],
)
def test_broken_test_row_is_an_error(rows: list[str], reason: str, tmp_path: Path, glue: Any) -> None:
    glue.write(tmp_path / "RTE/test.tsv", ["index\tsentence1\tsentence2", *rows])
    with pytest.raises(BadInput) as error:
        write_submission("rte", FakeModel("rte"), tmp_path, tmp_path / "out")
    assert reason in str(error.value)
    assert "--skip-bad" not in str(error.value)
    assert not (tmp_path / "out").exists()


def test_submission_of_wrong_tasks_and_files_is_an_error(tmp_path: Path, glue: Any) -> None:
    with pytest.raises(BadInput, match="this model's task is text, which is not a GLUE task; expected one of cola"):
        write_submission("text", FakeModel("rte"), tmp_path, tmp_path)
    with pytest.raises(BadInput, match=r"task rte has no test file: expected RTE/test\.tsv or test\.tsv"):
        write_submission("rte", FakeModel("rte"), tmp_path, tmp_path)
    glue.write(tmp_path / "RTE/test.tsv", ["index\tsentence", "0\ta"])
    with pytest.raises(BadInput, match="not a file of task rte: got columns 'index, sentence'; expected sentence1"):
        write_submission("rte", FakeModel("rte"), tmp_path, tmp_path)


@given(st.floats())
def test_format_prediction_limits_scores_to_the_scale(value: float) -> None:
    written = format_prediction(GLUE["stsb"], {"value": value})
    assert 0 <= float(written) <= 5
    assert len(written) == 5
