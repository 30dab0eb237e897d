"""Models for deployment: an encoder, one predictor or an ensemble, and the task's settings.

Saved as ``config.json``, ``heads.safetensors`` and ``encoder/``, without pickle.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from bertvision.core.errors import BadInput
from bertvision.core.files import write_json
from bertvision.core.records import Example, Kind, Shape, Window, WindowTable
from bertvision.core.runtime import choose_device
from bertvision.encoders.hidden_states import States, collate, hidden_states
from bertvision.encoders.loading import Encoder, load_encoder
from bertvision.evaluation.ensemble import How, check_how, combine_rows, sigmoid, softmax_rows
from bertvision.evaluation.scoring import Logits, example_outputs
from bertvision.heads.base import Head, build_head
from bertvision.heads.readings import reads_apart, reads_together
from bertvision.store.batching import length_batches
from bertvision.store.states import window_table
from bertvision.store.token_subset import kept_positions, reduce_window
from bertvision.tasks.span_decoding import DecodedSpans, decode, n_best
from bertvision.tasks.task import BadRows, Task
from bertvision.tasks.windows import make_windows, windows_of_texts
from bertvision.training.fitted_head import FittedHead
from bertvision.training.inputs import native_head
from bertvision.training.pair_texts import mean_states

FORMAT = 1

BATCH_TOKENS = 4096

HEADS_FILE = "heads.safetensors"

SETTINGS = ("name", "kind", "metric", "labels", "no_answer", "max_length", "overlap", "center", "spread", "merge")

CHUNK = 256
"""Examples per call of the encoder's batching."""


@dataclass(frozen=True)
class Predictor:
    """A head and the encoder states that it was fitted on; a head's layers are indices into ``states``."""

    name: str
    head: Head
    states: tuple[int, ...]  # the encoder's states that the head was fitted on
    threshold: float | None = None
    temperatures: Mapping[str, float] = field(default_factory=dict)
    tokens: str = "all"  # the tokens that the head was fitted on

    @property
    def needed(self) -> tuple[int, ...]:
        """The encoder states that the head reads."""
        return tuple(self.states[layer] for layer in self.head.needed_layers)

    def config(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "spec": self.head.spec,
            "shape": asdict(self.head.shape),
            "states": list(self.states),
            "tokens": self.tokens,
        }


@dataclass(frozen=True)
class EncodedBatch:
    """The states of a batch of windows."""

    states: States  # of no tokens if no head reads whole windows
    mask: Tensor  # (batch, tokens)
    apart: Tensor | None  # (batch, 2, layers, width), if a head reads each text of a pair by itself


Member = FittedHead | Head | Predictor | str


def as_predictor(member: Member, encoder: Encoder, task: Task) -> Predictor:
    """The predictor of a head, or of ``"encoder"`` (its native head), checked against encoder and task."""
    all_states = tuple(range(encoder.layers))
    native = native_head(encoder) if member == "encoder" else None
    if isinstance(member, Predictor):
        predictor = member
    elif isinstance(member, FittedHead):
        name, states = f"{member.spec}@{member.seed}", member.states or all_states
        predictor = Predictor(name, member.head, states, member.threshold, member.temperatures, member.tokens)
    elif isinstance(member, Head):
        predictor = Predictor(member.spec, member, all_states)
    elif native is not None:
        predictor = Predictor("encoder", native, all_states)
    else:
        raise BadInput(
            f"heads: {member!r} is not a predictor of encoder {encoder.name}; give fitted heads, or 'encoder' if it "
            "was tuned"
        )
    shape = predictor.head.shape
    if (shape.kind, shape.outputs) != (task.kind, task.outputs):
        raise BadInput(
            f"head {predictor.name} gives {shape.outputs} outputs for {shape.kind}; task {task.name} needs "
            f"{task.outputs} for {task.kind}"
        )
    states = predictor.states
    if shape.width != encoder.width or len(states) != shape.layers or max(states) >= encoder.layers:
        raise BadInput(
            f"head {predictor.name} was fitted on {shape.layers} states of width {shape.width}; encoder {encoder.name} "
            f"gives {encoder.layers} of width {encoder.width}; give the encoder that the states came from"
        )
    return predictor


