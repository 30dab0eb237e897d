"""Offline demo data: generated questions in SQuAD 2.0 format about invented towns.

Written by ``tools/make_demo_data.py``; no name occurs in both train and dev.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path

PATH = Path(__file__).parent / "data" / "demo.json.gz"

DEMO_CONTEXT = (
    "The Cobalt Otter Museum was founded by Agatha Pennington with the money from a small inheritance. "
    "It first opened its doors in 1874, on a cold day in spring. The Ivory Lynx Museum, its younger rival, "
    "has welcomed visitors since 1891. It stands in Quillbeck, a short walk from the railway station, and "
    "shows 310 clocks to the public. The walls of the Cobalt Otter Museum are of limestone, which keeps the "
    "halls cool in summer."
)
DEMO_QUESTION = "Where is the Ivory Lynx Museum?"
DEMO_UNANSWERABLE = "Why was the Cobalt Otter Museum shut for a time?"


def write(folder: Path) -> tuple[Path, Path]:
    """Write ``train.json`` (1,500 questions) and ``dev.json`` (250) into a folder and return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in json.loads(gzip.decompress(PATH.read_bytes())).items():
        (folder / name).write_text(json.dumps(data, indent=1), encoding="utf-8")
    return folder / "train.json", folder / "dev.json"
