"""What a header describes runs in half precision too: on small inputs where it takes them."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from mapper._trial import TINY, _run_half
from mapper.authoring.expectations import read_example
from mapper.errors import MapperError
from tests.shipped import RULEBOOK

GIVEN = {"pixel_values": torch.zeros(1, 3, 64, 64)}


class Taking(nn.Module):
    """Takes images of some size and type, and notes what it is given."""

    def __init__(self, least: int, dtypes: tuple[torch.dtype, ...]):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))
        self.least, self.dtypes = least, dtypes
        self.sides: list[int] = []

    def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
        self.sides.append(pixel_values.shape[-1])
        if pixel_values.shape[-1] < self.least or pixel_values.dtype not in self.dtypes:
            raise ValueError(f"{tuple(pixel_values.shape)} of {pixel_values.dtype}")
        return pixel_values * self.scale


@pytest.mark.parametrize(
    ("least", "dtype", "sides"),
    [
        (8, torch.bfloat16, [TINY["width"]]),
        (40, torch.bfloat16, [TINY["width"], 64]),
        (8, torch.float32, [TINY["width"], 64]),
    ],
)
def test_half_precision_is_tried_on_small_images_first(
    least: int, dtype: torch.dtype, sides: list[int]
) -> None:
    family = next(one for one in RULEBOOK.families if one.name == "compvis_autoencoder")
    architecture, _ = read_example(family.examples[0], family, RULEBOOK)
    assert architecture is not None
    model = Taking(least, (dtype,))
    if dtype == torch.bfloat16:
        _run_half(architecture, model, GIVEN)
    else:
        with pytest.raises(MapperError, match=r"bfloat16 inputs: ValueError: \(1, 3, 64, 64\)"):
            _run_half(architecture, model, GIVEN)
    assert model.sides == sides
