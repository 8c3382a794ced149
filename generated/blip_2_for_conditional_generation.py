"""Salesforce/blip2-opt-2.7b: written by mapper 0.1.0, rules 085fa52bb6da.

Reading: exact (family instructblip).
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

    text_hidden_size: int = 2560  # shape: language_model.model.decoder.final_layer_norm.weight [2560]
    text_heads: int = 32  # config: text_config.num_attention_heads
    # shape and config: language_model.model.decoder.layers.{0..31}.self_attn.q_proj.weight [2560, 2560] ...
    text_head_dim: int = 80
    channels: int = 3  # shape: vision_model.embeddings.patch_embedding.weight [1408, 3, 14, 14]
    vision_hidden_size: int = 1408  # shape: vision_model.post_layernorm.weight [1408]
    patch_size: int = 14  # shape: vision_model.embeddings.patch_embedding.weight [1408, 3, 14, 14]
    vision_positions: int = 257  # shape: vision_model.embeddings.position_embedding [1, 257, 1408]
    vision_heads: int = 16  # config: vision_config.num_attention_heads
    # shape and config: vision_model.encoder.layers.{0..38}.self_attn.projection.weight [1408, 1408] = ...
    vision_head_dim: int = 88
    # shape: vision_model.encoder.layers.{0..38}.mlp.fc1.weight [6144, 1408]
    vision_intermediate_size: int = 6144
    querier_hidden_size: int = 768  # shape: query_tokens [1, 32, 768]
    querier_heads: int = 12  # config: qformer_config.num_attention_heads
    # shape and config: qformer.encoder.layer.{0..10..2}.attention.attention.query.weight [768, 768] = ...
    querier_head_dim: int = 64
    querier_norm_eps: float = 1e-12  # config: qformer_config.layer_norm_eps
    # shape: language_model.model.decoder.layers.{0..31}.fc1.weight [10240, 2560]
    text_intermediate_size: int = 10240
    vision_norm_eps: float = 1e-5  # config: vision_config.layer_norm_eps
    # shape: qformer.encoder.layer.{0..10..2}.intermediate_query.dense.weight [3072, 768]
    querier_intermediate_size: int = 3072
    vocab_size: int = 50304  # shape: language_model.model.decoder.embed_tokens.weight [50304, 2560]
    position_offset: int = 2  # rule: families/opt.yaml (a constant of the published code)
    # shape and rule: language_model.model.decoder.embed_positions.weight [2050, 2560] = ...
    text_positions: int = 2048
    text_layers: int = 32  # name: language_model.model.decoder.layers.*
    features_image_id: int = 50265  # config: image_token_index
    vision_layers: int = 39  # name: vision_model.encoder.layers.*
    # name: qformer.encoder.layer.{0..10..2}
    querier_cross_attention_layer: tuple[int, ...] = (0, 2, 4, 6, 8, 10)
    querier_layers: int = 12  # name: qformer.encoder.layer.*
    queries: int = 32  # shape: query_tokens [1, 32, 768]


@dataclass
class Output:
    """What the model returns."""

    logits: Tensor
    last_hidden_state: Tensor
    image_hidden_states: Tensor


torch.export.register_dataclass(Output)


def causal_mask(x: Tensor, attention_mask: Tensor | None) -> Tensor:
    """Hides later keys and padded ones. x (B, T, ...), attention_mask (B, T) or None -> (1 or B, 1, T, T)"""
    index = torch.arange(x.shape[1], device=x.device)
    mask = (index <= index[:, None])[None, None]
    return mask if attention_mask is None else mask & (attention_mask[:, None, None, :] != 0)


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


def cut_positions(table: Tensor, height: int, width: int) -> Tensor:
    """The first positions, a class token's and those of a grid; of a larger image, all fitted to it.

    table (..., 1 + N * N, W) -> (1, 1 + height * width, W)
    """
    if 1 + height * width <= table.shape[-2]:
        return table.reshape(1, -1, table.shape[-1])[:, : 1 + height * width]
    return resize_positions(table, 1, height, width)


def flatten_patches(x: Tensor) -> Tensor:
    """Patches as a sequence, row by row. x (B, C, Y, X) -> (B, Y * X, C)"""
    return x.flatten(2).transpose(1, 2)


def merge_heads(x: Tensor) -> Tensor:
    """Joins the heads again. x (B, H, T, D) -> (B, T, H * D)"""
    return x.transpose(1, 2).flatten(2)


def position_indices(x: Tensor, position_ids: Tensor | None) -> Tensor:
    """The caller's positions, or 0, 1, 2, ... x (B, T, ...) -> (B or 1, T)"""
    return torch.arange(x.shape[1], device=x.device)[None] if position_ids is None else position_ids


