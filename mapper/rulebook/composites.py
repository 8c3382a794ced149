"""`vocabulary: composites`: files of several models, and what the names of a model say that it is."""

from __future__ import annotations

from collections.abc import Iterable

from mapper._dataclass import dataclass
from mapper.rulebook.facts import fields_of
from mapper.rulebook.fields import Fields
from mapper.rulebook.strict import Document

SECTION = "composites"
EITHER = " | "  # between beginnings of which one is enough
NUMBER, WORD = "{n}", "{name}"  # in a beginning: any number, any word


@dataclass(frozen=True)
class Composite:
    """One kind of file with several models."""

    name: str
    needs: tuple[tuple[str, ...], ...]  # beginnings of names that must be there: one of each
    parts: dict[str, tuple[str, ...]]  # name of a model -> beginnings of its names, the first that occurs


@dataclass(frozen=True)
class Called:
    """Names by which a model is told in words."""

    what: str
    has: tuple[str, ...]
    lacks: tuple[str, ...]


@dataclass(frozen=True)
class Composites:
    """All files of this kind together, the first first."""

    kinds: tuple[Composite, ...] = ()
    together: frozenset[str] = frozenset()  # tables of a training file that are one model together
    called: tuple[Called, ...] = ()


def read_composites(documents: Iterable[Document]) -> Composites:
    """What the files named `vocabulary: composites` say."""
    kinds: dict[str, Composite] = {}
    together: set[str] = set()
    called: list[Called] = []
    for document in documents:
        if not isinstance(document.data, dict) or document.data.get("vocabulary") != SECTION:
            continue
        fields = fields_of(document)
        fields.text("vocabulary")
        for name, value in fields.mapping(SECTION).items():
            kinds.setdefault(name, _composite(fields.inner(value, SECTION, name), name))
        together.update(fields.words("together"))
        for what, items in fields.mapping("called").items():
            if not isinstance(items, list):
                fields.fail("expected a list of names", "called", what)
            called += [_called(fields.inner(item, "called", what, at), what) for at, item in enumerate(items)]
        fields.done()
    return Composites(tuple(kinds.values()), frozenset(together), tuple(called))


def _composite(fields: Fields, name: str) -> Composite:
    parts = {
        part: tuple(beginnings) if isinstance(beginnings, list) else (beginnings,)
        for part, beginnings in fields.mapping("parts").items()
    }
    for part, beginnings in parts.items():
        for text in beginnings:
            _check_beginning(fields, part, text)
    needs = tuple(tuple(need.split(EITHER)) for need in fields.words("needs"))
    fields.done()
    if not needs or not parts:
        fields.fail("neither 'needs' nor 'parts' may be empty")
    return Composite(name, needs, parts)


def _check_beginning(fields: Fields, part: str, text: object) -> None:
    if not isinstance(text, str) or not all(text.split(".")):
        fields.fail("expected the beginnings of names", "parts", part)
    for mark in (NUMBER, WORD):
        if mark in part and mark not in text.split("."):
            fields.fail(f"{mark} is in the name of the model, and not in {text!r}", "parts", part)


def _called(fields: Fields, what: str) -> Called:
    found = Called(what, fields.words("has"), fields.words("lacks"))
    fields.done()
    if not found.has:
        fields.fail("the field 'has' is missing")
    return found
