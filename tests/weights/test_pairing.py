"""Whose counterpart is whose: tensors of two sides by role and block, by name, and behind a prefix; fused and turned maps."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

import mapper
from mapper.weights.comparing.pairing import prefixes_between
from tests.checkpoints import BERT, bert_shapes

Tensors = dict[str, Tensor]
HEADS, WIDTH, INNER, WORDS = 2, 8, 16, 29
GPT2 = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_embd": WIDTH, "n_layer": 2, "n_head": HEADS,
        "n_positions": 16, "vocab_size": WORDS, "activation_function": "gelu_new"}  # fmt: skip
NEO = {"model_type": "gpt_neo", "architectures": ["GPTNeoForCausalLM"], "hidden_size": WIDTH, "num_layers": 2,
       "num_heads": HEADS, "max_position_embeddings": 16, "vocab_size": WORDS, "activation_function": "gelu_new",
       "attention_types": [[["global"], 2]], "intermediate_size": INNER}  # fmt: skip


def random(shapes: dict[str, list[int]]) -> Tensors:
    draw = torch.Generator().manual_seed(0)
    return {name: torch.randn(shape, generator=draw) for name, shape in shapes.items()}


def checkpoint(folder: Path, tensors: Tensors, config: dict[str, Any] | None = None) -> Path:
    folder.mkdir()
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / "model.safetensors")
    if config:
        (folder / "config.json").write_text(json.dumps(config))
    return folder


def gpt2() -> Tensors:
    shapes = {"transformer.wte.weight": [WORDS, WIDTH], "transformer.wpe.weight": [16, WIDTH]}
    for at in range(2):
        layer = f"transformer.h.{at}"
        shapes |= {
            f"{layer}.attn.c_attn.weight": [WIDTH, 3 * WIDTH],
            f"{layer}.attn.c_attn.bias": [3 * WIDTH],
        }
        shapes |= {f"{layer}.attn.c_proj.weight": [WIDTH, WIDTH], f"{layer}.attn.c_proj.bias": [WIDTH]}
        shapes |= {f"{layer}.mlp.c_fc.weight": [WIDTH, INNER], f"{layer}.mlp.c_fc.bias": [INNER]}
        shapes |= {f"{layer}.mlp.c_proj.weight": [INNER, WIDTH], f"{layer}.mlp.c_proj.bias": [WIDTH]}
        shapes |= {
            f"{layer}.{norm}.{name}": [WIDTH] for norm in ("ln_1", "ln_2") for name in ("weight", "bias")
        }
    return random(shapes | {f"transformer.ln_f.{name}": [WIDTH] for name in ("weight", "bias")})


def neo(tensors: Tensors) -> Tensors:
    """The same values as plain maps, query, key and value apart, by another family's names."""
    made = {}
    for name, tensor in tensors.items():
        is_map = tensor.dim() == 2 and ".h." in name
        tensor = tensor.T if is_map else tensor
        if "attn.c_attn" in name:
            for part, piece in zip("qkv", tensor.chunk(3), strict=True):
                if is_map:  # its maps of attention have no biases but that of the output
                    made[name.replace("attn.c_attn", f"attn.attention.{part}_proj")] = piece.clone()
        else:
            made[name.replace("attn.c_proj", "attn.attention.out_proj")] = tensor
    return made


def paths(entries: list[Any]) -> list[str]:
    return [entry.path for entry in entries]


def prefixed(prefix: str) -> Callable[[Tensors], Tensors]:
    return lambda tensors: {prefix + name: tensor for name, tensor in tensors.items()}


