from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import mapper
from mapper._build import build_architecture
from mapper._compiling import compile_source
from mapper._trial import input_cases
from mapper.architecture import Architecture, Fact
from mapper.comparing.traces import Difference, Trace, compare, difference, other_steps, tensors, trace
from mapper.comparing.verification import Verification
from mapper.comparing.verify import _check
from mapper.emission import emit
from mapper.errors import MapperError, SourceError
from mapper.inference import infer
from mapper.rulebook.examples import header
from tests.checkpoints import write_bert, write_manifest
from tests.shipped import RULEBOOK


@pytest.fixture
def bert(tmp_path: Path) -> Path:
    """A checkpoint with its generated file beside it."""
    folder = write_bert(tmp_path / "bert")
    (folder / "model.py").write_text(mapper.generate(folder))
    return folder


def edited(folder: Path, old: str, new: str) -> Path:
    """The generated file after somebody changed a line."""
    text = (folder / "model.py").read_text()
    assert old in text
    path = folder / "edited.py"
    path.write_text(text.replace(old, new))
    return path


def test_equal_tensors_do_not_differ() -> None:
    assert difference("x", torch.ones(2, 3), torch.ones(2, 3)).value == 0


def test_a_difference_is_a_share_of_the_largest_value() -> None:
    assert difference("x", torch.tensor([101.0, 0.0]), torch.tensor([100.0, 0.0])).value == pytest.approx(
        0.01
    )
    assert difference("x", torch.tensor([0.5]), torch.tensor([0.25])).value == 0.25


def test_other_shapes_differ_without_bound() -> None:
    found = difference("x", torch.ones(2), torch.ones(3))
    assert found.value == math.inf
    assert found.note == "shape (2,), the reference has (3,)"


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_value_that_is_not_finite_on_one_side_differs_without_bound(value: float) -> None:
    assert difference("x", torch.tensor([1.0, value]), torch.ones(2)).value == math.inf
    assert difference("x", torch.ones(2), torch.tensor([1.0, value])).value == math.inf


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_value_that_is_not_finite_on_both_sides_is_never_equal(value: float) -> None:
    both = torch.tensor([1.0, value])
    found = difference("x", both, both.clone())
    assert (found.value, found.note) == (math.inf, "not finite in the model and in the reference")
    assert found.rows == (0.0, math.inf)


def test_values_that_are_not_finite_in_padded_places_are_not_compared() -> None:
    mine, mask = torch.zeros(2, 3, 4), torch.tensor([[1, 1, 1], [1, 1, 0]])
    mine[1, 2] = math.nan
    assert difference("x", mine, mine.clone(), mask).value == 0


def test_several_rows_of_one_sequence_share_its_mask() -> None:
    mine, mask = torch.zeros(4, 3, 5), torch.tensor([[1, 1, 1], [1, 1, 0]])
    other = mine.clone()
    other[2:, 2] = 9.0
    assert difference("x", mine, other, mask).value == 0
    other[1, 2] = 0.5
    assert difference("x", mine, other, mask).rows == (0, 0.5, 0, 0)


def test_padded_places_are_not_compared() -> None:
    mine, mask = torch.zeros(2, 3, 4), torch.tensor([[1, 1, 1], [1, 1, 0]])
    other = mine.clone()
    other[1, 2] = 9.0
    assert difference("x", mine, other, mask).value == 0
    assert difference("x", mine[:, 0], other[:, 2], mask).value == 1


def test_only_numbers_with_a_point_are_outputs() -> None:
    found = dict(
        tensors(
            {"a": torch.ones(1), "ids": torch.ones(1, dtype=torch.long), "b": (torch.ones(2), None), "c": "x"}
        )
    )
    assert list(found) == ["a", "b.0"]


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(2, 2)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.inner(x), x


def test_a_trace_has_what_each_module_gave_and_leaves_no_hook() -> None:
    model = Twice()
    found = trace(model, {"x": torch.ones(1, 2)})
    assert list(found.outputs) == ["0", "1"]
    assert list(found.blocks) == ["inner"]
    assert not model.inner._forward_hooks


