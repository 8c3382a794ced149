from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn

import mapper
from mapper.errors import FormatError, StructureError, StructureUnavailable, UnsupportedLeaf
from mapper.sources import open_source
from tests.checkpoints import write_bert

FORMS = ("folder", "file.safetensors")


@pytest.fixture(params=FORMS)
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return tmp_path / str(request.param)


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv1d(3, 4, 3, padding="same", bias=False),
        nn.BatchNorm1d(4),
        nn.Sequential(nn.LeakyReLU(0.3), nn.Dropout(0.25)),
        nn.LSTM(5, 6, 2, batch_first=True),
    )


class Own(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 2)
        self.scale = nn.Parameter(torch.ones(2, dtype=torch.complex128))
        self.register_buffer("seen", torch.tensor(7))
        self.register_buffer("cache", torch.ones(9), persistent=False)


def same(one: nn.Module, other: nn.Module) -> bool:
    mine, theirs = one.state_dict(), other.state_dict()
    return list(mine) == list(theirs) and all(
        mine[key].dtype == theirs[key].dtype and torch.equal(mine[key], theirs[key]) for key in mine
    )


def document(path: Path) -> dict[str, Any]:
    if path.is_dir():
        return dict(json.loads((path / "mapper.json").read_text()))
    with safe_open(path, "pt") as file:
        return dict(json.loads(file.metadata()["mapper"]))


def rewrite(path: Path, change: Any) -> None:
    """The document of a save, changed by somebody."""
    if path.is_dir():
        made = change(document(path))
        text = made if isinstance(made, str) else json.dumps(made)
        (path / "mapper.json").write_text(text, encoding="utf-8", errors="surrogatepass")
        return
    with safe_open(path, "pt") as file:
        metadata = file.metadata()
    made = change(document(path))
    metadata["mapper"] = made if isinstance(made, str) else json.dumps(made)
    save_file(load_file(path), path, metadata)


def test_a_model_comes_back_with_weights_settings_and_outputs(path: Path) -> None:
    model = network().eval()
    mapper.save(path, model, aux={"step": 3})
    loaded = mapper.load(path)
    x = torch.randn(2, 3, 5)
    assert same(loaded.model, model)
    assert repr(loaded.model) == repr(model)
    assert torch.equal(loaded.model(x)[0], model(x)[0])
    assert loaded.aux == {"step": 3}
    assert isinstance(loaded, tuple) and loaded._fields == ("model", "aux")


def test_without_aux_it_is_empty(path: Path) -> None:
    mapper.save(path, nn.ReLU())
    made, aux = mapper.load(path)
    assert (type(made), aux) == (nn.ReLU, {})


def test_training_flags_and_what_is_frozen_come_back(path: Path) -> None:
    model = network()
    model[1].eval()
    model[0].weight.requires_grad_(False)
    mapper.save(path, model)
    made = mapper.load(path).model
    assert [module.training for module in made.modules()] == [module.training for module in model.modules()]
    assert [p.requires_grad for p in made.parameters()] == [p.requires_grad for p in model.parameters()]


def test_types_of_every_kind_of_parameter_come_back(path: Path) -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 2), nn.Embedding(2, 2))
    model[0].half()
    model[1].weight = nn.Parameter(torch.ones(2, 2, dtype=torch.complex128))
    model[2].weight = nn.Parameter(torch.ones(2, 2, dtype=torch.int8), requires_grad=False)
    mapper.save(path, model)
    made = mapper.load(path).model
    assert same(made, model)
    assert not made[2].weight.requires_grad


def test_tied_tensors_are_stored_once_and_tied_again(path: Path) -> None:
    model = nn.Sequential(nn.Embedding(5, 3), nn.Linear(3, 5, bias=False), nn.LSTM(3, 3))
    model[1].weight = model[0].weight
    model.append(model[2])
    mapper.save(path, model)
    weights = load_file(path / "model.safetensors" if path.is_dir() else path)
    assert "0.weight" in weights and "1.weight" not in weights and not any(key[0] == "3" for key in weights)
    made = mapper.load(path).model
    assert made[0].weight is made[1].weight
    assert made[2] is made[3]
    assert same(made, model)