def position_indices_of_mask(x: Tensor, position_ids: Tensor | None, attention_mask: Tensor | None) -> Tensor:
    """The caller's positions, or those of the real tokens, counted from 0; padding gets -1 (OPT).

    x (B, T, ...), attention_mask (B, T) or None -> (B or 1, T)
    """
    if position_ids is not None or attention_mask is None:
        return position_indices(x, position_ids)
    real = (attention_mask != 0).long()
    return real.cumsum(dim=1) * real - 1


def prepend_token(token: Tensor, x: Tensor) -> Tensor:
    """One learned vector before each sequence. token (..., W), x (B, T, W) -> (B, 1 + T, W)"""
    return torch.cat((token.expand(x.shape[0], 1, -1), x), dim=1)


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
    """language_model.model.decoder.layers.*.self_attn: self-attention with a causal mask."""

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


class Embeddings(nn.Module):
    """vision_model.embeddings: an image embedding with a class token and the first of the learned position
    embeddings.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.patch_embedding = nn.Conv2d(
            config.channels,
            config.vision_hidden_size,
            kernel_size=config.patch_size,
            stride=config.patch_size,
        )
        self.class_embedding = nn.Parameter(torch.zeros(1, 1, config.vision_hidden_size))
        self.position_embedding = nn.Parameter(
            torch.zeros(1, config.vision_positions, config.vision_hidden_size)
        )

    def forward(self, pixel_values: Tensor) -> Tensor:
        patches = self.patch_embedding(pixel_values.type_as(self.patch_embedding.weight))
        x = flatten_patches(patches)
        x = prepend_token(self.class_embedding, x)
        return x + cut_positions(self.position_embedding, patches.shape[2], patches.shape[3])


class VisionAttention(nn.Module):
    """vision_model.encoder.layers.*.self_attn: self-attention."""

    def __init__(self, config: Config):
        super().__init__()
        self.head_dim = config.vision_head_dim
        self.qkv = nn.Linear(config.vision_hidden_size, 3 * config.vision_heads * config.vision_head_dim)
        self.projection = nn.Linear(config.vision_heads * config.vision_head_dim, config.vision_hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        q = split_heads(q, self.head_dim)
        k = split_heads(k, self.head_dim)
        v = split_heads(v, self.head_dim)
        y = F.scaled_dot_product_attention(q, k, v)
        return self.projection(merge_heads(y))


class FeedForward(nn.Module):
    """vision_model.encoder.layers.*.mlp: feed-forward network."""

    def __init__(self, config: Config):
        super().__init__()
        self.fc1 = nn.Linear(config.vision_hidden_size, config.vision_intermediate_size)
        self.fc2 = nn.Linear(config.vision_intermediate_size, config.vision_hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(F.gelu(self.fc1(x)))


class QuerierAttention(nn.Module):
    """qformer.encoder.layer.*.attention: self-attention."""

    def __init__(self, config: Config):
        super().__init__()
        self.head_dim = config.querier_head_dim
        self.attention: Any = nn.ModuleDict(
            {
                "query": nn.Linear(
                    config.querier_hidden_size, config.querier_heads * config.querier_head_dim
                ),
                "key": nn.Linear(config.querier_hidden_size, config.querier_heads * config.querier_head_dim),
                "value": nn.Linear(
                    config.querier_hidden_size, config.querier_heads * config.querier_head_dim
                ),
            }
        )
        self.output: Any = nn.ModuleDict(
            {
                "dense": nn.Linear(
                    config.querier_heads * config.querier_head_dim, config.querier_hidden_size
                ),
                "LayerNorm": nn.LayerNorm(config.querier_hidden_size, eps=config.querier_norm_eps),
            }
        )

    def forward(self, x: Tensor) -> Tensor:
        q = split_heads(self.attention.query(x), self.head_dim)
        k = split_heads(self.attention.key(x), self.head_dim)
        v = split_heads(self.attention.value(x), self.head_dim)
        y = F.scaled_dot_product_attention(q, k, v)
        return self.output.dense(merge_heads(y))


class CrossAttention(nn.Module):
    """qformer.encoder.layer.*.crossattention: cross-attention."""

    def __init__(self, config: Config):
        super().__init__()
        self.head_dim = config.querier_head_dim
        self.attention: Any = nn.ModuleDict(
            {
                "query": nn.Linear(
                    config.querier_hidden_size, config.querier_heads * config.querier_head_dim
                ),
                "key": nn.Linear(config.vision_hidden_size, config.querier_heads * config.querier_head_dim),
                "value": nn.Linear(config.vision_hidden_size, config.querier_heads * config.querier_head_dim),
            }
        )
        self.output: Any = nn.ModuleDict(
            {
                "dense": nn.Linear(
                    config.querier_heads * config.querier_head_dim, config.querier_hidden_size
                ),
                "LayerNorm": nn.LayerNorm(config.querier_hidden_size, eps=config.querier_norm_eps),
            }
        )

    def forward(self, x: Tensor, encoder_hidden_states: Tensor) -> Tensor:
        q = split_heads(self.attention.query(x), self.head_dim)
        k = split_heads(self.attention.key(encoder_hidden_states), self.head_dim)
        v = split_heads(self.attention.value(encoder_hidden_states), self.head_dim)
        y = F.scaled_dot_product_attention(q, k, v)
        return self.output.dense(merge_heads(y))


class TextLayer(nn.Module):
    """language_model.model.decoder.layers.*: a layer with pre-norm, attention and a feed-forward network."""

    def __init__(self, config: Config):
        super().__init__()
        self.self_attn_layer_norm = nn.LayerNorm(config.text_hidden_size)
        self.self_attn = TextAttention(config)
        self.final_layer_norm = nn.LayerNorm(config.text_hidden_size)
        self.fc1 = nn.Linear(config.text_hidden_size, config.text_intermediate_size)
        self.fc2 = nn.Linear(config.text_intermediate_size, config.text_hidden_size)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        x = x + self.self_attn(self.self_attn_layer_norm(x), mask)
        return x + self.feed_forward(self.final_layer_norm(x))

    def feed_forward(self, x: Tensor) -> Tensor:
        return self.fc2(F.relu(self.fc1(x)))


class VisionLayer(nn.Module):
    """vision_model.encoder.layers.*: a layer with pre-norm, attention and a feed-forward network."""

    def __init__(self, config: Config):
        super().__init__()
        self.layer_norm1 = nn.LayerNorm(config.vision_hidden_size, eps=config.vision_norm_eps)
        self.self_attn = VisionAttention(config)
        self.layer_norm2 = nn.LayerNorm(config.vision_hidden_size, eps=config.vision_norm_eps)
        self.mlp = FeedForward(config)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.self_attn(self.layer_norm1(x))
        return x + self.mlp(self.layer_norm2(x))


class QuerierLayerWithCrossAttention(nn.Module):
    """qformer.encoder.layer.*: post-norm, self-attention of learned queries and a feed-forward (Q-Former),
    with cross-attention of the queries.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.attention = QuerierAttention(config)
        self.crossattention = CrossAttention(config)
        self.intermediate_query: Any = nn.ModuleDict(
            {"dense": nn.Linear(config.querier_hidden_size, config.querier_intermediate_size)}
        )
        self.output_query: Any = nn.ModuleDict(
            {
                "dense": nn.Linear(config.querier_intermediate_size, config.querier_hidden_size),
                "LayerNorm": nn.LayerNorm(config.querier_hidden_size, eps=config.querier_norm_eps),
            }
        )

    def forward(self, x: Tensor, encoder_hidden_states: Tensor) -> Tensor:
        x = self.attention.output.LayerNorm(x + self.attention(x))
        asked = x
        asked = self.crossattention.output.LayerNorm(
            asked + self.crossattention(asked, encoder_hidden_states)
        )
        return self.output_query.LayerNorm(asked + self.query_feed_forward(asked))

    def query_feed_forward(self, x: Tensor) -> Tensor:
        return self.output_query.dense(F.gelu(self.intermediate_query.dense(x)))


