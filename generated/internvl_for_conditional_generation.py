"""OpenGVLab/InternVL3-1B-hf: written by mapper 0.1.0, rules 085fa52bb6da.

Reading: exact (family qianfan_ocr).
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

    # shape: vision_tower.embeddings.patch_embeddings.projection.weight [1024, 3, 14, 14]
    vision_hidden_size: int = 1024
    vision_heads: int = 16  # config: vision_config.num_attention_heads
    # shape and config: vision_tower.encoder.layer.{0..23}.attention.q_proj.weight [1024, 1024] = heads * ...
    vision_head_dim: int = 64
    text_hidden_size: int = 896  # shape: language_model.lm_head.weight [151674, 896]
    text_heads: int = 14  # config: text_config.num_attention_heads
    # shape and config: language_model.model.layers.{0..23}.self_attn.q_proj.weight [896, 896] = heads * ...
    text_head_dim: int = 64
    # shape and config: language_model.model.layers.{0..23}.self_attn.k_proj.weight [128, 896] = kv_heads ...
    kv_heads: int = 2
    channels: int = 3  # shape: vision_tower.embeddings.patch_embeddings.projection.weight [1024, 3, 14, 14]
    # shape: vision_tower.embeddings.patch_embeddings.projection.weight [1024, 3, 14, 14]
    patch_size: int = 14
    positions: int = 1025  # shape: vision_tower.embeddings.position_embeddings [1, 1025, 1024]
    input_size: int = 4096  # shape: multi_modal_projector.layer_norm.weight [4096]
    projector_size: int = 896  # shape: multi_modal_projector.linear_1.weight [896, 4096]
    factor: int = 2  # rule: families/qianfan_ocr.yaml: floor(1 / projector.ratio)
    # shape: language_model.model.layers.{0..23}.mlp.gate_proj.weight [4864, 896]
    text_intermediate_size: int = 4864
    # shape: vision_tower.encoder.layer.{0..23}.mlp.fc1.weight [4096, 1024]
    vision_intermediate_size: int = 4096
    vision_norm_eps: float = 1e-6  # config: vision_config.layer_norm_eps
    text_norm_eps: float = 1e-6  # config: text_config.rms_norm_eps
    vocab_size: int = 151674  # shape: language_model.lm_head.weight [151674, 896]
    text_layers: int = 24  # name: language_model.model.layers.*
    features_image_id: int = 151667  # config: image_token_id
    rotary_base: float = 1000000.0  # config: text_config.rope_theta
    rotary_factor: float = 2.0  # config: text_config.rope_scaling.factor
    rotary_max_positions: int = 32768  # config: text_config.max_position_embeddings
    vision_layers: int = 24  # name: vision_tower.encoder.layer.*
    features_layer: int = -1  # config: vision_feature_layer


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


def position_indices(x: Tensor, position_ids: Tensor | None) -> Tensor:
    """The caller's positions, or 0, 1, 2, ... x (B, T, ...) -> (B or 1, T)"""
    return torch.arange(x.shape[1], device=x.device)[None] if position_ids is None else position_ids


def prepend_token(token: Tensor, x: Tensor) -> Tensor:
    """One learned vector before each sequence. token (..., W), x (B, T, W) -> (B, 1 + T, W)"""
    return torch.cat((token.expand(x.shape[0], 1, -1), x), dim=1)


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


def rotary_frequencies_dynamic(
    positions: Tensor, rotary_dim: int, base: float, factor: float, max_positions: int
) -> Tensor:
    """Frequencies whose base grows with a sequence longer than max_positions (type dynamic). -> (R / 2,)"""
    length = (positions.max() + 1).clamp(min=max_positions)
    growth = (factor * length / max_positions - (factor - 1)) ** (rotary_dim / (rotary_dim - 2))
    index = torch.arange(0, rotary_dim, 2, device=positions.device)
    return 1.0 / (base * growth) ** (index.float() / rotary_dim)


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


class VisionAttention(nn.Module):
    """vision_tower.encoder.layer.*.attention: self-attention."""

    def __init__(self, config: Config):
        super().__init__()
        self.head_dim = config.vision_head_dim
        self.q_proj = nn.Linear(config.vision_hidden_size, config.vision_heads * config.vision_head_dim)
        self.k_proj = nn.Linear(config.vision_hidden_size, config.vision_heads * config.vision_head_dim)
        self.v_proj = nn.Linear(config.vision_hidden_size, config.vision_heads * config.vision_head_dim)
        self.projection_layer = nn.Linear(
            config.vision_heads * config.vision_head_dim, config.vision_hidden_size
        )

    def forward(self, x: Tensor) -> Tensor:
        q = split_heads(self.q_proj(x), self.head_dim)
        k = split_heads(self.k_proj(x), self.head_dim)
        v = split_heads(self.v_proj(x), self.head_dim)
        y = F.scaled_dot_product_attention(q, k, v)
        return self.projection_layer(merge_heads(y))


