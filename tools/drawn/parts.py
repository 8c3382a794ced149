"""What networks that are drawn at random have in common: tensors, the layers that read them, and the files of a checkpoint.

Written apart from all rules, for tools/combinations.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor

HIDDEN = 32
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": F.silu,
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_new": lambda x: F.gelu(x, approximate="tanh"),
    "gelu_pytorch_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "quick_gelu": lambda x: x * torch.sigmoid(1.702 * x),
    "tanh": torch.tanh,
}


class Tensors:
    """The tensors of a draw, which says `norm`: layer, rms or scale (a layer norm without biases)."""

    def __init__(self, one: Any, generator: torch.Generator):
        self.one, self.generator = one, generator
        self.tensors: dict[str, Tensor] = {}

    def drawn(self, *shape: int) -> Tensor:
        return 0.3 * torch.randn(*shape, generator=self.generator)

    def table(self, name: str, rows: int, columns: int) -> None:
        self.tensors[f"{name}.weight"] = torch.randn(rows, columns, generator=self.generator)

    def layer_of(self, name: str, *shape: int, bias: bool = True) -> None:
        """A linear layer or a convolution."""
        self.tensors[f"{name}.weight"] = self.drawn(*shape)
        if bias:
            self.tensors[f"{name}.bias"] = self.drawn(shape[0])

    def linear(self, name: str, rows: int, columns: int, bias: bool = True) -> None:
        self.layer_of(name, rows, columns, bias=bias)

    def norm(self, name: str, size: int = HIDDEN, kind: str | None = None) -> None:
        self.tensors[f"{name}.weight"] = 1 + self.drawn(size)
        if (kind or self.one.norm) == "layer":
            self.tensors[f"{name}.bias"] = self.drawn(size)


class Layers:
    """What layers compute with the tensors of a draw, which says `norm` and `eps`."""

    def __init__(self, one: Any, tensors: Mapping[str, Tensor]):
        self.one, self.tensors = one, tensors

    def of(self, name: str) -> tuple[Tensor, Tensor | None]:
        """Weight and bias."""
        return self.tensors[f"{name}.weight"], self.tensors.get(f"{name}.bias")

    def linear(self, name: str, x: Tensor) -> Tensor:
        return F.linear(x, *self.of(name))

    def norm(self, name: str, x: Tensor) -> Tensor:
        return self.root_mean_square(name, x) if self.one.norm == "rms" else self.layer_norm(name, x)

    def layer_norm(self, name: str, x: Tensor, eps: float | None = None) -> Tensor:
        return F.layer_norm(x, x.shape[-1:], *self.of(name), self.one.eps if eps is None else eps)

    def root_mean_square(self, name: str, x: Tensor) -> Tensor:
        scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.one.eps)
        return x * scale * self.tensors[f"{name}.weight"]


def turned(x: Tensor, base: float = 10000.0) -> Tensor:
    """Rotary embeddings of halves: (..., T, head_dim) -> the same shape (paper 2104.09864)."""
    size = x.shape[-1]
    angles = torch.arange(x.shape[-2])[:, None] * base ** (-torch.arange(0, size, 2) / size)
    first, second = x.chunk(2, dim=-1)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


def plain_truth(one: Any) -> dict[str, Any]:
    """What a draw with `norm`, `eps` and `placement` answers to what may be asked of its norms and rotary embeddings."""
    return {
        "norm.eps": one.eps,
        "norm.kind": "RMSNorm" if one.norm == "rms" else "LayerNorm",
        "norm.mean": one.norm != "rms",
        "norm.offset": False,
        "norm.placement": one.placement,
        "norm.weights": True,
        "rotary.fraction": 1.0,
        "rotary.local": False,
        "rotary.style": "half",
        "rotary.type": "default",
    }


def store(folder: Path, tensors: Mapping[str, Tensor], config: Mapping[str, Any]) -> None:
    """Write a checkpoint."""
    folder.mkdir(parents=True, exist_ok=True)
    save_file(dict(tensors), folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config))
