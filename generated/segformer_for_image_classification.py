"""nvidia/mit-b0: written by mapper 0.1.0, rules 085fa52bb6da.

Reading: exact (family segformer).
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

    # shape: segformer.encoder.block.0.{0..1}.layer_norm_1.weight [32] and 3 more
    hidden_sizes: tuple[int, ...] = (32, 64, 160, 256)
    expansion: int = 4  # shape: segformer.encoder.block.0.{0..1}.mlp.dense1.weight [128, 32] and 3 more
    kernel_size: int = 3  # shape: segformer.encoder.block.0.{0..1}.mlp.dwconv.dwconv.weight [128, 1, 3, 3]
    heads: tuple[int, ...] = (1, 2, 5, 8)  # config: num_attention_heads[0] and 3 more
    # shape and config: segformer.encoder.block.0.{0..1}.attention.output.dense.weight [32, 32] = heads * ...
    head_dim: int = 32
    layers: int = 2  # name: segformer.encoder.block.0.*
    patch_embeddings_strides: tuple[int, ...] = (4, 2, 2, 2)  # config: strides[0] and 3 more
    # shape: segformer.encoder.patch_embeddings.0.proj.weight [32, 3, 7, 7] and 3 more
    patch_embeddings_kernel_sizes: tuple[int, ...] = (7, 3, 3, 3)
    labels: int = 1000  # shape: classifier.weight [1000, 256]


@dataclass
class Output:
    """What the model returns."""

    logits: Tensor
    last_hidden_state: Tensor


torch.export.register_dataclass(Output)


def merge_heads(x: Tensor) -> Tensor:
    """Joins the heads again. x (B, H, T, D) -> (B, T, H * D)"""
    return x.transpose(1, 2).flatten(2)


def split_heads(x: Tensor, head_dim: int) -> Tensor:
    """Splits a projection into heads. x (B, T, H * D) -> (B, H, T, D)"""
    return x.unflatten(-1, (-1, head_dim)).transpose(1, 2)


class FeedForward(nn.Module):
    """segformer.encoder.block.*.*.mlp: feed-forward network with a depthwise convolution before the
    activation (SegFormer).
    """

    def __init__(self, config: Config, hidden_size: int):
        super().__init__()
        intermediate_size = config.expansion * hidden_size
        self.dense1 = nn.Linear(hidden_size, intermediate_size)
        self.dwconv: Any = nn.ModuleDict(
            {
                "dwconv": nn.Conv2d(
                    intermediate_size,
                    intermediate_size,
                    kernel_size=config.kernel_size,
                    padding=config.kernel_size // 2,
                    groups=intermediate_size,
                )
            }
        )
        self.dense2 = nn.Linear(intermediate_size, hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        y = self.dense1(x)
        y = F.gelu(self.dwconv.dwconv(y.permute(0, 3, 1, 2)).permute(0, 2, 3, 1))
        return self.dense2(y)


class Patches(nn.Module):
    """segformer.encoder.patch_embeddings.*: patch embedding with layer norm, channels last."""

    def __init__(self, in_channels: int, out_channels: int, stride: int, kernel_size: int):
        super().__init__()
        self.proj = nn.Conv2d(
            in_channels, out_channels, kernel_size=kernel_size, stride=stride, padding=kernel_size // 2
        )
        self.layer_norm = nn.LayerNorm(out_channels)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer_norm(self.proj(x).permute(0, 2, 3, 1))


class AttentionWithReduction(nn.Module):
    """segformer.encoder.block.*.*.attention: self-attention over a feature map with spatial reduction of
    keys and values (SegFormer).
    """

    def __init__(self, config: Config, hidden_size: int, sr_stride: int, sr_kernel_size: int, heads: int):
        super().__init__()
        self.head_dim = config.head_dim
        self.self: Any = nn.ModuleDict(
            {
                "sr": nn.Conv2d(hidden_size, hidden_size, kernel_size=sr_kernel_size, stride=sr_stride),
                "layer_norm": nn.LayerNorm(hidden_size),
                "query": nn.Linear(hidden_size, heads * config.head_dim),
                "key": nn.Linear(hidden_size, heads * config.head_dim),
                "value": nn.Linear(hidden_size, heads * config.head_dim),
            }
        )
        self.output: Any = nn.ModuleDict({"dense": nn.Linear(heads * config.head_dim, hidden_size)})

    def forward(self, x: Tensor) -> Tensor:
        y = self.self.layer_norm(self.self.sr(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1))
        q = self.self.query(x.flatten(1, 2))
        k, v = self.self.key(y.flatten(1, 2)), self.self.value(y.flatten(1, 2))
        q, k, v = split_heads(q, self.head_dim), split_heads(k, self.head_dim), split_heads(v, self.head_dim)
        return self.output.dense(merge_heads(F.scaled_dot_product_attention(q, k, v))).view_as(x)


class Attention(nn.Module):
    """segformer.encoder.block.3.*.attention: self-attention over a feature map."""

    def __init__(self, config: Config):
        super().__init__()
        self.head_dim = config.head_dim
        self.self: Any = nn.ModuleDict(
            {
                "query": nn.Linear(config.hidden_sizes[3], config.heads[3] * config.head_dim),
                "key": nn.Linear(config.hidden_sizes[3], config.heads[3] * config.head_dim),
                "value": nn.Linear(config.hidden_sizes[3], config.heads[3] * config.head_dim),
            }
        )
        self.output: Any = nn.ModuleDict(
            {"dense": nn.Linear(config.heads[3] * config.head_dim, config.hidden_sizes[3])}
        )

    def forward(self, x: Tensor) -> Tensor:
        q = self.self.query(x.flatten(1, 2))
        k, v = self.self.key(x.flatten(1, 2)), self.self.value(x.flatten(1, 2))
        q, k, v = split_heads(q, self.head_dim), split_heads(k, self.head_dim), split_heads(v, self.head_dim)
        return self.output.dense(merge_heads(F.scaled_dot_product_attention(q, k, v))).view_as(x)


class LayerWithReduction(nn.Module):
    """segformer.encoder.block.*.*: a layer with pre-norm, attention and a feed-forward network."""

    def __init__(self, config: Config, hidden_size: int, sr_stride: int, sr_kernel_size: int, heads: int):
        super().__init__()
        self.layer_norm_1 = nn.LayerNorm(hidden_size)
        self.attention = AttentionWithReduction(
            config, hidden_size=hidden_size, sr_stride=sr_stride, sr_kernel_size=sr_kernel_size, heads=heads
        )
        self.layer_norm_2 = nn.LayerNorm(hidden_size)
        self.mlp = FeedForward(config, hidden_size=hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.layer_norm_1(x))
        return x + self.mlp(self.layer_norm_2(x))


class Layer(nn.Module):
    """segformer.encoder.block.3.*: a layer with pre-norm, attention and a feed-forward network."""

    def __init__(self, config: Config):
        super().__init__()
        self.layer_norm_1 = nn.LayerNorm(config.hidden_sizes[3])
        self.attention = Attention(config)
        self.layer_norm_2 = nn.LayerNorm(config.hidden_sizes[3])
        self.mlp = FeedForward(config, hidden_size=config.hidden_sizes[3])

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.layer_norm_1(x))
        return x + self.mlp(self.layer_norm_2(x))


class StageWithReduction(nn.Sequential):
    """segformer.encoder.block.*: a stage of layers in sequence."""

    def __init__(self, config: Config, hidden_size: int, sr_stride: int, sr_kernel_size: int, heads: int):
        super().__init__(
            *(
                LayerWithReduction(
                    config,
                    hidden_size=hidden_size,
                    sr_stride=sr_stride,
                    sr_kernel_size=sr_kernel_size,
                    heads=heads,
                )
                for _ in range(config.layers)
            )
        )


class Stage(nn.Sequential):
    """segformer.encoder.block.3: a stage of layers in sequence."""

    def __init__(self, config: Config):
        super().__init__(*(Layer(config) for _ in range(config.layers)))


class Pixels(nn.Module):
    """segformer.encoder: an image through stages, each coarser than the one before, with patch embeddings
    before each stage and a norm after each.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.patch_embeddings = nn.ModuleList(
            Patches(
                in_channels=in_channels, out_channels=out_channels, stride=stride, kernel_size=kernel_size
            )
            for in_channels, out_channels, stride, kernel_size in zip(
                [3, *config.hidden_sizes[:-1]],
                config.hidden_sizes,
                config.patch_embeddings_strides,
                config.patch_embeddings_kernel_sizes,
                strict=True,
            )
        )
        self.block = nn.ModuleList(
            [
                StageWithReduction(
                    config,
                    hidden_size=config.hidden_sizes[0],
                    sr_stride=8,
                    sr_kernel_size=8,
                    heads=config.heads[0],
                ),
                StageWithReduction(
                    config,
                    hidden_size=config.hidden_sizes[1],
                    sr_stride=4,
                    sr_kernel_size=4,
                    heads=config.heads[1],
                ),
                StageWithReduction(
                    config,
                    hidden_size=config.hidden_sizes[2],
                    sr_stride=2,
                    sr_kernel_size=2,
                    heads=config.heads[2],
                ),
                Stage(config),
            ]
        )
        self.layer_norm = nn.ModuleList(nn.LayerNorm(size) for size in config.hidden_sizes)

    def forward(self, pixel_values: Tensor) -> Tensor:
        x = pixel_values
        for patch, stage, norm in zip(self.patch_embeddings, self.block, self.layer_norm, strict=True):
            x = norm(stage(patch(x))).permute(0, 3, 1, 2)
        return x


class Model(nn.Module):
    """The model with mean pooling and an image classification head."""

    def __init__(self, config: Config = Config()):
        super().__init__()
        self.segformer: Any = nn.ModuleDict({"encoder": Pixels(config)})
        self.classifier = nn.Linear(config.hidden_sizes[3], config.labels)

    def forward(self, pixel_values: Tensor) -> Output:
        """pixel_values (batch, channels, height, width)"""
        x = self.segformer.encoder(pixel_values)
        pooled = x.mean(dim=(-2, -1))
        return Output(logits=self.classifier(pooled), last_hidden_state=x)


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
# {"config": {"architectures": ["SegformerForImageClassification"], "depths": [2, 2, 2, 2], "hidden_act":
# "gelu", "hidden_sizes": [32, 64, 160, 256], "layer_norm_eps": 1e-06, "model_type": "segformer",
# "num_attention_heads": [1, 2, 5, 8], "num_encoder_blocks": 4, "strides": [4, 2, 2, 2]}, "notes": ["header
# from the bundled catalogue (reconstructed with transformers 5.23.0 from config), not from the hub",
# "evidence for its config: recalled"]}
# sha256 of all above: 3d876640189c94ca
