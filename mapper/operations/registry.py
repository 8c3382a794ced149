"""The operations as text: names, source, signatures, and which others each one needs. Imports no torch.

All but the source is kept for the next process: a reading needs it of each operation that its flows name. The source
goes into generated files, so it is read from this package alone.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping
from dataclasses import astuple
from functools import lru_cache
from pathlib import Path
from typing import Any

from mapper._dataclass import dataclass
from mapper._parsed import Cache, Kept, SourceFile, digest, keep

_HERE = Path(__file__).resolve().parent
_OTHERS = ("__init__", "registry")  # files here that hold no operations


@dataclass(frozen=True)
class Signature:
    """What a flow may pass to an operation and what it gets back."""

    name: str
    topic: str  # the file, without its suffix
    parameters: tuple[str, ...]
    required: int  # the first so many parameters have no default
    annotations: tuple[str, ...]  # of the parameters, as written
    returns: str  # as written: "Tensor", "tuple[Tensor, Tensor]", "" for a module
    arity: int  # values returned: 1, or the length of the tuple; 0 for a list of unknown length
    is_module: bool  # a class of leaves.py


@dataclass(frozen=True)
class _Operation:
    lines: tuple[int, int]  # of its file: the first, and the one after the last
    calls: tuple[str, ...]
    signature: Signature


def operation_names() -> tuple[str, ...]:
    """Names of all operations, sorted."""
    return _names()


@lru_cache(maxsize=1)
def _names() -> tuple[str, ...]:
    return tuple(sorted(_operations()))


def operation_source(name: str) -> str:
    """Source text of one operation, without a trailing newline. Raises KeyError for an unknown name."""
    operation = _operations()[name]
    start, end = operation.lines
    return "\n".join(_lines(operation.signature.topic)[start:end])


def operation_calls(name: str) -> tuple[str, ...]:
    """Other operations that one needs directly, in order of first use."""
    return _operations()[name].calls


def operation_signature(name: str) -> Signature:
    """Parameters and return type of one operation; of its constructor where it is a module."""
    return _operations()[name].signature


def operations_needed(names: list[str]) -> tuple[str, ...]:
    """The names and all that they need, each after what it calls."""
    ordered: list[str] = []
    seen: set[str] = set()

    def add(name: str) -> None:
        if name not in seen:
            seen.add(name)
            for other in operation_calls(name):
                add(other)
            ordered.append(name)

    for name in names:
        add(name)
    return tuple(ordered)


@lru_cache
def _lines(topic: str) -> list[str]:
    return (_HERE / f"{topic}.py").read_text(encoding="utf-8").splitlines()


class _Operations(Mapping[str, _Operation]):
    """Those of an index by name, each made when it is first asked for."""

    def __init__(self, index: Mapping[str, Any]):
        self._index = index
        self._made: dict[str, _Operation] = {}

    def __getitem__(self, name: str) -> _Operation:
        if name not in self._made:
            self._made[name] = _restored(name, *self._index[name])
        return self._made[name]

    def __contains__(self, name: object) -> bool:
        return name in self._index

    def __iter__(self) -> Iterator[str]:
        return iter(self._index)

    def __len__(self) -> int:
        return len(self._index)


@lru_cache(maxsize=1)
def _operations() -> Mapping[str, _Operation]:
    return _Operations(kept_operations().index)


def kept_operations() -> Kept:
    """All but the source of every operation: what an earlier process kept, or, where a file has changed, parsed anew."""
    files = [_file(path) for path in sorted(_HERE.glob("*.py")) if path.stem not in _OTHERS]
    cache = Cache("operations", str(_HERE), files, [_file(Path(__file__))])
    if kept := cache.read():
        return kept
    texts = [Path(file.path).read_text(encoding="utf-8") for file in files]
    text = digest(part for file, text in zip(files, texts, strict=True) for part in (file.label, text))
    kept = next((other for other in cache.others() if other.text == text), None)
    if kept is None:
        found = _parse([file.label for file in files])
        kept = keep([], text, cache.readers_digest, {name: _kept(item) for name, item in found.items()})
    cache.write(kept)
    return kept


def _file(path: Path) -> SourceFile:
    info = path.stat()
    return SourceFile(str(path), path.stem, info.st_size, info.st_mtime_ns)


def _kept(operation: _Operation) -> list[Any]:
    _, *signature = astuple(operation.signature)
    return [operation.lines, operation.calls, *signature]


def _restored(name: str, lines: list[int], calls: list[str], *signature: Any) -> _Operation:
    topic, parameters, required, annotations, *rest = signature
    restored = Signature(name, topic, tuple(parameters), required, tuple(annotations), *rest)
    return _Operation((lines[0], lines[1]), tuple(calls), restored)


def _parse(topics: list[str]) -> dict[str, _Operation]:
    found: dict[str, tuple[str, ast.FunctionDef | ast.ClassDef]] = {}
    for topic in topics:
        for node in ast.parse("\n".join(_lines(topic))).body:
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                if node.name in found:
                    raise ValueError(f"operation '{node.name}' is in both {found[node.name][0]} and {topic}")
                found[node.name] = (topic, node)
    return {
        name: _Operation(_extent(node), _calls(node, found.keys()), _signature(topic, node))
        for name, (topic, node) in found.items()
    }


def _extent(node: ast.FunctionDef | ast.ClassDef) -> tuple[int, int]:
    assert node.end_lineno is not None  # whatever was parsed from text has it
    return node.lineno - 1, node.end_lineno


def _calls(node: ast.FunctionDef | ast.ClassDef, names: Collection[str]) -> tuple[str, ...]:
    used = [n for n in ast.walk(node) if isinstance(n, ast.Name) and n.id in names and n.id != node.name]
    used.sort(key=lambda n: (n.lineno, n.col_offset))
    return tuple(dict.fromkeys(n.id for n in used))


def _signature(topic: str, node: ast.FunctionDef | ast.ClassDef) -> Signature:
    is_module = isinstance(node, ast.ClassDef)
    function = node if isinstance(node, ast.FunctionDef) else _constructor(node)
    arguments = [*function.args.posonlyargs, *function.args.args][1 if is_module else 0 :]
    returns = "" if is_module or function.returns is None else ast.unparse(function.returns)
    return Signature(
        name=node.name,
        topic=topic,
        parameters=tuple(argument.arg for argument in arguments),
        required=len(arguments) - len(function.args.defaults),
        annotations=tuple(ast.unparse(a.annotation) if a.annotation else "" for a in arguments),
        returns=returns,
        arity=_arity(function.returns),
        is_module=is_module,
    )


def _constructor(node: ast.ClassDef) -> ast.FunctionDef:
    return next(n for n in node.body if isinstance(n, ast.FunctionDef) and n.name == "__init__")


def _arity(returns: ast.expr | None) -> int:
    if isinstance(returns, ast.Subscript) and isinstance(returns.value, ast.Name):
        if returns.value.id == "tuple" and isinstance(returns.slice, ast.Tuple):
            return len(returns.slice.elts)
        if returns.value.id == "list":
            return 0
    return 1
