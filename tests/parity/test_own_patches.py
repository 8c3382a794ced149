"""Vision transformers that people write: a linear layer over the pixels of a patch, and a head under any name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

import mapper
from tests.parity.harness import TOLERANCE

WIDTH, SIDE = 32, 8
TOLD = {"norm.eps": 1e-5, "attention.heads": 4, "feed_forward.activation": "gelu", "head.pooling": "first"}


class Layer(nn.Module):
    """A layer with its norms first, of torch's own attention."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attn = nn.MultiheadAttention(WIDTH, 4, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 48), nn.GELU(), nn.Linear(48, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        normed = self.norm1(x)
        x = x + self.attn(normed, normed, normed, need_weights=False)[0]
        result: Tensor = x + self.mlp(self.norm2(x))
        return result


class Vision(nn.Module):
    """Patches through a linear layer or a convolution, a class token, layers, a norm and a head."""

    def __init__(self, patch: str, head: str) -> None:
        super().__init__()
        self.names = patch, head
        is_map = patch != "patch_embedding"
        self.add_module(patch, nn.Linear(3 * SIDE**2, WIDTH) if is_map else nn.Conv2d(3, WIDTH, SIDE, SIDE))
        self.cls_token, self.pos_embedding = (
            nn.Parameter(torch.randn(1, 1, WIDTH)),
            nn.Parameter(torch.randn(1, 17, WIDTH)),
        )
        self.blocks = nn.ModuleList([Layer(), Layer()])
        self.norm = nn.LayerNorm(WIDTH)
        self.add_module(head, nn.Linear(WIDTH, 5))

    def forward(self, x: Tensor) -> Tensor:
        patch, head = (getattr(self, name) for name in self.names)
        if isinstance(patch, nn.Linear):
            x = (
                x.unfold(2, SIDE, SIDE)
                .unfold(3, SIDE, SIDE)
                .permute(0, 2, 3, 1, 4, 5)
                .flatten(3)
                .flatten(1, 2)
            )
            x = patch(x)
        else:
            x = patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls_token.expand(len(x), -1, -1), x], 1) + self.pos_embedding
        for block in self.blocks:
            x = block(x)
        result: Tensor = head(self.norm(x)[:, 0])
        return result


@pytest.mark.parametrize(
    ("patch", "head"),
    [
        ("input_layer", "fc"),
        ("linear_projection", "classifier"),
        ("patch_embedding", "classification_head"),
        ("patch_embedding", "out"),
    ],
)
def test_patches_and_a_head_under_words_of_ones_own(tmp_path: Path, patch: str, head: str) -> None:
    torch.manual_seed(0)
    model = Vision(patch, head).eval()
    save_file(dict(model.state_dict()), tmp_path / "model.safetensors")
    told: dict[str, Any] = {**TOLD}
    open_ = {question.fact for question in mapper.inspect(tmp_path).architecture.questions}
    if patch != "patch_embedding":
        assert "image.patch_channels" in open_
        told |= {"image.patch_channels": "first", "channels": 3}
    built = mapper.build(
        tmp_path,
        hints={fact: value for fact, value in told.items() if fact != "head.pooling" or fact in open_},
    )
    x = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        assert (built(x).logits - model(x)).abs().max() < TOLERANCE
