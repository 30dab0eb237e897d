"""Where the parts of a run folder are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bertvision.core.errors import BadInput
from bertvision.core.progress import log_line
from bertvision.encoders.loading import ENCODER_FILE, Encoder, load_encoder
from bertvision.store.states import States
from bertvision.store.store import Store
from bertvision.training.fitted_head import FittedHead, load_fitted
from bertvision.training.inputs import encoder_hash
from bertvision.training.live_states import is_live, reopen_live

STORE_SOURCE = "source.json"
"""Names the store of a run whose store lies elsewhere."""

ANSWERS, ANSWER_SPANS = "predictions", "predictions/places"
"""Where answers are (id -> answer) and, of spans, where those stand in their contexts (id -> start, end)."""

SEARCH_RESULT, TUNED = "search/result.json", "search/tuned"
"""What the last search came to, and where the runs of tunings that were tried are."""


def best_tuning(folder: Path) -> Path | None:
    """The best run of a search over tunings, in a folder that holds such a search and no run of its own."""
    run = (read_document(folder / SEARCH_RESULT, "delete it and search again") or {}).get("run")
    return None if run is None or store_folder(folder).exists() else folder / TUNED / Path(run).name


def remake_hint(folder: Path) -> str:
    return f"delete it and run: bertvision evaluate {folder}"


def read_document(path: Path, do: str = "") -> Any:
    """A JSON document, or None where there is no such file (or no file could have that name)."""
    try:
        return json.loads(path.read_bytes())
    except OSError:
        return None
    except ValueError as error:
        raise BadInput(f"{path} cannot be read: {error}; {do or remake_hint(path.parent)}") from error


def store_folder(folder: Path) -> Path:
    """Where the store of a run lies: in it, or where its source.json says."""
    source = read_document(folder / STORE_SOURCE, "write the store's folder there, or fit again")
    return Path(source["store"]) if source else folder / "store"


def head_folder(folder: Path, spec: str, seed: int) -> Path:
    """Where a run keeps a fitted head."""
    return folder / "heads" / spec / f"seed{seed}"


def states_folder(folder: Path) -> Path:
    """Where a run's store is, or what a live run left in its place."""
    place = store_folder(folder)
    best = best_tuning(folder)
    if best is not None:
        raise BadInput(f"{folder} holds a search over tunings, and no run of its own; take the best one's: {best}")
    if not place.exists():
        raise BadInput(f"{folder} is no run: it has no store; make one with bertvision run TASK ... --out {folder}")
    return place


def run_states(folder: Path) -> States:
    """The states that a run's heads were fitted on: its store or, after a live run, its encoder at work."""
    place = states_folder(folder)
    return reopen_live(place, folder / "encoder") if is_live(place) else Store(place)


def run_heads(folder: Path, store: States) -> list[FittedHead]:
    """All heads of a run that were fitted on this store; older ones, of another, are passed over."""
    found = [load_fitted(path.parent) for path in sorted((folder / "heads").glob("*/seed*/head.json"))]
    heads = [head for head, made_from in found if made_from.startswith(f"{store.id}:")]
    if not heads:
        raise BadInput(
            f"{folder} has no heads fitted on its states; fit some: "
            f"bertvision fit {store_folder(folder)} --head SPEC --out {folder}"
        )
    return heads


def run_encoder(folder: Path, store: States) -> Encoder | None:
    """The run's encoder, if it is the one whose states the heads were fitted on."""
    place = folder / "encoder"
    if not (place / ENCODER_FILE).exists():
        log_line(f"no model saved: there is no encoder in {place}")
        return None
    encoder = load_encoder(str(place))
    if encoder_hash(encoder) == store.manifest["fingerprint"]["encoder"]:
        return encoder
    log_line(f"no model saved: {place} is not the encoder that {store_folder(folder)} was made with; extract again")
    return None
