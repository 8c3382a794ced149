"""What complete examples show of elements of lists: one that has less than any of them lost a part."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from mapper.checkpoint import Checkpoint
from mapper.errors import MapperError
from mapper.inference import infer
from mapper.rulebook.complete import Made, lesser, made_of, words_of
from mapper.rulebook.elements import spelled
from mapper.rulebook.examples import header
from tests.shipped import RULEBOOK

RECOGNISE = ["{root}.layers.{n}.a"]


def names(*layers: str) -> list[str]:
    """`a b`: a layer with two modules of one tensor each."""
    return [f"layers.{at}.{word}.weight" for at, words in enumerate(layers) for word in words.split()]


def made(*examples: Iterable[str]) -> Made:
    return made_of([("tale", tensors) for tensors in examples], RECOGNISE)


def lost(known: Made, tensors: Iterable[str], *optional: str) -> list[str]:
    paths = [words_of(name) for name in tensors]
    found = lesser(known, paths, RECOGNISE, lambda path: spelled(path) in optional)
    return [".".join(word if isinstance(word, str) else str(*word) for word in path) for path in found]


def test_one_example_shows_what_an_element_has() -> None:
    known = made(names("a norm", "a norm"))
    assert lost(known, names("a norm", "a norm", "a norm")) == []
    assert lost(known, names("a norm", "a", "a norm")) == ["layers.1.norm"]
    assert lost(known, names("a norm", "a", "a norm"), "layers.{n}.norm") == []


def test_what_no_element_has_is_another_model() -> None:
    known = made(names("a norm", "a norm"))
    assert lost(known, names("a", "a")) == []


def test_elements_may_be_of_several_kinds_and_the_first_of_its_own() -> None:
    known = made(names("a", "a norm", "a experts norm"))
    assert lost(known, names("a", "a experts norm", "a norm", "a experts norm")) == []
    assert lost(known, names("a", "a norm", "a", "a norm")) == ["layers.2.norm"]
    # all elements behind the first are alike: a config may say so
    assert lost(known, names("a norm", "a", "a")) == []


def test_what_most_elements_lack_is_something_more_of_the_others() -> None:
    """As Evolla's adapters: its small example has one in each layer, a real one in one of four."""
    known = made(names("a adapter", "a adapter"))
    assert lost(known, names("a adapter", "a", "a", "a", "a adapter", "a", "a", "a")) == []
    assert lost(known, names("a adapter", "a", "a adapter", "a adapter")) == ["layers.1.adapter"]


def test_a_number_is_missed_where_examples_have_it() -> None:
    known = made(names("a", "a", "a"))
    assert lost(known, [name for name in names("a", "a", "a", "a") if ".1." not in name]) == ["layers.1"]
    assert lost(known, [name for name in names("a", "a", "a", "a") if ".0." not in name]) == ["layers.0"]
    assert lost(known, names("a", "a")) == []
    with_steps = made([f"layers.{at}.a.weight" for at in (0, 2, 4)])  # what has no weights stands between
    assert lost(with_steps, [f"layers.{at}.a.weight" for at in (0, 2, 4, 6)]) == []
    assert lost(with_steps, [f"layers.{at}.a.weight" for at in (0, 4, 6)]) == ["layers.2"]
    # as EnCodec's: an activation is the second of three
    uneven = made([f"layers.{at}.a.weight" for at in (0, 1, 3, 4, 6)])
    assert lost(uneven, [f"layers.{at}.a.weight" for at in (0, 3, 4, 6)]) == ["layers.1"]
    assert lost(uneven, [f"layers.{at}.a.weight" for at in (0, 1, 4, 6)]) == ["layers.3"]


def test_lists_that_are_always_as_long_as_each_other_are_so() -> None:
    def both(first: int, second: int) -> list[str]:
        ups = [f"net.layers.{at}.a.weight" for at in range(first)]
        return ups + [f"net.skips.{at}.weight" for at in range(second)]

    known = made_of([("tale", both(3, 3)), ("tale", both(4, 4))], ["{root}.net.layers.{n}.a"])

    def missed(names: list[str]) -> list[str]:
        paths = [words_of(name) for name in names]
        return [spelled(path) for path in lesser(known, paths, ["{root}.net.layers.{n}.a"], lambda _: False)]

    assert missed(both(5, 5)) == []
    assert missed(both(5, 4)) == ["net.skips.{n}"]
    alike = made_of([("tale", both(3, 3)), ("tale", both(3, 3))], ["{root}.net.layers.{n}.a"])
    paths = [words_of(name) for name in both(5, 4)]  # two lists of one length may be so by chance
    assert list(lesser(alike, paths, ["{root}.net.layers.{n}.a"], lambda _: False)) == []


def example(model_type: str) -> Checkpoint:
    """The first complete example of a model type."""
    family = next(family for family in RULEBOOK.families if model_type in family.model_types)
    return next(
        header(item)
        for item in family.examples
        if (item.config or {}).get("model_type") == model_type and item.expect.get("reading") == "exact"
    )


LOST = [
    ("modernbert", "layers.1.mlp_norm"),  # whose bias is optional
    ("timesfm", "layers.1.input_layernorm"),
    ("wav2vec2", "feature_extractor.conv_layers.1.conv"),
    ("encodec", "encoder.layers.3.conv"),
    ("kimi_k25", "experts.1.gate_proj"),  # a gate of one expert
]


@pytest.mark.parametrize(("model_type", "module"), LOST, ids=[model_type for model_type, _ in LOST])
def test_a_checkpoint_that_lost_a_part_of_one_element_is_not_exact(model_type: str, module: str) -> None:
    """Each of these was called exact."""
    known = example(model_type)
    assert infer(known, RULEBOOK).reading == "exact"
    rest = {name: info for name, info in known.tensors.items() if f".{module}." not in f".{name}"}
    assert len(rest) < len(known.tensors)
    with pytest.raises(MapperError):
        infer(replace(known, tensors=rest), RULEBOOK)


ADDED = [("modernbert", "layers.0.mlp_norm"), ("albert", "albert_layers.0.ffn")]


@pytest.mark.parametrize(("model_type", "module"), ADDED, ids=[model_type for model_type, _ in ADDED])
def test_a_module_that_shapes_alone_give_a_role_is_named(model_type: str, module: str) -> None:
    """A second norm of a layer was its norm before the attention, a second map of a network its gate: both were exact."""
    known = example(model_type)
    second = {
        name.replace(module, f"{module}_extra"): info
        for name, info in known.tensors.items()
        if f".{module}." in f".{name}"
    }
    assert second and infer(known, RULEBOOK).reading == "exact"
    found = infer(replace(known, tensors={**known.tensors, **second}), RULEBOOK)
    assert found.reading == "unverified"
    assert any(f"{module}_extra is read as" in line for line in found.findings)
