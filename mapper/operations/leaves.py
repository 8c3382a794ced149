"""Modules for leaves that torch has no class for, with the parameter names of the checkpoints."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mapper.operations.convolution import weight_norm


class LinearTransposed(nn.Module):
    """Linear layer whose weight is stored [in, out]. (..., in) -> (..., out)"""

    def __init__(self, in_features: int, out_features: int, bias: bool = True):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(in_features, out_features))
        self.bias = nn.Parameter(torch.empty(out_features)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight.t(), self.bias)


class LinearLowRank(nn.Linear):
    """Linear layer of W + scale * B A, a low-rank update (LoRA, arXiv 2106.09685). (..., in) -> (..., out)"""

    def __init__(self, in_features: int, out_features: int, rank: int, scale: float, bias: bool = True):
        super().__init__(in_features, out_features, bias)
        self.scale = scale
        self.lora_A = nn.Linear(in_features, rank, bias=False)
        self.lora_B = nn.Linear(rank, out_features, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + self.lora_B(self.lora_A(x)) * self.scale


class LinearTransposedLowRank(LinearTransposed):
    """Linear layer stored [in, out] with a low-rank update, B (A x) times scale. (..., in) -> (..., out)"""

    def __init__(self, in_features: int, out_features: int, rank: int, scale: float, bias: bool = True):
        super().__init__(in_features, out_features, bias)
        self.scale = scale
        self.lora_A = nn.Linear(in_features, rank, bias=False)
        self.lora_B = nn.Linear(rank, out_features, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + self.lora_B(self.lora_A(x)) * self.scale


class EmbeddingLowRank(nn.Embedding):
    """Embedding with a low-rank update of its table, scale * (B A) transposed. (...) -> (..., W)"""

    def __init__(self, rows: int, size: int, rank: int, scale: float):
        super().__init__(rows, size)
        self.scale = scale
        self.lora_embedding_A = nn.Parameter(torch.empty(rank, rows))
        self.lora_embedding_B = nn.Parameter(torch.empty(size, rank))

    def forward(self, ids: Tensor) -> Tensor:
        update = F.embedding(ids, self.lora_embedding_A.t()) @ self.lora_embedding_B.t()
        return super().forward(ids) + update * self.scale


class LayerNormGammaBeta(nn.Module):
    """LayerNorm whose weight is stored as gamma and its bias as beta. (..., W) -> (..., W)"""

    def __init__(self, size: int, eps: float):
        super().__init__()
        self.eps = eps
        self.gamma = nn.Parameter(torch.empty(size))
        self.beta = nn.Parameter(torch.empty(size))

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, self.gamma.shape, self.gamma, self.beta, self.eps)


class GroupNormGammaBeta(nn.Module):
    """GroupNorm whose weight is stored as gamma and its bias as beta. (B, C, ...) -> (B, C, ...)"""

    def __init__(self, groups: int, size: int, eps: float):
        super().__init__()
        self.groups, self.eps = groups, eps
        self.gamma = nn.Parameter(torch.empty(size))
        self.beta = nn.Parameter(torch.empty(size))

    def forward(self, x: Tensor) -> Tensor:
        return F.group_norm(x, self.groups, self.gamma, self.beta, self.eps)


class LayerNormScaleShift(nn.Module):
    """LayerNorm whose weight is stored as scale and its bias as shift. (..., W) -> (..., W)"""

    def __init__(self, size: int, eps: float):
        super().__init__()
        self.eps = eps
        self.scale = nn.Parameter(torch.empty(size))
        self.shift = nn.Parameter(torch.empty(size))

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, self.scale.shape, self.scale, self.shift, self.eps)


class LayerNormDeviation(nn.Module):
    """Norm by the deviation of a sample and eps ("The Annotated Transformer"). (..., W) -> (..., W)"""

    def __init__(self, size: int, eps: float):
        super().__init__()
        self.eps = eps
        self.a_2 = nn.Parameter(torch.empty(size))
        self.b_2 = nn.Parameter(torch.empty(size))

    def forward(self, x: Tensor) -> Tensor:
        centred = x - x.mean(-1, keepdim=True)
        return self.a_2 * centred / (x.std(-1, keepdim=True) + self.eps) + self.b_2


class LayerNormGamma(nn.Module):
    """LayerNorm without a bias whose weight is stored as gamma, less an offset. (..., W) -> (..., W)"""

    def __init__(self, size: int, eps: float, offset: float = 0.0):
        super().__init__()
        self.eps, self.offset = eps, offset
        self.gamma = nn.Parameter(torch.empty(size))

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, self.gamma.shape, self.gamma + self.offset, None, self.eps)


class LayerNormVector(nn.Module):
    """LayerNorm without a bias whose weight is stored as g, less an offset. (..., W) -> (..., W)"""

    def __init__(self, size: int, eps: float, offset: float = 0.0):
        super().__init__()
        self.eps, self.offset = eps, offset
        self.g = nn.Parameter(torch.empty(size))

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, self.g.shape, self.g + self.offset, None, self.eps)


class LayerNormScale(nn.Module):
    """LayerNorm without a bias whose weight is stored as scale, less an offset. (..., W) -> (..., W)"""

    def __init__(self, size: int, eps: float, offset: float = 0.0):
        super().__init__()
        self.eps, self.offset = eps, offset
        self.scale = nn.Parameter(torch.empty(size))

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, self.scale.shape, self.scale + self.offset, None, self.eps)


class EmbeddingExtended(nn.Module):
    """Embedding whose last rows are a table of their own. (...) -> (..., W)"""

    def __init__(self, rows: int, more_rows: int, size: int):
        super().__init__()
        self.embedding = nn.Parameter(torch.empty(rows, size))
        self.new_embedding = nn.Parameter(torch.empty(more_rows, size))

    def forward(self, ids: Tensor) -> Tensor:
        return F.embedding(ids, torch.cat((self.embedding, self.new_embedding)))


class EmbeddingEncoded(nn.Module):
    """Rows of a table that is called pos_enc."""

    def __init__(self, rows: int, size: int):
        super().__init__()
        self.pos_enc = nn.Parameter(torch.empty(rows, size))

    def forward(self, ids: Tensor) -> Tensor:
        return F.embedding(ids, self.pos_enc)


class LayerNormOffset(nn.Module):
    """LayerNorm that scales by 1 + weight. (..., W) -> (..., W)"""

    def __init__(self, size: int, eps: float):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.empty(size))
        self.bias = nn.Parameter(torch.empty(size))

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, self.weight.shape, 1.0 + self.weight, self.bias, self.eps)


class Affine(nn.Module):
    """A scale and a shift of each channel, without a norm (paper 2004.02984). (..., W) -> (..., W)"""

    def __init__(self, size: int):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(size))
        self.bias = nn.Parameter(torch.empty(size))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight + self.bias


class LayerNormChannelsFirst(nn.Module):
    """LayerNorm over the channels of an image. (B, C, Y, X) -> (B, C, Y, X)"""

    def __init__(self, size: int, eps: float):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.empty(size))
        self.bias = nn.Parameter(torch.empty(size))

    def forward(self, x: Tensor) -> Tensor:
        x = F.layer_norm(x.movedim(1, -1), self.weight.shape, self.weight, self.bias, self.eps)
        return x.movedim(-1, 1)


class RMSNormOffset(nn.Module):
    """RMSNorm that scales by 1 + weight, all of it in float32 (Gemma). (..., W) -> (..., W)"""

    def __init__(self, size: int, eps: float):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.empty(size))

    def forward(self, x: Tensor) -> Tensor:
        y = F.rms_norm(x.float(), self.weight.shape, 1.0 + self.weight.float(), self.eps)
        return y.to(x.dtype)


class RMSNormGamma(nn.Module):
    """RMSNorm whose weight is stored as gamma, less an offset. (..., W) -> (..., W)"""

    def __init__(self, size: int, eps: float, offset: float = 0.0):
        super().__init__()
        self.eps, self.offset = eps, offset
        self.gamma = nn.Parameter(torch.empty(size))

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.gamma.shape, self.gamma + self.offset, self.eps)


class RMSNormHeads(nn.Module):
    """RMSNorm of each head with a row of weights of its own, stored as gamma. (B, H, T, D) -> (B, H, T, D)"""

    def __init__(self, size: tuple[int, ...], eps: float):
        super().__init__()
        self.eps = eps
        self.gamma = nn.Parameter(torch.empty(size))

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.gamma.shape[-1:], None, self.eps) * self.gamma


class RMSNormVector(nn.Module):
    """RMSNorm whose weight is stored as g, less an offset. (..., W) -> (..., W)"""

    def __init__(self, size: int, eps: float, offset: float = 0.0):
        super().__init__()
        self.eps, self.offset = eps, offset
        self.g = nn.Parameter(torch.empty(size))

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.g.shape, self.g + self.offset, self.eps)


class ScaleNorm(nn.Module):
    """RMSNorm with one gain, stored as g, less an offset (1910.05895). (..., W) -> (..., W)"""

    def __init__(self, eps: float, offset: float = 0.0):
        super().__init__()
        self.eps, self.offset = eps, offset
        self.g = nn.Parameter(torch.empty(1))

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, x.shape[-1:], None, self.eps) * (self.g + self.offset)


class RMSNormScale(nn.Module):
    """RMSNorm whose weight is stored as scale, less an offset. (..., W) -> (..., W)"""

    def __init__(self, size: int, eps: float, offset: float = 0.0):
        super().__init__()
        self.eps, self.offset = eps, offset
        self.scale = nn.Parameter(torch.empty(size))

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.scale.shape, self.scale + self.offset, self.eps)


class FrozenBatchNorm(nn.Module):
    """BatchNorm with fixed statistics, all four stored as buffers. (B, C, Y, X) -> (B, C, Y, X)"""

    weight: Tensor
    bias: Tensor
    running_mean: Tensor
    running_var: Tensor

    def __init__(self, size: int, eps: float = 1e-5):
        super().__init__()
        self.eps = eps
        self.register_buffer("weight", torch.empty(size))
        self.register_buffer("bias", torch.empty(size))
        self.register_buffer("running_mean", torch.empty(size))
        self.register_buffer("running_var", torch.empty(size))

    def forward(self, x: Tensor) -> Tensor:
        mean, var = self.running_mean, self.running_var
        return F.batch_norm(x, mean, var, self.weight, self.bias, False, 0.0, self.eps)


def weight_norm_sizes(shape: tuple[int, ...], dim: int | None) -> list[int]:
    """Shape of a weight-normed kernel's lengths: one for each slice along `dim`, or one for all (None)."""
    return [size if axis == dim else 1 for axis, size in enumerate(shape)]