def test_any_safetensors_reader_can_use_the_states(path: Path) -> None:
    model = network()
    mapper.save(path, model, aux={"t": torch.ones(2)}, metadata={"by": "me", "n": 1})
    file = path / "model.safetensors" if path.is_dir() else path
    found = {key: value for key, value in load_file(file).items() if not key.startswith("__aux__.")}
    assert found.keys() == model.state_dict().keys()
    with safe_open(file, "pt") as opened:
        assert opened.metadata()["format"] == "pt"
        assert opened.metadata()["by"] == "me"


def test_the_folder_has_a_document_and_source_beside_the_tensors(tmp_path: Path) -> None:
    mapper.save(tmp_path / "out", network(), aux={"t": torch.ones(2)})
    assert sorted(os.listdir(tmp_path / "out")) == [
        "aux.safetensors",
        "mapper.json",
        "model.py",
        "model.safetensors",
    ]
    found = document(tmp_path / "out")
    assert (found["format"], found["version"][0]) == ("mapper", 1)
    assert found["wrote"] == {"mapper": mapper.__version__, "torch": torch.__version__}


def test_the_source_is_the_model(path: Path) -> None:
    shared = nn.Linear(4, 4)
    model = nn.Sequential(
        shared, nn.TransformerEncoderLayer(4, 2, 8, activation="gelu"), shared, nn.Linear(4, 4)
    )
    model[3].weight = shared.weight
    model[1].dropout = nn.Identity()
    mapper.save(path, model)
    text = (path / "model.py").read_text() if path.is_dir() else open_metadata(path)["mapper.source"]
    place: dict[str, Any] = {}
    exec(text, place)
    assert repr(place["build"]()) == repr(model)
    assert same(place["load"](path / "model.safetensors" if path.is_dir() else path), model)


def open_metadata(path: Path) -> dict[str, str]:
    with safe_open(path, "pt") as file:
        return dict(file.metadata())


def test_the_stored_source_is_never_run(path: Path, tmp_path: Path) -> None:
    mapper.save(path, network())
    trap = f"open({str(tmp_path / 'ran')!r}, 'w').close()\n"
    if path.is_dir():
        (path / "model.py").write_text(trap)
    else:
        save_file(load_file(path), path, open_metadata(path) | {"mapper.source": trap})
    assert same(mapper.load(path).model, network())
    mapper.load_weights(network(), path)
    mapper.inspect(path)
    assert not (tmp_path / "ran").exists()


def test_a_model_of_another_kind_is_saved_with_its_states(path: Path) -> None:
    model = Own()
    mapper.save(path, model, aux={"a": 1})
    with pytest.raises(StructureUnavailable, match="model="):
        mapper.load(path)
    other = Own()
    with torch.no_grad():
        other.scale.zero_()
    made, aux = mapper.load(path, model=other)
    assert made is other and aux == {"a": 1}
    assert same(other, model)


def test_the_error_says_why_there_is_no_architecture(tmp_path: Path) -> None:
    model = mapper.build(write_bert(tmp_path / "bert"))
    model.pooler = nn.Identity()
    mapper.save(tmp_path / "out", model)
    with pytest.raises(StructureUnavailable, match=r"no architecture \(the model was changed"):
        mapper.load(tmp_path / "out")
    mapper.save(tmp_path / "out", nn.Linear(1, 1))
    with pytest.raises(StructureUnavailable, match="folder is"):
        mapper.load(tmp_path / "out" / "model.safetensors")


def test_a_model_that_mapper_built_comes_back(path: Path) -> None:
    model = mapper.build(write_bert(path.parent / "bert"))
    mapper.save(path, model, aux={"t": torch.ones(2)})
    words = torch.tensor([[1, 5, 9]])
    for made in (mapper.load(path).model, mapper.build(path)):
        assert torch.equal(made(input_ids=words).last_hidden_state, model(input_ids=words).last_hidden_state)
        assert not made.training
    assert json.loads(mapper.inspect(path).to_json())["reading"] == "exact"
    mapper.save(path, mapper.load(path).model)
    assert same(mapper.load(path).model, model)
    assert not path.is_dir() or (path / "config.json").exists()


