"""How to repeat a run: its recipe, the commands, and the versions that it was written with."""

from __future__ import annotations

import platform
import shlex
from importlib import metadata

from bertvision import __version__
from bertvision.report.facts import OF_STORE, Run
from bertvision.report.markup import Html, Section, section, tag

LIBRARIES = ("torch", "transformers", "numpy")


def repeat_section(run: Run) -> Section:
    """The recipe and the command; without a recipe, what is known of it."""
    found = {"python": platform.python_version(), "bertvision": __version__, **_libraries()}
    versions = tag("p", "Written with ", ", ".join(f"{name} {version}" for name, version in found.items()), ".")
    how = _with_recipe(run) if run.recipe else _without_recipe(run)
    return section("repeat", "How to repeat it", *how, *_analyses(run), versions)


def _with_recipe(run: Run) -> list[Html]:
    where = "in the run folder too; its paths are relative to where the run was started"
    how = tag("p", "Save this as ", tag("code", "recipe.toml"), f" (it is {where}), then run the command.")
    recipe = tag("pre", tag("code", run.recipe), tabindex="0", role="region", aria_label="recipe.toml")
    return [how, tag("pre", tag("code", "bertvision run recipe.toml --out runs/again")), recipe]


def _without_recipe(run: Run) -> list[Html]:
    """Heads that were fitted on a finished store."""
    if not run.heads:
        return []
    specs = dict.fromkeys(head.spec for head in run.heads)
    seeds = sorted({head.seed for head in run.heads})
    words = [*(f"--head {shlex.quote(spec)}" for spec in specs), f"--seeds {','.join(map(str, seeds))}"]
    how = (
        "The heads were fitted on a finished store, and no recipe was kept; settings given with --set are to be added."
    )
    return [tag("p", how), tag("pre", tag("code", " ".join(["bertvision fit STORE", *words, "--out runs/again"])))]


def _libraries() -> dict[str, str]:
    found = {}
    for name in LIBRARIES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _analyses(run: Run) -> list[Html]:
    """The command behind the analyses; those that take long are named, because they are not made unasked."""
    if not run.findings:
        return []
    named = [one.name for one in run.findings if one.name in OF_STORE and not one.name.startswith("search")]
    lines = ["bertvision analyse runs/again"]
    lines += [f"bertvision analyse runs/again --what {' '.join(named)}"] if named else []
    return [tag("p", "Then, for the analyses:"), tag("pre", tag("code", "\n".join(lines)))]
