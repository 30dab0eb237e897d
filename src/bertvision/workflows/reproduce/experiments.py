"""Makes the tunings, curves and runs that recipes ask for, each once, in a folder that all of them share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bertvision.core.config import Recipe, built_in_recipe, override, read_recipe
from bertvision.core.errors import BadInput
from bertvision.core.files import hash_json, hashed_fields, read_json_or_empty, write_json
from bertvision.core.records import CONTROL
from bertvision.core.registry import Spec, parse_spec, unknown_name
from bertvision.encoders.loading import load_encoder
from bertvision.evaluation.analyses.result import Finding
from bertvision.runs.prepare import difference, fit_into, load_recipe_task, prepare
from bertvision.runs.reader import Run, gather
from bertvision.store.states import States
from bertvision.tasks.glue import find_file
from bertvision.tasks.glue_table import GLUE
from bertvision.tasks.recipe_defaults import recipe_defaults
from bertvision.tasks.task import Task
from bertvision.training.live_states import task_of_states
from bertvision.workflows.analyse import study
from bertvision.workflows.conclude import conclude
from bertvision.workflows.refit_analyses import AnalysisRequest
from bertvision.workflows.reproduce.specs import DataSet, Shared, Source
from bertvision.workflows.tuning_costs import score_encoder
from bertvision.workflows.tuning_curve import place_of, tune_curve

OF_LAYERS, OF_WIDTH = 12, 768
"""Shape of the encoder that methods in recipes are written for."""
ADAPTER_SIZE = 64
"""Of adapters that do not tell."""
CONCLUDED = "concluded.json"
"""Which heads the leaderboard of a run was made for; one that diverged is not on it."""


class Missing(Exception):
    """A row cannot be made, and why; what is printed begins with the word."""

    word = ""

    def __str__(self) -> str:
        return f"{self.word}: {super().__str__()}"


class NoData(Missing):
    """Files that a row needs are not in the data folder."""

    word = "no data"


class NotAtScale(Missing):
    """The row is not part of this scale."""

    word = "not at this scale"


class Failed(Missing):
    """It was tried."""

    word = "failed"


@dataclass
class Experiments:
    """Where experiments are kept, and from which data and encoders they are made."""

    shared: Shared
    data: Path | None
    out: Path
    encoder: str | None = None  # in place of every encoder of the scale
    settings: Sequence[str] = ()
    wanted: Mapping[str, Iterable[str]] = field(default_factory=dict)  # heads by run, fitted when it is first needed
    _runs: dict[str, tuple[tuple[str, ...], tuple[States, Run]]] = field(default_factory=dict, init=False)
    _curves: dict[str, dict[str, Any]] = field(default_factory=dict, init=False)
    _findings: dict[tuple[str, Path], Finding] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        """A bad setting is refused before anything is made, and where nothing will be."""
        override(built_in_recipe("squad2", recipe_defaults), self.settings)

    def source(self, kind: str, name: str) -> Source:
        key = f"{kind}:{name}"
        if key not in self.shared.sources:
            raise BadInput(unknown_name(kind, name, [other[len(kind) + 1 :] for other in self.shared.sources]))
        return self.shared.sources[key]

    def dataset(self, name: str | None) -> DataSet:
        if name is None or name not in self.shared.data:
            raise BadInput(unknown_name("data set", str(name), list(self.shared.data)))
        return self.shared.data[name]

    def paths(self, data: DataSet) -> dict[str, Any]:
        """The data set's files, or :class:`NoData`, which names the first that is missing."""
        if self.data is None:
            raise NoData(f"{data.about}: no --data FOLDER was given")
        paths = {key: [self._path(data, name) for name in names] for key, names in data.file_names.items()}
        if data.task in GLUE:
            # A folder may be there and hold other files, or some of them.
            files = GLUE[data.task].files
            for file in (files.train, files.dev):
                if find_file(Path(paths["data"][0]), file) is None:
                    names = " and no ".join(f"{stem}.tsv" for stem in file.stems)
                    raise NoData(f"{data.about}: {data.files['data']} has no {names}; from {data.url}")
        return {key: paths[key][0] if isinstance(names, str) else paths[key] for key, names in data.files.items()}

    def _path(self, data: DataSet, name: str) -> str:
        """A file of the data folder, by the first of its names that is there."""
        assert self.data is not None
        for alternative in name.split("|"):
            if (self.data / alternative).exists():
                return str(self.data / alternative)
        names = name.replace("|", " and no ")
        raise NoData(f"{data.about}: the data folder has no {names}{f'; from {data.url}' if data.url else ''}")

    def recipe(self, source: Source, data: str | None = None, **tune: Any) -> Recipe:
        """The run recipe that a source stands for."""
        if not source.available:
            raise NotAtScale(f"{source.kind} {source.name}")
        chosen = self.dataset(data or source.data)
        options = {**self.paths(chosen), **chosen.options, **source.options}
        recipe = built_in_recipe(
            chosen.task,
            recipe_defaults,
            encoder=self.encoder_of(source.encoder, data),
            seeds=list(self.shared.seeds),
            heads=[CONTROL],
            data=options,
            tune={**source.tune, **tune},
            extract=dict(source.extract),
            fit=dict(source.fit),
        )
        return override(recipe, self.settings)

    def encoder_of(self, name: str, data: str | None) -> str:
        """A name of the scale, ``CURVE@EPOCHS``, or a tuning, on this data if it has none; made first if need be."""
        if name in self.shared.encoders:
            return self.encoder or self.shared.encoders[name]
        curve, at, epochs = name.partition("@")
        if at:
            self.curve(curve)
            return str(place_of(self.out / "curve" / curve, float(epochs)))
        below = self.source("tune", name)
        return str(self.tuned(name, None if below.data else data, "full", None) / "encoder")

    def curve(self, name: str) -> dict[str, Any]:
        """Checkpoints of one tuning, all of them; see :func:`bertvision.workflows.tuning_curve.tune_curve`."""
        if name not in self._curves:
            source = self.source("curve", name)
            recipe = self.recipe(source)
            task, encoder = load_recipe_task(recipe), load_encoder(recipe.encoder)
            self._curves[name] = tune_curve(encoder, task, recipe.tune, source.at, self.out / "curve" / name)
        return self._curves[name]

    def tuned_folder(self, name: str, data: str | None, method: str, head: str | None) -> Path:
        return self.out / "tune" / "-".join(part for part in (name, data, method, head) if part)

    def tuned(self, name: str, data: str | None, method: str, head: str | None) -> Path:
        """An encoder tuned by a method; its answers to dev are in ``own.json`` beside it."""
        folder = self.tuned_folder(name, data, method, head)
        recipe = self.recipe(self.source("tune", name), data, method=method, **({"head": head} if head else {}))
        live = replace(recipe, extract=replace(recipe.extract, live=True))
        if (folder / "own.json").exists() and not difference(read_recipe(folder / "recipe.toml"), live):
            return folder
        states, _ = prepare(live, folder, [CONTROL])
        encoder = load_encoder(str(folder / "encoder"))
        verdict, cost = score_encoder(encoder, task_of_states(states)).result, encoder.record["cost"]
        document = {
            "trained": cost["trained"],
            "seconds": cost["seconds"],
            "parameters": encoder.parameters,
            "scores": verdict.scores,
            "answers": verdict.answers,
        }
        write_json(folder / "own.json", document)
        return folder

    def run_folder(self, name: str, data: str | None = None) -> Path:
        return self.out / "run" / (f"{name}-{data}" if data else name)

    def run(self, name: str, data: str | None, heads: Iterable[str]) -> tuple[Path, States, Run]:
        """A run with these heads on its leaderboard; heads that are there already stay."""
        folder, label = self.run_folder(name, data), f"{name}/{data or ''}"
        specs = list(dict.fromkeys([*self.wanted.get(label, ()), *heads]))
        fitted, made = self._runs.get(label, ((), None))
        if made is None or not set(specs) <= set(fitted):
            made = self._make_run(folder, self.recipe(self.source("run", name), data), specs)
            self._runs[label] = (*fitted, *specs), made
        return folder, *made

    def _make_run(self, folder: Path, recipe: Recipe, heads: Sequence[str]) -> tuple[States, Run]:
        states, specs = prepare(recipe, folder, [CONTROL, *heads])
        seeds_of = self.shared.seeds_of
        for seeds in dict.fromkeys(map(seeds_of, specs)):
            fit_into(folder, states, [spec for spec in specs if seeds_of(spec) == seeds], seeds, recipe.fit)
        made_from, path = hash_json([states.id, hashed_fields(recipe.fit)]), folder / CONCLUDED
        before = read_json_or_empty(path)
        concluded = before["heads"] if before.get("made_from") == made_from else []
        if not set(specs) <= set(concluded):
            conclude(folder)
            write_json(path, {"made_from": made_from, "heads": sorted({*concluded, *specs})})
        return states, gather(folder, task_of_states(states))

    def finding(self, name: str, folder: Path) -> Finding:
        """An analysis of a whole run, made once for all rows that ask for it."""
        if (name, folder) not in self._findings:
            self._findings[name, folder] = study(AnalysisRequest(folder), [name])[0][0]
        return self._findings[name, folder]

    def task(self, name: str, data: str | None = None) -> Task:
        """The task of a run, loaded as the run loads it."""
        return load_recipe_task(self.recipe(self.source("run", name), data))


def scaled_method(method: str, layers: int, width: int) -> str:
    """A method written for BERT-base, for an encoder of another shape: the same share of it is trained.

    One layer at least where there was one: of six, L6 trains three, L3 two, L1 one and L0 none. Adapters
    of size 768 are as wide as the states; of another width they would cost another share of the time.
    """
    spec = parse_spec(method)
    if spec.name == "freeze":
        trained = OF_LAYERS - int(spec.options.get("k", 0))
        now = max(1, int(trained * layers / OF_LAYERS + 0.5)) if trained else 0
        return str(Spec(spec.name, {**spec.options, "k": layers - now}))
    if spec.name == "adapters":
        size = int(spec.options.get("size", ADAPTER_SIZE))
        return str(Spec(spec.name, {**spec.options, "size": max(1, round(size * width / OF_WIDTH))}))
    return method
