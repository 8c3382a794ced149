"""What is known of a model by the roles of its parts: facts of blocks, sizes of tensors, lengths of lists."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from mapper.architecture import Block
from mapper.errors import MapperError, cut
from mapper.flows.arithmetic import evaluate, names
from mapper.weights.renaming.arranged import arranged_parts
from mapper.words import spelled_numbers

if TYPE_CHECKING:
    from mapper.architecture import Architecture
    from mapper.weights.renaming.parts import Part, Where

_BETWEEN_WORDS = re.compile(r"\.(?![^{]*\})")  # no point of a range of numbers: {1..2}
Said = tuple[tuple[str, ...], str, Any]  # role path of a block, a fact of it, its value


class Known:
    """What is known of a model: facts by the role paths of blocks, sizes by those of tensors."""

    def __init__(self, architecture: Architecture, parts: Mapping[Where, Part], stored: set[str]):
        self.architecture, self.parts, self.stored = architecture, parts, stored
        self.config = architecture.checkpoint.config or {}
        self.shapes = {where.pattern: part.shape for where, part in parts.items() if where.tensor == "weight"}
        self.shapes |= {where.role: part.shape for where, part in parts.items() if where.tensor == "weight"}
        self.facts: dict[tuple[str, ...], dict[str, list[Any]]] = {}  # by role path without indices
        for path, name, value in facts_by_role(architecture):
            values = self.facts.setdefault(path, {}).setdefault(name, [])
            if value not in values:
                values.append(value)

    def fact(self, name: str, at: str) -> Any:
        """Its value in the blocks at this role path, anywhere for ""; None where nobody knows it."""
        scope = tuple(at.split(".")) if at else ()
        inside = {path: facts for path, facts in self.facts.items() if path[: len(scope)] == scope}
        around = {path: facts for path, facts in self.facts.items() if scope[: len(path)] == path}
        values: list[Any] = []
        for known in (inside, around):
            for facts in known.values() if not values else ():
                values += [value for value in facts.get(name, ()) if value not in values]
        if len(values) > 1:
            where = f" of {at}" if at else ""
            raise MapperError(
                f"{name}{where} is {' and '.join(cut(json.dumps(value), 60) for value in values[:4])}, and the settings "
                "have one"
            )
        return values[0] if values else None

    def beside(self, name: str, said: Any) -> Iterator[tuple[Any, Any]]:
        """Each value of a fact with what `said` is in the same blocks, a value or arithmetic over their facts."""
        for facts in self.facts.values():
            for value in facts.get(name, ()):
                if not isinstance(said, ast.expr):
                    yield value, said
                elif all(one in facts for one in names(said)):
                    yield value, _evaluated(said, {one: facts[one][0] for one in names(said)})

    def elements(self, path: str) -> list[int]:
        """The numbers in a list of blocks at this role path."""
        above = path.split(".")
        roles = (where.role.split(".") for where in self.parts)
        return sorted({int(words[len(above)]) for words in roles if words[: len(above)] == above})

    def length(self, path: str) -> int:
        """How many elements a list has, `*` for any number above it; ValueError where such lists differ."""
        form = path.split(".")
        seen: dict[tuple[str, ...], set[str]] = {}
        for where in self.parts:
            words = where.role.split(".")
            above = ["*" if other == "*" else word for other, word in zip(form, words, strict=False)]
            if above == form and len(words) > len(form):
                seen.setdefault(tuple(words[: len(form)]), set()).add(words[len(form)])
        lengths = {len(numbers) for numbers in seen.values()}
        if len(lengths) > 1:
            raise ValueError(f"lists at {path} have {' and '.join(map(str, sorted(lengths)))} elements")
        return next(iter(lengths), 0)

    def has(self, path: str) -> bool:
        """Whether the model has a leaf at this role path or below it."""
        return any(f"{where.role}.".startswith(f"{path}.") for where in self.parts)

    def fact_of_element(self, name: str, at: str) -> Any:
        """Its value in the blocks at a role path with numbers; None where nobody knows it or there are none."""
        scope = tuple(at.split("."))
        values = [
            value for path, fact, value in self.numbered if fact == name and path[: len(scope)] == scope
        ]
        if any(value != values[0] for value in values):
            raise MapperError(f"{name} of {at} has several values, and the settings have one")
        return values[0] if values else None

    @cached_property
    def numbered(self) -> list[Said]:
        return facts_of_parts(self.architecture, self.parts)

    def extent(self, role: str, axis: int) -> int | None:
        shape = self.shapes.get(role, ())
        return shape[axis] if len(shape) > axis else None


def _evaluated(said: ast.expr, facts: Mapping[str, Any]) -> Any:
    """Its value; None for arithmetic that these facts do not allow."""
    try:
        return evaluate(said, facts)
    except ValueError:
        return None


def facts_by_role(architecture: Architecture) -> list[Said]:
    """Role path of a block without indices, a fact of it, and its value; the most particular scope is the one.

    Of a model that a naming arranges otherwise the blocks as the naming has them.
    """
    if arranged := arranged_parts(architecture):
        said = facts_of_parts(architecture, arranged)
        return [
            (tuple(word for word in role if not word.isdigit()), name, value) for role, name, value in said
        ]
    found: list[Said] = []
    places: dict[tuple[tuple[str, ...], tuple[str, ...]], None] = {}
    for leaf in architecture.leaves:
        role = tuple(word for word, _ in leaf.block)
        places[role, _starred(leaf.place)] = None
        found += [(role, name, item.value) for name, item in leaf.facts.items()]
    scopes = [(_starred(_scope(item.at)), item) for item in architecture.facts]
    for role, at in places:
        best: dict[str, tuple[int, list[Any]]] = {}
        for scope, item in scopes:
            if at[: len(scope)] == scope and best.get(item.name, (-1,))[0] <= len(scope):
                same = best[item.name][1] if best.get(item.name, (-1,))[0] == len(scope) else []
                best[item.name] = (len(scope), [*same, item.value])
        found += [(role, name, value) for name, (_, values) in best.items() for value in values]
    return found


def _scope(at: str) -> tuple[str, ...]:
    """The words of where a fact holds; () for everywhere."""
    return tuple(_BETWEEN_WORDS.split(at)) if at not in ("", "*") else ()


def _starred(path: Iterable[Any]) -> tuple[str, ...]:
    return tuple(
        "*" if not isinstance(word, str) or word.isdigit() or word.startswith("{") else word for word in path
    )


def facts_of_parts(architecture: Architecture, parts: Mapping[Where, Part]) -> list[Said]:
    """The same with the indices of blocks, by the roles of parts: whatever their own blocks are."""
    blocks = dict(_facts_of_leaves(architecture.root, {}))
    in_blocks = {name for both in blocks.values() for facts in both for name in facts}
    deepest_first = _scopes(architecture, in_blocks)
    around: dict[tuple[str, ...], dict[str, list[Any]]] = {}
    found: dict[tuple[tuple[str, ...], str, str], Said] = {}
    for where, part in parts.items():
        role, folder = tuple(where.role.split(".")[:-1]), tuple(part.path.split(".")[:-1])
        if folder not in around:
            around[folder] = _at(folder, deepest_first)
        block, own = blocks.get(part.path, ({}, {}))
        said = [(role, name, value) for name, values in around[folder].items() for value in values]
        said += [(role, name, value) for name, value in block.items()]
        said += [((*role, where.role.rpartition(".")[2]), name, value) for name, value in own.items()]
        found |= {(at, name, json.dumps(value)): (at, name, value) for at, name, value in said}
    return list(found.values())


def _facts_of_leaves(
    block: Block, around: Mapping[str, Any]
) -> Iterator[tuple[str, tuple[dict[str, Any], dict[str, Any]]]]:
    """Each tensor with the facts that the flows of its blocks use, the innermost first, and with its leaf's own."""
    facts = {**around, **{item.name: item.value for item in block.facts.values()}}
    for value in block.roles.values():
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, Block):
                yield from _facts_of_leaves(item, facts)
                continue
            own = {fact.name: fact.value for fact in item.facts.values()}
            for key in tuple(item.keys()):
                yield key, ({name: said for name, said in facts.items() if name not in own}, own)


