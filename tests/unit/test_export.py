"""`mapper.export`: one BERT is traced for all tests here, for that takes seconds."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy
import onnx
import onnx_ir as ir
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import nn

import mapper
from mapper.comparing.traces import tensors
from mapper.errors import DifferenceError, HintError, MapperError, MissingSourceError
from mapper.graphs.export import exporting
from mapper.graphs.export.chance import settled, ties
from mapper.graphs.export.exporting import Exported
from mapper.graphs.export.naming import name_interface
from mapper.graphs.export.sizes import Subject, refuse_bound, shapes_of
from mapper.graphs.export.tracing import UntracedError, graph_of, traced
from mapper.graphs.runtime import Runtime
from mapper.sources import open_source
from tests.checkpoints import write_bert

pytestmark = pytest.mark.xdist_group("export")  # one process exports the models that several tests look at


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_bert(tmp_path_factory.mktemp("export") / "bert")


@pytest.fixture(scope="module")
def exported(bert: Path) -> tuple[Exported, Path]:
    path = bert.parent / "bert.onnx"
    return mapper.export(bert, path, external=True), path


def test_names_and_free_extents_are_those_of_the_checkpoint(
    bert: Path, exported: tuple[Exported, Path]
) -> None:
    done, path = exported
    model = onnx.load(path)
    assert {item.name for item in model.graph.initializer} == set(load_file(bert / "model.safetensors"))
    assert done.inputs == {"input_ids": ["batch", "length"], "attention_mask": ["batch", "length"]}
    assert (
        [item.name for item in model.graph.output] == done.outputs == ["last_hidden_state", "pooler_output"]
    )
    assert sorted(done.files) == ["bert.onnx", "bert.onnx.data"]
    assert done.verification is not None and done.verification.equal


def test_the_file_computes_what_the_model_does(bert: Path, exported: tuple[Exported, Path]) -> None:
    ids = torch.arange(20).view(4, 5)
    mask = torch.ones(4, 5, dtype=torch.int64)
    with torch.no_grad():
        wanted = mapper.build(bert)(ids, attention_mask=mask)
    found = Runtime(exported[1])(input_ids=ids, attention_mask=mask)
    torch.testing.assert_close(found["last_hidden_state"], wanted.last_hidden_state)


def test_the_source_is_read_back_from_the_file(bert: Path, exported: tuple[Exported, Path]) -> None:
    texts = [mapper.generate(source).splitlines()[1:-1] for source in (bert, exported[1])]
    assert texts[0] == texts[1]
    assert mapper.inspect(exported[1]).architecture.reading == "exact"


def test_a_file_that_was_changed_since_is_read_as_any_other(
    exported: tuple[Exported, Path], tmp_path: Path
) -> None:
    model = onnx.load(exported[1])
    weight = model.graph.initializer[0]
    for node in model.graph.node:
        node.input[:] = ["other.weight" if name == weight.name else name for name in node.input]
    weight.name = "other.weight"
    onnx.save(model, tmp_path / "other.onnx")
    checkpoint = open_source(tmp_path / "other.onnx", purpose="headers")
    assert any("other tensors than mapper wrote" in note for note in checkpoint.notes)
    assert checkpoint.document is None


def test_nothing_of_this_machine_is_in_the_file(exported: tuple[Exported, Path]) -> None:
    assert b".py" not in exported[1].read_bytes().replace(b"model.py", b"")


def test_what_differs_is_not_kept(bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Runtime.__call__

    def wrong(self: Runtime, **inputs: torch.Tensor) -> dict[str, torch.Tensor]:
        return {name: value + (len(value) == 3) for name, value in run(self, **inputs).items()}

    monkeypatch.setattr(Runtime, "__call__", wrong)
    with pytest.raises(
        DifferenceError, match=r"last_hidden_state, batch 3, length 7, row 0: .*another opset="
    ):
        mapper.export(bert, tmp_path / "bert.onnx", opset=24)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"opset": 26}, "opset 26 is not written: opset= is 18 to 24"),
        ({"path": "model.pt"}, "ends in .onnx"),
        (
            {"inputs": ["pixel_values"]},
            "no input is called 'pixel_values'; it takes input_ids, attention_mask",
        ),
        ({"sizes": {"height": 64}}, "no input has an extent 'height'; they have batch, length"),
        ({"sizes": {"length": 0}}, "length is to be '0': an extent is a number from 1 on, or free"),
        ({"sizes": {"length": 10**9}}, "input_ids of length 1000000000 has more than 268,435,456 numbers"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_traced(
    bert: Path, tmp_path: Path, options: dict[str, object], said: str
) -> None:
    path = tmp_path / str(options.pop("path", "model.onnx"))
    with pytest.raises(HintError, match=said):
        mapper.export(bert, path, **options)  # type: ignore[arg-type]


def test_extents_that_are_asked_for_are_numbers_in_the_file(bert: Path, tmp_path: Path) -> None:
    done = mapper.export(bert, tmp_path / "model.onnx", sizes={"batch": 1, "length": 12})
    assert done.inputs == {"input_ids": [1, 12], "attention_mask": [1, 12]} and done.notes == []
    assert done.verification is not None and done.verification.equal


def test_an_extent_that_was_to_be_free_and_is_not_is_refused() -> None:
    refuse_bound({"height": 64, "batch": "free"}, ["height"], "model")
    with pytest.raises(
        HintError, match="model: batch cannot be free: the model or its graph is for one size"
    ):
        refuse_bound({"batch": "free"}, ["batch"], "model")


def test_several_rows_of_ids_to_a_sequence_have_an_extent_of_their_own() -> None:
    inputs = {"input_ids": {"shape": [4, "length"]}, "attention_mask": {"shape": [1, "length"]}}
    found = shapes_of(cast(Any, SimpleNamespace(inputs=inputs)), ["input_ids", "attention_mask"])
    assert found == {"input_ids": ["rows", "length"], "attention_mask": ["batch", "length"]}


class Noisy(nn.Module):
    """A model that hides some of what it is given, at random unless it is told what."""

    def __init__(self, takes_noise: bool = True) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))
        self.takes_noise = takes_noise

    def forward(self, x: torch.Tensor, noise: torch.Tensor | None = None) -> torch.Tensor:
        if noise is None or not self.takes_noise:
            noise = torch.rand_like(x)
        return x * (noise > 0) * self.scale


def noisy(takes_noise: bool) -> Subject:
    spec = {"shape": ["batch", "patches"], "dtype": "float32"}
    inputs = {"x": spec, "noise": {**spec, "optional": True}}
    checkpoint = SimpleNamespace(source="noisy", config=None)
    architecture = SimpleNamespace(inputs=inputs, facts=[], checkpoint=checkpoint)
    return Subject(cast(Any, architecture), Noisy(takes_noise), ("x",), {})


def test_what_a_model_draws_is_an_input_of_its_file_or_nothing_is_compared() -> None:
    wanted, note = settled(noisy(True), check=True)
    assert wanted == ("x", "noise") and "without it the model draws random numbers" in str(note)
    with pytest.raises(
        MapperError, match=r"^noisy: its forward draws random numbers, so no two runs are alike"
    ):
        settled(noisy(False), check=True)
    assert settled(noisy(False), check=False) == (
        ("x",),
        "the model draws random numbers, and the file others",
    )


class Best(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.topk(2).indices


def test_a_choice_among_equal_scores_is_seen() -> None:
    assert ties(Best(), {"x": torch.tensor([3.0, 1.0, 1.0])})
    assert not ties(Best(), {"x": torch.tensor([3.0, 3.0, 1.0])})
    assert not ties(Best(), {"x": torch.tensor([3.0, 3.0])})


class Towers(nn.Module):
    def forward(self, ids: torch.Tensor, image: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return (ids[:, :4] * mask.sum()) @ image.T


def test_two_batches_that_need_not_be_equal_have_two_names() -> None:
    given = {"ids": torch.ones(2, 7), "image": torch.ones(3, 4), "mask": torch.ones(5, 7)}
    extents = {"ids": ["batch", "length"], "image": ["batch", 4], "mask": ["batch", 7]}
    graph = graph_of(traced(Towers(), given, extents, "towers"), 20, (), "towers")
    named = name_interface(graph, extents, ["scores"], apart=["image"])
    assert {place: word for place, word in named.items() if place.endswith(".0")} == {
        "ids.0": "batch",
        "image.0": "image_batch",
        "mask.0": "batch",
    }
    assert [str(extent) for extent in graph.graph.outputs[0].shape or ()] == ["batch", "image_batch"]


def test_bfloat16_says_why_it_cannot_be_checked(bert: Path, tmp_path: Path) -> None:
    with pytest.raises(MapperError, match="no kernels for bfloat16"):
        mapper.export(bert, tmp_path / "model.onnx", dtype="bfloat16")


def test_a_model_is_verified_against_the_runtime_of_its_own_file(exported: tuple[Exported, Path]) -> None:
    found = mapper.verify(exported[1], "onnxruntime")
    assert found.equal, found
    assert {item.name for item in found.outputs} == {"last_hidden_state", "pooler_output"}


def test_a_built_model_and_a_file_are_compared_on_inputs_of_their_own(
    bert: Path, exported: tuple[Exported, Path]
) -> None:
    model = mapper.build(bert)
    assert mapper.compare(model, exported[1]).equal
    with torch.no_grad():
        model.pooler.dense.bias.add_(1)
    found = mapper.compare(model, exported[1])
    assert found.equal is False
    assert found.first_failure is not None and found.first_failure.output == "pooler_output"


def test_a_file_alone_says_which_inputs_it_takes(exported: tuple[Exported, Path]) -> None:
    runtime = Runtime(exported[1])
    seen = []

    def same(**inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        seen.append(tuple(inputs["input_ids"].shape))
        return tuple(runtime(**inputs).values())

    found = mapper.compare(same, runtime.session)
    assert found.equal and {(2, 11), (3, 7), (1, 11)} == set(seen)
    assert found.notes == [
        "0 is compared with last_hidden_state: the names are not the same",
        "1 is compared with pooler_output: the names are not the same",
    ]


def test_where_every_key_is_hidden_nothing_is_seen_as_in_torch(
    bert: Path, exported: tuple[Exported, Path]
) -> None:
    given = {"input_ids": torch.arange(6).view(1, 6), "attention_mask": torch.zeros(1, 6, dtype=torch.int64)}
    with torch.no_grad():
        wanted = mapper.build(bert)(**given)
    torch.testing.assert_close(Runtime(exported[1])(**given)["last_hidden_state"], wanted.last_hidden_state)


def test_shapes_are_enough_where_nobody_declares_inputs() -> None:
    seen: list[tuple[int, ...]] = []

    def doubled(ids: torch.Tensor, attention_mask: torch.Tensor) -> dict[str, torch.Tensor]:
        assert ids.dtype == attention_mask.dtype == torch.int64
        seen.append(tuple(ids.shape))
        return {"y": ids * 2.0 * attention_mask}

    shapes = {"ids": (["batch", "length"], torch.int64), "attention_mask": ["batch", "length"]}
    assert mapper.compare(doubled, doubled, shapes).equal
    assert set(seen) == {(2, 11), (3, 7), (1, 11)}
    with pytest.raises(TypeError, match=r"the shape of 'x' is \[2.5\]"):
        mapper.compare(doubled, doubled, {"x": [2.5]})


def by_numpy(x: torch.Tensor) -> Any:
    return numpy.asarray(x) * 2 + 1


class Line(nn.Module):
    def forward(self, input: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return input * 2 + 1, input.argmax(-1)


@pytest.mark.parametrize(
    "inputs",
    [
        torch.eye(3),
        numpy.eye(3),
        [torch.eye(3)],
        {"x": numpy.eye(3, dtype="float32")},
        {"x": ["batch", 3]},
        {"one": {"x": torch.eye(3)}, "other": {"x": torch.ones(2, 3)}},
    ],
)
def test_a_module_and_a_function_of_arrays_take_inputs_by_name_or_in_order(inputs: Any) -> None:
    found = mapper.compare(by_numpy, Line(), inputs)
    assert found.equal and found.outputs[0].value == 0, found
    assert "not compared, for by_numpy does not return it: 1" in found.notes


def test_numbers_and_whole_numbers_are_compared() -> None:
    x = {"x": torch.tensor([[0.0, 1.0, 3.0]])}
    assert mapper.compare(lambda x: float(x.sum()), lambda x: x.sum(), x).equal
    found = mapper.compare(lambda x: x.argmax(-1), lambda x: x.argmin(-1), x)
    assert found.first_failure == ("output", "the inputs given", 0, 2.0, "")


def test_outputs_that_nothing_pairs_and_inputs_that_nothing_names_are_said() -> None:
    found = mapper.compare(lambda x: {"y": x}, lambda x: {"z": x[:, :1]}, {"x": [2, 3]})
    assert not found.equal and "other names and shapes: y (2, 3); the reference's: z (2, 1)" in found.notes[0]
    with pytest.raises(MapperError, match="2 inputs are given without names, and the inputs are 'input'"):
        mapper.compare(Line(), Line(), [torch.eye(3), torch.eye(3)])
    with pytest.raises(TypeError, match="inputs are tensors or arrays, by name or in order"):
        mapper.compare(Line(), Line(), 3)


def test_a_file_that_is_not_there_is_said_in_a_line(tmp_path: Path) -> None:
    with pytest.raises(MissingSourceError, match=r"none\.onnx': no such file"):
        mapper.compare(nn.Identity(), tmp_path / "none.onnx")


def test_functions_are_compared_on_given_inputs() -> None:
    x = {"x": torch.tensor([[1.0, 2.0], [3.0, 4.0]])}
    found = mapper.compare(lambda x: {"y": x * 2}, lambda x: {"y": x + x}, x)
    assert found.equal and found.outputs[0].value == 0
    wrong = mapper.compare(lambda x: {"y": x * 2}, lambda x: {"y": x * x}, {"first": x}, tolerance=0.1)
    assert wrong.first_failure == ("y", "first", 1, 0.5, "")
    with pytest.raises(MapperError, match="nothing says what the inputs are"):
        mapper.compare(abs, abs)
    with pytest.raises(TypeError, match="a is a int; compare takes modules"):
        mapper.compare(3, abs)


def test_where_other_image_sizes_fail_the_file_is_for_one_and_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[list[str]] = []

    def written(job: exporting._Job, fixed: list[str]) -> Exported:
        asked.append(list(fixed))
        if "height" not in fixed:
            raise UntracedError("model: torch cannot trace it")
        return Exported("model.onnx", [], 0, 20, {}, [], None)

    monkeypatch.setattr(exporting, "_exported", written)
    subject = SimpleNamespace(asked={"batch": 1})
    job: Any = SimpleNamespace(sizes={"batch": 3, "height": 64, "width": 64}, subject=subject)
    done = exporting._with_fewer_free(job, ["frames"])
    assert asked == [["frames"], ["frames", "height", "width"]]
    assert done.notes == ["a file for other sizes, too, was tried: model: torch cannot trace it"]
    with pytest.raises(UntracedError):
        exporting._with_fewer_free(cast(Any, SimpleNamespace(sizes={"batch": 3})), [])
    subject.asked = {"height": "free"}
    with pytest.raises(UntracedError):
        exporting._with_fewer_free(job, [])


class Halved(nn.Module):
    """An image whose sides are padded to whole windows again and again, as by the stages of Swin."""

    def __init__(self) -> None:
        super().__init__()
        self.stages = nn.ModuleList(nn.AvgPool2d(2) for _ in range(5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for stage in self.stages:
            x = F.pad(x, (0, -x.shape[3] % 3, 0, -x.shape[2] % 3))
            x = stage(x)
        return x


def test_sizes_of_too_many_steps_are_refused_rather_than_solved_for_minutes() -> None:
    given = {"x": torch.ones(2, 1, 64, 64)}
    with pytest.raises(UntracedError, match="on those of the inputs in too many steps"):
        traced(Halved(), given, {"x": ["batch", 1, "height", "width"]}, "halved")
    assert traced(Halved(), given, {"x": ["batch", 1, -1, -1]}, "halved").graph


class Solved(nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.linalg.solve_triangular(a, b, upper=False, unitriangular=True)


def test_a_triangular_system_is_solved_by_products(tmp_path: Path) -> None:
    torch.manual_seed(0)
    inputs = {"a": torch.rand(3, 16, 16), "b": torch.rand(3, 16, 5)}
    program = traced(Solved(), inputs, {"a": ["batch", 16, 16], "b": ["batch", 16, 5]}, "solved")
    ir.save(graph_of(program, 20, (), "solved"), tmp_path / "solved.onnx")
    given = {name: value[:2] for name, value in inputs.items()}
    (found,) = Runtime(tmp_path / "solved.onnx")(**given).values()
    wanted = Solved()(**given)  # of which 16 rows of large numbers above each other leave five digits
    assert float((found - wanted).abs().max() / wanted.abs().max()) < 1e-4


def test_outputs_of_whole_numbers_are_compared_too() -> None:
    assert [name for name, _ in tensors({"codes": torch.ones(2, dtype=torch.int64)}, with_codes=True)] == [
        "codes"
    ]
    assert not list(tensors({"codes": torch.ones(2, dtype=torch.int64)}))


def test_weights_that_one_file_cannot_hold_stand_beside_it(
    exported: tuple[Exported, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = ir.load(exported[1])
    assert not exporting._is_beside(graph, None)
    monkeypatch.setattr(exporting, "INLINE_BYTES", 1000)
    assert exporting._is_beside(graph, None)
    with pytest.raises(HintError, match="do not fit into one ONNX file, which ends at 2 GiB"):
        exporting._is_beside(graph, False)


def test_weights_beside_the_file_are_the_checkpoints(bert: Path, exported: tuple[Exported, Path]) -> None:
    stored = load_file(bert / "model.safetensors")
    found = mapper.build(exported[1]).state_dict()
    assert all(torch.equal(found[name], tensor) for name, tensor in stored.items())
