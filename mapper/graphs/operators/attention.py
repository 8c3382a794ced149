"""Attention, and what goes with it. https://onnx.ai/onnx/operators/"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from mapper.graphs.operators import operator


def in_heads(x: Tensor, heads: int | None) -> Tensor:
    """(B, T, H D) or (B, H, T, D) -> (B, H, T, D)"""
    return x if x.dim() == 4 else x.unflatten(-1, (heads, -1)).transpose(1, 2)


def attention_bias(
    q: Tensor,
    keys: int,
    mask: Tensor | None,
    seen: Tensor | None,
    offset: Tensor,
    causal: bool,
    left: int,
    right: int,
) -> Tensor:
    """What is added to the scores: 0 or the mask's own, and -inf where a query does not see a key. (B, H, T, keys)"""
    dtype = torch.float32 if q.dtype in (torch.float16, torch.bfloat16) else q.dtype
    at = torch.arange(q.shape[2], device=q.device)[:, None] + offset.view(-1, 1, 1, 1)
    key = torch.arange(keys, device=q.device)
    allowed = torch.ones_like(at + key, dtype=torch.bool)
    if causal:
        allowed = allowed & (key <= at)
    if left >= 0:
        allowed = allowed & (key >= at - left)
    if right >= 0:
        allowed = allowed & (key <= at + right)
    if seen is not None:
        allowed = allowed & (key < seen.view(-1, 1, 1, 1))
    bias = torch.zeros(allowed.shape, dtype=dtype, device=q.device).masked_fill(~allowed, -math.inf)
    if mask is None:
        return bias
    if mask.shape[-1] < keys:
        mask = F.pad(
            mask.to(dtype) if mask.dtype != torch.bool else mask, (0, keys - mask.shape[-1]), value=0
        )
    if mask.dtype == torch.bool:
        return (
            bias.masked_fill(~mask, -math.inf)
            if mask.dim() == 4
            else bias + torch.zeros(mask.shape, dtype=dtype, device=q.device).masked_fill(~mask, -math.inf)
        )
    return bias + mask.to(dtype)


