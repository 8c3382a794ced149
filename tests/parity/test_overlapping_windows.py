"""Windows that read a part of their neighbours, against the network written here with torch alone (2205.04437)."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import mapper
from tests.parity.harness import TOLERANCE, randomise
from tests.parity.test_restored_images import FEATURES, HEADS, MEAN, WIDTH, WINDOW, Attention, convolution

OUTER = WINDOW + WINDOW // 2


def places(side: int) -> Tensor:
    return torch.stack(torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij")).flatten(1)


def windows(x: Tensor, size: int, outer: int) -> Tensor:
    """Windows of a map (B, C, Y, X), of a larger side around those of this size. -> (B * windows, outer ** 2, C)"""
    around = (outer - size) // 2
    x = F.pad(x, (around, around, around, around)).unfold(2, outer, size).unfold(3, outer, size)
    return x.permute(0, 2, 3, 4, 5, 1).flatten(0, 2).flatten(1, 2)


class Mlp(nn.ModuleDict):
    def __init__(self) -> None:
        super().__init__({"fc1": nn.Linear(WIDTH, 12), "fc2": nn.Linear(12, WIDTH)})

    def forward(self, x: Tensor) -> Tensor:
        return self["fc2"](F.gelu(self["fc1"](x)))


class Weighed(nn.Module):
    """Two convolutions whose channels are weighed by their means."""

    def __init__(self) -> None:
        super().__init__()
        inner = nn.Module()
        inner.attention = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(WIDTH, 2, 1), nn.ReLU(), nn.Conv2d(2, WIDTH, 1), nn.Sigmoid()
        )
        self.cab = nn.Sequential(convolution(WIDTH, 4), nn.GELU(), convolution(4, WIDTH), inner)

    def forward(self, x: Tensor) -> Tensor:
        x = self.cab[:3](x)
        return x * self.cab[3].attention(x)


class Layer(nn.Module):
    """Attention within whole windows (no shift), beside convolutions over all of the map."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.attn, self.norm2 = nn.LayerNorm(WIDTH), Attention(), nn.LayerNorm(WIDTH)
        self.conv_block, self.mlp = Weighed(), Mlp()

    def forward(self, x: Tensor, size: tuple[int, int]) -> Tensor:
        y = self.norm1(x)
        image = y.mT.unflatten(2, size)
        z = self.attn(windows(image, WINDOW, WINDOW))
        x = x + joined(z, size) + self.conv_block(image).flatten(2).mT * 0.01
        return x + self.mlp(self.norm2(x))


def joined(x: Tensor, size: tuple[int, int]) -> Tensor:
    """Windows (B * windows, size ** 2, C) to rows (B, Y * X, C)."""
    x = x.unflatten(1, (WINDOW, WINDOW)).unflatten(0, (-1, size[0] // WINDOW, size[1] // WINDOW))
    return x.permute(0, 1, 3, 2, 4, 5).flatten(1, 4)


class Overlapping(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2, self.mlp = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH), Mlp()
        self.qkv, self.proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.relative_position_bias_table = nn.Parameter(torch.zeros((WINDOW + OUTER - 1) ** 2, HEADS))

    def forward(self, x: Tensor, size: tuple[int, int]) -> Tensor:
        image = self.qkv(self.norm1(x)).mT.unflatten(2, size)
        q, k, v = image.chunk(3, dim=1)
        q, k, v = windows(q, WINDOW, WINDOW), windows(k, WINDOW, OUTER), windows(v, WINDOW, OUTER)
        q, k, v = (each.unflatten(2, (HEADS, -1)).transpose(1, 2) for each in (q, k, v))
        apart = places(OUTER)[:, None] - places(WINDOW)[:, :, None] + WINDOW - OUTER + 1
        index = apart[0] * (WINDOW + OUTER - 1) + apart[1]
        bias = self.relative_position_bias_table[index].permute(2, 0, 1)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=bias).transpose(1, 2).flatten(2)
        x = x + joined(self.proj(y), size)
        return x + self.mlp(self.norm2(x))


class Restored(nn.Module):
    """An image through one layer within windows and one whose windows overlap."""

    def __init__(self) -> None:
        super().__init__()
        self.conv_first, self.norm = convolution(3, WIDTH), nn.LayerNorm(WIDTH)
        self.patch_embed = nn.ModuleDict({"norm": nn.LayerNorm(WIDTH)})
        group = nn.ModuleDict({"blocks": nn.ModuleList([Layer()]), "overlap_attn": Overlapping()})
        self.layers = nn.ModuleList(
            [nn.ModuleDict({"residual_group": group, "conv": convolution(WIDTH, WIDTH)})]
        )
        self.conv_after_body = convolution(WIDTH, WIDTH)
        self.conv_before_upsample = nn.Sequential(convolution(WIDTH, FEATURES), nn.LeakyReLU())
        self.conv_last = convolution(FEATURES, 3)

    def forward(self, pixels: Tensor) -> Tensor:
        size = (pixels.shape[2], pixels.shape[3])
        first = self.conv_first(pixels - MEAN)
        kept = x = self.patch_embed["norm"](first.flatten(2).mT)
        group = self.layers[0]["residual_group"]
        x = group["overlap_attn"](group["blocks"][0](x, size), size)
        x = kept + self.layers[0]["conv"](x.mT.unflatten(2, size)).flatten(2).mT
        x = self.conv_after_body(self.norm(x).mT.unflatten(2, size)) + first
        return self.conv_last(self.conv_before_upsample(x)) + MEAN


@torch.no_grad()
def test_windows_that_read_a_part_of_their_neighbours(tmp_path: Path) -> None:
    model = randomise(Restored().eval())
    torch.save(model.state_dict(), tmp_path / "model.pth")
    built = mapper.build(tmp_path / "model.pth", hints={"attention.heads": HEADS})
    pixels = torch.rand(2, 3, 2 * WINDOW, 3 * WINDOW, generator=torch.Generator().manual_seed(1))
    made, wanted = built(pixel_values=pixels).reconstruction, model(pixels)
    assert float((made - wanted).abs().max() / wanted.std()) <= TOLERANCE


@pytest.mark.parametrize("side", [7, 8])
def test_the_largest_pixel_is_asked_where_windows_are_those_that_remove_marks_of_jpeg(
    side: int, tmp_path: Path
) -> None:
    model = Restored()
    del model.layers[0]["residual_group"]["overlap_attn"]
    layer = model.layers[0]["residual_group"]["blocks"][0]
    del layer.conv_block
    layer.attn.relative_position_bias_table = nn.Parameter(torch.zeros((2 * side - 1) ** 2, HEADS))
    layer.attn.register_buffer("relative_position_index", torch.zeros(side**2, side**2, dtype=torch.long))
    torch.save(model.state_dict(), tmp_path / "model.pth")
    asked = {question.fact for question in mapper.inspect(tmp_path / "model.pth").architecture.questions}
    assert ("image.range" in asked) == (side == 7)
