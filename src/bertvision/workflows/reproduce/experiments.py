"""Tunings, curves and runs of the recipes, each made once in a shared folder."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bertvision.core.config import Recipe, built_in_recipe, override, read_recipe
from bertvision.core.errors import BadInput
from bertvision.core.files import hash_json, hashed_fields, read_json_or_empty, write_json
from bertvision.core.registry import Spec, parse_spec, unknown_name
from bertvision.encoders.loading import load_encoder
from bertvision.evaluation.analyses.result import Finding
from bertvision.runs.prepare import difference, fit_into, load_recipe_task, prepare_run
from bertvision.runs.reader import Run, gather
from bertvision.store.states import States
from bertvision.tasks.glue import find_file
from bertvision.tasks.glue_table import GLUE
from bertvision.training.live_states import task_of_states
from bertvision.workflows.analyse import run_analyses
from bertvision.workflows.conclude import conclude
from bertvision.workflows.refit_analyses import AnalysisRequest
from bertvision.workflows.reproduce.defaults import recipe_control, start_settings
from bertvision.workflows.reproduce.specs import DataSet, Shared, Source
from bertvision.workflows.tuning_costs import score_encoder
from bertvision.workflows.tuning_curve import checkpoint_path, tune_curve

BERT_LAYERS, BERT_WIDTH = 12, 768
"""Shape of the encoder that methods in recipes are defined for: BERT-base."""
ADAPTER_SIZE = 64
"""Default size of adapters in BERT-base."""
CONCLUDED = "concluded.json"
"""File with the heads that the leaderboard of a run was made for; those that diverged are not on it."""


class Missing(Exception):
    """A row cannot be made; the message begins with ``word``."""

    word = ""

    def __str__(self) -> str:
        return f"{self.word}: {super().__str__()}"


class NoData(Missing):
    """Files of a row are not in the data folder."""

    word = "no data"


class NotAtScale(Missing):
    """The row is not part of this scale."""

    word = "not at this scale"


class Failed(Missing):
    """Making the row failed."""

    word = "failed"


@dataclass
class Experiments:
    """The folder of the experiments, and the data, encoders and settings that they are made with."""

    shared: Shared
    data: Path | None
    out: Path
    encoder: str | None = None  # replaces every encoder of the scale
    settings: Sequence[str] = ()
    # By run; fitted when the run is first needed.
    heads_to_fit: Mapping[str, Iterable[str]] = field(default_factory=dict)
    _runs: dict[str, tuple[States, Run, set[str]]] = field(default_factory=dict, init=False)  # and heads fitted so far
    _curves: dict[str, dict[str, Any]] = field(default_factory=dict, init=False)
    _findings: dict[tuple[str, Path], Finding] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        """Check the settings before anything is made."""
        override(built_in_recipe("squad2", start_settings), self.settings)

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
        """The data set's files; raises :class:`NoData`, which names the first that is missing."""
        if self.data is None:
            raise NoData(f"{data.about}: no --data FOLDER was given")
        paths = {key: [self._path(data, name) for name in names] for key, names in data.file_names.items()}
        if data.task in GLUE:
            # The folder may exist without some of the files.
            files = GLUE[data.task].files
            for file in (files.train, files.dev):
                if find_file(Path(paths["data"][0]), file) is None:
                    names = " and no ".join(f"{stem}.tsv" for stem in file.stems)
                    raise NoData(f"{data.about}: {data.files['data']} has no {names}; from {data.url}")
        return {key: paths[key][0] if isinstance(names, str) else paths[key] for key, names in data.files.items()}

    def _path(self, data: DataSet, name: str) -> str:
        """A file of the data folder: the first of its alternative names that exists."""
        assert self.data is not None
        for alternative in name.split("|"):
            if (self.data / alternative).exists():
                return str(self.data / alternative)
        names = name.replace("|", " and no ")
        raise NoData(f"{data.about}: the data folder has no {names}{f'; from {data.url}' if data.url else ''}")

    def recipe(self, source: Source, data: str | None = None, **tune: Any) -> Recipe:
        """The run recipe of a source."""
        if not source.available:
            raise NotAtScale(f"{source.kind} {source.name}")
        chosen = self.dataset(data or source.data)
        options = {**self.paths(chosen), **chosen.options, **source.options}
        recipe = built_in_recipe(
            chosen.task,
            start_settings,
            encoder=self.encoder_of(source.encoder, data),
            seeds=list(self.shared.seeds),
            heads=[recipe_control(chosen.task)],
            data=options,
            tune={**source.tune, **tune},
            extract=dict(source.extract),
            fit=dict(source.fit),
        )
        return override(recipe, self.settings)

    def encoder_of(self, name: str, data: str | None) -> str:
        """The path or name of an encoder: of the scale, of ``CURVE@EPOCHS``, or of a tuning; made first if needed."""
        if name in self.shared.encoders:
            return self.encoder or self.shared.encoders[name]
        curve, at, epochs = name.partition("@")
        if at:
            self.curve(curve)
            return str(checkpoint_path(self.out / "curve" / curve, float(epochs)))
        below = self.source("tune", name)
        return str(self.tuned(name, None if below.data else data) / "encoder")

    def curve(self, name: str) -> dict[str, Any]:
        """All checkpoints of a curve; see :func:`bertvision.workflows.tuning_curve.tune_curve`."""
        if name not in self._curves:
            source = self.source("curve", name)
            recipe = self.recipe(source)
            task, encoder = load_recipe_task(recipe), load_encoder(recipe.encoder)
            self._curves[name] = tune_curve(encoder, task, recipe.tune, source.at, self.out / "curve" / name)
        return self._curves[name]

    def tuned_folder(self, name: str, data: str | None, method: str = "full", head: str | None = None) -> Path:
        return self.out / "tune" / "-".join(part for part in (name, data, method, head) if part)

    def tuned(self, name: str, data: str | None, method: str = "full", head: str | None = None) -> Path:
        """The folder of an encoder tuned by a method, with its scores and answers to dev in ``own.json``."""
        folder = self.tuned_folder(name, data, method, head)
        recipe = self.recipe(self.source("tune", name), data, method=method, **({"head": head} if head else {}))
        live = replace(recipe, extract=replace(recipe.extract, live=True))
        if (folder / "own.json").exists() and not difference(read_recipe(folder / "recipe.toml"), live):
            return folder
        states = prepare_run(live, folder, [recipe_control(recipe.task)]).states
        encoder = load_encoder(str(folder / "encoder"))
        result, cost = score_encoder(encoder, task_of_states(states)).result, encoder.record["cost"]
        document = {
            "trained": cost["trained"],
            "seconds": cost["seconds"],
            "parameters": encoder.parameters,
            "scores": result.scores,
            "answers": result.answers,
        }
        write_json(folder / "own.json", document)
        return folder

    def run_folder(self, name: str, data: str | None = None) -> Path:
        return self.out / "run" / (f"{name}-{data}" if data else name)

    def run(self, name: str, data: str | None, heads: Iterable[str]) -> tuple[States, Run]:
        """A run with these heads, and those that it already has, on its leaderboard."""
        label = f"{name}/{data or ''}"
        specs = list(dict.fromkeys([*self.heads_to_fit.get(label, ()), *heads]))
        made = self._runs.get(label)
        if made is None or not made[2].issuperset(specs):
            states, run = self._make_run(
                self.run_folder(name, data), self.recipe(self.source("run", name), data), specs
            )
            made = self._runs[label] = states, run, {*specs, *(made[2] if made else ())}
        return made[:2]

    def _make_run(self, folder: Path, recipe: Recipe, heads: Sequence[str]) -> tuple[States, Run]:
        control = recipe_control(recipe.task)
        prepared = prepare_run(recipe, folder, [control, *heads])
        states = prepared.states
        by_seeds: dict[tuple[int, ...], list[str]] = {}
        for spec in prepared.heads:
            by_seeds.setdefault(self.shared.seeds_of(spec), []).append(spec)
        for seeds, specs in by_seeds.items():
            fit_into(folder, states, specs, seeds, recipe.fit)
        made_from, path = hash_json([states.id, hashed_fields(recipe.fit)]), folder / CONCLUDED
        saved = read_json_or_empty(path)
        concluded = saved["heads"] if saved.get("made_from") == made_from else []
        if not set(prepared.heads) <= set(concluded):
            conclude(folder, states=states, control=control)
            write_json(path, {"made_from": made_from, "heads": sorted({*concluded, *prepared.heads})})
        return states, gather(folder, task_of_states(states))

    def finding(self, name: str, folder: Path) -> Finding:
        """An analysis of a whole run, made once for all of its rows."""
        if (name, folder) not in self._findings:
            self._findings[name, folder] = run_analyses(AnalysisRequest(folder), [name])[0][0]
        return self._findings[name, folder]


def scaled_method(method: str, layers: int, width: int) -> str:
    """A tuning method defined for BERT-base, scaled to an encoder of another shape.

    The same share of the layers is trained, and at least one unless none was: of six, L6 trains three, L3 two, L1 one
    and L0 none. Adapters are scaled with the width, so they cost the same share of the time.
    """
    spec = parse_spec(method)
    if spec.name == "freeze":
        of_bert = BERT_LAYERS - int(spec.options.get("k", 0))
        trained = max(1, int(of_bert * layers / BERT_LAYERS + 0.5)) if of_bert else 0
        return str(Spec(spec.name, {**spec.options, "k": layers - trained}))
    if spec.name == "adapters":
        size = int(spec.options.get("size", ADAPTER_SIZE))
        return str(Spec(spec.name, {**spec.options, "size": max(1, round(size * width / BERT_WIDTH))}))
    return method
