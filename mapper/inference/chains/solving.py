"""Which answers go with an input whose size is said: those by which sizes add up, the same at every layer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import islice, product
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mapper.inference.chains.between import Written

_SOLVED = ("chain.stride", "chain.padding", "chain.pooling", "chain.up_stride", "chain.up_padding")
_ASSUMED = {"chain.reduction": "flatten", "chain.activation": "none", "chain.activation_before_norm": "false"}
_MOST = 256  # combinations that are tried


def fitting(
    trial: Callable[[dict[str, str]], Written], asked: Mapping[str, Iterable[str]]
) -> dict[str, dict[str, None]]:
    """Of each fact that changes sizes the candidates that some fitting combination has; nothing where none fits.

    A chain may have another value at some layer, so what is left is still asked for.
    """
    facts = [fact for fact in _SOLVED if fact in asked]
    found: dict[str, dict[str, None]] = {}
    for values in islice(product(*(asked[fact] for fact in facts)), _MOST):
        assumed = dict(zip(facts, values, strict=True))
        written = trial({**_ASSUMED, **assumed})
        if written.is_checked and not written.problems:
            for fact, value in assumed.items():
                found.setdefault(fact, {})[value] = None
    return found
