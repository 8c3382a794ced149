"""Entries of families that are needless: what they say follows from other rules, or no example shows it.

    python tools/needless.py                        # entries that follow, of all families: the rules alone say it
    python tools/needless.py --only llama bert      # of these, and those that no example shows
    python tools/needless.py FOLDER --only llama    # nor a checkpoint in this folder

- `follows`: whatever a config says, the same is read without it (`tools/following.py`). It may go.
- `unshown`: it is struck out in memory, and all that reads by the family is read again: as it stands, without a
  config, without a type in it, with a type that nobody lists, and with its type alone. No reading is another: the entry
  needs an example, or goes. Completeness (`requires`, `optional`) is what `LACKING=all` shows, not this.

It exits with 1 if any entry follows.
"""

from __future__ import annotations

import argparse
import copy
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from following import Keys, chain_of, following  # noqa: E402
from sharing import stored  # noqa: E402

from mapper.architecture import Architecture  # noqa: E402
from mapper.checkpoint import Checkpoint  # noqa: E402
from mapper.errors import MapperError  # noqa: E402
from mapper.inference import infer  # noqa: E402
from mapper.inference.families import _COMPILED, compiled_vocabulary  # noqa: E402
from mapper.rulebook.examples import header  # noqa: E402
from mapper.rulebook.families import Family, inherited  # noqa: E402
from mapper.rulebook.family_file import read_family  # noqa: E402
from mapper.rulebook.index import FamilyEntry  # noqa: E402
from mapper.rulebook.rulebook import Rulebook  # noqa: E402
from mapper.rulebook.strict import Document  # noqa: E402
from mapper.sources import open_source  # noqa: E402

SECTIONS = ("requires", "optional", "names", "flows", "facts", "types", "ignored")
UNLISTED = "a type that nobody lists"


# ---------------------------------------------------------------------------------------------- striking out
def entries(data: Mapping[str, Any]) -> Iterator[Keys]:
    """The place of each entry of a family's file: of tables each row, of lists each item."""
    for section in SECTIONS:
        said = data.get(section)
        for key, value in _items(said):
            yield (section, key)
            if section in ("types", "ignored", "facts") and isinstance(value, (dict, list)):
                if section == "facts" and isinstance(value, dict):
                    continue
                yield from ((section, key, inner) for inner, _ in _items(value))


def _items(said: Any) -> Iterator[tuple[Any, Any]]:
    yield from said.items() if isinstance(said, dict) else enumerate(said) if isinstance(said, list) else ()


def without(document: Document, keys: Keys) -> Document:
    """A file without one entry; what is behind it keeps its line."""
    data, marks = copy.deepcopy(document.data), copy.deepcopy(document.marks)
    around, mark = data, marks
    for key in keys[:-1]:
        at = list(around).index(key) if isinstance(around, dict) else key
        around, mark = around[key], mark[1 + at]
    at = list(around).index(keys[-1]) if isinstance(around, dict) else keys[-1]
    del around[keys[-1]], mark[1 + at]
    return Document(document.path, document.label, data, marks, document.lacks, document.made)


class _Entry(FamilyEntry):
    """A family's entry that reads it without what is struck out."""

    __slots__ = ("_family",)

    def __init__(self, entry: FamilyEntry, family: Family):
        for name in FamilyEntry.__slots__:
            setattr(self, name, getattr(entry, name))
        self._family = family

    def read(self) -> Family:
        return self._family


def struck(rulebook: Rulebook, document: Document) -> Rulebook:
    """The rules with another text of one family, and of those that extend it."""
    changed = read_family(document)
    own = own_families(rulebook)
    families = {**own, changed.name: changed}
    of = {name for name in own if changed.name in chain_of(families, name)}
    made = Rulebook.__new__(Rulebook)
    made.__dict__.update(rulebook.__dict__)
    made.family_entries = [
        _Entry(entry, inherited(families[entry.name], families)) if entry.name in of else entry
        for entry in rulebook.family_entries
    ]
    _COMPILED[made] = compiled_vocabulary(rulebook)
    return made


def own_families(rulebook: Rulebook) -> Mapping[str, Family]:
    """Each family as its file has it."""
    return rulebook.family_entries[0]._files


