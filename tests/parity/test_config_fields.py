"""Fields of a config that are changed, moved or left out, against the reference with the same file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

import mapper
from tests.parity.harness import outputs, quiet, reference, text_inputs

TEXT = {
    "vocab_size": 99,
    "hidden_size": 32,
    "intermediate_size": 44,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
OPT = {
    "model_type": "opt",
    "vocab_size": 99,
    "hidden_size": 32,
    "ffn_dim": 44,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 40,
    "word_embed_proj_dim": 32,
}
XGLM = {
    "model_type": "xglm",
    "vocab_size": 99,
    "d_model": 32,
    "ffn_dim": 44,
    "num_layers": 2,
    "attention_heads": 4,
    "max_position_embeddings": 40,
    "pad_token_id": 2,
}
MIXTRAL = {"model_type": "mixtral", **TEXT, "num_local_experts": 4, "num_experts_per_tok": 2}
GEMMA3 = {
    "model_type": "gemma3_text",
    **TEXT,
    "head_dim": 8,
    "layer_types": ["sliding_attention", "full_attention"],
}
MODERNBERT = {
    "model_type": "modernbert",
    "vocab_size": 99,
    "hidden_size": 32,
    "intermediate_size": 44,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "cls_token_id": 1,
    "sep_token_id": 2,
}
APERTUS = {"model_type": "apertus", **TEXT, "max_position_embeddings": 64}
BLIP = {
    "model_type": "blip_vision_model",
    "hidden_size": 32,
    "intermediate_size": 44,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "image_size": 32,
    "patch_size": 8,
}


def differences(raw: dict[str, Any], kind: str, inputs: Any, folder: Path) -> tuple[str, float]:
    """The reading of a tiny model whose config.json is `raw` word for word, and how far its outputs are off."""
    config_class = transformers.CONFIG_MAPPING[raw["model_type"]]
    with quiet():
        config = config_class.from_dict({**raw, "architectures": [kind]})
        model = reference(kind, config)
        model.save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps({**raw, "architectures": [kind]}))
    reading = json.loads(mapper.inspect(folder).to_json())["reading"]
    built = mapper.build(folder)
    with torch.no_grad(), quiet():
        wanted = dict(outputs(model(**inputs)))
        found = dict(outputs(built(**inputs)))
    return reading, max(float((found[name] - wanted[name]).abs().max()) for name in wanted if name in found)


@pytest.mark.parametrize(
    ("raw", "kind"),
    [
        (OPT, "OPTForCausalLM"),  # no activation_function: relu
        (XGLM, "XGLMForCausalLM"),  # the padding's row of the waves is one that is read
        (MODERNBERT, "ModernBertForMaskedLM"),  # one layer, whose norms have no bias
        (GEMMA3, "Gemma3ForCausalLM"),
        (APERTUS, "ApertusForCausalLM"),  # no rope_parameters: the class's own
        ({**MIXTRAL, "rope_theta": 300.0}, "MixtralForCausalLM"),
    ],
)
def test_what_is_left_out_is_what_the_reference_takes(raw: dict[str, Any], kind: str, tmp_path: Path) -> None:
    inputs = next(iter(text_inputs(vocab_size=99).values()))
    reading, worst = differences(raw, kind, inputs, tmp_path)
    assert reading == "exact" and worst < 1e-4


@pytest.mark.parametrize(
    ("raw", "kind"),
    [
        ({**MIXTRAL, "rope_theta": 300.0, "partial_rotary_factor": 0.5}, "MixtralForCausalLM"),
        ({**APERTUS, "rope_theta": 300.0}, "ApertusForCausalLM"),
        ({**OPT, "use_parallel_residual": True}, "OPTForCausalLM"),
        ({**MIXTRAL, "final_logit_softcapping": 2.0}, "MixtralForCausalLM"),
        ({**MIXTRAL, "alibi": True}, "MixtralForCausalLM"),
    ],
)
def test_what_the_reference_does_not_read_is_not_obeyed_and_is_a_finding(
    raw: dict[str, Any], kind: str, tmp_path: Path
) -> None:
    inputs = next(iter(text_inputs(vocab_size=99).values()))
    reading, worst = differences(raw, kind, inputs, tmp_path)
    assert reading == "unverified" and worst < 1e-4


def test_a_bound_that_the_code_names_and_does_not_use_changes_nothing(tmp_path: Path) -> None:
    inputs = next(iter(text_inputs(vocab_size=99).values()))
    _, worst = differences({**GEMMA3, "attn_logit_softcapping": 0.5}, "Gemma3ForCausalLM", inputs, tmp_path)
    assert worst < 1e-4


@pytest.mark.parametrize(("layers", "every"), [(5, 2), (4, 4), (3, 0)])
def test_layers_that_halve_what_they_give_have_norms_of_other_eps(
    layers: int, every: int, tmp_path: Path
) -> None:
    raw = {"model_type": "rwkv", "vocab_size": 99, "hidden_size": 32, "attention_hidden_size": 32,
           "intermediate_size": 44, "num_hidden_layers": layers, "rescale_every": every, "layer_norm_epsilon": 0.05}  # fmt: skip
    ids = torch.randint(0, 99, (2, 9), generator=torch.Generator().manual_seed(0))
    reading, worst = differences(raw, "RwkvForCausalLM", {"input_ids": ids}, tmp_path)
    assert reading == "exact" and worst < 1e-4


@pytest.mark.parametrize("side", [32, 24])
def test_positions_of_a_smaller_image_are_the_first_ones_where_the_code_cuts_them(
    side: int, tmp_path: Path
) -> None:
    images = {"pixel_values": torch.randn(2, 3, side, side, generator=torch.Generator().manual_seed(0))}
    reading, worst = differences(BLIP, "BlipVisionModel", images, tmp_path)
    assert reading == "exact" and worst < 1e-4


MOE = {
    "model_type": "exaone_moe",
    **TEXT,
    "head_dim": 8,
    "moe_intermediate_size": 20,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "layer_types": ["sliding_attention", "full_attention"],
    "mlp_layer_types": ["dense", "dense"],
}


@pytest.mark.parametrize(
    ("raw", "kind"),
    [
        ({"model_type": "helium", **TEXT, "head_dim": 8, "attention_bias": True,
           "rope_parameters": {"rope_type": "default", "rope_theta": 500.0, "mrope_section": [2, 1, 1]}}, "HeliumForCausalLM"),
        (MOE, "ExaoneMoeForCausalLM"),  # no layer has experts
        ({**MOE, "num_hidden_layers": 1, "layer_types": ["full_attention"], "mlp_layer_types": ["dense"]}, "ExaoneMoeForCausalLM"),
    ],
)  # fmt: skip
def test_what_a_config_may_say_is_built(raw: dict[str, Any], kind: str, tmp_path: Path) -> None:
    inputs = next(iter(text_inputs(vocab_size=99).values()))
    assert differences(raw, kind, inputs, tmp_path)[1] < 1e-4


def test_stages_that_nobody_reads_are_refused_and_named(tmp_path: Path) -> None:
    backbone = transformers.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic", out_features=["stage1"]
    )
    config = transformers.ConditionalDetrConfig(
        backbone_config=backbone, d_model=32, encoder_layers=1, decoder_layers=1, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=44, decoder_ffn_dim=44, num_queries=5,
    )  # fmt: skip
    with quiet():
        reference("ConditionalDetrForObjectDetection", config).save_pretrained(tmp_path)
    with pytest.raises(mapper.ArchitectureError, match="what is read is the last of 2 stages"):
        mapper.build(tmp_path)


# --- what fields of parts, lists for stages and layers of one kind alone lead to


def changed(kind: str, config: Any, folder: Path, **fields: Any) -> Path:
    """A saved model whose config.json says otherwise."""
    with quiet():
        reference(kind, config).save_pretrained(folder)
    raw = json.loads((folder / "config.json").read_text())
    for name, value in fields.items():
        part, _, last = name.rpartition("__")
        (raw[part] if part else raw)[last] = value
    (folder / "config.json").write_text(json.dumps(raw))
    return folder


CVT = transformers.CvtConfig(
    patch_sizes=[7, 3], patch_stride=[4, 2], patch_padding=[2, 1], embed_dim=[8, 16], num_heads=[1, 2], depth=[1, 2],
    mlp_ratio=[2.0, 2.0], attention_drop_rate=[0.0, 0.0], drop_rate=[0.0, 0.0], drop_path_rate=[0.0, 0.0],
    qkv_bias=[False, False], cls_token=[False, True], qkv_projection_method=["dw_bn"] * 2, kernel_qkv=[3, 3],
    padding_kv=[1, 1], stride_kv=[2, 2], padding_q=[1, 1], stride_q=[1, 1],
)  # fmt: skip
VIDEO = {
    "model_type": "videoprism_vision_model", "hidden_size": 32, "intermediate_size": 44, "num_spatial_layers": 1,
    "num_temporal_layers": 1, "num_attention_heads": 4, "image_size": 16, "num_frames": 2, "tubelet_size": [1, 8, 8],
    "qkv_bias": False,
}  # fmt: skip


def test_maps_without_a_bias_where_the_config_says_so_are_built(tmp_path: Path) -> None:
    images = {"pixel_values": torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))}
    raw = json.loads(changed("CvtModel", CVT, tmp_path / "cvt").joinpath("config.json").read_text())
    assert differences(raw, "CvtModel", images, tmp_path) == ("exact", pytest.approx(0.0, abs=1e-4))


def test_videos_without_biases_are_built(tmp_path: Path) -> None:
    videos = {"pixel_values_videos": torch.randn(2, 2, 3, 16, 16, generator=torch.Generator().manual_seed(0))}
    assert differences(VIDEO, "VideoPrismVisionModel", videos, tmp_path) == (
        "exact",
        pytest.approx(0.0, abs=1e-4),
    )


KIMI = {
    "model_type": "kimi_linear", **TEXT, "num_key_value_heads": 4, "kv_lora_rank": 20, "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 8, "v_head_dim": 12, "linear_head_dim": 16, "linear_num_heads": 4, "head_dim": 8,
    "moe_intermediate_size": 20, "num_experts": 4, "num_experts_per_token": 2, "num_shared_experts": 1,
    "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0, "use_cache": False,
}  # fmt: skip
LINEAR, FULL = {"layer_types": ["linear_attention"]}, {"layer_types": ["full_attention"]}


@pytest.mark.parametrize(
    "fields",
    [
        {"num_hidden_layers": 1, **LINEAR, "mlp_layer_types": ["dense"]},
        {"num_hidden_layers": 1, **FULL, "mlp_layer_types": ["sparse"]},
        {"layer_types": ["linear_attention", "full_attention"], "mlp_layer_types": ["dense", "sparse"], "attention_bias": True},
    ],
)  # fmt: skip
def test_layers_of_one_kind_alone_and_biases_of_the_other_are_built(
    fields: dict[str, Any], tmp_path: Path
) -> None:
    inputs = next(iter(text_inputs(vocab_size=99).values()))
    reading, worst = differences({**KIMI, **fields}, "KimiLinearForCausalLM", inputs, tmp_path)
    assert reading == "exact" and worst < 1e-4


def test_a_projector_s_text_may_have_biases(tmp_path: Path) -> None:
    raw = {
        "model_type": "cosmos3_edge_text",
        **TEXT,
        "head_dim": 8,
        "attention_bias": True,
        "rope_parameters": {"rope_type": "default", "rope_theta": 500.0, "mrope_section": [2, 1, 1]},
    }
    inputs = next(iter(text_inputs(vocab_size=99).values()))
    reading, worst = differences(raw, "Cosmos3EdgeTextModel", inputs, tmp_path)
    assert reading == "exact" and worst < 1e-4


@pytest.mark.parametrize(
    ("window", "kinds"),
    [(5, GEMMA3["layer_types"]), (8, GEMMA3["layer_types"]), (9, ["sliding_attention"] * 2)],
)
def test_words_beside_images_see_what_stands_before_them_whatever_their_config_says(
    window: int, kinds: list[str], tmp_path: Path
) -> None:
    text = {**GEMMA3, "layer_types": kinds, "use_bidirectional_attention": True, "sliding_window": window}
    vision = {
        "hidden_size": 32,
        "intermediate_size": 44,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "image_size": 16,
        "patch_size": 8,
    }
    raw = {"model_type": "gemma3", "text_config": text, "vision_config": {**vision, "model_type": "siglip_vision_model"},
           "mm_tokens_per_image": 4, "image_token_index": 98, "boi_token_index": 96, "eoi_token_index": 97}  # fmt: skip
    made = torch.Generator().manual_seed(0)
    ids = torch.randint(0, 90, (2, 14), generator=made)
    ids[:, 3:7] = 98
    inputs = {
        "input_ids": ids,
        "token_type_ids": (ids == 98).long(),
        "pixel_values": torch.randn(2, 3, 16, 16, generator=made),
    }
    reading, worst = differences(raw, "Gemma3ForConditionalGeneration", inputs, tmp_path)
    assert reading == "exact" and worst < 1e-4


def test_a_default_of_the_whole_is_not_another_tower_s_field(tmp_path: Path) -> None:
    raw = {"model_type": "moshi", **{name: value for name, value in TEXT.items() if name != "intermediate_size"}, "head_dim": 8, "ffn_dim": 44, "audio_vocab_size": 9, "num_codebooks": 2,
           "audio_encoder_config": {"model_type": "mimi", "hidden_act": "relu"},
           "depth_decoder_config": {"hidden_size": 16, "ffn_dim": 20, "num_hidden_layers": 1, "num_attention_heads": 2}}  # fmt: skip
    inputs = next(iter(text_inputs(vocab_size=99).values()))
    reading, worst = differences(raw, "MoshiForCausalLM", inputs, tmp_path)
    assert reading == "exact" and worst < 1e-4


BRIDGES = {
    "model_type": "bridgetower", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "text_config": {"hidden_size": 64, "intermediate_size": 44, "num_attention_heads": 4, "vocab_size": 99, "num_hidden_layers": 2,
                    "max_position_embeddings": 40},
    "vision_config": {"hidden_size": 64, "num_hidden_layers": 4, "image_size": 16, "patch_size": 8},
}  # fmt: skip


def test_bridges_lead_from_as_many_layers_of_the_image_as_the_text_has(tmp_path: Path) -> None:
    made = torch.Generator().manual_seed(0)
    inputs = {
        "input_ids": torch.randint(5, 99, (2, 9), generator=made),
        "pixel_values": torch.randn(2, 3, 16, 16, generator=made),
    }
    reading, worst = differences(BRIDGES, "BridgeTowerModel", inputs, tmp_path)
    assert reading == "exact" and worst < 1e-4


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"num_hidden_layers": 3}, "num_hidden_layers"),
        ({"text_config__num_hidden_layers": 1}, "bridged_layers|num_hidden_layers"),
        ({"vision_config__num_hidden_layers": 1}, "bridging_layers|num_hidden_layers"),
    ],
)
def test_more_bridges_than_layers_are_refused(fields: dict[str, Any], told: str, tmp_path: Path) -> None:
    config = transformers.BridgeTowerConfig.from_dict(dict(BRIDGES))
    with pytest.raises(mapper.ArchitectureError, match=told):
        mapper.build(changed("BridgeTowerModel", config, tmp_path, **fields))


BERT = {"vocab_size": 99, "hidden_size": 32, "intermediate_size": 44, "num_hidden_layers": 1, "num_attention_heads": 4, "max_position_embeddings": 40}  # fmt: skip


@pytest.mark.parametrize(
    ("config", "kind", "pad"),
    [
        (transformers.RobertaConfig(**BERT), "RobertaModel", 500),
        (transformers.XLMRobertaConfig(**{**BERT, "max_position_embeddings": 150}), "XLMRobertaModel", 120),
        (transformers.CamembertConfig(**BERT), "CamembertForMaskedLM", 39),
    ],
)
def test_padding_that_is_no_word_or_has_no_position_is_refused(
    config: Any, kind: str, pad: int, tmp_path: Path
) -> None:
    with pytest.raises(mapper.ArchitectureError, match=f"padding_index is '{pad}' .*, more than"):
        mapper.build(changed(kind, config, tmp_path, pad_token_id=pad))


def test_a_word_that_pads_may_be_any_where_positions_do_not_begin_behind_it(tmp_path: Path) -> None:
    config = transformers.BartConfig(
        vocab_size=99, d_model=32, encoder_layers=1, decoder_layers=1, encoder_attention_heads=4, decoder_attention_heads=4,
        encoder_ffn_dim=44, decoder_ffn_dim=44, max_position_embeddings=40, pad_token_id=90,
    )  # fmt: skip
    assert mapper.inspect(changed("BartModel", config, tmp_path)).architecture.reading == "exact"


def test_images_whose_patches_fill_no_whole_blocks_lose_the_last_ones(tmp_path: Path) -> None:
    raw = {"model_type": "hunyuan_vl_vision", "hidden_size": 32, "intermediate_size": 44, "num_hidden_layers": 1,
           "num_attention_heads": 4, "num_key_value_heads": 4, "patch_size": 8, "spatial_merge_size": 3, "text_hidden_size": 24,
           "out_hidden_size": 24, "max_image_size": 64}  # fmt: skip
    pixels = torch.randn(16 + 35, 3 * 64, generator=torch.Generator().manual_seed(0))
    inputs = {"pixel_values": pixels, "grid_thw": torch.tensor([[1, 4, 4], [1, 5, 7]])}
    reading, worst = differences(raw, "HunYuanVLVisionTransformer", inputs, tmp_path)
    assert reading == "exact" and worst < 1e-4


@pytest.mark.parametrize("kind", ["ResNetBackbone", "Dinov2Backbone"])
def test_a_backbone_that_stands_alone_says_which_stages_are_asked_for(kind: str, tmp_path: Path) -> None:
    config = (
        transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic", out_features=["stage1"])
        if kind.startswith("Res")
        else transformers.Dinov2Config(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, image_size=16, patch_size=8, out_features=["stage1"])
    )  # fmt: skip
    found = mapper.inspect(changed(kind, config, tmp_path)).architecture
    assert found.reading == "unverified" and any(
        "out_features is \"['stage1']\"" in line for line in found.findings
    )


@pytest.mark.parametrize("high", [4.0, 1.0, 0.4])
def test_angles_whose_ramp_has_no_length_have_a_step(high: float, tmp_path: Path) -> None:
    rope = {"rope_type": "llama3", "rope_theta": 500.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": high,
            "original_max_position_embeddings": 8}  # fmt: skip
    inputs = next(iter(text_inputs(vocab_size=99).values()))
    raw = {"model_type": "llama", **TEXT, "rope_parameters": rope}
    reading, worst = differences(raw, "LlamaForCausalLM", inputs, tmp_path)
    assert reading == "exact" and worst < 1e-4


def test_kernels_of_even_length_are_refused_and_named(tmp_path: Path) -> None:
    encoder = {"hidden_size": 32, "intermediate_size": 44, "num_hidden_layers": 1, "num_attention_heads": 4, "num_mel_bins": 16,
               "subsampling_conv_channels": 8, "subsampling_conv_kernel_size": 4}  # fmt: skip
    with quiet():
        reference("ParakeetEncoder", transformers.ParakeetEncoderConfig(**encoder)).save_pretrained(tmp_path)
    with pytest.raises(mapper.ArchitectureError, match="subsampling_conv_kernel_size = 4"):
        mapper.build(tmp_path)


ANGLES = {"full_attention": {"rope_type": "default", "rope_theta": 9000.0}, "sliding_attention": {"rope_type": "default", "rope_theta": 300.0}}  # fmt: skip


@pytest.mark.parametrize("kind", ["sliding_attention", "full_attention"])
def test_layers_of_one_kind_have_the_angles_of_that_kind(kind: str, tmp_path: Path) -> None:
    raw = {**GEMMA3, "layer_types": [kind, kind], "sliding_window": 4, "rope_parameters": ANGLES}
    inputs = next(iter(text_inputs(vocab_size=99).values()))
    reading, worst = differences(raw, "Gemma3ForCausalLM", inputs, tmp_path)
    assert reading == "exact" and worst < 1e-4


def test_what_stands_outside_of_the_only_tower_has_the_whole_s_default(tmp_path: Path) -> None:
    encoder = {"model_type": "parakeet_encoder", "hidden_size": 32, "intermediate_size": 44, "num_hidden_layers": 1, "num_attention_heads": 4,
               "num_mel_bins": 16, "subsampling_conv_channels": 8, "hidden_act": "silu"}  # fmt: skip
    raw = {"model_type": "parakeet_rnnt", "architectures": ["ParakeetForRNNT"], "vocab_size": 99, "decoder_hidden_size": 24,
           "num_decoder_layers": 1, "blank_token_id": 60, "pad_token_id": 2, "encoder_config": encoder}  # fmt: skip
    with quiet():
        reference("ParakeetForRNNT", transformers.ParakeetRNNTConfig.from_dict(dict(raw))).save_pretrained(
            tmp_path
        )
    (tmp_path / "config.json").write_text(json.dumps(raw))
    found = mapper.inspect(tmp_path).architecture
    root = next(
        fact for fact in found.facts if fact.name == "activation" and not str(fact.at).startswith("encoder")
    )
    assert root.value == "relu" and "default" in root.source


VIT = {"model_type": "vit", **{name: BLIP[name] for name in BLIP if name != "model_type"}}


@pytest.mark.parametrize("word", ["quick_gelu", "mish"])
def test_a_pooler_has_any_activation_that_there_is(word: str, tmp_path: Path) -> None:
    images = {"pixel_values": torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))}
    reading, worst = differences({**VIT, "pooler_act": word}, "ViTModel", images, tmp_path)
    assert reading == "exact" and worst < 1e-4


def test_a_pooler_s_activation_that_nobody_knows_is_not_taken_for_another(tmp_path: Path) -> None:
    config = transformers.ViTConfig.from_dict({**VIT, "pooler_act": "sqrtsoftplus"})
    folder = changed("ViTModel", config, tmp_path)
    assert mapper.inspect(folder).architecture.reading != "exact"
    with pytest.raises(mapper.ArchitectureError, match=r"'sqrtsoftplus' \(pooler_act\)"):
        mapper.build(folder)


KINDS = ["sliding_attention", "heavily_compressed_attention", "compressed_sparse_attention"]


@pytest.mark.parametrize("kind", ["main", "compress"])
def test_each_kind_of_layer_turns_its_own_share_of_a_head(kind: str, tmp_path: Path) -> None:
    shares = {"main": 0.25, "compress": 0.25, kind: 0.5}
    rope = {
        name: {"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": share}
        for name, share in shares.items()
    }
    raw = {"model_type": "deepseek_v4", "vocab_size": 99, "hidden_size": 32, "moe_intermediate_size": 20, "num_hidden_layers": 3,
           "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 16, "q_lora_rank": 24, "o_lora_rank": 8, "o_groups": 2,
           "n_routed_experts": 4, "num_experts_per_tok": 2, "n_shared_experts": 1, "index_head_dim": 16, "index_n_heads": 4,
           "index_topk": 4, "sliding_window": 4, "layer_types": KINDS, "mlp_layer_types": ["moe"] * 3, "rope_parameters": rope,
           "compress_rates": {"compressed_sparse_attention": 2, "heavily_compressed_attention": 4}}  # fmt: skip
    inputs = {"input_ids": torch.randint(0, 99, (2, 12), generator=torch.Generator().manual_seed(0))}
    reading, worst = differences(raw, "DeepseekV4ForCausalLM", inputs, tmp_path)
    assert reading == "exact" and worst < 1e-4


def test_angles_of_patches_have_the_base_where_older_files_say_it(tmp_path: Path) -> None:
    raw = {"model_type": "qwen2_5_vl_vision", "depth": 2, "hidden_size": 32, "intermediate_size": 44, "num_heads": 4, "patch_size": 8,
           "out_hidden_size": 24, "window_size": 32, "fullatt_block_indexes": [1], "rope_theta": 300.0}  # fmt: skip
    pixels = torch.randn(32, 3 * 2 * 64, generator=torch.Generator().manual_seed(0))
    inputs = {"hidden_states": pixels, "grid_thw": torch.tensor([[1, 4, 4], [1, 4, 4]])}
    reading, worst = differences(raw, "Qwen2_5_VisionTransformerPretrainedModel", inputs, tmp_path)
    assert reading == "exact" and worst < 1e-4


@pytest.mark.parametrize("kinds", [None, ["sliding_attention"] * 2, ["sliding_attention", "full_attention"]])
def test_layers_whose_kinds_are_left_out_see_everything(kinds: list[str] | None, tmp_path: Path) -> None:
    rope = {kind: {**said, "partial_rotary_factor": 0.5} for kind, said in ANGLES.items()}
    raw = {"model_type": "laguna", **TEXT, "head_dim": 8, "moe_intermediate_size": 20, "shared_expert_intermediate_size": 20, "num_experts": 4,
           "num_experts_per_tok": 2, "sliding_window": 4, "layer_types": kinds, "rope_parameters": rope}  # fmt: skip
    if kinds is None:
        del raw["layer_types"]
    inputs = next(iter(text_inputs(vocab_size=99).values()))
    reading, worst = differences(raw, "LagunaForCausalLM", inputs, tmp_path)
    assert reading == "exact" and worst < 1e-4
