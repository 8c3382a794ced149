"""What a tower does with a cache for each of its layers: rules say none of it."""

from __future__ import annotations

import ast

import pytest

from mapper.flows.cached import keep_caches
from tests.flow_rules import written

CACHES = "layer_caches(past, len(layers))"


def rows(text: str, *below: str) -> list[str] | None:
    made = keep_caches(ast.parse(text).body, [ast.parse(inner).body for inner in below])
    return None if made is None else written(made)


@pytest.mark.parametrize(
    "loop, with_caches",
    [
        ("for layer in layers", f"for layer, layer_cache in zip(layers, {CACHES}):"),
        (
            "for layer, kind in zip(layers, kinds)",
            f"for layer, kind, layer_cache in zip(layers, kinds, {CACHES}):",
        ),
        (
            "for index, layer in enumerate(layers)",
            f"for index, (layer, layer_cache) in enumerate(zip(layers, {CACHES})):",
        ),
        (
            "for depth, (layer, kind) in enumerate(zip(layers, kinds))",
            f"for depth, (layer, kind, layer_cache) in enumerate(zip(layers, kinds, {CACHES})):",
        ),
    ],
)
def test_each_layer_of_a_loop_has_a_cache(loop: str, with_caches: str) -> None:
    made = rows(f"x = embeddings()\n{loop}:\n  x = layer(x)\nreturn x")
    assert made == [
        "cache_position = new_cache_positions(input_ids, start)",
        "x = embeddings()",
        with_caches,
        "  x = layer(x)",
        "return x",
    ]


@pytest.mark.parametrize(
    "body",
    [
        "for layer in layers[:2]:\n  x = layer(x)\nfor layer in layers[2:]:\n  x = layer(x)\nreturn x",
        "for _ in range(2):\n  for layer in layers:\n    x = layer(x)\nreturn x",
        "for layer in layers:\n  x = layer(x)\nfor layer in layers:\n  x = layer(x)\nreturn x",
    ],
)
def test_layers_that_run_in_parts_or_more_than_once_have_none(body: str) -> None:
    assert rows(body) is None


def test_positions_are_counted_behind_what_is_kept() -> None:
    text = (
        "a = rotary(x, position_indices(x, position_ids))\nfor layer in layers:\n  x = layer(x, a)\nreturn x"
    )
    counted = rows(text, "return given(position_ids, cache_position[None])")
    assert counted and "a = rotary(x, cache_positions(cache_position, position_ids))" in counted
    unaware = rows(text, "return position(position_ids)")  # a block below counts nothing itself
    assert unaware and unaware[1] == "position_ids = cache_positions(cache_position, position_ids)"
