"""Models of mapper's own as data: the architecture is written, read, and emits the same source."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import mapper
from mapper._build import build_architecture
from mapper.emission import emit
from mapper.errors import FormatError
from mapper.inference import infer
from mapper.operations import OLDEST, VERSION
from mapper.rulebook.rulebook import Rulebook
from mapper.weights.built.blueprint import as_data
from mapper.weights.built.model import architecture_data, data_and_source, module_from, why_not_built
from tests.checkpoints import bert_shapes
from tests.unit.test_build import HOSTILE
from tests.weights.small_models import FAMILIES, KINDS, built, outputs, read, stored, with_weights


def source_from(data: Any) -> str:
    """What is emitted from an architecture as data."""
    found = data_and_source(module_from(data))
    assert found is not None
    return found[1]


@pytest.mark.parametrize("family", list(FAMILIES)[::4])  # others in test_generated_saved
def test_the_source_from_the_data_is_that_of_the_architecture(family: str) -> None:
    architecture = read(family)
    assert source_from(stored(as_data(architecture, {}))) == emit(architecture)


def test_a_property_of_the_config_is_code_of_the_source() -> None:
    """What a rule computes from other sizes: as it was written it is no edit, another one is."""
    made = module_from(stored(as_data(read("gemma2"), {})))
    assert why_not_built(made) == ""
    config = type(made).forward.__globals__["Config"]
    config.embedding_scale = property(lambda config: 1.0)
    assert "Config.embedding_scale" in why_not_built(made)


@pytest.mark.parametrize("family", KINDS)
def test_the_model_from_the_data_computes_the_same_to_the_bit(family: str) -> None:
    model = built(family)
    again = module_from(stored(architecture_data(model)))
    assert all(tensor.is_meta for tensor in again.state_dict().values()) and not again.training
    again.load_state_dict(model.state_dict(), strict=True, assign=True)
    expected = outputs(family, model)
    assert expected
    assert all(map(torch.equal, expected, outputs(family, again)))


@pytest.mark.parametrize("option", ["cache", "hidden_states"])
def test_the_options_of_the_source_come_back(option: str) -> None:
    options = {"cache": False, "hidden_states": False, option: True}
    data = stored(as_data(read("llama"), options))
    assert data["options"] == [option]
    assert source_from(data) == emit(read("llama"), **options)
    model = build_architecture(with_weights(read("llama")), **options)
    assert stored(architecture_data(model)) == data


def test_a_model_that_was_read_back_gives_the_same_data() -> None:
    data = stored(architecture_data(built("mixtral", cache=True)))
    assert stored(architecture_data(module_from(data))) == data


def test_the_data_is_small_and_does_not_grow_with_the_layers() -> None:
    def size(layers: int) -> int:
        shapes = bert_shapes()
        more = {
            name.replace(".layer.1.", f".layer.{at}."): shape
            for name, shape in shapes.items()
            for at in range(1, layers)
            if ".layer.1." in name
        }
        tensors = {name: {"shape": shape, "dtype": "F32"} for name, shape in (shapes | more).items()}
        model = mapper.build({"tensors": tensors, "config": {"model_type": "bert", "num_attention_heads": 2}})
        return len(str(stored(architecture_data(model))))

    # flows that many types share have more to choose from than when they were BERT's alone: 13,271 in place of 11,600,
    # of which 570 are three facts by which one step gives the states of a tower in each of the ways that had a step each;
    # 145 more say whether a tower without a mask hides the padding among its ids; 450 are three facts that had flows of their
    # own: layers that run several times, sub-layers without a residual, and layers that read what is missing in a series
    assert size(2) < 13_900  # of the flows what these blocks compute, without what others do in its place
    assert size(24) < size(2) + 100


def test_dtypes_of_the_checkpoint_come_back_tensor_by_tensor() -> None:
    tensors = {name: {"shape": shape, "dtype": "BF16"} for name, shape in bert_shapes().items()}
    for name in tensors:
        if "LayerNorm" in name:
            tensors[name]["dtype"] = "F32"
    model = mapper.build({"tensors": tensors, "config": {"model_type": "bert", "num_attention_heads": 2}})
    again = module_from(stored(architecture_data(model)))
    assert {name: tensor.dtype for name, tensor in again.state_dict().items()} == {
        name: tensor.dtype for name, tensor in model.state_dict().items()
    }
    assert {tensor.dtype for tensor in again.state_dict().values()} == {torch.bfloat16, torch.float32}


@pytest.mark.parametrize("names", HOSTILE)
def test_names_that_cannot_be_attributes_come_back(names: str) -> None:
    table = {name: {"shape": list(shape), "dtype": "F32"} for name, shape in HOSTILE[names].items()}
    model = mapper.build({"tensors": table})
    again = module_from(stored(architecture_data(model)))
    assert list(again.state_dict()) == list(model.state_dict())


def test_later_rules_do_not_change_what_was_saved(tmp_path: Path) -> None:
    data = stored(as_data(read("bert"), {}))
    page = next(file for file in Rulebook().documents("flows") if file.label == "flows/attention.yaml")
    changed = tmp_path / page.label
    changed.parent.mkdir(parents=True)
    changed.write_text(page.path.read_text().replace("doc:", "doc: now", 1))
    later = Rulebook([tmp_path])
    checkpoint = read("bert").checkpoint
    assert emit(infer(checkpoint, later)) != emit(read("bert"))
    assert source_from(data) == emit(read("bert"))


@pytest.mark.parametrize("version", [VERSION + 1, OLDEST - 1])
def test_operations_of_another_version_are_refused_by_number(version: int) -> None:
    data = stored(as_data(read("bert"), {})) | {"operations": version}
    with pytest.raises(FormatError, match=f"of version {version}, and this mapper has"):
        module_from(data)


def test_fields_that_a_later_version_adds_are_ignored() -> None:
    data = stored(as_data(read("bert"), {}))
    more = copy.deepcopy(data) | {"colour": "blue"}
    more["leaves"][0]["colour"] = more["root"]["colour"] = "blue"
    more["facts"][0].append("blue")
    next(iter(more["flows"].values()))["colour"] = "blue"
    assert source_from(more) == source_from(data)


def test_casts_copies_and_training_leave_the_architecture() -> None:
    model = built("bert")
    data = architecture_data(model)
    for changed in (
        copy.deepcopy(model),
        copy.deepcopy(model).half(),
        copy.deepcopy(model).to(torch.float64),
    ):
        assert architecture_data(changed.train().requires_grad_(False)) == data
    model.register_forward_hook(lambda *_: None)
    model.comment = "mine"  # type: ignore[assignment]
    assert architecture_data(model) == data


def test_other_peoples_models_have_none_and_no_reason() -> None:
    for model in (nn.Linear(2, 2), nn.Sequential(built("bert"))):
        assert architecture_data(model) is None
        assert why_not_built(model) == ""


def test_an_edited_model_has_none_and_says_what_was_edited() -> None:
    def replaced(model: nn.Module) -> None:
        model.encoder.layer[0].attention.self.query = nn.Linear(32, 32, bias=False)

    def added(model: nn.Module) -> None:
        model.classifier = nn.Linear(2, 2)

    def removed(model: nn.Module) -> None:
        del model.encoder.layer[1]

    def resized(model: nn.Module) -> None:
        weight = model.embeddings.word_embeddings.weight
        model.embeddings.word_embeddings.weight = nn.Parameter(weight[:-1])

    def without_bias(model: nn.Module) -> None:
        model.encoder.layer[0].attention.self.query.bias = None

    def other_eps(model: nn.Module) -> None:
        model.embeddings.LayerNorm.eps = 1e-3

    def other_heads(model: nn.Module) -> None:
        model.encoder.layer[0].attention.heads = 1

    def other_forward(model: nn.Module) -> None:
        model.encoder.forward = lambda *args: args[0]

    def other_class(model: nn.Module) -> None:
        model.__class__ = type("Mine", (type(model),), {})

    def parametrized(model: nn.Module) -> None:
        nn.utils.parametrizations.weight_norm(model.encoder.layer[0].attention.self.query)

    edits = (
        replaced,
        added,
        removed,
        resized,
        without_bias,
        other_eps,
        other_forward,
        other_class,
        parametrized,
    )
    for edit in edits:
        model = built("bert")
        edit(model)
        assert architecture_data(model) is None, edit.__name__
        if edit is not other_class:
            assert why_not_built(model).startswith("the model was changed: "), edit.__name__


def test_a_method_put_in_place_of_one_of_the_source_is_noticed() -> None:
    model = built("distilbert")
    layer = type(model.distilbert.transformer.layer[0]) if hasattr(model, "distilbert") else None
    layer = layer or type(model.transformer.layer[0])
    layer.forward = lambda self, x, mask: x
    assert architecture_data(model) is None
    assert "forward is another function" in why_not_built(model)
