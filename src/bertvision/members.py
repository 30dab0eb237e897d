"""The predictors that a model is made of: a head each, and which of the encoder's states it looks at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from torch import Tensor

from bertvision.core.errors import BadInput
from bertvision.core.records import Shape
from bertvision.encoders.loading import Encoder
from bertvision.heads.base import Head, build_head
from bertvision.tasks.task import Task
from bertvision.training.fitted_head import FittedHead
from bertvision.training.inputs import own_head


@dataclass(frozen=True)
class Part:
    """One predictor. A head numbers its layers by what it was fitted on; ``states`` says what that was."""

    name: str
    head: Head
    states: tuple[int, ...]  # the encoder's states that the head was fitted on
    threshold: float | None = None
    temperatures: Mapping[str, float] = field(default_factory=dict)
    tokens: str = "all"  # the tokens that the head was fitted on

    @property
    def needed(self) -> tuple[int, ...]:
        """The encoder's states to put before the head."""
        return tuple(self.states[layer] for layer in self.head.needed_layers)

    def config(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "spec": self.head.spec,
            "shape": asdict(self.head.shape),
            "states": list(self.states),
            "tokens": self.tokens,
        }


Member = FittedHead | Head | Part | str


def part_of(member: Member, encoder: Encoder, task: Task) -> Part:
    """What a user may name a predictor by; ``"encoder"`` is the encoder's own head."""
    part = member if isinstance(member, Part) else _part(member, encoder)
    shape = part.head.shape
    if (shape.kind, shape.outputs) != (task.kind, task.outputs):
        raise BadInput(
            f"head {part.name} gives {shape.outputs} outputs for {shape.kind}; task {task.name} needs "
            f"{task.outputs} for {task.kind}"
        )
    if shape.width != encoder.width or len(part.states) != shape.layers or max(part.states) >= encoder.layers:
        raise BadInput(
            f"head {part.name} was fitted on {shape.layers} states of width {shape.width}; encoder {encoder.name} "
            f"gives {encoder.layers} of width {encoder.width}; give the encoder that the states came from"
        )
    return part


def _part(member: FittedHead | Head | str, encoder: Encoder) -> Part:
    everything = tuple(range(encoder.layers))
    if isinstance(member, FittedHead):
        fitted = member.threshold, member.temperatures
        return Part(f"{member.spec}@{member.seed}", member.head, member.states or everything, *fitted, member.tokens)
    if isinstance(member, Head):
        return Part(member.spec, member, everything)
    own = own_head(encoder)
    if member != "encoder" or own is None:
        raise BadInput(
            f"{member!r} is no predictor of encoder {encoder.name}; give fitted heads, or 'encoder' if it was tuned"
        )
    return Part(member, own, everything)


def load_part(number: int, config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Part:
    """The inverse of :meth:`Part.config`, with the weights out of the model's common file."""
    head = build_head(config["spec"], Shape(**config["shape"]))
    prefix = f"{number}."
    head.load_state_dict({key[len(prefix) :]: value for key, value in tensors.items() if key.startswith(prefix)})
    states = tuple(config.get("states") or range(head.shape.layers))
    return Part(config["name"], head, states, tokens=config.get("tokens", "all"))
