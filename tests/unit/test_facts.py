from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch

from mapper.architecture import Block, Place
from mapper.errors import HintError, RuleError
from mapper.flows.arithmetic import evaluate, names, parse, solve
from mapper.inference import infer
from mapper.inference.config import Config
from mapper.inference.declared_facts import declared_facts
from mapper.inference.entries import mapped
from mapper.inference.facts import Facts
from mapper.inference.hints import read_hints
from mapper.inference.scopes import Scope
from mapper.rulebook.examples import header
from mapper.rulebook.fact_tables import FirstOf
from mapper.rulebook.facts import ConfigVocabulary, FactRule, FactTable, TowerConfig, read_fact
from mapper.rulebook.fields import Fields
from mapper.rulebook.ignored import Ignored
from mapper.rulebook.rulebook import Rulebook
from mapper.rulebook.values import checked

VOCABULARY = ConfigVocabulary(
    facts=FirstOf(),
    towers={"text": TowerConfig(("text_config",)), "vision": TowerConfig(("vision_config",))},
    tasks={},
    headless=None,
    ignored=Ignored(frozenset({"dropout"}), {"is_decoder": (False,)}),
    unused={},
)
HEADS = FactRule(
    "attention.heads",
    "f",
    1,
    config=("num_attention_heads", "n_heads"),
    towers={"decoder": ("decoder_heads",)},
)


def scope_in(tower: str) -> Scope:
    """The tower block itself, as inference sees it."""
    layer = Block("layer", "layers", Place((tower, "layers", (0, 1))), (0, 1))
    root = Scope(Block("other", "root", Place()), None, (), None)
    block = Block("other", tower, Place((tower,)), None, {"layers": [layer]})
    return Scope(block, root, (tower,), None)


def found(config: dict[str, object], tower: str, rule: FactRule = HEADS) -> list[tuple[str, object]]:
    return [(item.name, item.value) for item in Config(config, VOCABULARY).find(rule, scope_in(tower))]


EPSILON = FactRule("norm.eps", "f", 1, config=("norm_eps", "*norm*eps"))


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"final_norm_eps": 1e-5, "norm_topk": 2}, [("final_norm_eps", 1e-5)]),
        ({"q_norm_eps": 1e-5, "k_norm_eps": 1e-5}, [("q_norm_eps", 1e-5)]),
        ({"q_norm_eps": 1e-5, "final_norm_eps": 1e-6}, []),
        ({"norm_eps": 1e-6, "final_norm_eps": 1e-5}, [("norm_eps", 1e-6)]),
        ({"use_norm_eps": True}, []),
    ],
)
def test_a_form_of_names_finds_one_number_where_no_whole_name_is_there(
    config: dict[str, object], expected: list[tuple[str, object]]
) -> None:
    assert found(config, "text", EPSILON) == expected


def test_a_product_with_one_unknown_is_solved() -> None:
    assert solve(parse("heads * head_dim"), 384, {"heads": 12}) == ("head_dim", 32)


def test_a_sum_of_products_is_solved() -> None:
    fused = parse("(heads + 2 * kv_heads) * head_dim")
    assert solve(fused, 96, {"heads": 8, "head_dim": 8}) == ("kv_heads", 2)


def test_a_product_with_two_unknowns_waits() -> None:
    assert solve(parse("heads * head_dim"), 384, {}) is None


def test_a_product_that_does_not_divide_is_refused() -> None:
    with pytest.raises(ValueError, match="384 does not divide by 5"):
        solve(parse("heads * head_dim"), 384, {"heads": 5})


@pytest.mark.parametrize(
    "text", ["f(x)", "[1]", "x if y else z", "'a'", "x.y()", "lambda: 1", "1 +", "a and b", "x" * 201]
)
def test_only_arithmetic_is_an_expression(text: str) -> None:
    with pytest.raises(ValueError, match=r"arithmetic|characters"):
        parse(text)


def test_an_expression_names_facts_with_or_without_their_prefix() -> None:
    assert list(names(parse("fact.kernel * attention.heads"))) == ["kernel", "attention.heads"]


@pytest.mark.parametrize("text", ["10 ** 10 ** 10", "1 / 0", "2.0 ** 65", "log(0 - 1)"])
def test_arithmetic_out_of_range_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError):
        evaluate(parse(text), {})


def test_whole_quotients_stay_whole() -> None:
    assert evaluate(parse("hidden_size / heads"), {"hidden_size": 384, "heads": 12}) == 32
    assert isinstance(evaluate(parse("hidden_size / heads"), {"hidden_size": 384, "heads": 12}), int)


