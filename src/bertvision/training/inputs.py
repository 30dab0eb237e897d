"""Functions of a task and an encoder that several steps share: windows, shapes, hashes, the default head."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import chain
from typing import Any, Protocol

import torch
from torch import Tensor

from bertvision.core.config import ExtractConfig
from bertvision.core.errors import BadInput
from bertvision.core.files import hash_json, hash_lines, hash_tensors, hashed_fields
from bertvision.core.progress import log_line
from bertvision.core.records import SPLITS, LayerBatch, Shape, Window, WindowTable
from bertvision.core.registry import choose_layers
from bertvision.core.summaries import APART, SUMMARIES, TOGETHER
from bertvision.encoders.delta_weights import functional_settings
from bertvision.encoders.hidden_states import tokenizer_hash
from bertvision.encoders.loading import Encoder
from bertvision.encoders.methods import injected
from bertvision.heads.base import Head, build_head
from bertvision.heads.info import expand_head_words
from bertvision.heads.readings import check_head_tokens, required_summaries
from bertvision.tasks.task import BadRows, Task
from bertvision.tasks.windows import make_windows
from bertvision.training.pair_texts import PairTexts

DEFAULT_SUMMARIES = ("cls", "mean", "max")
"""Summaries that are always stored with ``tokens="auto"``, so that most other heads can be added later."""


class Split(Protocol):
    """A re-iterable of batches, such as a stored split."""

    shape: Shape

    def __len__(self) -> int: ...
    def batches(self, batch: int, seed: int | None = None) -> Iterator[LayerBatch]: ...
    def batch_count(self, batch: int) -> int: ...
    def table(self) -> WindowTable: ...


class BatchSource(Protocol):
    """Splits of hidden states by name, such as a store."""

    shape: Shape

    @property
    def layers(self) -> Sequence[int]: ...
    def __getitem__(self, split: str) -> Split: ...


def task_shape(task: Task, layers: int, width: int) -> Shape:
    """The input and output shape of a task's heads on ``layers`` states of this width."""
    return Shape(layers, width, task.max_length, task.outputs, task.kind)


def split_windows(task: Task, split: str, encoder: Encoder) -> list[Window]:
    """Tokenise a split into encoder inputs; regression labels are standardised.

    A question too long for a window is handled as a bad row: an error, or counted and skipped.
    """
    if task.max_length > encoder.longest:
        raise BadInput(
            f"max_length is {task.max_length}, but encoder {encoder.name} takes at most {encoder.longest} tokens"
        )
    bad = BadRows(task.skip_bad)
    examples = list(task[split])
    if task.kind == "regress":
        for i, example in enumerate(examples):
            if example.label is not None:
                examples[i] = replace(example, label=(example.label - task.center) / task.spread)
    windows = make_windows(examples, encoder.tokenizer, task.kind, task.max_length, task.overlap, bad, task.outputs)
    if not windows:
        raise BadInput(f"no example of the {split} split fits the encoder; {bad}")
    if bad.counts:
        log_line(f"{split}: {bad}; a question without a window counts as unanswered")
    return windows


class TaskWindows(Mapping[str, list[Window]]):
    """Windows by split, tokenised on first access and cached; estimate, tuning and extraction share one copy."""

    def __init__(self, task: Task, encoder: Encoder) -> None:
        self.task, self.encoder = task, encoder
        self._cache: dict[str, list[Window]] = {}

    def __getitem__(self, split: str) -> list[Window]:
        if split not in SPLITS:
            raise KeyError(split)
        if split not in self._cache:
            self._cache[split] = split_windows(self.task, split, self.encoder)
        return self._cache[split]

    @cached_property
    def texts(self) -> PairTexts:
        """The texts of the task's pairs, each by itself."""
        return PairTexts(self.task, self.encoder.tokenizer)

    def __iter__(self) -> Iterator[str]:
        return iter(SPLITS)

    def __len__(self) -> int:
        return len(SPLITS)

    def match(self, task: Task, encoder: Encoder) -> bool:
        """Whether these are the windows of ``task`` for ``encoder``."""
        if self.task is not task or self.encoder.longest != encoder.longest:
            return False
        own, other = self.encoder.tokenizer, encoder.tokenizer
        return own is other or tokenizer_hash(own) == tokenizer_hash(other)


