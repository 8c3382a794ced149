"""Keys of dicts as JSON and back, and how a place in nested containers is written."""

from __future__ import annotations

from typing import Any

import numpy as np

from mapper import limits
from mapper.errors import FormatError, UnsupportedLeaf, shorten
from mapper.weights.values.described import scalar_node, scalar_value
from mapper.weights.values.plain import plain_node, plain_value, shorten_json


def key_node(key: Any, depth: int = 0) -> Any:
    """A key as JSON: a plain value, a NumPy scalar, or a tuple of keys. The error has no path: the caller knows it."""
    if isinstance(key, np.generic):
        return scalar_node(key)
    if type(key) is not tuple:
        node = plain_node(key)
        if node is NotImplemented:
            raise UnsupportedLeaf(f"a key of type {type(key).__qualname__} cannot be stored")
        return node
    if depth >= limits.KEY_DEPTH:
        raise UnsupportedLeaf(f"a key that nests over {limits.KEY_DEPTH} tuples cannot be stored")
    return {"tuple": [key_node(part, depth + 1) for part in key]}


def key_value(node: Any, depth: int = 0) -> Any:
    """The key of which `key_node` made `node`."""
    value = plain_value(node)
    if value is not NotImplemented:
        return value
    known = node if isinstance(node, dict) else {}
    if "numpy.scalar" in known:
        return scalar_value(known)
    parts = known.get("tuple")
    if not isinstance(parts, list) or depth >= limits.KEY_DEPTH:
        raise FormatError(f"{shorten_json(node)} is not a key that can be read")
    return tuple(key_value(part, depth + 1) for part in parts)


def accessor(key: Any) -> str:
    """A key or an index as it is written behind its container: `['opt']`, `[1]`."""
    if isinstance(key, str):
        return f"[{shorten(key, 200)}]"
    return f"[{shorten(_written(key), 200)[1:-1]}]"


def _written(key: Any) -> str:
    """As Python writes it, where that is short and sure to be harmless; else the type."""
    if type(key) is tuple and len(key) <= 8:
        return "(" + ", ".join(map(_written, key)) + (",)" if len(key) == 1 else ")")
    if type(key) is int and key.bit_length() > 512:  # Python refuses to write the longest ones
        return f"<int of {key.bit_length()} bits>"
    plain = isinstance(key, (str, np.generic)) or (
        type(key) is not tuple and plain_node(key) is not NotImplemented
    )
    return repr(key) if plain else f"<{type(key).__qualname__}>"
