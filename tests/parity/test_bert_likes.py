"""Encoders with BERT's parts in another order or with more of them, against the reference library."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import mapper
from tests.parity.harness import Pair, check, check_outputs, pair, reference, text_inputs, transformers

SIZES: dict[str, Any] = {
    "vocab_size": 99,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 40,
    "pad_token_id": 1,
}
COMMON = ("ForMaskedLM", "ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering")


def compare(name: str, config: Any, folder: Path, *, boxes: bool = False, **options: Any) -> Pair:
    config.num_labels = 2 if "QuestionAnswering" in name else 3
    segments = getattr(config, "type_vocab_size", 0)
    positions = options.pop("positions", True)
    inputs: dict[str, Any] = text_inputs(
        99, segments=segments, padding=config.pad_token_id, positions=positions
    )
    for case in options.pop("without", ()):
        del inputs[case]
    if boxes:
        inputs = {case: {**values, "bbox": boxes_of(values["input_ids"])} for case, values in inputs.items()}
    model = reference(name, config)
    if options.pop("as_it_is", False):
        model.save_pretrained = lambda folder: save_as_it_is(model, folder)
    return check(model, folder, inputs, **options)


def save_as_it_is(model: Any, folder: Path) -> None:
    """The state dict under the module's own names, but for a tied head: save_pretrained writes the names of its first years."""
    kept = {name: value for name, value in model.state_dict().items() if name != "lm_head.decoder.weight"}
    save_file(
        {name: value for name, value in kept.items() if name != "lm_head.decoder.bias"},
        folder / "model.safetensors",
    )
    model.config.architectures = [type(model).__name__]
    model.config.save_pretrained(folder)


def boxes_of(ids: torch.Tensor) -> torch.Tensor:
    """Boxes that end behind where they begin, on a page of 40."""
    corners = torch.stack((ids % 17, ids % 13), -1)
    return torch.cat((corners, corners + torch.stack((ids % 7, ids % 5), -1)), -1)


@pytest.mark.parametrize("head", ["Model", *COMMON])
def test_ibert_without_integers(head: str, tmp_path: Path) -> None:
    compare(f"IBert{head}", transformers.IBertConfig(**SIZES), tmp_path)


@pytest.mark.parametrize(
    ("head", "options"),
    [
        ("ForMaskedLM", {}),
        ("ForTokenClassification", {"pre_norm": True}),
        ("ForSequenceClassification", {"adapter_reuse_layer_norm": False}),
        ("ForQuestionAnswering", {"ln_before_adapter": False, "adapter_reduction_factor": 4}),
        ("Model", {"pre_norm": True, "adapter_layer_norm": True, "ln_before_adapter": False}),
        ("Model", {"adapter_layer_norm": True, "languages": ["en_XX"], "hidden_act": "relu"}),
    ],
)
def test_xmod(head: str, options: dict[str, Any], tmp_path: Path) -> None:
    config = {"languages": ["en_XX", "is_IS", "de_DE"], "default_language": "en_XX", **options}
    made = compare(f"Xmod{head}", transformers.XmodConfig(**SIZES, **config), tmp_path)
    ids = text_inputs(99)["right"]
    said = torch.tensor([2, 0, 1]) if len(config["languages"]) == 3 else torch.zeros(3, dtype=torch.long)
    check_outputs(made, {**ids, "lang_ids": said})
    if len(config["languages"]) == 3:
        check_outputs(made, {**ids, "lang_ids": ids["input_ids"] % 3})


def test_xmod_without_a_language_asks_for_one(tmp_path: Path) -> None:
    made = pair(
        reference("XmodModel", transformers.XmodConfig(**SIZES, languages=["en_XX", "de_DE"])), tmp_path
    )
    ids = text_inputs(99)["right"]
    check_outputs(made, {**ids, "lang_ids": torch.tensor([1, 0, 1])})
    with pytest.raises(ValueError, match="give lang_ids"):
        made.built(**ids)


def test_ibert_with_integers_is_not_vouched_for(tmp_path: Path) -> None:
    model = reference("IBertModel", transformers.IBertConfig(**SIZES, quant_mode=True))
    model.save_pretrained(tmp_path)
    assert mapper.inspect(tmp_path).architecture.reading != "exact"


