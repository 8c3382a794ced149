"""The writing of a checked plan: into the tensors that are there, or new ones in their places; undone if a copy fails."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from mapper.weights.loading.flat_table import Held, Stored
from mapper.weights.loading.pairing import Plan, Write
from mapper.weights.modules import State, is_unshaped

SPARE_BYTES = 16_000_000  # old values kept for undoing what cannot fail but for a broken tensor class
UNCOPIED = (getattr(torch, "float4_e2m1fn_x2", None),)  # types whose elements torch moves as bytes alone


def write(plan: Plan, assign: bool, device: Any) -> None:
    """Do what the plan says. Extra memory is that of the largest tensor, and of sources that overlap the model."""
    _part_from_model(plan.writes)
    for each in plan.writes:
        if isinstance(each.value, Stored) and each.value.packed:
            each.value.tensor()  # its checksum must be right before anything is written
    undo = _Undo(plan.writes)
    used: set[int] = set()
    try:
        with torch.no_grad():
            for each in sorted(plan.writes, key=_is_safe):  # what may fail comes first: it can be undone
                _write(each, assign, device, undo, used)
            for state in plan.uncounted:
                if state.tensor is not None and state.tensor.is_meta:
                    undo.places(state)
                    put(state, torch.zeros((), dtype=state.tensor.dtype, device=device or "cpu"))
    except BaseException:
        undo.run()
        raise


def _write(each: Write, assign: bool, device: Any, undo: _Undo, used: set[int]) -> None:
    state, target = each.state, each.state.tensor
    assert target is not None
    value = each.value if isinstance(each.value, int) else each.value.tensor()
    if assign and isinstance(value, torch.Tensor):
        undo.places(state)
        put(state, _taken(each, value, used))
    elif is_unshaped(target) and isinstance(value, torch.Tensor):
        undo.shape(target)
        target.materialize(value.shape, device=_where(target, value, device))  # type: ignore[attr-defined]
        target.copy_(value)
    elif target.is_meta:
        undo.places(state)
        put(state, _made(target, value, device))
    else:
        undo.values(each)
        if isinstance(value, int):
            target.fill_(value)
        else:
            _copy(target, value)


def _copy(target: torch.Tensor, value: torch.Tensor) -> None:
    if value.is_complex() and not target.is_complex():
        value = value.real  # asked for by casting="unsafe"; torch would warn
    if target.dtype in UNCOPIED and value.dtype == target.dtype:
        target, value = target.view(torch.uint8), value.view(torch.uint8)
    target.copy_(value)


def _taken(each: Write, value: torch.Tensor, used: set[int]) -> torch.Tensor:
    """The source's own tensor: memory of NumPy or of a file is not shared, nor one tensor by two parameters.

    A parameter over a mapped file would kill the process once somebody cuts that file short to write it anew.
    """
    leaf = each.value
    lent = isinstance(leaf, Held) and isinstance(leaf.value, torch.Tensor)
    again = id(leaf) in used
    used.add(id(leaf))
    if lent and not again and not value.is_inference():
        return value
    with torch.inference_mode(False):  # a tensor made for inference cannot be trained, a copy can
        return value.clone()


def _made(target: torch.Tensor, value: torch.Tensor | int, device: Any) -> torch.Tensor:
    """A real tensor in place of one on meta: the model's dtype, on `device` or where the source is."""
    with torch.inference_mode(False), torch.no_grad():  # else it could never be trained
        if isinstance(value, int):  # of either the memory format is the model's
            return torch.empty_like(target, device=device or "cpu").fill_(value)
        return torch.empty_like(target, device=_where(target, value, device)).copy_(value)


def _where(target: torch.Tensor, value: torch.Tensor, device: Any) -> Any:
    return (device or value.device) if target.is_meta else target.device


def put(state: State, tensor: torch.Tensor, requires_grad: bool | None = None) -> None:
    """`tensor` in every place of a state, as a parameter where it was one, which had `requires_grad` unless given."""
    old = state.tensor
    new = tensor
    if state.is_param and old is not None:
        with torch.inference_mode(False):  # else it could never be trained
            wanted = old.requires_grad if requires_grad is None else requires_grad
            new = nn.Parameter(tensor, requires_grad=wanted)
        new.__dict__.update(old.__dict__)
    _place(state, new)


