"""Boxes by the place of a patch in an image."""

from __future__ import annotations

import torch
from torch import Tensor


def patch_box_bias(x: Tensor, height: int, width: int) -> Tensor:
    """Logits of a box around each patch: centre x and y, width and height as shares of the image.

    x (B, T, W), T = height * width, row by row -> (T, 4)
    """
    index = torch.arange(height * width, device=x.device)
    size = torch.tensor([width, height], device=x.device)
    corner = (torch.stack((index % width, index // width), dim=-1) + 1) / size
    box = torch.cat((corner, (1 / size).expand_as(corner)), dim=-1)
    return ((box + 1e-4).log() - (1e-4 - box).log1p()).to(x.dtype)


def hide_empty_queries(logits: Tensor, input_ids: Tensor) -> Tensor:
    """The lowest score for texts that begin with padding. logits (B, T, Q), input_ids (B * Q, L)"""
    real = input_ids[:, 0].view(logits.shape[0], 1, -1) > 0
    return logits.masked_fill(~real, torch.finfo(logits.dtype).min)