@pytest.mark.parametrize("number", [0.0, 2560**0.5, -(32**0.5), 1.00390625, 1.01171875, 1e18])
def test_a_constant_is_rounded_as_a_tensor_is(number: float) -> None:
    wanted = torch.tensor(number, dtype=torch.bfloat16).item()
    assert evaluate(parse("bfloat16(x)"), {"x": number}) == wanted


def test_lists_are_calculated_with_element_by_element() -> None:
    assert evaluate(parse("(kernel - 1) // 2"), {"kernel": [3, 7]}) == [1, 3]


@pytest.mark.parametrize(
    "value", ["twelve", -1, 0, 1.5, True, None, [12], {}, float("nan"), float("inf"), 2**60]
)
def test_what_is_no_count_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="whole number"):
        checked(value, "count")


def test_a_whole_float_is_a_count() -> None:
    assert checked(1200.0, "count") == 1200


def test_the_first_field_that_is_there_wins_and_others_stay_visible() -> None:
    assert found({"n_heads": 4, "num_attention_heads": 8}, "tower") == [
        ("num_attention_heads", 8),
        ("n_heads", 4),
    ]


def test_null_is_an_absence() -> None:
    assert found({"num_attention_heads": None, "n_heads": 4}, "tower") == [("n_heads", 4)]


def test_null_is_a_value_where_the_rule_says_so() -> None:
    rule = FactRule("attention.window", "f", 1, config=("sliding_window",), nullable=True)
    assert found({"sliding_window": None}, "tower", rule) == [("sliding_window", None)]


def test_a_tower_reads_its_own_config_and_not_the_other_one() -> None:
    config = {"text_config": {"n_heads": 4}, "vision_config": {"n_heads": 8}, "num_attention_heads": 99}
    assert found(config, "vision") == [("vision_config.n_heads", 8)]


def test_a_tower_does_not_take_a_nested_field_of_the_top_for_its_own() -> None:
    base = FactRule("rotary.base", "f", 1, config=("rope.theta", "text_config.theta"))
    assert found({"text_config": {}, "rope": {"theta": 7.0}}, "text", base) == []
    whole = {"text_config": {"theta": 5.0}, "rope": {"theta": 7.0}}
    assert found(whole, "text", base) == [("text_config.theta", 5.0)]


def test_a_single_tower_reads_the_only_config_there_is() -> None:
    assert found({"text_config": {"n_heads": 4}}, "tower") == [("text_config.n_heads", 4)]


def test_fields_of_one_tower_come_first() -> None:
    assert found({"decoder_heads": 2, "n_heads": 4}, "decoder")[0] == ("decoder_heads", 2)
    assert found({"decoder_heads": 2, "n_heads": 4}, "tower") == [("n_heads", 4)]


def test_a_part_inside_of_another_is_a_towers_own() -> None:
    inner = TowerConfig(("encoder.text_config", "encoder"))
    vocabulary = replace(VOCABULARY, towers={**VOCABULARY.towers, "encoder": inner})
    data = {"encoder": {"text_config": {"n_heads": 2, "odd": 1, "even": 2}, "n_heads": 8}, "n_heads": 4}
    config = Config(data, vocabulary)
    assert list(config.parts("encoder")) == ["encoder.text_config", "encoder"]
    assert config.part("encoder.text_config") == {"n_heads": 2, "odd": 1, "even": 2}
    heads = config.find(HEADS, scope_in("encoder"))
    assert [(item.name, item.value) for item in heads] == [("encoder.text_config.n_heads", 2)]
    config.use(heads)
    ignored = {
        "encoder.text_config": Ignored(frozenset({"odd"}), {}),
        "": Ignored(frozenset({"n_heads"}), {}),
    }
    assert config.unread(ignored) == ["encoder.text_config.even"]
    assert list(Config({"encoder": {"n_heads": 8}}, vocabulary).parts("encoder")) == ["encoder"]


def test_a_family_that_says_with_which_values_a_field_changes_nothing_is_heard_first() -> None:
    common = Ignored(frozenset({"dropout", "is_decoder"}), {})
    both = common.beside(Ignored(frozenset(), {"is_decoder": (True,)}))
    assert both.always == {"dropout"} and both.valued == {"is_decoder": (True,)}


def test_unread_fields_are_listed_down_to_the_nested_one() -> None:
    config = Config(
        {"rope": {"theta": 1.0, "kind": "x"}, "dropout": 0.1, "is_decoder": False, "odd": 1, "none": None},
        VOCABULARY,
    )
    config.use(config.find(FactRule("rotary.base", "f", 1, config=("rope.theta",)), scope_in("tower")))
    assert config.unread({}) == ["rope.kind", "odd"]


