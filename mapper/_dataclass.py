"""`dataclass` as the standard library has it, for the modules that every process imports.

There each method of each class is text that is compiled when the module is imported, six of them for a frozen one: together a
fifth of the time of `mapper inspect`. Here all classes share them as functions, and what the standard library says of the
fields is asked of it when somebody wants to know. A class of which there are many objects gets a constructor that
is compiled after all: it takes a third of the time.
"""

from __future__ import annotations

import dataclasses
from operator import attrgetter
from reprlib import recursive_repr
from threading import RLock
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls: type | None = None, /, *, frozen: bool = False, eq: bool = True, **other: bool) -> Any:
        """With any other option than these two the class is the standard library's alone."""
        if other:
            return dataclasses.dataclass(cls, frozen=frozen, eq=eq, **other)
        return _made(cls, frozen, eq) if cls else lambda cls: _made(cls, frozen, eq)


_FIELDS, _OWN = "__dataclass_fields__", "__fields_as_written__"
_OTHER = ("ClassVar", "InitVar", "KW_ONLY")  # annotations of what is no plain field
_NONE = dataclasses.MISSING
_MANY = 400  # objects of a class; fewer take less time than a constructor takes to compile
_ASKED = RLock()  # one thread at a time: the attributes of a class are other ones meanwhile


def _made(cls: Any, frozen: bool, eq: bool) -> Any:
    own = set(vars(cls))
    cls.__doc__ = cls.__doc__ or cls.__name__  # else the standard library parses a signature for each
    fields = _fields(cls)
    names = [name for name, field in fields.items() if not _is_said(field) or field.compare]
    cls.__compared__ = staticmethod(attrgetter(*names) if names else bool)
    setattr(cls, _OWN, fields)
    setattr(cls, _FIELDS, _Fields(cls))
    methods: dict[str, Any] = {"__init__": _constructor(cls, frozen), "__repr__": _repr}
    methods["__match_args__"] = tuple(name for name, field in fields.items() if _is_given(field))
    if eq:
        methods |= {"__eq__": _eq, "__hash__": _hash if frozen else None}
    if frozen:
        methods |= {"__setattr__": _set, "__delattr__": _delete}
    for name, method in methods.items():
        if name not in own:
            setattr(cls, name, method)
    return cls


def _fields(cls: type) -> dict[str, Any]:
    """Each field with its default, `MISSING` or what `field(...)` gave, those of the classes above first."""
    fields: dict[str, Any] = {}
    for base in cls.__mro__[:0:-1]:
        fields |= vars(base).get(_OWN) or vars(base).get(_FIELDS, {})
    own = vars(cls).get("__annotations__", {})
    for name, annotation in own.items():
        if any(word in annotation for word in _OTHER):
            raise TypeError(f"{cls.__name__}.{name}: {annotation} is for the standard library's dataclass")
        value = fields[name] = vars(cls).get(name, _NONE)
        if type(_usual(value)).__hash__ is None:
            raise ValueError(f"{cls.__name__}.{name}: a default that changes is for default_factory")
        if _is_said(value):  # whose default is the attribute of the class, as it is for all others
            if value.default is _NONE:
                delattr(cls, name)
            else:
                setattr(cls, name, value.default)
    return fields


def _is_said(field: Any) -> bool:
    return isinstance(field, dataclasses.Field)


def _is_given(field: Any) -> bool:
    return not _is_said(field) or bool(field.init)


class _Fields:
    """What the standard library says of the fields of a class, when it is asked."""

    def __init__(self, cls: type):
        self.cls = cls

    def __get__(self, _: Any, owner: type) -> Any:
        with _ASKED:
            if vars(self.cls)[_FIELDS] is self:
                self._ask()
            return vars(self.cls)[_FIELDS]

    def _ask(self) -> None:
        said = {name: field for name, field in vars(self.cls)[_OWN].items() if _is_said(field)}
        for name in said.keys() & vars(self.cls).get("__annotations__", {}).keys():
            setattr(self.cls, name, said[name])
        dataclasses.dataclass(init=False, repr=False, eq=False)(self.cls)


