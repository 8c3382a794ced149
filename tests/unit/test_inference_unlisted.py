"""What holds where no family lists the model type: doubts, fields that families ignore, ties of names."""

from __future__ import annotations

from typing import Any

import pytest

from mapper.architecture import Architecture
from mapper.checkpoint import Checkpoint, TensorInfo
from mapper.errors import ArchitectureError
from mapper.inference import infer
from mapper.inference.matching import match_family
from mapper.inference.names import Names
from mapper.naming.tree import grow
from mapper.rulebook.examples import header
from tests.shipped import RULEBOOK

LLAMA = header(next(family for family in RULEBOOK.families if family.name == "llama").examples[0])

ANSWERS = {"rotary.style": "half"}  # in which listed types with these names differ


def read(hints: dict[str, Any] | None = None, **config: Any) -> Architecture:
    tensors, changed = LLAMA.tensors, {**(LLAMA.config or {}), **config}
    return infer(Checkpoint("x", "manifest", tensors, changed), RULEBOOK, hints=hints)


def facts(architecture: Architecture, name: str) -> list[Any]:
    return [fact.value for fact in architecture.facts if fact.name == name]


def test_a_doubt_is_a_question_and_an_answer_settles_it() -> None:
    doubtful = {"model_type": "unheard_of", "hidden_act": "gelu_pytorch_tanh"}
    (question,) = [line for line in read(**doubtful).missing if line.startswith("norm.offset is unknown")]
    assert "possible here: true, false" in question
    answered = read({"norm.offset": True, **ANSWERS}, **doubtful)
    assert answered.missing == []
    assert {leaf.form for leaf in answered.leaves if leaf.kind == "RMSNorm"} == {"offset"}


def test_nobody_doubts_a_listed_type() -> None:
    architecture = read(hidden_act="gelu_pytorch_tanh")
    assert architecture.reading == "exact"
    assert {leaf.form for leaf in architecture.leaves} == {"plain"}


def test_a_field_that_a_family_ignores_speaks_for_an_unlisted_type() -> None:
    assert set(facts(read(partial_rotary_factor=0.5), "rotary.dim")) == {16}
    assert set(facts(read(model_type="unheard_of", partial_rotary_factor=0.5), "rotary.dim")) == {8}


def test_a_field_that_asks_for_arithmetic_is_not_passed_over() -> None:
    assert "ssm_in_multiplier" in read(ANSWERS, model_type="unheard_of", ssm_in_multiplier=12).missing[0]
    assert read(ANSWERS, model_type="unheard_of", ssm_in_multiplier=1.0).missing == []


def test_fields_of_scales_speak_for_whoever_has_them() -> None:
    """Paper 2404.06395: of embeddings, of sub-layers by the number of layers, and of logits by the width."""
    said = read(ANSWERS, model_type="unheard_of", scale_emb=12, scale_depth=1.4, dim_model_base=16)
    assert facts(said, "embedding.scale") == [12] and facts(said, "head.scale") == [
        16 / LLAMA.config["hidden_size"]
    ]
    keys = read(ANSWERS, model_type="unheard_of", key_multiplier=0.5)  # paper 2507.22448
    (head_dim,) = set(facts(keys, "attention.head_dim"))
    assert set(facts(keys, "attention.scale")) == {0.5 * head_dim**-0.5}
    assert set(facts(said, "residual.scale")) == {1.4 / LLAMA.config["num_hidden_layers"] ** 0.5}


def test_where_two_families_match_equally_neither_speaks_of_an_unlisted_type() -> None:
    names = Names(grow(LLAMA.tensors))
    (family,) = [family for family in RULEBOOK.families if family.name == "llama"]
    assert match_family([family, family], names, "unheard_of") is None
    with pytest.raises(ArchitectureError, match="match equally"):
        match_family([family, family], names, None)


VISION = {
    "model_type": "unheard_of",
    "architectures": ["UnheardModel"],
    "hidden_size": 32,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "hidden_act": "gelu",
    "layer_norm_eps": 1e-6,
    "qkv_bias": True,
}


