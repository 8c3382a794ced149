"""openai/whisper-small: written by mapper 0.1.0, rules 085fa52bb6da.

Reading: exact (family whisper).
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

    hidden_size: int = 768  # shape: model.decoder.layer_norm.weight [768]
    encoder_heads: int = 12  # config: encoder_attention_heads
    # shape and config: model.encoder.layers.{0..11}.self_attn.q_proj.weight [768, 768] = heads * head_dim
    encoder_head_dim: int = 64
    decoder_heads: int = 12  # config: decoder_attention_heads
    # shape and config: model.decoder.layers.{0..11}.encoder_attn.q_proj.weight [768, 768] = heads * head_dim
    decoder_head_dim: int = 64
    intermediate_size: int = 3072  # shape: model.decoder.layers.{0..11}.fc1.weight [3072, 768]
    mel_bins: int = 80  # shape: model.encoder.conv1.weight [768, 80, 3]
    encoder_positions: int = 1500  # shape: model.encoder.embed_positions.weight [1500, 768]
    encoder_layers: int = 12  # name: model.encoder.layers.*
    vocab_size: int = 51865  # shape: model.decoder.embed_tokens.weight [51865, 768]
    decoder_positions: int = 448  # shape: model.decoder.embed_positions.weight [448, 768]
    decoder_layers: int = 12  # name: model.decoder.layers.*


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


def position_indices(x: Tensor, position_ids: Tensor | None) -> Tensor:
    """The caller's positions, or 0, 1, 2, ... x (B, T, ...) -> (B or 1, T)"""
    return torch.arange(x.shape[1], device=x.device)[None] if position_ids is None else position_ids


def split_heads(x: Tensor, head_dim: int) -> Tensor:
    """Splits a projection into heads. x (B, T, H * D) -> (B, H, T, D)"""
    return x.unflatten(-1, (-1, head_dim)).transpose(1, 2)


class EncoderAttention(nn.Module):
    """model.encoder.layers.*.self_attn: self-attention."""

    def __init__(self, config: Config):
        super().__init__()
        self.head_dim = config.encoder_head_dim
        self.q_proj = nn.Linear(config.hidden_size, config.encoder_heads * config.encoder_head_dim)
        self.k_proj = nn.Linear(
            config.hidden_size, config.encoder_heads * config.encoder_head_dim, bias=False
        )
        self.v_proj = nn.Linear(config.hidden_size, config.encoder_heads * config.encoder_head_dim)
        self.out_proj = nn.Linear(config.encoder_heads * config.encoder_head_dim, config.hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        q = split_heads(self.q_proj(x), self.head_dim)
        k = split_heads(self.k_proj(x), self.head_dim)
        v = split_heads(self.v_proj(x), self.head_dim)
        y = F.scaled_dot_product_attention(q, k, v)
        return self.out_proj(merge_heads(y))


class DecoderAttention(nn.Module):
    """model.decoder.layers.*.self_attn: self-attention with a causal mask."""

    def __init__(self, config: Config):
        super().__init__()
        self.head_dim = config.decoder_head_dim
        self.q_proj = nn.Linear(config.hidden_size, config.decoder_heads * config.decoder_head_dim)
        self.k_proj = nn.Linear(
            config.hidden_size, config.decoder_heads * config.decoder_head_dim, bias=False
        )
        self.v_proj = nn.Linear(config.hidden_size, config.decoder_heads * config.decoder_head_dim)
        self.out_proj = nn.Linear(config.decoder_heads * config.decoder_head_dim, config.hidden_size)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        q = split_heads(self.q_proj(x), self.head_dim)
        k = split_heads(self.k_proj(x), self.head_dim)
        v = split_heads(self.v_proj(x), self.head_dim)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None)
        return self.out_proj(merge_heads(y))


class CrossAttention(nn.Module):
    """model.decoder.layers.*.encoder_attn: cross-attention."""

    def __init__(self, config: Config):
        super().__init__()
        self.head_dim = config.decoder_head_dim
        self.q_proj = nn.Linear(config.hidden_size, config.decoder_heads * config.decoder_head_dim)
        self.k_proj = nn.Linear(
            config.hidden_size, config.decoder_heads * config.decoder_head_dim, bias=False
        )
        self.v_proj = nn.Linear(config.hidden_size, config.decoder_heads * config.decoder_head_dim)
        self.out_proj = nn.Linear(config.decoder_heads * config.decoder_head_dim, config.hidden_size)

    def forward(self, x: Tensor, encoder_hidden_states: Tensor) -> Tensor:
        q = split_heads(self.q_proj(x), self.head_dim)
        k = split_heads(self.k_proj(encoder_hidden_states), self.head_dim)
        v = split_heads(self.v_proj(encoder_hidden_states), self.head_dim)
        y = F.scaled_dot_product_attention(q, k, v)
        return self.out_proj(merge_heads(y))