def _place(state: State, tensor: Any) -> None:
    for module, name in state.places:
        if name in module._buffers:  # also a parameter that is a buffer elsewhere
            module._buffers[name] = tensor
        else:
            setattr(
                module, name, tensor
            )  # as torch does: recurrent modules keep a list of their weights beside


def _is_safe(each: Write) -> bool:
    """Whether its copy cannot fail: dense memory of torch's own classes, on the CPU on both sides."""
    target = each.state.tensor
    source = each.value.value if isinstance(each.value, Held) else None
    plain = source is None or type(source) in (torch.Tensor, nn.Parameter)
    dense = target is not None and not is_unshaped(target) and not any(
        step == 0 and extent > 1 for step, extent in zip(target.stride(), target.shape, strict=True)
    )  # fmt: skip
    return plain and dense and target is not None and target.device.type == "cpu" and _on_cpu(source)


def _on_cpu(source: Any) -> bool:
    return source is None or source.device.type == "cpu"


class _Undo:
    """What to put back if a copy fails: all of what may fail, and as much of the rest as takes little memory."""

    def __init__(self, writes: Iterable[Write]) -> None:
        self.spare = SPARE_BYTES
        self.old: list[tuple[torch.Tensor, torch.Tensor]] = []
        self.held: list[tuple[State, torch.Tensor | None]] = []
        self.unshaped: list[tuple[torch.Tensor, type]] = []

    def places(self, state: State) -> None:
        """Before another object takes the places of a state."""
        self.held.append((state, state.tensor))

    def shape(self, target: torch.Tensor) -> None:
        """Before a parameter of a lazy module gets its shape."""
        self.unshaped.append((target, type(target)))

    def values(self, each: Write) -> None:
        """Before a tensor is written into."""
        target = each.state.tensor
        assert target is not None
        safe = _is_safe(each)
        if safe and target.nbytes > self.spare:
            return
        self.spare -= target.nbytes if safe else 0
        self.old.append((target, target.detach().to("cpu", copy=True)))

    def run(self) -> None:
        with torch.no_grad():
            for target, value in reversed(self.old):
                torch.Tensor.copy_(target, value)
        for target, unshaped in self.unshaped:
            target.data = torch.empty(0, device=target.device, dtype=target.dtype)
            target.__class__ = unshaped
        for state, tensor in reversed(self.held):
            _place(state, tensor)


def _part_from_model(writes: list[Write]) -> None:
    """Copies of the sources that share memory with a tensor other than the one they are written into."""
    spans = sorted(
        (start, end, id(each.state)) for each in writes for start, end in [_span(each.state.tensor)]
    )
    spans = [span for span in spans if span[0] < span[1]]
    reach: list[int] = []  # the furthest end of all spans up to each one
    for _, end, _ in spans:
        reach.append(max(end, reach[-1]) if reach else end)
    for each in writes:
        if isinstance(each.value, Held) and _overlaps(each, spans, reach):
            each.value = Held(each.value.tensor().clone())


def _overlaps(each: Write, spans: list[tuple[int, int, int]], reach: list[int]) -> bool:
    from bisect import bisect_left

    assert isinstance(each.value, Held)
    source, target = each.value.tensor(), each.state.tensor
    start, end = _span(source)
    position = bisect_left(spans, (end,)) - 1
    while position >= 0 and reach[position] > start:
        if spans[position][1] > start and not (
            spans[position][2] == id(each.state) and _is_view(source, target)
        ):
            return True
        position -= 1
    return False


def _is_view(source: torch.Tensor, target: torch.Tensor | None) -> bool:
    """Whether both are the same elements in the same order."""
    return target is not None and (source.data_ptr(), source.stride(), source.dtype, source.shape) == (
        target.data_ptr(), target.stride(), target.dtype, target.shape,
    )  # fmt: skip


def _span(tensor: torch.Tensor | None) -> tuple[int, int]:
    """The addresses from the first to behind the last element; (0, 0) for what has none."""
    if (
        tensor is None
        or is_unshaped(tensor)
        or tensor.is_meta
        or not tensor.numel()
        or tensor.layout != torch.strided
    ):
        return 0, 0
    reach = sum((extent - 1) * step for extent, step in zip(tensor.shape, tensor.stride(), strict=True))
    start = tensor.data_ptr()
    return start, start + (reach + 1) * tensor.element_size()
