"""What a config that says nothing, or says it in words of its own, leaves open where no family lists the model type."""

from __future__ import annotations

from typing import Any

import pytest

from mapper.architecture import Architecture
from mapper.checkpoint import Checkpoint, TensorInfo
from mapper.inference import infer
from mapper.rulebook.examples import header
from tests.shipped import RULEBOOK


def stranger(family: str, without: tuple[str, ...] = (), at: int = 0, **config: Any) -> Architecture:
    """An example of a family under a type that nobody lists, without some fields of its config."""
    example = header(next(one for one in RULEBOOK.families if one.name == family).examples[at])
    kept = {name: value for name, value in (example.config or {}).items() if name not in without}
    changed = {**kept, **config, "model_type": "unheard_of"}
    return infer(Checkpoint("x", "manifest", example.tensors, changed), RULEBOOK)


def asked(architecture: Architecture) -> set[str]:
    return {question.fact for question in architecture.questions}


def said(architecture: Architecture, name: str) -> set[Any]:
    return {fact.value for fact in architecture.facts if fact.name == name}


@pytest.mark.parametrize(
    ("family", "field", "value", "fact"),
    [
        ("mimi", "use_causal_conv", True, "convolution.causal"),
        ("plbart", "scale_embedding", True, "embedding.scale"),
    ],
)
def test_what_published_classes_have_either_way_is_asked_where_the_config_is_silent(
    family: str, field: str, value: Any, fact: str
) -> None:
    assert fact in asked(stranger(family, without=(field,)))
    assert fact not in asked(stranger(family, **{field: value}))


def test_a_padding_that_the_config_does_not_name_may_shift_positions() -> None:
    """LUKE without what is its own has the names of BERT, and counts as RoBERTa does."""
    silent = ("pad_token_id", "use_entity_aware_attention")
    assert "position.counting" in asked(stranger("luke", without=silent, at=1))
    assert said(stranger("luke", without=silent, at=1, pad_token_id=0), "position.counting") == {"all"}
    assert said(stranger("luke", without=silent, at=1, pad_token_id=1), "position.counting") == {"tokens"}


@pytest.mark.parametrize("field", ["rotary_embedding_base", "theta", "rotary_base"])
def test_the_base_of_angles_is_read_by_any_name_among_those_of_rotary_embeddings(field: str) -> None:
    made = stranger("llama", without=("rope_theta", "rope_parameters"), rope_parameters={field: 500.0})
    assert said(made, "rotary.base") == {500.0}
    assert said(made, "rotary") == {True}


def unheard_of(example: Checkpoint, words: dict[str, str]) -> Architecture:
    """A published network under a type that nobody lists, with other words in its names."""
    tensors = {}
    for name, info in example.tensors.items():
        for theirs, own in words.items():
            name = name.replace(theirs, own)
        tensors[name] = info
    config = {**(example.config or {}), "model_type": "unheard_of"}
    return infer(Checkpoint("x", "manifest", tensors, config), RULEBOOK)


def test_the_kind_of_norms_in_a_tower_of_a_listed_type_is_not_asked() -> None:
    """Whoever joined the towers: a Llama's norms are those of Llama."""
    example = header(next(one for one in RULEBOOK.families if one.name == "llava").examples[0])
    words = {"multi_modal_projector.linear_1": "mlp1.1", "multi_modal_projector.linear_2": "mlp1.3"}
    made = unheard_of(example, words)
    assert made.family is None
    assert "norm.kind" not in asked(made)


def test_an_output_gate_with_a_map_of_its_own_leaves_the_queries_as_they_are() -> None:
    """A field says that there is a gate, not where: here each map has as many rows as the output reads."""
    example = header(next(one for one in RULEBOOK.families if one.name == "llama").examples[0])
    query = next(name for name in example.tensors if name.endswith("0.self_attn.q_proj.weight"))
    tensors = dict(example.tensors)
    for name, info in example.tensors.items():
        if name.endswith("self_attn.q_proj.weight"):
            tensors[name.replace("q_proj", "gate_proj")] = TensorInfo(info.shape, info.dtype)
    config = {**(example.config or {}), "model_type": "unheard_of", "attn_output_gate": True}
    made = infer(Checkpoint("x", "manifest", tensors, config), RULEBOOK)
    assert query in example.tensors
    assert said(made, "attention.query_gated") == {False}
    assert "attention.gate_activation" in asked(made)


