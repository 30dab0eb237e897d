"""What a head is, how one is built from a spec, and the losses: once, for all of them.

A head file holds one :class:`HeadModule` registered under a name. Pointwise modules map
(..., layers, width) to (..., outputs) and so serve every token of a span task, or the one vector
per text that a label is read from. Sequence modules get (batch, tokens, layers, width) and the mask
and give (batch, tokens, outputs), of which a label reads the CLS token's or the mean.
Which layers are read, which vector stands for a text and whether the pooled CLS joins as one more
layer are options that all heads share; they live here.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bertvision.core.errors import BadInput, shorten
from bertvision.core.records import Kind, Shape
from bertvision.core.registry import Registry, Spec, Value, choose_layers, parse_spec, unknown_name
from bertvision.heads.layers import LayerRows

POINTWISE_OPTIONS: Mapping[str, Value] = {"layers": "all", "read": "cls", "pooled": False}
"""Options of pointwise heads: which states, which vector stands for a text, the pooled CLS in front."""

CLS_SEQUENCE_OPTIONS: Mapping[str, Value] = {"layers": "all", "read": "cls"}

MEAN_SEQUENCE_OPTIONS: Mapping[str, Value] = {"layers": "all", "read": "mean"}
"""Options of sequence heads: which states, and whether a label takes the CLS token's outputs or the mean of all."""

Choices = Mapping[str, tuple[Value, ...]]
"""By option the values that a search tries."""

COMMON_CHOICES: Choices = {
    "layers": ("all", "last1", "last2", "last4", "every2"),
    "read": ("cls", "mean"),
    "pooled": (False, True),
}
"""What a search tries of the common options, as far as a head has them and they fit the states."""

LAYERS_OPTION: Mapping[str, Value] = {"layers": "all"}
"""Options of sequence heads that make one answer of all tokens by themselves."""

HEADS: Registry[type[HeadModule]] = Registry("head", "bertvision.heads")

WORDS = {"all": "every token", "cls": "the CLS token", "mean": "the mean over tokens"}


class Solver(Protocol):
    """Computes a module's weights from the training states, in place of an optimiser."""

    def observe(self, states: Tensor, targets: Tensor) -> None: ...
    def solve(self, epoch: int) -> None: ...


class HeadInput(Protocol):
    """The states that a head reads: all stored layers, or only those that the head sees."""

    @property
    def hidden(self) -> Tensor: ...  # (batch, tokens, layers, width)
    @property
    def states(self) -> Tensor: ...  # every token's, with or without padding: (..., layers, width)
    @property
    def first(self) -> Tensor: ...  # CLS: (batch, layers, width)
    @property
    def mask(self) -> Tensor: ...  # (batch, tokens)
    @property
    def pooled(self) -> Tensor | None: ...  # (batch, width)


@dataclass(frozen=True)
class PaddedStates:
    """States as they come out of an encoder; padding stays where it is."""

    hidden: Tensor  # (batch, tokens, layers, width)
    mask: Tensor  # (batch, tokens)
    pooled: Tensor | None = None  # (batch, width)

    @property
    def states(self) -> Tensor:
        return self.hidden

    @property
    def first(self) -> Tensor:
        return self.hidden[:, 0]  # (batch, layers, width)


class HeadModule(nn.Module):
    """Base class of what heads compute; subclasses take ``shape`` and their own options as keywords with defaults.

    A sequence module without ``read`` among its ``shared_options`` gives (batch, outputs) by itself.
    """

    pointwise: ClassVar[bool] = True
    supports_spans: ClassVar[bool] = True  # false: for labels and values only
    shared_options: ClassVar[Mapping[str, Value]] = (
        POINTWISE_OPTIONS  # options that all heads share, with their defaults here
    )
    variants: ClassVar[tuple[str, ...]] = ("",)
    choices: ClassVar[Choices] = {}  # of its own options: what a search tries
    always_in_spec: ClassVar[tuple[str, ...]] = ()  # options that the canonical spec always names
    source: ClassVar[str] = ""
    saved_names: ClassVar[Mapping[str, str]] = {}
    """By attribute its name in saved files, where that is another: what a renamed one was called before. Any module
    inside this one may have such a table of its own."""
    uses_rng: bool = False  # whether training draws random numbers, as dropout does

    def layer_weights(self) -> Tensor | None:
        """How much each layer counts (layers,), if the head learns such a thing."""
        return None

    def layer_rows(self) -> LayerRows | None:
        """The module as :class:`LayerRows`, if it is one: several such heads share one product over the states."""
        return None

    def after_step(self, rate: float) -> None:
        """Called after every optimiser step with its learning rate, for a proximal step."""

    def solver(self, weights: Tensor | None = None) -> Solver | None:
        """What ``fit`` uses in place of an optimiser, for a module whose weights can be computed.

        ``weights`` (labels,) are those of :func:`head_loss`.
        """
        return None


