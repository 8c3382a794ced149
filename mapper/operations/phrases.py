"""Words in phrases, and what in an image is like which word (paper 2303.05499)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def phrases_of(input_ids: Tensor, ends: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Which tokens (B, T) stand in one phrase, up to a token of `ends`, and their places in it, from 0.

    A phrase that no token ends, or the first or last token of the text, is none: its tokens stand alone at 0.
    -> (B, 1, T, T), (B, T)
    """
    count = input_ids.shape[1]
    index = torch.arange(count, device=input_ids.device).expand_as(input_ids)
    ended = (input_ids[..., None] == torch.tensor(ends, device=input_ids.device)).any(dim=-1)
    after = torch.where(ended, index, count).flip(1).cummin(1).values.flip(1)
    before = F.pad(torch.where(ended, index, -1)[:, :-1], (1, 0), value=-1).cummax(1).values
    whole = (after > 0) & (after < count - 1)
    together = (after[:, None] == after[..., None]) & whole[:, None]
    alone = torch.eye(count, dtype=torch.bool, device=input_ids.device)
    return (together | alone)[:, None], (index - before - 1) * whole


def word_scores(
    x: Tensor, words: Tensor, attention_mask: Tensor | None, size: int, bias: Tensor | None = None
) -> Tensor:
    """How much x (B, S, W) is like each of words (B, T, W); -inf for padding, which fills up to `size` words.

    With a bias, scores are scaled by the width too. -> (B, S, size)
    """
    scores = x @ words.mT
    if bias is not None:
        scores = scores * x.shape[-1] ** -0.5 + bias
    if attention_mask is not None:
        scores = scores.masked_fill(attention_mask[:, None] == 0, -torch.inf)
    return F.pad(scores, (0, size - scores.shape[-1]), value=-torch.inf)