def test_numbered_maps_of_a_gated_network_have_the_order_that_their_shapes_show() -> None:
    """`w3` leads back here, as in DINOv2, and not `w2`, as in Llama: which of the others is the gate is asked."""
    example = header(next(one for one in RULEBOOK.families if one.name == "llama").examples[0])
    words = {"gate_proj": "w1", "up_proj": "w2", "down_proj": "w3"}
    tensors = {}
    for name, info in example.tensors.items():
        for word, number in words.items():
            name = name.replace(word, number)
        tensors[name] = info
    config = {**(example.config or {}), "model_type": "unheard_of"}
    made = infer(Checkpoint("x", "manifest", tensors, config), RULEBOOK)
    roles = {str(leaf.place[-1]): leaf.role for leaf in made.leaves if str(leaf.place[-1]) in words.values()}
    assert roles == {"w1": "first", "w2": "second", "w3": "down"}
    assert "feed_forward.gate_last" in asked(made)


def test_how_rows_and_columns_share_angles_is_asked_of_names_that_one_family_alone_has() -> None:
    """Pixtral's words say how its authors call things, not how another's patches are turned."""
    assert "rotary.axes" in asked(stranger("pixtral"))


def test_whether_scores_beside_biases_by_distance_are_scaled_is_asked() -> None:
    """T5 has the scale in its weights, MPNet divides: both have one table of buckets for all layers."""
    made = stranger("mpnet")
    (question,) = [question for question in made.questions if question.fact == "attention.scaling"]
    assert set(question.candidates) == {"none", "head_dim"}


def test_a_stated_activation_goes_before_what_is_doubted_of_names() -> None:
    """`blocks.N.attn.qkv` without a class token: some compute the error function, and this config says which."""
    tensors = {
        "patch_embed.proj.weight": TensorInfo((32, 3, 8, 8), "F32"),
        "patch_embed.proj.bias": TensorInfo((32,), "F32"),
        "pos_embed": TensorInfo((1, 16, 32), "F32"),
        "norm.weight": TensorInfo((32,), "F32"),
        "norm.bias": TensorInfo((32,), "F32"),
    }
    widths = {"attn.qkv": (96, 32), "attn.proj": (32, 32), "mlp.fc1": (48, 32), "mlp.fc2": (32, 48)}
    for layer in range(2):
        for word, shape in widths.items():
            tensors[f"blocks.{layer}.{word}.weight"] = TensorInfo(shape, "F32")
            tensors[f"blocks.{layer}.{word}.bias"] = TensorInfo(shape[:1], "F32")
        for word in ("norm1", "norm2"):
            for end in ("weight", "bias"):
                tensors[f"blocks.{layer}.{word}.{end}"] = TensorInfo((32,), "F32")
    config = {"model_type": "unheard_of", "num_attention_heads": 4, "image_size": 32, "layer_norm_eps": 1e-6}
    silent = infer(Checkpoint("x", "manifest", tensors, config), RULEBOOK)
    told = infer(Checkpoint("x", "manifest", tensors, {**config, "hidden_act": "relu"}), RULEBOOK)
    assert "feed_forward.activation" in asked(silent)
    assert said(told, "feed_forward.activation") == {"relu"}


def test_the_last_map_of_a_projector_is_no_head_of_words() -> None:
    example = header(next(one for one in RULEBOOK.families if one.name == "llava").examples[0])
    words = {
        "multi_modal_projector.linear_1": "connector.proj_in",
        "multi_modal_projector.linear_2": "connector.proj_out",
    }
    made = unheard_of(example, words)
    roles = {str(leaf.place[-1]): leaf.role for leaf in made.leaves if "connector" in str(leaf.place)}
    assert roles == {"proj_in": "up", "proj_out": "down"}


