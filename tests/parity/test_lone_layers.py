"""One layer of torch saved by itself, against torch."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import mapper
from tests.parity.harness import TOLERANCE, randomise

SIZE, HEADS = 24, 4
TOLD = {"attention.heads": HEADS, "feed_forward.activation": "gelu"}


def rows(seed: int, length: int) -> Tensor:
    return torch.randn((2, length, SIZE), generator=torch.Generator().manual_seed(seed))


def options(is_first: bool) -> dict[str, object]:
    return {"batch_first": True, "norm_first": is_first, "activation": "gelu", "dropout": 0.0}


@torch.no_grad()
@pytest.mark.parametrize("is_first", [True, False], ids=["norms first", "norms last"])
@pytest.mark.parametrize("kind", ["encoder", "decoder"])
def test_a_layer_of_torch(kind: str, is_first: bool, tmp_path: Path) -> None:
    layer = nn.TransformerEncoderLayer if kind == "encoder" else nn.TransformerDecoderLayer
    model = randomise(layer(SIZE, HEADS, 40, **options(is_first)).eval())  # type: ignore[arg-type]
    torch.save(model.state_dict(), tmp_path / "model.pth")
    questions = {one.fact for one in mapper.inspect(tmp_path / "model.pth").architecture.questions}
    assert {"norm.placement", "feed_forward.activation"} <= questions
    told = {**TOLD, "norm.placement": "pre" if is_first else "post"}
    built = mapper.build(tmp_path / "model.pth", hints=told)
    x, source = rows(1, 6), rows(2, 5)
    given = {"encoder_hidden_states": source} if kind == "decoder" else {}
    wanted = model(x, source) if kind == "decoder" else model(x)
    made = built(embedded=x, **given).last_hidden_state
    assert float((made - wanted).abs().max() / wanted.std()) <= TOLERANCE
