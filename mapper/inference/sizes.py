"""Sizes from the shapes of weights: each role's shape is a product of symbols, solved block by block."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from mapper._dataclass import dataclass
from mapper.architecture import Leaf
from mapper.errors import ArchitectureError, HintError
from mapper.flows import arithmetic
from mapper.inference.evidence import Known, weakest
from mapper.inference.facts import Facts
from mapper.inference.leaf_shapes import main_tensor
from mapper.inference.scopes import Scope, leaves_at
from mapper.rulebook.flows import ANY, FlowRule, aligned

WIDTH = "hidden_size"  # a config may say it of another part: towers have several


@dataclass(frozen=True, eq=False)
class Equation:
    """One extent of one weight: `heads * head_dim = 384`."""

    text: str
    node: ast.expr
    extent: int
    key: str  # the tensor, folded, with its shape
    leaf: Leaf
    name: str  # of the tensor in the leaf

    def tensors(self) -> list[str]:
        """The checkpoint's keys."""
        return [f"{path}.{self.name}" if self.name else path for path in self.leaf.place.expand()]


class Sizes:
    """The symbols of one block. `solve` settles what can be known and says what contradicts."""

    def __init__(self, scope: Scope, rule: FlowRule, facts: Facts):
        self.scope, self.rule, self.facts = scope, rule, facts
        self.equations = list(_equations(scope, rule))
        self.names = {
            name: facts.full_name(scope, name)
            for equation in self.equations
            for name in arithmetic.names(equation.node)
        }
        self.known: dict[str, Known] = {}  # by the name that the flow uses

    def solve(self) -> None:
        """Settle every symbol that shapes and other evidence show. Raises ArchitectureError, HintError."""
        self._propagate()
        self._check_given()
        for name in self.names:
            if name not in self.known:
                known = self.facts.get(self.scope, self.names[name])
                if known is not None and known.evidence == "default" and not self._may_be(name, known):
                    self.facts.deny(self.scope, self.names[name])
                    known = self.facts.get(self.scope, self.names[name])
                if known is not None and known.problem:
                    raise ArchitectureError(known.problem, fact=self.names[name], at=self._place())
                if known is not None:
                    self._settle(name, known)
                    self._propagate()
        self._settle_certain()
        self._check()

    def _may_be(self, name: str, known: Known) -> bool:
        """Whether a default is believed: where no config left it out, a type's own says nothing of this model's size."""
        return self.facts.config.says_more_than_its_type and self._fits(name, known)

    def _fits(self, name: str, known: Known) -> bool:
        """Whether the shapes allow a value; everything else stays as it was."""
        before, solved = dict(self.known), dict(self.scope.solved)
        try:
            self._settle(name, known)
            self._propagate()
            self._check()
        except (ArchitectureError, HintError):
            return False
        finally:
            self.known = before
            self.scope.solved.clear()
            self.scope.solved.update(solved)
        return True

    def are_possible(self, new: Collection[Leaf] = ()) -> bool:
        """Whether the shapes go with each other and with what the config says of all but the width; nothing is settled.

        Of `new` leaves among others: what the others show goes before the config.
        """
        extents: dict[str, int] = {}
        if any(extents.setdefault(item.text, item.extent) != item.extent for item in self.equations):
            return False
        if not self._hold({}, self.equations):  # which no config repairs
            return False
        values = self._of_config()
        if new:
            shown: dict[str, object] = {}
            self._hold(shown, [item for item in self.equations if item.leaf not in new])
            values |= shown
        return self._hold(values, self.equations)

    def _of_config(self) -> dict[str, object]:
        """What fields of the config say of all symbols but the width."""
        if not self.facts.config.data:
            return {}
        told = {name: self.facts.get(self.scope, full) for name, full in self.names.items() if full != WIDTH}
        return {name: known.value for name, known in told.items() if known and known.evidence == "config"}

    def unknown(self) -> dict[str, list[int]]:
        """Symbols to ask for, by full name, with the values that the shapes allow; what would follow from these is left out."""
        wanted: dict[str, list[int]] = {}
        known = set(self.known)
        for name, full in self.names.items():
            if name not in known:
                wanted[full] = self._candidates(name)
                known.add(name)
                self._follow(known)
        return wanted

    def _follow(self, known: set[str]) -> None:
        """Add the symbols that equations would give if those of `known` were."""
        size = -1
        while size != len(known):
            size = len(known)
            for equation in self.equations:
                open_names = set(arithmetic.names(equation.node)) - known
                if len(open_names) == 1:
                    known |= open_names

    def _settle(self, name: str, known: Known) -> None:
        self.known[name] = known
        self.facts.solved(self.scope, self.names[name], known)

    def _values(self) -> dict[str, object]:
        return {name: known.value for name, known in self.known.items()}

    def _propagate(self) -> None:
        """Solve equations with one open symbol until nothing new comes out."""
        fresh = True
        while fresh:
            fresh = False
            for equation in self.equations:
                try:
                    solution = arithmetic.solve(equation.node, equation.extent, self._values())
                except ValueError as error:
                    raise self._contradiction(equation, str(error)) from None
                if solution:
                    name, value = solution
                    if value < (0 if self.facts.declared.types.get(self.names[name]) == "natural" else 1):
                        raise self._contradiction(equation, f"{name} would be {value}")
                    self._settle(name, self._derived(equation, value))
                    fresh = True

    def _derived(self, equation: Equation, value: int) -> Known:
        used = [name for name in arithmetic.names(equation.node) if name in self.known]
        evidence = weakest(["shape", *(self.known[name].evidence for name in used)])
        source = equation.key if evidence == "shape" else f"{equation.key} = {equation.text}"
        return Known(value, evidence, source, shown=True)

    def _check(self) -> None:
        values = self._values()
        for equation in self.equations:
            if any(name not in values for name in arithmetic.names(equation.node)):
                continue
            try:
                found = arithmetic.evaluate(equation.node, values)
            except ValueError as error:
                raise self._contradiction(equation, str(error)) from None
            if found != equation.extent:
                raise self._contradiction(equation, f"{equation.text} is {found}")

    def _check_given(self) -> None:
        for name, full in self.names.items():
            stated = self.facts.hints.stated(self.scope, full)
            if stated is None:
                continue
            shown = self.known.get(name)
            if shown is not None and shown.value != stated.value:
                raise HintError(
                    f"{stated.source} contradicts {shown.source}, which shows {shown.value}",
                    fact=full,
                    at=self._place(),
                    candidates=[shown.value],
                )
            if shown is None:
                self._settle(name, stated)
                self._propagate()

    def _contradiction(self, equation: Equation, what: str) -> ArchitectureError | HintError:
        """The error that names the tensor, the numbers, and where the other numbers come from."""
        used = [name for name in dict.fromkeys(arithmetic.names(equation.node)) if name in self.known]
        sources = ", ".join(
            f"{name} = {self.known[name].value} ({_evidence(self.known[name])})" for name in used
        )
        text = f"{equation.key} is {equation.extent} = {equation.text}, but {what}" + (
            f"; {sources}" if sources else ""
        )
        given = [name for name in used if self.known[name].evidence == "given"]
        blamed = self.names[(given or used)[0]] if used else ""
        named: dict[str, Any] = {"fact": blamed, "at": self._place(), "tensors": equation.tensors()}
        if not given:
            return ArchitectureError(text, **named)
        candidates = self._candidates(given[0])
        possible = ", ".join(map(str, candidates))
        return HintError(
            f"{text}; possible here: {possible}" if possible else text, candidates=candidates, **named
        )

    def _place(self) -> str:
        return str(self.scope.block.home)

    def _settle_certain(self) -> None:
        """Take what the shapes leave one value for, though no equation gives it by itself."""
        for name in self.names:
            values = self._candidates(name) if name not in self.known else []
            if len(values) == 1:
                key = next(item.key for item in self.equations if _factor(item, name) is not None)
                self._settle(name, Known(values[0], "shape", f"{key}: the only one that fits", shown=True))
                self._propagate()

    def _candidates(self, name: str) -> list[int]:
        """What a factor may be, so that every shape can still be made of whole numbers; empty: nothing is known of it."""
        factors = [_factor(equation, name) for equation in self.equations]
        extents = [extent for extent in factors if extent is not None]
        if not extents:
            return []
        return [value for value in _divisors(math.gcd(*extents)) if self._can_be(name, value)]

    def _can_be(self, name: str, value: int) -> bool:
        """Whether what follows from a value, shape by shape, is whole and contradicts nothing."""
        others = {other: known.value for other, known in self.known.items() if known.evidence != "given"}
        return self._hold({**others, name: value}, self.equations)

    def _hold(self, values: dict[str, object], equations: Sequence[Equation]) -> bool:
        """Whether every shape can be made with these values and what follows from them."""
        fresh = True
        while fresh:
            fresh = False
            for equation in equations:
                try:
                    solution = arithmetic.solve(equation.node, equation.extent, values)
                    lacking = set(arithmetic.names(equation.node)) - values.keys()
                    if not lacking and arithmetic.evaluate(equation.node, values) != equation.extent:
                        return False
                except ValueError:
                    return False
                if solution and solution[1] < 1:
                    return False
                if solution:
                    values[solution[0]] = solution[1]
                    fresh = True
        return True


