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
        ({"model_type": "helium", **TEXT, "head_dim": 8, "attention_bias": True}, "HeliumForCausalLM"),
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
