"""Mixture of experts: which experts a position goes to, and their products.

Positions are sorted by expert and cut into one block each, so that the work is that of the chosen experts
only. Exports and compiles without graph breaks: sizes become unbacked integers. `grouped_mm` was ruled out:
on CPU it needs aligned widths, cannot be traced in float32 and was no faster (8 experts, top 2, 512
positions of 1024).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def softmax_float32(logits: Tensor) -> Tensor:
    """Softmax over the last axis, in float32 whatever the model computes in. logits (..., E) -> (..., E)"""
    return logits.softmax(dim=-1, dtype=torch.float32)


def best_experts(scores: Tensor, count: int) -> Tensor:
    """The `count` experts with the highest scores. scores (..., E) -> (..., count)"""
    return scores.topk(count, dim=-1).indices


def best_experts_of_groups(scores: Tensor, count: int, groups: int, kept: int, voters: int) -> Tensor:
    """The best `count` experts out of `kept` groups of neighbours (DeepSeek-V2, paper 2405.04434).

    scores (..., E) -> (..., count)
    """
    open_to = in_best_groups(scores, groups, kept, voters)
    return best_experts(scores.masked_fill(~open_to, float("-inf")), count)


def in_best_groups(scores: Tensor, groups: int, kept: int, voters: int) -> Tensor:
    """Whether an expert is in one of the `kept` groups whose `voters` best experts count most together.

    scores (..., E) -> (..., E) bool
    """
    grouped = scores.unflatten(-1, (groups, -1))
    best = grouped.topk(voters, dim=-1).values.sum(dim=-1).topk(kept, dim=-1).indices  # (..., kept)
    open_groups = F.one_hot(best, groups).sum(dim=-2).bool()  # (..., groups)
    return open_groups[..., None].expand_as(grouped).flatten(-2)


def experts_of_words(input_ids: Tensor, table: Tensor) -> Tensor:
    """The experts that a table has for each word. input_ids (B, T), table (V, count) -> (B, T, count)"""
    return F.embedding(input_ids, table).long()


def pick_weights(scores: Tensor, chosen: Tensor) -> Tensor:
    """The scores of the chosen experts. scores (..., E), chosen (..., count) -> (..., count)"""
    return scores.gather(-1, chosen)


def normalise_weights(weights: Tensor) -> Tensor:
    """Weights that sum to 1; a sum of nothing stays finite. (..., count) -> (..., count)"""
    return weights / (weights.sum(dim=-1, keepdim=True) + 1e-20)


def mix_experts(x: Tensor, weights: Tensor, chosen: Tensor, experts: nn.ModuleList) -> Tensor:
    """Sum of the chosen experts' outputs, weighted.

    x (..., W), weights and chosen (..., count) -> (..., W)
    """
    rows, order, sizes = sort_by_expert(x, chosen, len(experts))
    pairs = zip(experts, rows.split(sizes), strict=True)
    every = torch.compiler.is_compiling() or torch.is_grad_enabled()  # a graph has no branches; all learn
    parts = [expert(part) for expert, part in pairs if every or len(part)]
    return combine_experts(x, torch.cat(parts) if parts else rows, weights, order)


def sort_by_expert(x: Tensor, chosen: Tensor, experts: int) -> tuple[Tensor, Tensor, list[int]]:
    """Positions once per chosen expert, sorted by expert.

    x (..., W), chosen (..., count) -> rows (N * count, W), their order, how many each expert has
    """
    expert = chosen.flatten()
    order = expert.argsort(stable=True)
    sizes = F.one_hot(expert, experts).sum(dim=0).tolist()
    return x.flatten(0, -2)[order // chosen.shape[-1]], order, sizes


def combine_experts(x: Tensor, y: Tensor, weights: Tensor, order: Tensor) -> Tensor:
    """Weighs sorted outputs and adds them up per position.

    y (N * count, W), weights (..., count) -> like x
    """
    y = (y * weights.flatten()[order, None]).to(x.dtype)
    flat = torch.zeros_like(x).flatten(0, -2)
    return flat.index_add(0, order // weights.shape[-1], y).view_as(x)


def expert_linear(rows: Tensor, weight: Tensor, sizes: list[int]) -> Tensor:
    """Each block of rows times its expert's matrix. rows (N, I), weight (E, O, I) -> (N, O)"""
    return torch.cat([F.linear(part, weight[i]) for i, part in enumerate(rows.split(sizes))])


def expert_linear_transposed(rows: Tensor, weight: Tensor, sizes: list[int]) -> Tensor:
    """Each block of rows times its expert's matrix, stored [in, out].

    rows (N, I), weight (E, I, O) -> (N, O)
    """
    return torch.cat([part @ weight[i] for i, part in enumerate(rows.split(sizes))])


def expert_bias(rows: Tensor, bias: Tensor, sizes: list[int]) -> Tensor:
    """Adds each expert's bias to its block of rows. rows (N, O), bias (E, O) -> (N, O)"""
    return torch.cat([part + bias[i] for i, part in enumerate(rows.split(sizes))])


def unsort(rows: Tensor, order: Tensor, chosen: Tensor) -> Tensor:
    """Rows sorted by expert where their positions stand.

    rows (N * count, O), their order, chosen (..., count) -> (..., count, O)
    """
    return torch.zeros_like(rows).index_copy(0, order, rows).view(*chosen.shape, -1)
