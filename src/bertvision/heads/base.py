"""What a head is, how one is built from a spec, and the losses: once, for all of them.

A head file holds one *body*, an ``nn.Module`` registered under a name. Pointwise bodies map
(..., layers, width) to (..., outputs) and so serve every token of a span task, or the one vector
per text that a label is read from. Sequence bodies get (batch, tokens, layers, width) and the mask
and give (batch, tokens, outputs), of which a label reads the CLS token's or the mean.
Which layers are seen, what is read and whether the pooled CLS joins as one more layer is common to
all heads and lives here.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Protocol, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bertvision.core.errors import BadInput, shorten
from bertvision.core.records import Kind, LayerBatch, Shape
from bertvision.core.registry import Registry, Spec, Value, choose_layers, parse_spec, unknown
from bertvision.heads.layers import LayerRows

COMMON: Mapping[str, Value] = {"layers": "all", "read": "cls", "pooled": False}
"""Options of pointwise heads: which states, which vector stands for a text, the pooled CLS in front."""

BY_CLS: Mapping[str, Value] = {"layers": "all", "read": "cls"}

BY_MEAN: Mapping[str, Value] = {"layers": "all", "read": "mean"}
"""Options of sequence heads: which states, and whether a label takes the CLS token's outputs or the mean of all."""

Choices = Mapping[str, tuple[Value, ...]]
"""By option the values that a search tries."""

COMMON_CHOICES: Choices = {
    "layers": ("all", "last1", "last2", "last4", "every2"),
    "read": ("cls", "mean"),
    "pooled": (False, True),
}
"""What a search tries of the common options, as far as a head has them and they fit the states."""

LAYERS_ONLY: Mapping[str, Value] = {"layers": "all"}
"""Options of sequence heads that make one answer of all tokens by themselves."""

HEADS: Registry[type[HeadModule]] = Registry("head", "bertvision.heads")

WORDS = {"all": "every token", "cls": "the CLS token", "mean": "the mean over tokens"}


class Solver(Protocol):
    """Finds a body's weights from what it has seen of the training states, in place of an optimiser."""

    def observe(self, states: Tensor, targets: Tensor) -> None: ...
    def solve(self, epoch: int) -> None: ...


class HeadModule(nn.Module):
    """Base of all bodies; subclasses take ``shape`` and their own options as keywords with defaults.

    A sequence body without ``read`` among its ``common`` options gives (batch, outputs) by itself.
    """

    pointwise: ClassVar[bool] = True
    supports_spans: ClassVar[bool] = True  # false: for labels and values only
    shared_options: ClassVar[Mapping[str, Value]] = COMMON  # which common options it has, and their defaults
    variants: ClassVar[tuple[str, ...]] = ("",)
    choices: ClassVar[Choices] = {}  # of its own options: what a search tries
    always_in_spec: ClassVar[tuple[str, ...]] = ()  # options that the canonical spec always names
    source: ClassVar[str] = ""
    saved_names: ClassVar[Mapping[str, str]] = {}
    """By attribute its name in saved files, where that is another: what a renamed one was called before. Any module
    inside a body may have such a table of its own."""
    uses_rng: bool = False  # whether it draws random numbers while it learns, as dropout does

    def layer_weights(self) -> Tensor | None:
        """How much each layer counts (layers,), if the head learns such a thing."""
        return None

    def layer_rows(self) -> LayerRows | None:
        """What this body is, if it is but that: such heads share one product over the states."""
        return None

    def after_step(self, rate: float) -> None:
        """Called after every optimiser step with its rate: the place for a proximal step."""

    def solver(self, weights: Tensor | None = None) -> Solver | None:
        """What ``fit`` uses in place of an optimiser, for a body whose weights can be computed.

        ``weights`` (labels,) are those of :func:`head_loss`.
        """
        return None


