"""The paper's decoding: a test for each of its rules, and where it parts from constrained decoding."""

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
    """Tokens of two characters with a blank between; those that the context does not have are not answers."""
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


def pieces(*logits: Logits, windows: Sequence[Sequence[int]] | None = None) -> tuple[int, ...]:
    """What is said of one question with these windows."""
    (found,) = paper_decode(logits, table_of(windows or [IDS] * len(logits)), 1)
    return found.pieces


def test_start_and_end_are_picked_independently() -> None:
    """The best pair with start <= end would be (CC, DD); the arg-maxes are BB and AA."""
    logits = peaks(4, 3, height=6)
    logits[5, 0], logits[6, 1] = 5.9, 5.9
    (found,) = paper_decode([logits], table_of([IDS]), 1)
    assert (found.start, found.end) == (4, 3)


def test_any_token_can_be_in_an_answer() -> None:
    """Question and separators too: there is no context mask."""
    assert pieces(peaks(1, 2)) == (WHO, SEP)
    assert pieces(peaks(2, 4)) == (SEP, AA, BB)
    assert pieces(peaks(7, 7)) == (SEP,)


def test_there_is_no_longest_answer() -> None:
    ids = [CLS, *range(1000, 1000 + 3 * MAX_ANSWER_TOKENS)]
    assert pieces(peaks(1, len(ids) - 1, tokens=len(ids)), windows=[ids]) == tuple(ids[1:])


def test_an_inverted_span_is_no_answer() -> None:
    assert pieces(peaks(5, 4)) == ()
    assert pieces(peaks(4, 0)) == ()  # also where the end is the CLS token


def test_the_cls_token_alone_is_no_answer() -> None:
    assert pieces(peaks(0, 0)) == ()
    last = table_of([[*IDS[1:], CLS]], cls=len(IDS) - 1)
    assert paper_decode([peaks(7, 7)], last, 1)[0].pieces == ()
    assert paper_decode([peaks(0, 0)], last, 1)[0].pieces == (WHO,)


def test_the_cls_token_and_more_is_an_answer() -> None:
    assert pieces(peaks(0, 3)) == (CLS, WHO, SEP, AA)


def test_the_window_with_the_largest_product_wins() -> None:
    """Probabilities count, not logits: a shift of all logits changes nothing."""
    sure, unsure = peaks(3, 3, height=5), peaks(4, 4, height=4)
    assert pieces(sure, unsure) == pieces(unsure, sure) == pieces(sure, unsure + 100) == (AA,)
    lopsided = peaks(4, 4, height=9)
    lopsided[:, 1] = 0  # sure of the start only
    assert pieces(sure, lopsided) == (AA,)


def test_a_sure_window_without_an_answer_overrules_one_with_an_answer() -> None:
    assert pieces(peaks(3, 3, height=5), peaks(0, 0, height=6)) == ()
    assert pieces(peaks(3, 3, height=5), peaks(5, 4, height=6)) == ()


def test_of_equal_windows_the_first_wins() -> None:
    one, other = (CLS, AA, BB), (CLS, CC, DD)
    logits = peaks(1, 2, tokens=3)
    assert pieces(logits, logits, windows=[one, other]) == (AA, BB)
    assert pieces(logits, logits, windows=[other, one]) == (CC, DD)


def test_there_is_no_null_threshold() -> None:
    """CLS is second best for start and end by a hair, and together better than any threshold would allow."""
    logits = peaks(3, 6, height=6)
    logits[0] = 5.99
    assert pieces(logits) == (AA, BB, CC, DD)
    short = peaks(0, 0, height=6)
    short[3, 0], short[6, 1] = 5.99, 5.99
    assert pieces(short) == ()


def test_the_product_is_of_softmaxes_over_the_tokens_of_the_window() -> None:
    logits = np.log(np.array([[1, 2], [3, 2], [1, 6]], np.float32))
    (found,) = paper_decode([logits], table_of([IDS[:3]]), 1)
    assert found.probability == pytest.approx(3 / 5 * 6 / 10)
    huge = peaks(3, 3, height=3e38)
    assert paper_decode([huge], table_of([IDS]), 1)[0].probability == 1.0


def test_every_question_has_its_own_windows() -> None:
    windows = [peaks(3, 3), peaks(4, 4), peaks(5, 5, height=7)]
    found = paper_decode(windows, table_of([IDS] * 3, example=[2, 0, 2]), 3)
    assert [one.pieces for one in found] == [(BB,), (), (CC,)]
    assert [one.window for one in found] == [1, -1, 2]
    assert found[1] == NO_WINDOW


def test_a_table_without_input_ids_is_refused() -> None:
    full = table_of([IDS])
    with pytest.raises(AssertionError, match="input ids"):
        paper_decode([peaks(3, 3)], WindowTable(full.example, full.cls, full.offsets, full.targets), 1)


