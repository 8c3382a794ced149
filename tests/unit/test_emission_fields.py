"""A field of the generated Config that is edited changes the whole model: nothing else holds the size that it is for."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import fields, replace
from types import ModuleType
from typing import Any

import pytest
import torch

from mapper.emission import emit
from mapper.inference import infer
from mapper.rulebook.examples import header
from tests.shipped import RULEBOOK

TOKENS = {"input_ids": torch.tensor([[1, 2, 3, 4, 5]])}


def module(family: str, monkeypatch: pytest.MonkeyPatch, example: int = 0) -> ModuleType:
    """The generated source of an example of a family, as a module."""
    item = next(item for item in RULEBOOK.families if item.name == family)
    text = emit(infer(header(item.examples[example]), RULEBOOK))
    made = ModuleType(f"generated_{family}")
    monkeypatch.setitem(sys.modules, made.__name__, made)  # where a dataclass looks its annotations up
    exec(compile(text, made.__name__, "exec"), made.__dict__)
    return made


@torch.no_grad()
def run(made: ModuleType, inputs: Mapping[str, Any], **edited: int) -> None:
    """Runs the model of other sizes."""
    made.Model(replace(made.Config(), **edited)).eval()(**inputs)


@pytest.mark.parametrize(
    ("family", "example", "edited"),
    [
        ("llama", 0, ["head_dim", "heads", "hidden_size", "intermediate_size", "layers", "vocab_size"]),
        ("bert", 4, ["hidden_size", "heads", "intermediate_size"]),
        ("distilbert", 0, ["hidden_size", "layers"]),
    ],
)
def test_an_edited_size_reaches_all_that_has_it(
    family: str, example: int, edited: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = module(family, monkeypatch, example)
    known = {field.name: field.default for field in fields(made.Config)}
    run(made, TOKENS)
    for name in edited:
        run(made, TOKENS, **{name: 2 * known[name]})


def test_heads_of_keys_are_a_field_only_where_there_are_fewer() -> None:
    llama = next(item for item in RULEBOOK.families if item.name == "llama")
    grouped = header(llama.examples[0])
    assert "    kv_heads: int" in emit(infer(grouped, RULEBOOK))
    maps = {name: info for name, info in grouped.tensors.items() if name.endswith("q_proj.weight")}
    alike = {
        name.replace("q_proj", word): info for name, info in maps.items() for word in ("k_proj", "v_proj")
    }
    plain = replace(grouped, tensors={**grouped.tensors, **alike})
    plain.config = {**(grouped.config or {}), "num_key_value_heads": None}
    text = emit(infer(plain, RULEBOOK))
    assert "kv_heads" not in text and "config.heads * config.head_dim" in text


def test_what_a_classifier_reads_is_the_size_of_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    made = module("vit", monkeypatch)
    size = made.Config().hidden_size
    assert "pooled_size" not in {field.name for field in fields(made.Config)}
    model = made.Model(replace(made.Config(), hidden_size=2 * size))
    assert model.classifier.in_features == 2 * size


def test_a_convolution_of_positions_goes_with_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    made = module("wav2vec2", monkeypatch)
    size = made.Config().hidden_size
    made.Model(replace(made.Config(), hidden_size=2 * size, position_kernel=6))
    text = emit(
        infer(header(next(f for f in RULEBOOK.families if f.name == "wav2vec2").examples[0]), RULEBOOK)
    )
    assert "padding=config.position_kernel // 2" in text
