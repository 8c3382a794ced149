"""Equal layers that a config tells apart: by their tensors one block, by a fact of theirs several."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mapper.architecture import Place
from mapper.inference.facts import Facts
from mapper.inference.scopes import Scope
from mapper.naming.resolve import Groups


def differing_elements(root: Scope, facts: Facts) -> Groups:
    """The lists that hold equal elements in which a fact marked `apart` differs."""
    found: Groups = {}
    for scope in root.below():
        indices = scope.block.indices or ()
        names = [name for name, role in facts.apart.items() if role == scope.block.role]
        if len(indices) > 1 and names:
            groups: dict[Any, list[int]] = {}
            for index in indices:
                alone = replace(scope, block=replace(scope.block, indices=(index,)))
                groups.setdefault(repr([_value(alone, name, facts) for name in names]), []).append(index)
                facts.forget(alone)
            if len(groups) > 1:
                found.setdefault(Place(scope.block.home[:-1]), []).extend(map(tuple, groups.values()))
    return found


def _value(scope: Scope, name: str, facts: Facts) -> Any:
    known = facts.get(scope, name)
    return None if known is None else known.value
