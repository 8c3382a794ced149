"""The table of an ONNX file under the names that its graph gives back."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from mapper.checkpoint import TensorInfo
from mapper.errors import FormatError, listed
from mapper.graphs.graph import Graph, Model
from mapper.graphs.recovery.observing import observe
from mapper.graphs.recovery.origins import Origin
from mapper.graphs.recovery.parameters import Parameter, is_made_up, parameters
from mapper.graphs.recovery.tying import ties
from mapper.graphs.recovery.unusual import unusual
from mapper.graphs.recovery.wiring import Wiring
from mapper.sources import onnx_graph, saved
from mapper.sources.shards import Shard, check_name

if TYPE_CHECKING:
    import torch


def read_graph(shards: list[Shard], follow_links: bool = False) -> None:
    """Enter into the tables of a local ONNX model, and of the files beside it, what its graph says of its weights.

    Of one that mapper wrote the initialisers are the checkpoint.
    A graph that is refused stays unread, which is noted: the initialisers have the names of the file then.
    """
    from mapper.graphs.reading import read_model

    shard = shards[0]
    assert shard.path is not None
    if saved.METADATA in shard.metadata:
        return
    try:
        model = read_model(shard.path, follow_links)
    except FormatError as error:
        shard.notes.append(f"the graph was not read: {error}")
        return
    if not model.functions:
        _rename(shards, model)


def _rename(shards: list[Shard], model: Model) -> None:
    wiring = Wiring(model.graph)
    table = parameters(wiring)
    found = {key: one for key, one in table.parameters.items() if _is_name(key, shards[0].name)}
    homes = {shard.path: shard for shard in shards}
    for shard in shards:
        shard.tensors, shard.offsets, shard.strides, shard.decoded = {}, {}, {}, {}
    for name, parameter in found.items():
        _enter(homes.get(parameter.origin.ref.path, shards[0]), name, parameter.origin, wiring)
    _tell(shards, found, model.graph)
    found_ties = ties(wiring, table)
    shards[0].tied = {tie.head: tie.table for tie in found_ties if tie.is_tied}
    shards[0].observed = [
        *observe(wiring, table.names),
        *(one for tie in found_ties for one in tie.observed()),
    ]
    shards[0].nameless = shards[0].nameless or unusual(wiring)


def _is_name(key: str, file: str) -> bool:
    try:
        check_name(key, file)
    except FormatError:
        return False
    return True


def _enter(shard: Shard, name: str, held: Origin, wiring: Wiring) -> None:
    """Enter one weight: as it lies in the file, with its axes in another order, or as it is to be calculated."""
    ref = held.ref
    shard.tensors[name] = TensorInfo(held.shape, held.dtype)
    is_of_file = ref.path == shard.path and ref.packing == "plain"
    if is_of_file and held.scaled is None and held.view is None and held.dtype == ref.dtype:
        shard.offsets[name] = ref.start
        if held.order is not None:
            steps = _steps(ref.shape)
            shard.strides[name] = tuple(steps[axis] for axis in held.order)
        return
    shard.decoded[name] = partial(_calculated, held, wiring)
    if held.scaled:
        shard.packed[name] = ref.dtype, ref.end - ref.start


def _steps(shape: tuple[int, ...]) -> list[int]:
    """How far apart in memory the neighbours along each axis are, in elements."""
    steps = [1]
    for extent in shape[:0:-1]:
        steps.append(steps[-1] * extent)
    return steps[::-1]


def _calculated(held: Origin, wiring: Wiring, whole: memoryview) -> torch.Tensor:
    def tensor_of(key: str) -> torch.Tensor:
        ref = wiring.constant(key)
        if ref is None:
            raise FormatError(f"{key} is no constant any more")
        return ref.read()

    return held.read(tensor_of)


def _tell(shards: list[Shard], found: dict[str, Parameter], graph: Graph) -> None:
    """Note which names the graph gave, and what is left without one."""
    shard = shards[0]
    named = [key for key, one in found.items() if one.source]
    kept = {one.origin.key for one in found.values()}
    left = [key for key in graph.initialisers if key not in kept]
    shapes = {key: info.shape for one in shards for key, info in one.tensors.items()}
    notes = []
    if named:
        notes.append(
            f"{shard.name}: {len(named)} of {len(found)} weights have their names from the graph: {listed(named, 3)}"
        )
    if left:
        count = f"{len(left)} initialiser{'s' * (len(left) > 1)}"
        notes.append(
            f"{shard.name}: {count} of the graph's arithmetic, which no layer holds, were left out: {listed(left, 3)}"
        )
    shard.told = [*notes, *onnx_graph.notes_of_read(shard.name, shapes, shard.branches, is_made_up)]
    shard.nameless = onnx_graph.nameless(shapes, is_made_up)
    shard.empty = "" if shapes else shard.empty
