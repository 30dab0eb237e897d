"""A run from start to end: results are passed on in memory, and the files give the same report."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bertvision.cli.main import main
from bertvision.encoders.loading import Encoder
from bertvision.evaluation import scoring
from bertvision.runs import folder as run_folder
from bertvision.tasks.task import Task
from bertvision.training import inputs
from bertvision.training.inputs import TaskWindows, reuse_windows
from bertvision.workflows import conclude as conclude_module
from bertvision.workflows.analyse import run_analyses
from bertvision.workflows.conclude import update_report
from bertvision.workflows.refit_analyses import AnalysisRequest


def run_command(samples: Any, folder: Path, kind: str, encoder: Path) -> list[str]:
    if kind == "squad":
        samples.write_squad(folder / "train.json", samples.squad("t"))
        samples.write_squad(folder / "dev.json", samples.squad("d", 3))
        return [str(word) for word in samples.squad_words(folder, encoder)]
    samples.write_csv(folder / "my.csv")
    return [str(word) for word in samples.text_words(folder, encoder)]


@pytest.fixture
def tokenised_splits(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts how often the windows of each split are made."""
    counts: Counter[str] = Counter()
    make: Callable[..., Any] = inputs.split_windows

    def split_windows(task: Task, split: str, encoder: Encoder) -> Any:
        counts[split] += 1
        return make(task, split, encoder)

    monkeypatch.setattr(inputs, "split_windows", split_windows)
    return counts


@pytest.mark.parametrize("kind", ["squad", "text", "live"])
def test_run_tokenises_once_and_reads_nothing_back(
    samples: Any,
    tokenised_splits: Counter[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    tiny_encoder_folder: Path,
    kind: str,
) -> None:
    command = run_command(samples, tmp_path, kind, tiny_encoder_folder)
    command += ["--live"] if kind == "live" else []
    scored: list[Any] = []
    original = scoring.score_inner
    with monkeypatch.context() as patch:
        for name in ("gather", "read_task", "task_of_states", "run_states", "run_heads"):
            patch.setattr(conclude_module, name, lambda *_: pytest.fail("read back"))
        if kind == "live":  # the encoder that makes the states is the one that is saved
            patch.setattr(run_folder, "load_encoder", lambda *_: pytest.fail("read back"))
        patch.setattr(scoring, "score_inner", lambda *arguments: scored.append(arguments) or original(*arguments))
        assert main([*command, "--out", str(tmp_path / "run")]) == 0
    assert tokenised_splits == {"train": 1, "inner": 1, "dev": 1}
    rows, heads = (tmp_path / "run" / "predictions").glob("*.json"), (tmp_path / "run" / "heads").rglob("head.json")
    assert len(scored) == len(list(rows)) - len(list(heads)), "heads were scored on inner when they were fitted"


@pytest.mark.parametrize("name", ["squad_run", "text_run"])
def test_report_from_the_files_equals_that_of_the_run(
    request: pytest.FixtureRequest, samples: Any, tmp_path: Path, tiny_encoder_folder: Path, name: str
) -> None:
    kind = name.removesuffix("_run")
    assert main([*run_command(samples, tmp_path, kind, tiny_encoder_folder), "--out", str(tmp_path / "run")]) == 0
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    analyses = {path.name: path.read_bytes() for path in (tmp_path / "run" / "analysis").iterdir()}
    shutil.rmtree(tmp_path / "run" / "analysis")
    if name == "text_run":  # from states, not from files
        run_analyses(AnalysisRequest(tmp_path / "run"), ["labels"])
    assert update_report(tmp_path / "run").read_text(encoding="utf-8") == page
    assert {path.name: path.read_bytes() for path in (tmp_path / "run" / "analysis").iterdir()} == analyses
    assert re.search("<h2", page)


def test_windows_of_another_task_are_not_reused(
    tiny_encoder: Encoder, label_encoder: Encoder, label_task: Task, span_task: Task
) -> None:
    windows = TaskWindows(label_task, tiny_encoder)
    assert reuse_windows(label_task, label_encoder, windows) is windows, "tuning leaves the tokenizer as it is"
    assert reuse_windows(span_task, tiny_encoder, windows) is not windows
    assert windows["dev"] is windows["dev"]
    with pytest.raises(KeyError):
        windows["test"]
