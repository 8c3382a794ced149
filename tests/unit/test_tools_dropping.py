"""`tools/dropping.py`: what it takes out of a header, and what it says of what comes of it."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

import mapper
from mapper.checkpoint import TensorInfo
from mapper.rulebook.examples import header
from tests.shipped import RULEBOOK

TOOLS = Path(__file__).resolve().parents[2] / "tools"
sys.path.insert(0, str(TOOLS))
try:
    import dropping
finally:
    sys.path.remove(str(TOOLS))

SHAPES = {
    "embed.weight": (9, 4),
    "layers.0.a.weight": (4, 4),
    "layers.0.a.bias": (4,),
    "layers.1.a.weight": (4, 4),
    "layers.1.a.bias": (4,),
}
TENSORS = {name: TensorInfo(shape, "F32") for name, shape in SHAPES.items()}


def test_each_kind_of_change_touches_what_it_says() -> None:
    (first,) = dropping.elements(TENSORS)  # without the last, it is a shorter list
    assert (first.what, first.lost) == ("layers.0", {"layers.0.a.weight", "layers.0.a.bias"})
    assert [change.what for change in dropping.modules(TENSORS)] == ["embed", "layers.0.a", "layers.1.a"]
    assert len(list(dropping.single_tensors(TENSORS))) == 4  # a module of one tensor is the tensor
    whole, *parts = dropping.everywhere(TENSORS)  # the module of both layers, and each tensor of it
    assert (whole.what, len(whole.lost)) == ("layers.N.a", 4)
    assert [(change.what, sorted(change.lost)) for change in parts] == [
        ("layers.N.a.weight", ["layers.0.a.weight", "layers.1.a.weight"]),
        ("layers.N.a.bias", ["layers.0.a.bias", "layers.1.a.bias"]),
    ]
    added = next(dropping.additions(TENSORS)).made(TENSORS)
    assert set(added) - set(TENSORS) == {"layers.0.a_appended.weight", "layers.0.a_appended.bias"}
    other = next(dropping.other_shapes(TENSORS)).made(TENSORS)
    assert other["embed.weight"].shape == (10, 4) and set(other) == set(TENSORS)


def test_a_folder_of_several_modules_is_taken_out_of_all_elements() -> None:
    cross = {f"layers.{at}.cross.{word}.weight": TENSORS["embed.weight"] for at in (0, 1) for word in "qk"}
    found = {change.what: change.lost for change in dropping.folders({**TENSORS, **cross})}
    assert found["layers.N.cross"] == set(cross)
    assert "layers.N.a" not in found  # one module, which `everywhere` takes out
    assert "layers.N" not in found  # no element, but what is in it
    assert list(dropping.folders(cross)) == []  # nothing would be left


def test_of_names_that_differ_in_numbers_one_is_tried_and_what_nobody_reads_is_not() -> None:
    read = frozenset(TENSORS) - {"embed.weight"}
    for seed in range(8):
        found = list(dropping.chosen("module", TENSORS, read, 5, random.Random(seed)))
        assert [dropping.folded(change.what) for change in found] == ["layers.N.a"]


def test_what_is_lost_is_told_from_what_is_not_needed(tmp_path: Path) -> None:
    """Without its pooler a BERT gives what is left of its outputs; without a map of one layer it is none."""
    family = next(family for family in RULEBOOK.families if family.name == "bert")
    example = header(family.examples[0])
    torch.manual_seed(0)
    weights = {name: torch.randn(info.shape) for name, info in example.tensors.items()}
    save_file(weights, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(example.config))
    inputs = {"input_ids": torch.tensor([[3, 1, 4]])}
    save_file(inputs, tmp_path / "inputs.safetensors")
    made = mapper.build(str(tmp_path))(**inputs)
    outputs = {name: value for name, value in vars(made).items() if isinstance(value, torch.Tensor)}
    save_file(outputs, tmp_path / "outputs.safetensors")

    judge = dropping.Judge(tmp_path, RULEBOOK)
    changes = {change.what: change for change in dropping.modules(judge.checkpoint.tensors)}
    by_end = {what.partition("encoder.")[2] or what: change for what, change in changes.items()}
    assert judge.outcome(by_end["layer.0.attention.self.query"]) in ("refused", "skeleton")
    assert judge.outcome(next(change for what, change in changes.items() if "pooler" in what)) == "less"