def test_a_trace_that_fails_leaves_no_hook() -> None:
    model = Twice()
    with pytest.raises(RuntimeError):
        trace(model, {"x": torch.ones(1, 3)})
    assert not model.inner._forward_hooks


def test_blocks_are_compared_in_the_order_of_computation() -> None:
    mine = Trace({}, {"b": torch.ones(1), "a": torch.ones(1), "own": torch.ones(1)})
    other = Trace({}, {"a": torch.zeros(1), "b": torch.ones(1)})
    assert [(item.name, item.value) for item in compare(mine, other)[1]] == [("b", 0), ("a", 1)]


def test_a_generated_file_is_equal_to_itself(bert: Path) -> None:
    found = mapper.verify(bert, against=str(bert / "model.py"))
    assert found.equal is True
    assert {item.name: item.value for item in found.outputs} == {"last_hidden_state": 0, "pooler_output": 0}


def test_an_edited_file_names_the_first_block_that_departs(bert: Path) -> None:
    file = edited(bert, "x = x + self.token_type_embeddings", "x = x - self.token_type_embeddings")
    found = mapper.verify(file, against=str(bert / "model.py"))
    assert found.equal is False
    assert not found.passed
    assert found.first_departure is not None
    assert found.first_departure.name == "embeddings.LayerNorm"
    assert "first block that departs: embeddings.LayerNorm" in str(found)


def test_a_change_within_one_layer_is_found_there(bert: Path) -> None:
    file = edited(bert, "F.gelu(", "F.relu(")
    found = mapper.verify(file, against=str(bert / "model.py"))
    assert found.first_departure is not None
    assert found.first_departure.name.startswith("encoder.layer.0.output")


def test_a_mask_that_is_dropped_shows_in_padded_inputs_alone(bert: Path) -> None:
    file = edited(bert, "mask = padding_mask(attention_mask)", "mask = None")
    assert mapper.verify(file, against=str(bert / "model.py")).equal is False


def test_the_first_to_differ_is_named_with_its_inputs_and_row(bert: Path) -> None:
    file = edited(bert, "mask = padding_mask(attention_mask)", "mask = None")
    found = mapper.verify(file, against=str(bert / "model.py"))
    assert found.first_failure is not None
    assert found.first_failure[:3] == ("last_hidden_state", "right padding", 1)  # the row that is padded
    assert "first to differ: last_hidden_state, right padding, row 1: " in str(found)
    document = found.to_json()["first_failure"]
    assert (document["inputs"], document["row"], document["why"]) == ("right padding", 1, "")


@pytest.mark.parametrize(
    ("key", "value", "first"),
    [
        ("pooler.dense.bias", math.nan, ("pooler_output", "plain", 0)),
        ("encoder.layer.1.output.dense.bias", math.inf, ("last_hidden_state", "plain", 0)),
        (
            "embeddings.word_embeddings.weight",
            math.nan,
            ("last_hidden_state", "right padding", 1),
        ),  # the pad's
    ],
)
def test_a_model_with_values_that_are_not_finite_is_not_equal_to_itself(
    bert: Path, key: str, value: float, first: tuple[str, str, int]
) -> None:
    config = json.loads((bert / "config.json").read_text())
    (bert / "config.json").write_text(json.dumps({**config, "pad_token_id": 0}))
    stored = load_file(bert / "model.safetensors")
    stored[key][0] = value
    save_file(stored, bert / "model.safetensors")
    found = mapper.verify(bert, against=str(bert / "model.py"))
    assert found.equal is False and not found.passed
    assert found.first_failure is not None
    assert found.first_failure[:3] == first
    assert found.first_failure.why == "not finite in the model and in the reference"
    document = found.to_json()
    assert document["outputs"][first[0]] is None and document["first_failure"]["value"] is None
    json.dumps(document, allow_nan=False)


def test_outputs_that_are_one_number_are_noted(bert: Path) -> None:
    stored = load_file(bert / "model.safetensors")
    save_file({key: torch.zeros_like(value) for key, value in stored.items()}, bert / "model.safetensors")
    found = mapper.verify(bert, against=str(bert / "model.py"))
    assert found.equal is True
    assert found.notes == ["every output is one number throughout, so equal values show little"]


