"""A fit that is interrupted goes on after its last epoch and ends as if it had never stopped."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bertvision.core.config import FitConfig
from bertvision.runs.prepare import fit_into
from bertvision.store.store import Store
from bertvision.training import fit as fit_module
from bertvision.training.fit import fit
from bertvision.training.fitted_head import FittedHead
from bertvision.training.head_trainer import FIT_CHECKPOINT

Same = Callable[[FittedHead, FittedHead], None]

QUICK: dict[str, Any] = {"epochs": 4, "lr": 1e-2, "batch": 8}
SPECS = ["learned-pool", "compress:size=4,skip=true", "select:strength=0.5", "token-cnn:size=4,dropout=0.5"]


@pytest.fixture
def killed_at(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], list[int]]:
    """Ctrl-C at the beginning of an epoch, once; the list tells which epochs were begun."""
    real, begun = fit_module._train_epoch, list[int]()
    monkeypatch.setattr(fit_module, "SAVE_SECONDS", 0)

    def arm(at: int) -> list[int]:
        def train(runners: Any, train: Any, config: Any, epoch: int, advance: Any) -> None:
            begun.append(epoch)
            if epoch == at and begun.count(at) == 1:
                raise KeyboardInterrupt
            real(runners, train, config, epoch, advance)

        monkeypatch.setattr(fit_module, "_train_epoch", train)
        return begun

    return arm


@pytest.mark.parametrize("kind", ["span_store", "label_store"])
def test_an_interrupted_fit_goes_on(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path, same: Same, killed_at: Callable[[int], list[int]]
) -> None:
    store, saved = request.getfixturevalue(kind), tmp_path / FIT_CHECKPOINT
    whole = fit(SPECS, store, seeds=[0, 1], **QUICK)
    begun = killed_at(3)
    with pytest.raises(KeyboardInterrupt):
        fit(SPECS, store, seeds=[0, 1], saved=saved, **QUICK)
    for one, other in zip(whole, fit(SPECS, store, seeds=[0, 1], saved=saved, **QUICK), strict=True):
        same(one, other)
    assert begun == [1, 2, 3, 3, 4]


def test_a_computed_head_is_computed_again(
    label_store: Store, tmp_path: Path, killed_at: Callable[[int], list[int]]
) -> None:
    (whole,) = fit(["linear"], label_store, **QUICK)
    killed_at(2)
    with pytest.raises(KeyboardInterrupt):
        fit(["linear"], label_store, saved=tmp_path / FIT_CHECKPOINT, **QUICK)
    (other,) = fit(["linear"], label_store, saved=tmp_path / FIT_CHECKPOINT, **QUICK)
    assert [entry["inner"] for entry in other.history] == [entry["inner"] for entry in whole.history]
    assert other.best_epoch == whole.best_epoch


def test_the_state_of_another_fit_is_not_taken_up(
    label_store: Store, tmp_path: Path, same: Same, killed_at: Callable[[int], list[int]]
) -> None:
    saved = tmp_path / FIT_CHECKPOINT
    begun = killed_at(2)
    with pytest.raises(KeyboardInterrupt):
        fit(["learned-pool"], label_store, saved=saved, **QUICK)
    (fitted,) = fit(["learned-pool"], label_store, saved=saved, **{**QUICK, "lr": 3e-3})
    assert begun == [1, 2, 1, 2, 3, 4]
    same(fitted, fit(["learned-pool"], label_store, **{**QUICK, "lr": 3e-3})[0])


def test_a_run_leaves_no_state_behind(
    label_store: Store, tmp_path: Path, killed_at: Callable[[int], list[int]], capsys: pytest.CaptureFixture[str]
) -> None:
    config = FitConfig(**QUICK)
    killed_at(3)
    with pytest.raises(KeyboardInterrupt):
        fit_into(tmp_path, label_store, SPECS[:1], [0], config)
    assert (tmp_path / FIT_CHECKPOINT).exists()
    fit_into(tmp_path, label_store, SPECS[:1], [0], config)
    assert not (tmp_path / FIT_CHECKPOINT).exists()
    assert f"fit: resuming after epoch 2 of 4 ({tmp_path / FIT_CHECKPOINT})" in capsys.readouterr().err
