"""A field of the generated Config that is edited changes the whole model: nothing else holds the size that it is for."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import fields, replace
from inspect import signature
from types import ModuleType
from typing import Any

import pytest
import torch

from mapper.catalogue import find
from mapper.emission import emit
from mapper.inference import infer
from mapper.rulebook.examples import header
from tests.pages import ROOT
from tests.shipped import RULEBOOK

TOKENS = {"input_ids": torch.tensor([[1, 2, 3, 4, 5]])}
IMAGE = {"pixel_values": torch.randn(1, 3, 64, 64, generator=torch.Generator().manual_seed(0))}


def module(family: str, monkeypatch: pytest.MonkeyPatch, example: int = 0) -> ModuleType:
    """The generated source of an example of a family, as a module."""
    item = next(item for item in RULEBOOK.families if item.name == family)
    text = emit(infer(header(item.examples[example]), RULEBOOK))
    made = ModuleType(f"generated_{family}")
    monkeypatch.setitem(sys.modules, made.__name__, made)  # where a dataclass looks its annotations up
    exec(compile(text, made.__name__, "exec"), made.__dict__)
    return made


@torch.no_grad()
def run(made: ModuleType, inputs: Mapping[str, Any], **edited: Any) -> None:
    """Runs the model of other sizes."""
    made.Model(replace(made.Config(), **edited)).eval()(**inputs)


@pytest.mark.parametrize(
    ("family", "example", "edited"),
    [
        ("llama", 0, ["head_dim", "heads", "hidden_size", "intermediate_size", "layers", "vocab_size"]),
        ("bert", 4, ["hidden_size", "heads", "intermediate_size"]),
        ("distilbert", 0, ["hidden_size", "layers"]),
    ],
)
def test_an_edited_size_reaches_all_that_has_it(
    family: str, example: int, edited: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = module(family, monkeypatch, example)
    known = {field.name: field.default for field in fields(made.Config)}
    run(made, TOKENS)
    for name in edited:
        run(made, TOKENS, **{name: 2 * known[name]})


def test_each_tower_counts_its_own_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many the other has."""
    made = module("bart", monkeypatch)
    edited = made.Model(replace(made.Config(), encoder_layers=3, decoder_layers=1))
    assert [len(edited.model.encoder.layers), len(edited.model.decoder.layers)] == [3, 1]


def test_a_tower_takes_inputs_in_the_order_of_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    made = module("gpt2", monkeypatch)
    model = made.Model()
    taken = [list(signature(method).parameters) for method in (model.forward, model.tower)]
    assert taken[0] == taken[1] == ["input_ids", "attention_mask", "position_ids"]


def staged(family: str, monkeypatch: pytest.MonkeyPatch) -> tuple[ModuleType, dict[str, tuple[int, ...]]]:
    """The source of the first example of a family, and its lists of sizes."""
    made = module(family, monkeypatch)
    known = {field.name: field.default for field in fields(made.Config)}
    return made, {name: sizes for name, sizes in known.items() if isinstance(sizes, tuple)}