def test_a_block_that_departs_is_another_step_where_a_later_one_agrees() -> None:
    def block(name: str, value: float, fed: float | None) -> Difference:
        return Difference(name, value, fed=fed)

    blocks = [
        block("model.embed", 0.9, None),  # scales inside
        block("model.layers.0.query", 0, 0),
        block("model.layers.0.attention", 0.9, 0),  # holds the norm
        block("model.layers.0.up", 0, 0),
        block("model.layers.1.query", 0.5, 0.5),
        block("model.layers.1.position", 0, 0.5),  # gives the same whatever it takes
        block("model.layers.1.attention", 0.5, 0.5),
        block("decoder.layers.0.query", 0, 0),
    ]
    assert other_steps(blocks, 1e-4) == {"model.embed", "model.layers.0.attention"}


def with_config(name: str, **config: Any) -> tuple[Architecture, nn.Module]:
    architecture, model = example(name)
    known = {**(architecture.checkpoint.config or {}), **config}
    return infer(replace(architecture.checkpoint, config=known), RULEBOOK), model


def test_ids_with_a_meaning_stand_for_no_word() -> None:
    special = {
        "pad_token_id": 3,
        "eos_token_id": [4, 5],
        "image_token_index": 6,
        "text_config": {"boi_token_id": 7},
    }
    cases = dict(input_cases(*with_config("bert", **special)))
    words = cases["plain"]["input_ids"]
    assert not set(words.flatten().tolist()) & {3, 4, 5, 6, 7}
    assert (cases["right padding"]["input_ids"][1, -4:] == 3).all()
    assert (cases["left padding"]["input_ids"][1, :4] == 3).all()
    assert torch.equal(cases["right padding"]["input_ids"][0], words[0])


def test_a_padding_id_outside_the_vocabulary_is_not_made_up() -> None:
    cases = dict(input_cases(*with_config("bert", pad_token_id=10**6)))
    assert torch.equal(cases["right padding"]["input_ids"], cases["plain"]["input_ids"])


def test_a_text_ends_with_its_end_before_the_padding() -> None:
    architecture, model = example("bart")
    end = next(fact.value for fact in architecture.facts if fact.name == "vocab_size") - 1
    fact = Fact("head.end_id", end, "*", "config", "eos_token_id")
    architecture.facts = [item for item in architecture.facts if item.name != "head.end_id"] + [fact]
    cases = dict(input_cases(architecture, model))
    assert (cases["plain"]["input_ids"][:, -1] == end).all()
    assert cases["right padding"]["input_ids"][1, -5] == end
    assert cases["left padding"]["input_ids"][1, -1] == end


def test_a_wider_tolerance_is_the_callers(bert: Path) -> None:
    file = edited(bert, "norm_eps: float = 1e-12", "norm_eps: float = 1e-6")
    exact = mapper.verify(file, against=str(bert / "model.py"), tolerance=1e-9)
    assert exact.equal is False
    assert mapper.verify(file, against=str(bert / "model.py"), tolerance=0.1).equal is True


def test_without_a_reference_the_models_own_checks_run(bert: Path) -> None:
    (bert / "config.json").write_text(
        json.dumps({**json.loads((bert / "config.json").read_text()), "architectures": None})
    )
    found = mapper.verify(bert)
    assert found.equal is None
    assert found.passed
    assert [name for name, _, _ in found.checks] == [
        "weights load strictly",
        "outputs are finite",
        "padding changes nothing",
    ]
    assert "against nothing" in str(found)
    assert found.notes


def test_without_a_reference_a_model_that_reads_padding_fails(bert: Path) -> None:
    (bert / "config.json").write_text(
        json.dumps({**json.loads((bert / "config.json").read_text()), "architectures": None})
    )
    found = mapper.verify(edited(bert, "mask = padding_mask(attention_mask)", "mask = None"))
    assert not found.passed
    assert [name for name, passed, _ in found.checks if not passed] == ["padding changes nothing"]


