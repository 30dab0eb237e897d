"""Small files in GLUE's official formats, for the tests of reading them and of submissions."""

from __future__ import annotations

from pathlib import Path

import pytest

from bertvision.tasks.glue_table import GLUE

NLI = (
    "index\tpromptID\tpairID\tgenre\tsentence1_binary_parse\tsentence2_binary_parse\tsentence1_parse\tsentence2_parse"
    "\tsentence1\tsentence2"
)
NLI_ROW = "{i}\t31193\t31193n\tgovernment\t( a )\t( b )\t(ROOT a)\t(ROOT b)\t{text}\t{pair}"
STS = "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2"
STS_ROW = "{i}\tmain-captions\tMSRvid\t2012test\t0001\tnone\tnone\t{text}\t{pair}"

LABELLED = {
    "cola": ("", "gj04\t{label}\t*\t{text}"),
    "sst2": ("sentence\tlabel", "{text} \t{label}"),
    "mrpc": ("\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String", "{label}\t702876\t702977\t{text}\t{pair}"),
    "stsb": (STS + "\tscore", STS_ROW + "\t{label}"),
    "qqp": ("id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate", "{i}\t5\t6\t{text}\t{pair}\t{label}"),
    "mnli": (NLI + "\tlabel1\tgold_label", NLI_ROW + "\tneutral\t{label}"),
    "qnli": ("index\tquestion\tsentence\tlabel", "{i}\t{text}\t{pair}\t{label}"),
    "rte": ("index\tsentence1\tsentence2\tlabel", "{i}\t{text}\t{pair}\t{label}"),
    "wnli": ("index\tsentence1\tsentence2\tlabel", "{i}\t{text}\t{pair}\t{label}"),
}
"""Header and row of the training and dev files."""

HIDDEN = {
    "cola": ("index\tsentence", "{i}\t{text}"),
    "sst2": ("index\tsentence", "{i}\t{text}"),
    "mrpc": ("index\t#1 ID\t#2 ID\t#1 String\t#2 String", "{i}\t1089874\t1089925\t{text}\t{pair}"),
    "stsb": (STS, STS_ROW),
    "qqp": ("id\tquestion1\tquestion2", "{i}\t{text}\t{pair}"),
    "mnli": (NLI, NLI_ROW),
    "qnli": ("index\tquestion\tsentence", "{i}\t{text}\t{pair}"),
    "rte": ("index\tsentence1\tsentence2", "{i}\t{text}\t{pair}"),
    "wnli": ("index\tsentence1\tsentence2", "{i}\t{text}\t{pair}"),
}
"""Header and row of the test files."""

DIAGNOSTIC = (
    "Lexical Semantics\tPredicate-Argument Structure\tLogic\tKnowledge\tDomain\tPremise\tHypothesis\tLabel",
    "\t\tNegation\t\tArtificial\t{text}\t{pair}\t{label}",
)

NUMBERED = ("cola", "sst2", "mrpc", "qqp", "wnli")
"""Tasks whose files have labels 0 and 1; the others have words, and STS-B has scores."""


class GlueSamples:
    """Writes official files; a row is (text, pair, label as written)."""

    labelled, hidden, diagnostic = LABELLED, HIDDEN, DIAGNOSTIC

    def label(self, name: str, label: int) -> str:
        """A label as the official files write it."""
        if name == "stsb":
            return f"{label}.500"
        return str(label) if name in NUMBERED else GLUE[name].labels[label]

    def lines(self, columns_and_row: tuple[str, str], rows: list[tuple[str, str, str]]) -> list[str]:
        """The header, if the format has one, and a line for each row."""
        header, row_format = columns_and_row
        body = [row_format.format(i=i, text=text, pair=pair, label=label) for i, (text, pair, label) in enumerate(rows)]
        return [header, *body] if header else body

    def write(self, path: Path, content: list[str]) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{line}\n" for line in content), encoding="utf-8", newline="")
        return path

    def rows(self, name: str, size: int) -> list[tuple[str, str, str]]:
        """Texts that are hard to read: unbalanced quotes, blanks, accents."""
        classes = len(GLUE[name].labels) or 5
        return [(f'"Ein "naïve" text {i}', f"it 's pair {i}", self.label(name, i % classes)) for i in range(size)]

    def write_task(self, folder: Path, name: str, train: int = 40, dev: int = 12) -> Path:
        """The task's official training and dev files below a folder."""
        files = GLUE[name].files
        for file, size in ((files.train, train), (files.dev, dev)):
            path = folder / file.folders[0] / f"{file.stems[0]}.tsv"
            self.write(path, self.lines(LABELLED[name], self.rows(name, size)))
        return folder


@pytest.fixture(scope="session")
def glue() -> GlueSamples:
    return GlueSamples()