def test_how_many_positions_each_side_of_an_encoder_sees_is_asked_where_its_window_has_another_name() -> None:
    example = header(next(one for one in RULEBOOK.families if one.name == "modernbert").examples[0])
    config = {name: value for name, value in (example.config or {}).items() if name != "layer_types"}
    config |= {"model_type": "unheard_of", "local_attention": 6, "global_layer_interval": 2}
    hints = {"attention.pattern": "mixed", "attention.layer_types": ["full_attention", "sliding_attention"]}
    made = infer(Checkpoint("x", "manifest", example.tensors, config), RULEBOOK, hints=hints)
    assert "attention.one_sided_window" in asked(made)
    assert said(made, "attention.window") <= {6}


def test_a_factor_on_residuals_under_another_name_is_a_question_with_its_number() -> None:
    made = stranger("llama", residual_scale=0.5)
    (question,) = [question for question in made.questions if question.fact == "residual.scale"]
    assert question.candidates == (0.5, 1.0)
    assert "residual.scale" not in asked(stranger("llama"))


@pytest.mark.parametrize(("value", "placement"), [(True, "pre"), (False, "post")])
def test_a_flag_that_ends_in_norms_before_says_where_they_stand(value: bool, placement: str) -> None:
    made = stranger("opt", without=("do_layer_norm_before",), apply_layernorm_before=value)
    assert said(made, "norm.placement") == {placement}


@pytest.mark.parametrize("word", ["layer_scale1", "layerscale_1"])
def test_scales_of_sub_layers_are_known_by_their_numbers(word: str) -> None:
    example = header(next(one for one in RULEBOOK.families if one.name == "dinov2").examples[0])
    tensors = {name.replace("layer_scale1.lambda1", word): info for name, info in example.tensors.items()}
    config = {**(example.config or {}), "model_type": "unheard_of"}
    made = infer(Checkpoint("x", "manifest", tensors, config), RULEBOOK)
    assert {leaf.role for leaf in made.leaves if str(leaf.place[-1]) == word} == {"scale_attention"}


def test_the_field_of_gpt_neo_for_local_attention_asks_for_the_scale_of_scores() -> None:
    """Under other names than its own nothing else shows that GPT-Neo divides by nothing; a table tells its positions."""
    example = header(next(one for one in RULEBOOK.families if one.name == "gpt_neo").examples[0])
    tensors = {name.replace("attn.attention", "attn"): info for name, info in example.tensors.items()}
    config = {name: value for name, value in (example.config or {}).items() if name != "attention_types"}
    config |= {"model_type": "unheard_of", "attention_layers": ["global", "local"], "window_size": 4}
    made = infer(Checkpoint("x", "manifest", tensors, config), RULEBOOK)
    assert "attention.scaling" in asked(made)
    assert "attention.rotary" not in asked(made)


@pytest.mark.parametrize("word", ["downsampling_layer.{}", "downsample_layers.{}"])
def test_convnext_under_a_word_of_its_own_keeps_its_channels_first(word: str) -> None:
    example = header(next(one for one in RULEBOOK.families if one.name == "convnext").examples[0])
    made = unheard_of(example, {f"downsampling_layer.{at}": word.format(at) for at in range(2)})
    assert said(made, "stage.channels") == {"first"}
    assert said(made, "norm.final") == {"pooled"}


def test_a_norm_and_a_convolution_in_one_folder_lead_to_the_next_stage_of_convnext() -> None:
    example = header(next(one for one in RULEBOOK.families if one.name == "convnext").examples[0])
    words = {"downsampling_layer.0": "downsample.norm", "downsampling_layer.1": "downsample.conv"}
    made = unheard_of(example, words)
    assert made.reading == "unverified" and said(made, "norm.final") == {"pooled"}


def test_the_gate_beside_a_recurrence_may_have_another_activation_than_the_feed_forward() -> None:
    """The published one has a GELU in both: beside a SiLU either may be meant."""
    told = stranger("recurrent_gemma", hidden_activation="silu")
    assert "state_space.activation" in asked(told)
    assert "state_space.activation" not in asked(stranger("recurrent_gemma"))
