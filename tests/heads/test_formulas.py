"""Heads of several steps match their formulas, computed the naive way, token by token."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bertvision.core.errors import BadInput
from bertvision.core.records import Kind, Shape
from bertvision.heads.base import Head, build_head
from bertvision.heads.layer_pool import LayerPool

LAYERS, WIDTH, TOKENS = 4, 12, 5
SIZES = (5, 3)


def hidden(layers: int = LAYERS, width: int = WIDTH) -> Tensor:
    return torch.randn(len(SIZES), TOKENS, layers, width, generator=torch.Generator().manual_seed(0))


def mask() -> Tensor:
    return torch.arange(TOKENS)[None] < torch.tensor(SIZES)[:, None]


def random_head(spec: str, kind: Kind = "span", width: int = WIDTH) -> Head:
    """A head whose every parameter is random: biases that start at zero would hide."""
    built = build_head(spec, Shape(LAYERS, width, TOKENS, 2, kind)).eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in built.parameters():
            parameter.copy_(0.5 * torch.randn(parameter.shape, generator=generator))
    return built


def gelu(x: Tensor) -> Tensor:
    return F.gelu(x, approximate="tanh")


def texts() -> list[Tensor]:
    """Each text alone, without padding: (tokens, layers, width)."""
    return [row[:size] for row, size in zip(hidden(), SIZES, strict=True)]


def assert_spans(built: Head, expected: list[Tensor]) -> None:
    got = built(hidden(), mask())
    for row, size, text in zip(got, SIZES, expected, strict=True):
        torch.testing.assert_close(row[:size], text, atol=1e-5, rtol=1e-4)


def pooled(pool: LayerPool, text: Tensor) -> Tensor:
    if not pool.learned:
        return text.mean(1)
    shares = pool.weights.softmax(0)
    return pool.gamma * sum(shares[i] * text[:, i] for i in range(LAYERS))


def shifted(text: Tensor, by: int) -> Tensor:
    """The text moved by so many tokens, zero beyond its ends."""
    moved = torch.zeros_like(text)
    for token in range(len(text)):
        if 0 <= token + by < len(text):
            moved[token] = text[token + by]
    return moved


def convolved(text: Tensor, conv: nn.Conv1d) -> Tensor:
    """A kernel of n tokens, (n - 1) // 2 of them before the middle one."""
    taps = conv.weight.shape[2]
    total = sum(shifted(text, tap - (taps - 1) // 2) @ conv.weight[:, :, tap].T for tap in range(taps))
    return total if conv.bias is None else total + conv.bias


@pytest.mark.parametrize("pool", ["learned", "mean"])
@pytest.mark.parametrize("skip", ["true", "false"])
def test_pool_compress_matches_its_formula(pool: str, skip: str) -> None:
    built = random_head(f"pool-compress:size=3,pool={pool},skip={skip}")
    module = built.module
    expected = []
    for text in texts():
        small = gelu(module.front.down(pooled(module.front.pool, text)))
        expected.append(module.dense(torch.cat([small, text[:, -1]], 1) if skip == "true" else small))
    assert_spans(built, expected)


def test_compress_twice_matches_its_formula() -> None:
    built = random_head("compress-twice:size=3")
    module = built.module
    expected = []
    for text in texts():
        every = [gelu(module.down(text[:, layer])) for layer in range(LAYERS)]
        expected.append(
            module.dense(torch.cat([*every, gelu(module.pooled.down(pooled(module.pooled.pool, text)))], 1))
        )
    assert_spans(built, expected)


def test_token_cnn_strides_by_the_kernel_length_along_the_width() -> None:
    width = 70  # 5 kernels of 16, the last one reaching ten features beyond the state
    built = random_head("token-cnn:size=2", width=width)
    module, state = built.module, hidden(width=width)[1, 2]
    full = F.pad(state, (0, 10))
    first = torch.stack([module.first(full[:, 16 * i : 16 * i + 16].flatten()) for i in range(5)])
    grown = F.pad(F.gelu(first), (0, 0, 0, 3))
    second = torch.stack([module.second(grown[4 * i : 4 * i + 4].flatten()) for i in range(2)])
    third = module.third(F.pad(F.gelu(second), (0, 0, 0, 2)).flatten())
    expected = module.dense(F.gelu(third))
    torch.testing.assert_close(built(hidden(width=width), mask())[1, 2], expected)


def test_dilated_token_cnn_reads_features_from_the_whole_width() -> None:
    built = random_head("token-cnn:size=2,dilated=true,pool=mean", width=64)
    module, state = built.module, hidden(width=64)[0, 1].mean(0)
    first = F.gelu(torch.stack([module.first(state[offset::4]) for offset in range(4)]))
    second = F.gelu(module.second(first.flatten()))
    third = F.gelu(module.third(F.pad(second, (0, 3 * 4))))
    torch.testing.assert_close(built(hidden(width=64), mask())[0, 1], module.dense(third))


def test_ngrams_matches_its_formula() -> None:
    built = random_head("ngrams:size=3,compress=4,longest=4")
    module = built.module
    expected = []
    for text in texts():
        small = gelu(module.front.down(pooled(module.front.pool, text)))
        expected.append(
            module.dense(F.gelu(torch.cat([convolved(small, kernel.conv) for kernel in module.kernels], 1)))
        )
    assert_spans(built, expected)


def test_inception_block_concatenates_four_branches() -> None:
    built = random_head("inception:size=16,compress=4,blocks=1")
    module, block = built.module, built.module.blocks[0]
    expected = []
    for text in texts():
        small = gelu(module.front.down(pooled(module.front.pool, text)))
        branch1, input3, input5 = block.norm1(block.project(small)).split([4, 6, 1], 1)
        branch3 = block.norm3(convolved(input3, block.conv3.conv))
        branch5 = block.norm5(convolved(input5, block.conv5.conv))
        max_pooled = torch.stack([shifted(small, by) for by in (-1, 0, 1)]).amax(0)
        branches = [branch1, branch3, branch5, block.norm_pooled(block.project_pooled(max_pooled))]
        expected.append(module.dense(torch.cat(branches, 1)))
    assert_spans(built, expected)


def test_text_xception_adds_block_outputs_to_their_input() -> None:
    built = random_head("text-xception:size=6,compress=4,blocks=1")
    module, entry = built.module, built.module.entry

    def separable(x: Tensor, part: nn.Module) -> Tensor:
        weight = part.depth.conv.weight  # (channels, 1, 3)
        deep = sum(shifted(x, tap - 1) * weight[:, 0, tap] for tap in range(3))
        return part.norm(part.mix(deep))  # type: ignore[no-any-return]

    expected = []
    for text in texts():
        small = gelu(module.front.down(pooled(module.front.pool, text)))
        x = separable(F.relu(separable(small, entry.first)), entry.second) + entry.norm(entry.shortcut(small))
        deep = x
        for step in module.blocks[0].steps:
            deep = separable(F.relu(deep), step)
        expected.append(module.dense(F.relu(x + deep)))
    assert_spans(built, expected)


def test_flatten_has_weights_for_each_token_position_and_ignores_padding() -> None:
    built = random_head("flatten:size=3", "classify")
    module = built.module
    weight = module.dense.weight.unflatten(1, (TOKENS, LAYERS, 3))
    for got, text in zip(built(hidden(), mask()), texts(), strict=True):
        small = F.gelu(module.down(text))  # (tokens, layers, 3)
        expected = module.dense.bias + torch.einsum("tls,otls->o", small, weight[:, : len(text)])
        torch.testing.assert_close(got, expected)
    longer = torch.ones(2, TOKENS + 1, dtype=torch.bool)
    with pytest.raises(BadInput, match="made for texts of at most 5 tokens, got a longer one"):
        built(torch.zeros(2, TOKENS + 1, LAYERS, WIDTH), longer)


def test_bilstm_reads_each_text_from_both_ends() -> None:
    built = random_head("bilstm:size=3")
    module = built.module
    expected = []
    for text in texts():
        x = pooled(module.pool, text)[None]
        both = torch.cat([module.forward_lstm(x)[0], module.backward_lstm(x.flip(1))[0].flip(1)], -1)
        expected.append(module.dense(both)[0])
    assert_spans(built, expected)


def filters_of(built: Head, x: Tensor) -> Tensor:
    """The filters (maps, taps, width) made from one text."""
    module, made = built.module, built.module.make
    if hasattr(made, "grow"):
        features = F.relu(torch.cat([convolved(x, kernel.conv) for kernel in made.kernels], 1))
        context = F.pad(features.amax(0), (1, 1))
        rows = [
            sum(made.grow.weight[row, 0, tap] * context[tap : len(context) - 2 + tap] for tap in range(3)) + bias
            for row, bias in enumerate(made.grow.bias)
        ]
        values = torch.cat(rows)[: module.maps * module.taps * WIDTH]
    else:
        features, pieces = convolved(x, made.kernel.conv).tanh(), module.maps * module.taps
        ends = [(i * len(x) // pieces, math.ceil((i + 1) * len(x) / pieces)) for i in range(pieces)]
        values = torch.cat([features[start:end].mean(0) for start, end in ends])
    return values.view(module.maps, module.taps, WIDTH) / math.sqrt(module.taps * WIDTH)


@pytest.mark.parametrize("context", ["true", "false"])
@pytest.mark.parametrize("layers", ["all", "last1"])
def test_context_conv_convolves_each_text_with_filters_made_from_it(context: str, layers: str) -> None:
    built = random_head(f"context-conv:size=2,maps=3,taps=2,context={context},layers={layers}")
    module = built.module
    expected = []
    for text in texts():
        x = text[:, -1] if layers == "last1" else pooled(module.pool, text)
        filters = filters_of(built, x)
        maps = [sum(shifted(x, tap) @ kernel[tap] for tap in range(2)) for kernel in filters]
        expected.append(module.dense(F.relu(torch.stack(maps, 1) + module.bias)))
    assert_spans(built, expected)


def self_attention(x: Tensor, attention: nn.Module) -> Tensor:
    """Self-attention of one text with itself, head by head."""
    query, key, value = attention.qkv(x).chunk(3, -1)
    outputs = []
    for part in range(attention.heads):
        columns = slice(part * x.shape[1] // attention.heads, (part + 1) * x.shape[1] // attention.heads)
        scores = query[:, columns] @ key[:, columns].T / math.sqrt(query[:, columns].shape[1])
        outputs.append(scores.softmax(-1) @ value[:, columns])
    return attention.proj(torch.cat(outputs, 1))  # type: ignore[no-any-return]


def test_ladder_mixes_in_one_layer_per_rung() -> None:
    built = random_head("ladder:size=4,heads=2")
    module = built.module
    expected = []
    for text in texts():
        x = module.down[0](text[:, 0])
        for number, rung in enumerate(module.rungs):
            if number:
                gate = module.gates[number - 1].sigmoid()
                x = (1 - gate) * x + gate * module.down[number](text[:, number])
            x = x + self_attention(rung.norm1(x), rung.attn)
            x = x + rung.fc2(gelu(rung.fc1(rung.norm2(x))))
        expected.append(module.dense(module.norm(x)))
    assert_spans(built, expected)


def test_attention_weighs_layers_per_token_then_attends_over_tokens() -> None:
    built = random_head("attention:size=4,heads=2")
    module = built.module
    expected = []
    for text in texts():
        small = gelu(module.down(text))  # (tokens, layers, 4)
        shares = torch.stack([(row @ module.query / 2 + module.layer_bias).softmax(0) for row in small])
        mixed = torch.stack([share @ row for share, row in zip(shares, small, strict=True)])
        mixed = mixed + self_attention(module.norm1(mixed), module.attn)
        expected.append(module.dense(module.norm2(mixed)))
    assert_spans(built, expected)


def test_select_shrinks_every_group_and_zeroes_short_ones() -> None:
    built = random_head("select:strength=2.0")
    module = built.module
    before = module.weight.detach().clone()
    module.after_step(0.1)
    lengths = before.norm(dim=0)
    after = module.weight.detach()
    torch.testing.assert_close(after.norm(dim=0), (lengths - 0.2).clamp_min(0), atol=1e-6, rtol=1e-5)
    kept = after.any(dim=0)
    assert torch.equal(kept, lengths > 0.2)
    assert 0 < int(kept.sum()) < kept.numel()
    torch.testing.assert_close(F.cosine_similarity(after, before, dim=0)[kept], torch.ones(int(kept.sum())))
    module.after_step(100.0)
    assert not module.weight.any()
    torch.testing.assert_close(module.layer_weights(), torch.full((LAYERS,), 1 / LAYERS))


def test_xception_in_training_gives_finite_outputs_for_a_single_text() -> None:
    built = build_head("xception:scale=0.05", Shape(2, 9, 4, 2, "classify")).train()
    single_text = torch.randn(1, 4, 2, 9, generator=torch.Generator().manual_seed(0))
    assert built(single_text, torch.ones(1, 4, dtype=torch.bool)).isfinite().all()
