"""`mapper rules check` of all files by several processes: each reads the rules once and takes one file after another."""

from __future__ import annotations

import signal
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path

from mapper._collector import keep_what_there_is
from mapper.authoring.check import Checker, FileCheck, check_rules, everything
from mapper.rulebook.rulebook import KINDS, Rulebook
from mapper.rulebook.strict import Document

_MOST = 8  # processes: each holds the rules and torch
_FIRST = (
    "flows",
    "families",
)  # kinds whose files take longest: no process is to begin one when all others are done

_held: list[tuple[Checker, list[tuple[str, Document]]]] = []  # by a process that checks for another


def check_all(
    folders: Sequence[str | Path], run: bool, processes: int, kinds: Iterable[str] = KINDS
) -> list[FileCheck]:
    """What `check_rules` finds in every file of the shipped rules and of these folders, in the same order."""
    rulebook = Rulebook(folders, kinds)
    if processes < 2:
        return check_rules(rulebook, run=run)
    documents, lone = everything(rulebook)
    said = (tuple(map(str, folders)), tuple(kinds), run)
    pool = ProcessPoolExecutor(min(processes, _MOST), get_context("spawn"), _begin, said)
    try:
        order = sorted(range(len(documents)), key=lambda at: _turn(documents[at][0]))
        found = {at: pool.submit(_check, at, documents[at][1].label) for at in order}
        return [found[at].result() for at in range(len(documents))] + lone
    except BrokenProcessPool:  # one was ended from outside, or could not begin
        return check_rules(rulebook, run=run)
    finally:
        pool.shutdown(cancel_futures=True)


def _turn(kind: str) -> int:
    return _FIRST.index(kind) if kind in _FIRST else len(_FIRST)


def _begin(folders: Sequence[str], kinds: Sequence[str], run: bool) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever began this process ends it
    rulebook = Rulebook(folders, kinds)
    _held[:] = [(Checker(rulebook, alone=False, run=run, examples=True), everything(rulebook)[0])]
    _ = rulebook.families, rulebook.flows.everything()
    if run:
        import mapper._build  # torch, which every model needs, stays as well

        _ = mapper._build
    keep_what_there_is()


def _check(at: int, label: str) -> FileCheck:
    ((checker, documents),) = _held
    kind, document = documents[at] if at < len(documents) else ("", None)
    if document is None or document.label != label:
        return FileCheck(label, kind, "", [f"{label}:1: files came or went while they were checked"])
    return checker.file(kind, document)
