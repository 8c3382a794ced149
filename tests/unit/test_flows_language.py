from __future__ import annotations

import ast

import pytest

from mapper.errors import FlowError
from mapper.flows.combinations import check_flow
from mapper.flows.language import METHODS, dotted, parse_body, parse_expression, targets
from tests.flow_rules import flow_rule

FILE, LINE = "flows/layer/x.yaml", 7


def parse(body: str) -> list[ast.stmt]:
    return parse_body(body, FILE, LINE)


@pytest.mark.parametrize(
    "body",
    [
        "x = attention(x)",
        "q, k = split(x)",
        "(q, k), v = split(x)",
        "x = -x[:, 0] + 2 * y @ z ** 2 / 3 // 4 % 5 - 1",
        "x = x[..., None, 1:n, ::2]",
        "x = {'near': a, 'far': b}['near']",
        "x = [a, b][0]",
        "x = torch.cat((a, b), dim=-1)",
        "x = F.pad(x, (0, 1)).transpose(1, 2).flatten(2)",
        "for layer in layers:\n  x = layer(x)",
        "for layer, kind in zip(layers, fact.kinds):\n  x = layer(x, mask=masks[kind])",
        "if has(norm) and not (fact.rotary or fact.kind == 'own') and fact.count > 1:\n  x = norm(x)\nelse:\n  x = y",
        "if has(tower.layers.norm):\n  x = y",
        "if option.cache:\n  x = y",
        "states = []\nstates.append(x)",
        "x = x.masked_fill(~(mask & (x == 0) | (y >= 1)), -torch.inf)",
        "x = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None)",
        "x = scores.softmax(dim=-1, dtype=torch.float32).gather(-1, chosen)",
        "x = min(fact.size, x.shape[1])",
        "x = x if mask is None else x * mask",
    ],
)
def test_what_the_language_has_parses(body: str) -> None:
    assert parse(f"{body}\nreturn x")


@pytest.mark.parametrize(
    "body",
    [
        "import os",
        "from os import system",
        "global x",
        "del x",
        "assert x",
        "raise x",
        "pass",
        "while x:\n  x = y",
        "with x:\n  x = y",
        "try:\n  x = y\nexcept E:\n  x = z",
        "def f():\n  return x",
        "class A:\n  x = 1",
        "async def f():\n  return x",
        "x += 1",
        "x: int = 1",
        "match x:\n  case 1:\n    x = y",
        "for x in y:\n  break",
        "for x in y:\n  x = z\nelse:\n  x = w",
        "x = y = z",
        "x",
        "f(x)",
        "return",
    ],
)
def test_other_statements_are_refused(body: str) -> None:
    with pytest.raises(FlowError, match=r"^flows/layer/x\.yaml:\d+: "):
        parse(body)


@pytest.mark.parametrize(
    "text",
    [
        "lambda: x",
        "[a for a in x]",
        "{a for a in x}",
        "{a: b for a in x}",
        "(a for a in x)",
        "{a, b}",
        "{**a}",
        "{a: b}",
        "x if y else z",
        "x and y",
        "not x",
        "x < y < z",
        "x is y",
        "x in y",
        "x ^ y",
        "x << 2",
        "f'{x}'",
        "b'bytes'",
        "1j",
        "(y := x)",
        "f(*x)",
        "f(**x)",
        "f()()",
        "(f)(x)(y)",
        "await x",
        "x[y := 1]",
        "*x",
    ],
)
def test_other_expressions_are_refused(text: str) -> None:
    with pytest.raises(FlowError, match=r"^flows/layer/x\.yaml:7: "):
        parse(f"x = {text}")


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os')",
        "x.__class__",
        "x.__class__.__bases__[0]",
        "x._private",
        "().__class__",
        "''.__len__",
        "torch.load(x)",
        "torch.hub.load(x)",
        "torch.ops.load_library(x)",
        "torch.nn.Linear(x)",
        "F.torch.load(x)",
        "torch.cat.__globals__",
        "torch",
        "F",
        "torch.load",
        "torch.serialization.load(x)",
        "x.data.storage().fill_(0)",
        "x.apply_(f)",
        "x.register_hook(f)",
        "x.numpy().tofile(y)",
        "eval(x)",
        "exec(x)",
        "open(x)",
        "getattr(x, y)",
        "print(x)",
        "x.map_(x, f)",
        "x.tofile(y)",
        "x.share_memory_()",
    ],
)
def test_nothing_of_python_or_torch_is_in_reach(text: str) -> None:
    """What parses as a call of an unknown name is refused where the flow is checked, before anything is emitted."""
    with pytest.raises(FlowError, match=r"^flows/layer/x\.yaml:7: "):
        check_flow(flow_rule(f"return {text}", file=FILE, line=LINE))


