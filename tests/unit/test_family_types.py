"""`types:` of a family: a row of facts for each model type."""

from __future__ import annotations

from dataclasses import fields

import pytest

from mapper.checkpoint import TensorInfo
from mapper.errors import RuleError
from mapper.inference.completeness import broken_promises
from mapper.inference.names import Names
from mapper.naming.tree import grow
from mapper.rulebook.complete import lacking, made_of, spelled, words_of
from mapper.rulebook.families import Family
from mapper.rulebook.family_file import patterns, read_family
from mapper.rulebook.renamed import Renamed, renamed_document
from mapper.rulebook.strict import parse_yaml

TALE = """family: tale
model_types: [tale, saga, epic]
recognise: [x]
facts:
  norm.eps: {config: rms_norm_eps, default: 1.0e-6}
  rotary.style:
    - {value: interleaved, at: encoder}
    - types
    - {value: half}
types:
  saga, epic:
    rotary.style: interleaved
  saga:
    norm.eps:
      - {at: encoder, value: 0.5, when: {rotary: true}}
      - {config: rms_norm_eps, default: 1.0e-8}
    moe.grouped: false
"""


def family(text: str = TALE) -> Family:
    return read_family(parse_yaml(text, "tale.yaml"))


def test_what_a_row_says_comes_before_what_holds_for_all() -> None:
    first, second, last = family().facts["norm.eps"]
    assert first.when == {"model_type": ("saga",), "rotary": (True,)}
    assert (second.when, second.default) == ({"model_type": ("saga",)}, 1.0e-8)
    assert (last.when, last.default) == ({}, 1.0e-6)


def test_a_list_says_where_the_rows_stand() -> None:
    values = [(rule.value, rule.when) for rule in family().facts["rotary.style"]]
    assert values == [("interleaved", {}), ("interleaved", {"model_type": ("saga", "epic")}), ("half", {})]


def test_a_definition_holds_at_one_place_or_at_several() -> None:
    text = TALE.replace("at: encoder, value: 0.5", "at: [encoder, decoder], value: 0.5")
    rule, everywhere, _ = family(text).facts["norm.eps"]
    assert (rule.at, everywhere.at) == (("encoder", "decoder"), ())
    assert family().facts["norm.eps"][0].at == ("encoder",)


def test_a_word_in_a_row_is_a_constant_of_the_published_code() -> None:
    (rule,) = family().facts["moe.grouped"]
    assert (rule.value, rule.why, rule.line) == (False, "the published code", 17)


def test_types_of_rows_are_known() -> None:
    assert family().types == ("saga", "epic")


def test_a_row_says_what_its_type_must_have() -> None:
    said = "  epic:\n    requires: [a, b]\n    implies: {c: d}\n    present_if: {use_e: [e]}\n"
    found = family(TALE + said + "  epic, tale: {requires: f}\n")
    assert found.requires_of == {"epic": ("a", "b", "f"), "tale": ("f",)}
    assert (found.implies_of, found.present_if_of) == ({"epic": {"c": ("d",)}}, {"epic": {"use_e": ("e",)}})
    assert set(found.facts) == {"norm.eps", "rotary.style", "moe.grouped"}


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("when: {rotary: true}", "when: {model_type: epic}", "tale.yaml:15: .*the row says for which types"),
        ("    moe.grouped: false", "    moe.grouped: {valeu: 1}", "tale.yaml:17: types.saga.moe.grouped.valeu"),
        ("  saga, epic:\n    rotary.style: interleaved\n", "  saga: wrong\n", "expected a mapping"),
    ],
)  # fmt: skip
def test_a_mistake_in_a_row_names_its_line(old: str, new: str, problem: str) -> None:
    text = TALE.replace(old, new)
    if "wrong" in new:
        text = text.partition("  saga:\n")[0]
    with pytest.raises(RuleError, match=problem):
        list(family(text).facts.values())


FORMER = """family: tale
model_types: [tale]
recognise: [a]
absent: [b]
by_type_only: true
requires: [c]
requires_roles: [tower.final_norm]
implies: {d: [e, f]}
unbiased: [g]
present_if: {use_h: [h]}
varies: [shortcut]
kinds: {i: RMSNorm, j: RMSNorm}
forms: {i: offset}
transposed: [k]
unused: {l: a constant, m: {why: a copy, has: [o]}}
folders: {text: [words]}
reads_as: {vision: old}
towers: {vision: new}
"""
PRESENT = """family: tale
model_types: [tale]
recognise: {has: [a], lacks: [b], by_type_only: true}
requires: [c, {role: tower.final_norm}, {d: [e, f]}, "*.bias"]
optional: {g.bias: null, h: use_h, role: shortcut}
names:
  i: {kind: RMSNorm, form: offset}
  j: {kind: RMSNorm}
  k: {form: transposed}
  l: {unused: a constant}
  m: {unused: a copy, has: o}
towers: {vision: {any: new, called: old}, text: {folders: words}}
"""


