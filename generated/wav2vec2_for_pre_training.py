"""facebook/wav2vec2-base: written by mapper 0.1.0, rules 085fa52bb6da.

Reading: exact (family wav2vec2).
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

    hidden_size: int = 768  # shape: project_hid.weight [256, 768]
    heads: int = 12  # config: num_attention_heads
    # shape and config: wav2vec2.encoder.layers.{0..11}.attention.q_proj.weight [768, 768] = heads * head_dim
    head_dim: int = 64
    out_channels: int = 512  # shape: wav2vec2.feature_extractor.conv_layers.0.conv.weight [512, 1, 10]
    # shape: wav2vec2.encoder.layers.{0..11}.feed_forward.intermediate_dense.weight [3072, 768]
    intermediate_size: int = 3072
    groups: int = 2  # config: num_codevector_groups
    group_codes: int = 320  # shape and config: quantizer.weight_proj.weight [640, 512] = groups * group_codes
    code_size: int = 128  # shape: quantizer.codevectors [1, 640, 128]
    position_kernel: int = 128  # shape: wav2vec2.encoder.pos_conv_embed.conv.weight_v [768, 48, 128]
    group_size: int = 48  # shape: wav2vec2.encoder.pos_conv_embed.conv.weight_v [768, 48, 128]
    norm_eps: float = 1e-5  # config: layer_norm_eps
    layers: int = 12  # name: wav2vec2.encoder.layers.*
    frames_kernels: tuple[int, ...] = (10, 3, 3, 3, 3, 2, 2)  # config: conv_kernel
    frames_strides: tuple[int, ...] = (5, 2, 2, 2, 2, 2, 2)  # config: conv_stride
    projection_size: int = 256  # shape: project_hid.weight [256, 768]


@dataclass
class Output:
    """What the model returns."""

    projected_states: Tensor
    projected_quantized_states: Tensor
    codevector_perplexity: Tensor
    last_hidden_state: Tensor
    extract_features: Tensor


torch.export.register_dataclass(Output)


def weight_norm_sizes(shape: tuple[int, ...], dim: int | None) -> list[int]:
    """Shape of a weight-normed kernel's lengths: one for each slice along `dim`, or one for all (None)."""
    return [size if axis == dim else 1 for axis, size in enumerate(shape)]


def weight_norm(length: Tensor, direction: Tensor) -> Tensor:
    """Kernel of a weight-normed layer: the direction scaled to a length per slice (paper 1602.07868)."""
    axes = [axis for axis, size in enumerate(length.shape) if size == 1]
    return direction * (length / torch.linalg.vector_norm(direction, dim=axes, keepdim=True))


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


def best_codes(scores: Tensor, codes: Tensor, groups: int) -> tuple[Tensor, Tensor]:
    """One code of each group for every position, and how evenly the codes are used (perplexity).

    Training draws codes at random (paper 2006.11477); this is what evaluation does.
    scores (B, T, G * V), codes (1, G * V, D) -> (B, T, G * D), ()
    """
    best = scores.unflatten(-1, (groups, -1)).argmax(dim=-1)  # (B, T, G)
    table = codes.unflatten(1, (groups, -1))[0]  # (G, V, D)
    used = F.one_hot(best, table.shape[1]).to(codes.dtype).mean(dim=(0, 1))
    perplexity = torch.exp(-torch.xlogy(used, used).sum(dim=-1)).sum()
    return table[torch.arange(groups, device=best.device), best].flatten(2), perplexity


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
    """wav2vec2.encoder.layers.*.attention: self-attention with an attention mask."""

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


class ConvolutionWithNorm(nn.Module):
    """wav2vec2.feature_extractor.conv_layers.0: convolution, norm where one is stored, activation."""

    def __init__(self, config: Config):
        super().__init__()
        self.conv = nn.Conv1d(1, config.out_channels, kernel_size=10, stride=5, bias=False)
        self.layer_norm = nn.GroupNorm(512, config.out_channels)

    def forward(self, x: Tensor) -> Tensor:
        return F.gelu(self.layer_norm(self.conv(x)))


