"""What joins the towers of a type that no family lists: maps of a backbone, features among words, sizes of another part."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mapper.architecture import Architecture
from mapper.checkpoint import Checkpoint, TensorInfo
from mapper.inference import infer
from mapper.rulebook.examples import header
from tests.shipped import RULEBOOK
from tests.unit.test_inference_unlisted import ANSWERS, facts, read, unlisted


def test_a_size_that_one_field_says_otherwise_is_the_checkpoints() -> None:
    """The field is that of another part, as `intermediate_size` of a model that rounds the size of its layers."""
    made = read(ANSWERS, model_type="unheard_of", intermediate_size=999)
    assert made.reading == "unverified" and set(facts(made, "feed_forward.intermediate_size")) == {96}
    assert any("intermediate_size is 999, but the checkpoint shows 96" in line for line in made.findings)


def test_a_config_that_several_sizes_contradict_is_that_of_another_checkpoint() -> None:
    made = read(ANSWERS, model_type="unheard_of", intermediate_size=999, vocab_size=7)
    assert made.reading == "skeleton" and any("but the checkpoint shows" in line for line in made.missing)


def test_what_follows_from_a_size_and_a_field_may_be_either() -> None:
    """Rows of keys are heads times a size: a field that contradicts may speak of either."""
    made = read(ANSWERS, model_type="unheard_of", num_key_value_heads=7)
    assert any("attention.kv_heads is 7, but" in line for line in [*made.missing, *made.findings])
    assert made.reading == "skeleton"


@pytest.mark.parametrize("family", ["rt_detr", "deformable_detr"])
def test_a_detector_reads_the_maps_that_its_config_takes_of_a_backbone(family: str) -> None:
    made = unlisted(family)
    assert made.missing == [] and facts(made, "states.selection") == ["several"]
    assert any("maps_taken" in (block.flow or "") for block in made.root.blocks())


def test_maps_of_a_backbone_that_nothing_fuses_are_not_taken() -> None:
    assert facts(unlisted("detr"), "states.selection") != ["several"]


def test_patches_that_a_projector_joins_stand_as_the_fields_of_the_config_say() -> None:
    made = unlisted("modernvbert")
    assert facts(made, "features.layout") == ["several"] and facts(made, "projector.shuffle") == [True]
    assert facts(made, "projector.factor") == [4]  # as many columns as four by four patches have
    asked = {question.fact for question in unlisted("modernvbert", pixel_shuffle_factor=None).questions}
    assert {"features.layout", "projector.shuffle"} <= asked


def test_weights_of_experts_are_turned_where_their_shapes_are() -> None:
    assert set(facts(unlisted("aria_text"), "moe.transposed")) == {True}
    assert True not in facts(unlisted("mixtral_stacked"), "moe.transposed")


def test_a_kernel_over_frames_reads_a_video() -> None:
    assert facts(unlisted("videomae"), "input.kind") == ["video"]


def test_a_task_that_an_answer_makes_whole_is_no_question() -> None:
    """The config says a base model: what it is for is not open."""
    made = unlisted("dpr", architectures=["UnheardOfModel"])
    assert "task" not in {question.fact for question in made.questions}


def strangers(family: str, model_type: str = "") -> Architecture:
    """The first example of a family (of a type of it) under a type that no family lists, and so its towers."""
    examples = map(header, next(one for one in RULEBOOK.families if one.name == family).examples)
    found = next(one for one in examples if model_type in ("", (one.config or {})["model_type"]))
    parts = {
        name: {**part, "model_type": f"unheard_of_{name}"}
        for name, part in (found.config or {}).items()
        if isinstance(part, dict) and "model_type" in part
    }
    assert parts
    said = {**(found.config or {}), **parts, "model_type": "unheard_of"}
    return infer(Checkpoint("x", "manifest", found.tensors, said), RULEBOOK)


def test_a_tower_of_a_type_that_nobody_lists_is_read_as_it_is_alone() -> None:
    """By the families of their names: nothing between the towers is asked that the words and fields say."""
    made = strangers("qianfan_ocr")
    assert made.missing == [] and made.reading == "unverified"
    assert any("its names are those of 'intern_vit'" in line for line in made.findings)
    assert {block.role for block in made.root.blocks() if "." not in str(block.home)} >= {"projector"}


def test_where_families_of_the_names_of_towers_differ_is_a_question() -> None:
    """Positions of several axes: Qwen2-VL gives each a section of the angles, Qwen3-VL every third."""
    (question,) = strangers("qwen3_vl").questions
    assert question.fact == "rotary.layout" and set(question.candidates) == {"sections", "interleaved"}


def test_a_default_of_a_family_of_a_tower_is_no_fact() -> None:
    """OPT's embeddings are as stored, those of XGLM, with its names, scaled: that is the default of another class."""
    said = [fact for fact in strangers("instructblip", "blip-2").facts if fact.name == "embedding.scale"]
    assert [fact.value for fact in said] == [None] and not said[0].source.startswith("families/")


@pytest.mark.parametrize(
    ("family", "layout"),
    [("llava_next", "tiles"), ("llava_onevision", "bounded_tiles"), ("lfm2_vl", "packed")],
)
def test_how_features_of_images_stand_is_said_by_fields_of_the_config(family: str, layout: str) -> None:
    assert facts(unlisted(family), "features.layout") == [layout]


