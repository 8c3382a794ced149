"""What the operations of an ONNX model show of its layers, and models that are built by it without a config."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import onnxruntime
import pytest
import torch
import transformers
from onnx import helper, numpy_helper

import mapper
from mapper.checkpoint import Observed
from mapper.graphs.reading import read_model
from mapper.graphs.recovery.activations import activation_after
from mapper.graphs.recovery.angles import base_of
from mapper.graphs.recovery.wiring import Wiring
from mapper.graphs.straight.building import build_straight
from mapper.graphs.straight.source import write_model
from mapper.inference.infer import infer
from mapper.rulebook.rulebook import rulebook_of
from mapper.sources import open_source

SIZES = {"vocab_size": 50, "max_position_embeddings": 32}
MODELS = {
    "DistilBertForMaskedLM": {**SIZES, "dim": 32, "hidden_dim": 44, "n_layers": 2, "n_heads": 4},
    "LlamaForCausalLM": {**SIZES, "hidden_size": 32, "intermediate_size": 44, "num_hidden_layers": 2, "num_attention_heads": 4,
                         "num_key_value_heads": 2, "rms_norm_eps": 1e-5, "rope_parameters": {"rope_type": "default", "rope_theta": 5e5}},
}  # fmt: skip


@pytest.fixture(scope="module", params=list(MODELS))
def exported(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Path, Any]:
    """A model of transformers and its classic export, one with and one without folded constants, and no config beside it."""
    kind = getattr(transformers, request.param)
    torch.manual_seed(0)
    config = kind.config_class(**MODELS[request.param])
    model = kind(config).eval()
    model.config.use_cache = False

    def forward(self: Any, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> Any:
        return kind.forward(self, input_ids=input_ids, attention_mask=attention_mask)[0]

    model.__class__ = type(kind.__name__, (kind,), {"forward": forward})
    path = tmp_path_factory.mktemp("onnx") / "x.onnx"
    names = ["input_ids", "attention_mask"]
    axes = {name: {0: "batch", 1: "length"} for name in names}
    ids = torch.arange(10).view(2, 5)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            model, (ids, torch.ones_like(ids)), str(path), input_names=names, dynamic_axes=axes, opset_version=20, dynamo=False,
            do_constant_folding=request.param.startswith("Llama"),
        )  # fmt: skip
    return request.param, path, model


def test_a_graph_without_a_config_is_the_family_and_runs_as_onnxruntime_does(exported: Any) -> None:
    _, path, model = exported
    architecture = mapper.inspect(path).architecture
    assert (architecture.family, architecture.questions) == (model.config.model_type, [])
    ids = torch.arange(7, 28).view(3, 7)
    mask = torch.ones_like(ids)
    mask[1:, -2:] = 0
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    wanted = session.run(None, {"input_ids": ids.numpy(), "attention_mask": mask.numpy()})[0]
    with torch.no_grad():
        found = mapper.build(path)(ids, attention_mask=mask).logits
    seen = mask.bool()
    torch.testing.assert_close(
        found[seen], torch.from_numpy(wanted)[seen], rtol=1e-4, atol=1e-5
    )  # float32, other kernels


def test_a_fact_says_the_node_that_shows_it(exported: Any) -> None:
    name, path, _ = exported
    checkpoint = open_source(path, purpose="headers")
    shown = {one.fact: (one.value, one.source) for one in checkpoint.observed}
    assert shown["attention.heads"][0] == 4
    assert shown["attention.heads"][1].startswith("Reshape /")
    if name.startswith("Llama"):
        wanted = {"rotary.base": 5e5, "rotary.style": "half", "norm.eps": 1e-5, "attention.causal": True,
                  "feed_forward.activation": "silu", "attention.kv_heads": 2, "norm.offset": False}  # fmt: skip
    else:
        wanted = {"attention.causal": False, "rotary": False, "norm.eps": 1e-12, "feed_forward.activation": "gelu",
                  "attention.scaling": "head_dim", "position.counting": "all"}  # fmt: skip
    assert {fact: shown[fact][0] for fact in wanted} == wanted


def test_a_config_is_heard_first_and_layers_that_differ_say_nothing_together(exported: Any) -> None:
    name, path, _ = exported
    if not name.startswith("Distil"):
        return
    rulebook, checkpoint = rulebook_of(()), open_source(path, purpose="headers")
    config = {**MODELS[name], "model_type": "distilbert", "n_heads": 8}
    read = infer(replace(checkpoint, config=config), rulebook)
    assert {(one.value, one.evidence) for one in read.facts if one.name == "attention.heads"} == {
        (8, "config")
    }
    assert read.reading != "exact"  # the graph runs with 4
    assert any("attention.heads is 8" in finding and "shows 4" in finding for finding in read.findings)
    first, *others = [one for one in checkpoint.observed if one.fact == "attention.heads"]
    odd = [*others, Observed(first.fact, first.leaf, 8, first.source)]
    asked = infer(replace(checkpoint, observed=odd), rulebook).questions
    assert others
    assert "attention.heads" in [question.fact for question in asked]


def test_written_straight_a_graph_has_fused_layers_under_their_names(exported: Any) -> None:
    name, path, model = exported
    straight = write_model(read_model(path))
    built = build_straight(straight, "x.onnx")
    has_norms = name.startswith("Llama")
    assert straight.text.count("F.scaled_dot_product_attention(") == 1  # both layers are of one class
    assert straight.text.count("nn.Linear(") == 8 and "(Layer() for _ in range(2))" in straight.text.replace(
        "TransformerBlock", "Layer"
    )
    assert straight.text.count("nn.RMSNorm(") == (3 if has_norms else 0)
    assert "softmax" not in straight.text
    own = dict(built.named_parameters())
    assert {key for key, _ in model.named_parameters()} <= own.keys()
    assert all(torch.equal(own[key], weight) for key, weight in model.named_parameters())
    ids = torch.arange(7, 28).view(3, 7)
    mask = torch.ones_like(ids)
    mask[1:, -2:] = 0
    with torch.no_grad():
        (found,) = built(input_ids=ids, attention_mask=mask).values()
        torch.testing.assert_close(found, model(ids, mask), rtol=1e-4, atol=1e-5)  # float32, in another order


def test_a_masked_softmax_that_may_give_nan_is_not_fused(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("MatMul", ["q", "k"], ["s"]),
        helper.make_node("Add", ["s", "m"], ["t"]),
        helper.make_node("Softmax", ["t"], ["w"]),
        helper.make_node("MatMul", ["w", "v"], ["y"]),
    ]
    value = helper.make_tensor_value_info
    shapes = {"q": [1, 1, 3, 4], "k": [1, 1, 4, 3], "v": [1, 1, 3, 4], "m": [1, 1, 3, 3]}
    graph = helper.make_graph(
        nodes, "g", [value(key, 1, shape) for key, shape in shapes.items()], [value("y", 1, None)]
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)]), tmp_path / "x.onnx")
    assert "scaled_dot_product" not in write_model(read_model(tmp_path / "x.onnx")).text


def constant(name: str, value: float) -> onnx.NodeProto:
    return helper.make_node("Constant", [], [name], value=helper.make_tensor("", 1, [], [value]))


ACTIVATIONS = {
    "silu": [("Sigmoid", "x", "s"), ("Mul", "x s", "y")],
    "quick_gelu": [("Mul", "x 1.702", "a"), ("Sigmoid", "a", "s"), ("Mul", "x s", "y")],
    "gelu": [("Div", "x 1.4142135", "a"), ("Erf", "a", "e"), ("Add", "e 1", "b"), ("Mul", "x b", "c"), ("Mul", "c 0.5", "y")],
    "gelu_new": [("Pow", "x 3", "a"), ("Mul", "0.044715 a", "b"), ("Add", "x b", "c"), ("Mul", "0.7978846 c", "d"), ("Tanh", "d", "e"),
                 ("Add", "1 e", "f"), ("Mul", "x 0.5", "h"), ("Mul", "h f", "y")],
    None: [("Mul", "x 1.5", "a"), ("Sigmoid", "a", "s"), ("Mul", "x s", "y")],
}  # fmt: skip


@pytest.mark.parametrize("word", list(ACTIVATIONS))
def test_activations_of_several_operations(word: str | None, tmp_path: Path) -> None:
    nodes: list[onnx.NodeProto] = []
    for operator, inputs, output in ACTIVATIONS[word]:
        names = inputs.split()
        nodes += [constant(f"{name} of {output}", float(name)) for name in names if name[0].isdigit()]
        names = [f"{name} of {output}" if name[0].isdigit() else name for name in names]
        nodes.append(helper.make_node(operator, names, [output]))
    value = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "g", [value("x", 1, [3])], [value("y", 1, [3])])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)]), tmp_path / "x.onnx")
    found = activation_after(Wiring(read_model(tmp_path / "x.onnx").graph), "x")
    assert (found[0] if found else None) == word


def test_frequencies_of_one_base_and_of_none() -> None:
    def frequencies(base: float) -> list[float]:
        return (base ** (-torch.arange(0, 64, 2).float() / 64)).tolist()

    assert base_of(frequencies(10000.0)) == 10000.0
    assert base_of(frequencies(1e6)) == 1e6
    stretched = frequencies(10000.0)
    assert base_of([*stretched[:20], *(one / 8 for one in stretched[20:])]) is None


def test_settings_in_the_files_metadata_are_its_config(tmp_path: Path) -> None:
    value = helper.make_tensor_value_info
    weight = numpy_helper.from_array(torch.ones(4, 4).numpy(), "fc.weight")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "fc.weight"], ["y"])],
        "g",
        [value("x", 1, [4])],
        [value("y", 1, [4])],
        [weight],
    )
    model = helper.make_model(graph)
    helper.set_model_props(model, {"config": '{"model_type": "made_up"}'})
    onnx.save(model, tmp_path / "x.onnx")
    assert open_source(tmp_path / "x.onnx", purpose="headers").config == {"model_type": "made_up"}
