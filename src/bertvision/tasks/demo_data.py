"""Data for a demonstration that needs no download: generated questions in the format of SQuAD 2.0.

An article is the chronicle of an invented town and has paragraphs from all domains, so that cutting
off some articles leaves every domain on both sides. Everything follows from the seed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import count, cycle, islice
from pathlib import Path
from random import Random
from typing import Any

from bertvision.core.errors import BadInput
from bertvision.tasks.generated_paragraphs import Kind, Paragraph, Question, write_paragraph
from bertvision.tasks.generated_places import BRIDGE, FESTIVAL, MUSEUM, TELESCOPE
from bertvision.tasks.generated_ventures import COMPANY, EXPEDITION, ORCHESTRA, SHIP
from bertvision.tasks.generated_words import Names, Split

DOMAINS = (MUSEUM, EXPEDITION, BRIDGE, COMPANY, TELESCOPE, SHIP, FESTIVAL, ORCHESTRA)
SHARES: dict[Kind, float] = {"stated": 0.62, "nowhere": 0.24, "other": 0.05, "stranger": 0.04, "foreign": 0.05}
FEWEST, MOST = 3, 6  # questions of one paragraph
FEWEST_ARTICLES = 8
LIMIT = 3000  # questions of a split: dev has towns for that many titles

DEMO_CONTEXT = (
    "The Cobalt Otter Museum was founded by Agatha Pennington with the money from a small inheritance. "
    "It first opened its doors in 1874, on a cold day in spring. The Ivory Lynx Museum, its younger rival, "
    "has welcomed visitors since 1891. It stands in Quillbeck, a short walk from the railway station, and "
    "shows 310 clocks to the public. The walls of the Cobalt Otter Museum are of limestone, which keeps the "
    "halls cool in summer."
)
DEMO_QUESTION = "Where is the Ivory Lynx Museum?"
DEMO_ANSWER = "Quillbeck"
DEMO_UNANSWERABLE = "Why was the Cobalt Otter Museum shut for a time?"

Squad = dict[str, Any]
"""A data set as the official JSON files have it."""


def generate(seed: int = 0, questions: int = 1500, dev: int = 250) -> tuple[Squad, Squad]:
    """(train, dev) with that many questions each; they share no entity, person or town."""
    return _split("train", seed, questions), _split("dev", seed, dev)


def write(folder: Path, seed: int = 0) -> tuple[Path, Path]:
    """Write ``train.json`` and ``dev.json`` into a folder; gives their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = folder / "train.json", folder / "dev.json"
    for path, data in zip(paths, generate(seed), strict=True):
        path.write_text(json.dumps(data, indent=1), encoding="utf-8")
    return paths


def articles(split: Split, seed: int, questions: int) -> dict[str, list[Paragraph]]:
    """Paragraphs by title, with all that is known about them.

    ``dev`` has its own stream of random numbers, so that it stays the same whatever train's size.
    """
    if not FEWEST <= questions <= LIMIT:
        raise BadInput(
            f"generated {split} questions: got {questions}, expected {FEWEST} to {LIMIT}; choose another number"
        )
    rng = Random(2 * seed + (split == "dev"))
    names = Names(rng, split)
    sizes = _sizes(questions, rng)
    titles = rng.sample(names.towns, min(len(sizes), max(FEWEST_ARTICLES, len(sizes) // len(DOMAINS))))
    kinds = iter(_deck(questions, rng))
    result: dict[str, list[Paragraph]] = {f"Chronicle of {town}": [] for town in titles}
    for size, title, domain in zip(sizes, _titles(list(result), len(sizes)), cycle(DOMAINS), strict=False):
        foreign = rng.choice([other for other in DOMAINS if other != domain])
        result[title].append(write_paragraph(domain, foreign, list(islice(kinds, size)), names))
    return result


def _sizes(questions: int, rng: Random) -> list[int]:
    """Questions per paragraph, 3 to 6 and 4.5 on average, with exactly the wanted sum."""
    sizes = [FEWEST] * max(1, round(questions / ((FEWEST + MOST) / 2)))
    while sum(sizes) < questions:
        sizes[rng.choice([i for i, size in enumerate(sizes) if size < MOST])] += 1
    return sizes


def _deck(questions: int, rng: Random) -> list[Kind]:
    """The kinds of all questions, in exact shares, shuffled."""
    counts = {kind: round(share * questions) for kind, share in SHARES.items() if kind != "stated"}
    deck: list[Kind] = [kind for kind, count in counts.items() for _ in range(count)]
    deck += ["stated"] * (questions - len(deck))
    rng.shuffle(deck)
    return deck


def _titles(titles: Sequence[str], paragraphs: int) -> list[str]:
    """The title of each paragraph: consecutive ones share it, so that an article gets all domains."""
    return [titles[i * len(titles) // paragraphs] for i in range(paragraphs)]


def _split(split: Split, seed: int, questions: int) -> Squad:
    ids = (f"{split}-{seed}-{number}" for number in count())
    data = [
        {"title": title, "paragraphs": [_paragraph(paragraph, ids) for paragraph in paragraphs]}
        for title, paragraphs in articles(split, seed, questions).items()
    ]
    return {"version": "v2.0", "data": data}


def _paragraph(paragraph: Paragraph, ids: Iterator[str]) -> Squad:
    return {"context": paragraph.context, "qas": [_question(question, next(ids)) for question in paragraph.questions]}


def _question(question: Question, id_: str) -> Squad:
    """One question as the official files have it; a look-alike answer is a plausible one."""
    fact, impossible = question.fact, question.kind != "stated"
    found = [{"text": fact.answer, "answer_start": fact.start}] if fact else []
    row: Squad = {"id": id_, "question": question.text, "answers": [], "is_impossible": impossible}
    row["plausible_answers" if impossible else "answers"] = found
    return row
