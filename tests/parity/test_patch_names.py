"""Vision transformers under the names of vit-pytorch, against the same networks written here with torch alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import mapper
from tests.parity.harness import TOLERANCE, randomise

SIZE, HEADS, LABELS = 64, 4, 5


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(SIZE)
        self.to_qkv, self.to_out = nn.Linear(SIZE, 192, bias=False), nn.Linear(SIZE, SIZE, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.to_qkv(self.norm(x)).unflatten(2, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        return self.to_out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.LayerNorm(SIZE), nn.Linear(SIZE, 96), nn.GELU(), nn.Linear(96, SIZE))

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)


class Plain(nn.Module):
    """Patches with sinusoidal positions, layers, the mean of all patches."""

    def __init__(
        self, patch: int, cut: Callable[[Tensor], Tensor], positions: Callable[[Tensor], Tensor]
    ) -> None:
        super().__init__()
        self.cut, self.positions = cut, positions
        self.to_patch_embedding = nn.Sequential(
            nn.Identity(), nn.LayerNorm(patch), nn.Linear(patch, SIZE), nn.LayerNorm(SIZE)
        )
        self.transformer = nn.Module()
        self.transformer.layers = nn.ModuleList(nn.ModuleList((Attention(), FeedForward())) for _ in range(2))
        self.transformer.norm = nn.LayerNorm(SIZE)
        self.linear_head = nn.Linear(SIZE, LABELS)

    def forward(self, x: Tensor) -> Tensor:
        x = self.to_patch_embedding(self.cut(x))
        x = x.flatten(1, -2) + self.positions(x)
        for mix, widen in self.transformer.layers:
            x = x + mix(x)
            x = x + widen(x)
        return self.linear_head(self.transformer.norm(x).mean(1))


def waves(index: Tensor, parts: int) -> Tensor:
    """Sines and cosines of one axis, which has so many of the channels."""
    angles = index.flatten()[:, None] * 10000.0 ** -(torch.arange(parts) / (parts - 1))
    return torch.cat((angles.sin(), angles.cos()), dim=1)


def of_times(x: Tensor) -> Tensor:
    return waves(torch.arange(x.shape[1]), SIZE // 2)


def of_frames(x: Tensor) -> Tensor:
    places = torch.meshgrid(*(torch.arange(side) for side in x.shape[1:4]), indexing="ij")
    return F.pad(torch.cat([waves(axis, SIZE // 6) for axis in reversed(places)], dim=1), (0, SIZE % 6))


def times(x: Tensor) -> Tensor:
    """Patches of eight times."""
    return x.unflatten(2, (-1, 8)).permute(0, 2, 3, 1).flatten(2)


def frames(x: Tensor) -> Tensor:
    """Patches of two frames of four by four pixels."""
    x = x.unflatten(4, (-1, 4)).unflatten(3, (-1, 4)).unflatten(2, (-1, 2))
    return x.permute(0, 2, 4, 6, 3, 5, 7, 1).flatten(4)


@pytest.mark.parametrize(
    ("model", "shape", "told"),
    [
        (Plain(24, times, of_times), (2, 3, 40), {"image.patch_channels": "series"}),
        (Plain(96, frames, of_frames), (2, 3, 6, 8, 12), {"image.patch_channels": "frames", "patch_size": 4}),
    ],
    ids=["series", "frames"],
)
def test_patches_of_a_series_or_a_video(
    model: nn.Module, shape: tuple[int, ...], told: dict[str, Any], tmp_path: Path
) -> None:
    randomise(model.eval())
    torch.save(model.state_dict(), tmp_path / "model.pth")
    questions = mapper.inspect(tmp_path / "model.pth").architecture.questions
    assert "image.patch_channels" in {
        question.fact for question in questions
    }  # the library's names are the same
    built = mapper.build(tmp_path / "model.pth", hints={"attention.heads": HEADS, **told})
    x = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        wanted = model(x)
        assert float((built(pixel_values=x).logits - wanted).abs().max() / wanted.std()) <= TOLERANCE
