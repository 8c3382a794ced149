"""facebook/data2vec-audio-base-960h: written by mapper 0.1.0, rules 085fa52bb6da.

Reading: exact (family data2vec_audio).
header from the bundled catalogue (reconstructed with transformers 5.23.0 from config), not from the hub
evidence for its config: transformers-default
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

    hidden_size: int = 768  # shape: lm_head.weight [32, 768]
    heads: int = 12  # config: num_attention_heads
    # shape and config: data2vec_audio.encoder.layers.{0..11}.attention.q_proj.weight [768, 768] = heads ...
    head_dim: int = 64
    # shape: data2vec_audio.feature_extractor.conv_layers.0.conv.weight [512, 1, 10]
    convolution_out_channels: int = 512
    norm_eps: float = 1e-5  # config: layer_norm_eps
    # shape: data2vec_audio.encoder.layers.{0..11}.feed_forward.intermediate_dense.weight [3072, 768]
    intermediate_size: int = 3072
    # shape: data2vec_audio.encoder.pos_conv_embed.layers.{0..4}.conv.weight [768, 48, 19]
    kernel_size: int = 19
    # shape: data2vec_audio.encoder.pos_conv_embed.layers.{0..4}.conv.weight [768, 48, 19]
    group_size: int = 48
    conv_layers_strides: tuple[int, ...] = (5, 2, 2, 2, 2, 2, 2)  # config: conv_stride[0] and 6 more
    # shape: data2vec_audio.feature_extractor.conv_layers.0.conv.weight [512, 1, 10] and 6 more
    conv_layers_kernel_sizes: tuple[int, ...] = (10, 3, 3, 3, 3, 2, 2)
    layers: int = 12  # name: data2vec_audio.encoder.layers.*
    frames_kernels: tuple[int, ...] = (10, 3, 3, 3, 3, 2, 2)  # config: conv_kernel
    frames_strides: tuple[int, ...] = (5, 2, 2, 2, 2, 2, 2)  # config: conv_stride
    vocab_size: int = 32  # shape: lm_head.weight [32, 768]


@dataclass
class Output:
    """What the model returns."""

    logits: Tensor
    last_hidden_state: Tensor


torch.export.register_dataclass(Output)


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


def frame_mask(
    x: Tensor, attention_mask: Tensor | None, kernels: tuple[int, ...], strides: tuple[int, ...]
) -> Tensor | None:
    """Mask of the frames that convolutions made of real samples.

    x (B, T, W), attention_mask (B, samples) -> (B, T)
    """
    if attention_mask is None:
        return None
    lengths = attention_mask.sum(dim=-1)
    for kernel, stride in zip(kernels, strides, strict=True):
        lengths = (lengths - kernel) // stride + 1
    return torch.arange(x.shape[1], device=x.device) < lengths[:, None]


def merge_heads(x: Tensor) -> Tensor:
    """Joins the heads again. x (B, H, T, D) -> (B, T, H * D)"""
    return x.transpose(1, 2).flatten(2)


def padding_mask(attention_mask: Tensor | None) -> Tensor | None:
    """Hides padded keys from every query; None hides nothing. attention_mask (B, S) -> (B, 1, 1, S)"""
    return None if attention_mask is None else attention_mask[:, None, None, :] != 0


def split_heads(x: Tensor, head_dim: int) -> Tensor:
    """Splits a projection into heads. x (B, T, H * D) -> (B, H, T, D)"""
    return x.unflatten(-1, (-1, head_dim)).transpose(1, 2)


def trim_even(x: Tensor, kernel: int) -> Tensor:
    """Drops the last position that padding by kernel // 2 adds to an even kernel.

    x (B, C, T') -> (B, C, T)
    """
    return x[..., :-1] if kernel % 2 == 0 else x


def zero_padding(x: Tensor, attention_mask: Tensor | None) -> Tensor:
    """Sets padded positions to zero. x (B, T, C), attention_mask (B, T) or None -> (B, T, C)"""
    return x if attention_mask is None else x * (attention_mask != 0).unsqueeze(-1).to(x.dtype)


class Attention(nn.Module):
    """data2vec_audio.encoder.layers.*.attention: self-attention with an attention mask."""

    def __init__(self, config: Config):
        super().__init__()
        self.head_dim = config.head_dim
        self.q_proj = nn.Linear(config.hidden_size, config.heads * config.head_dim)
        self.k_proj = nn.Linear(config.hidden_size, config.heads * config.head_dim)
        self.v_proj = nn.Linear(config.hidden_size, config.heads * config.head_dim)
        self.out_proj = nn.Linear(config.heads * config.head_dim, config.hidden_size)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        q = split_heads(self.q_proj(x), self.head_dim)
        k = split_heads(self.k_proj(x), self.head_dim)
        v = split_heads(self.v_proj(x), self.head_dim)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.out_proj(merge_heads(y))


class Convolution(nn.Module):
    """data2vec_audio.feature_extractor.conv_layers.*: convolution, norm where one is stored, activation."""

    def __init__(self, config: Config, conv_in_channels: int, stride: int, kernel_size: int):
        super().__init__()
        self.conv = nn.Conv1d(
            conv_in_channels,
            config.convolution_out_channels,
            kernel_size=kernel_size,
            stride=stride,
            bias=False,
        )
        self.layer_norm = LayerNormChannelsFirst(config.convolution_out_channels, config.norm_eps)

    def forward(self, x: Tensor) -> Tensor:
        return F.gelu(self.layer_norm(self.conv(x)))


class FeedForward(nn.Module):
    """data2vec_audio.encoder.layers.*.feed_forward: feed-forward network."""

    def __init__(self, config: Config):
        super().__init__()
        self.intermediate_dense = nn.Linear(config.hidden_size, config.intermediate_size)
        self.output_dense = nn.Linear(config.intermediate_size, config.hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        return self.output_dense(F.gelu(self.intermediate_dense(x)))


class PositionConvolutions(nn.Module):
    """data2vec_audio.encoder.pos_conv_embed.layers.*: a convolutional position embedding over groups of
    channels, a norm without weights and an activation.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.kernel_size = config.kernel_size
        self.conv = nn.Conv1d(
            768,
            config.hidden_size,
            kernel_size=config.kernel_size,
            padding=config.kernel_size // 2,
            groups=config.hidden_size // config.group_size,
        )

    def forward(self, x: Tensor) -> Tensor:
        y = trim_even(self.conv(x), self.kernel_size).transpose(1, 2)
        return F.gelu(F.layer_norm(y, (y.size(-1),), eps=1e-5)).transpose(1, 2)


class Layer(nn.Module):
    """data2vec_audio.encoder.layers.*: a layer with attention, post-norm and a feed-forward network."""

    def __init__(self, config: Config):
        super().__init__()
        self.attention = Attention(config)
        self.layer_norm = nn.LayerNorm(config.hidden_size, eps=config.norm_eps)
        self.feed_forward = FeedForward(config)
        self.final_layer_norm = nn.LayerNorm(config.hidden_size, eps=config.norm_eps)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        x = self.layer_norm(x + self.attention(x, mask))
        return self.final_layer_norm(x + self.feed_forward(x))


class Embeddings(nn.Module):
    """data2vec_audio.encoder.pos_conv_embed: convolutional position embeddings, added to the frames."""

    def __init__(self, config: Config):
        super().__init__()
        self.layers = nn.ModuleList(PositionConvolutions(config) for _ in range(5))

    def forward(self, x: Tensor) -> Tensor:
        positions = x.transpose(1, 2)
        for convolved in self.layers:
            positions = convolved(positions)
        return x + positions.transpose(1, 2)


class Encoder(nn.Module):
    """data2vec_audio: a stack of layers with convolutions over a waveform, convolutional position
    embeddings, a norm before the layers and a mask of the frames that are no padding.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.frames_kernels = config.frames_kernels
        self.frames_strides = config.frames_strides
        self.feature_extractor: Any = nn.ModuleDict(
            {
                "conv_layers": nn.ModuleList(
                    Convolution(
                        config, conv_in_channels=conv_in_channels, stride=stride, kernel_size=kernel_size
                    )
                    for conv_in_channels, stride, kernel_size in zip(
                        (1, 512, 512, 512, 512, 512, 512),
                        config.conv_layers_strides,
                        config.conv_layers_kernel_sizes,
                        strict=True,
                    )
                )
            }
        )
        self.feature_projection: Any = nn.ModuleDict(
            {
                "layer_norm": nn.LayerNorm(config.convolution_out_channels, eps=config.norm_eps),
                "projection": nn.Linear(config.convolution_out_channels, config.hidden_size),
            }
        )
        self.encoder: Any = nn.ModuleDict(
            {
                "pos_conv_embed": Embeddings(config),
                "layer_norm": nn.LayerNorm(config.hidden_size, eps=config.norm_eps),
                "layers": nn.ModuleList(Layer(config) for _ in range(config.layers)),
            }
        )
        # unused: stands for frames that training hides
        self.masked_spec_embed = nn.Parameter(torch.zeros(config.hidden_size))

    def forward(self, input_values: Tensor, attention_mask: Tensor | None) -> Tensor:
        x = input_values[:, None]
        for convolution in self.feature_extractor.conv_layers:
            x = convolution(x)
        features = self.feature_projection.layer_norm(x.transpose(1, 2))
        frames = frame_mask(features, attention_mask, self.frames_kernels, self.frames_strides)
        x = zero_padding(self.feature_projection.projection(features), frames)
        x = self.encoder.layer_norm(self.encoder.pos_conv_embed(x))
        mask = padding_mask(frames)
        for layer in self.encoder.layers:
            x = layer(x, mask)
        return x


class Model(nn.Module):
    """The model with a head for connectionist temporal classification."""

    def __init__(self, config: Config = Config()):
        super().__init__()
        self.data2vec_audio = Encoder(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size)

    def forward(self, input_values: Tensor, attention_mask: Tensor | None = None) -> Output:
        """input_values (batch, samples), attention_mask (batch, samples)"""
        x = self.data2vec_audio(input_values, attention_mask)
        logits = self.lm_head(x)
        return Output(logits=logits, last_hidden_state=x)


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
# {"config": {"architectures": ["Data2VecAudioForCTC"], "conv_bias": false, "conv_dim": [512, 512, 512, 512,
# 512, 512, 512], "conv_kernel": [10, 3, 3, 3, 3, 2, 2], "conv_stride": [5, 2, 2, 2, 2, 2, 2],
# "feat_extract_activation": "gelu", "hidden_act": "gelu", "hidden_size": 768, "intermediate_size": 3072,
# "layer_norm_eps": 1e-05, "model_type": "data2vec-audio", "num_attention_heads": 12, "num_hidden_layers": 12,
# "use_weighted_layer_sum": false, "vocab_size": 32}, "notes": ["header from the bundled catalogue
# (reconstructed with transformers 5.23.0 from config), not from the hub", "evidence for its config:
# transformers-default"]}
# sha256 of all above: 61893501f1c5074f
