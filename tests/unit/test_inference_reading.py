from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from mapper.architecture import Architecture, Fact
from mapper.checkpoint import Checkpoint, TensorInfo
from mapper.errors import ArchitectureError, HintError
from mapper.inference import infer
from mapper.report.chain import chain
from mapper.rulebook.examples import header
from tests.shipped import RULEBOOK
from tests.work import growth


def example(family: str) -> Checkpoint:
    """The first example of a family: a small complete checkpoint."""
    return header(next(item for item in RULEBOOK.families if item.name == family).examples[0])


def read(
    checkpoint: Checkpoint, without: str = "", extra: dict[str, tuple[int, ...]] | None = None, **config: Any
) -> Architecture:
    tensors = {name: info for name, info in checkpoint.tensors.items() if not without or without not in name}
    tensors |= {name: TensorInfo(shape, "F32") for name, shape in (extra or {}).items()}
    changed = {**(checkpoint.config or {}), **config}
    return infer(Checkpoint("x", "manifest", tensors, changed), RULEBOOK)


def fact(architecture: Architecture, name: str) -> Fact:
    return next(item for item in architecture.facts if item.name == name)


def test_a_listed_type_whose_names_fit_is_exact() -> None:
    architecture = infer(example("bert"), RULEBOOK)
    assert (architecture.reading, architecture.family) == ("exact", "bert")
    assert (architecture.findings, architecture.missing, architecture.unmapped) == ([], [], [])


def test_names_without_a_listed_type_are_unverified() -> None:
    named = read(example("bert"), model_type="unheard_of", pad_token_id=0)
    assert named.reading == "unverified"
    assert "position.counting" in {
        question.fact for question in read(example("bert"), model_type="unheard_of").questions
    }


def test_a_listed_type_with_other_names_says_what_is_lacking() -> None:
    architecture = read(example("bert"), model_type="llama")
    assert architecture.reading != "exact"
    assert "the names lack" in architecture.findings[0]


def test_without_families_nothing_is_exact() -> None:
    assert infer(example("bert"), RULEBOOK, use_families=False).reading != "exact"


def test_heads_come_from_the_config_and_the_rest_from_shapes() -> None:
    architecture = infer(example("bert"), RULEBOOK)
    assert fact(architecture, "attention.heads").evidence == "config"
    assert fact(architecture, "attention.heads").at == "encoder.layer.*"
    assert fact(architecture, "hidden_size").evidence == "shape"
    assert (
        fact(architecture, "attention.head_dim").evidence == "config"
    )  # a quotient is known no better than its divisor


def test_a_constant_of_the_family_is_called_a_rule() -> None:
    assert fact(infer(example("distilbert"), RULEBOOK), "norm.eps").evidence == "rule"


def test_a_default_is_called_a_default() -> None:
    architecture = read(example("distilbert"), activation=None)
    assert fact(architecture, "feed_forward.activation").evidence == "default"


def test_what_lost_against_a_fact_is_kept() -> None:
    lost = [item for item in infer(example("bert"), RULEBOOK).lost if item.name == "attention.causal"]
    assert [item.evidence for item in lost] == ["default"]


def test_old_and_new_rotary_fields_mean_the_same() -> None:
    old = infer(example("llama"), RULEBOOK)
    new = read(
        example("llama"), rope_theta=None, rope_parameters={"rope_theta": 500000.0, "rope_type": "default"}
    )
    assert fact(old, "rotary.base").value == fact(new, "rotary.base").value == 500000.0
    assert new.reading == "exact"


def test_equal_layers_are_one_block() -> None:
    tower = infer(example("llama"), RULEBOOK).root.roles["tower"]
    assert [block.indices for block in tower.roles["layers"]] == [(0, 1)]  # type: ignore[union-attr]


def test_every_norm_has_its_eps() -> None:
    norms = [leaf for leaf in infer(example("llama"), RULEBOOK).root.leaves() if leaf.kind.endswith("Norm")]
    assert {leaf.facts["eps"].value for leaf in norms} == {1e-5}


def test_inputs_are_those_that_the_flows_read() -> None:
    assert list(infer(example("bert"), RULEBOOK).inputs) == [
        "input_ids",
        "attention_mask",
        "token_type_ids",
        "position_ids",
    ]


