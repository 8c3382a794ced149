"""Helsinki-NLP/opus-mt-en-de: written by mapper 0.1.0, rules 085fa52bb6da.

Reading: exact (family marian).
header from the bundled catalogue (reconstructed with transformers 5.23.0 from config), not from the hub
evidence for its config: recalled
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

    hidden_size: int = 512  # shape: model.shared.weight [58101, 512]
    encoder_heads: int = 8  # config: encoder_attention_heads
    # shape and config: model.encoder.layers.{0..5}.self_attn.q_proj.weight [512, 512] = heads * head_dim
    encoder_head_dim: int = 64
    decoder_heads: int = 8  # config: decoder_attention_heads
    # shape and config: model.decoder.layers.{0..5}.encoder_attn.q_proj.weight [512, 512] = heads * head_dim
    decoder_head_dim: int = 64
    intermediate_size: int = 2048  # shape: model.decoder.layers.{0..5}.fc1.weight [2048, 512]
    positions: int = 512  # shape: model.decoder.embed_positions.weight [512, 512]
    encoder_layers: int = 6  # name: model.encoder.layers.*
    decoder_layers: int = 6  # name: model.decoder.layers.*
    vocab_size: int = 58101  # shape: model.shared.weight [58101, 512]

    @property
    def embedding_scale(self) -> float:
        return self.hidden_size**0.5  # rule: families/pegasus.yaml: hidden_size ** 0.5


@dataclass
class Output:
    """What the model returns."""

    logits: Tensor
    encoder_last_hidden_state: Tensor


torch.export.register_dataclass(Output)


def causal_mask(x: Tensor, attention_mask: Tensor | None) -> Tensor:
    """Hides later keys and padded ones. x (B, T, ...), attention_mask (B, T) or None -> (1 or B, 1, T, T)"""
    index = torch.arange(x.shape[1], device=x.device)
    mask = (index <= index[:, None])[None, None]
    return mask if attention_mask is None else mask & (attention_mask[:, None, None, :] != 0)


def merge_heads(x: Tensor) -> Tensor:
    """Joins the heads again. x (B, H, T, D) -> (B, T, H * D)"""
    return x.transpose(1, 2).flatten(2)


def padding_mask(attention_mask: Tensor | None) -> Tensor | None:
    """Hides padded keys from every query; None hides nothing. attention_mask (B, S) -> (B, 1, 1, S)"""
    return None if attention_mask is None else attention_mask[:, None, None, :] != 0


def position_indices(x: Tensor, position_ids: Tensor | None) -> Tensor:
    """The caller's positions, or 0, 1, 2, ... x (B, T, ...) -> (B or 1, T)"""
    return torch.arange(x.shape[1], device=x.device)[None] if position_ids is None else position_ids


def positions_in_order(x: Tensor) -> Tensor:
    """0, 1, 2, ... for every position of x. x (B, T, ...) -> (1, T)"""
    return torch.arange(x.shape[1], device=x.device)[None]


def split_heads(x: Tensor, head_dim: int) -> Tensor:
    """Splits a projection into heads. x (B, T, H * D) -> (B, H, T, D)"""
    return x.unflatten(-1, (-1, head_dim)).transpose(1, 2)


class EncoderAttention(nn.Module):
    """model.encoder.layers.*.self_attn: self-attention with an attention mask."""

    def __init__(self, config: Config):
        super().__init__()
        self.head_dim = config.encoder_head_dim
        self.q_proj = nn.Linear(config.hidden_size, config.encoder_heads * config.encoder_head_dim)
        self.k_proj = nn.Linear(config.hidden_size, config.encoder_heads * config.encoder_head_dim)
        self.v_proj = nn.Linear(config.hidden_size, config.encoder_heads * config.encoder_head_dim)
        self.out_proj = nn.Linear(config.encoder_heads * config.encoder_head_dim, config.hidden_size)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        q = split_heads(self.q_proj(x), self.head_dim)
        k = split_heads(self.k_proj(x), self.head_dim)
        v = split_heads(self.v_proj(x), self.head_dim)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.out_proj(merge_heads(y))