class Head(nn.Module):
    """A body with the states it sees."""

    def __init__(self, spec: Spec, shape: Shape) -> None:
        super().__init__()
        body = HEADS[spec.name]
        options = _resolved(spec, body)
        self.spec = _canonical(spec.name, options, body)
        self.shape = shape
        self.layer_ids = choose_layers(str(options["layers"]), shape.layers)
        self.read, self.with_pooled = str(options.get("read", "all")), bool(options.get("pooled", False))
        self._check_reading(body)
        seen = 1 if self.read == "pooled" else len(self.layer_ids) + self.with_pooled
        own = {key: value for key, value in options.items() if key not in body.shared_options}
        self.module = body(replace(shape, layers=seen), **own)
        self.register_state_dict_post_hook(_as_saved)  # type: ignore[no-untyped-call]
        self.register_load_state_dict_pre_hook(_as_here)  # type: ignore[no-untyped-call]

    def _check_reading(self, body: type[HeadModule]) -> None:
        usual = body.shared_options.get("read", "all")
        reads = ("cls", "mean", "pooled") if body.pointwise else ("cls", "mean")
        if self.read not in (*reads, usual):
            raise BadInput(f"head {self.spec}: read={self.read}, expected one of {', '.join(reads)}")
        if self.shape.kind == "span" and not body.supports_spans:
            raise BadInput(f"head {self.spec} is for labels and values; for spans take another, e.g. compress:size=64")
        if self.shape.kind == "span" and (self.read != usual or self.with_pooled):
            raise BadInput(f"head {self.spec}: read= and pooled= are for labels and values; spans read every token")
        if self.read == "pooled" and self.with_pooled:
            raise BadInput(f"head {self.spec}: read=pooled is the pooled CLS already; leave pooled= out")

    @property
    def needs_pooled(self) -> bool:
        return self.with_pooled or self.read == "pooled"

    @property
    def needed_layers(self) -> tuple[int, ...]:
        """States to put before :meth:`on_chosen`; a head on the pooled CLS looks at none, but takes one."""
        return self.layer_ids[-1:] if self.read == "pooled" else self.layer_ids

    @property
    def parameters_count(self) -> int:
        return sum(parameter.numel() for parameter in self.parameters())

    def forward(self, hidden: Tensor, mask: Tensor, pooled: Tensor | None = None) -> Tensor:
        """All layers' states (batch, tokens, layers, width) to (batch, tokens, 2) or (batch, outputs)."""
        return self.on_chosen(self.choose(hidden), mask, pooled)

    def forward_batch(self, batch: LayerBatch) -> Tensor:
        """The same for a batch, whose padding a pointwise body never sees."""
        if not self.module.pointwise:
            return cast(Tensor, self(batch.hidden, batch.mask, batch.pooled))
        return self.scatter(self.module(self.seen(batch)), batch)

    def seen(self, batch: LayerBatch) -> Tensor:
        """What a pointwise body gets of a batch: (real tokens, layers, width), or for labels (batch, layers, width)."""
        if self.shape.kind == "span":
            return self.choose(batch.states)
        if self.read == "pooled":
            return self._pooled(batch.pooled)
        if self.read == "cls":
            return self._beside_pooled(self.choose(batch.first), batch.pooled)
        return self.body_input(self.choose(batch.hidden), batch.mask, batch.pooled)

    def scatter(self, outputs: Tensor, batch: LayerBatch) -> Tensor:
        """A pointwise body's outputs of spans, (real tokens, 2), where they belong: (batch, tokens, 2)."""
        if self.shape.kind != "span":
            return outputs
        # Tokens side by side, as the loss wants them: it goes over all tokens of a window.
        whole = outputs.new_zeros((outputs.shape[-1], *batch.mask.shape))  # (2, batch, tokens)
        return whole.masked_scatter(batch.mask, outputs.T).movedim(0, -1)

    def choose(self, hidden: Tensor) -> Tensor:
        """The layers that this head sees: (..., layers, width) -> (..., chosen, width)."""
        if len(self.layer_ids) == hidden.shape[-2]:
            return hidden
        first, last = self.layer_ids[0], self.layer_ids[-1]
        run = last - first + 1 == len(self.layer_ids)
        # A run of layers is a view; anything else must be gathered.
        return hidden[..., first : last + 1, :] if run else hidden[..., list(self.layer_ids), :]

    def on_chosen(self, hidden: Tensor, mask: Tensor, pooled: Tensor | None = None) -> Tensor:
        """The same for states that hold the chosen layers only."""
        if self.module.pointwise:
            return cast(Tensor, self.module(self.body_input(hidden, mask, pooled)))
        outputs = cast(Tensor, self.module(hidden, mask))
        as_it_is = self.shape.kind == "span" or "read" not in self.module.shared_options
        return outputs if as_it_is else self._one(outputs, mask)  # (batch, tokens, 2) or (batch, outputs)

    def body_input(self, hidden: Tensor, mask: Tensor, pooled: Tensor | None) -> Tensor:
        """Chosen states as a pointwise body gets them: every token's, or per layer what stands for the text."""
        if self.shape.kind == "span":
            return hidden  # (batch, tokens, layers, width)
        if self.read == "pooled":
            return self._pooled(pooled)
        return self._beside_pooled(self._one(hidden, mask), pooled)

    def _beside_pooled(self, one: Tensor, pooled: Tensor | None) -> Tensor:
        """(batch, layers, width), with the pooled CLS in front where the head wants it."""
        return torch.cat([self._pooled(pooled), one], dim=1) if self.with_pooled else one

    def _pooled(self, pooled: Tensor | None) -> Tensor:
        """The pooled CLS as one layer: (batch, 1, width)."""
        if pooled is None:
            raise BadInput(f"head {self.spec} needs the pooled CLS, which this encoder does not have")
        return pooled[:, None]

    def _one(self, by_token: Tensor, mask: Tensor) -> Tensor:
        """(batch, tokens, ...) -> (batch, ...): the CLS token's, or the mean over real tokens."""
        if self.read == "cls":
            return by_token[:, 0]
        share = mask.to(by_token.dtype) / mask.sum(1, keepdim=True)  # (batch, tokens)
        return torch.einsum("bt,bt...->b...", share, by_token)


