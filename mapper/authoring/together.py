"""`mapper rules check` of all files by several processes: each reads the rules once and takes one file after another."""

from __future__ import annotations

import signal
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path

from mapper._collector import collection_paused, drop_what_is_new, keep_what_there_is
from mapper.authoring.check import Checker, everything, type_problems
from mapper.authoring.found import FileCheck
from mapper.authoring.passed import Passed
from mapper.rulebook.examples import FAMILIES
from mapper.rulebook.rulebook import KINDS, Rulebook
from mapper.rulebook.strict import Document

_Said = tuple[tuple[str, ...], tuple[str, ...], bool, bool]  # what `_begin` is told
_FEW = 6  # files: more processes would take longer to begin than to check them
_MOST = 8  # processes: each holds the rules and torch
_FIRST = (
    "flows",
    "families",
)  # kinds whose files take longest: no process is to begin one when all others are done

_held: list[tuple[Checker, list[tuple[str, Document]]]] = []  # by a process that checks for another


def check_all(
    folders: Sequence[str | Path], run: bool, processes: int, kinds: Iterable[str] = KINDS, anew: bool = False
) -> list[FileCheck]:
    """What `check_rules` finds in every file of the shipped rules and of these folders, in the same order.

    What was in order before, and rests on nothing that has changed, is not checked again, unless `anew`.
    """
    rulebook = Rulebook(folders, kinds)
    documents, lone = everything(rulebook)
    passed = Passed(rulebook, run)
    found = {} if anew else dict(_known(passed, documents))
    rest = [at for at in range(len(documents)) if at not in found]
    long = [at for at in rest if documents[at][0] in _FIRST]
    if processes > 1 and len(long) > _FEW:
        said = (tuple(map(str, folders)), tuple(kinds), run, anew)
        found |= _by_several(said, processes, documents, rest)
    checker = Checker(rulebook, alone=False, run=run, examples=True, passed=None if anew else passed)
    found |= {at: checker.file(*documents[at]) for at in rest if at not in found}
    checks = [found[at] for at in range(len(documents))]
    if rest:
        passed.keep(checks, Passed(Rulebook(folders, kinds), run))
    return checks + lone


def _known(passed: Passed, documents: Sequence[tuple[str, Document]]) -> Iterator[tuple[int, FileCheck]]:
    """What was in order and still is, also by the files of others that may list the types of a family."""
    for at, (kind, document) in enumerate(documents):
        check = passed.of(document)
        if check and not (kind == FAMILIES and type_problems(document, passed.rulebook)):
            yield at, check


def _by_several(
    said: _Said, processes: int, documents: Sequence[tuple[str, Document]], rest: Sequence[int]
) -> dict[int, FileCheck]:
    """What processes find in the files with these numbers; nothing where one was ended from outside, or could not begin."""
    pool = ProcessPoolExecutor(min(processes, _MOST), get_context("spawn"), _begin, said)
    try:
        waiting = [pool.submit(_check, numbers, labels) for numbers, labels in _tasks(documents, rest)]
        return dict(item for one in waiting for item in one.result())
    except BrokenProcessPool:
        return {}
    finally:
        pool.shutdown(cancel_futures=True)


def _tasks(
    documents: Sequence[tuple[str, Document]], rest: Sequence[int]
) -> Iterator[tuple[list[int], list[str]]]:
    """The numbers and labels of files that one process is to check: pages of one block share the flows of its spine."""
    tasks: dict[tuple[int, str], list[int]] = {}
    for at in rest:
        kind, document = documents[at]
        is_page = kind == _FIRST[0] and isinstance(document.data, dict) and "block" in document.data
        block = str(document.data["block"]) if is_page else document.label
        tasks.setdefault((_turn(kind), block), []).append(at)
    for _, numbers in sorted(tasks.items(), key=lambda item: (item[0][0], -len(item[1]))):
        yield numbers, [documents[at][1].label for at in numbers]


def _turn(kind: str) -> int:
    return _FIRST.index(kind) if kind in _FIRST else len(_FIRST)


def _begin(folders: Sequence[str], kinds: Sequence[str], run: bool, anew: bool) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever began this process ends it
    rulebook = Rulebook(folders, kinds)
    passed = None if anew else Passed(rulebook, run)
    _held[:] = [
        (Checker(rulebook, alone=False, run=run, examples=True, passed=passed), everything(rulebook)[0])
    ]
    _ = rulebook.families, rulebook.flows.everything()
    if run:
        import mapper._build  # torch, which every model needs, stays as well

        _ = mapper._build
    keep_what_there_is()


def _check(numbers: Sequence[int], labels: Sequence[str]) -> list[tuple[int, FileCheck]]:
    ((checker, documents),) = _held
    found = []
    for at, label in zip(numbers, labels, strict=True):
        kind, document = documents[at] if at < len(documents) else ("", None)
        if document is None or document.label != label:
            problem = f"{label}:1: files came or went while they were checked"
            found.append((at, FileCheck(label, kind, "", [problem])))
        else:
            with collection_paused():  # it would look through all that was read so far, again and again
                found.append((at, checker.file(kind, document)))
            drop_what_is_new()
    return found
