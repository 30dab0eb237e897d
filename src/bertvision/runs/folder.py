"""File names in a run folder, and access to its states, heads and encoder."""

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
from bertvision.training.live_states import LiveStates, is_live, reopen_live

STORE_SOURCE = "source.json"
"""Holds the path of a run's store if that is not in the run folder."""

ANSWERS, ANSWER_SPANS = "predictions", "predictions/places"
"""Folders of answers (id -> answer) and, for span tasks, of their offsets in the contexts (id -> start, end)."""

SEARCH_RESULT, TUNED = "search/result.json", "search/tuned"
"""The result of the last search, and the folder of the runs of a search over tunings."""


def best_tuning(folder: Path) -> Path | None:
    """The best run of a search over tunings; None if the folder holds no such search or is a run itself."""
    run = (read_document(folder / SEARCH_RESULT, "delete it and search again") or {}).get("run")
    return None if run is None or store_folder(folder).exists() else folder / TUNED / Path(run).name


def remake_hint(folder: Path) -> str:
    return f"delete it and run: bertvision evaluate {folder}"


def read_document(path: Path, advice: str = "") -> Any:
    """A JSON document, or None if the file does not exist (or its name is not possible)."""
    try:
        return json.loads(path.read_bytes())
    except OSError:
        return None
    except ValueError as error:
        raise BadInput(f"{path} cannot be read: {error}; {advice or remake_hint(path.parent)}") from error


def store_folder(folder: Path) -> Path:
    """The folder of a run's store: in the run, or as named in source.json."""
    source = read_document(folder / STORE_SOURCE, "write the store's folder there, or fit again")
    return Path(source["store"]) if source else folder / "store"


def head_folder(folder: Path, spec: str, seed: int) -> Path:
    """The folder of a fitted head in a run."""
    return folder / "heads" / spec / f"seed{seed}"


def states_folder(folder: Path) -> Path:
    """The folder of a run's store or of the record of its live states; an error if the folder is not a run."""
    path = store_folder(folder)
    best = best_tuning(folder)
    if best is not None:
        raise BadInput(f"{folder} holds a search over tunings and is not a run; use its best run: {best}")
    if not path.exists():
        raise BadInput(f"{folder} is not a run (no store); make one with: bertvision run TASK ... --out {folder}")
    return path


def run_states(folder: Path) -> States:
    """The states that a run's heads were fitted on: its store or, for a live run, live states."""
    path = states_folder(folder)
    return reopen_live(path, folder / "encoder") if is_live(path) else Store(path)


def run_heads(folder: Path, store: States) -> list[FittedHead]:
    """All heads of a run that were fitted on this store."""
    saved = [load_fitted(path.parent) for path in sorted((folder / "heads").glob("*/seed*/head.json"))]
    heads = [head for head, made_from in saved if made_from.startswith(f"{store.id}:")]
    if not heads:
        raise BadInput(
            f"{folder} has no heads fitted on its states; fit some with: "
            f"bertvision fit {store_folder(folder)} --head SPEC --out {folder}"
        )
    return heads


def run_encoder(folder: Path, store: States) -> Encoder | None:
    """The run's encoder, or None (logged) if it is missing or did not make the run's states."""
    path = folder / "encoder"
    if not (path / ENCODER_FILE).exists():
        log_line(f"no model saved: no encoder in {path}")
        return None
    if isinstance(store, LiveStates):  # its encoder is in memory already
        return store.encoder
    encoder = load_encoder(str(path))
    if encoder_hash(encoder) == store.manifest["fingerprint"]["encoder"]:
        return encoder
    log_line(f"no model saved: {store_folder(folder)} was made with another encoder than {path}; extract again")
    return None
