"""What a graph shows of rotary embeddings of a part of each head, and the names of norms whose weights were calculated."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from mapper.sources import open_source

SIZE, BASE = 8, 100.0  # channels of a head, and the base of the angles


class Norm(nn.Module):
    """An RMS norm that scales by 1 + weight, which exporters calculate."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * (1 + self.weight)


class Attention(nn.Module):
    """Two heads, of which the first channels are rotated, or the last ones."""

    def __init__(self, rotated: int, *, is_first: bool = True) -> None:
        super().__init__()
        self.norm, self.q, self.k, self.v = Norm(), *(nn.Linear(16, 16, bias=False) for _ in range(3))
        self.rotated, self.is_first = rotated, is_first
        self.register_buffer(
            "steps", BASE ** (-torch.arange(0, rotated, 2).float() / rotated), persistent=False
        )

    def heads(self, x: torch.Tensor) -> torch.Tensor:
        return x.view(x.shape[0], x.shape[1], 2, SIZE).transpose(1, 2)

    def turned(self, x: torch.Tensor) -> torch.Tensor:
        """x (B, H, T, D), rotated by halves of its rotated channels."""
        angles = torch.arange(x.shape[2])[:, None].float() * self.steps
        angles = torch.cat([angles, angles], -1)
        cos, sin = angles.cos(), angles.sin()
        part, rest = x[..., : self.rotated], x[..., self.rotated :]
        half = self.rotated // 2
        made = part * cos + torch.cat([-part[..., half:], part[..., :half]], -1) * sin
        return torch.cat([made, rest] if self.is_first else [rest, made], -1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norm(x)
        q, k = self.turned(self.heads(self.q(x))), self.turned(self.heads(self.k(x)))
        return F.scaled_dot_product_attention(q, k, self.heads(self.v(x)))


def exported(path: Path, model: nn.Module) -> Path:
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            model.eval(), (torch.randn(2, 5, 16),), str(path), opset_version=20, dynamo=False,
            input_names=["x"], dynamic_axes={"x": {0: "batch", 1: "length"}},
        )  # fmt: skip
    return path


@pytest.mark.parametrize(
    ("rotated", "is_first", "wanted"),
    [
        (4, True, {"rotary": True, "rotary.fraction": 0.5, "rotary.dim": 4, "rotary.base": BASE}),
        (4, False, {}),
    ],
)
def test_a_part_of_each_head_is_rotated(
    rotated: int, is_first: bool, wanted: dict[str, object], tmp_path: Path
) -> None:
    checkpoint = open_source(
        exported(tmp_path / "x.onnx", Attention(rotated, is_first=is_first)), purpose="headers"
    )
    shown = {one.fact: one.value for one in checkpoint.observed if one.leaf == "q"}
    assert {
        fact: shown[fact]
        for fact in ("rotary", "rotary.fraction", "rotary.dim", "rotary.base")
        if fact in shown
    } == wanted


def test_a_norm_whose_weight_was_calculated_has_its_name(tmp_path: Path) -> None:
    """The file has 1 + weight, by which a norm without an offset scales."""
    model = Attention(4)
    checkpoint = open_source(exported(tmp_path / "x.onnx", model), purpose="weights")
    assert checkpoint.read is not None
    (held,) = checkpoint.read(["norm.weight"]).values()
    torch.testing.assert_close(held, 1 + model.norm.weight.detach())
    assert {(one.leaf, one.value) for one in checkpoint.observed if one.fact == "norm.offset"} == {
        ("norm", False)
    }
