"""Attention within windows and over a grid under torchvision's names (MaxViT), against the same network in plain torch."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import functional as F

import mapper
from tests.parity.plain import Plain

CHANNELS_OF_HEAD, CLASSES = 4, 5


def bottleneck(net: Plain, x: Tensor, at: str, size: int, inner: int, squeezed: int, stride: int) -> Tensor:
    """An inverted bottleneck with a norm before it; of what is halved the mean of nine places goes around it."""
    y = net.batch_norm(x, f"{at}.layers.pre_norm", 1e-3)
    y = F.gelu(net.batch_norm(net.conv(y, f"{at}.layers.conv_a.0", inner, 1), f"{at}.layers.conv_a.1", 1e-3))
    y = net.conv(y, f"{at}.layers.conv_b.0", inner, 3, stride, groups=inner)
    y = F.gelu(net.batch_norm(y, f"{at}.layers.conv_b.1", 1e-3))
    gate = net.conv(
        y.mean((2, 3), keepdim=True), f"{at}.layers.squeeze_excitation.fc1", squeezed, 1, bias=True
    )
    gate = net.conv(F.silu(gate), f"{at}.layers.squeeze_excitation.fc2", inner, 1, bias=True)
    y = net.conv(y * gate.sigmoid(), f"{at}.layers.conv_c", size, 1, bias=True)
    if stride == 2:
        x = net.conv(F.avg_pool2d(x, 3, 2, 1), f"{at}.proj.1", size, 1, bias=True)
    return x + y


def biases(net: Plain, name: str, side: int, heads: int) -> Tensor:
    """A bias for each head and each two places of a window, by how far these are apart."""
    table = net.tensor(name, (2 * side - 1) ** 2, heads, scale=1.0)
    places = [(row, column) for row in range(side) for column in range(side)]
    apart = [[(a - c + side - 1) * (2 * side - 1) + b - d + side - 1 for c, d in places] for a, b in places]
    return table[torch.tensor(apart)].permute(2, 0, 1)


def partition(net: Plain, x: Tensor, at: str, side: int, is_grid: bool) -> Tensor:
    """A layer over each window (B, H, W, C), or over the places of a grid that are as far apart as its cells are wide."""
    batch, rows, columns, size = x.shape
    cells = (rows // side, columns // side)
    if is_grid:
        x = x.reshape(batch, side, cells[0], side, cells[1], size).permute(0, 2, 4, 1, 3, 5)
    else:
        x = x.reshape(batch, cells[0], side, cells[1], side, size).permute(0, 1, 3, 2, 4, 5)
    shape = x.shape
    x = x.reshape(-1, side * side, size)
    heads = size // CHANNELS_OF_HEAD
    parts = net.linear(net.layer_norm(x, f"{at}.attn_layer.0", 1e-5), f"{at}.attn_layer.1.to_qkv", 3 * size)
    q, k, v = (part.unflatten(2, (heads, -1)).transpose(1, 2) for part in parts.chunk(3, dim=2))
    bias = biases(net, f"{at}.attn_layer.1.relative_position_bias_table", side, heads)
    y = ((q @ k.mT * size**-0.5 + bias).softmax(dim=3) @ v).transpose(1, 2).flatten(2)
    x = x + net.linear(y, f"{at}.attn_layer.1.merge", size)
    y = F.gelu(net.linear(net.layer_norm(x, f"{at}.mlp_layer.0", 1e-5), f"{at}.mlp_layer.1", 3 * size))
    x = (x + net.linear(y, f"{at}.mlp_layer.3", size)).view(shape)
    x = x.permute(*((0, 3, 1, 4, 2, 5) if is_grid else (0, 1, 3, 2, 4, 5)))
    return x.reshape(batch, rows, columns, size)


def maxvit(net: Plain, image: Tensor, side: int, counts: tuple[int, ...]) -> Tensor:
    x = F.gelu(net.batch_norm(net.conv(image, "stem.0.0", 8, 3, 2), "stem.0.1", 1e-3))
    x = net.conv(x, "stem.1.0", 8, 3, bias=True)
    for block, count in enumerate(counts):
        size = 12 + 4 * block
        for layer in range(count):
            at = f"blocks.{block}.layers.{layer}.layers"
            x = bottleneck(net, x, f"{at}.MBconv", size, 2 * size, 3, 2 if layer == 0 else 1)
            y = partition(net, x.permute(0, 2, 3, 1), f"{at}.window_attention", side, is_grid=False)
            x = partition(net, y, f"{at}.grid_attention", side, is_grid=True).permute(0, 3, 1, 2)
    x = net.linear(net.layer_norm(x.mean((2, 3)), "classifier.2", 1e-5), "classifier.3", x.shape[1])
    return net.linear(x.tanh(), "classifier.5", CLASSES, bias=False)


@pytest.mark.parametrize(("side", "counts"), [(2, (1, 2)), (4, (2, 1))], ids=["2", "4"])
def test_windows_then_a_grid(side: int, counts: tuple[int, ...], tmp_path: Path) -> None:
    net, image = Plain(), torch.randn((2, 3, 64, 64), generator=torch.Generator().manual_seed(1))
    wanted = maxvit(net, image, side, counts)
    save_file({key: value.contiguous() for key, value in net.state.items()}, tmp_path / "model.safetensors")
    read = mapper.inspect(tmp_path / "model.safetensors").architecture
    assert read.reading == "unverified" and not read.unmapped + read.findings + read.questions
    with torch.no_grad():
        logits = mapper.build(tmp_path / "model.safetensors")(pixel_values=image).logits
    assert float((logits - wanted).abs().max() / wanted.std()) <= 1e-4
