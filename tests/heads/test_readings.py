"""The vectors that represent a text: readings of its tokens, alone and joined, from tokens and from summaries."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from bertvision.core.errors import BadInput
from bertvision.core.records import LayerBatch, Shape
from bertvision.core.summaries import SUMMARIES, summarise_tokens
from bertvision.heads.base import Head, build_head, canonical_spec
from bertvision.heads.readings import check_head_tokens, required_summaries

SHAPE = Shape(layers=3, width=4, tokens=5, outputs=2, kind="classify")
PAIR_READINGS = ("first", "second", "difference", "product", "difference+product", "mean+difference+product")
READINGS = ("cls", "mean", "max", "first_last", "mean+max", "cls+mean+max", "cls+first_last")


@pytest.fixture
def batch() -> LayerBatch:
    """Two texts of five and of three tokens, with other values in the padding."""
    hidden = torch.randn(2, 5, 3, 4, generator=torch.Generator().manual_seed(0))
    mask = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    hidden[~mask] = 99.0
    apart = torch.randn(2, 2, 3, 4, generator=torch.Generator().manual_seed(1))
    return LayerBatch(hidden, mask, torch.zeros(2), torch.arange(2), pooled=torch.ones(2, 4), apart=apart)


def vectors(batch: LayerBatch, read: str) -> Tensor:
    return build_head(f"probe:read={read}", SHAPE).select_inputs(batch)


def summaries_of(batch: LayerBatch, names: tuple[str, ...] = SUMMARIES) -> LayerBatch:
    summaries = summarise_tokens(batch.hidden, batch.mask, names)  # (batch, summaries, layers, width)
    mask = torch.ones(summaries.shape[:2], dtype=torch.bool)
    return replace(batch, hidden=summaries, mask=mask, summaries=names)


def test_single_readings_are_of_the_real_tokens(batch: LayerBatch) -> None:
    short = batch.hidden[1, :3]  # (tokens, layers, width)
    torch.testing.assert_close(vectors(batch, "cls")[1], short[0])
    torch.testing.assert_close(vectors(batch, "mean")[1], short.mean(0))
    torch.testing.assert_close(vectors(batch, "max")[1], short.amax(0))
    torch.testing.assert_close(vectors(batch, "first_last")[1], torch.cat([short[0], short[2]]))


def test_joined_readings_are_more_layers(batch: LayerBatch) -> None:
    joined = vectors(batch, "mean+max")
    assert joined.shape == (2, 6, 4)
    torch.testing.assert_close(joined, torch.cat([vectors(batch, "mean"), vectors(batch, "max")], dim=1))


@pytest.mark.parametrize("read", READINGS)
@pytest.mark.parametrize("layers", ["all", "last1", "0+2"])
def test_summaries_give_the_same_vectors_as_tokens(batch: LayerBatch, read: str, layers: str) -> None:
    head = build_head(f"probe:read={read},layers={layers}", SHAPE)
    torch.testing.assert_close(head.select_inputs(summaries_of(batch)), head.select_inputs(batch))


def test_readings_are_written_in_one_order() -> None:
    assert canonical_spec("probe:read=max+mean") == "probe:read=mean+max"
    assert canonical_spec("probe:read=cls") == "probe"
    assert canonical_spec("ridge:read=product+difference+cls+mean") == "ridge:read=cls+mean+difference+product"


def test_weighted_reading_starts_as_the_mean_and_learns(batch: LayerBatch) -> None:
    head = build_head("probe:read=weighted", SHAPE)
    torch.testing.assert_close(head.select_inputs(batch), vectors(batch, "mean"))
    assert head.num_parameters == build_head("probe", SHAPE).num_parameters + 3 * 4
    head.forward_batch(batch).sum().backward()
    assert head.token_query.grad is not None
    assert bool(head.token_query.grad.abs().sum() > 0)
    with torch.no_grad():
        head.token_query.fill_(5.0)
    assert not torch.allclose(head.select_inputs(batch), vectors(batch, "mean"))


def test_weighted_reading_is_part_of_a_saved_head(batch: LayerBatch) -> None:
    head, other = (build_head("probe:read=mean+weighted", SHAPE) for _ in range(2))
    with torch.no_grad():
        head.token_query.normal_(generator=torch.Generator().manual_seed(1))
    other.load_state_dict(head.state_dict())
    torch.testing.assert_close(other.forward_batch(batch), head.forward_batch(batch))


def test_pooled_is_in_front_of_joined_readings(batch: LayerBatch) -> None:
    head = build_head("probe:read=mean+max,pooled=true", SHAPE)
    inputs = head.select_inputs(batch)
    assert inputs.shape == (2, 7, 4)
    torch.testing.assert_close(inputs[:, 0], torch.ones(2, 4))


def test_pair_readings_compare_texts_of_length_1_in_every_layer(batch: LayerBatch) -> None:
    assert batch.apart is not None
    first, second = (text / text.norm(dim=-1, keepdim=True) for text in batch.apart.unbind(1))
    torch.testing.assert_close(vectors(batch, "first"), first)
    torch.testing.assert_close(vectors(batch, "second"), second)
    torch.testing.assert_close(vectors(batch, "difference"), (first - second).abs())
    torch.testing.assert_close(vectors(batch, "product"), first * second)
    torch.testing.assert_close(vectors(replace(batch, apart=7 * batch.apart), "product"), first * second)
    torch.testing.assert_close(vectors(batch, "product+mean"), torch.cat([vectors(batch, "mean"), first * second], 1))


def test_pair_readings_that_compare_do_not_depend_on_the_order_of_the_texts(batch: LayerBatch) -> None:
    assert batch.apart is not None
    swapped = replace(batch, apart=batch.apart.flip(1))
    for read in ("difference", "product"):
        assert torch.equal(vectors(swapped, read), vectors(batch, read))
    assert torch.equal(vectors(swapped, "first"), vectors(batch, "second"))


def test_pair_readings_select_layers(batch: LayerBatch) -> None:
    selected = build_head("probe:read=difference,layers=0+2", SHAPE).select_inputs(batch)
    assert torch.equal(selected, vectors(batch, "difference")[:, [0, 2]])


def test_text_of_zeros_has_finite_readings(batch: LayerBatch) -> None:
    assert batch.apart is not None
    empty = replace(batch, apart=torch.zeros_like(batch.apart))
    assert not vectors(empty, "first+second+difference+product").any()


def test_selected_windows_keep_their_texts(batch: LayerBatch) -> None:
    assert batch.apart is not None
    second = batch.select(torch.tensor([False, True]))
    assert second.apart is not None
    assert torch.equal(second.apart, batch.apart[1:])
    assert batch.to(torch.device("cpu")).apart is not None


def test_pair_reading_without_texts_is_an_error(batch: LayerBatch) -> None:
    with pytest.raises(BadInput, match="reads each text of a pair by itself, but these states hold none"):
        vectors(replace(batch, apart=None), "product")


@pytest.mark.parametrize("spec", ["bilstm:size=4,read=product", "probe:read=product"])
def test_pair_readings_are_for_pointwise_heads_of_labels_and_values(spec: str) -> None:
    with pytest.raises(BadInput, match="read="):
        build_head(spec, SHAPE if spec.startswith("bilstm") else replace(SHAPE, kind="span"))


@pytest.mark.parametrize("read", [*READINGS, *PAIR_READINGS, "weighted", "mean+weighted"])
@pytest.mark.parametrize("name", ["probe", "tanh", "compress:size=8,skip=true", "learned-pool"])
def test_every_reading_serves_heads_on_one_vector_per_layer(batch: LayerBatch, name: str, read: str) -> None:
    head = build_head(f"{name}{',' if ':' in name else ':'}read={read}", SHAPE)
    assert head.forward_batch(batch).shape == (2, 2)


@pytest.mark.parametrize("read", PAIR_READINGS)
def test_head_with_pair_readings_learns_and_loads(batch: LayerBatch, read: str) -> None:
    head, other = (build_head(f"compress:size=8,read={read}", SHAPE) for _ in range(2))
    head.forward_batch(batch).sum().backward()
    gradients = [parameter.grad for parameter in head.parameters()]
    assert all(gradient is not None and bool(gradient.isfinite().all()) for gradient in gradients)
    other.load_state_dict(head.state_dict())
    torch.testing.assert_close(
        other(batch.hidden, batch.mask, batch.pooled, batch.apart), head(batch.hidden, batch.mask, apart=batch.apart)
    )


def required(spec: str) -> tuple[str, ...] | None:
    return required_summaries(head_for(spec))


def head_for(spec: str) -> Head:
    return build_head(spec, SHAPE)


def test_heads_name_the_summaries_they_read() -> None:
    assert required("probe:read=max+first_last") == ("cls", "last", "max")
    assert required("probe:read=pooled") == ()
    assert required("probe:read=difference+product") == ()
    assert required("probe:read=mean+product") == ("mean",)
    assert required("probe:read=mean+weighted") is None
    assert required("bilstm:size=4") is None


def test_head_that_reads_more_than_was_stored_is_refused() -> None:
    check_head_tokens(head_for("probe:read=mean+max"), "cls+mean+max")
    check_head_tokens(head_for("probe:read=weighted"), "all")
    with pytest.raises(BadInput, match=r"reads cls\+last of each text, but these states are cls\+mean of each text"):
        check_head_tokens(head_for("probe:read=first_last"), "cls+mean")
    with pytest.raises(BadInput, match=r"reads every token, .* --tokens all"):
        check_head_tokens(head_for("probe:read=weighted"), "cls+mean+max")


def test_head_that_reads_pairs_in_another_way_than_they_were_encoded_is_refused() -> None:
    check_head_tokens(head_for("probe:read=mean+product"), "cls+mean", "both")
    check_head_tokens(head_for("probe:read=difference+product"), "none", "apart")
    with pytest.raises(BadInput, match=r"reads each text of a pair by itself, .* --pairs both"):
        check_head_tokens(head_for("probe:read=product"), "all")
    with pytest.raises(BadInput, match=r"reads cls of each text, but these states are mean"):
        check_head_tokens(head_for("probe:read=cls+product"), "mean", "both")
    for spec in ("probe", "probe:read=mean+product", "probe:read=pooled", "bilstm:size=4"):
        with pytest.raises(BadInput, match=r"reads both texts of a pair as one input, .* --pairs both"):
            check_head_tokens(head_for(spec), "none", "apart")
