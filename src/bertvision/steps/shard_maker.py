"""An encoder that turns planned batches of windows into shards; not a step itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from bertvision.config import ExtractConfig
from bertvision.encoder.hidden import States, collate, hidden_states
from bertvision.encoder.load import Encoder
from bertvision.heads.base import Head
from bertvision.records import Window
from bertvision.runtime import choose_device
from bertvision.steps.inputs import own_head
from bertvision.store.codec import check_finite, codec_dtype
from bertvision.store.plan import Batch, plan_batches, plan_shards
from bertvision.store.shards import Shard, window_tensors


class ShardMaker:
    """An encoder with its own head, ready to turn planned batches into a shard."""

    def __init__(self, encoder: Encoder, layers: Sequence[int], config: ExtractConfig) -> None:
        self.layers = tuple(layers)
        self.dtype_name, self.dtype = config.dtype, codec_dtype(config.dtype)
        self.device = choose_device(config.device)
        self.model = encoder.model.eval().to(self.device)
        self.width = encoder.width
        self.pad_id = encoder.tokenizer.pad_token_id
        head = own_head(encoder)
        self.own: Head | None = None if head is None else head.to(self.device)
        # The own head may need layers that are not stored.
        self.asked = self.layers if self.own is None else tuple(sorted({*self.layers, *self.own.needed_layers}))

    def plan(self, windows: Sequence[Window], config: ExtractConfig) -> list[list[Batch]]:
        """The batches of every shard of a split."""
        lengths = [len(window) for window in windows]
        batches = plan_batches(lengths, config.batch_tokens, config.seed)
        per_token = len(self.layers) * self.width * self.dtype.itemsize
        return [[batches[i] for i in shard] for shard in plan_shards(batches, lengths, per_token, config.shard_mb)]

    def shard(self, windows: Sequence[Window], batches: Sequence[Batch], advance: Callable[[int], object]) -> Shard:
        """Run the batches; states go layer by layer into one flat buffer of the store's type."""
        numbers = [int(number) for batch in batches for number in batch]
        members = [windows[number] for number in numbers]
        tokens = sum(len(window) for window in members)
        hidden = torch.empty((tokens, len(self.layers), self.width), dtype=self.dtype)
        extras: dict[str, list[Tensor]] = {"pooled": [], "logits": []}
        at = 0
        for batch in batches:
            at = self._run_batch([windows[int(number)] for number in batch], hidden, at, extras)
            advance(len(batch))
        check_finite(hidden, self.dtype_name)
        more = {key: torch.cat(parts) for key, parts in extras.items() if parts}
        return {"hidden": hidden, **window_tensors(members, numbers), **more}

    @torch.inference_mode()
    def _run_batch(self, members: Sequence[Window], hidden: Tensor, at: int, extras: dict[str, list[Tensor]]) -> int:
        tokens = collate(members, self.pad_id, self.device)
        states = hidden_states(self.model, tokens, self.asked)
        end = at + sum(len(window) for window in members)
        for place, layer in enumerate(self.layers):
            flat = states.layers[self.asked.index(layer)][tokens.mask]  # (real tokens, width)
            hidden[at:end, place].copy_(flat)
        if states.pooled is not None:
            extras["pooled"].append(states.pooled.to("cpu", self.dtype))
        if self.own is not None:
            extras["logits"].append(self._own_logits(states, tokens.mask))
        return end

    def _own_logits(self, states: States, mask: Tensor) -> Tensor:
        assert self.own is not None
        chosen = torch.stack([states.layers[self.asked.index(i)] for i in self.own.needed_layers], dim=2)
        logits = self.own.on_chosen(chosen, mask, states.pooled)
        return (logits[mask] if self.own.shape.kind == "span" else logits).float().cpu()