class Conv1dWeightNorm(nn.Module):
    """Conv1d whose kernel is stored as direction weight_v and length weight_g. (B, C, T) -> (B, C', T')"""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel: int,
        stride: int = 1,
        padding: int | str = 0,
        dilation: int = 1,
        groups: int = 1,
        bias: bool = True,
        dim: int | None = 0,
    ):
        super().__init__()
        shape = (out_channels, in_channels // groups, kernel)
        self.stride, self.padding, self.dilation, self.groups = stride, padding, dilation, groups
        self.weight_g = nn.Parameter(torch.empty(weight_norm_sizes(shape, dim)))
        self.weight_v = nn.Parameter(torch.empty(shape))
        self.bias = nn.Parameter(torch.empty(out_channels)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        weight = weight_norm(self.weight_g, self.weight_v)
        return F.conv1d(x, weight, self.bias, self.stride, self.padding, self.dilation, self.groups)


class Conv1dParametrized(nn.Module):
    """Conv1d whose kernel is stored as parametrizations.weight: original0 length, original1 direction."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel: int,
        stride: int = 1,
        padding: int | str = 0,
        dilation: int = 1,
        groups: int = 1,
        bias: bool = True,
        dim: int | None = 0,
    ):
        super().__init__()
        shape = (out_channels, in_channels // groups, kernel)
        self.stride, self.padding, self.dilation, self.groups = stride, padding, dilation, groups
        self.bias = nn.Parameter(torch.empty(out_channels)) if bias else None
        self.parametrizations = nn.Module()
        parts = self.parametrizations.weight = nn.Module()
        parts.original0 = nn.Parameter(torch.empty(weight_norm_sizes(shape, dim)))
        parts.original1 = nn.Parameter(torch.empty(shape))

    def forward(self, x: Tensor) -> Tensor:
        length = self.get_parameter("parametrizations.weight.original0")
        direction = self.get_parameter("parametrizations.weight.original1")
        weight = weight_norm(length, direction)
        return F.conv1d(x, weight, self.bias, self.stride, self.padding, self.dilation, self.groups)


class ConvTranspose1dWeightNorm(nn.Module):
    """ConvTranspose1d whose kernel is stored as direction weight_v and length weight_g.

    x (B, C, T) -> (B, C', T')
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel: int,
        stride: int = 1,
        padding: int = 0,
        output_padding: int = 0,
        bias: bool = True,
        dim: int | None = 0,
    ):
        super().__init__()
        shape = (in_channels, out_channels, kernel)
        self.stride, self.padding, self.output_padding = stride, padding, output_padding
        self.weight_g = nn.Parameter(torch.empty(weight_norm_sizes(shape, dim)))
        self.weight_v = nn.Parameter(torch.empty(shape))
        self.bias = nn.Parameter(torch.empty(out_channels)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        weight = weight_norm(self.weight_g, self.weight_v)
        return F.conv_transpose1d(x, weight, self.bias, self.stride, self.padding, self.output_padding)


class ConvTranspose1dParametrized(nn.Module):
    """ConvTranspose1d whose kernel is stored as parametrizations.weight, a length and a direction."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel: int,
        stride: int = 1,
        padding: int = 0,
        output_padding: int = 0,
        bias: bool = True,
        dim: int | None = 0,
    ):
        super().__init__()
        shape = (in_channels, out_channels, kernel)
        self.stride, self.padding, self.output_padding = stride, padding, output_padding
        self.bias = nn.Parameter(torch.empty(out_channels)) if bias else None
        self.parametrizations = nn.Module()
        parts = self.parametrizations.weight = nn.Module()
        parts.original0 = nn.Parameter(torch.empty(weight_norm_sizes(shape, dim)))
        parts.original1 = nn.Parameter(torch.empty(shape))

    def forward(self, x: Tensor) -> Tensor:
        length = self.get_parameter("parametrizations.weight.original0")
        direction = self.get_parameter("parametrizations.weight.original1")
        weight = weight_norm(length, direction)
        return F.conv_transpose1d(x, weight, self.bias, self.stride, self.padding, self.output_padding)


def with_unused(module: nn.Module, shapes: dict[str, list[int]]) -> nn.Module:
    """The module, which also holds tensors that no forward reads, by their names below it: {"x_min": [1]}"""
    for name, shape in shapes.items():
        folder, _, last = name.rpartition(".")
        holder = module
        for word in folder.split(".") if folder else []:
            holder.add_module(word, dict(holder.named_children()).get(word, nn.Module()))
            holder = holder.get_submodule(word)
        holder.register_buffer(last, torch.zeros(shape))
    return module
