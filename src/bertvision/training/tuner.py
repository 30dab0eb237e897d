"""An encoder and its head while they are tuned: one step at a time, saved and resumed to the last bit."""

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
from bertvision.encoders.fast_dropout import fast_dropout
from bertvision.encoders.hidden_states import States, TokenBatch, collate, hidden_states
from bertvision.encoders.loading import Encoder
from bertvision.encoders.methods import eval_frozen_layers, prepare
from bertvision.heads.base import Head, head_loss, saved_name
from bertvision.training.checkpoint_io import read_checkpoint, write_checkpoint
from bertvision.training.distributed import ProcessGroup

RISEN = 2.0
"""A warning is logged when the mean loss is this many times what it was at the start."""

LOSS_WINDOW = 50
"""Steps whose losses are averaged, at the start and now."""

MOMENTS = ("exp_avg", "exp_avg_sq", "step")
"""What AdamW knows of each parameter."""


@dataclass(frozen=True)
class Checkpoint:
    """Where the state of a tuning is saved, if anywhere, and what it is made from."""

    path: Path | None
    made_from: str

    def remove(self) -> None:
        if self.path is not None:
            self.path.unlink(missing_ok=True)


@dataclass
class Tuner:
    """What a step changes, and what it needs; the encoder is changed in place."""

    encoder: Encoder
    head: Head
    config: TuneConfig
    steps: int
    device: torch.device
    weights: Tensor | None = None  # of the classes
    team: ProcessGroup = field(default_factory=ProcessGroup)
    steps_done: int = 0
    losses: list[float] = field(default_factory=list)
    seconds: float = 0.0  # of the steps alone: what a curve scores, or a run loads, between them is no tuning

    def __post_init__(self) -> None:
        self.model: Any = self.encoder.model.to(self.device)
        self.head.to(self.device)
        prepare(self.model, self.method, self.head.needs_pooled)
        if self.config.checkpointing:
            self.model.gradient_checkpointing_enable({"use_reentrant": False})
        self.named: dict[str, nn.Parameter] = {}  # what is trained, by its name in saved states
        for name, parameter in self.model.named_parameters():
            if parameter.requires_grad:
                self.named[f"model.{name}"] = parameter
        for name, parameter in self.head.named_parameters():
            if parameter.requires_grad:
                self.named[f"head.{saved_name(self.head, name)}"] = parameter
        parameters = list(self.named.values())
        groups = [  # biases and norms (one dimension) are exempt from weight decay
            {"params": [p for p in parameters if p.ndim > 1], "weight_decay": self.config.weight_decay},
            {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
        ]
        self.optimizer = torch.optim.AdamW(groups, lr=self.lr, fused=True)

    @property
    def method(self) -> str:
        """What of the model is trained."""
        return self.config.method

    @property
    def lr(self) -> float:
        """The peak learning rate."""
        assert self.config.lr is not None, "resolve_config decides the learning rate"
        return self.config.lr

    @property
    def trained(self) -> int:
        """How many parameters are trained, the head's included."""
        return sum(parameter.numel() for parameter in self.named.values())

    def step(self, batch: Sequence[Any]) -> None:
        """One optimiser step on a batch, split over pieces and processes as configured."""
        timer = Timer()
        self.model.train()
        self.head.train()
        eval_frozen_layers(self.model, self.method)
        lr = self.lr * lr_factor(self.steps_done, self.steps, self.config.warmup, self.config.decay)
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        self.optimizer.zero_grad(set_to_none=True)
        share = self.team.share(batch)
        size = -(-len(share.items) // self.config.accumulate)
        total = torch.zeros((), device=self.device)
        for first in range(0, len(share.items), size):
            piece = share.items[first : first + size]
            with fast_dropout(self.device, self.config.checkpointing):
                loss = self._loss(piece) * (share.weight * len(piece) / len(share.items))
            loss.backward()
            total += loss.detach()
        parameters = list(self.named.values())
        self.team.all_reduce_gradients(parameters)
        nn.utils.clip_grad_norm_(parameters, self.config.clip)
        self.optimizer.step()
        self.head.module.after_step(self.optimizer.param_groups[0]["lr"])
        self.steps_done += 1
        self.seconds += timer.seconds
        self._track_loss(float(self.team.add(total)))

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

    def _track_loss(self, loss: float) -> None:
        advice = f"lower --lr (now {self.lr:g})"
        if not math.isfinite(loss):
            raise ArithmeticError(f"tuning diverged: the loss is {loss} at step {self.steps_done}; {advice}")
        self.losses.append(loss)
        if len(self.losses) >= 2 * LOSS_WINDOW and self.steps_done % LOSS_WINDOW == 0:
            before, now = np.mean(self.losses[:LOSS_WINDOW]), np.mean(self.losses[-LOSS_WINDOW:])
            if now > RISEN * before:
                log_line(f"tune: the loss has risen from {before:.3g} to {now:.3g} by step {self.steps_done}; {advice}")

    def save(self, path: Path, made_from: str) -> None:
        """Weights, moments and random state, as data; there whole or not at all."""
        tensors: dict[str, Tensor] = dict(self.named)
        for name, parameter in self.named.items():
            state = self.optimizer.state.get(parameter, {})
            tensors.update({f"{key}.{name}": state[key] for key in MOMENTS if key in state})
        for name, buffer in self.head.named_buffers():
            tensors[f"buffer.{saved_name(self.head, name)}"] = buffer
        tensors["random"] = torch.get_rng_state()
        if self.device.type == "cuda":
            tensors["random.cuda"] = torch.cuda.get_rng_state(self.device)
        write_checkpoint(path, tensors, made_from, step=self.steps_done, losses=self.losses, seconds=self.seconds)

    def resume(self, checkpoint: Checkpoint) -> None:
        """Continue from a checkpoint, if it is there and was made from the same."""
        if checkpoint.path is not None and self.restore(checkpoint.path, checkpoint.made_from):
            log_line(f"tune: goes on after step {self.steps_done:,} of {self.steps:,} ({checkpoint.path})")

    def restore(self, path: Path, made_from: str) -> bool:
        """Load what :meth:`save` wrote, if it was made from the same; False if there is nothing of the kind."""
        saved = read_checkpoint(path, made_from)
        if saved is None:
            return False
        tensors, note = saved
        self._load_state(tensors)
        self.steps_done, self.losses = int(note["step"]), list(note["losses"])
        self.seconds = float(note["seconds"])
        return True

    @torch.no_grad()
    def _load_state(self, tensors: dict[str, Tensor]) -> None:
        for name, parameter in self.named.items():
            parameter.copy_(tensors[name])
            if f"exp_avg.{name}" in tensors:
                state = {key: tensors[f"{key}.{name}"].to(self.device) for key in MOMENTS}
                self.optimizer.state[parameter] = state
        for name, buffer in self.head.named_buffers():
            buffer.copy_(tensors[f"buffer.{saved_name(self.head, name)}"])
        torch.set_rng_state(tensors["random"])
        if "random.cuda" in tensors and self.device.type == "cuda":
            torch.cuda.set_rng_state(tensors["random.cuda"], self.device)
