"""What was renamed is read again, from names, shapes and settings alone, and must be the same model."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator
from typing import Any

from mapper.architecture import Architecture, Leaf, Question
from mapper.checkpoint import Checkpoint, TensorInfo
from mapper.errors import ArchitectureError, cut
from mapper.inference import infer
from mapper.weights.renaming.arranged import arranged_parts, parts_of
from mapper.weights.renaming.known import Said, facts_by_role, facts_of_parts
from mapper.weights.renaming.settings import OtherModel

# Facts of how something is stored, which renaming itself changes, and those that are seen in what is stored.
OFFSET = "norm.offset"
_STYLE = "rotary.style"
_FUSED = "attention.fused"
_OF_STORAGE = (_FUSED, _STYLE, "head.tied", "norm.kind", OFFSET)
_OFFSET_FORM = "offset"  # of a norm that scales by 1 + weight

_RULES = (
    "rule",
    "default",
)  # evidence of facts that no file says: what asks for them decides whether they are known
_SHOWN = 60  # characters of a value

Values = dict[tuple[tuple[str, ...], str], set[str]]


def read_back(
    label: str,
    tensors: dict[str, TensorInfo],
    config: dict[str, Any] | None,
    source: Architecture,
    *,
    free: Collection[str] = (),
    asks: bool = False,
    rotary: str = "",
    as_stored: bool = False,
) -> dict[str, Any]:
    """Facts that are left to whoever reads it, where the library `asks`: it keeps no settings. Raises OtherModel.

    `label` is what to call the library, `free` are facts that may be others there, `rotary` is how the rows of queries
    and keys were laid for it. `as_stored`: its tensors are those of the source, whose rows are not laid anew.
    """
    checkpoint = Checkpoint(label, "renamed", tensors, config)
    found = _read(checkpoint, source, {}, label)
    known = _values(source) | _offsets(source)
    hints: dict[str, Any] = {}
    for _ in range(_ROUNDS):
        own = (question for question in found.questions if question.fact not in free)  # others differ there
        asked = {question.name: _answer(question, known, label) for question in own}
        if not asked:
            break
        if not asks:
            raise OtherModel(f"{label} has no setting for {next(iter(asked))}", fact=next(iter(asked)))
        hints |= asked
        found = _read(checkpoint, source, hints, label)
    if found.reading == "skeleton" or found.missing:
        why = [*found.missing, *found.findings, "it is a skeleton"][0]
        raise OtherModel(f"{label} would not be read as this model: {why}")
    laid = {_FUSED, _STYLE} if as_stored else set()
    _compare(label, source, found, {*free, *_OF_STORAGE} - laid)
    styles = {value for (_, name), values in _values(found).items() if name == _STYLE for value in values}
    if rotary and not styles <= {json.dumps(rotary), "null"}:
        raise OtherModel(
            f"{label} would be read with rotary pairs as {_shown(styles)}, not {rotary}", fact=_STYLE
        )
    return hints


def _read(checkpoint: Checkpoint, source: Architecture, hints: dict[str, Any], label: str) -> Architecture:
    try:
        return infer(checkpoint, source.rulebook, hints=hints)
    except ArchitectureError as error:
        raise OtherModel(f"{label} would not be read as this model: {error.in_command()}") from None


_ROUNDS = 4  # an answer may lead to another question


def _answer(question: Question, known: Values, label: str) -> Any:
    values = {value for (role, name), found in known.items() if name == question.fact for value in found}
    if question.part:
        values = {
            value
            for (role, name), found in known.items()
            if name == question.fact and question.part in role
            for value in found
        }
    if len(values) != 1:
        raise OtherModel(f"{label} would not be read as this model: {question}")
    return json.loads(values.pop())


def _values(architecture: Architecture) -> Values:
    return _by_place(facts_by_role(architecture))


def _by_place(said: Iterable[Said]) -> Values:
    found: Values = {}
    for role, name, value in said:
        found.setdefault((role, name), set()).add(json.dumps(value, sort_keys=True))
    return found


def _both(source: Architecture, found: Architecture) -> tuple[Values, Values]:
    """The facts of both sides, block by block where the one arranges its blocks otherwise than the other."""
    if not (arranged_parts(source) or arranged_parts(found)):
        return _values(source), _values(found)
    ours, theirs = (_by_place(facts_of_parts(side, parts_of(side))) for side in (source, found))
    return ours, theirs


def _offsets(architecture: Architecture) -> Values:
    """Whether each norm scales by 1 + weight: the form of what is stored shows it, where no fact does."""
    return {
        (role, OFFSET): {json.dumps(leaf.form == _OFFSET_FORM)}
        for leaf, role in _leaves(architecture)
        if leaf.kind.endswith("Norm")
    }


def _compare(label: str, source: Architecture, found: Architecture, free: Collection[str]) -> None:
    """Raise OtherModel for a fact with another value, and for one of the source that the other reading has not."""
    norms, other_norms = _norms(source), _norms(found)
    for norm, kind in norms.items():
        if other_norms.get(norm, kind) != kind:
            raise OtherModel(f"{norm} is {kind} here, and {label} has {other_norms[norm]}")
    said = {item.name for item in source.facts if item.evidence not in _RULES}
    ours, theirs = _both(source, found)
    differing: dict[str, str] = {}
    for (role, name), values in ours.items():
        if name in free or name in differing:
            continue
        other = theirs.get((role, name))
        if other is None and (name not in said or name in _read_by(theirs)):
            continue
        if other is None or not _same(values, other):
            shown = "nothing of it" if other is None else _shown(other)
            differing[name] = f"{name} is {_shown(values)} here, and {label} says {shown}"
    if differing:
        raise OtherModel("; ".join(list(differing.values())[:3]), fact=next(iter(differing)))


def _norms(architecture: Architecture) -> dict[str, str]:
    """Role path of each norm without indices: its kind, and what of its scale is stored."""
    return {
        ".".join(role): f"a {leaf.kind} ({leaf.form})"
        for leaf, role in _leaves(architecture)
        if leaf.kind.endswith("Norm")
    }


def _leaves(architecture: Architecture) -> Iterator[tuple[Leaf, tuple[str, ...]]]:
    """Each leaf with its role path without indices, as a naming has it that arranges its blocks otherwise."""
    arranged = {part.path: where for where, part in (arranged_parts(architecture) or {}).items()}
    for leaf in architecture.leaves:
        where = next(filter(None, map(arranged.get, leaf.keys())), None)
        if where:
            yield leaf, tuple(word for word in where.role.split(".") if not word.isdigit())
        elif leaf.role:
            yield leaf, (*(word for word, _ in leaf.block), leaf.role)


def _read_by(values: Values) -> set[str]:
    return {name for _, name in values}


def _same(values: set[str], others: set[str]) -> bool:
    def plain(value: str) -> Any:
        number = json.loads(value)
        return (
            float(number)
            if isinstance(number, int) and not isinstance(number, bool)
            else value
            if not isinstance(number, float)
            else number
        )

    return {plain(value) for value in values} == {plain(value) for value in others}


def _shown(values: set[str]) -> str:
    return " and ".join(cut(value.strip('"'), _SHOWN) for value in sorted(values))