def saved_name(module: nn.Module, name: str) -> str:
    """What a weight of a module, named by attributes, is called in saved files."""
    return _renamed(module, name, saved=True)


def _renamed(module: nn.Module, name: str, saved: bool) -> str:
    """From attributes to names in files, or back; what leads nowhere stays, and is told of by torch."""
    found, place = [], cast(Any, module)
    for part in name.split("."):
        names = getattr(place, "saved_names", {})
        before = {old: new for new, old in names.items()}
        attribute = part if saved else before.get(part, part)
        found.append(names.get(part, part) if saved else attribute)
        place = getattr(place, attribute, None)
    return ".".join(found)


def _as_saved(head: nn.Module, state: dict[str, Any], prefix: str, *_: object) -> None:
    _rename_all(head, state, prefix, saved=True)


def _as_here(head: nn.Module, state: dict[str, Any], prefix: str, *_: object) -> None:
    _rename_all(head, state, prefix, saved=False)


def _rename_all(head: nn.Module, state: dict[str, Any], prefix: str, saved: bool) -> None:
    """In place and in the same order; what belongs to other modules is left alone."""
    items = list(state.items())
    state.clear()
    for key, value in items:
        mine = key.startswith(prefix)
        state[prefix + _renamed(head, key.removeprefix(prefix), saved) if mine else key] = value


def build_head(spec: str | Spec, shape: Shape) -> Head:
    """A fresh head; seed torch first for a reproducible start."""
    return Head(parse_spec(spec) if isinstance(spec, str) else spec, shape)


def canonical_spec(spec: str) -> str:
    """The one way to write a spec: defaults left out, options in the order they are declared."""
    parsed = parse_spec(spec)
    body = HEADS[parsed.name]
    return _canonical(parsed.name, _resolved(parsed, body), body)


def head_options(spec: str) -> dict[str, Value]:
    """Every option of a head with its value: as the spec says, or its default."""
    parsed = parse_spec(spec)
    return _resolved(parsed, HEADS[parsed.name])


def _declared(body: type[HeadModule]) -> dict[str, Any]:
    """A body's own options and their defaults, read off its constructor."""
    parameters = list(inspect.signature(body.__init__).parameters.values())[2:]
    return {parameter.name: parameter.default for parameter in parameters}


