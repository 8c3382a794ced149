"""facebook/mms-tts-eng: written by mapper 0.1.0, rules 085fa52bb6da.

Reading: exact (family vits).
header from the bundled catalogue (reconstructed with transformers 5.23.0 from config), not from the hub
evidence for its config: recalled
No dropout is written: training mode computes the same; `mapper generate --train` writes it.

Load the weights with `load(path)`; the attributes are the names in the checkpoint.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class Config:
    """Sizes, each with what it is known from."""

    hidden_size: int = 192  # shape: text_encoder.project.weight [384, 192, 1]
    heads: int = 2  # shape: text_encoder.encoder.layers.{0..5}.attention.q_proj.weight [192, 192]
    head_dim: int = 96  # shape: text_encoder.encoder.layers.{0..5}.attention.emb_rel_k [1, 9, 96]
    inner_size: int = 192  # shape: duration_predictor.flows.{1..4}.conv_pre.weight [192, 1, 1]
    dilated_width: int = 3  # shape: duration_predictor.conv_dds.convs_dilated.{0..2}.weight [192, 1, 3]
    norm_eps: float = 1e-5  # config: layer_norm_eps
    # shape: text_encoder.encoder.layers.{0..5}.feed_forward.conv_1.weight [768, 192, 3]
    intermediate_size: int = 768
    kernel_size: int = 3  # shape: text_encoder.encoder.layers.{0..5}.feed_forward.conv_1.weight [768, 192, 3]
    couplings_conv_pre_channels: int = 192  # shape: flow.flows.0.conv_pre.weight [192, 96, 1]
    # shape: flow.flows.0.wavenet.in_layers.0.parametrizations.weight.original0 [384, 192, 5]
    couplings_wavenet_channels: int = 384
    wavenet_dilation_rate: int = 1  # config: wavenet_dilation_rate
    # shape: decoder.conv_pre.weight [512, 192, 7] and 4 more
    vocoder_channels: tuple[int, ...] = (512, 256, 128, 64, 32)
    residual_dilations: tuple[int, ...] = (1, 3, 5)  # config: resblock_dilation_sizes[0]
    units_slope: float = 0.1  # config: leaky_relu_slope
    # shape: decoder.resblocks: kernel_size of each
    vocoder_resblocks_kernel_sizes: tuple[int, ...] = (3, 7, 11)
    # shape: decoder.upsampler: kernel_size of each
    vocoder_upsampler_kernel_sizes: tuple[int, ...] = (16, 16, 4, 4)
    rates: tuple[int, ...] = (8, 8, 2, 2)  # config: upsample_rates
    speech_spline_bound: float = 5.0  # config: duration_predictor_tail_bound
    speech_duration_noise: float = 0.8  # config: noise_scale_duration
    vocab_size: int = 38  # shape: text_encoder.embed_tokens.weight [38, 192]
    layers: int = 6  # name: text_encoder.encoder.layers.*
    speech_rate: float = 1.0  # config: speaking_rate
    speech_noise: float = 0.667  # config: noise_scale

    @property
    def attention_scale(self) -> float:
        return self.head_dim**-0.5  # rule: vocabulary/config_attention.yaml: attention.head_dim ** -0.5

    @property
    def scale(self) -> float:
        return self.hidden_size**0.5  # rule: families/vits.yaml: hidden_size ** 0.5


@dataclass
class Output:
    """What the model returns."""

    waveform: Tensor
    spectrogram: Tensor


torch.export.register_dataclass(Output)


def weight_norm_sizes(shape: tuple[int, ...], dim: int | None) -> list[int]:
    """Shape of a weight-normed kernel's lengths: one for each slice along `dim`, or one for all (None)."""
    return [size if axis == dim else 1 for axis, size in enumerate(shape)]


def weight_norm(length: Tensor, direction: Tensor) -> Tensor:
    """Kernel of a weight-normed layer: the direction scaled to a length per slice (paper 1602.07868)."""
    axes = [axis for axis, size in enumerate(length.shape) if size == 1]
    return direction * (length / torch.linalg.vector_norm(direction, dim=axes, keepdim=True))


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


def spline_bins(logits: Tensor, bound: float) -> Tensor:
    """Where the bins of a spline meet, from -bound to bound, by shares of at least 0.001.

    (..., n) -> (..., n + 1)
    """
    least = 1e-3
    shares = least + (1 - least * logits.shape[-1]) * logits.softmax(dim=-1)
    ends = (2 * bound * shares.cumsum(dim=-1) - bound)[..., :-1]
    outer = torch.full_like(shares[..., :1], bound)
    return torch.cat((-outer, ends, outer), dim=-1)


