"""A config as the published classes take it: fields they have not left out, their defaults filled in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

from mapper._dataclass import dataclass
from mapper.catalogue import published
from mapper.catalogue.published import Part, Row

_ROPE, _SCALING, _BASE, _FRACTION = "rope_parameters", "rope_scaling", "rope_theta", "partial_rotary_factor"


@dataclass
class Completed:
    """What the classes of a config and of its parts see of it."""

    data: Mapping[str, Any]
    defaults: dict[str, str] = field(default_factory=dict)  # dotted name -> the class whose default it is
    moved: dict[str, str] = field(default_factory=dict)  # dotted name -> what the file calls it
    twins: dict[str, str] = field(
        default_factory=dict
    )  # the same, where the file has both names with one value
    computed: set[str] = field(
        default_factory=set
    )  # dotted names of what a class writes to files and never reads
    said: frozenset[str] = frozenset()  # names that the family's own rules read, whatever the class has

    def default_of(self, name: str) -> str:
        """The class whose default a field is, or the one that holds it; "" for what the file says."""
        words = name.split(".")
        starts = (".".join(words[: count + 1]) for count in range(len(words)))
        return next((self.defaults[start] for start in starts if start in self.defaults), "")


def complete(
    data: Mapping[str, Any], model_type: str | None, said: frozenset[str] = frozenset()
) -> Completed:
    """The config of a model type; as it stands where no row says what that has.

    `said` are names that a rule file reads for this very type: files of the authors' own layout have them.
    """
    done = Completed(data, said=said)
    row = published.find(model_type) if model_type else None
    if row is not None:
        done.data = _level(done, data, row, "")
    return done


def _level(done: Completed, given: Mapping[str, Any], row: Row, prefix: str) -> dict[str, Any]:
    """One config object: what its class takes of what is given, and defaults for the rest."""
    flat = [name for name in row.flat if given.get(name) is None]
    for name in flat:
        inner = published.find(row.parts[name].reader)
        row = row.beside(inner) if inner else row
    known = row.known | done.said
    seen = {name: value for name, value in given.items() if name in known or name.startswith("_")}
    done.computed.update(prefix + name for name in row.computed if name not in done.said)
    seen |= _renamed(done, given, row, prefix)
    seen |= _parts(done, given, row, prefix, flat)
    for name, value in row.fields.items():
        if name not in seen and name != _ROPE:
            seen[name] = value
            done.defaults[prefix + name] = row.key
    if row.rope is not None:
        _turn(done, seen, row, prefix)
    return seen


def _renamed(done: Completed, given: Mapping[str, Any], row: Row, prefix: str) -> dict[str, Any]:
    """Fields that the class takes under other names, under its own."""
    seen = {}
    for other, own in row.aliases.items():
        if other in given and own not in row.parts:
            seen[own] = given[other]
            done.moved[prefix + own] = prefix + other
            if own in given and given[own] == given[other]:
                done.twins[prefix + other] = prefix + own
    return seen


def _parts(
    done: Completed, given: Mapping[str, Any], row: Row, prefix: str, flat: Sequence[str]
) -> dict[str, Any]:
    """The config objects inside of one, each as its own class takes it, and those that the class makes by itself."""
    seen = {}
    for name, part in row.parts.items():
        if isinstance(given.get(name), Mapping):
            reader = _reader(part, given[name])
            if reader is not None:
                reader = reader.having(part.given) if reader.key == part.reader else reader
                seen[name] = _level(done, given[name], reader, f"{prefix}{name}.")
        elif _is_made(part, given) and given.get(name) is None and name not in flat:
            seen[name] = _made(done, part, f"{prefix}{name}")
    return seen


def _reader(part: Part, given: Mapping[str, Any]) -> Row | None:
    """The row that reads a part: one for all, or that of the type which it names."""
    named = given.get("model_type", part.reader)
    return published.find(part.reader if part.fixed or not isinstance(named, str) else named)


def _is_made(part: Part, given: Mapping[str, Any]) -> bool:
    return part.there and given.get(part.unless) is None


def _made(done: Completed, part: Part, name: str) -> dict[str, Any]:
    """A part that the file leaves out, all of it by default."""
    row = published.find(part.reader)
    done.defaults[name] = part.reader
    return _level(done, {}, row.having(part.made), f"{name}.") if row is not None else {}


# --- rotary positions, which files of several years write in several ways


def _turn(done: Completed, seen: dict[str, Any], row: Row, prefix: str) -> None:
    """Drop what the class does not read of rotary positions, and add what it adds."""
    rope = row.rope or {}
    stated, scaling = seen.get(_ROPE), seen.get(_SCALING)
    if rope.get("no_scaling"):
        scaling = seen.pop(_SCALING, None) and None
    if rope.get("no_theta") and not stated and not scaling:
        seen.pop(_BASE, None)
    if rope.get("no_fraction"):
        seen.pop(_FRACTION, None)
    if isinstance(stated, Mapping) and stated:
        seen[_ROPE] = _read_of(stated, rope)
        _add(done, seen[_ROPE], rope.get("given"), f"{prefix}{_ROPE}.", row.key)
    elif isinstance(scaling, Mapping) and scaling:
        seen[_SCALING] = _read_of(scaling, {**rope, "no_flat": False})
        seen[_ROPE] = {}
        missing = {key: value for key, value in (rope.get("given") or {}).items() if key == _BASE}
        _add(done, seen[_ROPE], missing, f"{prefix}{_ROPE}.", row.key)
    elif (
        rope.get("silent") and stated in (None, {}) and scaling in (None, {})
    ):  # anything else is an error's to name
        seen[_ROPE] = {}
        _add(done, seen[_ROPE], rope["silent"], f"{prefix}{_ROPE}.", row.key)


def _read_of(stated: Mapping[str, Any], rope: Mapping[str, Any]) -> dict[str, Any]:
    """The entries that the class reads: those of kinds of layers alone where it tells these apart."""
    seen = {
        key: _read_of(value, {**rope, "no_flat": False}) if isinstance(value, Mapping) else value
        for key, value in stated.items()
        if key not in rope.get("unread", ()) and (isinstance(value, Mapping) or not rope.get("no_flat"))
    }
    kind = seen.get("rope_type", seen.get("type", "default"))
    if rope.get("no_fraction") and kind == "default":
        seen.pop(_FRACTION, None)
    return seen


def _add(done: Completed, into: dict[str, Any], more: Any, prefix: str, key: str) -> None:
    """Put in what is not there, level by level."""
    for name, value in _items(more):
        if isinstance(value, Mapping) and isinstance(into.get(name), dict):
            _add(done, into[name], value, f"{prefix}{name}.", key)
        elif name not in into:
            into[name] = value
            done.defaults[prefix + name] = key


def _items(said: Any) -> Iterator[tuple[str, Any]]:
    yield from said.items() if isinstance(said, Mapping) else ()
