"""Which extents of a model's leaves are one width: what one gives and another reads, followed through the flows.

A flow declares most extents by a size of its block. Of the others this tells which declared one they have to equal for the
model to run: only such a size makes a source of which a field can be edited alone.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import groupby
from typing import Any

from mapper.architecture import Leaf
from mapper.flows.language import dotted, is_given, is_optional, targets
from mapper.flows.program import Loops, Piece, Program, loop_items
from mapper.flows.references import Item, chain, element_indices, refer
from mapper.flows.walk import Walk
from mapper.limits import FLOW_CALLS
from mapper.naming.members import matrix_of
from mapper.operations.registry import operation_names, operation_signature, operation_source

RECURRENT = ("LSTM", "GRU", "RNN")
_AS_READ = ("PReLU",)
_MOST_ROUNDS = 12  # of a loop, of which each is followed; of more the first two of what comes again and again
_POOLS = ("max", "avg", "adaptive_max", "adaptive_avg")
_LEAST = 2  # a width of 1 is none
_SAME_AS_READ = frozenset(  # of torch, what leaves the channels as they are
    [
        *("gelu", "relu", "prelu", "silu", "softmax", "sigmoid", "tanh", "softplus"),
        *("normalize", "leaky_relu"),
        *("elu", "selu", "mish", "hardswish", "hardsigmoid", "relu6", "logsigmoid", "layer_norm", "rms_norm"),
        *("pad", "interpolate", "zeros_like", "ones_like", "exp", "sqrt", "clamp"),
        *(f"{kind}_pool{axes}d" for kind in _POOLS for axes in (1, 2, 3)),
    ]
)
_METHODS_THAT_KEEP = frozenset(
    [
        *("transpose", "permute", "movedim", "flatten", "unsqueeze", "squeeze", "expand", "contiguous"),
        *("mean", "sum", "amax", "max", "roll", "flip", "to", "float", "double", "bfloat16", "type_as"),
        *("exp", "log", "tanh", "sigmoid", "softmax", "masked_fill", "clamp", "sqrt", "neg", "abs", "relu"),
    ]
)
_TRANSPOSED = ("T", "mT")
_SUMS = (ast.Add, ast.Sub, ast.Mult, ast.Div)
_SHAPE = re.compile(r"(\w+) \(([^)]*)\)")
_RESULT = re.compile(r"-> \(([^)]*)\)")
_SHAPES = re.compile(r"\(([^)]*)\)")
_ROWS = ("W", "D")  # what they call the width of a row
_CHANNELS = ("C", "W")  # how operations call them in their first line


@dataclass(eq=False)
class Width:
    """A number of channels; those that are joined are one."""

    value: int  # 0: nothing is known of it yet
    at: list[tuple[Leaf, int]] = field(default_factory=list)  # extents of leaves that are it
    into: Width | None = None
    parts: tuple[Width, ...] = ()  # side by side they are this, unless they are rows of as many channels
    is_read: bool = False  # as one of several that are put together, or to be cut
    whole: tuple[Width, int] | None = None  # of which this is one of so many equal parts, unless of its rows

    def root(self) -> Width:
        return self if self.into is None else self.into.root()

    def may_be(self, other: Width) -> bool:
        """Whether both are as many; of what comes from outside nothing is known until it is read."""
        return self.value == other.value or 0 in (self.value, other.value)

    def readings(self) -> list[Width]:
        """Itself, and what it is instead if it was put together, or cut, along another axis."""
        same = {id(part.root()): part.root() for part in self.parts}
        other = [*same.values()] if len(same) == 1 else []
        return [self, *other, *([self.whole[0].root()] if self.whole else [])]


Known = Any  # a Width, a list of what is known, or None


class Widths:
    """The widths of a program, each with all extents that are it."""

    def __init__(self, program: Program):
        self.program = program
        self.of: dict[tuple[int, int], Width] = {}
        self.seen: dict[tuple[Any, ...], Known] = {}
        self.visits = 0
        self.visit(program.root, {})

    def all(self) -> list[Width]:
        """Each width of an extent once, in the order of the data."""
        return [*{id(width.root()): width.root() for width in self.of.values()}.values()]

    def extent(self, leaf: Leaf, axis: int) -> Width | None:
        """The width of an extent of a leaf; None of what has no such extent, or one of 1."""
        shape = shape_of(leaf)
        if not 0 <= axis < len(shape) or shape[axis] < _LEAST:
            return None
        key = (id(leaf), axis)
        if key not in self.of:
            self.of[key] = Width(shape[axis], [(leaf, axis)])
        return self.of[key].root()

    def join(self, one: Known, other: Known) -> Known:
        """What both are if they are as many; what is known of one where nothing is of the other."""
        if not isinstance(one, Width) or not isinstance(other, Width):
            return one if other is None else other if one is None else None
        pairs = ((a, b) for a in one.root().readings() for b in other.root().readings() if a.may_be(b))
        one, other = next(pairs, (None, None))
        if one is not None and other is not None and one is not other:
            one.at += other.at
            one.value, one.is_read = max(one.value, other.value), one.is_read or other.is_read
            one.parts, one.whole = one.parts or other.parts, one.whole or other.whole
            other.into = one
        return one

    def through(self, leaf: Leaf, read: Known) -> Known:
        """What a leaf gives of what it reads."""
        reads, gives = _ends(leaf)
        inner = None if reads is None else self.extent(leaf, reads)
        given = None if gives is None else self.extent(leaf, gives)
        if isinstance(read, Width) and _is_depthwise(leaf):
            self.join(read, given)
        elif isinstance(read, Width) and inner is not None:
            if self.join(read, inner) is None:
                return None  # one of several, of which the flow counts which it is
            given = None if gives is None else self.extent(leaf, gives)
        if leaf.kind in RECURRENT:
            return [given, None]  # and its last states
        return given.root() if given else read if leaf.kind in _AS_READ else None

    def visit(self, piece: Piece, known: Mapping[str, Known]) -> Known:
        """What a block gives of what its flow reads."""
        key = (id(piece), *(_key(known.get(name)) for name in (*piece.takes, *piece.context)))
        if key in self.seen or self.visits > FLOW_CALLS:
            return self.seen.get(key)
        self.visits += 1
        self.seen[key] = None
        outside = {name: Width(0) for name in piece.takes if known.get(name) is None}
        walk = _Widths(self, piece, {**known, **outside})
        walk.block(piece.statements)
        self.seen[key] = None if walk.is_other else walk.result
        return self.seen[key]


def _key(known: Known) -> Any:
    if isinstance(known, list):
        return tuple(map(_key, known))
    return id(known.root()) if isinstance(known, Width) else None


class _Widths(Walk):
    """The statements of one piece."""

    def __init__(self, widths: Widths, piece: Piece, known: Mapping[str, Known]):
        self.widths, self.piece = widths, piece
        self.names: dict[str, Known] = dict(known)
        self.given = [known[name].root() for name in piece.takes if isinstance(known.get(name), Width)]
        self.loops: Loops = {}
        self.result: Known = None
        self.is_other = False  # it reads other widths: of a part of a list that a flow counts out

    def statement(self, node: ast.stmt) -> None:
        if not isinstance(node, ast.For):
            super().statement(node)
            return
        self.bound_each(node.target, node.iter)
        for items in self.rounds(node):
            self.loops |= items
            self.block(node.body)

    def rounds(self, node: ast.For) -> Iterator[Loops]:
        """What each round of a loop over lists of roles is about; what is the same again and again twice."""
        by_index: dict[int, Loops] = {}
        for name, items in loop_items(self.piece.block, node, self.loops).items():
            for at, item in enumerate(items):
                for index in element_indices(item) or (at,):
                    by_index.setdefault(index, {})[name] = (item,)
        order = [by_index[index] for index in sorted(by_index)] or [{}]
        if len(order) <= _MOST_ROUNDS:
            yield from order
            return
        for _, same in groupby(order, key=lambda items: [(name, id(own[0])) for name, own in items.items()]):
            yield from [*same][:2]

    def assign(self, target: ast.expr, value: ast.expr) -> None:
        self.bound(target, self.width(value))

    def bound_each(self, target: ast.expr, source: ast.expr) -> None:
        """What a loop's names are in every round: elements of lists of equally wide tensors."""
        name = dotted(source.func) if isinstance(source, ast.Call) else None
        if name in ("zip", "enumerate") and isinstance(source, ast.Call) and isinstance(target, ast.Tuple):
            parts = target.elts[1:] if name == "enumerate" else target.elts
            for part, item in zip(parts, source.args, strict=False):
                self.bound_each(part, item)
            return
        known = self.width(source)
        self.names |= dict.fromkeys(targets(target))
        self.bound(target, _element(known) if isinstance(known, list) else None)

    def bound(self, target: ast.expr, known: Known) -> None:
        if isinstance(target, ast.Name):
            self.names[target.id] = known
        elif isinstance(target, ast.Tuple):
            parts = known if isinstance(known, list) and len(known) == len(target.elts) else []
            for at, part in enumerate(target.elts):
                self.bound(part, parts[at] if parts else None)

    def leave(self, value: ast.expr) -> None:
        self.result = self.width(value)

    def read(self, node: ast.expr) -> None:
        self.width(node)

    def width(self, node: ast.expr) -> Known:
        """What is known of the channels of a value; whatever is in it is followed."""
        if isinstance(node, ast.Call):
            return self.call(node)
        if isinstance(node, ast.Name) and node.id in self.names and node.id not in self.loops:
            return self.names[node.id]
        if isinstance(node, ast.Attribute) and _is_turned(node):
            return self.width(node.value)
        if (parts := chain(node)) is not None:
            return self.tensor(parts)
        if isinstance(node, ast.BinOp):
            return self.arithmetic(node)
        if isinstance(node, ast.IfExp):
            return self.widths.join(self.width(node.body), self.width(node.orelse))
        if isinstance(node, (ast.Tuple, ast.List)):
            return [self.width(item) for item in node.elts]
        if isinstance(node, ast.Subscript):
            return self.part(node)
        if isinstance(node, ast.UnaryOp):
            return self.width(node.operand)
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                self.width(child)
        return None

    def arithmetic(self, node: ast.BinOp) -> Known:
        """What two tensors give: of sums what both are, of products of matrices what the second one gives."""
        one, other = self.width(node.left), self.width(node.right)
        if isinstance(node.op, ast.Add):
            one, other = one or self.table(node.left), other or self.table(node.right)
        if isinstance(node.op, ast.MatMult) and _is_transposed(node.right):
            self.widths.join(one, self.width(node.right.func.value))  # type: ignore[attr-defined]
        return self.widths.join(one, other) if isinstance(node.op, _SUMS) else None

    def tensor(self, parts: list[str | int]) -> Known:
        """The width of a tensor that stands for itself: of its one extent that is more than 1.

        Of the weight of a table or a map that is read by itself it is the last extent: what each row is.
        """
        reference = refer(self.piece.block, parts, self.loops)
        found = None
        for leaf in reference.items if reference is not None else ():
            if not isinstance(leaf, Leaf) or reference is None:
                continue
            if reference.rest == ("weight",) and leaf.kind in ("Embedding", "Linear"):
                found = self.widths.extent(leaf, 1)
            elif not reference.rest and leaf.kind in ("Parameter", "Buffer"):
                axes = [axis for axis, size in enumerate(shape_of(leaf)) if size > 1]
                found = self.widths.extent(leaf, axes[0]) if len(axes) == 1 else None
        return found

    def table(self, node: ast.expr) -> Known:
        """The width of each row of a table that stands for itself."""
        parts = chain(node)
        reference = refer(self.piece.block, parts, self.loops) if parts else None
        leaf = reference.items[0] if reference is not None and not reference.rest else None
        is_table = isinstance(leaf, Leaf) and leaf.kind in ("Parameter", "Buffer")
        return self.widths.extent(leaf, len(shape_of(leaf)) - 1) if is_table else None  # type: ignore[arg-type]

    def part(self, node: ast.Subscript) -> Known:
        whole = self.width(node.value)
        if not isinstance(whole, list):
            return whole
        at = node.slice.value if isinstance(node.slice, ast.Constant) else None
        return whole[at] if isinstance(at, int) and -len(whole) <= at < len(whole) else None

    def call(self, node: ast.Call) -> Known:
        parts = chain(node.func)
        reference = refer(self.piece.block, parts, self.loops) if parts else None
        if reference is not None and not reference.rest:
            return self.module(node, reference.items)
        if is_optional(node):
            return self.width(node.args[1])
        given = [self.width(argument) for argument in node.args]
        for keyword in node.keywords:
            self.width(keyword.value)
        if is_given(node):
            return self.widths.join(*given)
        name = dotted(node.func) or ""
        if name == "torch.where" and len(given) == 3:
            return self.widths.join(*given[1:])
        if name == "torch.stack" and isinstance(given[0], list):
            return _element([item for item in given[0] if item is not None])
        if name == "torch.cat":
            return self.one_below_another(given[0]) if _is_of_rows(node) else _joined(given[0])
        module, _, word = name.rpartition(".")
        if given and (name == "activation" or (module in ("F", "torch") and word in _SAME_AS_READ)):
            return given[0]
        if name == "F.linear" and len(given) > 1:
            self.widths.join(*given[:2])
            return None
        if given and name in operation_names():
            return self.operation(name, node.args, given)
        first = node.args[0].value if node.args and isinstance(node.args[0], ast.Constant) else None
        return self.method(node.func, given, first) if isinstance(node.func, ast.Attribute) else None

    def one_below_another(self, parts: Known) -> Known:
        """What rows are that are put one below another: as wide as each of them."""
        found = None
        for part in parts if isinstance(parts, list) else ():
            found = self.widths.join(found, part)
        return found

    def operation(self, name: str, arguments: list[ast.expr], given: list[Known]) -> Known:
        """What an operation gives: of a list of equally wide tensors another one.

        Parameters that it computes with have a number for each channel, where there are as many.
        """
        first = given[0]
        if isinstance(first, list):
            is_list = operation_signature(name).returns.startswith("list[")
            return first if is_list and _element(first) is not None else None
        rows = [known or self.table(node) for node, known in zip(arguments, given, strict=True)]
        if (found := self.of_rows(name, rows)) is not None:
            return found
        if not _keeps_channels(name):
            return None
        for node, known in zip(arguments[1:], given[1:], strict=True):
            parts = chain(node)
            if parts and self.tensor(parts) is not None:
                self.widths.join(first, known)
        return first

    def of_rows(self, name: str, given: list[Known]) -> list[Known] | None:
        """Joins what an operation's words say has rows of one width; what it gives where that is several of them."""
        read, made = _rows(name)
        widths: dict[str, Known] = {}
        for word, known in zip(operation_signature(name).parameters, given, strict=False):
            letter = read.get(word)
            if letter and isinstance(known, Width):
                widths[letter] = self.widths.join(widths.get(letter), known) or widths[letter]
        is_several = 1 < len(made) == operation_signature(name).arity
        return [widths.get(letter) for letter in made] if is_several and widths else None

    def method(self, node: ast.Attribute, given: list[Known], count: Any) -> Known:
        whole = self.width(node.value)
        if node.attr == "append" and isinstance(whole, list):
            whole.append(given[0])
        if (
            node.attr == "chunk"
            and isinstance(whole, Width)
            and whole.root().value
            and isinstance(count, int)
            and count > 0
        ):
            whole.root().is_read = True
            return [Width(whole.root().value // count, whole=(whole.root(), count)) for _ in range(count)]
        is_map = node.attr == "unflatten" and count == 2 and _is_turned(node.value)  # (B, C, T): T to (Y, X)
        keeps = is_map or node.attr in _METHODS_THAT_KEEP
        return whole if keeps and isinstance(whole, Width) else None

    def module(self, node: ast.Call, items: tuple[Item, ...]) -> Known:
        given = [self.width(argument) for argument in node.args]
        named = {str(keyword.arg): self.width(keyword.value) for keyword in node.keywords}
        results = [self.of_item(item, given, named) for item in items]
        found = results[0] if results else None
        for other in results[1:]:
            found = self.widths.join(found, other)
        return found

    def of_item(self, item: Item, given: list[Known], named: Mapping[str, Known]) -> Known:
        if isinstance(item, Leaf):
            read = given[0] if given else None
            found = self.widths.through(item, read)
            is_own = isinstance(read, Width) and any(read.root() is one.root() for one in self.given)
            self.is_other |= found is None and is_own and _ends(item)[0] is not None
            return found
        piece = self.widths.program.pieces.get(id(item))
        if piece is None:
            return None
        around = {name: self.names.get(name) for name in piece.context}
        return self.widths.visit(piece, {**around, **dict(zip(piece.takes, given, strict=False)), **named})


def _element(known: list[Known]) -> Known:
    """The one width of all elements of a list, if they have one."""
    roots = {id(item.root()): item.root() for item in known if isinstance(item, Width)}
    is_one = len(roots) == 1 and all(isinstance(item, Width) for item in known)
    return next(iter(roots.values())) if is_one else None


def _is_of_rows(node: ast.Call) -> bool:
    """Whether tensors are put together along another axis than that of their channels: the rows of tables, or tokens."""
    axis = next((keyword.value for keyword in node.keywords if keyword.arg == "dim"), None)
    if axis is not None:
        return ast.unparse(axis) == "-2"
    parts = (
        node.args[0].elts if len(node.args) == 1 and isinstance(node.args[0], (ast.Tuple, ast.List)) else []
    )
    return bool(parts) and all(isinstance(part, ast.Attribute) and part.attr == "weight" for part in parts)


def _joined(parts: Known) -> Known:
    """What tensors are together, of each of which the width is known."""
    is_known = isinstance(parts, list) and all(
        isinstance(part, Width) and part.root().value for part in parts
    )
    if not is_known or not parts:
        return None
    roots = tuple(part.root() for part in parts)
    for root in roots:
        root.is_read = True
    return roots[0] if len(roots) == 1 else Width(sum(root.value for root in roots), parts=roots)


def shape_of(leaf: Leaf) -> tuple[int, ...]:
    """The extents of the weight of a leaf, of a map as torch has them: [out, in]."""
    tensors = leaf.tensors
    if "" in tensors:
        return tensors[""].torch_shape
    if leaf.kind in RECURRENT:
        return sizes_of_recurrent(leaf)
    names = ("weight", matrix_of(tensors), "gamma", "scale", "g", "running_mean")
    name = next((name for name in names if name in tensors), None)
    shape = tensors[name].shape if name is not None else ()
    return shape[::-1] if leaf.is_transposed and leaf.kind == "Linear" else shape


def sizes_of_recurrent(leaf: Leaf) -> tuple[int, ...]:
    """Rows of gates, what is read and what is kept, of a recurrent layer or cell; nothing of another."""
    tensors = leaf.tensors
    for read, kept in (("weight_ih_l0", "weight_hh_l0"), ("weight_ih", "weight_hh")):
        if read in tensors and kept in tensors:
            return (*tensors[read].shape, tensors[kept].shape[1])
    return ()


def _ends(leaf: Leaf) -> tuple[int | None, int | None]:
    """The axes of a weight along which a leaf reads channels, and gives them."""
    if leaf.kind == "Linear" or leaf.kind in ("Conv1d", "Conv2d", "Conv3d"):
        return 1, 0
    if leaf.kind.startswith("ConvTranspose"):
        return 0, 1
    if leaf.kind == "Embedding":
        return None, 1
    if leaf.kind in RECURRENT:
        is_plain = not any("reverse" in name or name.startswith("weight_hr") for name in leaf.tensors)
        return 1, 2 if is_plain else None
    is_row = len(shape_of(leaf)) == 1 and (leaf.kind.endswith("Norm") or leaf.kind in ("PReLU", "Affine"))
    return (0, 0) if is_row else (None, None)


def _is_depthwise(leaf: Leaf) -> bool:
    return leaf.kind in ("Conv1d", "Conv2d", "Conv3d") and shape_of(leaf)[1:2] == (1,)


def _is_transposed(node: ast.expr) -> bool:
    """Whether a matrix is transposed: `x.t()`, of which a product joins the rows."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "t"


def _is_turned(node: ast.expr) -> bool:
    """Whether rows stand as columns, `x.mT`: the channels before the places."""
    return isinstance(node, ast.Attribute) and node.attr in _TRANSPOSED


@cache
def _rows(operation: str) -> tuple[dict[str, str], list[str]]:
    """The letter that an operation's words have for the last extent of each argument, and of each result."""
    doc = ast.get_docstring(ast.parse(operation_source(operation)).body[0]) or ""  # type: ignore[arg-type]
    before, _, after = doc.partition("->")
    read = {name: shape.rpartition(", ")[2] for name, shape in _SHAPE.findall(before)}
    made = [shape.rpartition(", ")[2] for shape in _SHAPES.findall(after)] if "), (" in after else []
    return {name: letter for name, letter in read.items() if letter in _ROWS}, made


@cache
def _keeps_channels(operation: str) -> bool:
    """Whether an operation's own words say that its result has the channels of what it reads first."""
    doc = ast.get_docstring(ast.parse(operation_source(operation)).body[0]) or ""  # type: ignore[arg-type]
    read, given = _SHAPE.search(doc), _RESULT.search(doc)
    if read is None or given is None:
        return "-> like x" in doc
    before, after = (set(found.split(", ")) for found in (read[2], given[1]))
    return any(letter in before and letter in after for letter in _CHANNELS)
