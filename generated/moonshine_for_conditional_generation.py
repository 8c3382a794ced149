"""UsefulSensors/moonshine-tiny: written by mapper 0.1.0, rules 085fa52bb6da.

Reading: exact (family moonshine).
header from the bundled catalogue (reconstructed with transformers 5.23.0 from config), not from the hub
evidence for its config: transformers-default
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

    hidden_size: int = 288  # shape: model.decoder.norm.weight [288]
    heads: int = 8  # config: encoder_num_attention_heads
    # shape and config: model.encoder.layers.{0..5}.self_attn.q_proj.weight [288, 288] = heads * head_dim
    encoder_head_dim: int = 36
    # shape and config: model.decoder.layers.{0..5}.encoder_attn.q_proj.weight [288, 288] = heads * head_dim
    decoder_head_dim: int = 36
    intermediate_size: int = 1152  # shape: model.decoder.layers.{0..5}.mlp.fc2.weight [288, 1152]
    encoder_embeddings_channels: int = 576  # shape: model.encoder.conv2.weight [576, 288, 7]
    encoder_layers: int = 6  # name: model.encoder.layers.*
    frames_hop: int = 384  # rule: families/moonshine.yaml (the strides of three convolutions, 64 * 3 * 2)
    # rule: families/moonshine.yaml: 2 * ceil(floor(attention.head_dim * rotary.fraction) / 2)
    rotary_dim: int = 32
    # rule: families/moonshine.yaml: rotary.stated_base ** (rotary.dim / floor(attention.head_dim * ...
    rotary_base: float = 10000.0
    vocab_size: int = 32768  # shape: model.decoder.embed_tokens.weight [32768, 288]
    decoder_layers: int = 6  # name: model.decoder.layers.*


@dataclass
class Output:
    """What the model returns."""

    logits: Tensor
    encoder_last_hidden_state: Tensor


torch.export.register_dataclass(Output)


def apply_rotary_interleaved(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotates channel 2 i with channel 2 i + 1. x (B, H, T, D), cos and sin (B, 1, T, D / 2)"""
    a, b = x[..., ::2], x[..., 1::2]
    return torch.stack((a * cos - b * sin, b * cos + a * sin), dim=-1).flatten(-2)


