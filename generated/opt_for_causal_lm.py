"""facebook/opt-125m: written by mapper 0.1.0, rules 085fa52bb6da.

Reading: exact (family opt).
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

    hidden_size: int = 768  # shape: decoder.final_layer_norm.weight [768]
    heads: int = 12  # config: num_attention_heads
    # shape and config: decoder.layers.{0..11}.self_attn.q_proj.weight [768, 768] = heads * head_dim
    head_dim: int = 64
    intermediate_size: int = 3072  # shape: decoder.layers.{0..11}.fc1.weight [3072, 768]
    vocab_size: int = 50272  # shape: decoder.embed_tokens.weight [50272, 768]
    position_offset: int = 2  # rule: families/opt.yaml (a constant of the published code)
    # shape and rule: decoder.embed_positions.weight [2050, 768] = fact.position.offset + positions
    positions: int = 2048
    layers: int = 12  # name: decoder.layers.*


@dataclass
class Output:
    """What the model returns."""

    logits: Tensor
    last_hidden_state: Tensor


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


def position_indices_of_mask(x: Tensor, position_ids: Tensor | None, attention_mask: Tensor | None) -> Tensor:
    """The caller's positions, or those of the real tokens, counted from 0; padding gets -1 (OPT).

    x (B, T, ...), attention_mask (B, T) or None -> (B or 1, T)
    """
    if position_ids is not None or attention_mask is None:
        return position_indices(x, position_ids)
    real = (attention_mask != 0).long()
    return real.cumsum(dim=1) * real - 1


def split_heads(x: Tensor, head_dim: int) -> Tensor:
    """Splits a projection into heads. x (B, T, H * D) -> (B, H, T, D)"""
    return x.unflatten(-1, (-1, head_dim)).transpose(1, 2)


class Attention(nn.Module):
    """decoder.layers.*.self_attn: self-attention with a causal mask."""

    def __init__(self, config: Config):
        super().__init__()
        self.head_dim = config.head_dim
        self.q_proj = nn.Linear(config.hidden_size, config.heads * config.head_dim)
        self.k_proj = nn.Linear(config.hidden_size, config.heads * config.head_dim)
        self.v_proj = nn.Linear(config.hidden_size, config.heads * config.head_dim)
        self.out_proj = nn.Linear(config.heads * config.head_dim, config.hidden_size)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        q = split_heads(self.q_proj(x), self.head_dim)
        k = split_heads(self.k_proj(x), self.head_dim)
        v = split_heads(self.v_proj(x), self.head_dim)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None)
        return self.out_proj(merge_heads(y))


class Layer(nn.Module):
    """decoder.layers.*: a layer with pre-norm, attention and a feed-forward network."""

    def __init__(self, config: Config):
        super().__init__()
        self.self_attn_layer_norm = nn.LayerNorm(config.hidden_size)
        self.self_attn = Attention(config)
        self.final_layer_norm = nn.LayerNorm(config.hidden_size)
        self.fc1 = nn.Linear(config.hidden_size, config.intermediate_size)
        self.fc2 = nn.Linear(config.intermediate_size, config.hidden_size)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        x = x + self.self_attn(self.self_attn_layer_norm(x), mask)
        return x + self.feed_forward(self.final_layer_norm(x))

    def feed_forward(self, x: Tensor) -> Tensor:
        return self.fc2(F.relu(self.fc1(x)))


class Decoder(nn.Module):
    """decoder: a stack of layers with a causal mask and a final norm."""

    def __init__(self, config: Config):
        super().__init__()
        self.position_offset = config.position_offset
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.embed_positions = nn.Embedding(config.position_offset + config.positions, config.hidden_size)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.layers))
        self.final_layer_norm = nn.LayerNorm(config.hidden_size)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None, position_ids: Tensor | None
    ) -> Tensor:
        x = self.embeddings(input_ids, attention_mask, position_ids)
        mask = None if attention_mask is None else causal_mask(x, attention_mask)
        for layer in self.layers:
            x = layer(x, mask)
        return self.final_layer_norm(x)

    def embeddings(
        self, input_ids: Tensor, attention_mask: Tensor | None, position_ids: Tensor | None
    ) -> Tensor:
        x = self.embed_tokens(input_ids)
        return x + self.embed_positions(
            position_indices_of_mask(x, position_ids, attention_mask) + self.position_offset
        )


class Model(nn.Module):
    """The model with a language modeling head."""

    def __init__(self, config: Config = Config()):
        super().__init__()
        self.decoder = Decoder(config)
        self.to(torch.float16)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, position_ids: Tensor | None = None
    ) -> Output:
        """input_ids (batch, length), attention_mask (batch, length), position_ids (batch, length)"""
        x = self.decoder(input_ids, attention_mask, position_ids)
        logits = F.linear(x, self.decoder.embed_tokens.weight)
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
# {"config": {"activation_function": "relu", "architectures": ["OPTForCausalLM"], "do_layer_norm_before":
# true, "ffn_dim": 3072, "hidden_size": 768, "max_position_embeddings": 2048, "model_type": "opt",
# "num_attention_heads": 12, "num_hidden_layers": 12, "vocab_size": 50272}, "notes": ["header from the bundled
# catalogue (reconstructed with transformers 5.23.0 from config), not from the hub", "evidence for its config:
# recalled"]}
# sha256 of all above: c0a750181304e661