def _layers(embedding: dict[str, list[int]]) -> Checkpoint:
    """Two layers of attention and a feed-forward, each behind or before a norm that nothing says more of."""
    shapes = {**embedding}
    for at in range(2):
        layer = f"encoder.layer.{at}"
        shapes |= {
            f"{layer}.{norm}.{part}": [32] for norm in ("norm1", "norm2") for part in ("weight", "bias")
        }
        maps = [f"{layer}.self_attn.{word}_proj" for word in ("q", "k", "v", "out")]
        shapes |= {f"{name}.weight": [32, 32] for name in maps} | {f"{name}.bias": [32] for name in maps}
        shapes |= {f"{layer}.mlp.fc1.weight": [64, 32], f"{layer}.mlp.fc1.bias": [64]}
        shapes |= {f"{layer}.mlp.fc2.weight": [32, 64], f"{layer}.mlp.fc2.bias": [32]}
    tensors = {name: TensorInfo(tuple(shape), "F32") for name, shape in shapes.items()}
    return Checkpoint("x", "manifest", tensors, VISION)


def test_layers_of_patches_without_a_last_norm_are_not_taken_for_post_norm() -> None:
    patches = {"embeddings.projection.weight": [32, 3, 8, 8], "embeddings.projection.bias": [32]}
    words = {"embeddings.word_embeddings.weight": [99, 32]}
    asked = [question.fact for question in infer(_layers(patches), RULEBOOK).questions]
    assert "norm.placement" in asked
    assert facts(infer(_layers(words), RULEBOOK), "norm.placement") == ["post"]
    told = infer(_layers(patches), RULEBOOK, hints={"norm.placement": "pre", "image.positions": "none"})
    assert told.missing == []


def test_norms_inside_of_sub_layers_are_no_answer_where_no_tensor_is_one() -> None:
    """Layers without a norm's tensors have norms without weights: before what they hold, not inside of it (paper 2402.00838)."""
    tensors = {name: info for name, info in LLAMA.tensors.items() if "norm" not in name}
    config = {**(LLAMA.config or {}), "model_type": "unheard_of"}
    bare = infer(Checkpoint("x", "manifest", tensors, config), RULEBOOK)
    assert bare.reading == "skeleton" and set(facts(bare, "norm.placement")) <= {"pre"}
    asked = {question.fact: set(question.candidates) for question in bare.questions}
    assert asked["norm.mean"] == asked["embedding.normed"] == {True, False}
    said = {"norm.mean": False, "embedding.normed": False}
    (question,) = infer(
        bare.checkpoint, RULEBOOK, hints=said
    ).questions  # queries and keys may have such norms, too
    assert question.fact == "attention.norms" and set(question.candidates) == {"none", "after_rotary"}
    for where, step in (("none", False), ("after_rotary", True)):
        said["attention.norms"] = where
        if step:  # some of these turn the other way
            (turned,) = infer(bare.checkpoint, RULEBOOK, hints=said).questions
            assert turned.fact == "rotary.style" and set(turned.candidates) == {"half", "half_reversed"}
            said["rotary.style"] = "half"
        told = infer(bare.checkpoint, RULEBOOK, hints=said)
        flows = {block.flow or "" for block in told.root.blocks()}
        assert told.missing == [] and any("norms_without_weights" in flow for flow in flows) is step


@pytest.mark.parametrize("family", ["xlnet", "funnel"])
def test_norms_inside_of_sub_layers_are_found_by_their_tensors(family: str) -> None:
    source = header(next(one for one in RULEBOOK.families if one.name == family).examples[0])
    architecture = infer(source, RULEBOOK)
    assert architecture.reading == "exact"
    assert set(facts(architecture, "norm.inner")) == {True}


def test_what_norms_its_embeddings_and_not_its_states_is_an_encoder() -> None:
    distilbert = header(next(item for item in RULEBOOK.families if item.name == "distilbert").examples[0])
    config = {**(distilbert.config or {}), "model_type": "unheard_of", "architectures": ["UnheardModel"]}
    read_as = infer(Checkpoint("x", "manifest", distilbert.tensors, config), RULEBOOK)
    (causal,) = {(fact.value, fact.evidence) for fact in read_as.facts if fact.name == "attention.causal"}
    assert causal[0] is False


def test_an_encoder_of_texts_without_a_pooler_is_asked_what_stands_for_a_text() -> None:
    dpr = header(next(item for item in RULEBOOK.families if item.name == "dpr").examples[0])
    config = {"pad_token_id": 0, **(dpr.config or {}), "model_type": "unheard_of"}
    read_as = infer(Checkpoint("x", "manifest", dpr.tensors, config), RULEBOOK)
    assert ("pooling", (None, "first")) in [(item.name, item.candidates) for item in read_as.questions]


