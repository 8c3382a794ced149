"""Examples in rule files: a checkpoint's header written short, and what must be read from it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product
from typing import TYPE_CHECKING, Any

from mapper.checkpoint import DTYPE_BYTES, Checkpoint, TensorInfo
from mapper.errors import MapperError, RuleError, listed, shorten
from mapper.rulebook.families import Example, Family

if TYPE_CHECKING:
    from mapper.architecture import Architecture
    from mapper.rulebook.rulebook import Rulebook

_BRACES = re.compile(r"\{([^{}]*)\}")
_RANGE = re.compile(r"(\d{1,6})\.\.(\d{1,6})")
_NAMES = 100_000  # tensors in one example
EXPECTED = (
    "match",
    "family",
    "reading",
    "facts",
    "roles",
    "flows",
    "unmapped",
    "missing",
    "findings",
    "unused",
    "inputs",
)


def expand(pattern: str) -> Iterator[str]:
    """The names that a pattern with brace lists stands for: `{q,k}_proj`, `layer.{0..2}`."""
    pieces = _BRACES.split(pattern)
    choices = [_choices(piece) if at % 2 else [piece] for at, piece in enumerate(pieces)]
    for words in product(*choices):
        yield "".join(words)


def _choices(inside: str) -> list[str]:
    found = _RANGE.fullmatch(inside)
    if found:
        return [str(number) for number in range(int(found[1]), int(found[2]) + 1)]
    return inside.split(",")


def header(example: Example) -> Checkpoint:
    """The checkpoint that an example describes. Raises RuleError."""
    tensors: dict[str, TensorInfo] = {}
    for pattern, entry in example.tensors.items():
        info = _info(entry)
        if info is None:
            raise RuleError(
                f"{example.file}:{example.line}: {shorten(pattern)} needs a shape such as [64, 64], or [64, 64, U8]"
            )
        for name in expand(pattern):
            tensors[name] = info
            if len(tensors) > _NAMES:
                raise RuleError(f"{example.file}:{example.line}: more than {_NAMES:,} tensors in one example")
    return Checkpoint(example.name, "manifest", tensors, example.config)


def _info(entry: Any) -> TensorInfo | None:
    """A shape, behind it a dtype where it is not F32."""
    extents: list[Any] = list(entry) if isinstance(entry, list) else [None]
    dtype = str(extents.pop()) if extents and extents[-1] in DTYPE_BYTES else "F32"
    if not all(type(extent) is int and extent >= 0 for extent in extents):
        return None
    return TensorInfo(tuple(extents), dtype)


def is_near_miss(example: Example) -> bool:
    return example.expect.get("match") is False


def check_example(example: Example, family: Family, rulebook: Rulebook) -> list[str]:
    """What differs from what an example expects; empty where all is as it says."""
    from mapper.inference import infer

    unknown = [key for key in example.expect if key not in EXPECTED]
    if unknown:
        return [f"expect has no {listed(unknown)}; allowed: {', '.join(EXPECTED)}"]
    try:
        architecture = infer(header(example), rulebook)
    except MapperError as error:
        return [] if is_near_miss(example) else [error.in_command()]
    if is_near_miss(example):
        return [f"is read as {family.name}"] if architecture.family == family.name else []
    return list(_differences(example.expect, architecture, family))


def _differences(expect: dict[str, Any], architecture: Architecture, family: Family) -> Iterator[str]:
    wanted = expect.get("family", family.name)
    if architecture.family != wanted:
        yield f"family is {architecture.family!r}, expected {wanted!r}"
    if "reading" in expect and architecture.reading != expect["reading"]:
        reasons = architecture.missing or architecture.findings or architecture.unmapped
        yield f"reading is {architecture.reading}, expected {expect['reading']}: {listed(reasons, 2)}"
    for name, value in expect.get("facts", {}).items():
        yield from _fact(name, value, architecture)
    roles = {str(leaf.place.first()): role_path(leaf.block, leaf.role) for leaf in architecture.leaves}
    for path, role in expect.get("roles", {}).items():
        if roles.get(path) != role:
            yield f"{path} is {roles.get(path)}, expected {role}"
    flows = {block.role: block.flow for block in (architecture.root, *architecture.root.blocks())}
    for role, flow in expect.get("flows", {}).items():
        if flows.get(role) != flow:
            yield f"the flow of {role} is {flows.get(role)}, expected {flow}"
    if "unused" in expect:
        keys = [key for key, _ in architecture.unused]
        if keys != expect["unused"]:
            yield f"unused is {keys}, expected {expect['unused']}"
    if "inputs" in expect and list(architecture.inputs) != expect["inputs"]:
        yield f"inputs are {list(architecture.inputs)}, expected {expect['inputs']}"
    if "unmapped" in expect and architecture.unmapped != expect["unmapped"]:
        yield f"unmapped is {architecture.unmapped[:5]}, expected {expect['unmapped']}"
    for key in ("missing", "findings"):
        yield from _texts(key, expect.get(key), getattr(architecture, key))


def _fact(name: str, value: Any, architecture: Architecture) -> Iterator[str]:
    at, _, bare = name.rpartition(":")
    found = [fact for fact in architecture.facts if fact.name == bare and (not at or at in fact.at)]
    if not any(fact.value == value for fact in found):
        seen = ", ".join(f"{fact.value!r} ({fact.evidence} {fact.source})" for fact in found)
        yield f"{name} is {seen or 'unknown'}, expected {value!r}"


def _texts(key: str, wanted: Any, seen: list[str]) -> Iterator[str]:
    """`missing: [attention.heads]`: as many lines as wanted, each with its text."""
    if wanted is None:
        return
    if len(wanted) != len(seen) or any(text not in line for text, line in zip(wanted, seen, strict=False)):
        yield f"{key} is {seen}, expected {wanted}"


def role_path(block: tuple[tuple[str, Any], ...], role: str | None) -> str | None:
    """`tower.layers.attention.query`; None for a leaf without a role."""
    return ".".join([*(step for step, _ in block), role]) if role else None
