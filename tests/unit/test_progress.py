"""What a person is told while long work goes on."""

from __future__ import annotations

import logging
import sys
import threading
import time

import pytest

from mapper import _progress
from mapper._progress import Transfer, note, showing, working
from mapper._units import duration, in_bytes


class Terminal:
    def __init__(self, shown: bool = True) -> None:
        self.text = ""
        self.shown = shown

    def isatty(self) -> bool:
        return self.shown

    def write(self, text: str) -> None:
        self.text += text

    def flush(self) -> None:
        pass


def terminal_of(monkeypatch: pytest.MonkeyPatch, shown: bool = True) -> Terminal:
    """Standard error from now on. No fixture: pytest sets its own once the test begins."""
    made = Terminal(shown)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", made)
    monkeypatch.setattr(_progress, "PATIENCE", 0.0)
    monkeypatch.setattr(_progress, "_REFRESH", 0.005)
    return made


def wait_for(terminal: Terminal, text: str) -> None:
    deadline = time.monotonic() + 10
    while text not in terminal.text and time.monotonic() < deadline:
        time.sleep(0.002)
    assert text in terminal.text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1, "0 s"),
        (0.4, "0 s"),
        (59.4, "59 s"),
        (125, "2 min 5 s"),
        (4800, "1 h 20 min"),
        (1e7, "2,777 h 46 min"),
    ],
)
def test_durations_are_as_a_person_says_them(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_bytes_are_in_decimal_units() -> None:
    assert [in_bytes(count) for count in (0, 999, 1e3, 2.5e6, 4e9, 5e12)] == [
        "0 bytes", "999 bytes", "1.0 kB", "2.5 MB", "4.0 GB", "5.0 TB",
    ]  # fmt: skip


def test_a_transfer_says_how_much_how_fast_and_how_long() -> None:
    now = [100.0]
    transfer = Transfer("fetching org/x", 10_000_000, lambda: now[0])
    assert transfer.line() == "fetching org/x 0 bytes of 10.0 MB"
    now[0] += 2
    transfer.add(2_000_000)
    assert transfer.line() == "fetching org/x 2.0 MB of 10.0 MB, 1.0 MB/s, 8 s left"
    for _ in range(12):  # the first fast seconds are forgotten
        now[0] += 1
        transfer.add(100_000)
        line = transfer.line()
    assert line == "fetching org/x 3.2 MB of 10.0 MB, 100.0 kB/s, 1 min 8 s left"
    transfer.add(-1_000_000)
    assert transfer.line() == "fetching org/x 2.2 MB of 10.0 MB"


def test_the_innermost_work_is_shown_and_the_line_goes_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_of(monkeypatch)
    with working("outside"):
        wait_for(terminal, "outside 0 s")
        with showing(lambda: "inside\x1b[31m"):
            wait_for(terminal, "inside\N{REPLACEMENT CHARACTER}[31m")
        terminal.text = ""
        wait_for(terminal, "outside 0 s")
    assert terminal.text.endswith("\r\x1b[K")


def test_a_note_stands_on_a_line_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_of(monkeypatch)
    seen: list[tuple[str, str]] = []
    monkeypatch.setattr(
        logging.getLogger("mapper"), "warning", lambda form, text: seen.append((terminal.text, text))
    )
    with working("reading"):
        wait_for(terminal, "reading")
        note("the hub\nanswers 503")
    assert seen[0][0].endswith("\r\x1b[K") and seen[0][1] == "the hub\N{REPLACEMENT CHARACTER}answers 503"


@pytest.mark.parametrize(("shown", "kind"), [(False, "xterm"), (True, "dumb")])
def test_nothing_is_shown_where_no_line_can_be_written_over(
    shown: bool, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = terminal_of(monkeypatch, shown)
    monkeypatch.setenv("TERM", kind)
    threads = threading.active_count()
    with working("reading", lambda: 0.5):
        assert threading.active_count() == threads
    assert terminal.text == ""


def test_a_part_of_known_work_is_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_of(monkeypatch)
    with working("checking", lambda: 0.5):
        wait_for(terminal, f"checking {'█' * 12}{'░' * 12}  50%")
