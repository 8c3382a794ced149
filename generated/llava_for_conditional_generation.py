"""llava-hf/llava-1.5-7b-hf: written by mapper 0.1.0, rules 085fa52bb6da.

Reading: exact (family llava).
header from the bundled catalogue (reconstructed with transformers 5.23.0 from config), not from the hub
evidence for its config: recalled
about this header: the transformers docstring names this repository, but the defaults differ in
text_config.vocab_size, text_config.max_position_embeddings
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

    vision_hidden_size: int = 1024  # shape: vision_tower.vision_model.pre_layrnorm.weight [1024]
    vision_heads: int = 16  # config: vision_config.num_attention_heads
    # shape and config: vision_tower.vision_model.encoder.layers.{0..23}.self_attn.q_proj.weight [1024, ...
    vision_head_dim: int = 64
    text_hidden_size: int = 4096  # shape: language_model.lm_head.weight [32064, 4096]
    text_heads: int = 32  # config: text_config.num_attention_heads
    # shape and config: language_model.model.layers.{0..31}.self_attn.q_proj.weight [4096, 4096] = heads ...
    text_head_dim: int = 128
    channels: int = 3  # shape: vision_tower.vision_model.embeddings.patch_embedding.weight [1024, 3, 14, 14]
    # shape: vision_tower.vision_model.embeddings.patch_embedding.weight [1024, 3, 14, 14]
    patch_size: int = 14
    positions: int = 577  # shape: vision_tower.vision_model.embeddings.position_embedding.weight [577, 1024]
    # shape: language_model.model.layers.{0..31}.mlp.gate_proj.weight [11008, 4096]
    text_intermediate_size: int = 11008
    # shape: vision_tower.vision_model.encoder.layers.{0..23}.mlp.fc1.weight [4096, 1024]
    vision_intermediate_size: int = 4096
    projector_size: int = 4096  # shape: multi_modal_projector.linear_1.weight [4096, 1024]
    norm_eps: float = 1e-5  # config: text_config.rms_norm_eps
    vision_layers: int = 24  # name: vision_tower.vision_model.encoder.layers.*
    vocab_size: int = 32064  # shape: language_model.lm_head.weight [32064, 4096]
    text_layers: int = 32  # name: language_model.model.layers.*
    features_image_id: int = 32000  # config: image_token_index
    # default: text_config.rope_parameters.rope_theta, left out: the default of llama
    rotary_base: float = 10000.0
    features_layer: int = -2  # config: vision_feature_layer


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


def split_heads(x: Tensor, head_dim: int) -> Tensor:
    """Splits a projection into heads. x (B, T, H * D) -> (B, H, T, D)"""
    return x.unflatten(-1, (-1, head_dim)).transpose(1, 2)


class VisionAttention(nn.Module):
    """vision_tower.vision_model.encoder.layers.*.self_attn: self-attention."""

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
    """language_model.model.layers.*.self_attn: self-attention with rotary embeddings and a causal mask."""

    def __init__(self, config: Config):
        super().__init__()
        self.head_dim = config.text_head_dim
        self.q_proj = nn.Linear(config.text_hidden_size, config.text_heads * config.text_head_dim, bias=False)
        self.k_proj = nn.Linear(config.text_hidden_size, config.text_heads * config.text_head_dim, bias=False)
        self.v_proj = nn.Linear(config.text_hidden_size, config.text_heads * config.text_head_dim, bias=False)
        self.o_proj = nn.Linear(config.text_heads * config.text_head_dim, config.text_hidden_size, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None) -> Tensor:
        q = split_heads(self.q_proj(x), self.head_dim)
        k = split_heads(self.k_proj(x), self.head_dim)
        v = split_heads(self.v_proj(x), self.head_dim)
        q = apply_rotary(q, cos, sin)
        k = apply_rotary(k, cos, sin)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None)
        return self.o_proj(merge_heads(y))


class Embeddings(nn.Module):
    """vision_tower.vision_model.embeddings: an image embedding with a class token and learned position
    embeddings.
    """

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
        self.position_embedding = nn.Embedding(config.positions, config.vision_hidden_size)

    def forward(self, pixel_values: Tensor) -> Tensor:
        patches = self.patch_embedding(pixel_values.type_as(self.patch_embedding.weight))
        x = flatten_patches(patches)
        x = prepend_token(self.class_embedding, x)
        return x + resize_positions(self.position_embedding.weight, 1, patches.shape[2], patches.shape[3])


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
    """vision_tower.vision_model.encoder.layers.*.mlp: feed-forward network."""

    def __init__(self, config: Config):
        super().__init__()
        self.fc1 = nn.Linear(config.vision_hidden_size, config.vision_intermediate_size)
        self.fc2 = nn.Linear(config.vision_intermediate_size, config.vision_hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(quick_gelu(self.fc1(x)))


class Projector(nn.Module):
    """multi_modal_projector: projector with two linear layers around an activation."""

    def __init__(self, config: Config):
        super().__init__()
        self.linear_1 = nn.Linear(config.vision_hidden_size, config.projector_size)
        self.linear_2 = nn.Linear(config.projector_size, config.text_hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear_2(F.gelu(self.linear_1(x)))


class VisionLayer(nn.Module):
    """vision_tower.vision_model.encoder.layers.*: a layer with pre-norm, attention and a feed-forward
    network.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.layer_norm1 = nn.LayerNorm(config.vision_hidden_size)
        self.self_attn = VisionAttention(config)
        self.layer_norm2 = nn.LayerNorm(config.vision_hidden_size)
        self.mlp = VisionFeedForward(config)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.self_attn(self.layer_norm1(x))
        return x + self.mlp(self.layer_norm2(x))


