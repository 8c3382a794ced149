"""The JSON document of `mapper inspect --json`; `schema.json` beside this file describes it.

Every leaf and block appears once for each of its instances, under concrete paths. The text is put together from one
template for each folded leaf or block, because a checkpoint with 100,000 tensors has a few dozen of those.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, product
from json.encoder import encode_basestring_ascii as quote
from typing import Any

from mapper.architecture import Architecture, Block, Fact, Leaf, Place, Question
from mapper.checkpoint import TensorInfo


def as_json(architecture: Architecture) -> str:
    """The document: one line for each leaf, block, fact and finding; ends in a newline."""
    checkpoint = architecture.checkpoint
    head = {
        "source": checkpoint.source,
        "family": architecture.family,
        "towers": architecture.towers,
        "reading": architecture.reading or None,
        "what": architecture.what or None,
        "tensors": len(checkpoint.tensors),
        "parameters": checkpoint.parameters,
        "bytes": sum(size for _, size in checkpoint.stored().values()),
        "dtypes": _dtypes(checkpoint.tensors.values()),
        "rules": architecture.rules,
        "inputs": architecture.inputs,
    }
    lists = {
        "leaves": _leaves(architecture.leaves, checkpoint.packed),
        "blocks": chain(_blocks(architecture.root), _shown(architecture), _norms(architecture.leaves)),
        "facts": (_dump(_fact(fact)) for fact in architecture.facts),
        "findings": map(_dump, [*architecture.findings, *architecture.missing]),
        "questions": (_dump(_question(item)) for item in architecture.questions),
        "notes": map(_dump, [*checkpoint.notes, *architecture.notes]),
        "unused": (_dump({"key": key, "why": why}) for key, why in architecture.unused),
        "unmapped": map(quote, architecture.unmapped),
        "parts": (
            f'{{"part": {quote(name)}, "report": {as_json(part).rstrip()}}}'
            for name, part in architecture.parts.items()
        ),
    }
    if architecture.forward:
        lists["forward"] = map(quote, architecture.forward)
    fields = [f'"{name}": {_dump(value)}' for name, value in head.items()]
    fields += [_list(name, items) for name, items in lists.items()]
    return "{" + ",\n ".join(fields) + "}\n"


def _list(name: str, items: Iterator[str]) -> str:
    text = ",\n  ".join(items)
    return f'"{name}": [\n  {text}\n ]' if text else f'"{name}": []'


def _dump(value: Any) -> str:
    return json.dumps(finite(value), allow_nan=False)


def finite(value: Any) -> Any:
    """`value` with infinities and NaN as text: JSON has no numbers for them, but configs hold them."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    return value


def _fact(fact: Fact) -> dict[str, Any]:
    file, _, line = fact.rule.rpartition(":")
    return {
        "name": fact.name,
        "value": fact.value,
        "at": fact.at,
        "evidence": fact.evidence,
        "source": fact.source,
        "file": file or None,
        "line": int(line) if file else None,
    }


def _question(question: Question) -> dict[str, Any]:
    return {
        "fact": question.fact,
        "at": question.at,
        "candidates": list(question.candidates),
        "set": question.set,
        "why": question.why,
        "doc": question.doc,
    }


def _dtypes(tensors: Iterable[TensorInfo]) -> dict[str, int]:
    """How many tensors have each dtype, the most frequent first."""
    return dict(Counter(info.dtype for info in tensors).most_common())


def _leaves(leaves: list[Leaf], packed: Mapping[str, tuple[str, int]]) -> Iterator[str]:
    for leaf in leaves:
        shapes = {name: list(info.shape) for name, info in leaf.tensors.items()}
        dtypes = {name: info.dtype for name, info in leaf.tensors.items()}
        rest = f'"kind": {quote(leaf.kind)}, "tensors": {json.dumps(shapes)}, "dtypes": {json.dumps(dtypes)}'
        size = sum(info.bytes for info in leaf.tensors.values())
        for path in leaf.place.expand():
            size = _stored(leaf, path, packed) if packed else size
            yield f'{{"path": {quote(path)}, {rest}, "bytes": {size}}}'


def _stored(leaf: Leaf, path: str, packed: Mapping[str, tuple[str, int]]) -> int:
    """Bytes of the tensors of one instance of a leaf, as they are stored."""
    keys = {
        f"{path}.{name}" if name and leaf.place else name or path: info for name, info in leaf.tensors.items()
    }
    return sum(packed[key][1] if key in packed else info.bytes for key, info in keys.items())


def _blocks(block: Block, layer: Place | None = None) -> Iterator[str]:
    yield from _instances(block, layer)
    inner = block.home if block.kind == "layer" else layer
    for value in block.roles.values():
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, Block):
                yield from _blocks(item, inner)


def _shown(architecture: Architecture) -> Iterator[str]:
    """Folders that are blocks by what they hold, each in the layer around it."""
    layers = {block.home for block in architecture.root.blocks() if block.kind == "layer"}
    for block in architecture.shown_blocks():
        around = (Place(block.home[:length]) for length in range(len(block.home) - 1, 0, -1))
        yield from _instances(block, next((place for place in around if place in layers), None))


def _norms(leaves: list[Leaf]) -> Iterator[str]:
    """Each norm is a block of its own, whichever block's role it has: a layer's norm belongs to no inner block."""
    for leaf in leaves:
        if not leaf.kind.endswith("Norm"):
            continue
        depth = _layer_depth(leaf)
        for words in _expand(leaf.place):
            path, above = quote(".".join(words)), quote(".".join(words[:depth])) if depth else "null"
            yield f'{{"path": {path}, "kind": "norm", "layer": {above}, "roles": {{"norm": {path}}}}}'


def _layer_depth(leaf: Leaf) -> int:
    """How many words lead to the innermost list element that the leaf's block is in; 0 outside of lists."""
    indices = [numbers for _, numbers in leaf.block if numbers is not None]
    return max((at + 1 for at, part in enumerate(leaf.place) if part in indices), default=0)


def _instances(block: Block, layer: Place | None) -> Iterator[str]:
    roles = [(quote(role), *_paths(value, block.home)) for role, value in block.roles.items()]
    roles = [role for role in roles if role[1]]
    kind, depth = quote(block.kind), len(layer) if layer is not None else 0
    for words in _expand(block.home):
        path = ".".join(words)
        above = quote(".".join(words[:depth])) if depth else "null"
        below = path + "." if path else ""
        named = ", ".join(f"{role}: {_role(below, path, ends, many)}" for role, ends, many in roles)
        yield f'{{"path": {quote(path)}, "kind": {kind}, "layer": {above}, "roles": {{{named}}}}}'


def _role(below: str, path: str, ends: list[str], many: bool) -> str:
    paths = [quote(below + end if end else path) for end in ends]
    return f"[{', '.join(paths)}]" if many else paths[0]


def _paths(value: Any, home: Place) -> tuple[list[str], bool]:
    """The paths of a role's leaves below one instance of the block, and whether they are a list; no blocks."""
    leaves = [item for item in (value if isinstance(value, list) else [value]) if isinstance(item, Leaf)]
    ends = [".".join(words) for leaf in leaves for words in _expand(leaf.place[len(home) :])]
    return ends, isinstance(value, list) or len(ends) > 1


def _expand(place: tuple[str | tuple[int, ...], ...]) -> Iterator[tuple[str, ...]]:
    return product(*((part,) if isinstance(part, str) else tuple(map(str, part)) for part in place))
