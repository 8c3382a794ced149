"""Which arguments an operation takes the measures of and nothing else: a shape is no data."""

from __future__ import annotations

import ast
from functools import cache

from mapper.operations.registry import operation_names, operation_signature, operation_source

# Attributes and methods that tell of a value, not what is in it.
MEASURES = ("shape", "device", "dtype", "ndim")


@cache
def measured_alone(name: str) -> frozenset[int | str]:
    """The places and the names of an operation's parameters of which it reads measures alone; none of what is no operation."""
    if name not in operation_names():
        return frozenset()
    tree = ast.parse(operation_source(name))
    measured = {
        id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr in MEASURES
    }
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    read = {node.id for node in names if id(node) not in measured}
    told = {node.id for node in names if id(node) in measured}
    parameters = operation_signature(name).parameters
    found = [(at, word) for at, word in enumerate(parameters) if word in told and word not in read]
    return frozenset(key for pair in found for key in pair)
