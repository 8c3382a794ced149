"""The naming of a container backwards: a model under the names, in the arrangement and with the metadata of its files."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from mapper.checkpoint import Checkpoint, TensorInfo
from mapper.errors import FormatError, MapperError, listed, shorten
from mapper.rulebook.namings import COUNTED, NUMBER, PART, Naming, namings, words
from mapper.sources.composed import Composed, decompositions
from mapper.sources.renaming import Contents, config_of, divisor, keys_of, longest, naming_of
from mapper.sources.renaming import named as read_names
from mapper.weights.renaming.table import NoPlace

if TYPE_CHECKING:
    import torch

    from mapper.rulebook.rulebook import Rulebook

    Read = Callable[[list[str]], Mapping[str, torch.Tensor]]

_SHARED = ("general", "tokenizer", "split")  # first words of keys that no architecture stands before
TYPE = "model_type"  # of a config


class Header(NamedTuple):
    """A tensor as the container's header will have it."""

    name: str
    shape: tuple[int, ...]

    def part(self, number: int) -> Header:
        return Header(self.name, self.shape[1:])


@dataclass(frozen=True)
class Stored:
    """One tensor of the file, and the model's that it is made of: several where they are stacked."""

    sources: tuple[str, ...]
    info: TensorInfo  # of one of them
    steps: tuple[tuple[str, Any], ...] = ()  # how it is moved, in the order of the reader
    part: tuple[Composed, int] | None = None  # of the source, and which

    @property
    def shape(self) -> tuple[int, ...]:
        shape = self.info.shape if self.part is None else self.part[0].part_shape(self.info.shape)
        for word, value in reversed(self.steps):
            shape = _SHAPES[word](value, shape) if word in _SHAPES else shape
        return (len(self.sources), *shape) if len(self.sources) > 1 else shape

    def of(self, read: Read) -> torch.Tensor:
        """The tensor itself."""
        import torch

        made = []
        for name in self.sources:
            tensor = read([name])[name]
            tensor = tensor if self.part is None else self.part[0].part(self.part[1], tensor)
            for word, value in reversed(self.steps):
                tensor = _BACKWARDS[word](value, tensor)
            made.append(tensor)
        return torch.stack(made) if len(made) > 1 else made[0].contiguous()


@dataclass
class Packed:
    """A file of the container."""

    naming: Naming
    tensors: dict[str, Stored]
    metadata: dict[str, Any] = field(default_factory=dict)
    small: dict[str, list[float]] = field(default_factory=dict)  # settings that stand as tensors

    @property
    def rounded(self) -> list[str]:
        """Tensors whose numbers are stored as others, from which they come back rounded."""
        words = ("plus", "negative_exp")
        return [name for name, one in self.tensors.items() if any(word in words for word, _ in one.steps)]

    @property
    def label(self) -> str:
        return f"{self.naming.container}/{self.naming.name}"

    def read_again(self) -> tuple[dict[str, TensorInfo], dict[str, Any]]:
        """Names, shapes and config as the reader of the container will give them. Raises MapperError."""
        headers = [Header(name, stored.shape) for name, stored in self.tensors.items()]
        headers += [Header(name, (len(values),)) for name, values in self.small.items()]
        contents = Contents(self.metadata, headers, self.small)
        architecture = self.naming.architectures[0]
        found = naming_of(self.naming.container, architecture, contents.names)
        if found is not self.naming:
            raise NoPlace(f"{self.label} would be read as {found.name if found else 'no known naming'}")
        tensors, _ = read_names(found, contents, f"{architecture}.", self.label)
        config = config_of(found, contents, f"{architecture}.", self.label)
        return {one.name: TensorInfo(one.shape, "F32") for one in tensors}, config


def containers() -> list[str]:
    """Containers that are written by their namings."""
    return list(dict.fromkeys(naming.container for naming in namings() if naming.architectures))


def types_of(container: str) -> set[str]:
    """The model types that a container has namings of."""
    return {
        _type_of(naming) for naming in namings() if naming.container == container and naming.architectures
    }


def _type_of(naming: Naming) -> str:
    return str(naming.config.get(TYPE, {}).get("value", ""))


