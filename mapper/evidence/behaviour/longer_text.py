"""A longer text for models of language: what the modules of Python's own library say of themselves."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

MODULES = (
    "statistics", "heapq", "difflib", "textwrap", "random", "threading", "fractions", "doctest", "calendar", "shelve",
    "pickletools", "turtle", "tokenize", "mailbox", "sched", "cmd", "string", "smtplib", "gettext", "optparse",
)  # fmt: skip
"""Modules with much English in them, of many subjects."""
_SHORTEST = 200  # characters of a docstring that is read


@cache
def longer_text() -> str:
    """The docstrings of modules, classes and functions; empty where the sources of the library are not there."""
    home = Path(ast.__file__).parent
    files = (home / f"{name}.py" for name in MODULES)
    return "\n\n".join(text for file in files if file.is_file() for text in _docstrings(file))


def _docstrings(file: Path) -> Iterator[str]:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef)
    for node in ast.walk(tree):
        text = ast.get_docstring(node) if isinstance(node, kinds) else None
        if text and len(text) >= _SHORTEST:
            yield text
