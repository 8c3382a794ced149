"""Where the data of a block goes: its flow, as it runs, followed from statement to statement.

A value is told by what made it: leaves and blocks that were called, operations that join several values, and the
block's own inputs. What only steers (masks, angles) is left out; nothing is drawn that no statement says.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from mapper.architecture import Block, Leaf
from mapper.flows.language import MODULES, SPECIAL, dotted, targets
from mapper.flows.program import Piece, Program, loop_items
from mapper.flows.references import Item, Reference, chain, refer
from mapper.flows.walk import Walk
from mapper.picture.measures import MEASURES, measured_alone

DATA, SIDE, TIE = "data", "side", "tie"
WAYS = (DATA, SIDE, TIE)  # of an edge: what is worked on, what is read beside it, a weight of another module
_MASK = "mask"  # the end of names that flows give to what only steers, unless weights made it: a prompt that is a mask
_ANGLES = ("cos", "sin")  # ends of names of what is no data, whatever made it
OUTPUT = "output"  # what a flow calls with all that a model returns, where no role has the name
_LIKE = ("type_as", "to", "expand_as", "view_as", "size")  # methods that read nothing of their arguments
_SHOWN = {
    "apply_rotary": "rotary",
    "scaled_dot_product_attention": "softmax(QKᵀ)·V",
    "attend": "softmax(QKᵀ)·V",
}  # operations that are drawn though they join nothing, or are told by a formula
_SIGNS = {ast.Add: "+", ast.Sub: "−", ast.Mult: "×", ast.MatMult: "@", ast.Div: "÷"}


@dataclass(eq=False)
class Operation:
    """A place where values meet."""

    label: str  # "+", "softmax(QKᵀ)·V", "concatenate"


@dataclass(frozen=True)
class Port:
    """An input or an output of a block, by name."""

    name: str
    is_input: bool


@dataclass(frozen=True, eq=False)
class Weight:
    """The weight of a module that is called elsewhere too: a tie."""

    leaf: Leaf


End = Item | Operation | Port | Weight
Value = tuple[End, ...]
Given = dict[tuple[int, str], list[tuple[int, End]]]  # a block and its input -> which caller hands over what


@dataclass(eq=False)
class Level:
    """What happens inside one block: `edges` in the order of the statements, each end once for each pair."""

    block: Block
    edges: dict[tuple[int, int], tuple[End, End, str]] = field(default_factory=dict)

    def join(self, start: End, end: End, way: str) -> None:
        known = self.edges.get((_key(start), _key(end)))
        if known is None or known[2] != DATA:
            self.edges[_key(start), _key(end)] = (start, end, way)

    def ends(self) -> list[End]:
        """All that an edge touches, in order of first use."""
        found = {_key(end): end for start, stop, _ in self.edges.values() for end in (start, stop)}
        return list(found.values())

    def inputs(self) -> list[str]:
        """The names that are read from further out."""
        starts = [start for start, _, _ in self.edges.values()]
        return list(dict.fromkeys(end.name for end in starts if isinstance(end, Port)))


def _key(end: End) -> int:
    return hash(end) if isinstance(end, Port) else id(end)


def trace(program: Program, steering: Collection[str] = ()) -> dict[int, Level]:
    """The level of every block with a flow, by identity; `steering` are inputs that are left out as masks are."""
    levels: dict[int, Level] = {}
    called = _called(program)
    given: Given = {}
    for identity, piece in program.pieces.items():  # what is called stands before what calls it
        tracer = _Tracer(piece, program.pieces, levels, called, frozenset(steering))
        tracer.block(piece.statements)
        levels[identity] = _summed(_pruned(tracer.level))
        for at, values in tracer.given.items():
            given.setdefault(at, []).extend(values)
    _own_leaves(levels, given)
    made = {(id(program.root.block), name) for name in program.inputs}
    for identity, level in reversed(levels.items()):  # what calls before what is called
        made |= {
            (identity, name) for name in level.inputs() if _is_made(given.get((identity, name), []), made)
        }
        _leave_out(level, [name for name in level.inputs() if (identity, name) not in made])
    return levels


def _own_leaves(levels: Mapping[int, Level], given: Given) -> None:
    """Join a leaf that a caller reads to what the leaf's own block is handed of it: a bias of the first layer for all."""
    for identity, level in levels.items():
        own = {id(value): value for value in level.block.roles.values() if isinstance(value, Leaf)}
        for name in level.inputs():
            for leaf in _leaves_of(given, identity, name, set()) & own.keys():
                level.join(own[leaf], Port(name, True), SIDE)


