"""The tokenizer in the metadata of a GGUF file (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md)."""

from __future__ import annotations

import json
from typing import Any

from mapper.errors import FormatError, SourceError, shorten
from mapper.running.beside import Beside
from mapper.running.pieces import BYTE, Pieces, document
from mapper.running.vocabularies import EMPTY, tried

_PREFIX = "tokenizer.ggml."
_CONTROL, _OWN = 3, 4  # types of tokens: with a meaning of their own, and words that a user added
_IDS = {
    "bos_token": "bos_token_id",
    "eos_token": "eos_token_id",
    "unk_token": "unknown_token_id",
    "pad_token": "padding_token_id",
    "sep_token": "seperator_token_id",  # as the format spells it
    "cls_token": "cls_token_id",
    "mask_token": "mask_token_id",
}


def from_gguf(beside: Beside, library: Any) -> tuple[Any, dict[str, str]]:
    """The tokenizer of a vocabulary and its special tokens. Raises SourceError for a kind that is not read, FormatError for a damaged one."""
    said = {key.removeprefix(_PREFIX): value for key, value in beside.gguf.items() if key.startswith(_PREFIX)}
    kinds = beside.vocabularies["gguf_pieces"]
    if said.get("model") in kinds:
        tokenizer = _of_pieces(beside, library, said, kinds[said["model"]] == "pairs")
    else:
        tokenizer = _of_byte_pairs(beside, library, said)
    tokens = said["tokens"]
    special = {
        name: tokens[at] for name, key in _IDS.items() if (at := _index(said.get(key), tokens)) is not None
    }
    _surround(tokenizer, library, said, special)
    return tokenizer, special


def _of_pieces(beside: Beside, library: Any, said: dict[str, Any], is_pairs: bool) -> Any:
    """The tokenizer of a SentencePiece vocabulary, whose settings llama.cpp spells in its own words."""
    words, scores, kinds = (said.get(key) for key in ("tokens", "scores", "token_type"))
    lists = (words, scores, kinds)
    if not _is_words(words) or not all(isinstance(item, list) and len(item) == len(words) for item in lists):  # type: ignore[arg-type]
        raise FormatError(
            f"{beside.source}: the metadata has no whole lists of words, scores and types; download it again"
        )
    pieces = Pieces(words, scores, kinds, is_pairs, BYTE in kinds)  # type: ignore[arg-type,operator]
    pieces.prefix = bool(said.get("add_space_prefix", True))
    pieces.squeezed = bool(said.get("remove_extra_whitespaces", not is_pairs))
    charsmap = said.get("precompiled_charsmap")
    pieces.charsmap = bytes(value & 255 for value in charsmap) if isinstance(charsmap, list) else b""
    said.setdefault("add_bos_token", is_pairs)
    said.setdefault("add_eos_token", not is_pairs)
    return tried(library, json.dumps({**EMPTY, **document(pieces, [])}), "the tokenizer in the metadata")


def _of_byte_pairs(beside: Beside, library: Any, said: dict[str, Any]) -> Any:
    """The tokenizer of merged pairs of bytes."""
    kind, split = said.get("model"), said.get("pre", "default")
    splits, kinds = (beside.vocabularies[key] for key in ("gguf_splits", "gguf_byte_pairs"))
    if kind is None:
        raise SourceError(f"{beside.source}: no tokenizer is in the file; put tokenizer.json beside it")
    if kind not in kinds or split not in splits:
        raise SourceError(
            f"{beside.source}: its tokenizer ({shorten(str(kind))}, {shorten(str(split))}) is not read; read are {', '.join(beside.vocabularies['gguf_pieces'])}, and {', '.join(kinds)} with "
            f"{', '.join(splits)}; put tokenizer.json beside the file"
        )
    tokens, merges = said.get("tokens") or [], said.get("merges") or []
    if not _is_words(tokens) or not _is_words(merges):
        raise FormatError(
            f"{beside.source}: the metadata has no whole list of words and merges; download it again"
        )
    try:
        model = library.models.BPE(
            {word: at for at, word in enumerate(tokens)}, [tuple(pair.split(" ", 1)) for pair in merges]
        )
    except Exception as error:  # the library has no type of its own: merges of words that there are not
        raise FormatError(f"{beside.source}: its merges do not fit its words: {error}") from error
    tokenizer = library.Tokenizer(model)
    tokenizer.pre_tokenizer = _splitting(library, splits[split])
    tokenizer.decoder = library.decoders.ByteLevel()
    _add(tokenizer, library, tokens, said.get("token_type"))
    return tokenizer


def _is_words(value: Any) -> bool:
    return isinstance(value, list) and value != [] and all(isinstance(word, str) for word in value)


def _index(value: Any, tokens: list[str]) -> int | None:
    return value if type(value) is int and 0 <= value < len(tokens) else None


def _splitting(library: Any, said: dict[str, Any]) -> Any:
    """What a text is split at before pairs are merged."""
    parts = library.pre_tokenizers
    first = [parts.Digits(individual_digits=True)] if said.get("digits") else []
    pattern = said.get("pattern")
    if pattern:
        first.append(parts.Split(library.Regex(pattern), "isolated"))
    return parts.Sequence([*first, parts.ByteLevel(add_prefix_space=False, use_regex=not pattern)])


def _add(tokenizer: Any, library: Any, tokens: list[str], types: Any) -> None:
    """Words that are found in a text before it is split."""
    if not isinstance(types, list) or len(types) != len(tokens):
        return
    for kind, add in ((_CONTROL, tokenizer.add_special_tokens), (_OWN, tokenizer.add_tokens)):
        if words := [word for word, of in zip(tokens, types, strict=True) if of == kind]:
            add([library.AddedToken(word, normalized=False) for word in words])


def _surround(tokenizer: Any, library: Any, said: dict[str, Any], special: dict[str, str]) -> None:
    """What stands before and after every text, where the file says so."""
    first = special.get("bos_token") if said.get("add_bos_token") else None
    last = special.get("eos_token") if said.get("add_eos_token") else None
    around = [(word, tokenizer.token_to_id(word)) for word in (first, last) if word]
    if around:
        single = " ".join(word for word in (first, "$A", last) if word)
        pair = " ".join(word for word in (first, "$A", "$B", last) if word)
        tokenizer.post_processor = library.processors.TemplateProcessing(
            single=single, pair=pair, special_tokens=around
        )
