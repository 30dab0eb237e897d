"""Base classes of heads, building a head from a spec, and the losses that all heads share.

A head file holds one :class:`HeadModule`, registered under a name. A pointwise module maps (..., layers, width)
to (..., outputs): every token of a span task, or the one vector of a text for the other tasks. A sequence module
maps (batch, tokens, layers, width) and a mask to (batch, tokens, outputs); tasks other than spans then take the
outputs of the CLS token or the mean over tokens. The options that all heads share are handled here: the layers to
read, the vectors that represent a text (``readings.py``), and whether the pooled CLS is prepended as one more layer.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Protocol, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bertvision.core.errors import BadInput, shorten
from bertvision.core.records import Kind, Shape
from bertvision.core.registry import Registry, Spec, Value, choose_layers, parse_spec, unknown_name
from bertvision.core.summaries import summarise
from bertvision.heads.layers import LayerRows
from bertvision.heads.readings import WEIGHTED, check_read_options, count_vectors, read_vectors, sort_readings
from bertvision.heads.solvers import Design, Solution

POINTWISE_OPTIONS: Mapping[str, Value] = {"layers": "all", "read": "cls", "pooled": False}
"""Shared options of pointwise heads: layers to read, vectors of a text, and whether to prepend the pooled CLS."""

CLS_SEQUENCE_OPTIONS: Mapping[str, Value] = {"layers": "all", "read": "cls"}
"""Shared options of sequence heads that read a text's outputs from the CLS token by default."""

MEAN_SEQUENCE_OPTIONS: Mapping[str, Value] = {"layers": "all", "read": "mean"}
"""Shared options of sequence heads that average a text's outputs over its tokens by default."""

LAYERS_OPTION: Mapping[str, Value] = {"layers": "all"}
"""Shared options of sequence heads that compute one output per text themselves."""

Choices = Mapping[str, tuple[Value, ...]]
"""Values that a search tries, by option."""

COMMON_CHOICES: Choices = {
    "layers": ("all", "last1", "last2", "last4", "every2"),
    "read": ("cls", "mean"),
    "pooled": (False, True),
}
"""Values that a search tries for the shared options, as far as a head has them and they fit the states."""

HEADS: Registry[type[HeadModule]] = Registry("head", "bertvision.heads")


class Solver(Protocol):
    """Computes the weights of a module from the training states, instead of an optimiser."""

    def observe(self, states: Tensor, targets: Tensor) -> None: ...
    def solve(self, epoch: int) -> None: ...


class HeadInput(Protocol):
    """A batch of states with all stored layers, or only those that the head reads."""

    @property
    def hidden(self) -> Tensor: ...  # (batch, tokens, layers, width)
    @property
    def states(self) -> Tensor: ...  # of every token, with or without padding: (..., layers, width)
    @property
    def first(self) -> Tensor: ...  # CLS: (batch, layers, width)
    @property
    def mask(self) -> Tensor: ...  # (batch, tokens)
    @property
    def pooled(self) -> Tensor | None: ...  # (batch, width)
    @property
    def summaries(self) -> tuple[str, ...]: ...  # names of the vectors along the tokens axis, if they are summaries
    @property
    def apart(self) -> Tensor | None: ...  # means of the texts of a pair, each by itself: (batch, 2, layers, width)
    def summary(self, name: str) -> Tensor: ...  # (batch, layers, width)


@dataclass(frozen=True)
class PaddedStates:
    """States as an encoder returns them, padding included."""

    hidden: Tensor  # (batch, tokens, layers, width)
    mask: Tensor  # (batch, tokens)
    pooled: Tensor | None = None  # (batch, width)
    apart: Tensor | None = None  # (batch, 2, layers, width)
    summaries: ClassVar[tuple[str, ...]] = ()

    @property
    def states(self) -> Tensor:
        return self.hidden

    @property
    def first(self) -> Tensor:
        return self.hidden[:, 0]  # (batch, layers, width)

    def summary(self, name: str) -> Tensor:
        raise TypeError("these are the states of tokens, not summaries of them")


