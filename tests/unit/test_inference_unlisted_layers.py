"""What layers of a type that no family lists have otherwise than the families of its names: heads, angles, experts, norms."""

from __future__ import annotations

from typing import Any

import pytest

from mapper.architecture import Architecture
from mapper.checkpoint import Checkpoint, TensorInfo
from mapper.inference import infer
from mapper.rulebook.examples import header
from tests.shipped import RULEBOOK


def example(family: str) -> Checkpoint:
    return header(next(item for item in RULEBOOK.families if item.name == family).examples[0])


def read(
    source: Checkpoint, tensors: dict[str, TensorInfo], hints: dict[str, Any] | None = None, **config: Any
) -> Architecture:
    said = {**(source.config or {}), "model_type": "unheard_of", **config}
    return infer(Checkpoint("x", "manifest", tensors, said), RULEBOOK, hints=hints)


def facts(architecture: Architecture, name: str) -> set[Any]:
    return {fact.value for fact in architecture.facts if fact.name == name}


def asked(architecture: Architecture) -> dict[str, Any]:
    return {question.fact: question.candidates for question in architecture.questions}


def renamed(tensors: dict[str, TensorInfo], old: str, new: str) -> dict[str, TensorInfo]:
    return {name.replace(old, new): info for name, info in tensors.items()}


