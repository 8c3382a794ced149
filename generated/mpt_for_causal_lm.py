"""mosaicml/mpt-7b: written by mapper 0.1.0, rules 085fa52bb6da.

Reading: exact (family mpt).
header from the bundled catalogue (reconstructed with transformers 5.23.0 from config), not from the hub
evidence for its config: recalled
No dropout is written: training mode computes the same; `mapper generate --train` writes it.

Load the weights with `load(path)`; the attributes are the names in the checkpoint.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class Config:
    """Sizes, each with what it is known from."""

    hidden_size: int = 4096  # shape: transformer.norm_f.weight [4096]
    heads: int = 32  # config: n_heads
    # shape and config: transformer.blocks.{0..31}.attn.out_proj.weight [4096, 4096] = heads * head_dim
    head_dim: int = 128
    intermediate_size: int = 16384  # shape: transformer.blocks.{0..31}.ffn.up_proj.weight [16384, 4096]
    vocab_size: int = 50432  # shape: transformer.wte.weight [50432, 4096]
    layers: int = 32  # name: transformer.blocks.*


@dataclass
class Output:
    """What the model returns."""

    logits: Tensor
    last_hidden_state: Tensor


torch.export.register_dataclass(Output)


def alibi_slopes(x: Tensor, heads: int) -> Tensor:
    """Slope of each head, geometric; heads beyond a power of two interleave (2108.12409).

    -> (heads,) float32
    """
    power = 2 ** math.floor(math.log2(heads))
    first = [2.0 ** (-8.0 * (i + 1) / power) for i in range(power)]
    between = [2.0 ** (-4.0 * (2 * i + 1) / power) for i in range(heads - power)]
    return torch.tensor(first + between, dtype=torch.float32, device=x.device)


def attend_biased(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor,
    mask: Tensor | None,
    scale: float | None = None,
    is_causal: bool = False,
) -> Tensor:
    """Attention with a bias added to the scores; the scale is 1 / sqrt(D) if None.

    q (B, H, T, D), k, v (B, K, S, D), bias broadcasts to (B, H, T, S) -> (B, H, T, D)
    """
    if is_causal:
        mask = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device).tril()
    bias = bias.to(q.dtype)
    if mask is not None:  # the lowest number rather than -inf: a row without any key stays finite
        bias = bias.masked_fill(~mask, torch.finfo(q.dtype).min)
    if k.shape[1] != q.shape[1]:
        k, v = (part.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for part in (k, v))
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=scale)


def causal_mask(x: Tensor, attention_mask: Tensor | None) -> Tensor:
    """Hides later keys and padded ones. x (B, T, ...), attention_mask (B, T) or None -> (1 or B, 1, T, T)"""
    index = torch.arange(x.shape[1], device=x.device)
    mask = (index <= index[:, None])[None, None]
    return mask if attention_mask is None else mask & (attention_mask[:, None, None, :] != 0)


def merge_heads(x: Tensor) -> Tensor:
    """Joins the heads again. x (B, H, T, D) -> (B, T, H * D)"""
    return x.transpose(1, 2).flatten(2)


def positions_of_mask(x: Tensor, attention_mask: Tensor | None) -> Tensor:
    """Counts real positions from 0; padding gets 0.

    x (B, T, ...), attention_mask (B, T) or None -> (B or 1, T)
    """
    if attention_mask is None:
        return torch.arange(x.shape[1], device=x.device)[None]
    real = (attention_mask != 0).long()
    return (real.cumsum(dim=1) - 1) * real


def split_heads(x: Tensor, head_dim: int) -> Tensor:
    """Splits a projection into heads. x (B, T, H * D) -> (B, H, T, D)"""
    return x.unflatten(-1, (-1, head_dim)).transpose(1, 2)


class Attention(nn.Module):
    """transformer.blocks.*.attn: self-attention with a causal mask and ALiBi."""

    def __init__(self, config: Config):
        super().__init__()
        self.head_dim = config.head_dim
        self.Wqkv = nn.Linear(config.hidden_size, 3 * config.heads * config.head_dim, bias=False)
        self.out_proj = nn.Linear(config.heads * config.head_dim, config.hidden_size, bias=False)

    def forward(self, x: Tensor, bias: Tensor, mask: Tensor | None) -> Tensor:
        q, k, v = self.Wqkv(x).chunk(3, dim=-1)
        q = split_heads(q, self.head_dim)
        k = split_heads(k, self.head_dim)
        v = split_heads(v, self.head_dim)
        y = attend_biased(q, k, v, bias, mask, is_causal=mask is None)
        return self.out_proj(merge_heads(y))


class FeedForward(nn.Module):
    """transformer.blocks.*.ffn: feed-forward network."""

    def __init__(self, config: Config):
        super().__init__()
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.gelu(self.up_proj(x)))


class Layer(nn.Module):
    """transformer.blocks.*: a layer with pre-norm, attention and a feed-forward network."""

    def __init__(self, config: Config):
        super().__init__()
        self.norm_1 = nn.LayerNorm(config.hidden_size, bias=False)
        self.attn = Attention(config)
        self.norm_2 = nn.LayerNorm(config.hidden_size, bias=False)
        self.ffn = FeedForward(config)

    def forward(self, x: Tensor, bias: Tensor, mask: Tensor | None) -> Tensor:
        x = x + self.attn(self.norm_1(x), bias, mask)
        return x + self.ffn(self.norm_2(x))


class Decoder(nn.Module):
    """transformer: a stack of layers with a causal mask, ALiBi, a bias by distance and a final norm."""

    def __init__(self, config: Config):
        super().__init__()
        self.heads = config.heads
        self.wte = nn.Embedding(config.vocab_size, config.hidden_size)
        self.blocks = nn.ModuleList(Layer(config) for _ in range(config.layers))
        self.norm_f = nn.LayerNorm(config.hidden_size, bias=False)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None) -> Tensor:
        x = self.wte(input_ids)
        mask = None if attention_mask is None else causal_mask(x, attention_mask)
        bias = self.score_bias(x, attention_mask)
        for layer in self.blocks:
            x = layer(x, bias, mask)
        return self.norm_f(x)

    def score_bias(self, x: Tensor, attention_mask: Tensor | None) -> Tensor:
        positions = positions_of_mask(x, attention_mask)
        slopes = alibi_slopes(x, self.heads)[:, None, None]
        return (slopes * positions[:, None, None, :]).type_as(x)


class Model(nn.Module):
    """The model with a language modeling head."""

    def __init__(self, config: Config = Config()):
        super().__init__()
        self.transformer = Decoder(config)
        self.to(torch.bfloat16)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Output:
        """input_ids (batch, length), attention_mask (batch, length)"""
        x = self.transformer(input_ids, attention_mask)
        logits = F.linear(x, self.transformer.wte.weight)
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
# {"config": {"architectures": ["MPTForCausalLM"], "attn_config": {"clip_qkv": null}, "d_model": 4096,
# "model_type": "mpt", "n_heads": 32, "n_layers": 32, "vocab_size": 50432}, "notes": ["header from the bundled
# catalogue (reconstructed with transformers 5.23.0 from config), not from the hub", "evidence for its config:
# recalled"]}
# sha256 of all above: cda206e3a41399fa
