from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from mapper.architecture import Place
from mapper.emission.drafts import Argument, Draft, resolve
from mapper.emission.merge import merge_options
from mapper.emission.module_tree import Folder

FORWARD = ["def forward(self, x):", "    return self.a(x)"]


def draft(
    children: Mapping[str, int], *, methods: list[str] = FORWARD, attributes: tuple[str, ...] = ()
) -> Draft:
    """A class with one Linear for each child, of the size that is given."""
    made = Draft(Folder(Place(("layers", (0,)))), methods=list(methods))
    for name in attributes:
        made.attributes[name] = f"self.{name} = {made.place(Argument(name, 1))}"
    for name, size in children.items():
        made.lines.append(f"self.{name} = nn.Linear({made.place(Argument(f'{name}_size', size))})")
    return made


def merged(*groups: list[Draft]) -> list[list[Draft]]:
    return merge_options(list(groups))


def switches(made: Draft) -> dict[str, Any]:
    """Which of its optional children a draft has."""
    found = {}
    for row, mark in made.options.items():
        argument = made.arguments[int(re.findall(r"\d+", mark)[0])]
        found[row.partition(" =")[0]] = argument.value
    return found


def sizes(made: Draft) -> list[Any]:
    return [argument.value for argument in made.arguments if argument.hint.endswith("_size")]


def test_a_child_that_only_one_has_becomes_a_switch() -> None:
    first, other = draft({"a": 4, "bias": 8}), draft({"a": 4})
    assert merged([first], [other]) == [[first, other]]
    assert switches(first) == {"self.bias": True}
    assert switches(other) == {"self.bias": False}


def test_the_switch_is_a_parameter_of_the_class() -> None:
    (group,) = merged([draft({"a": 4, "bias": 8})], [draft({"a": 4}), draft({"a": 4})])
    done = resolve(group, lambda fact, tower: None)
    assert {name: [a.value for a in values] for name, values in done.parameters.items()} == {
        "has_bias": [True, False, False]
    }


def test_values_stay_with_their_lines() -> None:
    first, other = draft({"bias": 8, "a": 4}), draft({"a": 5})
    merged([first], [other])
    assert sizes(first) == [8, 4]
    assert sizes(other)[1] == 5


def test_three_kinds_of_one_class_have_a_switch_for_each_child() -> None:
    whole, one, none = draft({"a": 1, "b": 2, "c": 3}), draft({"a": 1, "b": 2}), draft({"a": 1})
    (group,) = merged([none], [whole], [one])
    assert group == [whole, one, none]
    assert [switches(each) for each in group] == [
        {"self.c": True, "self.b": True},
        {"self.c": False, "self.b": True},
        {"self.c": False, "self.b": False},
    ]


def test_classes_that_each_have_a_child_of_their_own_stay_apart() -> None:
    assert len(merged([draft({"a": 1, "b": 2})], [draft({"a": 1, "c": 2})])) == 2


def test_classes_with_other_methods_stay_apart() -> None:
    other = draft({"a": 1}, methods=["def forward(self, x):", "    return x"])
    assert len(merged([draft({"a": 1, "b": 2})], [other])) == 2


def test_classes_with_other_attributes_stay_apart() -> None:
    assert len(merged([draft({"a": 1, "b": 2}, attributes=("scale",))], [draft({"a": 1})])) == 2


def test_classes_without_methods_stay_apart() -> None:
    assert len(merged([draft({"a": 1, "b": 2}, methods=[])], [draft({"a": 1}, methods=[])])) == 2


def test_children_in_another_order_are_another_class() -> None:
    assert len(merged([draft({"a": 1, "b": 2, "c": 3})], [draft({"b": 2, "a": 1})])) == 2


def test_what_a_child_is_made_with_matters() -> None:
    other = draft({})
    other.lines = ["self.a = nn.LayerNorm(4)"]
    assert len(merged([draft({"a": 1, "b": 2})], [other])) == 2
