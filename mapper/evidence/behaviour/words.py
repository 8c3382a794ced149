"""A text as the ids that a model was trained on: by the tokenizer beside the weights or inside of them, or as bytes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from mapper.checkpoint import Checkpoint
from mapper.sources.gguf import tokenizer_of

FILE = "tokenizer.json"
BYTES = range(256, 261)  # sizes of a vocabulary of bytes, with a few ids of other meaning
BY_BYTE = "bytes"
_MASKS = ("[MASK]", "<mask>", "<|mask|>")
_SPACE = "\u0120"  # a space, in words that are made of bytes


class Words(NamedTuple):
    """How a text becomes ids."""

    encode: Callable[[str], list[int]]
    mask: int | None  # the id that stands for a hidden word
    what: str  # "tokenizer.json", as a report names it
    marked: Callable[[str], list[int]]  # with the ids that stand before and behind a text


def words_of(checkpoint: Checkpoint, size: int) -> Words | None:
    """The tokenizer of a checkpoint with `size` ids; None where there is none to be had."""
    if size in BYTES:
        return Words(lambda text: list(text.encode()), 0, BY_BYTE, lambda text: list(text.encode()))
    try:
        import tokenizers
    except ImportError:
        return None
    made = _from_file(checkpoint, tokenizers) or _from_gguf(checkpoint, tokenizers)
    if made is None or made[0].get_vocab_size() > size:
        return None
    tokenizer, what = made
    masks = [tokenizer.token_to_id(word) for word in _MASKS]
    mask = next((number for number in masks if number is not None), None)
    return Words(
        lambda text: list(tokenizer.encode(text, add_special_tokens=False).ids),
        mask,
        what,
        lambda text: list(tokenizer.encode(text).ids),
    )


def _from_file(checkpoint: Checkpoint, tokenizers: Any) -> tuple[Any, str] | None:
    """By the file beside the weights."""
    path = Path(checkpoint.weights[0]).parent / FILE if checkpoint.weights else None
    if path is None or not path.is_file() or path.is_symlink():
        return None
    try:
        return tokenizers.Tokenizer.from_file(str(path)), FILE
    except Exception:  # the library raises no other type; a file that it cannot read is none
        return None


def _from_gguf(checkpoint: Checkpoint, tokenizers: Any) -> tuple[Any, str] | None:
    """By the words and merges in the file itself; other kinds of tokenizer are not read."""
    said = tokenizer_of(checkpoint)
    tokens, merges = said.get("tokenizer.ggml.tokens"), said.get("tokenizer.ggml.merges")
    if not isinstance(tokens, list) or not isinstance(merges, list):
        return None
    if not any(
        str(word).startswith(_SPACE) for word in tokens
    ):  # words of characters: another way to cut a text
        return None
    pairs = [tuple(merge.split(" ", 1)) for merge in map(str, merges)]
    try:
        model = tokenizers.models.BPE({word: at for at, word in enumerate(tokens)}, pairs)
    except Exception:  # merges of words that there are not
        return None
    tokenizer = tokenizers.Tokenizer(model)
    parts = tokenizers.pre_tokenizers
    tokenizer.pre_tokenizer = parts.Sequence(
        [parts.Digits(individual_digits=True), parts.ByteLevel(add_prefix_space=False)]
    )
    return tokenizer, "the tokenizer in the GGUF file"
