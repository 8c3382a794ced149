"""What an expression over layers gives, and that it gives nothing."""

from __future__ import annotations

from dataclasses import dataclass

from mapper.inference.chains.links import Data


class NoReadingError(ValueError):
    """An expression that is none, or whose parts do not go together."""


@dataclass(frozen=True)
class Value:
    """An expression over the variables of a forward, and what it gives."""

    text: str
    data: Data
    sources: tuple[str, ...] = ()  # names of layers and inputs in it
    bare: frozenset[str] = frozenset()  # of these those that stand alone in an activation
    is_name: bool = False  # whether it is one of them and nothing else
    is_tight: bool = True  # whether nothing around it tears it apart
    rows: int = 0  # how many positions there are, where something shows it
    kernels: tuple[int, ...] = ()  # the shape of a tensor of no layer that has more axes than a matrix
