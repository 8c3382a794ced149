"""Checkpoints that lost a part, or have one too many: which of them are still called exact.

    python tools/dropping.py CHECKPOINTS               # a few changes of each kind to every checkpoint
        --each 6                                       # so many of each kind
        --seed 1                                       # others
        --kinds module tensor                          # of these kinds alone
        --only bert t5                                 # folders of these names alone
        --json FILE                                    # every change and what came of it

A folder counts that `mapper` reads as exact. Names and shapes are changed in memory and read without weights:

    module   all tensors of one parent name are taken out
    tensor   one tensor of a module that has several
    element  one element of a list, with all in it
    everywhere  a module of the elements of a list, or a tensor of one, is taken out of all of them
    folders  a folder of several modules is taken out, of all elements of the lists around it
    added    a module of one element of a list stands a second time in it, under a name of its own
    shape    one extent of a weight is one more than it was

What is taken out is something that the forward of the whole reads; where names differ in numbers alone, one of them
is tried. What is still exact is built and run on the stored inputs. It is "the same" where the stored outputs come
out (a tied head, a table that the forward makes itself), "noted" where the reading has a note that the whole has not
(a base model without its head), "named" where an addition is listed as unused. All else is "silent": a wrong model
called exact. Exit code 1 if there are any.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from multiprocessing import Pool
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402
from safetensors.torch import load_file  # noqa: E402
from score import differences  # noqa: E402

from mapper._build import build_architecture  # noqa: E402
from mapper.architecture import Architecture  # noqa: E402
from mapper.checkpoint import Checkpoint, TensorInfo  # noqa: E402
from mapper.errors import MapperError  # noqa: E402
from mapper.inference import infer  # noqa: E402
from mapper.rulebook.rulebook import Rulebook  # noqa: E402
from mapper.sources import open_source  # noqa: E402

Tensors = Mapping[str, TensorInfo]
EXACT, SAME, LESS, NOTED, NAMED = "exact", "the same", "less", "noted", "named"
WRONG = STUMBLES, SILENT = "stumbles", "silent"
OUTCOMES = ("refused", "skeleton", "unverified", SAME, LESS, NOTED, NAMED, *WRONG)
ADDED = "appended"  # a name that no vocabulary has
_NUMBER = re.compile(r"(?<=\.)\d+(?=\.|$)")


@dataclass(frozen=True)
class Change:
    """What is other in a header."""

    kind: str
    what: str  # the module, tensor or element
    lost: frozenset[str] = frozenset()
    more: Mapping[str, TensorInfo] = field(default_factory=dict)

    def made(self, tensors: Tensors) -> dict[str, TensorInfo]:
        """A header with this change."""
        return {**{name: info for name, info in tensors.items() if name not in self.lost}, **self.more}


@dataclass(frozen=True)
class Result:
    """What came of one change."""

    checkpoint: str
    kind: str
    what: str
    outcome: str


def folded(name: str) -> str:
    """A name with every number alike."""
    return _NUMBER.sub("N", name)


def parent(name: str) -> str:
    return name.rpartition(".")[0]


# --- what may be changed


def modules(tensors: Tensors) -> Iterator[Change]:
    for path, names in _by(parent, tensors).items():
        if path:
            yield Change("module", path, frozenset(names))


def single_tensors(tensors: Tensors) -> Iterator[Change]:
    for names in _by(parent, tensors).values():
        for name in names if len(names) > 1 else ():
            yield Change("tensor", name, frozenset([name]))


def elements(tensors: Tensors) -> Iterator[Change]:
    """Elements of lists but for the last: a shorter list is one of another model."""
    inside: dict[str, list[str]] = defaultdict(list)
    for name in tensors:
        for found in _NUMBER.finditer(name):
            if found.end() < len(name):
                inside[name[: found.end()]].append(name)
    for path, names in inside.items():
        folder, _, number = path.rpartition(".")
        if f"{folder}.{int(number) + 1}" in inside:
            yield Change("element", path, frozenset(names))


def everywhere(tensors: Tensors) -> Iterator[Change]:
    """A module in all elements of lists, and each tensor of one that has several."""
    inside = [name for name in tensors if folded(parent(name)) != parent(name)]
    for path, names in _by(lambda name: folded(parent(name)), inside).items():
        yield Change("everywhere", path, frozenset(names))
        alike = _by(folded, names)
        for name, each in alike.items() if len(alike) > 1 else ():
            yield Change("everywhere", name, frozenset(each))


def folders(tensors: Tensors) -> Iterator[Change]:
    """A folder of several modules, wherever it stands but for numbers: all cross-attention, all shared experts."""
    inside: dict[str, set[str]] = defaultdict(set)
    for name in tensors:
        words = parent(name).split(".")
        for end in range(1, len(words)):
            inside[folded(".".join(words[:end]))].add(name)
    for path, names in inside.items():
        modules_in = {folded(parent(name)) for name in names}
        if not path.endswith(".N") and len(modules_in) > 1 and len(names) < len(tensors):
            yield Change("folders", path, frozenset(names))


def additions(tensors: Tensors) -> Iterator[Change]:
    for path, names in _by(parent, tensors).items():
        if folded(path) != path and not path.rpartition(".")[2].isdigit():
            more = {f"{path}_{ADDED}{name[len(path) :]}": tensors[name] for name in names}
            yield Change("added", path, more=more)


def other_shapes(tensors: Tensors) -> Iterator[Change]:
    for name, info in tensors.items():
        for at in (0, 1) if len(info.shape) > 1 else ():
            shape = (*info.shape[:at], info.shape[at] + 1, *info.shape[at + 1 :])
            yield Change(
                "shape", f"{name} {list(shape)}", frozenset([name]), {name: info._replace(shape=shape)}
            )


KINDS: dict[str, Callable[[Tensors], Iterator[Change]]] = {
    "module": modules,
    "tensor": single_tensors,
    "element": elements,
    "everywhere": everywhere,
    "folders": folders,
    "added": additions,
    "shape": other_shapes,
}


def _by(key: Callable[[str], str], names: Iterable[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for name in names:
        found[key(name)].append(name)
    return found


def chosen(
    kind: str, tensors: Tensors, read: frozenset[str], count: int, source: random.Random
) -> Iterator[Change]:
    """Some changes of one kind that touch what is read: one of those whose names differ in numbers alone."""
    alike: dict[str, list[Change]] = defaultdict(list)
    for change in KINDS[kind](tensors):
        if kind == "added" or not read.isdisjoint(change.lost):
            alike[folded(change.what)].append(change)
    for name in source.sample(sorted(alike), min(count, len(alike))):
        yield source.choice(alike[name])


# --- what comes of it


class Judge:
    """Readings of one checkpoint and of what is made of it."""

    def __init__(self, folder: Path, rulebook: Rulebook):
        self.folder, self.rulebook = folder, rulebook
        self.checkpoint = open_source(str(folder), purpose="weights")
        self.whole = infer(self._header(self.checkpoint.tensors), rulebook)
        unread = {*self.whole.unmapped, *(name for name, _ in self.whole.unused)}
        self.read = frozenset(self.checkpoint.tensors.keys() - unread)

    def _header(self, tensors: dict[str, TensorInfo]) -> Checkpoint:
        return replace(self.checkpoint, tensors=tensors)

    def outcome(self, change: Change) -> str:
        """One of OUTCOMES."""
        try:
            found = infer(self._header(change.made(self.checkpoint.tensors)), self.rulebook)
        except MapperError:
            return "refused"
        if found.reading != EXACT:
            return found.reading
        if change.kind == "added":
            said = {*found.unmapped, *(name for name, _ in found.unused)}
            return NAMED if said.issuperset(change.more) else SILENT
        if set(found.notes) - set(self.whole.notes):
            return NOTED
        return SILENT if change.kind == "shape" else self._run(found)

    def _run(self, found: Architecture) -> str:
        """What the model of what is left gives of the stored outputs."""
        inputs, wanted = (load_file(self.folder / f"{name}.safetensors") for name in ("inputs", "outputs"))
        try:
            with torch.no_grad():
                made = build_architecture(found)(**inputs)
        except Exception:  # a model of less may stumble over anything
            return STUMBLES
        given = {
            name: value
            for name, value in wanted.items()
            if getattr(made, name.partition(".")[0], None) is not None
        }
        if not given or any(differences(made, given)):
            return SILENT
        return SAME if len(given) == len(wanted) else LESS


def results(
    folder: Path, kinds: Sequence[str], count: int, seed: int, rulebook: Rulebook
) -> Iterator[Result]:
    """What comes of some changes to one checkpoint; of one that is not exact, nothing."""
    try:
        judge = Judge(folder, rulebook)
    except MapperError:
        return
    for kind in kinds if judge.whole.reading == EXACT else ():
        source = random.Random(f"{seed} {kind} {folder.name}")
        for change in chosen(kind, judge.checkpoint.tensors, judge.read, count, source):
            yield Result(folder.name, kind, change.what, judge.outcome(change))


def table(found: Sequence[Result]) -> str:
    """How many changes of each kind came out how."""
    count = Counter((one.kind, one.outcome) for one in found)
    kinds = [kind for kind in KINDS if any(one.kind == kind for one in found)]
    there = [outcome for outcome in OUTCOMES if any(one.outcome == outcome for one in found)]
    rows = [["", *there], ["---"] * (len(there) + 1)]
    rows += [[kind, *(str(count[kind, outcome]) for outcome in there)] for kind in kinds]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


class _Work:
    """One folder's results, in a process that reads the rules once."""

    rulebook: Rulebook

    @classmethod
    def start(cls) -> None:
        cls.rulebook = Rulebook()

    @classmethod
    def on(cls, asked: tuple[Path, Sequence[str], int, int]) -> list[Result]:
        return list(results(*asked, cls.rulebook))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkpoints", type=Path, help="a folder of checkpoints")
    parser.add_argument("--each", type=int, default=2, help="changes of each kind to each checkpoint")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    start = time.perf_counter()
    folders = [path for path in sorted(options.checkpoints.iterdir()) if (path / "config.json").exists()]
    asked = [
        (path, options.kinds, options.each, options.seed)
        for path in folders
        if not options.only or path.name in options.only
    ]
    found: list[Result] = []
    with Pool(options.processes, _Work.start) as pool:
        for some in pool.imap(_Work.on, asked, chunksize=4):
            found += some
            for one in some:
                if one.outcome in WRONG:
                    print(f"{one.checkpoint}: {one.kind} {one.what}: {one.outcome}", flush=True)
    wrong = sum(one.outcome in WRONG for one in found)
    print(table(found))
    print(
        f"{wrong} of {len(found):,} changes are wrong and called exact ({time.perf_counter() - start:.0f} s)"
    )
    if options.json:
        options.json.write_text(json.dumps([asdict(one) for one in found], indent=1))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
