"""Activations that torch has no function for. Any shape."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def quick_gelu(x: Tensor) -> Tensor:
    """GELU by a sigmoid: x * sigmoid(1.702 x) (CLIP)."""
    return x * torch.sigmoid(1.702 * x)


def xielu(x: Tensor, alpha_p: Tensor, alpha_n: Tensor, beta: Tensor, eps: Tensor) -> Tensor:
    """Squares above zero, exponentials below, both bent by learned amounts (paper 2411.13010)."""
    above = F.softplus(alpha_p) * x * x
    below = (beta + F.softplus(alpha_n)) * (torch.expm1(torch.minimum(x, eps)) - x)
    return torch.where(x > 0, above, below) + beta * x


def scale_rounded(x: Tensor, scale: float) -> Tensor:
    """x times a constant that is rounded to the dtype of x first (Gemma's embeddings)."""
    return x * torch.tensor(scale, dtype=x.dtype, device=x.device)


def softcap(x: Tensor, cap: float) -> Tensor:
    """Limits softly to (-cap, cap): cap * tanh(x / cap) (Gemma 2's logits, paper 2408.00118)."""
    return torch.tanh(x / cap) * cap
