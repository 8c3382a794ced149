"""A vocabulary of SentencePiece (papers 1804.10959 and 1808.06226): its file, and the tokenizer that it describes.

The format is that of https://github.com/google/sentencepiece/blob/master/src/sentencepiece_model.proto.
"""

from __future__ import annotations

import base64
import io
import struct
from dataclasses import dataclass, field
from typing import Any

from mapper.errors import FormatError
from mapper.sources.wire import BYTES, FOUR, VARINT, Message

NORMAL, UNKNOWN, CONTROL, OWN, UNUSED, BYTE = (
    1,
    2,
    3,
    4,
    5,
    6,
)  # kinds of pieces; those of a user's own are found in a text first
_UNIGRAM, _PAIRS = 1, 2  # kinds of models
_SPACE = "▁"  # stands for a space in pieces
_NEVER = -1e9  # the score of a word that no text is split into
_PIECE_BYTES = 512  # merges are looked for at each place of a word


@dataclass
class Pieces:
    """Words of a vocabulary by their ids, and what is done with a text before it is split into them."""

    words: list[str] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)
    kinds: list[int] = field(default_factory=list)
    is_pairs: bool = (
        False  # pairs are merged, the one with the highest score first; else the likeliest split is taken
    )
    has_bytes: bool = False  # what no word has is written as bytes
    charsmap: bytes = b""  # characters that become others
    prefix: bool = True  # a space goes before a text
    squeezed: bool = True  # several spaces are one, and none is at the ends

    def add(self, word: str, score: float = 0.0, kind: int = NORMAL) -> None:
        self.words.append(word)
        self.scores.append(score)
        self.kinds.append(kind)

    @property
    def unknown(self) -> int | None:
        """The id of what no word has."""
        return next((at for at, kind in enumerate(self.kinds) if kind == UNKNOWN), None)

    def between(self, first: list[str], skip: int, last: list[str], unknown: str | None) -> Pieces:
        """With other words in the place of the first `skip` and more at the end; `unknown` is which of them stands for what no word has."""
        found = Pieces(**{**vars(self), "words": [], "scores": [], "kinds": []})
        for word in first:
            found.add(word, kind=UNKNOWN if word == unknown else CONTROL)
        for word, score, kind in list(zip(self.words, self.scores, self.kinds, strict=True))[skip:]:
            found.add(word, score, kind)
        for word in last:
            found.add(word, kind=CONTROL)
        return found

    def numbered(self, table: dict[str, Any], name: str) -> Pieces:
        """With the ids that another file has for the words; words that it has alone are never found in a text. Raises FormatError."""
        words = sorted(table, key=lambda word: at if type(at := table[word]) is int else -1)
        if [table[word] for word in words] != [*range(len(words))]:
            raise FormatError(f"{name} does not number its words from 0 on; download it again")
        own = {
            word: (score, kind) for word, score, kind in zip(self.words, self.scores, self.kinds, strict=True)
        }
        found = Pieces(**{**vars(self), "words": [], "scores": [], "kinds": []})
        for word in words:
            found.add(word, *own.get(word, (_NEVER, CONTROL if word.startswith(("<", ">>")) else UNUSED)))
        return found


def read_pieces(data: bytes, name: str) -> Pieces:
    """The vocabulary in a file. Raises FormatError for what is none, or has another model than the two that are read."""
    message = Message(io.BytesIO(data), len(data), name)
    found = Pieces()
    for part in message.fields():
        if part.number == 1 and part.wire == BYTES:
            _read_piece(message, part, found)
        elif part.number == 2 and part.wire == BYTES:
            _read_training(message, part, found)
        elif part.number == 3 and part.wire == BYTES:
            _read_normalising(message, part, found)
    if not found.words:
        raise FormatError(f"{name} has no words of a vocabulary; download it again")
    return found


def _read_piece(message: Message, part: Any, found: Pieces) -> None:
    word, score, kind = "", 0.0, NORMAL
    for inner in message.fields(part.start, part.end):
        if inner.number == 1 and inner.wire == BYTES:
            word = message.bytes(inner, _PIECE_BYTES).decode("utf-8", "replace")
        elif inner.number == 2 and inner.wire == FOUR:
            message.file.seek(inner.start)
            (score,) = struct.unpack("<f", message.file.read(4))
        elif inner.number == 3 and inner.wire == VARINT:
            kind = inner.value
    found.add(word, score, kind)


