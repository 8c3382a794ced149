"""microsoft/layoutlmv3-base: written by mapper 0.1.0, rules 085fa52bb6da.

Reading: exact (family layoutlmv3).
header from the bundled catalogue (reconstructed with transformers 5.23.0 from config), not from the hub
evidence for its config: transformers-default
No dropout is written: training mode computes the same; `mapper generate --train` writes it.

Load the weights with `load(path)`; the attributes are the names in the checkpoint.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class Config:
    """Sizes, each with what it is known from."""

    vocab_size: int = 50265  # shape: embeddings.word_embeddings.weight [50265, 768]
    hidden_size: int = 768  # shape: LayerNorm.weight [768]
    segments: int = 2  # shape: embeddings.token_type_embeddings.weight [2, 768]
    positions: int = 512  # shape: embeddings.position_embeddings.weight [512, 768]
    layout_positions: int = 1024  # shape: embeddings.x_position_embeddings.weight [1024, 128]
    page_part: int = 128  # shape: embeddings.x_position_embeddings.weight [1024, 128]
    page_side: int = 128  # shape: embeddings.h_position_embeddings.weight [1024, 128]
    padding_index: int = 1  # config: pad_token_id
    heads: int = 12  # shape: encoder.rel_pos_bias.weight [12, 32]
    head_dim: int = 64  # shape: encoder.layer.{0..11}.attention.self.query.weight [768, 768]
    intermediate_size: int = 3072  # shape: encoder.layer.{0..11}.intermediate.dense.weight [3072, 768]
    channels: int = 3  # shape: patch_embed.proj.weight [768, 3, 16, 16]
    patch_size: int = 16  # shape: patch_embed.proj.weight [768, 3, 16, 16]
    text_buckets: int = 32  # shape: encoder.rel_pos_bias.weight [12, 32]
    page_buckets: int = 64  # shape: encoder.rel_pos_x_bias.weight [12, 64]
    layers: int = 12  # name: encoder.layer.*
    text_distance: int = 128  # config: max_rel_pos
    page_distance: int = 256  # config: max_rel_2d_pos


@dataclass
class Output:
    """What the model returns."""

    last_hidden_state: Tensor


torch.export.register_dataclass(Output)


def boxes_and_patches(bbox: Tensor, pixels: Tensor, size: int) -> Tensor:
    """Boxes of words, of the whole page, and of its patches, in thousandths (LayoutLMv3).

    bbox (B, T, 4), pixels (B, C, Y, X), size the side of a patch -> (B, T + 1 + Y // size * (X // size), 4)
    """
    rows, columns = pixels.shape[2] // size, pixels.shape[3] // size
    down = torch.arange(rows + 1, device=bbox.device) * 1000 // rows
    across = torch.arange(columns + 1, device=bbox.device) * 1000 // columns
    top, left = torch.meshgrid(down[:-1], across[:-1], indexing="ij")
    bottom, right = torch.meshgrid(down[1:], across[1:], indexing="ij")
    patches = torch.stack((left, top, right, bottom), dim=-1).flatten(0, 1)
    boxes = F.pad(patches, (0, 0, 1, 0), value=1)
    boxes[0, 2:] = 999
    return torch.cat((bbox, boxes.expand(bbox.shape[0], -1, -1).to(bbox.dtype)), dim=1)


def flatten_patches(x: Tensor) -> Tensor:
    """Patches as a sequence, row by row. x (B, C, Y, X) -> (B, Y * X, C)"""
    return x.flatten(2).transpose(1, 2)


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


def positions_of_ids(input_ids: Tensor, padding_id: int) -> Tensor:
    """Counts real tokens from padding_id + 1; padding gets padding_id (RoBERTa).

    input_ids (B, T) -> (B, T)
    """
    real = (input_ids != padding_id).long()
    return real.cumsum(dim=1) * real + padding_id


def prepend_token(token: Tensor, x: Tensor) -> Tensor:
    """One learned vector before each sequence. token (..., W), x (B, T, W) -> (B, 1 + T, W)"""
    return torch.cat((token.expand(x.shape[0], 1, -1), x), dim=1)


def bucket_logarithmic(lengths: Tensor, buckets: int, max_distance: int) -> Tensor:
    """One bucket per length for the lower half, then logarithmic up to max_distance.

    lengths >= 0, any shape
    """
    exact = buckets // 2
    steps = (
        torch.log(lengths.clamp(min=1).float() / exact) / math.log(max_distance / exact) * (buckets - exact)
    )
    return torch.where(lengths < exact, lengths, (exact + steps.long()).clamp(max=buckets - 1))


def relative_buckets(distances: Tensor, buckets: int, max_distance: int) -> Tensor:
    """Buckets of both directions: later keys take the upper half (T5 encoder, MPNet; 1910.10683).

    Any shape
    """
    half = buckets // 2
    return torch.where(distances > 0, half, 0) + bucket_logarithmic(distances.abs(), half, max_distance)


def segment_ids(input_ids: Tensor, token_type_ids: Tensor | None) -> Tensor:
    """The caller's segments, or the first segment everywhere. (B, T)"""
    return torch.zeros_like(input_ids) if token_type_ids is None else token_type_ids


def split_heads(x: Tensor, head_dim: int) -> Tensor:
    """Splits a projection into heads. x (B, T, H * D) -> (B, H, T, D)"""
    return x.unflatten(-1, (-1, head_dim)).transpose(1, 2)


class Embeddings(nn.Module):
    """embeddings: token embeddings with token types, learned position embeddings that skip padding,
    concatenated box embeddings and a norm.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.padding_index = config.padding_index
        self.word_embeddings = nn.Embedding(config.vocab_size, config.hidden_size)
        self.token_type_embeddings = nn.Embedding(config.segments, config.hidden_size)
        self.position_embeddings = nn.Embedding(config.positions, config.hidden_size)
        self.x_position_embeddings = nn.Embedding(config.layout_positions, config.page_part)
        self.y_position_embeddings = nn.Embedding(config.layout_positions, config.page_part)
        self.h_position_embeddings = nn.Embedding(config.layout_positions, config.page_side)
        self.w_position_embeddings = nn.Embedding(config.layout_positions, config.page_side)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=1e-5)

    def forward(
        self,
        input_ids: Tensor,
        bbox: Tensor | None,
        token_type_ids: Tensor | None,
        position_ids: Tensor | None,
    ) -> Tensor:
        x = self.word_embeddings(input_ids)
        x = x + self.token_type_embeddings(segment_ids(input_ids, token_type_ids))
        if position_ids is None:
            position_ids = positions_of_ids(input_ids, self.padding_index)
        x = x + self.position_embeddings(position_ids)
        boxes = bbox
        if boxes is None:
            boxes = torch.zeros_like(input_ids)[..., None].expand(-1, -1, 4)
        left, top, right, bottom = boxes.unbind(-1)
        height, width = (bottom - top).clamp(0, 1023), (right - left).clamp(0, 1023)
        corners = (
            self.x_position_embeddings(left),
            self.y_position_embeddings(top),
            self.x_position_embeddings(right),
            self.y_position_embeddings(bottom),
        )
        sides = self.h_position_embeddings(height), self.w_position_embeddings(width)
        x = x + torch.cat((torch.cat(corners, dim=-1), torch.cat(sides, dim=-1)), dim=-1)
        return self.LayerNorm(x)


class Attention(nn.Module):
    """encoder.layer.*.attention: self-attention with an attention mask."""

    def __init__(self, config: Config):
        super().__init__()
        self.head_dim = config.head_dim
        self.self: Any = nn.ModuleDict(
            {
                "query": nn.Linear(config.hidden_size, config.heads * config.head_dim),
                "key": nn.Linear(config.hidden_size, config.heads * config.head_dim),
                "value": nn.Linear(config.hidden_size, config.heads * config.head_dim),
            }
        )
        self.output: Any = nn.ModuleDict(
            {
                "dense": nn.Linear(config.heads * config.head_dim, config.hidden_size),
                "LayerNorm": nn.LayerNorm(config.hidden_size, eps=1e-5),
            }
        )

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        q = split_heads(self.self.query(x), self.head_dim)
        k = split_heads(self.self.key(x), self.head_dim)
        v = split_heads(self.self.value(x), self.head_dim)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.output.dense(merge_heads(y))


class Layer(nn.Module):
    """encoder.layer.*: a layer with attention, post-norm and a feed-forward network."""

    def __init__(self, config: Config):
        super().__init__()
        self.attention = Attention(config)
        self.intermediate: Any = nn.ModuleDict(
            {"dense": nn.Linear(config.hidden_size, config.intermediate_size)}
        )
        self.output: Any = nn.ModuleDict(
            {
                "dense": nn.Linear(config.intermediate_size, config.hidden_size),
                "LayerNorm": nn.LayerNorm(config.hidden_size, eps=1e-5),
            }
        )

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = self.attention.output.LayerNorm(x + self.attention(x, mask))
        return self.output.LayerNorm(x + self.feed_forward(x))

    def feed_forward(self, x: Tensor) -> Tensor:
        return self.output.dense(F.gelu(self.intermediate.dense(x)))


class Model(nn.Module):
    """The model with no head."""

    def __init__(self, config: Config = Config()):
        super().__init__()
        self.patch_size = config.patch_size
        self.text_buckets = config.text_buckets
        self.text_distance = config.text_distance
        self.page_buckets = config.page_buckets
        self.page_distance = config.page_distance
        self.head_dim = config.head_dim
        self.embeddings = Embeddings(config)
        self.patch_embed: Any = nn.ModuleDict(
            {
                "proj": nn.Conv2d(
                    config.channels,
                    config.hidden_size,
                    kernel_size=config.patch_size,
                    stride=config.patch_size,
                )
            }
        )
        self.cls_token = nn.Parameter(torch.zeros(1, 1, config.hidden_size))
        self.pos_embed = nn.Parameter(torch.zeros(1, 197, config.hidden_size))
        self.norm = nn.LayerNorm(config.hidden_size, eps=1e-6)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=1e-5)
        self.encoder: Any = nn.ModuleDict(
            {
                "rel_pos_bias": nn.Embedding(config.heads, config.text_buckets),
                "rel_pos_x_bias": nn.Linear(config.page_buckets, config.heads, bias=False),
                "rel_pos_y_bias": nn.Linear(config.page_buckets, config.heads, bias=False),
                "layer": nn.ModuleList(Layer(config) for _ in range(config.layers)),
            }
        )

    def forward(
        self,
        input_ids: Tensor,
        pixel_values: Tensor,
        bbox: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
    ) -> Output:
        """input_ids (batch, length), pixel_values (batch, channels, height, width), bbox (batch, length,
        4), attention_mask (batch, length), token_type_ids (batch, length), position_ids (batch, length)
        """
        x = self.tower(input_ids, pixel_values, bbox, attention_mask, token_type_ids, position_ids)
        return Output(last_hidden_state=x)

    def tower(
        self,
        input_ids: Tensor,
        pixel_values: Tensor,
        bbox: Tensor | None,
        attention_mask: Tensor | None,
        token_type_ids: Tensor | None,
        position_ids: Tensor | None,
    ) -> Tensor:
        words = self.embeddings(input_ids, bbox, token_type_ids, position_ids)
        image = self.image_embeddings(pixel_values)
        x = self.LayerNorm(torch.cat((words, image), dim=1))
        real = None
        if attention_mask is not None:
            real = F.pad(attention_mask, (0, x.shape[1] - attention_mask.shape[1]), value=1)
        mask = padding_mask(real)
        boxes = bbox
        if boxes is None:
            boxes = torch.zeros_like(input_ids)[..., None].expand(-1, -1, 4)
        boxes = boxes_and_patches(boxes, pixel_values, self.patch_size)
        left, bottom = boxes[..., 0], boxes[..., 3]
        index, words = torch.arange(x.shape[1], device=x.device), input_ids.shape[1]
        order = torch.where(index < words, index, index - words)
        apart = relative_buckets(order - order[:, None], self.text_buckets, self.text_distance)
        across = relative_buckets(left[:, None] - left[..., None], self.page_buckets, self.page_distance)
        down = relative_buckets(bottom[:, None] - bottom[..., None], self.page_buckets, self.page_distance)
        bias = F.embedding(apart, self.encoder.rel_pos_bias.weight.t()) + F.embedding(
            across, self.encoder.rel_pos_x_bias.weight.t()
        )
        bias = (bias + F.embedding(down, self.encoder.rel_pos_y_bias.weight.t())) * self.head_dim**-0.5
        mask = masked_bias(bias.permute(0, 3, 1, 2), mask)
        for layer in self.encoder.layer:
            x = layer(x, mask)
        return x

    def image_embeddings(self, pixel_values: Tensor) -> Tensor:
        patches = self.patch_embed.proj(pixel_values.type_as(self.patch_embed.proj.weight))
        x = flatten_patches(patches)
        return self.norm(prepend_token(self.cls_token, x) + self.pos_embed)


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
# {"config": {"architectures": ["LayoutLMv3Model"], "coordinate_size": 128, "hidden_act": "gelu",
# "hidden_size": 768, "intermediate_size": 3072, "layer_norm_eps": 1e-05, "max_2d_position_embeddings": 1024,
# "max_position_embeddings": 512, "max_rel_2d_pos": 256, "max_rel_pos": 128, "model_type": "layoutlmv3",
# "num_attention_heads": 12, "num_channels": 3, "num_hidden_layers": 12, "pad_token_id": 1, "patch_size": 16,
# "type_vocab_size": 2, "vocab_size": 50265}, "notes": ["header from the bundled catalogue (reconstructed with
# transformers 5.23.0 from config), not from the hub", "evidence for its config: transformers-default"]}
# sha256 of all above: ada2dbdbe3dd16a1
