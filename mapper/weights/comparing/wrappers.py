"""Words that wrappers of modules put into the names of tensors."""

from __future__ import annotations

from collections.abc import Iterable

# What torch's own wrappers call the module inside: they stand anywhere in a name, around whatever was wrapped.
WRAPPERS = frozenset({"_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module", "_forward_module"})


def without_wrappers(paths: Iterable[str]) -> dict[str, str]:
    """Those paths that hold such words, each with its name without them; none where two would be one."""
    paths = list(paths)
    found = {path: bare_name(path) for path in paths if any(word in path for word in WRAPPERS)}
    found = {path: name for path, name in found.items() if name and name != path}
    every = {found.get(path, path) for path in paths} if found else set()
    return found if len(every) == len(paths) else {}


def bare_name(path: str) -> str:
    """A path without the words of wrappers."""
    return ".".join(word for word in path.split(".") if word not in WRAPPERS)
