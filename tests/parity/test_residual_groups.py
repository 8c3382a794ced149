"""Groups of residual layers that make an image larger, against the network written here with torch alone (1807.02758)."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import mapper
from tests.parity.harness import TOLERANCE, randomise

WIDTH, RANGE = 8, 255.0


def convolution(read: int, made: int) -> nn.Conv2d:
    return nn.Conv2d(read, made, 3, padding=1)


class Gate(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv_du = nn.Sequential(nn.Conv2d(WIDTH, 2, 1), nn.ReLU(), nn.Conv2d(2, WIDTH, 1), nn.Sigmoid())

    def forward(self, x: Tensor) -> Tensor:
        return x * self.conv_du(x.mean((2, 3), keepdim=True))


class Added(nn.Module):
    """What is in `body`, added to its input."""

    def __init__(self, *body: nn.Module) -> None:
        super().__init__()
        self.body = nn.Sequential(*body)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x)


class Enlarged(nn.Module):
    def __init__(self, times: int, has_mean: bool):
        super().__init__()
        self.has_mean = has_mean
        if has_mean:
            self.sub_mean, self.add_mean = nn.Conv2d(3, 3, 1), nn.Conv2d(3, 3, 1)
        self.head = nn.Sequential(convolution(3, WIDTH))
        groups = (Added(*(self.layer() for _ in range(3)), convolution(WIDTH, WIDTH)) for _ in range(2))
        self.body = nn.Sequential(*groups, convolution(WIDTH, WIDTH))
        steps = [step for _ in range(times) for step in (convolution(WIDTH, 4 * WIDTH), nn.PixelShuffle(2))]
        self.tail = nn.Sequential(nn.Sequential(*steps), convolution(WIDTH, 3))

    @staticmethod
    def layer() -> nn.Module:
        return Added(convolution(WIDTH, WIDTH), nn.ReLU(), convolution(WIDTH, WIDTH), Gate())

    def forward(self, pixels: Tensor) -> Tensor:
        x = pixels * RANGE
        x = self.head(self.sub_mean(x) if self.has_mean else x)
        x = self.tail(x + self.body(x))
        return (self.add_mean(x) if self.has_mean else x) / RANGE


@torch.no_grad()
@pytest.mark.parametrize(("times", "has_mean"), [(1, True), (2, False)])
def test_groups_of_gated_convolutions(times: int, has_mean: bool, tmp_path: Path) -> None:
    model = randomise(Enlarged(times, has_mean).eval())
    torch.save(model.state_dict(), tmp_path / "model.pth")
    questions = mapper.inspect(tmp_path / "model.pth").architecture.questions
    assert [question.fact for question in questions] == ["image.range"]
    built = mapper.build(tmp_path / "model.pth", hints={"image.range": RANGE})
    pixels = torch.rand(2, 3, 8, 6, generator=torch.Generator().manual_seed(1))
    made, wanted = built(pixel_values=pixels).reconstruction, model(pixels)
    assert float((made - wanted).abs().max() / wanted.std()) <= TOLERANCE
