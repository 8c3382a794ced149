"""google-t5/t5-small: written by mapper 0.1.0, rules 085fa52bb6da.

Reading: exact (family t5).
header from the bundled catalogue (reconstructed with transformers 5.23.0 from config), not from the hub
evidence for its config: repository (learningexample/xformer:t5-small/config.json)
about this header: the difference from the published count is the unused relative bias
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

    hidden_size: int = 512  # shape: shared.weight [32128, 512]
    heads: int = 8  # shape: decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight [32, 8]
    head_dim: int = 64  # shape: decoder.block.0.layer.0.SelfAttention.q.weight [512, 512]
    buckets: int = 32  # shape: decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight [32, 8]
    intermediate_size: int = 2048  # shape: decoder.block.0.layer.2.DenseReluDense.wi.weight [2048, 512]
    norm_eps: float = 1e-6  # config: layer_norm_epsilon
    encoder_layers: int = 6  # name: encoder.block.*
    max_distance: int = 128  # config: relative_attention_max_distance
    decoder_layers: int = 6  # name: decoder.block.*
    vocab_size: int = 32128  # shape: shared.weight [32128, 512]


@dataclass
class Output:
    """What the model returns."""

    logits: Tensor
    encoder_last_hidden_state: Tensor


torch.export.register_dataclass(Output)


def bucket_logarithmic(lengths: Tensor, buckets: int, max_distance: int) -> Tensor:
    """One bucket per length for the lower half, then logarithmic up to max_distance.

    lengths >= 0, any shape
    """
    exact = buckets // 2
    steps = (
        torch.log(lengths.clamp(min=1).float() / exact) / math.log(max_distance / exact) * (buckets - exact)
    )
    return torch.where(lengths < exact, lengths, (exact + steps.long()).clamp(max=buckets - 1))


def causal_mask(x: Tensor, attention_mask: Tensor | None) -> Tensor:
    """Hides later keys and padded ones. x (B, T, ...), attention_mask (B, T) or None -> (1 or B, 1, T, T)"""
    index = torch.arange(x.shape[1], device=x.device)
    mask = (index <= index[:, None])[None, None]
    return mask if attention_mask is None else mask & (attention_mask[:, None, None, :] != 0)


def masked_bias(bias: Tensor, mask: Tensor | None) -> Tensor:
    """A bias with the lowest number where the mask hides a key, once for all layers.

    bias (1, H, T, S), mask (1 or B, 1, 1 or T, S) or None -> (1 or B, H, T, S)
    """
    return bias if mask is None else torch.where(mask, bias, torch.finfo(bias.dtype).min)


def merge_heads(x: Tensor) -> Tensor:
    """Joins the heads again. x (B, H, T, D) -> (B, T, H * D)"""
    return x.transpose(1, 2).flatten(2)


def padding_mask(attention_mask: Tensor | None) -> Tensor | None:
    """Hides padded keys from every query; None hides nothing. attention_mask (B, S) -> (B, 1, 1, S)"""
    return None if attention_mask is None else attention_mask[:, None, None, :] != 0


def relative_buckets(distances: Tensor, buckets: int, max_distance: int) -> Tensor:
    """Buckets of both directions: later keys take the upper half (T5 encoder, MPNet; 1910.10683).

    Any shape
    """
    half = buckets // 2
    return torch.where(distances > 0, half, 0) + bucket_logarithmic(distances.abs(), half, max_distance)


def relative_distances(x: Tensor) -> Tensor:
    """Key position minus query position. x (B, T, ...) -> (T, T) int64, queries down, keys across"""
    index = torch.arange(x.shape[1], device=x.device)
    return index - index[:, None]


def split_heads(x: Tensor, head_dim: int) -> Tensor:
    """Splits a projection into heads. x (B, T, H * D) -> (B, H, T, D)"""
    return x.unflatten(-1, (-1, head_dim)).transpose(1, 2)


class Attention(nn.Module):
    """encoder.block.*.layer.0.SelfAttention, decoder.block.*.layer.0.SelfAttention: self-attention with
    the relative position bias of the first layer, with the attention mask in it.
    """

    def __init__(self, config: Config, has_relative_attention_bias: bool):
        super().__init__()
        self.head_dim = config.head_dim
        self.q = nn.Linear(config.hidden_size, config.heads * config.head_dim, bias=False)
        self.k = nn.Linear(config.hidden_size, config.heads * config.head_dim, bias=False)
        self.v = nn.Linear(config.hidden_size, config.heads * config.head_dim, bias=False)
        self.o = nn.Linear(config.heads * config.head_dim, config.hidden_size, bias=False)
        if has_relative_attention_bias:
            self.relative_attention_bias = nn.Embedding(config.buckets, config.heads)

    def forward(self, x: Tensor, bias: Tensor) -> Tensor:
        q = split_heads(self.q(x), self.head_dim)
        k = split_heads(self.k(x), self.head_dim)
        v = split_heads(self.v(x), self.head_dim)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=1.0)
        return self.o(merge_heads(y))


class CrossAttention(nn.Module):
    """decoder.block.*.layer.1.EncDecAttention: cross-attention with an attention mask over the source."""

    def __init__(self, config: Config, has_relative_attention_bias: bool):
        super().__init__()
        self.head_dim = config.head_dim
        self.q = nn.Linear(config.hidden_size, config.heads * config.head_dim, bias=False)
        self.k = nn.Linear(config.hidden_size, config.heads * config.head_dim, bias=False)
        self.v = nn.Linear(config.hidden_size, config.heads * config.head_dim, bias=False)
        self.o = nn.Linear(config.heads * config.head_dim, config.hidden_size, bias=False)
        if has_relative_attention_bias:
            # unused: positions of an encoder and a decoder have no distance
            self.relative_attention_bias = nn.Embedding(config.buckets, config.heads)

    def forward(
        self, x: Tensor, encoder_hidden_states: Tensor, cross_attention_mask: Tensor | None
    ) -> Tensor:
        q = split_heads(self.q(x), self.head_dim)
        k = split_heads(self.k(encoder_hidden_states), self.head_dim)
        v = split_heads(self.v(encoder_hidden_states), self.head_dim)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=cross_attention_mask, scale=1.0)
        return self.o(merge_heads(y))


class FeedForward(nn.Module):
    """encoder.block.*.layer.1.DenseReluDense, decoder.block.*.layer.2.DenseReluDense: feed-forward
    network.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.wi = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.wo = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.wo(F.relu(self.wi(x)))


