"""Networks in timm's naming against timm itself: each name that a family lists, with fewer and narrower layers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import mapper
from mapper.rulebook.rulebook import Rulebook
from tests.parity.harness import TOLERANCE, check_keys, imported, quiet, randomise, record_line
from tests.parity.timm_reference import timm

SMALLER: dict[str, dict[str, Any]] = {  # family -> what makes its networks small
    "timm_efficientnet": {},
    "timm_mobilenetv3": {},
    "timm_vit": {"depth": 2, "img_size": 32},
    "timm_resnet": {"layers": (1, 2, 1, 1), "channels": (8, 16, 24, 32)},
    "timm_convnext": {"depths": (1, 1, 2, 1), "dims": (8, 16, 24, 32)},
    "timm_convnext_overlapping": {"depths": (1, 1, 2, 1), "dims": (8, 16, 24, 32)},
}
LISTED = [
    (family.name, name)
    for family in Rulebook().families
    if family.name in SMALLER
    for name in family.model_types
]


def made(name: str, **more: Any) -> nn.Module:
    with quiet():
        return randomise(timm.create_model(name, **more).eval())


def check(name: str, model: nn.Module, folder: Path, size: int = 32, family: str = "", **fields: Any) -> None:
    """What mapper makes of a checkpoint as timm saves one gives timm's scores, or its pooled features."""
    save_file(model.state_dict(), folder / "model.safetensors")
    config = {
        "architecture": name,
        "num_classes": model.num_classes,
        "num_features": model.num_features,
        "pretrained_cfg": {"input_size": [3, size, size]},
        **fields,
    }
    (folder / "config.json").write_text(json.dumps(config))
    report = mapper.inspect(folder).architecture
    assert report.reading == "exact", (report.reading, report.findings, report.missing)
    assert not report.unmapped
    (folder / "generated_model.py").write_text(mapper.generate(folder))
    built, loaded = mapper.build(folder), imported(folder / "generated_model.py").load(folder)
    check_keys(folder, built, loaded)
    worst = 0.0
    for shape in ((2, 3, size, size), (1, 3, size, size)):
        image = torch.randn(shape, generator=torch.Generator().manual_seed(1))
        with torch.no_grad(), quiet():
            wanted, features = model(image), model.forward_features(image)
            out, other = built(pixel_values=image), loaded(pixel_values=image)
        got = out.logits if model.num_classes else out.pooler_output.flatten(1)
        for mine, theirs in ((got, wanted), (out.last_hidden_state, features)):
            worst = max(worst, float((mine - theirs).abs().max() / theirs.abs().max().clamp(min=1)))
        assert torch.equal(out.last_hidden_state, other.last_hidden_state)
    assert worst <= TOLERANCE, worst
    record_line(report.family, name, type(model).__name__, worst)


@pytest.mark.parametrize(("family", "name"), LISTED)
def test_every_network_that_a_family_lists(family: str, name: str, tmp_path: Path) -> None:
    check(name, made(name, num_classes=5, **SMALLER[family]), tmp_path)
