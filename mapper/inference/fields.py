"""A field of a config, and what it has in common with others and with what a user says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any

from mapper._dataclass import dataclass
from mapper.words import parts

IDLE = "fields.idle"  # the fact with names of fields that, as a user says, change nothing


@dataclass(frozen=True)
class Found:
    """A field of the config: its dotted name from the top, and its value."""

    name: str
    value: Any
    wanted: bool = True  # False: it stands where an object should be that holds the field
    default_of: str = ""  # the type whose own default it is, where the file leaves it out
    by_form: bool = False  # no rule has its whole name: it is known where a fact comes from it
    is_name: bool = False  # that there is such a field is all that is read of it


def spread(found: Found) -> Iterator[Found]:
    """A field, or the fields of an object that nobody opened, each by its dotted name."""
    if not isinstance(found.value, Mapping):
        yield found
        return
    for name, value in found.value.items():
        yield from spread(Found(f"{found.name}.{name}", value))


def tells_apart(value: Any, counts: Container[int]) -> bool:
    """Whether a field is a list with a word or a mark for each layer, of which some differ."""
    if not isinstance(value, list) or len(value) not in counts:
        return False
    are_marks = all(isinstance(item, str) or item in (0, 1) for item in value)
    return are_marks and any(item != value[0] for item in value)


def idle_of(said: Mapping[str, Any]) -> set[str]:
    """The fields that change nothing, as a user says."""
    return {name.strip() for name in str(said.get(IDLE, "")).split(",") if name.strip()}


def with_lone_values(left: Sequence[Found]) -> set[str]:
    """The fields whose value no other has; of flags, none with a word of its name."""
    keys = {found.name: _keys(found) for found in left}
    counts = Counter(key for found in keys.values() for key in found)
    return {name for name, found in keys.items() if all(counts[key] == 1 for key in found)}


def _keys(found: Found) -> set[tuple[str, str]]:
    """What a field has in common with those that may be meant by the same answer: values, and of flags words."""
    value = found.value
    if isinstance(value, bool):
        return {(str(value), word) for word in parts(found.name.rpartition(".")[2])}
    if isinstance(value, list):
        value = [value.index(item) for item in value]
    return {("", repr(float(value) if isinstance(value, int) else value))}


def is_said(found: Found, said: Mapping[str, Any]) -> bool:
    """Whether a user gave what a field has: the same value under the same word, a list whose entries differ where those
    of the field do."""
    words = set(parts(found.name.rpartition(".")[2]))
    alike = [name for name, value in said.items() if name != IDLE and _repeats(value, found.value)]
    return any(
        isinstance(found.value, list)
        or not words.isdisjoint(part for word in name.split(".") for part in parts(word))
        for name in alike
    )


def _repeats(one: Any, other: Any) -> bool:
    if isinstance(one, list) and isinstance(other, list):
        return [one.index(item) for item in one] == [other.index(item) for item in other]
    return is_same(one, other)


def is_same(one: Any, other: Any) -> bool:
    return one == other and isinstance(one, bool) == isinstance(other, bool)