class QuerierLayer(nn.Module):
    """qformer.encoder.layer.*: post-norm, self-attention of learned queries and a feed-forward (Q-Former)."""

    def __init__(self, config: Config):
        super().__init__()
        self.attention = QuerierAttention(config)
        self.intermediate_query: Any = nn.ModuleDict(
            {"dense": nn.Linear(config.querier_hidden_size, config.querier_intermediate_size)}
        )
        self.output_query: Any = nn.ModuleDict(
            {
                "dense": nn.Linear(config.querier_intermediate_size, config.querier_hidden_size),
                "LayerNorm": nn.LayerNorm(config.querier_hidden_size, eps=config.querier_norm_eps),
            }
        )

    def forward(self, x: Tensor, encoder_hidden_states: Tensor) -> Tensor:
        x = self.attention.output.LayerNorm(x + self.attention(x))
        asked = x
        return self.output_query.LayerNorm(asked + self.query_feed_forward(asked))

    def query_feed_forward(self, x: Tensor) -> Tensor:
        return self.output_query.dense(F.gelu(self.intermediate_query.dense(x)))


class Decoder(nn.Module):
    """language_model.model.decoder: a stack of layers with a causal mask and a final norm."""

    def __init__(self, config: Config):
        super().__init__()
        self.features_image_id = config.features_image_id
        self.position_offset = config.position_offset
        self.embed_tokens = nn.Embedding(config.vocab_size, config.text_hidden_size)
        self.embed_positions = nn.Embedding(
            config.position_offset + config.text_positions, config.text_hidden_size
        )
        self.layers = nn.ModuleList(TextLayer(config) for _ in range(config.text_layers))
        self.final_layer_norm = nn.LayerNorm(config.text_hidden_size)

    def forward(
        self,
        input_ids: Tensor,
        image_features: Tensor,
        attention_mask: Tensor | None,
        position_ids: Tensor | None,
    ) -> Tensor:
        x = self.embeddings(input_ids, image_features, attention_mask, position_ids)
        mask = None if attention_mask is None else causal_mask(x, attention_mask)
        for layer in self.layers:
            x = layer(x, mask)
        return self.final_layer_norm(x)

    def embeddings(
        self,
        input_ids: Tensor,
        image_features: Tensor,
        attention_mask: Tensor | None,
        position_ids: Tensor | None,
    ) -> Tensor:
        x = scatter_features(self.embed_tokens(input_ids), image_features, input_ids, self.features_image_id)
        return x + self.embed_positions(
            position_indices_of_mask(x, position_ids, attention_mask) + self.position_offset
        )


