"""Whole numbers of a few bits that stand one after the other in larger ones."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

WORD = 32  # bits of what holds them


def unsigned(words: torch.Tensor, bits: int) -> torch.Tensor:
    """The numbers (..., n * size // bits) of up to 8 bits in (..., n) integers of `size` bits, the lowest bits first.

    A number may begin in one and end in the next, as those of 3 bits do.
    """
    import torch

    octets = words.clone(memory_format=torch.contiguous_format).view(torch.uint8)
    step = math.gcd(bits, 8)
    pieces = octets.unsqueeze(-1) >> torch.arange(0, 8, step, dtype=torch.uint8)
    pieces = (pieces & (2**step - 1)).flatten(-2).unflatten(-1, (-1, bits // step))
    found = pieces[..., 0]
    for at in range(1, bits // step):
        found = found | pieces[..., at] << at * step
    return found
