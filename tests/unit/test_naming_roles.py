"""Names to role paths, over the shipped vocabulary."""

from __future__ import annotations

import pytest

from mapper.architecture import Block
from mapper.checkpoint import TensorInfo
from mapper.naming.blocks import build_blocks
from mapper.naming.resolve import resolve
from mapper.naming.tree import grow
from mapper.naming.vocabulary import Overrides, Vocabulary
from mapper.rulebook.rulebook import Rulebook


@pytest.fixture(scope="module")
def files():
    return Rulebook(kinds=["vocabulary"]).vocabulary


def roles(files, names, overrides=None):
    """Folded place -> role path, numbers left out."""
    shapes = {"norm": (4,), "bias": (4,)}
    tensors = {
        f"{name}.weight": TensorInfo(
            next((shape for word, shape in shapes.items() if word in name.lower()), (4, 4)), "F32"
        )
        for name in names
    }
    leaves = resolve(grow(tensors), Vocabulary(files).below([overrides] if overrides else ()))
    return {
        str(leaf.place): ".".join([*(step for step, _ in leaf.block), leaf.role or "?"]) for leaf in leaves
    }


BERT = {
    "embeddings.word_embeddings": "tower.embeddings.token",
    "encoder.layer.0.attention.self.query": "tower.layers.attention.query",
    "encoder.layer.0.attention.output.dense": "tower.layers.attention.output",
    "encoder.layer.0.attention.output.LayerNorm": "tower.layers.norm_attention",
    "encoder.layer.0.intermediate.dense": "tower.layers.feed_forward.up",
    "encoder.layer.0.output.dense": "tower.layers.feed_forward.down",
    "encoder.layer.0.output.LayerNorm": "tower.layers.norm_feed_forward",
    "pooler.dense": "pooler.dense",
}


@pytest.mark.parametrize("prefix", ["", "model.", "module.", "_orig_mod.backbone.", "x.y.z."])
def test_a_prefix_never_matters(files, prefix):
    expected = {prefix + name: role for name, role in BERT.items()}
    assert roles(files, expected) == expected


def test_the_plain_names_of_six_layers(files):
    layer = {
        "attention.q_lin": "attention.query", "attention.k_lin": "attention.key", "attention.v_lin": "attention.value",
        "attention.out_lin": "attention.output", "sa_layer_norm": "norm_attention", "ffn.lin1": "feed_forward.up",
        "ffn.lin2": "feed_forward.down", "output_layer_norm": "norm_feed_forward",
    }  # fmt: skip
    names = [f"transformer.layer.{at}.{word}" for at in range(6) for word in layer]
    expected = {f"transformer.layer.{{0..5}}.{word}": f"tower.layers.{role}" for word, role in layer.items()}
    assert roles(files, names) == expected


def test_blocks_whose_leaves_stand_loose_in_the_layer(files):
    found = roles(
        files, ["decoder.layers.0.fc1", "decoder.layers.0.fc2", "decoder.layers.0.encoder_attn.q_proj"]
    )
    assert list(found.values()) == [
        "tower.layers.cross_attention.query", "tower.layers.feed_forward.up", "tower.layers.feed_forward.down"
    ]  # fmt: skip


def test_two_stacks_are_two_towers(files):
    names = [
        "model.encoder.layers.0.self_attn.q_proj",
        "model.decoder.layers.0.self_attn.q_proj",
        "model.shared",
        "lm_head",
    ]
    assert roles(files, names) == {
        "lm_head": "lm_head",
        "model.decoder.layers.0.self_attn.q_proj": "decoder.layers.attention.query",
        "model.encoder.layers.0.self_attn.q_proj": "encoder.layers.attention.query",
        "model.shared": "embeddings.token",
    }


