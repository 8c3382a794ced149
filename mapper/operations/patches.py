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
