"""Words, names and values for generated text, and the form in which its wordings are written down.

Names are put together from word lists, so that no encoder has met them. The last quarter of each
list belongs to ``dev``: its entities, people and towns share no name with ``train``.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal

Split = Literal["train", "dev"]


def _words(text: str) -> tuple[str, ...]:
    """A list of words, written so that it can be read."""
    return tuple(text.split())


FIRST_OF_NAME = _words(
    "Amber Silver Golden Iron Copper Crystal Velvet Scarlet Violet Green Blue White Grey Black Red Winter Summer "
    "Autumn Spring Morning Evening Midnight North South West Eastern High Old New Lower Upper Great Little Quiet "
    "Broad Long Royal Bright Wild Hidden Broken Silent Lonely Twin Seven Stone"
)
LAST_OF_NAME = _words(
    "Gate Harbour Heron Lantern Mountain River Valley Garden Forest Meadow Falcon Raven Eagle Swan Fox Wolf Bear "
    "Crown Anchor Arrow Bell Candle Castle Chapel Cloud Coast Corner Desert Dragon Feather Field Flame Hill Horse "
    "Island Lake Leaf Moon Oak Orchard Palm Pearl Pine Rose Sail Shield Star Tower Wheel Willow"
)
FIRST_NAMES = _words(
    "Clara Anna Maria Helen Ruth Laura Emma Alice Nora Julia Rosa Martha Ellen Grace Irene Lucy Sarah Vera Edith "
    "Thomas Peter Martin Oscar Hugo Victor Daniel Simon Walter Henry Arthur Felix Adam Paul Robert Karl Leo David "
    "Samuel Julian Edmund"
)
SURNAMES = _words(
    "Marsh Holt Stone Reed Frost Lane Hale Ward Brook Cole Drake Finch Grant Hart Kent Lowe Moss Nash Page Rice "
    "Shaw Todd Vance Webb York Barker Carter Dalton Fisher Gardner Harper Keller Lambert Mercer Norton Parker Quinn "
    "Russell Sutton Turner Vaughn Walker Abbott Bishop Crane Doyle Forbes Hobbs"
)
TOWN_STARTS = _words("Ash Bel Cran Dal Elm Fen Gar Hel Is Kel Lin Mar Nor Os Pem Ris Sel Tor Ul Ver Wes Bran Carl Stan")
TOWN_ENDS = _words("ford bury ton by wick ham field mouth stead ville burg dale holm worth port minster")

CLOSINGS = (
    "The two are often confused in older books.",
    "Both are described at length in the local press.",
    "Few people today know much about either of them.",
    "Letters from that time compare the two with some care.",
    "An old handbook praises both, though not in equal measure.",
    "It is no secret that the two have always been rivals.",
)
"""Sentences that state no fact, for paragraphs with few of them."""


@dataclass(frozen=True)
class Attribute:
    """Something that can be said of an entity, in several wordings, and asked in several others.

    ``{E}`` stands for the entity and ``{A}`` for the answer, which ``kind`` and ``detail`` tell how to
    draw (:meth:`Names.value`). ``held`` are questions for dev alone.
    """

    name: str
    kind: str
    detail: str
    says: tuple[str, ...]
    asks: tuple[str, ...]
    held: tuple[str, ...]


@dataclass(frozen=True)
class Domain:
    """A sort of entity: how its members are called, how a second one is introduced, what is said of them."""

    name: str
    called: str
    asides: tuple[str, ...]
    attributes: tuple[Attribute, ...]


def parse_domain(text: str) -> Domain:
    """Read the form the domains are written in.

    First line ``name | how members are called | asides``; then per attribute ``@name kind detail``,
    statements after ``-``, questions after ``?``, and questions held back for dev after ``!``.
    """
    head, *blocks = text.strip().split("\n@")
    name, called, *asides = (part.strip() for part in head.split("|"))
    return Domain(name, called, tuple(asides), tuple(_parse_attribute(block) for block in blocks))


def _parse_attribute(block: str) -> Attribute:
    head, *lines = block.splitlines()
    name, kind, detail = (*head.split(maxsplit=2), "")[:3]
    says, asks, held = (tuple(line[2:] for line in lines if line[0] == mark) for mark in "-?!")
    return Attribute(name, kind, detail, says, asks, held)


class Names:
    """Draws names and values for one split; no entity comes twice."""

    def __init__(self, rng: Random, split: Split) -> None:
        self.rng = rng
        self.split = split
        self.first_of_name = _share(FIRST_OF_NAME, split)
        self.surnames = _share(SURNAMES, split)
        self.towns = [start + end for start in _share(TOWN_STARTS, split) for end in TOWN_ENDS]
        self._used: set[str] = set()

    def entities(self, domain: Domain, count: int) -> list[str]:
        """New names that share no word with each other, so that a name tells them apart."""
        while True:
            firsts = self.rng.sample(self.first_of_name, count)
            lasts = self.rng.sample(LAST_OF_NAME, count)
            names = [domain.called.format(f"{a} {b}") for a, b in zip(firsts, lasts, strict=True)]
            if self._used.isdisjoint(names):
                self._used.update(names)
                return names

    def value(self, attribute: Attribute, taken: Collection[str]) -> str:
        """A value that the paragraph does not have yet: equal ones would make a wrong reading right."""
        while (value := self._draw(attribute)) in taken:
            continue
        return value

    def _draw(self, attribute: Attribute) -> str:
        match attribute.kind:
            case "person":
                return f"{self.rng.choice(FIRST_NAMES)} {self.rng.choice(self.surnames)}"
            case "place":
                return (attribute.detail or "{}").format(self.rng.choice(self.towns))
            case "number":
                return self._number(attribute.detail)
        assert attribute.kind == "choice", attribute
        return self.rng.choice(attribute.detail.split("|"))

    def _number(self, detail: str) -> str:
        """``90..980 metres`` or ``40..900 maps|clocks``; a year is a number without a unit."""
        bounds, _, units = detail.partition(" ")
        low, high = bounds.split("..")
        return f"{self.rng.randint(int(low), int(high))} {self.rng.choice(units.split('|'))}".strip()


def _share(words: Sequence[str], split: Split) -> Sequence[str]:
    """Three quarters for train, the rest for dev."""
    cut = len(words) * 3 // 4
    return words[:cut] if split == "train" else words[cut:]