# ---------------------------------------------------------------------------------------------------------- prefixes
@pytest.mark.parametrize("prefix", ["module.", "_orig_mod.", "model.", "module._orig_mod.", "any.thing."])
@pytest.mark.parametrize("config", [BERT, None])
def test_a_prefix_is_said_and_everything_behind_it_compared(
    prefix: str, config: dict[str, Any] | None, tmp_path: Path
) -> None:
    tensors = random(bert_shapes())
    changed = {**tensors, "pooler.dense.bias": tensors["pooler.dense.bias"] + 1}
    a = checkpoint(tmp_path / "a", tensors, config)
    b = checkpoint(tmp_path / "b", prefixed(prefix)(changed), config)
    found = mapper.diff(a, b)
    assert (found.only_a, found.only_b, found.changed, found.common) == ([], [], [], len(tensors))
    assert found.prefixes == ("", prefix) and not found.renamed
    assert found.equal is False and found.weights_equal is None  # the names differ; the values were not read
    assert f"B has the prefix {prefix}\n" in str(found)
    read = mapper.diff(b, a, values=True)
    assert paths(read.changed) == [f"{prefix}pooler.dense.bias"] and read.common == len(tensors) - 1
    assert f"A has the prefix {prefix}\n" in str(read)


@pytest.mark.parametrize("swapped", [False, True])
def test_what_rests_on_a_config_is_no_difference_to_a_file_that_has_none(
    swapped: bool, tmp_path: Path
) -> None:
    tensors = random(norms("input_layernorm", "post_attention_layernorm"))
    sides = [
        checkpoint(tmp_path / "a", tensors, LLAMA),
        checkpoint(tmp_path / "b", prefixed("module.")(tensors)),
    ]
    found = mapper.diff(*(sides[::-1] if swapped else sides), values=True)
    assert not found.architecture and found.weights_equal is True
    assert str(found).splitlines()[-1].startswith("different in names alone: ")


@pytest.mark.parametrize("names", [["w", "b"], ["0.weight", "2.weight", "2.bias"]])
def test_a_prefix_is_found_where_no_rule_knows_a_name(names: list[str]) -> None:
    table = random({name: [2, at + 2] for at, name in enumerate(names)})
    found = mapper.diff(table, prefixed("module.")(table), values=True)
    assert found.weights_equal is True and found.prefixes == ("", "module.")
    assert str(found).splitlines()[-1] == (
        f"different in names alone: {len(names)} tensors with the same shapes, types and values under other names"
    )


def test_tables_that_share_endings_alone_have_no_prefix() -> None:
    found = mapper.diff({"a.weight": [2, 3], "b.weight": [4, 4]}, {"x.a.weight": [5, 3], "y": [1], "z": [9]})
    assert found.prefixes == ("", "") and len(found.only_a) == 2


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (["w", "v.u"], ["m.w", "m.v.u", "head"], ("", "m.")),
        (["m.w", "m.v.u"], ["w", "v.u"], ("m.", "")),
        (["m.w", "m.v.u"], ["n.o.w", "n.o.v.u"], ("m.", "n.o.")),
        (["w"], ["v"], ("", "")),
        (["0.m.w", "0.m.v"], ["w", "v"], ("0.m.", "")),
    ],
)
def test_prefixes_between_names(a: list[str], b: list[str], expected: tuple[str, str]) -> None:
    assert prefixes_between(a, b) == expected


def test_one_element_of_a_list_is_not_another() -> None:
    found = mapper.diff({"a": [1], "l.0.w": [3]}, {"l.1.w": [3]})
    assert paths(found.only_a) == ["a", "l.0.w"] and paths(found.only_b) == ["l.1.w"]


def test_a_wrapper_inside_of_names_is_no_other_name(tmp_path: Path) -> None:
    tensors = random(bert_shapes())
    wrapped = {
        name.replace(".intermediate.", "._orig_mod.intermediate."): tensor for name, tensor in tensors.items()
    }
    a, b = checkpoint(tmp_path / "a", tensors, BERT), checkpoint(tmp_path / "b", wrapped, BERT)
    found = mapper.diff(a, b, values=True)
    assert found.weights_equal is True and found.architecture == []
    assert "B has _orig_mod. inside 4 names" in str(found)


