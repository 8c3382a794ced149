"""answerdotai/ModernBERT-base: written by mapper 0.1.0, rules 085fa52bb6da.

Reading: exact (family modernbert).
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

    vocab_size: int = 50368  # shape: decoder.bias [50368]
    hidden_size: int = 768  # shape: head.dense.weight [768, 768]
    norm_eps: float = 1e-5  # config: norm_eps
    heads: int = 12  # config: num_attention_heads
    head_dim: int = 64  # shape and config: model.layers.0.attn.Wo.weight [768, 768] = heads * head_dim
    intermediate_size: int = 1152  # shape: model.layers.0.mlp.Wo.weight [768, 1152]
    # rule: families/modernbert.yaml: index % attention.window_period for each of layers
    layer_types: tuple[str, ...] = (("full_attention",) + ("sliding_attention",) * 2) * 7 + (
        "full_attention",
    )
    one_sided_window: int = 64  # rule: vocabulary/config_attention.yaml: floor(attention.window / 2)
    rotary_base: float = 160000.0  # config: global_rope_theta
    rotary_local_base: float = 10000.0  # config: local_rope_theta


@dataclass
class Output:
    """What the model returns."""

    logits: Tensor
    last_hidden_state: Tensor


torch.export.register_dataclass(Output)


def apply_rotary(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotates channel i with channel i + D / 2. x (B, H, T, D), cos and sin (B, 1, T, D / 2)"""
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


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


def sliding_mask(x: Tensor, attention_mask: Tensor | None, window: int, after: int = 0) -> Tensor:
    """Shows each query itself, the window - 1 keys before it and `after` behind. Shapes as in causal_mask"""
    index = torch.arange(x.shape[1], device=x.device)
    mask = ((index <= index[:, None] + after) & (index > index[:, None] - window))[None, None]
    return mask if attention_mask is None else mask & (attention_mask[:, None, None, :] != 0)


def split_heads(x: Tensor, head_dim: int) -> Tensor:
    """Splits a projection into heads. x (B, T, H * D) -> (B, H, T, D)"""
    return x.unflatten(-1, (-1, head_dim)).transpose(1, 2)


class Embeddings(nn.Module):
    """model.embeddings: token embeddings with a norm."""

    def __init__(self, config: Config):
        super().__init__()
        self.tok_embeddings = nn.Embedding(config.vocab_size, config.hidden_size)
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.norm_eps, bias=False)

    def forward(self, input_ids: Tensor) -> Tensor:
        return self.norm(self.tok_embeddings(input_ids))


class Attention(nn.Module):
    """model.layers.*.attn: self-attention with rotary embeddings and an attention mask."""

    def __init__(self, config: Config):
        super().__init__()
        self.head_dim = config.head_dim
        self.Wqkv = nn.Linear(config.hidden_size, 3 * config.heads * config.head_dim, bias=False)
        self.Wo = nn.Linear(config.heads * config.head_dim, config.hidden_size, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None) -> Tensor:
        q, k, v = self.Wqkv(x).chunk(3, dim=-1)
        v = split_heads(v, self.head_dim)
        q = apply_rotary(split_heads(q, self.head_dim), cos, sin)
        k = apply_rotary(split_heads(k, self.head_dim), cos, sin)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.Wo(merge_heads(y))


class FeedForward(nn.Module):
    """model.layers.*.mlp: feed-forward network with a gate (GLU) that is fused with the up projection."""

    def __init__(self, config: Config):
        super().__init__()
        self.Wi = nn.Linear(config.hidden_size, 2 * config.intermediate_size, bias=False)
        self.Wo = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.Wi(x).chunk(2, dim=-1)
        return self.Wo(F.gelu(gate) * up)


class LayerWithNormAttention(nn.Module):
    """model.layers.*: a layer with pre-norm, attention and a feed-forward network."""

    def __init__(self, config: Config):
        super().__init__()
        self.attn_norm = nn.LayerNorm(config.hidden_size, eps=config.norm_eps, bias=False)
        self.attn = Attention(config)
        self.mlp_norm = nn.LayerNorm(config.hidden_size, eps=config.norm_eps, bias=False)
        self.mlp = FeedForward(config)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None) -> Tensor:
        x = x + self.attn(self.attn_norm(x), cos, sin, mask)
        return x + self.mlp(self.mlp_norm(x))


