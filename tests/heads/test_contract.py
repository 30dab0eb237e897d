"""The contract of every registered head: shapes, padding, gradients, saving, options and losses."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch
from safetensors.torch import load, save
from torch import Tensor

from bertvision.core.errors import BadInput
from bertvision.core.records import Kind, Shape
from bertvision.core.registry import Spec, Value, parse_spec
from bertvision.core.runtime import seeded
from bertvision.heads.base import HEADS, Head, HeadModule, build_head, canonical_spec, head_loss, head_losses
from bertvision.heads.info import all_variants, fits

LAYERS, WIDTH, TOKENS = 5, 48, 6
OUTPUTS: Mapping[Kind, int] = {"span": 2, "classify": 3, "multilabel": 3, "regress": 1}
SIZES = (6, 5, 4, 3, 2, 6, 5, 4)

FAST_VARIANTS: Mapping[str, Mapping[str, Value]] = {
    "inception": {"size": 32, "compress": 16, "blocks": 2},
    "ladder": {"size": 16},
    "select": {"strength": 0.1},
    "ngrams": {"size": 8, "compress": 16},
    "text-xception": {"size": 24, "compress": 16, "blocks": 1},
    "token-cnn": {"size": 16},
    "xception": {"scale": 0.05},
}
"""Smaller versions of large heads: nothing tested here depends on the number of channels."""


def module_class(spec: str) -> type[HeadModule]:
    return HEADS[parse_spec(spec).name]


def with_options(spec: str, **options: Value) -> str:
    """The spec of the same head with other options."""
    parsed = parse_spec(spec)
    return canonical_spec(str(Spec(parsed.name, {**parsed.options, **options})))


def shape(kind: Kind) -> Shape:
    return Shape(LAYERS, WIDTH, TOKENS, OUTPUTS[kind], kind)


SPECS = list(
    dict.fromkeys(with_options(spec, **FAST_VARIANTS.get(parse_spec(spec).name, {})) for spec in all_variants())
)
CASES = [(spec, kind) for spec in SPECS for kind in OUTPUTS if fits(spec, shape(kind))]
SPANS = [spec for spec, kind in CASES if kind == "span"]
POINTWISE = [spec for spec in SPECS if module_class(spec).pointwise]
SEQUENCE = [spec for spec in SPECS if not module_class(spec).pointwise]
READING = [(spec, read) for spec in SPECS if "read" in module_class(spec).shared_options for read in ("cls", "mean")]

every_head = pytest.mark.parametrize("spec", SPECS)
every_case = pytest.mark.parametrize(("spec", "kind"), CASES)
span_head = pytest.mark.parametrize("spec", SPANS)
pointwise_head = pytest.mark.parametrize("spec", POINTWISE)
sequence_head = pytest.mark.parametrize("spec", SEQUENCE)


def build(spec: str, kind: Kind, seed: int = 0) -> Head:
    with seeded(seed):
        return build_head(spec, shape(kind)).eval()


def supported_kind(spec: str) -> Kind:
    return "span" if spec in SPANS else "classify"


def random(*size: int, seed: int = 1) -> Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(seed))


def batch(tokens: int = TOKENS, garbage: float = 0.0) -> tuple[Tensor, Tensor, Tensor]:
    """Eight windows of several lengths, padded to ``tokens`` with noise of that size; mask; pooled."""
    hidden = random(len(SIZES), TOKENS, LAYERS, WIDTH)
    padded = garbage * random(len(SIZES), tokens, LAYERS, WIDTH, seed=2)
    mask = torch.arange(tokens)[None] < torch.tensor(SIZES)[:, None]
    padded[:, :TOKENS][mask[:, :TOKENS]] = hidden[mask[:, :TOKENS]]
    return padded, mask, random(len(SIZES), WIDTH, seed=3)


def targets(kind: Kind) -> Tensor:
    """Start and end inside each window; labels; sets of labels, the empty one among them; values."""
    if kind == "span":
        return torch.tensor([(i % size, (i + 1) % size) for i, size in enumerate(SIZES)])
    if kind == "multilabel":
        return torch.tensor([[float(i >> label & 1) for label in range(3)] for i in range(len(SIZES))])
    return torch.arange(len(SIZES)) % 3 if kind == "classify" else random(len(SIZES), seed=4)


def loss(head: Head, kind: Kind) -> Tensor:
    hidden, mask, pooled = batch()
    return head_loss(kind, head(hidden, mask, pooled), targets(kind), mask)


def test_variants_cover_every_registered_head() -> None:
    specs = all_variants()
    assert {parse_spec(spec).name for spec in SPECS} == {parse_spec(spec).name for spec in specs} == set(HEADS)
    assert len(specs) == sum(len(HEADS[name].variants) for name in HEADS)
    assert "probe:layers=last1" in specs  # the control of every leaderboard
    assert all(HEADS[name].source and HEADS[name].__doc__ for name in HEADS)


@every_head
def test_every_head_supports_labels_and_values_and_may_refuse_spans(spec: str) -> None:
    kinds = {kind for case_spec, kind in CASES if case_spec == spec}
    assert kinds >= {"classify", "multilabel", "regress"}
    if not module_class(spec).supports_spans:
        with pytest.raises(BadInput, match="is for labels and values; for spans use another"):
            build(spec, "span")


@every_case
def test_outputs_have_the_expected_shape_and_are_finite(spec: str, kind: Kind) -> None:
    output = build(spec, kind)(*batch())
    assert output.shape == ((len(SIZES), TOKENS, 2) if kind == "span" else (len(SIZES), OUTPUTS[kind]))
    assert output.dtype == torch.float32
    assert output.isfinite().all()


def assert_padding_is_ignored(spec: str, kind: Kind) -> None:
    head = build(spec, kind)
    expected, mask = head(*batch()), batch()[1]
    for tokens, garbage in ((TOKENS, 30.0), (TOKENS + 5, 0.0), (TOKENS + 5, 30.0)):
        got = head(*batch(tokens, garbage))
        if kind == "span":
            got, real = got[:, :TOKENS][mask], expected[mask]
        else:
            real = expected
        torch.testing.assert_close(got, real, atol=1e-5, rtol=1e-5)


@span_head
def test_padding_does_not_change_span_logits(spec: str) -> None:
    assert_padding_is_ignored(spec, "span")


@every_head
@pytest.mark.parametrize("kind", ["classify", "multilabel", "regress"])
def test_padding_does_not_change_label_logits(spec: str, kind: Kind) -> None:
    assert_padding_is_ignored(spec, kind)


@pytest.mark.parametrize(("spec", "read"), READING)
def test_padding_does_not_change_logits_read_by_cls_or_mean(spec: str, read: str) -> None:
    assert_padding_is_ignored(with_options(spec, read=read), "classify")


@span_head
def test_span_logits_are_the_same_alone_and_in_a_batch(spec: str) -> None:
    head, (hidden, mask, pooled) = build(spec, "span"), batch(garbage=30.0)
    batched = head(hidden, mask, pooled)
    for row, size in enumerate(SIZES):
        alone = head(hidden[row : row + 1, :size], mask[row : row + 1, :size])
        torch.testing.assert_close(alone[0], batched[row, :size], atol=1e-5, rtol=1e-5)


@pointwise_head
def test_mean_reads_every_real_token_and_cls_only_the_first(spec: str) -> None:
    hidden, mask, pooled = batch()
    changed = hidden.clone()
    changed[:, 1] += 1.0
    by_cls = build(with_options(spec, read="cls"), "classify")
    by_mean = build(with_options(spec, read="mean"), "classify")
    assert torch.equal(by_cls(hidden, mask, pooled), by_cls(changed, mask, pooled))
    assert not torch.allclose(by_mean(hidden, mask, pooled), by_mean(changed, mask, pooled))


@every_case
def test_every_parameter_gets_a_gradient(spec: str, kind: Kind) -> None:
    head, (hidden, mask, pooled) = build(spec, kind).train(), batch()
    with seeded(0):  # some heads use random numbers
        output = head(hidden, mask, pooled)
    # A span's loss is the same whatever is added to all scores, so its bias would get rounding only.
    (output * random(*output.shape, seed=5)).sum().backward()
    without_gradient = [name for name, p in head.named_parameters() if p.grad is None or not p.grad.abs().max() > 0]
    assert without_gradient == []


@every_case
def test_saved_and_loaded_head_gives_the_same_outputs(spec: str, kind: Kind) -> None:
    head, other = build(spec, kind), build(spec, kind, seed=1)
    assert not torch.equal(head(*batch()), other(*batch()))
    other.load_state_dict(load(save(head.state_dict())))
    assert torch.equal(head(*batch()), other(*batch()))


@every_case
def test_same_seed_gives_the_same_weights(spec: str, kind: Kind) -> None:
    first, second = build(spec, kind).state_dict(), build(spec, kind).state_dict()
    assert list(first) == list(second)
    assert all(torch.equal(first[key], second[key]) for key in first)


@every_case
def test_eight_examples_can_be_overfitted(spec: str, kind: Kind) -> None:
    head = build(spec, kind).train()
    optimizer = torch.optim.Adam(head.parameters(), lr=0.01, fused=True)
    before = float(loss(head, kind).detach())
    with seeded(0):  # some heads use random numbers
        for _ in range(150):
            optimizer.zero_grad()
            current = loss(head, kind)
            if current < 0.1 * before:
                return
            current.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            head.module.after_step(0.01)
    pytest.fail(f"loss {float(current.detach()):.3f} after 150 steps, {before:.3f} before")


@every_case
def test_training_uses_random_numbers_only_if_uses_rng_is_set(spec: str, kind: Kind) -> None:
    head = build(spec, kind).train()
    before = torch.get_rng_state()
    loss(head, kind)
    assert torch.equal(torch.get_rng_state(), before) != head.module.uses_rng


@every_head
def test_spec_is_canonical_and_builds_the_same_head(spec: str) -> None:
    assert canonical_spec(spec) == spec
    assert str(parse_spec(spec)) == spec
    assert build(spec, supported_kind(spec)).spec == spec
    for read in ("cls", "mean") if "read" in module_class(spec).shared_options else ():
        assert build(with_options(spec, read=read), "regress").spec == with_options(spec, read=read)


@every_head
def test_layers_that_are_not_selected_do_not_change_outputs(spec: str) -> None:
    hidden, mask, pooled = batch()
    for layers, ids in (("0+2+4", (0, 2, 4)), ("last2", (3, 4)), ("first2", (0, 1)), ("1+2+3", (1, 2, 3))):
        head = build(with_options(spec, layers=layers), supported_kind(spec))
        assert head.layer_ids == ids
        noise = torch.full_like(hidden, 7.0)
        noise[:, :, list(ids)] = hidden[:, :, list(ids)]
        got = head(hidden, mask, pooled)
        assert torch.equal(got, head(noise, mask, pooled))
        assert torch.equal(got, head(hidden[:, :, list(ids)], mask, pooled))


@pointwise_head
def test_pooled_cls_is_prepended_as_one_more_layer(spec: str) -> None:
    hidden, mask, pooled = batch()
    head = build(with_options(spec, pooled=True, read="cls"), "classify")
    assert head.needs_pooled
    front = torch.cat([pooled[:, None], hidden[:, 0, list(head.layer_ids)]], dim=1)  # (batch, 1 + layers, width)
    torch.testing.assert_close(head(hidden, mask, pooled), head.module(front))
    assert not torch.allclose(head(hidden, mask, pooled), head(hidden, mask, pooled + 1))
    with pytest.raises(BadInput, match="needs the pooled CLS, which this encoder does not have"):
        head(hidden, mask, None)


@pointwise_head
def test_read_pooled_ignores_the_hidden_states(spec: str) -> None:
    hidden, mask, pooled = batch()
    head = build(with_options(spec, read="pooled", pooled=False), "classify")
    assert torch.equal(head(hidden, mask, pooled), head(hidden + 1, mask, pooled))
    assert head.needs_pooled
    with pytest.raises(BadInput, match="needs the pooled CLS"):
        head(hidden, mask)


@pytest.mark.parametrize("spec", [spec for spec in POINTWISE if spec in SPANS])
@pytest.mark.parametrize("option", [{"read": "mean"}, {"read": "pooled"}, {"pooled": True}])
def test_span_heads_refuse_options_that_read_one_vector(spec: str, option: dict[str, Value]) -> None:
    with pytest.raises(BadInput, match="for labels and values; spans read every token"):
        build(with_options(spec, **option), "span")


@sequence_head
def test_sequence_heads_refuse_pooled_and_unsupported_readings(spec: str) -> None:
    with pytest.raises(BadInput, match="no option named 'pooled'"):
        with_options(spec, pooled=True)
    if "read" not in module_class(spec).shared_options:
        with pytest.raises(BadInput, match="no option named 'read'"):
            with_options(spec, read="cls")
        return
    with pytest.raises(BadInput, match="read=pooled, expected one of cls, mean"):
        build(with_options(spec, read="pooled"), "classify")
    other = {"cls": "mean", "mean": "cls"}[str(module_class(spec).shared_options["read"])]
    with pytest.raises(BadInput, match="for labels and values; spans read every token"):
        build(with_options(spec, read=other), "span")


@pytest.mark.parametrize("spec", [spec for spec, read in READING if spec in SEQUENCE and read == "cls"])
def test_sequence_head_reads_the_cls_output_or_the_mean_output(spec: str) -> None:
    (hidden, mask, _), by_token = batch(garbage=30.0), build(spec, "span")
    outputs = by_token(hidden, mask)
    for read in ("cls", "mean"):
        label_shape = Shape(LAYERS, WIDTH, TOKENS, 2, "classify")
        head = build_head(with_options(spec, read=read), label_shape).eval()
        head.load_state_dict(by_token.state_dict())
        expected = [row[0] if read == "cls" else row[:size].mean(0) for row, size in zip(outputs, SIZES, strict=True)]
        torch.testing.assert_close(head(hidden, mask), torch.stack(expected))


@every_head
def test_layer_weights_sum_to_one_over_the_layers(spec: str) -> None:
    head = build(spec, supported_kind(spec))
    weights = head.module.layer_weights()
    if weights is not None:
        assert weights.shape == (len(head.layer_ids) + head.with_pooled,)
        assert not weights.requires_grad
        torch.testing.assert_close(weights.sum(), torch.tensor(1.0))


def test_span_loss_is_the_mean_cross_entropy_of_start_and_end_over_real_tokens() -> None:
    logits, mask = random(2, 3, 2), torch.tensor([[True, True, True], [True, True, False]])
    expected = []
    for row, (start, end) in enumerate([(2, 0), (0, 1)]):
        for side, target in enumerate((start, end)):
            scores = logits[row, mask[row], side]
            expected.append(scores.exp().sum().log() - scores[target])
    got = head_loss("span", logits, torch.tensor([[2.0, 0.0], [0.0, 1.0]]), mask)
    torch.testing.assert_close(got, torch.stack(expected).mean())


@pytest.mark.parametrize("kind", list(OUTPUTS))
def test_head_losses_equal_the_loss_of_each_head(kind: Kind) -> None:
    mask, heads = batch()[1], 3
    size = (heads, len(SIZES), TOKENS, 2) if kind == "span" else (heads, len(SIZES), OUTPUTS[kind])
    logits, weights = random(*size), torch.tensor([0.5, 1.0, 2.0]) if OUTPUTS[kind] == 3 else None
    expected = [head_loss(kind, head_logits, targets(kind), mask, weights) for head_logits in logits]
    assert torch.equal(head_losses(kind, logits, targets(kind), mask, weights), torch.stack(expected))


def test_label_loss_is_cross_entropy_and_value_loss_is_squared_error() -> None:
    mask = torch.ones(2, 1, dtype=torch.bool)
    logits = torch.tensor([[0.0, 0.0], [2.0, 0.0]])
    expected = (torch.log(torch.tensor(2.0)) + torch.log1p(torch.exp(torch.tensor(-2.0)))) / 2
    torch.testing.assert_close(head_loss("classify", logits, torch.tensor([1.0, 0.0]), mask), expected)
    values = head_loss("regress", torch.tensor([[1.0], [4.0]]), torch.tensor([0.0, 2.0]), mask)
    assert float(values) == pytest.approx(2.5)


def test_multilabel_loss_is_the_mean_binary_cross_entropy() -> None:
    mask, logits = torch.ones(2, 1, dtype=torch.bool), torch.tensor([[0.0, 2.0], [-1.0, 0.5]])
    marks = torch.tensor([[1.0, 0.0], [1.0, 1.0]])
    gold_probability = torch.where(marks > 0, logits.sigmoid(), 1 - logits.sigmoid())
    torch.testing.assert_close(head_loss("multilabel", logits, marks, mask), -gold_probability.log().mean())
    weights = torch.tensor([3.0, 0.5])  # of yes
    weighted = torch.where(marks > 0, weights, torch.ones(2)) * -gold_probability.log()
    torch.testing.assert_close(head_loss("multilabel", logits, marks, mask, weights), weighted.mean())


def test_class_weights_are_not_normalised_in_the_loss() -> None:
    mask, weights = torch.ones(3, 1, dtype=torch.bool), torch.tensor([0.5, 4.0])
    logits, labels = random(3, 2), torch.tensor([0.0, 1.0, 0.0])
    gold_log_probability = logits.log_softmax(1)[torch.arange(3), labels.long()]
    expected = -(torch.tensor([0.5, 4.0, 0.5]) * gold_log_probability).mean()
    torch.testing.assert_close(head_loss("classify", logits, labels, mask, weights), expected)
    alone = [float(head_loss("classify", logits[:1], labels[:1], mask[:1], w)) for w in (None, weights)]
    assert alone[1] == pytest.approx(0.5 * alone[0])
    torch.testing.assert_close(
        head_loss("classify", logits, labels, mask, torch.ones(2)), head_loss("classify", logits, labels, mask)
    )