def _factor(equation: Equation, name: str) -> int | None:
    """The extent, where a symbol is a factor of it."""
    node = equation.node
    is_product = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult)
    return equation.extent if is_product and name in arithmetic.names(node) else None


def _evidence(known: Known) -> str:
    return known.source if known.evidence in ("shape", "given") else f"{known.evidence} {known.source}"


def _equations(scope: Scope, rule: FlowRule) -> Iterator[Equation]:
    same = _same_sizes(scope, rule)
    for role, texts in rule.shapes.items():
        extents = tuple(same.get(text, text) for text in texts)
        for leaf in leaves_at(scope.block, role):
            if {*leaf.tensors} == {"bias"} and role not in rule.ties and not _reads_bias_alone(rule, role):
                raise ArchitectureError(
                    f"{leaf.place}.weight is missing: its bias stands alone",
                    tensors=[f"{path}.weight" for path in leaf.place.expand()],
                )
            yield from _of_leaf(leaf, extents, rule)


def _same_sizes(scope: Scope, rule: FlowRule) -> dict[str, str]:
    """Size -> the size that it is where the map between them is left out, as is any other between the same two."""
    kept = rule.kept_widths.items()
    mapped = {sizes for role, sizes in kept if leaves_at(scope.block, role)}
    return {given: made for _, (made, given) in kept if (made, given) not in mapped}


