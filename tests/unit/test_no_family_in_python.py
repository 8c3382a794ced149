"""No Python names a family: architectures are rule files."""

from __future__ import annotations

import ast
from pathlib import Path

import mapper
from tests.shipped import RULEBOOK

PACKAGE = Path(mapper.__file__).parent


def test_no_string_in_the_package_is_a_family_or_a_model_type() -> None:
    names = {name for family in RULEBOOK.families for name in (family.name, *family.model_types)}
    assert "distilbert" in names
    found = [
        f"{path.relative_to(PACKAGE)}:{node.lineno}: {node.value}"
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in names
    ]
    assert found == []