def test_fields_of_before_read_as_those_they_are_part_of_now_and_are_said() -> None:
    former, present = family(FORMER), family(PRESENT)
    other = ("document", "facts", "line")
    said = {field.name: getattr(former, field.name) for field in fields(Family) if field.name not in other}
    assert said == {name: getattr(present, name) for name in said}
    read = renamed_document(parse_yaml(FORMER, "tale.yaml"))
    assert isinstance(read, Renamed) and len(read.notes) == 13
    assert "tale.yaml: varies is part of another field now: optional: {role: [...]}" in read.notes
    assert not isinstance(renamed_document(parse_yaml(PRESENT, "a.yaml")), Renamed)


def test_a_row_is_of_several_patterns() -> None:
    found = patterns("{root}.{q,k}_proj, {n}.ln")
    assert found == ["{root}.q_proj", "{root}.k_proj", "{n}.ln"]


def test_a_bias_may_lack_where_the_field_that_decides_it_is_silent() -> None:
    found = family(
        TALE.partition("\ntypes:")[0]
        + "\n"
        + 'requires: ["*.bias"]\noptional: {"{q,k}.bias": [use_bias, null]}\n'
    )
    assert (found.unbiased, found.present_if) == (("q", "k"), {"use_bias": ("q.bias", "k.bias")})


@pytest.mark.parametrize(
    "said, promised, denied",
    [
        ({"kinds": ["hashed", "plain"]}, True, False),
        ({"kinds": "hashed"}, True, False),
        ({"kinds": ["plain", "plain"]}, False, True),
        ({}, False, False),
    ],
)
def test_a_word_among_the_values_of_a_field_decides(
    said: dict[str, object], promised: bool, denied: bool
) -> None:
    tale = family(TALE + "optional: {gate.table: kinds=hashed}\n")
    bare, whole = (Names(grow({name: TensorInfo((4,), "F32")})) for name in ("gate.weight", "gate.table"))
    assert bool(broken_promises(tale, said, bare)[0]) is promised
    assert bool(broken_promises(tale, said, whole)[1]) is denied


def test_what_every_example_has_in_a_folder_is_missed_and_a_head_of_another_kind_is_not() -> None:
    first = [
        "m.layers.0.a.weight",
        "m.layers.0.a.bias",
        "m.layers.1.a.weight",
        "head.weight",
        "head.bias",
        "m.pool.x",
    ]
    second = ["layers.0.a.weight", "layers.0.a.bias", "layers.0.b.weight"]
    made = made_of([("tale", first), ("saga", second)], ["{root}.layers.{n}.a"])
    assert made.types == ["saga", "tale"] and made.inside["layers.{n}"] == ["a"]

    def missing(*names: str) -> list[str]:
        return [
            spelled(path)
            for path in lacking(made, [words_of(name) for name in names], ["{root}.layers.{n}.a"])
        ]

    assert missing("t.layers.0.a.weight", "t.layers.1.b.weight") == ["t.layers.{n}.a"]
    assert missing("t.layers.0.a.bias", "head.weight") == ["t.layers.{n}.a.weight", "head.bias"]
    assert missing("t.layers.0.a.gamma", "t.layers.0.a.beta", "head.dense.weight") == []


def test_one_example_does_not_show_what_may_be_missing() -> None:
    made = made_of([("tale", ["layers.0.a.weight", "pool.x"])], ["{root}.layers.{n}.a"])
    assert (made.inside, made.outside) == ({}, {})


@pytest.mark.parametrize(
    ("names", "value", "lines"),
    [("layers.0.gate", 1, 1), ("layers.0.gate", 0, 0), ("layers.0.up", 1, 0)],
)
def test_a_field_may_say_something_only_beside_what_else_is_there(names: str, value: int, lines: int) -> None:
    """How many experts are shared is nothing of a model without experts."""
    found = family(
        TALE.partition("\ntypes:")[0]
        + "\noptional: {shared.up: {config: [shared, shared_old], beside: layers.0.gate}}\n"
    )
    beside = ("layers.0.gate",)
    assert found.present_beside == {("shared", "shared.up"): beside, ("shared_old", "shared.up"): beside}
    assert found.present_if == {"shared": ("shared.up",), "shared_old": ("shared.up",)}
    tree = grow({f"{names}.weight": TensorInfo((2, 2), "F32")})
    lacking, extra = broken_promises(found, {"shared": value}, Names(tree))
    assert (len(lacking), extra) == (lines, [])
