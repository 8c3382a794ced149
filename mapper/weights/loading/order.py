"""`by="order"`: modules of the source paired with those of the model by position, level by level."""

from __future__ import annotations

from dataclasses import dataclass, field

from mapper.weights.loading.flat_table import Source, Stored
from mapper.weights.modules import States, joined


@dataclass
class Branch:
    """A branch of names: the leaves directly on it, and the branches below that hold arrays."""

    leaves: list[str] = field(default_factory=list)
    below: dict[str, Branch] = field(default_factory=dict)


def by_position(source: Source, states: States) -> Source:
    """The source under the names that the model has at the same positions; what has no partner is a stray."""
    places = [path for path, state in states.by_path.items() if state.tensor is not None]
    arrays = source.arrays()
    theirs = branches(list(arrays))
    if any(isinstance(array, Stored) for array in arrays.values()):
        theirs = _numbered(theirs)
    paired = pairs(branches(places), theirs)

    def move(path: str) -> str | None:
        branch, _, name = path.rpartition(".")
        if branch not in paired:
            return None
        return joined(paired[branch], name)

    moved = source.moved(move)
    moved.strays = [path for path in arrays if move(path) is None]
    return moved


def _numbered(root: Branch) -> Branch:
    """The tree with numbered children by their numbers: writers of files sort names as text, 10 before 2."""
    pending = [root]
    while pending:
        branch = pending.pop()
        if all(name.isdecimal() for name in branch.below):
            branch.below = {name: branch.below[name] for name in sorted(branch.below, key=int)}
        pending += branch.below.values()
    return root


def branches(paths: list[str]) -> Branch:
    """The tree of names of flat paths, in their order."""
    root = Branch()
    for path in paths:
        *above, name = path.split(".")
        branch = root
        for word in above:
            branch = branch.below.setdefault(word, Branch())
        branch.leaves.append(name)
    return root


def pairs(model: Branch, source: Branch) -> dict[str, str]:
    """{branch of the source: branch of the model} by position."""
    found = {"": ""}
    pending = [("", "", model, source)]
    while pending:
        at, path, ours, theirs = pending.pop()
        for mine, other in zip(ours.below, theirs.below, strict=False):
            here, there = joined(at, mine), joined(path, other)
            found[there] = here
            pending.append((here, there, ours.below[mine], theirs.below[other]))
    return found
