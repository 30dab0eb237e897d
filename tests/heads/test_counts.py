"""Parameter counts match published ones, and heads match their formulas computed the naive way."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from torch import Tensor

from bertvision.core.records import Shape
from bertvision.core.runtime import seeded
from bertvision.heads.base import Head, build_head
from bertvision.heads.compress import Compress
from bertvision.heads.info import all_variants, bert_parameters, head_info
from bertvision.heads.layer_pool import LearnedPool, MeanPool
from bertvision.heads.probe import Probe

LARGE = Shape(layers=25, width=1024, tokens=386, outputs=2, kind="span")
BASE = Shape(layers=13, width=768, tokens=386, outputs=2, kind="span")

ON_LARGE = {
    "learned-pool": 2_076,
    "mean-pool": 2_050,
    "compress:size=386": 414_952,
    "compress:size=386,skip=true": 417_000,
    "compress:size=386,shared=false": 9_910_552,
    "compress:size=386,shared=false,skip=true": 9_912_600,
    "compress:size=64": 68_802,
    "compress:size=64,skip=true": 70_850,
    "compress:size=64,shared=false": 1_643_202,
    "compress:size=64,shared=false,skip=true": 1_645_250,
    "compress:size=16": 17_202,
    "compress:size=16,skip=true": 19_250,
    "compress:size=16,shared=false": 410_802,
    "pool-compress:size=386": 396_450,
    "pool-compress:size=386,skip=true": 398_498,
    "probe:layers=last1": 2_050,
    "probe": 51_202,
}
ON_BASE = {
    "learned-pool": 1_552,
    "mean-pool": 1_538,
    "compress:size=16": 12_722,
    "compress:size=16,skip=true": 14_258,
    "compress:size=16,shared=false": 160_370,
    "compress:size=64": 50_882,
    "compress:size=64,skip=true": 52_418,
    "compress:size=64,shared=false": 641_474,
    "compress:size=64,shared=false,skip=true": 643_010,
    "compress:size=386": 306_872,
    "compress:size=386,skip=true": 308_408,
    "compress:size=386,shared=false": 3_868_880,
    "compress:size=386,shared=false,skip=true": 3_870_416,
    "pool-compress:size=386": 297_622,
    "pool-compress:size=386,skip=true": 299_158,
}
BUDGETS = {
    "compress-twice:size=386": 811_000,
    "token-cnn:size=96": 332_000,
    "token-cnn:size=96,dropout=0.1": 332_000,
    "token-cnn:size=106,dilated=true": 406_000,
    "token-cnn:size=98,pool=learned": 312_000,
    "token-cnn:size=98,pool=mean": 312_000,
    "token-cnn:size=96,pool=learned,compress=386": 694_000,
    "ngrams:size=64": 1_110_000,
    "inception:size=896": 6_680_000,
    "text-xception:size=744": 6_600_000,
}
"""Published parameter counts of the paper's span networks whose exact layers are unknown."""

WITH_POOLED = {  # on BERT-large, on BERT-base
    "learned-pool:pooled=true": (2_077, 1_553),
    "pool-compress:size=386,skip=true,pooled=true": (398_499, 299_159),
    "pool-compress:size=386,pool=mean,skip=true,pooled=true": (398_472, 299_144),
    "xception:pooled=true": (264_066, 261_762),
    "xception:residual=true,pooled=true": (266_114, 263_298),
    "xception:full=true,pooled=true": (20_662_106, 20_660_954),
}


@pytest.mark.parametrize(("spec", "parameters"), ON_LARGE.items())
def test_counts_on_bert_large_match_published_ones(spec: str, parameters: int) -> None:
    assert head_info(spec, LARGE)["parameters"] == parameters


@pytest.mark.parametrize(("spec", "parameters"), ON_BASE.items())
def test_counts_on_bert_base_match_published_ones(spec: str, parameters: int) -> None:
    assert head_info(spec, BASE)["parameters"] == parameters


@pytest.mark.parametrize(("spec", "parameters"), WITH_POOLED.items())
def test_counts_with_the_pooled_cls_as_one_more_layer(spec: str, parameters: tuple[int, int]) -> None:
    for shape, expected in zip((LARGE, BASE), parameters, strict=True):
        assert head_info(spec, replace(shape, kind="classify"))["parameters"] == expected


@pytest.mark.parametrize(("spec", "parameters"), BUDGETS.items())
def test_networks_of_unknown_layers_are_close_to_the_published_size(spec: str, parameters: int) -> None:
    assert head_info(spec, LARGE)["parameters"] == pytest.approx(parameters, rel=0.05)
    assert spec in all_variants()