def _constructor(cls: Any, frozen: bool) -> Any:
    """Takes each field by its place or its name, and writes to the object's table: a frozen one refuses assignment."""
    fields = vars(cls)[_OWN]
    names = [name for name, field in fields.items() if _is_given(field)]
    usual = {name: _usual(field) for name, field in fields.items()}  # in the order of the fields
    makers = {name: field.default_factory for name, field in fields.items() if _is_said(field)}
    makers = {name: make for name, make in makers.items() if make is not _NONE}
    needed = {name for name in names if usual[name] is _NONE and name not in makers}
    for name in usual.keys() - names - makers.keys():  # what the class itself sets, or has
        del usual[name]
    if needed != set(names[: len(needed)]):
        raise TypeError(f"{cls.__name__}: a field without a default stands behind one with a default")
    ends = hasattr(cls, "__post_init__")
    left = _MANY

    def __init__(self: Any, *given: Any, **named: Any) -> None:
        nonlocal left
        left -= 1
        if left < 0 and vars(cls).get("__init__") is __init__:
            cls.__init__ = _compiled(names, usual, makers, frozen, ends)
        held = self.__dict__
        held.update(usual)
        held.update(zip(names, given))  # noqa: B905 - a longer one is refused below
        if named or not len(needed) <= len(given) <= len(names):
            held.update(named)
            _check(cls, names, needed, given, named)
        for name, make in makers.items():
            if held[name] is _NONE:
                held[name] = make()
        if ends:
            self.__post_init__()

    return __init__


def _compiled(
    names: list[str], usual: dict[str, Any], makers: dict[str, Any], frozen: bool, ends: bool
) -> Any:
    """The same as text of its own, as the standard library writes it."""
    own = "_" * (1 + max(map(len, usual), default=0))  # begins what is no field, as no field does
    known: dict[str, Any] = {f"{own}none": _NONE}
    known |= {f"{own}usual_{name}": value for name, value in usual.items()}
    known |= {f"{own}make_{name}": make for name, make in makers.items()}
    may_lack = {name for name in names if usual[name] is not _NONE or name in makers}
    taken = (f"{name}={own}usual_{name}" if name in may_lack else name for name in names)
    lines = [f"def __init__({', '.join((own, *taken))}):", f" {own}held = {own}.__dict__"]
    for name in usual:
        value = name if name in names else f"{own}usual_{name}"
        if name in makers:
            value = f"{own}make_{name}() if {value} is {own}none else {value}"
        lines.append(f" {own}held[{name!r}] = {value}" if frozen else f" {own}.{name} = {value}")
    lines += [f" {own}.__post_init__()"] if ends else []
    exec("\n".join(lines), known)
    return known["__init__"]


def _check(
    cls: Any, names: list[str], needed: set[str], given: tuple[Any, ...], named: dict[str, Any]
) -> None:
    """Raises TypeError where there are arguments too many, twice, or too few."""
    by_place = names[: len(given)]
    other = named.keys() - set(names[len(given) :])
    lacking = needed.difference(by_place, named)
    if len(given) > len(names) or other or lacking:
        said = ", ".join(sorted(other or lacking))
        raise TypeError(f"{cls.__qualname__}() got other arguments than it has fields: {said or len(given)}")


def _usual(field: Any) -> Any:
    return field.default if _is_said(field) else field


@recursive_repr()
def _repr(self: Any) -> str:
    said = [f"{field.name}={getattr(self, field.name)!r}" for field in dataclasses.fields(self) if field.repr]
    return f"{type(self).__qualname__}({', '.join(said)})"


def _eq(self: Any, other: Any) -> Any:
    if other.__class__ is not self.__class__:
        return NotImplemented
    return self is other or bool(self.__compared__(self) == self.__compared__(other))


def _hash(self: Any) -> int:
    return hash(self.__compared__(self))


def _set(self: Any, name: str, value: Any) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _delete(self: Any, name: str) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
