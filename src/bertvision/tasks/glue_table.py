"""The GLUE tasks as one table: files, columns, labels, metrics and submission format.

Wang et al. 2018, https://arxiv.org/abs/1804.07461. MNLI has two dev sets and so two names, ``mnli``
(matched) and ``mnli-mm``; the diagnostic set ``ax`` is a third dev set for the same training data. One
MNLI model predicts the test sets of all three.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from bertvision.tasks.readers.columns import Columns

LOWEST, HIGHEST = 0.0, 5.0
"""The scale of STS-B, from unrelated to equivalent."""


@dataclass(frozen=True)
class GlueFile:
    """One official file: folders and names in the order they are tried, number of rows, and split on the Hub.

    ``rows`` counts the usable rows, as on the Hub's dataset card. ``split`` is "" where the Hub has no labels.
    """

    folders: tuple[str, ...]
    stems: tuple[str, ...]
    rows: int
    split: str = ""


@dataclass(frozen=True)
class GlueFiles:
    """Training, dev and test files of a task; tests are keyed by the file name that the server expects."""

    train: GlueFile
    dev: GlueFile
    tests: Mapping[str, GlueFile]


@dataclass(frozen=True)
class GlueTask:
    """One task; learning rate, batch size and length are the paper's for one epoch.

    WNLI, which is not in the paper, uses the defaults, which are those of CoLA and STS-B.
    """

    name: str
    about: str
    files: GlueFiles
    columns: tuple[Columns, ...]  # official names first, then the names on the Hub
    labels: tuple[str, ...]  # in the order of their indices; empty for a score from LOWEST to HIGHEST
    metrics: tuple[str, ...]  # all official metrics; models are chosen by the first
    hub: str  # configuration name on the Hub
    header: tuple[str, ...] = ()  # columns of labelled TSV files without a header
    words: bool = False  # whether submissions have label names instead of indices
    lr: float = 2e-5
    batch: int = 16
    max_length: int = 128


def _files(folder: str, train: int, dev: int, test: int) -> GlueFiles:
    """The files of a task with one folder, submitted as FOLDER.tsv."""
    return GlueFiles(
        GlueFile((folder,), ("train",), train, "train"),
        GlueFile((folder,), ("dev",), dev, "validation"),
        {f"{folder}.tsv": GlueFile((folder,), ("test",), test, "test")},
    )


_SENTENCE = Columns("sentence", None, "label")
_SENTENCES = Columns("sentence1", "sentence2", "label")
_DIAGNOSTIC = ("AX", "diagnostic", "MNLI")

_MNLI = GlueTask(
    "mnli",
    "MNLI: entailment, neutral or contradiction; judged on the matched dev set",
    GlueFiles(
        GlueFile(("MNLI",), ("train",), 392702, "train"),
        GlueFile(("MNLI",), ("dev_matched",), 9815, "validation_matched"),
        {
            "MNLI-m.tsv": GlueFile(("MNLI",), ("test_matched",), 9796, "test_matched"),
            "MNLI-mm.tsv": GlueFile(("MNLI",), ("test_mismatched",), 9847, "test_mismatched"),
            "AX.tsv": GlueFile(_DIAGNOSTIC, ("diagnostic", "AX", "diagnostic-full"), 1104),
        },
    ),
    (
        Columns("sentence1", "sentence2", "gold_label"),
        Columns("premise", "hypothesis", "label"),
        Columns("Premise", "Hypothesis", "Label"),  # the diagnostic set with its labels
        _SENTENCES,
    ),
    ("entailment", "neutral", "contradiction"),
    ("accuracy",),
    hub="mnli",
    words=True,
    lr=1e-5,
    batch=32,
)

_RECORDS = (
    GlueTask(
        "cola",
        "CoLA: is the sentence acceptable English",
        _files("CoLA", 8551, 1043, 1063),
        (_SENTENCE,),
        ("unacceptable", "acceptable"),
        ("matthews_correlation",),
        hub="cola",
        header=("source", "label", "notation", "sentence"),
    ),
    GlueTask(
        "sst2",
        "SST-2: is the phrase from a film review positive",
        _files("SST-2", 67349, 872, 1821),
        (_SENTENCE,),
        ("negative", "positive"),
        ("accuracy",),
        hub="sst2",
        batch=32,
    ),
    GlueTask(
        "mrpc",
        "MRPC: do two sentences from the news say the same",
        _files("MRPC", 3668, 408, 1725),
        (Columns("#1 String", "#2 String", "Quality"), _SENTENCES),
        ("not_equivalent", "equivalent"),
        ("f1", "accuracy"),
        hub="mrpc",
        batch=32,
    ),
    GlueTask(
        "stsb",
        "STS-B: how alike are two sentences, 0 to 5",
        _files("STS-B", 5749, 1500, 1379),
        (Columns("sentence1", "sentence2", "score"), _SENTENCES),
        (),
        ("spearmanr", "pearson"),
        hub="stsb",
    ),
    GlueTask(
        "qqp",
        "QQP: are two questions from Quora the same",
        _files("QQP", 363846, 40430, 390965),
        (Columns("question1", "question2", "is_duplicate"), Columns("question1", "question2", "label")),
        ("not_duplicate", "duplicate"),
        ("f1", "accuracy"),
        hub="qqp",
        lr=1e-5,
        batch=32,
    ),
    _MNLI,
    replace(
        _MNLI,
        name="mnli-mm",
        about="MNLI, judged on the mismatched dev set (other kinds of text than the training data)",
        files=replace(_MNLI.files, dev=GlueFile(("MNLI",), ("dev_mismatched",), 9832, "validation_mismatched")),
    ),
    GlueTask(
        "qnli",
        "QNLI: does the sentence answer the question",
        _files("QNLI", 104743, 5463, 5463),
        (Columns("question", "sentence", "label"),),
        ("entailment", "not_entailment"),
        ("accuracy",),
        hub="qnli",
        words=True,
        lr=1e-5,
        batch=32,
    ),
    GlueTask(
        "rte",
        "RTE: does the first text entail the second",
        _files("RTE", 2490, 277, 3000),
        (_SENTENCES,),
        ("entailment", "not_entailment"),
        ("accuracy",),
        hub="rte",
        words=True,
        max_length=250,
    ),
    GlueTask(
        "wnli",
        "WNLI: is the pronoun replaced by the right noun",
        _files("WNLI", 635, 71, 146),
        (_SENTENCES,),
        ("not_entailment", "entailment"),
        ("accuracy",),
        hub="wnli",
    ),
    replace(
        _MNLI,
        name="ax",
        about="GLUE's diagnostic set: learned from MNLI, judged on diagnostic-full.tsv",
        files=replace(_MNLI.files, dev=GlueFile(_DIAGNOSTIC, ("diagnostic-full",), 1104)),
        metrics=("matthews_correlation",),
    ),
)

GLUE: Mapping[str, GlueTask] = {record.name: record for record in _RECORDS}
"""All tasks by name."""
