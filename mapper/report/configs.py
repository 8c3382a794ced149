"""What two configs say differently, beside what the readings made of them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from mapper.report.contrast import Contrast, words

if TYPE_CHECKING:
    from mapper.architecture import Architecture
    from mapper.weights.comparing.sides import Side

_TYPE = "model type"
_DEEP = 6  # parts within parts of a config


def config_contrasts(left: Side, right: Side) -> tuple[list[Contrast], list[Contrast]]:
    """Model types that differ, and fields that matter and differ, without those that a fact of a reading tells.

    A field that one side alone has is told where the two are of one type, no rule read it and it is not off: what a
    rule read is told by its facts, and other types spell their fields in other ways.
    """
    a, b = (_fields(side) for side in (left, right))
    if not a or not b:
        return [], []
    told = _told(left.reading(), right.reading())
    if a.get("model_type") != b.get("model_type"):
        told.add("architectures")  # classes of other types have other names
    found = [
        Contrast(_subject(name), "", a[name], b[name])
        for name in sorted(a.keys() & b.keys())
        if not _same(a[name], b[name]) and name not in told
    ]
    types = [contrast for contrast in found if contrast.subject.startswith(_TYPE)]
    found = [contrast for contrast in found if contrast not in types]
    if a.get("model_type") == b.get("model_type"):
        for only, mine, theirs, side in (("a", a, b, left), ("b", b, a, right)):
            reading = side.reading()
            read = _sources(reading) if reading else set()
            found += [
                Contrast(f"config {name} {_shown(mine[name])}", only=only)
                for name in sorted(mine.keys() - theirs.keys() - read)
                if mine[name]
            ]
    return types, found


def _fields(side: Side) -> dict[str, Any]:
    """Dotted names of the fields with a value, without those that change nothing."""
    reading = side.reading()
    config = reading.origin.config if reading else side.origin.config
    found = dict(_flat({**(config or {}), "adapter": side.adapter}, ""))
    if reading is None:
        from mapper.rulebook.rulebook import rulebook_of

        ignored = rulebook_of(()).config_vocabulary.ignored.always
        found = {name: value for name, value in found.items() if not ignored.intersection(name.split("."))}
    return found


def _flat(config: Mapping[str, Any], above: str, depth: int = 0) -> Iterator[tuple[str, Any]]:
    for key, value in config.items():
        name = f"{above}{key}"
        if isinstance(value, Mapping) and depth < _DEEP:
            yield from _flat(value, f"{name}.", depth + 1)
        elif value is not None and not key.startswith("_"):
            yield name, value


def _told(left: Architecture | None, right: Architecture | None) -> set[str]:
    """The fields that facts come from whose values differ."""
    if not left or not right:
        return set()
    values: list[dict[str, list[Any]]] = [{}, {}]
    for known, reading in zip(values, (left, right), strict=True):
        for fact in reading.facts:
            known.setdefault(fact.name, []).append(fact.value)
    differing = {
        name
        for name in values[0].keys() & values[1].keys()
        if any(value not in values[1][name] for value in values[0][name])
        or any(value not in values[0][name] for value in values[1][name])
    }
    return _sources(left, differing) | _sources(right, differing)


def _sources(reading: Architecture, names: Collection[str] | None = None) -> set[str]:
    """The fields that facts of these names come from, or would have come from."""
    facts = [fact for fact in (*reading.facts, *reading.lost) if names is None or fact.name in names]
    return {fact.source.partition(":")[0] for fact in facts}


def _same(one: Any, other: Any) -> bool:
    return bool(one == other) and isinstance(one, bool) == isinstance(other, bool)


def _is_type(name: str) -> bool:
    return name.rpartition(".")[2] == "model_type"


def _subject(name: str) -> str:
    """`model type`, `model type (text config)`, `config pad_token_id`."""
    if not _is_type(name):
        return f"config {name}"
    part = name.rpartition(".")[0]
    return f"{_TYPE} ({words(part)})" if part else _TYPE


def _shown(value: Any) -> str:
    from mapper.report.contrast import value_words

    return value_words(value)