def _resolved(spec: Spec, body: type[HeadModule]) -> dict[str, Value]:
    """Defaults overlaid with the spec's options, each checked for name and type."""
    known = {**_declared(body), **body.shared_options}
    for key, value in spec.options.items():
        if key not in known:
            raise BadInput(f"head {spec}: {unknown('option', key, known)}")
        whole_for_float = isinstance(known[key], float) and type(value) is int
        if key != "layers" and type(value) is not type(known[key]) and not whole_for_float:
            raise BadInput(f"head {spec}: {key}={shorten(value)}, expected {type(known[key]).__name__}")
    return {key: _one_way(key, spec.options.get(key, default), default) for key, default in known.items()}


def _one_way(key: str, value: Value, default: Value) -> Value:
    """Equal heads have equal specs: 2 for a float is 2.0, and numbered layers are in order."""
    if isinstance(default, float):
        return float(value)
    if key == "layers" and re.fullmatch(r"\d+(\+\d+)+", str(value)):
        return "+".join(str(number) for number in sorted(int(part) for part in str(value).split("+")))
    return value


def _canonical(name: str, options: Mapping[str, Value], body: type[HeadModule]) -> str:
    defaults = {**_declared(body), **body.shared_options}
    told = {key: value for key, value in options.items() if value != defaults[key] or key in body.always_in_spec}
    return str(Spec(name, told))


def glorot(linear: nn.Linear) -> nn.Linear:
    """Glorot-uniform weights and zero bias: how the papers' closing dense layers start."""
    nn.init.xavier_uniform_(linear.weight)
    nn.init.zeros_(linear.bias)
    return linear


def head_loss(kind: Kind, logits: Tensor, targets: Tensor, mask: Tensor, weights: Tensor | None = None) -> Tensor:
    """Spans: mean cross-entropy of start and end over real tokens; labels: cross-entropy; values: MSE.

    Any number of labels: binary cross-entropy, mean over labels. With ``weights`` (labels,) a text
    counts by the weight of its label, mean of w_y (-log p_y), and of any number of labels each yes does.
    It is not divided by the weights that happen to be in the batch: that would take back what they do.
    """
    return head_losses(kind, logits[None], targets, mask, weights)[0]


def head_losses(kind: Kind, logits: Tensor, targets: Tensor, mask: Tensor, weights: Tensor | None = None) -> Tensor:
    """The losses (heads,) of several heads' logits (heads, batch, ...) for one batch, each as if it were alone."""
    heads = len(logits)
    if kind == "span":
        over_tokens = logits.movedim(-1, 1).masked_fill(~mask, float("-inf"))  # (heads, 2, batch, tokens)
        wanted = targets.long().T.flatten().repeat(heads)  # (heads x 2 x batch,)
        each = F.cross_entropy(over_tokens.flatten(0, 2), wanted, reduction="none")
    elif kind == "multilabel":
        marks = targets.expand_as(logits)
        each = F.binary_cross_entropy_with_logits(logits, marks, pos_weight=weights, reduction="none")
    elif kind == "classify":
        labels = targets.long()
        each = F.cross_entropy(logits.flatten(0, 1), labels.repeat(heads), reduction="none")  # (heads x batch,)
        each = each if weights is None else weights[labels].repeat(heads) * each
    else:
        values = logits.squeeze(-1)  # (heads, batch)
        each = F.mse_loss(values, targets.expand_as(values), reduction="none")
    return each.reshape(heads, -1).mean(1)


def reads(head: Head) -> str:
    """all, cls, mean, or none where it is the pooled CLS alone."""
    if head.shape.kind == "span" or not head.module.pointwise:
        return "all"
    return "none" if head.read == "pooled" else head.read


def check_served(head: Head, tokens: str) -> None:
    """Refuse a head that states of these tokens cannot serve: CLS is not the mean, and neither is all tokens."""
    needed = reads(head)
    if tokens in ("all", "context") or needed in ("none", tokens):
        return
    raise BadInput(
        f"head {head.spec} reads {WORDS[needed]}, and these states are {WORDS[tokens]} of each text "
        f"(--tokens {tokens}); make others with: bertvision extract TASK ... --tokens {needed} --to STORE"
    )