@pytest.mark.parametrize("name", ["DPRQuestionEncoder", "DPRContextEncoder"])
@pytest.mark.parametrize("size", [0, 24])
def test_dpr(name: str, size: int, tmp_path: Path) -> None:
    config = transformers.DPRConfig(**SIZES, projection_dim=size)
    compare(name, config, tmp_path, positions=False)


@pytest.mark.parametrize("head", ["Model", *COMMON])
def test_layoutlm(head: str, tmp_path: Path) -> None:
    config = transformers.LayoutLMConfig(**SIZES, max_2d_position_embeddings=40)
    compare(f"LayoutLM{head}", config, tmp_path, boxes=True)


def test_layoutlm_without_boxes(tmp_path: Path) -> None:
    config = transformers.LayoutLMConfig(**SIZES, max_2d_position_embeddings=50, hidden_act="relu")
    compare("LayoutLMModel", config, tmp_path)


@pytest.mark.parametrize("head", ["Model", *COMMON, "ForPreTraining", "ForNextSentencePrediction"])
def test_megatron_bert(head: str, tmp_path: Path) -> None:
    compare(f"MegatronBert{head}", transformers.MegatronBertConfig(**SIZES), tmp_path)


@pytest.mark.parametrize("head", ["Model", *COMMON])
def test_roberta_prelayernorm(head: str, tmp_path: Path) -> None:
    config = transformers.RobertaPreLayerNormConfig(**SIZES, hidden_act="relu")
    compare(f"RobertaPreLayerNorm{head}", config, tmp_path)


@pytest.mark.parametrize("head", ["Model", *COMMON])
def test_xlm_roberta_xl(head: str, tmp_path: Path) -> None:
    compare(f"XLMRobertaXL{head}", transformers.XLMRobertaXLConfig(**SIZES, type_vocab_size=1), tmp_path)


@pytest.mark.parametrize("head", ["Model", *COMMON[:3]])
def test_gte(head: str, tmp_path: Path) -> None:
    segments = {"Model": 0, "ForMaskedLM": 1}.get(head, 2)
    config = transformers.GteConfig(
        **SIZES, type_vocab_size=segments, hidden_act="gelu" if segments else "relu"
    )
    compare(f"Gte{head}", config, tmp_path)


@pytest.mark.parametrize("head", ["Model", *COMMON])
def test_roformer(head: str, tmp_path: Path) -> None:
    config = transformers.RoFormerConfig(
        **SIZES, embedding_size=24 if head in ("Model", "ForMaskedLM") else None
    )
    compare(f"RoFormer{head}", config, tmp_path, positions=False)


def test_roformer_as_a_decoder(tmp_path: Path) -> None:
    config = transformers.RoFormerConfig(**SIZES, is_decoder=True, hidden_act="relu")
    compare("RoFormerForCausalLM", config, tmp_path, positions=False)


@pytest.mark.parametrize("head", ["Model", *COMMON, "ForNextSentencePrediction"])
def test_fnet(head: str, tmp_path: Path) -> None:
    sizes = {name: size for name, size in SIZES.items() if name != "num_attention_heads"}
    config = transformers.FNetConfig(
        **sizes, type_vocab_size=3, num_labels=2 if "Next" in head or "Question" in head else 3
    )
    inputs = text_inputs(99, segments=3)
    for values in inputs.values():
        values.pop("attention_mask", None)
    check(reference(f"FNet{head}", config), tmp_path, inputs)


@pytest.mark.parametrize("landmarks", [4, 12])
@pytest.mark.parametrize("head", ["Model", *COMMON])
def test_nystromformer(head: str, landmarks: int, tmp_path: Path) -> None:
    config = transformers.NystromformerConfig(
        **SIZES,
        num_landmarks=landmarks,
        segment_means_seq_len=12,
        conv_kernel_size=5,
        num_labels=2 if "Question" in head else 3,
    )
    inputs = text_inputs(99, segments=2)
    kept = (
        ("no mask", "all ones") if landmarks < 12 else inputs
    )  # with landmarks the reference takes no padding
    check(reference(f"Nystromformer{head}", config), tmp_path, {name: inputs[name] for name in kept})


