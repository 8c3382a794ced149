"""Which facts a flow needs for one block: guards decide what the rest of its body reads."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from typing import Any

from mapper.flows.flow import Flow, facts_in
from mapper.flows.language import dotted, is_has, is_option

Has = Callable[[str], bool]
Lookup = Callable[[str], Any]  # raises KeyError for what is unknown


class Needs:
    """Facts in order of first use; an unknown one in a guard makes both of its branches needed."""

    def __init__(self, flow: Flow, has: Has, lookup: Lookup):
        self.has, self.lookup = has, lookup
        self.facts: dict[str, None] = {}
        self.bare: set[str] = (
            set()
        )  # names that stand alone, not before a dot: what is called or passed on whole
        self._block(flow.statements)
        self.facts.update(dict.fromkeys(sorted(flow.leaf_facts)))
        if any(has(role) and has(other) for role, other in flow.rule.ties.items()):
            self.facts["head.tied"] = None

    def _block(self, statements: Iterable[ast.stmt]) -> bool:
        """Reads statements up to a return that is surely reached; whether there was one."""
        for node in statements:
            if isinstance(node, ast.If):
                if self._guarded(node):
                    return True
            elif isinstance(node, ast.For):
                self._read(node.iter)
                self._block(node.body)
            else:
                self._read(node)
                if isinstance(node, ast.Return):
                    return True
        return False

    def _guarded(self, node: ast.If) -> bool:
        holds = self._holds(node.test)
        ends = [self._block(node.body)] if holds is not False else []
        ends += [self._block(node.orelse)] if holds is not True else []
        return all(ends)

    def _holds(self, node: ast.expr) -> bool | None:
        """Whether a guard holds; None where an unknown fact decides."""
        if isinstance(node, ast.BoolOp):
            stop = isinstance(node.op, ast.Or)
            unsure = False
            for value in node.values:
                holds = self._holds(value)
                if holds is stop:
                    return stop
                unsure = unsure or holds is None
            return None if unsure else not stop
        if isinstance(node, ast.UnaryOp):
            holds = self._holds(node.operand)
            return None if holds is None else not holds
        if is_has(node):
            return self.has(dotted(node.args[0]) or "")  # type: ignore[attr-defined]
        if is_option(node):
            return None
        if isinstance(node, ast.Compare):
            known, value = self._fact(node.left)
            return _compares(node.ops[0], value, node.comparators[0].value) if known else None  # type: ignore[attr-defined]
        known, value = self._fact(node)
        return bool(value) if known else None

    def _fact(self, node: ast.expr) -> tuple[bool, Any]:
        name = (dotted(node) or "").removeprefix("fact.")
        self.facts[name] = None
        try:
            return True, self.lookup(name)
        except KeyError:
            return False, None

    def _read(self, node: ast.AST) -> None:
        self.facts.update(dict.fromkeys(facts_in(node)))
        for child in ast.walk(node):
            if isinstance(child, ast.Call) and dotted(child.func) == "activation":
                self.facts["activation"] = None
        self._bare(node)

    def _bare(self, node: ast.AST) -> None:
        if isinstance(node, ast.Name):
            self.bare.add(node.id)
        elif not (isinstance(node, ast.Attribute) and dotted(node)):
            for child in ast.iter_child_nodes(node):
                self._bare(child)


def _compares(operator: ast.cmpop, left: Any, right: Any) -> bool:
    if isinstance(operator, (ast.Eq, ast.NotEq)):
        return (left == right) is isinstance(operator, ast.Eq)
    if isinstance(left, bool) or not isinstance(left, (int, float)):
        return False
    return left > right if isinstance(operator, ast.Gt) else left < right
