"""Layers over patches whose feed-forward networks have a gate, or a folder of their own, against the same networks written here with torch alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import mapper
from tests.parity.harness import TOLERANCE, randomise

SIZE, HEADS, PATCH, LABELS = 48, 3, 8, 5


def mixed(qkv: Tensor) -> Tensor:
    q, k, v = qkv.unflatten(2, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
    return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)


def pixels() -> Tensor:
    return torch.randn(2, 3, 2 * PATCH, 2 * PATCH, generator=torch.Generator().manual_seed(1))


def built_from(model: nn.Module, folder: Path, told: dict[str, Any]) -> Any:
    torch.save(randomise(model.eval()).state_dict(), folder / "model.pth")
    return mapper.build(folder / "model.pth", hints={"attention.heads": HEADS, **told})


def near(made: Tensor, wanted: Tensor) -> bool:
    return float((made - wanted).abs().max() / wanted.std()) <= TOLERANCE


class Scale(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(SIZE))


class Gated(nn.Module):
    """Layers with a gate of silu and factors of each channel (2304.07193)."""

    def __init__(self, first: str = "w12", second: str = "w3") -> None:
        super().__init__()
        self.first, self.second = first, second
        self.cls_token, self.pos_embed = (
            nn.Parameter(torch.zeros(1, 1, SIZE)),
            nn.Parameter(torch.zeros(1, 5, SIZE)),
        )
        self.mask_token = nn.Parameter(torch.zeros(1, SIZE))
        self.patch_embed = nn.ModuleDict({"proj": nn.Conv2d(3, SIZE, PATCH, stride=PATCH)})
        self.blocks = nn.ModuleList(self.layer() for _ in range(2))
        self.norm = nn.LayerNorm(SIZE, 1e-6)

    def layer(self) -> nn.ModuleDict:
        return nn.ModuleDict({
            "norm1": nn.LayerNorm(SIZE, 1e-6), "attn": nn.ModuleDict({"qkv": nn.Linear(SIZE, 3 * SIZE), "proj": nn.Linear(SIZE, SIZE)}),
            "ls1": Scale(), "norm2": nn.LayerNorm(SIZE, 1e-6), "mlp": nn.ModuleDict({self.first: nn.Linear(SIZE, 128), self.second: nn.Linear(64, SIZE)}), "ls2": Scale(),
        })  # fmt: skip

    def forward(self, image: Tensor) -> Tensor:
        x = self.patch_embed["proj"](image).flatten(2).transpose(1, 2)
        x = torch.cat((self.cls_token.expand(len(x), 1, -1), x), dim=1) + self.pos_embed
        for one in self.blocks:
            attn, mlp = one["attn"], one["mlp"]
            x = x + attn["proj"](mixed(attn["qkv"](one["norm1"](x)))) * one["ls1"].gamma
            gate, up = mlp[self.first](one["norm2"](x)).chunk(2, dim=-1)
            x = x + mlp[self.second](F.silu(gate) * up) * one["ls2"].gamma
        return self.norm(x)


@torch.no_grad()
def test_a_gate_of_silu(tmp_path: Path) -> None:
    model = Gated()
    made = built_from(model, tmp_path, {})(pixel_values=pixels())
    assert near(made.last_hidden_state, model(pixels()))


@torch.no_grad()
def test_a_gate_under_the_names_of_networks_without_one(tmp_path: Path) -> None:
    """Timm's config says which network it is; without it the activation and the place of the gate are asked."""
    model = Gated("fc1", "fc2")
    torch.save(randomise(model.eval()).state_dict(), tmp_path / "model.pth")
    asked = {question.fact for question in mapper.inspect(tmp_path / "model.pth").architecture.questions}
    assert asked >= {"feed_forward.activation", "feed_forward.gate_last"}
    said = {"architecture": "vit_giant_patch14_dinov2", "num_classes": 0, "global_pool": "token", "model_args": {"num_heads": HEADS}}  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(said))
    made = mapper.build(tmp_path)(pixel_values=pixels())
    assert near(made.last_hidden_state, model(pixels()))


class Listed(nn.Module):
    """Parts of a layer in a list, each with its norm: that of the second beside a folder with its maps."""

    def __init__(self, has_folder: bool, has_final_norm: bool = True) -> None:
        super().__init__()
        self.has_folder = has_folder
        self.cls_token, self.pos_embedding = (
            nn.Parameter(torch.zeros(1, 1, SIZE)),
            nn.Parameter(torch.zeros(1, 5, SIZE)),
        )
        values = 3 * PATCH**2
        self.to_patch_embedding = nn.Sequential(
            nn.Identity(), nn.LayerNorm(values), nn.Linear(values, SIZE), nn.LayerNorm(SIZE)
        )
        self.transformer = nn.Module()
        self.transformer.layers = nn.ModuleList(self.layer() for _ in range(2))
        self.transformer.norm = nn.LayerNorm(SIZE) if has_final_norm else nn.Identity()
        head = nn.Linear(SIZE, LABELS)
        self.mlp_head = head if has_final_norm else nn.Sequential(nn.LayerNorm(SIZE), head)

    def layer(self) -> nn.ModuleList:
        attention = nn.ModuleDict(
            {
                "norm": nn.LayerNorm(SIZE),
                "to_qkv": nn.Linear(SIZE, 3 * SIZE, bias=False),
                "to_out": nn.Sequential(nn.Linear(SIZE, SIZE)),
            }
        )
        maps = [nn.Linear(SIZE, 96), nn.GELU(), nn.Dropout(0), nn.Linear(96, SIZE)]
        if self.has_folder:
            return nn.ModuleList(
                [attention, nn.ModuleDict({"norm": nn.LayerNorm(SIZE), "net": nn.Sequential(*maps)})]
            )
        return nn.ModuleList([attention, nn.ModuleDict({"net": nn.Sequential(nn.LayerNorm(SIZE), *maps)})])

    def forward(self, image: Tensor) -> Tensor:
        x = (
            image.unflatten(3, (2, PATCH))
            .unflatten(2, (2, PATCH))
            .permute(0, 2, 4, 3, 5, 1)
            .flatten(3)
            .flatten(1, 2)
        )
        x = self.to_patch_embedding(x)
        x = torch.cat((self.cls_token.expand(len(x), 1, -1), x), dim=1) + self.pos_embedding
        for first, second in self.transformer.layers:
            x = x + first["to_out"](mixed(first["to_qkv"](first["norm"](x))))
            x = x + second["net"](second["norm"](x) if self.has_folder else x)
        return self.mlp_head(self.transformer.norm(x)[:, 0])


@torch.no_grad()
def test_a_norm_beside_a_folder_in_a_list(tmp_path: Path) -> None:
    model = Listed(has_folder=True)
    told = {
        "norm.eps": 1e-5,
        "feed_forward.activation": "gelu",
        "image.patch_channels": "last",
        "channels": 3,
    }
    assert near(built_from(model, tmp_path, told)(pixel_values=pixels()).logits, model(pixels()))


@torch.no_grad()
def test_patches_that_are_left_out_are_asked_about(tmp_path: Path) -> None:
    model = Listed(has_folder=False, has_final_norm=False)
    with pytest.raises(mapper.MapperError, match=r"attention\.plain"):
        built_from(model, tmp_path, {"head.pooling": "first"})
    built = built_from(model, tmp_path, {"attention.plain": True, "head.pooling": "first"})
    assert near(built(pixel_values=pixels()).logits, model(pixels()))