def test_a_base_model_stands_inside_of_one_with_a_head(tmp_path: Path) -> None:
    tensors = random(bert_shapes())
    headed = {f"bert.{name}": tensor for name, tensor in tensors.items()}
    headed |= random({"classifier.weight": [3, 8], "classifier.bias": [3]})
    a = checkpoint(tmp_path / "a", tensors, BERT)
    b = checkpoint(tmp_path / "b", headed, {**BERT, "architectures": ["BertForSequenceClassification"]})
    found = mapper.diff(a, b, values=True)
    assert (found.only_a, found.changed, paths(found.only_b)) == (
        [],
        [],
        ["classifier.bias", "classifier.weight"],
    )
    text = str(found)
    assert "B has the prefix bert.\n" in text and "B has classifier" in text


# ------------------------------------------------------------------------------------------------------------- roles
def test_roles_are_aligned_where_all_names_differ() -> None:
    found = mapper.diff("google-bert/bert-base-uncased", "distilbert-base-uncased")
    names = {entry.a: entry.b for entry in found.renamed}
    start = "bert.encoder.layer.5", "distilbert.transformer.layer.5"
    assert names[f"{start[0]}.attention.self.query.weight"] == f"{start[1]}.attention.q_lin.weight"
    assert names[f"{start[0]}.output.LayerNorm.gamma"] == f"{start[1]}.output_layer_norm.weight"
    assert not found.only_b and found.common == 105
    assert all(path.startswith(("bert.encoder.layer.", "bert.pooler", "bert.embeddings.token_type", "cls."))
               for path in paths(found.only_a))  # fmt: skip
    assert (
        "bert.encoder.layer.{0..5}.attention.self.key = distilbert.transformer.layer.{0..5}.attention.k_lin"
        in str(found)
    )


def test_a_role_goes_before_a_name() -> None:
    """Of two families that call different norms alike."""
    found = mapper.diff(*({"tensors": norms(*names), "config": config} for names, config in (
        (("input_layernorm", "post_attention_layernorm"), LLAMA),
        (("input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm"), GEMMA2),
    )))  # fmt: skip
    names = {entry.a: entry.b for entry in found.renamed}
    layer = "model.layers.0"
    assert names[f"{layer}.post_attention_layernorm.weight"] == f"{layer}.pre_feedforward_layernorm.weight"
    assert f"{layer}.post_attention_layernorm.weight" in paths(found.only_b)


SIZES = {"hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2,
         "vocab_size": 29, "max_position_embeddings": 32}  # fmt: skip
LLAMA = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], **SIZES}
GEMMA2 = {
    "model_type": "gemma2",
    "architectures": ["Gemma2ForCausalLM"],
    "head_dim": 4,
    "query_pre_attn_scalar": 4,
    **SIZES,
}


def norms(*names: str) -> dict[str, list[int]]:
    layer = "model.layers.0"
    maps = {f"{layer}.self_attn.{at}_proj.weight": [8, 8] for at in "qkvo"}
    maps |= {f"{layer}.mlp.{at}_proj.weight": [16, 8] for at in ("gate", "up")} | {
        f"{layer}.mlp.down_proj.weight": [8, 16]
    }
    return {"model.embed_tokens.weight": [29, 8], "model.norm.weight": [8], **maps} | {
        f"{layer}.{name}.weight": [8] for name in names
    }


