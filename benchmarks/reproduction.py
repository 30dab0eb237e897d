"""Keep what `bertvision reproduce` found, and write docs/reproduction.md and README's sentence from all that is kept.

python benchmarks/reproduction.py [RUNS/laptop]

Copies RUNS/laptop/items/, documents and pictures, to results/reproduce/; without a folder only the page is
written anew.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from bertvision.reproduce.documents import claim_verdicts, only_current, read_documents
from bertvision.reproduce.page import page, tally
from rows import Rows
from tables import fill

KEPT, TIMES = Path("results/reproduce"), Path("results/reproduce_times.csv")


def main() -> None:
    KEPT.mkdir(parents=True, exist_ok=True)
    for folder in sys.argv[1:]:
        for path in sorted((Path(folder) / "items").iterdir()):
            shutil.copyfile(path, KEPT / path.name)
    documents = read_documents(KEPT)
    Path("docs/reproduction.md").write_text(page(documents, Rows(TIMES).read()), encoding="utf-8")
    fill(Path("README.md"), {"claims": lambda: tally(claim_verdicts(only_current(documents.values())))})
    print(f"docs/reproduction.md: {len(documents)} tables and figures")


if __name__ == "__main__":
    main()
