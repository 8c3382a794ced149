"""Modules that no word knows are what their block lacks, where shapes leave nothing else."""

from __future__ import annotations

from mapper.architecture import Architecture
from mapper.checkpoint import Checkpoint, TensorInfo
from mapper.inference import infer
from mapper.rulebook.examples import header
from tests.shipped import RULEBOOK


def read(family: str, words: dict[str, str], model_type: str | None = "unheard_of") -> Architecture:
    """The first example of a family with other words in its names."""
    known = header(next(each for each in RULEBOOK.families if each.name == family).examples[0])
    tensors = known.tensors
    for old, new in words.items():
        tensors = {key.replace(old, new): info for key, info in tensors.items()}
    config = {**(known.config or {}), "rope_theta": 10000.0}
    if model_type:
        config["model_type"] = model_type
    return infer(Checkpoint("x", "manifest", tensors, config), RULEBOOK)


def role_of(architecture: Architecture, word: str) -> set[str | None]:
    return {leaf.role for leaf in architecture.leaves if word in leaf.place}


def test_the_one_map_without_a_word_is_the_router_that_experts_lack() -> None:
    renamed = read("qwen3_moe", {"mlp.gate.": "mlp.zeta."})
    assert role_of(renamed, "zeta") == {"router_map"}
    assert any("all that the moe lacks" in leaf.why for leaf in renamed.leaves)
    flows = [block.flow for block in read("qwen3_moe", {}).root.blocks()]
    assert renamed.reading == "unverified" and [block.flow for block in renamed.root.blocks()] == flows


def test_a_map_of_another_shape_is_not_what_is_lacking() -> None:
    """Experts are counted by their names, and the map has a row too many."""
    known = read("qwen3_moe", {"mlp.gate.": "mlp.zeta."}).checkpoint
    key = next(key for key in known.tensors if "zeta" in key)
    info = known.tensors[key]
    tensors = {**known.tensors, key: type(info)((info.shape[0], info.shape[1] + 1), info.dtype)}
    made = infer(Checkpoint("x", "manifest", tensors, known.config), RULEBOOK)
    assert role_of(made, "zeta") == {None} and made.reading == "skeleton"


def test_two_maps_of_one_shape_are_not_told_apart() -> None:
    """Queries and keys are as wide as each other: which is which, no shape tells."""
    renamed = read("qwen3_moe", {"self_attn.q_proj": "self_attn.zig", "self_attn.k_proj": "self_attn.zag"})
    assert role_of(renamed, "zig") == role_of(renamed, "zag") == {None}


def test_a_listed_type_has_its_words() -> None:
    """There a name that nobody knows is no part of a model."""
    read_as_listed = read("qwen3_moe", {"mlp.gate.": "mlp.zeta."}, model_type=None)
    assert role_of(read_as_listed, "zeta") == {None} and read_as_listed.reading == "skeleton"


def test_a_norm_of_another_kind_in_the_folder_of_a_block_is_the_one_that_is_lacking() -> None:
    """A layer norm stands before a conformer's convolutions: the batch norm between them can be nothing else."""
    renamed = read("wav2vec2_conformer", {"conv_module.batch_norm": "conv_module.zeta"})
    assert role_of(renamed, "zeta") == {"norm"}
    beside = read("wav2vec2_conformer", {"conv_module.batch_norm": "zeta"})
    assert role_of(beside, "zeta") == {None}, "in the folder of the layer it may be of any block"


def test_which_of_two_norms_of_one_kind_is_lacking_is_not_told() -> None:
    renamed = read("llama", {"input_layernorm": "zeta", "post_attention_layernorm": "theta"})
    assert role_of(renamed, "zeta") == role_of(renamed, "theta") == {None}


def asked(architecture: Architecture) -> dict[str, tuple[object, ...]]:
    return {question.fact: question.candidates for question in architecture.questions}


def test_a_row_of_numbers_that_a_block_does_without_is_asked_for() -> None:
    """Scores without a value have a number for each head; that nothing else of this kind has one is no proof."""
    renamed = read("flint", {"softmax_offset": "zeta"})
    assert role_of(renamed, "zeta") == {None} and renamed.reading == "skeleton"
    assert all("causal_sinks" in str(flow) for flow in asked(renamed)["flow"])


