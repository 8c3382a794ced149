"""`load_weights`: read, match and check everything, and only then write."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Mapping
from typing import Any

import torch
from torch import nn

from mapper.errors import StructureError, listed, shorten
from mapper.weights.loading import casting as casts
from mapper.weights.loading.flat_table import (
    Held,
    Source,
    Stored,
    beginning,
    read_source,
    renamed,
    without_wrappers,
)
from mapper.weights.loading.hooks import after, before, give_extra_state
from mapper.weights.loading.load_report import LoadReport
from mapper.weights.loading.message import explain
from mapper.weights.loading.order import by_position
from mapper.weights.loading.pairing import Matcher, Plan
from mapper.weights.loading.writing import write
from mapper.weights.modules import States, joined, states_of

KINDS = ("missing", "unexpected", "mismatched")


def load_weights(
    model: nn.Module,
    src: Any,
    *,
    strict: bool | Collection[str] = True,
    assign: bool = False,
    casting: str = "same_kind",
    device: torch.device | str | None = None,
    prefix: str | None = None,
    rename: Mapping[str, str] | Callable[[str], str] | None = None,
    filter: Callable[[str, Any], bool] | None = None,
    by: str = "name",
    follow_links: bool = False,
) -> LoadReport:
    """Put the weights of `src` into `model`: all that was asked for, or nothing at all.

    `src` is a module, a tree of dicts, lists, tuples and dataclasses with arrays in it (flat keys or nested), a
    checkpoint as every command takes it (path, package:NAME, hub id), or None. `strict` names the kinds of problems
    that raise StructureError: True is all of "missing", "unexpected" and "mismatched"; with False what fits is
    written. `casting` has NumPy's meaning; `assign` takes the source's tensors instead of copying them; `device` is
    for parameters on meta. `prefix`, then `rename` change the source's paths; `filter(path, node)` leaves subtrees out
    on both sides; `by="order"` pairs modules by position. `follow_links` allows links out of a checkpoint's folder.

        mapper.load_weights(model, "encoder.safetensors", prefix="bert.")
    """
    fatal = fatal_kinds(strict)
    _check_choices(casting, by, prefix, rename, filter)
    device = None if device is None else checked_device(device)
    states = states_of(model)
    if src is None:
        return _nothing(states)
    given = read_source(src, follow_links)
    source = _prepared(given, states, prefix, rename, by)
    plan = Matcher(states, source, casting, assign).run(_kept(states, source, filter))
    _check(plan.report, states, source, fatal, "" if source.leaves or not prefix else _unbegun(prefix, given))
    write(plan, assign, device)
    after(states, plan.report)
    give_extra_state(states, source)
    _warn(plan, states, source, fatal)
    return plan.report


def fatal_kinds(strict: bool | Collection[str]) -> frozenset[str]:
    """The kinds of problems that raise. Raises ValueError for what `strict` cannot be."""
    if isinstance(strict, bool):
        return frozenset(KINDS if strict else ())
    if isinstance(strict, str) or not isinstance(strict, Collection) or not set(strict) <= set(KINDS):
        raise ValueError(f"strict is {strict!r}; it is True, False or a set of {listed(list(KINDS))}")
    return frozenset(strict)


def _check_choices(casting: Any, by: Any, prefix: Any, rename: Any, filter: Any) -> None:
    if casting not in casts.CASTING:
        raise ValueError(f"casting is {casting!r}; known are {listed(list(casts.CASTING))}")
    if by not in ("name", "order"):
        raise ValueError(f"by is {by!r}; known are 'name', 'order'")
    if not isinstance(prefix, (str, type(None))):
        raise ValueError(
            f"prefix is {prefix!r}; it is the text that the paths wanted of the source begin with"
        )
    if rename is not None and not isinstance(rename, Mapping) and not callable(rename):
        raise ValueError(
            f"rename is a {type(rename).__name__}; it is a table {{old: new}} or a function of a path"
        )
    if filter is not None and not callable(filter):
        raise ValueError(
            f"filter is a {type(filter).__name__}; it is a function (path, node) that says what to keep"
        )


def checked_device(device: Any) -> torch.device:
    """The device of this name. Raises ValueError for what is none."""
    try:
        return torch.device(device)
    except (RuntimeError, TypeError):
        raise ValueError(
            f"device is {device!r}; it is a torch.device or its name, as 'cpu' or 'cuda:0'"
        ) from None


def _nothing(states: States) -> LoadReport:
    real = [state for state in states.states if state.tensor is not None]
    tied = [list(state.paths) for state in real if len(state.paths) > 1]
    skipped = [path for path, state in states.by_path.items() if state.tensor is not None]
    return LoadReport(skipped=skipped, tied=tied)


def _prepared(source: Source, states: States, prefix: str | None, rename: Any, by: str) -> Source:
    """The source under the model's names, after the hooks that upgrade keys."""
    if not prefix or not any(path.startswith(prefix) for path in source.leaves):
        source = without_wrappers(source, states)
    if prefix:
        source = without_wrappers(beginning(source, prefix), states)
    if rename is not None:
        source = renamed(source, rename)
    source = before(states, without_wrappers(source, states))
    return by_position(source, states) if by == "order" else source


