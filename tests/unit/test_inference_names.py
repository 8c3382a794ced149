"""Patterns against the names of a whole checkpoint."""

from __future__ import annotations

import pytest

from mapper.checkpoint import TensorInfo
from mapper.inference.names import Names
from mapper.naming.tree import grow


def test_either_of_two_patterns_is_enough() -> None:
    names = Names(grow({"layers.0.self_attn.norm_q.weight": TensorInfo((4,), "F32")}))
    assert names.has("{root}.layers.{n}.self_attn.q_norm.weight | {root}.layers.{n}.self_attn.norm_q.weight")
    assert names.has("q_norm.weight | norm_q.weight", [4])
    assert not names.has("q_norm.weight | k_norm.weight")
    assert not names.has("q_norm.weight | norm_q.weight", [8])


@pytest.mark.parametrize(("shape", "stored_in_out"), [((4, 12), True), ((12, 4), False), ((12, 12), False)])
def test_the_bias_of_a_map_may_show_that_it_is_stored_in_out(shape, stored_in_out) -> None:
    header = {"h.0.c_attn.weight": TensorInfo(shape, "F32"), "h.0.c_attn.bias": TensorInfo((12,), "F32")}
    assert Names(grow(header)).is_transposed("c_attn") == stored_in_out
    assert not Names(grow({"h.0.c_attn.weight": TensorInfo(shape, "F32")})).is_transposed("c_attn")