def test_towers_of_one_sense_are_told_apart_by_the_part_that_differs(files):
    stems = ("text_encoder", "text_decoder")
    found = roles(files, [f"{stem}.layers.{at}.self_attn.q_proj" for stem in stems for at in range(2)])
    assert sorted(found.values()) == ["decoder.layers.attention.query", "encoder.layers.attention.query"]


def test_towers_that_share_words_are_told_apart_by_the_first_that_differs(files):
    names = [
        "text_model.encoder.layers.0.mlp.fc1",
        "vision_model.encoder.layers.0.mlp.fc1",
        "text_model.final_layer_norm",
    ]
    assert [role.partition(".")[0] for role in roles(files, names).values()] == ["text", "text", "vision"]


def test_halves_of_a_text_are_an_encoder_and_a_decoder(files):
    ends = (
        "language_model.encoder.layers.0.fc1",
        "language_model.decoder.layers.0.fc1",
        "vision_tower.layers.0.fc1",
    )
    found = list(roles(files, ends).values())
    assert found == [f"{tower}.layers.feed_forward.up" for tower in ("decoder", "encoder", "vision")]
    alone = roles(files, ends[1:])
    assert next(iter(alone.values())) == "text.layers.feed_forward.up"


def test_what_stands_beside_the_layers_of_a_tower_without_a_folder_is_in_it(files):
    names = [
        "layers.0.mlp.fc1",
        "embed_tokens",
        "norm",
        "model.visual.layers.0.mlp.fc1",
        "model.visual.norm",
    ]
    found = roles(files, names)
    assert [found[name].partition(".")[0] for name in sorted(names)] == [
        "text", "text", "vision", "vision", "text"
    ]  # fmt: skip


def test_a_family_gives_folders_to_towers(files):
    names = ["layers.0.mlp.fc1", "embed_tokens", "norm", "blocks.0.mlp.fc1", "merger.norm"]
    overrides = Overrides(folders={"vision": ["blocks", "merger"], "text": ["embed_tokens", "norm"]})
    found = roles(files, names, overrides)
    assert {name: found[name].partition(".")[0] for name in names} == {
        "layers.0.mlp.fc1": "text", "embed_tokens": "text", "norm": "text", "blocks.0.mlp.fc1": "vision",
        "merger.norm": "vision",
    }  # fmt: skip


def test_lists_of_lists_are_stages(files):
    names = ["encoder.layers.0.blocks.0.mlp.fc1", "encoder.layers.0.downsample.norm"]
    assert roles(files, names) == {
        "encoder.layers.0.blocks.0.mlp.fc1": "tower.stages.layers.feed_forward.up",
        "encoder.layers.0.downsample.norm": "tower.stages.downsampling.norm",
    }


def test_numbers_in_a_pattern_tell_equal_elements_apart(files):
    overrides = Overrides(names={"mlp.0": "feed_forward.up", "mlp.2": "feed_forward.down"})
    assert roles(files, ["layers.0.mlp.0", "layers.0.mlp.2"], overrides) == {
        "layers.0.mlp.0": "tower.layers.feed_forward.up",
        "layers.0.mlp.2": "tower.layers.feed_forward.down",
    }


def test_numbers_tell_equal_elements_apart_before_any_name_was_read(files):
    patterns = Vocabulary(files).tries["roles"]  # which are made when a name ends as they do
    assert (2, 0) in patterns.splits(("pre_encode", "conv", (0, 2, 5)))


def test_folders_with_one_role_side_by_side_are_numbered(files):
    found = roles(files, ["layers.0.ffn1.fc1", "layers.0.ffn2.fc1"])
    assert list(found.values()) == ["tower.layers.feed_forward.up", "tower.layers.feed_forward_2.up"]


def test_words_next_to_a_name_decide_its_meaning(files):
    plain = roles(files, ["layers.0.input_layernorm", "layers.0.post_attention_layernorm"])
    assert plain["layers.0.post_attention_layernorm"] == "tower.layers.norm_feed_forward"
    sandwich = roles(
        files, [f"layers.0.{word}_layernorm" for word in ("input", "post_attention", "pre_feedforward")]
    )
    assert sandwich["layers.0.post_attention_layernorm"] == "tower.layers.norm_after_attention"


