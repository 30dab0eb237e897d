"""Compare the cost of tuning methods, each in its own process, so that its peak memory is measured.

python benchmarks/costs.py --data DATA --out RUNS [--epochs 1]

MRPC (DATA/glue/MRPC) with `minilm`. Existing runs are not repeated. Writes results/costs.csv, the rows of
`bertvision costs`.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import bertvision as bv
from bertvision.encoders.loading import ENCODER_FILE
from bertvision.workflows.tuning_costs import cost_table, cost_table_text
from rows import Rows

METHODS = {
    "full": "full",
    "freeze3": "freeze:k=3",
    "freeze3-norms": "freeze:k=3,norms=true",
    "freeze5": "freeze:k=5",
    "store5": "freeze:k=5",
    "freeze6": "freeze:k=6",
    "adapters": "adapters:size=64",
    "adapters-layer": "adapters:size=64,share=layer,norms=false",
    "lora": "lora:r=8",
    "bitfit": "bitfit",
}


def main() -> None:
    options = _options()
    data = options.data / "glue" / "MRPC"
    for name, method in METHODS.items():
        if not (options.out / name / "encoder" / ENCODER_FILE).exists():
            command = [sys.executable, "-m", "bertvision", "tune", "mrpc", "--data", str(data), "--method", method]
            command += ["--epochs", str(options.epochs), "--out", str(options.out / name)]
            command += ["--from-store", str(options.out / "state5")] if name.startswith("store") else []
            subprocess.run(command, check=True)
    document = cost_table([options.out / name / "encoder" for name in METHODS], bv.load_task("mrpc", data=data))
    print(cost_table_text(document))
    rows = Rows(Path("results/costs.csv"), fresh=True)
    for name, row in zip(METHODS, document["rows"], strict=True):
        rows.add({**row, "encoder": name, "task": document["task"], "metric": document["metric"]})


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--epochs", type=float, default=1.0)
    return parser.parse_args()


if __name__ == "__main__":
    main()