class DecoderLayer(nn.Module):
    """model.decoder.layers.*: a layer with pre-norm, attention, cross-attention and a feed-forward
    network.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.self_attn_layer_norm = nn.LayerNorm(config.hidden_size)
        self.self_attn = DecoderAttention(config)
        self.encoder_attn_layer_norm = nn.LayerNorm(config.hidden_size)
        self.encoder_attn = CrossAttention(config)
        self.final_layer_norm = nn.LayerNorm(config.hidden_size)
        self.fc1 = nn.Linear(config.hidden_size, config.intermediate_size)
        self.fc2 = nn.Linear(config.intermediate_size, config.hidden_size)

    def forward(self, x: Tensor, mask: Tensor | None, encoder_hidden_states: Tensor) -> Tensor:
        x = x + self.self_attn(self.self_attn_layer_norm(x), mask)
        x = x + self.encoder_attn(self.encoder_attn_layer_norm(x), encoder_hidden_states)
        return x + self.feed_forward(self.final_layer_norm(x))

    def feed_forward(self, x: Tensor) -> Tensor:
        return self.fc2(F.gelu(self.fc1(x)))


class EncoderLayer(nn.Module):
    """model.encoder.layers.*: a layer with pre-norm, attention and a feed-forward network."""

    def __init__(self, config: Config):
        super().__init__()
        self.self_attn_layer_norm = nn.LayerNorm(config.hidden_size)
        self.self_attn = EncoderAttention(config)
        self.final_layer_norm = nn.LayerNorm(config.hidden_size)
        self.fc1 = nn.Linear(config.hidden_size, config.intermediate_size)
        self.fc2 = nn.Linear(config.intermediate_size, config.hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.self_attn(self.self_attn_layer_norm(x))
        return x + self.feed_forward(self.final_layer_norm(x))

    def feed_forward(self, x: Tensor) -> Tensor:
        return self.fc2(F.gelu(self.fc1(x)))


class Encoder(nn.Module):
    """model.encoder: a stack of layers with a final norm."""

    def __init__(self, config: Config):
        super().__init__()
        self.conv1 = nn.Conv1d(config.mel_bins, config.hidden_size, kernel_size=3, padding=1)
        self.conv2 = nn.Conv1d(config.hidden_size, config.hidden_size, kernel_size=3, stride=2, padding=1)
        self.embed_positions = nn.Embedding(config.encoder_positions, config.hidden_size)
        self.layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.encoder_layers))
        self.layer_norm = nn.LayerNorm(config.hidden_size)

    def forward(self, input_features: Tensor) -> Tensor:
        x = self.embeddings(input_features)
        for layer in self.layers:
            x = layer(x)
        return self.layer_norm(x)

    def embeddings(self, input_features: Tensor) -> Tensor:
        x = F.gelu(self.conv1(input_features))
        x = F.gelu(self.conv2(x)).transpose(1, 2)
        return x + self.embed_positions.weight


class Decoder(nn.Module):
    """model.decoder: a stack of layers with a causal mask and a final norm."""

    def __init__(self, config: Config):
        super().__init__()
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.embed_positions = nn.Embedding(config.decoder_positions, config.hidden_size)
        self.layers = nn.ModuleList(DecoderLayer(config) for _ in range(config.decoder_layers))
        self.layer_norm = nn.LayerNorm(config.hidden_size)

    def forward(
        self,
        input_ids: Tensor,
        position_ids: Tensor | None,
        attention_mask: Tensor | None,
        encoder_hidden_states: Tensor,
    ) -> Tensor:
        x = self.embeddings(input_ids, position_ids)
        mask = None if attention_mask is None else causal_mask(x, attention_mask)
        for layer in self.layers:
            x = layer(x, mask, encoder_hidden_states)
        return self.layer_norm(x)

    def embeddings(self, input_ids: Tensor, position_ids: Tensor | None) -> Tensor:
        x = self.embed_tokens(input_ids)
        return x + self.embed_positions(position_indices(input_ids, position_ids))


class Model(nn.Module):
    """The model with an encoder and a decoder and a language modeling head."""

    def __init__(self, config: Config = Config()):
        super().__init__()
        self.model: Any = nn.ModuleDict({"encoder": Encoder(config), "decoder": Decoder(config)})

    def forward(
        self,
        input_features: Tensor,
        decoder_input_ids: Tensor,
        decoder_attention_mask: Tensor | None = None,
        decoder_position_ids: Tensor | None = None,
    ) -> Output:
        """input_features (batch, 80, 3000), decoder_input_ids (batch, decoder_length),
        decoder_attention_mask (batch, decoder_length), decoder_position_ids (batch, decoder_length)
        """
        encoder_hidden_states = self.model.encoder(input_features)
        input_ids = decoder_input_ids
        position_ids = decoder_position_ids
        x = self.model.decoder(input_ids, position_ids, decoder_attention_mask, encoder_hidden_states)
        logits = F.linear(x, self.model.decoder.embed_tokens.weight)
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
# {"config": {"activation_function": "gelu", "architectures": ["WhisperForConditionalGeneration"], "d_model":
# 768, "decoder_attention_heads": 12, "decoder_ffn_dim": 3072, "decoder_layers": 12,
# "encoder_attention_heads": 12, "encoder_ffn_dim": 3072, "max_source_positions": 1500,
# "max_target_positions": 448, "model_type": "whisper", "num_hidden_layers": 12, "num_mel_bins": 80,
# "vocab_size": 51865}, "notes": ["header from the bundled catalogue (reconstructed with transformers 5.23.0
# from config), not from the hub", "evidence for its config: recalled"]}
# sha256 of all above: 5468f3809bba9970