def load_predictor(index: int, config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Predictor:
    """The inverse of :meth:`Predictor.config`; ``tensors`` are those of all heads of the model."""
    head = build_head(config["spec"], Shape(**config["shape"]))
    prefix = f"{index}."
    head.load_state_dict({key[len(prefix) :]: value for key, value in tensors.items() if key.startswith(prefix)})
    states = tuple(config.get("states") or range(head.shape.layers))
    return Predictor(config["name"], head, states, tokens=config.get("tokens", "all"))


class Model:
    """An encoder with one predictor, or several combined, for one task.

    Args:
        encoder: The encoder; it is moved to ``device``.
        heads: One predictor or several: fitted heads, heads, or ``"encoder"`` for the encoder's native head.
        task: The task; its data are not kept.
        combine: How several predictors are combined: ``"max"``, ``"mean"`` or ``"fitted"``. None for one predictor.
        weights: One weight per predictor, for ``combine="fitted"``.
        threshold: No-answer or label threshold. Default: that of the fitted head.
        temperatures: Temperatures of probabilities. Default: those of the fitted head, else 1.
        device: ``"auto"``, ``"cpu"``, ``"cuda"``...

    Example:
        >>> model = QuestionAnswerer(encoder, fitted[0], task)  # doctest: +SKIP
        >>> model.save_pretrained("model")  # doctest: +SKIP
    """

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
        members = [heads] if isinstance(heads, FittedHead | Head | Predictor | str) else list(heads)
        self._check_kind(task.kind)
        _check_combine(len(members), combine, weights, task.kind)
        self.encoder, self.task, self.combine = encoder, replace(task, splits={}, skipped={}), combine
        self.predictors = [as_predictor(member, encoder, task) for member in members]
        self.weights = np.asarray(weights if weights is not None else [1 / len(members)] * len(members))
        self.threshold = _threshold(self.predictors, task, threshold)
        fitted = self.predictors[0].temperatures if len(self.predictors) == 1 else {}
        self.temperatures = dict(fitted if temperatures is None else temperatures)
        self.device = choose_device(device)
        self.encoder.model.eval().to(self.device)
        for predictor in self.predictors:
            predictor.head.eval().to(self.device)

    def __repr__(self) -> str:
        names = [predictor.name for predictor in self.predictors]
        combine = "" if self.combine is None else f", combine={self.combine!r}"
        return f"{type(self).__name__}({self.encoder.name!r}, {names}, task={self.task.name!r}{combine})"

    @classmethod
    def _check_kind(cls, kind: Kind) -> None:
        if kind not in cls.kinds:
            raise BadInput(f"{cls.__name__} is for {', '.join(cls.kinds)} tasks; this model's task is {kind}")

    def save_pretrained(self, folder: str | Path) -> None:
        """Write config, heads and encoder to a folder, for :func:`load_model`."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        self.encoder.save_pretrained(folder / "encoder")
        tensors = {}
        for i, predictor in enumerate(self.predictors):
            for key, value in predictor.head.state_dict().items():
                tensors[f"{i}.{key}"] = value.detach().cpu().clone()
        save_file(tensors, folder / HEADS_FILE)
        config = {
            "format": FORMAT,
            "task": {key: getattr(self.task, key) for key in SETTINGS},
            "members": [predictor.config() for predictor in self.predictors],
            "combine": self.combine,
            "weights": self.weights.tolist(),
            "threshold": self.threshold,
            "temperatures": self.temperatures,
        }
        write_json(folder / "config.json", config)

    @classmethod
    def from_pretrained(cls, folder: str | Path, device: str = "auto", base: Encoder | str | None = None) -> Self:
        """Load what :meth:`save_pretrained` wrote; ``base`` replaces the recorded base of an adapted encoder."""
        folder = Path(folder)
        config = read_config(folder)
        task = Task(**{**config["task"], "labels": tuple(config["task"]["labels"]), "splits": {}})
        cls._check_kind(task.kind)
        try:
            tensors = load_file(folder / HEADS_FILE)
        except (OSError, SafetensorError) as error:
            raise BadInput(f"{folder / HEADS_FILE} cannot be read: {error}; save the model again") from error
        predictors = [load_predictor(i, member, tensors) for i, member in enumerate(config["members"])]
        encoder = load_encoder(str(folder / "encoder"), base)
        fitted = config["weights"], config["threshold"], config.get("temperatures", {})
        return cls(encoder, predictors, task, config["combine"], *fitted, device)

    def outputs(self, examples: Sequence[Example]) -> tuple[Logits, WindowTable]:
        """Combined logits of new examples, one array per window, and the table of their windows."""
        bad = BadRows(skip=False, advice="")
        task = self.task
        self._check_pairs(examples)
        windows = make_windows(
            examples, self.encoder.tokenizer, task.kind, task.max_length, task.overlap, bad, task.outputs
        )
        tokens = "context" if any(predictor.tokens == "context" for predictor in self.predictors) else "all"
        outputs: list[Any] = [None] * len(windows)
        sizes = np.array([len(window) for window in windows], np.int64)
        for batch in length_batches(np.arange(len(windows)), sizes, BATCH_TOKENS):
            for index, row in zip(batch, self._run([windows[i] for i in batch], examples, tokens), strict=True):
                outputs[index] = row
        return outputs, window_table([reduce_window(window, tokens, task.kind) for window in windows])

    def _check_pairs(self, examples: Sequence[Example]) -> None:
        """Raise an error for a single text if a head compares two."""
        apart = next((predictor for predictor in self.predictors if reads_apart(predictor.head)), None)
        single = next((number for number, example in enumerate(examples, 1) if example.pair is None), None)
        if apart is not None and single is not None:
            raise BadInput(
                f"head {apart.head.spec} reads pairs of texts, but text {single} has no second text; give it as pair "
                "(--pair)"
            )

    @torch.inference_mode()
    def _run(self, windows: Sequence[Window], examples: Sequence[Example], tokens: str) -> list[np.ndarray]:
        """Combined logits of one batch of windows of these examples, for the tokens that are kept."""
        inputs = self._encode(windows, examples)
        positions = [kept_positions(window, tokens) for window in windows]
        logits = [self._predict(predictor, inputs, positions) for predictor in self.predictors]
        if self.combine is None:
            return logits[0]
        kind = self.task.kind
        return [combine_rows(rows, self.combine, self.weights, kind) for rows in zip(*logits, strict=True)]

    def _encode(self, windows: Sequence[Window], examples: Sequence[Example]) -> EncodedBatch:
        """The states that the heads read: of the windows, of each text of their pairs by itself, or both."""
        heads, encoder = [predictor.head for predictor in self.predictors], self.encoder
        apart = self._encode_apart(windows, examples) if any(map(reads_apart, heads)) else None
        if not any(map(reads_together, heads)):
            nothing = torch.empty(len(windows), 0, encoder.width, device=self.device)
            states = States((nothing,) * encoder.layers, None)
            return EncodedBatch(states, torch.ones(len(windows), 0, dtype=torch.bool, device=self.device), apart)
        batch = collate(windows, encoder.tokenizer.pad_token_id, self.device)
        return EncodedBatch(hidden_states(encoder.model, batch, range(encoder.layers)), batch.mask, apart)

    def _encode_apart(self, windows: Sequence[Window], examples: Sequence[Example]) -> Tensor:
        """The texts of each window's pair, each by itself: (batch, 2, layers, width)."""
        encoder = self.encoder
        pairs = [(examples[window.example].text, examples[window.example].pair or "") for window in windows]
        numbers = {text: number for number, text in enumerate(dict.fromkeys(chain.from_iterable(pairs)))}
        texts = windows_of_texts(list(numbers), encoder.tokenizer, self.task.max_length)
        means = torch.empty(len(texts), encoder.layers, encoder.width, device=self.device)
        sizes = np.array([len(text) for text in texts], np.int64)
        for batch in length_batches(np.arange(len(texts)), sizes, BATCH_TOKENS):
            members, pad_id = [texts[i] for i in batch], encoder.tokenizer.pad_token_id
            means[torch.from_numpy(batch)] = mean_states(
                encoder.model, members, range(encoder.layers), pad_id, self.device
            )
        return means[torch.tensor([[numbers[text] for text in pair] for pair in pairs])]

    def _predict(self, predictor: Predictor, inputs: EncodedBatch, positions: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Logits of one predictor for the tokens at ``positions``."""
        states, mask, needed = inputs.states, inputs.mask, predictor.needed
        hidden = torch.stack([states.layers[i] for i in needed], dim=2)  # (batch, tokens, layers, width)
        apart = None if inputs.apart is None else inputs.apart[:, :, list(needed)]  # (batch, 2, layers, width)
        if predictor.tokens == "context":  # give the head the same tokens that it was fitted on
            texts = [text[torch.from_numpy(kept).to(text.device)] for text, kept in zip(hidden, positions, strict=True)]
            hidden = nn.utils.rnn.pad_sequence(texts, batch_first=True)  # (batch, kept tokens, layers, width)
            real = [text.new_ones(len(text), dtype=torch.bool) for text in texts]
            mask = nn.utils.rnn.pad_sequence(real, batch_first=True)  # (batch, kept tokens)
            positions = [np.arange(len(kept)) for kept in positions]
        rows = predictor.head(hidden, mask, states.pooled, apart).float().cpu().numpy()
        return [row[kept] if self.task.kind == "span" else row for row, kept in zip(rows, positions, strict=True)]


def native_model(encoder: Encoder, task: Task) -> Model:
    """A model of an encoder and its native head, to compute outputs; its threshold, if any, is 0."""
    has_threshold = task.no_answer or task.kind == "multilabel"
    return Model(encoder, "encoder", task, threshold=0.0 if has_threshold else None)


def _check_combine(members: int, combine: str | None, weights: Sequence[float] | None, kind: Kind) -> None:
    if members < 1 or (combine is None) != (members == 1):
        raise BadInput(
            f"combine is {combine!r} for {members} predictor(s); it must be max, mean or fitted for 2 or more, and "
            "None for one"
        )
    if combine is not None:
        check_how(combine, kind == "regress")
    if combine == "fitted" and weights is None:
        raise BadInput("combine='fitted' needs weights=, fitted on inner (see the ensemble's leaderboard row)")
    if weights is not None and len(weights) != members:
        raise BadInput(f"got {len(weights)} weights for {members} predictors; expected one each")


def _threshold(predictors: Sequence[Predictor], task: Task, given: float | None) -> float | None:
    """The given threshold, else that of a single fitted head; an error if the task needs one and there is none."""
    if given is not None:
        return given
    if len(predictors) == 1 and predictors[0].threshold is not None:
        return predictors[0].threshold
    if not (task.no_answer or task.kind == "multilabel"):
        return None
    reason = "gives any number of labels" if task.kind == "multilabel" else "can answer 'no answer'"
    raise BadInput(f"this model {reason} and so needs threshold=, fitted on inner (see its leaderboard row)")


def read_config(folder: Path) -> dict[str, Any]:
    """The ``config.json`` of a saved model."""
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError, UnicodeDecodeError) as error:
        raise BadInput(
            f"no model at {folder} (config.json cannot be read); the model of a run is in RUN/model"
        ) from error
    if not isinstance(config, dict) or config.get("format") != FORMAT or "members" not in config:
        raise BadInput(f"{folder / 'config.json'} is not a BERTVision model of format {FORMAT}")
    return config


class QuestionAnswerer(Model):
    """Extractive question answering, with "no answer" where the task allows it.

    Example:
        >>> model = load_model("run/model")  # doctest: +SKIP
        >>> model("Who wrote it?", "It was written by Ada.")["answer"]  # doctest: +SKIP
        'Ada'
    """

    kinds = ("span",)

    def __call__(
        self,
        question: str | Sequence[str],
        context: str | Sequence[str],
        top_k: int = 1,
        handle_impossible_answer: bool | None = None,
    ) -> Any:
        """Answer questions.

        Args:
            question: A question, or a list of questions.
            context: The context, or a list with one context per question.
            top_k: The number of answers per question.
            handle_impossible_answer: Whether "no answer" is possible. Default: as in the task.

        Returns:
            A dict with ``answer`` (empty for "no answer"), ``score``, ``start`` and ``end`` (characters of the
            context) and ``no_answer_probability``; a list of dicts for ``top_k > 1``; a list of these for lists.
        """
        if isinstance(question, str) and isinstance(context, str):
            return next(self.answers([(question, context)], top_k, handle_impossible_answer))
        pairs = list(zip(_as_list(question, context), _as_list(context, question), strict=True))
        return list(self.answers(pairs, top_k, handle_impossible_answer))

    def answers(
        self, pairs: Sequence[tuple[str, str]], top_k: int = 1, handle_impossible: bool | None = None
    ) -> Iterator[Any]:
        """Yield the answers to (question, context) pairs, computed a few hundred at a time."""
        if top_k < 1:
            raise BadInput(f"top_k is {top_k}, expected at least 1")
        no_answer = self.task.no_answer if handle_impossible is None else handle_impossible
        threshold = (self.threshold or 0.0) if no_answer else None
        for first in range(0, len(pairs), CHUNK):
            examples = []
            for number, (question, context) in enumerate(pairs[first : first + CHUNK], first + 1):
                if not context.strip() or not question.strip():
                    empty = "context" if question.strip() else "question"
                    raise BadInput(f"question {number}: the {empty} is empty")
                examples.append(Example(str(number), question.strip(), context))
            logits, table = self.outputs(examples)
            for example, decoded in zip(examples, decode(logits, table, len(examples)), strict=True):
                answers = self._format_answers(decoded, example.pair or "", threshold, top_k)
                yield answers[0] if top_k == 1 else answers

    def _format_answers(
        self, decoded: DecodedSpans, context: str, threshold: float | None, top_k: int
    ) -> list[dict[str, object]]:
        # Does not depend on whether "no answer" is possible here.
        margin = (decoded.no_answer_score - (self.threshold or 0.0)) / self.temperatures.get("no_answer", 1.0)
        probability = {"no_answer_probability": float(sigmoid(np.array(margin)))}
        answers = n_best(decoded, context, threshold, top_k, self.temperatures.get("answer", 1.0))
        return [{**answer, **probability} for answer in answers]


class TextClassifier(Model):
    """Classification, multi-label classification and regression of texts and pairs of texts.

    Example:
        >>> model = load_model("run/model")  # doctest: +SKIP
        >>> model(["Lovely flight.", "Lost my bag."])[0]["label"]  # doctest: +SKIP
        'positive'
    """

    kinds = ("classify", "multilabel", "regress")

    def __call__(self, text: str | Sequence[str], pair: str | Sequence[str] | None = None) -> Any:
        """Classify texts.

        Args:
            text: A text, or a list of texts.
            pair: The second text of each pair, for tasks on pairs.

        Returns:
            A dict with ``label``, ``score`` and ``scores`` (of all labels); with ``labels`` (those that reach the
            threshold, best first) and ``scores`` for multi-label tasks; with ``value`` for regression. A list
            of dicts for lists.
        """
        if isinstance(text, str) and (pair is None or isinstance(pair, str)):
            return next(self.labels([(text, pair)]))
        texts = _as_list(text, text if pair is None else pair)
        pairs: Sequence[str | None] = [None] * len(texts) if pair is None else _as_list(pair, text)
        return list(self.labels(list(zip(texts, pairs, strict=True))))

    def labels(self, texts: Sequence[tuple[str, str | None]]) -> Iterator[dict[str, Any]]:
        """Yield the labels of (text, pair or None), computed a few hundred at a time."""
        for first in range(0, len(texts), CHUNK):
            chunk = texts[first : first + CHUNK]
            logits, table = self.outputs([Example(str(i), text, pair) for i, (text, pair) in enumerate(chunk)])
            for row in example_outputs(logits, table, len(chunk), self.task.merge_label):
                yield self._format_labels(row)

    def _format_labels(self, row: np.ndarray) -> dict[str, Any]:
        if self.task.kind == "regress":
            return {"value": float(row[0]) * self.task.spread + self.task.center}
        logits: np.ndarray = row / self.temperatures.get("label", 1.0)
        scores = sigmoid(logits) if self.task.kind == "multilabel" else softmax_rows(logits)
        by_label = {label: float(score) for label, score in zip(self.task.labels, scores, strict=True)}
        if self.task.kind == "multilabel":
            chosen = [self.task.labels[index] for index in np.argsort(-row) if row[index] >= (self.threshold or 0.0)]
            return {"labels": [{"label": label, "score": by_label[label]} for label in chosen], "scores": by_label}
        best = int(scores.argmax())
        if self.threshold:  # of two labels, chosen for another metric than accuracy
            best = int(row[1] - row[0] >= self.threshold)
        return {"label": self.task.labels[best], "score": float(scores[best]), "scores": by_label}


def load_model(
    folder: str | Path, device: str = "auto", base: Encoder | str | None = None
) -> QuestionAnswerer | TextClassifier:
    """Load a saved model.

    Args:
        folder: Folder that :meth:`Model.save_pretrained` wrote, e.g. ``RUN/model``.
        device: ``"auto"``, ``"cpu"``, ``"cuda"``...
        base: The base of an encoder that is saved as delta weights, if it has moved, or to share the weights of
            a loaded base between several models.

    Returns:
        A :class:`QuestionAnswerer` for span tasks, else a :class:`TextClassifier`.

    Example:
        >>> model = load_model("run/model")  # doctest: +SKIP
    """
    kind = read_config(Path(folder))["task"]["kind"]
    return (QuestionAnswerer if kind == "span" else TextClassifier).from_pretrained(folder, device, base)


def _as_list(texts: str | Sequence[str], other: str | Sequence[str]) -> list[str]:
    """``texts`` as a list; a single text is repeated for every text of ``other``."""
    listed = [texts] * len(other) if isinstance(texts, str) else list(texts)
    if not isinstance(other, str) and len(listed) != len(other):
        raise BadInput(f"got lists of {len(listed)} and {len(other)} texts; expected lists of equal length")
    return listed
