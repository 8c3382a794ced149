"""Layers of which some are reached from no others are no chain, and that is seen before all orders are tried."""

from __future__ import annotations

import pytest

from mapper.checkpoint import Checkpoint, TensorInfo
from mapper.inference import infer
from mapper.inference.chains import order
from tests.shipped import RULEBOOK


def mixer() -> Checkpoint:
    """Maps over tokens (4) and over channels (16) in turns: neither reads what the other gives."""
    maps = {"patch_embed": (16, 48), "norm": (16,), "head": (5, 16)}
    for at in (0, 1):
        maps |= {f"blocks.{at}.norm{n}": (16,) for n in (1, 2)}
        maps |= {f"blocks.{at}.token_mlp.fc1": (6, 4), f"blocks.{at}.token_mlp.fc2": (4, 6)}
        maps |= {f"blocks.{at}.channel_mlp.fc1": (24, 16), f"blocks.{at}.channel_mlp.fc2": (16, 24)}
    tensors = {f"{name}.weight": TensorInfo(shape, "F32") for name, shape in maps.items()}
    tensors |= {f"{name}.bias": TensorInfo(shape[:1], "F32") for name, shape in maps.items()}
    return Checkpoint("x", "safetensors", dict(sorted(tensors.items())), None)


def test_what_no_order_reaches_is_not_searched_for(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []
    follow = order.follow
    monkeypatch.setattr(order, "follow", lambda *each, **more: tried.append(each) or follow(*each, **more))
    assert infer(mixer(), RULEBOOK).reading == "skeleton"
    assert tried
    assert len(tried) < order.TRIED
