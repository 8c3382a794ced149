"""patrickjohncyh/fashion-clip: written by mapper 0.1.0, rules 085fa52bb6da.

Reading: exact (family clip).
header from the bundled catalogue (reconstructed with transformers 5.23.0 from config), not from the hub
evidence for its config: recalled
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

    vision_hidden_size: int = 768  # shape: visual_projection.weight [512, 768]
    vision_heads: int = 12  # config: vision_config.num_attention_heads
    # shape and config: vision_model.encoder.layers.{0..11}.self_attn.q_proj.weight [768, 768] = heads * ...
    vision_head_dim: int = 64
    text_hidden_size: int = 512  # shape: text_projection.weight [512, 512]
    text_heads: int = 8  # config: text_config.num_attention_heads
    # shape and config: text_model.encoder.layers.{0..11}.self_attn.q_proj.weight [512, 512] = heads * ...
    text_head_dim: int = 64
    channels: int = 3  # shape: vision_model.embeddings.patch_embedding.weight [768, 3, 32, 32]
    patch_size: int = 32  # shape: vision_model.embeddings.patch_embedding.weight [768, 3, 32, 32]
    vision_positions: int = 50  # shape: vision_model.embeddings.position_embedding.weight [50, 768]
    # shape: vision_model.encoder.layers.{0..11}.mlp.fc1.weight [3072, 768]
    vision_intermediate_size: int = 3072
    text_intermediate_size: int = 2048  # shape: text_model.encoder.layers.{0..11}.mlp.fc1.weight [2048, 512]
    vocab_size: int = 49408  # shape: text_model.embeddings.token_embedding.weight [49408, 512]
    text_positions: int = 77  # shape: text_model.embeddings.position_embedding.weight [77, 512]
    vision_norm_eps: float = 1e-5  # config: vision_config.layer_norm_eps
    text_norm_eps: float = 1e-5  # config: text_config.layer_norm_eps
    vision_layers: int = 12  # name: vision_model.encoder.layers.*
    text_layers: int = 12  # name: text_model.encoder.layers.*
    projection_size: int = 512  # shape: visual_projection.weight [512, 768]


@dataclass
class Output:
    """What the model returns."""

    logits_per_image: Tensor
    logits_per_text: Tensor
    image_embeds: Tensor
    text_embeds: Tensor


torch.export.register_dataclass(Output)


def causal_mask(x: Tensor, attention_mask: Tensor | None) -> Tensor:
    """Hides later keys and padded ones. x (B, T, ...), attention_mask (B, T) or None -> (1 or B, 1, T, T)"""
    index = torch.arange(x.shape[1], device=x.device)
    mask = (index <= index[:, None])[None, None]
    return mask if attention_mask is None else mask & (attention_mask[:, None, None, :] != 0)


def flatten_patches(x: Tensor) -> Tensor:
    """Patches as a sequence, row by row. x (B, C, Y, X) -> (B, Y * X, C)"""
    return x.flatten(2).transpose(1, 2)


def merge_heads(x: Tensor) -> Tensor:
    """Joins the heads again. x (B, H, T, D) -> (B, T, H * D)"""
    return x.transpose(1, 2).flatten(2)


def position_indices(x: Tensor, position_ids: Tensor | None) -> Tensor:
    """The caller's positions, or 0, 1, 2, ... x (B, T, ...) -> (B or 1, T)"""
    return torch.arange(x.shape[1], device=x.device)[None] if position_ids is None else position_ids


def prepend_token(token: Tensor, x: Tensor) -> Tensor:
    """One learned vector before each sequence. token (..., W), x (B, T, W) -> (B, 1 + T, W)"""
    return torch.cat((token.expand(x.shape[0], 1, -1), x), dim=1)


