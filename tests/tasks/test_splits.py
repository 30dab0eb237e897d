"""Splitting inner and dev off the training data, and saving and reading a task."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from bertvision.core.errors import BadInput
from bertvision.core.records import Answer, Example
from bertvision.tasks.splits import assign_folds, make_splits, split_off
from bertvision.tasks.task import TASKS, BadRow, BadRows, Task, as_paths, check_integer, load_task, read_task, save_task

QUICK = settings(max_examples=60, deadline=None, derandomize=True)


def make_question(article: int, number: int, context: str = "") -> Example:
    context = context or f"context {article}"
    return Example(f"{article}-{number}", "Who?", context, (Answer("c", 0),), group=f"article {article}")


def make_articles(sizes: list[int]) -> list[Example]:
    return [make_question(article, number) for article, size in enumerate(sizes) for number in range(size)]


def labelled_texts(labels: list[int]) -> list[Example]:
    return [Example(str(i), f"text {i}", label=float(label)) for i, label in enumerate(labels)]


@QUICK
@given(st.lists(st.integers(1, 30), min_size=2, max_size=40), st.randoms(use_true_random=False), st.booleans())
def test_split_off_keeps_groups_together_and_both_parts_nonempty(sizes: list[int], random: Random, many: bool) -> None:
    examples = make_articles(sizes if many else sizes[:4])
    train, inner = split_off(examples, stratify=False)
    assert train
    assert inner
    assert not {e.group for e in train} & {e.group for e in inner}
    assert Counter(train + inner) == Counter(examples)
    shuffled = list(examples)
    random.shuffle(shuffled)
    again, inner_again = split_off(shuffled, stratify=False)
    assert (set(again), set(inner_again)) == (set(train), set(inner))


@QUICK
@given(st.lists(st.integers(1, 30), min_size=2, max_size=40))
def test_split_off_takes_a_tenth_up_to_half_a_group(sizes: list[int]) -> None:
    _, inner = split_off(make_articles(sizes), stratify=False)
    smallest_alone = len({e.group for e in inner}) == 1 and len(inner) == min(sizes)
    assert smallest_alone or abs(len(inner) - 0.1 * sum(sizes)) <= max(sizes) / 2


@QUICK
@given(st.lists(st.integers(1, 12), min_size=1, max_size=40), st.randoms(use_true_random=False), st.integers(2, 6))
def test_folds_keep_groups_together_and_do_not_depend_on_order(sizes: list[int], random: Random, count: int) -> None:
    examples = make_articles(sizes)
    folds = dict(zip(examples, assign_folds(examples, False, count), strict=True))
    groups = {example.group: {folds[other] for other in examples if other.group == example.group} for example in folds}
    assert all(len(of_group) == 1 for of_group in groups.values())
    assert set(folds.values()) == set(range(min(count, len(sizes)))), "no fold is empty"
    groups_by_fold = Counter(next(iter(of_group)) for of_group in groups.values())
    assert max(groups_by_fold.values()) - min(groups_by_fold.values()) <= 1
    shuffled = list(examples)
    random.shuffle(shuffled)
    assert assign_folds(shuffled, False, count) == [folds[example] for example in shuffled]


@QUICK
@given(st.lists(st.integers(0, 4), min_size=2, max_size=60), st.integers(2, 6))
def test_folds_have_equal_sizes_and_equal_shares_of_every_label(labels: list[int], count: int) -> None:
    examples = labelled_texts(labels)
    folds = assign_folds(examples, True, count)
    assert set(folds) == set(range(min(count, len(labels))))
    sizes = Counter(folds)
    assert max(sizes.values()) - min(sizes.values()) <= 1
    for label in set(labels):
        of_label = [fold for fold, other in zip(folds, labels, strict=True) if other == label]
        shares = [of_label.count(fold) for fold in range(count)]
        assert max(shares) - min(shares) <= 1


def test_equal_texts_are_in_one_fold_even_with_different_labels() -> None:
    examples = [Example(str(i), f"text {i // 3}", label=float(i % 2)) for i in range(60)]
    for stratify in (False, True):
        folds = assign_folds(examples, stratify, 5)
        assert all(len(set(folds[first : first + 3])) == 1 for first in range(0, 60, 3))
        assert set(Counter(folds).values()) == {12}


def test_folds_of_label_sets_are_stratified_by_set() -> None:
    sets = [(), (0,), (0, 1), (1,)]
    examples = [Example(str(i), f"text {i}", labels=sets[i % 4]) for i in range(40)]
    folds = assign_folds(examples, True, 5)
    for number in range(4):
        assert Counter(folds[number::4]) == dict.fromkeys(range(5), 2)


def test_giant_article_stays_in_train() -> None:
    for giant in range(12):
        sizes = [400 if i == giant else 20 for i in range(12)]
        train, inner = split_off(make_articles(sizes), stratify=False)
        assert len(inner) == 60
        assert f"article {giant}" in {e.group for e in train}


def test_few_articles_are_split_by_context() -> None:
    examples = [make_question(0, n, context=f"context {n % 50}") for n in range(200)]
    train, inner = split_off(examples, stratify=False)
    assert len(inner) == 20
    assert not {e.pair for e in train} & {e.pair for e in inner}


def test_single_group_is_not_split() -> None:
    train, inner = split_off(make_articles([7]), stratify=False)
    assert len(train) == 7
    assert not inner


@QUICK
@given(st.lists(st.integers(0, 30), min_size=30, max_size=200))
def test_stratified_split_keeps_every_label_in_train(labels: list[int]) -> None:
    assume(len(set(labels)) < len(labels))
    train, inner = split_off(labelled_texts(labels), stratify=True)
    assert {e.label for e in train} == {float(label) for label in labels}
    assert len(inner) <= 0.1 * len(labels) + 1
    if min(Counter(labels).values()) >= 3:
        assert abs(len(inner) - 0.1 * len(labels)) <= 1


def test_only_example_of_a_label_stays_in_train() -> None:
    for salt in "abcdefgh":
        train, inner = split_off(labelled_texts([0, 0, 0, 1]), stratify=True, salt=salt)
        assert [e.label for e in inner] == [0.0]
        assert {e.label for e in train} == {0.0, 1.0}


def test_frequent_labels_keep_their_share() -> None:
    _, inner = split_off(labelled_texts([0] * 700 + [1] * 200 + [2] * 100), stratify=True)
    assert Counter(e.label for e in inner) == {0.0: 70, 1.0: 20, 2.0: 10}


@QUICK
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 2)), min_size=10, max_size=60))
def test_equal_texts_stay_together_despite_different_labels(pairs: list[tuple[int, int]]) -> None:
    examples = [Example(str(i), f"text {t}", label=float(label)) for i, (t, label) in enumerate(pairs)]
    train, inner = split_off(examples, stratify=True)
    assert not {e.text for e in train} & {e.text for e in inner}
    assert train
    assert inner or len({e.text for e in examples}) == 1
    backwards = split_off(examples[::-1], stratify=True)
    assert set(backwards[1]) == set(inner)


def test_dev_and_inner_are_different_draws() -> None:
    examples = labelled_texts([0, 1] * 500)
    splits = make_splits(examples, None, stratify=True)
    assert {name: len(split) for name, split in splits.items()} == {"train": 810, "inner": 90, "dev": 100}
    assert len({e.id for split in splits.values() for e in split}) == 1000
    assert set(splits["dev"]) != set(split_off(examples, stratify=True)[1])


def test_limit_samples_the_whole_file_in_order() -> None:
    examples = make_articles([50] * 20)
    splits = make_splits(examples, examples[:300], stratify=False, limit=200)
    used = splits["train"] + splits["inner"]
    assert len(used) == 200
    assert len(splits["dev"]) == 200
    assert len({e.group for e in used}) == 20
    assert list(splits["train"]) == [e for e in examples if e in set(splits["train"])]


@pytest.mark.parametrize("limit", [0, -1, 1.5, "9", True])
def test_limit_must_be_a_positive_integer(limit: object) -> None:
    with pytest.raises(BadInput, match=r"limit: got .* expected an integer of at least 1"):
        make_splits(labelled_texts([0, 1] * 9), None, stratify=True, limit=limit)  # type: ignore[arg-type]


def test_too_few_examples_for_three_splits_is_an_error() -> None:
    with pytest.raises(BadInput, match=r"1 training examples \(limit: 1\) leave no examples for inner"):
        make_splits(labelled_texts([0]), labelled_texts([0]), stratify=True, limit=1)
    with pytest.raises(BadInput, match=r"2 training examples \(limit: none\) leave no examples for inner"):
        make_splits(labelled_texts([0, 1]), None, stratify=True)
    assert all(make_splits(labelled_texts([0, 1, 1]), None, stratify=True).values())


def test_task_survives_saving(tmp_path: Path) -> None:
    odd = Example("é\u2028", "Who\n?", "half \ud83d of a pair", (Answer("half", 0), Answer("of", 7)), None, "g")
    plain = Example("x", "a text", label=0.1)
    splits = {"train": (odd, plain), "inner": (plain,), "dev": ()}
    task = Task("t", "span", splits, "f1", ("no", "yes"), True, 64, 16, skipped={"blank row": 2})
    save_task(task, tmp_path / "new" / "folder")
    assert read_task(tmp_path / "new" / "folder") == task


def test_bad_rows_raise_or_are_counted() -> None:
    strict, lenient = BadRows(skip=False), BadRows(skip=True)
    message = r"f.csv, line 3: blank: got nothing \(use skip_bad \(--skip-bad\) to skip"
    with pytest.raises(BadInput, match=message), strict.row("f.csv, line 3"):
        raise BadRow("blank", "got nothing")
    assert str(lenient) == "no bad rows"
    for _ in range(2):
        with lenient.row("f.csv, line 3"):
            raise BadRow("blank", "got nothing")
    assert str(lenient) == "skipped 2 bad rows: blank (2)"


@pytest.mark.parametrize("name", ["squad1", "squad2", "text"])
def test_unknown_and_missing_options_are_named(name: str) -> None:
    assert name in TASKS
    with pytest.raises(BadInput, match=f"no option of task '{name}' named 'trian'. Did you mean 'train'"):
        load_task(name, trian="x")
    with pytest.raises(BadInput, match=f"task '{name}' needs train"):
        load_task(name, dev="x")


def test_option_none_means_not_given() -> None:
    with pytest.raises(BadInput, match=r"nowhere\.json: no such file"):
        load_task("squad2", train="nowhere.json", encoding=None, max_length=None)


@pytest.mark.parametrize("value", [5, [], [""], ["a", 3], b"x", {"a": 1}])
def test_as_paths_rejects_other_values(value: object) -> None:
    with pytest.raises(BadInput, match=r"train: got .* expected one file or a list of files"):
        as_paths("train", value)  # type: ignore[arg-type]


def test_as_paths_accepts_one_path_or_several() -> None:
    assert as_paths("train", "a") == as_paths("train", Path("a")) == as_paths("train", ["a"]) == (Path("a"),)
    assert as_paths("train", ("a", Path("b"))) == (Path("a"), Path("b"))
    check_integer("x", 0, 0)
