"""``bertvision score`` from the arguments to the printed document."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import bertvision
from bertvision.cli.main import main


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A SQuAD file with predictions and probabilities, and tables of labels, in the current folder."""
    monkeypatch.chdir(tmp_path)
    golds = {"q1": ["cat"], "q2": ["dog"], "q3": [], "q4": []}
    qas = [{"id": qid, "answers": [{"text": text} for text in texts]} for qid, texts in golds.items()]
    contents: dict[str, Any] = {
        "gold.json": {"data": [{"paragraphs": [{"qas": qas}]}]},
        "predicted.json": {"q1": "cat", "q2": "bird", "q3": "", "q4": "dog"},
        "na.json": {"q1": 0.2, "q2": 0.9, "q3": 0.8, "q4": 0.7},
    }
    for name, content in contents.items():
        (tmp_path / name).write_text(json.dumps(content))
    (tmp_path / "dev.tsv").write_text("Quality\ttext\n1\tx\n0\ty\n")
    (tmp_path / "MRPC.tsv").write_text("index\tprediction\n0\t1\n1\t1\n")
    (tmp_path / "cafe.csv").write_bytes("text,stars\nx,caf\xe9\ny,bar\n".encode("cp1252"))
    (tmp_path / "labels.json").write_text('{"0": "café", "1": "bar"}')
    return tmp_path


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(["score", *arguments, "--json"]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


@pytest.mark.usefixtures("files")
def test_score_uses_no_answer_probabilities_and_their_threshold(capsys: pytest.CaptureFixture[str]) -> None:
    plain = printed(capsys, "squad2", "gold.json", "predicted.json")
    assert plain["scores"]["exact"] == 50
    scored = printed(capsys, "squad2", "gold.json", "predicted.json", "--na-probs", "na.json")
    assert (scored["task"], scored["n"]) == ("squad2", 4)
    assert list(scored["scores"])[:9] == list(plain["scores"])
    assert list(scored["scores"])[9:] == ["best_exact", "best_exact_thresh", "best_f1", "best_f1_thresh"]
    assert scored["scores"].items() >= plain["scores"].items()
    assert (scored["scores"]["best_exact"], scored["scores"]["best_exact_thresh"]) == (75, 0.2)
    again = printed(capsys, "squad2", "gold.json", "predicted.json", "--na-probs", "na.json", "--na-prob-thresh", "0.5")
    assert (again["scores"]["exact"], again["scores"]["NoAns_exact"]) == (75, 100)


@pytest.mark.usefixtures("files")
def test_score_reads_label_tables_with_options(capsys: pytest.CaptureFixture[str]) -> None:
    scored = printed(capsys, "mrpc", "dev.tsv", "MRPC.tsv")
    assert scored == {"task": "mrpc", "n": 2, "scores": {"accuracy": 50, "f1": pytest.approx(200 / 3)}}
    options = ("--label-column", "stars", "--encoding", "cp1252", "--labels", "bar, café")
    assert printed(capsys, "classify", "cafe.csv", "labels.json", *options)["scores"]["accuracy"] == 100
    assert main(["score", "mrpc", "dev.tsv", "MRPC.tsv"]) == 0
    assert capsys.readouterr().out.splitlines()[0].split() == ["accuracy", "50.0000"]


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ("squad2 gold.json", "score needs gold files and one predictions file"),
        ("squad2 gold.json predicted.json --na-prob-thresh 0.5", "expected a number, together with --na-probs F"),
        ("squad2 gold.json predicted.json --na-probs na.json --na-prob-thresh nan", "--na-prob-thresh nan: expected"),
        ("squad2 gold.json predicted.json --na-probs na.json --na-prob-thresh x", "--na-prob-thresh: invalid float"),
        (
            "squad2 gold.json predicted.json --na-probs predicted.json",
            "predicted.json: $['q1']: got 'cat', expected a finite number",
        ),
        ("squad2 gold.json predicted.json --na-probs none.json", "none.json: no such file"),
        ("squad1 gold.json predicted.json --na-probs na.json", "--na-probs does not apply to squad1"),
        ("squad2 gold.json predicted.json --labels a,b", "--labels does not apply to squad2"),
        ("mrpc dev.tsv MRPC.tsv --na-probs na.json", "--na-probs does not apply to mrpc"),
        ("mrpc dev.tsv dev.tsv MRPC.tsv", "needs one gold file and one of predictions, got 3"),
        ("sqad2 gold.json predicted.json", "Did you mean 'squad2'?"),
        ("mrpc dev.tsv labels.json", "labels.json, entry 1: got label 'café'"),
    ],
)
def test_invalid_score_command_is_a_one_line_error(
    capsys: pytest.CaptureFixture[str], arguments: str, part: str
) -> None:
    assert main(["score", *arguments.split(), "--json"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert part in err
    assert err.count("\n") == 1


def test_scoring_needs_no_torch(files: Path) -> None:
    """Importing torch takes seconds, and it may not be installed."""
    code = (
        "import sys; from bertvision.cli.main import main\n"
        "assert main(['score', 'squad2', 'gold.json', 'predicted.json', '--na-probs', 'na.json']) == 0\n"
        "assert main(['score', 'mrpc', 'dev.tsv', 'MRPC.tsv']) == 0\n"
        "assert not {'torch', 'transformers', 'sklearn'} & set(sys.modules)\n"
    )
    source = str(Path(bertvision.__file__).parents[1])
    process = subprocess.run(
        [sys.executable, "-c", code],
        cwd=files,
        env=os.environ | {"PYTHONPATH": source},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr
