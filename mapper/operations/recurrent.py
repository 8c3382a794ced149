"""Cells of recurrent networks over a whole sequence, with the parameter names of torch's cells."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class LSTMSteps(nn.LSTMCell):
    """LSTM cell over each position in turn. (B, L, in), state -> (B, L, hidden), last state"""

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True):
        super().__init__(input_size, hidden_size, bias)

    def forward(  # type: ignore[override]
        self, x: Tensor, state: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, tuple[Tensor, Tensor] | None]:
        outputs = []
        for step in x.unbind(1):
            state = super().forward(step, state)
            outputs.append(state[0])
        return torch.stack(outputs, dim=1), state


class GRUSteps(nn.GRUCell):
    """GRU cell over each position in turn. (B, L, in), state -> (B, L, hidden), last state"""

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True):
        super().__init__(input_size, hidden_size, bias)

    def forward(  # type: ignore[override]
        self, x: Tensor, state: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        outputs = []
        for step in x.unbind(1):
            state = super().forward(step, state)
            outputs.append(state)
        return torch.stack(outputs, dim=1), state


class RNNSteps(nn.RNNCell):
    """Recurrent cell over each position in turn. (B, L, in), state -> (B, L, hidden), last state"""

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True, nonlinearity: str = "tanh"):
        super().__init__(input_size, hidden_size, bias, nonlinearity)

    def forward(  # type: ignore[override]
        self, x: Tensor, state: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        outputs = []
        for step in x.unbind(1):
            state = super().forward(step, state)
            outputs.append(state)
        return torch.stack(outputs, dim=1), state
