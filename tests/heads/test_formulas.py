"""Heads of several steps against their formulas, computed the naive way, token by token."""

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


def head(spec: str, kind: Kind = "span", width: int = WIDTH) -> Head:
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
    """What stands ``by`` tokens further on; zero beyond the text."""
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
def test_pool_compress(pool: str, skip: str) -> None:
    built = head(f"pool-compress:size=3,pool={pool},skip={skip}")
    body = built.module
    expected = []
    for text in texts():
        small = gelu(body.front.down(pooled(body.front.pool, text)))
        expected.append(body.dense(torch.cat([small, text[:, -1]], 1) if skip == "true" else small))
    assert_spans(built, expected)


def test_compress_twice() -> None:
    built = head("compress-twice:size=3")
    body = built.module
    expected = []
    for text in texts():
        every = [gelu(body.down(text[:, layer])) for layer in range(LAYERS)]
        expected.append(body.dense(torch.cat([*every, gelu(body.pooled.down(pooled(body.pooled.pool, text)))], 1)))
    assert_spans(built, expected)


def test_token_cnn_runs_kernels_of_their_own_length_along_the_width() -> None:
    width = 70  # 5 kernels of 16, ten numbers of the last one beyond the state
    built = head("token-cnn:size=2", width=width)
    body, state = built.module, hidden(width=width)[1, 2]
    full = F.pad(state, (0, 10))
    first = torch.stack([body.first(full[:, 16 * i : 16 * i + 16].flatten()) for i in range(5)])
    grown = F.pad(F.gelu(first), (0, 0, 0, 3))
    second = torch.stack([body.second(grown[4 * i : 4 * i + 4].flatten()) for i in range(2)])
    third = body.third(F.pad(F.gelu(second), (0, 0, 0, 2)).flatten())
    expected = body.dense(F.gelu(third))
    torch.testing.assert_close(built(hidden(width=width), mask())[1, 2], expected)


def test_a_dilated_token_cnn_takes_numbers_from_all_over_the_width() -> None:
    built = head("token-cnn:size=2,dilated=true,pool=mean", width=64)
    body, state = built.module, hidden(width=64)[0, 1].mean(0)
    first = F.gelu(torch.stack([body.first(state[place::4]) for place in range(4)]))
    second = F.gelu(body.second(first.flatten()))
    third = F.gelu(body.third(F.pad(second, (0, 3 * 4))))
    torch.testing.assert_close(built(hidden(width=64), mask())[0, 1], body.dense(third))


def test_ngrams() -> None:
    built = head("ngrams:size=3,compress=4,longest=4")
    body = built.module
    expected = []
    for text in texts():
        small = gelu(body.front.down(pooled(body.front.pool, text)))
        expected.append(body.dense(F.gelu(torch.cat([convolved(small, kernel.conv) for kernel in body.kernels], 1))))
    assert_spans(built, expected)


def test_inception_block_is_four_ways_side_by_side() -> None:
    built = head("inception:size=16,compress=4,blocks=1")
    body, block = built.module, built.module.blocks[0]
    expected = []
    for text in texts():
        small = gelu(body.front.down(pooled(body.front.pool, text)))
        one, six, single = block.norm1(block.project(small)).split([4, 6, 1], 1)
        three, five = block.norm3(convolved(six, block.conv3.conv)), block.norm5(convolved(single, block.conv5.conv))
        highest = torch.stack([shifted(small, by) for by in (-1, 0, 1)]).amax(0)
        ways = [one, three, five, block.norm_pooled(block.project_pooled(highest))]
        expected.append(body.dense(torch.cat(ways, 1)))
    assert_spans(built, expected)


def test_text_xception_adds_what_its_blocks_find() -> None:
    built = head("text-xception:size=6,compress=4,blocks=1")
    body, entry = built.module, built.module.entry

    def separable(x: Tensor, part: nn.Module) -> Tensor:
        weight = part.depth.conv.weight  # (channels, 1, 3)
        deep = sum(shifted(x, tap - 1) * weight[:, 0, tap] for tap in range(3))
        return part.norm(part.mix(deep))  # type: ignore[no-any-return]

    expected = []
    for text in texts():
        small = gelu(body.front.down(pooled(body.front.pool, text)))
        x = separable(F.relu(separable(small, entry.first)), entry.second) + entry.norm(entry.shortcut(small))
        deep = x
        for step in body.blocks[0].steps:
            deep = separable(F.relu(deep), step)
        expected.append(body.dense(F.relu(x + deep)))
    assert_spans(built, expected)


def test_flatten_has_weights_for_each_place_and_counts_padding_as_nothing() -> None:
    built = head("flatten:size=3", "classify")
    body = built.module
    weight = body.dense.weight.unflatten(1, (TOKENS, LAYERS, 3))
    for got, text in zip(built(hidden(), mask()), texts(), strict=True):
        small = F.gelu(body.down(text))  # (tokens, layers, 3)
        expected = body.dense.bias + torch.einsum("tls,otls->o", small, weight[:, : len(text)])
        torch.testing.assert_close(got, expected)
    longer = torch.ones(2, TOKENS + 1, dtype=torch.bool)
    with pytest.raises(BadInput, match="made for texts of at most 5 tokens, got a longer one"):
        built(torch.zeros(2, TOKENS + 1, LAYERS, WIDTH), longer)


