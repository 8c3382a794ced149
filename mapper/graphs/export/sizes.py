"""The extents of a file's inputs: which are free, which are asked for, and which other ones a model itself takes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from types import MappingProxyType

import torch
from torch import nn

from mapper._trial import LENGTH, made_up_of
from mapper.architecture import Architecture
from mapper.comparing.verification import Inputs, run_module
from mapper.errors import HintError, MapperError, listed, shorten

FREE = "free"  # what may be asked for instead of a number: a file that is for one size alone is then refused
ROWS = "rows"  # of ids, several to a sequence: one for each of its codebooks
# Other sizes than those that a graph is traced with.
OTHER = {"batch": 3, "length": LENGTH - 4, "decoder_length": LENGTH - 6}
# Extents of which a model may take one size alone, together, and by how much another is larger: two patches of an image.
OWN = ({"height": 32, "width": 32}, {"samples": 3_200}, {"frames": 24})
COLOURS = "channels"  # of an image: so many as the model's weights have, whatever torch makes of it
LARGEST = 2**28  # elements of one input: what is asked for is run here

Asked = Mapping[str, int | str]  # an extent's number, or FREE
NOTHING: Asked = MappingProxyType({})


@dataclass(frozen=True)
class Subject:
    """A model that is exported, and what of its inputs the file takes."""

    architecture: Architecture
    model: nn.Module
    wanted: tuple[str, ...]
    asked: Asked

    @property
    def name(self) -> str:
        return self.architecture.checkpoint.source

    @property
    def shapes(self) -> dict[str, list[str | int]]:
        return shapes_of(self.architecture, self.wanted)

    @property
    def fixed(self) -> dict[str, int]:
        """The extents that are asked for as numbers."""
        return {word: size for word, size in self.asked.items() if isinstance(size, int)}

    def inputs(self, sizes: Mapping[str, int]) -> dict[str, torch.Tensor]:
        """Made-up inputs of these sizes, and of those asked for."""
        return made_up_of(self.architecture, self.model, self.wanted, {**sizes, **self.fixed})

    def takes(self, inputs: Inputs) -> bool:
        """Whether the model runs on them."""
        try:
            run_module(self.model, inputs, "")
        except MapperError:
            return False
        return True


def shapes_of(architecture: Architecture, wanted: Collection[str]) -> dict[str, list[str | int]]:
    """The extents of each input: words for those that callers choose.

    Where a model reads several rows of ids for each sequence, its inputs are declared for one; here for a batch of them.
    """
    shapes = {key: list(architecture.inputs[key]["shape"]) for key in wanted}
    ids = shapes.get("input_ids", [ROWS])
    if isinstance(ids[0], int):
        ids[0] = ROWS
        for shape in shapes.values():
            shape[:1] = ["batch" if extent == 1 else extent for extent in shape[:1]]
    return shapes


def check_sizes(architecture: Architecture, wanted: Collection[str], asked: Asked) -> None:
    """Raises HintError for an extent that no input has, and for a size that none can have."""
    name, shapes = architecture.checkpoint.source, shapes_of(architecture, wanted)
    words = dict.fromkeys(extent for shape in shapes.values() for extent in shape if isinstance(extent, str))
    if unknown := [word for word in asked if word not in words]:
        raise HintError(f"{name}: no input has an extent {listed(unknown)}; they have {', '.join(words)}")
    for word, size in asked.items():
        if size != FREE and (not isinstance(size, int) or size < 1):
            raise HintError(
                f"{word} is to be {shorten(str(size))}: an extent is a number from 1 on, or {FREE}"
            )
    for key, shape in shapes.items():
        known = [size for extent in shape if isinstance(size := asked.get(str(extent), extent), int)]
        if prod(known) > LARGEST:
            raise HintError(
                f"{name}: {key} of {told_of(asked)} has more than {LARGEST:,} numbers, and is run here"
            )


def other_sizes(subject: Subject, usual: Mapping[str, int]) -> tuple[dict[str, int], list[str]]:
    """Other sizes that the model itself takes, by extent, and the extents of which it takes the usual one alone."""
    open_ = [word for word in usual if word not in subject.fixed]
    sizes = {word: size for word, size in OTHER.items() if word in open_}
    fixed: list[str] = []
    for group in OWN:
        words = [word for word in group if word in open_]
        tries = (
            {word: usual[word] + group[word] for word in words},
            {word: 2 * usual[word] for word in words},
        )
        taken = next((one for one in tries if words and subject.takes(subject.inputs(one))), None)
        sizes |= taken or {}
        fixed += words if taken is None else []
    return sizes, fixed


def apart_of(subject: Subject, example: Inputs) -> list[str]:
    """The inputs of which the model takes fewer rows than of the first, as many images as one likes to a text.

    Not what may be left out: a mask is one of another input's rows, whatever a forward would take.
    """
    _, *others = [key for key, shape in subject.shapes.items() if shape[:1] == ["batch"]] or [""]
    return [
        key
        for key in others
        if not subject.architecture.inputs[key].get("optional")
        and len(example[key]) > 1
        and subject.takes({**example, key: example[key][:-1]})
    ]


def extents_of(shapes: Mapping[str, Sequence[str | int]], inputs: Inputs) -> dict[str, int]:
    """The size of each extent that has a word."""
    return {
        extent: size
        for key, value in inputs.items()
        for extent, size in zip(shapes[key], value.shape, strict=True)
        if isinstance(extent, str)
    }


def refuse_bound(asked: Asked, bound: Iterable[str], name: str) -> None:
    """Raises HintError where an extent that was to be free is not."""
    if kept := [word for word in bound if asked.get(word) == FREE]:
        raise HintError(
            f"{name}: {' and '.join(kept)} cannot be free: the model or its graph is for one size alone"
        )


def told_of(sizes: Mapping[str, int | str]) -> str:
    """`batch 3, length 7`."""
    return ", ".join(f"{word} {size}" for word, size in sizes.items()) or "the same sizes"
