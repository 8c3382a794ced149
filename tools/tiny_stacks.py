"""Models whose names leave open where their norms stand, for tools/train_tiny.py: torch's own layers, and layers of one's own."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional

ACTIVATIONS = {"gelu": functional.gelu, "relu": functional.relu, "silu": functional.silu}


class Loss(NamedTuple):
    """What is trained."""

    loss: torch.Tensor
    logits: torch.Tensor


class Layer(nn.Module):
    """A layer as nanoGPT and its likes write it."""

    def __init__(self, width: int, heads: int, inner: int, activation: str, is_pre: bool, is_causal: bool):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = nn.ModuleDict({"qkv": nn.Linear(width, 3 * width), "proj": nn.Linear(width, width)})
        self.mlp = nn.ModuleDict({"fc1": nn.Linear(width, inner), "fc2": nn.Linear(inner, width)})
        self.heads, self.act, self.is_pre, self.is_causal = heads, activation, is_pre, is_causal

    def attention(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.attn["qkv"](x).chunk(3, -1))
        read = functional.scaled_dot_product_attention(q, k, v, is_causal=self.is_causal)
        return self.attn["proj"](read.transpose(1, 2).flatten(2))

    def feed_forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.mlp["fc2"](ACTIVATIONS[self.act](self.mlp["fc1"](x)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.is_pre:
            x = x + self.attention(self.ln1(x))
            return x + self.feed_forward(self.ln2(x))
        x = self.ln1(x + self.attention(x))
        return self.ln2(x + self.feed_forward(x))


class Positions(nn.Module):
    """Sines and cosines, stored as the tutorials do: [length, 1, width]."""

    def __init__(self, length: int, width: int):
        super().__init__()
        turns = torch.arange(length)[:, None] * torch.exp(torch.arange(0, width, 2) * (-math.log(10000.0) / width))
        self.register_buffer("pe", torch.stack([turns.sin(), turns.cos()], -1).view(length, 1, width))


class Stack(nn.Module):
    """A language model of bytes; `placement` (pre, post) says where the norms of its layers stand, and no name does."""

    def __init__(
        self,
        task: str,
        placement: str,
        layers: str = "torch",  # or own
        width: int = 96,
        heads: int = 4,
        inner: int = 384,
        depth: int = 3,
        activation: str = "gelu",
        positions: str = "learned",  # or sines
        final_norm: bool = False,
        tied: bool = False,
        length: int = 256,
        **tokens: Any,
    ):
        super().__init__()
        is_pre, self.is_causal, self.scale = placement == "pre", task == "causal", 1.0
        self.embedding = nn.Embedding(256, width)
        nn.init.normal_(self.embedding.weight, std=0.02 if positions == "learned" else width**-0.5)
        if positions == "sines":
            self.pos_encoder, self.scale = Positions(length, width), width**0.5
        else:
            self.pos_embedding = nn.Embedding(length, width)
            nn.init.normal_(self.pos_embedding.weight, std=0.02)
        if layers == "torch":
            layer = nn.TransformerEncoderLayer(
                width, heads, inner, 0.0, activation, batch_first=True, norm_first=is_pre
            )
            norm = nn.LayerNorm(width) if final_norm else None
            self.encoder = nn.TransformerEncoder(layer, depth, norm, enable_nested_tensor=False)
        else:
            self.blocks = nn.ModuleList(
                [Layer(width, heads, inner, activation, is_pre, self.is_causal) for _ in range(depth)]
            )
        if not tied:
            self.head = nn.Linear(width, 256)
        self.facts = {
            "task": f"{task}_lm" if task == "masked" or not tied else "base",
            "norm.placement": placement,
            "norm.eps": 1e-5,
            "attention.causal": self.is_causal,
            "attention.heads": heads,
            "attention.fused": "concatenated",
            "feed_forward.activation": activation,
            "embedding.scale": self.scale,
        }
        self.facts["task"] = "base" if tied else f"{task}_lm"

    def forward(self, input_ids: torch.Tensor, labels: torch.Tensor | None = None) -> Loss:
        length = input_ids.shape[1]
        x = self.embedding(input_ids) * self.scale
        if hasattr(self, "pos_encoder"):
            x = x + self.pos_encoder.pe[:length, 0]
        else:
            x = x + self.pos_embedding.weight[:length]
        if hasattr(self, "encoder"):
            later = nn.Transformer.generate_square_subsequent_mask(length, device=x.device)
            x = self.encoder(x, mask=later if self.is_causal else None, is_causal=self.is_causal)
        else:
            for block in self.blocks:
                x = block(x)
        logits = self.head(x) if hasattr(self, "head") else x @ self.embedding.weight.T
        if labels is None:
            return Loss(x.new_zeros(()), logits)
        said, meant = (logits[:, :-1], labels[:, 1:]) if self.is_causal else (logits, labels)
        return Loss(functional.cross_entropy(said.flatten(0, 1), meant.flatten()), logits)

    def save_pretrained(self, out: Path) -> None:
        """The weights, and beside them what is true of them."""
        out.mkdir(parents=True, exist_ok=True)
        save_file(self.state_dict(), out / "model.safetensors")
        (out / "config.json").write_text(json.dumps({"facts": self.facts}))