# ------------------------------------------------------------------------------------------------------------ layout
@pytest.mark.parametrize("config", [NEO, None])
@pytest.mark.parametrize("swapped", [False, True])
def test_a_fused_and_transposed_map_is_compared_with_plain_ones(
    config: dict[str, Any] | None, swapped: bool, tmp_path: Path
) -> None:
    tensors = gpt2()
    other = neo(tensors)
    other["transformer.h.1.attn.attention.k_proj.weight"][2, 3] += 1.5
    sides = [checkpoint(tmp_path / "a", tensors, GPT2), checkpoint(tmp_path / "b", other, config)]
    found = mapper.diff(*(sides[::-1] if swapped else sides), values=True)
    (change,) = found.changed
    whole, part = (change.b, change.a) if swapped else (change.a, change.b)
    assert (change.kind, change.max_abs_diff, whole["part"]) == ("value", 1.5, "key")
    assert (whole["path"], whole["shape"]) == ("transformer.h.1.attn.c_attn.weight", [WIDTH, WIDTH])
    assert part["path"] == "transformer.h.1.attn.attention.k_proj.weight"
    alone = found.only_b if swapped else found.only_a
    assert paths(alone) == [f"transformer.h.{at}.attn.c_attn.bias" for at in (0, 1)]
    assert not (found.only_a if swapped else found.only_b)
    fused = [entry for entry in found.layout if entry.kind == "fused"]
    assert len(fused) == 2 and all(entry.transposed for entry in fused)
    assert sum(entry.kind == "transposed" for entry in found.layout) == 6
    parts = [
        f"transformer.h.0.attn.attention.{word}_proj.weight" for word in "qkv"
    ]  # as they stand in the map
    assert (fused[0].a if swapped else fused[0].b) == parts
    letter = "B" if swapped else "A"
    assert f"one map in {letter}, transposed" in str(found)


def test_headers_alone_pair_fused_and_split_maps(tmp_path: Path) -> None:
    tensors = gpt2()
    a, b = checkpoint(tmp_path / "a", tensors, GPT2), checkpoint(tmp_path / "b", neo(tensors), NEO)
    found = mapper.diff(a, b)
    assert not found.changed and not found.only_b
    assert found.equal is False and {entry.kind for entry in found.layout} == {"fused", "transposed"}


def test_maps_of_one_name_are_compared_the_other_way_round_too(tmp_path: Path) -> None:
    """Square ones as well, whose shape does not tell."""
    tensors = gpt2()
    turned = {
        name: tensor.T if tensor.dim() == 2 and ".h." in name else tensor for name, tensor in tensors.items()
    }
    found = mapper.diff(tensors, turned, values=True)
    assert found.weights_equal is True and found.equal is False
    assert len(found.layout) == 8 and {entry.kind for entry in found.layout} == {"transposed"}
    told = [line for line in str(found).splitlines() if line.endswith(": transposed")]
    assert len(told) == 4 and "  transformer.h.{0..1}.attn.c_attn: transposed" in told, (
        told
    )  # which, and once each
    assert str(found).splitlines()[-1] == (
        f"different in layout alone: {len(tensors)} tensors with the same names, shapes, types and values in another layout"
    )


def fused_neox(parts: Tensors) -> Tensor:
    """Query, key and value of each head side by side."""
    q, k, v = (parts[at].view(HEADS, -1, *parts[at].shape[1:]) for at in "qkv")
    return torch.stack((q, k, v), dim=1).flatten(0, 2)