class EncoderLayer(nn.Module):
    """encoder.block.*: a layer with pre-norm, attention and a feed-forward network."""

    def __init__(self, config: Config, has_relative_attention_bias: bool):
        super().__init__()
        self.layer: Any = nn.ModuleList(
            [
                nn.ModuleDict(
                    {
                        "layer_norm": nn.RMSNorm(config.hidden_size, eps=config.norm_eps),
                        "SelfAttention": Attention(
                            config, has_relative_attention_bias=has_relative_attention_bias
                        ),
                    }
                ),
                nn.ModuleDict(
                    {
                        "layer_norm": nn.RMSNorm(config.hidden_size, eps=config.norm_eps),
                        "DenseReluDense": FeedForward(config),
                    }
                ),
            ]
        )

    def forward(self, x: Tensor, bias: Tensor) -> Tensor:
        x = x + self.layer[0].SelfAttention(self.layer[0].layer_norm(x), bias)
        return x + self.layer[1].DenseReluDense(self.layer[1].layer_norm(x))


class DecoderLayer(nn.Module):
    """decoder.block.*: a layer with pre-norm, attention, cross-attention and a feed-forward network."""

    def __init__(self, config: Config, has_relative_attention_bias: bool):
        super().__init__()
        self.layer: Any = nn.ModuleList(
            [
                nn.ModuleDict(
                    {
                        "layer_norm": nn.RMSNorm(config.hidden_size, eps=config.norm_eps),
                        "SelfAttention": Attention(
                            config, has_relative_attention_bias=has_relative_attention_bias
                        ),
                    }
                ),
                nn.ModuleDict(
                    {
                        "layer_norm": nn.RMSNorm(config.hidden_size, eps=config.norm_eps),
                        "EncDecAttention": CrossAttention(
                            config, has_relative_attention_bias=has_relative_attention_bias
                        ),
                    }
                ),
                nn.ModuleDict(
                    {
                        "layer_norm": nn.RMSNorm(config.hidden_size, eps=config.norm_eps),
                        "DenseReluDense": FeedForward(config),
                    }
                ),
            ]
        )

    def forward(
        self, x: Tensor, bias: Tensor, encoder_hidden_states: Tensor, cross_attention_mask: Tensor | None
    ) -> Tensor:
        x = x + self.layer[0].SelfAttention(self.layer[0].layer_norm(x), bias)
        x = x + self.layer[1].EncDecAttention(
            self.layer[1].layer_norm(x), encoder_hidden_states, cross_attention_mask
        )
        return x + self.layer[2].DenseReluDense(self.layer[2].layer_norm(x))


