"""Patches of an image as a sequence: tokens that stand before them or in their place."""

from __future__ import annotations

import torch
from torch import Tensor


def prepend_token(token: Tensor, x: Tensor) -> Tensor:
    """One learned vector before each sequence. token (..., W), x (B, T, W) -> (B, 1 + T, W)"""
    return torch.cat((token.expand(x.shape[0], 1, -1), x), dim=1)


def prepend_tokens(tokens: Tensor, x: Tensor) -> Tensor:
    """Learned vectors before each sequence. tokens (1, N, W), x (B, T, W) -> (B, N + T, W)"""
    return torch.cat((tokens.expand(x.shape[0], -1, -1), x), dim=1)


def mask_patches(x: Tensor, token: Tensor, masked: Tensor | None) -> Tensor:
    """Puts the token where `masked` is true; None masks nothing.

    x (B, T, W) or (B, Y, X, W), token (..., W), masked (B, T) with T = Y * X -> like x
    """
    return x if masked is None else torch.where(masked.bool().reshape(x.shape[:-1])[..., None], token, x)


def keep_some(x: Tensor, share: float, noise: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Leaves out a share of the positions, those with the highest noise (MAE, paper 2111.06377).

    x (B, T, W), noise (B, T), drawn if None -> the rest (B, N, W), 1 where a position is left out (B, T),
    and the place of each position in the order of the noise (B, T)
    """
    if noise is None:
        noise = torch.rand(x.shape[:2], device=x.device)
    order = noise.argsort(dim=1)
    place = order.argsort(dim=1)
    count = int(x.shape[1] * (1 - share))
    kept = x.gather(1, order[:, :count, None].expand(-1, -1, x.shape[2]))
    return kept, (place >= count).to(x.dtype), place


def append_tokens(x: Tensor, tokens: Tensor) -> Tensor:
    """Learned vectors behind each sequence. x (B, T, W), tokens (1, N, W) -> (B, T + N, W)"""
    return torch.cat((x, tokens.expand(x.shape[0], -1, -1)), dim=1)