def test_filling_a_model_has_the_rules_of_load_weights(path: Path) -> None:
    mapper.save(path, nn.Sequential(nn.Linear(2, 3), nn.LayerNorm(2)))
    other = nn.Sequential(nn.Linear(2, 4), nn.LayerNorm(2))
    before = other[0].weight.clone()
    with pytest.raises(StructureError, match="shape"):
        mapper.load(path, model=other)
    assert torch.equal(other[0].weight, before)
    mapper.load(path, model=other, strict=False)
    with torch.device("meta"):
        empty = nn.Sequential(nn.Linear(2, 3), nn.LayerNorm(2))
    assert not mapper.load(path, model=empty).model[0].weight.is_meta


def test_load_weights_takes_what_save_wrote(path: Path) -> None:
    model = nn.Sequential(nn.Embedding(5, 3), nn.Linear(3, 5, bias=False))
    model[1].weight = model[0].weight
    mapper.save(path, model, aux={"t": torch.ones(3)})
    untied = nn.Sequential(nn.Embedding(5, 3), nn.Linear(3, 5))
    report = mapper.load_weights(untied, path)
    assert report.ok and report.absent == ["1.bias"]
    assert torch.equal(untied[1].weight, model[0].weight) and not untied[1].bias.any()


def test_a_save_is_a_source_like_any_other(path: Path) -> None:
    mapper.save(path, network(), aux={"t": torch.ones(3, dtype=torch.complex128)})
    checkpoint = open_source(path, purpose="headers")
    assert list(checkpoint.tensors) == list(network().state_dict())
    assert mapper.diff(path, network()).equal is None  # the values are other ones, and not read


def test_types_stored_as_bytes_have_their_own_names(path: Path) -> None:
    mapper.save(path, Own())
    checkpoint = open_source(path, purpose="weights")
    assert checkpoint.tensors["scale"] == ((2,), "C128")
    assert checkpoint.read is not None
    assert checkpoint.read(["scale"])["scale"].dtype is torch.complex128


def test_floating_states_can_be_had_as_another_type(path: Path) -> None:
    mapper.save(path, network())
    made = mapper.load(path, dtype=torch.bfloat16).model
    assert made[0].weight.dtype is torch.bfloat16
    assert made[1].num_batches_tracked.dtype is torch.int64
    assert mapper.load(path, dtype="float16").model[0].weight.dtype is torch.float16
    for odd in (torch.int8, 16):
        with pytest.raises(TypeError, match="floating"):
            mapper.load(path, dtype=odd)  # type: ignore[arg-type]
    assert mapper.load(path, device="meta").model[0].weight.is_meta


def test_values_out_of_the_range_of_a_type_are_told(path: Path) -> None:
    model = nn.Linear(2, 2)
    model.weight.data.fill_(1e6)
    mapper.save(path, model)
    with pytest.warns(UserWarning, match="weight are out of the range"):
        assert mapper.load(path, dtype=torch.float16).model.weight.isinf().all()


def test_the_memory_order_comes_back_and_with_it_the_last_bit_of_outputs(path: Path) -> None:
    model = nn.Sequential(nn.Conv2d(8, 16, 3), nn.Linear(4, 4)).to(memory_format=torch.channels_last)
    model[1].weight = nn.Parameter(torch.randn(4, 4).t())
    mapper.save(path, model)
    made = mapper.load(path).model
    assert [p.stride() for p in made.parameters()] == [p.stride() for p in model.parameters()]
    assert same(made, model)


def test_training_goes_on_in_memory_and_not_in_the_file(path: Path) -> None:
    mapper.save(path, nn.Linear(2, 2))
    made = mapper.load(path).model
    with torch.no_grad():
        made.weight.fill_(9.0)
    assert not torch.equal(mapper.load(path).model.weight, made.weight)
    mapper.save(path, made)
    assert torch.equal(mapper.load(path).model.weight, made.weight)


