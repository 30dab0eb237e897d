"""How long idle threads should spin: a tuning step on short texts, alone and next to a busy process.

python benchmarks/waiting.py [--rounds 3]

Each waiting policy runs in a process of its own, because OpenMP reads its variables once; policies take turns. Rows go
to results/waiting.csv: median seconds of a step, and their ratio to those of sleeping threads, which the command line
uses on a busy machine.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from bertvision.core.runtime import PASSIVE, POLICY, SPIN_COUNT
from rows import Rows

if TYPE_CHECKING:
    from bertvision.tasks.task import Task

SLEEPING = "not at all (PASSIVE)"
WAYS = {"for long (usual)": {}, SLEEPING: {POLICY: PASSIVE}, "briefly (1,000 spins)": {SPIN_COUNT: "1000"}}
METHODS = ("full", "adapters:size=32")
STEPS, TEXTS = 20, 800


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    rows = Rows(Path("results/waiting.csv"), fresh=True)
    for neighbours, context in (("nothing", nullcontext()), ("one busy process", busy_process())):
        seconds_by_setting: dict[tuple[str, str], list[float]] = {
            (way, method): [] for way in WAYS for method in METHODS
        }
        with context:
            for _ in range(rounds):
                for way, method in seconds_by_setting:
                    seconds_by_setting[way, method].append(time_step(way, method))
        medians = {key: median(seconds_of_rounds) for key, seconds_of_rounds in seconds_by_setting.items()}
        for (way, method), seconds in medians.items():
            ratio = round(seconds / medians[SLEEPING, method], 2)
            rows.add(
                {"beside": neighbours, "wait": way, "method": method, "seconds": round(seconds, 4), "by_asleep": ratio}
            )
            print(neighbours, way, method, round(seconds, 4), ratio, flush=True)


def time_step(way: str, method: str) -> float:
    """Seconds of a step in a process with these variables."""
    environment = {key: value for key, value in os.environ.items() if key not in (POLICY, SPIN_COUNT)}
    command = [sys.executable, __file__, "step", method]
    return float(
        subprocess.run(command, env={**environment, **WAYS[way]}, check=True, capture_output=True, text=True).stdout
    )


@contextmanager
def busy_process() -> Iterator[None]:
    """A process that keeps one core busy."""
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def step(method: str) -> None:
    """Print the seconds of one step, after a few that are not counted."""
    import torch

    from bertvision import load_encoder
    from bertvision.core.config import TuneConfig
    from bertvision.core.progress import Timer
    from bertvision.core.runtime import seeded
    from bertvision.training.inputs import split_windows
    from bertvision.training.tune import resolve_config, start, tuning_batches

    encoder, task = load_encoder("minilm"), short_texts()
    config = resolve_config(TuneConfig(method=method, batch=16, epochs=1), encoder, task)
    batches = list(tuning_batches(split_windows(task, "train", encoder), config, 0, STEPS + 5))
    with seeded(0):
        tuner = start(encoder, task, config, len(batches), torch.device("cpu"))
        for batch in batches[:5]:
            tuner.step(batch)
        timer = Timer()
        for batch in batches[5:]:
            tuner.step(batch)
    print(timer.seconds / STEPS)


def short_texts() -> Task:
    """A task with sentences of about eleven tokens, as in CoLA."""
    import tempfile

    from bertvision import load_task

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "texts.csv"
        lines = [f"the {('bad', 'good')[i % 2]} old town has {i} wide streets,{i % 2}" for i in range(TEXTS)]
        path.write_text("\n".join(["text,label", *lines]), encoding="utf-8")
        return load_task("text", train=str(path), text_column="text", label_column="label")


if __name__ == "__main__":
    step(sys.argv[2]) if sys.argv[1:2] == ["step"] else main()