def test_a_ratio_that_no_rule_reads_is_not_passed_over() -> None:
    assert "noise_ratio" in read(ANSWERS, model_type="unheard_of", noise_ratio=0.75).missing[0]
    assert read(ANSWERS, model_type="unheard_of", mlp_ratio=4.0).missing == []


def test_a_norm_as_long_as_all_heads_is_one_over_all_heads() -> None:
    """Its length shows it, though listed types of these names differ in it."""
    family = next(family for family in RULEBOOK.families if family.name == "olmo2")
    known = header(family.examples[0])
    config = {**(known.config or {}), "model_type": "unheard_of"}
    made = infer(Checkpoint("x", "manifest", known.tensors, config), RULEBOOK)
    assert [fact.value for fact in made.facts if fact.name == "attention.norms" and fact.evidence == "shape"]
    assert "attention.norms" not in [question.fact for question in made.questions]


def test_a_list_with_a_number_for_each_stage_is_read_so_whatever_family_has_the_field() -> None:
    known = header(next(family for family in RULEBOOK.families if family.name == "swin").examples[0])
    config = {**(known.config or {}), "model_type": "unheard_of"}
    config["num_attention_heads"] = config.pop("num_heads")  # which swin's family has no list for
    made = infer(Checkpoint("x", "manifest", known.tensors, config), RULEBOOK)
    assert facts(made, "attention.heads") == config["num_attention_heads"]


@pytest.mark.parametrize("family", ["pvt", "segformer"])
def test_strides_of_patches_are_those_of_their_list_or_of_their_stage(family: str) -> None:
    """One list of a config, whether patches stand in a list beside the stages or each in its stage."""
    for known in map(header, next(each for each in RULEBOOK.families if each.name == family).examples):
        if (strides := (known.config or {}).get("strides")) is None:
            continue
        made = infer(
            Checkpoint("x", "manifest", known.tensors, {**(known.config or {}), "model_type": "x"}), RULEBOOK
        )
        assert set(facts(made, "patches.stride")) == set(strides)


def unheard(family: str, tensors: dict[str, TensorInfo] | None = None, **config: Any) -> Architecture:
    """The first example of a family under a type that no family lists, with some other tensors and fields."""
    known = header(next(each for each in RULEBOOK.families if each.name == family).examples[0])
    changed = {**(known.config or {}), "model_type": "unheard_of", **config}
    return infer(Checkpoint("x", "manifest", {**known.tensors, **(tensors or {})}, changed), RULEBOOK)


def test_rows_beyond_those_of_positions_are_counted() -> None:
    known = header(next(each for each in RULEBOOK.families if each.name == "opt").examples[0])
    (rows,) = [info.shape[0] for name, info in known.tensors.items() if "embed_positions" in name]
    made = unheard("opt", max_position_embeddings=rows - 3)
    assert (3, "shape") in {
        (fact.value, fact.evidence) for fact in made.facts if fact.name == "position.offset"
    } or [question.fact for question in made.questions] == ["position.counting"]


def test_a_bias_by_distance_is_asked_for_where_nothing_else_tells_positions_apart() -> None:
    assert "alibi" in {question.fact for question in unheard("bloom").questions}
    assert set(facts(unheard("bloom", alibi=True), "alibi")) == {True}


def test_one_head_of_keys_and_values_is_seen_by_the_rows_behind_all_queries() -> None:
    known = header(next(each for each in RULEBOOK.families if each.name == "bloom").examples[0])
    fused = {name: info for name, info in known.tensors.items() if "query_key_value" in name}
    rows = 64 + 2 * 16  # four queries of 16 channels, and one key and one value
    narrow = {name: TensorInfo((rows, *info.shape[1:]), "F32") for name, info in fused.items()}
    assert set(facts(unheard("bloom", alibi=True), "attention.fused")) == {"per_head"}
    made = unheard("bloom", narrow, alibi=True)
    (asked,) = made.questions  # the type whose names these are has it otherwise
    assert (asked.fact, asked.candidates) == ("attention.fused", ("concatenated", "per_head"))


def test_a_ratio_that_shapes_show_is_known() -> None:
    assert read(ANSWERS, model_type="unheard_of", widening_ratio=1.5).missing == []
    assert "widening_ratio" in read(ANSWERS, model_type="unheard_of", widening_ratio=3.0).missing[0]