def test_outputs_that_are_not_finite_are_named(bert: Path) -> None:
    stored = load_file(bert / "model.safetensors")
    stored["pooler.dense.bias"][0] = math.nan
    save_file(stored, bert / "model.safetensors")
    (bert / "config.json").write_text(
        json.dumps({**json.loads((bert / "config.json").read_text()), "architectures": None})
    )
    checks = {name: (passed, seen) for name, passed, seen in mapper.verify(bert).checks}
    passed, seen = checks["outputs are finite"]
    assert not passed
    assert "pooler_output" in seen
    assert "last_hidden_state" not in seen


def example(name: str) -> tuple[Architecture, nn.Module]:
    """The model of a family's first example with random weights."""
    family = next(family for family in RULEBOOK.families if family.name == name)
    architecture = infer(header(family.examples[0]), RULEBOOK)
    model = build_architecture(architecture)
    draw = torch.Generator().manual_seed(0)
    weights = {
        key: torch.randn(value.shape, generator=draw) * 0.1 for key, value in model.state_dict().items()
    }
    model.load_state_dict(weights, assign=True)
    return architecture, model


@pytest.mark.parametrize("name", ["llama", "mamba", "mixtral", "bart", "t5"])
def test_what_goes_on_from_ids_is_held_to_causality(name: str) -> None:
    architecture, model = example(name)
    found = Verification("x", None)
    _check(found, model, architecture)
    assert found.passed
    assert found.checks[-1][0] == "later tokens change nothing before them"


def test_a_decoder_that_sees_what_comes_fails() -> None:
    architecture, model = example("llama")
    text = emit(architecture).replace("is_causal=mask is None", "is_causal=False")
    leaking = compile_source(text, "leaking").Model()
    leaking.load_state_dict(model.state_dict())
    found = Verification("x", None)
    _check(found, leaking.eval(), architecture)
    assert [name for name, passed, _ in found.checks if not passed] == [
        "later tokens change nothing before them"
    ]


def test_the_document_has_no_value_that_json_lacks(bert: Path) -> None:
    file = edited(
        bert,
        "x = self.LayerNorm(x)"
        if "x = self.LayerNorm(x)" in (bert / "model.py").read_text()
        else "return self.LayerNorm(x)",
        "return self.LayerNorm(x) / 0",
    )
    document = mapper.verify(file, against=str(bert / "model.py")).to_json()
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    assert document["equal"] is False


def test_a_manifest_has_nothing_to_compare(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="a manifest has no weights"):
        mapper.verify(write_manifest(tmp_path / "manifest.json"))


def test_a_skeleton_does_not_run(tmp_path: Path) -> None:
    save_file({"a.fc.weight": torch.ones(2, 2)}, tmp_path / "model.safetensors")
    with pytest.raises(SourceError, match="a skeleton does not run"):
        mapper.verify(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def (", "does not run: SyntaxError"),
        ("raise ValueError('x')", "does not run: ValueError: x"),
        ("x = 1", "defines no class Model"),
        ("from torch import nn\nclass Model(nn.Module): ...", "does not take the weights"),
    ],
)
def test_a_file_that_is_no_model_is_an_error_that_names_it(bert: Path, text: str, message: str) -> None:
    (bert / "broken.py").write_text(text)
    with pytest.raises(SourceError, match=rf"broken\.py: {message}"):
        mapper.verify(bert / "broken.py", against=str(bert / "model.py"))


def test_a_forward_that_fails_is_an_error_that_names_the_file(bert: Path) -> None:
    file = edited(bert, "x = x + self.token_type_embeddings", "x = x[:, :, :3] + self.token_type_embeddings")
    with pytest.raises(MapperError, match=r"edited\.py: the forward fails"):
        mapper.verify(file, against=str(bert / "model.py"))


def test_another_reference_is_refused(bert: Path) -> None:
    with pytest.raises(SourceError, match="'onnx' is no reference"):
        mapper.verify(bert, against="onnx")


def test_the_file_of_another_checkpoint_says_what_does_not_fit(bert: Path, tmp_path: Path) -> None:
    save_file({"a.weight": torch.ones(2, 2)}, tmp_path / "model.safetensors")
    with pytest.raises(SourceError, match="does not take the weights"):
        mapper.verify(bert / "model.py", weights=tmp_path)
