"""The flows of a whole model, specialised and linked: every call knows which context its callee needs."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field
from typing import TYPE_CHECKING

from mapper._dataclass import dataclass
from mapper.architecture import Architecture, Block, Leaf
from mapper.errors import FlowError, listed
from mapper.flows.cached import MADE, SLOTS, keep_caches
from mapper.flows.flow import Flow, known_names
from mapper.flows.hidden import STATES, collect_states, give_states
from mapper.flows.language import MODULES, SPECIAL, dotted, every, is_optional, targets
from mapper.flows.references import Item, Reference, chain, element_indices, has_role, refer
from mapper.flows.retired import not_callable
from mapper.flows.side_by_side import check_lengths
from mapper.flows.specialise import specialise
from mapper.flows.walk import Walk
from mapper.operations.registry import operation_names, operation_signature

if TYPE_CHECKING:
    from mapper.rulebook.flows import FlowRule

Loops = dict[str, tuple[Item, ...]]


@dataclass(eq=False)
class Piece:
    """One block's part of the program."""

    block: Block
    flow: Flow
    statements: list[ast.stmt]
    context: list[str] = field(default_factory=list)  # names that callers pass down, in order of first use
    used: dict[int, Item] = field(
        default_factory=dict
    )  # leaves and blocks the statements refer to, by identity, in order

    @property
    def takes(self) -> tuple[str, ...]:
        return self.flow.rule.takes


@dataclass(eq=False)
class Program:
    """Pieces by block identity, the root's last."""

    root: Piece
    pieces: dict[int, Piece]
    inputs: list[str]  # public inputs, in order of first use

    def piece(self, block: Block) -> Piece:
        return self.pieces[id(block)]

    def arrange(self, inputs: Iterable[str]) -> None:
        """Every block takes the model's inputs in this order, as the model itself does."""
        places = {name: at for at, name in enumerate(inputs)}
        for piece in self.pieces.values():
            ordered = iter(sorted((name for name in piece.context if name in places), key=places.__getitem__))
            piece.context = [next(ordered) if name in places else name for name in piece.context]


def link(architecture: Architecture, flows: Callable[[str], Flow], options: Mapping[str, bool]) -> Program:
    """The program of an architecture; `options` answer the guards `option.x`.

    Raises FlowError where a flow breaks one of the three checks.
    """
    pieces: dict[int, Piece] = {}
    root = _link(architecture.root, flows, pieces, options)
    return Program(root, pieces, list(root.context))


def program_of(
    architecture: Architecture, flows: Callable[[str], Flow], options: Mapping[str, bool]
) -> Program:
    """The program that reading linked, where it is of these very blocks and no option is chosen; else it is linked anew.

    Whoever changes statements, as the options do, has a program of its own. Raises FlowError.
    """
    program: Program | None = architecture.program
    if program is None or any(options.values()) or not _is_of(program, architecture.root):
        program = link(architecture, flows, options)
    program.arrange(architecture.inputs)
    return program


def _is_of(program: Program, root: Block) -> bool:
    """Whether a program is of these blocks, not of those that they were copied from."""
    return program.root.block is root and program.pieces.get(id(root)) is program.root


def _link(
    block: Block, flows: Callable[[str], Flow], pieces: dict[int, Piece], options: Mapping[str, bool]
) -> Piece:
    _link_inside(block, flows, pieces, options)
    if block.flow is None:
        raise FlowError(f"no flow fits {block.role} at '{block.home}'")
    flow = flows(block.flow)
    passed = frozenset(name for inner in _below(block, pieces) for name in pieces[id(inner)].context)
    lost: set[str] = set()
    statements = specialise(
        flow, lambda role: has_role(block, role), lambda name: block.facts[name].value, passed, options, lost
    )
    if flow.rule.steps and not any(options.values()):
        _check_lost(block, flow.rule, lost)
    if options.get("cache") and flow.rule.topic == "tower" and passed >= MADE:
        statements = _with_caches(block, flow, statements, pieces)
    if options.get(STATES):
        statements = _with_states(block, flow, statements, pieces)
    piece = pieces[id(block)] = Piece(block, flow, statements)
    _Linker(piece, pieces).run()
    return piece


def _check_lost(block: Block, rule: FlowRule, lost: set[str]) -> None:
    """FlowError where a step computes what must be read and nothing inside the block does: the network would be one without it."""
    names = sorted(lost.intersection(rule.must_be_read))
    if names:
        raise FlowError(
            f"{block.role} at '{block.home}' computes {listed(names)}, which nothing inside it reads"
        )


def _link_inside(
    block: Block, flows: Callable[[str], Flow], pieces: dict[int, Piece], options: Mapping[str, bool]
) -> None:
    """Pieces of the blocks of a block; one without a flow may hold some that a flow further out calls."""
    for value in block.roles.values():
        items = value if isinstance(value, list) else [value]
        blocks = [item for item in items if isinstance(item, Block)]
        linked = [_link(item, flows, pieces, options) for item in blocks if item.flow is not None]
        for item in blocks:
            if item.flow is None:
                _link_inside(item, flows, pieces, options)
        if isinstance(value, list):
            _share_context(linked)