def invert_splines(y: Tensor, bins: Tensor, scale: float, bound: float) -> Tensor:
    """Where monotone splines of rational quadratics have these values; beyond the bound, the values.

    Paper 1906.04032. y (...), bins (..., 3n - 1): for each of n bins a logit of its width and one of its
    height, both divided by the scale, and the slopes where two bins meet before softplus;
    the slope at both ends is 1
    """
    count = (bins.shape[-1] + 1) // 3
    across = spline_bins(bins[..., :count] / scale, bound)
    up = spline_bins(bins[..., count : 2 * count] / scale, bound)
    slopes = F.pad(1e-3 + F.softplus(bins[..., 2 * count :]), (1, 1), value=1.0)
    value = y.clamp(-bound, bound)[..., None]
    at = (value >= up[..., 1:-1]).sum(dim=-1, keepdim=True)
    width, height = across.diff(dim=-1).gather(-1, at), up.diff(dim=-1).gather(-1, at)
    slope, left, right = height / width, slopes.gather(-1, at), slopes.gather(-1, at + 1)
    above = value - up.gather(-1, at)
    bend = above * (left + right - 2 * slope)
    square, linear, constant = height * (slope - left) + bend, height * left - bend, -slope * above
    share = 2 * constant / (-linear - (linear**2 - 4 * square * constant).sqrt())
    inside = (share * width + across.gather(-1, at)).squeeze(-1)
    return torch.where((y >= -bound) & (y <= bound), inside, y)


def masked_bias(bias: Tensor, mask: Tensor | None) -> Tensor:
    """A bias with the lowest number where the mask hides a key, once for all layers.

    bias (1, H, T, S), mask (1 or B, 1, 1 or T, S) or None -> (1 or B, H, T, S)
    """
    return bias if mask is None else torch.where(mask, bias, torch.finfo(bias.dtype).min)


def merge_heads(x: Tensor) -> Tensor:
    """Joins the heads again. x (B, H, T, D) -> (B, T, H * D)"""
    return x.transpose(1, 2).flatten(2)


def padding_mask(attention_mask: Tensor | None) -> Tensor | None:
    """Hides padded keys from every query; None hides nothing. attention_mask (B, S) -> (B, 1, 1, S)"""
    return None if attention_mask is None else attention_mask[:, None, None, :] != 0


def relative_distances(x: Tensor) -> Tensor:
    """Key position minus query position. x (B, T, ...) -> (T, T) int64, queries down, keys across"""
    index = torch.arange(x.shape[1], device=x.device)
    return index - index[:, None]


def split_heads(x: Tensor, head_dim: int) -> Tensor:
    """Splits a projection into heads. x (B, T, H * D) -> (B, H, T, D)"""
    return x.unflatten(-1, (-1, head_dim)).transpose(1, 2)


def spread_by_durations(x: Tensor, durations: Tensor) -> tuple[Tensor, Tensor]:
    """Each word's vector for as many frames as it lasts, and which frames of a row are real, of at least one.

    x (B, T, C), durations (B, T) -> (B, C, frames), (B, 1, frames)
    """
    ends = durations.cumsum(dim=-1)
    lengths = ends[:, -1].clamp(min=1)
    frames = torch.arange(int(lengths.max()), device=x.device)
    words = (frames[:, None] >= ends[:, None]).sum(dim=-1)  # (B, frames): words that are over by then
    rows = torch.cat((x, torch.zeros_like(x[:, :1])), dim=1)
    spread = rows.gather(1, words[..., None].expand(-1, -1, x.shape[-1]))
    return spread.transpose(1, 2), (frames < lengths[:, None])[:, None].to(x.dtype)


def zero_padding(x: Tensor, attention_mask: Tensor | None) -> Tensor:
    """Sets padded positions to zero. x (B, T, C), attention_mask (B, T) or None -> (B, T, C)"""
    return x if attention_mask is None else x * (attention_mask != 0).unsqueeze(-1).to(x.dtype)


