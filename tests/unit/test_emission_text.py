from __future__ import annotations

import ast
import random
from collections.abc import Iterable

import pytest

from mapper.emission.expressions import comment, comment_row, expression, literal, quoted, split
from mapper.emission.repeated import tuple_text

NASTY = [
    "plain", "", '"', "'", '"""', "'''", "\\", "\\\\", '\\"', "a\nb", "a\rb", "\t", "\0", "\x07", "é", "日本", "\u2028", "\U0001f600",
    "#", "{x}", "%s", "\x1b[31m", '""" + __import__("os").system("x") + """', "\\N{DASH}", "a\\", "\udc80",
]  # fmt: skip


@pytest.mark.parametrize("text", NASTY)
def test_a_quoted_text_is_itself_again(text: str) -> None:
    written = quoted(text)
    assert written.isascii()
    assert written.isprintable()
    assert ast.literal_eval(written) == text


@pytest.mark.parametrize("text", NASTY)
def test_a_comment_is_one_printable_line(text: str) -> None:
    written = comment(text)
    assert written.isascii()
    assert written.isprintable()
    assert ast.parse(f"x = 1  # {written}\n").body


@pytest.mark.parametrize("text", NASTY)
def test_a_comment_cannot_end_a_docstring(text: str) -> None:
    (node,) = ast.parse(f'"""{comment(text)}: a docstring."""').body
    assert isinstance(node, ast.Expr)
    assert isinstance(node.value, ast.Constant)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1, "1"),
        (-2, "-2"),
        (1.0, "1.0"),
        (1e-05, "1e-5"),
        (1e-12, "1e-12"),
        (1e22, "1e22"),
        (-0.5, "-0.5"),
        (500000.0, "500000.0"),
        (float("inf"), 'float("inf")'),
        (float("-inf"), 'float("-inf")'),
        (True, "True"),
        (None, "None"),
        ("a", '"a"'),
        ([], "()"),
        ([1], "(1,)"),
        ([1, 2], "(1, 2)"),
        ((1, "a", None), '(1, "a", None)'),
        ({"a": [1]}, '{"a": (1,)}'),
        (..., "..."),
        (2**70, str(2**70)),
    ],
)
def test_values_are_written_as_a_person_would(value: object, text: str) -> None:
    assert literal(value) == text


def test_numbers_keep_every_bit() -> None:
    draw = random.Random(0)
    for _ in range(300):
        value = draw.uniform(-1, 1) * 10.0 ** draw.randint(-300, 300)
        assert ast.literal_eval(literal(value)) == value


def test_quotes_are_those_that_need_fewer_escapes() -> None:
    assert quoted('say "a"') == "'say \"a\"'"
    assert quoted("""say "a" isn't 'b'""") == '"say \\"a\\" isn\'t \'b\'"'


@pytest.mark.parametrize(
    "text",
    [
        "a",
        "a.b.c",
        "-a",
        "-a**2",
        "(-a) ** 2",
        "a**-b",
        "a ** (b + c)",
        "(a + b) * c",
        "a + b * c",
        "a - (b - c)",
        "a - b - c",
        "a / (b * c)",
        "a // b % c",
        "-(a + b)",
        "(a * b) ** 2",
        "2 ** f(x)",
        "a.b**2",
        "a @ b @ c",
        "(a @ b).t()",
        "(a + b)[0]",
        "f(a, b=c)",
        "f(a)(b)",
        "f((a, b), c=(1, 2))",
        "(a,)",
        "f((a,))",
        "x[0]",
        "x[0, 1]",
        "x[:, None]",
        "x[..., ::2]",
        "x[a:b]",
        "x[a:-1]",
        "x[a + 1 :]",
        "x[: a + 1]",
        "x[a + 1 : b - 1]",
        "x[1:2:3]",
        "x[: a.b]",
        "x[-a:]",
        "x[-a.b :]",
        "x[::-1]",
        "[a, b]",
        "[]",
        "()",
        '{"a": b, "c": d}',
        "{}",
        "a, b",
        "x[0].a[1]",
        "(a, b)[0]",
        "-1",
        "f(-x)",
        "a * -b",
        "a & (b == 0) | ~c",
        "(a == 0) & b",
        "(a | b) & ~(c & d)",
        "a + 1 < b",
        "f(a, is_causal=mask is None)",
        "(a < b).long()",
        "a if b is None else a + b",
        "(a if b is None else c) * d",
        "f(a if b is not None else c, d)",
    ],
)
def test_an_expression_is_written_as_the_formatter_would(text: str) -> None:
    assert expression(ast.parse(text, mode="eval").body) == text


