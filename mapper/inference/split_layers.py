"""Equal layers that a config tells apart: by their tensors one block, by a fact of theirs several."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from mapper._dataclass import dataclass
from mapper.architecture import Place
from mapper.inference.facts import Facts
from mapper.inference.scopes import Scope, words_at
from mapper.naming.resolve import Groups
from mapper.words import spelled_numbers


@dataclass(eq=False)
class _Element(Scope):
    """One element of a list as a scope of its own, which notes whether anybody has asked for its number."""

    is_asked: bool = False

    def index_of(self, role: str, count: int | None = None) -> tuple[int, ...] | None:
        self.is_asked |= role == self.block.role
        return super().index_of(role, count)

    def matches(self, at: str) -> bool:
        self.is_asked |= any(map(spelled_numbers, words_at(at)))
        return super().matches(at)


def differing_elements(root: Scope, facts: Facts) -> Groups:
    """The lists that hold equal elements in which a fact marked `apart` differs, or of which the user says more of some."""
    found: Groups = {}
    numbered = list(dict.fromkeys(at for item in facts.hints.given for at in _elements(item.at)))
    for scope in root.below():
        indices = scope.block.indices or ()
        names = [name for name, role in facts.declared.apart.items() if role == scope.block.role]
        if len(indices) > 1:
            names = [name for name in names if _depends_on_number(scope, name, facts)]
        if len(indices) > 1 and (names or numbered):
            groups: dict[Any, list[int]] = {}
            for index in indices:
                alone = _element(scope, index)
                said = [alone.matches(at) for at in numbered]
                groups.setdefault(repr([said, *(_value(alone, name, facts) for name in names)]), []).append(
                    index
                )
                facts.forget(alone)
            if len(groups) > 1:
                found.setdefault(Place(scope.block.home[:-1]), []).extend(map(tuple, groups.values()))
    return found


def _element(scope: Scope, index: int) -> _Element:
    """One element of those that a block stands for."""
    block = replace(scope.block, home=Place((*scope.block.home[:-1], (index,))), indices=(index,))
    return _Element(block, scope.parent, scope.words, scope.tower, scope.children, scope.solved)


def _depends_on_number(scope: Scope, name: str, facts: Facts) -> bool:
    """Whether a fact may differ between the elements that a block stands for: of most facts one is asked in place of all."""
    first = _element(scope, (scope.block.indices or (0,))[0])
    _value(first, name, facts)
    facts.forget(first)
    return first.is_asked


def _elements(at: str) -> Iterator[str]:
    """The elements of lists that a place names by number: `h.2` of `h.2.attn`."""
    words = words_at(at)
    return (".".join(words[: end + 1]) for end, word in enumerate(words) if spelled_numbers(word))


def _value(scope: Scope, name: str, facts: Facts) -> Any:
    known = facts.get(scope, name)
    return None if known is None else known.value
