"""Salesforce/blip-image-captioning-base: written by mapper 0.1.0, rules 085fa52bb6da.

Reading: exact (family blip).
header from the bundled catalogue (reconstructed with transformers 5.23.0 from config), not from the hub
evidence for its config: repository (botextractai/ai-image-captioning:blip-image-captioning-base/config.json)
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

    vocab_size: int = 30524  # shape: text_decoder.bert.embeddings.word_embeddings.weight [30524, 768]
    hidden_size: int = 768  # shape: text_decoder.bert.embeddings.word_embeddings.weight [30524, 768]
    text_positions: int = 512  # shape: text_decoder.bert.embeddings.position_embeddings.weight [512, 768]
    norm_eps: float = 1e-12  # config: text_config.layer_norm_eps
    channels: int = 3  # shape: vision_model.embeddings.patch_embedding.weight [768, 3, 16, 16]
    patch_size: int = 16  # shape: vision_model.embeddings.patch_embedding.weight [768, 3, 16, 16]
    vision_positions: int = 577  # shape: vision_model.embeddings.position_embedding [1, 577, 768]
    vision_heads: int = 12  # config: vision_config.num_attention_heads
    # shape and config: vision_model.encoder.layers.{0..11}.self_attn.projection.weight [768, 768] = ...
    vision_head_dim: int = 64
    # shape: text_decoder.bert.encoder.layer.{0..11}.intermediate.dense.weight [3072, 768]
    intermediate_size: int = 3072
    text_heads: int = 12  # config: text_config.num_attention_heads
    # shape and config: text_decoder.bert.encoder.layer.{0..11}.attention.self.query.weight [768, 768] = ...
    text_head_dim: int = 64
    vision_norm_eps: float = 1e-5  # config: vision_config.layer_norm_eps
    vision_layers: int = 12  # name: vision_model.encoder.layers.*
    text_layers: int = 12  # name: text_decoder.bert.encoder.layer.*


@dataclass
class Output:
    """What the model returns."""

    logits: Tensor
    image_embeds: Tensor
    last_hidden_state: Tensor


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


def prepend_token(token: Tensor, x: Tensor) -> Tensor:
    """One learned vector before each sequence. token (..., W), x (B, T, W) -> (B, 1 + T, W)"""
    return torch.cat((token.expand(x.shape[0], 1, -1), x), dim=1)


def split_heads(x: Tensor, head_dim: int) -> Tensor:
    """Splits a projection into heads. x (B, T, H * D) -> (B, H, T, D)"""
    return x.unflatten(-1, (-1, head_dim)).transpose(1, 2)


class TextEmbeddings(nn.Module):
    """text_decoder.bert.embeddings: token embeddings with learned position embeddings and a norm."""

    def __init__(self, config: Config):
        super().__init__()
        self.word_embeddings = nn.Embedding(config.vocab_size, config.hidden_size)
        self.position_embeddings = nn.Embedding(config.text_positions, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.norm_eps)
        # unused: the positions 0, 1, 2 and so on, counted by the forward itself
        self.register_buffer("position_ids", torch.zeros(1, config.text_positions, dtype=torch.int64))

    def forward(self, input_ids: Tensor, position_ids: Tensor | None) -> Tensor:
        x = self.word_embeddings(input_ids)
        x = x + self.position_embeddings(position_indices(input_ids, position_ids))
        return self.LayerNorm(x)


class VisionEmbeddings(nn.Module):
    """vision_model.embeddings: an image embedding with a class token and the first of the learned position
    embeddings.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.patch_embedding = nn.Conv2d(
            config.channels, config.hidden_size, kernel_size=config.patch_size, stride=config.patch_size
        )
        self.class_embedding = nn.Parameter(torch.zeros(1, 1, config.hidden_size))
        self.position_embedding = nn.Parameter(torch.zeros(1, config.vision_positions, config.hidden_size))

    def forward(self, pixel_values: Tensor) -> Tensor:
        patches = self.patch_embedding(pixel_values.type_as(self.patch_embedding.weight))
        x = flatten_patches(patches)
        x = prepend_token(self.class_embedding, x)
        return x + cut_positions(self.position_embedding, patches.shape[2], patches.shape[3])


class LmHead(nn.Module):
    """text_decoder.cls.predictions: language modeling head with a linear layer, an activation and a norm."""

    def __init__(self, config: Config):
        super().__init__()
        self.transform: Any = nn.ModuleDict(
            {
                "dense": nn.Linear(config.hidden_size, config.hidden_size),
                "LayerNorm": nn.LayerNorm(config.hidden_size, eps=config.norm_eps),
            }
        )
        self.decoder = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))

    def forward(self, x: Tensor) -> Tensor:
        x = self.transform.LayerNorm(F.gelu(self.transform.dense(x)))
        return F.linear(x, self.decoder.weight, self.bias)


