"""What may stand as a source: modules, mappings, sequences, records; and how they are read."""

from __future__ import annotations

import subprocess
import sys
import types
import typing
from collections import OrderedDict, UserDict, namedtuple
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import nn

import mapper
from tests.weights.snapshots import Holder, filled, refused, same_states, snapshot, two_layers, zeroed


def test_a_module_of_the_same_structure_is_a_source() -> None:
    model, source = zeroed(two_layers()), filled(two_layers())
    report = mapper.load_weights(model, source)
    assert same_states(model, source)
    assert report.loaded == ["0.weight", "0.bias", "2.weight", "2.bias"]


def test_a_module_of_another_class_with_the_same_paths_is_a_source() -> None:
    model = Holder(up=nn.Linear(2, 3), drop=nn.Dropout(), down=nn.Linear(3, 2))
    source = filled(Holder(up=nn.Linear(2, 3), down=nn.Linear(3, 2)))
    assert mapper.load_weights(model, source).ok
    assert same_states(model, source)


def test_loading_from_a_module_leaves_that_module_alone() -> None:
    source = filled(two_layers())
    before = snapshot(source)
    mapper.load_weights(two_layers(), source)
    assert snapshot(source) == before


def test_the_model_and_the_source_do_not_share_memory_afterwards() -> None:
    model, source = two_layers(), filled(two_layers())
    mapper.load_weights(model, source)
    source[0].weight.data.fill_(99)
    assert not (model[0].weight == 99).any()


def test_a_state_dict_is_a_source() -> None:
    model, source = zeroed(two_layers()), filled(two_layers())
    assert mapper.load_weights(model, source.state_dict()).ok
    assert same_states(model, source)


def test_a_nested_mapping_is_a_source() -> None:
    model = two_layers()
    mapper.load_weights(
        model,
        {
            "0": {"weight": torch.full((3, 2), 1.0), "bias": torch.full((3,), 2.0)},
            "2": {"weight": torch.full((2, 3), 3.0), "bias": torch.full((2,), 4.0)},
        },
    )
    assert [float(value.mean()) for value in model.state_dict().values()] == [1, 2, 3, 4]


def test_flat_and_nested_keys_may_be_mixed_in_one_mapping() -> None:
    model = Holder(a=two_layers(), b=nn.Linear(1, 1))
    source = {
        "a": {"0.weight": torch.ones(3, 2), "0": {"bias": torch.ones(3)}, "2": {"weight": torch.ones(2, 3)}},
        "a.2.bias": torch.ones(2),
        "b.weight": torch.ones(1, 1),
        "b": {"bias": torch.ones(1)},
    }
    assert mapper.load_weights(model, source).ok
    assert all(bool((value == 1).all()) for value in model.state_dict().values())


def test_dotted_keys_are_split_at_any_depth() -> None:
    model = Holder(a=Holder(b=Holder(c=nn.Linear(1, 1, bias=False))))
    mapper.load_weights(model, {"a.b": {"c.weight": torch.full((1, 1), 7.0)}})
    assert float(model.a.b.c.weight.detach()) == 7.0


@pytest.mark.parametrize("kind", [OrderedDict, UserDict, types.MappingProxyType])
def test_every_kind_of_mapping_is_a_source(kind: Any) -> None:
    model, source = zeroed(two_layers()), filled(two_layers())
    mapper.load_weights(model, kind(dict(source.state_dict())))
    assert same_states(model, source)


def test_a_path_that_is_a_leaf_and_a_branch_is_an_error() -> None:
    model = nn.Linear(2, 1)
    with refused(model, mapper.StructureError):
        mapper.load_weights(
            model, {"weight": torch.ones(1, 2), "weight.scale": torch.ones(1), "bias": torch.ones(1)}
        )


def test_a_path_that_is_a_branch_and_then_a_leaf_is_an_error() -> None:
    model = Holder(a=nn.Linear(1, 1))
    with refused(model, mapper.StructureError):
        mapper.load_weights(
            model, {"a.weight": torch.ones(1, 1), "a": torch.ones(1), "a.bias": torch.ones(1)}
        )


def test_a_list_has_children_by_position() -> None:
    model, source = zeroed(two_layers()), filled(two_layers())
    first, second = dict(source[0].state_dict()), dict(source[2].state_dict())
    mapper.load_weights(model, [first, "relu", second])
    assert same_states(model, source)


