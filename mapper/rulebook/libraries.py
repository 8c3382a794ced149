"""Naming files of libraries: what each calls a model's tensors, by their roles, and where its settings have each fact."""

from __future__ import annotations

import ast
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from mapper.flows.arithmetic import names, parse_rule
from mapper.rulebook.fields import Fields
from mapper.rulebook.namings import KIND, NUMBER
from mapper.rulebook.numbered import Template, template
from mapper.rulebook.rulebook import rule_files
from mapper.rulebook.strict import Document, load_yaml

LIBRARY = "library"
FOLDER = "libraries"  # of the namings: no other file of theirs is read for it
JOINED = "+"  # between roles of one block whose tensors are one in the library
STYLES = ("half", "interleaved")  # of rotary pairs, as the fact rotary.style has them
LAYOUTS = ("concatenated", "per_head", "grouped")  # of joined maps, as the fact attention.fused has them
TENSORS = ("weight", "bias")  # of a leaf
_WEIGHT = TENSORS[0]
ENTRY = ("name", "weight", "bias", "transposed", "layout", "stores", "drops", "zeros", "zeros_beside", "tied", "kernel", "halves_swapped", "rows", "beside")  # fmt: skip
# Where a field of the settings is from, one of them; `at` narrows a fact to a block.
ORIGINS = ("value", "fact", "rows", "columns", "has", "lacks", "config", "expr", "count", "rank")
EXTENTS = ("rows", "columns")  # of a weight, which arithmetic may use too
SETTING = (*ORIGINS, "at", "map", "default", "when", "unless", "over", "alike", "numbers")


@dataclass(frozen=True)
class Entry:
    """What a library calls the tensors of one role, or of several that are one there."""

    roles: tuple[str, ...]  # role paths of leaves, `{n}` for the element of a list
    numbers: tuple[str, ...]  # what names call the numbers of these, one after the other
    tensors: Mapping[str, Template]  # tensor of the leaf -> its whole name in the library
    transposed: bool = False  # stored [in, out]
    layout: str = LAYOUTS[0]  # of several roles
    stores: str = ""  # role path whose tensor stands here where a model has none of its own
    tied: bool = False  # the library has one parameter for this and what `stores` names: no other numbers
    drops: str = ""  # role path: what is equal to its tensor is not stored a second time
    zeros: bool = False  # a bias is always there: zeros where the model has none
    zeros_beside: str = ""  # role path with `{n}` as the roles have it: the same where its map has a bias
    kernel: int = 0  # how many extents of one a map has there behind its own: a convolution of one place
    halves_swapped: bool = False  # the second half of the rows stands before the first
    swapped_without: Template | None = None  # role path: only where the model has nothing there
    rows: tuple[
        ast.expr, ...
    ] = ()  # of joined roles but the last, by which they are cut apart; none: equal parts
    beside: tuple[
        tuple[Template, Mapping[str, Template]], ...
    ] = ()  # role path -> the names where it is there

    @property
    def every_name(self) -> list[tuple[str, Template]]:
        """Each name that a tensor may have, with the tensor."""
        tables = [self.tensors, *(tensors for _, tensors in self.beside)]
        return [item for table in tables for item in table.items()]

    def _known(self, indices: Iterable[str], counts: Mapping[str, int]) -> dict[str, int]:
        return {**counts, **dict(zip(self.numbers, map(int, indices), strict=True))}

    def is_swapped(self, indices: Iterable[str], counts: Mapping[str, int], roles: Container[str]) -> bool:
        """Whether the halves of its rows lie the other way round in a model of these role paths."""
        without = self.swapped_without
        return self.halves_swapped or (
            without is not None and without.of(self._known(indices, counts)) not in roles
        )

    def named(
        self, tensor: str, indices: Iterable[str], counts: Mapping[str, int], roles: Container[str]
    ) -> str:
        """What a tensor is called in a model of these role paths."""
        known = self._known(indices, counts)
        other = (tensors for role, tensors in self.beside if role.of(known) in roles)
        return next(other, self.tensors)[tensor].of(known)


@dataclass(frozen=True)
class Same:
    """The role that a tensor has elsewhere: a bare parameter here, the weight of a module there."""

    role: str
    transposed: bool = False  # here [in, out]


@dataclass(frozen=True)
class Free:
    """Why a fact may be another in the library: no output shows it, where these facts have these values."""

    why: str
    when: Mapping[str, Any]  # fact -> value, or arithmetic over others


