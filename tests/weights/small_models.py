"""Small models of many architectures: the examples of the rule files, with random weights."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import is_dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mapper._build import build_architecture
from mapper._trial import made_up_inputs
from mapper.architecture import Architecture
from mapper.emission import emit
from mapper.inference import infer
from mapper.rulebook.examples import header, is_near_miss
from mapper.sources.storage import torch_dtype
from tests.shipped import RULEBOOK

FAMILIES = {family.name: family for family in RULEBOOK.families if family.model_types}
# One of each sort: encoders, decoders, both, mixtures, images, sound, two towers, state spaces, series.
KINDS = (
    "bert", "distilbert", "gpt2", "llama", "mixtral", "t5", "whisper", "vit", "resnet", "swin", "clip", "mamba",
    "deberta_v2", "gemma2",
)  # fmt: skip


@cache
def read(family: str) -> Architecture:
    """The reading of a family's first example that a source can be written for."""
    examples = [example for example in FAMILIES[family].examples if not is_near_miss(example)]
    readings = (infer(header(example), RULEBOOK) for example in examples)
    found = next((reading for reading in readings if _is_written(reading)), None)
    return found or pytest.skip(f"no example of {family} says all that its source needs")


def _is_written(reading: Architecture) -> bool:
    return not reading.refusal and (reading.reading == "skeleton" or not reading.missing)


def with_weights(architecture: Architecture) -> Architecture:
    """The architecture with small random tensors behind its table."""
    generator = torch.Generator().manual_seed(0)
    tensors = {}
    for name, info in architecture.checkpoint.tensors.items():
        values = torch.randn(info.shape, generator=generator) * 0.1
        tensors[name] = (values.abs() if "running_var" in name else values).to(torch_dtype(info.dtype, name))

    def give(names: Iterable[str]) -> dict[str, Tensor]:
        return {name: tensors[name] for name in names}

    architecture.checkpoint.read = give
    return architecture


def built(family: str, **options: bool) -> nn.Module:
    """The model of a family's first example."""
    return build_architecture(with_weights(read(family)), **options)


def imported(text: str, folder: Path, name: str = "generated_model") -> ModuleType:
    """A generated file as Python imports it."""
    path = folder / f"{name}.py"
    path.write_text(text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(f"{name}_{abs(hash(str(path)))}", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def generated(family: str, folder: Path, **options: bool) -> nn.Module:
    """The model of the file that is generated for a family's first example, with the weights of `built`."""
    module = imported(emit(read(family), **options), folder)
    model: nn.Module = module.Model()
    model.load_state_dict(built(family).state_dict(), strict=True, assign=True)
    if hasattr(module, "tie"):
        module.tie(model)
    return model.eval()


def outputs(family: str, model: nn.Module) -> list[Tensor]:
    """The tensors that a forward on made-up inputs gives."""
    inputs = made_up_inputs(read(family), model)
    torch.manual_seed(0)
    with torch.no_grad():
        return list(_tensors(model(**inputs)))


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif is_dataclass(value):
        yield from _tensors(list(vars(value).values()))
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)


def stored(data: Any) -> Any:
    """A JSON value as it comes back from a file."""
    return json.loads(json.dumps(data, allow_nan=False))
