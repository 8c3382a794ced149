"""Xrenya/pvt-tiny-224: written by mapper 0.1.0, rules 085fa52bb6da.

Reading: exact (family pvt).
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

    # shape: pvt.encoder.block.0.{0..1}.layer_norm_1.weight [64] and 3 more
    hidden_sizes: tuple[int, ...] = (64, 128, 320, 512)
    norm_eps: float = 1e-6  # config: layer_norm_eps
    heads: tuple[int, ...] = (1, 2, 5, 8)  # config: num_attention_heads[0] and 3 more
    # shape and config: pvt.encoder.block.0.{0..1}.attention.output.dense.weight [64, 64] = heads * head_dim
    head_dim: int = 64
    # shape: pvt.encoder.block.0.{0..1}.mlp.dense1.weight [512, 64] and 3 more
    intermediate_sizes: tuple[int, ...] = (512, 1024, 1280, 2048)
    layers: int = 2  # name: pvt.encoder.block.0.*
    labels: int = 1000  # shape: classifier.weight [1000, 512]


@dataclass
class Output:
    """What the model returns."""

    logits: Tensor
    last_hidden_state: Tensor


torch.export.register_dataclass(Output)


def flatten_patches(x: Tensor) -> Tensor:
    """Patches as a sequence, row by row. x (B, C, Y, X) -> (B, Y * X, C)"""
    return x.flatten(2).transpose(1, 2)


def merge_heads(x: Tensor) -> Tensor:
    """Joins the heads again. x (B, H, T, D) -> (B, T, H * D)"""
    return x.transpose(1, 2).flatten(2)


def prepend_token(token: Tensor, x: Tensor) -> Tensor:
    """One learned vector before each sequence. token (..., W), x (B, T, W) -> (B, 1 + T, W)"""
    return torch.cat((token.expand(x.shape[0], 1, -1), x), dim=1)


def split_heads(x: Tensor, head_dim: int) -> Tensor:
    """Splits a projection into heads. x (B, T, H * D) -> (B, H, T, D)"""
    return x.unflatten(-1, (-1, head_dim)).transpose(1, 2)


class PatchesWithClassToken(nn.Module):
    """pvt.encoder.patch_embeddings.3: patch embedding with layer norm and position embeddings of one size
    after a class token, as one row.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.projection = nn.Conv2d(config.hidden_sizes[2], config.hidden_sizes[3], kernel_size=2, stride=2)
        self.layer_norm = nn.LayerNorm(config.hidden_sizes[3], eps=config.norm_eps)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, config.hidden_sizes[3]))
        self.position_embeddings = nn.Parameter(torch.zeros(1, 50, config.hidden_sizes[3]))

    def forward(self, x: Tensor) -> Tensor:
        x = self.layer_norm(self.projection(x).permute(0, 2, 3, 1)).flatten(1, 2)
        return (prepend_token(self.cls_token, x) + self.position_embeddings)[:, None]


