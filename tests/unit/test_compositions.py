"""Pieces that each stand once in the rules go together in ways that no listed type has."""

from __future__ import annotations

import pytest

from mapper.emission import emit
from mapper.inference import infer
from mapper.rulebook.examples import Example, header
from mapper.rulebook.rulebook import Rulebook

RULES = Rulebook()
PIECES = {
    "moe/sigmoid+corrected+top_k_of_groups+normalised+scaled+shared_expert+shared_gate+stacked+sum+mixed": [
        "F.sigmoid(shared_gate(x)) * shared",
        "y + shared",
    ],
    "moe/sigmoid+top_k+stacked_rows+mixed": [
        "F.linear(x, router, router_bias)",
        "F.embedding(input_ids, word_experts)",
        "y + bias",
    ],
    "feed_forward/norm_before+gated+inner_norm+down": ["inner_norm(y)", "down(y) * factor"],
    "feed_forward/up_pointwise+inner_norm+down_pointwise+post_norm": ["response_weight", "norm(x + y)"],
    "projector/pixel_shuffle+norm+gated": ["shuffle_patches", "activation(gate(x)) * up(x)"],
    "classifier/normed+two_layers": ["norm(x)", "output(activation(dense(x)))"],
    "root/packed+text+base": ["grid_positions", "last_hidden_state=x"],
    "root/funnel+base": ["decoder(states=encoder(states=embeddings()))"],
    "root/encoded_maps+object_queries+detection": [
        "reference_points",
        "feed_forward(found) + inverse_sigmoid(boxes)",
        "pred_boxes=offsets.sigmoid()",
    ],
    "embedding/patches+class_token+table+register_tokens+image": [
        "query_tokens.expand(x.shape[0], -1, -1)",
        "resize_between(position_table, leading, fact.queries",
        "crop_positions(position_table",
    ],
    "root/decoded_pixels+mask_queries+masks": ["predicted = class_head(x)", "class_queries_logits=predicted"],
}


@pytest.mark.parametrize(("name", "lines"), PIECES.items(), ids=PIECES)
def test_steps_that_no_listed_type_has_together_make_a_flow(name: str, lines: list[str]) -> None:
    body = RULES.flows[name].body
    assert all(line in body for line in lines)


def test_a_role_of_its_own_beside_a_step_makes_it_no_stronger() -> None:
    slots = (slot for page in RULES.flows.pages("tower") for slot in page.slots)
    plain = next(step for slot in slots for step in slot.steps if step.name == "tower/layers" and step.beside)
    assert plain.roles_beside == ("embeddings", "layers")
    family = next(family for family in RULES.families if family.name == "llava")
    read = infer(header(family.examples[0]), RULES)
    assert any("+layers_of_features" in str(block.flow) for block in read.root.blocks())


def test_experts_of_a_type_that_nobody_lists_are_any_feed_forward_there_is() -> None:
    layer = "model.layers.{0..1}"
    tensors = {
        "{model.embed_tokens,lm_head}.weight": [99, 32],
        "model.norm.weight": [32],
        f"{layer}.{{input,post_attention}}_layernorm.weight": [32],
        f"{layer}.self_attn.{{q,o}}_proj.weight": [32, 32],
        f"{layer}.self_attn.{{k,v}}_proj.weight": [16, 32],
        f"{layer}.mlp.gate.weight": [4, 32],
        f"{layer}.mlp.shared_expert_gate.weight": [1, 32],
    }
    for expert in ("experts.{0..3}", "shared_expert"):
        tensors[f"{layer}.mlp.{expert}.{{gate,up}}_proj.weight"] = [24, 32]
        tensors[f"{layer}.mlp.{expert}.ffn_sub_norm.weight"] = [24]
        tensors[f"{layer}.mlp.{expert}.down_proj.weight"] = [32, 24]
    config = {
        "model_type": "tale", "architectures": ["TaleForCausalLM"], "num_attention_heads": 4, "hidden_act": "silu",
        "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "tie_word_embeddings": False, "num_experts_per_tok": 2,
        "norm_topk_prob": True, "scoring_func": "sigmoid",
    }  # fmt: skip
    architecture = infer(header(Example("", tensors, config, {}, "", 0)), RULES)
    flows = {block.role: block.flow for block in architecture.root.blocks()}
    assert flows["experts"] == flows["shared_expert"] == "feed_forward/gated+inner_norm+down"
    assert (
        flows["moe"] == "moe/router_map+sigmoid+top_k+normalised+shared_expert+shared_gate+separate+sum+mixed"
    )
    assert "self.down_proj(self.ffn_sub_norm(y))" in emit(architecture)


def test_a_layer_of_one_sublayer_is_refused_unless_a_fact_says_that_it_is_one() -> None:
    layer = "model.layers.{0..1}"
    tensors = {
        "{model.embed_tokens,lm_head}.weight": [99, 32],
        "model.norm.weight": [32],
        f"{layer}.input_layernorm.weight": [32],
        f"{layer}.self_attn.{{q,k,v,o}}_proj.weight": [32, 32],
    }
    config = {
        "model_type": "tale", "architectures": ["TaleForCausalLM"], "num_attention_heads": 4, "hidden_act": "silu",
        "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "tie_word_embeddings": False,
    }  # fmt: skip
    checkpoint = header(Example("", tensors, config, {}, "", 0))
    assert infer(checkpoint, RULES).reading == "skeleton"
    said = infer(checkpoint, RULES, hints={"layer.single": True, "norm.placement": "pre"})
    assert {block.flow for block in said.root.blocks() if block.role == "layers"} == {
        "layer/pre_norm_attention+attention"
    }