def test_experts_are_a_list_in_their_block(files):
    names = [f"layers.0.mlp.experts.{at}.up_proj" for at in range(3)]
    tensors = {f"{name}.weight": TensorInfo((4, 4), "F32") for name in names}
    (leaf,) = resolve(grow(tensors), Vocabulary(files))
    assert leaf.block == (("tower", None), ("layers", (0,)), ("moe", None), ("experts", (0, 1, 2)))


def test_a_family_wins_over_the_vocabulary(files):
    overrides = Overrides(names={"q_proj": "attention.key", "norm": "/pooler.norm"})
    found = roles(files, ["layers.0.attn.q_proj", "norm"], overrides)
    assert found == {"layers.0.attn.q_proj": "tower.layers.attention.key", "norm": "pooler.norm"}


def test_a_leaf_without_a_role_keeps_its_block(files):
    assert roles(files, ["layers.0.self_attn.nobody_knows"]) == {
        "layers.0.self_attn.nobody_knows": "tower.layers.attention.?"
    }


def test_the_reason_names_file_and_line(files):
    tensors = {"layers.0.self_attn.q_proj.weight": TensorInfo((4, 4), "F32")}
    (leaf,) = resolve(grow(tensors), Vocabulary(files))
    assert "vocabulary/attention.yaml:" in leaf.why


def test_blocks_have_their_kind_home_and_roles(files):
    tensors = {f"{name}.weight": TensorInfo((4, 4), "F32") for name in BERT}
    vocabulary = Vocabulary(files)
    root = build_blocks(resolve(grow(tensors), vocabulary), vocabulary)
    found = {block.role: (block.kind, str(block.home), sorted(block.roles)) for block in root.blocks()}
    assert found["attention"] == ("attention", "encoder.layer.0.attention", ["output", "query"])
    assert found["feed_forward"] == ("feed_forward", "encoder.layer.0", ["down", "up"])
    assert found["layers"][:2] == ("layer", "encoder.layer.0")
    assert isinstance(root.roles["tower"], Block)


def test_layers_that_differ_are_elements_of_one_list(files):
    tensors = {f"layers.{at}.mlp.fc1.weight": TensorInfo((8 if at == 1 else 4, 4), "F32") for at in range(3)}
    vocabulary = Vocabulary(files)
    tower = build_blocks(resolve(grow(tensors), vocabulary), vocabulary).roles["tower"]
    assert [layer.indices for layer in tower.roles["layers"]] == [(0, 2), (1,)]


def test_lists_of_attentions_and_feed_forwards_without_layers_are_a_tower(files):
    names = [f"model.{word}.{at}" for at in (0, 1) for word in ("attentions", "ffns")]
    found = roles(
        files, [*(f"{name}.q_lin" for name in names[::2]), *(f"{name}.lin1" for name in names[1::2])]
    )
    assert list(found.values()) == ["tower.attention.query", "tower.feed_forward.up"]


def test_a_char_encoder_beside_an_encoder_is_of_one_tower(files):
    stems = ("encoder", "initial_char_encoder")
    found = roles(files, [f"{stem}.layer.{at}.attention.self.query" for stem in stems for at in (0, 1)])
    assert sorted(found.values()) == ["tower.layers.attention.query", "tower.layers_2.attention.query"]


def test_parts_of_words_that_nobody_lists_say_what_is_in_a_layer(files):
    layer = {
        "self_attn.query_head": "attention.query", "self_attn.head_key": "attention.key", "self_attn.my_value": "attention.value",
        "self_attn.mixed_out": "attention.output", "self_attn.my_query_norm": "attention.query_norm",
        "tiny_attn_norm": "norm_attention", "tiny_mlp_norm": "norm_feed_forward",
        "mlp.up_proj": "feed_forward.up", "mlp.down_proj": "feed_forward.down",
    }  # fmt: skip
    expected = {f"model.layers.0.{name}": f"tower.layers.{role}" for name, role in layer.items()}
    expected |= {
        "model.my_word_embed": "tower.embeddings.token",
        "model.my_embed_norm": "tower.embeddings.norm",
    }
    assert roles(files, expected) == expected