def test_bilstm_reads_each_text_from_both_ends() -> None:
    built = head("bilstm:size=3")
    body = built.module
    expected = []
    for text in texts():
        x = pooled(body.pool, text)[None]
        both = torch.cat([body.forward_lstm(x)[0], body.backward_lstm(x.flip(1))[0].flip(1)], -1)
        expected.append(body.dense(both)[0])
    assert_spans(built, expected)


def filters_of(built: Head, x: Tensor) -> Tensor:
    """(maps, taps, width) that one text makes."""
    body, made = built.module, built.module.make
    if hasattr(made, "grow"):
        found = F.relu(torch.cat([convolved(x, kernel.conv) for kernel in made.kernels], 1))
        context = F.pad(found.amax(0), (1, 1))
        rows = [
            sum(made.grow.weight[row, 0, tap] * context[tap : len(context) - 2 + tap] for tap in range(3)) + bias
            for row, bias in enumerate(made.grow.bias)
        ]
        numbers = torch.cat(rows)[: body.maps * body.taps * WIDTH]
    else:
        found, pieces = convolved(x, made.kernel.conv).tanh(), body.maps * body.taps
        ends = [(i * len(x) // pieces, math.ceil((i + 1) * len(x) / pieces)) for i in range(pieces)]
        numbers = torch.cat([found[start:end].mean(0) for start, end in ends])
    return numbers.view(body.maps, body.taps, WIDTH) / math.sqrt(body.taps * WIDTH)


@pytest.mark.parametrize("context", ["true", "false"])
@pytest.mark.parametrize("layers", ["all", "last1"])
def test_context_conv_runs_filters_over_the_text_that_made_them(context: str, layers: str) -> None:
    built = head(f"context-conv:size=2,maps=3,taps=2,context={context},layers={layers}")
    body = built.module
    expected = []
    for text in texts():
        x = text[:, -1] if layers == "last1" else pooled(body.pool, text)
        filters = filters_of(built, x)
        maps = [sum(shifted(x, tap) @ one[tap] for tap in range(2)) for one in filters]
        expected.append(body.dense(F.relu(torch.stack(maps, 1) + body.bias)))
    assert_spans(built, expected)


def looked(x: Tensor, look: nn.Module) -> Tensor:
    """Self-attention of one text with itself, head by head."""
    query, key, value = look.qkv(x).chunk(3, -1)
    seen = []
    for part in range(look.heads):
        at = slice(part * x.shape[1] // look.heads, (part + 1) * x.shape[1] // look.heads)
        scores = query[:, at] @ key[:, at].T / math.sqrt(query[:, at].shape[1])
        seen.append(scores.softmax(-1) @ value[:, at])
    return look.proj(torch.cat(seen, 1))  # type: ignore[no-any-return]


def test_ladder_takes_in_a_layer_at_every_rung() -> None:
    built = head("ladder:size=4,heads=2")
    body = built.module
    expected = []
    for text in texts():
        x = body.down[0](text[:, 0])
        for number, rung in enumerate(body.rungs):
            if number:
                gate = body.gates[number - 1].sigmoid()
                x = (1 - gate) * x + gate * body.down[number](text[:, number])
            x = x + looked(rung.norm1(x), rung.attn)
            x = x + rung.fc2(gelu(rung.fc1(rung.norm2(x))))
        expected.append(body.dense(body.norm(x)))
    assert_spans(built, expected)


def test_attention_chooses_layers_for_each_token_and_then_looks_around() -> None:
    built = head("attention:size=4,heads=2")
    body = built.module
    expected = []
    for text in texts():
        small = gelu(body.down(text))  # (tokens, layers, 4)
        shares = torch.stack([(row @ body.query / 2 + body.layer_bias).softmax(0) for row in small])
        one = torch.stack([share @ row for share, row in zip(shares, small, strict=True)])
        one = one + looked(body.norm1(one), body.attn)
        expected.append(body.dense(body.norm2(one)))
    assert_spans(built, expected)


def test_select_shortens_every_group_and_drops_the_short_ones() -> None:
    built = head("select:strength=2.0")
    body = built.module
    before = body.weight.detach().clone()
    body.after_step(0.1)
    lengths = before.norm(dim=0)
    after = body.weight.detach()
    torch.testing.assert_close(after.norm(dim=0), (lengths - 0.2).clamp_min(0), atol=1e-6, rtol=1e-5)
    kept = after.any(dim=0)
    assert torch.equal(kept, lengths > 0.2)
    assert 0 < int(kept.sum()) < kept.numel()
    torch.testing.assert_close(F.cosine_similarity(after, before, dim=0)[kept], torch.ones(int(kept.sum())))
    body.after_step(100.0)
    assert not body.weight.any()
    torch.testing.assert_close(body.layer_weights(), torch.full((LAYERS,), 1 / LAYERS))


def test_xception_norms_a_lone_value_by_what_it_has_seen() -> None:
    built = build_head("xception:scale=0.05", Shape(2, 9, 4, 2, "classify")).train()
    one = torch.randn(1, 4, 2, 9, generator=torch.Generator().manual_seed(0))
    assert built(one, torch.ones(1, 4, dtype=torch.bool)).isfinite().all()
