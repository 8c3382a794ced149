"""The statements of a graph by the modules that they stand in: each becomes a forward of its own, called where its statements were.

A statement computes, and does nothing else; so it may stand anywhere between what it reads and what reads it. Where the
statements of a module cannot stand together - something outside is computed from them and goes back in - they stay with
the module around it.
"""

from __future__ import annotations

import ast
import heapq
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from mapper.graphs.graph import TensorRef
from mapper.graphs.straight.tidying import WORD
from mapper.graphs.straight.weights import Tree, is_dict, is_list

Path = tuple[str, ...]
COUNTED = re.compile(r"_\d+$")
_VARIABLE = re.compile(r"(?<![.\w])[A-Za-z_]\w*")  # no attribute
KNOTS = 24  # modules that cannot be called at one place; after so many the rest is written as it comes
MOST = 20_000  # statements that are put into modules


@dataclass
class Statement:
    """One line of a forward, without its indent."""

    text: str
    owner: Path | None = None  # the module that it stands in; None where nothing says it
    makes: tuple[str, ...] = ()
    reads: frozenset[str] = frozenset()
    uses: tuple[Path, ...] = ()  # modules and tensors of the model


@dataclass
class Call:
    """A module called with what its statements read from outside."""

    block: Block
    given: list[str]
    makes: tuple[str, ...]

    @property
    def reads(self) -> frozenset[str]:
        """The names that it is given."""
        return frozenset(self.given)


Step = Statement | Call


@dataclass
class Block:
    """The forward of one module."""

    path: Path
    takes: list[str] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    gives: list[str] = field(default_factory=list)


def statement(row: str, owner: Path | None, tree: Tree) -> Statement:
    """A row, read; its owner is a module that has all the tensors that it uses."""
    text = row.strip()
    node = ast.parse(text).body[0]
    names = [one for one in ast.walk(node) if isinstance(one, ast.Name)]
    makes = tuple(one.id for one in names if isinstance(one.ctx, ast.Store) and one.id != "_")
    reads = frozenset(one.id for one in names if isinstance(one.ctx, ast.Load))
    uses = tuple(dict.fromkeys(path for path in _paths(node, tree) if path))
    known = None if owner is None else inside(tree, owner)
    for path in uses:
        home = inside(tree, path)
        known = home if known is None or home[: len(known)] == known else common(known, home)
    return Statement(text, known, makes, reads, uses)


def _paths(node: ast.AST, tree: Tree) -> list[Path]:
    """What a statement names of the model, each as far as the names of modules go."""
    if isinstance(node, (ast.Attribute, ast.Subscript)):
        words = _chain(node)
        if words is not None:
            return [_within(tree, words)]
    return [path for child in ast.iter_child_nodes(node) for path in _paths(child, tree)]


def _chain(node: ast.expr) -> list[str] | None:
    """The words behind `self`; None for any other expression."""
    words: list[str] = []
    while not isinstance(node, ast.Name):
        if isinstance(node, ast.Attribute):
            words.append(node.attr)
        elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            words.append(str(node.slice.value))
        else:
            return None
        node = node.value
    return words[::-1] if node.id == "self" else None


def _within(tree: Tree, words: Sequence[str]) -> Path:
    found: list[str] = []
    held: Tree | TensorRef | None = tree
    for word in words:
        held = held.children.get(word) if isinstance(held, Tree) and not held.made else None
        if held is None:
            break
        found.append(word)
    return tuple(found)


def inside(tree: Tree, path: Path) -> Path:
    """The innermost module on a path that can have a forward: no layer of torch, no tensor, no list.

    The tracing exporter counts the calls of a module, as in `attention_1`.
    """
    found: list[str] = []
    last, here = 0, tree
    for word in path:
        called = COUNTED.sub("", word)
        word = next((one for one in (word, called, called.lstrip("_")) if one in here.children), word)
        child = here.children.get(word)
        if not isinstance(child, Tree) or child.made:
            break
        found.append(word)
        here = child
        last = len(found) if not is_list(child) and not is_dict(child) else last
    return tuple(found[:last])


def common(one: Path, other: Path) -> Path:
    """What two paths begin with alike."""
    count = next((at for at, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), None)
    return one[: min(len(one), len(other)) if count is None else count]


def owned(statements: list[Statement]) -> None:
    """Enter the owners that nothing says: what is around the statements before and after."""
    before: list[Path] = []
    for one in statements:
        before.append(one.owner if one.owner is not None else (before[-1] if before else ()))
    after: Path = ()
    for one, path in zip(reversed(statements), reversed(before), strict=True):
        after = one.owner if one.owner is not None else after
        one.owner = common(path, after)


@dataclass
class _Group:
    """Statements of one call of a module, or a single one of the module around."""

    path: Path | None
    statements: list[Statement]
    called: set[Path] = field(default_factory=set)  # layers