@operator("Attention", since=25)
def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    attn_mask: Tensor | None = None,
    past_key: Tensor | None = None,
    past_value: Tensor | None = None,
    nonpad_kv_seqlen: Tensor | None = None,
    *,
    is_causal: int = 0,
    kv_num_heads: int | None = None,
    left_window_size: int = -1,
    q_num_heads: int | None = None,
    qk_matmul_output_mode: int = 0,
    right_window_size: int = -1,
    scale: float | None = None,
    softcap: float = 0.0,
    softmax_precision: torch.dtype | None = None,
    outputs: int = 1,
) -> Tensor | tuple[Tensor, ...]:
    """Queries see keys up to their own position where causal; a row that sees none is zero. (B, H, T, D) or (B, T, H D)"""
    is_flat = q.dim() == 3
    q, k, v = in_heads(q, q_num_heads), in_heads(k, kv_num_heads), in_heads(v, kv_num_heads)
    past = 0 if past_key is None else past_key.shape[2]
    if past_key is not None and past_value is not None:
        k, v = torch.cat([past_key, k], 2), torch.cat([past_value, v], 2)
    offset = torch.full((1,), past, device=q.device)
    if nonpad_kv_seqlen is not None and past_key is None:
        offset = nonpad_kv_seqlen - q.shape[2]
    bias = attention_bias(
        q,
        k.shape[2],
        attn_mask,
        nonpad_kv_seqlen,
        offset,
        bool(is_causal),
        left_window_size,
        right_window_size,
    )
    groups = q.shape[1] // k.shape[1]
    each_k, each_v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
    rate = math.sqrt(1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    raw = (q * rate) @ (each_k * rate).transpose(2, 3)
    capped = softcap * torch.tanh(raw / softcap) if softcap else raw
    scores = (capped + bias).to(raw.dtype)
    weights = scores.softmax(-1, dtype=softmax_precision).to(q.dtype)
    weights = weights.masked_fill((scores == -math.inf).all(-1, keepdim=True), 0)
    y = weights @ each_v
    y = y.transpose(1, 2).flatten(2) if is_flat else y
    if outputs == 1:
        return y
    return (y, k, v, (raw, capped, scores, weights)[qk_matmul_output_mode])[:outputs]


@operator("Attention", since=23, until=24)
def attention_23(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    attn_mask: Tensor | None = None,
    past_key: Tensor | None = None,
    past_value: Tensor | None = None,
    nonpad_kv_seqlen: Tensor | None = None,
    *,
    is_causal: int = 0,
    kv_num_heads: int | None = None,
    q_num_heads: int | None = None,
    qk_matmul_output_mode: int = 0,
    scale: float | None = None,
    softcap: float = 0.0,
    softmax_precision: torch.dtype | None = None,
    outputs: int = 1,
) -> Tensor | tuple[Tensor, ...]:
    """As later, where both versions of the standard mean the same."""
    return attention(
        q,
        k,
        v,
        attn_mask,
        past_key,
        past_value,
        nonpad_kv_seqlen,
        is_causal=is_causal,
        kv_num_heads=kv_num_heads,
        q_num_heads=q_num_heads,
        qk_matmul_output_mode=qk_matmul_output_mode,
        scale=scale,
        softcap=softcap,
        softmax_precision=softmax_precision,
        outputs=outputs,
    )


@operator("RotaryEmbedding", since=23)
def rotary_embedding(
    x: Tensor,
    cos_cache: Tensor,
    sin_cache: Tensor,
    position_ids: Tensor | None = None,
    *,
    interleaved: int = 0,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
) -> Tensor:
    """The first numbers of each head turned by its position. x (B, T, H D) or (B, H, T, D)"""
    y = x.unflatten(-1, (num_heads, -1)) if x.dim() == 3 else x.transpose(1, 2)
    width = rotary_embedding_dim or y.shape[-1]
    cos = (cos_cache if position_ids is None else cos_cache[position_ids])[..., : width // 2].unsqueeze(2)
    sin = (sin_cache if position_ids is None else sin_cache[position_ids])[..., : width // 2].unsqueeze(2)
    turned, rest = y[..., :width], y[..., width:]
    a, b = (turned[..., ::2], turned[..., 1::2]) if interleaved else turned.chunk(2, -1)
    one, two = a * cos - b * sin, a * sin + b * cos
    turned = torch.stack([one, two], -1).flatten(-2) if interleaved else torch.cat([one, two], -1)
    y = torch.cat([turned, rest], -1)
    return y.flatten(2) if x.dim() == 3 else y.transpose(1, 2)


@operator("LinearAttention", since=27)
def linear_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    past_state: Tensor | None = None,
    decay: Tensor | None = None,
    beta: Tensor | None = None,
    *,
    chunk_size: int = 64,
    kv_num_heads: int,
    q_num_heads: int,
    scale: float = 0.0,
    update_rule: str = "gated_delta",
) -> tuple[Tensor, Tensor]:
    """A state of each head that every position updates and reads. q (B, T, H D), state (B, K, D, V)"""
    queries, keys, values = (
        in_heads(x.float(), heads) for x, heads in ((q, q_num_heads), (k, kv_num_heads), (v, kv_num_heads))
    )
    rate = scale or 1 / math.sqrt(queries.shape[-1])
    groups = q_num_heads // kv_num_heads
    state = (
        keys.new_zeros(*keys.shape[:2], keys.shape[-1], values.shape[-1])
        if past_state is None
        else past_state.float()
    )
    gates = None if decay is None else in_heads(decay.float(), kv_num_heads)
    rates = (
        None if beta is None else in_heads(beta.float().expand(*beta.shape[:2], kv_num_heads), kv_num_heads)
    )
    found = []
    for now in range(queries.shape[2]):
        key, value = keys[:, :, now], values[:, :, now]
        if gates is not None:
            state = state * gates[:, :, now, :, None].exp()
        if rates is not None:
            value = (value - (key[..., None, :] @ state)[..., 0, :]) * rates[:, :, now]
        state = state + key[..., None] * value[..., None, :]
        found.append((queries[:, :, now, None, :] @ state.repeat_interleave(groups, 1))[..., 0, :] * rate)
    y = torch.stack(found, 1).flatten(2)
    return y.to(q.dtype), state.to(q.dtype if past_state is None else past_state.dtype)


@operator("SwiGLU", since=28)
def swi_glu(a: Tensor, b: Tensor, *, alpha: float = 1.0) -> Tensor:
    return a * torch.sigmoid(alpha * a) * b
