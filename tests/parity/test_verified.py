"""`verify` itself: models that are equal are called so, whatever their config says of ids and wherever their blocks end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import mapper
from tests.parity.harness import reference, transformers

SIZES = {"hidden_size": 32, "intermediate_size": 37, "num_hidden_layers": 2, "num_attention_heads": 4}


def verified(model: Any, folder: Path) -> mapper.Verification:
    model.save_pretrained(folder)
    found = mapper.verify(folder, against="transformers")
    assert found.equal is True, str(found)
    return found


def clip(**text: Any) -> Any:
    sight = SIZES | {"image_size": 30, "patch_size": 15}
    config = transformers.CLIPConfig(
        text_config=SIZES | {"vocab_size": 99, "max_position_embeddings": 32, **text},
        vision_config=sight,
        projection_dim=16,
    )
    return reference("CLIPModel", config)


@pytest.mark.parametrize("end", [49407, 99, 98, 5])
def test_a_clip_is_equal_wherever_its_end_of_text_lies(end: int, tmp_path: Path) -> None:
    found = verified(clip(eos_token_id=end, pad_token_id=1, bos_token_id=0), tmp_path)
    skipped = [note for note in found.notes if "not compared with left padding" in note]
    assert bool(skipped) == (end >= 99)  # a text without its end is pooled where nothing is seen


def test_a_mean_over_padded_places_that_see_nothing_is_not_compared(tmp_path: Path) -> None:
    config = transformers.ImageGPTConfig(vocab_size=99, n_positions=64, n_embd=32, n_layer=2, n_head=4)
    found = verified(reference("ImageGPTForImageClassification", config), tmp_path)
    assert any("not compared with left padding: 'logits'" in note for note in found.notes)


def test_a_pad_id_among_small_ids_is_no_word(tmp_path: Path) -> None:
    config = transformers.GPT2Config(
        vocab_size=99,
        n_positions=64,
        n_embd=32,
        n_layer=2,
        n_head=4,
        pad_token_id=5,
        eos_token_id=5,
        bos_token_id=5,
    )
    verified(reference("GPT2ForSequenceClassification", config), tmp_path)


def test_other_sizes_are_made_up_where_the_usual_ones_are_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = transformers.ViTConfig(image_size=30, patch_size=15, **SIZES)
    model = reference("ViTModel", config)
    model.save_pretrained(tmp_path)
    monkeypatch.setattr(
        "mapper._trial._sizes", lambda config: {"channels": 3}
    )  # so that 224 pixels are tried
    monkeypatch.setattr("mapper.comparing.verify.OTHER_EXTENTS", ({}, {"height": 30, "width": 30}))
    assert mapper.verify(tmp_path, against="transformers").equal is True


@pytest.mark.parametrize(
    ("name", "config", "other"),
    [
        ("BertModel", transformers.BertConfig(vocab_size=99, **SIZES), "encoder.layer.0.attention"),
        ("BloomModel", transformers.BloomConfig(vocab_size=99, hidden_size=32, n_layer=2, n_head=4), "h.0.self_attention"),
        ("GemmaModel", transformers.GemmaConfig(vocab_size=99, head_dim=8, num_key_value_heads=2, **SIZES), "embed_tokens"),
    ],
)  # fmt: skip
def test_a_block_that_ends_elsewhere_is_no_departure(
    name: str, config: Any, other: str, tmp_path: Path
) -> None:
    found = verified(reference(name, config), tmp_path)
    document = found.to_json()
    assert document["first_departure"] is None and document["first_failure"] is None
    assert other in document["other_steps"] and other not in document["blocks"]
    assert document["blocks"] and all(value <= found.tolerance for value in document["blocks"].values())