def test_a_loop_makes_nothing_callable() -> None:
    with pytest.raises(FlowError, match="the attribute load is not allowed"):
        parse("for f in (torch.load, torch.cat):\n  x = f(x)\nreturn x")


def test_behind_a_dot_stands_a_method_or_a_role() -> None:
    body = "return tower.embeddings.token.weight"
    assert parse_body(body, FILE, LINE, roles=["tower"])
    with pytest.raises(FlowError, match="the attribute"):
        parse_body(body, FILE, LINE, roles=["layers"])


@pytest.mark.parametrize(
    "name", ["fact", "option", "has", "output", "torch", "F", "activation", "__all__", "zip"]
)
def test_the_words_of_the_language_cannot_be_assigned(name: str) -> None:
    with pytest.raises(FlowError, match="only plain names can be assigned"):
        parse(f"{name} = x")


@pytest.mark.parametrize("target", ["x.y", "x[0]", "[a, b]", "*a, b"])
def test_only_names_and_tuples_of_names_are_assigned(target: str) -> None:
    with pytest.raises(FlowError, match="only plain names can be assigned"):
        parse(f"{target} = y")


@pytest.mark.parametrize(
    "test",
    [
        "x",
        "x == 1",
        "f(x)",
        "fact.a == x",
        "1 < fact.a < 2",
        "fact.a in (1, 2)",
        "has(a, b)",
        "has(1)",
        "True",
        "-fact.a",
    ],
)
def test_a_branch_is_a_guard_and_nothing_else(test: str) -> None:
    with pytest.raises(FlowError, match="a guard"):
        parse(f"if {test}:\n  x = y")


def test_the_line_is_that_of_the_file() -> None:
    with pytest.raises(FlowError, match=r"flows/layer/x\.yaml:9: a flow has no import statement"):
        parse("x = y\nx = z\nimport os")


def test_what_python_cannot_read_is_refused_with_its_line() -> None:
    with pytest.raises(FlowError, match=r"flows/layer/x\.yaml:8: the body does not parse"):
        parse("x = y\nx = (")


@pytest.mark.parametrize(
    "body",
    [
        "x = " + "(" * 5000,
        "x = " + "-" * 100_000 + "1",
        "x = 1\0",
        "x = " + "1" * 10_000,
        "x = " + "+".join("1" * 50_000),
    ],
)
def test_bodies_made_to_break_the_parser_are_refused(body: str) -> None:
    with pytest.raises(FlowError):
        parse(body)


@pytest.mark.parametrize("text", ["", "x = 1", "x\nreturn y", "x; y", "import os"])
def test_an_expression_is_one_expression(text: str) -> None:
    with pytest.raises(FlowError):
        parse_expression(text, FILE, LINE)


def test_chains_of_names_are_read_as_text() -> None:
    assert dotted(ast.parse("a.b.c", mode="eval").body) == "a.b.c"
    assert dotted(ast.parse("a[0].b", mode="eval").body) is None


def test_targets_are_found_within_tuples() -> None:
    (node,) = parse("(a, b), c = x")
    assert list(targets(node.targets[0])) == ["a", "b", "c"]  # type: ignore[attr-defined]


def test_no_method_of_the_list_writes_or_leaves_torch() -> None:
    assert not [name for name in METHODS if name.startswith("_") or name.endswith("_")]