def test_a_model_in_a_wrapper_is_saved_without_it(path: Path) -> None:
    mapper.save(path, nn.DataParallel(network()))
    assert same(mapper.load(path).model, network())


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.state: Any = None

    def get_extra_state(self) -> Any:
        return self.state

    def set_extra_state(self, state: Any) -> None:
        self.state = state


def test_extra_state_of_modules_is_kept(path: Path) -> None:
    model = nn.ModuleList([Counting(), nn.Linear(1, 1)])
    model[0].state = {"n": (1, torch.ones(2))}
    mapper.save(path, model, aux={"0": torch.zeros(1)})
    other = nn.ModuleList([Counting(), nn.Linear(1, 1)])
    assert mapper.load(path, model=other).aux == {"0": torch.zeros(1)}
    assert other[0].state["n"][0] == 1 and torch.equal(other[0].state["n"][1], torch.ones(2))
    model[0].state = {1, 2}
    with pytest.raises(UnsupportedLeaf, match="extra state"):
        mapper.save(path, model)


@pytest.mark.parametrize(
    ("model", "aux", "where"),
    [
        (network(), {"opt": {"hooks": [1, print]}}, "aux['opt']['hooks'][1]"),
        (nn.Linear(2, 2, device="meta"), None, "weight"),
        (nn.Sequential(nn.LazyLinear(2)), None, "0.weight"),
        (nn.ModuleDict({"__aux__": nn.Linear(1, 1)}), None, "__aux__.weight"),
    ],
)
def test_what_cannot_be_stored_is_named_before_a_byte_is_written(
    path: Path, model: nn.Module, aux: Any, where: str
) -> None:
    mapper.save(path, nn.Linear(1, 1))
    before = {file: file.read_bytes() for file in path.parent.rglob("*") if file.is_file()}
    with pytest.raises(UnsupportedLeaf) as caught:
        mapper.save(path, model, aux=aux)
    assert caught.value.path == where and where in str(caught.value)
    assert {file: file.read_bytes() for file in path.parent.rglob("*") if file.is_file()} == before


def test_metadata_is_json_or_refused(path: Path) -> None:
    mapper.save(path, network(), metadata={"a": [1, None, {"b": "ü"}]})
    assert document(path)["metadata"] == {"a": [1, None, {"b": "ü"}]}
    for odd in ({"a": (1, 2)}, {"a": object()}, {1: 2}, {"a": float("nan")}):
        with pytest.raises(UnsupportedLeaf):
            mapper.save(path, network(), metadata=odd)  # type: ignore[arg-type]


def test_nothing_is_overwritten_where_that_is_not_asked_for(path: Path) -> None:
    mapper.save(path, nn.Linear(1, 1), overwrite=False)
    with pytest.raises(FileExistsError):
        mapper.save(path, nn.Linear(2, 2), overwrite=False)
    assert mapper.load(path).model.in_features == 1


def test_a_folder_of_somebody_else_is_not_replaced_and_files_of_others_stay(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "tokenizer.json").write_text("{}")
    with pytest.raises(FileExistsError, match="did not write"):
        mapper.save(tmp_path / "out", network())
    (tmp_path / "out" / "tokenizer.json").unlink()
    mapper.save(tmp_path / "out", network(), aux={"t": torch.ones(1)})
    (tmp_path / "out" / "tokenizer.json").write_text("{}")
    mapper.save(tmp_path / "out", Own())
    assert sorted(os.listdir(tmp_path / "out")) == ["mapper.json", "model.safetensors", "tokenizer.json"]


def test_a_missing_path_is_a_missing_file(tmp_path: Path) -> None:
    for name in ("nothing", "nothing.safetensors", "owner/name"):
        with pytest.raises(FileNotFoundError):
            mapper.load(tmp_path / name)
        with pytest.raises(FileNotFoundError):
            mapper.load(name)
    with pytest.raises(FileNotFoundError):
        mapper.save(tmp_path / "no" / "where", network())
    with pytest.raises(TypeError):
        mapper.load(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="Module"):
        mapper.save(tmp_path / "x", {})  # type: ignore[arg-type]


# ---- versions and damage


