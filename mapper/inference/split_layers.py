"""Equal layers that a config tells apart: by their tensors one block, by a fact of theirs several."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from mapper.architecture import Place
from mapper.inference.facts import Facts
from mapper.inference.scopes import Scope, indices_of, words_at
from mapper.naming.resolve import Groups


def differing_elements(root: Scope, facts: Facts) -> Groups:
    """The lists that hold equal elements in which a fact marked `apart` differs, or of which the user says more of some."""
    found: Groups = {}
    numbered = list(dict.fromkeys(at for item in facts.given for at in _elements(item.at)))
    for scope in root.below():
        indices = scope.block.indices or ()
        names = [name for name, role in facts.apart.items() if role == scope.block.role]
        if len(indices) > 1 and (names or numbered):
            groups: dict[Any, list[int]] = {}
            for index in indices:
                home = Place((*scope.block.home[:-1], (index,)))
                alone = replace(scope, block=replace(scope.block, home=home, indices=(index,)))
                said = [alone.matches(at) for at in numbered]
                groups.setdefault(repr([said, *(_value(alone, name, facts) for name in names)]), []).append(
                    index
                )
                facts.forget(alone)
            if len(groups) > 1:
                found.setdefault(Place(scope.block.home[:-1]), []).extend(map(tuple, groups.values()))
    return found


def _elements(at: str) -> Iterator[str]:
    """The elements of lists that a place names by number: `h.2` of `h.2.attn`."""
    words = words_at(at)
    return (".".join(words[: end + 1]) for end, word in enumerate(words) if indices_of(word))


def _value(scope: Scope, name: str, facts: Facts) -> Any:
    known = facts.get(scope, name)
    return None if known is None else known.value
