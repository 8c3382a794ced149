"""Six representative types export, train and subclass, and three compile; `tools/validate.py` runs the same on all of them.

Each model is the first example of its family's rule file with random weights, so no reference library is needed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import pytest
import torch
from torch import Tensor, nn

from mapper._build import build_architecture
from mapper._trial import input_cases
from mapper.inference import infer
from mapper.rulebook.examples import header
from tests.shipped import RULEBOOK
from tools.tracing import CHECKS, failures

TYPES = ("bert", "llama", "gpt2", "mixtral", "t5", "vit")
COMPILED = ("bert", "llama", "vit")  # compiling takes five times as long as all the rest


@cache
def example(name: str) -> tuple[nn.Module, dict[str, Tensor], dict[str, list[str | int]]]:
    """The model of a family's first example, padded inputs for it, and what their extents are called."""
    family = next(family for family in RULEBOOK.families if family.name == name)
    architecture = infer(header(family.examples[0]), RULEBOOK)
    model = build_architecture(architecture)
    generator = torch.Generator().manual_seed(0)
    weights = {
        key: torch.randn(value.shape, generator=generator) * 0.1 for key, value in model.state_dict().items()
    }
    model.load_state_dict(weights, assign=True)
    cases = dict(input_cases(architecture, model))
    inputs = cases.get("right padding", cases["plain"])
    return model, inputs, {key: spec["shape"] for key, spec in architecture.inputs.items()}


@pytest.mark.parametrize(
    ("name", "check"),
    [(name, check) for name in TYPES for check in CHECKS if check != "compile" or name in COMPILED],
)
def test_representative_type(name: str, check: str) -> None:
    assert failures(*example(name), checks=[check]) == {}


@dataclass
class Output:
    x: Tensor


class Branching(nn.Module):
    """Traces badly; of its three parameters one trains, one has no effect, one has an effect and no gradient."""

    def __init__(self):
        super().__init__()
        self.used = nn.Parameter(torch.ones(4))
        self.idle = nn.Parameter(torch.ones(4))
        self.cut = nn.Parameter(torch.ones(4))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.cut.detach()
        return Output(x * self.used if float(x.sum()) > 0 else x - self.used)


def test_each_failure_is_one_line_with_its_cause() -> None:
    found = failures(Branching(), {"x": torch.ones(2, 4)}, {"x": ["batch", 4]})
    assert set(found) == {"export", "compile", "gradient"}
    assert found["gradient"] == "ValueError: 1 parameters get no gradient: cut"
    assert all("\n" not in cause and len(cause) <= 200 for cause in found.values())
