"""Heads that have the weight of a table: in a graph one tensor, or two with the same numbers."""

from __future__ import annotations

import warnings
from pathlib import Path

import onnxruntime
import pytest
import torch
from torch import nn

import mapper
from mapper.checkpoint import Observed
from mapper.graphs.reading import read_model
from mapper.graphs.straight.building import build_straight
from mapper.graphs.straight.source import write_model
from mapper.sources import open_source


class Words(nn.Module):
    """A table of words, a layer, and a head over the words."""

    def __init__(self, *, is_tied: bool, fill: float | None = None, scale: float = 1.0) -> None:
        super().__init__()
        self.scale = scale
        torch.manual_seed(0)
        self.words = nn.Embedding(20, 8)
        self.layer = nn.Linear(8, 8)
        self.head = nn.Linear(8, 20, bias=False)
        if fill is not None:
            nn.init.constant_(self.words.weight, fill)
            nn.init.constant_(self.head.weight, fill)
        if is_tied:
            self.head.weight = self.words.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.layer(self.words(ids) * self.scale))


def exported(path: Path, model: nn.Module, folded: bool = True) -> Path:
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            model.eval(), (torch.arange(6).view(2, 3),), str(path), opset_version=20, dynamo=False,
            input_names=["ids"], do_constant_folding=folded,
        )  # fmt: skip
    return path


@pytest.mark.parametrize("folded", [True, False])
def test_a_tied_head_has_both_names_and_one_parameter(tmp_path: Path, folded: bool) -> None:
    model = Words(is_tied=True)
    path = exported(tmp_path / "x.onnx", model, folded)
    checkpoint = open_source(path, purpose="headers")
    assert checkpoint.tensors.keys() == model.state_dict().keys()
    assert checkpoint.tied == {"head.weight": "words.weight"}
    assert {(one.leaf, one.value) for one in checkpoint.observed if one.fact == "head.tied"} == {
        ("head", True),
        ("words", True),
    }
    straight = write_model(read_model(path))
    built = build_straight(straight, "x.onnx")
    assert built.get_parameter("head.weight") is built.get_parameter("words.weight")
    ids = torch.arange(6).view(2, 3)
    wanted = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(
        None, {"ids": ids.numpy()}
    )[0]
    torch.testing.assert_close(
        next(iter(built(ids).values())), torch.from_numpy(wanted), rtol=1e-5, atol=1e-6
    )


def test_a_tie_that_one_side_stores_once_is_no_difference(tmp_path: Path) -> None:
    model = Words(is_tied=True)
    path = exported(tmp_path / "x.onnx", model)
    alone = {name: tensor for name, tensor in model.state_dict().items() if name != "head.weight"}
    found = mapper.diff(path, alone, values=True)
    assert (found.only_a, found.only_b, found.changed) == ([], [], [])
    alone["words.weight"] = alone["words.weight"] + 1
    assert [entry.path for entry in mapper.diff(path, alone, values=True).changed] == ["words.weight"]


@pytest.mark.parametrize(("fill", "wanted"), [(None, {False}), (0.0, set())])
def test_other_numbers_are_no_tie_and_noughts_say_nothing(
    tmp_path: Path, fill: float | None, wanted: set[bool]
) -> None:
    path = exported(tmp_path / "x.onnx", Words(is_tied=False, fill=fill))
    checkpoint = open_source(path, purpose="headers")
    shown: list[Observed] = [one for one in checkpoint.observed if one.fact == "head.tied"]
    assert {one.value for one in shown} == wanted
    assert checkpoint.tied == {}
    assert "def tie(" not in write_model(read_model(path)).text


@pytest.mark.parametrize(("scale", "wanted"), [(1.0, None), (2.5, 2.5)])
def test_a_factor_on_the_rows_of_a_table_is_shown(tmp_path: Path, scale: float, wanted: float | None) -> None:
    path = exported(tmp_path / "x.onnx", Words(is_tied=False, scale=scale))
    checkpoint = open_source(path, purpose="headers")
    assert [(one.leaf, one.value) for one in checkpoint.observed if one.fact == "embedding.scale"] == [
        ("words", wanted)
    ]
