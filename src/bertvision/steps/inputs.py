"""What several steps need of a task and an encoder together: windows, shapes, hashes, the plain head."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from bertvision.encoder.load import Encoder
from bertvision.errors import BadInput
from bertvision.heads.base import Head, build_head
from bertvision.records import Example, Shape, Window
from bertvision.runtime import say
from bertvision.store.fingerprint import hash_json, hash_lines, hash_tensors
from bertvision.tasks.base import BadRows, Task
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
    examples = [_scaled(example, task) for example in task[split]]
    windows = make_windows(examples, encoder.tokenizer, task.kind, task.max_length, task.overlap, bad)
    if bad.counts:
        say(f"{split}: no window for {bad}; they count as not answered")
    return windows


def _scaled(example: Example, task: Task) -> Example:
    if task.kind != "regress" or example.label is None:
        return example
    return replace(example, label=(example.label - task.center) / task.spread)


def plain_head(task: Task, encoder: Encoder) -> str:
    """What an encoder is tuned with by default: one linear layer on the last layer.

    For labels on the pooled CLS where the checkpoint really has a pooler, else on the CLS token.
    """
    return "probe:read=pooled" if task.kind != "span" and encoder.has_pooler else "probe:layers=last1"


def own_head(encoder: Encoder) -> Head | None:
    """The module of the head that an encoder was tuned with."""
    if encoder.own is None:
        return None
    head = build_head(encoder.own.spec, encoder.own.shape)
    head.load_state_dict(dict(encoder.own.state))
    return head.eval()


def encoder_hash(encoder: Encoder) -> str:
    """Weights by name, the own head's included."""
    own = encoder.own.state if encoder.own else {}
    tensors = list(encoder.model.state_dict().items())
    return hash_tensors([*tensors, *((f"own.{key}", value) for key, value in own.items())])


def tokenizer_hash(encoder: Encoder) -> str:
    return hash_json(encoder.tokenizer.backend_tokenizer.get_vocab())


def data_hash(task: Task) -> str:
    """Texts and labels of all splits, in order."""
    return hash_lines(
        [split, e.id, e.text, e.pair, [(a.text, a.start) for a in e.answers], e.label]
        for split in task.splits
        for e in task[split]
    )


def window_settings(task: Task) -> dict[str, Any]:
    return {"max_length": task.max_length, "overlap": task.overlap, "kind": task.kind}
