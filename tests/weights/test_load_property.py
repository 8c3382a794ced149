"""Any model against any source: refused loads change nothing, accepted ones do what their report says."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import mapper
from tests.weights.snapshots import Holder, bits, snapshot

SMALL = st.integers(1, 2)
LAYERS = st.one_of(
    st.builds(lambda a, b, bias: nn.Linear(a, b, bias=bias), SMALL, SMALL, st.booleans()),
    st.builds(lambda a, affine: nn.LayerNorm(a, elementwise_affine=affine), SMALL, st.booleans()),
    st.builds(lambda a, bias: nn.LayerNorm(a, bias=bias), SMALL, st.booleans()),
    st.builds(lambda a, affine: nn.BatchNorm1d(a, affine=affine), SMALL, st.booleans()),
    st.builds(lambda a: nn.Embedding(a, 2), SMALL),
    st.builds(lambda bias: nn.MultiheadAttention(2, 1, bias=bias), st.booleans()),
    st.builds(lambda sizes: nn.ParameterList([torch.zeros(n) for n in sizes]), st.lists(SMALL, max_size=2)),
    st.builds(nn.Dropout),
)


def grouped(layers: list[nn.Module], share: bool, tie: bool) -> nn.Module:
    """The layers in one module; the last may stand there twice, and two biases may be one."""
    model = Holder(**{f"m{i}": layer for i, layer in enumerate(layers)})
    if layers and share:
        model.again = layers[-1]
    biases = [layer for layer in layers if isinstance(layer, nn.Linear) and layer.bias is not None]
    if len(biases) > 1 and tie and biases[0].bias.shape == biases[1].bias.shape:
        biases[1].bias = biases[0].bias
    return model


MODELS = st.recursive(
    LAYERS,
    lambda inner: st.builds(grouped, st.lists(inner, min_size=1, max_size=3), st.booleans(), st.booleans()),
    max_leaves=5,
)
VALUES = st.sampled_from([0.0, 1.0, 2.0, 1e6, float("nan")])
DTYPES = st.sampled_from([torch.float32, torch.float16, torch.float64, torch.int64])


def changed(model: nn.Module, draw: Any) -> dict[str, Any]:
    """The flat states of a copy of a model, some of which are other values, shapes, dtypes, or not there."""
    source: dict[str, Any] = {}
    for path, value in copy.deepcopy(model).state_dict().items():
        change = draw(
            st.sampled_from(["same"] * 6 + ["value", "shape", "dtype", "gone", "none", "false", "text"])
        )
        if change == "value":
            value = torch.full_like(value, draw(st.sampled_from([0, 1, 2])))
        elif change == "shape":
            value = torch.zeros(*value.shape, 1)
        elif change == "dtype":
            value = (
                torch.full(value.shape, draw(VALUES), dtype=torch.float64).nan_to_num(3.0).to(draw(DTYPES))
            )
        elif change != "same":
            value = {"gone": ..., "none": None, "false": False, "text": "text"}[change]
        if value is not ...:
            source[path] = value
    if draw(st.integers(0, 4)) == 0:
        source["extra.weight"] = torch.ones(1)
    return source


def loaded(model: nn.Module, source: Any, **options: Any) -> Any:
    """The report, or the error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return mapper.load_weights(model, source, **options)
        except mapper.StructureError as error:
            return error


QUICK = settings(max_examples=30)


@QUICK
@given(MODELS, st.data())
def test_a_load_does_everything_or_nothing(model: nn.Module, data: st.DataObject) -> None:
    source = changed(model, data.draw)
    before = snapshot(model)
    result = loaded(model, source)
    if isinstance(result, mapper.StructureError):
        assert snapshot(model) == before and not result.report.ok
        problems = [*result.report.missing, *result.report.unexpected]
        problems += [entry.path for entry in result.report.mismatched]
        assert result.path in problems
        assert all(path in str(result) for path in problems)
    else:
        assert result.ok


@QUICK
@given(MODELS, st.data())
def test_a_lenient_load_accounts_for_every_state(model: nn.Module, data: st.DataObject) -> None:
    before = {path: bits(value) for path, value in model.state_dict().items()}
    source = changed(model, data.draw)
    report = loaded(model, source, strict=False)
    states = model.state_dict()
    alike: dict[int, list[str]] = {}
    for path, value in model.state_dict(keep_vars=True).items():
        alike.setdefault(id(value), []).append(path)
    bad = [entry.path for entry in report.mismatched]
    for paths in alike.values():
        lists = [report.loaded, report.missing, report.absent, report.skipped, bad]
        assert sum(any(path in each for path in paths) for each in lists) == 1
    for path, value in states.items():
        if path not in report.loaded and path not in report.absent:
            assert bits(value) == before[path]
    for path in report.loaded:
        if isinstance(source.get(path), torch.Tensor):
            assert torch.equal(states[path].nan_to_num(7), source[path].to(states[path].dtype).nan_to_num(7))


@QUICK
@given(MODELS, st.data())
def test_a_strict_load_succeeds_exactly_where_a_lenient_one_has_no_problem(
    model: nn.Module, data: st.DataObject
) -> None:
    source = changed(model, data.draw)
    lenient = loaded(copy.deepcopy(model), source, strict=False)
    strict = loaded(model, source)
    assert isinstance(strict, mapper.StructureError) != lenient.ok
    if not lenient.ok:
        assert strict.report.missing == lenient.missing and strict.report.unexpected == lenient.unexpected
        assert strict.report.mismatched == lenient.mismatched


@QUICK
@given(MODELS, MODELS)
def test_a_tree_loads_exactly_where_its_model_does(model: nn.Module, source: nn.Module) -> None:
    other = copy.deepcopy(model)
    by_module, by_tree = loaded(model, source), loaded(other, mapper.tree(source))
    assert isinstance(by_module, mapper.StructureError) == isinstance(by_tree, mapper.StructureError)
    assert [bits(value) for value in model.state_dict().values()] == [
        bits(value) for value in other.state_dict().values()
    ]


@QUICK
@given(MODELS)
def test_a_model_loads_from_its_own_copy_in_every_form(model: nn.Module) -> None:
    source = copy.deepcopy(model)
    for form in (
        source,
        mapper.tree(source),
        dict(source.state_dict()),
        mapper.unflatten(source.state_dict()),
    ):
        assert mapper.load_weights(model, form).ok
        assert mapper.load_weights(model, form, by="order").ok
        assert mapper.load_weights(model, form, assign=True).ok
        assert [bits(value) for value in model.state_dict().values()] == [
            bits(value) for value in source.state_dict().values()
        ]
