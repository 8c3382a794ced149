"""The deviations with which weights are drawn before training: by torch, by the papers, by what a config says."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

CONSTANTS = (0.02, 0.01, 1.0)  # BERT, GPT-2 and most since; heads of detection; torch's embeddings
FIELDS = ("initializer_range", "init_std", "init_method_std", "initializer_factor")  # of configs
CUT = 0.8796  # what is left of a normal's deviation when it is cut off at two deviations
GATES = (1, 3, 4)  # rows of a recurrent weight for each unit: RNN, GRU, LSTM
_NEAR = 0.02  # relative, and four standard errors of a deviation


def is_usual(std: float, shape: tuple[int, ...], layers: int, config: Mapping[str, Any] | None) -> bool:
    """Whether weights of this shape may have been drawn with this deviation, in a model of so many layers."""
    near = max(_NEAR, 4 / math.sqrt(2 * math.prod(shape)))
    return any(abs(std / usual - 1) < near for usual in _deviations(shape, layers, config or {}) if usual > 0)


def _deviations(shape: tuple[int, ...], layers: int, config: Mapping[str, Any]) -> Iterator[float]:
    said = (config.get(field) for field in FIELDS)
    constants = {
        *CONSTANTS,
        *(float(value) for value in said if isinstance(value, (int, float)) and not isinstance(value, bool)),
    }
    for value in constants:
        yield from (value, value * CUT)
        if layers:  # what writes into the residual stream is drawn smaller (Radford and others 2019)
            yield value / math.sqrt(2 * layers)
    place = math.prod(shape[2:])
    inputs, outputs = shape[1] * place, shape[0] * place
    for fan in (inputs, outputs):
        yield from (1 / math.sqrt(fan), math.sqrt(2 / fan), CUT / math.sqrt(fan), CUT * math.sqrt(2 / fan))
    yield math.sqrt(2 / (inputs + outputs))
    yield from (1 / math.sqrt(3 * inputs), *(1 / math.sqrt(3 * shape[0] / gates) for gates in GATES))
