"""What bitsandbytes stores: whole rows in 8 bits (2208.07339), and blocks in 4 bits that name one of 16 numbers (2305.14314)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from mapper.checkpoint import Checkpoint, TensorInfo
from mapper.errors import FormatError, shorten
from mapper.sources.documents import parse
from mapper.sources.quantised.bits import unsigned
from mapper.sources.quantised.part import FLOATS, Part, fit, of_same

if TYPE_CHECKING:
    import torch

LARGEST = 127  # of a number of 8 bits: what the scale of a row stands for
STATE = ".quant_state.bitsandbytes__"
NUMBERS, CODES = 16, 256  # that 4 and 8 bits name
BYTE = "U8"
_STATE_BYTES = 4_096  # of a record of a few numbers
_BITS = 4


def eight_bits(checkpoint: Checkpoint) -> Iterator[Part]:
    """A row of whole numbers for each output, and the largest number of each row."""
    for name, info in checkpoint.tensors.items():
        if info.dtype != "I8" or len(info.shape) != 2 or not name.endswith("weight"):
            continue  # most files have none of the kind
        stem = name.removesuffix("weight")
        scale = of_same(checkpoint, stem, ("SCB",))
        if scale is None:
            continue
        form = of_same(checkpoint, stem, ("weight_format",)) or ()
        is_one = all(checkpoint.tensors[each].size == 1 for each in form)
        if is_one and fit(checkpoint, (scale[0], FLOATS, info.shape[:1])):
            how = "weights of 8 bits (bitsandbytes) are multiplied by their scales"
            yield Part(name, info.shape, (name, *scale), _of_rows, how, form)


def _of_rows(weight: torch.Tensor, scale: torch.Tensor, *form: torch.Tensor) -> torch.Tensor:
    if any(int(each) for each in form):
        raise FormatError("weights of bitsandbytes: their format is not that of rows; save them again")
    return weight.float() * (scale.float() / LARGEST).unsqueeze(1)


class _State(NamedTuple):
    """What the record beside a weight of 4 bits says."""

    shape: tuple[int, ...]
    block: int  # numbers that share a scale
    nested: int  # scales that share one; 0: they stand as they are
    offset: float  # of scales that share one


def four_bits(checkpoint: Checkpoint) -> Iterator[Part]:
    """Bytes of two numbers each, the high bits first; their shape is in a record, so that the file itself must be at hand."""
    records = [name for name, info in checkpoint.tensors.items() if _is_record(info) and STATE in name]
    if not records or checkpoint.read is None:
        return
    texts = checkpoint.read(records)
    for record in records:
        name = record.partition(STATE)[0]
        stored = of_same(checkpoint, name, ("", ".absmax", ".quant_map"))
        state = _state(record, bytes(texts[record].tolist()))
        nested = of_same(checkpoint, name, (".nested_absmax", ".nested_quant_map")) if state.nested else ()
        if stored is not None and nested is not None and _fits(checkpoint, state, stored, nested):
            how = "weights of 4 bits (bitsandbytes) are looked up"
            yield Part(name, state.shape, (*stored, *nested), _of_blocks(state), how, (record,))


def _is_record(info: TensorInfo) -> bool:
    return info.dtype == "U8" and len(info.shape) == 1 and info.size <= _STATE_BYTES


def _fits(checkpoint: Checkpoint, state: _State, stored: tuple[str, ...], nested: tuple[str, ...]) -> bool:
    """Whether bytes, scales and tables are as many as the record says."""
    weight, scale, table = stored
    size = math.prod(state.shape)
    scales = -(-size // state.block)
    expected = [(scale, (BYTE,) if nested else FLOATS, (scales,)), (table, FLOATS, (NUMBERS,))]
    if nested:
        outer = (-(-scales // state.nested),)
        expected += [(nested[0], FLOATS, outer), (nested[1], FLOATS, (CODES,))]
    found = checkpoint.tensors[weight]
    return found.dtype == BYTE and found.size == -(-size // 2) and fit(checkpoint, *expected)


def _state(record: str, text: bytes) -> _State:
    """What a record says. Raises FormatError where it is not as bitsandbytes writes it."""
    said = parse(text, record)
    shape, nested, offset = said.get("shape"), said.get("nested_blocksize", 0), said.get("nested_offset", 0.0)
    sizes = (*shape, said.get("blocksize"), nested or 1) if isinstance(shape, list) else (None,)
    if not all(map(_is_size, sizes)) or type(offset) not in (int, float):
        raise FormatError(f"{shorten(record)}: no record of a weight in 4 bits")
    return _State(sizes[:-2], sizes[-2], nested, float(offset))


def _is_size(value: Any) -> bool:
    return type(value) is int and value > 0


def _of_blocks(state: _State) -> Callable[..., torch.Tensor]:
    def compute(weight: torch.Tensor, scale: torch.Tensor, numbers: torch.Tensor, *more: Any) -> torch.Tensor:
        found = unsigned(weight.flatten(), _BITS).unflatten(0, (-1, 2)).flip(1).flatten()
        size = math.prod(state.shape)
        plain = numbers.float()[found[:size].long()]
        if state.nested:
            outer, table = more[0].float(), more[1].float()
            scale = table[scale.long()] * _spread(outer, state.nested, scale.numel()) + state.offset
        return (plain * _spread(scale.float(), state.block, size)).view(state.shape)

    return compute


def _spread(scale: torch.Tensor, block: int, size: int) -> torch.Tensor:
    """The scale of each of `size` numbers, one for each block of them."""
    return scale.repeat_interleave(block)[:size]
