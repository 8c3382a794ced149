"""The values of what a flow says of the arguments of a leaf, by the sizes that are known."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from mapper.architecture import Fact, Leaf
from mapper.errors import FlowError, shorten
from mapper.flows import arithmetic


def facts_of_leaf(leaf: Leaf) -> Mapping[str, Fact]:
    """The facts of a leaf: what a batch norm adds to the variance is a size of its own, beside that of layer norms."""
    if leaf.kind != "BatchNorm" or "eps" not in leaf.facts:
        return leaf.facts
    return {**leaf.facts, "eps": replace(leaf.facts["eps"], name=f"batch_{leaf.facts['eps'].name}")}


def argument_value(known: Mapping[str, Any], node: ast.expr) -> Any:
    """The value of a leaf argument; over several kernel extents, one value for each."""
    kernel = known.get("kernel")
    if isinstance(kernel, tuple) and "kernel" in arithmetic.names(node):
        return tuple(_calculated(node, {**known, "kernel": extent}) for extent in kernel)
    return _calculated(node, known)


def _calculated(node: ast.expr, known: Mapping[str, Any]) -> Any:
    """The value of an argument. Raises FlowError beyond what sizes can be: whoever wrote it may mean harm."""
    try:
        return arithmetic.evaluate(node, known)
    except ValueError as error:
        raise FlowError(f"{shorten(ast.unparse(node))}: {error}") from error
