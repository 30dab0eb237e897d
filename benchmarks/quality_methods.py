"""The methods that ``quality.py`` compares; each gets the same training rows and predicts the same dev.

``run_recommended`` is a user of the command line. ``fit_linear`` is what many write without this project: embeddings of
the last layer and a regularised linear model whose strength is cross-validated. ``fit_setfit`` runs the setfit library.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertvision.core.records import CONTROL
from bertvision.encoders.loading import MINILM_PACKAGE, load_encoder
from quality_statistics import as_labels, gold_of, score_of
from quality_tasks import LabelledText, QualityTask

Predicted = NDArray[Any]  # (dev rows,) names of classes, or values

RECOMMENDED, CONTROL_METHOD, EMBEDDINGS, LAST_LAYER, SETFIT = (
    "recommended",
    "control",
    "embeddings",
    "last_layer",
    "setfit",
)
TITLES = {
    RECOMMENDED: "recommended",
    CONTROL_METHOD: "control",
    EMBEDDINGS: "embeddings + LR",
    LAST_LAYER: "last layer only",
    SETFIT: "SetFit",
}
LONGEST, BATCH = 256, 64
FOLDS = 5
STRENGTHS = np.logspace(-3, 4, 15)
TOLERANCE = 1e-3  # points


class MethodFailed(Exception):
    """A method ended with an error; the message is its last line."""


@dataclass(frozen=True)
class Outcome:
    """What a method predicts for dev, and what it cost."""

    predicted: Predicted
    seconds: float
    cpu_seconds: float
    model: str = ""  # the row of the leaderboard


@dataclass
class Cost:
    """Seconds of this process and of its finished children."""

    seconds: float = 0.0
    cpu_seconds: float = 0.0

    @contextmanager
    def measure(self) -> Iterator[None]:
        """Add what the block takes."""
        wall, cpu = time.perf_counter(), sum(os.times()[:4])
        try:
            yield
        finally:
            self.seconds += time.perf_counter() - wall
            self.cpu_seconds += sum(os.times()[:4]) - cpu


def write_rows(path: Path, rows: Sequence[LabelledText], text: str = "text") -> Path:
    """A JSON-lines table; pairs have a column ``pair``."""
    lines = []
    for row in rows:
        cells = {text: row.text, "label": row.label}
        if row.pair is not None:
            cells["pair"] = row.pair
        lines.append(json.dumps(cells) + "\n")
    path.write_text("".join(lines), encoding="utf-8")
    return path


def run_process(command: Sequence[str], log: Path) -> None:
    """Run a command; what it prints goes to a file."""
    with log.open("wb") as file:
        done = subprocess.run(command, stdout=file, stderr=subprocess.STDOUT)
    if done.returncode:
        lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        raise MethodFailed(lines[-1] if lines else f"exit code {done.returncode}")


# The recommendation


def run_recommended(
    task: QualityTask, train: Sequence[LabelledText], dev: Sequence[LabelledText], scratch: Path
) -> dict[str, Outcome]:
    """``bertvision run`` with a frozen encoder and default settings: the recommended row and the control."""
    # The metric of the task text is accuracy, so CoLA's rows are given to the task cola.
    is_cola = task.metric == "matthews_correlation"
    column = "sentence" if is_cola else "text"
    files = [
        str(write_rows(scratch / f"{name}.jsonl", rows, column)) for name, rows in (("train", train), ("dev", dev))
    ]
    command = [sys.executable, "-m", "bertvision", "run", "cola" if is_cola else "text"]
    command += ["--train", files[0], "--dev", files[1], "--epochs", "0", "--out", str(scratch / "run")]
    if not is_cola:
        command += ["--text-column", "text", "--label-column", "label"]
        command += ["--pair-column", "pair"] if task.pair else []
        command += ["--kind", "regress" if task.is_regression else "classify"]
    cost = Cost()
    with cost.measure():
        run_process(command, scratch / "run.log")
    return read_run(task, scratch / "run", dev, cost)


def read_run(task: QualityTask, run: Path, dev: Sequence[LabelledText], cost: Cost) -> dict[str, Outcome]:
    """The recommended row of a run and its control, from its leaderboard and its files of answers."""
    board = json.loads((run / "leaderboard.json").read_text(encoding="utf-8"))
    outcomes = {}
    for method, row in ((CONTROL_METHOD, control_row(board)), (RECOMMENDED, recommended_row(board))):
        title = row_title(row)
        answers = json.loads((run / "predictions" / f"{title}.json").read_text(encoding="utf-8"))
        by_line = {int(example.rpartition(":")[2]): answer for example, answer in answers.items()}
        if sorted(by_line) != list(range(1, len(dev) + 1)):
            raise MethodFailed(f"{title}: {len(by_line)} answers for {len(dev)} rows of dev")
        predicted = as_labels(task, [by_line[line] for line in sorted(by_line)])
        score, reported = score_of(task, gold_of(task, dev), predicted), row["scores"].get(task.metric)
        if reported is not None and abs(score - reported) > TOLERANCE:
            raise MethodFailed(f"{title}: its answers score {score:.3f}, the leaderboard says {reported:.3f}")
        outcomes[method] = Outcome(predicted, cost.seconds, cost.cpu_seconds, title)
    return outcomes


def row_title(row: Mapping[str, Any]) -> str:
    """The name of a row with its seed, as in the names of the files of answers."""
    return str(row["name"]) if row.get("seed") is None else f"{row['name']}@{row['seed']}"


def recommended_row(board: Mapping[str, Any]) -> Mapping[str, Any]:
    """The row that the leaderboard names as recommended, else the one that is saved as the model."""
    rows: list[Mapping[str, Any]] = board["rows"]
    name = board.get("recommended")
    if name is None:
        return rows[0]
    for row in rows:
        if name in (row["name"], row_title(row)):
            return row
    raise MethodFailed(f"leaderboard.json recommends {name}, which has no row")


def control_row(board: Mapping[str, Any]) -> Mapping[str, Any]:
    """The row marked as control, else the linear probe on the last layer; of several seeds the best on inner."""
    rows: list[Mapping[str, Any]] = board["rows"]
    marked = [row for row in rows if row.get("control")] or [row for row in rows if row["name"] == CONTROL]
    if not marked:
        raise MethodFailed("leaderboard.json has no control")
    return marked[0]


# Embeddings and a linear model


Encode = Callable[[Sequence[str]], NDArray[np.float64]]


@cache
def _encoder() -> Any:
    return load_encoder("minilm")


def encode_minilm(texts: Sequence[str]) -> NDArray[np.float64]:
    """Mean of the last layer over all tokens of each text (texts, width), as sentence-transformers pools it."""
    import torch

    encoder = _encoder()
    order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
    means = np.zeros((len(texts), encoder.width))
    with torch.inference_mode():
        for start in range(0, len(order), BATCH):
            rows = order[start : start + BATCH]
            batch = encoder.tokenizer(
                [texts[i] for i in rows], padding=True, truncation=True, max_length=LONGEST, return_tensors="pt"
            )
            mask = batch["attention_mask"][:, :, None]  # (texts, tokens, 1)
            states = encoder.model(**batch).last_hidden_state  # (texts, tokens, width)
            means[rows] = ((states * mask).sum(1) / mask.sum(1)).double().numpy()
    return means


@dataclass
class LinearMethods:
    """The two linear models; the vectors of a task's dev are computed once, and their time counts for every draw."""

    encode: Encode = encode_minilm
    dev_vectors: dict[str, tuple[list[NDArray[np.float64]], Cost]] = field(default_factory=dict)

    def fit(
        self, task: QualityTask, train: Sequence[LabelledText], dev: Sequence[LabelledText], scratch: Path
    ) -> dict[str, Outcome]:
        if task.name not in self.dev_vectors:
            self.dev_vectors[task.name] = self._vectors(dev)
        dev_vectors, dev_cost = self.dev_vectors[task.name]
        train_vectors, train_cost = self._vectors(train)
        labels = gold_of(task, train)
        outcomes = {}
        for method in (EMBEDDINGS, LAST_LAYER):
            cost = Cost(
                train_cost.seconds + dev_cost.seconds,
                train_cost.cpu_seconds + dev_cost.cpu_seconds,
            )
            with cost.measure():
                features = [pair_features(part, method) for part in (train_vectors, dev_vectors)]
                model = linear_model(task, labels, standardise=method == LAST_LAYER).fit(features[0], labels)
                predicted = as_labels(task, model.predict(features[1]).tolist())
            outcomes[method] = Outcome(predicted, cost.seconds, cost.cpu_seconds)
        return outcomes

    def _vectors(self, rows: Sequence[LabelledText]) -> tuple[list[NDArray[np.float64]], Cost]:
        """Vectors of the texts and, for pairs, of the second texts."""
        cost = Cost()
        with cost.measure():
            vectors = [self.encode([row.text for row in rows])]
            if rows[0].pair is not None:
                vectors.append(self.encode([row.pair or "" for row in rows]))
        return vectors, cost