@pytest.mark.parametrize("word", ["key_down", "value_bias_map", "query_gate", "key_rel"])
def test_parts_of_words_say_nothing_of_what_stands_beside_a_projection(files, word):
    names = [
        "self_attn.q_proj",
        "self_attn.k_proj",
        "self_attn.v_proj",
        "self_attn.o_proj",
        f"self_attn.{word}",
    ]
    found = roles(files, [f"model.layers.0.{name}" for name in names])
    assert found[f"model.layers.0.self_attn.{word}"] == "tower.layers.attention.?"


def test_a_sequence_is_read_by_which_of_its_convolutions_are_depthwise(files):
    shapes = {"0.0": (8, 1, 3, 3), "1.0": (12, 8, 1, 1)}  # channel by channel, then narrow
    wide = {"0.0": (16, 8, 3, 3), "1.0": (12, 16, 1, 1)}  # wide, then narrow
    names = {f"features.1.0.block.{name}": shape for name, shape in shapes.items()}
    names |= {f"features.2.0.block.{name}": shape for name, shape in wide.items()}
    tensors = {f"{name}.weight": TensorInfo(shape, "F32") for name, shape in names.items()}
    leaves = resolve(grow(tensors), Vocabulary(files))
    assert [leaf.block[-1][0] for leaf in leaves] == ["depthwise", "contraction", "expansion", "contraction"]


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("pre_cross_norm", "norm_cross_attention"),
        ("ca_layer_norm", "norm_cross_attention"),
        ("norm_post_cross_attention", "norm_after_cross_attention"),
        ("cross_modal_norm", "?"),
    ],
)
def test_a_norm_of_cross_attention_is_known_by_parts_of_its_name(files, name, role):
    found = roles(files, [f"layers.0.{name}", "layers.0.self_attn.q_proj", "layers.0.cross_attn.q_proj"])
    (own,) = [path for place, path in found.items() if name in place]
    assert own.rsplit(".", 1)[-1] == role


def test_of_two_leaves_that_one_word_names_the_nearer_has_the_role(files):
    names = ["fold.output.LayerNorm", "intermediate.dense", "output.LayerNorm", "output.dense"]
    found = roles(files, [f"encoder.layer.0.{name}" for name in names])
    assert found["encoder.layer.0.output.LayerNorm"] == "tower.layers.norm_feed_forward"
    assert found["encoder.layer.0.fold.output.LayerNorm"] == "tower.layers.?"


@pytest.mark.parametrize(
    ("folder", "names"),
    [
        ("attention", ("toqueries", "tokeys", "tovalues", "unifyheads")),
        ("slf_attn", ("w_qs", "w_ks", "w_vs", "out")),
        ("self_attention", ("to_queries", "to_keys", "to_values", "output")),
    ],
)
def test_maps_of_attention_may_be_called_by_their_plural(files, folder, names):
    paths = [f"layers.0.{folder}.{name}" for name in names]
    found = roles(files, paths)
    assert [found[path].rsplit(".", 1)[-1] for path in paths] == ["query", "key", "value", "output"]


@pytest.mark.parametrize(("own", "cross"), [("slf_attn", "enc_attn"), ("self_attn", "cross_attention_block")])
def test_cross_attention_beside_attention_to_itself(files, own, cross):
    kinds = {own: "attention", cross: "cross_attention"}
    paths = {f"layers.0.{folder}.q_proj": f"tower.layers.{kind}.query" for folder, kind in kinds.items()}
    assert roles(files, paths) == paths
