"""A block's statements as text: roles become the checkpoint's names, facts become attributes, context becomes arguments."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from mapper.architecture import Block, Leaf, Numbered, Place
from mapper.emission.drafts import Draft
from mapper.emission.expressions import expression
from mapper.emission.line_breaks import lines
from mapper.emission.module_tree import Folder
from mapper.emission.paths import Paths, list_folder
from mapper.emission.simpler import optional_rows
from mapper.emission.types import Types
from mapper.errors import FlowError
from mapper.flows.language import copied, dotted, is_fact, is_given, is_none_asked, is_optional, targets
from mapper.flows.program import Piece, Program, loop_items
from mapper.flows.references import Item, Reference, chain, element_indices, refer
from mapper.limits import FLOW_CALLS
from mapper.naming.members import UPDATED

Activation = Callable[[str, ast.expr], ast.expr]
_RUN = 3  # elements of a list that are written by what they are among others; fewer one by one
_SHORT = 2  # calls of a body that says more where it is called than under a name


@dataclass(eq=False)
class Bodies:
    """Everything that writing a body needs to know about the whole model."""

    program: Program
    owners: dict[int, Folder]
    paths: Paths
    types: Types
    activation: Activation
    inlined: int = 0  # bodies in place of calls, so far

    def method_name(self, block: Block) -> str:
        """The name of the method that holds a block's forward."""
        folder = self.owners[id(block)]
        if folder.block is block:
            return "forward"
        words = {self.paths.attribute(key) for key in folder.children if isinstance(key, str)}
        same = [other for other in folder.methods if other.role == block.role]
        name = block.role if block.role not in words else f"{block.role}_forward"
        return name if len(same) == 1 else f"{name}_{same.index(block) + 1}"

    def is_inlined(self, block: Block) -> bool:
        """Whether calls are replaced by the body: one expression without leaves of its own or a short one, each argument read once."""
        piece = self.program.piece(block)
        if self.owners[id(block)].block is block or len(piece.statements) != 1:
            return False
        read = [node.id for node in ast.walk(piece.statements[0]) if isinstance(node, ast.Name)]
        once = all(read.count(name) <= 1 for name in piece.takes)
        if not isinstance(piece.statements[0], ast.Return) or not once:
            return False
        return not (piece.takes and block.roles) or (_is_short(piece) and self.is_called_at_home(block))

    def is_called_at_home(self, block: Block) -> bool:
        """Whether all calls stand in the class that holds the block."""
        home = self.owners[id(block)].place
        return all(place == home for place in self.callers.get(id(block), ()))

    @cached_property
    def callers(self) -> dict[int, list[Place]]:
        """The places of the classes whose bodies refer to each block."""
        found: dict[int, list[Place]] = {}
        for piece in self.program.pieces.values():
            if owner := self.owners.get(id(piece.block)):  # what no class holds is not written
                for item in piece.used:
                    found.setdefault(item, []).append(owner.place)
        return found


def _is_short(piece: Piece) -> bool:
    """Whether a body is no more than one or two modules called one after the other, as in `norm(convolution(x))`."""
    node = piece.statements[0]
    value = node.value if isinstance(node, ast.Return) else None
    for _ in range(_SHORT):
        if not isinstance(value, ast.Call) or len(value.args) != 1 or value.keywords:
            return False
        if not isinstance(value.func, ast.Name) or not isinstance(piece.block.roles.get(value.func.id), Leaf):
            return False
        value = value.args[0]
        if isinstance(value, ast.Name):
            return not piece.context and (value.id,) == piece.takes
    return False


