"""The last look at a generated file before anyone gets it: it parses, imports what is allowed, names what is defined."""

from __future__ import annotations

import ast
from functools import lru_cache

from mapper.errors import FlowError
from mapper.flows.language import every

_NAMES = {  # what may be imported from where
    "__future__": frozenset({"annotations"}),
    "dataclasses": frozenset({"dataclass"}),
    "pathlib": frozenset({"Path"}),
    "statistics": frozenset({"NormalDist"}),
    "typing": frozenset({"Any"}),
    "torch": frozenset({"Tensor", "nn"}),
    "safetensors.torch": frozenset({"load_file"}),
}
_MODULES = frozenset({*_NAMES, "math", "torch.nn.functional"})
_BUILTINS = frozenset({
    "super", "property", "range", "len", "zip", "enumerate", "tuple", "list", "dict", "str", "int", "float", "bool", "None", "True", "False",
    "FileNotFoundError", "RuntimeError", "ValueError", "sorted", "min", "max", "sum", "isinstance", "reversed", "abs", "round", "set",
    "any", "all", "next", "map", "slice",
})  # fmt: skip
_REFUSED = frozenset({
    "eval", "exec", "compile", "open", "globals", "locals", "vars", "getattr", "setattr", "delattr", "breakpoint", "exit",
    "quit", "memoryview", "__import__", "__builtins__",
})  # fmt: skip
_DUNDERS = frozenset({"__init__", "__future__", "__call__"})
# What files, networks and processes are reached through; the rest of torch computes.
_TORCH_REFUSED = frozenset({
    "load", "save", "hub", "ops", "serialization", "utils", "package", "jit", "classes", "multiprocessing", "distributed", "from_file",
    "import_ir_module", "library", "_C", "os", "sys", "storage", "onnx",
})  # fmt: skip
_KNOWN = 64  # texts in order that are not looked through again
_TOP_LEVEL = "torch.export.register_dataclass(Output)"


@lru_cache(maxsize=_KNOWN)
def check_source(text: str) -> None:
    """Raises FlowError if the text is more than classes, functions and what they may name.

    Names and values from a checkpoint enter the text as checked identifiers and escaped literals; this holds the
    rest of the writer, and every operation, to the same.
    """
    try:
        tree = ast.parse(text)
    except (SyntaxError, RecursionError, MemoryError, ValueError) as error:
        raise FlowError(f"the generated source does not parse: {error}") from None
    for statement in tree.body:
        _check_top_level(statement)
    nodes = list(every(tree))
    bound = {node.name for node in nodes if isinstance(node, (ast.ClassDef, ast.FunctionDef))}
    used: dict[str, int] = {}
    for node in nodes:
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
        elif isinstance(node, ast.Attribute):
            _check_attribute(node)
    for name, line in used.items():
        if name in _REFUSED or (name not in bound and name not in _BUILTINS):
            raise FlowError(f"line {line} of the generated source reads {name!r}, which nothing defines")


def _check_top_level(node: ast.stmt) -> None:
    """Importing the file runs nothing but definitions."""
    if isinstance(node, (ast.Import, ast.ImportFrom, ast.ClassDef, ast.FunctionDef)):
        return
    if isinstance(node, ast.Expr) and (
        isinstance(node.value, ast.Constant) or ast.unparse(node) == _TOP_LEVEL
    ):
        return
    if isinstance(node, ast.Assign) and _is_table(node.value):
        return
    raise FlowError(f"line {node.lineno} of the generated source is no definition")


def _is_table(node: ast.expr) -> bool:
    """Whether it is a dict of literals: the table of renamed words."""
    return isinstance(node, ast.Dict) and all(
        isinstance(part, ast.Constant) for part in (*node.keys, *node.values)
    )


def _check_attribute(node: ast.Attribute) -> None:
    is_torch = isinstance(node.value, ast.Name) and node.value.id == "torch"
    if (node.attr.startswith("__") and node.attr not in _DUNDERS) or (
        is_torch and node.attr in _TORCH_REFUSED
    ):
        raise FlowError(f"line {node.lineno} of the generated source reads {node.attr!r}")


def _check_import(node: ast.Import | ast.ImportFrom) -> None:
    names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
    for name in names:
        if name not in _MODULES:
            raise FlowError(f"line {node.lineno} of the generated source imports {name!r}")
    if isinstance(node, ast.ImportFrom):
        for alias in node.names:
            if alias.name not in _NAMES.get(node.module or "", ()):
                raise FlowError(f"line {node.lineno} of the generated source imports {alias.name!r}")
