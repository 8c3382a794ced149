"""Activations by their words, some with a number of their own, as `leaky_relu_0.2`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mapper.rulebook.facts import ActivationRule

_NUMBER = re.compile(r"\d{1,3}(\.\d{1,6})?(e-\d{1,2})?")
_USUAL = "1"  # where none is said: sin(x), clipped at 1


def activation_of(value: str, table: Mapping[str, str], activations: Mapping[str, ActivationRule]) -> str:
    """The expression of an activation over x; "" where there is none."""
    if value in activations:
        return activations[value].expression
    if value in table:
        return table[value].format(number=_USUAL)
    word, _, number = value.rpartition("_")
    is_numbered = word in table and "{number}" in table[word] and _NUMBER.fullmatch(number)
    return table[word].format(number=number) if is_numbered else ""