def _leaves_of(given: Given, identity: int, name: str, known: set[tuple[int, str]]) -> set[int]:
    """The leaves that an input of a block is made of, through the callers that hand it on."""
    if (identity, name) in known:
        return set()
    known.add((identity, name))
    found = {id(end) for _, end in given.get((identity, name), ()) if isinstance(end, Leaf)}
    handed = [(caller, end.name) for caller, end in given.get((identity, name), ()) if isinstance(end, Port)]
    return found.union(*(_leaves_of(given, *pair, known) for pair in handed))


def _is_made(values: Iterable[tuple[int, End]], made: Collection[tuple[int, str]]) -> bool:
    """Whether data is handed over: what a block or an operation made, or an input of the caller that is data."""
    return any(not isinstance(end, Port) or (caller, end.name) in made for caller, end in values)


def _leave_out(level: Level, names: Collection[str]) -> None:
    """Without inputs that are made of no data: numbers, such as a shift."""
    for at, (start, _, _) in list(level.edges.items()):
        if isinstance(start, Port) and start.name in names:
            del level.edges[at]


def _called(program: Program) -> set[int]:
    """The leaves that some flow calls as modules."""
    return {
        id(item)
        for piece in program.pieces.values()
        for node in _calls(piece.statements)
        for item in _items(piece, node)
        if isinstance(item, Leaf)
    }


def _calls(statements: Iterable[ast.stmt]) -> Iterable[ast.Call]:
    return (node for top in statements for node in ast.walk(top) if isinstance(node, ast.Call))


def _items(piece: Piece, node: ast.Call) -> tuple[Item, ...]:
    parts = chain(node.func)
    reference = refer(piece.block, parts, {}) if parts else None
    return reference.items if reference and not reference.rest else ()


def _pruned(level: Level) -> Level:
    """Without what no weight takes part in and nothing reads: masks, positions, tables of angles."""
    while True:
        read = {key for key, _ in level.edges}
        idle = [at for at, (_, end, _) in level.edges.items() if at[1] not in read and not _is_kept(end)]
        if not idle:
            return level
        for at in idle:
            del level.edges[at]


def _summed(level: Level) -> Level:
    """A sum that goes into another sum alone is part of it: token + position + type."""
    while True:
        after: dict[int, list[End]] = {}
        for (start, _), (_, end, _) in level.edges.items():
            after.setdefault(start, []).append(end)
        inner = {at: ends[0] for at, ends in after.items() if len(ends) == 1 and _is_sum(ends[0])}
        found = next(
            (start for start, _, _ in level.edges.values() if _is_sum(start) and _key(start) in inner), None
        )
        if found is None:
            return level
        _redirect(level, found, inner[_key(found)])


def _is_sum(end: End) -> bool:
    return isinstance(end, Operation) and end.label == _SIGNS[ast.Add]


def _redirect(level: Level, old: End, new: End) -> None:
    """What led to one end leads to another."""
    edges, level.edges = level.edges, {}
    for start, end, way in edges.values():
        if start is not old:
            level.join(start, new if end is old else end, way)


def _is_kept(end: End) -> bool:
    return isinstance(end, Port) or _has_weights(end)


def _has_weights(end: End) -> bool:
    return isinstance(end, Leaf) or (isinstance(end, Block) and next(end.leaves(), None) is not None)


def _turns(items: Mapping[str, tuple[Item, ...]]) -> Iterable[dict[str, Item]]:
    """What each variable of a loop stands for, turn by turn; where elements have no numbers, every different one once."""
    if not items:
        return [{}]
    numbered = {name: _by_number(found) for name, found in items.items()}
    if not all(numbered.values()):
        rounds = max(len(found) for found in items.values())
        return [
            {name: found[min(at, len(found) - 1)] for name, found in items.items()} for at in range(rounds)
        ]
    numbers = sorted(set.intersection(*(set(found) for found in numbered.values())))
    turns = [{name: found[at] for name, found in numbered.items()} for at in numbers]
    same = [[*map(id, turn.values())] for turn in turns]
    return [turn for at, turn in enumerate(turns) if at == 0 or same[at] != same[at - 1]]


def _by_number(found: tuple[Item, ...]) -> dict[int, Item]:
    """The elements of a list by their place in it; none where that is not known of all."""
    known: dict[int, Item] = {
        at: item for item in found if isinstance(item, Block) for at in item.indices or ()
    }
    return known if all(isinstance(item, Block) and item.indices for item in found) else {}


def _union(values: Iterable[Value]) -> Value:
    return tuple({_key(end): end for value in values for end in value}.values())


