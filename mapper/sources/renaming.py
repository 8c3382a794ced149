"""Checkpoints of other containers under the names, and in the arrangement, that the model's own library has.

What is called how is data: the files in `rules/namings/`. So a model is the same from whichever container it comes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, cast

from mapper import limits
from mapper.errors import FormatError, SourceError, listed, shorten
from mapper.rulebook.namings import COUNTED, NUMBER, PART, Naming, namings, words
from mapper.sources.composed import Composed, compositions

if TYPE_CHECKING:
    import torch

    Arrange = Callable[[torch.Tensor], torch.Tensor]

Value = TypeVar("Value")


class Stored(Protocol):
    """A tensor under the name that its container has for it."""

    @property
    def name(self) -> str: ...

    @property
    def shape(self) -> tuple[int, ...]: ...

    def part(self, number: int) -> Stored:
        """One of those stacked in this one."""


Kind = TypeVar("Kind", bound=Stored)


@dataclass
class Contents(Generic[Kind]):
    """What the header of a file of another container says: its settings, and its tensors under its own names."""

    metadata: dict[str, Any] = field(default_factory=dict)
    tensors: list[Kind] = field(default_factory=list)
    small: dict[str, list[float]] = field(
        default_factory=dict
    )  # the numbers of short vectors outside all layers

    @property
    def names(self) -> set[str]:
        return {stored.name for stored in self.tensors}


@dataclass
class Named(Generic[Kind]):
    """One tensor of the model: where it is, and how its numbers must be moved."""

    name: str
    stored: Kind
    shape: tuple[int, ...]
    arrange: list[Arrange] = field(default_factory=list)
    beside: list[Named[Kind]] = field(default_factory=list)  # parts of one tensor, this one of them
    composed: Composed | None = None  # how they are put together

    def read(self, numbers: Callable[[Kind], torch.Tensor]) -> torch.Tensor:
        """The tensor of the model, where `numbers` reads one of the container's."""
        if self.composed is not None:
            return self.composed.of([part.read(numbers) for part in self.beside])
        return self.arranged(numbers(self.stored))

    def arranged(self, tensor: torch.Tensor) -> torch.Tensor:
        for arrange in self.arrange:
            tensor = arrange(tensor)
        return tensor


def naming_of(container: str, architecture: str, names: Iterable[str]) -> Naming | None:
    """The naming of this architecture, of several the one that needs most of what is there; else that of all others."""
    patterns = {_pattern(name) for name in names}
    beginnings = {pattern[:end] for pattern in patterns for end in range(1, len(pattern) + 1)}
    fitting = [
        naming
        for naming in namings()
        if naming.container == container
        and (naming.others or architecture in naming.architectures)
        and all(words(need) in beginnings for need in naming.needs)
        and not any(words(other) in beginnings for other in naming.lacks)
    ]
    return max(fitting, key=lambda naming: (not naming.others, len(naming.needs)), default=None)


def named(
    naming: Naming, contents: Contents[Kind], prefix: str, file: str
) -> tuple[list[Named[Kind]], list[str]]:
    """The model's tensors, and notes on what was left out. Raises FormatError where two get the same name."""
    found: dict[str, Named[Kind]] = {}
    notes, unknown = [], []
    composed = list(compositions(naming.composed, contents.names))
    parts_of: dict[str, Named[Kind]] = {}
    of_others = {part for one in composed for part in one.parts}
    for stored in contents.tensors:
        if stored.name in of_others:
            parts_of[stored.name] = part = Named(stored.name, stored, stored.shape)
            _arranged(part, naming, contents, prefix, file)
            continue
        left = longest(naming.left, stored.name)
        if left is not None:
            notes.append(f"{shorten(stored.name)} was left out: {left[0]}")
            continue
        match = longest(naming.names, stored.name)
        if match is None:
            unknown.append(stored.name)
            parts = [Named(stored.name, stored, stored.shape)]
        else:
            parts = _parts(stored, *match, file)
        for part in parts:
            _arranged(part, naming, contents, prefix, file)
            if part.name in found:
                raise FormatError(f"{file}: two tensors become {shorten(part.name)} of the model")
            found[part.name] = part
    for one in composed:
        parts = [parts_of[name] for name in one.parts]
        shape = one.shape([part.shape for part in parts], file)
        found[one.name] = Named(one.name, parts[0].stored, shape, beside=parts, composed=one)
    if unknown:
        notes.append(
            f"names that the naming {naming.name!r} does not have stay as they are: {listed(unknown)}"
        )
    return list(found.values()), notes


def example_name(naming: Naming, name: str) -> str:
    """The model's name of a tensor; of several stacked in it the first's."""
    match = longest(naming.names, name)
    if match is None:
        return name
    target, numbers, rest = match
    for index in numbers:
        target = target.replace(NUMBER, index, 1)
    return target.replace(PART, "0") + rest


def _pattern(name: str) -> tuple[str, ...]:
    """The words of a name, numbers as patterns have them."""
    return tuple(NUMBER if _is_number(word) else word for word in name.split("."))


