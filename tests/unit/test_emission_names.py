from __future__ import annotations

import keyword

import pytest
from torch import nn

from mapper.architecture import Architecture, Block, Leaf, Place
from mapper.catalogue import find
from mapper.checkpoint import Checkpoint, TensorInfo
from mapper.emission import emit
from mapper.emission.identifiers import (
    RESERVED,
    RESERVED_IN_DICT,
    camel,
    identifier,
    is_attribute,
    rename_table,
)
from mapper.inference import infer
from mapper.rulebook.examples import header
from mapper.rulebook.rulebook import Rulebook

HOSTILE = [
    "", "a", "class", "None", "0", "0a", "a b", "a-b", "a/b", "é", "日本", "__import__('os')", '"', "\n", "\0", "__class__", "_", "__", "ſ",
    "ﬁ", "x" * 5000, "async", "match", "{0}", "\u202e", "self", "a\u0301",
]  # fmt: skip


def members(module: nn.Module) -> set[str]:
    """Names that a child must not have; what another library has patched onto torch's classes aside."""
    names = {*dir(module), *vars(module)}
    return {name for name in names if name[:2] != "__" and _is_torchs(getattr(module, name, None))}


def _is_torchs(value: object) -> bool:
    return not str(getattr(value, "__module__", "torch")).startswith("transformers")


def table(*keys: str) -> dict[str, str]:
    """The renamed words of a checkpoint with these keys."""
    leaves = [
        Leaf(
            Place(key.rpartition(".")[0].split(".")),
            "Linear",
            {key.rpartition(".")[2]: TensorInfo((2,), "F32")},
            "",
        )
        for key in keys
    ]
    return rename_table(
        Architecture(Checkpoint("x", "manifest", {}), leaves, Block("other", "root", Place()))
    )


def test_reserved_names_are_those_of_a_module() -> None:
    assert members(nn.Module()) <= RESERVED
    private = {name for name in members(nn.ModuleList()) if name.startswith("_")}
    assert members(nn.Module()) | private == RESERVED


def test_reserved_names_of_dicts_are_those_that_they_have_besides() -> None:
    more = (members(nn.ModuleDict()) | members(nn.ParameterDict())) - members(nn.Module())
    assert more == RESERVED_IN_DICT


@pytest.mark.parametrize("text", HOSTILE)
def test_any_text_becomes_an_identifier(text: str) -> None:
    name = identifier(text)
    assert name.isascii()
    assert name.isidentifier()
    assert not keyword.iskeyword(name)
    assert not name.startswith("__")
    assert len(name) <= 62


@pytest.mark.parametrize("text", [text for text in HOSTILE if text != "_"])
def test_any_text_becomes_a_class_name(text: str) -> None:
    name = camel(text)
    assert name.isascii()
    assert name.isidentifier()
    assert not keyword.iskeyword(name)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("feed_forward", "FeedForward"),
        ("LayerNorm", "LayerNorm"),
        ("q", "Q"),
        ("1x1", "_1x1"),
        ("none", "None_"),
    ],
)
def test_classes_are_named_after_words(text: str, name: str) -> None:
    assert camel(text) == name


@pytest.mark.parametrize("word", ["weight", "q_proj", "_x", "LayerNorm", "self", "config", "torch", "match"])
def test_words_that_can_be_attributes_stay(word: str) -> None:
    assert is_attribute(word)
    assert table(f"{word}.weight") == {}


@pytest.mark.parametrize(
    ("word", "name"),
    [
        ("class", "class_"),
        ("forward", "forward_"),
        ("type", "type_"),
        ("training", "training_"),
        ("_parameters", "_parameters_"),
        ("a/b", "a_b"),
        ("é", "e"),
        ("__dict__", "x__dict__"),
        ("", "unnamed"),
        ("1x1", "_1x1"),
    ],
)
def test_words_that_cannot_be_attributes_are_renamed(word: str, name: str) -> None:
    assert table(f"a.{word}.weight") == {word: name}


def test_numbers_are_positions_and_stay() -> None:
    assert table("0.weight", "00.weight", "a.17.weight") == {}


def test_digits_of_other_scripts_are_no_positions() -> None:
    assert table("a.²5.weight", "a.٣.weight") == {"²5": "_25", "٣": "unnamed"}


def test_two_words_never_get_one_name() -> None:
    renamed = table(
        "class.weight", "class_.weight", "é.weight", "e.weight", "è.weight", "a/b.weight", "a-b.weight"
    )
    assert len({*renamed.values(), "class_", "e"}) == len(renamed) + 2
    assert renamed["class"] == "class__"


def test_a_new_name_is_no_tensor_of_the_checkpoint() -> None:
    assert table("a.weight-.x", "b.weight_") == {"weight-": "weight__"}


def test_equal_layers_of_which_several_are_one_class_are_named_without_a_place() -> None:
    rulebook = Rulebook()
    family = next(family for family in rulebook.families if family.name == "torchaudio_wavlm")
    example = next(example for example in family.examples if example.config is None)
    assert "class " in emit(infer(header(example), rulebook))


def test_a_causal_tower_that_makes_one_vector_of_a_text_is_an_encoder() -> None:
    text = emit(infer(find("patrickjohncyh/fashion-clip"), Rulebook()))
    assert "self.text_model = TextEncoder(config)" in text
    assert "class Decoder" not in text


def test_a_block_whose_folder_holds_others_is_no_class_of_its_own() -> None:
    """The convolution behind EfficientNet's layers stands in the folder of the layers, which is not called after it."""
    rulebook = Rulebook()
    family = next(item for item in rulebook.families if item.name == "efficientnet")
    text = emit(infer(header(family.examples[0]), rulebook))
    assert "class FinalConvolution" not in text
    assert "x = F.silu(self.encoder.top_bn(self.encoder.top_conv(x)))" in text
    assert "self.efficientnet = Encoder(config)" in text


def test_a_tower_whose_folder_holds_a_pooler_stays_a_class() -> None:
    checkpoint = find("emilyalsentzer/Bio_ClinicalBERT")
    assert checkpoint is not None
    assert "self.bert = Encoder(config)" in emit(infer(checkpoint, Rulebook()))
