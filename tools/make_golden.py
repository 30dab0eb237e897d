"""Write ``tests/golden/data``: what users' files and commands depend on, as it was in one version.

The data there was written by version 0.1.0. The golden tests prove that a later version reads it, goes on with it and
hashes to the same; so run this only when a format is changed on purpose, and say so in the change log:

    PYTHONPATH=src OMP_NUM_THREADS=1 python tools/make_golden.py            # everything, the files of today included
    PYTHONPATH=src OMP_NUM_THREADS=1 python tools/make_golden.py --facts    # only names, keys and hashes

``--facts`` is for what was added on purpose, such as an option or a table of ``recipes``; look at the difference.
"""

from __future__ import annotations

import csv
import importlib.util
import json
import os
import shutil
import string
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["BERTVISION_PROGRESS"] = "0"

import torch
import transformers
from safetensors.torch import save_file
from tokenizers import Tokenizer, normalizers, pre_tokenizers, processors
from tokenizers.models import WordPiece

import bertvision as bv

TESTS = Path(__file__).parents[1] / "tests" / "golden"


def load_facts() -> Any:
    spec = importlib.util.spec_from_file_location("golden_facts", TESTS / "facts.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


facts = load_facts()
DATA: Path = facts.DATA
LEFT_OUT = ("report.html", "*.svg", "analysis", "where.json", "*.tmp")
"""What is made again from the rest, and large."""

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
TOWNS = ("Rome", "Oslo", "Lima", "Bern", "Cairo", "Quito", "Delhi", "Minsk")
WORDS = (
    "anna",
    "ben",
    "lives",
    "in",
    "where",
    "does",
    "live",
    "and",
    "the",
    "old",
    "town",
    "of",
    "good",
    "bad",
    "plain",
)
TONES = ("bad", "plain", "good")

PLAIN = """task = "text"

[data]
train = ["/data/train.csv"]
"""
FULL = """task = "text"
encoder = "bert-base-uncased"
heads = ["learned-pool"]
seeds = [3]

[data]
train = ["/data/train.csv"]
dev = ["/data/dev.csv"]
extra = ["/data/extra.csv"]
data = "/data/glue"
hub = "stanfordnlp/sst2"
text_column = "text"
pair_column = "pair"
label_column = ["good", "bad"]
label_separator = ";"
encoding = "cp1252"
kind = "multilabel"
class_weights = "balanced"
merge = "any-answerable"
threshold = 0.5
no_answer_share = 0.25
split_seed = 7
limit = 100
skip_bad = true
max_length = 64
overlap = 16

[tune]
method = "adapters:size=4"
epochs = 0.5
head = "probe"
lr = 1e-4
bert_lr = 2e-5
batch = 8
warmup = 0.2
decay = "constant"
weight_decay = 0.1
clip = 2.0
accumulate = 2
checkpointing = true
bf16 = false
save_minutes = 1.0
seed = 5
device = "cpu"

[extract]
dtype = "int8"
layers = "last2"
tokens = "cls"
live = true
max_gb = 2.5
shard_mb = 16
batch_tokens = 512
seed = 9
device = "cpu"

[fit]
epochs = 3
lr = 1e-2
rates = [1e-3, 3e-3]
batch = 16
warmup = 0.3
weight_decay = 0.1
clip = 0.5
order_seed = 2
device = "cpu"
"""


def write(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=1, ensure_ascii=True) + "\n", encoding="utf-8")


def tiny_tokenizer() -> transformers.PreTrainedTokenizerBase:
    """A BERT tokenizer with a few whole words; everything else falls into letters."""
    letters = string.ascii_lowercase + string.digits
    words = [*SPECIAL, ".", "?", *letters, *(f"##{letter}" for letter in letters), *WORDS]
    words += [town.lower() for town in TOWNS[:5]]
    vocabulary = {word: number for number, word in enumerate(dict.fromkeys(words))}
    backend = Tokenizer(WordPiece(vocabulary, unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.post_processor = processors.BertProcessing(("[SEP]", vocabulary["[SEP]"]), ("[CLS]", vocabulary["[CLS]"]))
    names = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), SPECIAL, strict=True))
    return transformers.BertTokenizerFast(tokenizer_object=backend, **names)


