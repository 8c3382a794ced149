"""A question reaches those who lack a fact and no others, and is asked when its answer has a place."""

from __future__ import annotations

import ast
from types import SimpleNamespace
from typing import Any

from mapper.architecture import Block, Place
from mapper.inference.asking import _named, _Open
from mapper.inference.requirements import Needs
from mapper.inference.scopes import Scope
from mapper.rulebook.declared import FLOW


def _place(stage: int, layer: int) -> Scope:
    home = Place(("stages", (stage,), "layers", (layer,), "middle"))
    return Scope(Block("convolution", "convolution_2", home), None, ("layers", "convolution_2"), None)


def test_places_that_no_name_has_in_common_are_asked_apart() -> None:
    lacking, knowing = [_place(0, 0), _place(1, 1)], [_place(1, 0)]
    together = [(name, len(scopes)) for name, scopes in _named(_Open("stride", "", lacking), [])]
    assert together == [("", 2)]
    apart = [(name, len(scopes)) for name, scopes in _named(_Open("stride", "", lacking), knowing)]
    assert apart == [("stages.0.layers.0", 1), ("stages.1.layers.1", 1)]


def test_a_flow_is_asked_of_those_together_that_could_all_have_each() -> None:
    plain = _Open(FLOW, "", among={"layer/plain": "layer/plain", "layer/any": "layer/any"})
    assert plain.shares(["layer/any", "layer/plain"])
    assert not plain.shares(["layer/any", "layer/shortcut"])
    assert _Open("stride", "", among={"1": 1, "2": 2}).shares(["2", "3"])


def _needs(body: str, **known: Any) -> Needs:
    flow = SimpleNamespace(
        statements=ast.parse(body).body, leaf_facts={}, rule=SimpleNamespace(needs=(), ties={})
    )
    return Needs(flow, lambda role: True, known.__getitem__)


BODY = """
if fact.layout == "packed":
    x = blocks(x, fact.factor, fact.width)
elif fact.layout == "each":
    x = rows(x, fact.width, fact.mark)
else:
    x = all_of(x, fact.width)
return x * fact.scale
"""


def test_what_one_answer_alone_has_a_place_for_waits_for_it() -> None:
    needs = _needs(BODY)
    assert set(needs.facts) == {"layout", "factor", "width", "mark", "scale"}
    assert needs.later == {"factor", "mark"}
    told = _needs(BODY, layout="packed")
    assert set(told.facts) == {"layout", "factor", "width", "scale"}
    assert told.later == set()


def test_what_an_option_alone_has_a_place_for_does_not_wait() -> None:
    """Nobody is asked for an option: whoever builds may choose it."""
    needs = _needs("if option.cache:\n    x = kept(x, fact.length)\nreturn x")
    assert set(needs.facts) == {"length"} and needs.later == set()
