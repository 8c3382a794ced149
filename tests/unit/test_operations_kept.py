"""What is kept of the operations for the next process is what parsing them gives, and a broken copy is not believed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mapper.operations import registry


@pytest.fixture(autouse=True)
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    forget()
    yield
    forget()


def forget() -> None:
    registry._operations.cache_clear()
    registry._names.cache_clear()


def everything() -> dict:
    forget()
    names = registry.operation_names()
    return {
        name: (
            registry.operation_signature(name),
            registry.operation_calls(name),
            registry.operation_source(name),
        )
        for name in names
    }


def test_the_second_process_parses_nothing_and_knows_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed = everything()
    monkeypatch.setattr(registry.ast, "parse", lambda text: pytest.fail("parsed again"))
    assert everything() == parsed
    assert parsed["attend"][2].startswith("def attend(")


@pytest.mark.parametrize("text", [b"", b"[]", b"mapper kept 4\n", b"mapper kept 4\n" + bytes(40)])
def test_a_broken_copy_is_parsed_anew(tmp_path: Path, text: bytes) -> None:
    parsed = everything()
    (kept,) = (tmp_path / "cache" / "mapper").glob("operations-*.kept")
    kept.write_bytes(text)
    assert everything() == parsed
    kept.write_bytes(kept.read_bytes().replace(b"attend_softcap", b"attend_tanhcap"))
    assert everything() == parsed
