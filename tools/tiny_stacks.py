"""Models whose names leave open where their norms stand, for tools/train_tiny.py: torch's own layers, and layers of one's own."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import NamedTuple

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
        q, k, v = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.attn["qkv"](x).chunk(3, -1)
        )
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
        turns = torch.arange(length)[:, None] * torch.exp(
            torch.arange(0, width, 2) * (-math.log(10000.0) / width)
        )
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
    ):
        super().__init__()
        self.is_causal, is_pre = task == "causal", placement == "pre"
        has_sines = positions == "sines"
        self.scale = width**0.5 if has_sines else 1.0  # as the paper of sinusoidal positions has it
        self.embedding = nn.Embedding(256, width)
        nn.init.normal_(self.embedding.weight, std=0.02 if not has_sines else width**-0.5)
        if has_sines:
            self.pos_encoder = Positions(length, width)
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
            own = (width, heads, inner, activation, is_pre, self.is_causal)
            self.blocks = nn.ModuleList([Layer(*own) for _ in range(depth)])
        if not tied:
            self.head = nn.Linear(width, 256)
        self.facts = {
            "task": "base" if tied else f"{task}_lm",
            "norm.placement": placement,
            "norm.eps": 1e-5,
            "attention.causal": self.is_causal,
            "attention.heads": heads,
            "attention.fused": "concatenated",
            "feed_forward.activation": activation,
            "embedding.scale": self.scale,
        }

    def states(self, ids: torch.Tensor) -> torch.Tensor:
        """What the head reads, [rows, length, width]."""
        length = ids.shape[1]
        at = self.pos_encoder.pe[:, 0] if hasattr(self, "pos_encoder") else self.pos_embedding.weight
        x = self.embedding(ids) * self.scale + at[:length]
        if hasattr(self, "blocks"):
            for block in self.blocks:
                x = block(x)
            return x
        later = nn.Transformer.generate_square_subsequent_mask(length, device=x.device)
        return self.encoder(x, mask=later if self.is_causal else None, is_causal=self.is_causal)

    def forward(self, input_ids: torch.Tensor, labels: torch.Tensor) -> Loss:
        x = self.states(input_ids)
        logits = self.head(x) if hasattr(self, "head") else x @ self.embedding.weight.T
        said, meant = (logits[:, :-1], labels[:, 1:]) if self.is_causal else (logits, labels)
        return Loss(functional.cross_entropy(said.flatten(0, 1), meant.flatten()), logits)

    def save_pretrained(self, out: Path) -> None:
        """The weights, and beside them what is true of them."""
        out.mkdir(parents=True, exist_ok=True)
        save_file(self.state_dict(), out / "model.safetensors")
        (out / "config.json").write_text(json.dumps({"facts": self.facts}))
