"""Layers whose weight is made of other tensors: a length and a direction (1602.07868), or divided by its largest singular value (1802.05957).

Convolutions over one axis that have lengths are in `mapper.operations.leaves`: a codec's thousand of them need no hooks.
"""

from __future__ import annotations

from collections.abc import Collection

from mapper.naming.members import DIRECTIONS, LEFT, LENGTHS, RIGHT, UNDIVIDED

_LENGTH_AND_DIRECTION = tuple(map(frozenset, zip(LENGTHS, DIRECTIONS, strict=True)))
_DIVIDED = tuple(map(frozenset, zip(UNDIVIDED, LEFT, RIGHT, strict=True)))
STORED = (*_LENGTH_AND_DIRECTION, *_DIVIDED)
_FUNCTIONS = (
    "nn.utils.weight_norm",
    "nn.utils.parametrizations.weight_norm",
    "nn.utils.spectral_norm",
    "nn.utils.parametrizations.spectral_norm",
)  # of each of these
_OWN = ("Conv1d", "ConvTranspose1d")  # kinds with modules of their own for lengths


def function_of(kind: str, names: Collection[str], has_own: bool = True) -> str:
    """Torch's function that makes the weight of a module of these tensors; "" where none does, or a module does it.

    `has_own`: whether the modules that are there for lengths can be what is wanted; they pad with zeros alone.
    """
    for stored, function in zip(STORED, _FUNCTIONS, strict=True):
        if stored <= set(names):
            return "" if has_own and kind in _OWN and stored in _LENGTH_AND_DIRECTION else function
    return ""
