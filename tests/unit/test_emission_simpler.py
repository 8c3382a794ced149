"""Sizes as a person would write them."""

from __future__ import annotations

import ast

import pytest

from mapper.architecture import Fact
from mapper.emission.drafts import LEFT_OUT, Argument, Draft, resolve
from mapper.emission.module_tree import Folder
from mapper.emission.simpler import optional_rows, without_ones, without_single_loops, without_sums_of_one


def size(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


@pytest.mark.parametrize(
    ("text", "shorter"),
    [
        ("2 * n * size // n", "2 * size"),
        ("size // n", "size"),
        ("size + n", "size + n"),
        ("n // size", "n // size"),
        ("size * m", "size * m"),
    ],
)
def test_factors_of_one_are_left_out(text, shorter):
    assert ast.unparse(without_ones(size(text), {"n"})) == shorter


@pytest.mark.parametrize(
    ("text", "shorter"),
    [
        ("(heads + 2 * heads) * head_dim", "3 * heads * head_dim"),
        ("(heads + 2 * kv_heads) * head_dim", "(heads + 2 * kv_heads) * head_dim"),
        ("a - 2 * a", "a - 2 * a"),
        ("config.heads + 2 * config.heads", "3 * config.heads"),
    ],
)
def test_a_size_beside_itself_is_counted(text, shorter):
    assert ast.unparse(without_sums_of_one(size(text))) == shorter


@pytest.mark.parametrize(
    ("text", "shorter"),
    [
        ("nn.ModuleList(Layer(config) for _ in range(1))", "nn.ModuleList([Layer(config)])"),
        ("super().__init__(f(g[0], (1,)) for _ in range(1))", "super().__init__([f(g[0], (1,))])"),
        ("[A(), *(B(1) for _ in range(1))]", "[A(), B(1)]"),
        (
            "nn.ModuleList(Layer(config) for _ in range(12))",
            "nn.ModuleList(Layer(config) for _ in range(12))",
        ),
    ],
)
def test_a_loop_that_runs_once_is_its_element(text, shorter):
    assert without_single_loops(text) == shorter


def drafts(*values: int, evidence: str = "rule") -> list[Draft]:
    """Classes of one convolution with a stride, which a rule or a file says."""
    made = []
    for value in values:
        fact = Fact("convolution.stride", value, "", evidence, "")
        draft = Draft(Folder(()))
        mark = draft.size("stride", value, ast.Name("stride"), {"stride": fact}, "")
        draft.arguments[-1].default = 1
        draft.lines.append(f"self.conv = nn.Conv2d(3, 8, stride={mark})")
        made.append(draft)
    return made


def test_an_argument_is_left_out_where_no_instance_has_another_value_than_torchs():
    assert resolve(drafts(1, 1), lambda *_: "stride").resolved == [LEFT_OUT]
    assert resolve(drafts(1, 2), lambda *_: None).resolved == ["stride"]


def test_factors_that_a_file_says_stay():
    facts = {name: Fact(name, 1, "", "config", "") for name in ("n", "size")}
    draft = Draft(Folder(()))
    draft.arguments.append(Argument("width", 1, size("n * size"), facts))
    assert resolve([draft], lambda fact, _: fact.name).resolved == ["config.n * config.size"]


def test_an_argument_that_a_file_says_is_left_out_where_it_is_torchs_own_number():
    made = drafts(1, 1, evidence="config")
    for draft in made:
        draft.arguments[-1].default, draft.arguments[-1].usual = None, 1
    assert resolve(made, lambda *_: None).resolved == [LEFT_OUT]
    assert resolve(made, lambda *_: "stride").resolved == ["config.stride"]  # a field that may be edited


@pytest.mark.parametrize(
    ("text", "together"),
    [
        ("b = optional(a, f(a))\nc = optional(b, g(b))\nd = optional(c, h(c, x))\ny = k(d)", [3, 1]),
        ("b = optional(a, f(a))\nc = optional(b, g(b))\ny = k(b, c)", [1, 1, 1]),  # b is read once more
        ("b = optional(a, f(a))\nc = optional(e, g(b))", [1, 1]),  # another condition
        ("b = optional(a, f(a))\nb = optional(b, g(b))\ny = k(b)", [1, 1, 1]),
        ("b = f(a)\nc = optional(b, g(b))", [1, 1]),
        ("b = optional(a, f(a))\na = optional(b, g(b))", [1, 1]),  # a would be None when it is asked
        ("b = optional(a, f(a, c))\nc = optional(b, g(b))", [1, 1]),  # and c when it is read
        ("b = optional(a, none())\nc = optional(b, g(b))", [1, 1]),  # the value may be None, too
    ],
)
def test_values_of_which_each_is_of_the_one_before_have_one_condition(text: str, together: list[int]) -> None:
    statements = ast.parse(text).body
    nullable = [id(node.value) for node in statements if "none()" in ast.unparse(node)]  # type: ignore[attr-defined]
    assert [len(row) for row in optional_rows(statements, nullable)] == together
