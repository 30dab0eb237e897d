"""Fit SetFit for ``quality.py`` and predict dev, in a virtual environment with ``setfit-requirements.txt``.

python benchmarks/setfit_fit.py --encoder FOLDER --train train.jsonl --dev dev.jsonl --seed 0 --out labels.json

FOLDER is a model in the format of sentence-transformers. Rows have the keys text and label. As in the paper (Tunstall
et al. 2022), 20 pairs of each kind per text, one epoch, batches of 16, then logistic regression on the embeddings;
but at most 320 steps, which is one epoch for two classes with 64 texts each.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"  # before transformers is imported

PAIRS_PER_TEXT, BATCH, MOST_STEPS = 20, 16, 320


def main() -> None:
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer
    from setfit import SetFitModel, Trainer, TrainingArguments
    from sklearn.linear_model import LogisticRegression

    options = _options()
    train, dev = _read(options.train), _read(options.dev)
    labels = sorted({row["label"] for row in train})
    model = SetFitModel(SentenceTransformer(str(options.encoder), device="cpu"), LogisticRegression(max_iter=1000))
    texts = [row["text"] for row in train]
    table = Dataset.from_dict({"text": texts, "label": [labels.index(row["label"]) for row in train]})
    steps = -(-2 * PAIRS_PER_TEXT * len(train) // BATCH)
    with tempfile.TemporaryDirectory() as checkpoints:
        arguments = TrainingArguments(
            checkpoints,
            num_iterations=PAIRS_PER_TEXT,
            max_steps=min(steps, MOST_STEPS),
            batch_size=BATCH,
            seed=options.seed,
            save_strategy="no",
            report_to="none",
            show_progress_bar=False,
        )
        Trainer(model, args=arguments, train_dataset=table).train()
    predicted = model.predict([row["text"] for row in dev], show_progress_bar=False)
    options.out.write_text(json.dumps([labels[int(index)] for index in predicted]), encoding="utf-8")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("encoder", "train", "dev", "out"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def _read(path: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]


if __name__ == "__main__":
    main()