class VisionAttention(nn.Module):
    """vision_model.encoder.layers.*.self_attn: self-attention."""

    def __init__(self, config: Config):
        super().__init__()
        self.head_dim = config.vision_head_dim
        self.qkv = nn.Linear(config.hidden_size, 3 * config.vision_heads * config.vision_head_dim)
        self.projection = nn.Linear(config.vision_heads * config.vision_head_dim, config.hidden_size)

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
        self.fc1 = nn.Linear(config.hidden_size, config.intermediate_size)
        self.fc2 = nn.Linear(config.intermediate_size, config.hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(F.gelu(self.fc1(x)))


class TextAttention(nn.Module):
    """text_decoder.bert.encoder.layer.*.attention: self-attention with a causal mask."""

    def __init__(self, config: Config):
        super().__init__()
        self.head_dim = config.text_head_dim
        self.self: Any = nn.ModuleDict(
            {
                "query": nn.Linear(config.hidden_size, config.text_heads * config.text_head_dim),
                "key": nn.Linear(config.hidden_size, config.text_heads * config.text_head_dim),
                "value": nn.Linear(config.hidden_size, config.text_heads * config.text_head_dim),
            }
        )
        self.output: Any = nn.ModuleDict(
            {
                "dense": nn.Linear(config.text_heads * config.text_head_dim, config.hidden_size),
                "LayerNorm": nn.LayerNorm(config.hidden_size, eps=config.norm_eps),
            }
        )

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        q = split_heads(self.self.query(x), self.head_dim)
        k = split_heads(self.self.key(x), self.head_dim)
        v = split_heads(self.self.value(x), self.head_dim)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None)
        return self.output.dense(merge_heads(y))


class CrossAttention(nn.Module):
    """text_decoder.bert.encoder.layer.*.crossattention: cross-attention."""

    def __init__(self, config: Config):
        super().__init__()
        self.head_dim = config.text_head_dim
        self.self: Any = nn.ModuleDict(
            {
                "query": nn.Linear(config.hidden_size, config.text_heads * config.text_head_dim),
                "key": nn.Linear(config.hidden_size, config.text_heads * config.text_head_dim),
                "value": nn.Linear(config.hidden_size, config.text_heads * config.text_head_dim),
            }
        )
        self.output: Any = nn.ModuleDict(
            {
                "dense": nn.Linear(config.text_heads * config.text_head_dim, config.hidden_size),
                "LayerNorm": nn.LayerNorm(config.hidden_size, eps=config.norm_eps),
            }
        )

    def forward(self, x: Tensor, encoder_hidden_states: Tensor) -> Tensor:
        q = split_heads(self.self.query(x), self.head_dim)
        k = split_heads(self.self.key(encoder_hidden_states), self.head_dim)
        v = split_heads(self.self.value(encoder_hidden_states), self.head_dim)
        y = F.scaled_dot_product_attention(q, k, v)
        return self.output.dense(merge_heads(y))


class VisionLayer(nn.Module):
    """vision_model.encoder.layers.*: a layer with pre-norm, attention and a feed-forward network."""

    def __init__(self, config: Config):
        super().__init__()
        self.layer_norm1 = nn.LayerNorm(config.hidden_size, eps=config.vision_norm_eps)
        self.self_attn = VisionAttention(config)
        self.layer_norm2 = nn.LayerNorm(config.hidden_size, eps=config.vision_norm_eps)
        self.mlp = FeedForward(config)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.self_attn(self.layer_norm1(x))
        return x + self.mlp(self.layer_norm2(x))


