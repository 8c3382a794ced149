from __future__ import annotations

from mapper._api import describe
from mapper._build import build_architecture
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


def test_an_element_is_one_module_where_a_word_tells_a_single_leaf_of_it_from_others() -> None:
    """Sub-layers side by side: `fns.0.norm` has a word of its own, `fns.{0..1}.to_qkv` stands for both."""
    norm, fused = {"shape": [8], "dtype": "F32"}, {"shape": [24, 8], "dtype": "F32"}
    tensors = {
        f"layers.{layer}.0.fns.{at}.{word}.weight": norm if word == "norm" else fused
        for layer in range(2)
        for at in range(2)
        for word in ("norm", "to_qkv", "to_out")
    }
    architecture = describe({"tensors": tensors})
    parts = {leaf.place[:5] for leaf in architecture.leaves}
    assert {place[4] for place in parts} == {(0,), (1,)}
    assert set(build_architecture(architecture).state_dict()) == set(tensors)