class Patches(nn.Module):
    """pvt.encoder.patch_embeddings.*: patch embedding with layer norm and position embeddings of one size,
    channels last.
    """

    def __init__(
        self,
        config: Config,
        patches_in_channels: int,
        patches_out_channels: int,
        patches_stride: int,
        patches_kernel_size: int,
        position_embeddings_size1: int,
    ):
        super().__init__()
        self.projection = nn.Conv2d(
            patches_in_channels, patches_out_channels, kernel_size=patches_kernel_size, stride=patches_stride
        )
        self.layer_norm = nn.LayerNorm(patches_out_channels, eps=config.norm_eps)
        self.position_embeddings = nn.Parameter(
            torch.zeros(1, position_embeddings_size1, patches_out_channels)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.layer_norm(self.projection(x).permute(0, 2, 3, 1))
        return x + self.position_embeddings.view_as(x[:1])


class AttentionWithReduction(nn.Module):
    """pvt.encoder.block.*.*.attention: self-attention over a feature map with spatial reduction of keys
    and values (SegFormer).
    """

    def __init__(
        self,
        config: Config,
        hidden_size: int,
        sequence_reduction_stride: int,
        sequence_reduction_kernel_size: int,
        heads: int,
    ):
        super().__init__()
        self.head_dim = config.head_dim
        self.self: Any = nn.ModuleDict(
            {
                "sequence_reduction": nn.Conv2d(
                    hidden_size,
                    hidden_size,
                    kernel_size=sequence_reduction_kernel_size,
                    stride=sequence_reduction_stride,
                ),
                "layer_norm": nn.LayerNorm(hidden_size, eps=config.norm_eps),
                "query": nn.Linear(hidden_size, heads * config.head_dim),
                "key": nn.Linear(hidden_size, heads * config.head_dim),
                "value": nn.Linear(hidden_size, heads * config.head_dim),
            }
        )
        self.output: Any = nn.ModuleDict({"dense": nn.Linear(heads * config.head_dim, hidden_size)})

    def forward(self, x: Tensor) -> Tensor:
        y = self.self.layer_norm(self.self.sequence_reduction(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1))
        q = self.self.query(x.flatten(1, 2))
        k, v = self.self.key(y.flatten(1, 2)), self.self.value(y.flatten(1, 2))
        q, k, v = split_heads(q, self.head_dim), split_heads(k, self.head_dim), split_heads(v, self.head_dim)
        return self.output.dense(merge_heads(F.scaled_dot_product_attention(q, k, v))).view_as(x)


class FeedForward(nn.Module):
    """pvt.encoder.block.*.*.mlp: feed-forward network."""

    def __init__(self, hidden_size: int, intermediate_size: int):
        super().__init__()
        self.dense1 = nn.Linear(hidden_size, intermediate_size)
        self.dense2 = nn.Linear(intermediate_size, hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        return self.dense2(F.gelu(self.dense1(x)))


class Attention(nn.Module):
    """pvt.encoder.block.3.*.attention: self-attention over a feature map."""

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
    """pvt.encoder.block.*.*: a layer with pre-norm, attention and a feed-forward network."""

    def __init__(
        self,
        config: Config,
        hidden_size: int,
        sequence_reduction_stride: int,
        sequence_reduction_kernel_size: int,
        heads: int,
        intermediate_size: int,
    ):
        super().__init__()
        self.layer_norm_1 = nn.LayerNorm(hidden_size, eps=config.norm_eps)
        self.attention = AttentionWithReduction(
            config,
            hidden_size=hidden_size,
            sequence_reduction_stride=sequence_reduction_stride,
            sequence_reduction_kernel_size=sequence_reduction_kernel_size,
            heads=heads,
        )
        self.layer_norm_2 = nn.LayerNorm(hidden_size, eps=config.norm_eps)
        self.mlp = FeedForward(hidden_size=hidden_size, intermediate_size=intermediate_size)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.layer_norm_1(x))
        return x + self.mlp(self.layer_norm_2(x))


class Layer(nn.Module):
    """pvt.encoder.block.3.*: a layer with pre-norm, attention and a feed-forward network."""

    def __init__(self, config: Config):
        super().__init__()
        self.layer_norm_1 = nn.LayerNorm(config.hidden_sizes[3], eps=config.norm_eps)
        self.attention = Attention(config)
        self.layer_norm_2 = nn.LayerNorm(config.hidden_sizes[3], eps=config.norm_eps)
        self.mlp = FeedForward(
            hidden_size=config.hidden_sizes[3], intermediate_size=config.intermediate_sizes[3]
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.layer_norm_1(x))
        return x + self.mlp(self.layer_norm_2(x))


class StageWithReduction(nn.Sequential):
    """pvt.encoder.block.*: a stage of layers in sequence."""

    def __init__(
        self,
        config: Config,
        hidden_size: int,
        sequence_reduction_stride: int,
        sequence_reduction_kernel_size: int,
        heads: int,
        intermediate_size: int,
    ):
        super().__init__(
            *(
                LayerWithReduction(
                    config,
                    hidden_size=hidden_size,
                    sequence_reduction_stride=sequence_reduction_stride,
                    sequence_reduction_kernel_size=sequence_reduction_kernel_size,
                    heads=heads,
                    intermediate_size=intermediate_size,
                )
                for _ in range(config.layers)
            )
        )


class Stage(nn.Sequential):
    """pvt.encoder.block.3: a stage of layers in sequence."""

    def __init__(self, config: Config):
        super().__init__(*(Layer(config) for _ in range(config.layers)))


class StagesToRow(nn.Module):
    """pvt.encoder: patch embeddings before each stage, and a final norm of the row that the last stage
    gives.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.patch_embeddings = nn.ModuleList(
            [
                Patches(
                    config,
                    patches_in_channels=3,
                    patches_out_channels=config.hidden_sizes[0],
                    patches_stride=4,
                    patches_kernel_size=4,
                    position_embeddings_size1=3136,
                ),
                Patches(
                    config,
                    patches_in_channels=config.hidden_sizes[0],
                    patches_out_channels=config.hidden_sizes[1],
                    patches_stride=2,
                    patches_kernel_size=2,
                    position_embeddings_size1=784,
                ),
                Patches(
                    config,
                    patches_in_channels=config.hidden_sizes[1],
                    patches_out_channels=config.hidden_sizes[2],
                    patches_stride=2,
                    patches_kernel_size=2,
                    position_embeddings_size1=196,
                ),
                PatchesWithClassToken(config),
            ]
        )
        self.block = nn.ModuleList(
            [
                StageWithReduction(
                    config,
                    hidden_size=config.hidden_sizes[0],
                    sequence_reduction_stride=8,
                    sequence_reduction_kernel_size=8,
                    heads=config.heads[0],
                    intermediate_size=config.intermediate_sizes[0],
                ),
                StageWithReduction(
                    config,
                    hidden_size=config.hidden_sizes[1],
                    sequence_reduction_stride=4,
                    sequence_reduction_kernel_size=4,
                    heads=config.heads[1],
                    intermediate_size=config.intermediate_sizes[1],
                ),
                StageWithReduction(
                    config,
                    hidden_size=config.hidden_sizes[2],
                    sequence_reduction_stride=2,
                    sequence_reduction_kernel_size=2,
                    heads=config.heads[2],
                    intermediate_size=config.intermediate_sizes[2],
                ),
                Stage(config),
            ]
        )
        self.layer_norm = nn.LayerNorm(config.hidden_sizes[3], eps=config.norm_eps)

    def forward(self, pixel_values: Tensor) -> Tensor:
        x = pixel_values
        for patch, stage in zip(self.patch_embeddings, self.block, strict=True):
            x = stage(patch(x)).permute(0, 3, 1, 2)
        return self.layer_norm(flatten_patches(x))


class Model(nn.Module):
    """The model with an image classification head."""

    def __init__(self, config: Config = Config()):
        super().__init__()
        self.pvt: Any = nn.ModuleDict({"encoder": StagesToRow(config)})
        self.classifier = nn.Linear(config.hidden_sizes[3], config.labels)

    def forward(self, pixel_values: Tensor) -> Output:
        """pixel_values (batch, channels, height, width)"""
        x = self.pvt.encoder(pixel_values)
        pooled = x[:, 0]
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
# {"config": {"architectures": ["PvtForImageClassification"], "depths": [2, 2, 2, 2], "hidden_act": "gelu",
# "hidden_sizes": [64, 128, 320, 512], "layer_norm_eps": 1e-06, "model_type": "pvt", "num_attention_heads":
# [1, 2, 5, 8], "num_encoder_blocks": 4, "qkv_bias": true, "strides": [4, 2, 2, 2]}, "notes": ["header from
# the bundled catalogue (reconstructed with transformers 5.23.0 from config), not from the hub", "evidence for
# its config: transformers-default"]}
# sha256 of all above: 1496f209c18eb24a