def _below(block: Block, pieces: dict[int, Piece]) -> Iterator[Block]:
    """The blocks that read what a flow binds: those inside, but for what stands inside of one that binds its own."""
    for value in block.roles.values():
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, Block):
                yield from [item] if id(item) in pieces else _below(item, pieces)


def _with_caches(
    block: Block, flow: Flow, statements: list[ast.stmt], pieces: dict[int, Piece]
) -> list[ast.stmt]:
    """A tower keeps a cache for each layer, where its mask is that of what is kept."""
    parts = [block.roles[topic] for topic in flow.rule.calls if topic in block.roles]
    if not any(SLOTS in pieces[id(part)].context for part in parts if id(part) in pieces):
        return statements
    below = [pieces[id(inner)].statements for inner in block.blocks() if id(inner) in pieces]
    return keep_caches(statements, below) or statements


def _with_states(
    block: Block, flow: Flow, statements: list[ast.stmt], pieces: dict[int, Piece]
) -> list[ast.stmt]:
    """Towers collect their hidden states, the root gives them back."""
    if flow.rule.topic == "tower":
        return collect_states(statements) or statements
    if flow.rule.topic != "root":
        return statements
    inner = {
        role: value for role, value in block.roles.items() if isinstance(value, Block) and id(value) in pieces
    }
    towers = {role: value for role, value in inner.items() if _gives_states(pieces[id(value)])}
    return give_states(statements, towers)


def _gives_states(piece: Piece) -> bool:
    last = piece.statements[-1]
    return (
        isinstance(last, ast.Return)
        and isinstance(last.value, ast.Tuple)
        and dotted(last.value.elts[-1]) == STATES
    )


def _share_context(elements: list[Piece]) -> None:
    """A loop calls every element alike, so each takes what any of them needs."""
    names = list(dict.fromkeys(name for element in elements for name in element.context))
    for element in elements:
        element.context = names


class _Linker(Walk):
    """Finds the free names of a piece (its own and its callees') and the roles in use."""

    def __init__(self, piece: Piece, pieces: dict[int, Piece]):
        self.piece, self.pieces = piece, pieces
        self.bound = set(piece.takes) | SPECIAL | MODULES
        self.loops: Loops = {}

    def run(self) -> None:
        self.block(self.piece.statements)

    def loop(self, node: ast.For) -> None:
        self.read(node.iter)
        check_lengths(self.piece.block, node)
        self.loops.update(loop_items(self.piece.block, node, self.loops))
        self.bind(node.target)

    def bind(self, target: ast.expr) -> None:
        self.bound.update(targets(target))

    def read(self, node: ast.expr) -> None:
        parts = chain(node)
        if parts is not None:
            self.name(parts, node)
            return
        if isinstance(node, ast.Call):
            self.call(node)
            return
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                self.read(child)
            elif isinstance(child, ast.keyword):
                self.read(child.value)

    def call(self, node: ast.Call) -> None:
        keywords = {keyword.arg for keyword in node.keywords}
        for argument in (*node.args, *(keyword.value for keyword in node.keywords)):
            self.read(argument)
        parts = chain(node.func)
        reference = refer(self.piece.block, parts, self.loops) if parts else None
        if reference is None:
            self.read(node.func) if not isinstance(node.func, ast.Name) else self.operation(node)
            return
        self.use(reference)
        for item in reference.items:
            if isinstance(item, Block) and not reference.rest:
                self.callee(item, len(node.args), keywords)

    def callee(self, block: Block, given: int, keywords: set[str | None]) -> None:
        """What a block reads that its call does not hand over is looked for under the same name here and further out."""
        if id(block) not in self.pieces:
            raise FlowError(f"no flow fits {block.role} at '{block.home}'")
        piece = self.pieces[id(block)]
        for name in (*piece.takes[given:], *piece.context):
            if name not in keywords:
                self.need(name)

    def operation(self, node: ast.Call) -> None:
        name = dotted(node.func) or ""
        if name not in known_names():
            rule = self.piece.flow.rule
            raise FlowError(f"{rule.file}:{rule.line + node.lineno - 1}: {not_callable(name, rule.name)}")

    def name(self, parts: list[str | int], node: ast.expr) -> None:
        first = str(parts[0])
        if first == "fact":
            return
        reference = refer(self.piece.block, parts, self.loops)
        if reference is not None:
            self.use(reference)
        elif first in self.piece.flow.roles and first not in self.bound:
            rule = self.piece.flow.rule
            raise FlowError(
                f"{rule.file}:{rule.line}: {rule.name} uses role {first!r}, which '{self.piece.block.home}' lacks, without has({first})"
            )
        else:
            self.need(first)

    def need(self, name: str) -> None:
        if name not in self.bound and name not in self.piece.context:
            self.piece.context.append(name)

    def use(self, reference: Reference) -> None:
        for item in reference.items:
            self.piece.used.setdefault(id(item), item)
        for item in reference.base_items:
            self.piece.used.setdefault(id(item), item)


