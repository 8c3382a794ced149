"""Weights that torch's pruning keeps as what they were and a mask beside it."""

from __future__ import annotations

from collections.abc import Collection

from mapper.errors import listed

_KEPT, _MASK = "_orig", "_mask"
_NOTE = "pruned by torch: {} stored as ..._orig and ..._mask, whose product nothing computes; torch.nn.utils.prune.remove makes one tensor of both, to be saved anew"


def pruned(names: Collection[str]) -> list[str]:
    """A note for tensors that stand beside masks of their own, and what to do about them (torch.nn.utils.prune)."""
    if f"{_MASK}\n" not in "\n".join((*names, "")):  # one text: of many names few files have any that ends so
        return []
    every = set(names)
    found = sorted(name.removesuffix(_MASK) for name in every if name.endswith(_MASK))
    found = [name for name in found if name + _KEPT in every]
    if not found:
        return []
    are = listed(found, 2) + (" are" if len(found) > 1 else " is")
    return [_NOTE.format(are)]