def _kept(states: States, source: Source, filter: Callable[[str, Any], bool] | None) -> Callable[[str], bool]:
    """Whether a path takes part: the filter is asked once about it and about each branch above."""
    if filter is None:
        return lambda path: True
    verdicts: dict[str, bool] = {"": True}

    def node(path: str) -> Any:
        if path in states.modules:
            return states.modules[path]
        state = states.by_path.get(path)
        return state.tensor if state is not None else _shown(source.leaves.get(path))

    def keep(path: str) -> bool:
        if path not in verdicts:
            verdicts[path] = keep(path.rpartition(".")[0]) and bool(filter(path, node(path)))
        return verdicts[path]

    return keep


def _shown(leaf: Any) -> Any:
    """What a filter sees of a leaf of the source: the caller's own object, or a header as a tensor on meta."""
    if isinstance(leaf, Stored):
        return torch.empty(leaf.shape, dtype=leaf.dtype, device="meta")
    return leaf.value if isinstance(leaf, Held) else leaf


def _unbegun(prefix: str, given: Source) -> str:
    """Said where a prefix took nothing of a source that has something."""
    words = list(dict.fromkeys(path.partition(".")[0] for path in given.leaves))
    return (
        f"no path of the source starts with {shorten(prefix)}; they start with {listed(words)}"
        if words
        else ""
    )


def _check(report: LoadReport, states: States, source: Source, fatal: frozenset[str], hint: str) -> None:
    """Raise StructureError for the problems that are fatal; `hint` is the last line of its text."""
    order = ("mismatched", "missing", "unexpected")
    offenders = [entry for kind in order if kind in fatal for entry in getattr(report, kind)]
    if offenders:
        first = offenders[0] if isinstance(offenders[0], str) else offenders[0].path
        kinds = [kind for kind in KINDS if kind in fatal]
        text = explain(report, states, source, kinds) + (f"\n{hint}" if hint else "")
        report.nothing_done()
        raise StructureError(text, first, report)


def _warn(plan: Plan, states: States, source: Source, fatal: frozenset[str]) -> None:
    real = any(state.tensor is not None for state in states.states)
    if fatal != set(KINDS) and not (plan.report.loaded or plan.report.absent) and real and source.arrays():
        warnings.warn(
            "nothing was loaded: no path of the source is one of the model", UserWarning, stacklevel=3
        )
    empty = [
        joined(path, name)
        for path, module in states.modules.items()
        for name, buffer in module._buffers.items()
        if buffer is not None and buffer.is_meta and name in module._non_persistent_buffers_set
    ]
    if empty and (plan.report.loaded or fatal):
        warnings.warn(
            f"on meta still, as no file has them: {listed(empty)} (buffers that are not persistent)",
            UserWarning,
            stacklevel=3,
        )