class Blocks:
    """Puts statements into modules, from the outermost inwards. `given` are the names that no statement makes."""

    def __init__(self, tree: Tree, statements: list[Statement], outputs: list[str], given: set[str]):
        self.tree, self.given, self.dissolved = tree, given, set[Path]()
        self.made = {name for one in statements for name in one.makes}
        self.readers: dict[str, list[Statement]] = {}
        for one in statements:
            for name in one.reads & self.made:
                self.readers.setdefault(name, []).append(one)
        self.ends = {word for text in outputs for word in WORD.findall(text)}
        self.whole = self.block((), statements)

    def block(self, path: Path, statements: list[Statement]) -> Block:
        """The forward of the module there, of the statements in it."""
        own = {name for one in statements for name in one.makes}
        ids = {id(one) for one in statements}
        gives = [name for one in statements for name in one.makes if self._is_given(name, ids)]
        known = (self.made | self.given) - own
        takes = dict.fromkeys(
            word for one in statements for word in WORD.findall(one.text) if word in one.reads & known
        )
        return Block(path, list(takes), self.steps(path, statements), gives)

    def _is_given(self, name: str, ids: set[int]) -> bool:
        """Whether a name is read outside of the statements with these identities."""
        return name in self.ends or any(id(one) not in ids for one in self.readers.get(name, ()))

    def steps(self, path: Path, statements: list[Statement]) -> list[Step]:
        """Statements, and calls of the modules inside, each after what it reads."""
        while len(self.dissolved) < KNOTS:
            groups = self._groups(path, statements)
            order, knot = _ordered(groups)
            if knot is None:
                found: list[Step] = []
                for group in order:
                    found += (
                        [self._call(group.path, group.statements)]
                        if group.path is not None
                        else group.statements
                    )
                knot = _unequal(found)
            if knot is None:
                return found
            self.dissolved.add(knot)
        return list(statements)

    def _call(self, path: Path, statements: list[Statement]) -> Call:
        block = self.block(path, statements)
        return Call(block, block.takes, tuple(block.gives))

    def _groups(self, path: Path, statements: list[Statement]) -> list[_Group]:
        """The statements by the calls of the modules inside; a layer that is called again begins another call."""
        keys = self._keys(path, statements)
        found: list[_Group] = []
        current: dict[Path, _Group] = {}
        for one, key in zip(statements, keys, strict=True):
            called = {use for use in one.uses if _is_layer(self.tree, use)}
            if key is None:
                found.append(_Group(None, [one]))
            elif key in current and not current[key].called & called:
                current[key].statements.append(one)
                current[key].called |= called
            else:
                current[key] = _Group(key, [one], called)
                found.append(current[key])
        for group in found:
            group.path = group.path if len(group.statements) > 1 else None
        return found

    def _keys(self, path: Path, statements: list[Statement]) -> list[Path | None]:
        """The module inside that each statement is of; what needs nothing of it, and others read, is of the module around."""
        keys = {id(one): self._below(path, one.owner or ()) for one in statements}
        makers = {name: one for one in statements for name in one.makes}
        for one in statements:
            key = keys[id(one)]
            if key is None or any(use[: len(key)] == key for use in one.uses):
                continue
            before = {id(makers[name]) for name in one.reads if name in makers}
            after = [reader for name in one.makes for reader in self.readers.get(name, ())]
            is_shared = any(keys.get(id(reader)) != key for reader in after)
            if is_shared and all(keys[other] != key for other in before):
                keys[id(one)] = None
        return [keys[id(one)] for one in statements]

    def _below(self, path: Path, owner: Path) -> Path | None:
        """The outermost module inside of `path` on the way to an owner."""
        for end in range(len(path) + 1, len(owner) + 1):
            part = owner[:end]
            if inside(self.tree, part) == part and part not in self.dissolved:
                return part
        return None


def _is_layer(tree: Tree, path: Path) -> bool:
    held: Tree | TensorRef = tree
    for word in path:
        held = held.children[word] if isinstance(held, Tree) else held
    return isinstance(held, Tree) and bool(held.made)


def _ordered(groups: list[_Group]) -> tuple[list[_Group], Path | None]:
    """The groups, each after what it reads, else as they come; or the smallest module that cannot be called at one place."""
    makers = {name: at for at, group in enumerate(groups) for one in group.statements for name in one.makes}
    before = [
        {makers[name] for one in group.statements for name in one.reads if name in makers} - {at}
        for at, group in enumerate(groups)
    ]
    after: list[list[int]] = [[] for _ in groups]
    for at, others in enumerate(before):
        for other in others:
            after[other].append(at)
    ready = [at for at, others in enumerate(before) if not others]
    heapq.heapify(ready)
    left, order = [len(others) for others in before], []
    while ready:
        at = heapq.heappop(ready)
        order.append(groups[at])
        for other in after[at]:
            left[other] -= 1
            if not left[other]:
                heapq.heappush(ready, other)
    if len(order) == len(groups):
        return order, None
    knot = _knot({at for at, count in enumerate(left) if count}, after)
    sizes = [(len(groups[at].statements), path) for at in knot if (path := groups[at].path) is not None]
    return [], min(sizes)[1]


def _knot(places: set[int], after: list[list[int]]) -> set[int]:
    """Those of some places that are on a circle, or between two."""
    while True:
        kept = {at for at in places if not places.isdisjoint(after[at])}
        if kept == places:
            return places
        places = kept


def _unequal(steps: list[Step]) -> Path | None:
    """A module that is called more than once, and not with the same statements."""
    seen: dict[Path, str] = {}
    for step in steps:
        if isinstance(step, Call) and seen.setdefault(step.block.path, signature(step.block)) != signature(
            step.block
        ):
            return step.block.path
    return None


def signature(block: Block) -> str:
    """What a block does, whatever its variables are called."""
    rows = [
        step.text if isinstance(step, Statement) else f"{step.makes} {step.given} {signature(step.block)}"
        for step in block.steps
    ]
    names = {*block.takes, *(word for step in block.steps for word in step.makes)}
    numbers: dict[str, str] = {}

    def numbered(found: re.Match[str]) -> str:
        word = found[0]
        return numbers.setdefault(word, f"${len(numbers)}") if word in names else word

    return _VARIABLE.sub(numbered, "\n".join([" ".join(block.takes), *rows, " ".join(block.gives)]))