class FeedForward(nn.Module):
    """wav2vec2.encoder.layers.*.feed_forward: feed-forward network."""

    def __init__(self, config: Config):
        super().__init__()
        self.intermediate_dense = nn.Linear(config.hidden_size, config.intermediate_size)
        self.output_dense = nn.Linear(config.intermediate_size, config.hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        return self.output_dense(F.gelu(self.intermediate_dense(x)))


class Quantizer(nn.Module):
    """quantizer: Gumbel vector quantization by argmax, with the perplexity of the codebooks (wav2vec 2.0)."""

    def __init__(self, config: Config):
        super().__init__()
        self.quantizer_groups = config.groups
        self.weight_proj = nn.Linear(config.out_channels, config.groups * config.group_codes)
        self.codevectors = nn.Parameter(torch.zeros(1, config.groups * config.group_codes, config.code_size))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return best_codes(self.weight_proj(x), self.codevectors, self.quantizer_groups)


class Convolution(nn.Module):
    """wav2vec2.feature_extractor.conv_layers.*: convolution, norm where one is stored, activation."""

    def __init__(self, config: Config, kernel_size: int):
        super().__init__()
        self.conv = nn.Conv1d(
            config.out_channels, config.out_channels, kernel_size=kernel_size, stride=2, bias=False
        )

    def forward(self, x: Tensor) -> Tensor:
        return F.gelu(self.conv(x))


class Embeddings(nn.Module):
    """wav2vec2.encoder.pos_conv_embed: convolutional position embeddings, added to the frames."""

    def __init__(self, config: Config):
        super().__init__()
        self.position_kernel = config.position_kernel
        self.conv = Conv1dWeightNorm(
            config.hidden_size,
            config.hidden_size,
            config.position_kernel,
            padding=config.position_kernel // 2,
            groups=config.hidden_size // config.group_size,
            dim=2,
        )

    def forward(self, x: Tensor) -> Tensor:
        positions = x.transpose(1, 2)
        positions = F.gelu(trim_even(self.conv(positions), self.position_kernel))
        return x + positions.transpose(1, 2)


class Layer(nn.Module):
    """wav2vec2.encoder.layers.*: a layer with attention, post-norm and a feed-forward network."""

    def __init__(self, config: Config):
        super().__init__()
        self.attention = Attention(config)
        self.layer_norm = nn.LayerNorm(config.hidden_size, eps=config.norm_eps)
        self.feed_forward = FeedForward(config)
        self.final_layer_norm = nn.LayerNorm(config.hidden_size, eps=config.norm_eps)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        x = self.layer_norm(x + self.attention(x, mask))
        return self.final_layer_norm(x + self.feed_forward(x))


class Encoder(nn.Module):
    """wav2vec2: a stack of layers with convolutions over a waveform, convolutional position embeddings, a
    norm before the layers, a mask of the frames that are no padding and the features before their
    projection.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.frames_kernels = config.frames_kernels
        self.frames_strides = config.frames_strides
        self.feature_extractor: Any = nn.ModuleDict(
            {
                "conv_layers": nn.ModuleList(
                    [
                        ConvolutionWithNorm(config),
                        *(Convolution(config, kernel_size=3) for _ in range(4)),
                        *(Convolution(config, kernel_size=2) for _ in range(2)),
                    ]
                )
            }
        )
        self.feature_projection: Any = nn.ModuleDict(
            {
                "layer_norm": nn.LayerNorm(config.out_channels, eps=config.norm_eps),
                "projection": nn.Linear(config.out_channels, config.hidden_size),
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

    def forward(self, input_values: Tensor, attention_mask: Tensor | None) -> tuple[Tensor, Tensor]:
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
        return x, features


class Model(nn.Module):
    """The model with the features before their projection and hidden states and quantised features,
    projected to one space (wav2vec 2.0 pretraining).
    """

    def __init__(self, config: Config = Config()):
        super().__init__()
        self.wav2vec2 = Encoder(config)
        self.quantizer = Quantizer(config)
        self.project_hid = nn.Linear(config.hidden_size, config.projection_size)
        self.project_q = nn.Linear(256, config.projection_size)

    def forward(self, input_values: Tensor, attention_mask: Tensor | None = None) -> Output:
        """input_values (batch, samples), attention_mask (batch, samples)"""
        x, features = self.wav2vec2(input_values, attention_mask)
        codes, perplexity = self.quantizer(features)
        states, codes = self.project_hid(x), self.project_q(codes)
        return Output(
            projected_states=states,
            projected_quantized_states=codes,
            codevector_perplexity=perplexity,
            last_hidden_state=x,
            extract_features=features,
        )


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
# {"config": {"architectures": ["Wav2Vec2ForPreTraining"], "conv_bias": false, "conv_dim": [512, 512, 512,
# 512, 512, 512, 512], "conv_kernel": [10, 3, 3, 3, 3, 2, 2], "conv_stride": [5, 2, 2, 2, 2, 2, 2],
# "do_stable_layer_norm": false, "feat_extract_activation": "gelu", "feat_extract_norm": "group",
# "hidden_act": "gelu", "hidden_size": 768, "intermediate_size": 3072, "layer_norm_eps": 1e-05, "model_type":
# "wav2vec2", "num_attention_heads": 12, "num_codevector_groups": 2, "num_codevectors_per_group": 320,
# "num_conv_pos_embeddings": 128, "num_hidden_layers": 12}, "notes": ["header from the bundled catalogue
# (reconstructed with transformers 5.23.0 from config), not from the hub", "evidence for its config:
# recalled"]}
# sha256 of all above: c29760139529f7d7
