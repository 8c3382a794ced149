"""google/gemma-3-4b-it: written by mapper 0.1.0, rules 085fa52bb6da.

Reading: exact (family gemma3).
header from the bundled catalogue (reconstructed with transformers 5.23.0 from config), not from the hub
evidence for its config: recalled
about this header: the transformers docstring names this repository, but the defaults differ in
text_config.hidden_size, text_config.intermediate_size, text_config.num_hidden_layers,
vision_config.hidden_size, vision_config.intermediate_size, vision_config.num_hidden_layers,
vision_config.num_attention_heads, vision_config.image_size
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

    text_hidden_size: int = 2560  # shape: language_model.model.norm.weight [2560]
    text_heads: int = 8  # shape: language_model.model.layers.{0..33}.self_attn.q_proj.weight [2048, 2560]
    text_head_dim: int = 256  # shape: language_model.model.layers.{0..33}.self_attn.q_norm.weight [256]
    kv_heads: int = 4  # shape: language_model.model.layers.{0..33}.self_attn.k_proj.weight [1024, 2560]
    norm_eps: float = 1e-6  # default: text_config.rms_norm_eps, left out: the default of gemma3_text
    attention_scale: float = 0.0625  # default: families/gemma2.yaml: attention.query_scale ** -0.5
    vision_hidden_size: int = 1152  # shape: vision_tower.vision_model.post_layernorm.weight [1152]
    vision_heads: int = 16  # config: vision_config.num_attention_heads
    # shape and config: vision_tower.vision_model.encoder.layers.{0..26}.self_attn.q_proj.weight [1152, ...
    vision_head_dim: int = 72
    # shape: language_model.model.layers.{0..33}.mlp.gate_proj.weight [10240, 2560]
    text_intermediate_size: int = 10240
    channels: int = 3  # shape: vision_tower.vision_model.embeddings.patch_embedding.weight [1152, 3, 14, 14]
    # shape: vision_tower.vision_model.embeddings.patch_embedding.weight [1152, 3, 14, 14]
    patch_size: int = 14
    # shape: vision_tower.vision_model.embeddings.position_embedding.weight [4096, 1152]
    positions: int = 4096
    # shape: vision_tower.vision_model.encoder.layers.{0..26}.mlp.fc1.weight [4304, 1152]
    vision_intermediate_size: int = 4304
    output_size: int = 2560  # shape: multi_modal_projector.mm_input_projection_weight [1152, 2560]
    features_per_image: int = 256  # config: mm_tokens_per_image
    vision_layers: int = 27  # name: vision_tower.vision_model.encoder.layers.*
    vocab_size: int = 262208  # shape: language_model.model.embed_tokens.weight [262208, 2560]
    # default: vocabulary/config_attention.yaml: (index + 1) % attention.window_period for each of layers
    layer_types: tuple[str, ...] = (("sliding_attention",) * 5 + ("full_attention",)) * 5 + (
        "sliding_attention",
    ) * 4
    features_image_id: int = 262144  # config: image_token_index
    window: int = 1024  # config: text_config.sliding_window
    rotary_base: float = 1000000.0  # default: families/gemma3_text.yaml
    rotary_factor: float = 8.0  # config: text_config.rope_scaling.factor
    rotary_local_base: float = 10000.0  # default: families/gemma3_text.yaml

    @property
    def embedding_scale(self) -> float:
        return self.text_hidden_size**0.5  # rule: families/gemma2.yaml: hidden_size ** 0.5


@dataclass
class Output:
    """What the model returns."""

    logits: Tensor
    last_hidden_state: Tensor
    image_hidden_states: Tensor | None


torch.export.register_dataclass(Output)


class RMSNormOffset(nn.Module):
    """RMSNorm that scales by 1 + weight, all of it in float32 (Gemma). (..., W) -> (..., W)"""

    def __init__(self, size: int, eps: float):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.empty(size))

    def forward(self, x: Tensor) -> Tensor:
        y = F.rms_norm(x.float(), self.weight.shape, 1.0 + self.weight.float(), self.eps)
        return y.to(x.dtype)


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


def average_patches(x: Tensor, count: int) -> Tensor:
    """The mean of the patches of each of `count` equal squares: (B, S * S, W) -> (B, count, W).

    Where `count` is no square or does not fit, as many squares as fit with sides of whole patches.
    """
    side = math.isqrt(x.shape[1])
    inner = side // math.isqrt(count)
    fit = side // inner
    whole = x.unflatten(1, (side, side))[:, : fit * inner, : fit * inner]
    return whole.unflatten(2, (fit, inner)).unflatten(1, (fit, inner)).mean((2, 4)).flatten(1, 2)


def causal_mask(x: Tensor, attention_mask: Tensor | None) -> Tensor:
    """Hides later keys and padded ones. x (B, T, ...), attention_mask (B, T) or None -> (1 or B, 1, T, T)"""
    index = torch.arange(x.shape[1], device=x.device)
    mask = (index <= index[:, None])[None, None]
    return mask if attention_mask is None else mask & (attention_mask[:, None, None, :] != 0)


def block_mask(x: Tensor, attention_mask: Tensor | None, blocks: Tensor | None) -> Tensor:
    """A causal mask whose positions also see all of their own block, by numbers from 0 in blocks (B, T)."""
    mask = causal_mask(x, None)
    if blocks is not None:
        same = (blocks[:, None, :] == blocks[:, :, None]) & (blocks[:, None, :] >= 0)
        mask = mask | same[:, None]
    return mask if attention_mask is None else mask & (attention_mask[:, None, None, :] != 0)


def flatten_patches(x: Tensor) -> Tensor:
    """Patches as a sequence, row by row. x (B, C, Y, X) -> (B, Y * X, C)"""
    return x.flatten(2).transpose(1, 2)


def image_blocks(token_type_ids: Tensor | None) -> Tensor | None:
    """A number for each run of positions of type 1, -1 elsewhere. (B, T)"""
    if token_type_ids is None:
        return None
    inside = token_type_ids == 1
    starts = inside & ~F.pad(inside, (1, 0))[:, :-1]
    return torch.where(inside, starts.long().cumsum(1) - 1, -1)


def merge_heads(x: Tensor) -> Tensor:
    """Joins the heads again. x (B, H, T, D) -> (B, T, H * D)"""
    return x.transpose(1, 2).flatten(2)


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


def rotary_frequencies(positions: Tensor, rotary_dim: int, base: float) -> Tensor:
    """Angle per position of each pair of channels. -> (R / 2,) on the device of positions"""
    index = torch.arange(0, rotary_dim, 2, device=positions.device)
    return 1.0 / base ** (index.float() / rotary_dim)


def rotary_tables(x: Tensor, positions: Tensor, frequencies: Tensor) -> tuple[Tensor, Tensor]:
    """Cosine and sine of every angle, in the dtype of x. positions (B, T) -> two (B, 1, T, R / 2)"""
    angles = positions[:, None, :, None].float() * frequencies
    return angles.cos().to(x.dtype), angles.sin().to(x.dtype)


def scale_rounded(x: Tensor, scale: float) -> Tensor:
    """x times a constant that is rounded to the dtype of x first (Gemma's embeddings)."""
    return x * torch.tensor(scale, dtype=x.dtype, device=x.device)


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


class TextAttention(nn.Module):
    """language_model.model.layers.*.self_attn: self-attention with normalised queries and keys, rotary
    embeddings and a causal mask.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.head_dim = config.text_head_dim
        self.scale = config.attention_scale
        self.q_proj = nn.Linear(config.text_hidden_size, config.text_heads * config.text_head_dim, bias=False)
        self.k_proj = nn.Linear(config.text_hidden_size, config.kv_heads * config.text_head_dim, bias=False)
        self.v_proj = nn.Linear(config.text_hidden_size, config.kv_heads * config.text_head_dim, bias=False)
        self.q_norm = RMSNormOffset(config.text_head_dim, config.norm_eps)
        self.k_norm = RMSNormOffset(config.text_head_dim, config.norm_eps)
        self.o_proj = nn.Linear(config.text_heads * config.text_head_dim, config.text_hidden_size, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor) -> Tensor:
        q = split_heads(self.q_proj(x), self.head_dim)
        k = split_heads(self.k_proj(x), self.head_dim)
        v = split_heads(self.v_proj(x), self.head_dim)
        q = apply_rotary(self.q_norm(q), cos, sin)
        k = apply_rotary(self.k_norm(k), cos, sin)
        y = attend(q, k, v, mask, scale=self.scale)
        return self.o_proj(merge_heads(y))


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


class TextFeedForward(nn.Module):
    """language_model.model.layers.*.mlp: feed-forward network with a gate (GLU)."""

    def __init__(self, config: Config):
        super().__init__()
        self.gate_proj = nn.Linear(config.text_hidden_size, config.text_intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.text_hidden_size, config.text_intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.text_intermediate_size, config.text_hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.gelu(self.gate_proj(x), approximate="tanh") * self.up_proj(x))


class Embeddings(nn.Module):
    """vision_tower.vision_model.embeddings: an image embedding with learned position embeddings."""

    def __init__(self, config: Config):
        super().__init__()
        self.patch_embedding = nn.Conv2d(
            config.channels,
            config.vision_hidden_size,
            kernel_size=config.patch_size,
            stride=config.patch_size,
        )
        self.position_embedding = nn.Embedding(config.positions, config.vision_hidden_size)

    def forward(self, pixel_values: Tensor) -> Tensor:
        patches = self.patch_embedding(pixel_values.type_as(self.patch_embedding.weight))
        x = flatten_patches(patches)
        return x + resize_positions(self.position_embedding.weight, 0, patches.shape[2], patches.shape[3])


class VisionFeedForward(nn.Module):
    """vision_tower.vision_model.encoder.layers.*.mlp: feed-forward network."""

    def __init__(self, config: Config):
        super().__init__()
        self.fc1 = nn.Linear(config.vision_hidden_size, config.vision_intermediate_size)
        self.fc2 = nn.Linear(config.vision_intermediate_size, config.vision_hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(F.gelu(self.fc1(x), approximate="tanh"))


class Projector(nn.Module):
    """multi_modal_projector: projector with average pooling of patches, a norm and a linear layer."""

    def __init__(self, config: Config):
        super().__init__()
        self.features_per_image = config.features_per_image
        self.mm_soft_emb_norm = RMSNormOffset(config.vision_hidden_size, config.norm_eps)
        self.mm_input_projection_weight = nn.Parameter(
            torch.zeros(config.vision_hidden_size, config.output_size)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.mm_soft_emb_norm(average_patches(x, self.features_per_image))
        return x @ self.mm_input_projection_weight


class TextLayer(nn.Module):
    """language_model.model.layers.*: a layer with pre-norm, attention, a norm after each sub-layer and a
    feed-forward network.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.input_layernorm = RMSNormOffset(config.text_hidden_size, config.norm_eps)
        self.self_attn = TextAttention(config)
        self.post_attention_layernorm = RMSNormOffset(config.text_hidden_size, config.norm_eps)
        self.pre_feedforward_layernorm = RMSNormOffset(config.text_hidden_size, config.norm_eps)
        self.mlp = TextFeedForward(config)
        self.post_feedforward_layernorm = RMSNormOffset(config.text_hidden_size, config.norm_eps)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor) -> Tensor:
        x = x + self.post_attention_layernorm(self.self_attn(self.input_layernorm(x), cos, sin, mask))
        return x + self.post_feedforward_layernorm(self.mlp(self.pre_feedforward_layernorm(x)))


