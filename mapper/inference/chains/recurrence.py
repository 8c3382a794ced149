"""What a plain recurrent layer does with its sum: no weight shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mapper.architecture import Fact, Leaf

if TYPE_CHECKING:
    from mapper.inference.chains.answers import Answers

FACT = "chain.recurrent_activation"
_TANH, _RELU = "tanh", "relu"  # that torch's own has


def ask_nonlinearity(leaf: Leaf, answers: Answers) -> None:
    """Asks for it and notes it at the layer. Raises HintError for one that torch's layer does not have."""
    if leaf.kind != "RNN":  # gates have activations of their own
        return
    value = answers.find(leaf, FACT, among=(_TANH, _RELU))
    if value not in (None, _TANH, _RELU):
        raise answers.refuse(leaf, FACT, str(value), f"allowed: {_TANH}, {_RELU}")
    if value == _RELU:
        leaf.facts["nonlinearity"] = Fact(FACT, _RELU, leaf.place.first(), "given", FACT)
