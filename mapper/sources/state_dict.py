"""The table of tensors in what `torch.save` was given: a state dict, or one inside other things."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from mapper import limits
from mapper.checkpoint import DTYPE_BYTES, TensorInfo
from mapper.errors import FormatError, listed, shorten
from mapper.sources.files import MARK, printable
from mapper.sources.pickles import Opaque, StoredTensor
from mapper.sources.settings import within
from mapper.sources.shards import Shard, check_name, check_shape
from mapper.sources.training_files import Model, find_models, is_tensor, items, without_state


def take_tensors(
    value: Any, made: list[StoredTensor], shard: Shard
) -> list[tuple[Shard, dict[str, StoredTensor]]]:
    """Enter the tensors in the unpickled `value` into `shard`, and those of other models in it into its `others`.

    Returns each of these tables with the place of every tensor in its storage. `made` are the tensors that the pickle
    makes: those that no name leads to are counted in a note.
    """
    if is_tensor(value):
        raise FormatError(
            f"{shard.name}: one tensor without a name, and no state dict; save model.state_dict()"
        )
    models, others = find_models(value)
    found: dict[str, StoredTensor] = {}
    for model in models or [Model((), value)]:
        start = model.path if len(models) > 1 else ()
        found |= _taken(without_state(model.table) if models else value, shard, start)
    if not found or (not models and _modules(value)):
        raise FormatError(f"{shard.name}: {_instead(value, shard.name)}")
    tables = [(shard, found)]
    for model in others:
        other = shard.others[model.name] = Shard(shard.name, shard.container, {}, size=shard.size)
        tables.append((other, _taken(without_state(model.table), other)))
    said = within(value)
    shard.settings = said.config if said else None
    _tell(value, models, others, shard, said.where if said else "")
    shard.model = models[0].name if len(models) == 1 else ""
    shard.tables = tuple(model.name for model in models) if len(models) > 1 else ()
    lost = len(
        {id(tensor) for tensor in made} - {id(tensor) for _, held in tables for tensor in held.values()}
    )
    if lost and not any(model.path for model in models):
        shard.notes.append(
            f"{shard.name}: {lost} tensors are held by objects of other classes and were not read"
        )
    return tables


def _taken(table: Any, shard: Shard, start: tuple[str, ...] = ()) -> dict[str, StoredTensor]:
    """Enter the tensors below a table, under names that begin with `start`."""
    found: dict[str, StoredTensor] = {}
    for name, tensor in _walk(table, shard.name):
        key = ".".join((*start, name))
        if isinstance(tensor, Opaque):
            raise FormatError(
                f"{shard.name}: tensor {shorten(key)} {tensor.unread}; load it with torch and save "
                "a plain tensor",
                tensors=[key],
            )
        check_name(key, shard.name)
        if key in shard.tensors:
            raise FormatError(f"{shard.name}: two tensors have the name {shorten(key)}")
        found[key] = tensor
        _enter(shard, key, tensor)
    return found


def _tell(value: Any, models: list[Model], others: list[Model], shard: Shard, settings: str) -> None:
    """Note what of a file is read, what is not, and how to read another model in it."""
    tops = {model.path[0] for model in (*models, *others) if model.path}
    tops |= {settings} if settings else set()
    left = [str(key) for key in value if str(key) not in tops] if isinstance(value, dict) and tops else []
    if not tops and models and isinstance(value, dict):
        left = [str(key) for key in value.keys() - without_state(value).keys()]
    read = " and ".join(shorten(model.name) for model in models if model.path)
    not_read = f"not read: {listed(left)}" if left else ""
    if read or not_read:
        told = [f"the tensors are those under {read}" if read else "", not_read]
        shard.notes.append(f"{shard.name}: {'; '.join(filter(None, told))}")
    if settings:
        shard.notes.append(f"{shard.name}: the settings are those under {shorten(settings)}")
    if others:
        what = "another model lies" if len(others) == 1 else f"{len(others)} other models lie"
        names = listed([model.name for model in others])
        how = f"{printable(shard.name)}{MARK}{printable(others[0].name)}"
        shard.notes.append(f"{shard.name}: {what} under {names}; name it as in {how}")


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
        if is_tensor(item):
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
            below = [(key, inner) for key, inner in items(item) if is_tensor(inner) or id(inner) in holding]
            pending += [((*path, _word(key)), inner) for key, inner in reversed(below)]


def _holding(value: Any) -> set[int]:
    """The tables below `value`, and itself, that lead to a tensor; each is looked at once."""
    above: dict[int, list[int]] = {id(value): []}
    waiting, found = [value], []
    while waiting:
        item = waiting.pop()
        if is_tensor(item) or not isinstance(item, (dict, list, tuple)):
            continue
        for _, inner in items(item):
            if is_tensor(inner):
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
        raise FormatError(f"{shard.name}: tensor {shorten(key)} {size}; download it again", tensors=[key])
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


def _modules(value: Any) -> dict[str, Opaque]:
    """The whole modules that were pickled: the value itself, or some of its entries, each with how to get at it."""
    entries = value.items() if isinstance(value, dict) else ()
    inner = {f"[{str(key)!r}]": item for key, item in entries if isinstance(item, Opaque)}
    found = {"": value} if isinstance(value, Opaque) else inner
    return {way: item for way, item in found.items() if item.is_module}


def _instead(value: Any, file: str) -> str:
    """What is in a file without tensors, and what to do."""
    for way, module in _modules(value).items():
        what = f"a whole module{f' ({shorten(module.kind)[1:-1]})' if module.kind else ''}"
        how = f"torch.load({shorten(file)}, weights_only=False){way}.state_dict()"
        return (
            f"{what} that torch.save(model) pickled{f' under {way[1:-1]}' if way else ''}, which cannot be read without "
            f"running its code; where its class is at hand and the file is trusted: torch.save({how}, 'weights.pt')"
        )
    entries = listed([str(key) for key in value]) if isinstance(value, dict) else ""
    held = f" (its entries: {entries})" if entries else " (an empty table)" if value == {} else ""
    if isinstance(value, Opaque):
        held = f" (a pickled {shorten(value.kind)[1:-1]})" if value.kind else " (a pickled object)"
    return f"no state dict in the file{held}; save model.state_dict()"