def test_an_expression_outside_the_language_is_no_text() -> None:
    with pytest.raises(TypeError, match="Lambda is outside the language of flows"):
        expression(ast.parse("lambda: x", mode="eval").body)


@pytest.mark.parametrize(
    ("text", "items"),
    [
        ("", []),
        ("a", ["a"]),
        ("a, b", ["a", "b"]),
        ("f(a, b), [c, d]", ["f(a, b)", "[c, d]"]),
        ('"a, b", c', ['"a, b"', "c"]),
        ('"(", c', ['"("', "c"]),
        ('"a\\", b", c', ['"a\\", b"', "c"]),
        ('"a\\\\", b', ['"a\\\\"', "b"]),
        ("a,", ["a"]),
    ],
)
def test_items_are_split_at_their_own_commas(text: str, items: list[str]) -> None:
    assert split(text) == items


@pytest.mark.parametrize(
    "text", ["depth, (layer, kind)", "[(1, 2), 3]", "{'a': (1, 2)}", "f((1, 2), x=(3, 4))", "x[1, 2]"]
)
def test_a_tuple_inside_of_something_keeps_its_brackets(text: str) -> None:
    node = ast.parse(text, mode="eval").body
    assert ast.dump(ast.parse(expression(node), mode="eval").body) == ast.dump(node)


def test_a_slice_bound_that_is_spelled_with_dots_stands_off_its_colon() -> None:
    node = ast.parse("x[:size]", mode="eval").body
    node.slice.upper.id = "self.size"  # type: ignore[attr-defined]
    assert expression(node) == "x[: self.size]"


@pytest.mark.parametrize(
    "text", ["x[::2]", "x[1::2]", "x[:: f(y)]", "x[1 : n - 1 : 2]", "x[n - 1 :: 2]", "x[: n - 1 :]"]
)
def test_a_slice_is_written_as_the_formatter_writes_it(text: str) -> None:
    assert expression(ast.parse(text, mode="eval").body) == text.replace(" :]", "]")


def test_a_comment_on_many_layers_loses_layers_before_the_name_of_the_tensor() -> None:
    row = "    # shape: model.layers.{0..2,4..6,8..10,12..14}.mlp.gate_proj.weight [64, 64]"
    assert comment_row(row, 110) == row
    assert comment_row(row, 75) == "    # shape: model.layers.{0..2,4..6,..}.mlp.gate_proj.weight [64, 64]"
    assert comment_row("# " + "a" * 80, 20) == "# " + "a" * 15 + "..."
    assert comment_row("    # config: in_proj.weight [164, 32] = 2 * groups * state_size", 50).endswith(
        "[164, 32] = 2 * ..."
    )


@pytest.mark.parametrize(
    ("values", "text"),
    [
        (["full_attention"] * 28, '("full_attention",) * 28'),
        (["global", "local"] * 12, '("global", "local") * 12'),
        ((["sliding"] * 3 + ["full"]) * 4, '(("sliding",) * 3 + ("full",)) * 4'),
        ((["sliding"] * 5 + ["full"]) * 4 + ["sliding"] * 2, '(("sliding",) * 5 + ("full",)) * 4 + ("sliding",) * 2'),
        (["one", "two", "three", "four"] * 6, '("one", "two", "three", "four") * 6'),
        (["full"] * 3 + ["sliding"] * 9, '("full",) * 3 + ("sliding",) * 9'),
        (range(0, 40, 2), "tuple(range(0, 40, 2))"),
        (range(24), "tuple(range(24))"),
        (range(1, 25), "tuple(range(1, 25))"),
    ],
)  # fmt: skip
def test_a_long_tuple_is_written_by_what_comes_again(values: Iterable[object], text: str) -> None:
    values = tuple(values)
    assert tuple_text(values) == text
    assert eval(text) == values


def test_a_tuple_without_a_pattern_and_a_short_one_have_their_values() -> None:
    drawn = tuple(random.Random(1).randrange(100) for _ in range(40))
    for values in (drawn, (1, 1, 1, 1), tuple(range(8)), (True, *[1] * 30), ("a",)):
        assert eval(tuple_text(values)) == values
