"""Small data sets under the official names, and a folder that the tests of this package share."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bertvision.workflows.reproduce.experiments import Experiments
from bertvision.workflows.reproduce.specs import shared_at

TOWNS = ("Rome", "Oslo", "Lima", "Bern", "Cairo", "Quito", "Delhi", "Minsk")
SMALL = ("data.max_length=48", "tune.batch=8", "fit.epochs=2")


def paragraph(prefix: str, number: int) -> dict[str, Any]:
    town = TOWNS[number % 8]
    context = f"Anna lives in {town}. The old town of {prefix} {number}{' is good' * (number % 3)}."
    answers = [{"text": town, "answer_start": context.index(town)}]
    questions = [
        {"id": f"{prefix}{number}a", "question": "where does Anna live", "answers": answers, "is_impossible": False},
        {"id": f"{prefix}{number}b", "question": "where does Ben live", "answers": [], "is_impossible": True},
    ]
    return {"title": f"{prefix} {number}", "paragraphs": [{"context": context, "qas": questions}]}


def write_data(folder: Path) -> Path:
    """SQuAD 2.0, CoLA, SST-2 and one table of tweets, in the folders that the papers' data would have."""
    for name, prefix, count in (("train-v2.0.json", "t", 12), ("dev-v2.0.json", "d", 6)):
        path = folder / "squad" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        articles = [paragraph(prefix, number) for number in range(count)]
        path.write_text(json.dumps({"version": "v2.0", "data": articles}), encoding="utf-8")
    for name, count in (("train.tsv", 40), ("dev.tsv", 12)):
        path = folder / "glue" / "CoLA" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        rows = [
            f"s\t{i % 2}\t\tthe {('bad', 'good')[i % 2]} old town of {TOWNS[i % 8]} {i} {name[0]}" for i in range(count)
        ]
        path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    for name, count in (("train.tsv", 40), ("dev.tsv", 12)):
        path = folder / "glue" / "SST-2" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        rows = [f"a {('bad', 'good')[i % 2]} town like {TOWNS[i % 8]} {i} {name[0]}\t{i % 2}" for i in range(count)]
        path.write_text("\n".join(["sentence\tlabel", *rows]) + "\n", encoding="utf-8")
    table = folder / "crowdflower" / "Airline-Sentiment-2-w-AA.csv"
    table.parent.mkdir(parents=True, exist_ok=True)
    with table.open("w", encoding="utf-8", newline="") as file:
        tones = ("bad", "plain", "good")
        lines = [(f"the {tones[i % 3]} town of {TOWNS[i % 8]} {i}", tones[i % 3]) for i in range(60)]
        csv.writer(file).writerows([("text", "airline_sentiment"), *lines])
    return folder


@pytest.fixture(scope="session")
def paper_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_data(tmp_path_factory.mktemp("paper-data"))


@pytest.fixture(scope="session")
def reproduced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output folder; later tests reuse what earlier ones made."""
    return tmp_path_factory.mktemp("reproduced")


@pytest.fixture
def experiments(paper_data: Path, reproduced: Path, tiny_encoder_folder: Path) -> Experiments:
    """Paper scale with a random encoder of two layers instead of BERT."""
    return Experiments(
        replace(shared_at("paper"), seeds=(0, 1)), paper_data, reproduced, str(tiny_encoder_folder), SMALL
    )
