"""Encoders whose attention or embeddings no other has, against the reference library."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import mapper
from tests.parity.harness import check, reference, text_inputs, transformers
from tests.parity.test_bert_likes import SIZES, boxes_of, compare


@pytest.mark.parametrize(
    "head", ["Model", "ForMaskedLM", "ForSequenceClassification", "ForQuestionAnswering"]
)
def test_yoso(head: str, tmp_path: Path) -> None:
    window = 3 if head == "Model" else None  # a convolution reads the mask, the rest does not
    config = transformers.YosoConfig(**SIZES, hash_code_len=5, conv_window=window, hidden_act="relu")
    compare(f"Yoso{head}", config, tmp_path)


@pytest.mark.parametrize(
    "head", ["Model", "ForMaskedLM", "ForSequenceClassification", "ForTokenClassification"]
)
def test_luke_without_entities(head: str, tmp_path: Path) -> None:
    aware = head != "ForTokenClassification"
    config = transformers.LukeConfig(
        **SIZES, entity_vocab_size=30, entity_emb_size=12, use_entity_aware_attention=aware
    )
    compare(f"Luke{head}", config, tmp_path)


def test_luke_whose_heads_are_not_tied(tmp_path: Path) -> None:
    config = transformers.LukeConfig(
        **SIZES, entity_vocab_size=30, entity_emb_size=12, tie_word_embeddings=False
    )
    compare("LukeForMaskedLM", config, tmp_path)


@pytest.mark.parametrize("head", ["Model", "ForTokenClassification"])
def test_bros(head: str, tmp_path: Path) -> None:
    config = transformers.BrosConfig(**SIZES | {"hidden_size": 64}, bbox_scale=0.2, num_labels=3)
    inputs: dict[str, Any] = text_inputs(99, segments=2, padding=1)
    for values in inputs.values():
        values["bbox"] = boxes_of(values["input_ids"])
    corners = inputs["all ones"]["bbox"][..., [0, 1, 2, 1, 2, 3, 0, 3]].float()
    inputs["corners"] = {**inputs["all ones"], "bbox": corners}
    check(reference(f"Bros{head}", config), tmp_path, inputs)


@pytest.mark.parametrize("name", ["CpmAntModel", "CpmAntForCausalLM"])
def test_cpmant(name: str, tmp_path: Path) -> None:
    config = transformers.CpmAntConfig(
        vocab_size=99,
        hidden_size=32,
        num_attention_heads=4,
        dim_head=6,
        dim_ff=44,
        num_hidden_layers=2,
        position_bias_num_buckets=8,
        position_bias_max_distance=12,
        prompt_types=4,
        prompt_length=5,
        segment_types=4,
    )
    check(reference(name, config), tmp_path, text_inputs(99, positions=False, padding=0))


@pytest.mark.parametrize("name", ["Flaubert", "XLM"])
@pytest.mark.parametrize("head", ["Model", "WithLMHeadModel", "ForTokenClassification"])
def test_flaubert_and_xlm(name: str, head: str, tmp_path: Path) -> None:
    config = getattr(transformers, f"{name}Config")(
        vocab_size=99,
        emb_dim=32,
        n_layers=2,
        n_heads=4,
        max_position_embeddings=40,
        n_langs=3 if head == "Model" else 1,
        gelu_activation=head != "Model",
        tie_word_embeddings=head != "ForTokenClassification",
        num_labels=3,
    )
    inputs: dict[str, Any] = text_inputs(99, segments=5, padding=2)
    ids = inputs["no mask"]["input_ids"]
    inputs["lengths"] = {
        "input_ids": inputs["right"]["input_ids"],
        "compared": inputs["right"]["attention_mask"],
    }
    if head == "Model":
        inputs["languages"] = {"input_ids": ids, "langs": ids % 3}
    check(reference(f"{name}{head}", config), tmp_path, inputs)


@pytest.mark.parametrize("more", [{}, {"qk_channels": 16, "v_channels": 24, "use_query_residual": False}])
def test_perceiver(more: dict[str, Any], tmp_path: Path) -> None:
    config = transformers.PerceiverConfig(
        num_latents=7,
        d_latents=24,
        d_model=32,
        num_blocks=len(more) + 1,
        num_self_attends_per_block=2,
        num_self_attention_heads=4,
        num_cross_attention_heads=2,
        self_attention_widening_factor=2,
        cross_attention_widening_factor=3,
        **more,
    )
    generator = torch.Generator().manual_seed(1)
    masks = {name: case.get("attention_mask") for name, case in text_inputs(99).items()}
    inputs = {
        name: {"inputs": torch.randn(*mask.shape, 32, generator=generator), "attention_mask": mask}
        for name, mask in masks.items()
        if mask is not None
    }
    inputs["no mask"] = {"inputs": torch.randn(2, 5, 32, generator=generator)}
    check(reference("PerceiverModel", config), tmp_path, inputs)


@pytest.mark.parametrize(("layers", "rate", "kernel"), [(2, 2, 4), (1, 3, 3)])
def test_canine(layers: int, rate: int, kernel: int, tmp_path: Path) -> None:
    config = transformers.CanineConfig(
        **SIZES | {"num_hidden_layers": layers},
        type_vocab_size=3,
        num_hash_buckets=50,
        downsampling_rate=rate,
        upsampling_kernel_size=kernel,
        local_transformer_stride=2 * rate,
        hidden_act="relu",
    )
    compare("CanineModel", config, tmp_path)


FUNNEL = {"vocab_size": 99, "d_model": 32, "n_head": 4, "d_head": 6, "d_inner": 44, "num_decoder_layers": 2}


@pytest.mark.parametrize(("head", "blocks"), [("Model", [1, 2]), ("ForMaskedLM", [2, 1, 1])])
def test_funnel(head: str, blocks: list[int], tmp_path: Path) -> None:
    config = transformers.FunnelConfig(**FUNNEL, block_sizes=blocks)
    inputs = text_inputs(99, segments=3, padding=0, positions=False)
    made = check(reference(f"Funnel{head}", config), tmp_path, inputs)
    with pytest.raises(ValueError, match="too few to be halved"):
        made.built(input_ids=torch.ones(1, 2, dtype=torch.long))


@pytest.mark.parametrize(
    "more", [{"attention_type": "factorized"}, {"block_repeats": [1, 2]}, {"base": True}]
)
def test_other_funnels_are_refused(more: dict[str, Any], tmp_path: Path) -> None:
    name = "FunnelBaseModel" if more.pop("base", False) else "FunnelModel"
    config = transformers.FunnelConfig(**FUNNEL, block_sizes=[1, 1], **more)
    reference(name, config).save_pretrained(tmp_path)
    assert mapper.inspect(tmp_path).architecture.reading != "exact"
