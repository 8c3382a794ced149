"""What a model's modules registered with torch for the loading of state dicts: upgrades of keys, extra state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from torch import nn

from mapper.errors import StructureError
from mapper.weights.loading.flat_table import EXTRA, Held, Source
from mapper.weights.loading.load_report import LoadReport
from mapper.weights.modules import States, joined

SHAPING = (
    "_lazy_load_hook"  # torch's own: gives parameters of lazy modules their shape, before anything is checked
)


def before(states: States, source: Source) -> Source:
    """The source after the pre-hooks of all modules, which see and change a flat copy of its tensors."""
    hooks = [(path, hook) for path, module in states.modules.items() for hook in _pre_hooks(module)]
    if not hooks:
        return source
    table = {path: array.tensor() for path, array in source.arrays().items()}
    given = dict(table)
    for path, value in source.extra.items():
        table[joined(path, EXTRA)] = value
    problems: list[str] = []
    for path, hook in hooks:
        hook(table, f"{path}." if path else "", dict(source.metadata.get(path, {})), True, [], [], problems)
    if problems:
        raise StructureError(f"a hook of the model refuses the source: {problems[0]}", hooks[0][0])
    return _after_hooks(source, table, given)


def _after_hooks(source: Source, table: dict[str, Any], given: dict[str, Any]) -> Source:
    changed = Source(metadata=source.metadata)
    others = {path: leaf for path, leaf in source.leaves.items() if path not in given}
    for path, value in table.items():
        if path == EXTRA or path.endswith(f".{EXTRA}"):
            changed.extra[path[: -len(EXTRA)].rstrip(".")] = value
        else:
            kept = path in given and value is given[path]
            changed.leaves[path] = source.leaves[path] if kept else Held(value)
    changed.leaves = {
        path: changed.leaves[path] for path in source.leaves if path in changed.leaves
    } | changed.leaves
    changed.leaves = {
        **changed.leaves,
        **{path: leaf for path, leaf in others.items() if path not in changed.leaves},
    }
    changed.tied = {a: o for a, o in source.tied.items() if a in changed.leaves and o in changed.leaves}
    return changed


def _pre_hooks(module: nn.Module) -> list[Callable[..., Any]]:
    hooks = list(module._load_state_dict_pre_hooks.values())
    return [hook for hook in hooks if getattr(getattr(hook, "hook", hook), "__name__", "") != SHAPING]


def after(states: States, report: LoadReport) -> None:
    """Call the post-hooks of all modules, those inside first."""
    keys = Keys([*report.missing], [*report.unexpected])
    for module in reversed(list(dict.fromkeys(states.modules.values()))):
        for hook in list(module._load_state_dict_post_hooks.values()):
            hook(module, keys)


class Keys(NamedTuple):
    """What torch gives to a post-hook."""

    missing_keys: list[str]
    unexpected_keys: list[str]


def give_extra_state(states: States, source: Source) -> None:
    """Call `set_extra_state` of each module with what the source has for it."""
    for path, module in states.modules.items():
        if path in source.extra and type(module).set_extra_state is not nn.Module.set_extra_state:
            module.set_extra_state(source.extra[path])