def pair_features(vectors: Sequence[NDArray[np.float64]], method: str) -> NDArray[np.float64]:
    """The vector u of a text; of a pair u, v, |u - v| and u * v. Embeddings have length 1."""
    if method == EMBEDDINGS:
        vectors = [each / np.linalg.norm(each, axis=1, keepdims=True) for each in vectors]
    if len(vectors) == 1:
        return vectors[0]
    u, v = vectors
    return np.concatenate([u, v, np.abs(u - v), u * v], axis=1)


def linear_model(task: QualityTask, labels: NDArray[Any], standardise: bool) -> Any:
    """Cross-validated logistic or ridge regression of scikit-learn."""
    from sklearn.linear_model import LogisticRegressionCV, RidgeCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    model: Any = RidgeCV(alphas=STRENGTHS)
    if not task.is_regression:
        rarest = min(Counter(labels.tolist()).values())
        model = LogisticRegressionCV(
            Cs=10,
            cv=max(2, min(FOLDS, rarest)),
            l1_ratios=(0,),
            scoring="accuracy" if task.metric == "accuracy" else "matthews_corrcoef",
            max_iter=1000,
            use_legacy_attributes=False,
        )
    return make_pipeline(StandardScaler(), model) if standardise else model


# SetFit


@dataclass(frozen=True)
class SetFitMethod:
    """SetFit with the same encoder, in its own virtual environment."""

    python: Path

    def why_not(self) -> str:
        """Why it cannot run; "" if it can."""
        if not self.python.exists():
            return f"{self.python} does not exist; make bench-quality installs it"
        done = subprocess.run([str(self.python), "-c", "import setfit"], capture_output=True, text=True)
        lines = done.stderr.strip().splitlines()
        return (lines[-1] if lines else f"exit code {done.returncode}") if done.returncode else ""

    def fit(
        self, task: QualityTask, train: Sequence[LabelledText], dev: Sequence[LabelledText], scratch: Path
    ) -> dict[str, Outcome]:
        package = importlib.util.find_spec(MINILM_PACKAGE)
        assert package is not None
        assert package.origin is not None
        encoder = Path(package.origin).parent / "model"
        out, script = scratch / "labels.json", Path(__file__).with_name("setfit_fit.py")
        command = [str(self.python), str(script), "--encoder", str(encoder), "--out", str(out)]
        for name, rows in (("train", train), ("dev", dev)):
            command += [f"--{name}", str(write_rows(scratch / f"{name}.jsonl", rows))]
        cost = Cost()
        with cost.measure():
            run_process(command, scratch / "setfit.log")
        return {SETFIT: Outcome(as_labels(task, json.loads(out.read_text())), cost.seconds, cost.cpu_seconds)}
