"""What contradicts: config against shapes and names, blocks against each other, fields that no rule read."""

from __future__ import annotations

from mapper.errors import ArchitectureError, listed
from mapper.inference.config import Config
from mapper.inference.facts import Facts
from mapper.inference.known import Known
from mapper.inference.scopes import Scope
from mapper.rulebook.families import Family

_SHOWN = ("shape", "name")  # evidence that the checkpoint itself gives


def check_config(facts: Facts) -> None:
    """ArchitectureError where a field of the config says something else than the checkpoint shows."""
    for scope, name, known in list(facts.used.values()):
        _check(facts, scope, name, known)
    for scope in _towers(facts):
        counted = scope.solved.get("layers")
        if counted:
            facts.use(scope, "layers", counted)
            _check(facts, scope, "layers", counted)


def _towers(facts: Facts) -> list[Scope]:
    found = {id(scope.tower): scope.tower for scope, _, _ in facts.used.values() if scope.tower}
    return list(found.values())


def _check(facts: Facts, scope: Scope, name: str, known: Known) -> None:
    for said in facts.from_config(scope, name):
        if said.problem:
            raise ArchitectureError(said.problem)
        if known.evidence in _SHOWN and said.value != known.value:
            shown = (
                f"the names show {known.value}"
                if known.evidence == "name"
                else f"the checkpoint shows {known.value}"
            )
            raise ArchitectureError(
                f"config {said.source} says {name} is {said.value!r}, but {shown} ({known.source})"
            )


def check_widths(root: Scope) -> None:
    """ArchitectureError where the blocks of one stack have different sizes for what they pass on."""
    seen: dict[tuple[int, str], Known] = {}
    for scope in (root, *root.below()):
        stack = next(
            (outer for outer in scope.up() if outer is outer.tower or outer.block.role.startswith("stages")),
            None,
        )
        for name, known in scope.solved.items():
            if "." in name or known.evidence != "shape" or stack is None:
                continue
            first = seen.setdefault((id(stack), name), known)
            if first.value != known.value:
                raise ArchitectureError(
                    f"{name} is {first.value} in {first.source}, but {known.value} in {known.source}"
                )


def unread_fields(config: Config, family: Family | None) -> list[str]:
    """A finding for the fields that no rule read and none calls irrelevant."""
    fields = config.unread(family.irrelevant if family else (), family.harmless if family else None)
    if not fields:
        return []
    what = "field is" if len(fields) == 1 else "fields are"
    return [f"config {what} read by no rule: {listed(fields)}"]
