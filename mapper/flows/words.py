"""The words of a body: a string that stands as a statement says what a branch adds to the docstring of its class."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any

from mapper.flows.guards import Answers, Unknown, holds
from mapper.rulebook.flows import with_words


def is_word(node: ast.stmt) -> bool:
    """Whether a statement is a string."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def has_words(statements: Sequence[ast.stmt]) -> bool:
    """Whether a string stands somewhere in a body."""
    inside = (has_words((*node.body, *node.orelse)) for node in statements if isinstance(node, ast.If))
    return any(map(is_word, statements)) or any(inside)


def without_words(statements: Iterable[ast.stmt]) -> list[ast.stmt]:
    """The statements that compute something; those given stay as they are."""
    return [_wordless(node) for node in statements if not is_word(node)]


@lru_cache(maxsize=4096)
def _wordless(node: ast.stmt) -> ast.stmt:
    if not isinstance(node, ast.If):
        return node
    body, orelse = without_words(node.body), without_words(node.orelse)
    return ast.copy_location(ast.If(node.test, body, orelse), node)


def docstring(
    doc: str, statements: Sequence[ast.stmt], has: Callable[[str], bool], lookup: Callable[[str], Any]
) -> str:
    """What a block computes: what its flow says of all blocks, or what begins the body, with what its branches add."""

    def fact(name: str) -> Any:
        try:
            return lookup(name)
        except KeyError:
            raise Unknown from None

    words = list(_words(statements, Answers(has, fact, lambda _: None)))
    return (
        with_words(words[0], words[1:]) if statements and is_word(statements[0]) else with_words(doc, words)
    )


def _words(statements: Iterable[ast.stmt], answers: Answers) -> Iterator[str]:
    for node in _taken(statements, answers):
        if is_word(node):
            yield node.value.value  # type: ignore[attr-defined]
        if isinstance(node, ast.Return):
            return


def _taken(statements: Iterable[ast.stmt], answers: Answers) -> Iterator[ast.stmt]:
    """The statements whose guards hold, in order."""
    for node in statements:
        if not isinstance(node, ast.If):
            yield node
        elif (held := holds(node.test, answers)) is not None:
            yield from _taken(node.body if held else node.orelse, answers)