@pytest.mark.parametrize("head", ["Model", *COMMON])
def test_roc_bert(head: str, tmp_path: Path) -> None:
    config = transformers.RoCBertConfig(
        **SIZES,
        pronunciation_embed_dim=12,
        pronunciation_vocab_size=107,
        shape_embed_dim=20,
        shape_vocab_size=109,
        num_labels=2 if "Question" in head else 3,
    )
    inputs = text_inputs(99, segments=2)
    ids = inputs["no mask"]["input_ids"]
    inputs["shapes"] = {"input_ids": ids, "input_shape_ids": ids % 50, "input_pronunciation_ids": ids % 30}
    check(reference(f"RoCBert{head}", config), tmp_path, inputs)


@pytest.mark.parametrize("head", ["Model", *COMMON[1:]])
def test_markuplm(head: str, tmp_path: Path) -> None:
    fields = {
        "max_depth": 2, "max_xpath_tag_unit_embeddings": 20, "max_xpath_subs_unit_embeddings": 24, "tag_pad_id": 18, "subs_pad_id": 23,
        "xpath_unit_hidden_size": 12, "pad_token_id": 0, "num_labels": 2 if "Question" in head else 3,
    }  # fmt: skip
    inputs = text_inputs(99, segments=2, padding=0)
    ids = inputs["no mask"]["input_ids"]
    inputs["paths"] = {
        "input_ids": ids,
        "xpath_tags_seq": torch.stack((ids % 20, ids % 17), -1),
        "xpath_subs_seq": torch.stack((ids % 5, ids % 24), -1),
    }
    config = transformers.MarkupLMConfig(**{**SIZES, **fields})
    check(reference(f"MarkupLM{head}", config), tmp_path, inputs)


@pytest.mark.parametrize("head", ["Model", *COMMON[:3]])
def test_esm(head: str, tmp_path: Path) -> None:
    config = transformers.EsmConfig(
        **SIZES, position_embedding_type="rotary", token_dropout=True, mask_token_id=40
    )
    compare(f"Esm{head}", config, tmp_path, as_it_is=True)


@pytest.mark.parametrize("kind", ["rotary", "absolute"])
def test_esm_with_other_options(kind: str, tmp_path: Path) -> None:
    """Its embeddings are normed, masked tokens are as any others."""
    options = {"position_embedding_type": kind, "token_dropout": False, "emb_layer_norm_before": True}
    config = transformers.EsmConfig(**SIZES, **options, mask_token_id=40, rope_theta=500.0)
    compare("EsmForMaskedLM", config, tmp_path, as_it_is=True)


def test_one_layer_beside_something_else_is_still_a_list(tmp_path: Path) -> None:
    """The reference saves what all its layers share under `layer.*`, with a star in the name."""
    config = transformers.EsmConfig(**{**SIZES, "num_hidden_layers": 1}, mask_token_id=40)
    compare("EsmForMaskedLM", config, tmp_path, as_it_is=True)


MOBILE: dict[str, Any] = {**SIZES, "embedding_size": 24, "intra_bottleneck_size": 24, "hidden_size": 40}
HEADS = ("Model", *COMMON, "ForPreTraining", "ForNextSentencePrediction")


@pytest.mark.parametrize(
    ("activated", "head"), [(False, head) for head in HEADS] + [(True, "ForPreTraining")]
)
def test_mobilebert(activated: bool, head: str, tmp_path: Path) -> None:
    options = {"classifier_activation": activated, "num_feedforward_networks": 2, "hidden_act": "gelu"}
    without = ["left"] if "Sequence" in head and not activated else []
    compare(f"MobileBert{head}", transformers.MobileBertConfig(**MOBILE | options), tmp_path, without=without)


def test_mobilebert_with_one_feed_forward(tmp_path: Path) -> None:
    options = {"num_feedforward_networks": 1, "classifier_activation": True}
    compare("MobileBertForMaskedLM", transformers.MobileBertConfig(**MOBILE | options), tmp_path)


