"""Conformer layers under the names of torchaudio, whose convolution stands before or behind attention, against the same in torch alone."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import mapper
from tests.parity.harness import TOLERANCE, randomise

SIZE, HEADS, KERNEL = 32, 4, 7


class Half(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.sequential = nn.Sequential(
            nn.LayerNorm(SIZE), nn.Linear(SIZE, 48), nn.SiLU(), nn.Dropout(0), nn.Linear(48, SIZE)
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + self.sequential(x) / 2


class Convolution(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer_norm = nn.LayerNorm(SIZE)
        self.sequential = nn.Sequential(
            nn.Conv1d(SIZE, 2 * SIZE, 1), nn.GLU(dim=1), nn.Conv1d(SIZE, SIZE, KERNEL, padding=KERNEL // 2, groups=SIZE),
            nn.BatchNorm1d(SIZE), nn.SiLU(), nn.Conv1d(SIZE, SIZE, 1),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return x + self.sequential(self.layer_norm(x).transpose(1, 2)).transpose(1, 2)


class Layer(nn.Module):
    def __init__(self, is_convolved_first: bool) -> None:
        super().__init__()
        self.is_convolved_first = is_convolved_first
        self.ffn1, self.ffn2, self.conv_module = Half(), Half(), Convolution()
        self.self_attn = nn.MultiheadAttention(SIZE, HEADS, batch_first=True)
        self.self_attn_layer_norm, self.final_layer_norm = nn.LayerNorm(SIZE), nn.LayerNorm(SIZE)

    def attend(self, x: Tensor) -> Tensor:
        y = self.self_attn_layer_norm(x)
        q, k, v = F.linear(y, self.self_attn.in_proj_weight, self.self_attn.in_proj_bias).chunk(3, dim=-1)
        q, k, v = (each.unflatten(2, (HEADS, -1)).transpose(1, 2) for each in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        return x + self.self_attn.out_proj(y)

    def forward(self, x: Tensor) -> Tensor:
        x = self.ffn1(x)
        x = self.attend(self.conv_module(x)) if self.is_convolved_first else self.conv_module(self.attend(x))
        return self.final_layer_norm(self.ffn2(x))


@torch.no_grad()
@pytest.mark.parametrize("is_first", [False, True], ids=["behind attention", "before attention"])
def test_the_place_of_the_convolution_is_asked(is_first: bool, tmp_path: Path) -> None:
    model = nn.Module()
    model.conformer_layers = nn.ModuleList(Layer(is_first) for _ in range(2))
    torch.save(randomise(model.eval()).state_dict(), tmp_path / "model.pth")
    asked = {question.fact for question in mapper.inspect(tmp_path / "model.pth").architecture.questions}
    assert asked == {"attention.heads", "layer.convolution_first"}
    hints = {"attention.heads": HEADS, "layer.convolution_first": is_first}
    x = torch.randn(2, 9, SIZE, generator=torch.Generator().manual_seed(1))
    made = mapper.build(tmp_path / "model.pth", hints=hints)(x, torch.tensor([9, 9])).last_hidden_state
    wanted = x
    for layer in model.conformer_layers:
        wanted = layer(wanted)
    assert float((made - wanted).abs().max() / wanted.std()) <= TOLERANCE
