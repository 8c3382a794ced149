"""What complete examples show of elements of lists: one that has less than any of them lost a part."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from mapper import catalogue
from mapper.checkpoint import Checkpoint
from mapper.errors import MapperError
from mapper.inference import infer
from mapper.rulebook.complete import Complete, Made, has_known_names, lacking, lesser, made_of, words_of
from mapper.rulebook.elements import spelled
from mapper.rulebook.examples import header
from tests.shipped import RULEBOOK

RECOGNISE = ["{root}.layers.{n}.a"]


def names(*layers: str) -> list[str]:
    """`a b`: a layer with two modules of one tensor each."""
    return [f"layers.{at}.{word}.weight" for at, words in enumerate(layers) for word in words.split()]


def made(*examples: Iterable[str]) -> Made:
    return made_of([Complete("tale", (), tensors) for tensors in examples], RECOGNISE)


def lost(known: Made, tensors: Iterable[str], *optional: str, everywhere: bool = False) -> list[str]:
    paths = [words_of(name) for name in tensors]
    found = lesser(known, paths, RECOGNISE, lambda path: spelled(path) in optional, everywhere)
    return [".".join(word if isinstance(word, str) else str(*word) for word in path) for path in found]


def test_one_example_shows_what_an_element_has() -> None:
    known = made(names("a norm", "a norm"))
    assert lost(known, names("a norm", "a norm", "a norm")) == []
    assert lost(known, names("a norm", "a", "a norm")) == ["layers.1.norm"]
    assert lost(known, names("a norm", "a", "a norm"), "layers.{n}.norm") == []


def test_what_no_element_has_is_another_model() -> None:
    known = made(names("a norm", "a norm"))
    assert lost(known, names("a", "a")) == []


def test_what_no_element_has_is_missed_where_no_example_is_without() -> None:
    known = made(names("a norm", "a norm"))
    assert lost(known, names("a", "a"), everywhere=True) == ["layers.0.norm", "layers.1.norm"]
    assert lost(known, names("a", "a"), "layers.{n}.norm", everywhere=True) == []
    both = made(names("a norm", "a norm"), names("a", "a"))  # a field of the config may leave it out
    assert lost(both, names("a", "a"), everywhere=True) == []
    assert lost(known, names("a other", "a other"), everywhere=True) == []  # another kind of element


def test_rows_of_modules_have_each_its_own() -> None:
    """As Evolla's resampler: an attention is the first of each pair, a network the second."""
    pair = ["layers.0.0.norm_media.weight", "layers.0.0.a.weight", "layers.0.1.a.weight"]
    known = made_of([Complete("tale", (), pair)], ["{root}.layers.{n}.{n}.a"])
    found = lesser(
        known, [words_of(name) for name in pair[1:]], ["{root}.layers.{n}.{n}.a"], lambda _: False, True
    )
    assert [spelled(path) for path in found] == ["layers.{n}.{n}.norm_media"]


def test_folders_outside_of_lists_have_one_of_the_sets_of_the_examples() -> None:
    """As MaskFormer's images, which a Swin with norms reads or a ResNet without."""
    swin = [*names("a"), "images.model.weight", "images.norms.weight"]
    known = made(swin, [*names("a"), "images.stages.weight"])
    assert lost(known, [name for name in swin if "norms" not in name], everywhere=True) == ["images.norms"]
    assert lost(known, swin, everywhere=True) == []


def test_a_weight_in_two_parts_is_a_weight() -> None:
    """As VITS' convolutions, of which the bias alone was left."""
    parted = ["layers.0.a.parametrizations.weight.original0", "layers.0.a.parametrizations.weight.original1"]
    known = made([*parted, "layers.0.a.bias"], [*parted, "layers.0.a.bias"])
    paths = [words_of("layers.0.a.bias")]
    assert [spelled(path) for path in lacking(known, paths, RECOGNISE)] == ["layers.{n}.a.weight"]
    whole = [words_of(name) for name in ("layers.0.a.bias", "layers.0.a.weight")]
    assert list(lacking(known, whole, RECOGNISE)) == []


