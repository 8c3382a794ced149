"""Lists whose elements are of a few kinds that take turns: which element is which, by a list of the Config."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from mapper.architecture import Block, Fact
from mapper.emission.module_tree import Folder
from mapper.flows.language import dotted, every
from mapper.flows.program import Piece
from mapper.rulebook.pages import JOINED

Numbers = tuple[int, ...]  # of the elements that are alike
MOST = 3  # kinds that conditions tell apart; more are easier to read one by one
_ATTENTION = "heads"  # a fact of what is attention, whatever else stands in the place of one


@dataclass(frozen=True)
class Kind:
    """Elements that are alike, what they have that those after them have not, and all elements that have it."""

    key: Numbers
    word: str
    numbers: list[int]


def kinds_of(folder: Folder, keys: Sequence[Numbers]) -> list[Kind]:
    """The kinds of elements but for the most usual one, the rarest first; none where nothing tells them apart."""
    order = sorted(keys, key=len)
    words = {key: _words(folder.children[key]) for key in keys}
    found = []
    for at, key in enumerate(order[:-1]):
        told = _told(words[key], [words[other] for other in order[at + 1 :]])
        if told is None:
            return []
        sort, word = told
        numbers = sorted(index for own in keys if word in words[own][sort] for index in own)
        found.append(Kind(key, word, numbers))
    return found


def fact_of_kind(folder: Folder, kind: Kind, word: str) -> Fact:
    """The size that says which elements are of a kind."""
    place = str(folder.children[kind.key].place)
    return Fact(f"{kind.word}.{word}", kind.numbers, place, "name", place)


def told_by(listed: Fact, rare: Numbers, usual: Numbers) -> str | bool | None:
    """What a list with an entry for each element says of these, and not of the others; None where it does not."""
    said = {listed.value[index] for index in rare}
    rest = {listed.value[index] for index in usual}
    value = said.pop() if len(said) == 1 else None
    return value if isinstance(value, (str, bool)) and value not in rest else None


def _told(own: Mapping[str, list[str]], rest: Sequence[Mapping[str, list[str]]]) -> tuple[str, str] | None:
    return next(
        (
            (sort, word)
            for sort, words in own.items()
            for word in words
            if not any(word in known[sort] for known in rest)
        ),
        None,
    )


def _words(child: object) -> dict[str, list[str]]:
    """What could tell an element from others: roles of its blocks, what is attention, steps of their flows."""
    block = child.block if isinstance(child, Folder) else None
    parts = {role: item for role, item in (block.roles if block else {}).items() if isinstance(item, Block)}
    steps = [
        step for item in parts.values() for step in (item.flow or "").partition("/")[2].split(JOINED) if step
    ]
    return {"role": [*parts], "attention": attends(block), "step": steps}


def attends(block: Block | None) -> list[str]:
    """`attention` where a part of a block has heads that attend."""
    parts = [item for item in (block.roles.values() if block else ()) if isinstance(item, Block)]
    return (
        ["attention"] if any(_ATTENTION in item.facts and item.role == "attention" for item in parts) else []
    )


def side_by_side(piece: Piece) -> Iterator[tuple[list[str], list[Fact]]]:
    """What a forward goes through side by side: the names, and those facts of them that are lists."""
    for node in (node for statement in piece.statements for node in every(statement)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "zip":
            words = [dotted(item) or "" for item in node.args]
            named = [piece.block.facts.get(word.removeprefix("fact.")) for word in words]
            yield words, [fact for fact in named if fact and isinstance(fact.value, (list, tuple))]