class Head(nn.Module):
    """A module with the states that it reads."""

    saved_names: ClassVar[Mapping[str, str]] = {"module": "body"}

    def __init__(self, spec: Spec, shape: Shape) -> None:
        super().__init__()
        module_class = HEADS[spec.name]
        options = _resolved(spec, module_class)
        self.spec = _canonical(spec.name, options, module_class)
        self.shape = shape
        self.layer_ids = choose_layers(str(options["layers"]), shape.layers)
        self.read, self.with_pooled = str(options.get("read", "all")), bool(options.get("pooled", False))
        self._check_reading(module_class)
        layers = 1 if self.read == "pooled" else len(self.layer_ids) + self.with_pooled
        own = {key: value for key, value in options.items() if key not in module_class.shared_options}
        self.module = module_class(replace(shape, layers=layers), **own)
        self.register_state_dict_post_hook(_as_saved)  # type: ignore[no-untyped-call]
        self.register_load_state_dict_pre_hook(_as_attributes)  # type: ignore[no-untyped-call]

    def _check_reading(self, module_class: type[HeadModule]) -> None:
        default = module_class.shared_options.get("read", "all")
        reads = ("cls", "mean", "pooled") if module_class.pointwise else ("cls", "mean")
        if self.read not in (*reads, default):
            raise BadInput(f"head {self.spec}: read={self.read}, expected one of {', '.join(reads)}")
        if self.shape.kind == "span" and not module_class.supports_spans:
            raise BadInput(f"head {self.spec} is for labels and values; for spans take another, e.g. compress:size=64")
        if self.shape.kind == "span" and (self.read != default or self.with_pooled):
            raise BadInput(f"head {self.spec}: read= and pooled= are for labels and values; spans read every token")
        if self.read == "pooled" and self.with_pooled:
            raise BadInput(f"head {self.spec}: read=pooled is the pooled CLS already; leave pooled= out")

    @property
    def needs_pooled(self) -> bool:
        return self.with_pooled or self.read == "pooled"

    @property
    def needed_layers(self) -> tuple[int, ...]:
        """The layers to stack for :meth:`forward`; a head on the pooled CLS reads none, but takes one."""
        return self.layer_ids[-1:] if self.read == "pooled" else self.layer_ids

    @property
    def num_parameters(self) -> int:
        return sum(parameter.numel() for parameter in self.parameters())

    def forward(self, hidden: Tensor, mask: Tensor, pooled: Tensor | None = None) -> Tensor:
        """States (batch, tokens, layers, width) to (batch, tokens, 2) or (batch, outputs).

        ``hidden`` holds all layers, or only those of :attr:`needed_layers`.
        """
        return self.forward_batch(PaddedStates(self.select_layers(hidden), mask, pooled))

    def forward_batch(self, batch: HeadInput) -> Tensor:
        """The same for any batch; a pointwise module never sees the padding of a stored one."""
        if self.module.pointwise:
            return self.scatter(self.module(self.select_inputs(batch)), batch)
        outputs = cast(Tensor, self.module(self.select_layers(batch.hidden), batch.mask))
        if self.shape.kind == "span" or "read" not in self.module.shared_options:
            return outputs  # (batch, tokens, 2), or (batch, outputs) of all tokens
        return self._read_text(outputs, batch.mask)  # (batch, tokens, outputs) -> (batch, outputs)

    def select_inputs(self, batch: HeadInput) -> Tensor:
        """What a pointwise module gets: every token's states, or for labels one vector per layer of each text."""
        if self.shape.kind == "span":
            return self.select_layers(batch.states)  # (real tokens, layers, width) or (batch, tokens, layers, width)
        if self.read == "pooled":
            return self._pooled_layer(batch.pooled)  # (batch, 1, width)
        if self.read == "cls":
            texts = self.select_layers(batch.first)  # (batch, layers, width)
        else:
            texts = self._read_text(self.select_layers(batch.hidden), batch.mask)  # (batch, layers, width)
        return torch.cat([self._pooled_layer(batch.pooled), texts], dim=1) if self.with_pooled else texts

    def select_layers(self, hidden: Tensor) -> Tensor:
        """(..., layers, width) -> (..., selected, width)."""
        if len(self.layer_ids) == hidden.shape[-2] or self.read == "pooled":
            return hidden
        first, last = self.layer_ids[0], self.layer_ids[-1]
        is_range = last - first + 1 == len(self.layer_ids)
        # A range of layers is a view; anything else must be gathered.
        return hidden[..., first : last + 1, :] if is_range else hidden[..., list(self.layer_ids), :]

    def scatter(self, outputs: Tensor, batch: HeadInput) -> Tensor:
        """A pointwise module's outputs of real tokens, (real tokens, 2), padded: (batch, tokens, 2); others as is."""
        if self.shape.kind != "span" or outputs.ndim == 3:
            return outputs
        # Tokens side by side, as the loss wants them: it goes over all tokens of a window.
        padded = outputs.new_zeros((outputs.shape[-1], *batch.mask.shape))  # (2, batch, tokens)
        return padded.masked_scatter(batch.mask, outputs.T).movedim(0, -1)

    def _pooled_layer(self, pooled: Tensor | None) -> Tensor:
        """The pooled CLS as one layer: (batch, 1, width)."""
        if pooled is None:
            raise BadInput(f"head {self.spec} needs the pooled CLS, which this encoder does not have")
        return pooled[:, None]

    def _read_text(self, by_token: Tensor, mask: Tensor) -> Tensor:
        """(batch, tokens, ...) -> (batch, ...): the CLS token's, or the mean over real tokens."""
        if self.read == "cls":
            return by_token[:, 0]
        weights = mask.to(by_token.dtype) / mask.sum(1, keepdim=True)  # (batch, tokens)
        return torch.einsum("bt,bt...->b...", weights, by_token)


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


