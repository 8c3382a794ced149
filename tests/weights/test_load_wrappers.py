"""Wrappers of a model are seen through on both sides."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import mapper
from tests.weights.snapshots import Holder, filled, refused, same_states, two_layers, zeroed


def compiled(model: nn.Module) -> Any:
    """As `torch.compile` wraps it; the eager backend is ready at once, and none is ever called here."""
    return torch.compile(model, backend="eager")


WRAPPERS: dict[str, Any] = {
    "data parallel": nn.DataParallel,
    "compiled": compiled,
    "data parallel of compiled": lambda model: nn.DataParallel(compiled(model)),
    "compiled data parallel": lambda model: compiled(nn.DataParallel(model)),
    "data parallel twice": lambda model: nn.DataParallel(nn.DataParallel(model)),
}
PATHS = ["0.weight", "0.bias", "2.weight", "2.bias"]


@pytest.fixture(params=WRAPPERS)
def wrap(request: pytest.FixtureRequest) -> Any:
    return WRAPPERS[request.param]


def test_a_wrapped_model_is_filled(wrap: Any) -> None:
    model, source = zeroed(two_layers()), filled(two_layers())
    report = mapper.load_weights(wrap(model), source)
    assert report.loaded == PATHS
    assert same_states(model, source)


def test_a_wrapped_source_is_read(wrap: Any) -> None:
    model, source = zeroed(two_layers()), filled(two_layers())
    assert mapper.load_weights(model, wrap(source)).loaded == PATHS
    assert same_states(model, source)


def test_both_sides_may_be_wrapped(wrap: Any) -> None:
    model, source = zeroed(two_layers()), filled(two_layers())
    mapper.load_weights(wrap(model), nn.DataParallel(source))
    assert same_states(model, source)


def test_the_state_dict_of_a_wrapped_model_is_read(wrap: Any) -> None:
    model, source = zeroed(two_layers()), filled(two_layers())
    assert mapper.load_weights(model, wrap(source).state_dict()).loaded == PATHS
    assert same_states(model, source)


def test_a_state_dict_of_a_wrapped_model_fills_a_wrapped_model(wrap: Any) -> None:
    model, source = zeroed(two_layers()), filled(two_layers())
    mapper.load_weights(wrap(model), wrap(source).state_dict())
    assert same_states(model, source)


def test_the_tree_of_a_wrapped_model_has_no_part_of_the_wrapper(wrap: Any) -> None:
    assert list(mapper.flatten(mapper.tree(wrap(two_layers())))) == PATHS


def test_the_states_of_a_wrapped_model_have_no_part_of_the_wrapper(wrap: Any) -> None:
    wrapped = wrap(two_layers())
    assert list(mapper.params(wrapped)) == list(mapper.states(wrapped)) == PATHS


def test_errors_about_a_wrapped_model_have_its_own_paths(wrap: Any) -> None:
    model = wrap(two_layers())
    with refused(model) as caught:
        mapper.load_weights(model, {})
    assert caught.report.missing == PATHS
    assert "Sequential" in str(caught.error).splitlines()[0]


def test_a_compiled_child_is_seen_through() -> None:
    model = Holder(block=compiled(nn.Linear(1, 1)), out=nn.Linear(1, 1))
    source = filled(Holder(block=nn.Linear(1, 1), out=nn.Linear(1, 1)))
    report = mapper.load_weights(model, source)
    assert report.loaded == ["block.weight", "block.bias", "out.weight", "out.bias"]
    assert float(model.block.weight.detach()) == float(source.block.weight.detach())


def test_the_source_may_have_a_compiled_child() -> None:
    model = zeroed(Holder(block=nn.Linear(1, 1)))
    source = filled(Holder(block=compiled(nn.Linear(1, 1))))
    mapper.load_weights(model, source)
    assert float(model.block.weight.detach()) == 1


def test_a_flat_source_may_have_the_compilers_part_in_the_middle_of_a_path() -> None:
    model = Holder(block=nn.Linear(1, 1))
    mapper.load_weights(
        model, {"block._orig_mod.weight": torch.ones(1, 1), "block._orig_mod.bias": torch.ones(1)}
    )
    assert float(model.block.weight.detach()) == 1


def test_only_some_keys_may_have_the_compilers_part() -> None:
    model = zeroed(Holder(a=nn.Linear(1, 1), b=nn.Linear(1, 1)))
    source = {
        "a._orig_mod.weight": torch.ones(1, 1),
        "a._orig_mod.bias": torch.ones(1),
        "b.weight": torch.ones(1, 1),
        "b.bias": torch.ones(1),
    }
    assert mapper.load_weights(model, source).ok
    assert float(model.a.bias.detach()) == 1


def test_a_data_parallel_child_is_seen_through() -> None:
    model = Holder(features=nn.DataParallel(nn.Linear(1, 1)), out=nn.Linear(1, 1))
    source = filled(Holder(features=nn.Linear(1, 1), out=nn.Linear(1, 1)))
    report = mapper.load_weights(model, source)
    assert report.loaded == ["features.weight", "features.bias", "out.weight", "out.bias"]


def test_a_data_parallel_child_of_the_source_is_seen_through() -> None:
    model = zeroed(Holder(features=nn.Linear(1, 1)))
    source = filled(Holder(features=nn.DataParallel(nn.Linear(1, 1))))
    mapper.load_weights(model, source)
    assert float(model.features.weight.detach()) == 1


@pytest.mark.parametrize("before", ["module.", "module._orig_mod.", "_orig_mod.module.", "module.module."])
def test_a_flat_source_loses_the_wrappers_parts_in_any_nesting(before: str) -> None:
    model, source = zeroed(two_layers()), filled(two_layers())
    flat = {before + key: value for key, value in source.state_dict().items()}
    assert mapper.load_weights(model, flat).loaded == PATHS
    assert same_states(model, source)


def test_a_child_of_the_model_that_is_called_module_keeps_its_name() -> None:
    model = zeroed(Holder(module=nn.Linear(1, 1)))
    report = mapper.load_weights(model, {"module.weight": torch.ones(1, 1), "module.bias": torch.ones(1)})
    assert report.loaded == ["module.weight", "module.bias"]


def test_a_first_part_that_only_some_keys_have_stays() -> None:
    model = two_layers()
    source = dict(filled(two_layers()).state_dict())
    source["module.0.weight"] = source.pop("0.weight")
    with refused(model) as caught:
        mapper.load_weights(model, source)
    assert caught.report.missing == ["0.weight"]
    assert caught.report.unexpected == ["module.0.weight"]


def test_a_nested_source_loses_the_wrappers_parts_too() -> None:
    model, source = zeroed(two_layers()), filled(two_layers())
    nested = {"_orig_mod": {"module": mapper.unflatten(source.state_dict())}, "epoch": 3}
    assert mapper.load_weights(model, nested).loaded == PATHS


def test_a_prefix_may_stand_before_or_after_the_wrappers_part() -> None:
    source = filled(two_layers()).state_dict()
    for before, prefix in (
        ("state.module.", "state."),
        ("module.model.", "model."),
        ("module.a.", "module.a."),
    ):
        model = zeroed(two_layers())
        mapper.load_weights(model, {before + key: value for key, value in source.items()}, prefix=prefix)
        assert same_states(model, filled(two_layers()))


def test_renaming_sees_no_part_of_a_wrapper() -> None:
    source = {f"module.enc.{key}": value for key, value in filled(two_layers()).state_dict().items()}
    for rename in ({"enc.0": "0", "enc.2": "2"}, lambda path: path[len("enc.") :]):
        model = zeroed(two_layers())
        assert mapper.load_weights(model, source, rename=rename).loaded == PATHS


def test_false_and_none_below_a_wrapper_are_found() -> None:
    source = {f"module.{key}": value for key, value in filled(two_layers()).state_dict().items()}
    source |= {"module.0.bias": False, "module.2.bias": None}
    report = mapper.load_weights(two_layers(), source)
    assert report.absent == ["0.bias"] and report.skipped == ["2.bias"]


def test_the_wrapper_itself_stays_in_place() -> None:
    inner = two_layers()
    wrapped = nn.DataParallel(inner)
    mapper.load_weights(wrapped, filled(two_layers()))
    assert wrapped.module is inner


@pytest.mark.skipif(not torch.distributed.is_available(), reason="torch was built without it")
@pytest.mark.filterwarnings("ignore")
def test_a_distributed_model_is_seen_through_on_both_sides(tmp_path: Path) -> None:
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1
    )
    try:
        model = zeroed(two_layers())
        wrapped = nn.parallel.DistributedDataParallel(model)
        assert mapper.load_weights(wrapped, filled(two_layers())).loaded == PATHS
        assert same_states(model, filled(two_layers()))
        other = zeroed(two_layers())
        assert mapper.load_weights(other, wrapped).loaded == PATHS
        assert same_states(other, model)
        assert list(mapper.flatten(mapper.tree(wrapped))) == PATHS
    finally:
        torch.distributed.destroy_process_group()
