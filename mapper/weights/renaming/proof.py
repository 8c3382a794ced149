"""The proof of a naming: a checkpoint renamed there and back has the same names and the same bytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from mapper.errors import MapperError, listed
from mapper.inference import infer
from mapper.rulebook.examples import header, is_near_miss
from mapper.sources.in_memory import open_tensors
from mapper.weights.renaming.rename import as_checkpoint, candidates_of, first_that_fits

if TYPE_CHECKING:
    import torch

    from mapper.architecture import Architecture
    from mapper.checkpoint import Checkpoint
    from mapper.rulebook.examples import Example
    from mapper.rulebook.libraries import LibraryNaming
    from mapper.rulebook.rulebook import Rulebook

FIELDS = ("family", "example", "back", "hints")


def wrong_round_trips(naming: LibraryNaming, rulebook: Rulebook) -> Iterator[str]:
    """What is not as it was after each example's way there and back."""
    for said in naming.examples:
        if not isinstance(said, dict) or not {"family", "back"} <= said.keys() <= set(FIELDS):
            yield f"{naming.file}: an example has family and back, and may have {' and '.join(FIELDS[1::2])}"
            continue
        try:
            yield from _wrong(naming, said, rulebook)
        except MapperError as error:
            yield f"{naming.file}: {said['family']} there and back: {error.in_command()}"


def _wrong(naming: LibraryNaming, said: dict[str, Any], rulebook: Rulebook) -> Iterator[str]:
    checkpoint = _with_numbers(header(_example(said, rulebook)))
    first = infer(checkpoint, rulebook, hints=said.get("hints"))
    there, hints = _renamed(first, naming.label)
    back, _ = _renamed(infer(there, rulebook, hints=hints), said["back"])
    unused = {name for name, _ in first.unused}
    names = [name for name in checkpoint.tensors if name not in unused]
    if odd := sorted(set(names) ^ back.tensors.keys()):
        yield f"{naming.file}: {said['family']} there and back has other names: {listed(odd)}"
        return
    before, after = _tensors(checkpoint, names), _tensors(back, names)
    for name in names:
        if before[name].dtype != after[name].dtype or not before[name].equal(after[name]):
            yield f"{naming.file}: {said['family']} there and back: {name} is not what it was"


def _example(said: dict[str, Any], rulebook: Rulebook) -> Example:
    """The example of the family that is named, or its first."""
    for family in rulebook.families:
        if family.name == said["family"]:
            for example in family.examples:
                if example.name == said.get("example", example.name) and not is_near_miss(example):
                    return example
    raise MapperError(f"there is no example {said.get('example', '')!r} of that family")


def _with_numbers(checkpoint: Checkpoint) -> Checkpoint:
    """The same header over numbers, no two of them equal."""
    import torch

    start, tensors = 0, {}
    for name, info in checkpoint.tensors.items():
        tensors[name] = torch.arange(start, start + info.size, dtype=torch.float32).view(info.shape)
        start += info.size
    made = open_tensors(tensors, checkpoint.source)
    made.config = checkpoint.config
    return made


def _renamed(architecture: Architecture, to: str) -> tuple[Checkpoint, dict[str, Any]]:
    found = first_that_fits(candidates_of(to), architecture)
    return as_checkpoint(found, architecture.checkpoint), found.hints


def _tensors(checkpoint: Checkpoint, names: list[str]) -> dict[str, torch.Tensor]:
    assert checkpoint.read is not None
    return checkpoint.read(names)
