"""What a model is in words, by its names: also where nothing else is known of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from mapper.naming.tree import Node, grow
from mapper.naming.vocabulary import pattern_words

if TYPE_CHECKING:
    from mapper.checkpoint import TensorInfo
    from mapper.rulebook.composites import Called
    from mapper.rulebook.rulebook import Rulebook


def called(tensors: Mapping[str, TensorInfo], rulebook: Rulebook) -> str:
    """`a diffusion U-Net`, as `vocabulary/composites.yaml` has it; "" where no names of it fit."""
    return called_by(grow(tensors), rulebook)


def called_by(tree: Node, rulebook: Rulebook) -> str:
    """The same for the tree of the names. They are looked for at its top: what a part is, the whole need not be."""
    tops = [tree]
    while (
        tops[-1].info is None and len(tops[-1].children) == 1
    ):  # below `module.`, or `model.diffusion_model.`
        tops += tops[-1].children.values()
    rules = rulebook.composites.called
    return next((rule.what for rule in rules if any(_fits(rule, top) for top in tops)), "")


def _fits(rule: Called, top: Node) -> bool:
    def holds(name: str) -> bool:
        return top.holds(pattern_words(name))

    return all(map(holds, rule.has)) and not any(map(holds, rule.lacks))
