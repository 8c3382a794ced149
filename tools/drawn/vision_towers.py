"""Encoders of images of known pieces: their tensors under names of no scheme, and what they compute.

Written apart from all rules. `Vision` is a draw of one, for vision.py by itself, and for other kinds as a part of theirs.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from tools.drawn.parts import ACTIVATIONS, HIDDEN, Layers, Tensors

HEADS, LAYERS, INNER, PATCH, CLASSES, REGISTERS = 4, 3, 48, 4, 7, 2


@dataclass(frozen=True)
class Vision:
    """One encoder of images."""

    norm: str = "layer"  # layer, rms
    eps: float = 1e-6
    placement: str = "pre"  # pre, sandwich, after: behind each sub-layer, before its sum
    first_norm: bool = False
    final: str = "positions"  # positions, pooled: over what stands for an image alone, none
    class_token: bool = True
    registers: bool = False
    position: str = "learned"  # learned, patches: learned, of these alone, rotary, both, waves
    base: float = 10000.0
    style: str = "half"  # of rotary pairs: half, interleaved
    axes: str = "halves"  # halves: of the angles by row and by column, split: every other one
    coordinates: str = "counted"  # counted, centred: from -2 pi to 2 pi over each side
    query_norm: str | None = None  # head, wide
    query_bias: bool = True
    output_bias: bool = True
    inner_bias: bool = True
    fused: bool = False
    head_dim: int = 8
    gated: bool = False
    gate_fused: bool = False
    activation: str = "gelu"
    layer_scale: bool = False
    patch_bias: bool = True
    height: int = 16
    width: int = 16
    pooling: str | None = (
        None  # first, mean: of the patches, all: mean of all, probe, dense: a layer over the first, both: first and mean side by side
    )

    @property
    def places(self) -> int:
        return (self.height // PATCH) * (self.width // PATCH)

    @property
    def leading(self) -> int:
        return int(self.class_token) + REGISTERS * self.registers

    @property
    def rotates(self) -> bool:
        return self.position in ("rotary", "both")

    @property
    def rows(self) -> int:
        """Rows of the table of positions, of which none may be."""
        if self.position in ("learned", "both"):
            return self.places + int(self.class_token)
        return self.places if self.position == "patches" else 0


NORMS = {
    "pre": ("norm1", "norm2"),
    "after": ("after1", "after2"),
    "sandwich": ("norm1", "after1", "norm2", "after2"),
}


class Weights(Tensors):
    """The tensors of an encoder."""

    one: Vision

    def all(self) -> dict[str, Tensor]:
        one = self.one
        if one.class_token:
            self.tensors["class"] = self.drawn(HIDDEN)
        if one.registers:
            self.tensors["registers"] = self.drawn(REGISTERS, HIDDEN)
        self.tensors["patch.weight"] = self.drawn(HIDDEN, 3, PATCH, PATCH)
        if one.patch_bias:
            self.tensors["patch.bias"] = self.drawn(HIDDEN)
        if one.rows:
            self.tensors["positions"] = self.drawn(one.rows, HIDDEN)
        if one.first_norm:
            self.norm("first_norm")
        for layer in range(LAYERS):
            self.layer(f"layers.{layer}.")
        if one.final != "none":
            self.norm("pooled_norm" if one.final == "pooled" else "final_norm")
        if one.pooling == "dense":
            self.linear("pooler", HIDDEN, HIDDEN, True)
        elif one.pooling == "probe":
            self.probe()
        return self.tensors

    def layer(self, start: str) -> None:
        for name in NORMS[self.one.placement]:
            self.norm(start + name)
        self.attention(start)
        self.feed_forward(start)
        if self.one.layer_scale:
            for name in ("scale1", "scale2"):
                self.tensors[start + name] = 1 + self.drawn(HIDDEN)

    def attention(self, start: str) -> None:
        one = self.one
        wide = HEADS * one.head_dim
        if one.fused:
            self.linear(f"{start}qkv", 3 * wide, HIDDEN, one.query_bias)
        else:
            for name in "qkv":
                self.linear(start + name, wide, HIDDEN, one.query_bias)
        self.linear(f"{start}o", HIDDEN, wide, one.output_bias)
        if one.query_norm:
            for name in ("q_norm", "k_norm"):
                self.norm(start + name, one.head_dim if one.query_norm == "head" else wide)

    def feed_forward(self, start: str) -> None:
        one = self.one
        if one.gate_fused:
            self.linear(f"{start}gate_up", 2 * INNER, HIDDEN, one.inner_bias)
        else:
            for name in ("gate", "up") if one.gated else ("up",):
                self.linear(start + name, INNER, HIDDEN, one.inner_bias)
        self.linear(f"{start}down", HIDDEN, INNER, one.inner_bias)

    def probe(self) -> None:
        self.tensors["probe"] = self.drawn(HIDDEN)
        self.tensors["probe_in.weight"] = self.drawn(3 * HIDDEN, HIDDEN)
        self.tensors["probe_in.bias"] = self.drawn(3 * HIDDEN)
        self.linear("probe_out", HIDDEN, HIDDEN, True)
        self.norm("probe_norm")
        self.linear("probe_up", INNER, HIDDEN, True)
        self.linear("probe_down", HIDDEN, INNER, True)


class Reference(Layers):
    """What an encoder computes: images (B, 3, height, width) -> states (B, T, HIDDEN) and a vector (B, ...) or None."""

    one: Vision

    def __call__(self, images: Tensor) -> tuple[Tensor, Tensor | None]:
        x = self.embedded(images)
        for layer in range(LAYERS):
            x = self.layer(f"layers.{layer}.", x)
        if self.one.final == "positions":
            x = self.norm("final_norm", x)
        pooled = self.pooled(x)
        if self.one.final == "pooled" and pooled is not None:
            pooled = self.norm("pooled_norm", pooled)
        return x, pooled

    def embedded(self, images: Tensor) -> Tensor:
        one = self.one
        x = F.conv2d(images, self.tensors["patch.weight"], self.tensors.get("patch.bias"), stride=PATCH)
        x = x.flatten(2).transpose(1, 2)
        if one.position == "patches":
            x = x + self.tensors["positions"]
        elif one.position == "waves":
            x = x + self.waves()
        if one.class_token:
            x = torch.cat((self.tensors["class"].expand(len(x), 1, -1), x), dim=1)
        if one.position in ("learned", "both"):
            x = x + self.tensors["positions"]
        if one.registers:
            registers = self.tensors["registers"].expand(len(x), -1, -1)
            x = torch.cat((x[:, : int(one.class_token)], registers, x[:, int(one.class_token) :]), dim=1)
        return self.norm("first_norm", x) if one.first_norm else x

    def waves(self) -> Tensor:
        """Sines and cosines of columns, then of rows (the published code of paper 2111.06377)."""
        speeds = 10000.0 ** (-torch.arange(HIDDEN // 4) / (HIDDEN // 4))
        rows, columns = self.coordinates()
        angles = [where[:, None] * speeds for where in (columns, rows)]
        return torch.cat([part for angle in angles for part in (angle.sin(), angle.cos())], dim=-1)

    def coordinates(self) -> tuple[Tensor, Tensor]:
        """Row and column of each patch (T)."""
        index = torch.arange(self.one.places)
        across = self.one.width // PATCH
        return index // across, index % across

    def layer(self, start: str, x: Tensor) -> Tensor:
        for number, part in ((1, self.attention), (2, self.feed_forward)):
            y = part(start, self.normed(f"{start}norm{number}", x))
            y = self.normed(f"{start}after{number}", y)
            x = x + y * self.tensors.get(f"{start}scale{number}", 1.0)
        return x

    def normed(self, name: str, x: Tensor) -> Tensor:
        """Where there is such a norm."""
        return self.norm(name, x) if f"{name}.weight" in self.tensors else x

    def attention(self, start: str, x: Tensor) -> Tensor:
        one = self.one
        if one.fused:
            q, k, v = self.linear(f"{start}qkv", x).chunk(3, dim=-1)
        else:
            q, k, v = (self.linear(start + name, x) for name in "qkv")
        if one.query_norm == "wide":
            q, k = self.norm(f"{start}q_norm", q), self.norm(f"{start}k_norm", k)
        q, k, v = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in (q, k, v))
        if one.query_norm == "head":
            q, k = self.norm(f"{start}q_norm", q), self.norm(f"{start}k_norm", k)
        if one.rotates:
            q, k = self.rotated(q), self.rotated(k)
        weights = self.masked(q @ k.transpose(-1, -2) * one.head_dim**-0.5).softmax(dim=-1)
        return self.linear(f"{start}o", (weights @ v).transpose(1, 2).flatten(2))

    def masked(self, scores: Tensor) -> Tensor:
        return scores

    def rotated(self, x: Tensor) -> Tensor:
        """The patches turned by row and column (B, H, T, D), what stands before them as it is."""
        angles = self.angles()
        leading, patches = x[:, :, : self.one.leading], x[:, :, self.one.leading :]
        if self.one.style == "half":
            angles = angles.repeat(1, 2)
            first, second = patches.chunk(2, dim=-1)
            across = torch.cat((-second, first), dim=-1)
        else:
            angles = angles.repeat_interleave(2, dim=-1)
            across = torch.stack((-patches[..., 1::2], patches[..., ::2]), dim=-1).flatten(-2)
        return torch.cat((leading, patches * angles.cos() + across * angles.sin()), dim=2)

    def angles(self) -> Tensor:
        """Of each patch (T, D / 2)."""
        one = self.one
        rows, columns = self.coordinates()
        if one.coordinates == "centred":
            high, across = one.height // PATCH, one.width // PATCH
            rows = 2 * torch.pi * (2 * (rows + 0.5) / high - 1)
            columns = 2 * torch.pi * (2 * (columns + 0.5) / across - 1)
        size = one.head_dim if one.axes == "split" else one.head_dim // 2
        speeds = one.base ** (-torch.arange(0, size, 2) / size)
        by_row, by_column = (speeds[::2], speeds[1::2]) if one.axes == "split" else (speeds, speeds)
        return torch.cat((rows[:, None] * by_row, columns[:, None] * by_column), dim=-1)

    def feed_forward(self, start: str, x: Tensor) -> Tensor:
        one = self.one
        activation = ACTIVATIONS[one.activation]
        if not one.gated:
            return self.linear(f"{start}down", activation(self.linear(f"{start}up", x)))
        if one.gate_fused:
            gate, up = self.linear(f"{start}gate_up", x).chunk(2, dim=-1)
        else:
            gate, up = self.linear(f"{start}gate", x), self.linear(f"{start}up", x)
        return self.linear(f"{start}down", activation(gate) * up)

    def pooled(self, x: Tensor) -> Tensor | None:
        patches = x[:, self.one.leading :]
        match self.one.pooling:
            case "first":
                return x[:, 0]
            case "mean":
                return patches.mean(dim=1)
            case "all":
                return x.mean(dim=1)
            case "both":
                return torch.cat((x[:, 0], patches.mean(dim=1)), dim=-1)
            case "dense":
                return torch.tanh(self.linear("pooler", x[:, 0]))
            case "probe":
                return self.probed(x)
        return None

    def probed(self, x: Tensor) -> Tensor:
        """A learned query over all positions, and a feed-forward network (paper 2303.15343)."""
        probe = self.tensors["probe"].expand(len(x), 1, -1)
        weights, biases = self.tensors["probe_in.weight"].chunk(3), self.tensors["probe_in.bias"].chunk(3)
        q, k, v = (
            F.linear(y, *pair)
            for y, pair in zip((probe, x, x), zip(weights, biases, strict=True), strict=True)
        )
        q, k, v = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in (q, k, v))
        shares = (q @ k.transpose(-1, -2) * (HIDDEN // HEADS) ** -0.5).softmax(dim=-1)
        y = self.linear("probe_out", (shares @ v).transpose(1, 2).flatten(2))
        inner = ACTIVATIONS[self.one.activation](self.linear("probe_up", self.norm("probe_norm", y)))
        return (y + self.linear("probe_down", inner))[:, 0]