class DecoderAttention(nn.Module):
    """model.decoder.layers.*.self_attn: self-attention with a causal mask."""

    def __init__(self, config: Config):
        super().__init__()
        self.head_dim = config.decoder_head_dim
        self.q_proj = nn.Linear(config.hidden_size, config.decoder_heads * config.decoder_head_dim)
        self.k_proj = nn.Linear(config.hidden_size, config.decoder_heads * config.decoder_head_dim)
        self.v_proj = nn.Linear(config.hidden_size, config.decoder_heads * config.decoder_head_dim)
        self.out_proj = nn.Linear(config.decoder_heads * config.decoder_head_dim, config.hidden_size)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        q = split_heads(self.q_proj(x), self.head_dim)
        k = split_heads(self.k_proj(x), self.head_dim)
        v = split_heads(self.v_proj(x), self.head_dim)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None)
        return self.out_proj(merge_heads(y))


class CrossAttention(nn.Module):
    """model.decoder.layers.*.encoder_attn: cross-attention with an attention mask over the source."""

    def __init__(self, config: Config):
        super().__init__()
        self.head_dim = config.decoder_head_dim
        self.q_proj = nn.Linear(config.hidden_size, config.decoder_heads * config.decoder_head_dim)
        self.k_proj = nn.Linear(config.hidden_size, config.decoder_heads * config.decoder_head_dim)
        self.v_proj = nn.Linear(config.hidden_size, config.decoder_heads * config.decoder_head_dim)
        self.out_proj = nn.Linear(config.decoder_heads * config.decoder_head_dim, config.hidden_size)

    def forward(
        self, x: Tensor, encoder_hidden_states: Tensor, cross_attention_mask: Tensor | None
    ) -> Tensor:
        q = split_heads(self.q_proj(x), self.head_dim)
        k = split_heads(self.k_proj(encoder_hidden_states), self.head_dim)
        v = split_heads(self.v_proj(encoder_hidden_states), self.head_dim)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=cross_attention_mask)
        return self.out_proj(merge_heads(y))


