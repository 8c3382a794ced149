"""The first lines of a source that nobody compared say what it rests on without evidence."""

from __future__ import annotations

import ast

import pytest

import mapper
from mapper.rulebook.examples import header
from tests.shipped import RULEBOOK


def first_lines(family: str, with_config: bool, **hints: object) -> str:
    known = header(next(item for item in RULEBOOK.families if item.name == family).examples[0])
    shapes = {name: list(info.shape) for name, info in known.tensors.items()}
    manifest = {"tensors": {name: {"shape": shape, "dtype": "F32"} for name, shape in shapes.items()}}
    source = mapper.generate({**manifest, **({"config": known.config} if with_config else {})}, hints=hints)
    return " ".join((ast.get_docstring(ast.parse(source)) or "").split())


def test_a_default_of_a_family_is_named_as_assumed() -> None:
    hints = {"attention.heads": 4, "feed_forward.activation": "gelu_new"}
    assert (
        "Assumed, as nothing here says it: norm.eps = 1e-5 (layer_norm_epsilon, left out: the default of gpt2)"
        in first_lines("gpt2", False, **hints)
    )


@pytest.mark.parametrize("family", ["gpt2", "bert"])
def test_what_a_type_vouches_for_is_not_assumed(family: str) -> None:
    assert "Assumed" not in first_lines(family, True)
