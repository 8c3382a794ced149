"""A tokenizer of a vocabulary's own files: what the table of tokenizers has for their class, with the words put in."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from itertools import chain
from typing import Any

from mapper.errors import FormatError, shorten
from mapper.running.beside import Beside
from mapper.running.pieces import document, read_pieces

SETTINGS = "tokenizer_config.json"
_SIDES = ("$A", "$B")
_EXTRA, _MOST_EXTRA = "extra_ids", 10_000
LANGUAGE, LANGUAGES = (
    "src_lang",
    "languages",
)  # the setting that says what a text is in, and all that a class has
_MANY = re.compile(r"\{(\d{1,4})\.\.(\d{1,4})\}")
EMPTY: dict[str, Any] = {
    "version": "1.0",
    "truncation": None,
    "padding": None,
    "added_tokens": [],
    "post_processor": None,
}


def from_vocabulary(beside: Beside, library: Any, settings: dict[str, Any]) -> Any:
    """The tokenizer that the class in the settings stands for; None where no row is for these files."""
    row = row_of(beside, settings)
    return None if row is None or not _has_files(row, beside) else _made(row, beside, library, settings)


def row_of(beside: Beside, settings: dict[str, Any]) -> dict[str, Any] | None:
    """The row for the class that the settings name, or without one for the files that are there."""
    name = settings.get("tokenizer_class")
    for row in beside.vocabularies["tokenizers"]:
        is_guessed = row.get("guessed", row.get("told_by") in settings) and _has_files(row, beside)
        if (name in row["classes"] if name else is_guessed) and _is_for(row, settings):
            return dict(row)
    return None


def _has_files(row: dict[str, Any], beside: Beside) -> bool:
    return all(beside.path(file) for file in row["files"])


def _is_for(row: dict[str, Any], settings: dict[str, Any]) -> bool:
    """Whether the settings have the values that the row is for."""
    said = {**row["settings"], **settings}
    return all(said[key] == value for key, value in row.get("only", {}).items())


def _made(row: dict[str, Any], beside: Beside, library: Any, settings: dict[str, Any]) -> Any:
    said = said_by(row, settings)
    if "pieces" in row:
        made = _of_pieces(row, beside, library, settings, said)
    else:
        made = _of_words(row, beside, library, settings, said)
    if "single" in row:
        surround(made, library, row, said)
    return made


def said_by(row: dict[str, Any], settings: dict[str, Any]) -> dict[str, Any]:
    """The settings that a row reads, null as the class has it; the language of a text as its word."""
    told = {key: word_of(settings.get(key, usual)) for key, usual in row["settings"].items()}
    if LANGUAGE in told:
        told[LANGUAGE] = _spelled(row, told[LANGUAGE] or row["settings"][LANGUAGE])
    return told


def _spelled(row: dict[str, Any], code: str) -> str:
    """The word of a vocabulary for a language."""
    return str(row.get("spelled", "$")).replace("$", code)


def _of_pieces(
    row: dict[str, Any], beside: Beside, library: Any, settings: dict[str, Any], said: dict[str, Any]
) -> Any:
    """The tokenizer of a SentencePiece file, with the words that its class has before and behind it."""
    name, rule = row["files"][0], row["pieces"]
    languages = [_spelled(row, code) for code in row.get(LANGUAGES, [])]
    first = list(_several(rule.get("first", []), said, languages))
    last = list(_several(rule.get("last", []), said, languages))
    last += [rule["extra"].format(at) for at in reversed(range(_extra(rule, said)))]
    pieces = read_pieces(beside.data(name) or b"", name)
    pieces = pieces.between(first, rule.get("skip", 0), last, said.get("unk_token"))
    before = [
        part
        for part in rule.get("before", [])
        if said.get(part.get("if"), True) and not said.get(part.get("unless"))
    ]
    if len(row["files"]) > 1:
        pieces = pieces.numbered(beside.json(row["files"][1]), row["files"][1]).between(
            [], 0, languages, None
        )
    steps = [part["step"] for part in before]
    text = json.dumps({**EMPTY, **document(pieces, steps, is_first=settings.get("legacy") is False)})
    made = tried(library, text, name)
    made.add_special_tokens(_special_words(beside, settings, pieces.words))
    return made


def _several(words: list[str], said: dict[str, Any], languages: list[str]) -> Iterator[str]:
    """Words by their fields: all languages, `{2..102}` as many, the others as the settings have them."""
    for word in words:
        found = _MANY.search(word)
        if word == LANGUAGES:
            yield from languages
        elif found:
            numbers = range(int(found[1]), int(found[2]) + 1)
            yield from (word.replace(found[0], str(at)) for at in numbers)
        else:
            yield str(said.get(word, word))


def _extra(rule: dict[str, Any], said: dict[str, Any]) -> int:
    """How many words stand behind those of the file. Raises FormatError."""
    count = said.get(_EXTRA) if "extra" in rule else 0
    if type(count) is not int or not 0 <= count <= _MOST_EXTRA:
        raise FormatError(
            f"{SETTINGS}: {_EXTRA} is {shorten(str(count))}, not a number of words up to {_MOST_EXTRA:,}"
        )
    return count


def _of_words(
    row: dict[str, Any], beside: Beside, library: Any, settings: dict[str, Any], said: dict[str, Any]
) -> Any:
    """The tokenizer of a table or a list of words."""
    parts = _with_settings(row["parts"], said)
    words = _vocabulary(beside, row["files"][0])
    parts["model"]["vocab"] = words
    if "merges.txt" in row["files"]:
        lines = (beside.text("merges.txt") or "").splitlines()
        parts["model"]["merges"] = [line for line in lines if line and not line.startswith("#version")]
    made = tried(library, json.dumps({**EMPTY, **parts}), row["files"][0])
    made.add_special_tokens(_special_words(beside, settings, words))
    return made


def word_of(said: Any) -> Any:
    """A token as settings have it: as a text, or as a table with its `content`. Others as they are."""
    return said.get("content") if isinstance(said, dict) else said


def tried(library: Any, text: str, name: str) -> Any:
    """What the library makes of a tokenizer.json; its errors have no type of their own. Raises FormatError."""
    try:
        return library.Tokenizer.from_str(text)
    except Exception as error:
        raise FormatError(f"{name} is no tokenizer: {shorten(str(error))}") from error


def _with_settings(value: Any, said: dict[str, Any]) -> Any:
    """Parts of a tokenizer with the values of the settings that they name."""
    if isinstance(value, dict):
        return {key: _with_settings(item, said) for key, item in value.items()}
    return said[value[1:]] if isinstance(value, str) and value.startswith("$") else value


def _vocabulary(beside: Beside, file: str) -> dict[str, Any]:
    """Word -> id: of a table, or of one of its tables where it has one a language; or a word in each line."""
    if file.endswith(".txt"):
        return {line: at for at, line in enumerate((beside.text(file) or "").splitlines())}
    words = beside.json(file)
    return next((value for value in words.values() if isinstance(value, dict)), words)


def _special_words(beside: Beside, settings: dict[str, Any], words: Collection[str]) -> list[str]:
    """Words of the vocabulary that stand for themselves: those that the settings name, and the usual ones."""
    special: dict[str, list[str]] = beside.vocabularies["special"]
    told = [word_of(settings.get(name)) for name in special]
    return [word for word in dict.fromkeys([*told, *chain(*special.values())]) if word in words]


def surround(made: Any, library: Any, row: dict[str, Any], said: dict[str, Any]) -> None:
    """Put around one text and around two what a row has there. Raises FormatError for a word that the vocabulary has not."""
    names = {part.partition(":")[0] for part in row["pair"].split()} - {*_SIDES}
    special = [(str(said[name]), made.token_to_id(str(said[name]))) for name in sorted(names)]
    if lacking := [word for word, at in special if at is None]:
        raise FormatError(f"{row['files'][0]} has no {shorten(lacking[0])}, which stands around texts")
    single, pair = (_template(row[key], said, row.get("flags", {})) for key in ("single", "pair"))
    made.post_processor = library.processors.TemplateProcessing(
        single=single, pair=pair, special_tokens=special
    )


def _template(text: str, said: dict[str, Any], flags: dict[str, str]) -> list[str]:
    """`cls_token $A sep_token` with the words that the settings have for these, without those whose flag is false."""
    parts = [part.partition(":") for part in text.split()]
    parts = [part for part in parts if said.get(flags.get(part[0], ""), True)]
    return [f"{name if name in _SIDES else said[name]}{colon}{kind}" for name, colon, kind in parts]
