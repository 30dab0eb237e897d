"""Tune an encoder together with one head, for any number of epochs or a fraction of one.

A fraction is a whole run of that length, with its own warm-up and decay, not the beginning of a
longer one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bertvision.config import TuneConfig, updated
from bertvision.encoder.hidden import collate, hidden_states
from bertvision.encoder.load import Encoder, OwnHead
from bertvision.errors import BadInput
from bertvision.heads.base import Head, build_head, head_loss
from bertvision.records import Window
from bertvision.registry import parse_spec, unknown
from bertvision.runtime import Timer, choose_device, progress, rate_at, seeded
from bertvision.steps.inputs import plain_head, split_windows, task_shape
from bertvision.store.plan import reading_batches
from bertvision.tasks.base import Task

METHODS = ("full",)
BERT_WIDTH = 768


def tune(encoder: Encoder, task: Task, config: TuneConfig | None = None, **settings: Any) -> Encoder:
    """A tuned copy of an encoder, e.g. ``tune(encoder, task, epochs=0.3)``; the given one is left as it is."""
    config = updated(config or TuneConfig(), **settings)
    config = updated(config, lr=rate_of(config, encoder.width))
    if parse_spec(config.method).name not in METHODS:
        raise BadInput(unknown("tune method", config.method, list(METHODS)))
    device, timer = choose_device(config.device), Timer()
    windows = split_windows(task, "train", encoder)
    with seeded(config.seed):
        tuned = encoder.copy()
        head = build_head(config.head or plain_head(task, encoder), task_shape(task, encoder.layers, encoder.width))
        losses = _run(tuned, head.to(device), windows, config, device)
    own = OwnHead(head.spec, head.shape, {key: value.cpu().clone() for key, value in head.state_dict().items()})
    tuned.model.eval().cpu()
    record = {**asdict(config), "head": head.spec, "schedule": "whole run", "steps": len(losses), "task": task.name}
    cost = {"seconds": timer.seconds, "loss": float(np.mean(losses[-50:])) if losses else None}
    return replace(tuned, own=own, record={**encoder.record, "tune": record, "cost": cost})


def rate_of(config: TuneConfig, width: int) -> float:
    """The user's rate; else the task's own, which was found with BERT; narrower encoders take the common default."""
    return config.lr or (config.bert_lr if config.bert_lr and width >= BERT_WIDTH else default_rate(width))


def default_rate(width: int) -> float:
    """1.5e-4 at width 384 and below, where it was best of those tried, falling to the customary 5e-5 at 768."""
    return float(f"{1.5e-4 * min(1.0, (384 / width) ** 1.6):.1e}")


def _rate(config: TuneConfig) -> float:
    assert config.lr is not None, "tune() settles the rate"
    return config.lr


def _run(
    encoder: Encoder, head: Head, windows: Sequence[Window], config: TuneConfig, device: torch.device
) -> list[float]:
    """The loop: length-grouped batches, clipped gradients, warm-up and decay over exactly these steps."""
    model = encoder.model.to(device).train()
    head.train()
    per_epoch = math.ceil(len(windows) / config.batch)
    steps = round(config.epochs * per_epoch)
    if steps < 1:
        return []
    optimizer = torch.optim.AdamW(_groups(model, head, config.weight_decay), lr=_rate(config), fused=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: rate_at(step, steps, config.warmup, config.decay)
    )
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    losses: list[float] = []
    pad_id = encoder.tokenizer.pad_token_id
    for batch in progress(_batches(windows, config, steps), "tune", total=steps, unit="step"):
        loss = _loss(model, head, batch, pad_id, device)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, config.clip)
        optimizer.step()
        schedule.step()
        losses.append(_checked(float(loss.detach()), len(losses), _rate(config)))
    return losses


def _loss(model: Any, head: Head, batch: Sequence[Window], pad_id: int, device: torch.device) -> Tensor:
    tokens = collate(batch, pad_id, device)
    states = hidden_states(model, tokens, head.needed_layers)
    logits = head.on_chosen(states.stacked(), tokens.mask, states.pooled)
    targets = torch.tensor([window.target for window in batch], device=device)  # (batch, 1 or 2)
    kind = head.shape.kind
    return head_loss(kind, logits, targets if kind == "span" else targets[:, 0], tokens.mask)


def _batches(windows: Sequence[Window], config: TuneConfig, steps: int) -> Iterator[list[Window]]:
    """Epoch after epoch of shuffled, length-grouped batches, until the steps are used up."""
    lengths = np.array([len(window) for window in windows])
    done, epoch = 0, 0
    while True:
        for chosen in reading_batches(lengths, config.batch, np.random.default_rng([config.seed, epoch])):
            if done == steps:
                return
            yield [windows[i] for i in chosen]
            done += 1
        epoch += 1


def _groups(model: nn.Module, head: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Weight decay for matrices only: biases and norms (one dimension) are exempt."""
    parameters = [p for module in (model, head) for p in module.parameters() if p.requires_grad]
    return [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": weight_decay},
        {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
    ]


def _checked(loss: float, step: int, lr: float) -> float:
    if not math.isfinite(loss):
        raise ArithmeticError(f"tuning diverged: the loss is {loss} at step {step + 1}; lower --lr (now {lr:g})")
    return loss
