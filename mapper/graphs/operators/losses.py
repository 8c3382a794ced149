"""Losses. https://onnx.ai/onnx/operators/"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from mapper.graphs.operators import operator


@operator("NegativeLogLikelihoodLoss", since=12)
def negative_log_likelihood_loss(
    x: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    ignore_index: int | None = None,
    reduction: str = "mean",
) -> Tensor:
    """x (B, C, ...), target (B, ...)"""
    ignored = -100 if ignore_index is None else ignore_index
    return F.nll_loss(x, target.long(), weight, ignore_index=ignored, reduction=reduction)


@operator("SoftmaxCrossEntropyLoss", since=12)
def softmax_cross_entropy_loss(
    x: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    ignore_index: int | None = None,
    reduction: str = "mean",
    outputs: int = 1,
) -> Tensor | tuple[Tensor, Tensor]:
    """With a second output also the logarithms of probabilities."""
    likely = x.log_softmax(1)
    loss = negative_log_likelihood_loss(
        likely, target, weight, ignore_index=ignore_index, reduction=reduction
    )
    return (loss, likely) if outputs > 1 else loss