class HeadModule(nn.Module):
    """Base class of the modules that heads are built from.

    The constructor takes ``shape`` and the head's own options, as keywords with defaults. A sequence module without
    ``read`` among its ``shared_options`` returns (batch, outputs) itself.
    """

    pointwise: ClassVar[bool] = True
    supports_spans: ClassVar[bool] = True
    shared_options: ClassVar[Mapping[str, Value]] = POINTWISE_OPTIONS  # with their defaults for this head
    variants: ClassVar[tuple[str, ...]] = ("",)  # options of the configurations that the docs and tests cover
    choices: ClassVar[Choices] = {}  # values of its own options that a search tries
    always_in_spec: ClassVar[tuple[str, ...]] = ()  # options that the canonical spec states even at their defaults
    source: ClassVar[str] = ""
    solved: ClassVar[bool] = False  # whether fit solves for the weights, see :class:`SolvedModule`
    saved_names: ClassVar[Mapping[str, str]] = {}
    """Names in saved files of attributes that were renamed since. Any submodule may have such a table, too."""
    uses_rng: bool = False  # whether training draws random numbers, as dropout does

    def layer_weights(self) -> Tensor | None:
        """Weight of each layer (layers,), if the head learns one."""
        return None

    def layer_rows(self) -> LayerRows | None:
        """The module as :class:`LayerRows`, if it can be written so; such heads share one product over the states."""
        return None

    def after_step(self, lr: float) -> None:
        """Called after every optimiser step with its learning rate, for a proximal step."""

    def solver(self, weights: Tensor | None = None) -> Solver | None:
        """The solver that ``fit`` uses instead of an optimiser, if the module has one.

        ``weights`` (labels,) are the class weights of :func:`head_loss`.
        """
        return None


class SolvedModule(Protocol):
    """A module whose weights are solved for, for a path of penalties; its class has ``solved = True``."""

    def path(
        self, design: Design, targets: Tensor, folds: Tensor | None, weights: Tensor | None
    ) -> Iterator[Solution]: ...
    def set_solution(self, solution: Solution) -> None: ...


