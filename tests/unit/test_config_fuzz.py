"""The tool that changes configs: what it changes, and that it sees what is wrong."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import mapper
from tests.parity.harness import outputs, quiet, reference
from tools.config_fuzz.__main__ import is_wrong, summary
from tools.config_fuzz.fields import LEFT_OUT, Change, changes, pairs, patched
from tools.config_fuzz.reference import Case
from tools.config_fuzz.trial import Unchanged, trial, unchanged
from tools.config_fuzz.values import rope_variants, values_for

RAW = {
    "model_type": "opt",
    "architectures": ["OPTForCausalLM"],
    "vocab_size": 99,
    "hidden_size": 32,
    "ffn_dim": 44,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 40,
    "word_embed_proj_dim": 32,
}


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    """A folder with a tiny model, its inputs and its outputs."""
    from transformers import OPTConfig

    folder = tmp_path_factory.mktemp("opt")
    with quiet():
        model = reference("OPTForCausalLM", OPTConfig.from_dict(dict(RAW)))
        model.save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps(RAW))
    ids = torch.randint(3, 99, (2, 12), generator=torch.Generator().manual_seed(0))
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    with torch.no_grad(), quiet():
        found = {name: value.contiguous().clone() for name, value in outputs(model(**inputs))}
    save_file(inputs, folder / "inputs.safetensors")
    save_file(found, folder / "outputs.safetensors")
    return Case(folder)


@pytest.fixture(scope="module")
def base(case: Case, tmp_path_factory: pytest.TempPathFactory) -> Unchanged:
    with quiet():
        found = unchanged(case, tmp_path_factory.mktemp("unchanged"))
    assert isinstance(found, Unchanged), found
    return found


def change_of(case: Case, base: Unchanged, field: str, kind: str) -> Change:
    found = changes(case.raw, base.config, case.ids, random.Random(0))
    return next(change for change in found if (change.field, change.kind) == (field, kind))


def test_a_field_gets_other_values_of_its_kind_and_never_its_own() -> None:
    layers = values_for("num_hidden_layers", 2, {"layer_types": ["a", "b"]}, dict, [])
    assert layers == [(1, {"layer_types": ["a"]}), (3, {"layer_types": ["a", "b", "a"]})]
    assert (4, {"num_key_value_heads": 4}) in values_for(
        "num_attention_heads", 8, {"num_key_value_heads": 8}, dict, []
    )
    assert "gelu" not in [value for value, _ in values_for("hidden_act", "gelu", {}, dict, [])]
    given = {"rope_type": "default", "rope_theta": 500.0}
    assert {one["rope_type"] for one in rope_variants({"head_dim": 8}, given)} >= {"linear", "yarn", "llama3"}


def test_two_fields_at_once_never_lie_in_each_other(case: Case, base: Unchanged) -> None:
    found = pairs(changes(case.raw, base.config, case.ids, random.Random(0)), random.Random(0))
    assert len(found) > 10 and all(
        len({path for path, _ in option[2]}) > 1 for one in found for option in one.options
    )
    assert patched({"a": {"b": 1}, "c": 2}, [(("a", "b"), LEFT_OUT), (("d",), 3)]) == {
        "a": {},
        "c": 2,
        "d": 3,
    }


@pytest.mark.parametrize(
    ("field", "kind", "effect"),
    [
        ("activation_function", "default", "yes"),
        ("num_hidden_layers", "present", "shape"),
        ("dropout", "default", "no"),
    ],
)
def test_a_change_is_a_row_with_what_it_leads_to(
    case: Case, base: Unchanged, field: str, kind: str, effect: str
) -> None:
    change = change_of(case, base, field, kind)
    with quiet():
        row = trial(case, base, change, change.options[0], None)
    assert (row["reading"], row["result"], row["effect"]) == ("exact", "equal", effect)


def test_a_wrong_reading_is_seen_and_kept(
    case: Case, base: Unchanged, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build = mapper.build

    def wrong(folder: Path) -> nn.Module:
        model = build(folder)
        with torch.no_grad():
            next(model.parameters()).mul_(2.0)
        return model

    monkeypatch.setattr(mapper, "build", wrong)
    change = change_of(case, base, "activation_function", "default")
    with quiet():
        row: dict[str, Any] = trial(case, base, change, change.options[0], tmp_path)
    assert row["result"] == "wrong" and is_wrong(row) and summary([row])["exact and WRONG"] == 1
    assert (tmp_path / row["kept"] / "inputs.safetensors").exists()


def test_a_reading_that_is_equal_in_float64_is_rounding() -> None:
    row = {"reading": "exact", "result": "wrong", "effect": "yes", "in float64": 1e-12}
    assert not is_wrong(row) and summary([row])["exact, wrong by rounding"] == 1