@dataclass(frozen=True)
class LibraryNaming:
    """One naming file."""

    library: str
    of: str  # which of the library's architectures
    file: str
    entries: tuple[Entry, ...]
    rotary: str  # how its rows of queries and keys lie: one of STYLES
    weights: str  # the file that the library looks for; "" for safetensors as the hub has them
    tensors_in: str  # of a torch file: the table that holds the tensors
    settings: str  # the file of the settings, or the table of a torch file; "" where it keeps none
    is_table: bool  # whether the settings stand in the file of the weights
    inside: str  # the field of the settings that holds all of `fields`
    fields: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    computes: Mapping[str, Any] = field(
        default_factory=dict
    )  # fact -> the value that no setting changes, or arithmetic
    free: Mapping[str, Free] = field(default_factory=dict)  # fact -> where it may be another
    same: Mapping[str, Same] = field(default_factory=dict)  # role path -> the role path that entries have
    reads: str = ""  # the family whose checkpoints have these very names: they get their roles from here
    lists: tuple[
        tuple[Template, ast.expr], ...
    ] = ()  # a role path up to its last number -> the length of that list
    examples: tuple[dict[str, Any], ...] = ()

    @property
    def label(self) -> str:
        return f"{self.library}/{self.of}"


@lru_cache(maxsize=1)
def library_namings() -> tuple[LibraryNaming, ...]:
    """All files of this kind: the user's own, then the shipped ones, by their names."""
    documents = library_documents()
    return tuple(read_library(document, documents) for document in documents.values())


def library_documents() -> dict[str, Document]:
    """The files by the name of the file, without its suffix."""
    paths = [path for path in rule_files(KIND) if path.parent.name == FOLDER]
    return {path.stem: load_yaml(path) for path in paths}


def read_library(document: Document, others: Mapping[str, Document]) -> LibraryNaming:
    """What one file says. What it extends gives every entry and field that it has not itself; null takes one out."""
    fields = Fields(document.data, document.label, lambda keys: document.line(*keys))
    fields.words("source")
    base = fields.text("extends", "")
    if base and (base not in others or others[base] is document):
        fields.fail(f"there is no other naming {base!r}", "extends")
    above = read_library(others[base], others) if base else None
    entries = _entries(fields)
    settings = fields.inner(fields.mapping("settings"), "settings")
    table, file = settings.text("table", ""), settings.text("file", "")
    if table and file:
        settings.fail("say a file beside the weights or a table in theirs, not both")
    given = {key: _setting(settings, key, value) for key, value in settings.mapping("fields").items()}
    found = LibraryNaming(
        fields.text(LIBRARY),
        fields.text("of"),
        document.label,
        _with_base(entries, above),
        fields.text("rotary", above.rotary if above else STYLES[0]),
        fields.text("weights", above.weights if above else ""),
        fields.text("tensors_in", above.tensors_in if above else ""),
        table or file or (above.settings if above else ""),
        bool(table) or (not file and above is not None and above.is_table),
        settings.text("inside", above.inside if above else ""),
        {key: value for key, value in {**(above.fields if above else {}), **given}.items() if value},
        _computed(fields, "computes") or (above.computes if above else {}),
        {key: _free(fields, key, value) for key, value in fields.mapping("free").items()}
        or (above.free if above else {}),
        {key: _same(fields, key, value) for key, value in fields.mapping("same").items()},
        fields.text("reads", ""),
        tuple(_lists(fields)) or (above.lists if above else ()),
        tuple(fields.sequence("examples")),
    )
    if found.rotary not in STYLES:
        fields.fail(f"expected one of {', '.join(STYLES)}", "rotary")
    _refuse_unknown_numbers(found, fields)
    settings.done()
    fields.done()
    return found


def _refuse_unknown_numbers(naming: LibraryNaming, fields: Fields) -> None:
    """Every number of a name is said by that of the role path and by lengths of lists, and leaves none of these out."""
    lengths = {name for _, length in naming.lists for name in names(length)}
    for entry in naming.entries:
        for _, name in entry.every_name:
            if not set(entry.numbers) <= set(name.variables) <= lengths.union(entry.numbers):
                where = entry.roles[0]
                fields.fail(
                    f"the name of {where} does not have its numbers as {', '.join(entry.numbers)}", "names"
                )


def _with_base(entries: Mapping[str, Entry | None], above: LibraryNaming | None) -> tuple[Entry, ...]:
    """The entries of a file before those of the one that it extends."""
    own = [entry for entry in entries.values() if entry]
    said = {key for key, entry in entries.items() if not entry} | {
        role for entry in own for role in entry.roles
    }
    return (
        *own,
        *(entry for entry in (above.entries if above else ()) if not said.intersection(entry.roles)),
    )


def _entries(fields: Fields) -> dict[str, Entry | None]:
    return {
        key: None if value is None else _entry(fields, key, value)
        for key, value in fields.mapping("names").items()
    }


def roles_of(key: str) -> tuple[str, ...]:
    """`a.query+key` are `a.query` and `a.key`; between whole paths spaces stand around the sign."""
    found: list[str] = []
    for path in key.split(f" {JOINED} "):
        above, _, last = path.rpartition(".")
        found += (f"{above}.{role}" if above else role for role in last.split(JOINED))
    return tuple(found)


