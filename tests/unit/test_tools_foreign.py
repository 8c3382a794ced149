"""tools/foreign.py: what is wrong, and what shows nothing."""

from __future__ import annotations

import torch

from tools.foreign import is_unstable


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
