"""What two sources have in common and where they differ, as data."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file
from torch import nn

import mapper
from mapper.errors import FormatError, MissingSourceError, SourceError
from mapper.weights.comparing.differences import natural
from tests.checkpoints import BERT, bert_shapes, write_bert, write_manifest

nan, inf = float("nan"), float("inf")


def shaped(**paths: list[int]) -> dict[str, list[int]]:
    return {path.replace("__", "."): shape for path, shape in paths.items()}


def only(entries: list[dict[str, object]]) -> list[object]:
    return [entry["path"] for entry in entries]


def value_change(a: torch.Tensor, b: torch.Tensor) -> dict[str, object] | None:
    found = mapper.diff({"w": a}, {"w": b}, values=True)
    return dict(found.changed[0]) if found.changed else None


class Tied(nn.Module):
    def __init__(self, tie: bool = True) -> None:
        super().__init__()
        self.embed = nn.Embedding(5, 3)
        self.head = nn.Linear(3, 5, bias=False)
        if tie:
            self.head.weight = self.embed.weight


# ------------------------------------------------------------------------------------------------------- headers
def test_the_document_is_as_described() -> None:
    a = {
        "tensors": {
            "same": [2],
            "x.a": {"shape": [2, 3], "dtype": "F16"},
            "s": [2],
            "d": {"shape": [4], "dtype": "BF16"},
        }
    }
    b = {"tensors": {"same": [2], "y.b": [], "s": [3], "d": {"shape": [4], "dtype": "F32"}}}
    assert mapper.diff(a, b).as_dict() == {
        "a": "manifest",
        "b": "manifest",
        "equal": False,
        "weights_equal": False,
        "values": False,
        "common": 1,
        "prefixes": {"a": "", "b": ""},
        "renamed": [],
        "layout": [],
        "only_a": [{"path": "x.a", "shape": [2, 3], "dtype": "F16"}],
        "only_b": [{"path": "y.b", "shape": [], "dtype": "F32"}],
        "changed": [
            {
                "path": "d",
                "kind": "dtype",
                "a": {"shape": [4], "dtype": "BF16"},
                "b": {"shape": [4], "dtype": "F32"},
            },
            {
                "path": "s",
                "kind": "shape",
                "a": {"shape": [2], "dtype": "F32"},
                "b": {"shape": [3], "dtype": "F32"},
            },
        ],
        "architecture": [],
    }


def test_a_tensor_of_another_shape_and_dtype_is_told_once_as_another_shape() -> None:
    found = mapper.diff({"w": torch.zeros(2)}, {"w": torch.zeros(3, dtype=torch.int64)})
    assert [(entry.path, entry.kind, entry.a["dtype"], entry.b["dtype"]) for entry in found.changed] == [
        ("w", "shape", "F32", "I64")
    ]


def test_members_of_an_entry_are_attributes_too() -> None:
    (entry,) = mapper.diff({"w": torch.zeros(2)}, {}).only_a
    assert (entry.path, entry.shape, entry.dtype) == (entry["path"], entry["shape"], entry["dtype"])
    with pytest.raises(AttributeError, match="has path, shape, dtype, not 'kind'"):
        entry.kind


def test_paths_stand_in_natural_order() -> None:
    found = mapper.diff({f"layer.{at}.w": torch.zeros(1) for at in (10, 2, 1, 0)} | {"a": torch.zeros(1)}, {})
    assert only(found.only_a) == ["a", "layer.0.w", "layer.1.w", "layer.2.w", "layer.10.w"]


@given(st.lists(st.text(max_size=6), min_size=1, max_size=5, unique=True))
def test_natural_order_is_total_whatever_the_names(names: list[str]) -> None:
    backwards = names[::-1]
    assert sorted(names, key=natural) == sorted(backwards, key=natural)


infos = st.tuples(st.lists(st.integers(0, 3), max_size=2), st.sampled_from(["F32", "BF16", "I64"]))
tables = st.dictionaries(
    st.sampled_from(["a", "a.b", "l.0.w", "l.1.w", "l.10.w", "l.2.w", "l.x", "z"]), infos, min_size=1
)


@settings(max_examples=30)  # two readings each
@given(tables, tables)
def test_exchanging_the_sides_exchanges_them_and_nothing_else(
    a: dict[str, tuple[list[int], str]], b: dict[str, tuple[list[int], str]]
) -> None:
    one, other = (
        {
            "tensors": {path: {"shape": shape, "dtype": dtype} for path, (shape, dtype) in table.items()},
            "repo": name,
        }
        for name, table in (("left", a), ("right", b))
    )
    forth, back = mapper.diff(one, other).as_dict(), mapper.diff(other, one).as_dict()
    assert (back["a"], back["b"], back["only_a"], back["only_b"]) == (
        forth["b"],
        forth["a"],
        forth["only_b"],
        forth["only_a"],
    )
    assert back["changed"] == [{**entry, "a": entry["b"], "b": entry["a"]} for entry in forth["changed"]]
    assert (back["common"], back["equal"]) == (forth["common"], forth["equal"])
    assert forth["equal"] is (None if a == b else False)  # the values were not read
    assert forth["common"] + len(forth["changed"]) == len(a.keys() & b.keys())


# ------------------------------------------------------------------------------------------------------- sources
def test_a_checkpoint_is_compared_with_a_manifest_of_it(tmp_path: Path) -> None:
    found = mapper.diff(write_bert(tmp_path / "bert"), write_manifest(tmp_path / "bert.json"))
    assert found.equal is None and found.common == len(bert_shapes())


def test_a_model_equals_the_file_of_its_states(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    save_file(model.state_dict(), tmp_path / "model.safetensors")
    found = mapper.diff(model, tmp_path / "model.safetensors", values=True)
    assert found.equal and found.common == 7


def test_a_nested_tree_equals_the_flat_one() -> None:
    tree = {"block": {"weight": torch.ones(2, 3), "name": "relu", "on": False}, "scale": np.float32(2)}
    flat = {"block.weight": np.ones((2, 3), "float32"), "scale": torch.tensor(2.0)}
    assert mapper.diff(tree, flat, values=True).equal


def test_numpy_arrays_of_another_byte_order_are_the_same() -> None:
    ours = np.arange(3, dtype=">i4")
    assert mapper.diff({"w": ours}, {"w": ours.astype("<i4")}, values=True).equal


def test_a_side_without_tensors_is_no_error() -> None:
    found = mapper.diff({}, nn.Linear(2, 2))
    assert (found.common, only(found.only_b)) == (0, ["bias", "weight"])


@pytest.mark.parametrize("source", [None, 3, object()])
def test_what_is_no_source_is_a_type_error(source: object) -> None:
    with pytest.raises(TypeError):
        mapper.diff(source, {})


def test_a_path_to_nothing_is_a_file_not_found(tmp_path: Path) -> None:
    with pytest.raises(MissingSourceError):
        mapper.diff(tmp_path / "no.safetensors", {})


def test_a_damaged_file_is_a_format_error(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"\x10\0\0\0\0\0\0\0{")
    with pytest.raises(FormatError, match=r"model\.safetensors"):
        mapper.diff(tmp_path / "model.safetensors", {})


def test_headers_alone_never_import_torch(tmp_path: Path) -> None:
    folder, manifest = write_bert(tmp_path / "bert"), write_manifest(tmp_path / "bert.json")
    code = f"import sys, mapper; print(mapper.diff({str(folder)!r}, {str(manifest)!r}).equal, 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "None False\n"


def test_a_built_model_is_read_with_the_config_it_was_built_with(tmp_path: Path) -> None:
    folder = write_bert(tmp_path / "bert")
    model = mapper.build(folder)
    other = {"tensors": bert_shapes(), "config": {**BERT, "layer_norm_eps": 1e-5}}
    assert mapper.diff(model, folder).architecture == []
    (told,) = mapper.diff(model, other).architecture
    assert (told.subject, told.a, told.b, told.defaults) == ("norm eps", 1e-12, 1e-5, "")


# ---------------------------------------------------------------------------------------------------------- ties
def test_a_tie_stored_once_is_not_missed() -> None:
    stored = {"embed.weight": torch.zeros(5, 3)}
    model = Tied()
    nn.init.zeros_(model.embed.weight)
    for a, b in ((model, stored), (stored, model), (model, {"head.weight": torch.zeros(5, 3)})):
        assert mapper.diff(a, b, values=True).equal is True


def test_a_tied_model_and_an_untied_one_have_the_same_paths() -> None:
    found = mapper.diff(Tied(), Tied(tie=False))
    assert found.equal is None and found.common == 2


def test_two_paths_that_no_tie_joins_are_missed() -> None:
    found = mapper.diff(Tied(tie=False), {"embed.weight": torch.zeros(5, 3)})
    assert only(found.only_a) == ["head.weight"]


def test_both_paths_of_a_tie_are_compared_with_values_that_differ() -> None:
    model = Tied()
    stored = {"embed.weight": model.embed.weight.detach(), "head.weight": model.embed.weight.detach() + 1}
    assert only(mapper.diff(model, stored, values=True).changed) == ["head.weight"]


@pytest.mark.parametrize("name", ["model.safetensors", "folder"])
def test_a_model_equals_what_was_saved_of_it(name: str, tmp_path: Path) -> None:
    model = Tied()
    model.complex = nn.Parameter(torch.ones(2, dtype=torch.complex128))  # a type the container cannot name
    model.register_buffer("passing", torch.ones(1), persistent=False)
    mapper.save(tmp_path / name, model, aux={"step": torch.ones(3)})
    for side in (model, mapper.tree(model), model.state_dict()):
        found = mapper.diff(side, tmp_path / name, values=True)
        assert (found.equal, found.common) == (True, 3)


def test_wrappers_are_no_part_of_paths() -> None:
    model = nn.Linear(2, 2)
    assert mapper.diff(nn.DataParallel(model), model, values=True).equal


# -------------------------------------------------------------------------------------------------------- values
def test_values_are_compared_only_when_asked_for() -> None:
    unread = mapper.diff({"w": torch.zeros(2)}, {"w": torch.ones(2)})
    assert unread.equal is None and unread.weights_equal is None and not unread.values
    found = mapper.diff({"w": torch.zeros(2)}, {"w": torch.tensor([0.0, -1.5])}, values=True)
    described = {"shape": [2], "dtype": "F32"}
    assert found.as_dict()["changed"] == [
        {"path": "w", "kind": "value", "a": described, "b": described, "max_abs_diff": 1.5}
    ]
    assert found.common == 0 and not found.equal


def test_values_of_another_shape_are_not_looked_at() -> None:
    meta = torch.zeros(3, device="meta")
    found = mapper.diff({"w": torch.zeros(2)}, {"w": meta}, values=True)
    assert [entry.kind for entry in found.changed] == ["shape"]


@pytest.mark.parametrize(
    ("a", "b", "apart"),
    [
        ([nan, 1.0], [nan, 1.0], None),
        ([0.0], [-0.0], None),
        ([inf, -inf], [inf, -inf], None),
        ([inf, 1.0], [-inf, 1.0], "inf"),
        ([nan, 1.0], [2.0, 1.0], "nan"),
        ([nan, 1.0], [1.0, nan], "nan"),
        ([1.0, 2.0], [1.0, 2.25], 0.25),
    ],
)
def test_nan_and_infinity_are_values(a: list[float], b: list[float], apart: object) -> None:
    change = value_change(torch.tensor(a), torch.tensor(b))
    assert (change and change["max_abs_diff"]) == apart
    json.dumps(change, allow_nan=False)


@pytest.mark.parametrize("name", ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"])
def test_integers_differ_exactly(name: str) -> None:
    dtype = getattr(torch, name)
    ends = (
        torch.tensor([torch.iinfo(dtype).min, 1], dtype=dtype),
        torch.tensor([torch.iinfo(dtype).max, 1], dtype=dtype),
    )
    change = value_change(*ends)
    assert change is not None
    assert change["max_abs_diff"] == torch.iinfo(dtype).max - torch.iinfo(dtype).min


def test_large_integers_that_are_one_float_differ() -> None:
    change = value_change(torch.tensor([2**62]), torch.tensor([2**62 + 1]))
    assert change is not None and change["max_abs_diff"] == 1


@pytest.mark.parametrize(
    "name",
    [
        "float16",
        "bfloat16",
        "float64",
        "float8_e4m3fn",
        "float8_e5m2",
        "float8_e4m3fnuz",
        "float8_e5m2fnuz",
        "float8_e8m0fnu",
    ],
)
def test_floats_of_every_width_are_compared(name: str) -> None:
    a, b = (
        torch.tensor([1.0, 2.0]).to(getattr(torch, name)),
        torch.tensor([1.0, 8.0]).to(getattr(torch, name)),
    )
    change = value_change(a, b)
    assert change is not None and change["max_abs_diff"] == 6.0
    assert value_change(a, a.clone()) is None


def test_bool_and_complex_values_are_compared() -> None:
    change = value_change(torch.tensor([True, False]), torch.tensor([True, True]))
    assert change is not None and change["max_abs_diff"] == 1
    change = value_change(torch.tensor([3 + 4j, complex(inf, 1)]), torch.tensor([0j, complex(inf, 2)]))
    assert change is not None and change["max_abs_diff"] == 5.0


def test_four_bit_floats_are_compared() -> None:
    def packed(codes: list[int]) -> torch.Tensor:
        return torch.tensor(codes, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)

    change = value_change(packed([0x21, 0x43]), packed([0x21, 0x47]))  # 1.5 and 2, 1.5 and 6: low bits first
    assert change is not None and change["max_abs_diff"] == 4.5
    assert change["a"] == {"shape": [4], "dtype": "F4"}


@pytest.mark.parametrize("shape", [(), (0, 3), (1, 2_500_000), (3, 700_000), (2_500_000,)])
def test_tensors_of_any_extent_are_compared_in_pieces(shape: tuple[int, ...]) -> None:
    a = torch.zeros(shape)
    b = a.clone()
    if b.numel():
        b.view(-1)[-1] = 2
    change = value_change(a, b)
    assert (change and change["max_abs_diff"]) == (2.0 if a.numel() else None)


def test_strided_tensors_are_compared_by_value() -> None:
    a = torch.arange(3_000_000.0).view(1000, 3000).t()
    assert value_change(a, a.contiguous()) is None


def test_a_comparison_takes_little_memory_beside_the_tensors() -> None:
    from mapper.weights.comparing import distance

    sizes = []
    a, b = torch.zeros(1500, 2000), torch.ones(1500, 2000)
    original = distance._difference
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(distance, "_difference", lambda x, y: (sizes.append(x.numel()), original(x, y))[1])
        assert distance.largest_difference(a, b) == 1.0
    assert sum(sizes) == a.numel() and max(sizes) <= 1 << 20


def test_a_side_without_weights_has_no_values(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="manifest without weights; compare headers alone"):
        mapper.diff(write_bert(tmp_path / "bert"), write_manifest(tmp_path / "bert.json"), values=True)
    with pytest.raises(SourceError, match="meta device"):
        mapper.diff(nn.Linear(2, 2), nn.Linear(2, 2, device="meta"), values=True)