def unlisted(family: str, **config: Any) -> Architecture:
    """The first example of a family under a type that no family lists."""
    found = header(next(one for one in RULEBOOK.families if one.name == family).examples[0])
    said = {**(found.config or {}), "model_type": "unheard_of", **config}
    return infer(Checkpoint("x", "manifest", found.tensors, said), RULEBOOK)


def test_layers_that_differ_by_a_list_of_the_config_have_a_mixed_pattern() -> None:
    types = ["sliding_attention", "full_attention"]
    config = LLAMA.config or {}
    layers = [types[at % 2] for at in range(config["num_hidden_layers"])]
    found = read(model_type="unheard_of", layer_types=layers, sliding_window=8)
    missing = found.missing
    assert set(facts(found, "rotary.style")) == {"half"}  # as in all listed types with a field of windows
    assert any("attention.rotary is unknown" in line for line in missing)
    assert not any("differs between" in line for line in missing)


def test_what_follows_from_a_field_that_a_computation_must_need_is_not_asked() -> None:
    answered = read(ANSWERS, model_type="unheard_of", attention_multiplier=0.5)
    assert answered.missing == []
    assert set(facts(answered, "attention.scale")) == {0.5}


def test_a_projector_reads_as_many_frames_as_its_columns_hold() -> None:
    assert set(facts(unlisted("glmasr"), "projector.frames")) == {"joined"}
    assert set(facts(unlisted("audio_text"), "projector.frames")) <= {"single"}


def test_a_tower_of_an_unlisted_whole_is_tried_as_those_of_its_kin() -> None:
    found = unlisted("siglip", text_config={"model_type": "unheard_of_text"})
    assert found.towers["text"] == "siglip_text"
    assert any("'unheard_of_text' is listed by no family" in line for line in found.findings)


def test_sizes_that_single_layers_have_otherwise_are_read() -> None:
    made = unlisted("gemma4_text")
    assert not any("but the checkpoint shows" in line for line in made.missing)
    assert len(set(facts(made, "attention.head_dim"))) > 1


def test_layers_whose_angles_are_null_turn_nothing_and_their_temperature_is_asked_for() -> None:
    count = (LLAMA.config or {})["num_hidden_layers"]
    types = ["sliding_attention", "full_attention"] * count
    rope = {"full_attention": None, "sliding_attention": {"rope_theta": 500.0, "rope_type": "default"}}
    config = {"layer_types": types[:count], "sliding_window": 8, "rope_parameters": rope, "rope_theta": None}
    made = read(ANSWERS, model_type="unheard_of", **config)
    assert set(facts(made, "attention.rotary")) == {True, False}
    assert {question.fact for question in made.questions} == {"attention.temperature_scaled"}
    told = read({**ANSWERS, "attention.temperature_scaled": False}, model_type="unheard_of", **config)
    assert told.missing == [] and set(facts(told, "rotary.base")) == {500.0}


def test_a_table_of_distances_in_each_layer_is_seen_and_a_tied_head_is_a_scaled_one() -> None:
    made = unlisted("umt5")
    assert set(facts(made, "attention.relative")) == {"each"} and facts(made, "head.scaled") == [True]


def test_a_map_with_a_row_for_each_word_is_no_classifier() -> None:
    tensors = {key.replace("lm_head.", "head."): info for key, info in LLAMA.tensors.items()}
    config = {**(LLAMA.config or {}), "model_type": "unheard_of"}
    made = infer(Checkpoint("x", "manifest", tensors, config), RULEBOOK, hints=ANSWERS)
    assert ("head", "lm_head") in {(str(leaf.place), leaf.role) for leaf in made.leaves}


def test_of_maps_either_of_which_would_do_both_are_said_to_be_lacking_and_what_may_be_them() -> None:
    known = header(next(family for family in RULEBOOK.families if family.name == "kimi_linear").examples[0])
    tensors = {
        key.replace("f_a_proj", "zig").replace("f_b_proj", "zag"): info for key, info in known.tensors.items()
    }
    config = {**(known.config or {}), "model_type": "unheard_of"}
    turned = {"rotary": False, "attention.rotary": False, "attention.causal": True}
    answers = {**turned, "attention.gate_activation": "sigmoid"}
    missing = infer(Checkpoint("x", "manifest", tensors, config), RULEBOOK, hints=answers).missing
    said = "lacks decay or decay_up: only 'zag' and 'zig' have no role"
    assert any("attention/delta_separate" in line and said in line for line in missing)


