"""YAML without its surprises: the reader of rule files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from mapper.errors import RuleError, shorten
from mapper.limits import RULE_FILE_BYTES

KeyPath = tuple[str | int, ...]  # ("roles", "attention.query", 2): the third item of that list

_DEPTH = 32  # nested lists and mappings in a rule file; the deepest shipped file has 7
_TRUTH = {"true": True, "false": False}
_NULLS = {"null", "~", ""}
_WORDS_OF_OLD = {
    "yes",
    "no",
    "on",
    "off",
    "y",
    "n",
    "true",
    "false",
    "null",
}  # YAML 1.1 reads these as truth values


@dataclass
class Document:
    """One parsed rule file: `data`, and the line of everything in it."""

    path: Path
    label: str  # the file as messages name it
    data: Any
    marks: list[int] = field(repr=False)  # the line of every node, in the order of the file

    @cached_property
    def lines(self) -> dict[KeyPath, int]:
        """The line of every node by its keys."""
        return dict(zip(_key_paths(self.data, ()), self.marks, strict=True))

    def line(self, *keys: str | int) -> int:
        """The line of the node at `keys`, or of the closest node around it."""
        while keys not in self.lines and keys:
            keys = keys[:-1]
        return self.lines.get(keys, 1)

    def error(self, message: str, *keys: str | int) -> RuleError:
        """The error `label:line: message` for the node at `keys`."""
        return RuleError(f"{self.label}:{self.line(*keys)}: {message}")


def load_yaml(path: Path, label: str | None = None) -> Document:
    """The parsed file. RuleError, with file and line, for anything that is not plain strict YAML."""
    label = label or str(path)
    return parse_yaml(read_text(path, label), label, path)


def parse_yaml(text: str, label: str, path: Path | None = None) -> Document:
    """The same for a text that is in memory already."""
    import yaml  # here, because cached rules are read without it: half of the time that importing rules takes

    reader = _Reader(text, label)
    try:
        data = reader.document()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        raise RuleError(f"{label}:{line}: not YAML: {error.problem or error.context}") from error
    except yaml.YAMLError as error:  # a character that YAML does not allow carries no mark
        raise RuleError(f"{label}:1: not YAML: {str(error).splitlines()[0]}") from error
    return Document(path or Path(label), label, data, reader.marks)


def _key_paths(data: Any, path: KeyPath) -> Iterator[KeyPath]:
    yield path
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in items:
        yield from _key_paths(value, (*path, key))


def read_text(path: Path, label: str) -> str:
    """The file's text, within the limit of size, as UTF-8."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise RuleError(f"{label}:1: cannot be read: {error.strerror}") from error
    if len(raw) > RULE_FILE_BYTES:
        raise RuleError(f"{label}:1: {len(raw):,} bytes; a rule file has at most {RULE_FILE_BYTES:,}")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise RuleError(f"{label}:{line}: not UTF-8") from error


class _Reader:
    """Builds lists, dicts and scalars from parser events: the safe loader's own construction keeps no lines."""

    def __init__(self, text: str, label: str):
        self.label = label
        self.marks: list[int] = []
        import yaml

        self.yaml = yaml
        # the C parser is ten times faster where it was built
        self.events: Iterator[Any] = yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))

    def document(self) -> Any:
        next(self.events)  # start of the stream
        if isinstance(next(self.events), self.yaml.StreamEndEvent):
            raise RuleError(f"{self.label}:1: the file is empty")
        data = self.node(next(self.events))
        next(self.events)  # end of the document
        after = next(self.events)
        if not isinstance(after, self.yaml.StreamEndEvent):
            raise self.error(after, "a second document; a rule file holds one")
        return data

    def node(self, event: Any, line: int | None = None, depth: int = 0) -> Any:
        self.marks.append(line or _line(event))
        if isinstance(event, self.yaml.AliasEvent) or event.anchor:
            raise self.error(event, "anchors (&) and aliases (*) are not allowed; write the value out")
        if event.tag:
            raise self.error(event, f"the tag {shorten(event.tag)} is not allowed")
        if depth > _DEPTH:
            raise self.error(event, f"nested more than {_DEPTH} levels")
        if isinstance(event, self.yaml.ScalarEvent):
            return self.scalar(event)
        return (
            self.sequence(depth + 1)
            if isinstance(event, self.yaml.SequenceStartEvent)
            else self.mapping(depth + 1)
        )

    def sequence(self, depth: int) -> list[Any]:
        items: list[Any] = []
        while not isinstance(event := next(self.events), self.yaml.SequenceEndEvent):
            items.append(self.node(event, depth=depth))
        return items

    def mapping(self, depth: int) -> dict[str, Any]:
        items: dict[str, Any] = {}
        lines: dict[str, int] = {}
        while not isinstance(event := next(self.events), self.yaml.MappingEndEvent):
            if not isinstance(event, self.yaml.ScalarEvent) or event.anchor or event.tag:
                raise self.error(event, "a key must be plain text")
            key: str = event.value  # verbatim: `on` as a key is the word "on", `1` the text "1"
            if key in items:
                raise self.error(event, f"the key {shorten(key)} stands twice, first in line {lines[key]}")
            lines[key] = _line(event)
            items[key] = self.node(next(self.events), lines[key], depth)
        return items

    def scalar(self, event: Any) -> Any:
        if event.style:  # quoted, or a block of text
            return event.value
        try:
            return plain_value(event.value)
        except ValueError as error:
            raise self.error(event, str(error)) from None

    def error(self, event: Any, message: str) -> RuleError:
        return RuleError(f"{self.label}:{_line(event)}: {message}")


def _line(event: Any) -> int:
    return int(event.start_mark.line) + 1


def plain_value(text: str) -> Any:
    """What an unquoted scalar means; ValueError where YAML 1.1, YAML 1.2 and a reader may disagree."""
    if text in _TRUTH:
        return _TRUTH[text]
    if text in _NULLS:
        return None
    if text.lower() in _WORDS_OF_OLD:
        raise ValueError(f"{text} is a truth value to some readers: write true, false or quote it")
    if text[0] in "+-.0123456789":
        return _number(text)
    return text


def _number(text: str) -> Any:
    digits = text[1:] if text[0] in "+-" else text
    if digits.isascii() and digits.isdigit():
        if len(digits) > 1 and digits[0] == "0":
            raise ValueError(f"{text} is octal to some readers: quote it or drop the zeros")
        return int(text)
    if digits in (".inf", ".nan"):
        raise ValueError(f"{text} is no value that a rule may have")
    try:
        value = float(text)
    except ValueError:
        return _not_a_date(text)
    if "." not in digits or "_" in digits:  # YAML 1.1 reads 1e-12 as text, and 1_0 as ten
        raise ValueError(f"{text} is text to some readers: write {with_point(value)}")
    return value


def with_point(value: float) -> str:
    """A number as every YAML reader takes it for one."""
    mantissa, sign, exponent = repr(value).partition("e")
    return f"{mantissa}.0e{exponent}" if sign and "." not in mantissa else repr(value)


def _not_a_date(text: str) -> str:
    parts = text.split("-") if "-" in text[1:] else text.split(":")
    if (len(parts) > 1 and all(part.isdigit() for part in parts)) or text.lower().startswith(
        ("0x", "0o", "0b")
    ):
        raise ValueError(f"{text} is a date or a number to some readers: quote it")
    return text