class Body:
    """Writes one block's method into the draft of the class that owns it."""

    def __init__(self, bodies: Bodies, piece: Piece, draft: Draft):
        self.bodies, self.piece, self.draft = bodies, piece, draft
        self.owner: Place = bodies.owners[id(piece.block)].place
        self.loops: dict[str, tuple[Item, ...]] = {}
        self.elements: dict[str, Place] = {}  # loop variable -> the element's folder

    def text(self) -> list[str]:
        """Signature and statements, indented as in the class."""
        types = self.bodies.types
        parameters = [
            f"{name}: {types.of(self.piece, name)}" for name in (*self.piece.takes, *self.piece.context)
        ]
        head = f"def {self.bodies.method_name(self.piece.block)}({', '.join(['self', *parameters])}) -> {types.returns(self.piece)}:"
        text = lines(head, 4)
        for nodes in optional_rows(self.piece.statements, self.bodies.types.nullable):
            text += self.statement(nodes[0], 8) if len(nodes) == 1 else self.optional(nodes, 8)
        return text

    def block(self, statements: list[ast.stmt], indent: int) -> list[str]:
        text: list[str] = []
        for node in statements:
            text += self.statement(node, indent)
        return text

    def optional(self, nodes: list[ast.stmt], indent: int) -> list[str]:
        """One condition for values of which each is of the one before; the last is None where the first has nothing."""
        last, source = nodes[-1].targets[0], nodes[0].value.args[0]  # type: ignore[attr-defined]
        text = lines(f"{expression(last)} = None", indent)
        text += lines(f"if {self.expression(source)} is not None:", indent)
        for node in nodes:
            inner = ast.Assign(node.targets, node.value.args[1])  # type: ignore[attr-defined]
            asserted = self.bodies.types.asserted.get(id(node), [])
            text += [f"{' ' * indent}    assert {name} is not None" for name in dict.fromkeys(asserted)]
            text += self.plain(inner, indent + 4)
        return text

    def statement(self, node: ast.stmt, indent: int) -> list[str]:
        """Text of a statement, behind what it asserts."""
        asserted = self.bodies.types.asserted.get(id(node), [])
        rows = self.plain(node, indent)
        at = len(rows) if not asserted else 0
        if asserted and isinstance(node, ast.Assign) and is_optional(node.value):
            pad = " " * indent + "if "
            at = 1 + next(index for index, row in enumerate(rows) if row.startswith(pad))
            indent += 4
        checks = [f"{' ' * indent}assert {name} is not None" for name in dict.fromkeys(asserted)]
        return [*rows[:at], *checks, *rows[at:]]

    def plain(self, node: ast.stmt, indent: int) -> list[str]:
        if isinstance(node, ast.Assign) and (is_given(node.value) or is_optional(node.value)):
            name, (given, other) = expression(node.targets[0]), node.value.args  # type: ignore[attr-defined]
            source = self.expression(given)
            first, test = (
                ("None", f"{source} is not None") if is_optional(node.value) else (source, f"{name} is None")
            )
            before = [] if source == name else lines(f"{name} = {first}", indent)  # `x = optional(x, f(x))`
            rows = [*before, *lines(f"if {test}:", indent)]
            return [*rows, *lines(f"{name} = {self.expression(other)}", indent + 4)]
        if isinstance(node, ast.Assign):
            target = expression(node.targets[0])
            if isinstance(node.value, ast.Dict) and all(map(_is_empty_list, node.value.values)):
                target += ": dict[str, list[Any]]"  # what is appended, no annotation shows here
            return lines(f"{target} = {self.expression(node.value)}", indent)
        if isinstance(node, ast.Return) and node.value is not None:
            return lines(f"return {self.expression(node.value)}", indent)
        if isinstance(node, ast.Expr):
            return lines(self.expression(node.value), indent)
        if isinstance(node, ast.For):
            source = self.loop_source(node)
            return [
                *lines(f"for {expression(node.target)} in {source}:", indent),
                *self.block(node.body, indent + 4),
            ]
        if isinstance(node, ast.If):  # of training: a layer is left out
            draw, rate = (self.expression(side) for side in (node.test.left, node.test.comparators[0]))  # type: ignore[attr-defined]
            return [*lines(f"if self.training and {draw} < {rate}:", indent), f"{' ' * indent}    continue"]
        raise TypeError(type(node).__name__)

    def loop_source(self, node: ast.For) -> str:
        self.loops.update(loop_items(self.piece.block, node, self.loops))
        names = [name for name in targets(node.target) if name in self.loops]
        self.elements |= {name: self.element(self.loops[name]) for name in names}  # none stands in another
        return self.expression(node.iter)

    def element(self, items: tuple[Item, ...]) -> Place:
        """The folder that a loop variable stands for; of several groups, the first."""
        place = place_of(items[0])
        if is_numbered(items[0]):
            return place
        folder = list_folder([place], self.base_of(place))
        return Place(place[: len(folder) + 1])

    def base_of(self, place: Place) -> Place:
        """The closest folder with a spelling that a place is in: a loop variable's element, or the class itself."""
        inside = [
            element
            for element in self.elements.values()
            if place.within(element) and len(element) < len(place)
        ]
        return max(inside, key=len, default=self.owner)

    def expression(self, node: ast.expr) -> str:
        return expression(_Spell(self).visit(copied(node)))

    def spell(self, reference: Reference, beyond: bool = False) -> str:
        """The module that a reference means; `beyond`: what it has is read, a weight or a method."""
        place = place_of(reference.items[0])
        if reference.base is not None:
            element = self.elements[reference.base]
            own = next(
                item for item in reference.base_items if place.within(Place(place_of(item)[: len(element)]))
            )
            start = Place(place_of(own)[: len(element)])
            return self.bodies.paths.spell(reference.base, start, self.home(reference), beyond)
        return self.bodies.paths.spell("self", self.owner, self.home(reference), beyond)

    def is_opened(self, leaf: Leaf) -> bool:
        """Whether other tensors stand in a leaf's folder: it is no module of torch's then, which could be called."""
        return "" not in leaf.tensors and self.bodies.paths.root.at(leaf.place)

    def home(self, reference: Reference) -> Place:
        """Where the module stands: of a leaf its place, of a block the folder of the class that holds its method."""
        item = reference.items[0]
        return item.place if isinstance(item, Leaf) else self.bodies.owners[id(item)].place

    def sequence(self, reference: Reference) -> str:
        """A list role in a loop's header."""
        place = place_of(reference.items[0])
        base, start = "self", self.owner
        if reference.base is not None:
            base, start = reference.base, self.elements[reference.base]
            start = Place(place[: len(start)])
        around = Place(place[:-1])
        if is_numbered(reference.items[0]) and self.is_all_of(around, reference):
            self.bodies.paths.opened.add(around)
            own = around == start  # a class of its own, and no nn.ModuleDict
            return f"{self.bodies.paths.spell(base, start, around, beyond=True)}.{'children' if own else 'values'}()"
        if is_numbered(reference.items[0]):
            order = sorted(reference.items, key=element_indices)
            return _tuple([self.bodies.paths.spell(base, start, place_of(item)) for item in order])
        folder = self.bodies.paths.root.find(list_folder([place_of(item) for item in reference.items], start))
        folder = folder.elements() or folder
        meant = sum(len(place_of(item)[len(folder.place)]) for item in reference.items)
        if meant == sum(len(key) for key in folder.children):
            return self.bodies.paths.elements(base, start, folder)
        if run := self.run_of(reference, folder):
            values = self.bodies.paths.elements(base, start, folder)
            return f"list({values})[{run}]"
        return _tuple(list(self._one_by_one(reference, base, start, len(folder.place))))

    def run_of(self, reference: Reference, folder: Folder) -> str:
        """Which of all that a container with keys holds the elements are, as a slice; empty where they are no run of them."""
        if folder.is_sequence or folder.has_parameters() or folder is self.bodies.paths.root:
            return ""
        at = len(folder.place)
        every = [str(part) for key in folder.children for part in ((key,) if isinstance(key, str) else key)]
        order = sorted(
            part for item in reference.items for part in place_of(item)[at] if isinstance(part, int)
        )
        meant = list(map(str, order))
        whole = all(len(place_of(item)) == at + 1 for item in reference.items)
        if not whole or len(meant) < _RUN or meant[0] not in every:
            return ""
        first = every.index(meant[0])
        end = first + len(meant)
        if every[first:end] != meant:
            return ""
        return f"{first or ''}:{'' if end == len(every) else f' {self.count_of(reference, end)}'}"

    def count_of(self, reference: Reference, number: int) -> str:
        """How many elements a list has, as its block says it."""
        block = self.piece.block
        role = next((role for role, value in block.roles.items() if value == [*reference.items]), "")
        fact = block.facts.get(role)
        is_count = fact is not None and fact.value == number
        return self.draft.attribute(fact, block.role) if fact and is_count else str(number)

    def is_all_of(self, place: Place, reference: Reference) -> bool:
        """Whether the elements are all children of a folder, in their order, and none of them a list."""
        if not self.bodies.paths.root.at(place):
            return False
        children = list(self.bodies.paths.root.find(place).children.values())
        order = [place_of(item) for item in sorted(reference.items, key=element_indices)]
        plain = all(isinstance(child, Folder) and not child.is_list for child in children)
        return plain and order == [child.place for child in children]

    def _one_by_one(self, reference: Reference, base: str, start: Place, at: int) -> Iterator[str]:
        """The elements of a list's folder by name, in order: it holds others too."""
        every = sorted(
            (index, place_of(item))
            for item in reference.items
            for index in place_of(item)[at]
            if isinstance(index, int)
        )
        for index, place in every:
            yield self.bodies.paths.spell(base, start, Place((*place[:at], (index,))))


