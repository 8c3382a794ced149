"""Sizes that a rule computes from others: properties of the Config, so that they follow when the others are edited."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping

from mapper.architecture import Fact
from mapper.emission.expressions import expression
from mapper.flows import arithmetic
from mapper.flows.language import copied, dotted


def derived(fact: Fact, field_of: Callable[[str], tuple[str, object] | None]) -> str | None:
    """The expression of a size over fields of the Config; None where a rule did not compute it, or not from these alone.

    `field_of` gives the field of a fact by its name, and its value.
    """
    computed = [fact.source.rpartition(": ")[2]] if fact.evidence == "rule" else []
    if type(fact.value) not in (int, float):
        return None
    return next(
        filter(None, (_over_fields(text, fact, field_of) for text in (*fact.same_as, *computed))), None
    )


def computed(fact: Fact, facts: Mapping[str, Fact]) -> ast.expr | None:
    """What a rule computed a fact by, over facts of the same block, as Python has it; None where it needs others."""
    if fact.evidence != "rule" or type(fact.value) is not int:
        return None
    names = {other.name: (name, other.value) for name, other in facts.items()}
    try:
        node = arithmetic.parse(fact.source.rpartition(": ")[2])
        known = {name: names[name][1] for name in arithmetic.names(node)}
        if (
            not known
            or isinstance(node, (ast.Name, ast.Attribute))
            or arithmetic.evaluate(node, known) != fact.value
        ):
            return None
        found: ast.expr = _Written({name: names[name][0] for name in known}, True, "").visit(copied(node))
        return found
    except (ValueError, KeyError, TypeError, SyntaxError):
        return None


def _over_fields(text: str, fact: Fact, field_of: Callable[[str], tuple[str, object] | None]) -> str | None:
    """Arithmetic over facts as one over fields; None where it is none, or does not give the value."""
    try:
        node = arithmetic.parse(text)
        if isinstance(node, (ast.Name, ast.Attribute)):
            return None  # another fact: one field is both
        fields = {name: field_of(name) for name in arithmetic.names(node)}
        known = {name: found[1] for name, found in fields.items() if found is not None}
        if not known or len(known) < len(fields) or arithmetic.evaluate(node, known) != fact.value:
            return None
        names = {name: found[0] for name, found in fields.items() if found is not None}
        written = _Written(names, is_whole=type(fact.value) is int)
        return expression(written.visit(copied(node)))
    except (ValueError, KeyError, TypeError, SyntaxError):
        return None  # it is no arithmetic, or none that Python writes as rules do


class _Written(ast.NodeTransformer):
    """Facts as fields, and what rules call as Python has it."""

    def __init__(self, fields: dict[str, str], is_whole: bool, owner: str = "self."):
        self.fields, self.is_whole, self.owner = fields, is_whole, owner

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        # rules divide whole numbers into whole ones
        operator = ast.FloorDiv() if self.is_whole and isinstance(node.op, ast.Div) else node.op
        return ast.BinOp(self.visit(node.left), operator, self.visit(node.right))

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Name(f"{self.owner}{self.fields[node.id]}")

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        return ast.Name(f"{self.owner}{self.fields[dotted(node) or '']}")

    def visit_Call(self, node: ast.Call) -> ast.AST:
        (argument,) = node.args
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name == "sqrt":
            return ast.BinOp(self.visit(argument), ast.Pow(), ast.Constant(0.5))
        if name != "floor":
            raise ValueError(f"{name} is written in no source")
        if isinstance(argument, ast.BinOp) and isinstance(argument.op, ast.Div):
            return ast.BinOp(self.visit(argument.left), ast.FloorDiv(), self.visit(argument.right))
        return ast.Call(ast.Name("int"), [self.visit(argument)], [])
