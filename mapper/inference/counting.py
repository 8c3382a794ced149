"""How many layers each tower has, by the numbers in its names."""

from __future__ import annotations

import itertools

from mapper.architecture import Block, Place
from mapper.inference.completeness import lacking_elements
from mapper.inference.evidence import Known
from mapper.inference.scopes import TOWER_LISTS, Scope, is_tower

_MOST_WITHOUT_TENSORS = 2  # behind a convolution and its norm: an activation and a pooling


def count_layers(root: Scope) -> list[tuple[Place, str]]:
    """Settle the length of each tower's list, as a fact that a config can contradict.

    Returns a line for the numbers that a list leaves out, with the place of its first element.
    """
    lines: list[tuple[Place, str]] = []
    towers = [scope for scope in (root, *root.below()) if is_tower(scope.block) or scope.topic == "stage"]
    for scope, role in [(tower, role) for tower in towers for role in _lists(tower.block)]:
        elements = scope.block.roles.get(role)
        blocks = [item for item in elements if isinstance(item, Block)] if isinstance(elements, list) else []
        if blocks:
            indices = [at for item in blocks for at in item.indices or ()]
            place = Place(blocks[0].home[:-1])
            folder = str(place) or "*"
            there = {*indices, *_held(root.block, place)}
            there |= _without_tensors(there, _bare(root.block, place))
            lines += [(blocks[0].home, line) for line in lacking_elements(folder, there)]
            if role in TOWER_LISTS:
                scope.solved[role] = Known(len(indices), "name", f"{folder}.*")
    return lines


def _lists(block: Block) -> list[str]:
    """The roles that are lists of layers: those of every tower, second ones of these, layers_2, and others."""
    return [
        role
        for role, held in block.roles.items()
        if role.rstrip("_0123456789") in TOWER_LISTS
        or (isinstance(held, list) and any(isinstance(item, Block) and item.kind == "layer" for item in held))
    ]


def _held(root: Block, folder: Place) -> set[int]:
    """The numbers in a folder that hold anything with a role: a stem may stand before the layers, and more behind them."""
    parts = [
        leaf.place[len(folder)]
        for leaf in root.leaves()
        if len(leaf.place) > len(folder) and leaf.place.within(folder)
    ]
    return {index for part in parts if isinstance(part, tuple) for index in part}


def _bare(root: Block, folder: Place) -> set[int]:
    """The numbers in a folder that are modules by themselves, as a convolution and its norm before stages."""
    parts = [leaf.place[-1] for leaf in root.leaves() if leaf.place[:-1] == folder]
    return {index for part in parts if isinstance(part, tuple) for index in part}


def _without_tensors(there: set[int], bare: set[int]) -> set[int]:
    """The numbers behind a bare module up to the next one that is there: an activation and a pooling have no tensors."""
    found: set[int] = set()
    for at in bare:
        behind = itertools.takewhile(lambda index: index not in there, itertools.count(at + 1))
        run = list(itertools.islice(behind, _MOST_WITHOUT_TENSORS + 1))
        found |= set(run) if len(run) <= _MOST_WITHOUT_TENSORS else set()
    return found
