"""HuggingFaceTB/SmolVLM2-256M-Video-Instruct: written by mapper 0.1.0, rules 085fa52bb6da.

Reading: exact (family idefics3).
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

    vision_hidden_size: int = 768  # shape: model.vision_model.post_layernorm.weight [768]
    vision_heads: int = 12  # config: vision_config.num_attention_heads
    # shape and config: model.vision_model.encoder.layers.{0..11}.self_attn.q_proj.weight [768, 768] = ...
    vision_head_dim: int = 64
    text_hidden_size: int = 576  # shape: lm_head.weight [49280, 576]
    text_heads: int = 9  # config: text_config.num_attention_heads
    # shape and config: model.text_model.layers.{0..29}.self_attn.q_proj.weight [576, 576] = heads * head_dim
    text_head_dim: int = 64
    # shape and config: model.text_model.layers.{0..29}.self_attn.k_proj.weight [192, 576] = kv_heads * ...
    kv_heads: int = 3
    # shape: model.text_model.layers.{0..29}.mlp.gate_proj.weight [1536, 576]
    text_intermediate_size: int = 1536
    channels: int = 3  # shape: model.vision_model.embeddings.patch_embedding.weight [768, 3, 16, 16]
    patch_size: int = 16  # shape: model.vision_model.embeddings.patch_embedding.weight [768, 3, 16, 16]
    positions: int = 1024  # shape: model.vision_model.embeddings.position_embedding.weight [1024, 768]
    # shape: model.vision_model.encoder.layers.{0..11}.mlp.fc1.weight [3072, 768]
    vision_intermediate_size: int = 3072
    input_size: int = 12288  # shape: model.connector.modality_projection.proj.weight [576, 12288]
    factor: int = 4  # config: scale_factor
    # default: vision_config.layer_norm_eps, left out: the default of smolvlm_vision
    vision_norm_eps: float = 1e-6
    text_norm_eps: float = 1e-5  # config: text_config.rms_norm_eps
    vision_layers: int = 12  # name: model.vision_model.encoder.layers.*
    vocab_size: int = 49280  # shape: lm_head.weight [49280, 576]
    text_layers: int = 30  # name: model.text_model.layers.*
    features_image_id: int = 49190  # config: image_token_id
    rotary_base: int = 100000  # config: text_config.rope_theta


@dataclass
class Output:
    """What the model returns."""

    logits: Tensor
    last_hidden_state: Tensor
    image_hidden_states: Tensor | None


torch.export.register_dataclass(Output)


def apply_rotary(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotates channel i with channel i + D / 2. x (B, H, T, D), cos and sin (B, 1, T, D / 2)"""
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


def attend(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float | None = None, is_causal: bool = False
) -> Tensor:
    """Scaled dot-product attention of grouped queries; the scale is 1 / sqrt(D) if None.

    q (B, H, T, D), k, v (B, K, S, D) -> (B, H, T, D)
    """
    if mask is not None and q.is_cuda:  # its fast kernels share heads only without a mask
        k, v = (part.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for part in (k, v))
    shared = k.shape[1] != q.shape[1]
    return F.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, is_causal=is_causal, scale=scale, enable_gqa=shared
    )


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


def padding_mask(attention_mask: Tensor | None) -> Tensor | None:
    """Hides padded keys from every query; None hides nothing. attention_mask (B, S) -> (B, 1, 1, S)"""
    return None if attention_mask is None else attention_mask[:, None, None, :] != 0


def position_indices(x: Tensor, position_ids: Tensor | None) -> Tensor:
    """The caller's positions, or 0, 1, 2, ... x (B, T, ...) -> (B or 1, T)"""
    return torch.arange(x.shape[1], device=x.device)[None] if position_ids is None else position_ids


def real_patches(pixels: Tensor, mask: Tensor | None, side: int, whole: bool) -> Tensor | None:
    """Which patches of the real images are read: those all of whose pixels are, or else any of them.

    pixels (B, N, C, Y, X), mask (B, N, Y, X), 1 where a pixel is read -> (images, Y / side, X / side)
    """
    if mask is None:
        return None
    masks = mask.flatten(0, 1)[(pixels != 0).flatten(2).any(dim=2).flatten()]
    squares = masks.unfold(1, side, side).unfold(2, side, side).bool().flatten(3)
    return squares.all(dim=3) if whole else squares.any(dim=3)


