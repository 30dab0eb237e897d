"""An interrupted fit resumes after its last epoch and gives the same heads as an uninterrupted one."""

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

AssertSame = Callable[[FittedHead, FittedHead], None]

QUICK: dict[str, Any] = {"epochs": 4, "lr": 1e-2, "batch": 8}
SPECS = ["learned-pool", "compress:size=4,skip=true", "select:strength=0.5", "token-cnn:size=4,dropout=0.5"]


@pytest.fixture
def interrupt_at(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], list[int]]:
    """A function that arranges for Ctrl-C at the start of an epoch, once, and returns the list of started epochs."""
    original, started_epochs = fit_module._train_epoch, list[int]()
    monkeypatch.setattr(fit_module, "SAVE_SECONDS", 0)

    def arm(interrupted_epoch: int) -> list[int]:
        def train(trainers: Any, train: Any, config: Any, epoch: int, advance: Any) -> None:
            started_epochs.append(epoch)
            if epoch == interrupted_epoch and started_epochs.count(interrupted_epoch) == 1:
                raise KeyboardInterrupt
            original(trainers, train, config, epoch, advance)

        monkeypatch.setattr(fit_module, "_train_epoch", train)
        return started_epochs

    return arm


@pytest.mark.parametrize("kind", ["span_store", "label_store"])
def test_interrupted_fit_resumes_bit_exactly(
    kind: str,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    assert_same: AssertSame,
    interrupt_at: Callable[[int], list[int]],
) -> None:
    store, checkpoint = request.getfixturevalue(kind), tmp_path / FIT_CHECKPOINT
    whole = fit(SPECS, store, seeds=[0, 1], **QUICK)
    started_epochs = interrupt_at(3)
    with pytest.raises(KeyboardInterrupt):
        fit(SPECS, store, seeds=[0, 1], saved=checkpoint, **QUICK)
    for expected, resumed in zip(whole, fit(SPECS, store, seeds=[0, 1], saved=checkpoint, **QUICK), strict=True):
        assert_same(expected, resumed)
    assert started_epochs == [1, 2, 3, 3, 4]


def test_interrupted_closed_form_head_is_recomputed(
    label_store: Store, tmp_path: Path, interrupt_at: Callable[[int], list[int]]
) -> None:
    (whole,) = fit(["linear"], label_store, **QUICK)
    interrupt_at(2)
    with pytest.raises(KeyboardInterrupt):
        fit(["linear"], label_store, saved=tmp_path / FIT_CHECKPOINT, **QUICK)
    (resumed,) = fit(["linear"], label_store, saved=tmp_path / FIT_CHECKPOINT, **QUICK)
    assert [entry["inner"] for entry in resumed.history] == [entry["inner"] for entry in whole.history]
    assert resumed.best_epoch == whole.best_epoch


def test_checkpoint_of_another_fit_is_ignored(
    label_store: Store, tmp_path: Path, assert_same: AssertSame, interrupt_at: Callable[[int], list[int]]
) -> None:
    checkpoint = tmp_path / FIT_CHECKPOINT
    started_epochs = interrupt_at(2)
    with pytest.raises(KeyboardInterrupt):
        fit(["learned-pool"], label_store, saved=checkpoint, **QUICK)
    (fitted,) = fit(["learned-pool"], label_store, saved=checkpoint, **{**QUICK, "lr": 3e-3})
    assert started_epochs == [1, 2, 1, 2, 3, 4]
    assert_same(fitted, fit(["learned-pool"], label_store, **{**QUICK, "lr": 3e-3})[0])


def test_checkpoint_is_removed_after_the_fit(
    label_store: Store, tmp_path: Path, interrupt_at: Callable[[int], list[int]], capsys: pytest.CaptureFixture[str]
) -> None:
    config = FitConfig(**QUICK)
    interrupt_at(3)
    with pytest.raises(KeyboardInterrupt):
        fit_into(tmp_path, label_store, SPECS[:1], [0], config)
    assert (tmp_path / FIT_CHECKPOINT).exists()
    fit_into(tmp_path, label_store, SPECS[:1], [0], config)
    assert not (tmp_path / FIT_CHECKPOINT).exists()
    assert f"fit: resuming after epoch 2 of 4 ({tmp_path / FIT_CHECKPOINT})" in capsys.readouterr().err
