"""The real GLUE files, if available: official row counts and label distributions."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from bertvision.tasks.glue import find_file, read_examples
from bertvision.tasks.glue_table import GLUE
from bertvision.tasks.task import BadRows

DATA = os.environ.get("BERTVISION_DATA")

pytestmark = [pytest.mark.data, pytest.mark.skipif(DATA is None, reason="BERTVISION_DATA names no folder")]

# Counted in the official files, in the order of the labels; those of MNLI also equal published counts. For files
# that are not listed (QQP, QNLI train, MNLI mismatched, the diagnostic set) only the number of rows is checked.
COUNTS = {
    ("cola", "train"): (2528, 6023),
    ("cola", "dev"): (322, 721),
    ("sst2", "train"): (29780, 37569),
    ("sst2", "dev"): (428, 444),
    ("mrpc", "train"): (1194, 2474),
    ("mrpc", "dev"): (129, 279),
    ("mnli", "train"): (130899, 130900, 130903),
    ("mnli", "dev"): (3479, 3123, 3213),
    ("qnli", "dev"): (2702, 2761),
    ("rte", "train"): (1249, 1241),
    ("rte", "dev"): (146, 131),
    ("wnli", "train"): (323, 312),
    ("wnli", "dev"): (40, 31),
}

MEANS = {("stsb", "train"): 2.7010, ("stsb", "dev"): 2.3639}
"""Mean score, to four digits."""

OFFICIAL_STEMS = ("train", "dev", "dev_matched", "dev_mismatched", "diagnostic-full")


@pytest.mark.parametrize("name", GLUE)
@pytest.mark.parametrize("split", ["train", "dev"])
def test_row_and_label_counts_equal_the_official_ones(name: str, split: str) -> None:
    files = GLUE[name].files
    official = files.train if split == "train" else files.dev
    path = find_file(Path(str(DATA)) / "glue", official)
    if path is None or path.stem not in OFFICIAL_STEMS:
        pytest.skip(f"no official {split} file of {name} at hand")
    bad = BadRows(skip=name == "qqp")  # its official files contain rows that are broken in two
    labels = [example.label or 0.0 for example in read_examples(GLUE[name], path, bad)]
    assert len(labels) == official.rows
    if not GLUE[name].labels:
        assert sum(labels) / len(labels) == pytest.approx(MEANS[name, split], abs=5e-5)
        assert (min(labels), max(labels)) == (0.0, 5.0)
    elif (name, split) in COUNTS:
        counted = Counter(labels)
        assert tuple(counted[label] for label in range(len(GLUE[name].labels))) == COUNTS[name, split]


def test_last_line_of_cola_without_newline_is_read() -> None:
    """1,043 sentences, which ``wc -l`` counts as 1,042 lines."""
    path = Path(str(DATA)) / "glue" / "CoLA" / "dev.tsv"
    last = path.read_bytes().splitlines()[-1].decode()
    assert read_examples(GLUE["cola"], path, BadRows(skip=False))[-1].text == last.split("\t")[3]


def test_all_rows_of_an_mnli_sample_are_read() -> None:
    path = Path(str(DATA)) / "glue" / "MNLI" / "train_10k.jsonl"
    labels = Counter(example.label for example in read_examples(GLUE["mnli"], path, BadRows(skip=False)))
    assert labels == {0.0: 3239, 1.0: 3367, 2.0: 3394}
