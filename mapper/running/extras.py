"""Libraries that only some inputs need."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from mapper.errors import MapperError


def need(module: str, what_for: str) -> ModuleType:
    """The library of that name. Raises MapperError, which says how to install it."""
    try:
        return import_module(module)
    except ImportError:
        top = module.partition(".")[0]
        raise MapperError(
            f"{what_for} need the library {top}, which is not installed; pip install 'checkpoint-mapper[run]'"
        ) from None
