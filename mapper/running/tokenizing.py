"""A text as ids and back: the tokenizer in the files beside the weights, or in a GGUF file's metadata."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from mapper.errors import SourceError, shorten
from mapper.running.beside import Beside
from mapper.running.extras import need
from mapper.running.vocabularies import (
    LANGUAGE,
    SETTINGS,
    from_vocabulary,
    row_of,
    said_by,
    surround,
    tried,
    word_of,
)

FILE, SPECIAL = "tokenizer.json", "special_tokens_map.json"
# Vocabularies that are read for the classes that the table has.
_UNREAD = (
    "tokenizer.model",
    "spiece.model",
    "sentencepiece.bpe.model",
    "source.spm",
    "spm.model",
    "tekken.json",
)
_NO_LENGTH = 10**6  # model_max_length above it says that nobody knew one


@dataclass
class Words:
    """How texts become ids, and ids texts."""

    tokenizer: Any  # of the library `tokenizers`
    special: dict[str, str] = field(default_factory=dict)  # "mask_token" -> "[MASK]"
    longest: int | None = None  # tokens of one input, as the settings say
    speaks: Callable[[str], None] | None = None  # puts the language that a text is in around it

    def id(self, name: str) -> int | None:
        """The id of a special token by the field that names it."""
        word = self.special.get(name)
        return None if word is None else self.tokenizer.token_to_id(word)

    def encode(self, text: str, pair: str | None = None, is_whole: bool = True) -> Any:
        """The encoding of a text, or of two; `is_whole`: with the special tokens around it."""
        return self.tokenizer.encode(text, pair, add_special_tokens=is_whole)

    def decode(self, ids: Iterable[int], with_special: bool = False) -> str:
        text: str = self.tokenizer.decode(list(ids), skip_special_tokens=not with_special)
        return text


def words_of(beside: Beside) -> Words:
    """The tokenizer of a model. Raises SourceError where there is none that is read, MapperError without the library."""
    library = need("tokenizers", "texts")
    settings = beside.json(SETTINGS)
    text = beside.text(FILE)
    made = from_vocabulary(beside, library, settings) if text is None else tried(library, text, FILE)
    if made is None and beside.gguf:
        from mapper.running.gguf_words import from_gguf

        return Words(*from_gguf(beside, library))
    if made is None:
        raise SourceError(f"{beside.source}: {_lacking(beside)}")
    made.no_padding(), made.no_truncation()
    return Words(made, _special(beside, settings, made), _longest(settings), _speaks(beside, settings, made))


def _speaks(beside: Beside, settings: dict[str, Any], made: Any) -> Callable[[str], None] | None:
    """For a class whose texts say what they are in: what a tokenizer.json has of that is as old as the file."""
    row = row_of(beside, settings)
    if row is None or LANGUAGE not in row["settings"]:
        return None
    library = need("tokenizers", "texts")

    def speaks(code: str) -> None:
        surround(made, library, row, said_by(row, {**settings, LANGUAGE: code}))

    if made.token_to_id(said_by(row, settings)[LANGUAGE]) is not None:  # else a vocabulary of other languages
        speaks(settings.get(LANGUAGE) or row["settings"][LANGUAGE])
    return speaks


def _lacking(beside: Beside) -> str:
    """Why no text can be read, and what to do."""
    there = [name for name in _UNREAD if beside.path(name)]
    kind = beside.json(SETTINGS).get("tokenizer_class")
    of = f" of {shorten(kind)}" if isinstance(kind, str) else ""
    has = f"{there[0]}{of} is not read, and " if there else ""
    return f"{has}no {FILE} stands beside the weights, nor a vocabulary that is read, so a text cannot become ids; put {FILE} there"


def _special(beside: Beside, settings: dict[str, Any], made: Any) -> dict[str, str]:
    """The special tokens by the fields that name them, those that the vocabulary has."""
    told = {**settings, **beside.json(SPECIAL)}
    found = {}
    for name, usual in beside.vocabularies["special"].items():
        word = word_of(told.get(name))
        known = [
            item
            for item in ([word] if isinstance(word, str) else usual)
            if made.token_to_id(item) is not None
        ]
        if known:
            found[name] = known[0]
    return found


def _longest(settings: dict[str, Any]) -> int | None:
    most = settings.get("model_max_length")
    return int(most) if isinstance(most, (int, float)) and 0 < most < _NO_LENGTH else None


def padded(rows: Sequence[Sequence[int]], filler: int) -> tuple[list[list[int]], list[list[int]]]:
    """Rows of one length, filled at their ends, and 1 where they have an id of their own."""
    length = max(map(len, rows))
    ids = [[*row, *[filler] * (length - len(row))] for row in rows]
    return ids, [[1] * len(row) + [0] * (length - len(row)) for row in rows]
