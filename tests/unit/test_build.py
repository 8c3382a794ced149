from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import mapper
from mapper.errors import MapperError
from tests.checkpoints import BERT, bert_shapes, write_bert, write_manifest

IDS = torch.arange(14).reshape(2, 7)
HOSTILE: dict[str, dict[str, tuple[int, ...]]] = {
    "keywords": {"class.def.weight": (4, 4), "import.weight": (4, 4), "None.weight": (3, 3)},
    "members of a module": {"forward.weight": (4, 4), "type.weight": (3, 3), "training.bias": (3,), "_modules": (3,)},
    "members of a dict": {"a.keys.weight": (2, 2), "a.items.weight": (2, 2), "b.get": (3,), "b.copy": (2,), "c.update": (2,)},
    "code": {'__import__("os").system("false")': (2, 2), 'a";import os;"': (2, 2), "x\ny.weight": (2, 2), "a'''b.weight": (2, 2)},
    "quotes": {'"""q.weight': (2, 3), "\\.weight": (2, 3), 'a\\".weight': (2, 3), "{x}.weight": (2, 3), "%s.weight": (2, 3)},
    "empty words": {"a..b.weight": (2, 2), ".weight": (3,), "w.": (2,)},
    "long": {"a" * 3000 + ".weight": (2, 3), "b" * 3000 + ".weight": (2, 3), "a" * 2999 + ".weight": (2, 3)},
    "deep": {".".join(["a"] * 50) + ".weight": (2, 2)},
    "numbers": {"0.weight": (2, 2), "2.weight": (3, 3), "00.weight": (2, 2), "m.1.weight": (2, 2), "m.norm.weight": (3,)},
    "lists of lists": {f"{i}.{j}.weight": (2, 3) for i in range(2) for j in range(2)},
    "far numbers": {"layers.999999.weight": (2, 3), "layers.5.weight": (2, 3)},
    "slashes": {"a/b/layer_0/kernel": (4, 4), "a/b/layer_0/bias": (4,)},
    "other scripts": {"é.weight": (2, 3), "e.weight": (2, 3), "日本.weight": (2, 3), "a.٣.weight": (2, 3), "a.²5.weight": (2, 3)},
    "shapes": {"s": (), "t.weight": (0,), "big.weight": (1, 1, 1, 1, 1, 1)},
    "names of the file": {"self.weight": (2, 2), "config.weight": (2, 2), "torch.weight": (2, 2), "nn.weight": (2, 2), "F.bias": (2,), "Model.weight": (2, 2)},
    "machinery": {"__class__.weight": (2, 2), "__dict__": (2,), "__init__.weight": (2, 2), "__getattr__": (2,)},
}  # fmt: skip


