"""Spectrograms as images (HTS-AT, paper 2202.00874), and which frames are real."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor


def fold_spectrogram(x: Tensor, side: int, bands: int) -> Tensor:
    """A spectrogram as a square image: parts of its time, one below the other; a short one is stretched.

    x (B, C, T, bands) -> (B, C, side, side)
    """
    folds = side // bands
    if x.shape[2] < folds * side:
        x = F.interpolate(x, (folds * side, bands), mode="bicubic", align_corners=True)
    return x.unflatten(2, (folds, side)).transpose(3, 4).flatten(2, 3)


def read_alike(x: Tensor, is_longer: Tensor | None) -> Tensor:
    """x as it is: a model without finer parts takes the word for a longer sound and reads it like any other."""
    return x


def unfold_spectrogram(x: Tensor, folds: int) -> Tensor:
    """Undoes the folds, behind layers that made the image coarser.

    x (B, Y, X, C) -> (B, C, Y / folds, folds * X)
    """
    return x.permute(0, 3, 1, 2).unflatten(2, (folds, -1)).transpose(2, 3).flatten(3)


def side_by_side(parts: Tensor, x: Tensor, whole: Tensor) -> Tensor:
    """The parts of each of x's images beside each other, with zeros behind them to the width of `whole`.

    parts (B * N, C, Y, X), x (B, 1 + N, ...), whole (B, C, Y, W) -> (B, C, Y, W)
    """
    parts = parts.unflatten(0, (x.shape[0], -1)).permute(0, 2, 3, 1, 4).flatten(3)
    return F.pad(parts, (0, whole.shape[-1] - parts.shape[-1]))