def test_each_head_side_by_side_is_taken_apart(tmp_path: Path) -> None:
    config = {"model_type": "gpt_neox", "architectures": ["GPTNeoXForCausalLM"], "tie_word_embeddings": False, **SIZES,
              "hidden_act": "gelu"}  # fmt: skip
    shapes = {"gpt_neox.embed_in.weight": [29, 8], "embed_out.weight": [29, 8]}
    layer = "gpt_neox.layers.0"
    shapes |= {
        f"{layer}.{norm}.{name}": [8]
        for norm in ("input_layernorm", "post_attention_layernorm")
        for name in ("weight", "bias")
    }
    shapes |= {f"{layer}.attention.dense.weight": [8, 8], f"{layer}.attention.dense.bias": [8]}
    shapes |= {f"{layer}.mlp.dense_h_to_4h.weight": [16, 8], f"{layer}.mlp.dense_h_to_4h.bias": [16]}
    shapes |= {f"{layer}.mlp.dense_4h_to_h.weight": [8, 16], f"{layer}.mlp.dense_4h_to_h.bias": [8]}
    both = random(shapes | {f"gpt_neox.final_layer_norm.{name}": [8] for name in ("weight", "bias")})
    parts = {name: random(dict.fromkeys("qkv", shape)) for name, shape in (("weight", [8, 8]), ("bias", [8]))}
    fused = {f"{layer}.attention.query_key_value.{name}": fused_neox(of) for name, of in parts.items()}
    split = {f"{layer}.attention.{at}_proj.{name}": of[at] for name, of in parts.items() for at in "qkv"}
    a, b = checkpoint(tmp_path / "a", both | fused, config), checkpoint(tmp_path / "b", both | split, config)
    found = mapper.diff(a, b, values=True)
    assert found.weights_equal is True, str(found)
    split[f"{layer}.attention.v_proj.bias"][5] += 2
    save_file(both | split, b / "model.safetensors")
    (change,) = mapper.diff(a, b, values=True).changed
    assert (change.a["part"], change.max_abs_diff) == ("value", pytest.approx(2))


@pytest.mark.parametrize("order", [("gate", "up"), ("up", "gate")])
def test_gate_and_up_in_one_map_are_compared_with_two(order: tuple[str, str], tmp_path: Path) -> None:
    split = random(norms("input_layernorm", "post_attention_layernorm"))
    layer = "model.layers.0"
    fused = {
        name: tensor
        for name, tensor in split.items()
        if not any(at in name for at in ("q_proj", "k_proj", "v_proj", "gate", "up_proj"))
    }
    fused[f"{layer}.self_attn.qkv_proj.weight"] = torch.cat(
        [split[f"{layer}.self_attn.{at}_proj.weight"] for at in "qkv"]
    )
    fused[f"{layer}.mlp.gate_up_proj.weight"] = torch.cat(
        [split[f"{layer}.mlp.{at}_proj.weight"] for at in order]
    )
    phi3 = {**LLAMA, "model_type": "phi3", "architectures": ["Phi3ForCausalLM"], "pad_token_id": 0}
    a, b = checkpoint(tmp_path / "a", split, LLAMA), checkpoint(tmp_path / "b", fused, phi3)
    found = mapper.diff(a, b, values=True)
    assert not found.only_a and not found.only_b
    assert found.weights_equal is (order == ("gate", "up"))  # of this family the gate comes first
    assert "= model.layers.0.mlp.gate_up_proj: one map in B" in str(found)


def test_a_fused_map_that_does_not_fit_is_no_counterpart() -> None:
    tensors = norms("input_layernorm", "post_attention_layernorm")
    fused = {
        name: shape for name, shape in tensors.items() if "gate_proj" not in name and "up_proj" not in name
    }
    fused["model.layers.0.mlp.gate_up_proj.weight"] = [40, 8]
    found = mapper.diff({"tensors": tensors, "config": LLAMA}, {"tensors": fused, "config": LLAMA})
    assert paths(found.only_b) == ["model.layers.0.mlp.gate_up_proj.weight"] and len(found.only_a) == 2


def test_the_cost_of_pairing_is_linear(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted in tensors that are asked for their counterpart, without a clock."""
    from mapper.weights.comparing import pairing

    asked = []
    original = pairing._starts
    monkeypatch.setattr(pairing, "_starts", lambda name: asked.append(name) or original(name))
    monkeypatch.setattr("mapper.weights.comparing.sides.Side.placed", lambda self: None)
    for count in (100, 1000):
        asked.clear()
        table = {f"layers.{at}.w": [1] for at in range(count)}
        found = mapper.diff(table, {f"module.{name}": shape for name, shape in table.items()})
        assert found.common == count and len(asked) <= 2 * count
