"""Flow rules as tests write them, and statements as text."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import Any

from mapper.emission.expressions import expression
from mapper.rulebook.flows import FlowRule


def flow_rule(body: str, name: str = "layer/x", **given: Any) -> FlowRule:
    """A rule whose body starts in line 3 of its file; everything else as its field says, or empty."""
    fields: dict[str, Any] = {
        "doc": "what it does", "takes": ("x",), "needs": (), "options": (), "when": {}, "shapes": {}, "leaves": {},
        "values": {}, "file": f"flows/{name}.yaml", "line": 3,
    }  # fmt: skip
    return FlowRule(name=name, body=body, **{**fields, **given})


def written(statements: Iterable[ast.stmt]) -> list[str]:
    """Statements as text, what a loop runs indented by two."""
    rows = []
    for node in statements:
        if isinstance(node, ast.Assign):
            rows.append(f"{expression(node.targets[0])} = {expression(node.value)}")
        elif isinstance(node, ast.For):
            rows.append(f"for {expression(node.target)} in {expression(node.iter)}:")
            rows += [f"  {row}" for row in written(node.body)]
        elif isinstance(node, ast.Return) and node.value is not None:
            rows.append(f"return {expression(node.value)}")
        elif isinstance(node, ast.Expr):
            rows.append(expression(node.value))
        else:
            raise TypeError(type(node).__name__)
    return rows
