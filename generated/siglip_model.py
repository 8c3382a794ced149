"""google/siglip-base-patch16-224: written by mapper 0.1.0, rules 085fa52bb6da.

Reading: exact (family siglip).
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

    hidden_size: int = 768  # shape: text_model.final_layer_norm.weight [768]
    heads: int = 12  # default: text_config.num_attention_heads, left out: the default of siglip_text_model
    # shape and default: text_model.encoder.layers.{0..11}.self_attn.q_proj.weight [768, 768] = heads * ...
    head_dim: int = 64
    channels: int = 3  # shape: vision_model.embeddings.patch_embedding.weight [768, 3, 16, 16]
    patch_size: int = 16  # shape: vision_model.embeddings.patch_embedding.weight [768, 3, 16, 16]
    vision_positions: int = 196  # shape: vision_model.embeddings.position_embedding.weight [196, 768]
    intermediate_size: int = 3072  # shape: text_model.encoder.layers.{0..11}.mlp.fc1.weight [3072, 768]
    vocab_size: int = 32000  # shape: text_model.embeddings.token_embedding.weight [32000, 768]
    text_positions: int = 64  # shape: text_model.embeddings.position_embedding.weight [64, 768]
    norm_eps: float = 1e-6  # default: text_config.layer_norm_eps, left out: the default of siglip_text_model
    vision_layers: int = 12  # name: vision_model.encoder.layers.*
    text_layers: int = 12  # name: text_model.encoder.layers.*


@dataclass
class Output:
    """What the model returns."""

    logits_per_image: Tensor
    logits_per_text: Tensor
    image_embeds: Tensor
    text_embeds: Tensor


torch.export.register_dataclass(Output)


def flatten_patches(x: Tensor) -> Tensor:
    """Patches as a sequence, row by row. x (B, C, Y, X) -> (B, Y * X, C)"""
    return x.flatten(2).transpose(1, 2)


def merge_heads(x: Tensor) -> Tensor:
    """Joins the heads again. x (B, H, T, D) -> (B, T, H * D)"""
    return x.transpose(1, 2).flatten(2)


def padding_mask(attention_mask: Tensor | None) -> Tensor | None:
    """Hides padded keys from every query; None hides nothing. attention_mask (B, S) -> (B, 1, 1, S)"""
    return None if attention_mask is None else attention_mask[:, None, None, :] != 0


def position_indices(x: Tensor, position_ids: Tensor | None) -> Tensor:
    """The caller's positions, or 0, 1, 2, ... x (B, T, ...) -> (B or 1, T)"""
    return torch.arange(x.shape[1], device=x.device)[None] if position_ids is None else position_ids


def resize_positions(table: Tensor, kept: int, height: int, width: int, antialias: bool = False) -> Tensor:
    """Fits a square table of patch positions to a grid of height x width by bicubic interpolation.

    table (..., kept + N * N, W), the first `kept` rows (class token) stay -> (1, kept + height * width, W).
    Where the size is the same the values are, too: the branch that would skip it stops a dynamic export.
    A table of another number of rows belongs to the one image size it was trained on, and stays as it is.
    """
    table = table.reshape(-1, table.shape[-1])
    side = math.isqrt(table.shape[0] - kept)
    if side * side != table.shape[0] - kept:
        return table[None]
    grid = table[kept:].unflatten(0, (side, side)).permute(2, 0, 1)[None].float()
    grid = F.interpolate(grid, (height, width), mode="bicubic", align_corners=False, antialias=antialias)
    return torch.cat((table[:kept], grid[0].to(table.dtype).flatten(1).t()))[None]


def split_heads(x: Tensor, head_dim: int) -> Tensor:
    """Splits a projection into heads. x (B, T, H * D) -> (B, H, T, D)"""
    return x.unflatten(-1, (-1, head_dim)).transpose(1, 2)


