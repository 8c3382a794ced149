"""The tables of `rules/running`: how models are used, and what the settings beside weights mean."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mapper.errors import RuleError

if TYPE_CHECKING:
    from mapper.rulebook.strict import Document

KIND = "running"


Folders = tuple[Path, ...]  # of rules, the first goes before the others


@cache
def table(name: str, folders: Folders = ()) -> dict[str, Any]:
    """The file `running/NAME.yaml` of the first folder that has one; without folders, of the user's own and the shipped ones."""
    from mapper.rulebook.rulebook import rule_folders
    from mapper.rulebook.shelf import found
    from mapper.rulebook.strict import load_yaml

    for file in found(KIND, folders or rule_folders()):
        path = Path(file.path)
        if path.stem == name:
            document = load_yaml(path)
            if not isinstance(document.data, dict) or document.data.get(KIND) != name:
                raise document.error(f"expected a table with `{KIND}: {name}`")
            return document.data
    raise RuleError(f"{KIND}/{name}.yaml:1: no such file of rules")


def rows(name: str, folders: Folders = ()) -> list[dict[str, Any]]:
    """The list of a table that has its own name."""
    return list(table(name, folders)[name])


def documents(folders: Sequence[Path]) -> list[Document]:
    """Every file of such tables in some folders of rules, the first of the same name."""
    from mapper.rulebook.shelf import found
    from mapper.rulebook.strict import load_yaml

    return [load_yaml(Path(file.path)) for file in found(KIND, folders)]
