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


def in_best_groups(scores: Tensor, groups: int, kept: int, voters: int) -> Tensor:
    """Whether an expert is in one of the `kept` groups whose `voters` best experts count most together.

    scores (..., E) -> (..., E) bool
    """
    grouped = scores.unflatten(-1, (groups, -1))
    best = grouped.topk(voters, dim=-1).values.sum(dim=-1).topk(kept, dim=-1).indices  # (..., kept)
    open_groups = F.one_hot(best, groups).sum(dim=-2).bool()  # (..., groups)
    return open_groups[..., None].expand_as(grouped).flatten(-2)


def mix_sparsely(logits: Tensor, distance: float) -> tuple[Tensor, Tensor]:
    """Weights and indices of the two best experts; each shares with those that come near it (SparseMixer).

    logits (..., E) -> weights (..., 2), chosen (..., 2). The weight is a softmax over the experts whose
    logits are within twice the distance of the best, relative to the larger of its value and their size; the
    second expert is the best of those without the first.
    """
    weights, chosen = [], []
    rest = logits
    for _ in range(2):
        best, index = rest.max(dim=-1, keepdim=True)
        is_far = (best - logits) / logits.abs().clamp(min=best) > 2 * distance
        weights.append(rest.masked_fill(is_far, float("-inf")).softmax(dim=-1).gather(-1, index))
        chosen.append(index)
        rest = rest.scatter(-1, index, float("-inf"))
    return torch.cat(weights, dim=-1), torch.cat(chosen, dim=-1)


def mix_experts(x: Tensor, weights: Tensor, chosen: Tensor, experts: nn.ModuleList) -> Tensor:
    """Sum of the chosen experts' outputs, weighted.

    x (..., W), weights and chosen (..., count) -> (..., W)
    """
    rows, order, sizes = sort_by_expert(x, chosen, len(experts))
    pairs = zip(experts, rows.split(sizes), strict=True)
    every = torch.compiler.is_compiling() or torch.is_grad_enabled()  # a graph has no branches; all learn
    parts = [expert(part) for expert, part in pairs if every or len(part)]
    return combine_experts(x, torch.cat(parts) if parts else rows, weights, order)


def adapt_by_language(
    x: Tensor,
    lang_ids: Tensor | None,
    adapters: nn.ModuleList,
    languages: tuple[str, ...],
    default: str | None,
) -> Tensor:
    """What the adapter of each text's language gives; they stand in the order of their languages' names.

    x (B, T, W), lang_ids (B,) or (B, T), positions in `languages` -> (B, T, W)
    """
    order = sorted(languages)
    places = torch.tensor([order.index(name) for name in languages], device=x.device)
    if lang_ids is None:
        if default not in languages:
            raise ValueError("no language is said, and the model has none by default: give lang_ids")
        lang_ids = torch.full((x.shape[0],), languages.index(default), device=x.device)
    chosen = places[lang_ids].reshape(x.shape[0], -1, 1).expand(-1, x.shape[1], -1)
    return mix_experts(x, torch.ones_like(chosen, dtype=x.dtype), chosen, adapters)


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


def expert_linear(rows: Tensor, weight: Tensor, sizes: list[int], bias: Tensor | None = None) -> Tensor:
    """Each block of rows through its expert's linear layer.

    rows (N, I), weight (E, O, I), bias (E, O) -> (N, O)
    """
    biases = [None] * len(sizes) if bias is None else bias.unbind()
    parts = zip(rows.split(sizes), weight.unbind(), biases, strict=True)
    return torch.cat([F.linear(part, matrix, offset) for part, matrix, offset in parts])
