"""The graph of a reading: where the data goes, what is folded, what stands out."""

from __future__ import annotations

import json
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

import mapper
from mapper.architecture import Architecture
from mapper.emission import emitted
from mapper.inference import infer
from mapper.picture.document import document
from mapper.picture.graph import CHANGED, LOOSE, ONLY, OPERATION, ORDER, PORT, Graph, Node, graph
from mapper.picture.trace import DATA, SIDE, TIE
from mapper.rulebook.examples import header
from mapper.rulebook.rulebook import Rulebook

LLAMA, T5, EXPERTS = "TinyLlama/TinyLlama-1.1B-Chat-v1.0", "google-t5/t5-small", "Qwen/Qwen3-30B-A3B"
CLIP = "openai/clip-vit-base-patch32"


@cache
def read(name: str) -> Architecture:
    return mapper.inspect(name).architecture


@cache
def drawn(name: str) -> Graph:
    architecture = read(name)
    return graph(architecture, emitted(architecture).program)


def node(found: Graph, *path: str) -> Node:
    """The first node under the root by the titles of those around it."""
    at = found.root
    for title in path:
        at = next(child for child in found.inside(at) if child.title == title)
    return at


def flow(found: Graph, level: Node) -> list[str]:
    """The edges of a level by titles: `norm -> attention`, what is no data with its way."""

    def called(identity: int) -> str:
        end = found.nodes[identity]
        return f"({end.title or end.role})" if end.kind in (OPERATION, PORT) else end.title

    return [
        f"{called(edge.start)} -> {called(edge.end)}{'' if edge.way == DATA else f' {edge.way}'}"
        for edge in found.edges
        if edge.level == level.id
    ]


def test_a_pre_norm_layer_adds_what_went_in() -> None:
    found = drawn(LLAMA)
    assert flow(found, node(found, "tower", "layer")) == [
        "(x) -> norm attention",
        "norm attention -> attention",
        "(x) -> (+)",
        "attention -> (+)",
        "(+) -> norm feed forward",
        "norm feed forward -> feed forward",
        "(+) -> (+)",
        "feed forward -> (+)",
        "(+) -> (output)",
    ]


def test_attention_is_drawn_with_its_rotary_embeddings_and_without_masks_and_angles() -> None:
    found = drawn(LLAMA)
    assert flow(found, node(found, "tower", "layer", "attention")) == [
        "(x) -> query",
        "(x) -> key",
        "(x) -> value",
        "query -> (rotary)",
        "key -> (rotary)",
        "(rotary) -> (softmax(QKᵀ)·V)",
        "(rotary) -> (softmax(QKᵀ)·V)",
        "value -> (softmax(QKᵀ)·V)",
        "(softmax(QKᵀ)·V) -> output",
        "output -> (output)",
    ]


def test_cross_attention_reads_the_encoder_at_every_level() -> None:
    found = drawn(T5)
    assert "encoder -> decoder" in flow(found, found.root)
    decoder = node(found, "decoder")
    layer = node(found, "decoder", "layer")
    assert f"(encoder hidden states) -> layer {SIDE}" in flow(found, decoder)
    assert f"(encoder hidden states) -> cross attention {SIDE}" in flow(found, layer)
    inside = flow(found, node(found, "decoder", "layer", "cross attention"))
    assert {"(encoder hidden states) -> key", "(encoder hidden states) -> value", "(x) -> query"} <= set(
        inside
    )


def test_a_bias_that_the_first_layer_has_for_all_leads_to_where_it_is_read() -> None:
    found = drawn(T5)
    assert f"relative bias -> (bias) {SIDE}" in flow(found, node(found, "encoder", "layer", "attention"))
    later = [child for child in found.inside(node(found, "encoder")) if child.title == "layer"][1]
    attention = next(child for child in found.inside(later) if child.title == "attention")
    assert not any("relative bias" in edge for edge in flow(found, attention))


def test_a_tied_head_is_a_tie_to_the_embedding() -> None:
    found = drawn(T5)
    assert f"embeddings -> (linear, weight of token) {TIE}" in flow(found, found.root)


def test_experts_are_one_node_that_the_router_leads_to() -> None:
    found = drawn(EXPERTS)
    moe = node(found, "tower", "layer", "moe")
    assert flow(found, moe) == [
        "(x) -> router map",
        "(x) -> expert",
        "router map -> expert",
        "expert -> (output)",
    ]
    assert node(found, "tower", "layer").count == 48
    expert = node(found, "tower", "layer", "moe", "expert")
    assert expert.count == 128
    assert flow(found, expert)[:4] == ["(x) -> gate", "gate -> (silu)", "(x) -> up", "(silu) -> (×)"]


def test_the_graph_grows_with_what_differs_and_holds_every_byte() -> None:
    found, checkpoint = drawn(EXPERTS), read(EXPERTS).checkpoint
    assert len(found.nodes) < 60
    assert (
        sum(tensor.count for one in found.nodes for tensor in one.tensors)
        == len(checkpoint.tensors)
        == 18_867
    )
    assert found.root.bytes == sum(info.bytes for info in checkpoint.tensors.values())


