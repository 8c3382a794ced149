"""Files that hold something beside a model, not one: adapters, and the state of an optimizer."""

from __future__ import annotations

from collections.abc import Iterable

from mapper.inference.config import Config


def partial(config: Config, keys: Iterable[str]) -> str:
    """Why no model can be made of these tensors alone: each is a part of an adapter or an optimizer; else ""."""
    named = [set(key.split(".")) for key in keys]
    for what, words in config.vocabulary.partial.items():
        if named and all(not parts.isdisjoint(words) for parts in named):
            return f"the file holds only {what}"
    return ""