def _is_number(word: str) -> bool:
    return word.isascii() and word.isdigit() and len(word) < 10


def longest(table: dict[tuple[str, ...], Value], name: str) -> tuple[Value, list[str], str] | None:
    """What the longest pattern that `name` begins with leads to, the numbers in it, and the rest of the name."""
    parts, pattern = name.split("."), _pattern(name)
    for end in range(len(parts), 0, -1):
        if pattern[:end] in table:
            numbers = [word for word in parts[:end] if _is_number(word)]
            return table[pattern[:end]], numbers, "".join(f".{word}" for word in parts[end:])
    return None


def _parts(stored: Kind, target: str, numbers: list[str], rest: str, file: str) -> list[Named[Kind]]:
    """The tensors that one is: itself, or those stacked in it."""
    for index in numbers:
        target = target.replace(NUMBER, index, 1)
    if PART not in target:
        return [Named(target + rest, stored, stored.shape)]
    if len(stored.shape) < 2 or stored.shape[0] > limits.STACKED:
        shown = f"of shape {list(stored.shape)}, where at most {limits.STACKED:,} in a stack are expected"
        raise FormatError(f"{file}: tensor {shorten(stored.name)} is {shown}")
    made = []
    for number in range(stored.shape[0]):
        part = cast("Kind", stored.part(number))
        made.append(Named(target.replace(PART, str(number)) + rest, part, part.shape))
    return made


def _arranged(part: Named[Any], naming: Naming, contents: Contents[Any], prefix: str, file: str) -> None:
    """Enter how the tensor was moved, to be undone when it is read."""
    table, numbers, _ = longest(naming.arranged, part.stored.name) or ({}, [], "")
    for word, value in table.items():
        if word in COUNTED:
            keys = [value] if isinstance(value, str) else value
            value = [_count(contents.metadata, prefix + key, numbers, part, file) for key in keys]
            _check_rows(part, word, value, file)
        part.arrange.append(partial(_ARRANGEMENTS[word], value))
        part.shape = _SHAPES.get(word, _same)(part.shape)


def _count(metadata: dict[str, Any], key: str, numbers: list[str], part: Named[Any], file: str) -> int:
    """A number of heads: one for all layers, or one for each."""
    value = metadata.get(key)
    if isinstance(value, list) and numbers and int(numbers[0]) < len(value):
        value = value[int(numbers[0])]
    if type(value) is not int or value < 1:
        seen = "is missing" if value is None else f"is {shorten(str(value))}"
        raise FormatError(f"{file}: {shorten(key)} {seen}, and {shorten(part.stored.name)} is arranged by it")
    return value


def _check_rows(part: Named[Any], word: str, counts: list[int], file: str) -> None:
    heads, groups = counts[0], counts[-1]
    step = {"pairs": 2 * heads, "rows": heads}.get(word, heads + 2 * groups)
    if heads % groups or not part.shape or part.shape[0] % step:
        shown = f"{heads:,} heads" + (f" in {groups:,} groups" if groups != heads else "")
        seen = f"the shape {list(part.shape)}, which {shown} do not divide"
        raise FormatError(f"{file}: tensor {shorten(part.stored.name)} has {seen}")


def _pairs(counts: list[int], tensor: torch.Tensor) -> torch.Tensor:
    """Neighbours that rotate together, row by row of each head, back to halves."""
    return tensor.unflatten(0, (counts[0], -1, 2)).transpose(1, 2).reshape(tensor.shape)


def _groups(counts: list[int], tensor: torch.Tensor) -> torch.Tensor:
    """All queries, all keys, all values, back to those of each group of heads together: its queries, its key, its value."""
    import torch

    heads, groups = counts[0], counts[-1]
    size = tensor.shape[0] // (heads + 2 * groups)
    parts = tensor.split([heads * size, groups * size, groups * size])
    split = [part.unflatten(0, (groups, -1)) for part in parts]
    return torch.cat(split, dim=1).reshape(tensor.shape)


def _same(shape: tuple[int, ...]) -> tuple[int, ...]:
    return shape


_ARRANGEMENTS: dict[str, Callable[[Any, Any], Any]] = {
    "pairs": _pairs,
    "thirds": _groups,  # each head a group
    "groups": _groups,
    "rows": lambda _, tensor: tensor.reshape(-1),  # a vector, stored in rows
    "transposed": lambda _, tensor: tensor.mT.contiguous() if tensor.dim() > 1 else tensor,
    "plus": lambda added, tensor: tensor - added,
    "negative_exp": lambda _, tensor: (-tensor).log(),  # what was stored as -exp(x), back to x
    "flat_axis": lambda _, tensor: tensor.unsqueeze(1),
    "row": lambda _, tensor: tensor.reshape(1, -1),  # one row, stored as a vector
}
_SHAPES: dict[str, Callable[[tuple[int, ...]], tuple[int, ...]]] = {
    "transposed": lambda shape: (*shape[:-2], *shape[:-3:-1]),
    "flat_axis": lambda shape: (*shape[:1], 1, *shape[1:]),
    "rows": lambda shape: (math.prod(shape),),
    "row": lambda shape: (1, math.prod(shape)),
}