def test_the_distilbert_key_list_comes_out_without_prefix_and_config() -> None:
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (99, 64),
        "embeddings.position_embeddings.weight": (40, 64),
    }
    shapes |= {f"embeddings.LayerNorm.{name}": (64,) for name in ("weight", "bias")}
    for layer in range(6):
        path = f"transformer.layer.{layer}"
        for word in ("q_lin", "k_lin", "v_lin", "out_lin"):
            shapes |= {f"{path}.attention.{word}.weight": (64, 64), f"{path}.attention.{word}.bias": (64,)}
        for word in ("sa_layer_norm", "output_layer_norm"):
            shapes |= {f"{path}.{word}.weight": (64,), f"{path}.{word}.bias": (64,)}
        shapes |= {f"{path}.ffn.lin1.weight": (96, 64), f"{path}.ffn.lin1.bias": (96,)}
        shapes |= {f"{path}.ffn.lin2.weight": (64, 96), f"{path}.ffn.lin2.bias": (64,)}
    architecture = infer(
        Checkpoint("x", "manifest", {name: TensorInfo(shape, "F32") for name, shape in shapes.items()}),
        RULEBOOK,
    )
    (layer,) = architecture.root.roles["tower"].roles["layers"]  # type: ignore[union-attr, misc]
    assert layer.indices == tuple(range(6))  # type: ignore[union-attr]
    assert set(layer.roles) == {"attention", "norm_attention", "feed_forward", "norm_feed_forward"}  # type: ignore[union-attr]
    assert architecture.reading == "unverified"
    assert [text.partition(" ")[0] for text in architecture.missing] == ["attention.heads"]
    assert "possible here: 1, 2, 4" in architecture.missing[0]


def test_a_hint_fills_what_is_unknown_and_is_never_exact() -> None:
    checkpoint = example("bert")
    config = {key: value for key, value in (checkpoint.config or {}).items() if key != "num_attention_heads"}
    asked = infer(Checkpoint("x", "manifest", checkpoint.tensors, config), RULEBOOK)
    told = infer(
        Checkpoint("x", "manifest", checkpoint.tensors, config), RULEBOOK, hints={"attention.heads": "8"}
    )
    assert asked.missing and not told.missing
    assert (fact(told, "attention.heads").value, fact(told, "attention.heads").evidence) == (8, "given")
    assert told.reading == "unverified"


@pytest.mark.parametrize(
    ("hints", "message"),
    [
        ({"hidden_size": 32}, "contradicts"),
        ({"attention.heads": 5}, "does not divide by 5"),
        ({"attention.head": 4}, "did you mean 'attention.heads'"),
        ({"decoder:attention.heads": 4}, "no part is called 'decoder'"),
        ({"attention.heads": [1]}, "whole number"),
        ({"task": "ctc"}, "does not go with the heads"),
    ],
)
def test_hints_that_cannot_be_are_refused(hints: dict[str, Any], message: str) -> None:
    with pytest.raises(HintError, match=message):
        infer(example("bert"), RULEBOOK, hints=hints)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"num_hidden_layers": 12}, "num_hidden_layers says layers is 12, but the names show 2"),
        ({"vocab_size": 7}, "vocab_size is 7, but the checkpoint shows 99"),
        ({"num_attention_heads": 5}, "64 does not divide by 5"),
        ({"hidden_size": 32}, "hidden_size is 32, but the checkpoint shows 64"),
        ({"num_attention_heads": "twelve"}, "num_attention_heads: .*twelve.* is not a whole number"),
        ({"num_attention_heads": -4}, "num_attention_heads: '-4' is not a whole number"),
        ({"num_attention_heads": [4]}, "is not a whole number"),
        ({"num_attention_heads": {"a": {"b": 4}}}, "is not a whole number"),
        ({"layer_norm_eps": "small"}, "layer_norm_eps: .* is not a finite number"),
        ({"hidden_act": 3}, "hidden_act: '3' is not the name of an activation"),
    ],
)
def test_a_config_that_contradicts_is_refused_in_one_line(config: dict[str, Any], message: str) -> None:
    with pytest.raises(ArchitectureError, match=message) as caught:
        read(example("bert"), **config)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("without", "message"),
    [
        ("layer.1.attention.self.query.bias", r"layer\.1\.attention\.self\.query\.bias is missing"),
        (
            "layer.1.attention.self.query",
            r"layer\.1\.attention\.self\.query is missing: 'encoder\.layer\.0\.attention' has .*; if part .* lost",
        ),
        ("embeddings.LayerNorm", "no 'embeddings.LayerNorm', which every bert has"),
    ],
)
def test_missing_tensors_are_named(without: str, message: str) -> None:
    with pytest.raises(ArchitectureError, match=message):
        read(example("bert"), without=without)


def test_of_layers_of_several_kinds_a_file_without_a_config_is_asked_for_its_type() -> None:
    lost = "layer.1.attention.self.query"
    tensors = {name: info for name, info in example("bert").tensors.items() if lost not in name}
    with pytest.raises(
        ArchitectureError, match=r"query is missing: .*; if nothing of the file is lost, .*model_type"
    ):
        infer(Checkpoint("x", "manifest", tensors), RULEBOOK)


def test_layers_of_unequal_width_are_refused() -> None:
    with pytest.raises(ArchitectureError, match=r"layer\.1\.output\.dense\.weight \[65, 96\]"):
        read(example("bert"), extra={"encoder.layer.1.output.dense.weight": (65, 96)})