class DecoderLayer(nn.Module):
    """model.decoder.layers.*: a layer with attention, post-norm, cross-attention and a feed-forward
    network.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.self_attn = DecoderAttention(config)
        self.self_attn_layer_norm = nn.LayerNorm(config.hidden_size)
        self.encoder_attn = CrossAttention(config)
        self.encoder_attn_layer_norm = nn.LayerNorm(config.hidden_size)
        self.fc1 = nn.Linear(config.hidden_size, config.intermediate_size)
        self.fc2 = nn.Linear(config.intermediate_size, config.hidden_size)
        self.final_layer_norm = nn.LayerNorm(config.hidden_size)

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None,
        encoder_hidden_states: Tensor,
        cross_attention_mask: Tensor | None,
    ) -> Tensor:
        x = self.self_attn_layer_norm(x + self.self_attn(x, mask))
        x = self.encoder_attn_layer_norm(
            x + self.encoder_attn(x, encoder_hidden_states, cross_attention_mask)
        )
        return self.final_layer_norm(x + self.feed_forward(x))

    def feed_forward(self, x: Tensor) -> Tensor:
        return self.fc2(F.silu(self.fc1(x)))


class EncoderLayer(nn.Module):
    """model.encoder.layers.*: a layer with attention, post-norm and a feed-forward network."""

    def __init__(self, config: Config):
        super().__init__()
        self.self_attn = EncoderAttention(config)
        self.self_attn_layer_norm = nn.LayerNorm(config.hidden_size)
        self.fc1 = nn.Linear(config.hidden_size, config.intermediate_size)
        self.fc2 = nn.Linear(config.intermediate_size, config.hidden_size)
        self.final_layer_norm = nn.LayerNorm(config.hidden_size)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        x = self.self_attn_layer_norm(x + self.self_attn(x, mask))
        return self.final_layer_norm(x + self.feed_forward(x))

    def feed_forward(self, x: Tensor) -> Tensor:
        return self.fc2(F.silu(self.fc1(x)))


class Encoder(nn.Module):
    """model.encoder: a stack of layers with a padding mask."""

    def __init__(self, config: Config):
        super().__init__()
        self.scale = config.embedding_scale
        self.embed_positions = nn.Embedding(config.positions, config.hidden_size)
        self.layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.encoder_layers))

    def forward(self, embedded: Tensor, attention_mask: Tensor | None) -> Tensor:
        x = self.embeddings(embedded)
        mask = padding_mask(attention_mask)
        for layer in self.layers:
            x = layer(x, mask)
        return x

    def embeddings(self, embedded: Tensor) -> Tensor:
        x = embedded * self.scale
        return x + self.embed_positions(positions_in_order(x))


class Decoder(nn.Module):
    """model.decoder: a stack of layers with a causal mask."""

    def __init__(self, config: Config):
        super().__init__()
        self.scale = config.embedding_scale
        self.embed_positions = nn.Embedding(config.positions, config.hidden_size)
        self.layers = nn.ModuleList(DecoderLayer(config) for _ in range(config.decoder_layers))

    def forward(
        self,
        embedded: Tensor,
        position_ids: Tensor | None,
        attention_mask: Tensor | None,
        encoder_hidden_states: Tensor,
        cross_attention_mask: Tensor | None,
    ) -> Tensor:
        x = self.embeddings(embedded, position_ids)
        mask = None if attention_mask is None else causal_mask(x, attention_mask)
        for layer in self.layers:
            x = layer(x, mask, encoder_hidden_states, cross_attention_mask)
        return x

    def embeddings(self, embedded: Tensor, position_ids: Tensor | None) -> Tensor:
        x = embedded * self.scale
        return x + self.embed_positions(position_indices(x, position_ids))


class Model(nn.Module):
    """The model with an encoder and a decoder and a language modeling head."""

    final_logits_bias: Tensor

    def __init__(self, config: Config = Config()):
        super().__init__()
        self.model: Any = nn.ModuleDict(
            {
                "shared": nn.Embedding(config.vocab_size, config.hidden_size),
                "encoder": Encoder(config),
                "decoder": Decoder(config),
            }
        )
        self.register_buffer("final_logits_bias", torch.zeros(1, config.vocab_size))

    def forward(
        self,
        input_ids: Tensor,
        decoder_input_ids: Tensor,
        attention_mask: Tensor | None = None,
        decoder_attention_mask: Tensor | None = None,
        decoder_position_ids: Tensor | None = None,
    ) -> Output:
        """input_ids (batch, length), decoder_input_ids (batch, decoder_length), attention_mask (batch,
        length), decoder_attention_mask (batch, decoder_length), decoder_position_ids (batch,
        decoder_length)
        """
        embedded = self.model.shared(input_ids)
        encoder_hidden_states = self.model.encoder(embedded, attention_mask)
        cross_attention_mask = padding_mask(attention_mask)
        position_ids = decoder_position_ids
        embedded = self.model.shared(decoder_input_ids)
        x = self.model.decoder(
            embedded, position_ids, decoder_attention_mask, encoder_hidden_states, cross_attention_mask
        )
        logits = F.linear(x, self.model.shared.weight) + self.final_logits_bias
        return Output(logits=logits, encoder_last_hidden_state=encoder_hidden_states)


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
# {"config": {"activation_function": "swish", "architectures": ["MarianMTModel"], "d_model": 512,
# "decoder_attention_heads": 8, "decoder_ffn_dim": 2048, "decoder_layers": 6, "encoder_attention_heads": 8,
# "encoder_ffn_dim": 2048, "max_position_embeddings": 512, "model_type": "marian", "num_hidden_layers": 6,
# "scale_embedding": true}, "notes": ["header from the bundled catalogue (reconstructed with transformers
# 5.23.0 from config), not from the hub", "evidence for its config: recalled"]}
# sha256 of all above: bd2180dd7e1c1002
