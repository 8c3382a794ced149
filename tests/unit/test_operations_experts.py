"""Mixture of experts against the reference's own block."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from mapper.operations import experts


class FeedForward(nn.Module):
    def __init__(self, gate_up, down):
        super().__init__()
        self.gate_up, self.down = nn.Parameter(gate_up.clone()), nn.Parameter(down.clone())

    def forward(self, x):
        gate, up = F.linear(x, self.gate_up).chunk(2, -1)
        return F.linear(F.silu(gate) * up, self.down)


def route(logits, count):
    scores = logits.softmax(dim=-1, dtype=torch.float32)
    chosen = scores.topk(count, dim=-1).indices
    return (scores.gather(-1, chosen), chosen)


def route_normalised(logits, count):
    weights, chosen = route(logits, count)
    return weights / (weights.sum(dim=-1, keepdim=True) + 1e-20), chosen


@pytest.fixture(params=[(1, 1), (2, 7)], ids=str)
def case(request):
    from transformers import MixtralConfig
    from transformers.models.mixtral.modeling_mixtral import MixtralSparseMoeBlock

    torch.manual_seed(0)
    config = MixtralConfig(hidden_size=16, intermediate_size=24, num_local_experts=4, num_experts_per_tok=2)
    config._experts_implementation = "eager"
    block = MixtralSparseMoeBlock(config).eval()
    for parameter in block.parameters():
        nn.init.normal_(parameter, std=0.3)
    x = torch.randn(*request.param, 16)
    gate_up, down = block.experts.gate_up_proj.detach(), block.experts.down_proj.detach()
    return block, x, gate_up, down


def test_experts_as_modules_equal_the_reference(case):
    block, x, gate_up, down = case
    modules = nn.ModuleList(FeedForward(gate_up[i], down[i]) for i in range(4))
    weights, chosen = route_normalised(F.linear(x, block.gate.weight), 2)
    torch.testing.assert_close(experts.mix_experts(x, weights, chosen, modules), block(x))


def test_stacked_experts_equal_the_reference(case):
    block, x, gate_up, down = case
    weights, chosen = route_normalised(F.linear(x, block.gate.weight), 2)
    rows, order, sizes = experts.sort_by_expert(x, chosen, 4)
    gate, up = experts.expert_linear(rows, gate_up, sizes).chunk(2, -1)
    y = experts.expert_linear(F.silu(gate) * up, down, sizes)
    torch.testing.assert_close(experts.combine_experts(x, y, weights, order), block(x))


def test_every_expert_learns_also_one_that_nobody_chose(case):
    block, x, gate_up, down = case
    modules = nn.ModuleList(FeedForward(gate_up[i], down[i]) for i in range(4))
    x = x.clone().requires_grad_()
    weights, chosen = route(F.linear(x, block.gate.weight), 1)
    experts.mix_experts(x, weights, chosen, modules).square().sum().backward()
    assert x.grad.isfinite().all()
    for i, module in enumerate(modules):
        assert module.down.grad is not None
        assert bool(module.down.grad.any()) == bool((chosen == i).any())


def test_plain_weights_are_the_softmax_over_all_experts():
    logits = torch.tensor([[[0.0, 1.0, 2.0, -1.0]]])
    weights, chosen = route(logits, 2)
    assert chosen.tolist() == [[[2, 1]]]
    torch.testing.assert_close(weights, logits.softmax(-1)[..., [2, 1]])
    normalised, _ = route_normalised(logits, 2)
    torch.testing.assert_close(normalised.sum(-1), torch.ones(1, 1))


def test_weights_are_float32_and_outputs_keep_the_dtype():
    x = torch.randn(2, 3, 8).bfloat16()
    weights, chosen = route_normalised(torch.randn(2, 3, 4).bfloat16(), 2)
    modules = nn.ModuleList(nn.Linear(8, 8).bfloat16() for _ in range(4))
    assert weights.dtype == torch.float32
    assert experts.mix_experts(x, weights, chosen, modules).dtype == torch.bfloat16


def test_experts_of_the_best_groups_are_marked():
    scores = torch.tensor([[0.9, 0.0, 0.6, 0.5, 0.1, 0.2]])
    assert experts.in_best_groups(scores, 3, 1, 2).tolist() == [[False, False, True, True, False, False]]


def test_of_a_sparse_mixer_those_that_come_near_share_the_weight():
    """By hand: 2.0 and 1.9 are within a tenth of each other, 1.0 is not; without 2.0, 1.9 has no neighbour."""
    weights, chosen = experts.mix_sparsely(torch.tensor([[1.0, 2.0, 1.9]]), distance=0.05)
    assert chosen.tolist() == [[1, 2]]
    torch.testing.assert_close(weights, torch.tensor([[1 / (1 + math.exp(-0.1)), 1.0]]))


def test_each_text_passes_the_adapter_of_its_language():
    modules = torch.nn.ModuleList(
        torch.nn.Linear(4, 4) for _ in range(3)
    )  # de, en, is: in the order of names
    x = torch.randn(2, 5, 4)
    said = experts.adapt_by_language(x, torch.tensor([0, 2]), modules, ("en", "is", "de"), None)
    torch.testing.assert_close(said, torch.stack((modules[1](x[0]), modules[0](x[1]))))
    alone = experts.adapt_by_language(x, None, modules, ("en", "is", "de"), "is")
    torch.testing.assert_close(alone, modules[2](x))
    with pytest.raises(ValueError, match="give lang_ids"):
        experts.adapt_by_language(x, None, modules, ("en", "is", "de"), None)
