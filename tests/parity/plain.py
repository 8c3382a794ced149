"""Networks in plain torch: weights by name, and the layers that use them."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor


class Plain:
    """Weights by name, drawn where a forward first asks for them, and the layers that use them."""

    def __init__(self) -> None:
        self.state: dict[str, Tensor] = {}
        self.generator = torch.Generator().manual_seed(0)

    def tensor(self, name: str, *shape: int, scale: float = 0.2, middle: float = 0.0) -> Tensor:
        if name not in self.state:
            self.state[name] = torch.randn(shape, generator=self.generator) * scale + middle
        return self.state[name]

    def linear(self, x: Tensor, name: str, size: int, bias: bool = True) -> Tensor:
        weight = self.tensor(f"{name}.weight", size, x.shape[-1], scale=x.shape[-1] ** -0.5)
        return F.linear(x, weight, self.tensor(f"{name}.bias", size) if bias else None)

    def conv(
        self,
        x: Tensor,
        name: str,
        size: int,
        kernel: int,
        stride: int = 1,
        padding: int | None = None,
        groups: int = 1,
        bias: bool = False,
    ) -> Tensor:
        read = x.shape[1] // groups
        weight = self.tensor(f"{name}.weight", size, read, kernel, kernel, scale=(read * kernel**2) ** -0.5)
        bias_of = self.tensor(f"{name}.bias", size) if bias else None
        return F.conv2d(x, weight, bias_of, stride, kernel // 2 if padding is None else padding, 1, groups)

    def batch_norm(self, x: Tensor, name: str, eps: float = 1e-5) -> Tensor:
        size = x.shape[1]
        weight, bias = self.tensor(f"{name}.weight", size, middle=1.0), self.tensor(f"{name}.bias", size)
        mean = self.tensor(f"{name}.running_mean", size)
        self.state.setdefault(f"{name}.running_var", torch.rand(size, generator=self.generator) + 0.5)
        return F.batch_norm(x, mean, self.state[f"{name}.running_var"], weight, bias, eps=eps)

    def layer_norm(self, x: Tensor, name: str, eps: float = 1e-6) -> Tensor:
        size = x.shape[-1]
        weight = self.tensor(f"{name}.weight", size, middle=1.0)
        return F.layer_norm(x, (size,), weight, self.tensor(f"{name}.bias", size), eps)

    def mlp(self, x: Tensor, name: str, size: int, act: Callable[[Tensor], Tensor] = F.gelu) -> Tensor:
        return self.linear(act(self.linear(x, f"{name}.fc1", size)), f"{name}.fc2", x.shape[-1])

    def patches(self, x: Tensor, name: str, size: int, kernel: int) -> Tensor:
        return self.conv(x, name, size, kernel, kernel, 0, bias=True).flatten(2).mT
