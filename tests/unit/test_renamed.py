"""What was called otherwise in an earlier release is read as it is called now, and that is said."""

from __future__ import annotations

import json

import pytest

import mapper
from mapper.cli import main
from mapper.errors import FlowError
from mapper.flows.combinations import check_flow
from mapper.flows.retired import RETIRED
from mapper.operations import operation_names
from mapper.rulebook.renamed import FACTS, OPERATIONS, TOPICS, VALUES, calls_now, renamed_document
from mapper.rulebook.rulebook import Rulebook

TENSORS = {
    "model.embed_tokens.weight": [99, 32],
    "model.layers.0.input_layernorm.weight": [32],
    "model.layers.0.self_attn.q_proj.weight": [32, 32],
    "model.layers.0.self_attn.k_proj.weight": [16, 32],
    "model.layers.0.self_attn.v_proj.weight": [16, 32],
    "model.layers.0.self_attn.o_proj.weight": [32, 32],
    "model.layers.0.post_attention_layernorm.weight": [32],
    "model.layers.0.mlp.gate_proj.weight": [48, 32],
    "model.layers.0.mlp.up_proj.weight": [48, 32],
    "model.layers.0.mlp.down_proj.weight": [32, 48],
    "model.norm.weight": [32],
    "lm_head.weight": [99, 32],
}
CONFIG = {"model_type": "tale", "architectures": ["TaleForCausalLM"], "num_attention_heads": 4, "hidden_act": "silu",
          "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "tie_word_embeddings": False}  # fmt: skip


@pytest.fixture
def tale(tmp_path):
    path = tmp_path / "tale.json"
    path.write_text(json.dumps({"config": CONFIG, "tensors": TENSORS}))
    return path


def value(report, name):
    facts = json.loads(report.to_json())["facts"]
    return next(fact["value"] for fact in facts if fact["name"] == name)


def test_a_hint_by_a_name_of_old_is_the_one_of_now(tale):
    report = mapper.inspect(tale, hints={"rotary.pairs": "neighbours"})
    assert value(report, "rotary.style") == "interleaved"
    assert "--set rotary.pairs=neighbours: rotary.pairs is called rotary.style now" in str(report)
    assert "neighbours is called interleaved now" in str(report)


def test_a_value_of_old_by_the_name_of_now(tale):
    assert value(mapper.inspect(tale, hints={"rotary.style": "halves"}), "rotary.style") == "half"


def test_a_name_of_now_says_nothing(tale):
    assert "is called" not in str(mapper.inspect(tale, hints={"rotary.style": "half"}))


def test_a_scope_stays(tale):
    report = mapper.inspect(tale, hints={"layers:attention.clip": 3.0, "layers:rotary.pairs": "halves"})
    assert value(report, "rotary.style") == "half"


def test_set_on_the_command_line(tale, capsys):
    assert main(["inspect", str(tale), "--set", "rotary.pairs=halves"]) == 0
    assert "rotary.pairs is called rotary.style now" in capsys.readouterr().out


def test_rules_of_ones_own(tale, tmp_path):
    own = tmp_path / "rules"
    (own / "families").mkdir(parents=True)
    (own / "families" / "tale.yaml").write_text(
        "family: tale\nmodel_types: [tale]\nsource: [mine]\nextends: llama\n"
        "facts:\n  rotary.pairs: {value: neighbours, why: mine}\n"
        "examples: []\n"
    )
    for _ in range(2):  # the second time from what the first kept
        report = mapper.inspect(tale, rules=[own])
        assert value(report, "rotary.style") == "interleaved"
        assert "families/tale.yaml: rotary.pairs is called rotary.style now" in str(report)


def test_a_flow_of_old_is_read(tmp_path):
    (tmp_path / "flows").mkdir()
    (tmp_path / "flows" / "tale.yaml").write_text(
        "flow: tale/one\ndoc: one\nneeds: [query]\nparts: [turned]\nwhen: {attention.kv_rank: [1]}\n"
        "forward: |\n  q = turned(split_heads(query(x), fact.attention.kv_rank))\n  return cut(q, 1)[0]\n"
    )
    rulebook = Rulebook([tmp_path])
    rule = rulebook.flows["tale/one"]
    assert (rule.calls, list(rule.when)) == (("rotary_applied",), ["attention.kv_lora_rank"])
    assert "rotary_applied(split_heads(query(x), fact.attention.kv_lora_rank))" in rule.body
    assert "split_at(q, 1)" in rule.body
    assert any("cut is called split_at now" in note for note in rulebook.notes)


def test_flows_of_saved_models_call_operations_by_their_names():
    assert calls_now("return rotate(x, cos, sin)") == "return apply_rotary(x, cos, sin)"
    assert calls_now("return self.rotate(x)") == "return self.rotate(x)"
    assert (
        calls_now("k, v = extend(memory, k, v, slots)")
        == "k, v = extend_cache(layer_cache, k, v, cache_position)"
    )


def test_an_operation_that_is_gone_is_said_with_what_to_write(tmp_path):
    (tmp_path / "flows").mkdir()
    flow = "flow: tale/one\ndoc: one\nneeds: [query]\nforward: return {}\n"
    for call, told in (
        ("channels_first(query(x))", "write x.permute(0, 3, 1, 2)"),
        ("attend_causal(x, x, query(x), mask)", "write attend(q, k, v, mask, is_causal=mask is None)"),
        ("join_masks(x, query(x))", "write out what it did"),
    ):
        (tmp_path / "flows" / "tale.yaml").write_text(flow.format(call))
        rule = Rulebook([tmp_path]).flows["tale/one"]
        with pytest.raises(FlowError, match=f"'{call.partition('(')[0]}' is no operation any more") as caught:
            check_flow(rule)
        assert told in str(caught.value)


def test_operations_that_are_gone_are_not_there():
    assert not set(RETIRED) & set(operation_names())
    assert not set(RETIRED) & set(OPERATIONS)


def test_every_name_of_now_is_there_and_none_of_old():
    rulebook = Rulebook()
    vocabulary = rulebook.config_vocabulary
    facts = {*vocabulary.facts, *vocabulary.unlisted}.union(*(family.facts for family in rulebook.families))
    assert not set(FACTS) & facts
    assert set(FACTS.values()) <= facts
    assert set(VALUES) <= facts
    operations = set(operation_names())
    assert not set(OPERATIONS) & operations
    topics = {rule.topic for rule in rulebook.flows.everything()}
    assert not set(TOPICS) & topics


def test_a_shipped_file_has_no_name_of_old_and_is_the_same_in_a_folder_of_ones_own():
    rulebook = Rulebook()
    every = [document for kind in rulebook.kinds for document in rulebook.documents(kind)]
    assert [document.label for document in every if renamed_document(document) is not document] == []