def rotary_frequencies(positions: Tensor, rotary_dim: int, base: float) -> Tensor:
    """Angle per position of each pair of channels. -> (R / 2,) on the device of positions"""
    index = torch.arange(0, rotary_dim, 2, device=positions.device)
    return 1.0 / base ** (index.float() / rotary_dim)


def rotary_tables(x: Tensor, positions: Tensor, frequencies: Tensor) -> tuple[Tensor, Tensor]:
    """Cosine and sine of every angle, in the dtype of x. positions (B, T) -> two (B, 1, T, R / 2)"""
    angles = positions[:, None, :, None].float() * frequencies
    return angles.cos().to(x.dtype), angles.sin().to(x.dtype)


def scatter_features(x: Tensor, features: Tensor | None, input_ids: Tensor, place_id: int) -> Tensor:
    """Embeddings x (B, T, W) with features (..., W) where input_ids (B, T) are place_id, in order.

    Without features, or places, the embeddings stay. ValueError if there is not one vector (W,) a place.
    """
    if features is None:
        return x
    places = input_ids == place_id
    if not torch.compiler.is_compiling():  # a graph has no branches
        count, width = int(places.sum()), x.shape[-1]
        if count and count * width != features.numel():
            raise ValueError(f"{count} places of width {width} for features {tuple(features.shape)}")
    return x.masked_scatter(places.unsqueeze(-1), features.to(x.dtype))