class Layer(nn.Module):
    """model.layers.0: a layer with attention, pre-norm and a feed-forward network."""

    def __init__(self, config: Config):
        super().__init__()
        self.attn = Attention(config)
        self.mlp_norm = nn.LayerNorm(config.hidden_size, eps=config.norm_eps, bias=False)
        self.mlp = FeedForward(config)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None) -> Tensor:
        x = x + self.attn(x, cos, sin, mask)
        return x + self.mlp(self.mlp_norm(x))


class Encoder(nn.Module):
    """model: a stack of layers with a mask for each type of layer, full attention or a sliding window to
    both sides, rotary embeddings of its own for each type of layer and a final norm.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.one_sided_window = config.one_sided_window
        self.layer_types = config.layer_types
        self.rotary_dim = config.head_dim
        self.rotary_base = config.rotary_base
        self.rotary_local_base = config.rotary_local_base
        self.embeddings = Embeddings(config)
        self.layers = nn.ModuleList(
            [Layer(config), *(LayerWithNormAttention(config) for _ in range(len(config.layer_types) - 1))]
        )
        self.final_norm = nn.LayerNorm(config.hidden_size, eps=config.norm_eps, bias=False)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None, position_ids: Tensor | None
    ) -> Tensor:
        x = self.embeddings(input_ids)
        full = padding_mask(attention_mask)
        window = self.one_sided_window + 1
        near = sliding_mask(x, attention_mask, window, self.one_sided_window)
        masks = {"full_attention": full, "sliding_attention": near}
        positions = position_indices(x, position_ids)
        angles = {
            "full_attention": self.rotary(x, positions),
            "sliding_attention": self.local_rotary(x, positions),
        }
        for layer, kind in zip(self.layers, self.layer_types, strict=True):
            cos, sin = angles[kind]
            x = layer(x, cos, sin, masks[kind])
        return self.final_norm(x)

    def rotary(self, x: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        return rotary_tables(x, positions, rotary_frequencies(positions, self.rotary_dim, self.rotary_base))

    def local_rotary(self, x: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        return rotary_tables(
            x, positions, rotary_frequencies(positions, self.rotary_dim, self.rotary_local_base)
        )


class Model(nn.Module):
    """The model with a masked language modeling head."""

    def __init__(self, config: Config = Config()):
        super().__init__()
        self.model = Encoder(config)
        self.head: Any = nn.ModuleDict(
            {
                "dense": nn.Linear(config.hidden_size, config.hidden_size, bias=False),
                "norm": nn.LayerNorm(config.hidden_size, eps=config.norm_eps, bias=False),
            }
        )
        self.decoder: Any = nn.ParameterDict({"bias": nn.Parameter(torch.zeros(config.vocab_size))})

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, position_ids: Tensor | None = None
    ) -> Output:
        """input_ids (batch, length), attention_mask (batch, length), position_ids (batch, length)"""
        x = self.model(input_ids, attention_mask, position_ids)
        embedding_weight = self.model.embeddings.tok_embeddings.weight
        logits = self.lm_head(x, embedding_weight)
        return Output(logits=logits, last_hidden_state=x)

    def lm_head(self, x: Tensor, embedding_weight: Tensor) -> Tensor:
        x = self.head.norm(F.gelu(self.head.dense(x)))
        return F.linear(x, embedding_weight, self.decoder.bias)


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
# {"config": {"architectures": ["ModernBertForMaskedLM"], "attention_bias": false, "classifier_activation":
# "gelu", "classifier_bias": false, "decoder_bias": true, "global_attn_every_n_layers": 3,
# "global_rope_theta": 160000.0, "hidden_activation": "gelu", "hidden_size": 768, "intermediate_size": 1152,
# "local_attention": 128, "local_rope_theta": 10000.0, "mlp_bias": false, "model_type": "modernbert",
# "norm_bias": false, "norm_eps": 1e-05, "num_attention_heads": 12, "num_hidden_layers": 22, "vocab_size":
# 50368}, "notes": ["header from the bundled catalogue (reconstructed with transformers 5.23.0 from config),
# not from the hub", "evidence for its config: transformers-default"]}
# sha256 of all above: 726a811af518d327
