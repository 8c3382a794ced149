"""How a tensor lies in memory: matrix products of one row differ in the last bit with the address of their weights.

Measured with torch 2.13 on a CPU with AVX-512: `nn.Linear(72, 10)` on one row gives other bits where its weight starts 8
bytes behind a multiple of 16. A model that is saved and loaded is to give the same bits, so its tensors are put where
they were, counted in cache lines, and with the strides they had.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

import torch

from mapper.weights.saving.headers import LINE as LINE


def residue(tensor: torch.Tensor) -> int:
    """Bytes from the cache line's start to the tensor's."""
    return tensor.data_ptr() % LINE if tensor.device.type == "cpu" and tensor.numel() else 0


def placements(tensors: Mapping[str, torch.Tensor]) -> dict[str, dict[str, Any]]:
    """What is to be known of the tensors that do not start a cache line in row order."""
    known = {}
    for name, tensor in tensors.items():
        entry: dict[str, Any] = {"residue": residue(tensor)} if residue(tensor) else {}
        if not tensor.is_contiguous() and _permutes(tensor.stride(), tensor):
            entry["strides"] = list(tensor.stride())
        if entry:
            known[name] = entry
    return known


def in_order(tensors: Mapping[str, torch.Tensor]) -> tuple[int, list[str]]:
    """(residue of the first byte, names): an order in which nearly all tensors lie as in memory without gaps between.

    Tensors of one mapped file follow each other as they did there; of others those come first that fill whole lines.
    """
    waiting: dict[int, deque[str]] = {}
    for name in sorted(tensors, key=lambda name: _rank(tensors[name])):
        waiting.setdefault(residue(tensors[name]), deque()).append(name)
    start = (
        min((tensor.data_ptr(), each) for each in waiting for tensor in [tensors[waiting[each][0]]])[1]
        if waiting
        else 0
    )
    order: list[str] = []
    position = start
    while waiting:
        here = position % LINE
        if here not in waiting:  # none fits; from the fewest, so that a run of neighbours stays together
            here = min(waiting, key=lambda each: len(waiting[each]))
        name = waiting[here].popleft()
        order.append(name)
        position += tensors[name].nbytes
        if not waiting[here]:
            del waiting[here]
    return start, order


def _rank(tensor: torch.Tensor) -> tuple[bool, int, int]:
    """Whole lines first, then wide types, then by address."""
    own = residue(tensor) == 0
    return (
        own and bool(tensor.nbytes % LINE),
        -tensor.itemsize if own else 0,
        tensor.data_ptr() if not own else 0,
    )


def laid_out(tensor: torch.Tensor, entry: Any) -> torch.Tensor:
    """`tensor` where its placement says: itself where it lies so already, else a copy."""
    entry = entry if isinstance(entry, dict) else {}
    wanted, strides = entry.get("residue", 0), entry.get("strides")
    if type(wanted) is not int or not 0 <= wanted < LINE:
        wanted = 0
    strides = strides if _permutes(strides, tensor) else tensor.stride()
    if not tensor.numel() or (residue(tensor) == wanted and tuple(strides) == tensor.stride()):
        return tensor
    room = torch.empty(tensor.nbytes + 2 * LINE, dtype=torch.uint8)
    begin = (wanted - room.data_ptr()) % LINE
    begin -= begin % tensor.itemsize  # a type must start at a multiple of its width
    flat = room[begin : begin + tensor.nbytes].view(tensor.dtype)
    return flat.as_strided(tensor.shape, tuple(strides), flat.storage_offset()).copy_(tensor)


def _permutes(strides: Any, tensor: torch.Tensor) -> bool:
    """Whether `strides` reach each element of the tensor's memory once."""
    if not isinstance(strides, (list, tuple)) or len(strides) != tensor.dim():
        return False
    if not all(type(step) is int and step > 0 for step in strides):
        return False
    expected = 1
    for step, extent in sorted(zip(strides, tensor.shape, strict=True)):
        if extent != 1 and step != expected:
            return False
        expected *= extent
    return True