def test_towers_join_in_the_logits() -> None:
    found = drawn(CLIP)
    edges = flow(found, found.root)
    assert {"visual projection -> (@)", "text projection -> (@)", "logit scale -> (×)"} <= set(edges)
    assert {"(pixel values) -> vision", "(input ids) -> text"} <= set(edges)


def test_what_is_only_asked_for_is_no_data() -> None:
    """Features are made where pictures are given: of the pictures nothing goes past their tower."""
    found = drawn("google/gemma-3-12b-it")
    edges = flow(found, found.root)
    assert "projector -> text" in edges
    assert [edge for edge in edges if edge.startswith("(pixel values)")] == ["(pixel values) -> vision"]


def test_a_mask_that_weights_made_is_data() -> None:
    shipped = Rulebook()
    sam = next(family for family in shipped.families if family.name == "sam")
    architecture = infer(header(sam.examples[0]), shipped)
    found = graph(architecture, emitted(architecture).program)
    edges = flow(found, found.root)
    assert {"(input masks) -> mask prompts", "mask prompts -> (+)", "no mask -> (+)", "vision -> (+)"} <= set(
        edges
    )


def test_stages_stand_apart_one_after_the_other_and_numbers_are_no_data() -> None:
    shipped = Rulebook()
    swin = next(family for family in shipped.families if family.name == "swin")
    architecture = infer(header(swin.examples[0]), shipped)
    found = graph(architecture, emitted(architecture).program)
    stages = [child for child in found.inside(node(found, "tower")) if child.title == "stage"]
    assert [stage.indices for stage in stages] == ["0", "1"]
    joined = {(edge.start, edge.end) for edge in found.edges}
    assert all((one.id, other.id) in joined for one, other in pairwise(stages))
    assert not [one for one in found.nodes if one.kind == PORT and one.title in ("shift", "mask")]
    (joins, *_) = (one for one in found.nodes if one.title == "join windows")
    sources = [
        one.title
        for one in found.nodes
        for edge in found.edges
        if (edge.start, edge.end) == (one.id, joins.id)
    ]
    assert sources == ["output"]  # of the states before the windows it reads the shape alone


def test_layers_that_take_turns_lead_to_each_other_and_the_last_goes_on() -> None:
    found = drawn("ai21labs/Jamba-v0.1")
    tower = node(found, "tower")
    called = {one.id: one.indices or one.title for one in found.inside(tower)}
    even, odd, attention = "0, 2 … 30", "1, 3 … 31", "4, 12, 20, 28"
    edges = [(called[edge.start], called[edge.end]) for edge in found.edges if edge.level == tower.id]
    assert {(even, odd), (odd, even), (odd, attention), (attention, odd), (odd, "final norm")} <= set(edges)
    assert not {(even, attention), (attention, "final norm"), ("embeddings", odd)} & set(edges)


def test_a_skeleton_is_in_the_order_of_its_names_and_claims_no_data(tmp_path: Path) -> None:
    tensors = {f"zig.{at}.zag_{word}.mystery": [3, 5, 7] for at in range(3) for word in "ab"}
    path = tmp_path / "odd.json"
    path.write_text(
        json.dumps({"tensors": {name: {"shape": shape, "dtype": "F32"} for name, shape in tensors.items()}})
    )
    architecture = mapper.inspect(str(path)).architecture
    assert architecture.reading == "skeleton"
    found = graph(architecture, None)
    assert {edge.way for edge in found.edges} == {ORDER}
    assert [one for one in found.nodes if one.mark == LOOSE]
    assert sum(tensor.count for one in found.nodes for tensor in one.tensors) == len(tensors)
    assert document(architecture)["flows"] is False


def test_what_differs_is_told_of_leaves_and_of_all_around_them() -> None:
    architecture = read(LLAMA)
    keys = {f"model.layers.{at}.self_attn.q_proj.weight": ONLY for at in range(22)}
    found = graph(architecture, emitted(architecture).program, keys)
    assert node(found, "tower", "layer", "attention", "query").differs == ONLY
    assert node(found, "tower", "layer").differs == found.root.differs == CHANGED
    assert node(found, "tower", "final norm").differs == ""


@pytest.mark.parametrize("name", [LLAMA, T5])
def test_a_document_is_the_same_each_time_and_points_at_the_line_that_makes_a_module(name: str) -> None:
    one, other = document(read(name)), document(read(name))
    assert json.dumps(one) == json.dumps(other)
    made = {
        entry["title"]: one["source"][entry["lines"][2] - 1].strip()
        for entry in one["nodes"]
        if entry["role"] in ("query", "final_norm")
    }
    assert all(row.startswith("self.") for row in made.values())
    links = [entry["link"] for entry in one["nodes"] if entry["kind"] not in (OPERATION, PORT)]
    assert len(set(links)) == len(links)
