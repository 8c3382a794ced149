"""Part of building a wheel: the rules and operations as they are read, so that no first use has to parse them."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).resolve().parent


class CompiledRules(BuildHookInterface):
    """Puts `mapper/_compiled/KIND.kept` into a wheel. An editable install has none: its rules are there to be changed."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        self._made = tempfile.TemporaryDirectory()  # until the wheel is written
        os.environ["XDG_CACHE_HOME"] = self._made.name  # nothing that the builder's own mapper has kept
        sys.path.insert(0, str(ROOT))
        from mapper.rulebook.compiled import compiled

        for name, content in compiled().items():
            path = Path(self._made.name) / name
            path.write_bytes(content)
            build_data["force_include"][str(path)] = f"mapper/_compiled/{name}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if version != "editable":
            self._made.cleanup()