class VisionAttention(nn.Module):
    """vision_model.encoder.layers.*.self_attn: self-attention."""

    def __init__(self, config: Config):
        super().__init__()
        self.head_dim = config.head_dim
        self.q_proj = nn.Linear(config.hidden_size, config.heads * config.head_dim)
        self.k_proj = nn.Linear(config.hidden_size, config.heads * config.head_dim)
        self.v_proj = nn.Linear(config.hidden_size, config.heads * config.head_dim)
        self.out_proj = nn.Linear(config.heads * config.head_dim, config.hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        q = split_heads(self.q_proj(x), self.head_dim)
        k = split_heads(self.k_proj(x), self.head_dim)
        v = split_heads(self.v_proj(x), self.head_dim)
        y = F.scaled_dot_product_attention(q, k, v)
        return self.out_proj(merge_heads(y))


class TextAttention(nn.Module):
    """text_model.encoder.layers.*.self_attn: self-attention with an attention mask."""

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


class VisionAttentionWithQkv(nn.Module):
    """vision_model.head.attention: cross-attention with fused query, key and value weights."""

    def __init__(self, config: Config):
        super().__init__()
        self.head_dim = config.head_dim
        self.in_proj_bias = nn.Parameter(torch.zeros(3 * config.heads * config.head_dim))
        self.in_proj_weight = nn.Parameter(
            torch.zeros(3 * config.heads * config.head_dim, config.hidden_size)
        )
        self.out_proj = nn.Linear(config.heads * config.head_dim, config.hidden_size)

    def forward(self, x: Tensor, source: Tensor) -> Tensor:
        query_bias, key_bias, value_bias = self.in_proj_bias.chunk(3)
        q_weight, k_weight, v_weight = self.in_proj_weight.chunk(3)
        q = split_heads(F.linear(x, q_weight, query_bias), self.head_dim)
        k = split_heads(F.linear(source, k_weight, key_bias), self.head_dim)
        v = split_heads(F.linear(source, v_weight, value_bias), self.head_dim)
        return self.out_proj(merge_heads(F.scaled_dot_product_attention(q, k, v)))


class VisionEmbeddings(nn.Module):
    """vision_model.embeddings: an image embedding with learned position embeddings."""

    def __init__(self, config: Config):
        super().__init__()
        self.patch_embedding = nn.Conv2d(
            config.channels, config.hidden_size, kernel_size=config.patch_size, stride=config.patch_size
        )
        self.position_embedding = nn.Embedding(config.vision_positions, config.hidden_size)

    def forward(self, pixel_values: Tensor) -> Tensor:
        patches = self.patch_embedding(pixel_values.type_as(self.patch_embedding.weight))
        x = flatten_patches(patches)
        return x + resize_positions(self.position_embedding.weight, 0, patches.shape[2], patches.shape[3])


class FeedForward(nn.Module):
    """vision_model.encoder.layers.*.mlp, vision_model.head.mlp and 1 more: feed-forward network."""

    def __init__(self, config: Config):
        super().__init__()
        self.fc1 = nn.Linear(config.hidden_size, config.intermediate_size)
        self.fc2 = nn.Linear(config.intermediate_size, config.hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(F.gelu(self.fc1(x), approximate="tanh"))


class TextEmbeddings(nn.Module):
    """text_model.embeddings: token embeddings with learned position embeddings."""

    def __init__(self, config: Config):
        super().__init__()
        self.token_embedding = nn.Embedding(config.vocab_size, config.hidden_size)
        self.position_embedding = nn.Embedding(config.text_positions, config.hidden_size)

    def forward(self, input_ids: Tensor, position_ids: Tensor | None) -> Tensor:
        x = self.token_embedding(input_ids)
        return x + self.position_embedding(position_indices(input_ids, position_ids))


class VisionLayer(nn.Module):
    """vision_model.encoder.layers.*: a layer with pre-norm, attention and a feed-forward network."""

    def __init__(self, config: Config):
        super().__init__()
        self.layer_norm1 = nn.LayerNorm(config.hidden_size, eps=config.norm_eps)
        self.self_attn = VisionAttention(config)
        self.layer_norm2 = nn.LayerNorm(config.hidden_size, eps=config.norm_eps)
        self.mlp = FeedForward(config)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.self_attn(self.layer_norm1(x))
        return x + self.mlp(self.layer_norm2(x))


class AttentionPooler(nn.Module):
    """vision_model.head: attention pooling with a learned query, and a feed-forward network after it."""

    def __init__(self, config: Config):
        super().__init__()
        self.probe = nn.Parameter(torch.zeros(1, 1, config.hidden_size))
        self.attention = VisionAttentionWithQkv(config)
        self.layernorm = nn.LayerNorm(config.hidden_size, eps=config.norm_eps)
        self.mlp = FeedForward(config)

    def forward(self, x: Tensor) -> Tensor:
        y = self.attention(self.probe.expand(x.shape[0], -1, -1), x)
        y = y + self.mlp(self.layernorm(y))
        return y[:, 0]


class TextLayer(nn.Module):
    """text_model.encoder.layers.*: a layer with pre-norm, attention and a feed-forward network."""

    def __init__(self, config: Config):
        super().__init__()
        self.layer_norm1 = nn.LayerNorm(config.hidden_size, eps=config.norm_eps)
        self.self_attn = TextAttention(config)
        self.layer_norm2 = nn.LayerNorm(config.hidden_size, eps=config.norm_eps)
        self.mlp = FeedForward(config)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        x = x + self.self_attn(self.layer_norm1(x), mask)
        return x + self.mlp(self.layer_norm2(x))


class VisionEncoder(nn.Module):
    """vision_model: a stack of layers with a final norm and attention pooling."""

    def __init__(self, config: Config):
        super().__init__()
        self.embeddings = VisionEmbeddings(config)
        self.encoder: Any = nn.ModuleDict(
            {"layers": nn.ModuleList(VisionLayer(config) for _ in range(config.vision_layers))}
        )
        self.post_layernorm = nn.LayerNorm(config.hidden_size, eps=config.norm_eps)
        self.head = AttentionPooler(config)

    def forward(self, pixel_values: Tensor) -> tuple[Tensor, Tensor]:
        x = self.embeddings(pixel_values)
        for layer in self.encoder.layers:
            x = layer(x)
        x = self.post_layernorm(x)
        return x, self.head(x)


class TextEncoder(nn.Module):
    """text_model: a stack of layers with a padding mask, a final norm and pooling and a projection."""

    def __init__(self, config: Config):
        super().__init__()
        self.embeddings = TextEmbeddings(config)
        self.encoder: Any = nn.ModuleDict(
            {"layers": nn.ModuleList(TextLayer(config) for _ in range(config.text_layers))}
        )
        self.final_layer_norm = nn.LayerNorm(config.hidden_size, eps=config.norm_eps)
        self.head = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None, position_ids: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        x = self.embeddings(input_ids, position_ids)
        mask = padding_mask(attention_mask)
        for layer in self.encoder.layers:
            x = layer(x, mask)
        x = self.final_layer_norm(x)
        return x, self.head(x[:, -1])


class Model(nn.Module):
    """The model: cosine similarity of text and image embeddings (CLIP)."""

    def __init__(self, config: Config = Config()):
        super().__init__()
        self.vision_model = VisionEncoder(config)
        self.text_model = TextEncoder(config)
        self.logit_scale = nn.Parameter(torch.zeros(1))
        self.logit_bias = nn.Parameter(torch.zeros(1))

    def forward(
        self,
        input_ids: Tensor,
        pixel_values: Tensor,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
    ) -> Output:
        """input_ids (batch, length), pixel_values (batch, channels, height, width), attention_mask (batch,
        length), position_ids (batch, length)
        """
        _, image_embeds = self.vision_model(pixel_values)
        _, text_embeds = self.text_model(input_ids, attention_mask, position_ids)
        image_embeds = F.normalize(image_embeds, dim=-1)
        text_embeds = F.normalize(text_embeds, dim=-1)
        logits = text_embeds @ image_embeds.t() * self.logit_scale.exp()
        logits = logits + self.logit_bias
        return Output(
            logits_per_image=logits.t(),
            logits_per_text=logits,
            image_embeds=image_embeds,
            text_embeds=text_embeds,
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
# {"config": {"architectures": ["SiglipModel"], "model_type": "siglip", "text_config": {"model_type":
# "siglip_text_model", "vocab_size": 32000}, "vision_config": {"model_type": "siglip_vision_model"}}, "notes":
# ["header from the bundled catalogue (reconstructed with transformers 5.23.0 from config), not from the hub",
# "evidence for its config: transformers-default"]}
# sha256 of all above: e2a94e3f703e8a6d
