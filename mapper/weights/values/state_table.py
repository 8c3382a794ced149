"""A nested table of a model's states, which knows what is tied."""

from __future__ import annotations

from typing import Any


class Tree(dict[str, Any]):
    """Nested dicts of tensors (views of a model's memory) and of False for absent parameters."""

    tied: dict[str, str]  # alias path -> owner path

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.tied = {}
