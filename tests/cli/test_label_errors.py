"""Likely label errors of real runs: written by ``run``, made again by ``analyse``, refused for spans."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from bertvision.cli.main import main

Call = Callable[..., Any]
TONES = ("bad", "good")
CHANGED = (3, 20, 41, 58)
SHORT = ("--max-length", 48, "--epochs", 0, "--seeds", 0)


def write_rows(path: Path, labels: Sequence[object]) -> Path:
    """Texts that name a tone, alternating, and markup; the label is given."""
    rows = [{"text": f"the {TONES[i % 2]} old town <b>{i}", "label": label} for i, label in enumerate(labels)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def frozen_run(tiny_encoder_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on 80 rows, four of them with the wrong label, with an encoder that has not seen the labels."""
    folder = tmp_path_factory.mktemp("frozen")
    labels = [TONES[(i + (i in CHANGED)) % 2] for i in range(80)]
    train, dev = write_rows(folder / "train.jsonl", labels), write_rows(folder / "dev.jsonl", TONES * 4)
    files = ("--train", train, "--dev", dev, "--encoder", tiny_encoder_folder)
    command = ("run", "text", *files, *SHORT, "--heads", "linear", "ridge", "--out", folder / "run")
    assert main([str(word) for word in command]) == 0
    return folder / "run"


def finding_of(run: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((run / "analysis" / "labels.json").read_text(encoding="utf-8"))
    return document


def test_run_lists_the_changed_labels(frozen_run: Path) -> None:
    finding = finding_of(frozen_run)
    listed = [row["id"] for row in finding["rows"]]
    assert finding["title"] == f"Likely label errors: {len(listed)} of 80 rows of train and inner"
    changed = {f"train:{row + 1}" for row in CHANGED}
    assert len(changed & set(listed)) >= 3
    assert set(listed[:2]) < changed
    assert all({row["given"], row["suggested"]} == set(TONES) for row in finding["rows"])
    with (frozen_run / "analysis" / "labels.csv").open(newline="", encoding="utf-8") as file:
        table = list(csv.DictReader(file))
    assert [(row["id"], row["suggested"]) for row in table] == [
        (row["id"], row["suggested"]) for row in finding["rows"]
    ]


def test_report_shows_the_rows_as_text(frozen_run: Path) -> None:
    page = (frozen_run / "report.html").read_text(encoding="utf-8")
    section = page.partition('<section id="label-errors">')[2].partition("</section>")[0]
    assert finding_of(frozen_run)["title"] in section
    assert finding_of(frozen_run)["rows"][0]["text"].replace("<b>", "&lt;b&gt;") in section
    assert "<b>" not in section


def test_analyse_finds_the_same_rows(call: Call, frozen_run: Path) -> None:
    before = finding_of(frozen_run)
    (frozen_run / "analysis" / "labels.json").unlink()
    again = call("analyse", frozen_run, "--what", "labels", "--json").document()["findings"]["labels"]
    assert finding_of(frozen_run) == {**again, "made_from": before["made_from"]}
    assert [row["id"] for row in again["rows"]] == [row["id"] for row in before["rows"]]
    for row, other in zip(again["rows"], before["rows"], strict=True):
        assert row["doubt"] == pytest.approx(other["doubt"])
    assert before["title"] in call("analyse", frozen_run, "--what", "labels").out


def test_report_makes_missing_label_errors(call: Call, frozen_run: Path) -> None:
    (frozen_run / "analysis" / "labels.json").unlink()
    assert call("report", frozen_run).code == 0
    assert finding_of(frozen_run)["rows"]


def test_run_that_tuned_its_encoder_judges_inner_only(text_run: Path) -> None:
    finding = finding_of(text_run)
    assert finding["title"].endswith("rows of inner")
    assert "Only the rows of inner are judged" in finding["about"]


def test_spans_are_refused(call: Call, squad_run: Path) -> None:
    error = call("analyse", squad_run, "--what", "labels").refused()
    assert "labels does not apply to squad2: answers are spans; only labels and values are judged" in error
    assert not (squad_run / "analysis" / "labels.json").exists()
    assert 'id="label-errors"' not in (squad_run / "report.html").read_text(encoding="utf-8")


def test_values_and_label_sets_are_judged_too(tiny_encoder_folder: Path, tmp_path: Path) -> None:
    values = [float(i % 2 + (20 if i == 7 else 0) + i % 5 / 10) for i in range(80)]
    sets = [[TONES[i % 2]] if i != 7 else [] for i in range(80)]
    for kind, labels in (("regress", values), ("multilabel", sets)):
        data = write_rows(tmp_path / f"{kind}.jsonl", labels)
        dev = write_rows(tmp_path / f"{kind}-dev.jsonl", labels[10:20])
        files = ("--train", data, "--dev", dev, "--kind", kind, "--encoder", tiny_encoder_folder)
        command = ("run", "text", *files, *SHORT, "--heads", "linear", "ridge", "--out", tmp_path / kind)
        assert main([str(word) for word in command]) == 0
        assert finding_of(tmp_path / kind)["rows"][0]["id"] == f"{kind}:8"