def test_extra_tensors_are_reported_and_not_exact() -> None:
    architecture = read(example("bert"), extra={"something.else.weight": (3, 3)})
    assert (architecture.reading, architecture.unmapped) == ("unverified", ["something.else.weight"])


def test_an_unknown_module_in_a_layer_makes_a_skeleton() -> None:
    extra = {f"encoder.layer.{layer}.adapter.weird.weight": (3, 3) for layer in (0, 1)}
    architecture = read(example("bert"), extra=extra)
    assert architecture.reading == "skeleton"
    assert "no flow reads" in architecture.missing[0]


def test_a_field_that_no_rule_read_is_a_finding() -> None:
    architecture = read(example("bert"), scale_attention_by=3)
    assert architecture.findings == ["config field is read by no rule: 'scale_attention_by'"]
    assert architecture.reading == "unverified"


def test_an_unknown_activation_is_missing_with_its_source() -> None:
    architecture = read(example("bert"), hidden_act="wiggle")
    assert "feed_forward.activation is 'wiggle' (hidden_act)" in architecture.missing[0]


def test_an_empty_checkpoint_is_a_skeleton() -> None:
    assert infer(Checkpoint("x", "manifest", {}), RULEBOOK).reading == "skeleton"


def test_the_order_of_the_keys_does_not_matter() -> None:
    checkpoint = example("llama")
    turned = Checkpoint("x", "manifest", dict(reversed(checkpoint.tensors.items())), checkpoint.config)
    assert infer(turned, RULEBOOK).facts == infer(checkpoint, RULEBOOK).facts


def test_prefixes_change_places_only() -> None:
    checkpoint = example("llama")
    renamed = {f"_orig_mod.module.{name}": info for name, info in checkpoint.tensors.items()}
    architecture = infer(Checkpoint("x", "manifest", renamed, checkpoint.config), RULEBOOK)
    assert architecture.reading == "exact"
    assert [(item.name, item.value) for item in architecture.facts] == [
        (item.name, item.value) for item in infer(checkpoint, RULEBOOK).facts
    ]


def test_facts_are_json() -> None:
    assert json.dumps([vars(item) for item in infer(example("bert"), RULEBOOK).facts])


def test_inference_never_imports_torch() -> None:
    code = (
        "import sys; from mapper.inference import infer; from mapper.rulebook.rulebook import Rulebook\n"
        "from mapper.rulebook.examples import header\n"
        "book = Rulebook(); infer(header(book.families[0].examples[0]), book); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_twice_the_tensors_take_at_most_twice_the_work() -> None:
    def read(experts: int) -> Callable[[], Any]:
        tensors = {
            f"model.layers.{layer}.mlp.experts.{expert}.{word}_proj.weight": TensorInfo((96, 64), "F32")
            for layer in range(10) for expert in range(experts) for word in ("up", "down")
        }  # fmt: skip
        return lambda: infer(Checkpoint("x", "manifest", tensors), RULEBOOK)

    assert growth(read, 200) < 2.1


@pytest.mark.parametrize(
    ("family", "named", "fact"),
    [
        ("hiera", "four stages", "attention.two_sided"),
        ("mobilevit", "few channels", "layer.residual"),
        ("wav2vec2", "adapters behind both sub-layers", "norm.eps"),
    ],
)
def test_nothing_loses_to_itself_where_two_blocks_of_one_place_have_two_values(
    family: str, named: str, fact: str
) -> None:
    entry = next(item for item in RULEBOOK.family_entries if item.name == family)
    architecture = infer(header(next(item for item in entry.read().examples if item.name == named)), RULEBOOK)
    assert any(item.name == fact for item in architecture.lost)
    for paragraph in chain(architecture, fact).split(f"\n{fact} = "):
        (head, won, *lost) = paragraph.split("\n")
        value = head.removeprefix(f"{fact} = ").partition(" ")[0]
        assert f"  lost: {value}, {won.strip()}" not in lost and len(set(lost)) == len(lost)


def test_a_file_that_has_fewer_layers_than_its_config_says_may_have_lost_them() -> None:
    with pytest.raises(ArchitectureError, match="lost the rest: get it whole"):
        read(example("bert"), without="encoder.layer.1.")


def test_what_a_default_makes_of_a_shape_is_not_said_to_be_shown() -> None:
    """Of [32, 32] = kv_heads * head_dim the head's size is by the type's default count of heads, which nobody stated."""
    source = example("llama")
    config = {key: value for key, value in (source.config or {}).items() if key not in ("num_attention_heads", "head_dim")}  # fmt: skip
    with pytest.raises(ArchitectureError, match="defaults of what the config leaves out") as refused:
        infer(replace(source, config=config | {"num_key_value_heads": 3}), RULEBOOK)
    assert not refused.value.candidates
