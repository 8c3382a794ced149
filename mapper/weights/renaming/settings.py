"""The settings of a model as another library writes them, from the facts and the tensors of its architecture."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mapper.errors import MapperError
from mapper.flows.arithmetic import evaluate, names
from mapper.inference.stated_type import OTHER_LIBRARY
from mapper.rulebook.facts import TYPE
from mapper.rulebook.libraries import EXTENTS, LibraryNaming
from mapper.sources.settings import every_settings
from mapper.weights.renaming.known import Known

if TYPE_CHECKING:
    from mapper.architecture import Architecture
    from mapper.weights.renaming.parts import Part, Where


class OtherModel(MapperError):
    """What a library computes otherwise, and its settings cannot say."""


TYPES = (TYPE, OTHER_LIBRARY)  # where configs name a class of models
_ABSENT = object()  # of a field: it is not written
_BY_DEFAULT = object()  # of a field: nothing says it


@dataclass
class Settings:
    """The fields with their values, and what to say of them."""

    fields: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def settings_of(
    naming: LibraryNaming,
    architecture: Architecture,
    parts: Mapping[Where, Part],
    stored: set[str],
) -> Settings:
    """The settings as `naming` says; `stored` are the role paths of which the library stores a tensor."""
    known, found = Known(architecture, parts, stored), Settings()
    _refuse_what_it_computes_otherwise(naming, known)
    own = known.config if _is_of_the_source(naming, known.config) else {}
    for name, said in naming.fields.items():
        try:
            value = _written(naming, name, said, known)
        except MapperError:
            if name not in own:
                raise
            continue  # it stays as it is
        if value is _ABSENT:
            continue
        if value is _BY_DEFAULT:
            value = said["default"]
            found.notes.append(f"{name} = {json.dumps(value)} by default: nothing in the source says it")
        _enter(found.fields, name.split("."), value)
    if own:
        ties = {
            name: value
            for name, value in found.fields.items()
            if _is_of_storage(naming.fields.get(name), parts)
        }
        found.fields, found.notes = {**found.fields, **own, **ties}, []
    return found


def _is_of_the_source(naming: LibraryNaming, config: Mapping[str, Any]) -> bool:
    """Whether the source has the settings of this very architecture: they stay, those that no naming says too."""
    return type_in(config) == type_of(naming) != ""


def type_of(naming: LibraryNaming) -> str:
    """The type that its config names; "" where it has none."""
    said = (naming.fields.get(word, {}).get("value") for word in TYPES)
    return str(next(filter(None, said), ""))


def type_in(config: Mapping[str, Any]) -> str:
    """The type that a config names."""
    return str(next(filter(None, (config.get(word) for word in TYPES)), ""))


def _is_of_storage(said: Mapping[str, Any] | None, parts: Mapping[Where, Part]) -> bool:
    """Whether a field says of a tensor that the source has whether it is stored."""
    role = said and (said.get("has") or said.get("lacks"))
    return bool(role) and any(where.role == role for where in parts)


def _written(naming: LibraryNaming, name: str, said: Mapping[str, Any], known: Known) -> Any:
    """The value of a field; _ABSENT for one that is not written, _BY_DEFAULT for one that nothing says."""
    at = _list(said.get("at", ""))
    if not all(_fact(known, fact, at) in _list(wanted) for fact, wanted in said.get("when", {}).items()):
        return _ABSENT
    try:
        value = _value(said, known)
    except (ValueError, KeyError, TypeError) as error:
        raise OtherModel(f"{naming.label} cannot say {name}: {error}") from None
    if value is _ABSENT:
        return _BY_DEFAULT if "default" in said else _ABSENT
    return _ABSENT if "unless" in said and value == said["unless"] else value


def _refuse_what_it_computes_otherwise(naming: LibraryNaming, known: Known) -> None:
    """Raise OtherModel for a fact that no setting of the library says, and that is another there."""
    for name, said in naming.computes.items():
        for value, wanted in known.beside(name, said):
            if value != wanted:
                has = f"{json.dumps(value)} here, and {naming.label} has {json.dumps(wanted)} always"
                raise OtherModel(f"{name} is {has}", fact=name)


def free_facts(naming: LibraryNaming, architecture: Architecture) -> set[str]:
    """Facts that may be others in this library without another output."""
    known = Known(architecture, {}, set())
    return {
        name
        for name, free in naming.free.items()
        if all(
            value == wanted for fact, said in free.when.items() for value, wanted in known.beside(fact, said)
        )
    }


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _enter(table: dict[str, Any], path: list[str], value: Any) -> None:
    for word in path[:-1]:
        table = table.setdefault(word, {})
    table[path[-1]] = value


def _value(said: Mapping[str, Any], known: Known) -> Any:
    """What a field is; _ABSENT where nothing says it."""
    if "over" in said:
        return _of_each(said, known)
    value = said["value"] if "value" in said else _found(said, known)
    if "map" in said:
        table = said["map"]
        key = value if isinstance(value, str) else json.dumps(value)
        if key not in table and "*" not in table:
            raise ValueError(f"{said.get('fact')} is {key}, and it has {', '.join(map(str, table))}")
        return table.get(key, table.get("*"))
    return _ABSENT if value is None and "default" in said else value


def _of_each(said: Mapping[str, Any], known: Known) -> Any:
    """A list with the value for each element of a list of blocks; one value where all are `alike`, or the `numbers` of those where it holds."""
    path, _, number = said["over"].rpartition(".")
    one = {word: value for word, value in said.items() if word not in ("over", "alike", "numbers")}
    numbers = known.elements(path)
    values = [_value(_with_number(one, number, at), known) for at in numbers]
    if said.get("numbers"):
        return [at for at, value in zip(numbers, values, strict=True) if value]
    if any(value is None or value is _ABSENT for value in values):
        raise ValueError(f"it is not known for each of {path}")
    return values[0] if said.get("alike") and all(value == values[0] for value in values) else values


def _with_number(said: Any, number: str, at: int) -> Any:
    """The same with a number for its name in every path."""
    if isinstance(said, Mapping):
        return {word: _with_number(value, number, at) for word, value in said.items()}
    if isinstance(said, list):
        return [_with_number(value, number, at) for value in said]
    return said.replace(number, str(at)) if isinstance(said, str) else said


def _found(said: Mapping[str, Any], known: Known) -> Any:
    """What the model, or the source's config, says of a field."""
    at = _list(said.get("at", ""))
    if "has" in said or "lacks" in said:
        role = said.get("has") or said["lacks"]
        is_there = known.has(role) if any(map(str.isdigit, role.split("."))) else role in known.stored
        return is_there == ("has" in said)
    if "config" in said:
        values = (_field(known.config, name) for name in _list(said["config"]))
        return next((value for value in values if value is not None), _ABSENT)
    if "expr" in said:
        extents = {word: known.extent(said[word], axis) for axis, word in enumerate(EXTENTS) if word in said}
        facts = {name: _fact(known, name, at) for name in names(said["expr"]) if name not in extents}
        return evaluate(said["expr"], facts | extents)
    if "fact" in said:
        return _fact(known, said["fact"], at)
    if "count" in said:
        return next(filter(None, map(known.length, _list(said["count"]))), None)
    if "rank" in said:
        return len(known.shapes.get(said["rank"], ())) or None
    return known.extent(said.get("rows") or said["columns"], 0 if "rows" in said else 1)


def _fact(known: Known, name: str, at: list[str]) -> Any:
    """What it is at the first of these role paths where it is known."""
    values = (
        known.fact_of_element(name, path)
        if any(map(str.isdigit, path.split(".")))
        else known.fact(name, path)
        for path in at
    )
    return next((value for value in values if value is not None), None)


def _field(config: Any, name: str) -> Any:
    for word in name.split("."):
        config = config.get(word) if isinstance(config, Mapping) else None
    return config


def as_config(naming: LibraryNaming, fields: Mapping[str, Any]) -> dict[str, Any] | None:
    """The config that these settings are when the library's files are read."""
    if not naming.settings or not fields:
        return None
    whole = {naming.inside: dict(fields)} if naming.inside else dict(fields)
    for settings in every_settings():
        if naming.settings in (*settings.files, *settings.tables):
            return settings.of(whole)
    return whole
