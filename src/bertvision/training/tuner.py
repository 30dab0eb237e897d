"""An encoder and its head while they are tuned: one step at a time, written down and taken up to the last bit.

Not a step itself: ``tune`` runs it to its end, ``curve`` stops on the way to keep checkpoints.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bertvision.core.config import TuneConfig
from bertvision.core.progress import Timer, log_line
from bertvision.core.records import ROW_KINDS, Window
from bertvision.core.runtime import lr_factor
from bertvision.encoders.fast_dropout import quick_dropout
from bertvision.encoders.hidden_states import States, TokenBatch, collate, hidden_states
from bertvision.encoders.loading import Encoder
from bertvision.encoders.methods import eval_frozen_layers, prepare
from bertvision.heads.base import Head, head_loss, saved_name
from bertvision.training.checkpoint_io import read_noted, write_noted
from bertvision.training.distributed import Team

RISEN = 2.0
"""A mean loss this many times what it was at the start is told."""

WATCHED = 50
"""Steps whose losses are averaged, at the start and now."""


@dataclass
class Tuner:
    """What a step changes, and what it needs; the encoder is changed in place."""

    encoder: Encoder
    head: Head
    config: TuneConfig
    steps: int
    device: torch.device
    weights: Tensor | None = None  # of the classes
    team: Team = field(default_factory=Team)
    step: int = 0
    losses: list[float] = field(default_factory=list)
    seconds: float = 0.0  # of the steps alone: what a curve scores, or a run loads, between them is no tuning

    def __post_init__(self) -> None:
        self.model: Any = self.encoder.model.to(self.device)
        self.head.to(self.device)
        prepare(self.model, self.method, self.head.needs_pooled)
        if self.config.checkpointing:
            self.model.gradient_checkpointing_enable({"use_reentrant": False})
        self.named = {
            name: parameter
            for name, parameter in (
                *((f"model.{name}", parameter) for name, parameter in self.model.named_parameters()),
                *((f"head.{saved_name(self.head, name)}", one) for name, one in self.head.named_parameters()),
            )
            if parameter.requires_grad
        }
        self.optimizer = torch.optim.AdamW(self._groups(), lr=self.rate, fused=True)

    @property
    def method(self) -> str:
        """What of the model is trained."""
        return self.config.method

    @property
    def rate(self) -> float:
        assert self.config.lr is not None, "tune() settles the rate"
        return self.config.lr

    @property
    def trained(self) -> int:
        """How many numbers are trained, the head's included."""
        return sum(parameter.numel() for parameter in self.named.values())

    def _groups(self) -> list[dict[str, Any]]:
        """Weight decay for matrices only: biases and norms (one dimension) are exempt."""
        parameters = list(self.named.values())
        return [
            {"params": [p for p in parameters if p.ndim > 1], "weight_decay": self.config.weight_decay},
            {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
        ]

    def advance(self, batch: Sequence[Any]) -> None:
        """One optimiser step on a batch, in as many pieces and processes as there are to be."""
        timer = Timer()
        self.model.train()
        self.head.train()
        eval_frozen_layers(self.model, self.method)
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate * lr_factor(self.step, self.steps, self.config.warmup, self.config.decay)
        self.optimizer.zero_grad(set_to_none=True)
        mine = self.team.share(batch)
        size = -(-len(mine.items) // self.config.accumulate)
        loss = torch.zeros((), device=self.device)
        for start in range(0, len(mine.items), size):
            piece = mine.items[start : start + size]
            with quick_dropout(self.device, self.config.checkpointing):
                part = self._loss(piece) * (mine.weight * len(piece) / len(mine.items))
            part.backward()
            loss += part.detach()
        parameters = list(self.named.values())
        self.team.add_gradients(parameters)
        nn.utils.clip_grad_norm_(parameters, self.config.clip)
        self.optimizer.step()
        self.head.module.after_step(self.optimizer.param_groups[0]["lr"])
        self.step += 1
        self.seconds += timer.seconds
        self._note(float(self.team.add(loss)))

    def _loss(self, batch: Sequence[Any]) -> Tensor:
        windows, tokens, states = self.states_of(batch)
        logits = self.head(states.stacked(), tokens.mask, states.pooled)
        targets = torch.tensor([window.target for window in windows], device=self.device)  # (batch, 1, 2 or labels)
        kind = self.head.shape.kind
        return head_loss(kind, logits, targets if kind in ROW_KINDS else targets[:, 0], tokens.mask, self.weights)

    def states_of(self, batch: Sequence[Any]) -> tuple[Sequence[Window], TokenBatch, States]:
        """The states that the head needs, of windows run through the whole encoder."""
        tokens = collate(batch, self.encoder.tokenizer.pad_token_id, self.device)
        return batch, tokens, hidden_states(self.model, tokens, self.head.needed_layers, self.config.bf16)

    def _note(self, loss: float) -> None:
        if not math.isfinite(loss):
            raise ArithmeticError(f"tuning diverged: the loss is {loss} at step {self.step}; {self._advice}")
        self.losses.append(loss)
        if len(self.losses) >= 2 * WATCHED and self.step % WATCHED == 0:
            before, now = np.mean(self.losses[:WATCHED]), np.mean(self.losses[-WATCHED:])
            if now > RISEN * before:
                log_line(f"tune: the loss has risen from {before:.3g} to {now:.3g} by step {self.step}; {self._advice}")

    @property
    def _advice(self) -> str:
        return f"lower --lr (now {self.rate:g})"

    def save(self, path: Path, made_from: str) -> None:
        """Weights, moments and random state, as data; there whole or not at all."""
        tensors: dict[str, Tensor] = dict(self.named)
        for name, parameter in self.named.items():
            state = self.optimizer.state.get(parameter, {})
            tensors.update({f"{key}.{name}": state[key] for key in ("exp_avg", "exp_avg_sq", "step") if key in state})
        tensors.update({f"buffer.{name}": buffer for name, buffer in self._buffers()})
        tensors["random"] = torch.get_rng_state()
        if self.device.type == "cuda":
            tensors["random.cuda"] = torch.cuda.get_rng_state(self.device)
        write_noted(path, tensors, made_from, step=self.step, losses=self.losses, seconds=self.seconds)

    def _buffers(self) -> list[tuple[str, Tensor]]:
        return [(saved_name(self.head, name), buffer) for name, buffer in self.head.named_buffers()]

    def restore(self, path: Path, made_from: str) -> bool:
        """Take up what :meth:`save` wrote, if it was made from the same; False if there is nothing of the kind."""
        saved = read_noted(path, made_from)
        if saved is None:
            return False
        found, note = saved
        self._put_back(found)
        self.step, self.losses = int(note["step"]), list(note["losses"])
        self.seconds = float(note["seconds"])
        return True

    @torch.no_grad()
    def _put_back(self, found: dict[str, Tensor]) -> None:
        for name, parameter in self.named.items():
            parameter.copy_(found[name])
            if f"exp_avg.{name}" in found:
                self.optimizer.state[parameter] = {
                    key: found[f"{key}.{name}"].to(self.device) for key in ("exp_avg", "exp_avg_sq", "step")
                }
        for name, buffer in self._buffers():
            buffer.copy_(found[f"buffer.{name}"])
        torch.set_rng_state(found["random"])
        if "random.cuda" in found and self.device.type == "cuda":
            torch.cuda.set_rng_state(found["random.cuda"], self.device)