@pytest.mark.parametrize(
    ("family", "expected"),
    [
        ("timm_ecaresnet_d", {"hidden_sizes"}),
        (
            "segformer",
            {
                *("head_dims", "heads", "hidden_sizes", "intermediate_sizes"),
                *("patch_embeddings_kernel_sizes", "patch_embeddings_strides"),
            },
        ),
        ("timm_convnext_maps", {"hidden_sizes", "layers"}),
    ],
)
def test_what_differs_from_stage_to_stage_is_a_list_whose_elements_reach_all_that_has_them(
    family: str, expected: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, lists = staged(family, monkeypatch)
    assert set(lists) == expected
    run(made, IMAGE)
    for name, sizes in lists.items():
        run(made, IMAGE, **{name: tuple(2 * size for size in sizes)})
        run(made, IMAGE, **{name: (*sizes[:-1], 2 * sizes[-1])})


def test_the_norms_and_the_head_behind_the_last_stage_are_as_wide(monkeypatch: pytest.MonkeyPatch) -> None:
    made, lists = staged("timm_metaformer", monkeypatch)
    assert lists["hidden_sizes"] == (8, 16, 32, 64)
    run(made, IMAGE, hidden_sizes=(16, 32, 64, 128))


def test_a_width_that_is_so_many_times_the_stage_in_every_stage_is_a_ratio(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made, lists = staged("timm_convnext_maps", monkeypatch)
    assert "intermediate_sizes" not in lists and made.Config().expansion == 4
    run(made, IMAGE, expansion=3)


def test_a_number_that_is_another_quantity_takes_no_list_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel of a segformer's stage is as long as another is wide."""
    made, lists = staged("segformer", monkeypatch)
    assert lists["hidden_sizes"] == (8, 12)
    run(made, IMAGE, hidden_sizes=(16, 20))


def test_heads_of_keys_are_a_field_only_where_there_are_fewer() -> None:
    llama = next(item for item in RULEBOOK.families if item.name == "llama")
    grouped = header(llama.examples[0])
    assert "    kv_heads: int" in emit(infer(grouped, RULEBOOK))
    maps = {name: info for name, info in grouped.tensors.items() if name.endswith("q_proj.weight")}
    alike = {
        name.replace("q_proj", word): info for name, info in maps.items() for word in ("k_proj", "v_proj")
    }
    plain = replace(grouped, tensors={**grouped.tensors, **alike})
    plain.config = {**(grouped.config or {}), "num_key_value_heads": None}
    text = emit(infer(plain, RULEBOOK))
    assert "kv_heads" not in text and "config.heads * config.head_dim" in text


def test_what_a_classifier_reads_is_the_size_of_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    made = module("vit", monkeypatch)
    size = made.Config().hidden_size
    assert "pooled_size" not in {field.name for field in fields(made.Config)}
    model = made.Model(replace(made.Config(), hidden_size=2 * size))
    assert model.classifier.in_features == 2 * size


def test_a_convolution_of_positions_goes_with_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    made = module("wav2vec2", monkeypatch)
    size = made.Config().hidden_size
    made.Model(replace(made.Config(), hidden_size=2 * size, position_kernel=6))
    text = emit(
        infer(header(next(f for f in RULEBOOK.families if f.name == "wav2vec2").examples[0]), RULEBOOK)
    )
    assert "padding=config.position_kernel // 2" in text


def test_layers_of_several_kinds_are_told_apart_by_a_list(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of layers of two kinds were lists of calls, with what is left of the count at their end."""
    path = ROOT / "generated" / "lfm2_for_causal_lm.py"  # which `tests/golden` holds to what is emitted
    made = ModuleType("generated_of_runs")
    monkeypatch.setitem(sys.modules, made.__name__, made)
    exec(compile(path.read_text(encoding="utf-8"), made.__name__, "exec"), made.__dict__)
    config = made.Config()
    assert config.attention_layers == (2, 5, 8, 10, 12, 14)
    with torch.device("meta"):
        layers = made.Model(replace(config, attention_layers=(0, 3), layers=5)).model.layers
    attending = [at for at, layer in enumerate(layers) if isinstance(layer, made.LayerWithAttention)]
    assert (len(layers), attending) == (5, [0, 3])


def test_what_a_rule_computes_is_a_property_of_the_config(monkeypatch: pytest.MonkeyPatch) -> None:
    config = module("gemma2", monkeypatch).Config()
    assert replace(config, hidden_size=4 * config.hidden_size).embedding_scale == 2 * config.embedding_scale


def test_what_the_config_says_of_a_norm_is_a_field_whatever_torch_does() -> None:
    silent = header(next(f for f in RULEBOOK.families if f.name == "gpt2").examples[0])
    stated = replace(silent, config={**(silent.config or {}), "layer_norm_epsilon": 1e-5})
    assert "eps=config.norm_eps" in emit(infer(stated, RULEBOOK))
    assert "norm_eps" not in emit(infer(silent, RULEBOOK))


def test_an_encoder_and_its_decoder_have_one_width_beside_another_tower(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = module("florence2", monkeypatch)
    names = {field.name for field in fields(made.Config)}
    assert "hidden_size" in names and not {"encoder_hidden_size", "decoder_hidden_size"} & names


def test_a_list_that_a_forward_goes_through_says_how_many_layers_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = module("gemma2", monkeypatch)
    kinds = made.Config().layer_types
    model = made.Model(replace(made.Config(), layer_types=(*kinds, *kinds)))
    assert len(list(model.modules())) > len(list(made.Model().modules()))


def source(family: str, example: int = 0) -> str:
    """The generated source of an example of a family."""
    item = next(item for item in RULEBOOK.families if item.name == family)
    return emit(infer(header(item.examples[example]), RULEBOOK))


ESM = "facebook/esm2_t33_650M_UR50D"  # beside its layers stands another word


def test_numbered_keys_beside_others_are_made_and_gone_through_by_their_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    checkpoint = find(ESM)
    assert checkpoint is not None
    text = emit(infer(checkpoint, RULEBOOK))
    assert "**{str(index): Layer(config) for index in range(config.layers)}" in text
    assert ".values())[: self.layers]:" in text
    made = ModuleType("generated_esm")
    monkeypatch.setitem(sys.modules, made.__name__, made)
    exec(compile(text, made.__name__, "exec"), made.__dict__)
    with torch.device("meta"):
        layers = made.Model(replace(made.Config(), layers=3)).get_submodule("esm.encoder.layer")
    assert [name for name, _ in layers.named_children()] == ["0", "1", "2", "unnamed"]


def test_classes_of_one_text_are_one_class() -> None:
    """The frequencies of ESM's layers and those beside are known by two facts, which are one field."""
    checkpoint = find(ESM)
    assert checkpoint is not None
    assert re.findall(r"class (RotaryEmbeddings\w*)", emit(infer(checkpoint, RULEBOOK))) == [
        "RotaryEmbeddings"
    ]


def test_what_stands_in_a_row_with_gaps_is_a_slice() -> None:
    assert "for unit in list(self.values())[1:]:" in source("encodec")


def test_a_rule_says_what_a_size_is_computed_from() -> None:
    text = source("deepseek")
    assert "return self.head_dim - self.nope_dim" in text


def test_runs_of_one_width_are_written_by_what_a_config_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a list without stages: widths, how many layers each has, and what a map of the first has."""
    made, lists = staged("mobilenet_v2", monkeypatch)
    assert lists.keys() == {"output_sizes", "depths", "depthwise_strides"}
    assert "for layer in [\n" in source("mobilenet_v2")
    widths = tuple(size + 8 for size in lists["output_sizes"])
    image = {"pixel_values": torch.zeros(1, 3, 224, 224)}
    run(made, image, output_sizes=widths, depths=tuple(depth + 1 for depth in lists["depths"]))
    for name in ("embedding_size", "pooled_size", "expansion"):
        run(made, image, **{name: 2 * getattr(made.Config(), name)})
    made, lists = staged("efficientnet", monkeypatch)
    assert {"output_sizes", "depthwise_kernel_sizes"} <= lists.keys()


def test_a_padding_by_half_of_the_kernel_goes_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    made = module("efficientnet", monkeypatch)
    assert re.search(r"padding=\S*kernel_size\S* // 2", source("efficientnet"))
    kernels = tuple(size + 2 for size in made.Config().depthwise_kernel_sizes)
    run(made, IMAGE, depthwise_kernel_sizes=kernels)


def test_equal_sizes_of_two_parts_stay_two_fields() -> None:
    """A class that both have is given each one's own, not the number that they have in common."""
    text = source("jamba")
    assert "FeedForward(config, intermediate_size=config.intermediate_size)" in text
    assert "FeedForward(config, intermediate_size=config.moe_intermediate_size)" in text


def test_a_class_of_two_towers_is_told_how_many_layers_each_has() -> None:
    text = source("mimi")
    assert "layers=config.encoder_layers" in text and "layers=config.decoder_layers" in text


@pytest.mark.parametrize(
    ("family", "names"),
    [
        ("textnet", ["FirstStage", "SecondStage"]),
        ("sam3_vision", ["NeckLayer", "NeckLayerWithTwofoldUpsampling"]),
    ],
)
def test_classes_that_no_part_tells_apart_are_told_by_their_docstring_or_place(
    family: str, names: list[str]
) -> None:
    made = re.findall(r"^class (\w+)", source(family), re.M)
    assert {*names} <= {*made}
    assert not [name for name in made if name[-1].isdigit()]


def test_a_part_of_the_config_that_says_a_size_has_a_field_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What a rule says of other norms of the part does not join the fields of the towers."""
    known = {field.name for field in fields(module("mllama", monkeypatch).Config)}
    assert {"text_norm_eps", "vision_norm_eps"} <= known and "norm_eps" not in known


def test_a_field_is_called_after_the_part_that_it_is_of_where_its_name_alone_says_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known = {field.name for field in fields(module("vit", monkeypatch, 1).Config)}
    assert "pooler_size" in known and "size" not in known


def test_a_sum_that_a_module_is_given_for_all_its_channels_is_worked_out_once() -> None:
    text = source("mamba2")
    assert "conv1d_channels = config.inner_size + 2 * config.groups * config.state_size" in text
    assert "groups=conv1d_channels" in text