def test_a_base_model_whose_config_names_a_class_with_a_head(tmp_path: Path) -> None:
    """As sentence encoders are published: its names lack the folder of the base model, so no head is missing."""

    def other_class(fields: dict[str, Any]) -> None:
        fields["architectures"] = ["MPNetForMaskedLM"]

    compare("MPNetModel", transformers.MPNetConfig(**SIZES), tmp_path, edit=other_class)


@pytest.mark.parametrize("prefix", ["AltCLIP", "ChineseCLIP"])
def test_clip_with_a_text_tower_of_another_family(prefix: str, tmp_path: Path) -> None:
    """A first word that is padding is nothing to compare an image by."""
    text = {**SIZES, "project_dim": 20} if prefix == "AltCLIP" else SIZES
    vision = {"hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 4}
    sizes = {"image_size": 32, "patch_size": 8}
    config = getattr(transformers, f"{prefix}Config")(
        text_config=text, vision_config=vision | sizes, projection_dim=20
    )
    inputs = text_inputs(99, segments=0, padding=1)
    del inputs["left"]
    pixels = torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    cases = {
        name: {**values, "pixel_values": pixels[: len(values["input_ids"])]}
        for name, values in inputs.items()
    }
    check(reference(f"{prefix}Model", config), tmp_path, cases)


def test_align(tmp_path: Path) -> None:
    vision = {
        "width_coefficient": 0.25, "depth_coefficient": 1.0, "hidden_dim": 320, "in_channels": [32, 16],
        "out_channels": [16, 40], "kernel_sizes": [3, 5], "strides": [1, 2], "num_block_repeats": [1, 2],
        "expand_ratios": [1, 6],
    }  # fmt: skip
    config = transformers.AlignConfig(text_config=SIZES, vision_config=vision, projection_dim=16)
    inputs = text_inputs(99, segments=2, padding=0)
    pixels = torch.randn(3, 3, 33, 40, generator=torch.Generator().manual_seed(1))
    cases = {
        name: {**values, "pixel_values": pixels[: len(values["input_ids"])]}
        for name, values in inputs.items()
    }
    check(reference("AlignModel", config), tmp_path, cases)


@pytest.mark.parametrize("head", ["Model", *COMMON])
def test_squeezebert(head: str, tmp_path: Path) -> None:
    options = {"q_groups": 2, "k_groups": 4, "v_groups": 1, "output_groups": 8, "layer_norm_eps": 1e-3}
    compare(
        f"SqueezeBert{head}", transformers.SqueezeBertConfig(**SIZES, **options, embedding_size=32), tmp_path
    )


@pytest.mark.parametrize("head", ["Model", *COMMON])
def test_convbert(head: str, tmp_path: Path) -> None:
    options = {"embedding_size": 24, "conv_kernel_size": 5, "hidden_act": "relu"}
    without = ["left"] if "Sequence" in head else []
    compare(f"ConvBert{head}", transformers.ConvBertConfig(**SIZES | options), tmp_path, without=without)


@pytest.mark.parametrize("head", ["Model", *COMMON])
def test_deberta(head: str, tmp_path: Path) -> None:
    without = ["left"] if "Sequence" in head else []
    compare(f"Deberta{head}", transformers.DebertaConfig(**SIZES), tmp_path, without=without)


DISENTANGLED: dict[str, dict[str, Any]] = {
    "both": {"pos_att_type": ["c2p", "p2c"], "position_biased_input": False},
    "one": {"pos_att_type": ["c2p"], "max_relative_positions": 5, "type_vocab_size": 2},
    "other": {"pos_att_type": "p2c", "legacy": False},
}


@pytest.mark.parametrize("options", DISENTANGLED.values(), ids=DISENTANGLED)
def test_deberta_compares_contents_with_distances(options: dict[str, Any], tmp_path: Path) -> None:
    config = transformers.DebertaConfig(**SIZES | options, relative_attention=True)
    positions = options.get("position_biased_input", True)
    compare("DebertaForMaskedLM", config, tmp_path, positions=positions)


READERS = (
    "BertLMHeadModel",
    "BertModel",
    "RobertaForCausalLM",
    "XLMRobertaForCausalLM",
    "CamembertForCausalLM",
    "ElectraForCausalLM",
)


@pytest.mark.parametrize("name", READERS)
def test_a_decoder_that_reads_what_an_encoder_made(name: str, tmp_path: Path) -> None:
    kind = name.partition("For")[0].removesuffix("LMHeadModel").removesuffix("Model")
    config = getattr(transformers, f"{kind}Config")(**SIZES, is_decoder=True, add_cross_attention=True)
    generator = torch.Generator().manual_seed(2)
    made, mask = torch.randn(3, 7, 32, generator=generator), torch.ones(3, 7, dtype=torch.long)
    mask[1, :3] = mask[2, 5:] = 0
    cases = {}
    for case, values in text_inputs(99, padding=1).items():
        if case == "left" and name == "BertModel":
            continue  # its pooler reads a first position that is padding
        rows = len(values["input_ids"])
        cases[case] = {**values, "encoder_hidden_states": made[:rows], "encoder_attention_mask": mask[:rows]}
    check(reference(name, config), tmp_path, cases)


@pytest.mark.parametrize("head", ["Model", *COMMON[1:]])
def test_lilt(head: str, tmp_path: Path) -> None:
    options = {"hidden_size": 48, "channel_shrink_ratio": 2, "max_2d_position_embeddings": 50}
    without = ["left"] if "Sequence" in head else []
    config = transformers.LiltConfig(**SIZES | options)
    compare(f"Lilt{head}", config, tmp_path, boxes=True, without=without)


def test_a_list_of_layers_that_holds_something_else_too(tmp_path: Path) -> None:
    """One release writes the angles of all layers under `layer.*`: a name, not a number."""
    config = transformers.EsmConfig(
        **SIZES, position_embedding_type="rotary", token_dropout=True, mask_token_id=40
    )
    made = pair(reference("EsmModel", config), tmp_path)
    assert any(".*." in name for name in load_file(tmp_path / "model.safetensors"))
    assert mapper.inspect(tmp_path).architecture.reading == "exact"
    for name, values in text_inputs(99, padding=1).items():
        check_outputs(made, values, name)


def test_a_pre_norm_encoder_without_its_final_norm_is_incomplete(tmp_path: Path) -> None:
    model = reference("RobertaPreLayerNormModel", transformers.RobertaPreLayerNormConfig(**SIZES))
    pair(model, tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    save_file(
        {name: value for name, value in tensors.items() if not name.startswith("LayerNorm")},
        tmp_path / "model.safetensors",
    )
    with pytest.raises(mapper.MapperError, match="tower has no final_norm, which every bert_pre_norm has"):
        mapper.inspect(tmp_path)


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("LxmertModel", {"visual_pos_dim": 5}),
        ("LxmertForQuestionAnswering", {"hidden_act": "relu"}),
        ("LxmertForPreTraining", {}),
        ("LxmertForPreTraining", {"tie_word_embeddings": False, "task_obj_predict": False}),
    ],
)
def test_words_and_objects_that_read_each_other(name: str, more: dict[str, Any], tmp_path: Path) -> None:
    config = transformers.LxmertConfig(
        vocab_size=99, hidden_size=32, num_attention_heads=4, intermediate_size=44, max_position_embeddings=40, l_layers=2,
        r_layers=1, x_layers=2, visual_feat_dim=20, num_qa_labels=7, num_object_labels=5, num_attr_labels=6, **more,
    )  # fmt: skip
    generator = torch.Generator().manual_seed(1)
    inputs = text_inputs(99, segments=2, positions=False)
    for values in inputs.values():
        count = len(values["input_ids"])
        values["visual_feats"] = torch.randn(count, 5, 20, generator=generator)
        values["visual_pos"] = torch.rand(count, 5, config.visual_pos_dim, generator=generator)
    first = next(iter(inputs.values()))
    inputs["fewer objects"] = {
        **first,
        "visual_attention_mask": torch.ones(len(first["input_ids"]), 5).long(),
    }
    inputs["fewer objects"]["visual_attention_mask"][0, 3:] = 0
    check(reference(name, config), tmp_path, inputs)
