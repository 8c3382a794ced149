"""The table of tensors in what `torch.save` was given: a state dict, or one inside other things."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from mapper import limits
from mapper.checkpoint import DTYPE_BYTES, TensorInfo
from mapper.errors import FormatError, listed, shorten
from mapper.sources.pickles import Opaque, StoredTensor
from mapper.sources.shards import Shard, check_name, check_shape

# Under which names training code keeps the weights, the most telling first.
WRAPPERS = (
    "state_dict",
    "model_state_dict",
    "model_state",
    "model",
    "module",
    "net",
    "network",
    "params_ema",
    "params",
    "weights",
    "ema",
)


def take_tensors(value: Any, made: list[StoredTensor], shard: Shard) -> dict[str, StoredTensor]:
    """Enter the tensors in the unpickled `value` into `shard`; returns each one's place in its storage.

    `made` are the tensors that the pickle makes: those that no name leads to are counted in a note.
    """
    inner, path = _unwrap(value)
    found: dict[str, StoredTensor] = {}
    for key, tensor in _walk(inner, shard.name):
        if isinstance(tensor, Opaque):
            raise FormatError(
                f"{shard.name}: tensor {shorten(key)} {tensor.unread}; load it with torch and save "
                "a plain tensor"
            )
        check_name(key, shard.name)
        if key in found:
            raise FormatError(f"{shard.name}: two tensors have the name {shorten(key)}")
        found[key] = tensor
        _enter(shard, key, tensor)
    if not found:
        raise FormatError(
            f"{shard.name}: no state dict in the file{_contents(value)}; save model.state_dict()"
        )
    if path:
        shard.notes.append(
            f"{shard.name}: the tensors are those under {shorten('.'.join(path))}{_others(value, path)}"
        )
    lost = len({id(tensor) for tensor in made} - {id(tensor) for tensor in found.values()})
    if lost and not path:
        shard.notes.append(
            f"{shard.name}: {lost} tensors are held by objects of other classes and were not read"
        )
    return found


def _unwrap(value: Any) -> tuple[Any, tuple[str, ...]]:
    """The innermost table under the usual names, and the names that lead to it."""
    path: tuple[str, ...] = ()
    while isinstance(value, dict) and not any(isinstance(item, StoredTensor) for item in value.values()):
        name = next((word for word in WRAPPERS if isinstance(value.get(word), dict) and value[word]), None)
        if name is None or len(path) == limits.NAME_DEPTH:
            break
        value, path = value[name], (*path, name)
    return value, path


def _walk(value: Any, file: str) -> Iterator[tuple[str, StoredTensor | Opaque]]:
    """Every tensor below `value` with its dotted name, in order; what is not a tensor is passed over.

    A table may hold another many times over, and itself: what leads to no tensor is passed over once and for all, and
    one tensor has so many names at most.
    """
    holding = _holding(value)
    pending: list[tuple[tuple[str, ...], Any]] = [((), value)]
    names: Counter[int] = Counter()
    while pending:
        path, item = pending.pop()
        if _is_tensor(item):
            names[id(item)] += 1
            if names[id(item)] > limits.PICKLE_NAMES:
                limit = f"at most {limits.PICKLE_NAMES:,} are read"
                raise FormatError(
                    f"{file}: one tensor under more names than {shorten('.'.join(path))}, {limit}"
                )
            yield ".".join(path), item
        elif id(item) in holding:
            if len(path) == limits.NAME_DEPTH:
                raise FormatError(
                    f"{file}: tables nested more than {limits.NAME_DEPTH} levels deep in the pickle"
                )
            below = [(key, inner) for key, inner in _items(item) if _is_tensor(inner) or id(inner) in holding]
            pending += [((*path, _word(key)), inner) for key, inner in reversed(below)]


def _holding(value: Any) -> set[int]:
    """The tables below `value`, and itself, that lead to a tensor; each is looked at once."""
    above: dict[int, list[int]] = {id(value): []}
    waiting, found = [value], []
    while waiting:
        item = waiting.pop()
        if _is_tensor(item) or not isinstance(item, (dict, list, tuple)):
            continue
        for _, inner in _items(item):
            if _is_tensor(inner):
                found.append(id(item))
            elif isinstance(inner, (dict, list, tuple)):
                if id(inner) not in above:
                    above[id(inner)] = []
                    waiting.append(inner)
                above[id(inner)].append(id(item))
    holding: set[int] = set()
    while found:
        here = found.pop()
        if here not in holding:
            holding.add(here)
            found += above[here]
    return holding


def _is_tensor(item: Any) -> bool:
    return isinstance(item, StoredTensor) or (isinstance(item, Opaque) and bool(item.unread))


def _items(table: Any) -> Iterable[tuple[Any, Any]]:
    return table.items() if isinstance(table, dict) else enumerate(table)


def _word(key: Any) -> str:
    return key if isinstance(key, str) else str(key)[: limits.NAME_CHARACTERS]


def _enter(shard: Shard, key: str, tensor: StoredTensor) -> None:
    """Check that the tensor lies within its storage, and enter its shape, dtype and strides."""
    shape = check_shape(tensor.shape, key, shard.name)
    width = DTYPE_BYTES[tensor.dtype]
    last = tensor.offset + sum(
        (extent - 1) * stride for extent, stride in zip(shape, tensor.strides, strict=True)
    )
    needed = 0 if 0 in shape else int((last + 1) * width)
    available = int(tensor.storage.elements * DTYPE_BYTES.get(tensor.storage.dtype, 1))
    if needed > available:
        size = f"needs {needed:,} bytes of storage {shorten(tensor.storage.key)}, which has {available:,}"
        raise FormatError(f"{shard.name}: tensor {shorten(key)} {size}; download it again")
    shard.tensors[key] = TensorInfo(shape, tensor.dtype)
    if not _is_contiguous(shape, tensor.strides):
        shard.strides[key] = tensor.strides


def _is_contiguous(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    step = 1
    for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
        if extent != 1 and stride != step:
            return False
        step *= extent
    return True


def _contents(value: Any) -> str:
    if isinstance(value, dict):
        return f" (its entries: {listed([str(key) for key in value])})" if value else " (an empty table)"
    return " (a pickled object, perhaps a whole module)" if isinstance(value, Opaque) else ""


def _others(value: Any, path: tuple[str, ...]) -> str:
    others = [str(key) for key in value if key != path[0]]
    return f"; not read: {listed(others)}" if others else ""