class TextAttention(nn.Module):
    """language_model.model.layers.*.self_attn: self-attention with rotary embeddings and a causal mask."""

    def __init__(self, config: Config):
        super().__init__()
        self.head_dim = config.text_head_dim
        self.q_proj = nn.Linear(config.text_hidden_size, config.text_heads * config.text_head_dim)
        self.k_proj = nn.Linear(config.text_hidden_size, config.kv_heads * config.text_head_dim)
        self.v_proj = nn.Linear(config.text_hidden_size, config.kv_heads * config.text_head_dim)
        self.o_proj = nn.Linear(config.text_heads * config.text_head_dim, config.text_hidden_size, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None) -> Tensor:
        q = split_heads(self.q_proj(x), self.head_dim)
        k = split_heads(self.k_proj(x), self.head_dim)
        v = split_heads(self.v_proj(x), self.head_dim)
        q = apply_rotary(q, cos, sin)
        k = apply_rotary(k, cos, sin)
        y = attend(q, k, v, mask, is_causal=mask is None)
        return self.o_proj(merge_heads(y))


class Embeddings(nn.Module):
    """vision_tower.embeddings: an image embedding with a class token and learned position embeddings."""

    def __init__(self, config: Config):
        super().__init__()
        self.patch_embeddings: Any = nn.ModuleDict(
            {
                "projection": nn.Conv2d(
                    config.channels,
                    config.vision_hidden_size,
                    kernel_size=config.patch_size,
                    stride=config.patch_size,
                )
            }
        )
        self.cls_token = nn.Parameter(torch.zeros(1, 1, config.vision_hidden_size))
        self.position_embeddings = nn.Parameter(torch.zeros(1, config.positions, config.vision_hidden_size))

    def forward(self, pixel_values: Tensor) -> Tensor:
        patches = self.patch_embeddings.projection(
            pixel_values.type_as(self.patch_embeddings.projection.weight)
        )
        x = flatten_patches(patches)
        x = prepend_token(self.cls_token, x)
        return x + resize_positions(self.position_embeddings, 1, patches.shape[2], patches.shape[3])


class Projector(nn.Module):
    """multi_modal_projector: projector with pixel shuffle, a norm and two linear layers around an
    activation.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.projector_factor = config.factor
        self.layer_norm = nn.LayerNorm(config.input_size)
        self.linear_1 = nn.Linear(config.input_size, config.projector_size)
        self.linear_2 = nn.Linear(config.projector_size, config.text_hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        x = self.layer_norm(shuffle_patches(x, self.projector_factor))
        return self.linear_2(F.gelu(self.linear_1(x)))


class TextFeedForward(nn.Module):
    """language_model.model.layers.*.mlp: feed-forward network with a gate (GLU)."""

    def __init__(self, config: Config):
        super().__init__()
        self.gate_proj = nn.Linear(config.text_hidden_size, config.text_intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.text_hidden_size, config.text_intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.text_intermediate_size, config.text_hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class VisionFeedForward(nn.Module):
    """vision_tower.encoder.layer.*.mlp: feed-forward network."""

    def __init__(self, config: Config):
        super().__init__()
        self.fc1 = nn.Linear(config.vision_hidden_size, config.vision_intermediate_size)
        self.fc2 = nn.Linear(config.vision_intermediate_size, config.vision_hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(F.gelu(self.fc1(x)))


class VisionLayer(nn.Module):
    """vision_tower.encoder.layer.*: a layer with pre-norm, attention, layer scale and a feed-forward
    network.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.layernorm_before = nn.LayerNorm(config.vision_hidden_size, eps=config.vision_norm_eps)
        self.attention = VisionAttention(config)
        self.lambda_1 = nn.Parameter(torch.zeros(config.vision_hidden_size))
        self.layernorm_after = nn.LayerNorm(config.vision_hidden_size, eps=config.vision_norm_eps)
        self.mlp = VisionFeedForward(config)
        self.lambda_2 = nn.Parameter(torch.zeros(config.vision_hidden_size))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.layernorm_before(x)) * self.lambda_1
        return x + self.mlp(self.layernorm_after(x)) * self.lambda_2