def write_encoder(folder: Path) -> None:
    """A random BERT of 2 layers, width 8."""
    tokenizer = tiny_tokenizer()
    config = transformers.BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=8,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=48,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        initializer_range=0.2,
    )
    torch.manual_seed(0)
    transformers.BertModel(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def squad(prefix: str, articles: int) -> dict[str, Any]:
    """Articles of one paragraph with two questions, the second unanswerable."""
    data = []
    for number in range(articles):
        town = TOWNS[number % 8]
        context = f"Anna lives in {town}. The old town of {prefix} {number}."
        answer = {"text": town, "answer_start": context.index(town)}
        qas = [
            {"id": f"{prefix}{number}a", "question": "where does Anna live", "answers": [answer]},
            {"id": f"{prefix}{number}b", "question": "where does Ben live", "answers": []},
        ]
        for one in qas:
            one["is_impossible"] = not one["answers"]
        data.append({"title": f"{prefix} {number}", "paragraphs": [{"context": context, "qas": qas}]})
    return {"version": "v2.0", "data": data}


def write_inputs(folder: Path) -> None:
    write(folder / "train.json", squad("t", 8))
    write(folder / "dev.json", squad("d", 3))
    texts = [f"the {TONES[i % 3]} old town of {TOWNS[i % 8]} {i}" for i in range(36)]
    columns: dict[str, tuple[list[str], list[list[object]]]] = {
        "texts": (["text", "label"], [[text, TONES[i % 3]] for i, text in enumerate(texts)]),
        "sets": (["text", "good", "bad"], [[text, i % 2, i // 2 % 2] for i, text in enumerate(texts)]),
        "values": (["text", "label"], [[text, 0.5 * (i % 3) + i / 10] for i, text in enumerate(texts)]),
    }
    for name, (header, rows) in columns.items():
        with (folder / f"{name}.csv").open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([header, *rows])
    asked = [{"question": "where does Ben live", "context": f"Ben lives in {town}. The old town."} for town in TOWNS]
    for name, lines in {"asked": asked, "texts": [{"text": text} for text in texts[:6]]}.items():
        (folder / f"{name}.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
    (folder / "plain.toml").write_text(PLAIN, encoding="utf-8")
    (folder / "full.toml").write_text(FULL, encoding="utf-8")


def write_files(place: Path) -> None:
    """Everything that a later version has to read, written by this one below ``place``."""
    write_encoder(place / "encoder")
    write_inputs(place)
    with facts.working_in(place):
        for name in ("squad", "text"):
            facts.run_command(*facts.RUNS[name])
        base = bv.load_encoder("encoder")
        tasks = {name: facts.read_task(Path(name) / "store" / "task") for name in ("squad", "text")}
        for name, method in facts.DELTA_ENCODERS.items():
            bv.tune(base, tasks["text"], method=method, epochs=2.0, lr=1e-2, batch=8).save_pretrained(name)
        write_models(base, tasks)
        write_half_done(base, tasks)


def write_models(base: bv.Encoder, tasks: dict[str, bv.Task]) -> None:
    heads = [facts.load_fitted(Path("squad/heads") / spec / "seed0")[0] for spec in facts.SPAN_HEADS[:2]]
    mixed = bv.load_encoder("squad/encoder")
    bv.Model(mixed, ["encoder", *heads], tasks["squad"], "mean", threshold=0.5).save_pretrained("mixed")
    bv.Model(bv.load_encoder("adapters", base=base), "encoder", tasks["text"]).save_pretrained("adapted")


class Stopped(Exception):
    """In place of a kill."""


def write_half_done(base: bv.Encoder, tasks: dict[str, bv.Task]) -> None:
    """The states of a tuning and of a fit that were ended on the way."""
    from bertvision.training import fit as fitting
    from bertvision.training import tuner

    advance, save = tuner.Tuner.step, fitting.save_trainers

    def some_steps(self: Any, batch: Any) -> None:
        if self.steps_done == 3:
            raise Stopped
        advance(self, batch)

    def first_epoch(*given: Any) -> None:
        save(*given)
        raise Stopped

    with mock.patch.object(tuner.Tuner, "step", some_steps), until_stopped():
        bv.tune(base, tasks["text"], saved=Path("tuning.safetensors"), save_minutes=0.0, **facts.INTERRUPTED_TUNING)
    specs, settings = facts.INTERRUPTED_FIT
    both = mock.patch.multiple(fitting, SAVE_SECONDS=0, save_trainers=first_epoch)
    with both, until_stopped():
        fitting.fit(specs, bv.Store("squad/store"), saved=Path("fitting.safetensors"), **settings)


@contextmanager
def until_stopped() -> Iterator[None]:
    try:
        yield
    except Stopped:
        return
    raise AssertionError("it came to its end")


def without_paths(place: Path) -> None:
    """No path of this machine stays: not where a command was typed, nor where a base lies."""
    for path in place.rglob("*"):
        if path.suffix in (".json", ".jsonl", ".toml"):
            text = path.read_text(encoding="utf-8")
            path.write_text(text.replace(f"{place.resolve()}/", "").replace(str(place.resolve()), "."), "utf-8")


def renew_files() -> None:
    shutil.rmtree(DATA, ignore_errors=True)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "golden"
        place.mkdir()
        write_files(place)
        without_paths(place)
        shutil.copytree(place, DATA, ignore=shutil.ignore_patterns(*LEFT_OUT))


def write_facts() -> None:
    """Names, keys and hashes, and what the files that are kept give."""
    write(DATA / "commands.json", facts.commands())
    documents = {name: facts.run_command(*words).document for name, words in facts.DOCUMENTS.items()}
    write(DATA / "documents.json", documents)
    write(DATA / "state_dict_names.json", facts.state_dict_names())
    with tempfile.TemporaryDirectory() as folder:
        facts.copy_inputs(Path(folder) / "here")
        write(DATA / "keys.json", facts.all_keys(Path(folder) / "here"))
    versions = {"transformers": transformers.__version__}
    stores = {name: facts.decoded_hashes(name) for name in ("squad/store", "text/store")}
    with tempfile.TemporaryDirectory() as folder:
        studies = facts.study_names(Path(folder))
    hashes = {"free": facts.free_hashes(), "encoder": facts.encoder_hashes(), "stores": stores, "studies": studies}
    hashes["versions"] = versions
    write(DATA / "hashes.json", hashes)
    for name in facts.DELTA_ENCODERS:
        rows = {str(number): torch.from_numpy(row) for number, row in enumerate(facts.own_outputs(name))}
        save_file(rows, DATA / name / "expected.safetensors")
    write(DATA / "answers.json", {name: facts.answers(name) for name in facts.MODELS})


def main() -> None:
    torch.set_num_threads(1)
    if "--facts" not in sys.argv[1:]:
        renew_files()
    write_facts()


if __name__ == "__main__":
    main()