def config_of(naming: Naming, contents: Contents[Any], prefix: str, file: str) -> dict[str, Any]:
    """The config that the settings stand for."""
    found: dict[str, Any] = {}
    for key, setting in naming.config.items():
        bent = setting.get("bent")
        if bent and bent["by"] in contents.names:
            value: Any = _bent(bent, contents, found, file)
        elif "tensors" in setting and all(name in contents.small for name in setting["tensors"].values()):
            numbers = {key: contents.small[name] for key, name in setting["tensors"].items()}
            value = {**setting["beside"], **numbers}
        else:
            value = _setting(setting, contents.metadata, prefix, contents.names)
        if value is not None:
            found[key] = value
    return found


def _setting(setting: dict[str, Any], metadata: dict[str, Any], prefix: str, names: set[str]) -> Any:
    keys = setting.get("metadata", ())
    for key in [keys] if isinstance(keys, str) else keys or ():
        for full in (prefix + key, key):
            value = metadata.get(full)
            if value is not None:
                return _as_said(setting, value)
    if "length" in setting and setting["length"] in metadata:
        value = metadata[setting["length"]]
        return int(value) if isinstance(value, int) else len(value) if isinstance(value, list) else None
    if "group" in setting:  # a table in the config, which its first entry says whether it is used
        group = {name: _entry(entry, metadata, prefix) for name, entry in setting["group"].items()}
        first, second, *_ = group
        if group[first] is None and group[second] is not None:
            group[first] = setting.get("unsaid")
        used = group[first] not in (None, "none")
        said = {name: value for name, value in group.items() if value is not None}
        return {**setting.get("beside", {}), **said} if used else None
    if "most" in setting:  # of the layers, one for all or a list
        counts = metadata.get(prefix + setting["most"])
        return max(counts, default=None) if isinstance(counts, list) else counts
    if "ratio" in setting:
        is_said = metadata.get(prefix + setting["ratio"]) is not None
        return _ratio(setting, metadata, prefix) if is_said else setting.get("value")
    if "absent" in setting:
        return setting["absent"] not in names
    if "present" in setting:
        return setting["present"] in names
    return setting.get("value")


def _as_said(setting: dict[str, Any], value: Any) -> Any:
    """What stands for a value in the model's config: for each of a list its own."""
    if "text" in setting:
        return setting["text"].format(value)
    if "map" not in setting:
        return value
    if isinstance(value, list):
        return [setting["map"].get(str(one), setting["map"].get("*")) for one in value]
    return setting["map"].get(str(value), setting["map"].get("*"))


def _entry(entry: Any, metadata: dict[str, Any], prefix: str) -> Any:
    """One of a table in the config: what the first key that there is says, or so many times it."""
    keys, times = keys_of(entry)
    value: Any = next(
        (metadata[prefix + key] for key in keys if metadata.get(prefix + key) is not None), None
    )
    if times == 1 or type(value) not in (int, float):
        return value
    return float(f"{value * times:.7g}")  # the digits of a 32-bit float


def keys_of(entry: Any) -> tuple[list[str], float]:
    """The keys of an entry of a table, and how many times what they say it is."""
    keys = entry["metadata"] if isinstance(entry, dict) else entry
    return [keys] if isinstance(keys, str) else keys, entry.get("times", 1) if isinstance(entry, dict) else 1


def _ratio(setting: dict[str, Any], metadata: dict[str, Any], prefix: str) -> float | None:
    """How much a number is of the first other that there is: one, or one that is divided by a second."""
    part = metadata.get(prefix + setting["ratio"])
    for keys in setting["of"]:
        whole = [cast("Any", metadata.get(prefix + key)) for key in keys]
        if all(type(one) is int and one > 0 for one in (part, *whole)):
            found: float = part * math.prod(whole[1:]) / whole[0]
            return int(found) if found.is_integer() and found > 1 else found
    return None


def _bent(
    setting: dict[str, Any], contents: Contents[Any], config: dict[str, Any], file: str
) -> dict[str, Any]:
    """The settings behind the divisors of the rotary angles. Raises SourceError where they are no such curve."""
    values = contents.small.get(setting["by"], [])
    scaling = {
        **{key: value for key, value in setting.items() if key != "by"},
        "factor": max(values, default=1.0),
    }
    base = config.get("rope_theta", 10000.0)
    if not values or not all(
        math.isclose(value, divisor(2 * math.pi * base ** (at / len(values)), scaling), rel_tol=1e-4)
        for at, value in enumerate(values)
    ):
        raise SourceError(
            f"{file}: {shorten(setting['by'])} has divisors of the rotary angles that no known setting gives; take the "
            "checkpoint that the file was made from"
        )
    return scaling


def divisor(length: float, scaling: dict[str, Any]) -> float:
    """What the angle of this wave length is divided by: nothing for short waves, `factor` for long ones."""
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    turns = scaling["original_max_position_embeddings"] / length
    share = min(max((turns - low) / (high - low), 0.0), 1.0)
    return float(1 / ((1 - share) / scaling["factor"] + share))
