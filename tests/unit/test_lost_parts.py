"""What a checkpoint lost is missed, though the flows do without it: each of these was called exact."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import pytest

from mapper.checkpoint import Checkpoint
from mapper.errors import MapperError
from mapper.inference import infer
from mapper.rulebook.examples import header
from tests.shipped import RULEBOOK


def example(family: str, words: str = "") -> Checkpoint:
    """The first exact example of a family with these words in its name."""
    (own,) = (item.examples for item in RULEBOOK.families if item.name == family)
    return next(header(item) for item in own if item.expect.get("reading") == "exact" and words in item.name)


def without(known: Checkpoint, lost: str) -> Checkpoint:
    """The checkpoint without the tensors in whose names a text is; there are some."""
    rest = {name: info for name, info in known.tensors.items() if lost not in f"\n{name}"}
    assert len(rest) < len(known.tensors)
    return replace(known, tensors=rest)


@pytest.mark.parametrize(
    ("family", "lost"),
    [("siglip", "vision_model.head.attention"), ("siglip2_vision_model", "head.attention")],
)
def test_biases_of_stacked_maps_are_biases_of_maps(family: str, lost: str) -> None:
    """A pooler's `in_proj_weight` is a bare tensor: where every map has a bias, it has one, too."""
    known = example(family)
    assert infer(known, RULEBOOK).reading == "exact"
    with pytest.raises(MapperError, match=f"{lost}.in_proj_bias is missing"):
        infer(without(known, f"{lost}.in_proj_bias"), RULEBOOK)


@pytest.mark.parametrize(
    ("words", "lost"),
    [
        ("each pixel four times, twice", "upsample.conv_up1"),
        ("each pixel four times, twice", "upsample.conv_up2"),
        ("four times as large", "upsample.upsample.convolution_1"),
    ],
)
def test_an_image_is_made_as_large_as_the_config_says(words: str, lost: str) -> None:
    known = example("swin2sr", words)
    assert infer(known, RULEBOOK).reading == "exact"
    with suppress(MapperError):
        assert infer(without(known, lost), RULEBOOK).reading == "skeleton"


@pytest.mark.parametrize(
    ("family", "words", "lost"),
    [
        ("deepseek", "one map for queries", "shared_experts."),  # as many as the config says, beside experts
        ("ernie4_5_moe", "a shared expert", "shared_experts."),
        ("glm4_moe", "old config fields", "shared_experts."),
        ("groupvit", "", "pre_assign_attn.attn."),  # a buffer of other models is called attn.masked_bias
        ("axk1", "", "post_mlp_layernorm"),
        ("aria", "queries for sixteen", "multihead_attn.in_proj_"),
        ("florence2", "", "image_proj_norm.bias"),
        ("whisper", "", "encoder_attn"),  # what is left of the decoder has the names of another family
        ("vits", "no noise", "flow.flows.0.wavenet.in_layers.0.parametrizations"),
        ("sam3_vision", "four sizes", "scale_layers"),  # the config says how large each map is made
        ("sam", "deeper score head", "iou_prediction_head.layers."),
        ("hgnet_v2", "a scale and a shift", "conv2.lab."),
        ("hgnet_v2", "a scale and a shift", ".aggregation.0.lab."),
        ("deimv2", "", "self_attn.q_proj.bias"),
        ("deit", "two heads", "distillation_classifier"),
        ("evolla", "adapter in the second", "norm_media"),
        ("inkling_mm_model", "two maps", "mlp_sconv"),
        ("instructblip", "an encoder and a decoder", "language_model.encoder.final_layer_norm"),
        ("kosmos_2_5", "", "mlp.wi_0"),
        ("levit", "distilled head", "classifier.batch_norm"),
        ("llama4_text", "chunked layers", ".feed_forward.gate_proj"),
        ("lxmert", "heads for pretraining", "cls.predictions."),
        ("maskformer", "backbone of windows", "hidden_states_norms"),
        ("mimi", "two halves", "downsample.conv"),
        ("mistral_large4_text", "a layer without experts", "\nnorm.weight"),
        ("oneformer", "", "adapter_1.1.bias"),
        ("pe_audio_encoder", "", "dac_encoder.conv2."),
        ("qwen3_next", "a shared expert", "shared_expert_gate"),
        ("segformer", "a segmentation head", "decode_head.classifier"),
        ("t5gemma2", "", ".mlp.gate_proj"),
        ("tapas", "heads for cells", "aggregation_classifier"),
        ("mobilebert", "", "cls.predictions.transform"),
        ("electra", "a generator", "generator_predictions."),
        ("deimv2", "", "blocks.0.layers."),
        ("modernbert", "tied head", "decoder.bias"),
        ("d_fine", "projected maps", "model.decoder_input_proj."),  # the decoder is wider than the maps
    ],
)
def test_what_all_layers_lost_is_missed(family: str, words: str, lost: str) -> None:
    known = example(family, words)
    assert infer(known, RULEBOOK).reading == "exact"
    with suppress(MapperError):
        assert infer(without(known, lost), RULEBOOK).reading == "skeleton"


