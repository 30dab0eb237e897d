"""What several steps need of a task and an encoder together: windows, shapes, hashes, the plain head."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from bertvision.core.errors import BadInput
from bertvision.core.files import hash_json, hash_lines, hash_tensors, hashed_fields
from bertvision.core.progress import log_line
from bertvision.core.records import SPLITS, Shape, Window
from bertvision.core.registry import choose_layers
from bertvision.encoders.delta_weights import functional_settings
from bertvision.encoders.hidden_states import tokenizer_hash
from bertvision.encoders.loading import Encoder
from bertvision.encoders.methods import injected
from bertvision.heads.base import Head, build_head, check_head_tokens
from bertvision.heads.summary import compatible_heads
from bertvision.tasks.task import BadRows, Task
from bertvision.tasks.windows import make_windows


def task_shape(task: Task, layers: int, width: int) -> Shape:
    """The shape of heads for a task on states of this size."""
    return Shape(layers, width, task.max_length, task.outputs, task.kind)


def split_windows(task: Task, split: str, encoder: Encoder) -> list[Window]:
    """A split's encoder inputs, values brought to the scale that is learned.

    A question too long for a window is a bad row like any other: it ends the work, or is counted.
    """
    if task.max_length > encoder.longest:
        raise BadInput(
            f"--max-length {task.max_length} is more than encoder {encoder.name} can take; at most {encoder.longest}"
        )
    bad = BadRows(task.skip_bad)
    examples = list(task[split])
    if task.kind == "regress":
        for i, example in enumerate(examples):
            if example.label is not None:
                examples[i] = replace(example, label=(example.label - task.center) / task.spread)
    windows = make_windows(examples, encoder.tokenizer, task.kind, task.max_length, task.overlap, bad, task.outputs)
    if not windows:
        raise BadInput(f"no example of the {split} split can be put to the encoder; {bad}")
    if bad.counts:
        log_line(f"{split}: {bad}; a question without a window counts as not answered")
    return windows


class TaskWindows(Mapping[str, list[Window]]):
    """The windows of every split; each split is tokenised when it is first asked for, and then kept.

    Made once and handed on, so that estimate, tuning and extraction share one copy.
    """

    def __init__(self, task: Task, encoder: Encoder) -> None:
        self.task, self.encoder = task, encoder
        self._by_split: dict[str, list[Window]] = {}

    def __getitem__(self, split: str) -> list[Window]:
        if split not in SPLITS:
            raise KeyError(split)
        if split not in self._by_split:
            self._by_split[split] = split_windows(self.task, split, self.encoder)
        return self._by_split[split]

    def __iter__(self) -> Iterator[str]:
        return iter(SPLITS)

    def __len__(self) -> int:
        return len(SPLITS)

    def fit(self, task: Task, encoder: Encoder) -> bool:
        """Whether these are the windows of that task for that encoder."""
        if self.task is not task or self.encoder.longest != encoder.longest:
            return False
        mine, other = self.encoder.tokenizer, encoder.tokenizer
        return mine is other or tokenizer_hash(mine) == tokenizer_hash(other)


def windows_of(task: Task, encoder: Encoder, windows: TaskWindows | None) -> TaskWindows:
    """The given windows if they fit, else new ones."""
    return windows if windows is not None and windows.fit(task, encoder) else TaskWindows(task, encoder)


def default_head(task: Task, encoder: Encoder) -> str:
    """What an encoder is tuned with by default: one linear layer on the last layer.

    For labels on the pooled CLS where the checkpoint really has a pooler, else on the CLS token.
    """
    return "probe:read=pooled" if task.kind != "span" and encoder.has_pooler else "probe:layers=last1"


def check_heads(
    specs: Sequence[str], task: Task, encoder: Encoder, layers: str = "all", tokens: str = "all"
) -> list[str]:
    """Specs in canonical form, each once; one that cannot be fitted on these states is refused before they are made.

    ``all`` are those that can.
    """
    shape = task_shape(task, len(choose_layers(layers, encoder.layers)), encoder.width)
    fitting = partial(compatible_heads, shape, encoder.has_pooler, tokens)
    asked = [one for spec in specs for one in (fitting() if spec == "all" else [spec])]
    with torch.device("meta"):  # some are large, and none is needed yet
        heads = [build_head(spec, shape) for spec in dict.fromkeys(asked)]
    for head in heads:
        check_head_tokens(head, tokens)
        if head.needs_pooled and not encoder.has_pooler:
            raise BadInput(f"head {head.spec} needs the pooled CLS, which encoder {encoder.name} does not have")
    return list(dict.fromkeys(head.spec for head in heads))


def native_head(encoder: Encoder) -> Head | None:
    """The module of the head that an encoder was tuned with."""
    if encoder.own is None:
        return None
    head = build_head(encoder.own.spec, encoder.own.shape)
    head.load_state_dict(dict(encoder.own.state))
    return head.eval()


def encoder_hash(encoder: Encoder) -> str:
    """Weights by name and the settings that they are used with, the own head's included.

    Equal weights with another number of attention heads, or an own head on another layer, give
    other states and outputs.
    """
    own = encoder.own.state if encoder.own else {}
    weights = hash_tensors([*encoder.model.state_dict().items(), *((f"own.{key}", v) for key, v in own.items())])
    injection = [what] if (what := injected(encoder.model)) else []  # LoRA's scale is in no tensor
    return hash_json(
        [weights, functional_settings(encoder.model), encoder.own.spec if encoder.own else None, *injection]
    )


def data_hash(task: Task) -> str:
    """What is asked, and the texts and labels of all splits, in order."""
    asked = hashed_fields(replace(task, splits={}, skipped={}, skip_bad=False, max_length=0, overlap=0))
    if not task.class_weights:
        del asked["class_weights"]  # what is not weighed keeps the hash that it had before there were weights
    rows = (
        [split, e.id, e.text, e.pair, [(a.text, a.start) for a in e.answers], e.label if e.labels is None else e.labels]
        for split in task.splits
        for e in task[split]
    )
    return hash_lines(chain([asked], rows))


def label_weights(task: Task, device: torch.device) -> Tensor | None:
    """What each label weighs in the loss (labels,), if they do not weigh alike."""
    return torch.tensor(task.class_weights, device=device) if task.class_weights else None


def window_settings(task: Task) -> dict[str, Any]:
    return {"max_length": task.max_length, "overlap": task.overlap, "kind": task.kind}
