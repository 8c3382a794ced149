"""Images of the size of their input, made whole or as what is left of noise, against the network written here with torch alone (2108.10257)."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import mapper
from tests.parity.harness import TOLERANCE, randomise

WIDTH, HEADS, WINDOW, FEATURES = 8, 2, 4, 64
MEAN = torch.tensor([0.4488, 0.4371, 0.404]).view(1, 3, 1, 1)


class Attention(nn.Module):
    """Within one window, with a bias for each distance."""

    def __init__(self) -> None:
        super().__init__()
        self.relative_position_bias_table = nn.Parameter(torch.zeros((2 * WINDOW - 1) ** 2, HEADS))
        self.qkv, self.proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        places = torch.stack(
            torch.meshgrid(torch.arange(WINDOW), torch.arange(WINDOW), indexing="ij")
        ).flatten(1)
        apart = (places[:, :, None] - places[:, None] + WINDOW - 1).permute(1, 2, 0)
        self.register_buffer("relative_position_index", apart[..., 0] * (2 * WINDOW - 1) + apart[..., 1])

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(2, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        bias = self.relative_position_bias_table[self.relative_position_index].permute(2, 0, 1)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
        return self.proj(y.transpose(1, 2).flatten(2))


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.attn, self.norm2 = nn.LayerNorm(WIDTH), Attention(), nn.LayerNorm(WIDTH)
        self.mlp = nn.ModuleDict({"fc1": nn.Linear(WIDTH, 12), "fc2": nn.Linear(12, WIDTH)})

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.norm1(x))
        return x + self.mlp["fc2"](F.gelu(self.mlp["fc1"](self.norm2(x))))


def convolution(read: int, made: int, size: int = 3) -> nn.Conv2d:
    return nn.Conv2d(read, made, size, padding=size // 2)


def joined(has_three: bool) -> nn.Module:
    """The convolution behind layers, or three of them."""
    if not has_three:
        return convolution(WIDTH, WIDTH)
    less, slope = WIDTH // 4, nn.LeakyReLU(0.2)
    return nn.Sequential(
        convolution(WIDTH, less), slope, convolution(less, less, 1), slope, convolution(less, WIDTH)
    )


class Restored(nn.Module):
    """An image of one window through one layer; the last convolution makes it, or what is added to it."""

    def __init__(self, is_whole: bool, has_three: bool) -> None:
        super().__init__()
        self.conv_first, self.norm = convolution(3, WIDTH), nn.LayerNorm(WIDTH)
        self.patch_embed = nn.ModuleDict({"norm": nn.LayerNorm(WIDTH)})
        group = nn.ModuleDict({"blocks": nn.ModuleList([Layer()])})
        self.layers = nn.ModuleList([nn.ModuleDict({"residual_group": group, "conv": joined(has_three)})])
        self.conv_after_body = joined(has_three)
        if is_whole:
            self.conv_before_upsample = nn.Sequential(convolution(WIDTH, FEATURES), nn.LeakyReLU())
        self.conv_last = convolution(FEATURES if is_whole else WIDTH, 3)

    def forward(self, pixels: Tensor) -> Tensor:
        first = self.conv_first(pixels - MEAN)
        kept = x = self.patch_embed["norm"](first.flatten(2).transpose(1, 2))
        for layer in self.layers[0]["residual_group"]["blocks"]:
            x = layer(x)
        x = kept + self.layers[0]["conv"](as_map(x)).flatten(2).transpose(1, 2)
        x = self.conv_after_body(as_map(self.norm(x))) + first
        if hasattr(self, "conv_before_upsample"):
            return self.conv_last(self.conv_before_upsample(x)) + MEAN
        return pixels + self.conv_last(x)


def as_map(x: Tensor) -> Tensor:
    return x.transpose(1, 2).unflatten(2, (WINDOW, WINDOW))


@torch.no_grad()
@pytest.mark.parametrize("has_three", [False, True], ids=["a convolution", "three convolutions"])
@pytest.mark.parametrize("is_whole", [False, True], ids=["what is left", "a whole image"])
def test_an_image_of_the_same_size(is_whole: bool, has_three: bool, tmp_path: Path) -> None:
    model = randomise(Restored(is_whole, has_three).eval())
    torch.save(model.state_dict(), tmp_path / "model.pth")
    built = mapper.build(tmp_path / "model.pth", hints={"attention.heads": HEADS})
    pixels = torch.rand(1, 3, WINDOW, WINDOW, generator=torch.Generator().manual_seed(1))
    made, wanted = built(pixel_values=pixels).reconstruction, model(pixels)
    assert float((made - wanted).abs().max() / wanted.std()) <= TOLERANCE


class Three(nn.Module):
    """Three convolutions and one beside them; what they make in one is stored, too, and made anew."""

    def __init__(self, read: int, made: int) -> None:
        super().__init__()
        self.sk = nn.Conv2d(read, made, 1)
        self.conv = nn.Sequential(
            nn.Conv2d(read, 2 * read, 1), nn.Conv2d(2 * read, 2 * made, 3), nn.Conv2d(2 * made, made, 1)
        )
        self.eval_conv = convolution(read, made)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(F.pad(x, (1, 1, 1, 1))) + self.sk(x)


class Weighed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.c1_r, self.c2_r, self.c3_r = (Three(WIDTH, WIDTH) for _ in range(3))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        first = F.silu(self.c1_r(x))
        y = self.c3_r(F.silu(self.c2_r(first)))
        return (y + x) * (torch.sigmoid(y) - 0.5), first


class Enlarged(nn.Module):
    """An image of twice the size through six layers (2311.12770)."""

    def __init__(self, has_mean: bool) -> None:
        super().__init__()
        self.has_mean, self.conv_1, self.conv_2 = has_mean, Three(3, WIDTH), Three(WIDTH, WIDTH)
        for number in range(1, 7):
            self.add_module(f"block_{number}", Weighed())
        self.conv_cat = nn.Conv2d(4 * WIDTH, WIDTH, 1)
        self.upsampler = nn.Sequential(convolution(WIDTH, 12), nn.PixelShuffle(2))
        if not has_mean:
            self.register_buffer("no_norm", torch.zeros(1))

    def forward(self, pixels: Tensor) -> Tensor:
        kept = [self.conv_1((pixels - MEAN) * 255.0 if self.has_mean else pixels)]
        for number in range(1, 7):
            x, inner = getattr(self, f"block_{number}")(kept[-1])
            kept.append(x)
        return self.upsampler(self.conv_cat(torch.cat((kept[0], self.conv_2(x), kept[1], inner), dim=1)))


@torch.no_grad()
@pytest.mark.parametrize("has_mean", [False, True], ids=["colours as they are", "less their mean"])
def test_layers_that_weigh_themselves(has_mean: bool, tmp_path: Path) -> None:
    model = randomise(Enlarged(has_mean).eval())
    torch.save(model.state_dict(), tmp_path / "model.pth")
    pixels = torch.rand(1, 3, 8, 6, generator=torch.Generator().manual_seed(1))
    made, wanted = mapper.build(tmp_path / "model.pth")(pixel_values=pixels).reconstruction, model(pixels)
    assert float((made - wanted).abs().max() / wanted.std()) <= TOLERANCE