def test_vectors_stand_for_no_words_of_a_family_that_lists_types() -> None:
    family = next(family for family in RULEBOOK.families if family.name == "t5gemma2_text")
    alone = infer(header(family.examples[0]), RULEBOOK)  # its layers, without a table of words
    assert alone.reading == "skeleton" and alone.inputs == {}
    assert any("no tensor of the checkpoint gives them" in line for line in alone.missing)


def by_rules_alone(family: str, hints: dict[str, Any] | None = None) -> Architecture:
    """The first example of a family under a type that no family lists, as if there were no families."""
    known = header(next(each for each in RULEBOOK.families if each.name == family).examples[0])
    config = {**(known.config or {}), "model_type": "unheard_of"}
    checkpoint = Checkpoint("x", "manifest", known.tensors, config)
    return infer(checkpoint, RULEBOOK, hints=hints, use_families=False)


def test_patches_without_places_ask_which_images_they_are_of() -> None:
    said: dict[str, Any] = {"rotary.style": "half"}
    (question,) = [one for one in by_rules_alone("pixtral", said).questions if one.fact == "input.kind"]
    assert list(question.candidates) == [None, "sized_images", "packed_patches"]
    told = by_rules_alone(
        "pixtral", said | {"input.kind": "sized_images", "rotary.axes": "split", "norm.eps": 1e-5}
    )
    assert any(
        "masked" in (block.flow or "") for block in told.root.blocks()
    )  # other images stand in the row


def test_the_size_of_layers_beside_a_gated_merger_is_that_of_their_shapes() -> None:
    architecture = by_rules_alone("glm4v_vision", {"position.interpolation": "cubic"})
    assert {leaf.role for leaf in architecture.leaves} >= {"table", "downsampling", "pre_norm"}
    assert not any("intermediate_size" in line for line in [*architecture.missing, *architecture.findings])


def example(family: str, **config: Any) -> Architecture:
    known = header(next(each for each in RULEBOOK.families if each.name == family).examples[0])
    said = {**(known.config or {}), "model_type": "unheard_of", **config}
    return infer(Checkpoint("x", "manifest", known.tensors, said), RULEBOOK)


def test_layers_of_one_part_are_known_by_what_they_have() -> None:
    """Each layer of the block, not of the tower: one has attention and nothing else, another feed-forward alone."""
    single = [fact for fact in example("nemotron_h").facts if fact.name == "layer.single"]
    assert single and all(fact.value is True for fact in single)
    assert {fact.evidence for fact in single} <= {"name", "rule"}
    assert not any(facts(read(ANSWERS, model_type="unheard_of"), "layer.single"))


def test_a_batch_norm_as_long_as_its_convolution_gives_channels_stands_behind_it() -> None:
    assert set(facts(example("resnet"), "norm.placement")) == {"post"}


def test_which_state_of_a_text_is_compared_is_asked() -> None:
    """Where names say it, as those of the paper do, nobody is asked."""
    known = header(next(family for family in RULEBOOK.families if family.name == "aimv2").examples[0])
    config = {**(known.config or {}), "model_type": "unheard_of"}
    other = {key.replace(".rms_norm1.", ".layer_norm1."): info for key, info in known.tensors.items()}
    for tensors, is_asked in ((known.tensors, False), (other, True)):
        questions = infer(Checkpoint("x", "manifest", tensors, config), RULEBOOK).questions
        assert ("text:pooling" in {question.name for question in questions}) is is_asked


@pytest.mark.parametrize(("words", "is_asked"), [(49408, False), (103, True)])
def test_the_end_token_of_a_published_vocabulary_is_no_id_of_another(words: int, is_asked: bool) -> None:
    tensors = dict(first_example("clip").tensors)
    key = next(name for name in tensors if name.endswith("token_embedding.weight"))
    tensors[key] = TensorInfo((words, *tensors[key].shape[1:]), "F32")
    asked = {question.name for question in infer(Checkpoint("x", "manifest", tensors), RULEBOOK).questions}
    assert ("text:pooling.end_id" in asked) is is_asked


