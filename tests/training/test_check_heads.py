"""``check_heads``: heads that cannot be fitted are errors before extraction, and ``all`` means the others."""

from __future__ import annotations

import pytest

from bertvision.core.errors import BadInput
from bertvision.encoders.loading import Encoder
from bertvision.tasks.task import Task
from bertvision.training.inputs import check_heads


def test_all_means_heads_that_suit_task_encoder_and_layers(
    tiny_encoder: Encoder, span_task: Task, label_task: Task
) -> None:
    spans, labels = (check_heads(["all"], task, tiny_encoder, "all") for task in (span_task, label_task))
    assert "ladder:size=64" in spans
    assert set(spans) < set(labels)
    assert {"xception", "flatten:size=16", "linear"} <= set(labels) - set(spans)
    assert "probe:layers=last4" not in labels  # there are only three states
    assert check_heads(["probe", "all", "mean-pool"], label_task, tiny_encoder, "all")[0] == "probe"
    assert len(set(labels)) == len(labels)


def test_all_excludes_pooled_heads_without_a_pooler(
    tiny_encoder: Encoder, label_task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "learned-pool:pooled=true" in check_heads(["all"], label_task, tiny_encoder, "all")
    monkeypatch.setattr(Encoder, "has_pooler", property(lambda _: False))
    assert not [spec for spec in check_heads(["all"], label_task, tiny_encoder, "all") if "pooled" in spec]
    with pytest.raises(BadInput, match="needs the pooled CLS, but encoder"):
        check_heads(["learned-pool:pooled=true"], label_task, tiny_encoder, "all")


def test_label_head_on_a_span_task_is_an_error(tiny_encoder: Encoder, span_task: Task) -> None:
    with pytest.raises(BadInput, match="head flatten:size=16 is for labels and values"):
        check_heads(["all", "flatten"], span_task, tiny_encoder, "all")