def test_a_table_in_a_folder_of_its_own_is_tried_as_what_the_tower_may_have() -> None:
    """It is as wide as a head: of sines and cosines, or of distances, but no second embedding of tokens."""
    renamed = read("roformer", {"encoder.embed_positions": "encoder.zeta_positions"})
    rotary, distances = asked(renamed)["flow"]
    assert "rotary" in str(rotary) and "distances_of_table" in str(distances)
    told = infer(renamed.checkpoint, RULEBOOK, hints={"flow": rotary})
    assert role_of(told, "zeta_positions") == {"rotary_table"}


def test_names_that_spell_a_role_tell_modules_of_one_shape_apart() -> None:
    renamed = read("jamba", {"b_layernorm": "norm_of_b", "c_layernorm": "ln_c", "dt_layernorm": "zeta"})
    found = {
        str(leaf.place[-1]): leaf.role
        for leaf in renamed.leaves
        if leaf.block[-1:] == (("state_space", None),)
    }
    assert found["zeta"] == "step_norm" and found["norm_of_b"] != found["ln_c"]
    assert found["norm_of_b"] == "b_norm" and found["ln_c"] == "c_norm"


def test_a_table_with_a_row_for_each_word_of_the_config_has_the_words() -> None:
    renamed = read("llama", {"embed_tokens": "zeta"})
    (table,) = [leaf for leaf in renamed.leaves if "zeta" in leaf.place]
    assert (table.role, table.kind) == ("token", "Embedding")


def test_a_module_alone_in_a_folder_is_what_the_folder_is_called() -> None:
    renamed = read("llama", {"self_attn.q_proj.": "self_attn.q_proj.zeta."})
    assert role_of(renamed, "zeta") == {"query"}


def test_modules_beside_a_block_that_no_flow_was_tried_for_stay_unknown() -> None:
    known = header(next(each for each in RULEBOOK.families if each.name == "dia").examples[0])
    read = infer(known, RULEBOOK, use_families=False)
    assert read.reading == "skeleton" and read.missing
    assert {leaf.role for leaf in read.leaves} > {None, "query", "key", "value"}


def test_of_one_map_or_two_for_the_same_a_map_without_a_word_is_the_one_that_is_whole_alone() -> None:
    """Decays come of one map, or of two in turn: one of these two is no flow, nor is a gate where decays are lacking."""
    known = next(each for each in RULEBOOK.families if each.name == "kimi_linear").examples[2]
    tensors = {key.replace("f_proj", "zeta"): info for key, info in header(known).tensors.items()}
    assert any("zeta" in key for key in tensors)
    config = {**(known.config or {}), "model_type": "unheard_of"}
    made = infer(Checkpoint("x", "manifest", tensors, config), RULEBOOK)
    assert role_of(made, "zeta") == {"decay"}


def test_a_bare_row_of_numbers_is_not_taken_because_another_module_is_called_alike() -> None:
    """A decay of each head stands beside a norm: that the norm is one does not make the decay a sink of attention."""
    shapes = {"embed.weight": (50, 32), "norm.weight": (32,), "norm.bias": (32,), "head.weight": (50, 32)}
    for at in ("layers.0", "layers.1"):
        shapes |= {f"{at}.retention.{name}_proj.weight": (32, 32) for name in ("q", "k", "v", "g", "out")}
        shapes |= {f"{at}.{name}.{end}": (32,) for name in ("ln1", "ln2", "retention.group_norm") for end in ("weight", "bias")}  # fmt: skip
        shapes |= {f"{at}.ffn.0.weight": (64, 32), f"{at}.ffn.0.bias": (64,)}
        shapes |= {f"{at}.ffn.2.weight": (32, 64), f"{at}.ffn.2.bias": (32,), f"{at}.retention.decay": (4,)}
    tensors = {name: TensorInfo(shape, "F32") for name, shape in shapes.items()}
    found = infer(Checkpoint("x", "manifest", tensors, None), RULEBOOK, hints={"attention.causal": True})
    assert role_of(found, "decay") == {None} and found.reading == "skeleton"