def reuse_windows(task: Task, encoder: Encoder, windows: TaskWindows | None) -> TaskWindows:
    """``windows`` if they belong to this task and encoder, else new ones."""
    return windows if windows is not None and windows.match(task, encoder) else TaskWindows(task, encoder)


def default_head(task: Task, encoder: Encoder) -> str:
    """The head that an encoder is tuned with by default: a linear layer on the pooled CLS or the last layer."""
    if task.kind == "span":
        return "probe:layers=last1"
    # The CLS token whatever other heads read by default: it is the encoder's own head.
    return "probe:read=pooled" if encoder.has_pooler else "probe:layers=last1,read=cls"


def check_heads(
    specs: Sequence[str],
    task: Task,
    encoder: Encoder,
    layers: str = "all",
    tokens: str = "all",
    tuned: bool = True,
    pairs: str = TOGETHER,
) -> list[str]:
    """Canonical specs without duplicates; ``control``, ``quick`` and ``all`` are expanded.

    A head that cannot be fitted on these states raises an error here, before the states are computed.
    """
    shape = task_shape(task, len(choose_layers(layers, encoder.layers)), encoder.width)
    expanded = expand_head_words(specs, shape, encoder.has_pooler, tokens, tuned, pairs)
    with torch.device("meta"):  # allocate no weights, some heads are large
        heads = [build_head(spec, shape) for spec in expanded]
    for head in heads:
        check_head_tokens(head, tokens, pairs)
        if head.needs_pooled and not encoder.has_pooler:
            raise BadInput(f"head {head.spec} needs the pooled CLS, but encoder {encoder.name} has no pooler")
    return list(dict.fromkeys(head.spec for head in heads))


def resolve_tokens(
    config: ExtractConfig, specs: Sequence[str], task: Task, encoder: Encoder, tuned: bool = True
) -> ExtractConfig:
    """``tokens="auto"`` as what these heads read: summaries of each text if that is enough, otherwise all tokens."""
    if config.tokens != "auto":
        return config
    if config.pairs == APART:  # nothing is stored of tokens
        return replace(config, tokens="all")
    shape = task_shape(task, len(choose_layers(config.layers, encoder.layers)), encoder.width)
    with torch.device("meta"):
        expanded = expand_head_words(specs, shape, encoder.has_pooler, tuned=tuned, pairs=config.pairs)
        heads = [build_head(spec, shape) for spec in expanded]
    required = [required_summaries(head) for head in heads]
    if task.kind == "span" or not required or None in required:
        return replace(config, tokens="all")
    names = {*DEFAULT_SUMMARIES, *(name for summaries in required for name in summaries or ())}
    return replace(config, tokens="+".join(name for name in SUMMARIES if name in names))


def native_head(encoder: Encoder) -> Head | None:
    """The head that an encoder was tuned with, as a module."""
    if encoder.own is None:
        return None
    head = build_head(encoder.own.spec, encoder.own.shape)
    head.load_state_dict(dict(encoder.own.state))
    return head.eval()


def encoder_hash(encoder: Encoder) -> str:
    """Hash of an encoder's weights and of the settings that affect its outputs, including the native head's.

    Settings count because equal weights with another number of attention heads give other states.
    """
    native = encoder.own.state if encoder.own else {}
    weights = hash_tensors([*encoder.model.state_dict().items(), *((f"own.{key}", v) for key, v in native.items())])
    injection = [spec] if (spec := injected(encoder.model)) else []  # LoRA's scale is not in a tensor
    return hash_json(
        [weights, functional_settings(encoder.model), encoder.own.spec if encoder.own else None, *injection]
    )


def data_hash(task: Task) -> str:
    """Hash of a task's settings and of the texts and labels of all splits, in order."""
    settings = hashed_fields(replace(task, splits={}, skipped={}, skip_bad=False, max_length=0, overlap=0))
    if not task.class_weights:
        del settings["class_weights"]  # keeps hashes from before class weights existed
    rows = (
        [split, e.id, e.text, e.pair, [(a.text, a.start) for a in e.answers], e.label if e.labels is None else e.labels]
        for split in task.splits
        for e in task[split]
    )
    return hash_lines(chain([settings], rows))


def label_weights(task: Task, device: torch.device) -> Tensor | None:
    """Class weights of the loss (labels,), or None if all are equal."""
    return torch.tensor(task.class_weights, device=device) if task.class_weights else None


def window_settings(task: Task) -> dict[str, Any]:
    return {"max_length": task.max_length, "overlap": task.overlap, "kind": task.kind}