def test_layers_may_have_other_heads_of_keys_and_values_than_the_config_says() -> None:
    source = example("llama")
    tensors = dict(source.tensors)
    rows, width = tensors["model.layers.1.self_attn.k_proj.weight"].shape
    for one in "kv":
        tensors[f"model.layers.1.self_attn.{one}_proj.weight"] = TensorInfo((2 * rows, width), "F32")
    heads = source.config["num_key_value_heads"]
    told = {"head_dim": rows // heads, "num_key_value_heads": heads}
    architecture = read(source, tensors, {"rotary.style": "half"}, **told)
    assert facts(architecture, "attention.kv_heads") == {heads, 2 * heads}
    assert any("num_key_value_heads says" in finding for finding in architecture.findings)


def test_heads_of_another_size_than_the_angles_are_no_model() -> None:
    source = example("llama")
    tensors, width = dict(source.tensors), source.config["hidden_size"]
    head = width // source.config["num_attention_heads"]
    for layer, size in ((0, head), (1, 2 * head)):
        place = f"model.layers.{layer}.self_attn"
        for one in "qk":
            tensors[f"{place}.{one}_norm.weight"] = TensorInfo((size,), "F32")
        for one in "qkv":
            rows, _ = tensors[f"{place}.{one}_proj.weight"].shape
            tensors[f"{place}.{one}_proj.weight"] = TensorInfo((rows * size // head, width), "F32")
        tensors[f"{place}.o_proj.weight"] = TensorInfo((width, width * size // head), "F32")
    (missing,) = read(source, tensors, {"rotary.style": "half"}, head_dim=head).missing
    assert f"but rotary.dim of the tower is {head}" in missing


def test_an_odd_share_of_a_head_turns_with_one_channel_more_in_steps_of_the_share() -> None:
    source = example("llama")
    head = (
        source.tensors["model.layers.0.self_attn.q_proj.weight"].shape[0]
        // source.config["num_attention_heads"]
    )
    share = head // 2 - 1
    architecture = read(source, source.tensors, partial_rotary_factor=(share + 0.5) / head, rope_theta=100.0)
    assert facts(architecture, "rotary.dim") == {share + 1}
    assert facts(architecture, "rotary.base") == {100.0 ** ((share + 1) / share)}


def test_masked_outputs_of_experts_scale_the_others_down() -> None:
    source = example("mixtral")
    assert facts(read(source, source.tensors, moe_token_dropout=0.25), "moe.scale") == {0.75}


def test_noise_of_a_router_asks_how_it_scores() -> None:
    source = example("mixtral")
    assert "moe.scoring" not in asked(read(source, source.tensors, router_jitter_noise=0.0))
    noisy = read(source, source.tensors, router_jitter_noise=0.01)
    assert "sparse_mixer" in asked(noisy)["moe.scoring"]
    told = read(source, source.tensors, {"moe.scoring": "softmax"}, router_jitter_noise=0.01)
    assert not any("router_jitter_noise" in line for line in told.missing)


def test_a_convolution_with_a_layer_norm_asks_whether_it_is_causal() -> None:
    source = example("wav2vec2_conformer")
    assert "convolution.causal" not in asked(read(source, source.tensors))
    tensors = renamed(source.tensors, "conv_module.batch_norm", "conv_module.depthwise_layer_norm")
    tensors = {name: info for name, info in tensors.items() if "layer_norm.running" not in name}
    tensors = {name: info for name, info in tensors.items() if "layer_norm.num_batches" not in name}
    assert asked(read(source, tensors))["convolution.causal"] == (True, False)


def test_sub_layers_in_a_list_of_their_own_are_those_of_one_layer_whatever_their_names() -> None:
    source = example("t5")
    tensors = renamed(renamed(source.tensors, "SelfAttention", "OtherSelfAttention"), "DenseReluDense", "mlp")
    architecture = read(source, tensors)
    assert {leaf.role for leaf in architecture.leaves} == {
        leaf.role for leaf in read(source, source.tensors).leaves
    }


def test_the_radius_of_local_attention_is_not_passed_over() -> None:
    source = example("t5")
    assert "attention.pattern" not in asked(read(source, source.tensors))
    told = asked(read(source, source.tensors, local_radius=3))
    assert told["attention.pattern"] == ("sliding_attention", "full_attention")


def test_the_norm_behind_attention_is_that_of_the_feed_forward_network() -> None:
    source = example("llama")
    tensors = renamed(source.tensors, "input_layernorm", "pre_sa_norm")
    tensors = renamed(tensors, "post_attention_layernorm", "post_sa_norm")
    norms = {leaf.role for leaf in read(source, tensors).leaves if leaf.kind == "RMSNorm"}
    assert norms == {"norm_attention", "norm_feed_forward", "final_norm"}


@pytest.mark.parametrize("word", ["norm", "layernorm"])
def test_a_norm_alone_in_a_folder_is_what_the_folder_is_called(word: str) -> None:
    source = example("llama")
    tensors = renamed(source.tensors, "input_layernorm.weight", f"input_layernorm.{word}.weight")
    roles = {leaf.role for leaf in read(source, tensors).leaves if leaf.kind == "RMSNorm"}
    assert roles == {"norm_attention", "norm_feed_forward", "final_norm"}


def test_layers_that_have_a_norm_of_their_own_are_a_list_whatever_it_is_called() -> None:
    source = example("llama")
    tensors = renamed(source.tensors, "model.layers.", "model.own_layers.")
    tensors = renamed(tensors, "input_layernorm", "layer_norm")
    assert {
        len(leaf.block[1][1] or ()) for leaf in read(source, tensors).leaves if "own_layers" in leaf.place
    } == {2}


@pytest.mark.parametrize(
    "said",
    [
        {"window_size": 8},
        {"attention_window_size": 8},
        {"local_radius": 8},
        {"local_attention": 8},
        {"sliding_window": 8, "global_attn_every_n_layers": 2},
    ],
)
def test_fields_of_windows_without_a_list_of_layers_ask_which_have_them(said: dict[str, Any]) -> None:
    source = example("llama")
    assert "attention.pattern" in asked(read(source, source.tensors, **said))
    assert "attention.pattern" not in asked(read(source, source.tensors, window_size=None))


def test_the_first_layer_with_a_window_is_the_one_that_the_config_says() -> None:
    source = example("llama")
    said = {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1}
    layers = read(source, source.tensors, **said)
    assert facts(layers, "attention.pattern") == {"mixed"}
    without = read(source, source.tensors, **{**said, "use_sliding_window": False})
    assert facts(without, "attention.pattern") == {"full_attention"}


@pytest.mark.parametrize("field", ["mlp_alpha_factor", "mlp_beta_factor"])
def test_numbers_that_a_computation_must_need_are_not_passed_over(field: str) -> None:
    source = example("llama")
    told = read(source, source.tensors, {"rotary.style": "half"}, **{field: 3})
    assert any(field in line for line in told.missing)


def test_layers_over_a_series_are_given_no_mask_of_padding() -> None:
    source = example("time_series_transformer")
    made = read(source, source.tensors)
    assert "attention.masked" not in asked(made) and facts(made, "attention.masked") == {False}


def test_norms_beside_gated_delta_rules_are_known_by_their_names_or_asked_for() -> None:
    """Under names of no family, where the norms of Qwen3-Next scale by 1 + weight and its gated outputs' do not."""
    found = header(next(family for family in RULEBOOK.families if family.name == "qwen3_next").examples[0])
    config = {**(found.config or {}), "model_type": "unheard_of"}
    other = {
        name.replace("self_attn", "attn").replace("mlp", "feed_forward"): info
        for name, info in found.tensors.items()
    }
    known = infer(Checkpoint("x", "manifest", other, config), RULEBOOK)
    forms = {str(leaf.place): leaf.form for leaf in known.leaves if leaf.kind == "RMSNorm"}
    assert {form for place, form in forms.items() if "linear_attn" not in place} == {"offset"}
    assert {form for place, form in forms.items() if "linear_attn" in place} == {"plain"}
    memory = {name.replace("linear_attn", "attn"): info for name, info in other.items()}
    asked = infer(Checkpoint("x", "manifest", memory, config), RULEBOOK)
    assert "norm.offset" in {question.fact for question in asked.questions}