@pytest.mark.parametrize(
    ("family", "head"),
    [("roberta", "lm_head."), ("fnet", "cls."), ("mobilebert", "cls.")],
)
def test_a_base_model_alone_has_no_head_of_masked_words(family: str, head: str) -> None:
    """The tied table by itself was taken for the head that the config names."""
    (own,) = (item.examples for item in RULEBOOK.families if item.name == family)
    every = (header(item) for item in own if item.expect.get("reading") == "exact")
    known = next(one for one in every if any(name.startswith(head) for name in one.tensors))
    assert "masked_lm" in str(infer(known, RULEBOOK).root.flow)
    rest = {name: info for name, info in known.tensors.items() if not name.startswith(head)}
    read = infer(replace(known, tensors=rest), RULEBOOK)
    assert read.reading != "exact" or any("base model alone" in note for note in read.notes)


def test_an_encoder_alone_is_no_model_that_generates() -> None:
    """The whole of T5 ties a head that is not stored: what lost its decoder got the encoder's words as its head."""
    for family in ("t5", "umt5"):
        known = example(family)
        tensors = {name: info for name, info in known.tensors.items() if not name.startswith("decoder.")}
        read = infer(replace(known, tensors=tensors), RULEBOOK)
        assert any("base model alone" in note for note in read.notes), family
        assert "lm_head" not in read.root.roles


@pytest.mark.parametrize("separate", [False, True])
def test_modernbert_without_its_transform_or_the_bias_of_its_own_head(separate: bool) -> None:
    """The published heads transform before the words, and have a bias where the config says so."""
    known = example("modernbert", "tied head")
    config = {**(known.config or {}), "decoder_bias": separate, "tie_word_embeddings": not separate}
    tensors = dict(known.tensors)
    del tensors["decoder.bias"]
    if separate:
        tensors["decoder.weight"] = tensors["model.embeddings.tok_embeddings.weight"]
        with pytest.raises(MapperError, match=r"no 'decoder\.bias', though config decoder_bias is true"):
            infer(replace(known, tensors=tensors, config=config), RULEBOOK)
        return
    assert infer(replace(known, tensors=tensors, config=config), RULEBOOK).reading == "exact"
    rest = {name: info for name, info in tensors.items() if not name.startswith("head.")}
    assert infer(replace(known, tensors=rest, config=config), RULEBOOK).reading == "unverified"


def test_a_norm_of_experts_that_dense_layers_store_is_not_read() -> None:
    """Files of A.X-K1 have it in all layers; it stood in the forward of dense ones, too."""
    known = example("axk1")
    info = known.tensors["model.layers.1.post_mlp_layernorm.weight"]
    more = "model.layers.0.post_mlp_layernorm.weight"
    read = infer(replace(known, tensors={**known.tensors, more: info}), RULEBOOK)
    assert read.reading == "exact"
    assert read.unused == [(more, "experts alone have a norm after them")]
    assert infer(known, RULEBOOK).unused == []


def test_a_whole_says_what_the_family_of_its_tower_has_and_it_has_not() -> None:
    """KIMI K2.5's texts are read as A.X-K1's, without the norms after experts."""
    read = infer(example("kimi_k25"), RULEBOOK)
    assert read.reading == "exact"
    assert read.towers["text"] == "axk1"


@pytest.mark.parametrize("family", ["altclip", "blenderbot_small", "falcon", "timesfm2_5"])
def test_all_biases_at_once_are_missed(family: str) -> None:
    known = example(family)
    assert infer(known, RULEBOOK).reading == "exact"
    tensors = {name: info for name, info in known.tensors.items() if not name.endswith(".bias")}
    assert len(tensors) < len(known.tensors)
    with suppress(MapperError):
        assert infer(replace(known, tensors=tensors), RULEBOOK).reading == "unverified"
