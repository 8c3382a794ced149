"""The closed subset of Python that a flow's body may use; nothing else parses.

Statements: assignment to names, return, `for` over a list role, `if` as a guard.
Expressions: names, constants, calls, attributes, `+ - * / @ **`, `& | ~`, one comparison (`x == 0`, `mask is None`),
`x if mask is None else y`, indexing, tuples, dicts with constant keys. `and`, `or`, `not` occur in guards alone.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import pairwise
from typing import Any

from mapper.errors import FlowError

TORCH = frozenset({
    "F.pad", "F.scaled_dot_product_attention", "F.gelu", "F.relu", "F.prelu", "F.silu", "F.softmax", "F.sigmoid", "F.tanh", "F.softplus", "F.normalize", "F.linear",
    "F.glu", "F.max_pool1d", "F.max_pool2d", "F.max_pool3d", "F.avg_pool1d", "F.avg_pool2d", "F.avg_pool3d", "F.adaptive_avg_pool1d", "F.adaptive_avg_pool2d", "F.adaptive_avg_pool3d", "F.interpolate", "F.pixel_shuffle", "F.pixel_unshuffle", "F.layer_norm", "F.rms_norm", "F.embedding", "F.one_hot",
    "F.leaky_relu", "F.elu", "F.selu", "F.mish", "F.hardswish", "F.hardsigmoid", "F.relu6", "F.log_softmax", "F.conv1d", "F.conv_transpose1d",
    "torch.cat", "torch.stack", "torch.arange", "torch.zeros", "torch.zeros_like", "torch.ones_like", "torch.exp",
    "torch.sigmoid", "torch.tanh", "torch.where", "torch.einsum", "torch.softmax", "torch.matmul", "torch.sqrt", "torch.full_like", "torch.log",
    "torch.cartesian_prod", "torch.clamp", "torch.ones", "torch.eye", "torch.finfo", "torch.rsqrt", "torch.randn_like", "torch.fft.fftn", "F.fold", "F.unfold", "F.logsigmoid",
    "F.adaptive_max_pool1d", "F.adaptive_max_pool2d", "F.adaptive_max_pool3d", "F.affine_grid", "F.grid_sample",
})  # fmt: skip
CONSTANTS = frozenset({"torch.float32", "torch.long", "torch.bool", "torch.inf", "torch.pi"})
METHODS = frozenset({
    "weight", "bias", "shape", "dtype", "device", "view", "reshape", "transpose", "permute", "flatten", "unflatten", "unsqueeze",
    "squeeze", "mean", "sum", "std", "expand", "contiguous", "chunk", "split", "to", "float", "type_as", "exp", "log", "log1p", "tanh", "sigmoid", "softmax",
    "repeat", "repeat_interleave", "roll", "T", "mT", "t", "size", "sqrt", "neg", "masked_fill", "clamp", "argmax", "max", "amin", "pow", "rsqrt",
    "abs", "norm", "movedim", "unbind", "narrow", "select", "new_zeros", "new_ones", "expand_as", "view_as", "append", "items",
    "gather", "topk", "indices", "values", "argsort", "cumsum", "any", "all", "bool", "long", "int", "flip", "acos", "cos", "sin", "relu", "diff",
    "masked_scatter", "index_copy", "min", "unfold", "triu", "tril", "amax", "log2", "sign", "double", "new_tensor", "new_full", "index_select", "bfloat16", "ceil", "real",
})  # fmt: skip
SPECIAL = frozenset(
    {
        "has",
        "fact",
        "option",
        "output",
        "activation",
        "given",
        "optional",
        "zip",
        "enumerate",
        "range",
        "len",
        "min",
        "max",
        "round",
        "tuple",
    }
)
MODULES = frozenset({"F", "torch"})
_NEAREST = 4  # callable names, in a message
_KNOWN = 2**13  # shared statements that are kept, with what was found of them: those of the longest page
_START = re.compile(r"^(?!(?:else|elif)\b|[\s)\]}]|$)", re.M)  # of a statement that no other holds
_OPERATORS = (
    *(ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.MatMult, ast.Pow),
    *(ast.BitAnd, ast.BitOr),
)
_COMPARISONS = (ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE)


def parse_body(
    body: str, file: str, line: int, roles: Iterable[str] = (), shared: bool = False
) -> list[ast.stmt]:
    """The statements of a flow's body; `line` is where the body starts in `file`. Raises FlowError.

    Behind a dot stands one of METHODS, or, on a path that starts with one of `roles` or a loop variable, a role.
    What is `shared` is other flows', too: no one may change it.
    """
    try:
        statements = _shared(body) if shared else ast.parse(body).body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        at = line + (getattr(error, "lineno", None) or 1) - 1
        raise FlowError(f"{file}:{at}: the body does not parse: {getattr(error, 'msg', error)}") from None
    loops = {name for node in _loops(statements) for name in targets(node.target)}
    roots = frozenset({*roles, *loops, "fact", "option"})
    for statement in statements:
        refused = _kept(statement, roots & _names(statement)) if shared else _refused(statement, roots)
        if refused:
            node, why = refused
            raise FlowError(f"{file}:{line + getattr(node, 'lineno', 1) - 1}: {why}")
    return statements


def _shared(body: str) -> list[ast.stmt]:
    """The statements of a body, each parsed once for the line that it stands on: flows of one page have most in common."""
    starts = [found.start() for found in _START.finditer(body)]
    found: list[ast.stmt] = []
    line = 0
    try:
        for start, end in pairwise([0, *starts[1:], len(body)]):
            found += _parsed(body[start:end], line)
            line += body.count("\n", start, end)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.parse(body).body  # a string goes on at the start of a line; or it is said what is wrong
    return found


@lru_cache(maxsize=_KNOWN)
def _parsed(piece: str, line: int) -> tuple[ast.stmt, ...]:
    """The statements of one piece that stands behind so many lines."""
    return tuple(ast.parse("\n" * line + piece).body)


@lru_cache(maxsize=_KNOWN)
def below(node: ast.AST) -> tuple[ast.AST, ...]:
    """A node of a parsed body and all below it, once: such a tree stays as it is."""
    return tuple(every(node))


@lru_cache(maxsize=_KNOWN)
def _names(node: ast.AST) -> frozenset[str]:
    return frozenset(child.id for child in below(node) if isinstance(child, ast.Name))


class _Refused(Exception):
    """A node, and why no flow may have it."""

    def __init__(self, node: ast.AST, why: str):
        self.node, self.why = node, why


def _refused(statement: ast.stmt, roots: frozenset[str]) -> tuple[ast.AST, str] | None:
    """What of a statement is not of the language, and why; `roots` are names that paths of roles start with."""
    try:
        _Checker(roots).statement(statement)
    except _Refused as refused:
        return refused.node, refused.why
    return None


_kept = lru_cache(maxsize=_KNOWN)(_refused)


def _loops(statements: list[ast.stmt]) -> Iterator[ast.For]:
    for node in statements:
        if isinstance(node, ast.For):
            yield node
        if isinstance(node, (ast.For, ast.If)):
            yield from _loops([*node.body, *node.orelse])


def parse_expression(text: str, file: str, line: int) -> ast.expr:
    """One expression of the same language, as in `leaves:` and `activations.yaml`."""
    statements = parse_body(f"return {text}", file, line)
    if len(statements) != 1 or not isinstance(statements[0], ast.Return) or statements[0].value is None:
        raise FlowError(f"{file}:{line}: {text!r} is not one expression")
    return statements[0].value


def dotted(node: ast.AST) -> str | None:
    """`a.b.c` as text if the expression is a chain of names, else None."""
    words: list[str] = []
    while isinstance(node, ast.Attribute):
        words.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return None
    return ".".join([node.id, *reversed(words)])


def targets(node: ast.expr) -> Iterator[str]:
    """The names that an assignment or a loop binds."""
    if isinstance(node, ast.Name):
        yield node.id
    elif isinstance(node, ast.Tuple):
        for item in node.elts:
            yield from targets(item)


class _Checker:
    def __init__(self, roots: frozenset[str]):
        self.roots = roots

    def refuse(self, node: ast.AST, why: str) -> None:
        raise _Refused(node, why)

    def statement(self, node: ast.stmt) -> None:
        if isinstance(node, ast.Assign):
            if len(node.targets) != 1:
                self.refuse(node, "one target for each assignment")
            self.target(node.targets[0])
            if is_given(node.value) or is_optional(node.value):
                for part in node.value.args:  # type: ignore[attr-defined]
                    self.expression(part)
            else:
                self.expression(node.value)
        elif isinstance(node, ast.Return):
            if node.value is None:
                self.refuse(node, "return needs a value")
            else:
                self.expression(node.value)
        elif isinstance(node, ast.For):
            self.loop(node)
        elif isinstance(node, ast.If):
            self.guard(node.test)
            for child in (*node.body, *node.orelse):
                self.statement(child)
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            if not isinstance(node.value.value, str):
                self.refuse(node, "a value that nothing takes")
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            if not (isinstance(node.value.func, ast.Attribute) and node.value.func.attr == "append"):
                self.refuse(node, "a call whose value is not used")
            self.expression(node.value)
        else:
            self.refuse(node, f"a flow has no {type(node).__name__.lower()} statement")

    def loop(self, node: ast.For) -> None:
        if node.orelse:
            self.refuse(node, "no else after a loop")
        self.target(node.target)
        self.expression(node.iter)
        for child in node.body:
            self.statement(child)

    def target(self, node: ast.expr) -> None:
        names = node.elts if isinstance(node, ast.Tuple) else [node]
        for name in names:
            if isinstance(name, ast.Tuple):
                self.target(name)
            elif not isinstance(name, ast.Name) or name.id in SPECIAL | MODULES or name.id.startswith("__"):
                self.refuse(node, "only plain names can be assigned")

    def guard(self, node: ast.expr) -> None:
        if isinstance(node, ast.BoolOp):
            for value in node.values:
                self.guard(value)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            self.guard(node.operand)
        elif isinstance(node, ast.Compare):
            ok = len(node.ops) == 1 and isinstance(node.ops[0], (ast.Eq, ast.NotEq, ast.Gt, ast.Lt))
            other = node.comparators[0]
            if not ok or not is_fact(node.left) or not (isinstance(other, ast.Constant) or is_fact(other)):
                self.refuse(node, "a guard compares one fact with one literal, or with another fact")
        elif not is_fact(node) and not is_has(node) and not is_option(node):
            self.refuse(node, "a guard is has(role), fact.x, fact.x == literal, option.x, and, or, not")

    def expression(self, node: ast.expr) -> None:
        if isinstance(node, ast.Constant):
            if not isinstance(node.value, (int, float, str, bool, type(None), type(...))):
                self.refuse(node, f"no constants of type {type(node.value).__name__}")
        elif isinstance(node, ast.Name):
            if node.id.startswith("__"):
                self.refuse(node, f"the name {node.id} is not allowed")
            if node.id in MODULES:
                self.refuse(node, f"{node.id} stands before a call alone")
        elif isinstance(node, ast.Attribute):
            self.attribute(node)
        elif isinstance(node, ast.Call):
            self.call(node)
        elif isinstance(node, ast.BinOp):
            if not isinstance(node.op, _OPERATORS):
                self.refuse(node, f"no operator {type(node.op).__name__}")
            self.expression(node.left)
            self.expression(node.right)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.Invert)):
            self.expression(node.operand)
        elif isinstance(node, ast.Compare):
            self.comparison(node)
        elif isinstance(node, ast.IfExp):
            if not is_none_asked(node.test) or not isinstance(node.test.left, ast.Name):  # type: ignore[attr-defined]
                self.refuse(node, "what decides between two values is `name is None` or `name is not None`")
            self.expression(node.body)
            self.expression(node.orelse)
        elif isinstance(node, ast.Subscript):
            self.expression(node.value)
            self.index(node.slice)
        elif isinstance(node, (ast.Tuple, ast.List)):
            for item in node.elts:
                self.expression(item)
        elif isinstance(node, ast.Dict):
            if not all(isinstance(key, ast.Constant) for key in node.keys):
                self.refuse(node, "a dict has constant keys")
            for value in node.values:
                self.expression(value)
        else:
            self.refuse(node, f"a flow has no {type(node).__name__.lower()} expression")

    def attribute(self, node: ast.Attribute) -> None:
        if dotted(node) in CONSTANTS:
            return
        start: ast.expr = node
        while isinstance(start, (ast.Attribute, ast.Subscript)):
            start = start.value
        is_path = isinstance(start, ast.Name) and start.id in self.roots
        if node.attr.startswith("_") or not (is_path or node.attr in METHODS):
            self.refuse(node, f"the attribute {node.attr} is not allowed; {_instead(node.attr, METHODS)}")
        self.expression(node.value)

    def call(self, node: ast.Call) -> None:
        name = dotted(node.func)
        if name is not None and name.split(".")[0] in MODULES and name not in TORCH:
            self.refuse(node, f"{name} is not among the callable parts of torch; {_instead(name, TORCH)}")
        if name in ("given", "optional"):
            self.refuse(node, f"{name}(value, other) is all that an assignment has on its right")
        if name is None and not isinstance(node.func, (ast.Attribute, ast.Subscript)):
            self.refuse(node, "only a name or a method can be called")
        if name not in TORCH:
            self.expression(node.func)
        for item in node.args:
            self.expression(item)
        for keyword in node.keywords:
            if keyword.arg is None:
                self.refuse(node, "no ** in a call")
            self.expression(keyword.value)

    def comparison(self, node: ast.Compare) -> None:
        if len(node.ops) != 1:
            self.refuse(node, "one comparison at a time")
        if not isinstance(node.ops[0], _COMPARISONS) and not is_none_asked(node):
            self.refuse(node, f"no comparison {type(node.ops[0]).__name__}, but `is None` and `is not None`")
        self.expression(node.left)
        self.expression(node.comparators[0])

    def index(self, node: ast.expr) -> None:
        if isinstance(node, ast.Slice):
            for part in (node.lower, node.upper, node.step):
                if part is not None:
                    self.expression(part)
        elif isinstance(node, ast.Tuple):
            for item in node.elts:
                self.index(item)
        else:
            self.expression(node)


def is_fact(node: ast.AST) -> bool:
    """Whether the expression is `fact.x` or `fact.x.y`."""
    name = dotted(node)
    return name is not None and name.startswith("fact.")


def is_has(node: ast.AST) -> bool:
    """Whether the expression is `has(role)`."""
    return (
        isinstance(node, ast.Call)
        and dotted(node.func) == "has"
        and len(node.args) == 1
        and dotted(node.args[0]) is not None
    )


def is_none_asked(node: ast.AST) -> bool:
    """Whether the expression is `x is None` or `x is not None`."""
    return (
        isinstance(node, ast.Compare)
        and isinstance(node.ops[0], (ast.Is, ast.IsNot))
        and isinstance(node.comparators[0], ast.Constant)
        and node.comparators[0].value is None
    )


def is_given(node: ast.AST) -> bool:
    """Whether the expression is `given(value, other)`: the value, or where that is None what `other` gives."""
    return _is_choice(node, "given")


def is_optional(node: ast.AST) -> bool:
    """Whether the expression is `optional(name, value)`: the value, or where the name is None nothing, that is None."""
    return _is_choice(node, "optional") and isinstance(node.args[0], ast.Name)  # type: ignore[attr-defined]


def _is_choice(node: ast.AST, word: str) -> bool:
    is_call = isinstance(node, ast.Call) and dotted(node.func) == word and not node.keywords
    return is_call and len(node.args) == 2  # type: ignore[attr-defined]


def _instead(name: str, allowed: Iterable[str]) -> str:
    """The nearest that may be called, and what is done where none will do."""
    from difflib import SequenceMatcher  # here: reading a flow that is right needs none of it

    last = name.rpartition(".")[2]
    far = {other: -SequenceMatcher(None, last, other.rpartition(".")[2]).ratio() for other in allowed}
    near = sorted(far, key=lambda other: (far[other], other))
    return (
        f"near it: {', '.join(near[:_NEAREST])}; where none of these will do, an operation does: a function in "
        "mapper/operations/, which a flow calls by its name"
    )


def is_option(node: ast.AST) -> bool:
    """Whether the expression is `option.x`: a choice of whoever generates, such as a key/value cache."""
    name = dotted(node)
    return name is not None and name.startswith("option.")


def every(node: ast.AST) -> Iterator[ast.AST]:
    """A node and all below it, as they stand in the source: `ast.walk`, in a fifth of the time."""
    open_nodes = [node]
    while open_nodes:
        node = open_nodes.pop()
        yield node
        for name in _INNER[type(node)]:
            value = getattr(node, name, None)
            if isinstance(value, list):
                open_nodes += [item for item in value[::-1] if isinstance(item, ast.AST)]
            elif isinstance(value, ast.AST):
                open_nodes.append(value)


class _Inner(dict[type[ast.AST], tuple[str, ...]]):
    """The fields of a kind of node that may hold others, the last first."""

    def __missing__(self, kind: type[ast.AST]) -> tuple[str, ...]:
        of_text = _OF_TEXT | ({"value"} if kind is ast.Constant else set())
        found = self[kind] = tuple(name for name in reversed(kind._fields) if name not in of_text)
        return found


_OF_TEXT = {"ctx", "id", "attr", "arg", "kind", "type_comment", "lineno"}
_INNER = _Inner()


def copied(node: Any) -> Any:
    """A copy of a syntax tree, or of a list of them: `copy.deepcopy` asks every node how it is to be copied."""
    if isinstance(node, ast.AST):
        made = type(node)()
        held = made.__dict__
        for name, value in node.__dict__.items():
            held[name] = copied(value) if isinstance(value, (ast.AST, list)) else value
        return made
    return [copied(item) for item in node] if isinstance(node, list) else node