def test_xception_parameters_and_batch_norm_buffers_match_the_published_total() -> None:
    for spec, total in (("xception:pooled=true", 267_010), ("xception:full=true,pooled=true", 20_716_634)):
        with torch.device("meta"):
            head = build_head(spec, replace(LARGE, kind="classify"))
        buffers = sum(buffer.numel() for buffer in head.buffers() if buffer.is_floating_point())
        assert head.num_parameters + buffers == total


@pytest.mark.parametrize(
    ("size", "shape", "parameters"),
    [
        (16, Shape(13, 768, 128, 2, "classify"), 65_554),
        (128, Shape(13, 768, 128, 2, "classify"), 524_418),
        (8, Shape(13, 768, 250, 2, "classify"), 58_154),
        (32, Shape(13, 768, 121, 2, "classify"), 125_282),
        (16, Shape(25, 1024, 128, 2, "classify"), 118_802),
    ],
)
def test_flatten_has_weights_for_every_token(size: int, shape: Shape, parameters: int) -> None:
    assert head_info(f"flatten:size={size}", shape)["parameters"] == parameters


FORMULAS: dict[str, Callable[[int, int, int], int]] = {  # of layers, width, outputs
    "attention:size=64": lambda n, w, o: w * 64 + 64 + 64 + n + 4 * (64**2 + 64) + 4 * 64 + o * 65,
    "bilstm:size=64": lambda n, w, o: n + 1 + 8 * 64 * (w + 64 + 2) + o * 129,
    "context-conv": lambda n, w, o: n + 1 + 9 * w * 64 + 192 + 4 * -(-48 * w // 192) + 16 + o * 17,
    "context-conv:context=false": lambda n, w, o: n + 1 + 3 * w * w + w + 16 + o * 17,
    "ladder:size=64": lambda n, w, o: n * (w * 64 + 64) + n - 1 + n * (8 * 64**2 + 11 * 64) + 128 + o * 65,
    "ngrams:size=64": lambda n, w, o: n + 1 + w * 386 + 386 + 64 * (386 * 28 + 7) + o * (7 * 64 + 1),
    "select:strength=0.5": lambda n, w, o: o * (n * w + 1),
    "text-xception:size=744": lambda n, w, o: (
        n + 1 + w * 386 + 386 + 2 * 386 * 744 + 3 * 386 + 744**2 + 9 * 744 + 9 * (744**2 + 5 * 744) + o * 745
    ),
    "token-cnn:size=96": lambda n, w, o: 32 * 96**2 + (16 * n + 6) * 96 + 3 * 96 * -(-w // 256) * o + o,
    "xception": lambda n, w, o: 192 * n + 258_048 + 513 * o,
    "xception:full=true": lambda n, w, o: 96 * n + 20_655_512 + 2_049 * o,
    "linear:layers=last1": lambda n, w, o: o * (w + 1),
}


@pytest.mark.parametrize("spec", FORMULAS)
@pytest.mark.parametrize(("layers", "width", "outputs"), [(25, 1024, 2), (13, 768, 5), (7, 384, 1), (3, 100, 3)])
def test_counts_match_the_formulas_of_the_docstrings(spec: str, layers: int, width: int, outputs: int) -> None:
    shape = Shape(layers, width, 20, outputs, "classify")
    assert head_info(spec, shape)["parameters"] == FORMULAS[spec](layers, width, outputs)


def test_bert_parameters_match_published_counts() -> None:
    assert bert_parameters(24, 1024) == 335_141_888
    assert bert_parameters(12, 768) == 109_482_240


def test_head_info_describes_a_head_without_allocating_it() -> None:
    info = head_info("compress:skip=true,size=386", LARGE)
    assert info["spec"] == "compress:size=386,skip=true"
    assert (info["name"], info["kind"]) == ("compress", "pointwise")
    assert info["percent"] == pytest.approx(100 * 417_000 / 335_141_888)
    huge = Shape(layers=1001, width=100_000, tokens=386, outputs=2, kind="span")
    assert head_info("compress:size=386,shared=false", huge)["parameters"] == 1001 * (100_000 * 386 + 386 + 772) + 2


def test_head_info_counts_the_parameters_of_a_built_head() -> None:
    for spec in ON_BASE:
        shape = Shape(layers=4, width=8, tokens=5, outputs=3, kind="classify")
        assert build_head(spec, shape).num_parameters == head_info(spec, shape)["parameters"]


SMALL = Shape(layers=4, width=6, tokens=3, outputs=2, kind="span")


def states() -> Tensor:
    return torch.randn(2, 3, SMALL.layers, SMALL.width, generator=torch.Generator().manual_seed(0))


def randomised(spec: str) -> Head:
    """A head whose every parameter is random: biases that start at zero would hide."""
    head = build_head(spec, SMALL)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return head


def outputs(head: Head) -> Tensor:
    hidden = states()
    return head(hidden, torch.ones(hidden.shape[:2], dtype=torch.bool)).detach()  # type: ignore[no-any-return]


def dense(weight: Tensor, bias: Tensor, vector: Tensor) -> Tensor:
    rows = zip(weight, bias, strict=True)
    return torch.stack([sum((w * v for w, v in zip(row, vector, strict=True)), start) for row, start in rows])


def test_learned_pool_is_gamma_times_the_weighted_mean_then_a_linear_layer() -> None:
    head = randomised("learned-pool")
    module = head.module
    assert isinstance(module, LearnedPool)
    shares = module.weights.detach().exp() / module.weights.detach().exp().sum()
    for b in range(2):
        for t in range(3):
            pooled = module.gamma.detach() * sum(shares[i] * states()[b, t, i] for i in range(SMALL.layers))
            expected = dense(module.dense.weight.detach(), module.dense.bias.detach(), pooled)
            torch.testing.assert_close(outputs(head)[b, t], expected)
    torch.testing.assert_close(module.layer_weights(), shares)


def test_learned_pool_starts_close_to_the_mean() -> None:
    with seeded(0):
        module = build_head("learned-pool", LARGE).module
    assert isinstance(module, LearnedPool)
    assert module.gamma.item() == 1.0
    assert (module.layer_weights() - 1 / 25).abs().max() < 0.25 / 25


def test_mean_pool_is_the_mean_then_a_linear_layer() -> None:
    head = randomised("mean-pool")
    assert isinstance(head.module, MeanPool)
    weight, bias = head.module.dense.weight.detach(), head.module.dense.bias.detach()
    pooled = sum(states()[1, 2, i] for i in range(SMALL.layers)) / SMALL.layers
    torch.testing.assert_close(outputs(head)[1, 2], dense(weight, bias, pooled))


def test_probe_is_a_linear_layer_on_the_concatenated_layers() -> None:
    head = randomised("probe:layers=1+3")
    assert isinstance(head.module, Probe)
    concatenated = torch.cat([states()[0, 1, 1], states()[0, 1, 3]])
    expected = dense(head.module.dense.weight.detach(), head.module.dense.bias.detach(), concatenated)
    torch.testing.assert_close(outputs(head)[0, 1], expected)


def gelu(x: Tensor) -> Tensor:
    """The tanh approximation, as in the papers' code."""
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


@pytest.mark.parametrize("skip", [False, True])
@pytest.mark.parametrize("shared", [False, True])
def test_compress_matches_its_formula(shared: bool, skip: bool) -> None:
    head = randomised(f"compress:size=5,shared={str(shared).lower()},skip={str(skip).lower()}")
    module = head.module
    assert isinstance(module, Compress)
    assert len(module.down) == (1 if shared else SMALL.layers)
    for b in range(2):
        for t in range(3):
            parts = []
            for layer, state in enumerate(states()[b, t]):
                kernel = 0 if shared else layer
                parts.append(gelu(dense(module.down[kernel].detach().T, module.bias[kernel, 0].detach(), state)))
            if skip:  # the last layer's state is concatenated uncompressed
                parts.append(states()[b, t, -1])
            expected = dense(module.dense.weight.detach(), module.dense.bias.detach(), torch.cat(parts))
            torch.testing.assert_close(outputs(head)[b, t], expected)


def test_compress_starts_with_small_truncated_weights() -> None:
    with seeded(0):
        module = build_head("compress:size=386", LARGE).module
    assert isinstance(module, Compress)
    assert float(module.down.detach().std()) == pytest.approx(0.88e-3, rel=0.02)  # truncated at two standard deviations
    assert float(module.down.detach().abs().max()) <= 2e-3
    assert float(module.bias.detach().abs().max()) == 0.0


def test_compress_parameters_grow_with_the_size() -> None:
    counts = [build_head(f"compress:size={size}", SMALL).num_parameters for size in range(1, 6)]
    assert all(low < high for low, high in pairwise(counts))
