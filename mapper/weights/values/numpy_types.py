"""NumPy's types as JSON and back: byte order, fields, units, the types of ml_dtypes. No type that holds objects."""

from __future__ import annotations

import importlib
import re
from typing import Any

import numpy as np

from mapper import limits
from mapper.errors import FormatError, UnsupportedLeaf
from mapper.weights.values.plain import shorten_json

_EXTENSION = "ml_dtypes"
# What `numpy.dtype.str` is for the kinds that are numbers of bytes, or an order and a letter where two letters
# stand for one size (long and long long); not the small language of lists that numpy.dtype takes as well.
_WORD = re.compile(
    r"[<>|](?:[biufcSUVmM][0-9]{0,9}(?:\[[0-9]{0,9}[a-zA-Zμ]{1,7}(?:/[0-9]{1,9})?\])?|[?bBhHiIlLqQpPefdgFDG])"
)


def numpy_type_node(dtype: np.dtype[Any]) -> Any:
    """A type as JSON: a word, or an object with the fields; `UnsupportedLeaf` where it would not come back the same."""
    if dtype.hasobject or not _is_plain(dtype):
        raise UnsupportedLeaf(f"an array of type {dtype} cannot be stored")
    node = _node(dtype, 0)
    try:
        same = numpy_dtype(node)
    except FormatError as error:
        raise UnsupportedLeaf(f"an array of type {dtype} cannot be stored: {error}") from error
    if same != dtype or same.char != dtype.char or same.isalignedstruct != dtype.isalignedstruct:
        raise UnsupportedLeaf(f"an array of type {dtype} cannot be stored")
    return node


def _is_plain(dtype: np.dtype[Any]) -> bool:
    return _is_extension(dtype) or dtype.kind in "biufcSUmM" or (dtype.kind == "V" and dtype.type is np.void)


def _is_extension(dtype: np.dtype[Any]) -> bool:
    return dtype.type.__module__ == _EXTENSION


def _node(dtype: np.dtype[Any], depth: int) -> Any:
    if depth > limits.TYPE_DEPTH:
        raise UnsupportedLeaf(f"an array type nests over {limits.TYPE_DEPTH} levels")
    if _is_extension(dtype):
        return f"{_EXTENSION}.{dtype.name}"
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return {"base": _node(base, depth + 1), "shape": list(shape)}
    if dtype.fields is None:
        word = dtype.str
        return word if np.dtype(word).char == dtype.char else word[0] + dtype.char
    fields = [_field(name, dtype.fields[name], depth) for name in dtype.names or ()]
    return {"fields": fields, "size": dtype.itemsize, "aligned": dtype.isalignedstruct}


def _field(name: str, entry: Any, depth: int) -> Any:
    if len(entry) > 2 and not isinstance(entry[2], str):
        raise UnsupportedLeaf(f"an array type with the title {entry[2]!r} cannot be stored")
    return [name, _node(entry[0], depth + 1), entry[1], *entry[2:]]


def numpy_dtype(node: Any, depth: int = 0) -> np.dtype[Any]:
    """The type of which `numpy_type_node` made `node`."""
    if depth > limits.TYPE_DEPTH:
        raise FormatError(f"an array type nests over {limits.TYPE_DEPTH} levels")
    if isinstance(node, str) and node.startswith(_EXTENSION + "."):
        return _extension(node.removeprefix(_EXTENSION + "."))
    try:
        dtype = _dtype(node, depth)
    except (TypeError, ValueError, KeyError, OverflowError, MemoryError, SyntaxError) as error:
        if isinstance(error, FormatError):
            raise
        raise FormatError(f"{shorten_json(node)} is no NumPy type: {error}") from error
    if dtype.hasobject or dtype.type is np.object_:
        raise FormatError(f"{shorten_json(node)} is a type that holds objects")
    return dtype


def _dtype(node: Any, depth: int) -> np.dtype[Any]:
    if isinstance(node, str) and _WORD.fullmatch(node):
        return np.dtype(node)
    if isinstance(node, dict) and "fields" in node:
        rows = [_row(row, depth) for row in node["fields"]]
        keys = ("names", "formats", "offsets", "titles")
        spec: dict[str, Any] = {key: [row[at] for row in rows] for at, key in enumerate(keys)}
        if not any(title is not None for title in spec["titles"]):
            del spec["titles"]
        whole: Any = spec | {"itemsize": node.get("size"), "aligned": node.get("aligned") is True}
        return np.dtype(whole)
    if isinstance(node, dict) and "base" in node:
        return np.dtype((numpy_dtype(node["base"], depth + 1), tuple(node["shape"])))
    raise FormatError(f"{shorten_json(node)} is no NumPy type")


def _row(row: Any, depth: int) -> tuple[Any, ...]:
    if not isinstance(row, list) or len(row) not in (3, 4) or not isinstance(row[0], str):
        raise FormatError(f"a field is a name, a type and an offset, not {shorten_json(row)}")
    return (row[0], numpy_dtype(row[1], depth + 1), row[2], row[3] if len(row) == 4 else None)


def _extension(name: str) -> np.dtype[Any]:
    try:
        module = importlib.import_module(_EXTENSION)
    except ImportError as error:
        raise FormatError(f"an array of {name} needs the package {_EXTENSION}; install it") from error
    kind = vars(module).get(name)
    if not isinstance(kind, type) or not issubclass(kind, np.generic):
        raise FormatError(f"{_EXTENSION} {module.__version__} has no type {name!r}")
    return np.dtype(kind)