def loop_items(block: Block, node: ast.For, loops: Loops) -> Loops:
    """Which loop variables stand for elements of a list role."""
    return dict(_pairs(block, node.target, node.iter, loops))


def _pairs(
    block: Block, target: ast.expr, source: ast.expr, loops: Loops
) -> Iterable[tuple[str, tuple[Item, ...]]]:
    call = dotted(source.func) if isinstance(source, ast.Call) else None
    if call == "zip" and isinstance(target, ast.Tuple) and isinstance(source, ast.Call):
        for part, item in zip(target.elts, source.args, strict=False):
            yield from _pairs(block, part, item, loops)
    elif call == "enumerate" and isinstance(target, ast.Tuple) and isinstance(source, ast.Call):
        yield from _pairs(block, target.elts[1], source.args[0], loops)
    elif isinstance(source, ast.Subscript) and isinstance(source.slice, ast.Slice):
        for name, items in _pairs(block, target, source.value, loops):
            yield name, _part(items, source.slice)
    elif isinstance(target, ast.Name):
        parts = chain(source)
        reference = refer(block, parts, loops) if parts else None
        if reference is not None and reference.is_list and not reference.rest:
            yield target.id, reference.items


def _part(items: tuple[Item, ...], cut: ast.Slice) -> tuple[Item, ...]:
    """The items of a part of a list; all of them where each has the same flow, or where an end is no number."""
    if len({item.flow if isinstance(item, Block) else None for item in items}) == 1:
        return items
    try:
        ends = (cut.lower, cut.upper, cut.step)
        first, last, step = (None if end is None else ast.literal_eval(end) for end in ends)
    except ValueError:
        return items
    taken = sorted(index for item in items for index in element_indices(item))[first:last:step]
    return tuple(item for item in items if not set(taken).isdisjoint(element_indices(item)))


def is_dispensable(program: Program, name: str) -> bool:
    """Whether an input may be left out: all that reads it are operations that take None in its place."""
    statements = [node for node in program.root.statements if not _is_spared(node, name)]
    spared = len(statements) < len(program.root.statements)
    nodes = [node for statement in statements for node in every(statement)]
    if any(name in piece.context for piece in _called(program, nodes)):
        return False
    reads = sum(isinstance(node, ast.Name) and node.id == name for node in nodes)
    allowed = sum(_takes_none(node, name) for node in nodes if isinstance(node, ast.Call))
    allowed += sum(_reads(node, name) for node in nodes if isinstance(node, ast.IfExp) and _asks(node, name))
    return reads == allowed and (spared or reads > 0)


def _is_spared(node: ast.stmt, name: str) -> bool:
    """Whether a statement runs only where an input is given."""
    value = node.value if isinstance(node, ast.Assign) else None
    return value is not None and is_optional(value) and dotted(value.args[0]) == name  # type: ignore[attr-defined]


def _asks(node: ast.IfExp, name: str) -> bool:
    """Whether `a if name is None else b` says what is done without it."""
    return isinstance(node.test, ast.Compare) and dotted(node.test.left) == name


def _reads(node: ast.expr, name: str) -> int:
    return sum(isinstance(child, ast.Name) and child.id == name for child in every(node))


def _called(program: Program, nodes: list[ast.AST]) -> Iterable[Piece]:
    """The pieces that the root calls in some of its statements."""
    calls = (chain(node.func) for node in nodes if isinstance(node, ast.Call))
    references = (refer(program.root.block, parts, {}) for parts in calls if parts)
    return [
        program.pieces[id(item)]
        for reference in references
        if reference
        for item in reference.items
        if id(item) in program.pieces
    ]


def _takes_none(node: ast.Call, name: str) -> int:
    """In how many places a call of an operation has a name where None would do."""
    operation = dotted(node.func) or ""
    if operation not in operation_names():
        return 0
    annotations = operation_signature(operation).annotations
    given = zip(node.args, annotations, strict=False)
    return sum(dotted(value) == name and annotation.endswith("None") for value, annotation in given)


def unused_leaves(program: Program) -> list[Leaf]:
    """Leaves with a role that no statement which runs refers to."""
    used = read_items(program)
    return [leaf for leaf in program.root.block.leaves() if id(leaf) not in used]


def read_items(program: Program) -> set[int]:
    """The identities of the leaves and blocks that statements which run refer to."""
    return {identity for piece in _reached(program) for identity in piece.used}


def _reached(program: Program) -> list[Piece]:
    """The pieces that run: a block whose flow nobody calls computes nothing."""
    found = {id(program.root.block): program.root}
    ahead = [program.root]
    while ahead:
        keys = [key for key in ahead.pop().used if key in program.pieces and key not in found]
        found |= {key: program.pieces[key] for key in keys}
        ahead += [program.pieces[key] for key in keys]
    return list(found.values())
