"""Shared fixtures: a tiny random encoder with a real tokenizer, tiny tasks, stores and whole runs made from them.

Nothing is downloaded and everything is seeded. Expensive fixtures live as long as the test run; a test that changes
one works on a copy.
"""

from __future__ import annotations

import os

os.environ["HF_HUB_OFFLINE"] = "1"  # before transformers is imported: a test that reaches for the Hub must fail
os.environ["BERTVISION_PROGRESS"] = "0"

import csv
import json
import string
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import transformers
from hypothesis import settings
from tokenizers import Tokenizer, normalizers, pre_tokenizers, processors
from tokenizers.models import WordPiece

from bertvision.cli.main import main
from bertvision.core.records import Answer, Example
from bertvision.encoders.loading import Encoder, load_encoder
from bertvision.model import QuestionAnswerer, TextClassifier
from bertvision.store.batching import plan_shards
from bertvision.store.store import Store
from bertvision.tasks.task import Task
from bertvision.training import shard_builder as shard_maker
from bertvision.training.extract import extract
from bertvision.training.fit import fit
from bertvision.training.fitted_head import FittedHead
from bertvision.training.tune import tune

# The same examples in every run, and no race against the clock of a busy machine.
settings.register_profile("suite", deadline=None, derandomize=True)
settings.load_profile("suite")

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
PEOPLE = ("Anna", "Ben", "Cleo", "Dora", "Emil", "Fay", "Gus", "Hana", "Ivan", "Jo")
TOWNS = ("Rome", "Oslo", "Lima", "Bern", "Cairo", "Quito", "Delhi", "Minsk")
WORDS = ("lives", "in", "where", "does", "live", "and", "the", "old", "town", "of", "good", "bad", "plain")
SPECS = ("probe:layers=last1", "learned-pool", "compress:size=4,skip=true")
TONES = ("bad", "plain", "good")
QUICK = ("--epochs", "1", "--heads", "mean-pool", "learned-pool", "--seeds", "0", "--set", "fit.epochs=2")


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> Iterator[None]:
    """Tiny tensors are slower on several threads, and equality to the last bit needs a fixed number."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def small_shards() -> Iterator[None]:
    """Shards of a few batches, though no shard of these tests comes near a megabyte."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            shard_maker, "plan_shards", lambda batches, lengths, per, mb: plan_shards(batches, lengths, per * 60, mb)
        )
        yield


def tiny_tokenizer() -> transformers.PreTrainedTokenizerBase:
    """A BERT tokenizer with a few whole words; everything else falls into letters."""
    letters = string.ascii_lowercase + string.digits
    words = [*SPECIAL, *string.punctuation, *letters, *(f"##{letter}" for letter in letters)]
    words += [word.lower() for word in (*WORDS, *PEOPLE[:6], *TOWNS[:5])]
    vocabulary = {word: number for number, word in enumerate(dict.fromkeys(words))}
    backend = Tokenizer(WordPiece(vocabulary, unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.post_processor = processors.BertProcessing(("[SEP]", vocabulary["[SEP]"]), ("[CLS]", vocabulary["[CLS]"]))
    names = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), SPECIAL, strict=True))
    return transformers.BertTokenizerFast(tokenizer_object=backend, **names)