class TextLayer(nn.Module):
    """language_model.model.layers.*: a layer with pre-norm, attention and a feed-forward network."""

    def __init__(self, config: Config):
        super().__init__()
        self.input_layernorm = nn.RMSNorm(config.text_hidden_size, eps=config.text_norm_eps)
        self.self_attn = TextAttention(config)
        self.post_attention_layernorm = nn.RMSNorm(config.text_hidden_size, eps=config.text_norm_eps)
        self.mlp = TextFeedForward(config)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), cos, sin, mask)
        return x + self.mlp(self.post_attention_layernorm(x))


class Decoder(nn.Module):
    """language_model.model: a stack of layers with a causal mask, rotary embeddings and a final norm."""

    def __init__(self, config: Config):
        super().__init__()
        self.features_image_id = config.features_image_id
        self.rotary_dim = config.text_head_dim
        self.rotary_base = config.rotary_base
        self.rotary_factor = config.rotary_factor
        self.rotary_max_positions = config.rotary_max_positions
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
        frequencies = rotary_frequencies_dynamic(
            positions, self.rotary_dim, self.rotary_base, self.rotary_factor, self.rotary_max_positions
        )
        return rotary_tables(x, positions, frequencies)


class Encoder(nn.Module):
    """vision_tower: a stack of layers with the states after each layer."""

    def __init__(self, config: Config):
        super().__init__()
        self.embeddings = Embeddings(config)
        self.encoder: Any = nn.ModuleDict(
            {"layer": nn.ModuleList(VisionLayer(config) for _ in range(config.vision_layers))}
        )

    def forward(self, pixel_values: Tensor) -> list[Tensor]:
        x = self.embeddings(pixel_values)
        states = [x]
        for layer in self.encoder.layer:
            x = layer(x)
            states.append(x)
        return states


class Model(nn.Module):
    """The model with image features among the word embeddings and a language modeling head."""

    def __init__(self, config: Config = Config()):
        super().__init__()
        self.features_layer = config.features_layer
        self.vision_tower = Encoder(config)
        self.multi_modal_projector = Projector(config)
        self.language_model: Any = nn.ModuleDict(
            {
                "model": Decoder(config),
                "lm_head": nn.Linear(config.text_hidden_size, config.vocab_size, bias=False),
            }
        )
        self.to(torch.bfloat16)

    def forward(
        self,
        input_ids: Tensor,
        pixel_values: Tensor | None = None,
        image_sizes: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
    ) -> Output:
        """input_ids (batch, length), pixel_values (batch, channels, height, width), image_sizes (batch,
        2), attention_mask (batch, length), position_ids (batch, length); image_sizes is not read
        """
        image_features = None
        if pixel_values is not None:
            image_features = self.multi_modal_projector(
                self.vision_tower(pixel_values)[self.features_layer][:, 1:]
            )
        x = self.language_model.model(input_ids, image_features, attention_mask, position_ids)
        logits = self.language_model.lm_head(x)
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
# {"config": {"architectures": ["InternVLForConditionalGeneration"], "downsample_ratio": 0.5,
# "image_token_id": 151667, "model_type": "internvl", "projector_hidden_act": "gelu", "text_config":
# {"architectures": ["Qwen2ForCausalLM"], "hidden_act": "silu", "hidden_size": 896, "intermediate_size": 4864,
# "max_position_embeddings": 32768, "max_window_layers": 70, "model_type": "qwen2", "num_attention_heads": 14,
# "num_hidden_layers": 24, "num_key_value_heads": 2, "rms_norm_eps": 1e-06, "rope_scaling": {"factor": 2.0,
# "rope_type": "dynamic", "type": "dynamic"}, "rope_theta": 1000000.0, "sliding_window": null,
# "use_sliding_window": false, "vocab_size": 151674}, "tie_word_embeddings": false, "vision_config":
# {"architectures": ["InternVisionModel"], "attention_bias": true, "hidden_act": "gelu", "hidden_size": 1024,
# "intermediate_size": 4096, "layer_norm_eps": 1e-06, "model_type": "internvl_vision", "num_attention_heads":
# 16, "num_channels": 3, "num_hidden_layers": 24, "patch_size": [14, 14], "use_absolute_position_embeddings":
# true, "use_mean_pooling": true}, "vision_feature_layer": -1, "vision_feature_select_strategy": "default"},
# "notes": ["header from the bundled catalogue (reconstructed with transformers 5.23.0 from config), not from
# the hub", "evidence for its config: recalled"]}
# sha256 of all above: 2e42f040c19e234a
