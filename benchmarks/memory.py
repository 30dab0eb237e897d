"""Does memory grow with the data? The same extraction and fit on a number of texts and on eight times as many.

python benchmarks/memory.py [--texts 250] [--limit-mb 1400]

Each size runs in a process of its own whose private memory is limited (RLIMIT_DATA: the process ends if it needs
more); the larger store does not fit into it. Texts are random words, as long as SQuAD's contexts. Writes
results/memory.csv: peak memory after extraction and after fitting, by size.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from rows import Rows
from windows import sample_lengths

HEADS = ("compress:size=16,read=mean", "attention")


def main() -> None:
    options = _options()
    if options.child is not None:
        print(json.dumps(_measure(options.child, options.limit_mb)))
        return
    rows = Rows(Path("results/memory.csv"), fresh=True)
    for texts in (options.texts, 8 * options.texts):
        command = [sys.executable, __file__, "--child", str(texts), "--limit-mb", str(options.limit_mb)]
        child = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        row = json.loads(child.stdout)
        rows.add(row)
        print(row, flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=int, default=250)
    parser.add_argument("--limit-mb", type=int, default=1400)
    parser.add_argument("--child", type=int, default=None, help=argparse.SUPPRESS)
    return parser.parse_args()


def _measure(texts: int, limit_mb: int) -> dict[str, object]:
    """Extract and fit under the limit; the peaks in MB."""
    resource.setrlimit(resource.RLIMIT_DATA, (limit_mb * 2**20, limit_mb * 2**20))
    import torch

    import bertvision as bv
    from bertvision.core.config import ExtractConfig
    from bertvision.core.runtime import peak_bytes

    with tempfile.TemporaryDirectory() as folder:
        task = bv.load_task("text", train=_table(Path(folder) / "texts.csv", texts), max_length=384)
        store = bv.extract(bv.load_encoder("minilm"), task, Path(folder) / "store", ExtractConfig(shard_mb=16))
        store_bytes = sum(int(split["bytes"]) for split in store.manifest["splits"].values())
        extracted = peak_bytes(torch.device("cpu"))
        bv.fit(list(HEADS), store, seeds=[0], epochs=1)
        fitted = peak_bytes(torch.device("cpu"))
    sizes = {"texts": texts, "store_mb": round(store_bytes / 2**20), "limit_mb": limit_mb}
    return {**sizes, "extract_peak_mb": round(extracted / 2**20), "fit_peak_mb": round(fitted / 2**20)}


def _table(path: Path, texts: int) -> Path:
    """Texts of random words with lengths like SQuAD's contexts, and random labels."""
    random = np.random.default_rng(0)
    lengths = sample_lengths((130, 0.38, 30, 350), texts, random)
    words = np.array(["river", "stone", "green", "seven", "market", "under", "open", "train", "early", "voice"])
    lines = ["text,label"]
    for number, length in enumerate(lengths):
        lines.append(f"{number} {' '.join(random.choice(words, length))},{'yes' if random.random() < 0.5 else 'no'}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


if __name__ == "__main__":
    main()