@pytest.fixture(scope="session")
def tiny_encoder_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random BERT of 2 layers, width 16, 2 heads, as transformers saves it."""
    folder = tmp_path_factory.mktemp("encoder") / "tiny-bert"
    tokenizer = tiny_tokenizer()
    config = transformers.BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=64,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        initializer_range=0.2,  # at BERT's own 0.02 a width of 16 hardly mixes its tokens
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        transformers.BertModel(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def tiny_encoder(tiny_encoder_folder: Path) -> Encoder:
    return load_encoder(str(tiny_encoder_folder))


def people_context(number: int, people: int) -> tuple[str, dict[str, str]]:
    """ "Anna lives in Rome. Ben lives ..." and who lives where."""
    homes = {PEOPLE[(number + 3 * i) % 10]: TOWNS[(2 * number + 5 * i) % 8] for i in range(people)}
    return " ".join(f"{person} lives in {town}." for person, town in homes.items()), homes


def people_questions(number: int) -> list[Example]:
    """Two questions on a context that it answers, and one that it does not."""
    context, homes = people_context(number, people=3 + 4 * (number % 3 == 0))
    stranger = next(person for person in PEOPLE if person not in homes)
    examples = []
    for i, person in enumerate([*list(homes)[:2], stranger]):
        home = homes.get(person)
        answers = () if home is None else (Answer(home, context.index(f"{person} lives in {home}") + len(person) + 10),)
        examples.append(Example(f"{number}-{i}", f"Where does {person} live?", context, answers, group=context))
    return examples


@pytest.fixture(scope="session")
def span_task() -> Task:
    """A dozen contexts, three questions each, one of them unanswerable; some contexts need several windows."""
    numbers = {"train": range(6), "inner": range(6, 9), "dev": range(9, 12)}
    splits = {split: tuple(e for n in chosen for e in people_questions(n)) for split, chosen in numbers.items()}
    return Task("tiny-spans", "span", splits, "f1", no_answer=True, max_length=32, overlap=8)


def toned_text(number: int, split: str, pair: bool = False) -> Example:
    tone = number % 3
    text = f"the {TONES[tone]} old town of {TOWNS[(number + len(split)) % 8]} {'and ' * (number % 5)}"
    return Example(f"{split}-{number}", text, "where does Ben live" if pair else None, label=float(tone))


@pytest.fixture(scope="session")
def label_task() -> Task:
    """Single texts with three labels."""
    sizes = {"train": 24, "inner": 12, "dev": 9}
    splits = {split: tuple(toned_text(i, split) for i in range(size)) for split, size in sizes.items()}
    return Task("tiny-labels", "classify", splits, "accuracy", labels=TONES, max_length=32)


@pytest.fixture(scope="session")
def value_task(label_task: Task) -> Task:
    """Pairs of texts with values on another scale than heads learn."""
    splits = {
        split: tuple(
            replace(toned_text(i, split, pair=True), label=40.0 + 10 * (i % 3) + i % 2)
            for i in range(len(label_task[split]))
        )
        for split in label_task.splits
    }
    values = [float(e.label or 0) for e in splits["train"]]
    center = sum(values) / len(values)
    spread = (sum((v - center) ** 2 for v in values) / len(values)) ** 0.5
    return Task("tiny-values", "regress", splits, "pearson", max_length=32, center=center, spread=spread)


@pytest.fixture(scope="session")
def pair_task(value_task: Task) -> Task:
    """Pairs with values; second texts occur in many pairs and in all splits, and one is longer than a window."""
    pairs = ("where does Ben live", "where does Anna live in the old town", "the good old town of Rome and and")
    splits = {
        split: tuple(replace(example, pair=pairs[i % 3]) for i, example in enumerate(examples))
        for split, examples in value_task.splits.items()
    }
    return replace(value_task, splits=splits, max_length=16)


def worded_text(number: int, split: str) -> Example:
    """A text labelled by the tones it names; all eight sets of labels occur, the empty one included."""
    chosen = tuple(index for index in range(3) if number >> index & 1)
    words = " and ".join(TONES[index] for index in chosen)
    return Example(f"{split}-{number}", f"the {words} town {TOWNS[number // 8 % 8]}", labels=chosen)


@pytest.fixture(scope="session")
def set_task() -> Task:
    """Single texts with any of three labels."""
    sizes = {"train": 40, "inner": 16, "dev": 12}
    splits = {split: tuple(worded_text(i, split) for i in range(size)) for split, size in sizes.items()}
    return Task("tiny-sets", "multilabel", splits, "f1_micro", labels=TONES, max_length=32)


@pytest.fixture(scope="session")
def span_encoder(tiny_encoder: Encoder, span_task: Task) -> Encoder:
    """Tuned a little, so that it has its own head."""
    return tune(tiny_encoder, span_task, epochs=10, lr=1e-2, batch=8)


@pytest.fixture(scope="session")
def label_encoder(tiny_encoder: Encoder, label_task: Task) -> Encoder:
    return tune(tiny_encoder, label_task, epochs=10, lr=1e-2, batch=8)


@pytest.fixture(scope="session")
def value_encoder(tiny_encoder: Encoder, value_task: Task) -> Encoder:
    return tune(tiny_encoder, value_task, epochs=10, lr=1e-2, batch=8)


@pytest.fixture(scope="session")
def set_encoder(tiny_encoder: Encoder, set_task: Task) -> Encoder:
    return tune(tiny_encoder, set_task, epochs=10, lr=1e-2, batch=8)


@pytest.fixture(scope="session")
def span_store(span_encoder: Encoder, span_task: Task, tmp_path_factory: pytest.TempPathFactory) -> Store:
    """f32, so that what heads see here equals what they see in a model."""
    return extract(span_encoder, span_task, tmp_path_factory.mktemp("span") / "store", dtype="f32")


@pytest.fixture(scope="session")
def label_store(label_encoder: Encoder, label_task: Task, tmp_path_factory: pytest.TempPathFactory) -> Store:
    return extract(label_encoder, label_task, tmp_path_factory.mktemp("label") / "store", dtype="f32")


@pytest.fixture(scope="session")
def value_store(value_encoder: Encoder, value_task: Task, tmp_path_factory: pytest.TempPathFactory) -> Store:
    return extract(value_encoder, value_task, tmp_path_factory.mktemp("value") / "store", dtype="f32")


@pytest.fixture(scope="session")
def set_store(set_encoder: Encoder, set_task: Task, tmp_path_factory: pytest.TempPathFactory) -> Store:
    return extract(set_encoder, set_task, tmp_path_factory.mktemp("set") / "store", dtype="f32")


@pytest.fixture(scope="session")
def span_heads(span_store: Store) -> list[FittedHead]:
    return fit(SPECS, span_store, epochs=3, lr=3e-2, batch=8)


@pytest.fixture(scope="session")
def label_heads(label_store: Store) -> list[FittedHead]:
    return fit([*SPECS, "learned-pool:pooled=true", "probe:read=mean"], label_store, epochs=3, lr=3e-2, batch=8)


@pytest.fixture(scope="session")
def value_heads(value_store: Store) -> list[FittedHead]:
    return fit(SPECS, value_store, epochs=3, lr=3e-2, batch=8)


@pytest.fixture(scope="session")
def set_heads(set_store: Store) -> list[FittedHead]:
    return fit(SPECS, set_store, epochs=3, lr=3e-2, batch=8)


@pytest.fixture(scope="session")
def qa(span_encoder: Encoder, span_heads: list[FittedHead], span_task: Task) -> QuestionAnswerer:
    return QuestionAnswerer(span_encoder, span_heads[1], span_task)


@pytest.fixture(scope="session")
def classifier(label_encoder: Encoder, label_heads: list[FittedHead], label_task: Task) -> TextClassifier:
    return TextClassifier(label_encoder, label_heads[1], label_task)


def question(name: str, person: str, town: str | None, context: str) -> dict[str, Any]:
    answers = [] if town is None else [{"text": town, "answer_start": context.index(town)}]
    return {"id": name, "question": f"where does {person} live", "answers": answers, "is_impossible": town is None}


def squad(prefix: str = "q", articles: int = 8) -> dict[str, Any]:
    """Articles of one paragraph with two questions, the second unanswerable."""
    data = []
    for number in range(articles):
        town = TOWNS[number % 8]
        context = f"Anna lives in {town}. The old town of {prefix} {number}."
        qas = [
            question(f"{prefix}{number}a", "Anna", town, context),
            question(f"{prefix}{number}b", "Ben", None, context),
        ]
        data.append({"title": f"{prefix} {number}", "paragraphs": [{"context": context, "qas": qas}]})
    return {"version": "v2.0", "data": data}


def write_squad(path: Path, content: dict[str, Any] | None = None) -> Path:
    path.write_text(json.dumps(squad() if content is None else content), encoding="utf-8")
    return path


def write_csv(path: Path, rows: int = 40, header: tuple[str, str] = ("text", "label")) -> Path:
    with path.open("w", encoding="utf-8", newline="") as file:
        lines = [(f"the {TONES[i % 3]} old town of {TOWNS[i % 8]} {i}", TONES[i % 3]) for i in range(rows)]
        csv.writer(file).writerows([header, *lines])
    return path


def extraction(data: Path, encoder: Path, task: str = "squad2") -> list[object]:
    return ["extract", task, "--train", data, "--to", data.parent / "store", "--encoder", encoder, "--max-length", 48]


def squad_words(folder: Path, encoder: Path) -> list[object]:
    files = ["--train", folder / "train.json", "--dev", folder / "dev.json"]
    return ["run", "squad2", *files, "--encoder", encoder, "--max-length", 48, "--overlap", 8, *QUICK]


def text_words(folder: Path, encoder: Path) -> list[object]:
    return ["run", "text", "--train", folder / "my.csv", "--encoder", encoder, "--max-length", 48, *QUICK]


def made_run(folder: Path, words: list[object]) -> Path:
    assert main([str(word) for word in [*words, "--out", folder / "run"]]) == 0
    return folder / "run"


@pytest.fixture(scope="session")
def samples() -> SimpleNamespace:
    """Functions that write small data and build commands for it."""
    functions = (squad, write_squad, write_csv, extraction, squad_words, text_words, made_run)
    return SimpleNamespace(**{function.__name__: function for function in functions})


@pytest.fixture(scope="session")
def squad_run(tiny_encoder_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("squad-run")
    write_squad(folder / "train.json", squad("t"))
    write_squad(folder / "dev.json", squad("d", 3))
    return made_run(folder, squad_words(folder, tiny_encoder_folder))


@pytest.fixture(scope="session")
def text_run(tiny_encoder_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("text-run")
    write_csv(folder / "my.csv")
    return made_run(folder, text_words(folder, tiny_encoder_folder))