@QUICK
@given(st.lists(st.lists(st.tuples(LOGIT, LOGIT), min_size=1, max_size=8), min_size=1, max_size=4))
def test_all_rules_together_against_a_plain_reading(several: list[list[tuple[float, float]]]) -> None:
    """Where products are equal but for rounding, any of those windows may speak."""
    windows = [np.array(rows, np.float32) for rows in several]
    products, said = [], []
    for rows in several:
        starts, ends = zip(*rows, strict=True)
        chances = [np.exp(side) / np.exp(side).sum() for side in (np.array(starts), np.array(ends))]
        first, last = starts.index(max(starts)), ends.index(max(ends))
        products.append(chances[0][first] * chances[1][last])
        said.append(IDS[first : last + 1] if (first, last) != (0, 0) else ())
    allowed = [one for one, product in zip(said, products, strict=True) if product > max(products) - 1e-9]
    assert pieces(*windows, windows=[IDS[: len(rows)] for rows in several]) in allowed


@pytest.mark.parametrize(
    ("logits", "legacy", "constrained"),
    [
        (peaks(4, 4), (BB,), "bb"),  # nothing to disagree on
        (peaks(5, 3) + peaks(4, 6, height=5), (), "cc dd"),  # inverted: nothing, against the best that is a span
        (peaks(1, 2) + peaks(3, 4, height=3), (WHO, SEP), "aa bb"),  # the question is no answer
        (peaks(2, 4) + peaks(4, 2, height=2), (SEP, AA, BB), "bb"),
        (peaks(4, 5) + peaks(0, 0, height=5.5), (BB, CC), "bb cc"),
    ],
)
def test_the_same_logits_decoded_both_ways(logits: Logits, legacy: tuple[int, ...], constrained: str) -> None:
    table = table_of([IDS])
    assert paper_decode([logits], table, 1)[0].pieces == legacy
    example = Example("q", "who", CONTEXT)
    assert answer_texts(decode([logits], table, 1), [example], 0.0) == {"q": constrained}


def test_both_ways_merge_windows_differently() -> None:
    """A window without the answer that is surer: the paper says nothing, the constrained way finds the span."""
    table, logits = table_of([IDS, IDS]), [peaks(4, 5, height=4), peaks(0, 0, height=5)]
    assert paper_decode(logits, table, 1)[0].pieces == ()
    assert answer_texts(decode(logits, table, 1), [Example("q", "who", CONTEXT)], 0.0) == {"q": "bb cc"}


def test_golds_are_all_gold_texts_cut_by_themselves(tiny_encoder: Encoder) -> None:
    tokenizer = tiny_encoder.tokenizer
    examples = [
        Example("a", "who", "Anna lives in Rome", (Answer("Rome", 14), Answer("in Rome", 11))),
        Example("b", "who", "Anna lives in Rome"),
    ]
    rome, within = tokenizer.convert_tokens_to_ids(["rome", "in"])
    assert golds_by_text(examples, tokenizer) == [[(rome,), (within, rome)], []]
    assert golds_by_text(examples[1:], tokenizer) == [[]]


def test_golds_out_of_windows_are_whole_pieces(tiny_encoder: Encoder) -> None:
    """ "Rom" is no piece of its own in its context; by itself it is three letters."""
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
    later = WindowTable(numbers[1:], numbers[1:], offsets[1:], np.zeros((len(windows) - 1, 2)), ids[1:])
    assert golds_by_window([example], later) == [[UNMATCHABLE] * 3]


def test_a_store_decodes_the_legacy_way(span_store: Store, span_encoder: Encoder, span_task: Task) -> None:
    """Logits at the targets are all right; the encoder's own are scored under the agreed names."""
    examples, table = span_task["dev"], span_store["dev"].table()
    windows = split_windows(span_task, "dev", span_encoder)
    assert [ids.tolist() for ids in table.input_ids] == [window.input_ids.tolist() for window in windows]
    golds = golds_by_window(examples, table)
    assert golds == golds_by_text(examples, span_encoder.tokenizer)
    # Windows that hold the answer are surer than those that say there is none.
    right = [peaks(int(w.target[0]), int(w.target[1]), 9 if w.target[1] else 8, len(w)) for w in windows]
    said = [one.pieces for one in paper_decode(right, table, len(examples))]
    assert set(paper_scores(golds, said).values()) == {100.0}
    own = paper_decode(predict_own(span_store["dev"]).logits, table, len(examples))
    scores = paper_scores(golds, [one.pieces for one in own])
    assert {"legacy_exact", "legacy_f1", "HasAns_legacy_f1", "NoAns_legacy_f1"} < set(scores)


def test_a_model_tells_the_input_ids_too(span_encoder: Encoder, span_task: Task) -> None:
    _, table = Model(span_encoder, "encoder", span_task, threshold=0.0).outputs(span_task["dev"][:3])
    expected = split_windows(span_task, "dev", span_encoder)[: len(table)]
    assert [ids.tolist() for ids in table.input_ids] == [window.input_ids.tolist() for window in expected]
