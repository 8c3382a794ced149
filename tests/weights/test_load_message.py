"""The text of a refused load: every problem with both sides, its neighbours, and the one change that repairs all."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import mapper
from tests.weights.snapshots import Holder, Tied, filled, refused, two_layers


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(7, 4)
        self.layer = nn.ModuleList([Layer(), Layer()])


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(4, 6)
        self.norm = nn.LayerNorm(4)


def text_of(model: nn.Module, source: Any, **options: Any) -> str:
    with refused(model) as caught:
        mapper.load_weights(model, source, **options)
    return str(caught.error)


def line_of(text: str, path: str) -> str:
    """The line of a problem: the one that begins with its path."""
    lines = [line for line in text.splitlines()[1:] if line.split()[:1] == [path]]
    assert len(lines) == 1, text
    return lines[0]


def source_for(**changes: Any) -> dict[str, Any]:
    source: dict[str, Any] = dict(filled(Encoder()).state_dict())
    for key, value in changes.items():
        path = key.replace("__", ".")
        if value is None:
            del source[path]
        else:
            source[path] = value
    return source


def test_the_first_line_says_which_class_how_many_problems_and_that_nothing_changed() -> None:
    source = source_for(embed__weight=None, layer__0__up__bias=torch.ones(5), extra=torch.ones(1))
    first = text_of(Encoder(), source).splitlines()[0]
    assert "Encoder" in first and re.search(r"\b3 problems\b", first) and "nothing was changed" in first


def test_one_problem_is_counted_as_one() -> None:
    first = text_of(Encoder(), source_for(embed__weight=None)).splitlines()[0]
    assert re.search(r"\b1 problem\b", first)


def test_every_problem_has_its_line() -> None:
    source = source_for(
        layer__0__up__bias=torch.ones(5), layer__1__up__weight=None, layer__1__norm__bias=torch.ones(4).int()
    )
    source["pooler.weight"] = torch.ones(2, 2)
    text = text_of(Encoder(), source)
    for path in ("layer.0.up.bias", "layer.1.up.weight", "layer.1.norm.bias", "pooler.weight"):
        assert line_of(text, path)


def test_a_line_about_a_shape_names_both_sides() -> None:
    line = line_of(
        text_of(Encoder(), source_for(layer__0__up__weight=torch.ones(5, 3).half())), "layer.0.up.weight"
    )
    for word in ("shape", "Linear", "float32", "[6, 4]", "Tensor", "float16", "[5, 3]"):
        assert word in line


def test_a_line_about_a_dtype_names_both_sides() -> None:
    line = line_of(text_of(Encoder(), source_for(embed__weight=torch.ones(7, 4).int())), "embed.weight")
    for word in ("dtype", "Embedding", "float32", "int32", "[7, 4]"):
        assert word in line


def test_a_line_about_an_array_of_numpy_names_its_type() -> None:
    line = line_of(text_of(Encoder(), source_for(embed__weight=np.ones((4, 7), "f4"))), "embed.weight")
    assert "ndarray" in line and "float32" in line and "[4, 7]" in line


def test_a_line_about_a_value_that_is_no_array_shows_the_value() -> None:
    line = line_of(text_of(Encoder(), source_for(embed__weight="relu")), "embed.weight")
    assert "type" in line and "relu" in line and "Embedding" in line and "str" in line


def test_a_long_value_does_not_flood_the_text() -> None:
    text = text_of(Encoder(), source_for(embed__weight="x" * 100_000))
    assert len(text) < 2_000


def test_a_value_of_many_lines_stays_on_one() -> None:
    text = text_of(Encoder(), source_for(embed__weight="one\ntwo\nthree"))
    assert len(text.splitlines()) == 2


def test_a_line_about_a_missing_path_says_what_the_model_has() -> None:
    line = line_of(text_of(Encoder(), source_for(layer__1__norm__bias=None)), "layer.1.norm.bias")
    assert "only in the model" in line and "LayerNorm" in line and "float32" in line and "[4]" in line


def test_a_line_about_an_unexpected_path_says_what_the_source_has() -> None:
    line = line_of(text_of(Encoder(), source_for(pooler=torch.ones(4, 2).double())), "pooler")
    assert "only in the source" in line and "Tensor" in line and "float64" in line and "[4, 2]" in line


def test_a_missing_path_has_the_children_of_both_sides_at_the_nearest_common_parent() -> None:
    text = text_of(Encoder(), source_for(layer__1__norm__bias=None))
    (context,) = [line for line in text.splitlines() if "at layer.1.norm" in line]
    ours, theirs = context.split("source")
    assert "weight" in ours and "bias" in ours
    assert "weight" in theirs and "bias" not in theirs


def test_an_unexpected_path_at_the_top_has_the_children_of_the_root() -> None:
    text = text_of(Encoder(), source_for(pooler=torch.ones(1)))
    (context,) = [line for line in text.splitlines() if "root" in line]
    ours, theirs = context.split("source")
    assert "embed" in ours and "layer" in ours and "pooler" not in ours
    assert "embed" in theirs and "layer" in theirs and "pooler" in theirs


def test_a_missing_branch_has_the_context_of_the_parent_that_both_sides_have() -> None:
    source = {key: value for key, value in source_for().items() if not key.startswith("layer.1.up")}
    text = text_of(Encoder(), source)
    assert any("at layer.1" in line and "norm" in line and "up" in line for line in text.splitlines())


def test_twenty_lines_of_a_kind_are_printed_and_the_rest_is_counted() -> None:
    model = nn.Sequential(*(nn.Linear(1, 1, bias=False) for _ in range(30)))
    with refused(model) as caught:
        mapper.load_weights(model, {})
    text = str(caught.error)
    assert sum(bool(re.match(r"\s*\d+\.weight", line)) for line in text.splitlines()) == 20
    assert re.search(r"\b10\b[^\n]*more", text) or re.search(r"more[^\n]*\b10\b", text)
    assert re.search(r"\b30 problems\b", text)
    assert len(caught.report.missing) == 30


def test_twenty_problems_of_a_kind_are_all_printed() -> None:
    model = nn.Sequential(*(nn.Linear(1, 1, bias=False) for _ in range(20)))
    text = text_of(model, {})
    assert sum(bool(re.match(r"\s*\d+\.weight", line)) for line in text.splitlines()) == 20
    assert not re.search(r"(?m)^\s*and \d+ more", text)


def test_each_kind_has_twenty_lines_of_its_own() -> None:
    model = nn.Sequential(*(nn.Linear(1, 1) for _ in range(25)))
    source = {f"{i}.weight": torch.ones(2, 2) for i in range(25)}
    source |= {f"x{i}.weight": torch.ones(1) for i in range(25)}
    lines = text_of(model, source).splitlines()
    assert sum(bool(re.match(r"\s*\d+\.weight", line)) for line in lines) == 20
    assert sum(bool(re.match(r"\s*\d+\.bias", line)) for line in lines) == 20
    assert sum(bool(re.match(r"\s*x\d+\.weight", line)) for line in lines) == 20


def test_the_text_of_a_wrapped_model_names_the_model() -> None:
    with refused(wrapped := nn.DataParallel(Encoder())) as caught:
        mapper.load_weights(wrapped, {})
    assert "Encoder" in str(caught.error).splitlines()[0] and "module." not in str(caught.error)


# the last line


def test_a_common_prefix_is_suggested() -> None:
    source = {f"model.{key}": value for key, value in source_for().items()}
    assert 'prefix="model."' in text_of(Encoder(), source).splitlines()[-1]


def test_a_longer_common_prefix_is_suggested_whole() -> None:
    source = {f"state.model.{key}": value for key, value in source_for().items()}
    assert 'prefix="state.model."' in text_of(Encoder(), source).splitlines()[-1]


def test_the_suggested_prefix_repairs_the_load() -> None:
    source = {f"model.{key}": value for key, value in source_for().items()} | {"head": torch.ones(1)}
    text = text_of(Encoder(), source)
    assert 'prefix="model."' in text.splitlines()[-1]
    assert mapper.load_weights(Encoder(), source, prefix="model.").ok


def test_a_prefix_that_would_not_repair_everything_is_not_suggested() -> None:
    source = {f"model.{key}": value for key, value in source_for(embed__weight=None).items()}
    assert "prefix=" not in text_of(Encoder(), source)


def test_a_transposed_matrix_is_suggested() -> None:
    text = text_of(Encoder(), source_for(layer__0__up__weight=torch.ones(4, 6)))
    assert "transposed" in line_of(text, "layer.0.up.weight")


def test_a_shape_that_is_no_transpose_is_not_called_one() -> None:
    assert "transpose" not in text_of(Encoder(), source_for(layer__0__up__weight=torch.ones(4, 5)))


def test_the_order_is_suggested_for_the_same_leaves_under_other_names() -> None:
    source = filled(Holder(up=nn.Linear(2, 3), down=nn.Linear(3, 2)))
    assert 'by="order"' in text_of(two_layers(), source).splitlines()[-1]
    assert mapper.load_weights(two_layers(), source, by="order").ok


def test_the_order_is_not_suggested_where_shapes_differ() -> None:
    source = filled(Holder(up=nn.Linear(2, 3), down=nn.Linear(3, 4)))
    assert 'by="order"' not in text_of(two_layers(), source)


def test_false_is_suggested_for_a_missing_bias() -> None:
    source = source_for(layer__0__up__bias=None)
    assert "False" in text_of(Encoder(), source).splitlines()[-1]
    assert mapper.load_weights(Encoder(), {**source, "layer.0.up.bias": False}).ok


def test_false_is_not_suggested_for_a_missing_matrix() -> None:
    assert "False" not in text_of(Encoder(), source_for(layer__0__up__weight=None))


def test_false_is_not_suggested_where_more_than_biases_are_missing() -> None:
    text = text_of(Encoder(), source_for(layer__0__up__weight=None, layer__0__up__bias=None))
    assert "False" not in text.splitlines()[-1]


def test_both_paths_of_a_conflict_are_in_one_line() -> None:
    source = dict(filled(Tied(tied=False)).state_dict())
    lines = text_of(Tied(), source).splitlines()[1:]
    assert any("embed.weight" in line and "head.weight" in line and "tie" in line for line in lines)


@pytest.mark.parametrize(
    ("source", "word"),
    [
        ({"weight": torch.tensor([[1e6]])}, "overflow"),
        ({"weight": torch.ones(1, 1, device="meta")}, "meta"),
        ({"weight": torch.ones(1, 1), "bias": torch.ones(1)}, "absent"),
        ({"weight": False}, "type"),
    ],
)
def test_each_kind_of_disagreement_is_named(source: dict[str, Any], word: str) -> None:
    model = nn.Linear(1, 1, bias=False).half()
    assert any(word in line for line in text_of(model, source).splitlines()[1:])


def test_the_text_of_a_deep_path_is_not_cut() -> None:
    model = Holder(a=nn.Linear(1, 1, bias=False))
    for name in ("transformer_decoder_stack", "attention_with_relative_positions", "output_projection_layer"):
        model = Holder(**{name: model})
    path = next(iter(model.state_dict()))
    assert path in text_of(model, {})
