"""EleutherAI/pythia-70m-deduped: written by mapper 0.1.0, rules 085fa52bb6da.

Reading: exact (family gpt_neox).
header from the bundled catalogue (reconstructed with transformers 5.23.0 from config), not from the hub
evidence for its config: recalled
about this header: the difference from the published count is the stored masked_bias and inv_freq
No dropout is written: training mode computes the same; `mapper generate --train` writes it.

Load the weights with `load(path)`; the attributes are the names in the checkpoint.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class Config:
    """Sizes, each with what it is known from."""

    hidden_size: int = 512  # shape: embed_out.weight [50304, 512]
    intermediate_size: int = 2048  # shape: gpt_neox.layers.{0..5}.mlp.dense_h_to_4h.weight [2048, 512]
    rotary_dim: int = 16  # rule: vocabulary/config_rotary.yaml: floor(attention.head_dim * rotary.fraction)
    heads: int = 8  # config: num_attention_heads
    # shape and config: gpt_neox.layers.{0..5}.attention.dense.weight [512, 512] = heads * head_dim
    head_dim: int = 64
    norm_eps: float = 1e-5  # config: layer_norm_eps
    vocab_size: int = 50304  # shape: embed_out.weight [50304, 512]
    layers: int = 6  # name: gpt_neox.layers.*
    rotary_base: int = 10000  # config: rotary_emb_base


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


def apply_rotary_partial(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotates the first R channels, halves paired, and keeps the rest. cos and sin (B, 1, T, R / 2)"""
    size = 2 * cos.shape[-1]
    return torch.cat((apply_rotary(x[..., :size], cos, sin), x[..., size:]), dim=-1)


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


class FeedForward(nn.Module):
    """gpt_neox.layers.*.mlp: feed-forward network."""

    def __init__(self, config: Config):
        super().__init__()
        self.dense_h_to_4h = nn.Linear(config.hidden_size, config.intermediate_size)
        self.dense_4h_to_h = nn.Linear(config.intermediate_size, config.hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        return self.dense_4h_to_h(F.gelu(self.dense_h_to_4h(x)))


class RotaryEmb(nn.Module):
    """gpt_neox.layers.*.attention.rotary_emb: holds what the module around it computes with."""

    def __init__(self, config: Config):
        super().__init__()
        # unused: computed from the rotary base
        self.register_buffer("inv_freq", torch.zeros(config.rotary_dim // 2))


class Attention(nn.Module):
    """gpt_neox.layers.*.attention: self-attention with rotary embeddings of a part of each head and a
    causal mask.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.head_dim = config.head_dim
        self.query_key_value = nn.Linear(config.hidden_size, 3 * config.heads * config.head_dim)
        self.dense = nn.Linear(config.heads * config.head_dim, config.hidden_size)
        # unused: a constant of the mask, computed by the forward itself
        self.register_buffer("bias", torch.zeros(1, 1, 2048, 2048, dtype=torch.uint8))
        # unused: a constant of the mask, computed by the forward itself
        self.register_buffer("masked_bias", torch.zeros(()))
        self.rotary_emb = RotaryEmb(config)  # unused: computed from the rotary base

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None) -> Tensor:
        q, k, v = self.query_key_value(x).unflatten(-1, (-1, 3, self.head_dim)).transpose(1, 2).unbind(3)
        q = apply_rotary_partial(q, cos, sin)
        k = apply_rotary_partial(k, cos, sin)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None)
        return self.dense(merge_heads(y))


class Layer(nn.Module):
    """gpt_neox.layers.*: a layer with attention and a feed-forward network in parallel with a norm before
    each.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.input_layernorm = nn.LayerNorm(config.hidden_size, eps=config.norm_eps)
        self.attention = Attention(config)
        self.post_attention_layernorm = nn.LayerNorm(config.hidden_size, eps=config.norm_eps)
        self.mlp = FeedForward(config)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None) -> Tensor:
        return (
            x
            + self.attention(self.input_layernorm(x), cos, sin, mask)
            + self.mlp(self.post_attention_layernorm(x))
        )


class Decoder(nn.Module):
    """gpt_neox: a stack of layers with a causal mask, rotary embeddings and a final norm."""

    def __init__(self, config: Config):
        super().__init__()
        self.rotary_dim = config.rotary_dim
        self.rotary_base = config.rotary_base
        self.embed_in = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.layers))
        self.final_layer_norm = nn.LayerNorm(config.hidden_size, eps=config.norm_eps)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None, position_ids: Tensor | None
    ) -> Tensor:
        x = self.embed_in(input_ids)
        mask = None if attention_mask is None else causal_mask(x, attention_mask)
        cos, sin = self.rotary(x, position_indices(x, position_ids))
        for layer in self.layers:
            x = layer(x, cos, sin, mask)
        return self.final_layer_norm(x)

    def rotary(self, x: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        return rotary_tables(x, positions, rotary_frequencies(positions, self.rotary_dim, self.rotary_base))


class Model(nn.Module):
    """The model with a language modeling head."""

    def __init__(self, config: Config = Config()):
        super().__init__()
        self.gpt_neox = Decoder(config)
        self.embed_out = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.to(torch.float16)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, position_ids: Tensor | None = None
    ) -> Output:
        """input_ids (batch, length), attention_mask (batch, length), position_ids (batch, length)"""
        x = self.gpt_neox(input_ids, attention_mask, position_ids)
        logits = self.embed_out(x)
        return Output(logits=logits, last_hidden_state=x)


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
# {"config": {"architectures": ["GPTNeoXForCausalLM"], "hidden_act": "gelu", "hidden_size": 512,
# "intermediate_size": 2048, "layer_norm_eps": 1e-05, "model_type": "gpt_neox", "num_attention_heads": 8,
# "num_hidden_layers": 6, "rotary_emb_base": 10000, "rotary_pct": 0.25, "tie_word_embeddings": false,
# "use_parallel_residual": true, "vocab_size": 50304}, "notes": ["header from the bundled catalogue
# (reconstructed with transformers 5.23.0 from config), not from the hub", "evidence for its config:
# recalled", "about this header: the difference from the published count is the stored masked_bias and
# inv_freq"]}
# sha256 of all above: e76a749a288b1a66
