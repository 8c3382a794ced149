"""Patterns against the names of a whole checkpoint."""

from __future__ import annotations

from mapper.checkpoint import TensorInfo
from mapper.inference.names import Names
from mapper.naming.tree import grow


def test_either_of_two_patterns_is_enough() -> None:
    names = Names(grow({"layers.0.self_attn.norm_q.weight": TensorInfo((4,), "F32")}))
    assert names.has("{root}.layers.{n}.self_attn.q_norm.weight | {root}.layers.{n}.self_attn.norm_q.weight")
    assert names.has("q_norm.weight | norm_q.weight", [4])
    assert not names.has("q_norm.weight | k_norm.weight")
    assert not names.has("q_norm.weight | norm_q.weight", [8])