class Attention(nn.Module):
    """text_encoder.encoder.layers.*.attention: self-attention with relative position embeddings for keys
    and values within a window (Shaw).
    """

    def __init__(self, config: Config):
        super().__init__()
        self.head_dim = config.head_dim
        self.scale = config.attention_scale
        self.q_proj = nn.Linear(config.hidden_size, config.heads * config.head_dim)
        self.k_proj = nn.Linear(config.hidden_size, config.heads * config.head_dim)
        self.v_proj = nn.Linear(config.hidden_size, config.heads * config.head_dim)
        self.emb_rel_k = nn.Parameter(torch.zeros(1, 9, config.head_dim))
        self.emb_rel_v = nn.Parameter(torch.zeros(1, 9, config.head_dim))
        self.out_proj = nn.Linear(config.heads * config.head_dim, config.hidden_size)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        q = split_heads(self.q_proj(x), self.head_dim)
        k = split_heads(self.k_proj(x), self.head_dim)
        v = split_heads(self.v_proj(x), self.head_dim)
        far, apart = self.emb_rel_k.shape[1] // 2, relative_distances(x)
        near, rows = (apart.abs() <= far)[..., None], apart.clamp(-far, far) + far
        scores = q @ k.mT + torch.einsum("bhtd,tsd->bhts", q, self.emb_rel_k[0][rows] * near)
        weights = masked_bias(scores * self.scale, mask).softmax(dim=-1)
        y = weights @ v + torch.einsum("bhts,tsd->bhtd", weights, self.emb_rel_v[0][rows] * near)
        return self.out_proj(merge_heads(y))