# --------------------------------------------------------------------------------------------------- reading
def said(architecture: Architecture) -> Any:
    """All that a reading says, but where it has it from."""
    one = architecture
    facts = sorted((fact.name, str(fact.at), repr(fact.value)) for fact in one.facts)
    leaves = [(str(leaf.place), leaf.role, leaf.kind, leaf.form) for leaf in one.leaves]
    blocks = [(str(block.home), block.kind, block.role, block.flow) for block in one.root.blocks()]
    asked = [(question.name, repr(question.candidates)) for question in one.questions]
    rest = (one.family, one.reading, one.inputs, one.unused, one.unmapped, one.towers, one.refusal, one.what)
    return facts, leaves, blocks, one.root.flow, asked, rest, one.missing, one.findings


def outcome(checkpoint: Checkpoint, rulebook: Rulebook) -> Any:
    """What a checkpoint is read as, or the error."""
    try:
        return said(infer(checkpoint, rulebook))
    except MapperError as error:
        return str(error)


def variants(checkpoint: Checkpoint) -> Iterator[Checkpoint]:
    """A checkpoint as it stands, and with less said of it."""
    yield checkpoint
    config = checkpoint.config
    if config is None:
        return
    kind = config.get("model_type")
    yield replace(checkpoint, config=None)
    if kind is not None:
        yield replace(checkpoint, config={key: value for key, value in config.items() if key != "model_type"})
        yield replace(checkpoint, config={**config, "model_type": UNLISTED})
        yield replace(checkpoint, config={"model_type": kind})


@dataclass
class Read:
    """A checkpoint with what it is read as."""

    checkpoint: Checkpoint
    outcome: Any


def readings(rulebook: Rulebook, folders: Sequence[Path], only: set[str]) -> dict[str, list[Read]]:
    """The families (of `only`, if any are named) with all readings that look at one."""
    found: dict[str, list[Read]] = defaultdict(list)
    for checkpoint in checkpoints(rulebook, folders):
        for variant in variants(checkpoint):
            rulebook.noted_families.clear()
            read = Read(variant, outcome(variant, rulebook))
            for name in rulebook.noted_families if not only else rulebook.noted_families & only:
                found[name].append(read)
    return found


def checkpoints(rulebook: Rulebook, folders: Sequence[Path]) -> Iterator[Checkpoint]:
    """Every example, near misses among them, and what stands in folders."""
    for family in rulebook.families:
        yield from map(header, family.examples)
    for path in (path for folder in folders for path in stored(folder)):
        yield open_source(str(path), purpose="headers")


# ------------------------------------------------------------------------------------------------------ main
def unshown(rulebook: Rulebook, family: str, reads: Sequence[Read], but: set[Keys]) -> Iterator[Keys]:
    """The entries of a family without which each of these readings is the same; `but` some, with what is in them."""
    document = own_families(rulebook)[family].document
    for keys in entries(document.data):
        if any(keys[: len(other)] == other for other in but):
            continue
        try:
            rules = struck(rulebook, without(document, keys))
        except MapperError:
            continue  # no family without it
        changes = (read for read in reads if outcome(read.checkpoint, rules) != read.outcome)
        first = next(changes, None)
        if first is None:
            yield keys
        else:  # what shows one entry often shows the next
            reads = [first, *(read for read in reads if read is not first)]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkpoints", type=Path, nargs="*", help="folders of checkpoints")
    parser.add_argument("--only", nargs="*", default=[], metavar="FAMILY", help="of these families alone")
    arguments = parser.parse_args()
    rulebook = Rulebook()
    families = own_families(rulebook)
    only = sorted(arguments.only or families)
    found = {name: set(following(rulebook, families, name)) for name in only}
    reads = readings(rulebook, arguments.checkpoints, set(arguments.only)) if arguments.only else {}
    for name in only:
        document = families[name].document
        kinds = {"follows": found[name], "unshown": unshown(rulebook, name, reads.get(name, ()), found[name])}
        for kind, every in kinds.items() if arguments.only else [("follows", found[name])]:
            for keys in every:
                place = f"{document.label}:{document.line(*keys)}"
                print(f"{place}: {kind}: {'.'.join(map(str, keys))}", flush=True)
    return 1 if any(found.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