def test_convolutions_over_a_waveform_take_the_strides_that_are_answered() -> None:
    """Their kernels, of which padding masks are made, are those of their weights."""
    bare = Checkpoint("x", "manifest", first_example("wav2vec2").tensors)
    assert not any(question.fact == "frames.kernels" for question in infer(bare, RULEBOOK).questions)
    told = infer(bare, RULEBOOK, hints={"frames.strides": [3, 2, 2]})
    assert sorted({*facts(told, "convolution.stride")}) == [2, 3]


def test_what_the_whole_is_for_is_asked_of_the_whole_alone() -> None:
    bare = Checkpoint("x", "manifest", first_example("llava").tensors)
    asked = [question.name for question in infer(bare, RULEBOOK).questions if question.fact == "task"]
    assert asked == ["task"]


def test_a_type_that_answers_all_is_one_of_the_family_of_these_names_first() -> None:
    (note,) = [
        text for text in infer(Checkpoint("x", "manifest", LLAMA.tensors), RULEBOOK).notes if "TYPE" in text
    ]
    assert "answers as a listed type of these names does: llama, " in note


def test_a_type_is_named_only_where_no_name_of_it_is_missing() -> None:
    """Of the family of these names, one has a projector of one map and another one of two."""
    bare = Checkpoint("x", "manifest", first_example("audio_text").tensors)
    (note,) = [text for text in infer(bare, RULEBOOK).notes if "TYPE" in text]
    types = note.partition("does: ")[2].partition(";")[0].split(", ")
    assert types and "audioflamingo3" not in types
    for word in types:
        assert infer(bare, RULEBOOK, hints={"model_type": word}).family == "audio_text"


def test_what_a_question_asks_for_is_said() -> None:
    bare = infer(Checkpoint("x", "manifest", first_example("bert").tensors), RULEBOOK)
    docs = {question.fact: question.doc for question in bare.questions}
    assert docs["position.counting"].startswith("how position ids are counted") and all(docs.values())


def first_example(family: str) -> Checkpoint:
    return header(next(item for item in RULEBOOK.families if item.name == family).examples[0])


def test_a_family_that_joins_towers_goes_before_one_of_a_tower() -> None:
    """The text's own names are known in more detail."""
    names = Names(grow(first_example("granite_speech").tensors))
    match = match_family(RULEBOOK.family_entries, names, "unheard_of")
    assert match is not None
    assert match.family.name == "granite_speech"
    assert match_family([RULEBOOK.family_entries[0]], names, "unheard_of") is None


@pytest.mark.parametrize(("tokens", "asks"), [(8, True), (1, False)])
def test_a_table_shows_whether_there_are_several_class_tokens(tokens: int, asks: bool) -> None:
    """A row for each, whatever fields of the config are called."""
    checkpoint = first_example("pixio")
    shape = checkpoint.tensors["embeddings.cls_token"].shape
    tensors = {
        **checkpoint.tensors,
        "embeddings.cls_token": TensorInfo((1, tokens, shape[-1]), "F32"),
    }
    config = {key: value for key, value in (checkpoint.config or {}).items() if key != "n_cls_tokens"}
    made = infer(Checkpoint("x", "manifest", tensors, {**config, "model_type": "unheard_of"}), RULEBOOK)
    among = [question.candidates for question in made.questions if question.fact == "pooling"]
    assert any("first_mean" in values for values in among) is asks


def test_stored_angles_are_believed_where_names_go_with_a_whole_head() -> None:
    angles = {"model.rotary_emb.inv_freq": TensorInfo((4,), "F32")}
    config = {**(LLAMA.config or {}), "model_type": "unheard_of", "rope_theta": 10000.0}
    source = Checkpoint("x", "manifest", {**LLAMA.tensors, **angles}, config)
    assert set(facts(infer(source, RULEBOOK, hints=ANSWERS), "rotary.dim")) == {8}


def test_types_whose_norms_all_have_a_bias_say_nothing_of_norms_without() -> None:
    """GPT-2's names with scales alone may be of norms that keep the mean: its family knows the field of their epsilon."""
    example = header(next(family for family in RULEBOOK.families if family.name == "gpt2").examples[0])
    norms = ("ln_1.bias", "ln_2.bias", "ln_f.bias")
    tensors = {name: info for name, info in example.tensors.items() if not name.endswith(norms)}
    config = {**(example.config or {}), "model_type": "unheard_of", "layer_norm_epsilon": 1e-5}
    made = infer(Checkpoint("x", "manifest", tensors, config), RULEBOOK)
    assert "norm.kind" in {question.fact for question in made.questions}