def _entry(fields: Fields, key: str, value: Any) -> Entry:
    said = (
        {_WEIGHT if str(value).endswith(f".{_WEIGHT}") else "name": value}
        if isinstance(value, str)
        else value
    )
    if not isinstance(said, dict) or any(word not in ENTRY for word in said):
        fields.fail(f"expected a name, or a mapping with some of {', '.join(ENTRY)}", "names", key)
    inner = fields.inner(said, "names", key)
    roles = [_template(inner, role) for role in roles_of(key)]
    if any(role.variables != roles[0].variables for role in roles):
        inner.fail("joined roles have the same numbers")
    layout = inner.text("layout", LAYOUTS[0])
    if layout not in LAYOUTS:
        inner.fail(f"expected one of {', '.join(LAYOUTS)}", "layout")
    return Entry(
        tuple(role.plain(NUMBER) for role in roles),
        tuple(roles[0].variables),
        _tensors(inner, said),
        inner.flag("transposed"),
        layout,
        inner.text("stores", ""),
        inner.flag("tied"),
        inner.text("drops", ""),
        inner.flag("zeros"),
        inner.text("zeros_beside", ""),
        _ones(inner),
        said.get("halves_swapped") is True,
        _without(inner),
        tuple(parse_rule(text, fields.file, fields.line("names", key)) for text in inner.words("rows")),
        tuple(
            (_template(inner, role), _tensors(inner, {"name": name}))
            for role, name in inner.mapping("beside").items()
        ),
    )


def _without(inner: Fields) -> Template | None:
    """Of `halves_swapped` that is true only beside nothing at a role path."""
    said = inner.any("halves_swapped", False)
    return None if isinstance(said, bool) else _template(inner, inner.text("halves_swapped"))


def _ones(inner: Fields) -> int:
    """How many extents a kernel of one place has: 2 of `1x1`."""
    kernel = inner.text("kernel", "")
    if kernel.replace("x1", "") not in ("", "1"):
        inner.fail("expected 1, 1x1 or 1x1x1: a larger one is more than a map", "kernel")
    return kernel.count("1")


def _tensors(inner: Fields, said: Mapping[str, Any]) -> dict[str, Template]:
    """The whole name of each tensor of a leaf."""
    found = {tensor: f"{said['name']}.{tensor}" for tensor in TENSORS} if said.get("name") else {}
    found |= {tensor: str(said[tensor]) for tensor in TENSORS if tensor in said}
    if not found:
        inner.fail("expected a name")
    return {tensor: _template(inner, name) for tensor, name in found.items()}


def _template(inner: Fields, text: str) -> Template:
    try:
        return template(text)
    except ValueError as error:
        inner.fail(str(error))


def _lists(fields: Fields) -> Iterator[tuple[Template, ast.expr]]:
    """Role paths that end in the number of a list, with arithmetic for its length."""
    for path, length in fields.mapping("lists").items():
        yield _template(fields, path), parse_rule(str(length), fields.file, fields.line("lists", path))


def _computed(fields: Fields, key: str) -> dict[str, Any]:
    """Facts with their values; `{expr: ...}` is arithmetic over others."""
    return {
        fact: parse_rule(str(said.get("expr")), fields.file, fields.line(key, fact))
        if isinstance(said, dict)
        else said
        for fact, said in fields.mapping(key).items()
    }


def _free(fields: Fields, key: str, value: Any) -> Free:
    inner = fields.inner({"why": value} if isinstance(value, str) else value, "free", key)
    found = Free(inner.text("why"), _computed(inner, "when"))
    inner.done()
    return found


def _same(fields: Fields, key: str, value: Any) -> Same:
    inner = fields.inner({"role": value} if isinstance(value, str) else value, "same", key)
    found = Same(inner.text("role"), inner.flag("transposed"))
    inner.done()
    return found


def _is_of_one_origin(said: dict[str, Any]) -> bool:
    origins = [word for word in said if word in ORIGINS and not ("expr" in said and word in EXTENTS)]
    return len(origins) == 1


def _setting(fields: Fields, key: str, value: Any) -> dict[str, Any]:
    """Where one field of the settings comes from; a text is a fact, null takes the field out."""
    if value is None:
        return {}
    said = {"fact": value} if isinstance(value, str) else value
    if not isinstance(said, dict) or not _is_of_one_origin(said):
        fields.fail(f"expected a fact, or a mapping with one of {', '.join(ORIGINS)}", "fields", key)
    if odd := [word for word in said if word not in SETTING]:
        fields.fail(f"unknown {', '.join(odd)}; allowed: {', '.join(SETTING)}", "fields", key)
    if "expr" in said:
        return {**said, "expr": parse_rule(str(said["expr"]), fields.file, fields.line("fields", key))}
    return dict(said)