class TextLayer(nn.Module):
    """language_model.model.layers.*: a layer with pre-norm, attention and a feed-forward network."""

    def __init__(self, config: Config):
        super().__init__()
        self.input_layernorm = nn.RMSNorm(config.text_hidden_size, eps=config.norm_eps)
        self.self_attn = TextAttention(config)
        self.post_attention_layernorm = nn.RMSNorm(config.text_hidden_size, eps=config.norm_eps)
        self.mlp = TextFeedForward(config)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), cos, sin, mask)
        return x + self.mlp(self.post_attention_layernorm(x))


class Encoder(nn.Module):
    """vision_tower.vision_model: a stack of layers with a norm before the layers and the states after each
    layer.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.embeddings = Embeddings(config)
        self.pre_layrnorm = nn.LayerNorm(config.vision_hidden_size)
        self.encoder: Any = nn.ModuleDict(
            {"layers": nn.ModuleList(VisionLayer(config) for _ in range(config.vision_layers))}
        )
        # unused: features are taken from between the layers
        self.post_layernorm = nn.LayerNorm(config.vision_hidden_size)

    def forward(self, pixel_values: Tensor) -> list[Tensor]:
        x = self.pre_layrnorm(self.embeddings(pixel_values))
        states = [x]
        for layer in self.encoder.layers:
            x = layer(x)
            states.append(x)
        return states


class Decoder(nn.Module):
    """language_model.model: a stack of layers with a causal mask, rotary embeddings and a final norm."""

    def __init__(self, config: Config):
        super().__init__()
        self.features_image_id = config.features_image_id
        self.rotary_dim = config.text_head_dim
        self.rotary_base = config.rotary_base
        self.embed_tokens = nn.Embedding(config.vocab_size, config.text_hidden_size)
        self.layers = nn.ModuleList(TextLayer(config) for _ in range(config.text_layers))
        self.norm = nn.RMSNorm(config.text_hidden_size, eps=config.norm_eps)

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
    """The model with image features among the word embeddings and a language modeling head."""

    def __init__(self, config: Config = Config()):
        super().__init__()
        self.features_layer = config.features_layer
        self.vision_tower: Any = nn.ModuleDict({"vision_model": Encoder(config)})
        self.multi_modal_projector = Projector(config)
        self.language_model: Any = nn.ModuleDict(
            {
                "model": Decoder(config),
                "lm_head": nn.Linear(config.text_hidden_size, config.vocab_size, bias=False),
            }
        )
        self.to(torch.float16)

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
                self.vision_tower.vision_model(pixel_values)[self.features_layer][:, 1:].flatten(0, 1)
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
# {"config": {"architectures": ["LlavaForConditionalGeneration"], "image_token_index": 32000, "model_type":
# "llava", "projector_hidden_act": "gelu", "text_config": {"hidden_size": 4096, "intermediate_size": 11008,
# "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 32, "rms_norm_eps": 1e-05,
# "vocab_size": 32064}, "vision_config": {"hidden_size": 1024, "intermediate_size": 4096, "model_type":
# "clip_vision_model", "num_attention_heads": 16, "num_hidden_layers": 24, "patch_size": 14},
# "vision_feature_layer": -2, "vision_feature_select_strategy": "default"}, "notes": ["header from the bundled
# catalogue (reconstructed with transformers 5.23.0 from config), not from the hub", "evidence for its config:
# recalled", "about this header: the transformers docstring names this repository, but the defaults differ in
# text_config.vocab_size, text_config.max_position_embeddings"]}
# sha256 of all above: 4cd3d5ca928bf3bb
