"""Parity tests compare outputs: that each function reads the same of a folder is tested elsewhere."""

from __future__ import annotations

import pytest

import mapper.inference
from tests.reading_once import Once


@pytest.fixture(autouse=True)
def _reads_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mapper.inference, "infer", Once())