def test_videos_have_places_where_the_config_has_a_token_for_them() -> None:
    assert set(facts(unlisted("llava_onevision"), "features")) == {"videos"}
    assert set(facts(unlisted("llava_next"), "features")) == {"images"}


def test_a_tower_of_a_type_that_nobody_lists_gets_no_defaults_of_the_family_of_its_names() -> None:
    """A window that the published class has by default is not one of whatever has the same names."""
    silent = ("sliding_window", "layer_types", "query_pre_attn_scalar", "_sliding_window_pattern")
    source = header(next(item for item in RULEBOOK.families if item.name == "gemma3").examples[0])
    text = {name: value for name, value in source.config["text_config"].items() if name not in silent}
    said = {
        **source.config,
        "model_type": "unheard_of",
        "text_config": {**text, "model_type": "unheard_of_text"},
    }
    made = infer(Checkpoint("x", "manifest", source.tensors, said), RULEBOOK)
    assert {"attention.pattern", "rotary.base"} <= {question.fact for question in made.questions}
    taken = [fact for fact in made.facts if fact.name in ("attention.scale", "attention.window")]
    assert not any(fact.source.startswith("families/") for fact in taken)


def test_patches_of_several_images_in_one_row_have_a_mask() -> None:
    source = header(
        next(item for item in RULEBOOK.families if item.name == "cosmos3_edge_vision").examples[0]
    )
    said = {**(source.config or {}), "model_type": "unheard_of"}
    hints = {"input.kind": "packed_pixels", "image.patch_channels": "first", "attention.frames": "apart"}
    made = infer(
        Checkpoint("x", "manifest", source.tensors, said), RULEBOOK, hints={**hints, "pooling": "merged"}
    )
    flows = [block.flow or "" for block in made.root.blocks() if block.kind == "attention"]
    assert flows and all("+masked+" in flow for flow in flows)


def test_what_embeds_tokens_is_not_asked_which_images_it_takes() -> None:
    layer = {
        "attn_norm": (32,), "attn.Wqkv": (96, 32), "attn.Wo": (32, 32), "attn.q_norm": (8,), "attn.k_norm": (8,),
        "mlp_norm": (32,), "mlp.Wi": (96, 32), "mlp.Wo": (32, 48),
    }  # fmt: skip
    shapes = {"embeddings.tok_embeddings": (97, 32), "embeddings.position_embeddings": (64, 32)}
    shapes |= {"embeddings.norm": (32,), "final_norm": (32,)}
    shapes |= {f"layers.{at}.{name}": shape for at in range(2) for name, shape in layer.items()}
    tensors = {f"{name}.weight": TensorInfo(shape, "F32") for name, shape in shapes.items()}
    config = {"model_type": "unheard_of", "num_attention_heads": 4, "local_attention": 4, "vocab_size": 97}
    made = infer(Checkpoint("x", "manifest", tensors, config), RULEBOOK)
    asked = {question.fact for question in made.questions}
    assert "attention.pattern" in asked and "input.kind" not in asked


def test_images_whose_token_no_field_has_are_asked_for_it() -> None:
    """A tokenizer says it; which layer is read, a field of the first release says in a word of its own."""
    source = header(next(item for item in RULEBOOK.families if item.name == "qianfan_ocr").examples[0])
    first = {
        "vision_feature_layer",
        "vision_feature_select_strategy",
        "image_token_id",
        "projector_hidden_act",
    }
    config = {name: value for name, value in (source.config or {}).items() if name not in first}
    config |= {"model_type": "unheard_of", "select_layer": -1, "mm_projector_type": "mlp2x_gelu"}
    hints = {"features": "images", "features.select": "patches"}
    made = infer(Checkpoint("x", "manifest", source.tensors, config), RULEBOOK, hints=hints)
    assert [question.fact for question in made.questions] == ["features.image_id"]
    assert (facts(made, "features.layer"), facts(made, "projector.activation")) == ([-1], ["gelu"])


@pytest.mark.parametrize("folder", ["pos_conv_embed", "conv_pos_embed"])
def test_whether_a_convolution_beside_conformer_layers_is_run_is_asked(folder: str) -> None:
    """Distances tell frames apart there: published code has the convolution and never runs it."""
    source = header(next(one for one in RULEBOOK.families if one.name == "wav2vec2_conformer").examples[0])
    tensors = {name.replace("pos_conv_embed", folder): info for name, info in source.tensors.items()}
    unheard = replace(source, tensors=tensors, config={**(source.config or {}), "model_type": "unheard_of"})
    asked = {question.fact: question.candidates for question in infer(unheard, RULEBOOK).questions}
    assert asked["position.convolved"] == (True, False)
    for is_run in (True, False):
        told = infer(unheard, RULEBOOK, hints={"position.convolved": is_run, "convolution.masked": False})
        assert told.missing == [] and set(facts(told, "position.convolved")) == {is_run}


def test_a_folder_of_a_text_that_is_called_temporal_keeps_its_mask() -> None:
    source = header(next(one for one in RULEBOOK.families if one.name == "bert").examples[0])
    tensors = {name.replace("encoder.layer", "temporal.layer"): info for name, info in source.tensors.items()}
    made = infer(
        replace(source, tensors=tensors, config={**(source.config or {}), "model_type": "unheard_of"}),
        RULEBOOK,
    )
    assert set(facts(made, "attention.masked")) == {True}
