"""What a pretrained checkpoint is, the model that runs it, and its source.

    import mapper

    print(mapper.inspect("distilbert-base-uncased"))      # what it is, and how that is known
    model = mapper.build("distilbert-base-uncased")       # a torch module with its weights
    text = mapper.generate("distilbert-base-uncased")     # its source: plain torch, one file

Everything public is named here and resolved on first use, so that `import mapper` costs nothing and reading a
checkpoint never imports torch.
"""

from __future__ import annotations

TYPE_CHECKING = False  # as in typing, whose import takes as long as the rest of this file tenfold
if TYPE_CHECKING:
    from typing import Any

    from mapper._api import build, export, generate, inspect, verify
    from mapper._cached import CachedModel, cached_models
    from mapper._version import __version__
    from mapper.comparing.implementations import compare
    from mapper.errors import (
        ArchitectureError,
        DifferenceError,
        FlowError,
        FormatError,
        HintError,
        MapperError,
        MissingSourceError,
        RuleError,
        SourceError,
        StructureError,
        StructureUnavailable,
        UnsupportedLeaf,
    )
    from mapper.report import Report
    from mapper.running.entry import run
    from mapper.weights.comparing.differences import Diff, diff
    from mapper.weights.converting.streaming import Conversion, convert
    from mapper.weights.loading.load_report import LoadReport
    from mapper.weights.loading.weights import load_weights
    from mapper.weights.looking import attributes, flatten, params, states, tree, unflatten
    from mapper.weights.renaming.rename import rename
    from mapper.weights.saving.save_load import Loaded, load, load_states, save, save_states
    from mapper.weights.trees.leaf_bytes import default_load_leaf, default_save_leaf
    from mapper.weights.trees.pytrees import load_tree, save_tree
    from mapper.weights.values.state_table import Tree


__all__ = [
    "ArchitectureError",
    "CachedModel",
    "Conversion",
    "Diff",
    "DifferenceError",
    "FlowError",
    "FormatError",
    "HintError",
    "LoadReport",
    "Loaded",
    "MapperError",
    "MissingSourceError",
    "Report",
    "RuleError",
    "SourceError",
    "StructureError",
    "StructureUnavailable",
    "Tree",
    "UnsupportedLeaf",
    "__version__",
    "attributes",
    "build",
    "cached_models",
    "compare",
    "convert",
    "default_load_leaf",
    "default_save_leaf",
    "diff",
    "export",
    "flatten",
    "generate",
    "inspect",
    "load",
    "load_states",
    "load_tree",
    "load_weights",
    "params",
    "rename",
    "run",
    "save",
    "save_states",
    "save_tree",
    "states",
    "tree",
    "unflatten",
    "verify",
]

_HOMES = {
    "__version__": "mapper._version",
    "inspect": "mapper._api",
    "generate": "mapper._api",
    "build": "mapper._api",
    "compare": "mapper.comparing.implementations",
    "export": "mapper._api",
    "CachedModel": "mapper._cached",
    "cached_models": "mapper._cached",
    "verify": "mapper._api",
    "Report": "mapper.report",
    "run": "mapper.running.entry",
    "LoadReport": "mapper.weights.loading.load_report",
    "Loaded": "mapper.weights.saving.save_load",
    "load": "mapper.weights.saving.save_load",
    "load_states": "mapper.weights.saving.save_load",
    "save": "mapper.weights.saving.save_load",
    "save_states": "mapper.weights.saving.save_load",
    "load_weights": "mapper.weights.loading.weights",
    "Tree": "mapper.weights.values.state_table",
    "attributes": "mapper.weights.looking",
    "flatten": "mapper.weights.looking",
    "params": "mapper.weights.looking",
    "states": "mapper.weights.looking",
    "tree": "mapper.weights.looking",
    "unflatten": "mapper.weights.looking",
    "default_load_leaf": "mapper.weights.trees.leaf_bytes",
    "default_save_leaf": "mapper.weights.trees.leaf_bytes",
    "load_tree": "mapper.weights.trees.pytrees",
    "save_tree": "mapper.weights.trees.pytrees",
    "Conversion": "mapper.weights.converting.streaming",
    "convert": "mapper.weights.converting.streaming",
    "rename": "mapper.weights.renaming.rename",
    "Diff": "mapper.weights.comparing.differences",
    "diff": "mapper.weights.comparing.differences",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'mapper' has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(_HOMES.get(name, "mapper.errors")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
