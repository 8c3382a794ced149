"""Traps that were fallen into once: modes of autograd, files that fail late, memory that others own, deep trees."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import nn

import mapper
from tests.weights.snapshots import Holder, Tied, filled, refused, same_states, two_layers, zeroed

INNER = {"inner.weight": torch.ones(3, 3), "inner.bias": torch.ones(3)}


def on_meta() -> nn.Module:
    with torch.device("meta"):
        return two_layers()


@pytest.mark.parametrize("assign", [False, True])
def test_a_model_filled_from_meta_under_inference_can_be_trained(assign: bool) -> None:
    model, source = on_meta(), filled(two_layers())
    with torch.inference_mode():
        mapper.load_weights(model, source, assign=assign)
    model(torch.ones(1, 2)).sum().backward()
    assert model[0].weight.grad is not None


@pytest.mark.parametrize("make", [two_layers, on_meta])
def test_tensors_made_for_inference_can_be_assigned_and_trained(make: Any) -> None:
    model = make()
    with torch.inference_mode():
        source = {key: value.clone() for key, value in filled(two_layers()).state_dict().items()}
    mapper.load_weights(model, source, assign=True)
    model(torch.ones(1, 2)).sum().backward()
    assert same_states(model, filled(two_layers()))


def test_a_model_made_for_inference_is_filled_under_inference() -> None:
    with torch.inference_mode():
        model = zeroed(two_layers())
        mapper.load_weights(model, filled(two_layers()))
        assert same_states(model, filled(two_layers()))


def test_damage_that_shows_when_it_is_unpacked_changes_nothing(tmp_path: Path) -> None:
    size = 5_000_000  # more than is kept for undoing
    random = np.random.default_rng(0)
    np.savez_compressed(tmp_path / "m.npz", a=np.ones(size, "f4"), b=random.random(50_000, "f4"))
    data = bytearray((tmp_path / "m.npz").read_bytes())
    data[-50_000] ^= 255
    (tmp_path / "m.npz").write_bytes(data)
    model = nn.ParameterDict({"a": torch.zeros(size), "b": torch.zeros(50_000)})
    with pytest.raises(mapper.FormatError):
        mapper.load_weights(model, tmp_path / "m.npz")
    assert not model["a"].any() and not model["b"].any()


def test_a_file_that_was_assigned_from_may_be_cut_short(tmp_path: Path) -> None:
    program = (
        "import os, sys, torch, mapper, safetensors.torch as st\n"
        "st.save_file({'weight': torch.ones(500, 500), 'bias': torch.ones(500)}, sys.argv[1])\n"
        "model = torch.nn.Linear(500, 500)\n"
        "mapper.load_weights(model, sys.argv[1], assign=True)\n"
        "os.truncate(sys.argv[1], 0)\n"
        "print(int(model.weight.detach().sum()))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, tmp_path / "m.safetensors"], capture_output=True, text=True
    )
    assert done.stdout.strip() == "250000", (done.returncode, done.stderr)


def test_none_at_the_branch_of_one_path_of_a_tie_leaves_the_tie_alone() -> None:
    model = filled(Tied())
    kept = model.head.weight.tolist()
    report = mapper.load_weights(model, {"embed": None, **INNER})
    assert report.missing == [] and "embed.weight" in report.skipped
    assert model.head.weight.tolist() == kept


def test_every_path_of_a_tie_is_skipped() -> None:
    paths = ["embed.weight", "inner.weight", "inner.bias", "head.weight"]
    assert mapper.load_weights(Tied(), None).skipped == paths


def test_a_value_beside_none_for_a_tie_is_loaded() -> None:
    model = zeroed(Tied())
    assert mapper.load_weights(model, {"embed": None, "head.weight": torch.ones(5, 3), **INNER}).ok
    assert bool((model.embed.weight == 1).all())


@pytest.mark.parametrize("read", [lambda module: module, mapper.tree, lambda module: module.state_dict()])
def test_a_lazy_layer_without_a_shape_is_no_source(read: Any) -> None:
    model = nn.Linear(2, 3)
    with refused(model) as caught:
        mapper.load_weights(model, read(nn.LazyLinear(3)))
    assert len(caught.report.missing) + len(caught.report.mismatched) == 2


def test_a_parameter_that_is_a_buffer_elsewhere_is_assigned_in_both_places() -> None:
    model = Holder(a=nn.Linear(2, 1, bias=False), b=nn.Module())
    model.b.register_buffer("copy", model.a.weight)
    mapper.load_weights(model, {"a.weight": torch.ones(1, 2)}, assign=True)
    assert model.b._buffers["copy"] is model.a.weight and model.a.weight.tolist() == [[1, 1]]


def test_a_model_that_is_no_module_is_a_type_error() -> None:
    with pytest.raises(TypeError):
        mapper.load_weights({"weight": torch.ones(1)}, nn.Linear(1, 1))  # type: ignore[arg-type]


def test_a_deep_tree_is_read() -> None:
    deep: dict[str, Any] = {"act": "relu"}
    for _ in range(3000):
        deep = {"a": deep}
    source = {"weight": torch.ones(1, 2), "bias": torch.ones(1), "config": deep}
    assert mapper.load_weights(nn.Linear(2, 1), source).ok


def test_a_deep_tree_goes_flat_and_back() -> None:
    deep: dict[str, Any] = {"b": 1}
    for _ in range(3000):
        deep = {"a": deep}
    nested = mapper.unflatten(mapper.flatten(deep))
    for _ in range(3000):
        nested = nested["a"]
    assert nested == {"b": 1}


def test_a_leaf_that_is_a_dict_is_kept_by_unflatten() -> None:
    config: dict[str, Any] = {}
    assert mapper.unflatten({"a.config": config})["a"]["config"] is config


def test_an_archive_of_numpy_that_is_open_is_a_mapping(tmp_path: Path) -> None:
    source = filled(two_layers())
    np.savez(tmp_path / "m.npz", **{key: value.numpy() for key, value in source.state_dict().items()})
    model = zeroed(two_layers())
    with np.load(tmp_path / "m.npz") as archive:
        assert mapper.load_weights(model, archive).ok
    assert same_states(model, source)


def test_an_error_about_many_paths_is_quick() -> None:
    model = nn.Sequential(*(nn.Linear(1, 1, bias=False) for _ in range(1000)))
    with refused(model) as caught:
        mapper.load_weights(model, {f"x{i}.weight": torch.ones(1, 1, 1) for i in range(1000)})
    assert len(str(caught.error).splitlines()) < 60


def test_a_shard_stays_usable_after_training_what_was_assigned_from_it(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    safetensors.torch.save_file(filled(two_layers()).state_dict(), path)
    model = two_layers()
    mapper.load_weights(model, path, assign=True)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    mapper.load_weights(model, path)
    assert same_states(model, filled(two_layers()))


def test_a_nested_tensor_is_a_value_of_another_type() -> None:
    model = nn.Linear(2, 1, bias=False)
    ragged = torch.nested.nested_tensor([torch.ones(1), torch.ones(2)], layout=torch.jagged)
    with refused(model) as caught:
        mapper.load_weights(model, {"weight": ragged})
    assert caught.kinds == {"weight": "type"}


def test_a_sparse_tensor_is_a_value_of_another_type() -> None:
    model = nn.Linear(2, 1, bias=False)
    with refused(model) as caught:
        mapper.load_weights(model, {"weight": torch.ones(1, 2).to_sparse()})
    assert caught.kinds == {"weight": "type"}


def test_a_lazy_model_gets_its_hint() -> None:
    source = {f"model.{key}": value for key, value in nn.Linear(2, 3).state_dict().items()}
    model = nn.LazyLinear(3)
    with refused(model) as caught:
        mapper.load_weights(model, source)
    assert 'prefix="model."' in str(caught.error).splitlines()[-1]
    assert mapper.load_weights(model, source, prefix="model.").ok


def test_false_for_a_bias_without_a_shape_is_refused() -> None:
    model = nn.LazyLinear(3)
    with refused(model) as caught:
        mapper.load_weights(model, {"weight": torch.ones(3, 2), "bias": False})
    assert caught.kinds == {"bias": "type"}
