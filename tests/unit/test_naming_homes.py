from __future__ import annotations

from mapper._api import describe
from mapper.architecture import Block


def test_a_tower_of_nothing_but_equal_layers_is_above_their_list() -> None:
    shape = {"shape": [8, 8], "dtype": "F32"}
    names = [f"model.layers.{at}.self_attn.{word}_proj.weight" for at in range(3) for word in "qkvo"]
    root = describe({"tensors": dict.fromkeys(names, shape)}).root
    homes = {block.role: str(block.home) for block in root.blocks() if isinstance(block, Block)}
    assert homes == {
        "tower": "model",
        "layers": "model.layers.{0..2}",
        "attention": "model.layers.{0..2}.self_attn",
    }
