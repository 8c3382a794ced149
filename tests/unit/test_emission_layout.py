"""Long lines, held to the formatter itself where it is there."""

from __future__ import annotations

import ast
import importlib.util
import random
import subprocess
import sys

import pytest

from mapper.emission.expressions import quoted
from mapper.emission.line_breaks import lines
from mapper.emission.printing import WIDTH

has_formatter = pytest.mark.skipif(
    importlib.util.find_spec("ruff") is None, reason="no formatter to compare with"
)
LONG = "a_rather_long_name_of_something"
NAMES = ["x", "self.width", "self.attention.output.weight", "pixel_values", "mask", "0.5", "self.head_dim"]
FUNCTIONS = ["attend_causal", "self.norm", "self.encoder.layernorm", "F.softplus", "merge_heads"]
STATEMENTS = [
    f"model.{LONG}.{LONG}.decoder.weight = model.{LONG}.embeddings.weight",
    f"model.{LONG}.{LONG}.decoder.weight = model.{LONG}.{LONG}.{LONG}.embeddings.weight",
    f"return (x + self.{LONG}(self.{LONG}(x))) * self.{LONG}.weight + self.{LONG}",
    f"return f({LONG}, {LONG}, {LONG}) * {LONG} + self.{LONG}",
    f"x = f({LONG}, g({LONG}, {LONG})) * {LONG}[:, None]",
    f"q = f({LONG}, {LONG}) * (self.{LONG} / self.{LONG}) ** 0.5",
    f"if torch.equal(self.{LONG}.{LONG}.weight, self.{LONG}.weight):",
    f"x = f({LONG}, {LONG}, {LONG})",
    f"x = f({LONG}, {LONG}, {LONG}, {LONG}, {LONG})",
    f"x = f({LONG}, g({LONG}, {LONG}), key={LONG}, {LONG}_2=h({LONG}, {LONG}, {LONG}))",
    f"return self.{LONG}(self.{LONG}(x, {LONG}), {LONG}, {LONG})",
    f"return {{'a': {LONG}, 'b': {LONG}, 'c': {LONG}, 'd': {LONG}}}".replace("'", '"'),
    f"self.layers = nn.ModuleList(Layer({LONG}, {LONG}) for {LONG}, y in zip({LONG}, {LONG}))",
    f'self.x = nn.ModuleDict({{"a": nn.Linear({LONG}, {LONG}), "b": nn.Linear({LONG}, {LONG}, bias=False)}})',
    f'self.x = nn.ModuleDict({{**{{str(index): Layer({LONG}) for index in range({LONG}.{LONG})}}, "b": nn.Linear({LONG}, {LONG})}})',
    f"self.x = nn.ModuleDict({{str(index): Layer({LONG}, {LONG}, {LONG}) for index in range({LONG}.{LONG})}})",
    f"self.x = nn.ModuleList([Layer({LONG}), *(Other({LONG}, {LONG}) for _ in range({LONG})), Layer({LONG})])",
    f"self.x = nn.Conv2d({LONG}, {LONG}, kernel_size=({LONG}, 1), stride=2, padding=(1, {LONG}))",
    f"x = x + f({LONG}, {LONG}, {LONG}, {LONG}[:, None])",
    f"x, y = f({LONG}, {LONG}), g({LONG}, {LONG}, {LONG})",
    f"x = f({LONG}, {LONG}) + g({LONG}, {LONG}, {LONG}, {LONG})",
    f"x = f({LONG}, {LONG}, {LONG}).transpose(1, 2).flatten(2, 3, {LONG}, {LONG})",
    f"x = {LONG} + {LONG} + {LONG} + {LONG}",
    f"x = {LONG} if mask is None else f({LONG}, {LONG}, {LONG})",
    f"return f({LONG}, {LONG}, {LONG}) if mask is None else {LONG}",
    f"x = f(x, {LONG} if {LONG} is None else {LONG}, {LONG})",
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
    return in_method(text, "\n".join(lines(text, 8)))


def unbroken(text: str) -> str:
    return in_method(text, "        " + text)


def in_method(text: str, written: str) -> str:
    body = "\n            pass" if text.endswith(":") else ""
    return f"class A:\n    def f(self):\n{written}{body}\n"


@has_formatter
def test_long_lines_are_broken_as_the_formatter_breaks_them() -> None:
    assert_is_formatted(STATEMENTS)


@has_formatter
def test_any_sum_call_and_chain_is_broken_as_the_formatter_breaks_it() -> None:
    draw = random.Random(0)
    texts = [f"{draw.choice(['y = ', 'return ', 'q, k = x, '])}{any_value(draw, 4)}" for _ in range(200)]
    assert_is_formatted([text for text in texts if 102 < len(text) < 330])


def assert_is_formatted(texts: list[str]) -> None:
    """What the formatter makes of the unbroken statements is what is written, and that it leaves alone."""
    marks = [f"mark_{at}\n" for at in range(len(texts))]
    for start in (unbroken, one_line):
        got = formatted("\n\n".join(mark + start(text) for mark, text in zip(marks, texts, strict=True)))
        for mark, text in zip(marks, texts, strict=True):
            assert got.partition(mark)[2].partition("mark_")[0].strip() == one_line(text).strip(), text


def any_value(draw: random.Random, depth: int) -> str:
    """An expression of the kinds that flows have."""
    if depth == 0 or draw.random() < 0.12:
        return draw.choice(NAMES)
    inner = [any_value(draw, depth - 1) for _ in range(draw.choice([1, 1, 2, 3]))]
    call = f"{draw.choice(FUNCTIONS)}({', '.join(inner + ['dim=-1'] * draw.choice([0, 0, 1]))})"
    return draw.choice(
        [
            call,
            call,
            f"{call}.transpose(1, 2)",
            f"{call}[:, None]",
            " + ".join(inner),
            f"{call} - {draw.choice(NAMES)}",
            f"({call} + {draw.choice(NAMES)}) * {draw.choice(NAMES)}",
            f"{draw.choice(NAMES)} * ({' - '.join(inner)}) ** 0.5",
            f"{call}.{draw.choice(['float', 'flatten'])}(){draw.choice(['', '.type_as(x)', '[0].T'])}",
            f"({call} {draw.choice(['==', '<', '!='])} {draw.choice(NAMES)}).long()",
            f"{call} & {' & '.join(f'({name} != 0)' for name in inner)}",
            f"{draw.choice(NAMES)} | ~{call}",
            f"({call} if {draw.choice(['x', 'mask'])} is None else {inner[0]}) * {draw.choice(NAMES)}",
        ]
    )


@pytest.mark.parametrize("text", STATEMENTS)
def test_broken_lines_say_the_same(text: str) -> None:
    assert ast.dump(ast.parse(one_line(text))) == ast.dump(ast.parse(unbroken(text)))


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


def test_brackets_around_a_sum_make_no_tuple_of_it() -> None:
    names = [f"a_rather_long_name_of_a_term_{at}" for at in range(6)]
    text = f"y = ({' + '.join(names)}) * 0.5"
    written = lines(text, 4)
    assert len(written) > 1
    body = "\n".join(row.removeprefix("    ") for row in written)
    assert ast.dump(ast.parse(body)) == ast.dump(ast.parse(text))


def test_part_of_a_statement_stays_as_it_is() -> None:
    text = f"({', '.join([LONG] * 5)}"
    assert lines(text, 4) == ["    " + text]
