"""Contexts of growing reach around each place of an image (FocalNet, paper 2203.11926)."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor


def weigh_contexts(contexts: list[Tensor], gates: Tensor) -> Tensor:
    """The sum of contexts and of the last one's mean over the image, each weighed place by place.

    contexts (B, C, Y, X), gates (B, len(contexts) + 1, Y, X) -> (B, C, Y, X)
    """
    total = F.gelu(contexts[-1].mean(dim=(2, 3), keepdim=True)) * gates[:, -1:]
    for index, context in enumerate(contexts):
        total = total + context * gates[:, index : index + 1]
    return total
