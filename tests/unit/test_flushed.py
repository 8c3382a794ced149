"""New files whose bytes go to the disk while later ones are written."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from mapper.outputs import flushed


def _waits_for(met: Callable[[], bool]) -> None:
    """Until it is so, at most ten seconds."""
    end = time.monotonic() + 10
    while not met() and time.monotonic() < end:
        time.sleep(0.005)


def test_what_was_written_is_flushed_before_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    sizes: list[int] = []
    monkeypatch.setattr(flushed, "STEP", 1000)
    monkeypatch.setattr(flushed, "_flush", lambda descriptor: sizes.append(os.fstat(descriptor).st_size))
    with flushed.new_file(tmp_path / "large", buffering=0) as file:
        file.write(bytes(1500))
        _waits_for(lambda: len(sizes) == 1)
        file.write(bytes(500))  # less than is worth it
        file.write(bytes(700))
        _waits_for(lambda: len(sizes) == 2)
    assert sizes == [1500, 2700]
    assert (tmp_path / "large").read_bytes() == bytes(2700)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The files that a disk was asked to keep, which it does not."""
    found: list[int] = []

    def fail(descriptor: int) -> None:
        found.append(descriptor)
        raise OSError("the disk is gone")

    monkeypatch.setattr(flushed, "STEP", 1000)
    monkeypatch.setattr(flushed, "_flush", fail)
    return found


def test_a_part_that_does_not_reach_the_disk_is_an_error(tmp_path: Path, asked: list[int]):
    with (
        pytest.raises(OSError, match="the disk is gone"),
        flushed.new_file(tmp_path / "large", buffering=0) as file,
    ):
        file.write(bytes(2000))
        _waits_for(lambda: bool(asked))


def test_an_error_of_the_writer_is_the_one_that_is_told(tmp_path: Path, asked: list[int]):
    with (
        pytest.raises(ValueError, match="no numbers"),
        flushed.new_file(tmp_path / "large", buffering=0) as file,
    ):
        file.write(bytes(2000))
        _waits_for(lambda: bool(asked))
        raise ValueError("no numbers")


def test_an_error_of_the_writer_comes_through(tmp_path: Path):
    with pytest.raises(ValueError, match="no numbers"), flushed.new_file(tmp_path / "none"):
        raise ValueError("no numbers")
