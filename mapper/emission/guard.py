"""The last look at a generated file before anyone gets it: it parses, imports what is allowed, names what is defined."""

from __future__ import annotations

import ast

from mapper.errors import FlowError

_MODULES = frozenset(
    {"__future__", "math", "dataclasses", "pathlib", "torch", "torch.nn.functional", "safetensors.torch"}
)
_BUILTINS = frozenset({
    "super", "range", "len", "zip", "enumerate", "tuple", "list", "dict", "str", "int", "float", "bool", "None", "True", "False",
    "FileNotFoundError", "RuntimeError", "ValueError", "sorted", "min", "max", "sum", "isinstance", "reversed", "abs", "round", "set",
    "any", "all", "next", "object", "complex", "getattr", "map", "slice",
})  # fmt: skip
_DUNDERS = frozenset({"__init__", "__future__"})


def check_source(text: str) -> None:
    """Raises FlowError if the text is more than classes, functions and what they may name.

    Names and values from a checkpoint enter the text as checked identifiers and escaped literals; this holds the
    rest of the writer, and every operation, to the same.
    """
    try:
        tree = ast.parse(text)
    except (SyntaxError, RecursionError, MemoryError, ValueError) as error:
        raise FlowError(f"the generated source does not parse: {error}") from None
    defined = {node.name for node in ast.walk(tree) if isinstance(node, (ast.ClassDef, ast.FunctionDef))}
    bound = set(defined)
    used: dict[str, int] = {}
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            _check_import(node)
            bound.update((alias.asname or alias.name).partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.Name):
            if isinstance(node.ctx, ast.Load):
                used.setdefault(node.id, node.lineno)
            else:
                bound.add(node.id)
        elif isinstance(node, ast.arg):
            bound.add(node.arg)
        elif isinstance(node, ast.Attribute) and node.attr.startswith("__") and node.attr not in _DUNDERS:
            raise FlowError(f"line {node.lineno} of the generated source reads {node.attr!r}")
    for name, line in used.items():
        if name not in bound and name not in _BUILTINS:
            raise FlowError(f"line {line} of the generated source reads {name!r}, which nothing defines")


def _check_import(node: ast.Import | ast.ImportFrom) -> None:
    names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
    for name in names:
        if name not in _MODULES:
            raise FlowError(f"line {node.lineno} of the generated source imports {name!r}")