class VisionLayer(nn.Module):
    """vision_tower.vision_model.encoder.layers.*: a layer with pre-norm, attention and a feed-forward
    network.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.layer_norm1 = nn.LayerNorm(config.vision_hidden_size, eps=config.norm_eps)
        self.self_attn = VisionAttention(config)
        self.layer_norm2 = nn.LayerNorm(config.vision_hidden_size, eps=config.norm_eps)
        self.mlp = VisionFeedForward(config)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.self_attn(self.layer_norm1(x))
        return x + self.mlp(self.layer_norm2(x))


class Encoder(nn.Module):
    """vision_tower.vision_model: a stack of layers with a final norm."""

    def __init__(self, config: Config):
        super().__init__()
        self.embeddings = Embeddings(config)
        self.encoder: Any = nn.ModuleDict(
            {"layers": nn.ModuleList(VisionLayer(config) for _ in range(config.vision_layers))}
        )
        self.post_layernorm = nn.LayerNorm(config.vision_hidden_size, eps=config.norm_eps)

    def forward(self, pixel_values: Tensor) -> Tensor:
        x = self.embeddings(pixel_values)
        for layer in self.encoder.layers:
            x = layer(x)
        return self.post_layernorm(x)


class Decoder(nn.Module):
    """language_model.model: a stack of layers with a causal mask for each type of layer, full attention or
    a sliding window, rotary embeddings of its own for each type of layer and a final norm.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.layer_types = config.layer_types
        self.scale = config.embedding_scale
        self.features_image_id = config.features_image_id
        self.window = config.window
        self.rotary_dim = config.text_head_dim
        self.rotary_base = config.rotary_base
        self.rotary_factor = config.rotary_factor
        self.rotary_local_base = config.rotary_local_base
        self.embed_tokens = nn.Embedding(config.vocab_size, config.text_hidden_size)
        self.layers = nn.ModuleList(TextLayer(config) for _ in range(len(config.layer_types)))
        self.norm = RMSNormOffset(config.text_hidden_size, config.norm_eps)

    def forward(
        self,
        input_ids: Tensor,
        image_features: Tensor | None,
        attention_mask: Tensor | None,
        token_type_ids: Tensor | None,
        position_ids: Tensor | None,
    ) -> Tensor:
        x = self.embeddings(input_ids, image_features)
        masks = self.decoder_mask(x, attention_mask, token_type_ids)
        positions = position_indices(x, position_ids)
        angles = {
            "full_attention": self.rotary(x, positions),
            "sliding_attention": self.local_rotary(x, positions),
        }
        for layer, kind in zip(self.layers, self.layer_types, strict=True):
            cos, sin = angles[kind]
            x = layer(x, cos, sin, masks[kind])
        return self.norm(x)

    def embeddings(self, input_ids: Tensor, image_features: Tensor | None) -> Tensor:
        x = self.embed_tokens(input_ids)
        return scatter_features(
            scale_rounded(x, self.scale), image_features, input_ids, self.features_image_id
        )

    def decoder_mask(
        self, x: Tensor, attention_mask: Tensor | None, token_type_ids: Tensor | None
    ) -> dict[str, Tensor]:
        full = block_mask(x, attention_mask, image_blocks(token_type_ids))
        index = torch.arange(x.shape[1], device=x.device)
        near = full & (index > index[:, None] - self.window)
        return {"full_attention": full, "sliding_attention": near}

    def rotary(self, x: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        frequencies = rotary_frequencies(positions, self.rotary_dim, self.rotary_base) / self.rotary_factor
        return rotary_tables(x, positions, frequencies)

    def local_rotary(self, x: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        return rotary_tables(
            x, positions, rotary_frequencies(positions, self.rotary_dim, self.rotary_local_base)
        )


class Model(nn.Module):
    """The model with image features among the word embeddings and a language modeling head."""

    def __init__(self, config: Config = Config()):
        super().__init__()
        self.vision_tower: Any = nn.ModuleDict({"vision_model": Encoder(config)})
        self.multi_modal_projector = Projector(config)
        self.language_model: Any = nn.ModuleDict({"model": Decoder(config)})
        self.to(torch.bfloat16)

    def forward(
        self,
        input_ids: Tensor,
        pixel_values: Tensor | None = None,
        image_sizes: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
    ) -> Output:
        """input_ids (batch, length), pixel_values (batch, channels, height, width), image_sizes (batch,
        2), attention_mask (batch, length), token_type_ids (batch, length), position_ids (batch,
        length); image_sizes is not read
        """
        image_features = None
        if pixel_values is not None:
            image_features = self.multi_modal_projector(self.vision_tower.vision_model(pixel_values))
        x = self.language_model.model(input_ids, image_features, attention_mask, token_type_ids, position_ids)
        logits = F.linear(x, self.language_model.model.embed_tokens.weight)
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
# {"config": {"architectures": ["Gemma3ForConditionalGeneration"], "image_token_index": 262144,
# "mm_tokens_per_image": 256, "model_type": "gemma3", "text_config": {"hidden_size": 2560,
# "intermediate_size": 10240, "model_type": "gemma3_text", "num_hidden_layers": 34, "rope_scaling": {"factor":
# 8.0, "rope_type": "linear"}, "sliding_window": 1024}, "vision_config": {"hidden_size": 1152,
# "intermediate_size": 4304, "model_type": "siglip_vision_model", "num_attention_heads": 16,
# "num_hidden_layers": 27, "patch_size": 14}}, "notes": ["header from the bundled catalogue (reconstructed
# with transformers 5.23.0 from config), not from the hub", "evidence for its config: recalled", "about this
# header: the transformers docstring names this repository, but the defaults differ in
# text_config.hidden_size, text_config.intermediate_size, text_config.num_hidden_layers,
# vision_config.hidden_size, vision_config.intermediate_size, vision_config.num_hidden_layers,
# vision_config.num_attention_heads, vision_config.image_size"]}
# sha256 of all above: 2ad6fd34f934e7a8