def pack(container: str, checkpoint: Checkpoint, rulebook: Rulebook) -> Packed:
    """The file of a model that has the names and the config of its own library. Raises MapperError."""
    config = checkpoint.config or {}
    failed: list[MapperError] = []
    for naming in namings():
        if naming.container == container and naming.architectures and _type_of(naming) == config.get(TYPE):
            try:
                return _packed(naming, checkpoint, _Fields(config, rulebook))
            except (NoPlace, FormatError) as error:
                failed.append(error)
    if failed:
        raise failed[0]
    raise NoPlace(f"{container} has no naming for the model type {shorten(str(config.get(TYPE)))}")


class _Fields:
    """The fields of a config, each under any of the names that the vocabulary has for it."""

    def __init__(self, config: Mapping[str, Any], rulebook: Rulebook):
        self.config = config
        self.same: dict[str, list[str]] = {}
        for rules in rulebook.config_vocabulary.facts.values():
            for rule in rules:
                for name in rule.config:
                    alike = [other for other in rule.config if not rule.map or _last(other) == _last(name)]
                    self.same.setdefault(name, []).extend(alike)

    def get(self, name: str) -> Any:
        found = (self._at(other) for other in (name, *self.same.get(name, ())))
        return next((value for value in found if value is not None), None)

    def _at(self, name: str) -> Any:
        value: Any = self.config
        for word in name.split("."):
            value = value.get(word) if isinstance(value, Mapping) else None
        return value


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _packed(naming: Naming, checkpoint: Checkpoint, fields: _Fields) -> Packed:
    prefix = f"{naming.architectures[0]}."
    packed = Packed(naming, {})
    packed.metadata = {"general.architecture": naming.architectures[0]}
    for name, setting in naming.config.items():
        try:
            _enter_setting(packed, name, setting, fields, prefix)
        except (TypeError, ValueError, ArithmeticError):
            raise NoPlace(f"{packed.label} cannot say {name}: the config has no numbers for it") from None
    packed.tensors = _tensors(naming, checkpoint, packed.metadata, prefix)
    return packed