class Encoder(nn.Module):
    """vision_model: a stack of layers with a final norm."""

    def __init__(self, config: Config):
        super().__init__()
        self.embeddings = Embeddings(config)
        self.encoder: Any = nn.ModuleDict(
            {"layers": nn.ModuleList(VisionLayer(config) for _ in range(config.vision_layers))}
        )
        self.post_layernorm = nn.LayerNorm(config.vision_hidden_size, eps=config.vision_norm_eps)

    def forward(self, pixel_values: Tensor) -> Tensor:
        x = self.embeddings(pixel_values)
        for layer in self.encoder.layers:
            x = layer(x)
        return self.post_layernorm(x)


class Queries(nn.Module):
    """qformer: learned queries, layers with cross-attention to encoder_hidden_states, with a norm before
    the layers.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.layernorm = nn.LayerNorm(config.querier_hidden_size, eps=config.querier_norm_eps)
        self.encoder: Any = nn.ModuleDict(
            {
                "layer": nn.ModuleList(
                    QuerierLayerWithCrossAttention(config)
                    if index in config.querier_cross_attention_layer
                    else QuerierLayer(config)
                    for index in range(config.querier_layers)
                )
            }
        )

    def forward(self, encoder_hidden_states: Tensor, asked: Tensor) -> Tensor:
        x = self.layernorm(asked).expand(encoder_hidden_states.shape[0], -1, -1)
        for layer in self.encoder.layer:
            x = layer(x, encoder_hidden_states)
        return x


class Model(nn.Module):
    """The model with what learned queries find in an image among the word embeddings and a language
    modeling head.
    """

    def __init__(self, config: Config = Config()):
        super().__init__()
        self.vision_model = Encoder(config)
        self.query_tokens = nn.Parameter(torch.zeros(1, config.queries, config.querier_hidden_size))
        self.qformer = Queries(config)
        self.language_projection = nn.Linear(config.querier_hidden_size, config.text_hidden_size)
        self.language_model: Any = nn.ModuleDict({"model": nn.ModuleDict({"decoder": Decoder(config)})})

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
        encoder_hidden_states = self.vision_model(pixel_values)
        image_features = self.language_projection(self.qformer(encoder_hidden_states, self.query_tokens))
        x = self.language_model.model.decoder(input_ids, image_features, attention_mask, position_ids)
        logits = F.linear(x, self.language_model.model.decoder.embed_tokens.weight)
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
# {"config": {"architectures": ["Blip2ForConditionalGeneration"], "image_token_index": 50265, "model_type":
# "blip-2", "num_query_tokens": 32, "qformer_config": {"hidden_act": "gelu", "hidden_size": 768,
# "intermediate_size": 3072, "layer_norm_eps": 1e-12, "model_type": "blip_2_qformer", "num_attention_heads":
# 12, "num_hidden_layers": 12}, "text_config": {"activation_function": "relu", "architectures":
# ["OPTForCausalLM"], "do_layer_norm_before": true, "enable_bias": true, "ffn_dim": 10240, "hidden_size":
# 2560, "max_position_embeddings": 2048, "model_type": "opt", "num_attention_heads": 32, "num_hidden_layers":
# 32, "vocab_size": 50304}, "vision_config": {"hidden_act": "gelu", "hidden_size": 1408, "intermediate_size":
# 6144, "layer_norm_eps": 1e-05, "model_type": "blip_2_vision_model", "num_attention_heads": 16,
# "num_hidden_layers": 39, "patch_size": 14, "qkv_bias": true}}, "notes": ["header from the bundled catalogue
# (reconstructed with transformers 5.23.0 from config), not from the hub", "evidence for its config:
# recalled"]}
# sha256 of all above: 71617d26cc0c152a