def _tuple(parts: list[str]) -> str:
    return f"({parts[0]},)" if len(parts) == 1 else f"({', '.join(parts)})"


def _is_empty_list(node: ast.expr) -> bool:
    return isinstance(node, ast.List) and not node.elts


def is_numbered(item: Item) -> bool:
    """Whether it is an element of a list by the number in its folder's name."""
    return isinstance(item, Block) and isinstance(item.indices, Numbered)


def place_of(item: Item) -> Place:
    return item.place if isinstance(item, Leaf) else item.home


class _Spell(ast.NodeTransformer):
    """Replaces roles, facts and calls of blocks in one expression."""

    def __init__(self, body: Body):
        self.body = body

    def visit(self, node: ast.AST) -> Any:
        if isinstance(node, ast.expr):
            if is_fact(node):
                return self.fact(node)
            if isinstance(node, ast.Call):
                return self.call(node)
            reference = self.reference(node)
            if reference is not None:
                return _raw(self.value(reference))
            if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):
                return self.part(node)
        return self.generic_visit(node)

    def part(self, node: ast.Subscript) -> ast.expr:
        """A part of a list; of a class that is the list itself, torch would make another object of that class."""
        items = self.visit(node.value)
        if isinstance(items, ast.Name) and items.id == "self":
            items = _raw("[*self]")
        return ast.Subscript(items, self.visit(node.slice), node.ctx)

    def reference(self, node: ast.expr) -> Reference | None:
        parts = chain(node)
        return refer(self.body.piece.block, parts, self.body.loops) if parts else None

    def value(self, reference: Reference, beyond: bool = False) -> str:
        beyond = beyond or bool(reference.rest)
        if "weight" in reference.rest:
            _check_updates(reference)
        text = self.body.sequence(reference) if reference.is_list else self.body.spell(reference, beyond)
        return text + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in reference.rest)

    def fact(self, node: ast.expr) -> ast.expr:
        piece = self.body.piece
        name = (dotted(node) or "").removeprefix("fact.")
        try:
            fact = piece.block.facts[name]
        except KeyError:
            raise FlowError(
                f"{piece.flow.rule.name} needs fact {name}, which is unknown at '{piece.block.home}'"
            ) from None
        return _raw(self.body.draft.attribute(fact, piece.block.role))

    def call(self, node: ast.Call) -> ast.expr:
        name = dotted(node.func)
        reference = self.reference(node.func)
        if reference is not None:
            return self.module_call(node, reference)
        if name == "activation":
            word = str(self.body.piece.block.facts["activation"].value)
            return self.visit(self.body.bodies.activation(word, node.args[0]))
        if name == "output":
            return ast.Call(
                ast.Name("Output"), [], [ast.keyword(k.arg, self.visit(k.value)) for k in node.keywords]
            )
        if name == "zip":
            node.keywords.append(
                ast.keyword("strict", ast.Constant(True))
            )  # a value for each layer, no fewer
        func: Any = node.func if isinstance(node.func, ast.Name) else self.generic_visit(node.func)
        arguments = [self.visit(argument) for argument in node.args]
        keywords = [word for word in node.keywords if not _is_false(word.value)]
        return ast.Call(func, arguments, [ast.keyword(k.arg, self.visit(k.value)) for k in keywords])

    def module_call(self, node: ast.Call, reference: Reference) -> ast.expr:
        item = reference.items[0]
        arguments = [self.visit(argument) for argument in node.args]
        keywords = {str(keyword.arg): self.visit(keyword.value) for keyword in node.keywords}
        if isinstance(item, Leaf) and not item.place:
            return ast.Call(
                _raw("super().forward"), arguments, [ast.keyword(k, v) for k, v in keywords.items()]
            )
        function = self.value(reference)
        if isinstance(item, Leaf) and not reference.rest and self.body.is_opened(item):
            return _raw_call(item, function, arguments, keywords)
        if isinstance(item, Block) and not reference.rest:
            piece = self.body.bodies.program.piece(item)
            if (
                self.body.bodies.is_inlined(item)
                and self.body.bodies.owners[id(item)].place == self.body.owner
            ):
                return self.inlined(piece, {**dict(zip(piece.takes, arguments, strict=False)), **keywords})
            method = self.body.bodies.method_name(item)
            if method != "forward":
                function = f"{self.value(reference, beyond=True)}.{method}"
            for name in (*piece.takes[len(arguments) :], *piece.context):
                arguments.append(keywords.pop(name, None) or ast.Name(name))
            for name in keywords:
                raise FlowError(
                    f"{self.body.piece.flow.rule.name} passes {name!r} to {piece.flow.rule.name}, which does not read it"
                )
        if isinstance(item, Leaf) and not reference.rest and self.body.bodies.paths.root.at(item.place):
            function = "F.linear"
            arguments += self.tensors_of(item, reference)
        return ast.Call(
            _raw(function), arguments, [ast.keyword(key, value) for key, value in keywords.items()]
        )

    def tensors_of(self, leaf: Leaf, reference: Reference) -> list[ast.expr]:
        """Weight and bias of a map that is called and has tensors of others below: no module of torch's own has both."""
        if leaf.kind != "Linear" or leaf.form != "plain" or not leaf.tensors.keys() <= {"weight", "bias"}:
            raise FlowError(
                f"{self.body.piece.flow.rule.name} calls {leaf.place}, which has tensors of others below"
            )
        base = self.value(reference, beyond=True)
        return [_raw(f"{base}.{name}") for name in ("weight", "bias") if name in leaf.tensors]

    def inlined(self, piece: Piece, given: dict[str, ast.expr]) -> ast.expr:
        node = piece.statements[0]
        assert isinstance(node, ast.Return) and node.value is not None
        self.body.bodies.inlined += 1
        if self.body.bodies.inlined > FLOW_CALLS:
            raise FlowError(f"the flows call one another more than {FLOW_CALLS} times")
        places: dict[str, ast.expr] = {
            name: ast.Name(f"\0{name}") for name in given
        }  # no name of the caller's is one
        value = _Given(places).visit(copied(node.value))
        spelled = _Spell(Body(self.body.bodies, piece, self.body.draft)).visit(value)
        named = {f"\0{name}": argument for name, argument in given.items()}
        return _Decided().visit(_Given(named).visit(spelled))


