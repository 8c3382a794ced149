"""`tools/needless.py`: entries of families that follow from other rules are told, and no other."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from mapper.rulebook.rulebook import Rulebook
from tests.shipped import RULEBOOK

TOOLS = Path(__file__).resolve().parents[2] / "tools"
sys.path.insert(0, str(TOOLS))
try:
    import following
    import needless
finally:
    sys.path.remove(str(TOOLS))

TALE = """
family: tale
model_types: [{types}]
source: [a made-up decoder]
recognise: ["{{root}}.layers.{{n}}.mlp.gates_proj", "{{root}}.layers.{{n}}.self_attn.q_proj"]
requires: [gates_proj]
names: {{mlp.gates_proj: feed_forward.gate}}
facts:
  norm.placement: {{value: pre, why: made up}}
  rotary: {{value: true, why: made up}}
  {fact}
{more}
"""
ACTIVATION = "feed_forward.activation: {config: hidden_act, default: silu}"
SAGA = """
family: saga
model_types: [opt]
source: [another]
extends: tale
requires: [gates_proj, up_proj]
facts: {norm.placement: {value: pre, why: said again}, rotary: {value: false, why: learned positions}}
"""


def told(folder: Path, name: str = "tale", **said: str) -> set[tuple[str | int, ...]]:
    """The places of what follows in a made-up family."""
    (folder / "families").mkdir(parents=True)
    text = TALE.format(**{"types": "mistral, qwen2", "fact": ACTIVATION, "more": "", **said})
    (folder / "families" / "tale.yaml").write_text(text)
    if name == "saga":
        (folder / "families" / "saga.yaml").write_text(SAGA)
    rulebook = Rulebook([folder])
    return set(following.following(rulebook, needless.own_families(rulebook), name))


def test_a_field_with_the_default_of_all_its_classes_follows(tmp_path: Path) -> None:
    assert told(tmp_path) == {("facts", "feed_forward.activation")}


def test_a_default_that_no_class_has_is_theirs_without_it(tmp_path: Path) -> None:
    """A config of these types never comes to it, and where names alone show the family it would be wrong of all."""
    fact = "feed_forward.activation: {config: hidden_act, default: gelu}"
    assert told(tmp_path, fact=fact) == {("facts", "feed_forward.activation")}


@pytest.mark.parametrize(
    "said",
    [
        {"fact": "feed_forward.activation: {config: hidden_act, map: {silu: gelu}, default: silu}"},
        {"fact": "feed_forward.activation: {value: silu, why: made up}"},  # whatever the config says
        {"fact": "feed_forward.activation: {at: decoder, config: hidden_act, default: silu}"},
        {
            "fact": "feed_forward.activation: {config: dense_act, default: silu}"
        },  # a field that the class has not
        {"types": "mistral, opt"},  # a class without the field
        {"types": "mistral, a_type_without_a_class"},
        {"types": ""},
        {"fact": "moe.normalise: {config: norm_topk_prob, default: false}", "types": "qwen2_moe"},
    ],
)
def test_what_another_config_or_type_would_show_does_not_follow(said: dict[str, str], tmp_path: Path) -> None:
    assert told(tmp_path, **said) == set()


def test_fields_that_change_nothing_follow_where_the_vocabulary_says_so(tmp_path: Path) -> None:
    more = "ignored: {any: [ignore_index, a_field_of_its_own, hidden_act], tie_encoder_decoder: [true]}"
    assert "ignore_index" in RULEBOOK.config_vocabulary.ignored.always
    assert told(tmp_path, more=more, fact="") == {("ignored", "any", 0)}


def test_what_the_family_that_is_extended_says_follows(tmp_path: Path) -> None:
    assert told(tmp_path, "saga") == {("requires", 0), ("facts", "norm.placement")}


def test_an_entry_is_unshown_where_no_reading_is_another_without_it() -> None:
    family = needless.own_families(RULEBOOK)["gptj"]
    checkpoint = needless.header(family.examples[0])
    reads = [needless.Read(checkpoint, needless.outcome(checkpoint, RULEBOOK))]
    only = {("facts", "rotary.style"), ("facts", "layer.parallel"), ("facts", "rotary.type")}
    but = {keys for keys in needless.entries(family.document.data) if keys not in only}
    assert set(needless.unshown(RULEBOOK, "gptj", reads, but)) == {("facts", "rotary.type")}


def test_no_shipped_family_says_what_follows() -> None:
    families = needless.own_families(RULEBOOK)
    every = {name: set(following.following(RULEBOOK, families, name)) for name in families}
    assert {name: found for name, found in every.items() if found} == {}, (
        "python tools/needless.py tells them"
    )