def quick_gelu(x: Tensor) -> Tensor:
    """GELU by a sigmoid: x * sigmoid(1.702 x) (CLIP)."""
    return x * torch.sigmoid(1.702 * x)


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
        self.head_dim = config.vision_head_dim
        self.q_proj = nn.Linear(config.vision_hidden_size, config.vision_heads * config.vision_head_dim)
        self.k_proj = nn.Linear(config.vision_hidden_size, config.vision_heads * config.vision_head_dim)
        self.v_proj = nn.Linear(config.vision_hidden_size, config.vision_heads * config.vision_head_dim)
        self.out_proj = nn.Linear(config.vision_heads * config.vision_head_dim, config.vision_hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        q = split_heads(self.q_proj(x), self.head_dim)
        k = split_heads(self.k_proj(x), self.head_dim)
        v = split_heads(self.v_proj(x), self.head_dim)
        y = F.scaled_dot_product_attention(q, k, v)
        return self.out_proj(merge_heads(y))


class TextAttention(nn.Module):
    """text_model.encoder.layers.*.self_attn: self-attention with a causal mask."""

    def __init__(self, config: Config):
        super().__init__()
        self.head_dim = config.text_head_dim
        self.q_proj = nn.Linear(config.text_hidden_size, config.text_heads * config.text_head_dim)
        self.k_proj = nn.Linear(config.text_hidden_size, config.text_heads * config.text_head_dim)
        self.v_proj = nn.Linear(config.text_hidden_size, config.text_heads * config.text_head_dim)
        self.out_proj = nn.Linear(config.text_heads * config.text_head_dim, config.text_hidden_size)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        q = split_heads(self.q_proj(x), self.head_dim)
        k = split_heads(self.k_proj(x), self.head_dim)
        v = split_heads(self.v_proj(x), self.head_dim)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None)
        return self.out_proj(merge_heads(y))


class VisionEmbeddings(nn.Module):
    """vision_model.embeddings: an image embedding with a class token and learned position embeddings."""

    def __init__(self, config: Config):
        super().__init__()
        self.patch_embedding = nn.Conv2d(
            config.channels,
            config.vision_hidden_size,
            kernel_size=config.patch_size,
            stride=config.patch_size,
            bias=False,
        )
        self.class_embedding = nn.Parameter(torch.zeros(config.vision_hidden_size))
        self.position_embedding = nn.Embedding(config.vision_positions, config.vision_hidden_size)

    def forward(self, pixel_values: Tensor) -> Tensor:
        patches = self.patch_embedding(pixel_values.type_as(self.patch_embedding.weight))
        x = flatten_patches(patches)
        x = prepend_token(self.class_embedding, x)
        return x + resize_positions(self.position_embedding.weight, 1, patches.shape[2], patches.shape[3])


