"""Parameters that every tuning method trains on BERT-base match the papers; nothing is allocated."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers

from bertvision.core.records import Shape
from bertvision.encoders.adapters import Bottleneck
from bertvision.encoders.methods import prepare
from bertvision.heads.base import build_head


def base_model() -> Any:
    config = transformers.BertConfig()
    assert (config.hidden_size, config.num_hidden_layers) == (768, 12)
    with torch.device("meta"):
        return transformers.BertModel(config)


def trained(model: Any, method: str, needs_pooler: bool = False) -> int:
    with torch.device("meta"):
        prepare(model, method, needs_pooler)
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)


def head_count(spec: str, kind: Any) -> int:
    with torch.device("meta"):
        return build_head(spec, Shape(13, 768, 384, 2, kind)).num_parameters


@pytest.mark.parametrize(
    ("method", "head", "count"),
    [
        ("adapters:size=64", ("probe:layers=last1", "span"), 2_419_202),
        ("adapters:size=768", ("probe:layers=last1", "span"), 28_388_354),
        ("adapters:share=layer,norms=false", None, 1_189_632),
        ("adapters:share=3,norms=false", None, 396_544),
        ("adapters:share=all,norms=false", None, 99_136),
        ("adapters:size=64,unfreeze=all", ("probe:layers=last1", "span"), 109_482_240 - 590_592 + 24 * 99_136 + 1_538),
        ("adapters:size=64,unfreeze=1", ("probe:layers=last1", "span"), 7_124_738 + 24 * 99_136),
        ("lora:r=8", None, 12 * 2 * 2 * 8 * 768),
        ("bitfit", None, 102_144),
    ],
)
def test_trained_parameters_on_bert_base_match_the_papers(
    method: str, head: tuple[str, str] | None, count: int
) -> None:
    assert trained(base_model(), method) + (head_count(*head) if head else 0) == count


def test_count_with_the_tanh_head_excludes_its_output_layer() -> None:
    adapters = trained(base_model(), "adapters:size=64,norms=layers,head=tanh", needs_pooler=True)
    classifier = head_count("tanh:read=pooled", "classify") - (768 * 2 + 2)
    assert adapters + classifier == 3_006_720


def test_adapter_matches_its_formula_and_starts_close_to_the_identity() -> None:
    torch.manual_seed(0)
    adapter, hidden = Bottleneck(6, 3), torch.randn(2, 5, 6)
    assert torch.allclose(adapter(hidden), hidden, atol=1e-4)
    assert not torch.equal(adapter(hidden), hidden)
    with torch.no_grad():
        for parameter in adapter.parameters():
            parameter.normal_()
    activation = torch.nn.functional.gelu(hidden @ adapter.down.weight.T + adapter.down.bias)
    expected = hidden + activation @ adapter.up.weight.T + adapter.up.bias
    torch.testing.assert_close(adapter(hidden), expected)
