"""A list of layers of which each run has another width, as the stages that a config would list: of MobileNets, say."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from mapper.architecture import Block, Fact, Place

COUNT = "depth"  # what a config calls how many layers a stage has
_OUTPUT, _INPUT = "output_size", "input_size"
_LEAST = 3  # runs; of fewer the numbers are easier to read where they stand
_LAYER, _LAYERS = "layer", "layers"


def runs(items: list[Any], beside: list[Block]) -> list[Block]:
    """The runs of one width as stages that own them; none where the list is of something else.

    A layer beside the list that gives what its first one reads is a stage of its own, which has no count.
    """
    blocks = sorted(
        (item for item in items if isinstance(item, Block)), key=lambda block: block.indices or ()
    )
    if len(blocks) < len(items) or not all(map(_is_layer, blocks)) or not _is_in_order(blocks):
        return []
    groups: list[list[Block]] = []
    for block in blocks:
        if groups and _size(block, _INPUT) == _size(block, _OUTPUT) == _size(groups[-1][-1], _OUTPUT):
            groups[-1].append(block)
        else:
            groups.append([block])
    before = [
        block for block in beside if _is_layer(block) and _size(block, _OUTPUT) == _size(blocks[0], _INPUT)
    ]
    stages = [_stage([block], None) for block in before[:1]]
    stages += [_stage(group, _count_of(group)) for group in groups]
    return stages if len(groups) >= _LEAST and any(len(group) > 1 for group in groups) else []


def elements(stage: Block) -> list[Block]:
    """The layers of a run."""
    return [block for block in stage.roles[_LAYERS] if isinstance(block, Block)]  # type: ignore[union-attr]


def _stage(layers: list[Block], count: Fact | None) -> Block:
    first = layers[0]
    facts = {} if count is None else {COUNT: count}
    return Block("stage", "stage", Place(first.home[:-1]), roles={_LAYERS: layers}, facts=facts)


def _count_of(group: list[Block]) -> Fact:
    """How many layers a run has, known from their names."""
    numbers = [index for block in group for index in block.indices or ()]
    place = Place((*group[0].home[:-1], tuple(numbers)))
    return Fact(COUNT, len(numbers), str(place), "name", str(place))


def _is_layer(block: Block) -> bool:
    """Whether it is a layer of which the widths are known, and no list of others."""
    is_flat = not any(isinstance(value, list) for value in block.roles.values())
    sizes = all(_size(block, name) is not None for name in (_INPUT, _OUTPUT))
    return is_flat and sizes and (block.flow or "").startswith(f"{_LAYER}/")


def _is_in_order(blocks: list[Block]) -> bool:
    """Whether the numbers of each block are in a row, behind those of the one before."""
    numbers = [index for block in blocks for index in block.indices or ()]
    return bool(numbers) and all(later == one + 1 for one, later in pairwise(numbers))


def _size(block: Block, name: str) -> int | None:
    fact = next((fact for fact in block.facts.values() if fact.name.rpartition(".")[2] == name), None)
    return fact.value if fact is not None and type(fact.value) is int else None