class Encoder(nn.Module):
    """encoder: a stack of layers with embeddings that are looked up outside, a padding mask, a relative
    position bias that the first layer stores and a final norm.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.buckets = config.buckets
        self.max_distance = config.max_distance
        self.block: Any = nn.ModuleList(
            EncoderLayer(config, has_relative_attention_bias=index == 0)
            for index in range(config.encoder_layers)
        )
        self.final_layer_norm = nn.RMSNorm(config.hidden_size, eps=config.norm_eps)

    def forward(self, embedded: Tensor, attention_mask: Tensor | None) -> Tensor:
        x = embedded
        mask = padding_mask(attention_mask)
        buckets = relative_buckets(relative_distances(x), self.buckets, self.max_distance)
        bias = self.block[0].layer[0].SelfAttention.relative_attention_bias(buckets).permute(2, 0, 1)[None]
        bias = masked_bias(bias, mask)
        for layer in self.block:
            x = layer(x, bias)
        return self.final_layer_norm(x)


class Decoder(nn.Module):
    """decoder: a stack of layers with embeddings that are looked up outside, a causal mask, a relative
    position bias that the first layer stores and a final norm.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.buckets = config.buckets
        self.max_distance = config.max_distance
        self.block: Any = nn.ModuleList(
            DecoderLayer(config, has_relative_attention_bias=index == 0)
            for index in range(config.decoder_layers)
        )
        self.final_layer_norm = nn.RMSNorm(config.hidden_size, eps=config.norm_eps)

    def forward(
        self,
        embedded: Tensor,
        attention_mask: Tensor | None,
        encoder_hidden_states: Tensor,
        cross_attention_mask: Tensor | None,
    ) -> Tensor:
        x = embedded
        mask = causal_mask(x, attention_mask)
        before = (-relative_distances(x)).clamp(min=0)
        buckets = bucket_logarithmic(before, self.buckets, self.max_distance)
        bias = self.block[0].layer[0].SelfAttention.relative_attention_bias(buckets).permute(2, 0, 1)[None]
        bias = masked_bias(bias, mask)
        for layer in self.block:
            x = layer(x, bias, encoder_hidden_states, cross_attention_mask)
        return self.final_layer_norm(x)


class Model(nn.Module):
    """The model with an encoder and a decoder and a language modeling head."""

    def __init__(self, config: Config = Config()):
        super().__init__()
        self.hidden_size = config.hidden_size
        self.shared = nn.Embedding(config.vocab_size, config.hidden_size)
        self.encoder = Encoder(config)
        self.decoder = Decoder(config)

    def forward(
        self,
        input_ids: Tensor,
        decoder_input_ids: Tensor,
        attention_mask: Tensor | None = None,
        decoder_attention_mask: Tensor | None = None,
    ) -> Output:
        """input_ids (batch, length), decoder_input_ids (batch, decoder_length), attention_mask (batch,
        length), decoder_attention_mask (batch, decoder_length)
        """
        embedded = self.shared(input_ids)
        encoder_hidden_states = self.encoder(embedded, attention_mask)
        cross_attention_mask = padding_mask(attention_mask)
        embedded = self.shared(decoder_input_ids)
        x = (
            self.decoder(embedded, decoder_attention_mask, encoder_hidden_states, cross_attention_mask)
            * self.hidden_size**-0.5
        )
        logits = F.linear(x, self.shared.weight)
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
# {"config": {"architectures": ["T5ForConditionalGeneration"], "d_ff": 2048, "d_kv": 64, "d_model": 512,
# "dense_act_fn": "relu", "feed_forward_proj": "relu", "layer_norm_epsilon": 1e-06, "model_type": "t5",
# "num_decoder_layers": 6, "num_heads": 8, "num_layers": 6, "relative_attention_max_distance": 128,
# "relative_attention_num_buckets": 32, "vocab_size": 32128}, "notes": ["header from the bundled catalogue
# (reconstructed with transformers 5.23.0 from config), not from the hub", "evidence for its config:
# repository (learningexample/xformer:t5-small/config.json)", "about this header: the difference from the
# published count is the unused relative bias"]}
# sha256 of all above: 540de3ca44d429f0
