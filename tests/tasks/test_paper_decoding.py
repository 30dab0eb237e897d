"""The paper's decoding: a test of each rule, and the differences from constrained decoding."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from bertvision.core.records import NO_OFFSET, Answer, Example, WindowTable
from bertvision.encoders.loading import Encoder
from bertvision.evaluation.metrics.paper import paper_scores
from bertvision.model import Model
from bertvision.store.store import Store
from bertvision.tasks.paper_decoding import NO_WINDOW, UNMATCHABLE, golds_by_text, golds_by_window, paper_decode
from bertvision.tasks.span_decoding import MAX_ANSWER_TOKENS, answer_texts, decode
from bertvision.tasks.task import BadRows, Task
from bertvision.tasks.windows import make_windows
from bertvision.training.inputs import split_windows
from bertvision.training.predict import predict_own

QUICK = settings(max_examples=100, deadline=None, derandomize=True)
LOGIT = st.integers(-40, 40).map(lambda n: n / 8)  # few values: many ties
CLS, SEP, WHO, AA, BB, CC, DD = 101, 102, 10, 11, 12, 13, 14
IDS = (CLS, WHO, SEP, AA, BB, CC, DD, SEP)
CONTEXT = "aa bb cc dd"

Logits = NDArray[np.float32]


def table_of(windows: Sequence[Sequence[int]], example: Sequence[int] | None = None, cls: int = 0) -> WindowTable:
    """Tokens of two characters separated by blanks; tokens outside the context have no offsets."""
    context = {AA: 0, BB: 3, CC: 6, DD: 9}
    offsets = [
        np.array([(context[i], context[i] + 2) if i in context else (NO_OFFSET, NO_OFFSET) for i in ids], np.int32)
        for ids in windows
    ]
    numbers = np.arange(len(windows)) * 0 if example is None else np.array(example, np.int64)
    ids = [np.array(ids, np.int32) for ids in windows]
    return WindowTable(numbers, np.full(len(windows), cls), offsets, np.zeros((len(windows), 2)), ids)


def peaks(start: int, end: int, height: float = 6.0, tokens: int = len(IDS)) -> Logits:
    logits = np.zeros((tokens, 2), np.float32)
    logits[start, 0], logits[end, 1] = height, height
    return logits


def decode_question(*logits: Logits, windows: Sequence[Sequence[int]] | None = None) -> tuple[int, ...]:
    """The decoded tokens of one question with these windows."""
    (answer,) = paper_decode(logits, table_of(windows or [IDS] * len(logits)), 1)
    return answer.pieces


def test_paper_start_and_end_are_picked_independently() -> None:
    """The best pair with start <= end would be (CC, DD); the arg-maxes are BB and AA."""
    logits = peaks(4, 3, height=6)
    logits[5, 0], logits[6, 1] = 5.9, 5.9
    (answer,) = paper_decode([logits], table_of([IDS]), 1)
    assert (answer.start, answer.end) == (4, 3)


def test_paper_answer_may_contain_any_token() -> None:
    """Question tokens and separators included: there is no context mask."""
    assert decode_question(peaks(1, 2)) == (WHO, SEP)
    assert decode_question(peaks(2, 4)) == (SEP, AA, BB)
    assert decode_question(peaks(7, 7)) == (SEP,)


def test_paper_answer_has_no_maximum_length() -> None:
    ids = [CLS, *range(1000, 1000 + 3 * MAX_ANSWER_TOKENS)]
    assert decode_question(peaks(1, len(ids) - 1, tokens=len(ids)), windows=[ids]) == tuple(ids[1:])


def test_paper_inverted_span_means_no_answer() -> None:
    assert decode_question(peaks(5, 4)) == ()
    assert decode_question(peaks(4, 0)) == ()  # also where the end is the CLS token


def test_paper_cls_token_alone_means_no_answer() -> None:
    assert decode_question(peaks(0, 0)) == ()
    last = table_of([[*IDS[1:], CLS]], cls=len(IDS) - 1)
    assert paper_decode([peaks(7, 7)], last, 1)[0].pieces == ()
    assert paper_decode([peaks(0, 0)], last, 1)[0].pieces == (WHO,)


def test_paper_span_from_the_cls_token_is_an_answer() -> None:
    assert decode_question(peaks(0, 3)) == (CLS, WHO, SEP, AA)


def test_paper_window_with_the_largest_probability_wins() -> None:
    """Probabilities are compared, not logits, so adding a constant to all logits changes nothing."""
    confident, less_confident = peaks(3, 3, height=5), peaks(4, 4, height=4)
    assert (
        decode_question(confident, less_confident)
        == decode_question(less_confident, confident)
        == decode_question(confident, less_confident + 100)
        == (AA,)
    )
    lopsided = peaks(4, 4, height=9)
    lopsided[:, 1] = 0  # confident about the start only
    assert decode_question(confident, lopsided) == (AA,)


def test_paper_confident_window_without_an_answer_wins() -> None:
    assert decode_question(peaks(3, 3, height=5), peaks(0, 0, height=6)) == ()
    assert decode_question(peaks(3, 3, height=5), peaks(5, 4, height=6)) == ()


def test_paper_first_of_equal_windows_wins() -> None:
    first, second = (CLS, AA, BB), (CLS, CC, DD)
    logits = peaks(1, 2, tokens=3)
    assert decode_question(logits, logits, windows=[first, second]) == (AA, BB)
    assert decode_question(logits, logits, windows=[second, first]) == (CC, DD)


def test_paper_decoding_has_no_null_threshold() -> None:
    """CLS is a close second for start and end, and no threshold is applied to the difference."""
    logits = peaks(3, 6, height=6)
    logits[0] = 5.99
    assert decode_question(logits) == (AA, BB, CC, DD)
    short = peaks(0, 0, height=6)
    short[3, 0], short[6, 1] = 5.99, 5.99
    assert decode_question(short) == ()


def test_paper_probability_is_the_product_of_two_softmaxes() -> None:
    logits = np.log(np.array([[1, 2], [3, 2], [1, 6]], np.float32))
    (answer,) = paper_decode([logits], table_of([IDS[:3]]), 1)
    assert answer.probability == pytest.approx(3 / 5 * 6 / 10)
    extreme = peaks(3, 3, height=3e38)
    assert paper_decode([extreme], table_of([IDS]), 1)[0].probability == 1.0


def test_paper_decoding_groups_windows_by_question() -> None:
    logits = [peaks(3, 3), peaks(4, 4), peaks(5, 5, height=7)]
    answers = paper_decode(logits, table_of([IDS] * 3, example=[2, 0, 2]), 3)
    assert [answer.pieces for answer in answers] == [(BB,), (), (CC,)]
    assert [answer.window for answer in answers] == [1, -1, 2]
    assert answers[1] == NO_WINDOW


def test_paper_decoding_needs_input_ids() -> None:
    full = table_of([IDS])
    with pytest.raises(AssertionError, match="input ids"):
        paper_decode([peaks(3, 3)], WindowTable(full.example, full.cls, full.offsets, full.targets), 1)


@QUICK
@given(st.lists(st.lists(st.tuples(LOGIT, LOGIT), min_size=1, max_size=8), min_size=1, max_size=4))
def test_paper_decoding_equals_a_reference_implementation(windows: list[list[tuple[float, float]]]) -> None:
    """If products are equal up to rounding, any of these windows may win."""
    logits = [np.array(rows, np.float32) for rows in windows]
    products, answers = [], []
    for rows in windows:
        starts, ends = zip(*rows, strict=True)
        probabilities = [np.exp(side) / np.exp(side).sum() for side in (np.array(starts), np.array(ends))]
        first, last = starts.index(max(starts)), ends.index(max(ends))
        products.append(probabilities[0][first] * probabilities[1][last])
        answers.append(IDS[first : last + 1] if (first, last) != (0, 0) else ())
    allowed = [answer for answer, product in zip(answers, products, strict=True) if product > max(products) - 1e-9]
    assert decode_question(*logits, windows=[IDS[: len(rows)] for rows in windows]) in allowed


@pytest.mark.parametrize(
    ("logits", "paper", "constrained"),
    [
        (peaks(4, 4), (BB,), "bb"),  # no difference
        (peaks(5, 3) + peaks(4, 6, height=5), (), "cc dd"),  # inverted: no answer, versus the best valid span
        (peaks(1, 2) + peaks(3, 4, height=3), (WHO, SEP), "aa bb"),  # a span in the question
        (peaks(2, 4) + peaks(4, 2, height=2), (SEP, AA, BB), "bb"),
        (peaks(4, 5) + peaks(0, 0, height=5.5), (BB, CC), "bb cc"),
    ],
)
def test_paper_and_constrained_decoding_of_the_same_logits(
    logits: Logits, paper: tuple[int, ...], constrained: str
) -> None:
    table = table_of([IDS])
    assert paper_decode([logits], table, 1)[0].pieces == paper
    example = Example("q", "who", CONTEXT)
    assert answer_texts(decode([logits], table, 1), [example], 0.0) == {"q": constrained}


def test_paper_and_constrained_decoding_merge_windows_differently() -> None:
    """A more confident window without an answer: the paper gives no answer, constrained decoding finds the span."""
    table, logits = table_of([IDS, IDS]), [peaks(4, 5, height=4), peaks(0, 0, height=5)]
    assert paper_decode(logits, table, 1)[0].pieces == ()
    assert answer_texts(decode(logits, table, 1), [Example("q", "who", CONTEXT)], 0.0) == {"q": "bb cc"}


def test_golds_by_text_tokenise_each_answer_alone(tiny_encoder: Encoder) -> None:
    tokenizer = tiny_encoder.tokenizer
    examples = [
        Example("a", "who", "Anna lives in Rome", (Answer("Rome", 14), Answer("in Rome", 11))),
        Example("b", "who", "Anna lives in Rome"),
    ]
    rome, within = tokenizer.convert_tokens_to_ids(["rome", "in"])
    assert golds_by_text(examples, tokenizer) == [[(rome,), (within, rome)], []]
    assert golds_by_text(examples[1:], tokenizer) == [[]]


def test_golds_by_window_are_whole_tokens(tiny_encoder: Encoder) -> None:
    """ "Rom" is part of a token in its context; alone it is three letters."""
    tokenizer = tiny_encoder.tokenizer
    answers = (Answer("Rome", 14), Answer("Rom", 14), Answer("Anna lives in Rome", 0))
    example = Example("a", "who", "Anna lives in Rome" + " and the old town of Oslo" * 3, answers)
    windows = make_windows([example], tokenizer, "span", 20, 3, BadRows(False))
    assert len(windows) > 1
    numbers = np.zeros(len(windows), np.int64)
    offsets, ids = [w.offsets for w in windows], [w.input_ids for w in windows]
    table = WindowTable(numbers, numbers, offsets, np.zeros((len(windows), 2)), ids)
    whole = tuple(tokenizer(answers[2].text, add_special_tokens=False)["input_ids"])
    assert golds_by_window([example], table) == [[whole[-1:], whole[-1:], whole]]
    assert golds_by_text([example], tokenizer)[0][1] != whole[-1:]
    later_windows = WindowTable(numbers[1:], numbers[1:], offsets[1:], np.zeros((len(windows) - 1, 2)), ids[1:])
    assert golds_by_window([example], later_windows) == [[UNMATCHABLE] * 3]


def test_paper_decoding_of_a_store(span_store: Store, span_encoder: Encoder, span_task: Task) -> None:
    """Logits that peak at the targets score 100, and the scores of the native head have the documented names."""
    examples, table = span_task["dev"], span_store["dev"].table()
    windows = split_windows(span_task, "dev", span_encoder)
    assert [ids.tolist() for ids in table.input_ids] == [window.input_ids.tolist() for window in windows]
    golds = golds_by_window(examples, table)
    assert golds == golds_by_text(examples, span_encoder.tokenizer)
    # Windows with the answer are more confident than those without.
    correct = [peaks(int(w.target[0]), int(w.target[1]), 9 if w.target[1] else 8, len(w)) for w in windows]
    predicted = [answer.pieces for answer in paper_decode(correct, table, len(examples))]
    assert set(paper_scores(golds, predicted).values()) == {100.0}
    native = paper_decode(predict_own(span_store["dev"]).logits, table, len(examples))
    scores = paper_scores(golds, [answer.pieces for answer in native])
    assert {"legacy_exact", "legacy_f1", "HasAns_legacy_f1", "NoAns_legacy_f1"} < set(scores)


def test_model_outputs_include_input_ids(span_encoder: Encoder, span_task: Task) -> None:
    _, table = Model(span_encoder, "encoder", span_task, threshold=0.0).outputs(span_task["dev"][:3])
    expected = split_windows(span_task, "dev", span_encoder)[: len(table)]
    assert [ids.tolist() for ids in table.input_ids] == [window.input_ids.tolist() for window in expected]
