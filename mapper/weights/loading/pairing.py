"""Model and source matched by path: what will be written, and everything that does not fit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from mapper.weights.arrays import is_array
from mapper.weights.loading import casting
from mapper.weights.loading.flat_table import EXTRA, Array, Held, Source, Stored
from mapper.weights.loading.load_report import Cast, LoadReport, Mismatch
from mapper.weights.modules import State, States, is_unshaped


@dataclass
class Write:
    """One tensor of the model and what goes into it: an array, or the number that an absent parameter stands for."""

    state: State
    value: Array | int


@dataclass
class Plan:
    """What a load would do. Nothing has been changed yet."""

    report: LoadReport = field(default_factory=LoadReport)
    writes: list[Write] = field(default_factory=list)
    uncounted: list[State] = field(default_factory=list)  # counters of batches that an older file lacks


class Matcher:
    """Checks every state of a model against a source."""

    def __init__(self, states: States, source: Source, cast: str, assign: bool) -> None:
        self.states, self.source, self.cast, self.assign = states, source, cast, assign
        self.plan = Plan()
        self.report = self.plan.report
        self.pruned = tuple(f"{path}." for path, leaf in source.leaves.items() if leaf is None)

    def run(self, keep: Callable[[str], bool]) -> Plan:
        """The plan. `keep` says of each path whether it takes part."""
        for state in self.states.states:
            paths = [path for path in state.paths if keep(path)]
            if paths:
                self._match(state, paths)
        self._left_over(keep)
        real = [
            state.paths for state in self.states.states if state.tensor is not None and len(state.paths) > 1
        ]
        self.report.tied = [list(paths) for paths in real]
        self.report.arrange(list(self.states.by_path))
        return self.plan

    def _match(self, state: State, paths: list[str]) -> None:
        found = {path: self.source.leaves[path] for path in paths if path in self.source.leaves}
        arrays = {path: leaf for path, leaf in found.items() if isinstance(leaf, (Held, Stored))}
        if state.tensor is None:
            self._match_absent(state, arrays)
            return
        given: dict[str, Array | int] = {}
        before = len(self.report.mismatched)
        for path, leaf in found.items():
            value = self._value(state, path, leaf)
            if value is not None:
                given[path] = value
        if len(self.report.mismatched) > before:
            return
        if given:
            self._take(state, given)
        elif any(leaf is None for leaf in found.values()) or any(
            path.startswith(self.pruned) for path in paths
        ):
            self.report.skipped.extend(paths)
        elif state.is_count_of_batches:
            self.report.skipped.append(paths[0])
            self.plan.uncounted.append(state)
        else:
            self.report.missing.append(paths[0])

    def _match_absent(self, state: State, arrays: dict[str, Array]) -> None:
        """An absent parameter: an array there must be what it stands for."""
        assert state.neutral is not None
        for path, array in arrays.items():
            if isinstance(array, Held) and not _is_dense(array.value):
                self._mismatch(state, path, "type", array)
            elif array.is_meta:
                self._mismatch(state, path, "meta", array)
            elif _is_all(state.neutral, array):
                self.report.absent.append(path)
            else:
                self._mismatch(state, path, "absent", array)

    def _value(self, state: State, path: str, leaf: Any) -> Array | int | None:
        """What the source has for one path, if that fits; else the mismatch is on the report."""
        if leaf is None:
            return None
        if leaf is False:
            if state.neutral is None or is_unshaped(state.tensor):  # how many zeros it would be is unknown
                self._mismatch(state, path, "type", leaf)
                return None
            return state.neutral
        leaf = self._number(state, path, leaf)
        if leaf is None:
            return None
        wrong = "type" if not isinstance(leaf, (Held, Stored)) else self._unfit(state, leaf)
        if wrong is None:
            return leaf
        self._mismatch(state, path, wrong, leaf)
        return None

    def _number(self, state: State, path: str, leaf: Any) -> Any:
        """A Python int or float for a 0-d tensor becomes an array of its dtype: it has no dtype of its own."""
        tensor = state.tensor
        if type(leaf) not in (int, float) or tensor is None or is_unshaped(tensor) or tensor.dim():
            return leaf
        kind = casting.kind(tensor.dtype)
        if kind == "bool" or (kind == "integer" and isinstance(leaf, float) and self.cast != "unsafe"):
            self._mismatch(state, path, "dtype", leaf)
            return None
        made = casting.from_number(leaf, tensor.dtype, checked=self.cast != "unsafe")
        if made is None:
            self._mismatch(state, path, "overflow", leaf)
        return None if made is None else Held(made)

    def _unfit(self, state: State, array: Array) -> str | None:
        """The kind of disagreement between a tensor and an array, if there is one."""
        assert state.tensor is not None
        if isinstance(array, Held) and not _is_dense(array.value):
            return "type"
        if not is_unshaped(state.tensor) and tuple(state.tensor.shape) != array.shape:
            return "shape"
        if array.is_meta:
            return "meta"
        source, target = array.dtype, state.tensor.dtype
        if self.assign:
            return None if casting.kind(source) == casting.kind(target) else "dtype"
        if not casting.allowed(source, target, self.cast):
            return "dtype"
        if self.cast == "same_kind" and not casting.is_wider(target, source):
            return "overflow" if casting.overflows(array.tensor(), target) else None
        return None

    def _take(self, state: State, given: dict[str, Array | int]) -> None:
        """Enter the one value for all paths of a tensor, if those given agree."""
        first, value = next(iter(given.items()))
        for path, other in given.items():
            if not self._agree(state, value, other):
                self._tie_mismatch(state, first, path, value, other)
                return
        array = next((each for each in given.values() if not isinstance(each, int)), value)
        self.plan.writes.append(Write(state, array))
        (self.report.absent if isinstance(array, int) else self.report.loaded).extend(state.paths)
        if not isinstance(array, int) and not self.assign and state.tensor is not None:
            self._note_cast(state, array)

    def _note_cast(self, state: State, array: Array) -> None:
        assert state.tensor is not None
        if array.dtype != state.tensor.dtype:
            names = casting.name(array.dtype), casting.name(state.tensor.dtype)
            self.report.cast += [Cast(path, *names) for path in state.paths]

    def _agree(self, state: State, one: Array | int, other: Array | int) -> bool:
        """Whether two values for one tensor are the same, NaN with NaN."""
        if one is other:
            return True
        if isinstance(one, int):
            return _is_all(one, other)
        if isinstance(other, int):
            return _is_all(other, one)
        return _same(one.tensor(), other.tensor(), state.tensor)

    def _left_over(self, keep: Callable[[str], bool]) -> None:
        """What of the source has no place: arrays are unexpected, anything else is ignored."""
        placed = {owner for alias, owner in self.source.tied.items() if self._has_place(alias)}
        placed |= {owner for owner in self.source.tied.values() if self._has_place(owner)}
        for path, leaf in self.source.leaves.items():
            state = self.states.by_path.get(path)
            if not keep(path) or (state is not None and state.tensor is not None):
                continue
            if isinstance(leaf, (Held, Stored)):
                if state is None and self.source.tied.get(path, path) not in placed:
                    self.report.unexpected.append(path)
            elif not (leaf is None and self._is_branch(path)) and not (leaf is False and state is not None):
                self.report.ignored.append(path)

        self.report.unexpected += [path for path in self.source.strays if keep(path)]
        self._extra_left_over(keep)

    def _extra_left_over(self, keep: Callable[[str], bool]) -> None:
        """Extra state for which the model has no module."""
        for path, value in self.source.extra.items():
            module = self.states.modules.get(path)
            if module is not None and type(module).set_extra_state is not nn.Module.set_extra_state:
                continue
            key = f"{path}.{EXTRA}" if path else EXTRA
            if keep(key):
                (self.report.unexpected if is_array(value) else self.report.ignored).append(key)

    def _has_place(self, path: str) -> bool:
        return path in self.states.by_path

    def _is_branch(self, path: str) -> bool:
        return path in self.states.modules

    def _mismatch(self, state: State, path: str, kind: str, leaf: Any) -> None:
        self.report.mismatched.append(Mismatch(path, kind, in_model(state), in_source(leaf)))

    def _tie_mismatch(self, state: State, first: str, path: str, value: Any, other: Any) -> None:
        both = f"{in_model(state)}, one tensor with {first}"
        self.report.mismatched.append(
            Mismatch(path, "tie", both, f"{in_source(other)}, {first} is another value")
        )


def _is_dense(value: Any) -> bool:
    return not isinstance(value, torch.Tensor) or (value.layout == torch.strided and not value.is_quantized)


def _is_all(number: int, array: Array | int) -> bool:
    return number == array if isinstance(array, int) else bool((casting.wide(array.tensor()) == number).all())


def _same(one: torch.Tensor, other: torch.Tensor, target: torch.Tensor | None) -> bool:
    """Equal values in one dtype and on one device; NaN equals NaN."""
    if one.dtype != other.dtype and target is not None:
        one, other = one.to(target.dtype), other.to(target.dtype)
    if one.shape != other.shape:
        return False
    one, other = casting.wide(one), casting.wide(other).to(one.device)
    return torch.equal(one, other) or bool(((one == other) | ((one != one) & (other != other))).all())


def in_model(state: State) -> str:
    """What a state is: `Linear float32 [3072, 768]`."""
    word = type(state.module).__name__
    if state.tensor is None:
        return f"{word}, absent (stands for {state.neutral})"
    shape = "without a shape yet" if is_unshaped(state.tensor) else str(list(state.tensor.shape))
    return f"{word} {casting.name(state.tensor.dtype)} {shape}"


def in_source(leaf: Any) -> str:
    """What the source has: type, dtype and shape of an array, or type and value of anything else."""
    if isinstance(leaf, (Held, Stored)):
        where = " on meta, without data" if leaf.is_meta else ""
        return f"{leaf.word} {casting.name(leaf.dtype)} {list(leaf.shape)}{where}"
    return f"{type(leaf).__name__} {_value_text(leaf)}".rstrip()


VALUE_CHARACTERS = 40


def _value_text(value: Any) -> str:
    """The value as Python prints it where that is short and harmless; an object's own `repr` may be anything."""
    if not isinstance(value, (str, bytes, bool, int, float, complex, type(None))):
        return ""
    try:
        text = repr(value[: VALUE_CHARACTERS * 2] if isinstance(value, (str, bytes)) else value)
    except ValueError:  # an int of more digits than Python prints
        return ""
    return text if len(text) <= VALUE_CHARACTERS else f"{text[:VALUE_CHARACTERS]}..."
