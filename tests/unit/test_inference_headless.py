"""Networks for images without a head, as timm saves them: what stands for the image is a vector, by what its config says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

import mapper
from mapper._api import describe
from mapper.rulebook.examples import expand, header
from tests.shipped import RULEBOOK

WIDTH, SIDE = 128, 32
PATCHES = (SIDE // 8) ** 2
BLOCK = {
    "attn.qkv.weight": (3 * WIDTH, WIDTH),
    "attn.qkv.bias": (3 * WIDTH,),
    "attn.proj.weight": (WIDTH, WIDTH),
    "mlp.fc1.weight": (2 * WIDTH, WIDTH),
    "mlp.fc1.bias": (2 * WIDTH,),
    "mlp.fc2.weight": (WIDTH, 2 * WIDTH),
    **{name: (WIDTH,) for part in ("attn.proj.bias", "mlp.fc2.bias", "norm{1,2}.{weight,bias}") for name in expand(part)},
}  # fmt: skip


def transformer(tmp_path: Path, pool: str, tokens: dict[str, tuple[int, ...]]) -> Path:
    """A small vision transformer without a head."""
    torch.manual_seed(0)
    places = PATCHES + (1 if "cls_token" in tokens else 0)
    shapes = {"patch_embed.proj.weight": (WIDTH, 3, 8, 8), "patch_embed.proj.bias": (WIDTH,), "pos_embed": (1, places, WIDTH)}  # fmt: skip
    shapes |= {f"blocks.{at}.{name}": shape for at in range(2) for name, shape in BLOCK.items()}
    shapes |= {"norm.weight": (WIDTH,), "norm.bias": (WIDTH,), **tokens}
    save_file({name: torch.randn(shape) * 0.2 for name, shape in shapes.items()}, tmp_path / "model.safetensors")  # fmt: skip
    config = {"architecture": "vit_medium_patch16_224", "num_classes": 0, "num_features": WIDTH, "global_pool": pool, "model_args": {"num_heads": 2}}  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    return tmp_path


CLASS: dict[str, tuple[int, ...]] = {"cls_token": (1, 1, WIDTH)}


@pytest.mark.parametrize(
    ("pool", "tokens", "first"), [("avg", {}, 0), ("avg", CLASS, 1), ("token", CLASS, None)]
)
def test_a_vision_transformer_gives_what_its_config_pools(
    pool: str, tokens: dict[str, Any], first: int | None, tmp_path: Path
) -> None:
    model = mapper.build(transformer(tmp_path, pool, tokens), hints={"feed_forward.activation": "gelu"})
    with torch.no_grad():
        made = model(torch.randn(2, 3, SIDE, SIDE))
    states = made.last_hidden_state
    pooled = states[:, 0] if first is None else states[:, first:].mean(dim=1)
    torch.testing.assert_close(made.pooler_output, pooled)


def test_two_leading_tokens_are_asked_about(tmp_path: Path) -> None:
    folder = transformer(tmp_path, "token", {**CLASS, "dist_token": (1, 1, WIDTH), "pos_embed": (1, PATCHES + 2, WIDTH)})  # fmt: skip
    assert "pooling" in {question.name for question in describe(folder).questions}


def test_a_last_convolution_behind_the_mean_gives_a_vector(tmp_path: Path) -> None:
    torch.manual_seed(0)
    family = next(entry.read() for entry in RULEBOOK.family_entries if entry.name == "timm_mobilenetv3")
    made = next(header(example) for example in family.examples if example.name == "no head")
    tensors = {name: torch.rand(info.shape) for name, info in made.tensors.items() if info.dtype == "F32"}
    tensors |= {name: torch.zeros(info.shape, dtype=torch.long) for name, info in made.tensors.items() if info.dtype == "I64"}  # fmt: skip
    save_file(tensors, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(made.config))
    model = mapper.build(tmp_path)
    with torch.no_grad():
        assert model(torch.randn(2, 3, 32, 32)).pooler_output.dim() == 2
