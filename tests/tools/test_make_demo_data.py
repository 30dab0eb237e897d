"""The generated demo data, checked against the facts that the generator used."""

from __future__ import annotations

import gzip
import importlib.util
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertvision.core.errors import BadInput
from bertvision.tasks import demo_data

SCRIPT = Path(__file__).resolve().parents[2] / "tools" / "make_demo_data.py"
_spec = importlib.util.spec_from_file_location("make_demo_data", SCRIPT)
assert _spec is not None
assert _spec.loader is not None
generator = importlib.util.module_from_spec(_spec)
sys.modules[_spec.name] = generator  # dataclasses look their module up
_spec.loader.exec_module(generator)

Attribute, Paragraph, Question, Split = generator.Attribute, generator.Paragraph, generator.Question, generator.Split
DOMAINS, LIMIT, articles, generate = generator.DOMAINS, generator.LIMIT, generator.articles, generator.generate

SEEDS = st.integers(0, 10_000)
SIZES = st.integers(3, 120)
SPLITS = st.sampled_from(["train", "dev"])


def contexts_and_questions(data: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """(context, question) of a data set."""
    return [(p["context"], qa) for article in data["data"] for p in article["paragraphs"] for qa in p["qas"]]


def paragraphs(split: Split, seed: int, questions: int) -> list[Paragraph]:
    return [paragraph for group in articles(split, seed, questions).values() for paragraph in group]


def entities(data: list[Paragraph]) -> set[str]:
    """All entities in the contexts and questions of a split."""
    return {name for p in data for name in (*p.entities, *(question.entity for question in p.questions))}


@pytest.fixture(scope="module")
def train_and_dev() -> tuple[dict[str, Any], dict[str, Any]]:
    return generate()


@settings(max_examples=20, deadline=None)
@given(seed=SEEDS, size=SIZES)
def test_answers_are_at_their_offsets(seed: int, size: int) -> None:
    for data in generate(seed, size, size):
        questions = contexts_and_questions(data)
        assert len(questions) == size
        for context, qa in questions:
            assert bool(qa["answers"]) is not qa["is_impossible"]
            for answer in qa["answers"] + qa.get("plausible_answers", []):
                start = answer["answer_start"]
                assert context[start : start + len(answer["text"])] == answer["text"]


def sentence_around(paragraph: Paragraph, start: int) -> str:
    context = paragraph.context
    return context[context.rfind(". ", 0, start) + 1 : context.find(".", start) + 1]


@settings(max_examples=20, deadline=None)
@given(split=SPLITS, seed=SEEDS, size=SIZES)
def test_answer_offset_is_in_the_sentence_of_its_fact(split: Split, seed: int, size: int) -> None:
    for paragraph in paragraphs(split, seed, size):
        for fact in paragraph.facts:
            sentence = sentence_around(paragraph, fact.start)
            openings = [says.partition("{A}")[0].rpartition("{E}")[2] for says in fact.attribute.says]
            assert any(opening + fact.answer in sentence for opening in openings), sentence


def is_stated(paragraph: Paragraph, question: Question) -> bool:
    return any((fact.entity, fact.attribute) == (question.entity, question.attribute) for fact in paragraph.facts)


@settings(max_examples=20, deadline=None)
@given(split=SPLITS, seed=SEEDS, size=SIZES)
def test_unanswerable_questions_have_no_stated_answer(split: Split, seed: int, size: int) -> None:
    for paragraph in paragraphs(split, seed, size):
        stated_attributes = {fact.attribute for fact in paragraph.facts}
        for question in paragraph.questions:
            assert is_stated(paragraph, question) is (question.kind == "stated")
            assert (question.entity in paragraph.entities) is (question.kind in ("stated", "nowhere", "other"))
            assert (question.attribute in stated_attributes) is (question.kind in ("stated", "other", "stranger"))


@settings(max_examples=20, deadline=None)
@given(split=SPLITS, seed=SEEDS, size=SIZES)
def test_paragraph_has_no_duplicate_answers_or_questions(split: Split, seed: int, size: int) -> None:
    for paragraph in paragraphs(split, seed, size):
        answers = [fact.answer for fact in paragraph.facts]
        texts = [question.text for question in paragraph.questions]
        assert len(set(answers)) == len(answers), "with equal values a wrong reading would be correct"
        assert len(set(texts)) == len(texts)
        assert len({fact.entity for fact in paragraph.facts}) == 2


def test_distractor_questions_have_a_value_of_the_other_entity() -> None:
    distractor_questions = [q for p in paragraphs("train", 0, 1500) for q in p.questions if q.kind == "other"]
    assert len(distractor_questions) >= 60
    assert all(
        q.fact is not None and q.fact.entity != q.entity and q.fact.attribute == q.attribute
        for q in distractor_questions
    )


def test_both_entities_share_a_type_of_value() -> None:
    data = paragraphs("train", 0, 1500)
    pairs = [[{f.attribute.kind for f in p.facts if f.entity == entity} for entity in p.entities] for p in data]
    assert all(first & second for first, second in pairs)
    with_shared_attribute = [p for p in data if len({f.attribute for f in p.facts}) < len(p.facts)]
    assert len(with_shared_attribute) > 0.3 * len(data), "paragraphs that state one attribute of both entities"


def test_ids_are_unique_across_splits(train_and_dev: tuple[dict[str, Any], dict[str, Any]]) -> None:
    ids = [qa["id"] for data in train_and_dev for _, qa in contexts_and_questions(data)]
    assert len(ids) == len(set(ids)) == 1750


def test_share_of_unanswerable_questions(train_and_dev: tuple[dict[str, Any], dict[str, Any]]) -> None:
    for data in train_and_dev:
        impossible = [qa["is_impossible"] for _, qa in contexts_and_questions(data)]
        assert 0.35 <= sum(impossible) / len(impossible) <= 0.40


def test_there_are_enough_articles_and_paragraphs_to_split(
    train_and_dev: tuple[dict[str, Any], dict[str, Any]],
) -> None:
    train, dev = train_and_dev
    assert not {a["title"] for a in train["data"]} & {a["title"] for a in dev["data"]}
    for data in train_and_dev:
        assert len({a["title"] for a in data["data"]}) == len(data["data"]) >= 8
        assert all(3 <= len(p["qas"]) <= 6 for a in data["data"] for p in a["paragraphs"])
    assert 300 <= sum(len(a["paragraphs"]) for a in train["data"]) <= 400
    assert all(
        {p.domain.name for p in group} == {d.name for d in DOMAINS} for group in articles("train", 0, 1500).values()
    )


def test_contexts_are_short_paragraphs(train_and_dev: tuple[dict[str, Any], dict[str, Any]]) -> None:
    contexts = {context for data in train_and_dev for context, _ in contexts_and_questions(data)}
    words = [len(context.split()) for context in contexts]
    assert min(words) >= 60
    assert max(words) <= 115
    assert 80 <= sum(words) / len(words) <= 100
    assert {context.count(".") for context in contexts} <= {4, 5, 6, 7}
    assert not any(mark in context for context in contexts for mark in ("{", "}", "  ", ",,", ",.", "..", " ."))


def test_train_and_dev_share_no_entities_people_or_contexts(
    train_and_dev: tuple[dict[str, Any], dict[str, Any]],
) -> None:
    train, dev = paragraphs("train", 0, 1500), paragraphs("dev", 0, 250)
    people = [{f.answer for p in data for f in p.facts if f.attribute.kind == "person"} for data in (train, dev)]
    assert not entities(train) & entities(dev)
    assert not people[0] & people[1]
    assert not {context for context, _ in contexts_and_questions(train_and_dev[0])} & {
        context for context, _ in contexts_and_questions(train_and_dev[1])
    }
    named = Counter(name for p in train for name in {*p.entities, *(question.entity for question in p.questions)})
    assert max(named.values()) == 1, "an entity belongs to one paragraph"


def test_some_question_wordings_are_in_dev_only() -> None:
    def dev_wordings_used(split: Split, questions: int) -> list[bool]:
        questions_asked = [q for p in paragraphs(split, 0, questions) for q in p.questions]
        return [q.text in [h.replace("{E}", q.entity) for h in q.attribute.held] for q in questions_asked]

    assert not any(dev_wordings_used("train", 1500))
    assert 0.3 < sum(dev_wordings_used("dev", 250)) / 250 < 0.7


def test_generated_data_are_determined_by_the_seed() -> None:
    first, again, other = (generator.document(seed) for seed in (0, 0, 1))
    assert first == again
    first_files, other_files = json.loads(first), json.loads(other)
    assert list(first_files) == ["train.json", "dev.json"]
    assert all(first_files[name] != other_files[name] for name in first_files)
    assert first_files["train.json"] == generate()[0]


def test_shipped_data_equal_the_generated_ones() -> None:
    assert gzip.decompress(demo_data.PATH.read_bytes()).decode("utf-8") == generator.document()


def test_dev_does_not_depend_on_the_size_of_train() -> None:
    assert generate(3, questions=30, dev=40)[1] == generate(3, questions=60, dev=40)[1]


def test_largest_size_can_be_generated() -> None:
    assert [len(contexts_and_questions(data)) for data in generate(1, LIMIT, LIMIT)] == [LIMIT, LIMIT]


@pytest.mark.parametrize("size", [2, LIMIT + 1])
def test_invalid_sizes_are_errors(size: int) -> None:
    with pytest.raises(BadInput, match=f"got {size}, expected 3 to {LIMIT}"):
        generate(questions=size)


@pytest.mark.parametrize("attribute", [a for d in DOMAINS for a in d.attributes], ids=lambda a: a.name)
def test_wordings_have_their_placeholders(attribute: Attribute) -> None:
    assert len(set(attribute.says)) == len(set(attribute.asks)) == 3
    assert attribute.held
    assert all(says.count("{E}") == says.count("{A}") == 1 and says.endswith(".") for says in attribute.says)
    assert not any(says.startswith("{A}") for says in attribute.says), "a capital letter would change the answer"
    assert all(asks.count("{E}") == 1 and asks.endswith("?") for asks in attribute.asks + attribute.held)
    assert not set(attribute.asks) & set(attribute.held)


def test_demo_questions_use_new_names_and_are_answerable_as_labelled() -> None:
    context = demo_data.DEMO_CONTEXT
    assert context.count("Quillbeck") == 1
    names_in_training = {*generator.FIRST_OF_NAME, *generator.LAST_OF_NAME, *generator.SURNAMES}
    assert not {"Cobalt", "Otter", "Ivory", "Lynx", "Agatha", "Pennington"} & {
        *names_in_training,
        *generator.FIRST_NAMES,
    }
    assert "Ivory Lynx" in demo_data.DEMO_QUESTION
    assert "Cobalt Otter" in demo_data.DEMO_UNANSWERABLE
    assert not any(word in context for word in ("shut", "close", "closed", "because"))