def test_a_tuple_has_children_by_position() -> None:
    model = nn.ParameterList([torch.zeros(2), torch.zeros(3)])
    mapper.load_weights(model, (torch.ones(2), torch.full((3,), 2.0)))
    assert model[0].tolist() == [1, 1] and model[1].tolist() == [2, 2, 2]


def test_a_list_below_a_mapping_has_children_by_position() -> None:
    model = Holder(layers=nn.ModuleList([nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False)]))
    mapper.load_weights(
        model, {"layers": [{"weight": torch.full((1, 1), 1.0)}, {"weight": torch.full((1, 1), 2.0)}]}
    )
    assert [float(layer.weight.detach()) for layer in model.layers] == [1, 2]


def test_a_namedtuple_has_children_by_field() -> None:
    pair = namedtuple("pair", "bias weight")
    model = nn.Linear(2, 1)
    mapper.load_weights(model, pair(torch.ones(1), torch.full((1, 2), 2.0)))
    assert model.weight.tolist() == [[2, 2]] and model.bias.tolist() == [1]


class Layer(typing.NamedTuple):
    weight: Any
    bias: Any = None


def test_a_typed_namedtuple_within_a_list_has_children_by_field() -> None:
    model = nn.ModuleList([nn.Linear(2, 1, bias=False)])
    mapper.load_weights(model, [Layer(torch.full((1, 2), 2.0))])
    assert model[0].weight.tolist() == [[2, 2]]


@dataclass
class Pair:
    weight: Any
    bias: Any
    rate: float = 0.5
    count: ClassVar[int] = 3


@dataclass(frozen=True)
class FrozenPair:
    weight: Any
    bias: Any
    names: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class SlottedPair:
    weight: Any
    bias: Any


@pytest.mark.parametrize("kind", [Pair, FrozenPair, SlottedPair])
def test_a_dataclass_has_children_by_field(kind: Any) -> None:
    model = nn.Linear(2, 1)
    mapper.load_weights(model, kind(torch.full((1, 2), 2.0), torch.ones(1)))
    assert model.weight.tolist() == [[2, 2]] and model.bias.tolist() == [1]


def test_a_dataclass_below_a_mapping_has_children_by_field() -> None:
    model = Holder(layer=nn.Linear(2, 1))
    mapper.load_weights(model, {"layer": FrozenPair(torch.full((1, 2), 2.0), torch.ones(1))})
    assert model.layer.weight.tolist() == [[2, 2]]


def test_none_as_the_source_skips_every_path() -> None:
    model = filled(two_layers())
    before = snapshot(model)
    report = mapper.load_weights(model, None)
    assert report.skipped == ["0.weight", "0.bias", "2.weight", "2.bias"]
    assert report.ok and not report.loaded and not report.missing
    assert snapshot(model) == before


@pytest.mark.parametrize("source", [3, 2.5, {1, 2}, print, object()])
@pytest.mark.parametrize("strict", [True, False])
def test_a_source_of_no_known_kind_is_a_type_error(source: Any, strict: bool) -> None:
    model = two_layers()
    with refused(model, TypeError) as caught:
        mapper.load_weights(model, source, strict=strict)
    assert not isinstance(caught.error, mapper.MapperError)


def test_the_callers_nested_mapping_stays_as_it_is() -> None:
    inner = {"bias": torch.ones(3), "weight": torch.ones(3, 2)}
    source = {"2.bias": torch.ones(2), "0": inner, "act": "relu", "2.weight": torch.ones(2, 3)}
    flat = list(source.items())
    below = list(inner.items())
    mapper.load_weights(two_layers(), source)
    assert [(key, id(value)) for key, value in source.items()] == [(key, id(value)) for key, value in flat]
    assert [(key, id(value)) for key, value in inner.items()] == [(key, id(value)) for key, value in below]


def test_the_callers_metadata_stays_as_it_is() -> None:
    source = two_layers().state_dict()
    before = {key: dict(value) for key, value in source._metadata.items()}
    mapper.load_weights(two_layers(), source)
    mapper.load_weights(two_layers(), source, assign=True)
    assert {key: dict(value) for key, value in source._metadata.items()} == before


def test_no_metadata_is_written_into_an_ordered_dict() -> None:
    source = OrderedDict(dict(two_layers().state_dict()))
    mapper.load_weights(two_layers(), source)
    assert not hasattr(source, "_metadata")