class Dilated(nn.Module):
    """duration_predictor.conv_dds, duration_predictor.flows.*.conv_dds: residual units of a depthwise
    convolution, more dilated each, and a pointwise one, each with a norm and GELU.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.convs_dilated = nn.ModuleList(
            nn.Conv1d(
                192,
                config.inner_size,
                kernel_size=config.dilated_width,
                padding="same",
                dilation=config.dilated_width**index,
                groups=192,
            )
            for index in range(3)
        )
        self.norms_1 = nn.ModuleList(nn.LayerNorm(config.inner_size, eps=config.norm_eps) for _ in range(3))
        self.convs_pointwise = nn.ModuleList(
            nn.Conv1d(config.inner_size, config.inner_size, kernel_size=1) for _ in range(3)
        )
        self.norms_2 = nn.ModuleList(nn.LayerNorm(config.inner_size, eps=config.norm_eps) for _ in range(3))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        for apart, first, together, second in zip(
            self.convs_dilated, self.norms_1, self.convs_pointwise, self.norms_2, strict=True
        ):
            y = F.gelu(first(apart(x * mask).mT).mT)
            x = x + F.gelu(second(together(y).mT).mT)
        return x * mask


class FeedForward(nn.Module):
    """text_encoder.encoder.layers.*.feed_forward: feed-forward network with convolutions over the words,
    without padding.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.kernel_size = config.kernel_size
        self.conv_1 = nn.Conv1d(config.hidden_size, config.intermediate_size, kernel_size=config.kernel_size)
        self.conv_2 = nn.Conv1d(config.intermediate_size, config.hidden_size, kernel_size=config.kernel_size)

    def forward(self, x: Tensor, attention_mask: Tensor | None) -> Tensor:
        before, after = (self.kernel_size - 1) // 2, self.kernel_size // 2
        y = F.relu(self.conv_1(F.pad(zero_padding(x, attention_mask).mT, (before, after))))
        y = zero_padding(y.mT, attention_mask).mT
        return zero_padding(
            self.conv_2(F.pad(y, ((self.kernel_size - 1) // 2, self.kernel_size // 2))).mT, attention_mask
        )


class Wavenet(nn.Module):
    """flow.flows.*.wavenet: convolutions with tanh and sigmoid gates, each read by the next and by the sum
    (WaveNet).
    """

    def __init__(self, config: Config):
        super().__init__()
        self.in_layers = nn.ModuleList(
            Conv1dParametrized(
                config.couplings_conv_pre_channels,
                config.couplings_wavenet_channels,
                5,
                padding="same",
                dilation=config.wavenet_dilation_rate**index,
            )
            for index in range(4)
        )
        self.res_skip_layers = nn.ModuleList(
            [
                *(Conv1dParametrized(config.couplings_wavenet_channels // 2, 384, 1) for _ in range(3)),
                Conv1dParametrized(
                    config.couplings_wavenet_channels // 2, config.couplings_conv_pre_channels, 1
                ),
            ]
        )

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        channels, total = x.shape[1], torch.zeros_like(x)
        for gate, skip in zip(self.in_layers, self.res_skip_layers, strict=True):
            filtered, opened = gate(x).chunk(2, dim=1)
            y = skip(filtered.tanh() * opened.sigmoid())
            total = total + y[:, -channels:]
            x = (x + y[:, :channels]) * mask
        return total * mask


class Refinements(nn.Module):
    """decoder.resblocks.*: residual units of a dilated and a plain convolution with an activation before
    each (HiFi-GAN).
    """

    def __init__(self, config: Config, channels: int, kernel_size: int):
        super().__init__()
        self.units_slope = config.units_slope
        self.convs1 = nn.ModuleList(
            nn.Conv1d(
                channels,
                channels,
                kernel_size=kernel_size,
                padding="same",
                dilation=config.residual_dilations[index],
            )
            for index in range(3)
        )
        self.convs2 = nn.ModuleList(
            nn.Conv1d(channels, channels, kernel_size=kernel_size, padding="same") for _ in range(3)
        )

    def forward(self, x: Tensor) -> Tensor:
        for first, second in zip(self.convs1, self.convs2, strict=True):
            y = first(F.leaky_relu(x, self.units_slope))
            x = x + second(F.leaky_relu(y, self.units_slope))
        return x


class Layer(nn.Module):
    """text_encoder.encoder.layers.*: a layer with attention, post-norm and a feed-forward network."""

    def __init__(self, config: Config):
        super().__init__()
        self.attention = Attention(config)
        self.layer_norm = nn.LayerNorm(config.hidden_size, eps=config.norm_eps)
        self.feed_forward = FeedForward(config)
        self.final_layer_norm = nn.LayerNorm(config.hidden_size, eps=config.norm_eps)

    def forward(self, x: Tensor, mask: Tensor | None, attention_mask: Tensor | None) -> Tensor:
        x = self.layer_norm(x + self.attention(x, mask))
        return self.final_layer_norm(x + self.feed_forward(x, attention_mask))


class Vocoder(nn.Module):
    """decoder: a vocoder: transposed convolutions and residual blocks of several kernel sizes (HiFi-GAN)."""

    def __init__(self, config: Config):
        super().__init__()
        self.units_slope = config.units_slope
        self.conv_pre = nn.Conv1d(192, config.vocoder_channels[0], kernel_size=7, padding=3)
        self.resblocks = nn.ModuleList(
            Refinements(config, channels=channels, kernel_size=kernel_size)
            for channels, kernel_size in zip(
                [size for size in config.vocoder_channels[1:] for _ in range(3)],
                config.vocoder_resblocks_kernel_sizes * 4,
                strict=True,
            )
        )
        self.upsampler = nn.ModuleList(
            nn.ConvTranspose1d(
                in_channels,
                out_channels,
                kernel_size=kernel_size,
                stride=stride,
                padding=(kernel_size - stride) // 2,
            )
            for in_channels, out_channels, kernel_size, stride in zip(
                config.vocoder_channels[:-1],
                config.vocoder_channels[1:],
                config.vocoder_upsampler_kernel_sizes,
                config.rates,
                strict=True,
            )
        )
        self.conv_post = nn.Conv1d(config.vocoder_channels[4], 1, kernel_size=7, padding=3, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x, count = self.conv_pre(x), len(self.resblocks) // len(self.upsampler)
        for index, widening in enumerate(self.upsampler):
            x = widening(F.leaky_relu(x, self.units_slope))
            refined = []
            for block in self.resblocks[count * index : count * (index + 1)]:
                refined.append(block(x))
            x = torch.stack(refined).mean(dim=0)
        return torch.tanh(self.conv_post(F.leaky_relu(x))).squeeze(1)


class DurationPredictorCouplings(nn.Module):
    """duration_predictor.flows.*: a coupling layer of splines, inverted: half of the channels through a
    spline that the other half shapes.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.inner_size = config.inner_size
        self.speech_spline_bound = config.speech_spline_bound
        self.conv_pre = nn.Conv1d(1, config.inner_size, kernel_size=1)
        self.conv_dds = Dilated(config)
        self.conv_proj = nn.Conv1d(config.inner_size, 29, kernel_size=1)

    def forward(self, x: Tensor, mask: Tensor, beside: Tensor) -> Tensor:
        first, second = x.chunk(2, dim=1)
        bins = self.conv_proj(self.conv_dds(self.conv_pre(first) + beside, mask)) * mask
        bins = bins.unflatten(1, (first.shape[1], -1)).mT
        second = invert_splines(second, bins, self.inner_size**0.5, self.speech_spline_bound)
        return torch.cat((first, second), dim=1) * mask


class Couplings(nn.Module):
    """flow.flows.*: an affine coupling layer, inverted: half of the channels less a mean that the other
    half gives.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.conv_pre = nn.Conv1d(96, config.couplings_conv_pre_channels, kernel_size=1)
        self.wavenet = Wavenet(config)
        self.conv_post = nn.Conv1d(config.couplings_conv_pre_channels, 96, kernel_size=1)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        first, second = x.chunk(2, dim=1)
        mean = self.conv_post(self.wavenet(self.conv_pre(first) * mask, mask)) * mask
        return torch.cat((first, (second - mean) * mask), dim=1)


class DurationPredictor(nn.Module):
    """duration_predictor: logarithms of how long each word lasts, from random numbers by coupling layers
    of splines, with random noise before the splines.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.speech_duration_noise = config.speech_duration_noise
        self.conv_pre = nn.Conv1d(config.hidden_size, config.inner_size, kernel_size=1)
        self.conv_dds = Dilated(config)
        self.conv_proj = nn.Conv1d(config.inner_size, config.inner_size, kernel_size=1)
        self.flows: Any = nn.ModuleList(
            [
                nn.ParameterDict(
                    {
                        "translate": nn.Parameter(torch.zeros(2, 1)),
                        "log_scale": nn.Parameter(torch.zeros(2, 1)),
                    }
                ),
                *(DurationPredictorCouplings(config) for _ in range(4)),
            ]
        )
        # unused: read in training alone
        self.post_conv_dds = nn.ModuleDict(
            {
                "convs_dilated": nn.ModuleList(
                    nn.Conv1d(1, config.inner_size, kernel_size=config.dilated_width) for _ in range(3)
                ),
                "convs_pointwise": nn.ModuleList(
                    nn.Conv1d(config.inner_size, config.inner_size, kernel_size=1) for _ in range(3)
                ),
                "norms_1": nn.ModuleList(nn.LayerNorm(config.inner_size) for _ in range(3)),
                "norms_2": nn.ModuleList(nn.LayerNorm(config.inner_size) for _ in range(3)),
            }
        )
        self.post_conv_pre = nn.Conv1d(1, 192, kernel_size=1)  # unused: read in training alone
        self.post_conv_proj = nn.Conv1d(192, 192, kernel_size=1)  # unused: read in training alone
        # unused: read in training alone
        self.post_flows = nn.ModuleList(
            [
                nn.ParameterDict(
                    {
                        "log_scale": nn.Parameter(torch.zeros(2, 1)),
                        "translate": nn.Parameter(torch.zeros(2, 1)),
                    }
                ),
                *(
                    nn.ModuleDict(
                        {
                            "conv_dds": nn.ModuleDict(
                                {
                                    "convs_dilated": nn.ModuleList(
                                        nn.Conv1d(1, config.inner_size, kernel_size=config.dilated_width)
                                        for _ in range(3)
                                    ),
                                    "convs_pointwise": nn.ModuleList(
                                        nn.Conv1d(config.inner_size, config.inner_size, kernel_size=1)
                                        for _ in range(3)
                                    ),
                                    "norms_1": nn.ModuleList(
                                        nn.LayerNorm(config.inner_size) for _ in range(3)
                                    ),
                                    "norms_2": nn.ModuleList(
                                        nn.LayerNorm(config.inner_size) for _ in range(3)
                                    ),
                                }
                            ),
                            "conv_pre": nn.Conv1d(1, config.inner_size, kernel_size=1),
                            "conv_proj": nn.Conv1d(config.inner_size, 29, kernel_size=1),
                        }
                    )
                    for _ in range(4)
                ),
            ]
        )

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = self.conv_proj(self.conv_dds(self.conv_pre(x), mask)) * mask
        y = torch.zeros_like(x[:, :2])
        y = torch.randn_like(y) * self.speech_duration_noise
        for coupling in (self.flows[1], self.flows[2], self.flows[3], self.flows[4])[:0:-1]:
            y = coupling(y.flip(1), mask, x)
        y = (y.flip(1) - self.flows[0].translate) * (-self.flows[0].log_scale).exp() * mask
        return y[:, :1]


class Encoder(nn.Module):
    """text_encoder: a stack of layers with a padding mask."""

    def __init__(self, config: Config):
        super().__init__()
        self.scale = config.scale
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.encoder: Any = nn.ModuleDict(
            {"layers": nn.ModuleList(Layer(config) for _ in range(config.layers))}
        )
        self.project = nn.Conv1d(config.hidden_size, 384, kernel_size=1)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None) -> Tensor:
        x = zero_padding(self.embed_tokens(input_ids) * self.scale, attention_mask)
        mask = padding_mask(attention_mask)
        for layer in self.encoder.layers:
            x = layer(x, mask, attention_mask)
        return x


class Model(nn.Module):
    """The model: speech from text at once: words spread over frames, coupling layers and a vocoder (VITS),
    with random noise before the vocoder.
    """

    def __init__(self, config: Config = Config()):
        super().__init__()
        self.speech_rate = config.speech_rate
        self.speech_noise = config.speech_noise
        self.text_encoder = Encoder(config)
        self.duration_predictor = DurationPredictor(config)
        self.flow: Any = nn.ModuleDict({"flows": nn.ModuleList(Couplings(config) for _ in range(4))})
        self.decoder = Vocoder(config)
        # unused: read in training alone
        self.posterior_encoder = nn.ModuleDict(
            {
                "conv_pre": nn.Conv1d(513, 192, kernel_size=1),
                "conv_proj": nn.Conv1d(192, 384, kernel_size=1),
                "wavenet": nn.ModuleDict(
                    {
                        "in_layers": nn.ModuleList(
                            Conv1dParametrized(
                                config.couplings_conv_pre_channels, config.couplings_wavenet_channels, 5
                            )
                            for _ in range(16)
                        ),
                        "res_skip_layers": nn.ModuleList(
                            [
                                *(Conv1dParametrized(192, 384, 1) for _ in range(15)),
                                Conv1dParametrized(192, 192, 1),
                            ]
                        ),
                    }
                ),
            }
        )

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Output:
        """input_ids (batch, length), attention_mask (batch, length)"""
        x = zero_padding(self.text_encoder(input_ids, attention_mask), attention_mask)
        prior = zero_padding(self.text_encoder.project(x.transpose(1, 2)).transpose(1, 2), attention_mask)
        real = attention_mask
        if real is None:
            real = torch.ones_like(input_ids)
        real = real[:, None].type_as(x)
        durations = self.duration_predictor(x.transpose(1, 2), real).exp() * real * (1 / self.speech_rate)
        durations = durations.ceil().squeeze(1)
        prior, frames = spread_by_durations(prior, durations)
        latents, deviations = prior.chunk(2, dim=1)
        latents = latents + torch.randn_like(latents) * deviations.exp() * self.speech_noise
        for coupling in self.flow.flows[::-1]:
            latents = coupling(latents.flip(1), frames)
        spectrogram = latents * frames
        return Output(waveform=self.decoder(spectrogram), spectrogram=spectrogram)


def load(path: str | Path, config: Config = Config()) -> Model:
    """The model with the weights of a .safetensors file or of a directory of them, ready to evaluate."""
    from safetensors.torch import load_file

    files = [Path(path)] if Path(path).is_file() else sorted(Path(path).glob("*.safetensors"))
    if not files:
        raise FileNotFoundError(f"no .safetensors file in {path}")
    tensors = {
        name: tensor
        for file in files
        for name, tensor in load_file(file).items()
        if not name.startswith("__aux__.")  # what is saved beside a model, for training to go on
    }
    with torch.device("meta"):
        model = Model(config)
    model.load_state_dict(tensors, strict=True, assign=True)
    return model.eval()


# What this was read from besides the weights. While the file is as it was written, `mapper.save` stores the
# architecture of its models by it; once you have edited it, their weights alone.
# {"config": {"architectures": ["VitsModel"], "duration_predictor_tail_bound": 5.0, "ffn_dim": 768,
# "hidden_act": "relu", "hidden_size": 192, "layer_norm_eps": 1e-05, "leaky_relu_slope": 0.1, "model_type":
# "vits", "noise_scale": 0.667, "noise_scale_duration": 0.8, "num_attention_heads": 2, "num_hidden_layers": 6,
# "resblock_dilation_sizes": [[1, 3, 5], [1, 3, 5], [1, 3, 5]], "speaking_rate": 1.0, "upsample_rates": [8, 8,
# 2, 2], "use_bias": true, "vocab_size": 38, "wavenet_dilation_rate": 1}, "notes": ["header from the bundled
# catalogue (reconstructed with transformers 5.23.0 from config), not from the hub", "evidence for its config:
# recalled"]}
# sha256 of all above: 038438a46832c9f9