class FeedForward(nn.Module):
    """vision_model.encoder.layers.*.mlp, text_model.encoder.layers.*.mlp: feed-forward network."""

    def __init__(self, hidden_size: int, intermediate_size: int):
        super().__init__()
        self.fc1 = nn.Linear(hidden_size, intermediate_size)
        self.fc2 = nn.Linear(intermediate_size, hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(quick_gelu(self.fc1(x)))


class TextEmbeddings(nn.Module):
    """text_model.embeddings: token embeddings with learned position embeddings."""

    def __init__(self, config: Config):
        super().__init__()
        self.token_embedding = nn.Embedding(config.vocab_size, config.text_hidden_size)
        self.position_embedding = nn.Embedding(config.text_positions, config.text_hidden_size)

    def forward(self, input_ids: Tensor, position_ids: Tensor | None) -> Tensor:
        x = self.token_embedding(input_ids)
        return x + self.position_embedding(position_indices(input_ids, position_ids))


class VisionLayer(nn.Module):
    """vision_model.encoder.layers.*: a layer with pre-norm, attention and a feed-forward network."""

    def __init__(self, config: Config):
        super().__init__()
        self.layer_norm1 = nn.LayerNorm(config.vision_hidden_size, eps=config.vision_norm_eps)
        self.self_attn = VisionAttention(config)
        self.layer_norm2 = nn.LayerNorm(config.vision_hidden_size, eps=config.vision_norm_eps)
        self.mlp = FeedForward(
            hidden_size=config.vision_hidden_size, intermediate_size=config.vision_intermediate_size
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.self_attn(self.layer_norm1(x))
        return x + self.mlp(self.layer_norm2(x))


class TextLayer(nn.Module):
    """text_model.encoder.layers.*: a layer with pre-norm, attention and a feed-forward network."""

    def __init__(self, config: Config):
        super().__init__()
        self.layer_norm1 = nn.LayerNorm(config.text_hidden_size, eps=config.text_norm_eps)
        self.self_attn = TextAttention(config)
        self.layer_norm2 = nn.LayerNorm(config.text_hidden_size, eps=config.text_norm_eps)
        self.mlp = FeedForward(
            hidden_size=config.text_hidden_size, intermediate_size=config.text_intermediate_size
        )

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        x = x + self.self_attn(self.layer_norm1(x), mask)
        return x + self.mlp(self.layer_norm2(x))


class VisionEncoder(nn.Module):
    """vision_model: a stack of layers with a norm before the layers, pooling and a norm after it."""

    def __init__(self, config: Config):
        super().__init__()
        self.embeddings = VisionEmbeddings(config)
        self.pre_layrnorm = nn.LayerNorm(config.vision_hidden_size, eps=config.vision_norm_eps)
        self.encoder: Any = nn.ModuleDict(
            {"layers": nn.ModuleList(VisionLayer(config) for _ in range(config.vision_layers))}
        )
        self.post_layernorm = nn.LayerNorm(config.vision_hidden_size, eps=config.vision_norm_eps)

    def forward(self, pixel_values: Tensor) -> tuple[Tensor, Tensor]:
        x = self.pre_layrnorm(self.embeddings(pixel_values))
        for layer in self.encoder.layers:
            x = layer(x)
        return x, self.post_layernorm(x[:, 0])


class TextEncoder(nn.Module):
    """text_model: a stack of layers with a causal mask, a final norm and pooling."""

    def __init__(self, config: Config):
        super().__init__()
        self.embeddings = TextEmbeddings(config)
        self.encoder: Any = nn.ModuleDict(
            {"layers": nn.ModuleList(TextLayer(config) for _ in range(config.text_layers))}
        )
        self.final_layer_norm = nn.LayerNorm(config.text_hidden_size, eps=config.text_norm_eps)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None, position_ids: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        x = self.embeddings(input_ids, position_ids)
        mask = None if attention_mask is None else causal_mask(x, attention_mask)
        for layer in self.encoder.layers:
            x = layer(x, mask)
        x = self.final_layer_norm(x)
        return x, self.pooling(x, input_ids)

    def pooling(self, x: Tensor, input_ids: Tensor) -> Tensor:
        return x[torch.arange(x.shape[0], device=x.device), input_ids.argmax(dim=-1)]


class Model(nn.Module):
    """The model: cosine similarity of text and image embeddings (CLIP)."""

    def __init__(self, config: Config = Config()):
        super().__init__()
        self.vision_model = VisionEncoder(config)
        self.text_model = TextEncoder(config)
        self.visual_projection = nn.Linear(config.vision_hidden_size, config.projection_size, bias=False)
        self.text_projection = nn.Linear(config.text_hidden_size, config.projection_size, bias=False)
        self.logit_scale = nn.Parameter(torch.zeros(()))

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
        image_embeds = self.visual_projection(image_embeds)
        text_embeds = self.text_projection(text_embeds)
        image_embeds = F.normalize(image_embeds, dim=-1)
        text_embeds = F.normalize(text_embeds, dim=-1)
        logits = text_embeds @ image_embeds.t() * self.logit_scale.exp()
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
# {"config": {"architectures": ["CLIPModel"], "model_type": "clip", "text_config": {"eos_token_id": 2,
# "hidden_act": "quick_gelu", "hidden_size": 512, "intermediate_size": 2048, "layer_norm_eps": 1e-05,
# "max_position_embeddings": 77, "model_type": "clip_text_model", "num_attention_heads": 8,
# "num_hidden_layers": 12, "vocab_size": 49408}, "vision_config": {"hidden_act": "quick_gelu", "hidden_size":
# 768, "intermediate_size": 3072, "layer_norm_eps": 1e-05, "model_type": "clip_vision_model",
# "num_attention_heads": 12, "num_hidden_layers": 12, "patch_size": 32}}, "notes": ["header from the bundled
# catalogue (reconstructed with transformers 5.23.0 from config), not from the hub", "evidence for its config:
# recalled"]}
# sha256 of all above: 16f09c4628c81883