def test_a_later_minor_version_is_read_and_what_is_unknown_ignored(path: Path) -> None:
    mapper.save(path, network(), aux={"a": 1})
    rewrite(path, lambda found: {**found, "version": [1, 99], "novelty": {"x": [1]}, "wrote": 3})
    made, aux = mapper.load(path)
    assert same(made, network()) and aux == {"a": 1}


@pytest.mark.parametrize("version", [[2, 0], [10**30, 0], [0, 9]])
def test_another_major_version_is_refused_with_both_named(path: Path, version: list[int]) -> None:
    model = network()
    mapper.save(path, model)
    rewrite(path, lambda found: {"format": "mapper", "version": version, "aux": "another thing"})
    for call in (
        mapper.load,
        lambda p: mapper.load_weights(model, p),
        lambda p: mapper.load_states(p, model),
    ):
        with pytest.raises(FormatError, match=rf"{version[0]}\.{version[1]}.*1\.0"):
            call(path)


BROKEN = {
    "cut": lambda found: json.dumps(found)[:-9],
    "list": lambda found: "[]",
    "empty": lambda found: "{}",
    "not json": lambda found: "mapper",
    "deep": lambda found: '{"a":' * 100_000 + "1" + "}" * 100_000,
    "digits": lambda found: '{"format": ' + "1" * 5_000 + "}",
    "format": lambda found: {**found, "format": "other"},
    "version": lambda found: {**found, "version": "1"},
    "tied list": lambda found: {**found, "tied": []},
    "tied number": lambda found: {**found, "tied": {"x": 3}},
    "tied to nothing": lambda found: {**found, "tied": {"0.x": "nothing"}},
    "tied to itself": lambda found: {**found, "tied": {"0.weight": "0.weight"}},
    "tied shape": lambda found: {**found, "tied": {"0.bias": "1.weight"}},
    "absent": lambda found: {**found, "absent": [3]},
    "raw": lambda found: {**found, "raw": {"0.weight": {"dtype": "complex128", "shape": [1]}}},
    "raw dtype": lambda found: {**found, "raw": {"0.weight": {"dtype": "object", "shape": [1]}}},
    "raw name": lambda found: {**found, "raw": {"nothing": {"dtype": "complex128", "shape": [1]}}},
    "architecture": lambda found: {**found, "architecture": 3},
    "architecture kind": lambda found: {**found, "architecture": {"kind": "pickle", "model": "x"}},
    "architecture model": lambda found: {**found, "architecture": {"kind": "stock"}},
    "architecture generated": lambda found: {**found, "architecture": {"kind": "generated", "model": {}}},
    "another model": lambda found: {
        **found,
        "architecture": {"kind": "stock", "model": {"class": "Linear", "settings": {"in_features": 1, "out_features": 1}}},
    },
    "aux": lambda found: {**found, "aux": {"root": {"torch.tensor": "77"}}},
    "aux kind": lambda found: {**found, "aux": [3]},
    "training": lambda found: {**found, "training": {"mode": True, "others": ["nothing"]}},
    "placement": lambda found: {**found, "placement": [3]},
    "frozen": lambda found: {**found, "frozen": [[]]},
    "training kind": lambda found: {**found, "training": {"mode": True, "others": [[]]}},
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_document_is_a_format_error_that_names_the_file(
    tmp_path: Path, form: str, name: str
) -> None:
    path = tmp_path / form
    mapper.save(path, network(), aux={"t": torch.ones(1)})
    rewrite(path, BROKEN[name])
    with pytest.raises(FormatError) as caught:
        mapper.load(path)
    assert "\n" not in str(caught.value)
    assert path.name in str(caught.value)


def test_a_cut_file_is_a_format_error(path: Path) -> None:
    mapper.save(path, network(), aux={"t": torch.ones(100)})
    for file in [path] if path.is_file() else sorted(path.glob("*.safetensors")):
        whole = file.read_bytes()
        for size in (0, 5, 200, len(whole) - 1):
            file.write_bytes(whole[:size])
            with pytest.raises(FormatError, match=file.name):
                mapper.load(path)
        file.write_bytes(whole)
    mapper.load(path)
