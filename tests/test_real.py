"""A few end-to-end tests on the real embedded encoder: what a tiny random one cannot show."""

from __future__ import annotations

from pathlib import Path

import pytest

import bertvision as bv
from bertvision.tasks.demo_data import DEMO_CONTEXT, DEMO_QUESTION, write

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> bv.Task:
    train, dev = write(tmp_path_factory.mktemp("generated"))
    return bv.load_task("squad2", train=train, dev=dev, limit=60)


def test_readme_example_from_text_to_an_answer(task: bv.Task, tmp_path: Path) -> None:
    encoder = bv.tune(bv.load_encoder("minilm"), task, epochs=0.5, lr=3e-4)
    store = bv.extract(encoder, task, to=tmp_path / "store")
    heads = bv.fit(["learned-pool", "compress:size=16,skip=true"], store, seeds=[0, 1], epochs=1)
    predictions = bv.predict(heads, store["dev"])
    board = bv.evaluate([*predictions, bv.ensemble(predictions, how="max")], task)
    assert len(board.rows) == 5
    assert {row.parameters for row in board.rows if row.spec == "learned-pool"} == {7 + 1 + 2 * 384 + 2}
    bv.Model(encoder, heads[0], task).save_pretrained(tmp_path / "model")
    answerer = bv.QuestionAnswerer.from_pretrained(tmp_path / "model")
    answer = answerer(question=DEMO_QUESTION, context=DEMO_CONTEXT, handle_impossible_answer=False)
    assert answer["answer"] == DEMO_CONTEXT[answer["start"] : answer["end"]] != ""


def test_last_layer_puts_a_paraphrase_nearer_than_another_sentence(task: bv.Task, tmp_path: Path) -> None:
    """Means of the last states of the untuned encoder, compared by cosine."""
    model = bv.load_encoder("minilm")
    texts = ["The ship sank in a storm.", "A storm made the vessel go down.", "She bakes bread on Sundays."]
    inputs = model.tokenizer(texts, padding=True, return_tensors="pt")
    states = model.model(**inputs).last_hidden_state  # (texts, tokens, width)
    mask = inputs["attention_mask"][..., None]
    means = (states * mask).sum(1) / mask.sum(1)  # (texts, width)
    near, far = (means[0] @ means[other] / means[0].norm() / means[other].norm() for other in (1, 2))
    assert near > far + 0.2