def _scopes(architecture: Architecture, without: set[str]) -> list[list[tuple[tuple[str, ...], Any]]]:
    """Facts that no flow uses itself, by the depth of their scopes."""
    scopes: dict[int, list[tuple[tuple[str, ...], Any]]] = {}
    for item in architecture.facts:
        at = _scope(item.at)
        if item.name not in without:
            scopes.setdefault(len(at), []).append((at, item))
    return [scopes[depth] for depth in sorted(scopes, reverse=True)]


def _at(
    folder: tuple[str, ...], deepest_first: Iterable[list[tuple[tuple[str, ...], Any]]]
) -> dict[str, list[Any]]:
    """What holds in a folder: of each fact what the most particular scope says."""
    found: dict[str, list[Any]] = {}
    for scopes in deepest_first:
        here: dict[str, list[Any]] = {}
        for at, item in scopes:
            if item.name not in found and _is_within(folder, at):
                here.setdefault(item.name, []).append(item.value)
        found |= here
    return found


def _is_within(folder: tuple[str, ...], at: tuple[str, ...]) -> bool:
    return len(folder) >= len(at) and all(map(_is_word, at, folder))


def _is_word(said: str, word: str) -> bool:
    """Whether a word of a scope is that of a folder, or its numbers have it."""
    return said == word or (word.isdigit() and (said == "*" or int(word) in spelled_numbers(said)))