def apply_rotary_partial_interleaved(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotates the first R channels, neighbours paired, and keeps the rest. cos and sin (B, 1, T, R / 2)"""
    size = 2 * cos.shape[-1]
    return torch.cat((apply_rotary_interleaved(x[..., :size], cos, sin), x[..., size:]), dim=-1)


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


def rotary_frequencies(positions: Tensor, rotary_dim: int, base: float) -> Tensor:
    """Angle per position of each pair of channels. -> (R / 2,) on the device of positions"""
    index = torch.arange(0, rotary_dim, 2, device=positions.device)
    return 1.0 / base ** (index.float() / rotary_dim)


def rotary_tables(x: Tensor, positions: Tensor, frequencies: Tensor) -> tuple[Tensor, Tensor]:
    """Cosine and sine of every angle, in the dtype of x. positions (B, T) -> two (B, 1, T, R / 2)"""
    angles = positions[:, None, :, None].float() * frequencies
    return angles.cos().to(x.dtype), angles.sin().to(x.dtype)


def split_heads(x: Tensor, head_dim: int) -> Tensor:
    """Splits a projection into heads. x (B, T, H * D) -> (B, H, T, D)"""
    return x.unflatten(-1, (-1, head_dim)).transpose(1, 2)


class EncoderAttention(nn.Module):
    """model.encoder.layers.*.self_attn: self-attention with interleaved rotary embeddings of a part of
    each head and an attention mask.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.head_dim = config.encoder_head_dim
        self.q_proj = nn.Linear(config.hidden_size, config.heads * config.encoder_head_dim, bias=False)
        self.k_proj = nn.Linear(config.hidden_size, config.heads * config.encoder_head_dim, bias=False)
        self.v_proj = nn.Linear(config.hidden_size, config.heads * config.encoder_head_dim, bias=False)
        self.o_proj = nn.Linear(config.heads * config.encoder_head_dim, config.hidden_size, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None) -> Tensor:
        q = split_heads(self.q_proj(x), self.head_dim)
        k = split_heads(self.k_proj(x), self.head_dim)
        v = split_heads(self.v_proj(x), self.head_dim)
        q = apply_rotary_partial_interleaved(q, cos, sin)
        k = apply_rotary_partial_interleaved(k, cos, sin)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.o_proj(merge_heads(y))


class DecoderAttention(nn.Module):
    """model.decoder.layers.*.self_attn: self-attention with interleaved rotary embeddings of a part of
    each head and a causal mask.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.head_dim = config.decoder_head_dim
        self.q_proj = nn.Linear(config.hidden_size, config.heads * config.decoder_head_dim, bias=False)
        self.k_proj = nn.Linear(config.hidden_size, config.heads * config.decoder_head_dim, bias=False)
        self.v_proj = nn.Linear(config.hidden_size, config.heads * config.decoder_head_dim, bias=False)
        self.o_proj = nn.Linear(config.heads * config.decoder_head_dim, config.hidden_size, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None) -> Tensor:
        q = split_heads(self.q_proj(x), self.head_dim)
        k = split_heads(self.k_proj(x), self.head_dim)
        v = split_heads(self.v_proj(x), self.head_dim)
        q = apply_rotary_partial_interleaved(q, cos, sin)
        k = apply_rotary_partial_interleaved(k, cos, sin)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None)
        return self.o_proj(merge_heads(y))


class CrossAttention(nn.Module):
    """model.decoder.layers.*.encoder_attn: cross-attention with an attention mask over the source."""

    def __init__(self, config: Config):
        super().__init__()
        self.head_dim = config.decoder_head_dim
        self.q_proj = nn.Linear(config.hidden_size, config.heads * config.decoder_head_dim, bias=False)
        self.k_proj = nn.Linear(config.hidden_size, config.heads * config.decoder_head_dim, bias=False)
        self.v_proj = nn.Linear(config.hidden_size, config.heads * config.decoder_head_dim, bias=False)
        self.o_proj = nn.Linear(config.heads * config.decoder_head_dim, config.hidden_size, bias=False)

    def forward(
        self, x: Tensor, encoder_hidden_states: Tensor, cross_attention_mask: Tensor | None
    ) -> Tensor:
        q = split_heads(self.q_proj(x), self.head_dim)
        k = split_heads(self.k_proj(encoder_hidden_states), self.head_dim)
        v = split_heads(self.v_proj(encoder_hidden_states), self.head_dim)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=cross_attention_mask)
        return self.o_proj(merge_heads(y))


class EncoderFeedForward(nn.Module):
    """model.encoder.layers.*.mlp: feed-forward network."""

    def __init__(self, config: Config):
        super().__init__()
        self.fc1 = nn.Linear(config.hidden_size, config.intermediate_size)
        self.fc2 = nn.Linear(config.intermediate_size, config.hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(F.gelu(self.fc1(x)))


class DecoderFeedForward(nn.Module):
    """model.decoder.layers.*.mlp: feed-forward network with a gate (GLU) that is fused with the up
    projection.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.fc1 = nn.Linear(config.hidden_size, 2 * config.intermediate_size)
        self.fc2 = nn.Linear(config.intermediate_size, config.hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        up, gate = self.fc1(x).chunk(2, dim=-1)
        return self.fc2(F.silu(gate) * up)


class DecoderLayer(nn.Module):
    """model.decoder.layers.*: a layer with pre-norm, attention, cross-attention and a feed-forward
    network.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.input_layernorm = nn.LayerNorm(config.hidden_size, bias=False)
        self.self_attn = DecoderAttention(config)
        self.post_attention_layernorm = nn.LayerNorm(config.hidden_size, bias=False)
        self.encoder_attn = CrossAttention(config)
        self.final_layernorm = nn.LayerNorm(config.hidden_size, bias=False)
        self.mlp = DecoderFeedForward(config)

    def forward(
        self,
        x: Tensor,
        cos: Tensor,
        sin: Tensor,
        mask: Tensor | None,
        encoder_hidden_states: Tensor,
        cross_attention_mask: Tensor | None,
    ) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), cos, sin, mask)
        x = x + self.encoder_attn(
            self.post_attention_layernorm(x), encoder_hidden_states, cross_attention_mask
        )
        return x + self.mlp(self.final_layernorm(x))


class EncoderLayer(nn.Module):
    """model.encoder.layers.*: a layer with pre-norm, attention and a feed-forward network."""

    def __init__(self, config: Config):
        super().__init__()
        self.input_layernorm = nn.LayerNorm(config.hidden_size, bias=False)
        self.self_attn = EncoderAttention(config)
        self.post_attention_layernorm = nn.LayerNorm(config.hidden_size, bias=False)
        self.mlp = EncoderFeedForward(config)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), cos, sin, mask)
        return x + self.mlp(self.post_attention_layernorm(x))


class Encoder(nn.Module):
    """model.encoder: a stack of layers with a mask of the frames that are no padding, rotary embeddings
    and a final norm.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.frames_hop = config.frames_hop
        self.rotary_dim = config.rotary_dim
        self.rotary_base = config.rotary_base
        self.conv1 = nn.Conv1d(1, config.hidden_size, kernel_size=127, stride=64, bias=False)
        self.groupnorm = nn.GroupNorm(1, config.hidden_size)
        self.conv2 = nn.Conv1d(
            config.hidden_size, config.encoder_embeddings_channels, kernel_size=7, stride=3
        )
        self.conv3 = nn.Conv1d(
            config.encoder_embeddings_channels, config.hidden_size, kernel_size=3, stride=2
        )
        self.layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.encoder_layers))
        self.layer_norm = nn.LayerNorm(config.hidden_size, bias=False)

    def forward(
        self, input_values: Tensor, attention_mask: Tensor | None, position_ids: Tensor | None
    ) -> Tensor:
        x = self.embeddings(input_values)
        frames = None if attention_mask is None else attention_mask[:, :: self.frames_hop][:, : x.shape[1]]
        mask = padding_mask(frames)
        cos, sin = self.rotary(x, position_indices(x, position_ids))
        for layer in self.layers:
            x = layer(x, cos, sin, mask)
        return self.layer_norm(x)

    def embeddings(self, input_values: Tensor) -> Tensor:
        x = self.groupnorm(torch.tanh(self.conv1(input_values[:, None])))
        return F.gelu(self.conv3(F.gelu(self.conv2(x)))).transpose(1, 2)

    def rotary(self, x: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        return rotary_tables(x, positions, rotary_frequencies(positions, self.rotary_dim, self.rotary_base))


class Decoder(nn.Module):
    """model.decoder: a stack of layers with a causal mask, rotary embeddings and a final norm."""

    def __init__(self, config: Config):
        super().__init__()
        self.rotary_dim = config.rotary_dim
        self.rotary_base = config.rotary_base
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(DecoderLayer(config) for _ in range(config.decoder_layers))
        self.norm = nn.LayerNorm(config.hidden_size, bias=False)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None,
        position_ids: Tensor | None,
        encoder_hidden_states: Tensor,
        cross_attention_mask: Tensor | None,
    ) -> Tensor:
        x = self.embed_tokens(input_ids)
        mask = None if attention_mask is None else causal_mask(x, attention_mask)
        cos, sin = self.rotary(x, position_indices(x, position_ids))
        for layer in self.layers:
            x = layer(x, cos, sin, mask, encoder_hidden_states, cross_attention_mask)
        return self.norm(x)

    def rotary(self, x: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        return rotary_tables(x, positions, rotary_frequencies(positions, self.rotary_dim, self.rotary_base))


class Model(nn.Module):
    """The model with an encoder and a decoder and a language modeling head."""

    def __init__(self, config: Config = Config()):
        super().__init__()
        self.frames_hop = config.frames_hop
        self.model: Any = nn.ModuleDict({"encoder": Encoder(config), "decoder": Decoder(config)})

    def forward(
        self,
        input_values: Tensor,
        decoder_input_ids: Tensor,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        decoder_attention_mask: Tensor | None = None,
        decoder_position_ids: Tensor | None = None,
    ) -> Output:
        """input_values (batch, samples), decoder_input_ids (batch, decoder_length), attention_mask (batch,
        samples), position_ids (batch, length), decoder_attention_mask (batch, decoder_length),
        decoder_position_ids (batch, decoder_length)
        """
        encoder_hidden_states = self.model.encoder(input_values, attention_mask, position_ids)
        cross_attention_mask = padding_mask(
            None
            if attention_mask is None
            else attention_mask[:, :: self.frames_hop][:, : encoder_hidden_states.shape[1]]
        )
        input_ids = decoder_input_ids
        position_ids = decoder_position_ids
        x = self.model.decoder(
            input_ids, decoder_attention_mask, position_ids, encoder_hidden_states, cross_attention_mask
        )
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
# {"config": {"architectures": ["MoonshineForConditionalGeneration"], "attention_bias": false,
# "decoder_hidden_act": "silu", "decoder_num_hidden_layers": 6, "encoder_hidden_act": "gelu",
# "encoder_num_attention_heads": 8, "encoder_num_hidden_layers": 6, "hidden_size": 288, "intermediate_size":
# 1152, "model_type": "moonshine", "partial_rotary_factor": 0.9, "rope_theta": 10000.0, "tie_word_embeddings":
# true, "vocab_size": 32768}, "notes": ["header from the bundled catalogue (reconstructed with transformers
# 5.23.0 from config), not from the hub", "evidence for its config: transformers-default"]}
# sha256 of all above: 04cd19de556549b9
