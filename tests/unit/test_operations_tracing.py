"""Compositions of operations export with any batch and length, and compile without graph breaks."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mapper.operations import (
    attention,
    cache,
    convolution,
    experts,
    heads,
    leaves,
    masks,
    pooling,
    positions,
    relative,
    rotary,
    state_space,
    windows,
)

WIDTH, HEADS, SIZE = 16, 4, 4


class Block(nn.Module):
    """Projections that every composition below uses; subclasses say what happens between them."""

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.table = nn.Embedding(32, HEADS)

    def split(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = (heads.split_heads(part, SIZE) for part in self.qkv(x).chunk(3, dim=-1))
        return q, k[:, : HEADS // 2], v[:, : HEADS // 2]

    def positions(self, x: Tensor) -> Tensor:
        return positions.positions_in_order(x)

    def frequencies(self, x: Tensor) -> Tensor:
        return rotary.rotary_frequencies(self.positions(x), SIZE, 10000.0)

    def forward(self, x: Tensor, attention_mask: Tensor) -> Tensor:
        return heads.merge_heads(self.attend(x, *self.split(x), attention_mask))


class Encoder(Block):
    def attend(self, x, q, k, v, mask):
        return attention.attend(q, k, v, masks.padding_mask(mask))


class Decoder(Block):
    def attend(self, x, q, k, v, mask):
        cos, sin = rotary.rotary_tables(x, self.positions(x), self.frequencies(x))
        q, k = rotary.apply_rotary(q, cos, sin), rotary.apply_rotary(k, cos, sin)
        return attention.attend(q, k, v, masks.causal_mask(x, mask))


class DecoderWithoutMask(Decoder):
    def attend(self, x, q, k, v, mask):
        return attention.attend(q, k, v, None, is_causal=True)


class Sliding(Block):
    def attend(self, x, q, k, v, mask):
        return attention.attend_softcap(q, k, v, masks.sliding_mask(x, mask, 3), 0.5, 50.0)


class Interleaved(Decoder):
    def attend(self, x, q, k, v, mask):
        cos, sin = rotary.rotary_tables_scaled(x, self.positions(x), self.frequencies(x)[:1], 1.2)
        q = rotary.apply_rotary_partial_interleaved(q, cos, sin)
        return attention.attend(q, rotary.apply_rotary_partial(k, cos, sin), v, masks.causal_mask(x, mask))


class Dynamic(Decoder):
    def frequencies(self, x):
        return rotary.rotary_frequencies_dynamic(self.positions(x), SIZE, 10000.0, 2.0, 4)


class Yarn(Decoder):
    def frequencies(self, x):
        return rotary.rotary_frequencies_yarn(self.positions(x), SIZE, 10000.0, 2.0, 16)


class Llama3(Decoder):
    def frequencies(self, x):
        return rotary.rotary_frequencies_llama3(self.positions(x), SIZE, 10000.0, 8.0, 1.0, 4.0, 16)


class LongRope(Decoder):
    def frequencies(self, x):
        return rotary.rotary_frequencies_longrope(self.positions(x), SIZE, 10000.0, (1.0, 2.0), (3.0, 4.0), 4)


class Relative(Block):
    def attend(self, x, q, k, v, mask):
        buckets = relative.relative_buckets(relative.relative_distances(x), 32, 128)
        bias = self.table(buckets).permute(2, 0, 1)[None]
        return attention.attend_biased(q, k, v, bias, masks.causal_mask(x, mask), 1.0)


class Alibi(Block):
    def attend(self, x, q, k, v, mask):
        at = positions.positions_of_mask(x, mask)
        bias = relative.alibi_slopes(x, HEADS)[:, None, None] * at[:, None, None, :]
        return attention.attend_biased(q, k, v, bias, masks.causal_mask(x, mask))


class Disentangled(Block):
    def attend(self, x, q, k, v, mask):
        distances = relative.log_buckets(relative.relative_distances(x), 8, 16)
        rows = (8 - distances).clamp(0, 2 * 8 - 1)
        table = self.qkv.weight[:16].view(1, HEADS, 16, SIZE)
        k, v = k.repeat_interleave(2, 1), v.repeat_interleave(2, 1)
        bias = relative.relative_scores(q, table, rows) + relative.relative_scores(k, table, rows.t()).mT
        return attention.attend_biased(q, k, v, bias, masks.padding_mask(mask), 0.3)


class Experts(Block):
    def __init__(self):
        super().__init__()
        self.router = nn.Linear(WIDTH, 4)
        self.experts = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x, attention_mask):
        scores = self.router(x).softmax(dim=-1, dtype=torch.float32)
        chosen = scores.topk(2, dim=-1).indices
        weights = scores.gather(-1, chosen)
        return experts.mix_experts(x, weights, chosen, self.experts)


class StackedExperts(Experts):
    def forward(self, x, attention_mask):
        scores = self.router(x).softmax(dim=-1, dtype=torch.float32)
        kept = experts.in_best_groups(scores, scores.shape[-1], 2, 1)
        chosen = scores.masked_fill(~kept, -torch.inf).topk(2, dim=-1).indices
        weights = scores.gather(-1, chosen)
        rows, order, sizes = experts.sort_by_expert(x, chosen, 3)
        y = experts.expert_linear(rows, self.qkv.weight.view(3, WIDTH, WIDTH), sizes)
        return experts.combine_experts(x, y, weights, order)


class StackedExpertsOfThree(StackedExperts):
    def __init__(self):
        super().__init__()
        self.router = nn.Linear(WIDTH, 3)


class Mamba(Block):
    def __init__(self):
        super().__init__()
        self.convolution = nn.Conv1d(WIDTH, WIDTH, 4, groups=WIDTH)

    def forward(self, x, attention_mask):
        x = masks.zero_padding(x, attention_mask)
        x = convolution.conv_causal(x, self.convolution.weight, self.convolution.bias)
        dt, b, c = self.qkv(x).chunk(3, dim=-1)
        a = -self.qkv.weight[:WIDTH].square()
        return state_space.selective_scan(x, F.softplus(dt), a, b, c)


class Pooled(Block):
    def __init__(self):
        super().__init__()
        self.weight_normed = leaves.Conv1dParametrized(WIDTH, WIDTH, 4, padding=2, dim=2)
        self.norm = leaves.RMSNormOffset(WIDTH, 1e-6)

    def forward(self, x, attention_mask):
        y = convolution.trim_even(self.weight_normed(x.transpose(1, 2)), 4).transpose(1, 2)
        y = self.norm(y + positions.sinusoids(x, self.positions(x), WIDTH))
        ids = attention_mask.cumsum(1)
        last = (self.positions(x) * (ids != 0)).argmax(dim=-1)
        row = torch.arange(y.shape[0], device=y.device)
        return y[row, last] + y[row, ids.argmax(dim=-1)] + pooling.pool_mean(y, attention_mask)


BLOCKS = [
    Encoder, Decoder, DecoderWithoutMask, Sliding, Interleaved, Dynamic, Yarn, Llama3, LongRope, Relative, Alibi,
    Disentangled, Experts, StackedExpertsOfThree, Mamba, Pooled,
]  # fmt: skip


def made(kind: type[Block]) -> Block:
    torch.manual_seed(0)
    block = kind().eval()
    for parameter in block.parameters():
        nn.init.normal_(parameter, std=0.3)
    return block


def batch(size: int, length: int) -> tuple[Tensor, Tensor]:
    mask = (torch.arange(length) >= torch.arange(size)[:, None]).long()  # left padding, more in each row
    return torch.randn(size, length, WIDTH), mask


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("kind", BLOCKS)
def test_it_exports_with_any_batch_and_length(kind):
    block = made(kind)
    dims = {0: torch.export.Dim("batch"), 1: torch.export.Dim("length")}
    program = torch.export.export(block, batch(2, 7), dynamic_shapes=(dims, dims)).module()
    for size, length in ((2, 7), (3, 5), (1, 21)):
        x, mask = batch(size, length)
        torch.testing.assert_close(program(x, mask), block(x, mask), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", BLOCKS)
def test_it_compiles_in_one_graph(kind):
    torch._dynamo.reset()
    block = made(kind)
    compiled = torch.compile(block, backend="eager", fullgraph=True)
    for size, length in ((2, 7), (3, 5)):
        x, mask = batch(size, length)
        torch.testing.assert_close(compiled(x, mask), block(x, mask), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", BLOCKS)
def test_it_has_finite_gradients_and_works_in_half_precision(kind):
    block = made(kind)
    x, mask = batch(3, 6)
    x.requires_grad_()
    block(x, mask).square().sum().backward()
    assert all(p.grad.isfinite().all() for p in block.parameters() if p.grad is not None)
    assert x.grad.isfinite().all()
    half = made(kind).bfloat16()
    assert half(x.detach().bfloat16(), mask).dtype == torch.bfloat16


class Step(nn.Module):
    def forward(self, q: Tensor, k: Tensor, v: Tensor, past: list, start: Tensor) -> Tensor:
        slots = cache.new_cache_positions(q.transpose(1, 2), start)
        k, v = cache.extend_cache(past[0], k, v, slots)
        return attention.attend(q, k, v, masks.causal_mask_at(slots, k.shape[2], None))


@pytest.mark.parametrize("how", ["eager", "compile", "export"])
def test_a_cached_step_can_be_traced(how):
    torch._dynamo.reset()
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 4, 6, 8) for _ in range(3))
    past = cache.empty_cache(q, 2, 10, [(4, 8)])
    step = Step()
    if how == "compile":
        step = torch.compile(step, backend="eager", fullgraph=True)
    if how == "export":
        arguments = (q[:, :, :1], k[:, :, :1], v[:, :, :1], past, torch.tensor(0))
        step = torch.export.export(step, arguments).module()
    outputs = [
        step(q[:, :, i : i + 1], k[:, :, i : i + 1], v[:, :, i : i + 1], past, torch.tensor(i))
        for i in range(6)
    ]
    expected = attention.attend(q, k, v, None, is_causal=True)
    torch.testing.assert_close(torch.cat(outputs, 2), expected)


class Windowed(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.randn(25, 2))
        self.positions = nn.Parameter(torch.randn(1, 16, 8))

    def forward(self, x: Tensor) -> Tensor:
        _, Y, X, _ = x.shape
        x = x + positions.resize_positions(self.positions, 0, Y, X).unflatten(1, (Y, X))
        shift = (windows.side_shift(min(X, Y), 3, 1),) * 2
        cut = heads.split_heads(windows.partition_windows(x, 3, shift), 4)
        bias = windows.window_bias(self.table, 3)
        cut = attention.attend_biased(cut, cut, cut, bias, windows.window_mask(x, 3, shift))
        return windows.merge_patches(windows.join_windows(heads.merge_heads(cut), x, 3, shift))


@pytest.mark.parametrize("how", ["compile", "export"])
def test_windows_can_be_traced_with_any_batch(how):
    torch._dynamo.reset()
    torch.manual_seed(0)
    module = Windowed()
    if how == "compile":
        traced = torch.compile(module, backend="eager", fullgraph=True)
    else:
        shapes = ({0: torch.export.Dim("batch")},)
        traced = torch.export.export(module, (torch.randn(2, 7, 5, 8),), dynamic_shapes=shapes).module()
    for size in (2, 3, 1):
        x = torch.randn(size, 7, 5, 8)
        torch.testing.assert_close(traced(x), module(x), rtol=1e-5, atol=1e-5)
