"""Weights in fewer bits than torch computes with: recognised, and refused but for those that flows unpack."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from mapper.architecture import Leaf
from mapper.errors import cut, shorten
from mapper.inference.config import Config
from mapper.inference.names import Names
from mapper.naming.members import is_module, odd_dtype
from mapper.rulebook.values import shown

BOTH = " & "
_ADVICE = "dequantise them first, or take the checkpoint that they were made from"


def quantised(config: Config, names: Names) -> str:
    """Why no flow may compute with the weights: the config or the names say that they are quantised; else ""."""
    for field in config.vocabulary.quantised_fields:
        value = config.data.get(field)
        if value:
            method = value.get("quant_method", _bits(value)) if isinstance(value, Mapping) else value
            if method in config.vocabulary.unpacked:
                continue
            return f"the weights are quantised (config {field}: {cut(shown(method), 40)}); {_ADVICE}"
    for pattern, method in config.vocabulary.quantised.items():
        if all(_is_stored(names, part) for part in pattern.split(BOTH)):
            return f"the weights are quantised ({method}: the names have {shorten(pattern)}); {_ADVICE}"
    return ""


def _is_stored(names: Names, part: str) -> bool:
    """Whether a tensor is called so: a module that has the name (`W_q.weight`) says nothing."""
    last = tuple(part.split("."))
    return names.has(part) and any(words[-len(last) :] == last for words in names.tensors())


def _bits(value: Mapping[str, Any]) -> str:
    """What a config says that names no method: MLX's has numbers alone."""
    bits = value.get("bits")
    return f"{bits} bits" if type(bits) is int else "by no named method"


def odd_types(leaves: Iterable[Leaf]) -> str:
    """The same for a module of the model whose tensors are integers, complex, or of a few bits."""
    for leaf in leaves:
        name = odd_dtype(leaf.kind, leaf.tensors) if leaf.role is not None else ""
        if name:
            stored = leaf.tensors[name].dtype
            return f"{leaf.place}.{name} is stored as {stored}, which no flow computes with: quantised weights? {_ADVICE}"
    return ""


def several_types(leaves: Iterable[Leaf]) -> list[str]:
    """A finding where modules of the model are stored in different floating-point types."""
    modules = [leaf for leaf in leaves if leaf.role is not None and is_module(leaf.kind)]
    kinds = Counter(info.dtype for leaf in modules for info in leaf.tensors.values() if info.dtype[0] in "FB")
    if len(kinds) < 2:
        return []
    most = kinds.most_common(1)[0][0]
    place, name, other = next(
        (leaf.place, name, info.dtype)
        for leaf in modules
        for name, info in leaf.tensors.items()
        if info.dtype != most and info.dtype in kinds
    )
    return [
        f"the weights are of several types, most are {most}: {place}.{name} is {other}; cast them to one (--dtype)"
    ]