def _as_attributes(head: nn.Module, state: dict[str, Any], prefix: str, *_: object) -> None:
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
    module_class = HEADS[parsed.name]
    return _canonical(parsed.name, _resolved(parsed, module_class), module_class)


def head_options(spec: str) -> dict[str, Value]:
    """Every option of a head with its value: as the spec says, or its default."""
    parsed = parse_spec(spec)
    return _resolved(parsed, HEADS[parsed.name])


def _declared(module_class: type[HeadModule]) -> dict[str, Any]:
    """A module's own options and their defaults, read off its constructor."""
    parameters = list(inspect.signature(module_class.__init__).parameters.values())[2:]
    return {parameter.name: parameter.default for parameter in parameters}


def _resolved(spec: Spec, module_class: type[HeadModule]) -> dict[str, Value]:
    """Defaults overlaid with the spec's options, each checked for name and type."""
    known = {**_declared(module_class), **module_class.shared_options}
    for key, value in spec.options.items():
        if key not in known:
            raise BadInput(f"head {spec}: {unknown_name('option', key, known)}")
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


def _canonical(name: str, options: Mapping[str, Value], module_class: type[HeadModule]) -> str:
    defaults = {**_declared(module_class), **module_class.shared_options}
    always = module_class.always_in_spec
    written = {key: value for key, value in options.items() if value != defaults[key] or key in always}
    return str(Spec(name, written))


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


def check_head_tokens(head: Head, tokens: str) -> None:
    """Refuse a head that states of these tokens cannot serve: CLS is not the mean, and neither is all tokens."""
    needed = reads(head)
    if tokens in ("all", "context") or needed in ("none", tokens):
        return
    raise BadInput(
        f"head {head.spec} reads {WORDS[needed]}, and these states are {WORDS[tokens]} of each text "
        f"(--tokens {tokens}); make others with: bertvision extract TASK ... --tokens {needed} --to STORE"
    )