def _reads_bias_alone(rule: FlowRule, role: str) -> bool:
    """Whether a flow takes no more of a module than its bias, as of a tied head, or nothing."""
    body = rule.body.replace(f"has({role})", "")
    return set(re.findall(rf"(?<![\w.]){re.escape(role)}\b(\.\w+)?", body)) <= {".bias"}


def _of_leaf(leaf: Leaf, extents: tuple[str, ...], rule: FlowRule) -> Iterator[Equation]:
    name, info = main_tensor(leaf)
    shape = info.shape[::-1] if leaf.form == "transposed" else info.shape
    place = str(leaf.place)
    key = f"{place}.{name} {list(info.shape)}" if name else f"{place} {list(info.shape)}"
    extents = aligned(extents, len(shape))
    if len(shape) != len(extents):
        raise ArchitectureError(
            f"{key} has {len(shape)} dimensions; {rule.name} wants [{', '.join(extents)}]",
            tensors=[f"{path}.{name}" if name else path for path in leaf.place.expand()],
        )
    if leaf.has_one_gain:
        return
    for text, extent in zip(extents, shape, strict=False):
        if text != ANY:
            yield Equation(text, arithmetic.parse_rule(text, rule.file, rule.line), extent, key, leaf, name)


def _divisors(number: int) -> list[int]:
    if number > 1_000_000:
        return []
    return [value for value in range(1, number + 1) if number % value == 0]
