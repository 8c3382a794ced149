"""A file that is one layer of torch, saved without a model around it: it gives what torch's own gives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mapper.architecture import Leaf
from mapper.inference.chains.recurrence import ask_nonlinearity

if TYPE_CHECKING:
    from mapper.inference.chains.between import Between

NOTE = "a layer without a model around it: its input is read as (batch, length, features), no file says whether length stands first"


def is_whole(leaves: Sequence[Leaf]) -> bool:
    """Whether a file is one module, saved without a model around it."""
    return len(leaves) == 1 and not leaves[0].place


def write_whole(between: Between, name: str) -> None:
    """Its output and its last states, as the input `name` leaves them."""
    ask_nonlinearity(between.links[0].element.leaf, between.answers)
    between.add(f"x, states = {between.roles[0]}({name})")
    if between.links[0].element.leaf.kind == "LSTM":
        between.add("hidden, cell = states")
        between.add("return output(output=x, hidden=hidden, cell=cell)")
    else:
        between.add("return output(output=x, hidden=states)")
