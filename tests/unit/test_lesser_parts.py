"""A part of one layer that has less than that of another is incomplete, though a flow would do without what it lacks."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import pytest

from mapper.checkpoint import Checkpoint
from mapper.errors import MapperError
from mapper.inference import infer
from mapper.rulebook.examples import header
from tests.shipped import RULEBOOK

LOST = [
    ("bitnet", "layers.0.mlp.ffn_sub_norm", "inner_norm"),  # a norm in a feed-forward network
    ("bamba", "layers.1.feed_forward.gate_proj", "gate"),
    ("convnextv2", "stages.0.layers.0.grn", "response"),
]


@pytest.mark.parametrize(("model_type", "lost", "role"), LOST, ids=[model_type for model_type, *_ in LOST])
def test_what_one_layer_lacks_is_named(model_type: str, lost: str, role: str) -> None:
    """Each of these was called exact."""
    family = next(each for each in RULEBOOK.families if model_type in each.model_types)
    known = next(
        header(each) for each in family.examples if (each.config or {}).get("model_type") == model_type
    )
    assert infer(known, RULEBOOK).reading == "exact"
    tensors = {name: info for name, info in known.tensors.items() if lost not in name}
    assert len(tensors) < len(known.tensors)
    with pytest.raises(MapperError, match=role):
        infer(replace(known, tensors=tensors), RULEBOOK)


def example(model_type: str, word: str = "") -> Checkpoint:
    """The first complete example of a model type with a word in its names."""
    family = next(family for family in RULEBOOK.families if model_type in family.model_types)
    complete = (item for item in family.examples if item.expect.get("reading") == "exact")
    own = (header(item) for item in complete if (item.config or {}).get("model_type") == model_type)
    return next(read for read in own if any(word in name for name in read.tensors))


@pytest.mark.parametrize("lost", ["token_mixer.qkv", "stages.2.blocks.0.token_mixer.qkv"])
def test_a_linear_layer_that_is_left_of_an_attention_is_none(lost: str) -> None:
    """The output of FastViT's attention was called as all of it."""
    family = next(each for each in RULEBOOK.families if each.name == "timm_fastvit")
    headers = map(header, family.examples)
    known = next(read for read in headers if any(lost in name for name in read.tensors))
    assert infer(known, RULEBOOK).reading != "skeleton"
    tensors = {name: info for name, info in known.tensors.items() if lost not in name}
    assert len(tensors) < len(known.tensors)
    with suppress(MapperError):  # it may be refused
        assert infer(replace(known, tensors=tensors), RULEBOOK).reading == "skeleton"


def test_widths_that_differ_need_the_map_between_them() -> None:
    """SEW without its projection was exact, and could not be called; where both widths are one there may be none."""
    known = example("sew", "feature_projection")
    assert infer(known, RULEBOOK).reading == "exact"
    rest = {name: info for name, info in known.tensors.items() if "feature_projection" not in name}
    assert len(rest) < len(known.tensors)
    with pytest.raises(MapperError, match="layer_norm"):
        infer(replace(known, tensors=rest), RULEBOOK)


def test_layers_that_share_the_attention_of_another_are_no_loss() -> None:
    """Zamba2 stores it once: what has no flow is said, and no file is called incomplete."""
    known = example("zamba2")
    hybrid = next(name.split(".")[2] for name in known.tensors if "shared_transformer" in name)
    more = {
        name.replace(f"layers.{hybrid}.", "layers.2."): info
        for name, info in known.tensors.items()
        if f"layers.{hybrid}." in name and "shared_transformer" not in name
    }
    assert infer(replace(known, tensors={**known.tensors, **more}), RULEBOOK).reading == "skeleton"


def test_a_second_block_that_layers_share_begins_with_a_later_adapter() -> None:
    """Zamba2's adapters are numbered over all layers with attention: the second block has no first one."""
    known = example("zamba2")
    hybrid = next(name.split(".")[2] for name in known.tensors if "shared_transformer" in name)
    more = {
        name.replace(f"layers.{hybrid}.", "layers.2.").replace("adapter_list.0.", "adapter_list.1."): info
        for name, info in known.tensors.items()
        if f"layers.{hybrid}." in name
    }
    assert any("adapter_list.1." in name for name in more)
    assert infer(replace(known, tensors={**known.tensors, **more}), RULEBOOK).reading == "skeleton"


@pytest.mark.parametrize("model_type", ["hubert", "wavlm", "wav2vec2-conformer"])
def test_the_last_of_listed_convolutions_is_missed(model_type: str) -> None:
    """The config has an entry for each; without the last one these were exact."""
    known = example(model_type, "conv_layers.6")
    rest = {name: info for name, info in known.tensors.items() if "conv_layers.6." not in name}
    assert len(rest) < len(known.tensors)
    with pytest.raises(MapperError, match="7 entries, but 6 convolutions"):
        infer(replace(known, tensors=rest), RULEBOOK)


@pytest.mark.parametrize(
    ("model_type", "lost", "what"),
    [
        (
            "univnet",
            "resblocks.2.",
            "units",
        ),  # the last block, of as many as the config has lists of dilations
        ("univnet", "resblocks.2.resblocks.3.", "location_variable"),  # of as many as such a list has
        ("musicgen_decoder", "lm_heads.1.", "lm_heads"),
        ("musicgen_decoder", "model.decoder.embed_tokens.1.", "tokens"),
    ],
)
def test_the_last_of_what_the_config_counts_is_missed(model_type: str, lost: str, what: str) -> None:
    """Each of these was exact."""
    known = example(model_type, lost)
    assert infer(known, RULEBOOK).reading == "exact"
    rest = {name: info for name, info in known.tensors.items() if not name.startswith(lost)}
    assert len(rest) < len(known.tensors)
    with pytest.raises(MapperError, match=what):
        infer(replace(known, tensors=rest), RULEBOOK)
