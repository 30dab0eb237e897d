"""What the tests of the command line share: calling it, small data in files, and two whole runs."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from bertvision.cli.main import main

TOWNS = ("Rome", "Oslo", "Lima", "Bern", "Cairo", "Quito", "Delhi", "Minsk")
TONES = ("bad", "plain", "good")
QUICK = ("--epochs", "1", "--heads", "mean-pool", "learned-pool", "--seeds", "0", "--set", "fit.epochs=2")


class Said(NamedTuple):
    """What a command came to."""

    code: int
    out: str
    err: str

    @property
    def errors(self) -> list[str]:
        return [line for line in self.err.splitlines() if line.startswith("error: ")]

    def refused(self, code: int = 2) -> str:
        """The one line that a command which failed has to say, and nothing on stdout."""
        assert (self.code, self.out) == (code, ""), self
        assert len(self.errors) == 1, self.err
        assert "Traceback" not in self.err
        return self.errors[0]

    def document(self) -> Any:
        """The one JSON document on stdout."""
        assert self.code == 0, self.err
        assert self.out.count("\n") == 1
        return json.loads(self.out)


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Callable[..., Said]:
    def called(*words: object) -> Said:
        capsys.readouterr()
        code = main([str(word) for word in words])
        shown = capsys.readouterr()
        return Said(code, shown.out, shown.err)

    return called


def question(name: str, person: str, town: str | None, context: str) -> dict[str, Any]:
    answers = [] if town is None else [{"text": town, "answer_start": context.index(town)}]
    return {"id": name, "question": f"where does {person} live", "answers": answers, "is_impossible": town is None}


def squad(prefix: str = "q", articles: int = 8) -> dict[str, Any]:
    """Articles of one paragraph with two questions, the second unanswerable."""
    data = []
    for number in range(articles):
        town = TOWNS[number % 8]
        context = f"Anna lives in {town}. The old town of {prefix} {number}."
        qas = [
            question(f"{prefix}{number}a", "Anna", town, context),
            question(f"{prefix}{number}b", "Ben", None, context),
        ]
        data.append({"title": f"{prefix} {number}", "paragraphs": [{"context": context, "qas": qas}]})
    return {"version": "v2.0", "data": data}


def write_squad(path: Path, content: dict[str, Any] | None = None) -> Path:
    path.write_text(json.dumps(squad() if content is None else content), encoding="utf-8")
    return path


def write_csv(path: Path, rows: int = 40, header: tuple[str, str] = ("text", "label")) -> Path:
    with path.open("w", encoding="utf-8", newline="") as file:
        lines = [(f"the {TONES[i % 3]} old town of {TOWNS[i % 8]} {i}", TONES[i % 3]) for i in range(rows)]
        csv.writer(file).writerows([header, *lines])
    return path


def extraction(data: Path, encoder: Path, task: str = "squad2") -> list[object]:
    return ["extract", task, "--train", data, "--to", data.parent / "store", "--encoder", encoder, "--max-length", 48]


def squad_words(folder: Path, encoder: Path) -> list[object]:
    files = ["--train", folder / "train.json", "--dev", folder / "dev.json"]
    return ["run", "squad2", *files, "--encoder", encoder, "--max-length", 48, "--overlap", 8, *QUICK]


def text_words(folder: Path, encoder: Path) -> list[object]:
    return ["run", "text", "--train", folder / "my.csv", "--encoder", encoder, "--max-length", 48, *QUICK]


def made_run(folder: Path, words: list[object]) -> Path:
    assert main([str(word) for word in [*words, "--out", folder / "run"]]) == 0
    return folder / "run"


@pytest.fixture(scope="session")
def samples() -> SimpleNamespace:
    """Writers of small data, and the words of commands on them."""
    made = (squad, write_squad, write_csv, extraction, squad_words, text_words, made_run)
    return SimpleNamespace(**{one.__name__: one for one in made})


@pytest.fixture(scope="session")
def squad_run(tiny_encoder_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("squad-run")
    write_squad(folder / "train.json", squad("t"))
    write_squad(folder / "dev.json", squad("d", 3))
    return made_run(folder, squad_words(folder, tiny_encoder_folder))


@pytest.fixture(scope="session")
def text_run(tiny_encoder_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("text-run")
    write_csv(folder / "my.csv")
    return made_run(folder, text_words(folder, tiny_encoder_folder))
