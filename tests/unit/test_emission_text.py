from __future__ import annotations

import ast
import importlib.util
import random
import subprocess
import sys

import pytest

from mapper.emission.text import WIDTH, comment, expression, lines, literal, quoted, split

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


LONG = "a_rather_long_name_of_something"
STATEMENTS = [
    f"x = f({LONG}, {LONG}, {LONG})",
    f"x = f({LONG}, {LONG}, {LONG}, {LONG}, {LONG})",
    f"x = f({LONG}, g({LONG}, {LONG}), key={LONG}, {LONG}_2=h({LONG}, {LONG}, {LONG}))",
    f"return self.{LONG}(self.{LONG}(x, {LONG}), {LONG}, {LONG})",
    f"return {{'a': {LONG}, 'b': {LONG}, 'c': {LONG}, 'd': {LONG}}}".replace("'", '"'),
    f"self.layers = nn.ModuleList(Layer({LONG}, {LONG}) for {LONG}, y in zip({LONG}, {LONG}))",
    f'self.x = nn.ModuleDict({{"a": nn.Linear({LONG}, {LONG}), "b": nn.Linear({LONG}, {LONG}, bias=False)}})',
    f"self.x = nn.ModuleList([Layer({LONG}), *(Other({LONG}, {LONG}) for _ in range({LONG})), Layer({LONG})])",
    f"self.x = nn.Conv2d({LONG}, {LONG}, kernel_size=({LONG}, 1), stride=2, padding=(1, {LONG}))",
    f"x = x + f({LONG}, {LONG}, {LONG}, {LONG}[:, None])",
    f"x, y = f({LONG}, {LONG}), g({LONG}, {LONG}, {LONG})",
    f"x = f({LONG}, {LONG}) + g({LONG}, {LONG}, {LONG}, {LONG})",
    f"x = f({LONG}, {LONG}, {LONG}).transpose(1, 2).flatten(2, 3, {LONG}, {LONG})",
    f"x = {LONG} + {LONG} + {LONG} + {LONG}",
    f"return {LONG} * {LONG} + f({LONG} * {LONG} + {LONG})",
    f"x[{LONG}] = f({LONG}, {LONG}, {LONG}, {LONG})",
    f"{LONG}: tuple[int, ...] = ({', '.join(['12345678'] * 20)})",
    f"{LONG}: tuple[str, ...] = ({', '.join([chr(34) + LONG + chr(34)] * 4)})",
    f"def forward(self, {LONG}: Tensor, {LONG}_2: Tensor | None = None, mask: Tensor | None = None) -> Tensor:",
    f"def {LONG}(self, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Tensor, dict[str, Tensor | None]]:",
    f"for {LONG}, kind in zip(self.{LONG}, ({', '.join([chr(34) + 'full_attention' + chr(34)] * 6)})):",
]


def formatted(text: str) -> str:
    return subprocess.run(
        [sys.executable, "-m", "ruff", "format", "--line-length", str(WIDTH), "--isolated", "-"],
        input=text, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip


def one_line(text: str) -> str:
    """A statement with the indentation that it has in a method, in a file that parses."""
    body = "" if not text.endswith(":") else "\n            pass"
    start = "        "
    return "\n".join(["class A:", "    def f(self):", *(lines(text, len(start)))]) + body + "\n"


@pytest.mark.skipif(importlib.util.find_spec("ruff") is None, reason="no formatter to compare with")
def test_long_lines_are_broken_as_the_formatter_breaks_them() -> None:
    for text in STATEMENTS:
        written = one_line(text)
        assert formatted(written) == written, text


@pytest.mark.parametrize("text", STATEMENTS)
def test_broken_lines_say_the_same(text: str) -> None:
    plain = (
        "class A:\n    def f(self):\n        " + text + ("\n            pass" if text.endswith(":") else "")
    )
    assert ast.dump(ast.parse(one_line(text))) == ast.dump(ast.parse(plain))


def test_a_long_text_is_broken_between_words() -> None:
    words = "a sentence that goes on for longer than a line may be and so on and on " * 3
    rows = lines(f"raise RuntimeError({quoted(words)})", 8)
    assert all(len(row) <= WIDTH for row in rows)
    (call,) = ast.parse("\n".join(row[8:] for row in rows)).body
    assert ast.literal_eval(call.exc.args[0]) == words  # type: ignore[attr-defined]


@pytest.mark.parametrize("text", ['"' * 40, "\\" * 60, "é" * 60, '\\" ' * 60, "word " * 60 + "\\"])
def test_a_long_text_of_escapes_is_itself_again(text: str) -> None:
    rows = lines(f"x = f({quoted(text)})", 0)
    (node,) = ast.parse("\n".join(rows)).body
    assert ast.literal_eval(node.value.args[0]) == text  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "text", ["depth, (layer, kind)", "[(1, 2), 3]", "{'a': (1, 2)}", "f((1, 2), x=(3, 4))", "x[1, 2]"]
)
def test_a_tuple_inside_of_something_keeps_its_brackets(text: str) -> None:
    node = ast.parse(text, mode="eval").body
    assert ast.dump(ast.parse(expression(node), mode="eval").body) == ast.dump(node)


def test_brackets_around_a_sum_make_no_tuple_of_it() -> None:
    names = [f"a_rather_long_name_of_a_term_{at}" for at in range(6)]
    text = f"y = ({' + '.join(names)}) * 0.5"
    written = lines(text, 4)
    assert len(written) > 1
    body = "\n".join(row.removeprefix("    ") for row in written)
    assert ast.dump(ast.parse(body)) == ast.dump(ast.parse(text))
