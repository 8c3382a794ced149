"""Places of an image as several sequences, and back. Images are (B, C, Y, X)."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor


def unfold_patches(x: Tensor, size: int) -> Tensor:
    """A sequence of each offset inside of the patches; sides that are no multiple are stretched (MobileViT).

    x (B, C, Y, X), size the side of a patch -> (B * size ** 2, patches, C)
    """
    height, width = (side + -side % size for side in x.shape[2:])
    x = F.interpolate(x, size=(height, width), mode="bilinear", align_corners=False)
    x = x.unflatten(3, (-1, size)).unflatten(2, (-1, size))  # (B, C, n, size, m, size)
    return x.permute(0, 3, 5, 2, 4, 1).flatten(3, 4).flatten(0, 2)


def fold_patches(sequences: Tensor, x: Tensor, size: int) -> Tensor:
    """Undoes unfold_patches of an image as large as x.

    sequences (B * size ** 2, patches, C), x (B, _, Y, X) -> (B, C, Y, X)
    """
    columns = (x.shape[3] + size - 1) // size
    y = sequences.unflatten(1, (-1, columns)).unflatten(0, (-1, size, size))  # (B, size, size, n, m, C)
    y = y.permute(0, 5, 3, 1, 4, 2).flatten(4, 5).flatten(2, 3)
    return F.interpolate(y, size=(x.shape[2], x.shape[3]), mode="bilinear", align_corners=False)
