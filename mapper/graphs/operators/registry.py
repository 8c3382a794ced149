"""Which function computes which operator in which versions, read from the source: no torch, and the text is what is printed."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from mapper import limits

_HERE = Path(__file__).resolve().parent
_PACKAGE = "mapper.graphs.operators."
_FOREIGN: dict[str, str] = {}  # files of others with operators: module -> path
Made = TypeVar("Made", bound=Callable[..., Any])


def operator(
    name: str, *, since: int = 1, until: int | None = None, domain: str = ""
) -> Callable[[Made], Made]:
    """Marks the function that computes an operator in the versions from `since` to `until` of its domain."""

    def mark(function: Made) -> Made:
        if not function.__module__.startswith(_PACKAGE):
            _FOREIGN[function.__module__] = inspect.getfile(function)
            _parsed.cache_clear()
        return function

    return mark


@dataclass(frozen=True)
class Parameter:
    """What a function takes."""

    name: str
    annotation: str  # as written
    default: str | None  # as written; None: it must be given
    kind: str  # "input", "inputs" for all that are left, "attribute"

    @property
    def takes_ints(self) -> bool:
        """Whether Python's own whole numbers may be given."""
        return "int" in self.annotation and self.kind == "input"

    @property
    def takes_floats(self) -> bool:
        return "float" in self.annotation and self.kind == "input"


@dataclass(frozen=True)
class Operator:
    """One function that computes an operator."""

    name: str
    domain: str
    since: int
    until: int
    function: str
    file: str
    parameters: tuple[Parameter, ...]

    @property
    def least(self) -> int:
        """How many inputs must be given."""
        return sum(one.kind == "input" and one.default is None for one in self.parameters)

    def parameter(self, name: str) -> Parameter | None:
        return next((one for one in self.parameters if one.name == name and one.kind == "attribute"), None)


@dataclass(frozen=True)
class _File:
    text: str
    functions: dict[str, ast.FunctionDef]
    imports: dict[str, str]  # name -> file of this package
    operators: tuple[Operator, ...]


def find(name: str, domain: str, version: int) -> Operator | None:
    """The function for an operator at a version of its domain; None where there is none."""
    found = [one for one in _index().get((domain, name), ()) if one.since <= version <= one.until]
    return found[-1] if found else None


def known(name: str, domain: str) -> list[Operator]:
    """All functions for an operator, whatever the version."""
    return list(_index().get((domain, name), ()))


def _index() -> dict[tuple[str, str], list[Operator]]:
    return _parsed()[1]


@lru_cache(maxsize=1)
def _parsed() -> tuple[dict[str, _File], dict[tuple[str, str], list[Operator]]]:
    paths = [*sorted(map(str, _HERE.glob("*.py"))), *_FOREIGN.values()]
    files = {path: _file(path) for path in paths}
    index: dict[tuple[str, str], list[Operator]] = {}
    for file in files.values():
        for one in file.operators:
            index.setdefault((one.domain, one.name), []).append(one)
    return files, index


def _file(path: str) -> _File:
    text = Path(path).read_text(encoding="utf-8")
    tree = ast.parse(text)
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    imports = {
        alias.name: str(_HERE / f"{node.module.removeprefix(_PACKAGE)}.py")
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith(_PACKAGE)
        for alias in node.names
    }
    operators = tuple(one for node in functions.values() for one in _marked(node, path))
    return _File(text, functions, imports, operators)


def _marked(node: ast.FunctionDef, path: str) -> Iterator[Operator]:
    for mark in node.decorator_list:
        if not (
            isinstance(mark, ast.Call) and isinstance(mark.func, ast.Name) and mark.func.id == "operator"
        ):
            continue
        name = ast.literal_eval(mark.args[0])
        said = {word.arg: ast.literal_eval(word.value) for word in mark.keywords}
        until = said.get("until") or (limits.OPSET if not said.get("domain") else 2**31)
        yield Operator(
            name,
            said.get("domain", ""),
            said.get("since", 1),
            until,
            node.name,
            path,
            tuple(_parameters(node)),
        )


def _parameters(node: ast.FunctionDef) -> Iterator[Parameter]:
    arguments = node.args
    defaults: list[ast.expr | None] = [None] * (len(arguments.args) - len(arguments.defaults))
    for one, default in zip(arguments.args, [*defaults, *arguments.defaults], strict=True):
        yield Parameter(one.arg, _text(one.annotation), _text(default) if default else None, "input")
    if arguments.vararg is not None:
        yield Parameter(arguments.vararg.arg, _text(arguments.vararg.annotation), None, "inputs")
    for one, given in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        yield Parameter(one.arg, _text(one.annotation), _text(given) if given else None, "attribute")


def _text(node: ast.expr | None) -> str:
    return ast.unparse(node) if node is not None else ""


def definition(file: str, name: str) -> ast.FunctionDef:
    """The syntax of a function."""
    return _parsed()[0][file].functions[name]


def sources(wanted: dict[str, str]) -> list[str]:
    """The texts of functions, name -> file, and of what they call, each after what it needs."""
    rows: list[str] = []
    for name, file in needed(wanted).items():
        held = _parsed()[0][file]
        node = held.functions[name]
        rows.append("\n".join(held.text.splitlines()[node.lineno - 1 : node.end_lineno]))
    return rows


def needed(wanted: dict[str, str]) -> dict[str, str]:
    """Functions, name -> file, and those that they call, each after what it needs."""
    found: dict[str, str] = {}
    open_: set[str] = set()

    def add(name: str, file: str) -> None:
        if name in open_:
            return
        open_.add(name)
        held = _parsed()[0][file]
        for inner in ast.walk(held.functions[name]):
            if isinstance(inner, ast.Name) and inner.id in held.functions:
                add(inner.id, file)
            elif isinstance(inner, ast.Name) and inner.id in held.imports and inner.id != "operator":
                add(inner.id, held.imports[inner.id])
        found[name] = file

    for name, file in wanted.items():
        add(name, file)
    return found


def has_functions(file: str, names: set[str]) -> bool:
    """Whether one of the names is a function that the file defines or takes from another."""
    held = _parsed()[0][file]
    return any(name in held.functions or name in held.imports for name in names)