def shuffle_patches(x: Tensor, factor: int) -> Tensor:
    """Squares of factor x factor patches, one vector. (B, S * S, W) -> (B, (S / factor)^2, W * factor^2)"""
    side = math.isqrt(x.shape[1])
    squares = x.unflatten(1, (side // factor, factor, side // factor, factor))
    return squares.permute(0, 1, 3, 2, 4, 5).flatten(3).flatten(1, 2)


def split_heads(x: Tensor, head_dim: int) -> Tensor:
    """Splits a projection into heads. x (B, T, H * D) -> (B, H, T, D)"""
    return x.unflatten(-1, (-1, head_dim)).transpose(1, 2)


def spread_patches(seen: Tensor, side: int) -> Tensor:
    """Places on a line of `side` for those of a line of another length, of which seen (B, T) are read."""
    edges = torch.arange(1 / side, 1.0, 1 / side, device=seen.device)
    step = 1.0 / seen.sum(dim=1, keepdim=True)
    shares = torch.arange(seen.shape[1], device=seen.device).float() * step
    return torch.bucketize(shares.clamp(max=1.0 - 1e-6), edges, right=True)


def spread_positions(table: Tensor, patches: Tensor, seen: Tensor | None) -> Tensor:
    """Learned places of a square image for an image of any shape: those on which its patches would fall.

    table (N * N, W), patches (B, W, Y, X), seen (B, Y, X): the patches of an image, the rest is padding
    -> (B, Y * X, W)
    """
    side = math.isqrt(table.shape[0])
    if seen is None:
        seen = torch.ones_like(patches[:, 0], dtype=torch.bool)
    rows = spread_patches(seen[:, :, 0], side)
    columns = spread_patches(seen[:, 0], side)
    places = rows[:, :, None] * side + columns[:, None]
    return F.embedding(torch.where(seen, places, 0).flatten(1), table)


class VisionAttention(nn.Module):
    """model.vision_model.encoder.layers.*.self_attn: self-attention with an attention mask."""

    def __init__(self, config: Config):
        super().__init__()
        self.head_dim = config.vision_head_dim
        self.q_proj = nn.Linear(config.vision_hidden_size, config.vision_heads * config.vision_head_dim)
        self.k_proj = nn.Linear(config.vision_hidden_size, config.vision_heads * config.vision_head_dim)
        self.v_proj = nn.Linear(config.vision_hidden_size, config.vision_heads * config.vision_head_dim)
        self.out_proj = nn.Linear(config.vision_heads * config.vision_head_dim, config.vision_hidden_size)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        q = split_heads(self.q_proj(x), self.head_dim)
        k = split_heads(self.k_proj(x), self.head_dim)
        v = split_heads(self.v_proj(x), self.head_dim)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.out_proj(merge_heads(y))


class TextAttention(nn.Module):
    """model.text_model.layers.*.self_attn: self-attention with rotary embeddings and a causal mask."""

    def __init__(self, config: Config):
        super().__init__()
        self.head_dim = config.text_head_dim
        self.q_proj = nn.Linear(config.text_hidden_size, config.text_heads * config.text_head_dim, bias=False)
        self.k_proj = nn.Linear(config.text_hidden_size, config.kv_heads * config.text_head_dim, bias=False)
        self.v_proj = nn.Linear(config.text_hidden_size, config.kv_heads * config.text_head_dim, bias=False)
        self.o_proj = nn.Linear(config.text_heads * config.text_head_dim, config.text_hidden_size, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None) -> Tensor:
        q = split_heads(self.q_proj(x), self.head_dim)
        k = split_heads(self.k_proj(x), self.head_dim)
        v = split_heads(self.v_proj(x), self.head_dim)
        q = apply_rotary(q, cos, sin)
        k = apply_rotary(k, cos, sin)
        y = attend(q, k, v, mask, is_causal=mask is None)
        return self.o_proj(merge_heads(y))


class TextFeedForward(nn.Module):
    """model.text_model.layers.*.mlp: feed-forward network with a gate (GLU)."""

    def __init__(self, config: Config):
        super().__init__()
        self.gate_proj = nn.Linear(config.text_hidden_size, config.text_intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.text_hidden_size, config.text_intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.text_intermediate_size, config.text_hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Embeddings(nn.Module):
    """model.vision_model.embeddings: patch embeddings with learned position embeddings by fractional
    coordinates.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.patch_embedding = nn.Conv2d(
            config.channels,
            config.vision_hidden_size,
            kernel_size=config.patch_size,
            stride=config.patch_size,
        )
        self.position_embedding = nn.Embedding(config.positions, config.vision_hidden_size)

    def forward(self, pixel_values: Tensor, patch_attention_mask: Tensor | None) -> Tensor:
        patches = self.patch_embedding(pixel_values.type_as(self.patch_embedding.weight))
        return flatten_patches(patches) + spread_positions(
            self.position_embedding.weight, patches, patch_attention_mask
        )


class VisionFeedForward(nn.Module):
    """model.vision_model.encoder.layers.*.mlp: feed-forward network."""

    def __init__(self, config: Config):
        super().__init__()
        self.fc1 = nn.Linear(config.vision_hidden_size, config.vision_intermediate_size)
        self.fc2 = nn.Linear(config.vision_intermediate_size, config.vision_hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(F.gelu(self.fc1(x), approximate="tanh"))


class Projector(nn.Module):
    """model.connector.modality_projection: projector with pixel shuffle and a linear layer."""

    def __init__(self, config: Config):
        super().__init__()
        self.projector_factor = config.factor
        self.proj = nn.Linear(config.input_size, config.text_hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.proj(shuffle_patches(x, self.projector_factor))


class VisionLayer(nn.Module):
    """model.vision_model.encoder.layers.*: a layer with pre-norm, attention and a feed-forward network."""

    def __init__(self, config: Config):
        super().__init__()
        self.layer_norm1 = nn.LayerNorm(config.vision_hidden_size, eps=config.vision_norm_eps)
        self.self_attn = VisionAttention(config)
        self.layer_norm2 = nn.LayerNorm(config.vision_hidden_size, eps=config.vision_norm_eps)
        self.mlp = VisionFeedForward(config)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        x = x + self.self_attn(self.layer_norm1(x), mask)
        return x + self.mlp(self.layer_norm2(x))


class TextLayer(nn.Module):
    """model.text_model.layers.*: a layer with pre-norm, attention and a feed-forward network."""

    def __init__(self, config: Config):
        super().__init__()
        self.input_layernorm = nn.RMSNorm(config.text_hidden_size, eps=config.text_norm_eps)
        self.self_attn = TextAttention(config)
        self.post_attention_layernorm = nn.RMSNorm(config.text_hidden_size, eps=config.text_norm_eps)
        self.mlp = TextFeedForward(config)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), cos, sin, mask)
        return x + self.mlp(self.post_attention_layernorm(x))


class Encoder(nn.Module):
    """model.vision_model: a stack of layers with a padding mask of the patches and a final norm."""

    def __init__(self, config: Config):
        super().__init__()
        self.embeddings = Embeddings(config)
        self.encoder: Any = nn.ModuleDict(
            {"layers": nn.ModuleList(VisionLayer(config) for _ in range(config.vision_layers))}
        )
        self.post_layernorm = nn.LayerNorm(config.vision_hidden_size, eps=config.vision_norm_eps)

    def forward(self, pixel_values: Tensor, patch_attention_mask: Tensor | None) -> Tensor:
        x = self.embeddings(pixel_values, patch_attention_mask)
        seen = None
        if patch_attention_mask is not None:
            seen = patch_attention_mask.flatten(1)
        mask = padding_mask(seen)
        for layer in self.encoder.layers:
            x = layer(x, mask)
        return self.post_layernorm(x)


class Decoder(nn.Module):
    """model.text_model: a stack of layers with a causal mask, rotary embeddings and a final norm."""

    def __init__(self, config: Config):
        super().__init__()
        self.features_image_id = config.features_image_id
        self.rotary_dim = config.text_head_dim
        self.rotary_base = config.rotary_base
        self.embed_tokens = nn.Embedding(config.vocab_size, config.text_hidden_size)
        self.layers = nn.ModuleList(TextLayer(config) for _ in range(config.text_layers))
        self.norm = nn.RMSNorm(config.text_hidden_size, eps=config.text_norm_eps)

    def forward(
        self,
        input_ids: Tensor,
        image_features: Tensor | None,
        attention_mask: Tensor | None,
        position_ids: Tensor | None,
    ) -> Tensor:
        x = scatter_features(self.embed_tokens(input_ids), image_features, input_ids, self.features_image_id)
        mask = None if attention_mask is None else causal_mask(x, attention_mask)
        cos, sin = self.rotary(x, position_indices(x, position_ids))
        for layer in self.layers:
            x = layer(x, cos, sin, mask)
        return self.norm(x)

    def rotary(self, x: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        return rotary_tables(x, positions, rotary_frequencies(positions, self.rotary_dim, self.rotary_base))


class Model(nn.Module):
    """The model with features of several images among the word embeddings and a language modeling head."""

    def __init__(self, config: Config = Config()):
        super().__init__()
        self.patch_size = config.patch_size
        self.model: Any = nn.ModuleDict(
            {
                "vision_model": Encoder(config),
                "connector": nn.ModuleDict({"modality_projection": Projector(config)}),
                "text_model": Decoder(config),
            }
        )
        self.lm_head = nn.Linear(config.text_hidden_size, config.vocab_size, bias=False)

    def forward(
        self,
        input_ids: Tensor,
        pixel_values: Tensor | None = None,
        pixel_attention_mask: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
    ) -> Output:
        """input_ids (batch, length), pixel_values (batch, images, 3, height, width), pixel_attention_mask
        (batch, images, height, width), attention_mask (batch, length), position_ids (batch, length)
        """
        seen = None
        if pixel_values is not None:
            seen = real_patches(pixel_values, pixel_attention_mask, self.patch_size, False)
        image_features = None
        if pixel_values is not None:
            images = pixel_values.flatten(0, 1)
            real = images[(images != 0).flatten(1).any(dim=1)]
            found = self.model.connector.modality_projection(self.model.vision_model(real, seen))
            image_features = found.flatten(0, 1)
        x = self.model.text_model(input_ids, image_features, attention_mask, position_ids)
        logits = self.lm_head(x)
        return Output(logits=logits, last_hidden_state=x, image_hidden_states=image_features)


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
# {"config": {"architectures": ["SmolVLMForConditionalGeneration"], "image_token_id": 49190, "model_type":
# "smolvlm", "scale_factor": 4, "text_config": {"architectures": ["VLlama3ForCausalLM"], "head_dim": 64,
# "hidden_size": 576, "intermediate_size": 1536, "model_type": "llama", "num_attention_heads": 9,
# "num_hidden_layers": 30, "num_key_value_heads": 3, "perceiver_config": {"model_type": "vllama3"},
# "rms_norm_eps": 1e-05, "rope_theta": 100000, "vocab_size": 49280}, "tie_word_embeddings": false,
# "vision_config": {"hidden_size": 768, "model_type": "smolvlm_vision", "num_attention_heads": 12,
# "patch_size": 16}, "vocab_size": 49280}, "notes": ["header from the bundled catalogue (reconstructed with
# transformers 5.23.0 from config), not from the hub", "evidence for its config: recalled"]}
# sha256 of all above: 2a9701a4871ec58e
