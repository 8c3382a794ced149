"""distilbert/distilgpt2: written by mapper 0.1.0, rules 085fa52bb6da.

Reading: exact (family gpt2).
header from the bundled catalogue (reconstructed with transformers 5.23.0 from config), not from the hub
evidence for its config: recalled
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

    hidden_size: int = 768  # shape: transformer.ln_f.weight [768]
    heads: int = 12  # config: n_head
    # shape and config: transformer.h.{0..5}.attn.c_proj.weight [768, 768] = heads * head_dim
    head_dim: int = 64
    positions: int = 1024  # shape: transformer.wpe.weight [1024, 768]
    intermediate_size: int = 3072  # shape: transformer.h.{0..5}.mlp.c_fc.weight [768, 3072]
    norm_eps: float = 1e-5  # config: layer_norm_epsilon
    vocab_size: int = 50257  # shape: transformer.wte.weight [50257, 768]
    layers: int = 6  # name: transformer.h.*


@dataclass
class Output:
    """What the model returns."""

    logits: Tensor
    last_hidden_state: Tensor


torch.export.register_dataclass(Output)


class LinearTransposed(nn.Module):
    """Linear layer whose weight is stored [in, out]. (..., in) -> (..., out)"""

    def __init__(self, in_features: int, out_features: int, bias: bool = True):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(in_features, out_features))
        self.bias = nn.Parameter(torch.empty(out_features)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight.t(), self.bias)


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


class Attention(nn.Module):
    """transformer.h.*.attn: self-attention with a causal mask."""

    def __init__(self, config: Config):
        super().__init__()
        self.head_dim = config.head_dim
        self.c_attn = LinearTransposed(config.hidden_size, 3 * config.heads * config.head_dim)
        self.c_proj = LinearTransposed(config.heads * config.head_dim, config.hidden_size)
        # unused: a constant of the mask, computed by the forward itself
        self.register_buffer("bias", torch.zeros(1, 1, config.positions, config.positions))

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        q, k, v = self.c_attn(x).chunk(3, dim=-1)
        q = split_heads(q, self.head_dim)
        k = split_heads(k, self.head_dim)
        v = split_heads(v, self.head_dim)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None)
        return self.c_proj(merge_heads(y))


class FeedForward(nn.Module):
    """transformer.h.*.mlp: feed-forward network."""

    def __init__(self, config: Config):
        super().__init__()
        self.c_fc = LinearTransposed(config.hidden_size, config.intermediate_size)
        self.c_proj = LinearTransposed(config.intermediate_size, config.hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        return self.c_proj(F.gelu(self.c_fc(x), approximate="tanh"))


class Layer(nn.Module):
    """transformer.h.*: a layer with pre-norm, attention and a feed-forward network."""

    def __init__(self, config: Config):
        super().__init__()
        self.ln_1 = nn.LayerNorm(config.hidden_size, eps=config.norm_eps)
        self.attn = Attention(config)
        self.ln_2 = nn.LayerNorm(config.hidden_size, eps=config.norm_eps)
        self.mlp = FeedForward(config)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        x = x + self.attn(self.ln_1(x), mask)
        return x + self.mlp(self.ln_2(x))


class Decoder(nn.Module):
    """transformer: a stack of layers with a causal mask and a final norm."""

    def __init__(self, config: Config):
        super().__init__()
        self.wte = nn.Embedding(config.vocab_size, config.hidden_size)
        self.wpe = nn.Embedding(config.positions, config.hidden_size)
        self.h = nn.ModuleList(Layer(config) for _ in range(config.layers))
        self.ln_f = nn.LayerNorm(config.hidden_size, eps=config.norm_eps)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None, position_ids: Tensor | None
    ) -> Tensor:
        x = self.embeddings(input_ids, position_ids)
        mask = None if attention_mask is None else causal_mask(x, attention_mask)
        for layer in self.h:
            x = layer(x, mask)
        return self.ln_f(x)

    def embeddings(self, input_ids: Tensor, position_ids: Tensor | None) -> Tensor:
        x = self.wte(input_ids)
        return x + self.wpe(position_indices(input_ids, position_ids))


class Model(nn.Module):
    """The model with a language modeling head."""

    def __init__(self, config: Config = Config()):
        super().__init__()
        self.transformer = Decoder(config)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, position_ids: Tensor | None = None
    ) -> Output:
        """input_ids (batch, length), attention_mask (batch, length), position_ids (batch, length)"""
        x = self.transformer(input_ids, attention_mask, position_ids)
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
# {"config": {"activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"], "layer_norm_epsilon":
# 1e-05, "model_type": "gpt2", "n_embd": 768, "n_head": 12, "n_layer": 6, "n_positions": 1024, "vocab_size":
# 50257}, "notes": ["header from the bundled catalogue (reconstructed with transformers 5.23.0 from config),
# not from the hub", "evidence for its config: recalled"]}
# sha256 of all above: 8187dd04d458a811
