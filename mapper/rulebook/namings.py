"""Naming files: what another container calls a model's tensors and settings, and how it arranged them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from mapper.rulebook.fields import Fields
from mapper.rulebook.rulebook import rule_files
from mapper.rulebook.strict import Document, load_yaml

KIND = "namings"
NAMING = "naming"
NUMBER = "{n}"  # in a pattern: any index; the first of them is the layer's
PART = "{e}"  # in a target: the number of one of the tensors that are stacked in this one
# How a tensor was arranged, and what the value says.
ARRANGEMENTS = ("pairs", "thirds", "groups", "rows", "transposed", "plus", "negative_exp", "flat_axis", "row")
COUNTED = ("pairs", "thirds", "groups", "rows")  # by a key of the metadata, or several
SETTINGS = (
    "value",
    "length",
    "absent",
    "present",
    "most",
    "metadata",
    "map",
    "text",
    "ratio",
    "of",
    "group",
    "unsaid",
    "written",
    "bent",
    "tensors",
    "beside",
)


@dataclass(frozen=True)
class Composition:
    """A tensor of the model that the container keeps in several, whose whole names these are."""

    of: tuple[str, ...]
    axis: int = 0  # one after the other along it
    alternating: bool = False  # one of each in turn
    swapped: bool = False  # its last two axes, after that
    flat: bool = False  # its first two axes are one, at last


@dataclass(frozen=True)
class Naming:
    """One naming file. Patterns are beginnings of names, by words."""

    name: str
    file: str
    container: str
    architectures: tuple[str, ...]
    others: bool  # whether it is for architectures that no naming has
    needs: tuple[str, ...]  # patterns that tell it from another of the same architecture
    lacks: tuple[str, ...]  # patterns of which none may be there
    config: dict[str, dict[str, Any]]  # field of a config -> where the metadata has it
    names: dict[tuple[str, ...], str]  # words of a pattern -> its target
    arranged: dict[tuple[str, ...], dict[str, Any]]  # words of a pattern -> ARRANGEMENTS with their values
    left: dict[tuple[str, ...], str]  # what no model has -> why
    composed: dict[str, Composition]  # a tensor of the model -> what it is put together of
    examples: tuple[dict[str, Any], ...]


def words(pattern: str) -> tuple[str, ...]:
    return tuple(pattern.split("."))


@lru_cache(maxsize=1)
def namings() -> tuple[Naming, ...]:
    """All naming files: the user's own, then the shipped ones."""
    documents = naming_documents()
    return tuple(read_naming(document, documents) for document in documents.values())


def naming_documents() -> dict[str, Document]:
    """The files by the name of their naming."""
    found = [document for path in rule_files(KIND) if NAMING in (document := load_yaml(path)).data]
    return {str(document.data[NAMING]): document for document in reversed(found)}  # the first of a name wins


def read_naming(document: Document, others: dict[str, Document]) -> Naming:
    """The naming in a file. What it extends gives every entry that it has not itself."""
    fields = Fields(document.data, document.label, lambda keys: document.line(*keys))
    name, base = fields.text(NAMING), fields.text("extends", "")
    if base and (base not in others or base == name):
        fields.fail(f"there is no other naming {base!r}", "extends")
    above = (
        read_naming(others[base], {key: other for key, other in others.items() if key != name})
        if base
        else None
    )
    config = {key: _setting(fields, key, value) for key, value in fields.mapping("config").items()}
    names = {words(key): value for key, value in fields.mapping("names").items()}
    for pattern, target in names.items():
        if not isinstance(target, str) or target.count(NUMBER) > pattern.count(NUMBER):
            fields.fail("expected the beginning of a name", "names", ".".join(pattern))
    arranged = {
        words(key): _arranged(fields, key, value) for key, value in fields.mapping("arranged").items()
    }
    left = {words(key): str(value) for key, value in fields.mapping("left").items()}
    composed = {key: _composition(fields, key, value) for key, value in fields.mapping("composed").items()}
    fields.words("source")
    found = Naming(
        name,
        document.label,
        fields.text("container"),
        fields.words("architectures"),
        fields.flag("others"),
        fields.words("needs"),
        fields.words("lacks"),
        {**(above.config if above else {}), **config},
        {**(above.names if above else {}), **names},
        {**(above.arranged if above else {}), **arranged},
        {**(above.left if above else {}), **left},
        {**(above.composed if above else {}), **composed},
        tuple(fields.sequence("examples")),
    )
    fields.done()
    return found


def _setting(fields: Fields, key: str, value: Any) -> dict[str, Any]:
    """Where one field of the config comes from; a text is a key of the metadata, null takes the field out."""
    setting = value if isinstance(value, dict) else {"metadata": value}
    odd = [word for word in setting if word not in SETTINGS]
    if odd or not setting:
        fields.fail(f"unknown {', '.join(odd)}; allowed: {', '.join(SETTINGS)}", "config", key)
    return setting


def _composition(fields: Fields, key: str, value: Any) -> Composition:
    inner = fields.inner(value, "composed", key)
    found = Composition(
        inner.words("of"),
        int(inner.any("axis", 0)),
        inner.flag("alternating"),
        inner.flag("swapped"),
        inner.flag("flat"),
    )
    inner.done()
    if len(found.of) < 2:
        fields.fail("expected the names of several tensors in 'of'", "composed", key)
    return found


def _arranged(fields: Fields, key: str, value: Any) -> dict[str, Any]:
    odd = [word for word in value if word not in ARRANGEMENTS] if isinstance(value, dict) else [str(value)]
    if odd:
        fields.fail(f"unknown {', '.join(odd)}; allowed: {', '.join(ARRANGEMENTS)}", "arranged", key)
    return dict(value)
