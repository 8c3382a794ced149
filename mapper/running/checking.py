"""Whether a file of `rules/running` says what its readers can do: `mapper rules check`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING, Any

from mapper.rulebook.fields import Fields
from mapper.rulebook.strict import Document
from mapper.running.tables import KIND
from mapper.sources.companions import NAMES, TOKENIZER

if TYPE_CHECKING:
    from mapper.rulebook.rulebook import Rulebook

_NUMBERS, _CROPS = ("sides", "shortest_edge"), ("enlarged", "enlarged_below_384")
_AROUND = ("$A", "$B")  # the texts in what stands around them


def check_running(document: Document, rulebook: Rulebook) -> None:
    """Raise RuleError, with the line, for a table that no reader has, and for what means nothing in it."""
    fields = Fields(document.data, document.label, lambda keys: document.line(*keys))
    name = fields.text(KIND)
    _among(fields, KIND, [name], _TABLES)
    if document.path.stem != name:
        fields.fail(f"the file is {document.path.name}, and only {name}.yaml is read as this table", KIND)
    also, check = _TABLES[name]
    shared = {key: fields.any(key) for key in also}
    taken: dict[str, int] = {}
    for at, data in enumerate(fields.sequence(name)):
        row = fields.inner(data, name, at)
        check(row, shared, rulebook)
        row.done()
        _once(row, taken)
    fields.done()


def _once(row: Fields, taken: dict[str, int]) -> None:
    """A class is of one row: a second one is never reached, but for other settings."""
    only = row.any("only", None)
    for name in [] if only else row.words("classes"):
        if name in taken:
            row.fail(f"{name} is in line {taken[name]} too", "classes")
        taken[name] = row.line()


def _among(fields: Fields, key: str, words: Collection[str], known: Collection[str]) -> None:
    for word in words:
        if word not in known:
            fields.fail(f"{word!r} is none of {', '.join(known)}", key)


def _use(row: Fields, shared: dict[str, Any], rulebook: Rulebook) -> None:
    from mapper.running.entry import WORK

    pair = (row.text("use"), row.text("reads"))
    if pair not in WORK:
        row.fail(f"nothing is done as {pair[0]!r} with {pair[1]!r}", "use")
    row.need("task"), row.need("takes")
    row.words("task"), row.text("independent", ""), row.text("block", "")
    _among(row, "beside", [name] if (name := row.text("beside", "")) else [], NAMES)
    for key in ("takes", "lacks"):
        _among(row, key, row.words(key), rulebook.inputs)


def _image(row: Fields, shared: dict[str, Any], rulebook: Rulebook) -> None:
    row.need("classes"), row.mapping("defaults")
    _among(row, "number", [row.text("number")], _NUMBERS)
    if type(row.any("multiple", 1)) is not int or row.any("multiple", 1) < 1:
        row.fail("expected a number of pixels", "multiple")
    (
        row.flag("rounded"),
        row.flag("packed"),
        row.words("refuses"),
        row.text("config", ""),
        row.mapping("names"),
    )
    _among(row, "crop", [crop] if (crop := row.text("crop", "")) else [], _CROPS)


def _prompt(row: Fields, shared: dict[str, Any], rulebook: Rulebook) -> None:
    from mapper.running.prompts import COUNTS

    row.need("classes"), row.mapping("settings")
    for key in ("word", "place", "before", "after", "between"):
        row.text(key)
    _among(row, "count", [row.text("count")], COUNTS)


def _sound(row: Fields, shared: dict[str, Any], rulebook: Rulebook) -> None:
    from mapper.running.sound_steps import STEPS

    row.need("classes")
    _among(row, "gives", [row.text("gives")], rulebook.inputs)
    settings = {**(shared["common"] or {}), **row.mapping("defaults")}
    _named(row, "seconds", row.any("seconds"), settings)
    for at, step in enumerate(row.sequence("steps")):
        inner = row.inner(step, "steps", at)
        _among(inner, "step", [inner.text("step")], STEPS)
        _among(inner, "if", [inner.text("if")] if "if" in inner.data else [], settings)
        _among(inner, "when", inner.mapping("when"), settings)
        _among(inner, "name", [inner.text("name")] if "name" in inner.data else [], rulebook.inputs)
        for key, value in inner.data.items():
            _named(inner, key, value, settings)


def _tokenizer(row: Fields, shared: dict[str, Any], rulebook: Rulebook) -> None:
    row.need("classes"), row.need("files")
    row.flag("guessed"), row.text("told_by", "")
    _among(row, "files", row.words("files"), TOKENIZER)
    settings = row.mapping("settings")
    row.mapping("pieces"), row.mapping("flags"), row.words("languages"), row.text("spelled", "")
    _among(row, "only", row.mapping("only"), settings)
    for value in _leaves(row.mapping("parts")):
        _named(row, "parts", value, settings)
    for key in ("single", "pair"):
        words = [part.partition(":")[0] for part in row.text(key, "").split()]
        _among(row, key, words, [*_AROUND, *settings])


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        for item in value.values():
            yield from _leaves(item)
    else:
        yield value


def _named(fields: Fields, key: str, value: Any, settings: Collection[str]) -> None:
    """`$NAME` is a setting that the row has a value for."""
    if isinstance(value, str) and value.startswith("$") and value[1:] not in settings:
        fields.fail(f"no setting {value[1:]!r} beside it; there are {', '.join(settings)}", key)


# A table -> its fields beside the list of rows, and what a row is checked by.
_TABLES: dict[str, tuple[tuple[str, ...], Callable[[Fields, dict[str, Any], Rulebook], None]]] = {
    "uses": ((), _use),
    "prompts": ((), _prompt),
    "images": (("suffixes", "common"), _image),
    "sounds": (("suffixes", "common"), _sound),
    "tokenizers": (("special", "languages", "gguf_pieces", "gguf_byte_pairs", "gguf_splits"), _tokenizer),
}