class Head(nn.Module):
    """A :class:`HeadModule` together with the selection of its inputs: layers, tokens and the pooled CLS."""

    saved_names: ClassVar[Mapping[str, str]] = {"module": "body"}

    def __init__(self, spec: Spec, shape: Shape) -> None:
        super().__init__()
        module_class = HEADS[spec.name]
        options = _resolve_options(spec, module_class)
        self.spec = _format_spec(spec.name, options, module_class)
        self.shape = shape
        self.layer_ids = choose_layers(str(options["layers"]), shape.layers)
        self.read, self.with_pooled = str(options.get("read", "all")), bool(options.get("pooled", False))
        self.readings = tuple(self.read.split("+"))
        check_read_options(self, module_class)
        layers = 1 if self.read == "pooled" else count_vectors(self.readings) * len(self.layer_ids) + self.with_pooled
        own = {key: value for key, value in options.items() if key not in module_class.shared_options}
        self.module = module_class(replace(shape, layers=layers), **own)
        if WEIGHTED in self.readings:  # zeros: at first every token has the same weight
            self.token_query = nn.Parameter(torch.zeros(len(self.layer_ids), shape.width))
        self.register_state_dict_post_hook(partial(_rename_keys, to_saved=True))  # type: ignore[no-untyped-call]
        self.register_load_state_dict_pre_hook(partial(_rename_keys, to_saved=False))  # type: ignore[no-untyped-call]

    @property
    def needs_pooled(self) -> bool:
        return self.with_pooled or self.read == "pooled"

    @property
    def needed_layers(self) -> tuple[int, ...]:
        """Layers to stack for :meth:`forward`; a head on the pooled CLS reads none, but expects one."""
        return self.layer_ids[-1:] if self.read == "pooled" else self.layer_ids

    @property
    def num_parameters(self) -> int:
        return sum(parameter.numel() for parameter in self.parameters())

    def forward(
        self, hidden: Tensor, mask: Tensor, pooled: Tensor | None = None, apart: Tensor | None = None
    ) -> Tensor:
        """Map states (batch, tokens, layers, width) to (batch, tokens, 2) for spans, otherwise to (batch, outputs).

        ``hidden`` and ``apart`` (batch, 2, layers, width) hold all layers, or only those of :attr:`needed_layers`.
        """
        return self.forward_batch(PaddedStates(self.select_layers(hidden), mask, pooled, apart))

    def forward_batch(self, batch: HeadInput) -> Tensor:
        """Compute the outputs of a batch; a pointwise module never gets the padding of a stored batch."""
        if self.module.pointwise:
            return self.scatter(self.module(self.select_inputs(batch)), batch)
        outputs = cast(Tensor, self.module(self.select_layers(batch.hidden), batch.mask))
        if self.shape.kind == "span" or "read" not in self.module.shared_options:
            return outputs  # (batch, tokens, 2), or (batch, outputs)
        return summarise(outputs, batch.mask, self.read)  # (batch, tokens, outputs) -> (batch, outputs)

    def select_inputs(self, batch: HeadInput) -> Tensor:
        """Input of a pointwise module: the states of every token for spans, otherwise one vector per text and layer."""
        if self.shape.kind == "span":
            return self.select_layers(batch.states)  # (real tokens, layers, width) or (batch, tokens, layers, width)
        if self.read == "pooled":
            return self._pooled_layer(batch.pooled)  # (batch, 1, width)
        vectors = read_vectors(self, batch)
        if self.with_pooled:
            vectors.insert(0, self._pooled_layer(batch.pooled))
        return vectors[0] if len(vectors) == 1 else torch.cat(vectors, dim=1)  # (batch, all their layers, width)

    def select_layers(self, hidden: Tensor) -> Tensor:
        """(..., layers, width) -> (..., selected, width)."""
        if len(self.layer_ids) == hidden.shape[-2] or self.read == "pooled":
            return hidden
        first, last = self.layer_ids[0], self.layer_ids[-1]
        if last - first + 1 == len(self.layer_ids):
            return hidden[..., first : last + 1, :]  # consecutive layers are a view, others must be gathered
        return hidden[..., list(self.layer_ids), :]

    def scatter(self, outputs: Tensor, batch: HeadInput) -> Tensor:
        """Pad outputs of real tokens, (real tokens, 2), to (batch, tokens, 2); return other outputs unchanged."""
        if self.shape.kind != "span" or outputs.ndim == 3:
            return outputs
        # The tokens of a window are contiguous in memory, because the loss is computed over them.
        padded = outputs.new_zeros((outputs.shape[-1], *batch.mask.shape))  # (2, batch, tokens)
        return padded.masked_scatter(batch.mask, outputs.T).movedim(0, -1)

    def _pooled_layer(self, pooled: Tensor | None) -> Tensor:
        """The pooled CLS as one layer: (batch, 1, width)."""
        if pooled is None:
            raise BadInput(f"head {self.spec} needs the pooled CLS, which this encoder does not have")
        return pooled[:, None]


def saved_name(module: nn.Module, name: str) -> str:
    """The name that a parameter or buffer of a module has in saved files."""
    return _translate_name(module, name, to_saved=True)


def _translate_name(module: nn.Module, name: str, to_saved: bool) -> str:
    """Translate attribute names to saved names, or back; unknown parts stay, and torch reports them."""
    parts, owner = [], cast(Any, module)
    for part in name.split("."):
        saved_names = getattr(owner, "saved_names", {})
        attributes = {saved: attribute for attribute, saved in saved_names.items()}
        attribute = part if to_saved else attributes.get(part, part)
        parts.append(saved_names.get(part, part) if to_saved else attribute)
        owner = getattr(owner, attribute, None)
    return ".".join(parts)


def _rename_keys(head: nn.Module, state: dict[str, Any], prefix: str, *_: object, to_saved: bool) -> None:
    """Hook that renames the keys of this head in place, in the same order; other keys of the dict stay."""
    items = list(state.items())
    state.clear()
    for key, value in items:
        if key.startswith(prefix):
            key = prefix + _translate_name(head, key.removeprefix(prefix), to_saved)
        state[key] = value


def build_head(spec: str | Spec, shape: Shape) -> Head:
    """Build a head with fresh weights; seed torch first for reproducible ones."""
    return Head(parse_spec(spec) if isinstance(spec, str) else spec, shape)


def canonical_spec(spec: str) -> str:
    """The spec without defaults and with its options in the order of their declaration."""
    parsed = parse_spec(spec)
    module_class = HEADS[parsed.name]
    return _format_spec(parsed.name, _resolve_options(parsed, module_class), module_class)


