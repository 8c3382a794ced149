"""Inputs made up for a graph, from what it says of them: several batches and lengths, and a text that is padded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from mapper._trial import EXTENTS, LENGTH, PADDED, made_up
from mapper.errors import MapperError, shorten
from mapper.graphs.runtime import Declared
from mapper.rulebook.rulebook import rulebook_of

MASK = "attention_mask"
LENGTHS = (LENGTH, 64, 256, 512)  # of texts, of images, of sounds: a graph may need so many at least
IDS = range(2, 10)  # past the padding ids 0 and 1; every vocabulary has ten
SIDE = 64  # of an image whose size is free


def _sizes(length: int) -> tuple[dict[str, int], ...]:
    other = length - 4 if length == LENGTH else 2 * length  # of images, what may be halved as often
    return {"batch": 2, "length": length}, {"batch": 3, "length": other}, {"batch": 1, "length": length}


def declared_cases(
    declared: Mapping[str, Declared], length: int = LENGTH
) -> Iterator[tuple[str, dict[str, torch.Tensor]]]:
    """Inputs of several sizes, each with its name; where a mask is among them, the first also padded.

    An input that the vocabulary knows is made up as it says; of any other the first free extent is taken for the batch, and
    those after it for lengths. Raises MapperError for an input without a shape.
    """
    known = rulebook_of(()).inputs
    specs = {name: _spec(name, one, known.get(name)) for name, one in declared.items()}
    free = {extent for spec in specs.values() for extent in spec["shape"] if isinstance(extent, str)}
    seen: list[dict[str, int]] = []
    for sizes in _sizes(length):
        chosen = {word: size for word, size in sizes.items() if word in free}
        if chosen in seen:
            continue
        seen.append(chosen)
        extents = {**EXTENTS, "height": SIDE, "width": SIDE, "channels": 3, **sizes}
        inputs = {name: made_up(spec, extents, IDS) for name, spec in specs.items()}
        told = ", ".join(f"{word} {size}" for word, size in chosen.items()) or "as declared"
        yield told, inputs
        if len(seen) == 1 and MASK in inputs and inputs[MASK].dim() == 2 and inputs[MASK].shape[1] > PADDED:
            mask = inputs[MASK].clone()
            mask[-1, -PADDED:] = 0
            yield "right padding", inputs | {MASK: mask}


def _spec(name: str, declared: Declared, rule: Any) -> dict[str, Any]:
    """An input as an architecture declares it: a word for each extent that is free."""
    words = list(rule.shape) if rule is not None and len(rule.shape) == len(declared.shape) else []
    free = iter(["batch", *["length"] * len(declared.shape)])  # in order of the extents that are not said
    words = words or [next(free) if not isinstance(extent, int) else "" for extent in declared.shape]
    shape = [
        extent if isinstance(extent, int) else word
        for extent, word in zip(declared.shape, words, strict=True)
    ]
    if any(isinstance(extent, int) and extent < 1 for extent in shape):
        raise MapperError(f"the input {shorten(name)} has the shape {list(declared.shape)}")
    made = {"made_up": list(rule.made_up)} if rule is not None and rule.made_up else {}
    return {"shape": shape, "dtype": str(declared.dtype).removeprefix("torch."), **made}