def test_a_field_that_changes_nothing_with_some_values_is_told_with_others() -> None:
    config = Config({"is_decoder": True, "odd": 1}, VOCABULARY)
    assert (config.unread({}), config.harmful({})) == (["odd"], ["is_decoder = true"])


def test_a_hint_of_an_unknown_fact_names_the_close_one() -> None:
    with pytest.raises(HintError, match=r"did you mean 'attention\.heads'"):
        read_hints({"attention.head": 4}, {"attention.heads": "count", "norm.eps": "number"})


@pytest.mark.parametrize("value", [0, 1, 3, 2.5, -2, "4", True])
def test_an_even_number_is_one_of_pairs(value: object) -> None:
    assert checked(4.0, "even") == 4
    with pytest.raises(ValueError, match="is not an even whole number from 2"):
        checked(value, "even")


def test_a_hint_is_checked_against_the_type() -> None:
    with pytest.raises(HintError, match="whole number"):
        read_hints({"attention.heads": "four"}, {"attention.heads": "count"})


def test_hints_with_a_scope_come_before_those_for_everything() -> None:
    given = read_hints({"attention.heads": "4", "text:attention.heads": 8}, {"attention.heads": "count"})
    assert [(item.at, item.value) for item in given] == [("text", 8), ("", 4)]


def test_a_list_that_a_map_does_not_name_is_its_list_entry() -> None:
    rule = FactRule("x", "x.yaml", 1, map={"[*]": "several", "*": "one"})
    assert [mapped(rule, value) for value in ([-1, -2], -1, [])] == ["several", "one", "several"]
    assert mapped(FactRule("x", "x.yaml", 1, map={"a": 1, "*": 0}), ["a", "a"]) == [1, 1]


def test_arithmetic_may_be_a_number_and_nothing_but_arithmetic() -> None:
    def read(most: object) -> FactRule:
        return read_fact(Fields({"config": "x", "most": most}, "facts.yaml", lambda keys: 3), "size")

    assert (read(80).most, read("2 * heads").most) == ("80", "2 * heads")
    with pytest.raises(RuleError, match=r"facts\.yaml:3: most: expected arithmetic over facts, not '\[1\]'"):
        read([1])


class Said(NamedTuple):
    """A family that alone speaks."""

    facts_of_it: FactTable
    match: None = None
    are_known_by_names: bool = False

    @property
    def everything(self) -> list[Any]:
        return [SimpleNamespace(facts=self.facts_of_it)]

    def facts(self, scope: Scope, name: str) -> list[Any]:
        return [(None, self.facts_of_it.get(name, ()))]

    def part(self, scope: Scope) -> None:
        return None

    def speak_for(self, scope: Scope) -> bool:
        return True


def table_of(facts: dict[str, Any], file: str) -> FactTable:
    return FactTable(Fields({"facts": facts}, file, lambda keys: 1), "facts")


@pytest.mark.parametrize(
    ("config", "value"), [({}, "unknown"), ({"hidden_size": 64}, 8.0)], ids=["without", "with"]
)
def test_what_a_family_calculates_from_an_unknown_fact_is_not_what_holds_in_general(
    config: dict[str, Any], value: Any
) -> None:
    own = {"embedding.scale": {"type": "positive", "expr": "hidden_size ** 0.5"}}
    general = {
        "embedding.scale": {"type": "positive", "default": 1.0, "why": "as they are"},
        "hidden_size": {"type": "count", "config": ["hidden_size"]},
    }
    vocabulary = replace(
        VOCABULARY,
        facts=table_of(general, "vocabulary/config.yaml"),
        unlisted=table_of({}, "vocabulary/config.yaml"),
    )
    rulebook: Any = SimpleNamespace(config_vocabulary=vocabulary)
    families: Any = Said(table_of(own, "families/own.yaml"))
    names: Any = SimpleNamespace(fit=lambda has, lacks, home: not has and not lacks)
    facts = Facts(declared_facts(rulebook, families), families, Config(config, vocabulary), names)
    known = facts.get(scope_in("text"), "embedding.scale")
    assert (known.value if known else "unknown") == value


def test_a_sliding_window_without_its_size_is_refused() -> None:
    read = next(family for family in Rulebook().families if family.name == "llama").examples[0]
    with pytest.raises(
        HintError, match=r"attention\.pattern.* does not go with this checkpoint: no flow fits decoder_mask"
    ):
        infer(header(read), Rulebook(), hints={"attention.pattern": "sliding_attention"})
