"""What an example says must be read from it, against what is read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mapper.architecture import Architecture
from mapper.checkpoint import Checkpoint
from mapper.errors import MapperError, listed
from mapper.inference import infer
from mapper.inference.infer import shown_family
from mapper.rulebook.examples import Example, header, is_near_miss
from mapper.rulebook.families import Family
from mapper.rulebook.rulebook import Rulebook

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


def check_example(example: Example, family: Family, rulebook: Rulebook) -> list[str]:
    """What differs from what an example expects; empty where all is as it says."""
    return read_example(example, family, rulebook)[1]


def read_example(
    example: Example, family: Family, rulebook: Rulebook
) -> tuple[Architecture | None, list[str]]:
    """What an example is read as, if it is, and what differs from what it expects."""
    unknown = [key for key in example.expect if key not in EXPECTED]
    if unknown:
        return None, [f"expect has no {listed(unknown)}; allowed: {', '.join(EXPECTED)}"]
    is_near = is_near_miss(example)
    try:
        checkpoint = header(example)
        if is_near and not _may_be_of(family, checkpoint, rulebook):
            return None, []
        architecture = infer(checkpoint, rulebook)
    except MapperError as error:
        return None, [] if is_near else [error.in_command()]
    if is_near:
        return architecture, [f"is read as {family.name}"] if architecture.family == family.name else []
    return architecture, list(_differences(example.expect, architecture, family))


def _may_be_of(family: Family, checkpoint: Checkpoint, rulebook: Rulebook) -> bool:
    """Whether a reading can have a family: most near misses need not be read to see that theirs has not."""
    match = shown_family(checkpoint, rulebook)
    return match is not None and match.family.name == family.name


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