def is_solved(spec: str) -> bool:
    """Whether ``fit`` solves for the weights of a head; it then has one row, of seed 0."""
    return HEADS[parse_spec(spec).name].solved


def head_options(spec: str) -> dict[str, Value]:
    """Every option of a head with its value, from the spec or by default."""
    parsed = parse_spec(spec)
    return _resolve_options(parsed, HEADS[parsed.name])


def _default_options(module_class: type[HeadModule]) -> dict[str, Any]:
    """A module's own options, taken from its constructor, and the shared ones, with their defaults."""
    parameters = list(inspect.signature(module_class.__init__).parameters.values())[2:]  # without self and shape
    return {**{parameter.name: parameter.default for parameter in parameters}, **module_class.shared_options}


def _resolve_options(spec: Spec, module_class: type[HeadModule]) -> dict[str, Value]:
    """Defaults overridden by the options of the spec, which are checked for name and type."""
    defaults = _default_options(module_class)
    for key, value in spec.options.items():
        if key not in defaults:
            raise BadInput(f"head {spec}: {unknown_name('option', key, defaults)}")
        int_for_float = isinstance(defaults[key], float) and type(value) is int
        if key != "layers" and type(value) is not type(defaults[key]) and not int_for_float:
            raise BadInput(f"head {spec}: {key}={shorten(value)}, expected {type(defaults[key]).__name__}")
    options: dict[str, Value] = {}
    for key, default in defaults.items():
        value = spec.options.get(key, default)
        if isinstance(default, float):
            value = float(value)  # 1 and 1.0 are the same head
        elif key == "layers" and re.fullmatch(r"\d+(\+\d+)+", str(value)):
            value = "+".join(str(layer) for layer in sorted(int(part) for part in str(value).split("+")))
        elif key == "read":
            value = sort_readings(str(value))
        options[key] = value
    return options


def _format_spec(name: str, options: Mapping[str, Value], module_class: type[HeadModule]) -> str:
    defaults, always = _default_options(module_class), module_class.always_in_spec
    return str(Spec(name, {key: value for key, value in options.items() if value != defaults[key] or key in always}))


def glorot(linear: nn.Linear) -> nn.Linear:
    """Initialise with Glorot-uniform weights and zero bias, like the last dense layers of the papers."""
    nn.init.xavier_uniform_(linear.weight)
    nn.init.zeros_(linear.bias)
    return linear


def head_loss(kind: Kind, logits: Tensor, targets: Tensor, mask: Tensor, weights: Tensor | None = None) -> Tensor:
    """The training loss of one head.

    Spans: mean cross-entropy of start and end over real tokens. One label: cross-entropy. Any number of labels:
    binary cross-entropy, averaged over labels. Values: mean squared error.

    ``weights`` (labels,) are class weights: the loss of an example is multiplied by the weight of its label, or that
    of each present label by the label's weight. The sum is not divided by the weights in the batch, which would
    partly cancel them.
    """
    return head_losses(kind, logits[None], targets, mask, weights)[0]


def head_losses(kind: Kind, logits: Tensor, targets: Tensor, mask: Tensor, weights: Tensor | None = None) -> Tensor:
    """Losses (heads,) of the logits (heads, batch, ...) of several heads on one batch, each as computed alone."""
    heads = len(logits)
    if kind == "span":
        over_tokens = logits.movedim(-1, 1).masked_fill(~mask, float("-inf"))  # (heads, 2, batch, tokens)
        positions = targets.long().T.flatten().repeat(heads)  # (heads x 2 x batch,)
        losses = F.cross_entropy(over_tokens.flatten(0, 2), positions, reduction="none")
    elif kind == "multilabel":
        indicators = targets.expand_as(logits)
        losses = F.binary_cross_entropy_with_logits(logits, indicators, pos_weight=weights, reduction="none")
    elif kind == "classify":
        labels = targets.long()
        losses = F.cross_entropy(logits.flatten(0, 1), labels.repeat(heads), reduction="none")  # (heads x batch,)
        losses = losses if weights is None else weights[labels].repeat(heads) * losses
    else:
        values = logits.squeeze(-1)  # (heads, batch)
        losses = F.mse_loss(values, targets.expand_as(values), reduction="none")
    return losses.reshape(heads, -1).mean(1)