def test_words_that_differ_in_a_number_are_a_list() -> None:
    """As Switch Transformers' `expert_7`."""
    known = made(names(*["a_0 a_1 a_2 a_3"] * 2))
    assert lost(known, names("a_0 a_1 a_2", "a_0 a_1 a_2"), everywhere=True) == []


def test_one_example_makes_no_rule_and_a_tower_of_other_names_none() -> None:
    assert not made(names("a norm")).is_sure and made(names("a norm"), names("a norm")).is_sure
    known = made(names("a norm"))
    for tensors, is_known in ((names("a"), True), (names("a b"), False)):
        paths = [words_of(name) for name in tensors]
        assert has_known_names(known, paths, RECOGNISE) == is_known
        assert has_known_names(known, paths, RECOGNISE, lambda path: "a" not in path and "norm" in path)


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

    def of_net(*examples: list[str]) -> Made:
        return made_of([Complete("tale", (), names) for names in examples], ["{root}.net.layers.{n}.a"])

    known = of_net(both(3, 3), both(4, 4))

    def missed(names: list[str]) -> list[str]:
        paths = [words_of(name) for name in names]
        return [spelled(path) for path in lesser(known, paths, ["{root}.net.layers.{n}.a"], lambda _: False)]

    assert missed(both(5, 5)) == []
    assert missed(both(5, 4)) == ["net.skips.{n}"]
    alike = of_net(both(3, 3), both(3, 3))
    paths = [words_of(name) for name in both(5, 4)]  # two lists of one length may be so by chance
    assert list(lesser(alike, paths, ["{root}.net.layers.{n}.a"], lambda _: False)) == []


def example(model_type: str, word: str = "") -> Checkpoint:
    """The first complete example of a model type with a word in its names."""
    family = next(family for family in RULEBOOK.families if model_type in family.model_types)
    complete = (
        header(item)
        for item in family.examples
        if (item.config or {}).get("model_type") == model_type and item.expect.get("reading") == "exact"
    )
    return next(read for read in complete if any(word in name for name in read.tensors))


def without(known: Checkpoint, word: str) -> Checkpoint:
    """A checkpoint without all tensors in whose names a word is."""
    return replace(known, tensors={name: info for name, info in known.tensors.items() if word not in name})


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


EVERYWHERE = [
    ("evolla", "norm_media"),
    ("vits", "in_layers"),  # whose weights are in two parts
    ("qwen3_next", "shared_expert_gate"),
    ("maskformer", "hidden_states_norms"),  # of a tower whose own family knows nothing of them
]


@pytest.mark.parametrize(("model_type", "word"), EVERYWHERE, ids=[model_type for model_type, _ in EVERYWHERE])
def test_a_checkpoint_that_lost_a_part_of_all_elements_is_not_exact(model_type: str, word: str) -> None:
    """Each of these was called exact."""
    known = example(model_type, word)
    assert infer(known, RULEBOOK).reading == "exact"
    with pytest.raises(MapperError):
        infer(without(known, word), RULEBOOK)


def test_what_the_only_example_has_is_a_finding_where_it_lacks() -> None:
    """One example does not show what may be missing: no reading without it is exact, and none is refused."""
    known = example("kosmos-2.5", "wi_0")
    found = infer(without(known, "wi_0"), RULEBOOK)
    assert found.reading == "unverified"
    assert any("wi_0" in line for line in found.findings)


def test_a_tower_with_older_names_lacks_nothing() -> None:
    """The whole has examples with towers of this type, but calls their folders otherwise: LLaVA as first published."""
    found = catalogue.find("llava-hf/llava-1.5-7b-hf")
    assert found is not None and infer(found, RULEBOOK).reading == "exact"


def test_a_count_of_batches_may_be_missing() -> None:
    """Files of old have none, and no forward reads it; EfficientNet without them was refused."""
    known = example("efficientnet", "num_batches_tracked")
    assert infer(without(known, "num_batches_tracked"), RULEBOOK).reading == "exact"


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
