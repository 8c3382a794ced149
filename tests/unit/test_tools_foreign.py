"""tools/foreign.py: what is wrong, and what shows nothing."""

from __future__ import annotations

import pytest
import torch

from tools.foreign import BLOCKS, is_unstable, of_class


class Grown(torch.nn.Module):
    """Adds what single precision loses beside a large number."""

    def __init__(self, large: float) -> None:
        super().__init__()
        self.large = torch.nn.Parameter(torch.tensor(large))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.large - self.large


def test_numbers_that_more_digits_change_show_nothing() -> None:
    x = torch.tensor([0.3, 0.7])
    for large, is_lost in ((1e9, True), (1.0, False)):
        model = Grown(large)
        assert is_unstable(model, {"x0": x}, [model(x).detach()]) is is_lost


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("BasicConv2d", {"convolution", "layer"}),
        ("ResidualUnit", {"convolution", "layer"}),
        ("ClassAttn", {"attention"}),
        ("LayerScaleBlockClassAttn", {"layer"}),
        ("UNetMidBlock2DCrossAttn", set()),  # a stage
    ],
)
def test_what_a_class_may_be_read_as(name: str, kinds: set[str]) -> None:
    found = of_class(BLOCKS, name)
    assert found is not None
    assert found[0] == kinds


@pytest.mark.parametrize("name", ["Conv2d", "ConvTranspose1d", "Sequential", "Linear"])
def test_a_module_with_tensors_of_its_own_is_no_block(name: str) -> None:
    assert of_class(BLOCKS, name) is None
