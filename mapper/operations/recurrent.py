"""Cells of recurrent networks over a whole sequence, with the parameter names of torch's cells."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class LSTMSteps(nn.LSTMCell):
    """LSTM cell over each position in turn. (B, L, in) -> (B, L, hidden), (B, hidden)"""

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True):
        super().__init__(input_size, hidden_size, bias)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        state, outputs = None, []
        for step in x.unbind(1):
            state = super().forward(step, state)
            outputs.append(state[0])
        return torch.stack(outputs, dim=1), outputs[-1]


class GRUSteps(nn.GRUCell):
    """GRU cell over each position in turn. (B, L, in) -> (B, L, hidden), (B, hidden)"""

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True):
        super().__init__(input_size, hidden_size, bias)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        state, outputs = None, []
        for step in x.unbind(1):
            state = super().forward(step, state)
            outputs.append(state)
        return torch.stack(outputs, dim=1), outputs[-1]


class RNNSteps(nn.RNNCell):
    """Recurrent cell over each position in turn. (B, L, in) -> (B, L, hidden), (B, hidden)"""

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True, nonlinearity: str = "tanh"):
        super().__init__(input_size, hidden_size, bias, nonlinearity)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        state, outputs = None, []
        for step in x.unbind(1):
            state = super().forward(step, state)
            outputs.append(state)
        return torch.stack(outputs, dim=1), outputs[-1]
