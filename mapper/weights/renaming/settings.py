"""The settings of a model as another library writes them, from the facts and the tensors of its architecture."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mapper.errors import MapperError, cut
from mapper.flows.arithmetic import evaluate, names
from mapper.rulebook.libraries import LibraryNaming
from mapper.sources.settings import every_settings

if TYPE_CHECKING:
    from mapper.architecture import Architecture
    from mapper.weights.renaming.parts import Part, Where


class OtherModel(MapperError):
    """What a library computes otherwise, and its settings cannot say."""


TYPE = "model_type"  # of a config
_ABSENT = object()  # of a field: it is not written
_BY_DEFAULT = object()  # of a field: nothing says it


@dataclass
class Settings:
    """The fields with their values, and what to say of them."""

    fields: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


class _Known:
    """What is known of a model: facts by the role paths of blocks, sizes by those of tensors."""

    def __init__(self, architecture: Architecture, parts: Mapping[Where, Part], stored: set[str]):
        self.architecture, self.stored = architecture, stored
        self.config = architecture.checkpoint.config or {}
        self.shapes = {where.pattern: part.shape for where, part in parts.items() if where.tensor == "weight"}
        self.facts: dict[tuple[str, ...], dict[str, list[Any]]] = {}  # by role path without indices
        for path, name, value in facts_by_role(architecture):
            values = self.facts.setdefault(path, {}).setdefault(name, [])
            if value not in values:
                values.append(value)

    def fact(self, name: str, at: str) -> Any:
        """Its value in the blocks at this role path, anywhere for ""; None where nobody knows it."""
        scope = tuple(at.split(".")) if at else ()
        inside = {path: facts for path, facts in self.facts.items() if path[: len(scope)] == scope}
        around = {path: facts for path, facts in self.facts.items() if scope[: len(path)] == path}
        values: list[Any] = []
        for known in (inside, around):
            for facts in known.values() if not values else ():
                values += [value for value in facts.get(name, ()) if value not in values]
        if len(values) > 1:
            where = f" of {at}" if at else ""
            raise MapperError(
                f"{name}{where} is {' and '.join(cut(json.dumps(value), 60) for value in values[:4])}, and the settings "
                "have one"
            )
        return values[0] if values else None

    def beside(self, name: str, said: Any) -> Iterator[tuple[Any, Any]]:
        """Each value of a fact with what `said` is in the same blocks, a value or arithmetic over their facts."""
        for facts in self.facts.values():
            for value in facts.get(name, ()):
                if not isinstance(said, ast.expr):
                    yield value, said
                elif all(one in facts for one in names(said)):
                    yield value, _evaluated(said, {one: facts[one][0] for one in names(said)})

    def extent(self, role: str, axis: int) -> int | None:
        shape = self.shapes.get(role, ())
        return shape[axis] if len(shape) > axis else None


def _evaluated(said: ast.expr, facts: Mapping[str, Any]) -> Any:
    """Its value; None for arithmetic that these facts do not allow."""
    try:
        return evaluate(said, facts)
    except ValueError:
        return None


def facts_by_role(architecture: Architecture) -> list[tuple[tuple[str, ...], str, Any]]:
    """Role path of a block without indices, a fact of it, and its value; the most particular scope is the one."""
    found: list[tuple[tuple[str, ...], str, Any]] = []
    places: dict[tuple[tuple[str, ...], tuple[str, ...]], None] = {}
    for leaf in architecture.leaves:
        role = tuple(word for word, _ in leaf.block)
        places[role, _starred(leaf.place)] = None
        found += [(role, name, item.value) for name, item in leaf.facts.items()]
    scopes = [
        (_starred(item.at.split(".")) if item.at not in ("", "*") else (), item)
        for item in architecture.facts
    ]
    for role, at in places:
        best: dict[str, tuple[int, list[Any]]] = {}
        for scope, item in scopes:
            if at[: len(scope)] == scope and best.get(item.name, (-1,))[0] <= len(scope):
                same = best[item.name][1] if best.get(item.name, (-1,))[0] == len(scope) else []
                best[item.name] = (len(scope), [*same, item.value])
        found += [(role, name, value) for name, (_, values) in best.items() for value in values]
    return found


def _starred(path: Iterable[Any]) -> tuple[str, ...]:
    return tuple(
        "*" if not isinstance(word, str) or word.isdigit() or word.startswith("{") else word for word in path
    )


def settings_of(
    naming: LibraryNaming,
    architecture: Architecture,
    parts: Mapping[Where, Part],
    stored: set[str],
) -> Settings:
    """The settings as `naming` says; `stored` are the role paths of which the library stores a tensor."""
    known, found = _Known(architecture, parts, stored), Settings()
    _refuse_what_it_computes_otherwise(naming, known)
    for name, said in naming.fields.items():
        value = _written(naming, name, said, known)
        if value is _ABSENT:
            continue
        if value is _BY_DEFAULT:
            value = said["default"]
            found.notes.append(f"{name} = {json.dumps(value)} by default: nothing in the source says it")
        _enter(found.fields, name.split("."), value)
    if _is_of_the_source(naming, known.config):
        ties = {
            name: value
            for name, value in found.fields.items()
            if _is_of_storage(naming.fields.get(name), parts)
        }
        found.fields, found.notes = {**found.fields, **known.config, **ties}, []
    return found


def _is_of_the_source(naming: LibraryNaming, config: Mapping[str, Any]) -> bool:
    """Whether the source has the settings of this very architecture: they stay, those that no naming says too."""
    said = naming.fields.get(TYPE, {}).get("value")
    return said is not None and said == config.get(TYPE)


def _is_of_storage(said: Mapping[str, Any] | None, parts: Mapping[Where, Part]) -> bool:
    """Whether a field says of a tensor that the source has whether it is stored."""
    role = said and (said.get("has") or said.get("lacks"))
    return bool(role) and any(where.role == role for where in parts)


def _written(naming: LibraryNaming, name: str, said: Mapping[str, Any], known: _Known) -> Any:
    """The value of a field; _ABSENT for one that is not written, _BY_DEFAULT for one that nothing says."""
    at = said.get("at", "")
    if not all(known.fact(fact, at) in _list(wanted) for fact, wanted in said.get("when", {}).items()):
        return _ABSENT
    try:
        value = _value(said, known)
    except (ValueError, KeyError, TypeError) as error:
        raise OtherModel(f"{naming.label} cannot say {name}: {error}") from None
    if value is _ABSENT:
        return _BY_DEFAULT if "default" in said else _ABSENT
    return _ABSENT if "unless" in said and value == said["unless"] else value


def _refuse_what_it_computes_otherwise(naming: LibraryNaming, known: _Known) -> None:
    """Raise OtherModel for a fact that no setting of the library says, and that is another there."""
    for name, said in naming.computes.items():
        for value, wanted in known.beside(name, said):
            if value != wanted:
                has = f"{json.dumps(value)} here, and {naming.label} has {json.dumps(wanted)} always"
                raise OtherModel(f"{name} is {has}", fact=name)


def free_facts(naming: LibraryNaming, architecture: Architecture) -> set[str]:
    """Facts that may be others in this library without another output."""
    known = _Known(architecture, {}, set())
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


def _value(said: Mapping[str, Any], known: _Known) -> Any:
    """What a field is; _ABSENT where nothing says it."""
    at = said.get("at", "")
    if "value" in said:
        return said["value"]
    if "has" in said or "lacks" in said:
        return (
            (said.get("has") or said["lacks"]) in known.stored
            if "has" in said
            else said["lacks"] not in known.stored
        )
    if "config" in said:
        return next(
            (found for name in _list(said["config"]) if (found := _field(known.config, name)) is not None),
            _ABSENT,
        )
    if "expr" in said:
        return evaluate(said["expr"], {name: known.fact(name, at) for name in names(said["expr"])})
    if "fact" in said:
        value = known.fact(said["fact"], at)
    else:
        axis = 0 if "rows" in said else 1
        value = known.extent(said.get("rows") or said["columns"], axis)
    if "map" in said:
        table = said["map"]
        key = value if isinstance(value, str) else json.dumps(value)
        if key not in table and "*" not in table:
            raise ValueError(f"{said.get('fact')} is {key}, and it has {', '.join(map(str, table))}")
        return table.get(key, table.get("*"))
    return _ABSENT if value is None and "default" in said else value


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
