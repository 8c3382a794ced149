"""Attention over heads. q (B, H, T, D), k and v (B, K, S, D) with H a multiple of K -> (B, H, T, D).

A mask is boolean, True where a key is seen, and broadcasts to (B, H, T, S); None: everything is seen.
A query that sees no key gives zeros or a plain mean, never NaN, so that padding cannot spoil what is real.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def attend(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float | None = None, is_causal: bool = False
) -> Tensor:
    """Scaled dot-product attention of grouped queries; the scale is 1 / sqrt(D) if None.

    q (B, H, T, D), k, v (B, K, S, D) -> (B, H, T, D)
    """
    if mask is not None and q.is_cuda:  # its fast kernels share heads only without a mask
        k, v = (part.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for part in (k, v))
    shared = k.shape[1] != q.shape[1]
    return F.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, is_causal=is_causal, scale=scale, enable_gqa=shared
    )


def attend_biased(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor,
    mask: Tensor | None,
    scale: float | None = None,
    is_causal: bool = False,
) -> Tensor:
    """Attention with a bias added to the scores; the scale is 1 / sqrt(D) if None.

    q (B, H, T, D), k, v (B, K, S, D), bias broadcasts to (B, H, T, S) -> (B, H, T, D)
    """
    if is_causal:
        mask = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device).tril()
    bias = bias.to(q.dtype)
    if mask is not None:  # the lowest number rather than -inf: a row without any key stays finite
        bias = bias.masked_fill(~mask, torch.finfo(q.dtype).min)
    if k.shape[1] != q.shape[1]:
        k, v = (part.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for part in (k, v))
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=scale)


def attend_softcap(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float, cap: float, is_causal: bool = False
) -> Tensor:
    """Attention with scores softly limited to (-cap, cap) before the mask (Gemma 2, paper 2408.00118).

    q (B, H, T, D), k, v (B, K, S, D) -> (B, H, T, D)
    """
    k, v = (part.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for part in (k, v))
    scores = torch.tanh(q @ k.transpose(-1, -2) * scale / cap) * cap  # (B, H, T, S)
    if is_causal:
        mask = torch.ones_like(scores[0, 0], dtype=torch.bool).tril()
    return softmax_masked(scores, mask) @ v


def attend_sinks(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, sinks: Tensor, scale: float, is_causal: bool = False
) -> Tensor:
    """Attention with one learned score per head that takes weight and gives nothing (gpt-oss).

    q (B, H, T, D), k, v (B, K, S, D), sinks (H,) -> (B, H, T, D)
    """
    k, v = (part.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for part in (k, v))
    scores = q @ k.transpose(-1, -2) * scale  # (B, H, T, S)
    if is_causal:
        mask = torch.ones_like(scores[0, 0], dtype=torch.bool).tril()
    if mask is not None:
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    sinks = sinks.to(scores.dtype)[:, None, None].expand(*scores.shape[:-1], 1)
    return softmax_masked(torch.cat((scores, sinks), dim=-1), None)[..., :-1] @ v


def softmax_masked(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Attention weights from scores, in float32 and cast back. scores (B, H, T, S) -> (B, H, T, S)"""
    if mask is not None:
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    return scores.softmax(dim=-1, dtype=torch.float32).to(scores.dtype)


def position_temperature(q: Tensor, positions: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    """Queries times a number for each head that grows with the log of their position (paper 2501.19399).

    q (B, H, T, D), positions (1 or B, T), scale and bias (H,) -> like q
    """
    growth = (positions + 1).float().log().to(q.dtype)[:, None]
    return q * (scale[:, None] * growth + bias[:, None])[..., None]


def attend_landmarks(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, landmarks: int, length: int
) -> Tensor:
    """Attention by way of landmarks, the means of equal segments of queries and keys (Nyström, 2102.03902).

    q, k, v (B, H, length, D), mask (B, 1, 1, length) -> (B, H, length, D). The inverse of the landmarks' own
    probabilities is found in six steps.
    """
    if q.shape[2] != length:
        raise ValueError(f"attention by landmarks is for {length} positions, not {q.shape[2]}: pad to that")
    q, k = q * q.shape[-1] ** -0.25, k * k.shape[-1] ** -0.25
    few_q, few_k = (part.unflatten(2, (landmarks, -1)).mean(dim=-2) for part in (q, k))
    near = (few_q @ few_k.mT).softmax(dim=-1)  # (B, H, landmarks, landmarks)
    inverse = near.mT / near.sum(dim=-2).max()
    one = torch.eye(landmarks, dtype=near.dtype, device=near.device)
    for _ in range(6):
        both = near @ inverse
        inverse = 0.25 * inverse @ (13 * one - both @ (15 * one - both @ (7 * one - both)))
    scores = few_q @ k.mT
    return (q @ few_k.mT).softmax(dim=-1) @ inverse @ (softmax_masked(scores, mask) @ v)