class Lazy(Mapping):  # type: ignore[type-arg]
    """A mapping that makes its values when asked, counts the questions, and may refuse one of them."""

    def __init__(self, values: dict[str, Any], model: nn.Module, broken: str = "") -> None:
        self.values_by_key, self.model, self.broken = values, model, broken
        self.asked: list[str] = []
        self.seen: list[Any] = []

    def __getitem__(self, key: str) -> Any:
        self.asked.append(key)
        self.seen.append(snapshot(self.model))
        if key == self.broken:
            raise Unreadable(key)
        return self.values_by_key[key].clone()

    def __iter__(self) -> Iterator[str]:
        return iter(self.values_by_key)

    def __len__(self) -> int:
        return len(self.values_by_key)


class Unreadable(OSError):
    """The medium of a lazy mapping failed."""


def test_each_leaf_of_a_lazy_mapping_is_read_once() -> None:
    model, source = zeroed(two_layers()), filled(two_layers())
    lazy = Lazy(dict(source.state_dict()), model)
    mapper.load_weights(model, lazy)
    assert sorted(lazy.asked) == sorted(source.state_dict())
    assert same_states(model, source)


def test_all_reads_of_a_lazy_mapping_come_before_the_first_write() -> None:
    model = zeroed(two_layers())
    before = snapshot(model)
    lazy = Lazy(dict(filled(two_layers()).state_dict()), model)
    mapper.load_weights(model, lazy)
    assert all(seen == before for seen in lazy.seen)


@pytest.mark.parametrize("strict", [True, False])
def test_a_lazy_mapping_that_raises_on_its_last_item_changes_nothing(strict: bool) -> None:
    model = zeroed(two_layers())
    lazy = Lazy(dict(filled(two_layers()).state_dict()), model, broken="2.bias")
    with refused(model, Unreadable):
        mapper.load_weights(model, lazy, strict=strict)


def test_numpy_arrays_and_scalars_are_values() -> None:
    model = Holder(w=nn.Parameter(torch.zeros(2)), scale=nn.Parameter(torch.zeros(())))
    mapper.load_weights(model, {"w": np.array([1, 2], np.float32), "scale": np.float32(3)})
    assert model.w.tolist() == [1, 2] and float(model.scale.detach()) == 3


def test_arrays_of_jax_are_values_once_jax_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    class Array:  # what mapper may ask of one
        dtype, shape, ndim, size = np.dtype("float32"), (2,), 1, 2

        def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
            return np.array([5, 6], np.float32)

    monkeypatch.setitem(sys.modules, "jax", types.SimpleNamespace(Array=Array))  # type: ignore[arg-type]
    model = Holder(w=nn.Parameter(torch.zeros(2)))
    mapper.load_weights(model, {"w": Array()})
    assert model.w.tolist() == [5, 6]


def test_jax_is_never_imported_for_a_load() -> None:
    program = (
        "import sys, torch, mapper\n"
        "m = torch.nn.Linear(2, 2)\n"
        "mapper.load_weights(m, {'weight': torch.ones(2, 2), 'bias': torch.ones(2), 'act': object()})\n"
        "print('jax' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "False", done.stderr


def test_an_empty_model_takes_an_empty_source() -> None:
    report = mapper.load_weights(nn.Identity(), {})
    assert report.ok and report.loaded == []


def test_an_empty_model_takes_no_array() -> None:
    with refused(nn.Identity()) as caught:
        mapper.load_weights(nn.Identity(), {"weight": torch.ones(1)})
    assert caught.report.unexpected == ["weight"]


def test_all_states_of_another_model_are_a_source() -> None:
    model, source = zeroed(two_layers()), filled(two_layers())
    mapper.load_weights(model, mapper.states(source))
    assert same_states(model, source)


def test_the_attributes_of_another_model_are_a_source() -> None:
    model, source = zeroed(two_layers()), filled(two_layers())
    mapper.load_weights(model, mapper.attributes(source))
    assert same_states(model, source)


def test_a_list_entry_of_another_kind_of_container_may_hold_a_dotted_key() -> None:
    model = nn.ModuleList([Holder(a=nn.Linear(1, 1, bias=False))])
    mapper.load_weights(model, [{"a.weight": torch.full((1, 1), 4.0)}])
    assert float(model[0].a.weight.detach()) == 4