class _Tracer(Walk):
    """Follows the statements of one piece."""

    def __init__(
        self,
        piece: Piece,
        pieces: Mapping[int, Piece],
        levels: Mapping[int, Level],
        called: set[int],
        steering: frozenset[str],
    ):
        self.piece, self.pieces, self.levels = piece, pieces, levels
        self.called, self.steering = called, steering
        self.level = Level(piece.block)
        self.given: Given = {}
        self.known: dict[str, Value] = {}
        self.loops: dict[str, tuple[Item, ...]] = {}

    # statements

    def assign(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            for part, given in zip(target.elts, [self.value(item) for item in value.elts], strict=True):
                self.known.update(dict.fromkeys(targets(part), given))
        else:
            self.known.update(dict.fromkeys(targets(target), self.value(value)))

    def statement(self, node: ast.stmt) -> None:
        if isinstance(node, ast.For):
            self.loop_over(node)
        else:
            super().statement(node)

    def loop_over(self, node: ast.For) -> None:
        """The body for each element in the order of the list, equal ones in a row once; what varies beside them is one value."""
        items = loop_items(self.piece.block, node, self.loops)
        self.known.update(dict.fromkeys(targets(node.target), self.value(node.iter) if not items else ()))
        for turn in _turns(items):
            self.loops.update({name: (item,) for name, item in turn.items()})
            self.block(node.body)

    def read(self, node: ast.expr) -> None:
        """A call whose value nobody takes: `features.append(x)`."""
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            name = dotted(node.func.value)
            given = _union(self.value(argument) for argument in node.args)
            if name is not None:
                self.known[name] = _union((self.known.get(name, ()), given))

    def leave(self, value: ast.expr) -> None:
        if (
            isinstance(value, ast.Call)
            and dotted(value.func) == OUTPUT
            and OUTPUT not in self.piece.block.roles
        ):
            for keyword in value.keywords:
                self.out(str(keyword.arg), keyword.value)
        else:
            self.out("", value)

    def out(self, name: str, value: ast.expr) -> None:
        parts = value.elts if isinstance(value, ast.Tuple) else [value]
        self.give(Port(name, False), [self.value(part) for part in parts])

    # expressions

    def value(self, node: ast.expr) -> Value:
        """What made the value of an expression."""
        parts = chain(node)
        if parts is not None:
            return self.named(parts)
        if isinstance(node, ast.Call):
            return self.call(node)
        if isinstance(node, ast.BinOp):
            return self.arithmetic(node)
        if isinstance(node, ast.IfExp):
            return _union([self.value(node.body), self.value(node.orelse)])
        if isinstance(node, ast.Attribute):
            return () if node.attr in MEASURES else self.value(node.value)
        if isinstance(node, ast.Subscript):
            return self.value(node.value)
        inner = [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)]
        return _union([self.value(child) for child in inner])

    def named(self, parts: list[str | int]) -> Value:
        reference = refer(self.piece.block, parts, self.loops)
        if reference is not None:
            return () if set(reference.rest) & set(MEASURES) else self.meant(reference)
        if parts[0] in SPECIAL | MODULES or set(parts[1:]) & set(MEASURES):
            return ()
        return self.name(str(parts[0]))

    def meant(self, reference: Reference) -> Value:
        """The items themselves, or the weight of a module that is called elsewhere."""
        return tuple(
            Weight(item) if reference.rest and isinstance(item, Leaf) and id(item) in self.called else item
            for item in reference.items
        )

    def name(self, name: str) -> Value:
        known, last = self.known.get(name), name.rpartition("_")[2]
        if last in _ANGLES or name in self.steering:
            return ()
        if last == _MASK:
            return tuple(end for end in known or () if _has_weights(end))
        return (Port(name, True),) if known is None else known

    def arithmetic(self, node: ast.BinOp) -> Value:
        """`a + b`: one place for a whole sum."""
        terms: list[ast.expr] = [node]
        while isinstance(terms[0], ast.BinOp) and type(terms[0].op) is type(node.op):
            terms[:1] = [terms[0].left, terms[0].right]
        return self.joined([self.value(term) for term in terms], _SIGNS.get(type(node.op), "?"))

    def joined(self, values: list[Value], label: str, *, shown: bool = False) -> Value:
        """An operation where what it is given comes from different places."""
        given = [value for value in values if value]
        if not given or (not shown and all(value == given[0] for value in given)):
            return given[0] if given else ()
        made = Operation(label)
        self.give(made, given)
        return (made,)

    def give(self, end: End, values: Iterable[Value], way: str = DATA) -> None:
        for start in _union(values):
            if isinstance(start, Weight):
                self.tie(start.leaf, end)
            elif start is not end:
                self.level.join(start, end, way)

    def tie(self, leaf: Leaf, end: End) -> None:
        """A weight of another module; the operation says whose, as the line may come out of a block around it."""
        self.level.join(leaf, end, TIE)
        if isinstance(end, Operation):
            end.label = f"{end.label}, weight of {(leaf.role or str(leaf.place)).replace('_', ' ')}"

    # calls

    def call(self, node: ast.Call) -> Value:
        parts = chain(node.func)
        reference = refer(self.piece.block, parts, self.loops) if parts else None
        if reference is not None and not reference.rest:
            return self.module(reference, node)
        keywords = [keyword.value for keyword in node.keywords]
        name = dotted(node.func) or ""
        operation = name.rpartition(".")[2]
        if isinstance(node.func, ast.Attribute) and not name.startswith(("F.", "torch.")):
            return self.method(node.func, [*node.args, *keywords])
        return self.operation(operation, [*node.args, *keywords], self._measured(operation, node))

    def _measured(self, operation: str, node: ast.Call) -> list[ast.expr]:
        """The arguments of which an operation reads the shape alone."""
        measured = measured_alone(operation)
        given = [*enumerate(node.args), *((keyword.arg, keyword.value) for keyword in node.keywords)]
        return [value for place, value in given if place in measured]

    def method(self, function: ast.Attribute, arguments: list[ast.expr]) -> Value:
        values = [self.value(function.value)]
        if function.attr not in _LIKE:
            values += [self.value(argument) for argument in arguments]
        return self.joined(values, function.attr.replace("_", " "))

    def operation(self, name: str, arguments: list[ast.expr], measured: list[ast.expr]) -> Value:
        if name == "optional":  # the second where the first is there: of which nothing else is read
            arguments = arguments[1:]
        handed = [argument for argument in arguments if self.blocks(argument)]
        rest = [argument for argument in arguments if argument not in handed]
        values = [self.value(argument) for argument in rest if argument not in measured]
        if not any(values):  # no data beside: what an operation makes of a shape is told by whose shape it is
            values = [self.value(argument) for argument in rest if argument in measured]
        if name in ("given", "optional"):  # a value, or what stands for it
            return _union(values)
        if handed:  # blocks that the operation calls on the rest: experts
            blocks = _union([self.blocks(argument) for argument in handed])
            for block in blocks:
                self.handed_over(block, _union(values))
            return blocks
        if name == "activation":
            fact = self.piece.block.facts.get("activation")
            return self.joined(values, str(fact.value) if fact else name, shown=True)
        return self.joined(values, _SHOWN.get(name, name.replace("_", " ")), shown=name in _SHOWN)

    def handed_over(self, block: End, value: Value) -> None:
        """What a block is given by the operation that calls it: it may be any of what its flow takes."""
        level = self.levels.get(id(block))
        for name in level.inputs() if level is not None else ():
            self.told_of(block, name, value)
        self.give(block, [value])

    def told_of(self, block: End, name: str, value: Value) -> None:
        """Remember what an input of a block is made of."""
        self.given.setdefault((id(block), name), []).extend((id(self.piece.block), end) for end in value)

    def blocks(self, node: ast.expr) -> Value:
        """The blocks that an argument names as they are."""
        parts = chain(node)
        reference = refer(self.piece.block, parts, self.loops) if parts else None
        if reference is None or reference.rest:
            return ()
        return tuple(item for item in reference.items if isinstance(item, Block))

    def module(self, reference: Reference, node: ast.Call) -> Value:
        given = [self.value(argument) for argument in node.args]
        keywords = {str(keyword.arg): self.value(keyword.value) for keyword in node.keywords}
        for item in reference.items:
            if isinstance(item, Leaf):
                self.give(item, [*given, *keywords.values()])
            else:
                self.block_called(item, given, keywords)
        return tuple(reference.items)

    def block_called(self, block: Block, given: list[Value], keywords: dict[str, Value]) -> None:
        """What the flow of a block reads and draws: arguments, and the names that it finds further out."""
        level = self.levels.get(id(block))
        if level is None:
            self.give(block, [*given, *keywords.values()])
            return
        takes = self.pieces[id(block)].takes
        handed = dict(zip(takes, given, strict=False)) | keywords
        beside = SIDE if any(given) else DATA
        for name in dict.fromkeys([*handed, *level.inputs()]):
            value = handed[name] if name in handed else self.name(name)
            if value and name in level.inputs():
                self.told_of(block, name, value)
            if value and (name in takes[: len(given)] or name in level.inputs()):
                self.give(block, [value], DATA if name in takes[: len(given)] else beside)
