"""What ``quality.py`` has measured so far: a file per task, regime, draw and method, written as soon as it is there."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import bertvision


@dataclass(frozen=True)
class Result:
    """Predictions of one method after one draw of the training rows."""

    task: str
    regime: str
    draw: int
    method: str
    gold: NDArray[Any]  # (dev rows,)
    predicted: NDArray[Any]  # (dev rows,)
    facts: Mapping[str, Any]  # score, seconds, cpu_seconds, rows, model, package


class Results:
    """The files of results in a folder, and those of rivals that are kept with the project.

    Rivals take hours and do not depend on this package. Their files hold predictions only: the labels of dev are in the
    data, from which ``gold`` reads them.
    """

    def __init__(
        self, folder: Path, kept: Path | None = None, gold: Callable[[str], NDArray[Any]] | None = None
    ) -> None:
        self.folder, self.kept, self.gold = folder, kept, gold

    def has(self, task: str, regime: str, draw: int, method: str) -> bool:
        path = self._path(task, regime, draw, method)
        return path.exists() or (self.kept is not None and (self.kept / path.name).exists())

    def keep(self, methods: Sequence[str]) -> None:
        """Copy the predictions of these methods to the folder that is kept."""
        assert self.kept is not None
        self.kept.mkdir(parents=True, exist_ok=True)
        for method in methods:
            for path in self.folder.glob(f"*.{method}.npz"):
                with np.load(path) as arrays:
                    np.savez_compressed(self.kept / path.name, predicted=arrays["predicted"], facts=arrays["facts"])

    def add(self, result: Result) -> None:
        """Write a result; an interruption leaves a whole file or none."""
        buffer = io.BytesIO()
        facts = json.dumps(dict(result.facts))
        np.savez_compressed(buffer, gold=result.gold, predicted=result.predicted, facts=np.array(facts))
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self._path(result.task, result.regime, result.draw, result.method)
        unfinished = path.with_suffix(".part")
        unfinished.write_bytes(buffer.getvalue())
        unfinished.replace(path)

    def read(self) -> list[Result]:
        """All results."""
        kept = [] if self.kept is None else self.kept.glob("*.npz")
        paths = {path.name: path for path in (*kept, *self.folder.glob("*.npz"))}
        results = []
        for _, path in sorted(paths.items()):
            task, regime, draw, method = path.stem.split(".")
            with np.load(path) as arrays:
                facts = json.loads(str(arrays["facts"]))
                gold = arrays["gold"] if "gold" in arrays or self.gold is None else self.gold(task)
                results.append(Result(task, regime, int(draw), method, gold, arrays["predicted"], facts))
        return results

    def drop(self, method: str) -> None:
        """Delete the results of a method, so that it is measured again."""
        for path in self.folder.glob(f"*.{method}.npz"):
            path.unlink()

    def _path(self, task: str, regime: str, draw: int, method: str) -> Path:
        return self.folder / f"{task}.{regime}.{draw}.{method}.npz"


def package_hash() -> str:
    """A hash of the package's source files: results of different ones are not of the same defaults."""
    digest = hashlib.sha256()
    folder = Path(bertvision.__file__).parent
    for path in sorted(folder.rglob("*.py")):
        digest.update(path.relative_to(folder).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()[:12]
