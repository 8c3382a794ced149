"""Reading one mapping of a rule file: every field has a type, unknown fields are errors, every error has a line."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from mapper.errors import RuleError, shorten
from mapper.words import close_to

Lines = Callable[[tuple[Any, ...]], int]  # keys from the top of the file to a value -> its line


class Fields:
    """The fields of one mapping, each read once; `done` refuses what nobody read."""

    def __init__(self, data: Any, file: str, lines: Lines, path: tuple[Any, ...] = ()):
        self.file, self.lines, self.path = file, lines, path
        if not isinstance(data, dict):
            self.fail(f"expected a mapping, not {type(data).__name__}")
        self.data: dict[str, Any] = data
        self.read: dict[str, None] = {}

    def fail(self, message: str, *keys: Any) -> NoReturn:
        """Raise a RuleError for this mapping, or for the value under `keys`."""
        field = ".".join(map(str, (*self.path, *keys)))
        where = f"{self.file}:{self.lines((*self.path, *keys))}"
        raise RuleError(f"{where}: {field}: {message}" if field else f"{where}: {message}")

    def line(self, *keys: Any) -> int:
        return self.lines((*self.path, *keys))

    def any(self, key: str, default: Any = None) -> Any:
        self.read[key] = None
        return self.data.get(key, default)

    def need(self, key: str) -> Any:
        """The value of a field that must be there."""
        if key not in self.data:
            self.fail(f"the field {key!r} is missing")
        return self.any(key)

    def text(self, key: str, default: str | None = None) -> str:
        value = self.need(key) if default is None else self.any(key, default)
        if not isinstance(value, str):
            self.fail(f"expected text, not {shorten(str(value))}", key)
        return value

    def flag(self, key: str) -> bool:
        value = self.any(key, False)
        if not isinstance(value, bool):
            self.fail(f"expected true or false, not {shorten(str(value))}", key)
        return value

    def words(self, key: str, default: Iterable[str] = ()) -> tuple[str, ...]:
        """A list of texts; one text stands for a list of one."""
        value = self.any(key, default)
        if value is default:  # most fields of most rules are absent
            return tuple(default)
        items = value if isinstance(value, list) else [value]
        for item in items:
            if not isinstance(item, str):
                self.fail(f"expected a list of texts, not {shorten(str(item))}", key)
        return tuple(items)

    def mapping(self, key: str) -> dict[str, Any]:
        """A mapping from text to anything; absent means empty."""
        value = self.any(key, {})
        if not isinstance(value, dict):
            self.fail("expected a mapping", key)
        return dict(value)

    def choices(self, key: str) -> dict[str, tuple[Any, ...]]:
        """Name -> the values that are meant; one value stands for a list of one."""
        return {name: tuple(v) if isinstance(v, list) else (v,) for name, v in self.mapping(key).items()}

    def sequence(self, key: str) -> list[Any]:
        value = self.any(key, [])
        if not isinstance(value, list):
            self.fail(f"expected a list, not {shorten(str(value))}", key)
        return value

    def inner(self, data: Any, *keys: Any) -> Fields:
        """The fields of a mapping below this one."""
        return Fields(data, self.file, self.lines, (*self.path, *keys))

    def done(self, allowed: Iterable[str] = ()) -> None:
        """Refuse fields that nobody read, or that are not among those allowed."""
        known = dict.fromkeys(allowed) or self.read
        for key in self.data:
            if key not in known:
                close = close_to(str(key), known)
                hint = f"; did you mean {close[0]!r}?" if close else f"; allowed: {', '.join(known)}"
                self.fail(f"unknown field {shorten(str(key))}{hint}", key)
