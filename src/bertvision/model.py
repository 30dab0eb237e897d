"""A model: an encoder, one predictor or several combined, and what is needed to ask it.

Saved as ``config.json``, ``heads.safetensors`` and ``encoder/``; no pickle anywhere.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from bertvision.core.errors import BadInput
from bertvision.core.files import write_json
from bertvision.core.records import Example, Kind, Shape, Window, WindowTable
from bertvision.core.runtime import choose_device
from bertvision.encoders.hidden_states import States, TokenBatch, collate, hidden_states
from bertvision.encoders.loading import Encoder, load_encoder
from bertvision.evaluation.ensemble import How, check_how, combine_rows, sigmoid, softmax_rows
from bertvision.evaluation.scoring import Logits, example_outputs
from bertvision.heads.base import Head, build_head
from bertvision.store.batching import length_batches
from bertvision.store.states import window_table
from bertvision.store.token_subset import kept_positions, reduce_window
from bertvision.tasks.span_decoding import DecodedSpans, decode, n_best
from bertvision.tasks.task import BadRows, Task
from bertvision.tasks.windows import make_windows
from bertvision.training.fitted_head import FittedHead
from bertvision.training.inputs import native_head

FORMAT = 1

BATCH_TOKENS = 4096

HEADS_FILE = "heads.safetensors"

SETTINGS = ("name", "kind", "metric", "labels", "no_answer", "max_length", "overlap", "center", "spread", "merge")

CHUNK = 256
"""Examples that are in memory at a time."""


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
    own = native_head(encoder)
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


class Model:
    """Encoder + predictor(s) + task settings; ``"encoder"`` as a member is the encoder's own head."""

    kinds: ClassVar[tuple[Kind, ...]] = ("span", "classify", "multilabel", "regress")

    def __init__(
        self,
        encoder: Encoder,
        heads: Member | Sequence[Member],
        task: Task,
        combine: How | None = None,
        weights: Sequence[float] | None = None,
        threshold: float | None = None,
        temperatures: Mapping[str, float] | None = None,
        device: str = "auto",
    ) -> None:
        members = [heads] if isinstance(heads, FittedHead | Head | Part | str) else list(heads)
        self._check_kind(task.kind)
        _check_combine(len(members), combine, weights, task.kind)
        self.encoder, self.task, self.combine = encoder, replace(task, splits={}, skipped={}), combine
        self.parts = [part_of(member, encoder, task) for member in members]
        self.weights = np.asarray(weights if weights is not None else [1 / len(members)] * len(members))
        self.threshold = _threshold(self.parts, task, threshold)
        self.temperatures = _temperatures(self.parts, temperatures)
        self.device = choose_device(device)
        self.encoder.model.eval().to(self.device)
        for part in self.parts:
            part.head.eval().to(self.device)

    @classmethod
    def _check_kind(cls, kind: Kind) -> None:
        if kind not in cls.kinds:
            raise BadInput(f"{cls.__name__} is for {', '.join(cls.kinds)} tasks; this model's task is {kind}")

    def save_pretrained(self, folder: str | Path) -> None:
        """Write config, heads and encoder."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        self.encoder.save_pretrained(folder / "encoder")
        states = [part.head.state_dict() for part in self.parts]
        tensors = {
            f"{i}.{key}": value.detach().cpu().clone() for i, one in enumerate(states) for key, value in one.items()
        }
        save_file(tensors, folder / HEADS_FILE)
        config = {
            "format": FORMAT,
            "task": {key: getattr(self.task, key) for key in SETTINGS},
            "members": [part.config() for part in self.parts],
            "combine": self.combine,
            "weights": self.weights.tolist(),
            "threshold": self.threshold,
            "temperatures": self.temperatures,
        }
        write_json(folder / "config.json", config)

    @classmethod
    def from_pretrained(cls, folder: str | Path, device: str = "auto", base: Encoder | str | None = None) -> Self:
        """Load what :meth:`save_pretrained` wrote; ``base`` is for an adapted encoder whose base has moved."""
        folder = Path(folder)
        config = read_config(folder)
        task = Task(**{**config["task"], "labels": tuple(config["task"]["labels"]), "splits": {}})
        cls._check_kind(task.kind)
        tensors = _read_heads(folder / HEADS_FILE)
        parts = [load_part(i, member, tensors) for i, member in enumerate(config["members"])]
        encoder = load_encoder(str(folder / "encoder"), base)
        fitted = config["weights"], config["threshold"], config.get("temperatures", {})
        return cls(encoder, parts, task, config["combine"], *fitted, device)

    def outputs(self, examples: Sequence[Example]) -> tuple[Logits, WindowTable]:
        """Combined outputs for new examples, in window order."""
        bad = BadRows(skip=False, advice="")
        task = self.task
        windows = make_windows(
            examples, self.encoder.tokenizer, task.kind, task.max_length, task.overlap, bad, task.outputs
        )
        stored = "context" if any(part.tokens == "context" for part in self.parts) else "all"
        outputs: list[Any] = [None] * len(windows)
        sizes = np.array([len(window) for window in windows], np.int64)
        for batch in length_batches(np.arange(len(windows)), sizes, BATCH_TOKENS):
            for number, row in zip(batch, self._run([windows[i] for i in batch], stored), strict=True):
                outputs[number] = row
        return outputs, window_table([reduce_window(window, stored, task.kind) for window in windows])

    @torch.inference_mode()
    def _run(self, windows: Sequence[Window], stored: str) -> list[np.ndarray]:
        tokens = collate(windows, self.encoder.tokenizer.pad_token_id, self.device)
        states = hidden_states(self.encoder.model, tokens, range(self.encoder.layers))
        kept = [kept_positions(window, stored) for window in windows]
        per_part = [self._part_rows(part, states, tokens, kept) for part in self.parts]
        if self.combine is None:
            return per_part[0]
        kind = self.task.kind
        return [combine_rows(rows, self.combine, self.weights, kind) for rows in zip(*per_part, strict=True)]

    def _part_rows(
        self, part: Part, states: States, tokens: TokenBatch, kept: Sequence[np.ndarray]
    ) -> list[np.ndarray]:
        """Outputs for the tokens that are kept: a head fitted on the context sees no others, as when it was fitted."""
        # Only the layers a head sees are put side by side.
        chosen = torch.stack([states.layers[i] for i in part.needed], dim=2)  # (batch, tokens, layers, width)
        mask = tokens.mask
        if part.tokens == "context":
            chosen, mask = _gathered(chosen, kept)
            kept = [np.arange(len(places)) for places in kept]
        rows = part.head(chosen, mask, states.pooled).float().cpu().numpy()
        return [row[places] if self.task.kind == "span" else row for row, places in zip(rows, kept, strict=True)]


def native_model(encoder: Encoder, task: Task) -> Model:
    """An encoder with its own head, for its outputs: where the task needs a threshold it is 0, and none is fitted."""
    needs_one = task.no_answer or task.kind == "multilabel"
    return Model(encoder, "encoder", task, threshold=0.0 if needs_one else None)


def _gathered(states: torch.Tensor, kept: Sequence[np.ndarray]) -> tuple[torch.Tensor, torch.Tensor]:
    """Chosen tokens (batch, chosen, layers, width) of (batch, tokens, layers, width), and where they are real."""
    rows = [row[torch.from_numpy(places).to(row.device)] for row, places in zip(states, kept, strict=True)]
    mask = torch.nn.utils.rnn.pad_sequence([row.new_ones(len(row), dtype=torch.bool) for row in rows], True)
    return torch.nn.utils.rnn.pad_sequence(rows, True), mask


def _check_combine(members: int, combine: str | None, weights: Sequence[float] | None, kind: Kind) -> None:
    if members < 1 or (combine is None) != (members == 1):
        raise BadInput(f"a model of {members} predictor(s) with combine={combine}: one needs none, several need one")
    if combine is not None:
        check_how(combine, kind == "regress")
    if combine == "fitted" and weights is None:
        raise BadInput("combine='fitted' needs weights=, fitted on inner (the ensemble's board row has them)")
    if weights is not None and len(weights) != members:
        raise BadInput(f"got {len(weights)} weights for {members} predictors; expected one each")


def _threshold(parts: Sequence[Part], task: Task, given: float | None) -> float | None:
    """A single fitted head brings its own threshold; any other model must be told the one fitted for it."""
    if given is not None or not (task.no_answer or task.kind == "multilabel"):
        return given
    if len(parts) == 1 and parts[0].threshold is not None:
        return parts[0].threshold
    what = "gives any number of labels" if task.kind == "multilabel" else "can say 'no answer'"
    raise BadInput(f"this model {what} and so needs threshold=, fitted on inner (its board row has it)")


def _temperatures(parts: Sequence[Part], given: Mapping[str, float] | None) -> dict[str, float]:
    """A single fitted head brings its own; what has none gives its probabilities as they are, at 1."""
    brought = parts[0].temperatures if len(parts) == 1 else {}
    return dict(brought if given is None else given)


def read_config(folder: Path) -> dict[str, Any]:
    """What a saved model is made of."""
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError, UnicodeDecodeError) as error:
        raise BadInput(
            f"no model at {folder} (config.json cannot be read); a run keeps its model in RUN/model"
        ) from error
    if not isinstance(config, dict) or config.get("format") != FORMAT or "members" not in config:
        raise BadInput(f"{folder / 'config.json'} is not a BERTVision model of format {FORMAT}")
    return config


def _read_heads(path: Path) -> dict[str, torch.Tensor]:
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise BadInput(f"{path} cannot be read: {error}; save the model again") from error


class QuestionAnswerer(Model):
    """Answers questions from a context, or says that the context does not hold the answer."""

    kinds = ("span",)

    def __call__(
        self,
        question: str | Sequence[str],
        context: str | Sequence[str],
        top_k: int = 1,
        handle_impossible_answer: bool | None = None,
    ) -> Any:
        """``{"answer", "score", "start", "end", "no_answer_probability"}``; lists in, lists out.

        An empty answer means that there is none; ``handle_impossible_answer=False`` always gives a
        span. ``start`` and ``end`` are characters of the context.
        """
        if isinstance(question, str) and isinstance(context, str):
            return next(self.answers([(question, context)], top_k, handle_impossible_answer))
        pairs = list(zip(_listed(question, context), _listed(context, question), strict=True))
        return list(self.answers(pairs, top_k, handle_impossible_answer))

    def answers(
        self, pairs: Sequence[tuple[str, str]], top_k: int = 1, handle_impossible: bool | None = None
    ) -> Iterator[Any]:
        """Answers to (question, context) pairs, a few hundred at a time."""
        if top_k < 1:
            raise BadInput(f"top_k is {top_k}, expected at least 1")
        wanted = self.task.no_answer if handle_impossible is None else handle_impossible
        threshold = (self.threshold or 0.0) if wanted else None
        for first in range(0, len(pairs), CHUNK):
            examples = [_question(i, q, c) for i, (q, c) in enumerate(pairs[first : first + CHUNK], first)]
            logits, table = self.outputs(examples)
            for example, found in zip(examples, decode(logits, table, len(examples)), strict=True):
                best = self._entries(found, example.pair or "", threshold, top_k)
                yield best[0] if top_k == 1 else best

    def _entries(
        self, found: DecodedSpans, context: str, threshold: float | None, top_k: int
    ) -> list[dict[str, object]]:
        # The same whether "no answer" may be said or not: it tells how near it was.
        beyond = (found.no_answer_score - (self.threshold or 0.0)) / self.temperatures.get("no_answer", 1.0)
        chance = {"no_answer_probability": float(sigmoid(np.array(beyond)))}
        listed = n_best(found, context, threshold, top_k, self.temperatures.get("answer", 1.0))
        return [{**entry, **chance} for entry in listed]


class TextClassifier(Model):
    """A label, any number of them, or for a regression task a number, for texts and pairs of texts."""

    kinds = ("classify", "multilabel", "regress")

    def __call__(self, text: str | Sequence[str], pair: str | Sequence[str] | None = None) -> Any:
        """``{"label", "score", "scores"}`` or ``{"value"}``; lists in, lists out.

        Where a text has any number of labels: ``{"labels": [{"label", "score"}, ...], "scores"}``, the
        labels that reach the model's threshold, the surest first, and the scores of all.
        """
        if isinstance(text, str) and (pair is None or isinstance(pair, str)):
            return next(self.labels([(text, pair)]))
        texts = _listed(text, text if pair is None else pair)
        pairs: Sequence[str | None] = [None] * len(texts) if pair is None else _listed(pair, text)
        return list(self.labels(list(zip(texts, pairs, strict=True))))

    def labels(self, texts: Sequence[tuple[str, str | None]]) -> Iterator[dict[str, Any]]:
        """Labels for (text, pair or None), a few hundred at a time."""
        for first in range(0, len(texts), CHUNK):
            chunk = texts[first : first + CHUNK]
            logits, table = self.outputs([Example(str(i), text, pair) for i, (text, pair) in enumerate(chunk)])
            for row in example_outputs(logits, table, len(chunk), self.task.merge_label):
                yield self._entry(row)

    def _entry(self, row: np.ndarray) -> dict[str, Any]:
        if self.task.kind == "regress":
            return {"value": float(row[0]) * self.task.spread + self.task.center}
        logits: np.ndarray = row / self.temperatures.get("label", 1.0)
        scores = sigmoid(logits) if self.task.kind == "multilabel" else softmax_rows(logits)
        named = {label: float(score) for label, score in zip(self.task.labels, scores, strict=True)}
        if self.task.kind == "multilabel":
            said = [self.task.labels[place] for place in np.argsort(-row) if row[place] >= (self.threshold or 0.0)]
            return {"labels": [{"label": label, "score": named[label]} for label in said], "scores": named}
        best = int(scores.argmax())
        return {"label": self.task.labels[best], "score": float(scores[best]), "scores": named}


def load_model(
    folder: str | Path, device: str = "auto", base: Encoder | str | None = None
) -> QuestionAnswerer | TextClassifier:
    """A saved model as what it is for; models on one ``base`` share its weights."""
    kind = read_config(Path(folder))["task"]["kind"]
    return (QuestionAnswerer if kind == "span" else TextClassifier).from_pretrained(folder, device, base)


def _question(number: int, question: str, context: str) -> Example:
    if not context.strip() or not question.strip():
        raise BadInput(f"question {number + 1}: the {'context' if question.strip() else 'question'} is empty")
    return Example(str(number + 1), question.strip(), context)


def _listed(given: str | Sequence[str], other: str | Sequence[str]) -> list[str]:
    """One context for many questions, or many for one, or as many as the other."""
    listed = [given] * len(other) if isinstance(given, str) else list(given)
    if not isinstance(other, str) and len(listed) != len(other):
        raise BadInput(f"got {len(listed)} and {len(other)} texts; expected as many of the one as of the other")
    return listed
