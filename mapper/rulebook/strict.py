"""YAML without its surprises: the reader of rule files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from pathlib import Path
from typing import Any

from mapper._dataclass import dataclass
from mapper._parsed import Kept, SourceFile
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
    marks: Any = field(
        repr=False
    )  # a value's line; of a mapping or a list [its line, the marks of what it holds]

    lacks: str | None = field(
        default_factory=lambda: None
    )  # a field at the top that is left out, with its marks

    made: Any = field(
        default_factory=lambda: None, repr=False
    )  # plain data that was made of it and of the file beside it, for those who never read these

    def whole(self) -> Document:
        """With the field that was left out."""
        return load_yaml(self.path, self.label) if self.lacks else self

    def without(self, key: str) -> Document:
        """The same without a field at the top."""
        if not isinstance(self.data, dict) or key not in self.data:
            return self
        at = 1 + list(self.data).index(key)
        data = {name: value for name, value in self.data.items() if name != key}
        return Document(
            self.path, self.label, data, [*self.marks[:at], *self.marks[at + 1 :]], key, self.made
        )

    def line(self, *keys: str | int) -> int:
        """The line of the node at `keys`, or of the closest node around it."""
        data, mark = self.data, self.marks
        for key in keys:
            places = list(
                data if isinstance(data, dict) else range(len(data)) if isinstance(data, list) else ()
            )
            if key not in places:
                break
            data, mark = data[key], mark[1 + places.index(key)]
        return mark[0] if isinstance(mark, list) else mark

    def error(self, message: str, *keys: str | int) -> RuleError:
        """The error `label:line: message` for the node at `keys`."""
        return RuleError(f"{self.label}:{self.line(*keys)}: {message}")


class KeptDocument(Document):
    """One file as an earlier process parsed it: its content is decoded when it is first asked for."""

    def __init__(self, file: SourceFile, kept: Kept, at: int):
        self.file, self.label = file, file.label
        self._kept, self._at = kept, at

    def __getattr__(self, name: str) -> Any:
        """What is not there yet. Where the copy is damaged, the file itself is parsed."""
        if name == "path":
            self.path = Path(self.file.path)
        elif name == "made":
            try:
                self.made = self._kept.made(self._at)
            except LookupError:
                self.made = None
        elif name in ("data", "lacks"):
            try:
                self.data, self.lacks = self._kept.record(self._at)
            except LookupError:
                self._parse()
        elif name == "marks":
            try:
                self.marks = self._kept.marks(self._at)
            except LookupError:
                self._parse()
        else:
            raise AttributeError(name)
        return self.__dict__[name]

    def _parse(self) -> None:
        read = load_yaml(self.path, self.label)
        self.data, self.marks, self.lacks = read.data, read.marks, None


def load_yaml(path: Path, label: str | None = None) -> Document:
    """The parsed file. RuleError, with file and line, for anything that is not plain strict YAML."""
    label = label or str(path)
    return parse_yaml(read_text(path, label), label, path)


def parse_yaml(text: str, label: str, path: Path | None = None) -> Document:
    """The same for a text that is in memory already."""
    import yaml  # here, because cached rules are read without it: half of the time that importing rules takes

    reader = _Reader(text, label)
    try:
        data, marks = reader.document()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        raise RuleError(f"{label}:{line}: not YAML: {error.problem or error.context}") from error
    except yaml.YAMLError as error:  # a character that YAML does not allow carries no mark
        raise RuleError(f"{label}:1: not YAML: {str(error).splitlines()[0]}") from error
    return Document(path or Path(label), label, data, marks)


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
        import yaml

        self.yaml = yaml
        # the C parser is ten times faster where it was built
        self.events: Iterator[Any] = yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))

    def document(self) -> tuple[Any, Any]:
        """Its data and its marks."""
        next(self.events)  # start of the stream
        if isinstance(next(self.events), self.yaml.StreamEndEvent):
            raise RuleError(f"{self.label}:1: the file is empty")
        found = self.node(next(self.events))
        next(self.events)  # end of the document
        after = next(self.events)
        if not isinstance(after, self.yaml.StreamEndEvent):
            raise self.error(after, "a second document; a rule file holds one")
        return found

    def node(self, event: Any, line: int | None = None, depth: int = 0) -> tuple[Any, Any]:
        """A value and its marks."""
        line = line or _line(event)
        if isinstance(event, self.yaml.AliasEvent) or event.anchor:
            raise self.error(event, "anchors (&) and aliases (*) are not allowed; write the value out")
        if event.tag:
            raise self.error(event, f"the tag {shorten(event.tag)} is not allowed")
        if depth > _DEPTH:
            raise self.error(event, f"nested more than {_DEPTH} levels")
        if isinstance(event, self.yaml.ScalarEvent):
            return self.scalar(event), line
        if isinstance(event, self.yaml.SequenceStartEvent):
            return self.sequence(line, depth + 1)
        return self.mapping(line, depth + 1)

    def sequence(self, line: int, depth: int) -> tuple[list[Any], list[Any]]:
        items: list[Any] = []
        marks: list[Any] = [line]
        while not isinstance(event := next(self.events), self.yaml.SequenceEndEvent):
            item, mark = self.node(event, depth=depth)
            items.append(item)
            marks.append(mark)
        return items, marks

    def mapping(self, line: int, depth: int) -> tuple[dict[str, Any], list[Any]]:
        items: dict[str, Any] = {}
        marks: list[Any] = [line]
        lines: dict[str, int] = {}
        while not isinstance(event := next(self.events), self.yaml.MappingEndEvent):
            if not isinstance(event, self.yaml.ScalarEvent) or event.anchor or event.tag:
                raise self.error(event, "a key must be plain text")
            key: str = event.value  # verbatim: `on` as a key is the word "on", `1` the text "1"
            if key in items:
                raise self.error(event, f"the key {shorten(key)} stands twice, first in line {lines[key]}")
            lines[key] = _line(event)
            items[key], mark = self.node(next(self.events), lines[key], depth)
            marks.append(mark)
        return items, marks

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
