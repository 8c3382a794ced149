"""Attention over heads. q (B, H, T, D), k and v (B, K, S, D) with H a multiple of K -> (B, H, T, D).

A mask is boolean, True where a key is seen, and broadcasts to (B, H, T, S); None: everything is seen.
A query that sees no key gives zeros or a plain mean, never NaN, so that padding cannot spoil what is real.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from mapper.operations.heads import repeat_heads


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    """Scaled dot-product attention, scale 1 / sqrt(D). q (B, H, T, D), k, v (B, K, S, D) -> (B, H, T, D)"""
    return attend_scaled(q, k, v, mask, q.shape[-1] ** -0.5)


def attend_scaled(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float) -> Tensor:
    """Dot-product attention with a scale of its own. q (B, H, T, D), k, v (B, K, S, D) -> (B, H, T, D)"""
    groups = q.shape[1] // k.shape[1]
    if groups > 1 and mask is not None and q.is_cuda:  # its fast kernels share heads only without a mask
        k, v = repeat_heads(k, groups), repeat_heads(v, groups)
    shared = k.shape[1] != q.shape[1]
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale, enable_gqa=shared)


def attend_causal(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    """Scaled dot-product attention where None as a mask means causal. q (B, H, T, D), k, v (B, K, T, D)"""
    if mask is None:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=q.shape[1] != k.shape[1])
    return attend(q, k, v, mask)


def attend_causal_scaled(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float) -> Tensor:
    """attend_causal with a scale of its own. q (B, H, T, D), k, v (B, K, T, D) -> (B, H, T, D)"""
    if mask is None:
        shared = q.shape[1] != k.shape[1]
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale, enable_gqa=shared)
    return attend_scaled(q, k, v, mask, scale)


def attend_causal_biased(q: Tensor, k: Tensor, v: Tensor, bias: Tensor, mask: Tensor | None) -> Tensor:
    """attend_biased where None as a mask means causal. bias broadcasts to (B, H, T, T)"""
    if mask is None:
        mask = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device).tril()
    return attend_biased(q, k, v, bias, mask)


def attend_causal_softcap(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float, cap: float
) -> Tensor:
    """attend_softcap where None as a mask means causal. q (B, H, T, D), k, v (B, K, T, D) -> (B, H, T, D)"""
    if mask is None:
        mask = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device).tril()
    return attend_softcap(q, k, v, mask, scale, cap)


def attend_biased(q: Tensor, k: Tensor, v: Tensor, bias: Tensor, mask: Tensor | None) -> Tensor:
    """Scaled attention with a float bias added to the scores. bias broadcasts to (B, H, T, S)"""
    return attend_scaled_biased(q, k, v, bias, mask, q.shape[-1] ** -0.5)


def attend_unscaled_biased(q: Tensor, k: Tensor, v: Tensor, bias: Tensor, mask: Tensor | None) -> Tensor:
    """Unscaled attention with a float bias added to the scores (T5). bias broadcasts to (B, H, T, S)"""
    return attend_scaled_biased(q, k, v, bias, mask, 1.0)


def attend_scaled_biased(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor, mask: Tensor | None, scale: float
) -> Tensor:
    """Attention with scores q @ k * scale + bias. bias broadcasts to (B, H, T, S)"""
    bias = bias.to(q.dtype)
    if mask is not None:  # the lowest number rather than -inf: a row without any key stays finite
        bias = bias.masked_fill(~mask, torch.finfo(q.dtype).min)
    groups = q.shape[1] // k.shape[1]
    if groups > 1:
        k, v = repeat_heads(k, groups), repeat_heads(v, groups)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=scale)


def attend_softcap(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float, cap: float) -> Tensor:
    """Attention with scores softly limited to (-cap, cap) before the mask (Gemma 2, paper 2408.00118)."""
    groups = q.shape[1] // k.shape[1]
    if groups > 1:
        k, v = repeat_heads(k, groups), repeat_heads(v, groups)
    scores = torch.tanh(q @ k.transpose(-1, -2) * scale / cap) * cap
    return softmax_masked(scores, mask) @ v


def attend_sinks(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, sinks: Tensor, scale: float) -> Tensor:
    """Attention with one learned score per head that takes weight and gives nothing. sinks (H,)"""
    groups = q.shape[1] // k.shape[1]
    k, v = repeat_heads(k, groups), repeat_heads(v, groups)
    scores = q @ k.transpose(-1, -2) * scale
    if mask is not None:
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    sinks = sinks.to(scores.dtype).view(1, -1, 1, 1).expand(*scores.shape[:-1], 1)
    weights = softmax_masked(torch.cat((scores, sinks), dim=-1), None)
    return weights[..., :-1] @ v


def attend_causal_sinks(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, sinks: Tensor, scale: float
) -> Tensor:
    """attend_sinks where None as a mask means causal. q (B, H, T, D), k, v (B, K, T, D), sinks (H,)"""
    if mask is None:
        mask = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device).tril()
    return attend_sinks(q, k, v, mask, sinks, scale)


def softmax_masked(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Attention weights from scores, in float32 and cast back. scores (B, H, T, S) -> (B, H, T, S)"""
    if mask is not None:
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    return scores.softmax(dim=-1, dtype=torch.float32).to(scores.dtype)


def attend_angles(q: Tensor, k: Tensor, v: Tensor, length: int) -> Tensor:
    """A unit vector of values, each by the chance that `length` random planes leave its key with the query.

    That chance is (1 - angle / pi) ** length (YOSO, paper 2111.09714). Shapes as in attend
    """
    cosine = F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).transpose(-1, -2)
    return F.normalize((1 - cosine.acos() / torch.pi) ** length @ v, dim=-1)


def hide_values(v: Tensor, mask: Tensor | None) -> Tensor:
    """Values of hidden keys as zeros. v (B, H, S, D), mask (1 or B, 1, 1, S) or None"""
    return v if mask is None else v * mask.transpose(-1, -2).to(v.dtype)


def grow_by_position(q: Tensor, positions: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    """Queries times a number for each head that grows with the log of their position (paper 2501.19399).

    q (B, H, T, D), positions (1 or B, T), scale and bias (H,) -> like q
    """
    growth = (positions + 1).float().log().to(q.dtype)[:, None]
    return q * (scale[:, None] * growth + bias[:, None])[..., None]
