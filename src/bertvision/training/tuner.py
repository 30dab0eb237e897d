"""Training state of an encoder and its head: optimiser steps, and checkpoints that resume bit-exactly."""

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
from bertvision.encoders.fast_dropout import fast_dropout
from bertvision.encoders.hidden_states import States, TokenBatch, collate, hidden_states
from bertvision.encoders.loading import Encoder
from bertvision.encoders.methods import eval_frozen_layers, prepare
from bertvision.heads.base import Head, head_loss, saved_name
from bertvision.training.checkpoint_io import read_checkpoint, write_checkpoint
from bertvision.training.distributed import ProcessGroup
from bertvision.training.schedule import lr_factor

LOSS_RISE = 2.0
"""Warn when the mean loss is this many times the mean loss at the start."""

LOSS_WINDOW = 50
"""Steps over which losses are averaged, at the start and at the end."""

ADAM_STATE = ("exp_avg", "exp_avg_sq", "step")
"""State that AdamW keeps per parameter."""


@dataclass(frozen=True)
class Checkpoint:
    """Where the state of tuning is saved (None: nowhere), and the hash of its inputs."""

    path: Path | None
    made_from: str

    def remove(self) -> None:
        if self.path is not None:
            self.path.unlink(missing_ok=True)


@dataclass
class Tuner:
    """Trains an encoder, in place, together with one head."""

    encoder: Encoder
    head: Head
    config: TuneConfig
    steps: int
    device: torch.device
    weights: Tensor | None = None  # class weights
    processes: ProcessGroup = field(default_factory=ProcessGroup)
    steps_done: int = 0
    losses: list[float] = field(default_factory=list)
    seconds: float = 0.0  # spent in steps; scoring and loading between them do not count

    def __post_init__(self) -> None:
        self.model: Any = self.encoder.model.to(self.device)
        self.head.to(self.device)
        prepare(self.model, self.method, self.head.needs_pooled)
        if self.config.checkpointing:
            self.model.gradient_checkpointing_enable({"use_reentrant": False})
        self.named: dict[str, nn.Parameter] = {}  # trained parameters by their names in checkpoints
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
        """The tuning method, which decides which parameters of the model are trained."""
        return self.config.method

    @property
    def lr(self) -> float:
        """The peak learning rate."""
        assert self.config.lr is not None, "resolve_config decides the learning rate"
        return self.config.lr

    @property
    def trained(self) -> int:
        """The number of trained parameters, including the head's."""
        return sum(parameter.numel() for parameter in self.named.values())

    def step(self, batch: Sequence[Any]) -> None:
        """One optimiser step on a batch, split over processes and accumulation chunks."""
        timer = Timer()
        self.model.train()
        self.head.train()
        eval_frozen_layers(self.model, self.method)
        lr = self.lr * lr_factor(self.steps_done, self.steps, self.config.warmup, self.config.decay)
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        self.optimizer.zero_grad(set_to_none=True)
        share = self.processes.share(batch)
        size = -(-len(share.items) // self.config.accumulate)
        total = torch.zeros((), device=self.device)
        for first in range(0, len(share.items), size):
            chunk = share.items[first : first + size]
            with fast_dropout(self.device, self.config.checkpointing):
                loss = self._loss(chunk) * (share.weight * len(chunk) / len(share.items))
            loss.backward()
            total += loss.detach()
        parameters = list(self.named.values())
        self.processes.all_reduce_gradients(parameters)
        nn.utils.clip_grad_norm_(parameters, self.config.clip)
        self.optimizer.step()
        self.head.module.after_step(self.optimizer.param_groups[0]["lr"])
        self.steps_done += 1
        self.seconds += timer.seconds
        self._track_loss(float(self.processes.all_reduce(total)))

    def _loss(self, batch: Sequence[Any]) -> Tensor:
        windows, tokens, states = self.states_of(batch)
        logits = self.head(states.stacked(), tokens.mask, states.pooled)
        targets = torch.tensor([window.target for window in windows], device=self.device)  # (batch, 1, 2 or labels)
        kind = self.head.shape.kind
        return head_loss(kind, logits, targets if kind in ROW_KINDS else targets[:, 0], tokens.mask, self.weights)

    def states_of(self, batch: Sequence[Any]) -> tuple[Sequence[Window], TokenBatch, States]:
        """Windows, their tokens as a batch, and the hidden states that the head needs."""
        tokens = collate(batch, self.encoder.tokenizer.pad_token_id, self.device)
        return batch, tokens, hidden_states(self.model, tokens, self.head.needed_layers, self.config.bf16)

    def _track_loss(self, loss: float) -> None:
        advice = f"lower --lr (now {self.lr:g})"
        if not math.isfinite(loss):
            raise ArithmeticError(f"tuning diverged: the loss is {loss} at step {self.steps_done}; {advice}")
        self.losses.append(loss)
        if len(self.losses) >= 2 * LOSS_WINDOW and self.steps_done % LOSS_WINDOW == 0:
            first, last = np.mean(self.losses[:LOSS_WINDOW]), np.mean(self.losses[-LOSS_WINDOW:])
            if last > LOSS_RISE * first:
                log_line(f"tune: the loss rose from {first:.3g} to {last:.3g} by step {self.steps_done}; {advice}")

    def save(self, path: Path, made_from: str) -> None:
        """Write a checkpoint: weights, optimiser state and random state."""
        tensors: dict[str, Tensor] = dict(self.named)
        for name, parameter in self.named.items():
            state = self.optimizer.state.get(parameter, {})
            tensors.update({f"{key}.{name}": state[key] for key in ADAM_STATE if key in state})
        for name, buffer in self.head.named_buffers():
            tensors[f"buffer.{saved_name(self.head, name)}"] = buffer
        tensors["random"] = torch.get_rng_state()
        if self.device.type == "cuda":
            tensors["random.cuda"] = torch.cuda.get_rng_state(self.device)
        write_checkpoint(path, tensors, made_from, step=self.steps_done, losses=self.losses, seconds=self.seconds)

    def resume(self, checkpoint: Checkpoint) -> None:
        """Continue from a checkpoint if it exists and was made from the same inputs."""
        if checkpoint.path is not None and self.restore(checkpoint.path, checkpoint.made_from):
            log_line(f"tune: resuming after step {self.steps_done:,} of {self.steps:,} ({checkpoint.path})")

    def restore(self, path: Path, made_from: str) -> bool:
        """Load a checkpoint; False if it does not exist or was made from other inputs."""
        saved = read_checkpoint(path, made_from)
        if saved is None:
            return False
        tensors, metadata = saved
        self._load_state(tensors)
        self.steps_done, self.losses = int(metadata["step"]), list(metadata["losses"])
        self.seconds = float(metadata["seconds"])
        return True

    @torch.no_grad()
    def _load_state(self, tensors: dict[str, Tensor]) -> None:
        for name, parameter in self.named.items():
            parameter.copy_(tensors[name])
            if f"exp_avg.{name}" in tensors:
                state = {key: tensors[f"{key}.{name}"].to(self.device) for key in ADAM_STATE}
                self.optimizer.state[parameter] = state
        for name, buffer in self.head.named_buffers():
            buffer.copy_(tensors[f"buffer.{saved_name(self.head, name)}"])
        torch.set_rng_state(tensors["random"])
        if "random.cuda" in tensors and self.device.type == "cuda":
            torch.cuda.set_rng_state(tensors["random.cuda"], self.device)
