"""One generated paragraph about two entities of a domain, and questions that need it to be read.

Both entities have people, places and numbers, so the type of an answer does not give it away. What
is stated of whom is kept beside the text, so that "cannot be answered" is known and not guessed.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal

from bertvision.tasks.generated_words import CLOSINGS, Attribute, Domain, Names

Kind = Literal["stated", "nowhere", "other", "stranger", "foreign"]
"""How a question relates to its paragraph: the answer is stated; it is stated of neither entity; of
the other entity only (the hard kind); or the question is about an entity that does not occur, of
the same domain or of a foreign one."""

Claim = tuple[str, Attribute]
PLANS = ((0, 3, 3), (0, 3, 2), (0, 2, 3), (1, 2, 2), (1, 2, 2))
"""Attributes stated of both entities, of the first only, of the second only: five or six facts. One
stated of both can only be told apart by the name, which a short tuning hardly learns: so not in all."""
MANY_FACTS = 6
MIXED_SHARE = 0.4  # of paragraphs: facts of both entities in any order
AGAIN_SHARE = 0.6  # of statements that go on about the same entity: "it" in place of the name
JOIN_SHARE = 0.35  # of those: joined to the sentence before
ASIDE_SHARE = 0.5  # of second entities: introduced with an aside
CLOSING_SHARE = 0.4  # of paragraphs with six facts: a last sentence without one, as all others have
HELD_SHARE = 0.5  # of dev's questions: in a wording that train never has


@dataclass(frozen=True)
class Fact:
    """A stated value, and the character it starts at in the context."""

    entity: str
    attribute: Attribute
    answer: str
    start: int


@dataclass(frozen=True)
class Question:
    """A question; ``fact`` is the answer if ``kind`` is stated, else one that looks like it, if there is one."""

    text: str
    kind: Kind
    entity: str
    attribute: Attribute
    fact: Fact | None


@dataclass(frozen=True)
class Paragraph:
    """A context with everything it states and everything that is asked of it."""

    domain: Domain
    entities: tuple[str, ...]
    context: str
    facts: tuple[Fact, ...]
    questions: tuple[Question, ...]


def write_paragraph(domain: Domain, foreign: Domain, kinds: Sequence[Kind], names: Names) -> Paragraph:
    """A paragraph with one question per wanted kind; some may be about something of a foreign domain."""
    first, second, stranger = names.entities(domain, 3)
    story = _Story(domain, names)
    for entity, attribute in _choose_claims(domain, first, second, names.rng):
        story.tell(entity, attribute)
    story.close()
    pools = _question_pools(domain, story.facts, (first, second))
    pools["stranger"] = [(stranger, a) for a in dict.fromkeys(fact.attribute for fact in story.facts)]
    pools["foreign"] = [(name, a) for name in names.entities(foreign, 1) for a in foreign.attributes]
    for pool in pools.values():
        names.rng.shuffle(pool)
    questions = [_ask(kind, pools, story.facts, names) for kind in kinds]
    return Paragraph(domain, (first, second), story.context, tuple(story.facts), tuple(questions))


def _choose_claims(domain: Domain, first: str, second: str, rng: Random) -> list[Claim]:
    """What will be stated of whom: one entity after the other, or mixed."""
    of_first, of_second = _choose_attributes(domain, rng)
    rng.shuffle(of_first)
    rng.shuffle(of_second)
    claims = [(first, attribute) for attribute in of_first] + [(second, attribute) for attribute in of_second]
    if rng.random() < MIXED_SHARE:
        rng.shuffle(claims)
    return claims


def _choose_attributes(domain: Domain, rng: Random) -> tuple[list[Attribute], list[Attribute]]:
    """Attributes of the two entities, at least one kind of value (person, number ...) being in both."""
    while True:
        both, only_first, only_second = rng.choice(PLANS)
        chosen = rng.sample(domain.attributes, both + only_first + only_second)
        of_first, of_second = chosen[: both + only_first], chosen[:both] + chosen[both + only_first :]
        if {attribute.kind for attribute in of_first} & {attribute.kind for attribute in of_second}:
            return of_first, of_second


class _Story:
    """A context that grows by one statement at a time; each answer's place is noted as it is written."""

    def __init__(self, domain: Domain, names: Names) -> None:
        self.domain = domain
        self.names = names
        self.rng = names.rng
        self.context = ""
        self.facts: list[Fact] = []
        self._wordings: set[str] = set()

    def tell(self, entity: str, attribute: Attribute) -> None:
        """State a new value of an attribute, in a wording that the paragraph does not have yet."""
        answer = self.names.value(attribute, {fact.answer for fact in self.facts})
        wording = self.rng.choice([wording for wording in attribute.says if wording not in self._wordings])
        self._wordings.add(wording)
        sentence = self._sentence(wording, entity)
        start = len(self.context) + sentence.index("{A}")
        self.context += sentence.replace("{A}", answer)
        self.facts.append(Fact(entity, attribute, answer, start))

    def close(self) -> None:
        """A last sentence that says nothing, to make up for few facts."""
        if len(self.facts) < MANY_FACTS or self.rng.random() < CLOSING_SHARE:
            self.context += " " + self.rng.choice(CLOSINGS)

    def _sentence(self, wording: str, entity: str) -> str:
        """What to append, with ``{A}`` still open.

        An entity that the sentence before was about may be "it"; a second entity may be introduced
        with an aside.
        """
        told = [fact.entity for fact in self.facts]
        leads = wording.startswith("{E} ")
        if leads and told[-1:] == [entity] and self.rng.random() < AGAIN_SHARE:
            return self._again(wording)
        if leads and told and entity not in told and self.rng.random() < ASIDE_SHARE:
            entity = f"{entity}, {self.rng.choice(self.domain.asides)},"
        sentence = wording.replace("{E}", entity)
        return (" " if told else "") + sentence[0].upper() + sentence[1:]

    def _again(self, wording: str) -> str:
        """Go on with "it": in a sentence of its own, or in the one before unless that is joined already."""
        last = self.context.rpartition(". ")[2]
        if self.rng.random() < JOIN_SHARE and ", and it " not in last:
            self.context = self.context[:-1]
            return ", and it" + wording[3:]
        return " It" + wording[3:]


def _question_pools(domain: Domain, facts: Sequence[Fact], entities: Collection[str]) -> dict[Kind, list[Claim]]:
    """Everything that can be asked of the paragraph's entities, by kind."""
    stated = {(fact.entity, fact.attribute.name) for fact in facts}
    known = {name for _, name in stated}
    missing = [(e, a) for e in sorted(entities) for a in domain.attributes if (e, a.name) not in stated]
    return {
        "stated": [(fact.entity, fact.attribute) for fact in facts],
        "nowhere": [(e, a) for e, a in missing if a.name not in known],
        "other": [(e, a) for e, a in missing if a.name in known],
    }


def _ask(kind: Kind, pools: dict[Kind, list[Claim]], facts: Sequence[Fact], names: Names) -> Question:
    """One question of a kind, each claim at most once; a train wording, or for dev perhaps a held one."""
    if not pools[kind]:
        kind = "nowhere" if kind == "stated" else "stated"
    entity, attribute = pools[kind].pop()
    held = names.split == "dev" and names.rng.random() < HELD_SHARE
    text = names.rng.choice(attribute.held if held else attribute.asks).replace("{E}", entity)
    alike = [fact for fact in facts if fact.attribute == attribute]
    fact = next((fact for fact in alike if fact.entity == entity), alike[0] if alike else None)
    return Question(text, kind, entity, attribute, fact)
