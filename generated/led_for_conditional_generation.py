"""allenai/led-base-16384: written by mapper 0.1.0, rules 085fa52bb6da.

Reading: exact (family led).
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

    hidden_size: int = 768  # shape: led.shared.weight [50265, 768]
    decoder_heads: int = 12  # config: decoder_attention_heads
    # shape and config: led.decoder.layers.{0..5}.encoder_attn.q_proj.weight [768, 768] = heads * head_dim
    decoder_head_dim: int = 64
    encoder_heads: int = 12  # config: encoder_attention_heads
    # shape and config: led.encoder.layers.{0..5}.self_attn.longformer_self_attn.query.weight [768, 768] ...
    encoder_head_dim: int = 64
    one_sided_window: int = 512  # rule: vocabulary/config_attention.yaml: floor(attention.window / 2)
    intermediate_size: int = 3072  # shape: led.decoder.layers.{0..5}.fc1.weight [3072, 768]
    encoder_positions: int = 16384  # shape: led.encoder.embed_positions.weight [16384, 768]
    encoder_layers: int = 6  # name: led.encoder.layers.*
    decoder_positions: int = 1024  # shape: led.decoder.embed_positions.weight [1024, 768]
    decoder_layers: int = 6  # name: led.decoder.layers.*
    vocab_size: int = 50265  # shape: led.shared.weight [50265, 768]


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


def sliding_mask(x: Tensor, attention_mask: Tensor | None, window: int, after: int = 0) -> Tensor:
    """Shows each query itself, the window - 1 keys before it and `after` behind. Shapes as in causal_mask"""
    index = torch.arange(x.shape[1], device=x.device)
    mask = ((index <= index[:, None] + after) & (index > index[:, None] - window))[None, None]
    return mask if attention_mask is None else mask & (attention_mask[:, None, None, :] != 0)


def split_heads(x: Tensor, head_dim: int) -> Tensor:
    """Splits a projection into heads. x (B, T, H * D) -> (B, H, T, D)"""
    return x.unflatten(-1, (-1, head_dim)).transpose(1, 2)


class DecoderAttention(nn.Module):
    """led.decoder.layers.*.self_attn: self-attention with a causal mask."""

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
    """led.decoder.layers.*.encoder_attn: cross-attention with an attention mask over the source."""

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


class EncoderAttention(nn.Module):
    """led.encoder.layers.*.self_attn: self-attention with a sliding window to both sides, and global
    attention of some positions (Longformer).
    """

    def __init__(self, config: Config):
        super().__init__()
        self.head_dim = config.encoder_head_dim
        self.one_sided_window = config.one_sided_window
        self.longformer_self_attn: Any = nn.ModuleDict(
            {
                "query": nn.Linear(config.hidden_size, config.encoder_heads * config.encoder_head_dim),
                "key": nn.Linear(config.hidden_size, config.encoder_heads * config.encoder_head_dim),
                "value": nn.Linear(config.hidden_size, config.encoder_heads * config.encoder_head_dim),
                "query_global": nn.Linear(config.hidden_size, config.encoder_heads * config.encoder_head_dim),
                "key_global": nn.Linear(config.hidden_size, config.encoder_heads * config.encoder_head_dim),
                "value_global": nn.Linear(config.hidden_size, config.encoder_heads * config.encoder_head_dim),
            }
        )
        self.output = nn.Linear(config.encoder_heads * config.encoder_head_dim, config.hidden_size)

    def forward(
        self, x: Tensor, attention_mask: Tensor | None, wide: Tensor | None, mask: Tensor | None
    ) -> Tensor:
        q = split_heads(self.longformer_self_attn.query(x), self.head_dim)
        k = split_heads(self.longformer_self_attn.key(x), self.head_dim)
        v = split_heads(self.longformer_self_attn.value(x), self.head_dim)
        side = self.one_sided_window
        near = sliding_mask(x, attention_mask, side + 1, side)
        near = near if wide is None else near | wide[:, None, None]
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=near)
        q = split_heads(self.longformer_self_attn.query_global(x), self.head_dim)
        k = split_heads(self.longformer_self_attn.key_global(x), self.head_dim)
        v = split_heads(self.longformer_self_attn.value_global(x), self.head_dim)
        far = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        y = y if wide is None else torch.where(wide[:, None, :, None], far, y)
        y = y if mask is None else y.masked_fill(~mask.transpose(2, 3), 0.0)
        return self.output(merge_heads(y))


class DecoderLayer(nn.Module):
    """led.decoder.layers.*: a layer with attention, post-norm, cross-attention and a feed-forward network."""

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
        return self.fc2(F.gelu(self.fc1(x)))


class EncoderLayer(nn.Module):
    """led.encoder.layers.*: a layer with attention, post-norm and a feed-forward network."""

    def __init__(self, config: Config):
        super().__init__()
        self.self_attn = EncoderAttention(config)
        self.self_attn_layer_norm = nn.LayerNorm(config.hidden_size)
        self.fc1 = nn.Linear(config.hidden_size, config.intermediate_size)
        self.fc2 = nn.Linear(config.intermediate_size, config.hidden_size)
        self.final_layer_norm = nn.LayerNorm(config.hidden_size)

    def forward(
        self, x: Tensor, attention_mask: Tensor | None, wide: Tensor | None, mask: Tensor | None
    ) -> Tensor:
        x = self.self_attn_layer_norm(x + self.self_attn(x, attention_mask, wide, mask))
        return self.final_layer_norm(x + self.feed_forward(x))

    def feed_forward(self, x: Tensor) -> Tensor:
        return self.fc2(F.gelu(self.fc1(x)))


class Encoder(nn.Module):
    """led.encoder: a stack of layers with a padding mask, and which positions have global attention."""

    def __init__(self, config: Config):
        super().__init__()
        self.embed_positions = nn.Embedding(config.encoder_positions, config.hidden_size)
        self.layernorm_embedding = nn.LayerNorm(config.hidden_size)
        self.layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.encoder_layers))

    def forward(
        self, embedded: Tensor, attention_mask: Tensor | None, global_attention_mask: Tensor | None
    ) -> Tensor:
        x = self.embeddings(embedded)
        mask = padding_mask(attention_mask)
        wide = None
        if global_attention_mask is not None:
            chosen = global_attention_mask != 0
            wide = chosen if attention_mask is None else chosen & (attention_mask != 0)
        for layer in self.layers:
            x = layer(x, attention_mask, wide, mask)
        return x

    def embeddings(self, embedded: Tensor) -> Tensor:
        x = embedded + self.embed_positions(positions_in_order(embedded))
        return self.layernorm_embedding(x)


class Decoder(nn.Module):
    """led.decoder: a stack of layers with a causal mask."""

    def __init__(self, config: Config):
        super().__init__()
        self.embed_positions = nn.Embedding(config.decoder_positions, config.hidden_size)
        self.layernorm_embedding = nn.LayerNorm(config.hidden_size)
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
        x = embedded + self.embed_positions(position_indices(embedded, position_ids))
        return self.layernorm_embedding(x)


class Model(nn.Module):
    """The model with an encoder and a decoder and a language modeling head."""

    final_logits_bias: Tensor

    def __init__(self, config: Config = Config()):
        super().__init__()
        self.led: Any = nn.ModuleDict(
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
        global_attention_mask: Tensor | None = None,
        decoder_attention_mask: Tensor | None = None,
        decoder_position_ids: Tensor | None = None,
    ) -> Output:
        """input_ids (batch, length), decoder_input_ids (batch, decoder_length), attention_mask (batch,
        length), global_attention_mask (batch, length), decoder_attention_mask (batch, decoder_length),
        decoder_position_ids (batch, decoder_length)
        """
        embedded = self.led.shared(input_ids)
        encoder_hidden_states = self.led.encoder(embedded, attention_mask, global_attention_mask)
        cross_attention_mask = padding_mask(attention_mask)
        position_ids = decoder_position_ids
        embedded = self.led.shared(decoder_input_ids)
        x = self.led.decoder(
            embedded, position_ids, decoder_attention_mask, encoder_hidden_states, cross_attention_mask
        )
        logits = F.linear(x, self.led.shared.weight) + self.final_logits_bias
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
# {"config": {"activation_function": "gelu", "architectures": ["LEDForConditionalGeneration"],
# "attention_window": [1024, 1024, 1024, 1024, 1024, 1024], "d_model": 768, "decoder_attention_heads": 12,
# "decoder_ffn_dim": 3072, "decoder_layers": 6, "encoder_attention_heads": 12, "encoder_ffn_dim": 3072,
# "max_decoder_position_embeddings": 1024, "max_encoder_position_embeddings": 16384, "model_type": "led",
# "num_hidden_layers": 6, "vocab_size": 50265}, "notes": ["header from the bundled catalogue (reconstructed
# with transformers 5.23.0 from config), not from the hub", "evidence for its config: recalled"]}
# sha256 of all above: 7a6bb7a48539ee4d
