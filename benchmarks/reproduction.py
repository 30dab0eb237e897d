"""Copy the documents of `bertvision reproduce` to results/reproduce/, and write docs/results/reproduction.md.

python benchmarks/reproduction.py [RUNS/laptop]

Copies the documents of RUNS/laptop/items/ to results/reproduce/ and draws all charts; without a folder it updates the
texts that documents repeat from claims.toml and published.csv, redraws the charts and rewrites the page, and the
sentence in the README.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

from bertvision.core.files import write_json
from bertvision.workflows.reproduce.documents import claim_verdicts, only_current, read_documents
from bertvision.workflows.reproduce.figures import write_pictures
from bertvision.workflows.reproduce.published import claims_of, published_notes
from bertvision.workflows.reproduce.specs import all_items
from bertvision.workflows.reproduce.text import page, tally
from rows import Rows
from tables import fill

RESULTS, TIMES = Path("results/reproduce"), Path("results/reproduce_times.csv")


def main() -> None:
    RESULTS.mkdir(parents=True, exist_ok=True)
    for folder in sys.argv[1:]:
        for path in sorted((Path(folder) / "items").glob("*.json")):
            shutil.copyfile(path, RESULTS / path.name)
    documents, items = read_documents(RESULTS), all_items()
    for name, document in documents.items():
        _update_texts(document)
        write_json(RESULTS / f"{name}.json", document)
        write_pictures(items[name], document["rows"], RESULTS)
    Path("docs/results/reproduction.md").write_text(page(documents, Rows(TIMES).read()), encoding="utf-8")
    fill(Path("README.md"), {"claims": lambda: tally(claim_verdicts(only_current(documents.values())))})
    print(f"docs/results/reproduction.md: {len(documents)} tables and figures")


def _update_texts(document: dict[str, Any]) -> None:
    """Notes on published numbers, and why a test is not run at a scale; neither influences a result."""
    name = document["item"]
    document["notes_on_published"] = published_notes(name)
    checks = [check for claim in claims_of(name) for check in claim.tests if check.item == name]
    if len(checks) == len(document["tests"]):
        for test, check in zip(document["tests"], checks, strict=True):
            if check.not_at == document["scale"]:
                test["why"] = check.because


if __name__ == "__main__":
    main()