def imported(text: str, folder: Path) -> ModuleType:
    """The generated file as Python imports it."""
    path = folder / "generated_model.py"
    path.write_text(text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(f"generated_{abs(hash(str(path)))}", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def written(tensors: dict[str, Tensor], folder: Path) -> Path:
    save_file(tensors, folder / "model.safetensors")
    return folder / "model.safetensors"


def kinds(tensors: dict[str, Tensor]) -> dict[str, tuple[torch.Size, torch.dtype]]:
    return {name: (tensor.shape, tensor.dtype) for name, tensor in tensors.items()}


def test_the_state_dict_is_that_of_the_file(tmp_path: Path) -> None:
    folder = write_bert(tmp_path / "bert")
    stored = load_file(folder / "model.safetensors")
    state = mapper.build(folder).state_dict()
    assert kinds(state) == kinds(stored)
    assert all(torch.equal(state[name], stored[name]) for name in stored)


def test_the_model_comes_ready_to_evaluate(tmp_path: Path) -> None:
    assert not mapper.build(write_bert(tmp_path / "bert")).training


def test_the_built_model_and_the_generated_file_agree_to_the_bit(tmp_path: Path) -> None:
    folder = write_bert(tmp_path / "bert")
    loaded = imported(mapper.generate(folder), tmp_path).load(folder)
    with torch.no_grad():
        one, other = mapper.build(folder)(input_ids=IDS), loaded(input_ids=IDS)
    assert torch.equal(one.last_hidden_state, other.last_hidden_state)
    assert torch.equal(one.pooler_output, other.pooler_output)


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="this system does not list its mappings")
def test_weights_are_mapped_from_the_file_and_not_copied(tmp_path: Path) -> None:
    file = written({f"layers.{at}.weight": torch.randn(256, 128) for at in range(4)}, tmp_path)
    model = mapper.build(file)
    ranges = [
        [int(end, 16) for end in line.split(" ")[0].split("-")]
        for line in Path("/proc/self/maps").read_text().splitlines()
        if line.endswith(str(file))
    ]
    for name, tensor in model.state_dict().items():
        at = tensor.data_ptr()
        assert any(start <= at < end for start, end in ranges), name


def test_training_leaves_the_file_as_it_is(tmp_path: Path) -> None:
    folder = write_bert(tmp_path / "bert")
    before = (folder / "model.safetensors").read_bytes()
    model = mapper.build(folder).train()
    model(input_ids=IDS).last_hidden_state.square().mean().backward()
    torch.optim.SGD(model.parameters(), lr=0.1).step()
    assert (folder / "model.safetensors").read_bytes() == before
    stored = load_file(folder / "model.safetensors")["embeddings.word_embeddings.weight"]
    assert not torch.equal(model.state_dict()["embeddings.word_embeddings.weight"], stored)


def test_two_models_of_one_file_are_trained_apart(tmp_path: Path) -> None:
    folder = write_bert(tmp_path / "bert")
    one, other = mapper.build(folder), mapper.build(folder)
    with torch.no_grad():
        for parameter in one.parameters():
            parameter.zero_()
    assert all(parameter.any() for parameter in other.parameters())


def test_what_is_trained_loads_again(tmp_path: Path) -> None:
    folder = write_bert(tmp_path / "bert")
    model = mapper.build(folder)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(0.5)
    save_file(model.state_dict(), folder / "model.safetensors")
    again = mapper.build(folder)
    assert torch.equal(again(input_ids=IDS).last_hidden_state, model(input_ids=IDS).last_hidden_state)


def test_a_manifest_gives_its_module_on_the_meta_device(tmp_path: Path) -> None:
    model = mapper.build(write_manifest(tmp_path / "manifest.json"))
    assert {tensor.device.type for tensor in model.state_dict().values()} == {"meta"}
    assert {name: list(tensor.shape) for name, tensor in model.state_dict().items()} == bert_shapes()


def test_the_module_of_a_manifest_takes_weights(tmp_path: Path) -> None:
    model = mapper.build(write_manifest(tmp_path / "manifest.json"))
    folder = write_bert(tmp_path / "bert")
    model.load_state_dict(load_file(folder / "model.safetensors"), strict=True, assign=True)
    with torch.no_grad():
        wanted = mapper.build(folder)(input_ids=IDS).last_hidden_state
        assert torch.equal(model(input_ids=IDS).last_hidden_state, wanted)


def test_a_manifest_keeps_its_types() -> None:
    tensors = {
        "a.weight": {"shape": [4, 4], "dtype": "BF16"},
        "b.weight": {"shape": [4, 4], "dtype": "F16"},
        "c": {"shape": [3], "dtype": "I64"},
        "d.weight": {"shape": [4, 4], "dtype": "F32"},
    }
    state = mapper.build({"tensors": tensors}).state_dict()
    assert [state[name].dtype for name in tensors] == [
        torch.bfloat16,
        torch.float16,
        torch.int64,
        torch.float32,
    ]


def test_types_of_the_file_are_kept(tmp_path: Path) -> None:
    tensors = {
        "a.weight": torch.randn(4, 4, dtype=torch.bfloat16),
        "a.bias": torch.randn(4, dtype=torch.float32),
        "b.weight": torch.randn(4, 4, dtype=torch.float16),
        "c.position_ids": torch.arange(4)[None],
        "d.table": torch.ones(4, 4, dtype=torch.int32),
        "mask": torch.ones(4, dtype=torch.bool),
    }
    file = written(tensors, tmp_path)
    assert kinds(mapper.build(file).state_dict()) == kinds(tensors)
    assert kinds(imported(mapper.generate(file), tmp_path).load(file).state_dict()) == kinds(tensors)


def test_another_type_changes_numbers_with_a_point_alone(tmp_path: Path) -> None:
    file = written({"a.weight": torch.randn(4, 4), "position_ids": torch.arange(4)}, tmp_path)
    state = mapper.build(file, dtype=torch.bfloat16).state_dict()
    assert {name: tensor.dtype for name, tensor in state.items()} == {
        "a.weight": torch.bfloat16,
        "position_ids": torch.int64,
    }


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_a_model_runs_in_another_type(dtype: torch.dtype, tmp_path: Path) -> None:
    folder = write_bert(tmp_path / "bert")
    with torch.no_grad():
        exact = mapper.build(folder)(input_ids=IDS).last_hidden_state
        rough = mapper.build(folder, dtype=dtype)(input_ids=IDS).last_hidden_state
    assert rough.dtype == dtype
    assert (rough.float() - exact).abs().max() < 0.1


def test_a_checkpoint_of_a_smaller_type_runs_in_it(tmp_path: Path) -> None:
    folder = write_bert(tmp_path / "bert")
    stored = {name: t.bfloat16() for name, t in load_file(folder / "model.safetensors").items()}
    save_file(stored, folder / "model.safetensors")
    assert mapper.build(folder)(input_ids=IDS).last_hidden_state.dtype == torch.bfloat16


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_names_become_modules_with_their_weights(case: str, tmp_path: Path) -> None:
    tensors = {name: torch.randn(shape) for name, shape in HOSTILE[case].items()}
    file = written(tensors, tmp_path)
    model = mapper.build(file)
    module = imported(mapper.generate(file), tmp_path)
    renames = getattr(module, "RENAMED", {})
    names = {".".join(renames.get(word, word) for word in name.split(".")): name for name in tensors}
    assert len(names) == len(tensors)
    for state in (model.state_dict(), module.load(file).state_dict()):
        assert set(state) == set(names)
        assert all(torch.equal(state[new], tensors[old]) for new, old in names.items())


def test_names_that_can_be_attributes_need_no_table(tmp_path: Path) -> None:
    file = written({"config.weight": torch.randn(2, 3), "self.x.weight": torch.randn(2, 3)}, tmp_path)
    assert "RENAMED" not in mapper.generate(file)


def test_one_name_for_a_tensor_and_a_folder_is_an_error_that_says_so(tmp_path: Path) -> None:
    file = written({"a": torch.zeros(2), "a.b.weight": torch.zeros(2, 2)}, tmp_path)
    with pytest.raises(MapperError, match="'a' is both a tensor and a folder of tensors"):
        mapper.build(file)


def test_a_skeleton_is_typed_and_its_forward_says_what_is_missing(tmp_path: Path) -> None:
    model = mapper.build(
        written({"blocks.0.fc.weight": torch.randn(4, 3), "blocks.0.fc.bias": torch.randn(4)}, tmp_path)
    )
    (linear,) = [part for part in model.modules() if isinstance(part, nn.Linear)]
    assert (linear.in_features, linear.out_features) == (3, 4)
    with pytest.raises(RuntimeError, match="a skeleton: "):
        model(torch.zeros(1, 3))


def test_the_output_is_a_dataclass_with_the_names_of_the_reference(tmp_path: Path) -> None:
    out = mapper.build(write_bert(tmp_path / "bert"))(input_ids=IDS)
    assert list(vars(out)) == ["last_hidden_state", "pooler_output"]


def test_hidden_states_are_an_option(tmp_path: Path) -> None:
    folder = write_bert(tmp_path / "bert")
    with torch.no_grad():
        out = mapper.build(folder, hidden_states=True)(input_ids=IDS)
    assert len(out.hidden_states) == BERT["num_hidden_layers"] + 1
    assert torch.equal(out.hidden_states[-1], out.last_hidden_state)


def test_a_state_dict_in_memory_is_built_without_a_copy() -> None:
    tensors = {"a.weight": torch.randn(4, 4), "a.bias": torch.randn(4)}
    state = mapper.build(tensors).state_dict()
    assert all(state[name].data_ptr() == tensor.data_ptr() for name, tensor in tensors.items())


def test_the_source_of_a_built_model_can_be_read(tmp_path: Path) -> None:
    import inspect

    model = mapper.build(write_bert(tmp_path / "bert"))
    assert inspect.getsource(type(model)).startswith("class Model(nn.Module):")
