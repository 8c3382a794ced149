"""Heads and attention against the formulas written out."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from mapper.operations import attention, heads


def naive(q: Tensor, k: Tensor, v: Tensor, mask, scale: float, bias=0.0, cap=None) -> Tensor:
    groups = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
    scores = torch.einsum("bhtd,bhsd->bhts", q.double(), k.double()) * scale
    if cap is not None:
        scores = cap * torch.tanh(scores / cap)
    scores = scores + bias
    if mask is not None:
        scores = scores.masked_fill(~mask, -1e30)
    return torch.einsum("bhts,bhsd->bhtd", scores.softmax(-1), v.double()).float()


@pytest.fixture(params=[(1, 4, 4, 1), (2, 4, 2, 7), (3, 6, 1, 5)], ids=str)
def qkv(request):
    B, H, K, T = request.param
    torch.manual_seed(0)
    return torch.randn(B, H, T, 8), torch.randn(B, K, T, 8), torch.randn(B, K, T, 8)


def masks(q: Tensor):
    B, T = q.shape[0], q.shape[2]
    causal = torch.ones(T, T, dtype=torch.bool).tril()[None, None]
    left = (torch.arange(T)[None] >= torch.arange(B)[:, None].clamp(max=T - 1))[:, None, None]
    return [None, causal, left.expand(B, 1, 1, T)]


def test_attention_equals_the_formula_with_every_mask_and_grouping(qkv):
    q, k, v = qkv
    for mask in masks(q):
        torch.testing.assert_close(attention.attend(q, k, v, mask), naive(q, k, v, mask, 8**-0.5))
        torch.testing.assert_close(attention.attend(q, k, v, mask, 0.3), naive(q, k, v, mask, 0.3))
        capped = attention.attend_softcap(q, k, v, mask, 0.3, 2.0)
        torch.testing.assert_close(capped, naive(q, k, v, mask, 0.3, cap=2.0))


def test_a_bias_is_added_to_the_scores(qkv):
    q, k, v = qkv
    bias = torch.randn(1, q.shape[1], q.shape[2], k.shape[2])
    for mask in masks(q):
        out = attention.attend_biased(q, k, v, bias, mask)
        torch.testing.assert_close(out, naive(q, k, v, mask, 8**-0.5, bias))
        out = attention.attend_biased(q, k, v, bias, mask, 1.0)
        torch.testing.assert_close(out, naive(q, k, v, mask, 1.0, bias))


def test_causal_attention_needs_no_mask(qkv):
    q, k, v = qkv
    causal = torch.ones(q.shape[2], q.shape[2], dtype=torch.bool).tril()
    expected = naive(q, k, v, causal, 8**-0.5)
    torch.testing.assert_close(attention.attend(q, k, v, None, is_causal=True), expected)
    bias, sinks = torch.randn(1, q.shape[1], 1, k.shape[2]), torch.randn(q.shape[1])
    scaled = attention.attend(q, k, v, None, 0.3, is_causal=True)
    torch.testing.assert_close(scaled, naive(q, k, v, causal, 0.3))
    biased = attention.attend_biased(q, k, v, bias, None, is_causal=True)
    torch.testing.assert_close(biased, naive(q, k, v, causal, 8**-0.5, bias))
    capped = attention.attend_softcap(q, k, v, None, 0.3, 2.0, is_causal=True)
    torch.testing.assert_close(capped, naive(q, k, v, causal, 0.3, cap=2.0))
    with_sinks = attention.attend_sinks(q, k, v, None, sinks, 0.3, is_causal=True)
    torch.testing.assert_close(with_sinks, attention.attend_sinks(q, k, v, causal, sinks, 0.3))


def test_sinks_take_weight_and_give_nothing(qkv):
    q, k, v = qkv
    sinks = torch.randn(q.shape[1])
    scores = torch.cat((naive_scores(q, k), sinks.view(1, -1, 1, 1).expand(*q.shape[:3], 1)), -1)
    weights = scores.softmax(-1)[..., :-1]
    expected = weights @ v.repeat_interleave(q.shape[1] // k.shape[1], 1)
    torch.testing.assert_close(attention.attend_sinks(q, k, v, None, sinks, 8**-0.5), expected)


def naive_scores(q: Tensor, k: Tensor) -> Tensor:
    k = k.repeat_interleave(q.shape[1] // k.shape[1], 1)
    return q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_query_without_any_key_stays_finite_and_so_do_gradients(dtype):
    q, k, v = (torch.randn(2, 4, 5, 8, dtype=dtype, requires_grad=True) for _ in range(3))
    mask = torch.ones(2, 1, 5, 5, dtype=torch.bool).tril()
    mask[0, :, :, :2] = False
    bias = torch.randn(1, 4, 5, 5, dtype=dtype)
    for out in (
        attention.attend(q, k, v, mask),
        attention.attend_biased(q, k, v, bias, mask),
        attention.attend_softcap(q, k, v, mask, 0.3, 50.0),
        attention.attend_sinks(q, k, v, mask, torch.zeros(4), 0.3),
    ):
        assert out.isfinite().all() and out.dtype == dtype
        out.float().square().sum().backward()
        assert all(t.grad.isfinite().all() for t in (q, k, v))


def test_heads_split_and_merge_back():
    x = torch.randn(2, 3, 24)
    q = heads.split_heads(x, 8)
    assert q.shape == (2, 3, 3, 8)
    torch.testing.assert_close(q[:, 1], x[..., 8:16], rtol=0, atol=0)
    torch.testing.assert_close(heads.merge_heads(q), x, rtol=0, atol=0)


def test_each_head_has_its_own_norm():
    norms = torch.nn.ModuleList(torch.nn.LayerNorm(8, bias=False) for _ in range(3))
    for norm in norms:
        torch.nn.init.normal_(norm.weight)
    x = torch.randn(2, 3, 5, 8)
    y = heads.norm_heads(x, norms)
    for head in range(3):
        torch.testing.assert_close(y[:, head], norms[head](x[:, head]), rtol=0, atol=0)


def test_a_packed_projection_gives_what_multihead_attention_gives():
    torch.manual_seed(0)
    reference = torch.nn.MultiheadAttention(16, 4, batch_first=True).eval()
    torch.nn.init.normal_(reference.in_proj_bias)
    probe, x = torch.randn(2, 1, 16), torch.randn(2, 5, 16)
    weight, bias = reference.in_proj_weight, reference.in_proj_bias
    q = torch.nn.functional.linear(probe, weight[:16], bias[:16])
    k, v = torch.nn.functional.linear(x, weight[16:], bias[16:]).chunk(2, dim=-1)
    q, k, v = (heads.split_heads(t, 4) for t in (q, k, v))
    out = reference.out_proj(heads.merge_heads(attention.attend(q, k, v, None)))
    torch.testing.assert_close(out, reference(probe, x, x)[0])


def test_queries_grow_with_the_logarithm_of_their_position():
    q, scale, bias = torch.ones(1, 2, 3, 4), torch.tensor([1.0, 0.0]), torch.tensor([0.5, 2.0])
    y = attention.position_temperature(q, torch.arange(3)[None], scale, bias)
    assert torch.allclose(y[0, 0, :, 0], torch.tensor([1.0, 2.0, 3.0]).log() + 0.5)
    assert torch.equal(y[0, 1], torch.full((3, 4), 2.0))


def test_as_many_landmarks_as_positions_come_near_attention_itself():
    """The inverse is found step by step, so only near."""
    q, k, v = (torch.randn(1, 2, 4, 8, generator=torch.Generator().manual_seed(seed)) for seed in range(3))
    near = attention.attend_landmarks(q, k, v, None, 4, 4)
    torch.testing.assert_close(
        near, torch.nn.functional.scaled_dot_product_attention(q, k, v), rtol=0, atol=0.1
    )
