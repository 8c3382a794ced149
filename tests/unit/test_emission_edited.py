"""Every size of a generated Config can be edited alone: `tools/editing.py` finds none of these families that cannot."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.shipped import RULEBOOK

ROOT = Path(__file__).resolve().parents[2]


def _tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("editing", ROOT / "tools" / "editing.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["editing"] = module  # dataclasses look their module up there
    spec.loader.exec_module(module)
    return module


EDITING = _tool()


def source(name: str):
    family = next(item for item in RULEBOOK.families if item.name == name)
    made = EDITING.Source(name, EDITING.example(family, RULEBOOK))
    assert made.runs()
    return made


@pytest.mark.parametrize("name", ["llama", "bert", "gpt2", "t5", "gemma2", "convnext", "florence2", "lfm2"])
def test_every_size_can_be_edited_alone(name: str) -> None:
    assert not [*source(name).broken()]


def test_a_size_that_stands_elsewhere_as_a_number_is_told() -> None:
    made = source("llama")
    made.text = made.text.replace("config.intermediate_size, config.hidden_size", "96, config.hidden_size")
    exec(compile(made.text, made.module.__name__, "exec"), made.module.__dict__)
    made.config = made.module.Config(intermediate_size=96)
    assert [item.field for item in made.broken()] == ["intermediate_size"]
