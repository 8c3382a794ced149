"""Layers whose weight is made of other tensors: a length and a direction (1602.07868), or divided by its largest singular value (1802.05957).

Convolutions over one axis that have lengths are in `mapper.operations.leaves`: a codec's thousand of them need no hooks.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

LENGTHS = ("weight_g", "parametrizations.weight.original0")
DIRECTIONS = ("weight_v", "parametrizations.weight.original1")
UNDIVIDED = ("weight_orig", "parametrizations.weight.original")
LENGTH_AND_DIRECTION = tuple(map(frozenset, zip(LENGTHS, DIRECTIONS, strict=True)))
_SINGULAR = (
    frozenset({"weight_orig", "weight_u", "weight_v"}),
    frozenset(
        {
            "parametrizations.weight.original",
            "parametrizations.weight.0._u",
            "parametrizations.weight.0._v",
        }
    ),
)
STORED = (*LENGTH_AND_DIRECTION, *_SINGULAR)
_FUNCTIONS = dict(
    zip(
        STORED,
        (
            "nn.utils.weight_norm",
            "nn.utils.parametrizations.weight_norm",
            "nn.utils.spectral_norm",
            "nn.utils.parametrizations.spectral_norm",
        ),
        strict=True,
    )
)
_OWN = ("Conv1d", "ConvTranspose1d")  # kinds with modules of their own for lengths


def matrix_of(tensors: Mapping[str, Any]) -> str:
    """The name of the tensor that a weight is made of; "" where it is stored itself."""
    return next((name for name in (*UNDIVIDED, *DIRECTIONS) if name in tensors), "")


def function_of(kind: str, names: Collection[str]) -> str:
    """Torch's function that makes the weight of a module of these tensors; "" where none does, or a module does it."""
    found = next((stored for stored in STORED if stored <= set(names)), frozenset())
    is_own = kind in _OWN and found in LENGTH_AND_DIRECTION
    return "" if is_own else _FUNCTIONS.get(found, "")
