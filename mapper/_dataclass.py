"""`dataclass` as the standard library has it, for the modules that every process imports.

There each method of each class is text that is compiled when the module is imported, six of them for a frozen one: together a
fifth of the time of `mapper inspect`. Here only the constructor is; the other methods are functions that all classes share.
"""

from __future__ import annotations

import dataclasses
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls: type | None = None, /, *, frozen: bool = False, eq: bool = True, **other: bool) -> Any:
        """With any other option than these two the class is the standard library's alone."""
        if other:
            return dataclasses.dataclass(cls, frozen=frozen, eq=eq, **other)
        return _made(cls, frozen, eq) if cls else lambda cls: _made(cls, frozen, eq)


def _made(cls: type, frozen: bool, eq: bool) -> type:
    own = set(vars(cls))
    cls.__doc__ = cls.__doc__ or cls.__name__  # else the standard library parses a signature for each
    made: Any = dataclasses.dataclass(init=False, repr=False, eq=False)(cls)
    fields = dataclasses.fields(made)
    compared = [field.name for field in fields if field.compare]
    made.__compared__ = staticmethod(attrgetter(*compared) if compared else bool)
    methods: dict[str, Any] = {"__init__": _constructor(made, fields), "__repr__": _repr}
    if eq:
        methods |= {"__eq__": _eq, "__hash__": _hash if frozen else None}
    if frozen:
        methods |= {"__setattr__": _set, "__delattr__": _delete}
    for name, method in methods.items():
        if name not in own:
            setattr(made, name, method)
    return made


def _constructor(cls: Any, fields: tuple[dataclasses.Field[Any], ...]) -> Any:
    """Takes each field by its place or its name, and writes to the object's table: a frozen one refuses assignment."""
    given, rows = ["self"], ["_held = self.__dict__"]
    known: dict[str, Any] = {"_missing": dataclasses.MISSING}
    for field in fields:
        name, value = field.name, field.name
        is_made = field.default_factory is not dataclasses.MISSING
        if is_made:
            known[f"_make_{name}"] = field.default_factory
        if not field.init:
            rows += [f"_held[{name!r}] = _make_{name}()"] if is_made else []
            continue
        if is_made:
            given.append(f"{name}=_missing")
            value = f"_make_{name}() if {name} is _missing else {name}"
        elif field.default is not dataclasses.MISSING:
            known[f"_usual_{name}"] = field.default
            given.append(f"{name}=_usual_{name}")
        else:
            given.append(name)
        rows.append(f"_held[{name!r}] = {value}")
    if hasattr(cls, "__post_init__"):
        rows.append("self.__post_init__()")
    body = "\n ".join(rows)
    exec(f"def __init__({', '.join(given)}):\n {body}", known)
    made = known["__init__"]
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    return made


@recursive_repr()
def _repr(self: Any) -> str:
    said = [f"{field.name}={getattr(self, field.name)!r}" for field in dataclasses.fields(self) if field.repr]
    return f"{type(self).__qualname__}({', '.join(said)})"


def _eq(self: Any, other: Any) -> Any:
    if other.__class__ is not self.__class__:
        return NotImplemented
    return bool(self.__compared__(self) == self.__compared__(other))


def _hash(self: Any) -> int:
    return hash(self.__compared__(self))


def _set(self: Any, name: str, value: Any) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _delete(self: Any, name: str) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