class TextLayer(nn.Module):
    """text_decoder.bert.encoder.layer.*: a layer with attention, post-norm, cross-attention and a
    feed-forward network.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.attention = TextAttention(config)
        self.crossattention = CrossAttention(config)
        self.intermediate: Any = nn.ModuleDict(
            {"dense": nn.Linear(config.hidden_size, config.intermediate_size)}
        )
        self.output: Any = nn.ModuleDict(
            {
                "dense": nn.Linear(config.intermediate_size, config.hidden_size),
                "LayerNorm": nn.LayerNorm(config.hidden_size, eps=config.norm_eps),
            }
        )

    def forward(self, x: Tensor, mask: Tensor | None, encoder_hidden_states: Tensor) -> Tensor:
        x = self.attention.output.LayerNorm(x + self.attention(x, mask))
        x = self.crossattention.output.LayerNorm(x + self.crossattention(x, encoder_hidden_states))
        return self.output.LayerNorm(x + self.feed_forward(x))

    def feed_forward(self, x: Tensor) -> Tensor:
        return self.output.dense(F.gelu(self.intermediate.dense(x)))


class Encoder(nn.Module):
    """vision_model: a stack of layers with a final norm."""

    def __init__(self, config: Config):
        super().__init__()
        self.embeddings = VisionEmbeddings(config)
        self.encoder: Any = nn.ModuleDict(
            {"layers": nn.ModuleList(VisionLayer(config) for _ in range(config.vision_layers))}
        )
        self.post_layernorm = nn.LayerNorm(config.hidden_size, eps=config.vision_norm_eps)

    def forward(self, pixel_values: Tensor) -> Tensor:
        x = self.embeddings(pixel_values)
        for layer in self.encoder.layers:
            x = layer(x)
        return self.post_layernorm(x)


class Decoder(nn.Module):
    """text_decoder.bert: a stack of layers with a causal mask."""

    def __init__(self, config: Config):
        super().__init__()
        self.embeddings = TextEmbeddings(config)
        self.encoder: Any = nn.ModuleDict(
            {"layer": nn.ModuleList(TextLayer(config) for _ in range(config.text_layers))}
        )

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None,
        position_ids: Tensor | None,
        encoder_hidden_states: Tensor,
    ) -> Tensor:
        x = self.embeddings(input_ids, position_ids)
        mask = None if attention_mask is None else causal_mask(x, attention_mask)
        for layer in self.encoder.layer:
            x = layer(x, mask, encoder_hidden_states)
        return x


class Model(nn.Module):
    """The model with cross-attention to the hidden states of a vision tower and a language modeling head."""

    def __init__(self, config: Config = Config()):
        super().__init__()
        self.vision_model = Encoder(config)
        self.text_decoder: Any = nn.ModuleDict(
            {"bert": Decoder(config), "cls": nn.ModuleDict({"predictions": LmHead(config)})}
        )

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
        logits = self.text_decoder.cls.predictions(
            self.text_decoder.bert(input_ids, attention_mask, position_ids, encoder_hidden_states)
        )
        return Output(
            logits=logits, image_embeds=encoder_hidden_states, last_hidden_state=encoder_hidden_states
        )


def tie(model: Model) -> None:
    """One parameter for two weights that are mostly tied, where the file has the same numbers twice."""
    if torch.equal(
        model.text_decoder.cls.predictions.decoder.weight,
        model.text_decoder.bert.embeddings.word_embeddings.weight,
    ):
        model.text_decoder.cls.predictions.decoder.weight = (
            model.text_decoder.bert.embeddings.word_embeddings.weight
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
    # A weight with two names may be stored under one of them.
    tied = (
        (
            "text_decoder.cls.predictions.decoder.weight",
            "text_decoder.bert.embeddings.word_embeddings.weight",
        ),
    )
    for name, other in (*tied, *(pair[::-1] for pair in tied)):
        if other in tensors:
            tensors.setdefault(name, tensors[other])
    with torch.device("meta"):
        model = Model(config)
    model.load_state_dict(tensors, strict=True, assign=True)
    tie(model)
    return model.eval()


# What this was read from besides the weights. While the file is as it was written, `mapper.save` stores the
# architecture of its models by it; once you have edited it, their weights alone.
# {"config": {"architectures": ["BlipForConditionalGeneration"], "model_type": "blip", "text_config":
# {"hidden_act": "gelu", "hidden_size": 768, "intermediate_size": 3072, "layer_norm_eps": 1e-12,
# "max_position_embeddings": 512, "model_type": "blip_text_model", "num_attention_heads": 12,
# "num_hidden_layers": 12, "tie_word_embeddings": true, "vocab_size": 30524}, "vision_config": {"hidden_act":
# "gelu", "hidden_size": 768, "intermediate_size": 3072, "layer_norm_eps": 1e-05, "model_type":
# "blip_vision_model", "num_attention_heads": 12, "num_hidden_layers": 12, "patch_size": 16}}, "notes":
# ["header from the bundled catalogue (reconstructed with transformers 5.23.0 from config), not from the hub",
# "evidence for its config: repository
# (botextractai/ai-image-captioning:blip-image-captioning-base/config.json)"]}
# sha256 of all above: 8da0c50248a78d86
