"""Profiles over distances, convolutions beside a residual, experts that all positions share."""

from __future__ import annotations

import torch

from mapper.operations.profiles import (
    convolve_beside,
    each_expert,
    joint_weights,
    profile_bias,
    sum_of_experts,
)


def test_profiles_reach_back_so_far() -> None:
    bias = profile_bias(torch.ones(1, 1, 4, 1), torch.tensor([[1.0, 2.0]]))
    assert bias[0, 0].tolist() == [[1, 0, 0, 0], [2, 1, 0, 0], [0, 2, 1, 0], [0, 0, 2, 1]]


def test_a_convolution_beside_reads_no_padding() -> None:
    x = torch.tensor([[[5.0], [1.0], [2.0]]])
    weight = torch.tensor([[[10.0, 0.0]]])
    assert convolve_beside(x, weight, None).flatten().tolist() == [5, 51, 12]
    assert convolve_beside(x, weight, torch.tensor([[0, 1, 1]])).flatten().tolist() == [5, 1, 12]


def test_chosen_and_shared_experts_weigh_one_together() -> None:
    logits = torch.tensor([[1.0, 2.0, 3.0, 0.0]])
    weights = joint_weights(logits, torch.tensor([[2, 0]]), 3)
    scores = torch.sigmoid(torch.tensor([[3.0, 1.0, 0.0]]))
    torch.testing.assert_close(weights, scores / scores.sum())


def test_experts_in_one_tensor_are_experts_one_by_one() -> None:
    torch.manual_seed(0)
    x, up, down = torch.randn(2, 3, 4), torch.randn(5, 6, 4), torch.randn(5, 4, 6)
    wanted = sum(x @ a.t() @ b.t() for a, b in zip(up, down, strict=True))
    torch.testing.assert_close(sum_of_experts(each_expert(x, up), down), wanted)