def _enter_setting(
    packed: Packed, name: str, setting: Mapping[str, Any], fields: _Fields, prefix: str
) -> None:
    keys = setting.get("metadata") or ()
    value = fields.get(name)
    for other, table in setting.get("written", {}).items():
        value = table.get(str(fields.get(other)), value)
    for key in [keys] if isinstance(keys, str) else keys:
        if value is not None and (isinstance(value, list) or "map" not in setting):
            stored = _unmapped(setting["map"], value) if "map" in setting else value
            packed.metadata[key if key.split(".")[0] in _SHARED else prefix + key] = stored
    if "ratio" in setting and value is not None:
        whole = [packed.metadata[prefix + key] for key in setting["of"][0]]
        packed.metadata[prefix + setting["ratio"]] = int(value * (whole[0] // math.prod(whole[1:])))
    bent = setting.get("bent")
    if bent and fields.get(f"{name}.rope_type") == bent["rope_type"]:
        packed.small[bent["by"]] = _divisors(bent, name, fields)
        return
    for inner, tensor in setting.get("tensors", {}).items():
        if (numbers := fields.get(f"{name}.{inner}")) is not None:
            packed.small[tensor] = list(map(float, numbers))
    for inner, entry in setting.get("group", {}).items():
        value, (keys, times) = fields.get(f"{name}.{inner}"), keys_of(entry)
        if value is not None and fields.get(f"{name}.rope_type") != "default":
            packed.metadata[prefix + keys[0]] = value if times == 1 else value / times


def _unmapped(table: Mapping[str, Any], values: list[Any]) -> list[Any]:
    """A list of the model's config as the metadata has it. Raises ValueError for what no entry stands for."""
    backwards = {value: key for key, value in table.items()}
    if "*" in table or not all(value in backwards for value in values):
        raise ValueError(values)
    return [{"True": True, "False": False}.get(backwards[value], backwards[value]) for value in values]


def _divisors(bent: Mapping[str, Any], name: str, fields: _Fields) -> list[float]:
    """What the rotary angles are divided by, one for each pair."""
    said = {key: fields.get(f"{name}.{key}") or value for key, value in bent.items() if key != "by"}
    said["factor"] = fields.get(f"{name}.factor")
    heads, size = fields.get("num_attention_heads"), fields.get("hidden_size")
    pairs = (fields.get("head_dim") or size // heads) // 2
    base = fields.get("rope_theta")
    return [divisor(2 * math.pi * base ** (at / pairs), said) for at in range(pairs)]


def _tensors(
    naming: Naming, checkpoint: Checkpoint, metadata: Mapping[str, Any], prefix: str
) -> dict[str, Stored]:
    targets = {words(target): pattern for pattern, target in naming.names.items()}
    found: dict[str, list[tuple[int, str]]] = {}
    missing = []
    parts: dict[str, Stored] = {}
    for name, info in checkpoint.tensors.items():
        place, whole = _place(targets, name), decompositions(naming.composed, name)
        if whole is not None:
            parts |= {part: Stored((name,), info, part=(whole, at)) for at, part in enumerate(whole.parts)}
            continue
        if place is None:
            missing.append(name)
        else:
            found.setdefault(place[0], []).append((place[1], name))
    if missing:
        raise NoPlace(f"{naming.container}/{naming.name} has no place for {listed(missing)}", tensors=missing)
    alone = {
        name: _stored(naming, name, [one for _, one in sorted(stacked)], checkpoint, metadata, prefix)
        for name, stacked in found.items()
    }
    return alone | parts


def _place(targets: Mapping[tuple[str, ...], tuple[str, ...]], name: str) -> tuple[str, int] | None:
    """The container's name of a tensor, and its number in a stack."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        for target in _patterns(parts[:end]):
            if target not in targets:
                continue
            numbers = dict(zip(target, parts, strict=False))
            index, at = numbers.get(NUMBER, ""), int(numbers.get(PART, 0))
            pattern = [index if word == NUMBER else word for word in targets[target]]
            return ".".join((*pattern, *parts[end:])), at
    return None


def _patterns(parts: list[str]) -> Iterator[tuple[str, ...]]:
    """The words as targets have them: the first number a layer's, a second one that of a stacked tensor or of the target."""
    for words_for in ((NUMBER, PART), (NUMBER,)):
        numbers = iter(words_for)
        yield tuple(next(numbers, word) if word.isdigit() else word for word in parts)


def _stored(
    naming: Naming,
    name: str,
    sources: list[str],
    checkpoint: Checkpoint,
    metadata: Mapping[str, Any],
    prefix: str,
) -> Stored:
    table, _, _ = longest(naming.arranged, name) or ({}, [], "")
    steps = tuple(
        (word, _counts(value, metadata, prefix) if word in COUNTED else value)
        for word, value in table.items()
    )
    return Stored(tuple(sources), checkpoint.tensors[sources[0]], steps)


def _counts(keys: str | list[str], metadata: Mapping[str, Any], prefix: str) -> list[Any]:
    return [metadata.get(prefix + key) for key in ([keys] if isinstance(keys, str) else keys)]


def _into_pairs(counts: list[int], tensor: torch.Tensor) -> torch.Tensor:
    """Halves of each head to neighbours that rotate together, row by row."""
    return tensor.unflatten(0, (counts[0], 2, -1)).transpose(1, 2).reshape(tensor.shape)


def _from_groups(counts: list[int], tensor: torch.Tensor) -> torch.Tensor:
    """Queries, key and value of each group of heads together to all queries, all keys, all values."""
    import torch

    heads, groups = counts[0], counts[-1]
    size = tensor.shape[0] // (heads + 2 * groups)
    parts = tensor.unflatten(0, (groups, -1)).split([heads // groups * size, size, size], dim=1)
    return torch.cat([part.flatten(0, 1) for part in parts]).reshape(tensor.shape)


_BACKWARDS: dict[str, Callable[[Any, Any], Any]] = {
    "pairs": _into_pairs,
    "thirds": _from_groups,
    "groups": _from_groups,
    "rows": lambda counts, tensor: tensor.reshape(counts[0], -1),
    "transposed": lambda _, tensor: tensor.mT if tensor.dim() > 1 else tensor,
    "plus": lambda added, tensor: tensor.float() + added,
    "negative_exp": lambda _, tensor: -tensor.float().exp(),
    "flat_axis": lambda _, tensor: tensor.squeeze(1),
    "row": lambda _, tensor: tensor.reshape(-1),
}
_SHAPES: dict[str, Callable[[Any, tuple[int, ...]], tuple[int, ...]]] = {
    "rows": lambda counts, shape: (counts[0], math.prod(shape) // counts[0]),
    "transposed": lambda _, shape: (*shape[:-2], *shape[:-3:-1]),
    "flat_axis": lambda _, shape: (*shape[:1], *shape[2:]),
    "row": lambda _, shape: (math.prod(shape),),
}