def _is_false(node: ast.expr) -> bool:
    """Whether it asks of what is always there whether it is None (`is_causal=mask is None`): torch's default."""
    return is_none_asked(node) and isinstance(node.ops[0], ast.Is) and getattr(node, "is_settled", False)  # type: ignore[attr-defined]


def _raw_call(leaf: Leaf, folder: str, arguments: list[ast.expr], keywords: dict[str, ast.expr]) -> ast.expr:
    """A call of a map whose folder holds other tensors, too: by its own tensors."""
    if leaf.kind != "Linear" or keywords or not {"weight", "bias"}.issuperset(leaf.tensors):
        raise FlowError(f"{leaf.place} holds other tensors, and is called as if it were a {leaf.kind}")
    own = [_raw(f"{folder}.{name}") for name in ("weight", "bias") if name in leaf.tensors]
    return ast.Call(_raw("F.linear"), [*arguments, *own], [])


def _check_updates(reference: Reference) -> None:
    """A map's weight that is read by itself must be all of it; a tied head has a table's own, without its update."""
    for item in reference.items:
        if isinstance(item, Leaf) and item.kind == "Linear" and not set(UPDATED).isdisjoint(item.tensors):
            raise FlowError(
                f"the weight of {item.place} is read by itself, without its update; merge them (--merge)"
            )


class _Given(ast.NodeTransformer):
    """Puts arguments where an inlined body reads its parameters."""

    def __init__(self, given: dict[str, ast.expr]):
        self.given = given

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return self.given.get(node.id, node)


class _Decided(ast.NodeTransformer):
    """`None if None is None else causal_mask(x, None)`, where a call gives None for a parameter, is `None`."""

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        self.generic_visit(node)
        test = node.test
        is_of_none = (
            is_none_asked(test) and isinstance(test.left, ast.Constant) and test.left.value is None  # type: ignore[attr-defined]
        )
        if not is_of_none:
            return node
        return node.body if isinstance(test.ops[0], ast.Is) else node.orelse  # type: ignore[attr-defined]


def _raw(text: str) -> ast.expr:
    """Finished text as an expression that nothing more is done to."""
    return ast.Name(text)
