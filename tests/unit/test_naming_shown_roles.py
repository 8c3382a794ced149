"""The two maps of a feed-forward network have their roles by their shapes where no word gives them."""

from __future__ import annotations

import pytest

from mapper.checkpoint import Checkpoint
from mapper.errors import ArchitectureError
from mapper.inference import infer
from mapper.rulebook.examples import header
from tests.shipped import RULEBOOK

PHI = header(next(family for family in RULEBOOK.families if family.name == "phi").examples[0])


def renamed(up: str, down: str, **config: object) -> Checkpoint:
    tensors = {
        key.replace("mlp.fc1", f"mlp.{up}").replace("mlp.fc2", f"mlp.{down}"): info
        for key, info in PHI.tensors.items()
    }
    return Checkpoint("x", "manifest", tensors, {**(PHI.config or {}), **config})


@pytest.mark.parametrize(("up", "down"), [("zig", "zag"), ("zag", "zig"), ("0", "2")])
def test_the_wider_side_is_inside_whatever_the_maps_are_called(up: str, down: str) -> None:
    read = infer(renamed(up, down, model_type="unheard_of"), RULEBOOK)
    roles = {
        str(leaf.place).rpartition("mlp.")[2]: leaf.role for leaf in read.leaves if ".mlp." in str(leaf.place)
    }
    assert roles == {up: "up", down: "down"}
    assert read.reading == "unverified"


@pytest.mark.parametrize(
    ("more", "roles"), [(["zog"], {"first", "second", "down"}), (["zog", "zug"], {None})]
)
def test_a_map_more_is_first_or_second_and_of_four_nothing_is_shown(
    more: list[str], roles: set[str | None]
) -> None:
    checkpoint = renamed("zig", "zag", model_type="unheard_of")
    others = {
        key.replace("zig", name): info
        for name in more
        for key, info in checkpoint.tensors.items()
        if "zig" in key
    }
    tensors = {**checkpoint.tensors, **others}
    read = infer(Checkpoint("x", "manifest", tensors, checkpoint.config), RULEBOOK)
    assert {leaf.role for leaf in read.leaves if ".mlp." in str(leaf.place)} == roles
    assert ("feed_forward.gate_last" in {question.fact for question in read.questions}) == ("first" in roles)
    assert read.reading == ("unverified" if "first" in roles else "skeleton")


def test_a_listed_type_is_read_by_its_words_alone() -> None:
    with pytest.raises(ArchitectureError, match="which every phi has"):
        infer(renamed("zig", "zag"), RULEBOOK)


def called(family: str, **names: str) -> dict[str, tuple[str, str | None]]:
    """Block and role of each leaf that has got a name that no vocabulary has, in a family's example."""
    examples = next(each for each in RULEBOOK.families if each.name == family).examples
    first = next(iter(names))
    example = next(each for each in map(header, examples) if any(first in key for key in each.tensors))
    tensors = {}
    for key, info in example.tensors.items():
        for old, new in names.items():
            key = key.replace(f"{old}.", f"{new}.")
        tensors[key] = info
    config = {**(example.config or {}), "model_type": "unheard_of"}
    read = infer(Checkpoint("x", "manifest", tensors, config), RULEBOOK)
    found = {}
    for new in names.values():
        leaf = next(leaf for leaf in read.leaves if f".{leaf.place}".endswith(f".{new}"))
        found[new] = (leaf.block[-1][0] if leaf.block else "", leaf.role)
    return found


def test_the_one_map_left_of_an_attention_is_its_output() -> None:
    assert called("llama", o_proj="zig") == {"zig": ("attention", "output")}
    assert called("llama", o_proj="zig", v_proj="zag") == {  # fewer heads of values than of queries
        "zig": ("attention", "output"),
        "zag": ("attention", "value"),
    }
    assert called("qwen3_moe", o_proj="zig", v_proj="zag") == {
        "zig": ("attention", None),
        "zag": ("attention", None),
    }


def test_a_norm_in_the_folder_of_a_sub_layer_is_that_of_it_and_the_other_that_of_the_other() -> None:
    renamed = {"attention.output.LayerNorm": "attention.zig", "output.LayerNorm": "zag"}
    assert called("bert", **renamed) == {
        "attention.zig": ("layers", "norm_attention"),
        "zag": ("layers", "norm_feed_forward"),
    }


def test_no_folder_and_no_norm_is_placed_by_what_is_left() -> None:
    """`post_attention_layernorm` stands before the feed-forward only where another norm stands before the attention."""
    assert called("llama", input_layernorm="zig") == {"zig": ("layers", None)}


def test_what_ends_in_a_row_for_each_word_is_a_head_with_what_stands_before_it() -> None:
    assert called("llama", lm_head="zig") == {"zig": ("", "lm_head")}
    parts = {
        "cls.predictions.transform.dense": "zig",
        "cls.predictions.transform.LayerNorm": "zag",
        "cls.predictions": "zog",
    }
    assert called("bert", **parts) == {
        "zig": ("lm_head", "dense"),
        "zag": ("lm_head", "norm"),
        "zog": ("lm_head", "decoder_bias"),
    }


def test_the_only_table_is_that_of_words_where_nothing_else_is_read() -> None:
    assert called("llama", embed_tokens="zig") == {"zig": ("embeddings", "token")}


def test_maps_from_what_sees_to_words_are_a_projector_in_the_order_of_their_widths() -> None:
    names = {"multi_modal_projector.linear_1": "span.zig", "multi_modal_projector.linear_2": "span.zag"}
    assert called("llava", **names) == {"span.zig": ("projector", "up"), "span.zag": ("projector", "down")}


def test_a_map_that_has_a_bias_alone_shows_nothing() -> None:
    checkpoint = renamed("zig", "zag", model_type="unheard_of")
    tensors = {key: info for key, info in checkpoint.tensors.items() if not key.endswith("zag.weight")}
    read = infer(Checkpoint("x", "manifest", tensors, checkpoint.config), RULEBOOK)
    assert {leaf.role for leaf in read.leaves if ".mlp." in str(leaf.place)} == {None}