def _read_training(message: Message, part: Any, found: Pieces) -> None:
    said = {
        inner.number: inner.value for inner in message.fields(part.start, part.end) if inner.wire == VARINT
    }
    kind = said.get(3, _UNIGRAM)
    if kind not in (_UNIGRAM, _PAIRS) or said.get(24):
        raise FormatError(
            f"{message.name} splits texts into words or characters, or has spaces behind words, which is not read; put tokenizer.json beside it"
        )
    found.is_pairs, found.has_bytes = kind == _PAIRS, bool(said.get(35))


def _read_normalising(message: Message, part: Any, found: Pieces) -> None:
    for inner in message.fields(part.start, part.end):
        if inner.number == 2 and inner.wire == BYTES:
            found.charsmap = message.bytes(inner, part.size)
        elif inner.number == 3 and inner.wire == VARINT:
            found.prefix = bool(inner.value)
        elif inner.number == 4 and inner.wire == VARINT:
            found.squeezed = bool(inner.value)


def document(pieces: Pieces, before: list[Any], is_first: bool = False) -> dict[str, Any]:
    """The parts of a tokenizer.json for a vocabulary; `before` is done with a text first.

    `is_first`: the space goes before the text alone, not before each part of it that stands between special words.
    """
    return {
        "normalizer": {"type": "Sequence", "normalizers": [*before, *_normalisers(pieces, is_first)]},
        "pre_tokenizer": _first_space() if is_first and pieces.prefix else None,
        "decoder": {"type": "Sequence", "decoders": _decoders(pieces)},
        "model": _pairs(pieces) if pieces.is_pairs else _unigram(pieces),
        "added_tokens": [
            {
                "id": at,
                "content": word,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": kind == CONTROL,
            }
            for at, (word, kind) in enumerate(zip(pieces.words, pieces.kinds, strict=True))
            if kind in (CONTROL, OWN) and word
        ],
    }


def _first_space() -> dict[str, Any]:
    return {"type": "Metaspace", "replacement": _SPACE, "prepend_scheme": "first", "split": False}


def _normalisers(pieces: Pieces, is_first: bool) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    if pieces.charsmap:
        found.append(
            {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(pieces.charsmap).decode()}
        )
    if pieces.squeezed:
        found.append({"type": "Strip", "strip_left": True, "strip_right": True})
        found.append({"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "})
    if is_first and pieces.prefix:
        return found
    if pieces.prefix:
        found.append({"type": "Prepend", "prepend": _SPACE})
    return [*found, {"type": "Replace", "pattern": {"String": " "}, "content": _SPACE}]


def _decoders(pieces: Pieces) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [{"type": "Replace", "pattern": {"String": _SPACE}, "content": " "}]
    found += [{"type": "ByteFallback"}] if pieces.has_bytes else []
    found += [{"type": "Fuse"}]
    return [*found, {"type": "Strip", "content": " ", "start": 1, "stop": 0}] if pieces.prefix else found


def _unigram(pieces: Pieces) -> dict[str, Any]:
    vocabulary = [list(pair) for pair in zip(pieces.words, pieces.scores, strict=True)]
    return {
        "type": "Unigram",
        "unk_id": pieces.unknown,
        "vocab": vocabulary,
        "byte_fallback": pieces.has_bytes,
    }


def _pairs(pieces: Pieces) -> dict[str, Any]:
    unknown = pieces.unknown
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": None if unknown is None else pieces.words[unknown],
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": True,
        "byte_fallback": pieces.has_bytes,
        "ignore_merges": False,
        "vocab": {word: at for at, word in enumerate(pieces.words)},
        "merges": [list(pair) for pair in merges(pieces)],
    }


def merges(pieces: Pieces) -> list[tuple[str, str]]:
    """The pairs of words that are a word together, the one with the highest score first."""
    at = {
        word: place
        for place, (word, kind) in enumerate(zip(pieces.words, pieces.kinds, strict=True))
        if kind in (NORMAL, OWN)
    }
    found = [
        (-pieces.scores[place], at[word[:cut]], at[word[cut:]])
        for word, place in at.items()
        for cut in range(1, len(word))
        if word[:cut] in at and word[cut:] in at
    ]
    return [(pieces.words[left], pieces.words[right]) for _, left, right in sorted(found)]
