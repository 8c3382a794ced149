"""Which dtype may become which, with NumPy's words for it, and whether values survive."""

from __future__ import annotations

import torch

PIECE = 2**20  # numbers looked at together
CASTING = ("no", "safe", "same_kind", "unsafe")
PAIRS = getattr(torch, "float4_e2m1fn_x2", None)  # two numbers in one element: nothing else can become it
EPS = {torch.float8_e5m2fnuz: 0.25}  # it has two bits of mantissa; torch 2.13 says 0.125


def kind(dtype: torch.dtype) -> str:
    """bool, integer, float or complex; pairs of four-bit floats are a kind of their own."""
    if dtype == PAIRS:
        return "pairs"
    if dtype == torch.bool:
        return "bool"
    if dtype.is_complex:
        return "complex"
    return "float" if dtype.is_floating_point else "integer"


def allowed(source: torch.dtype, target: torch.dtype, casting: str) -> bool:
    """Whether values of `source` may be written into `target`; `overflows` may still object under "same_kind"."""
    if source == target or casting == "unsafe":
        return True
    if casting == "no" or kind(source) != kind(target):
        return False
    return casting == "same_kind" or is_wider(target, source)


def is_wider(target: torch.dtype, source: torch.dtype) -> bool:
    """Whether every value of `source` is one of `target`, which is of the same kind."""
    if source == target:
        return True
    if kind(source) == "integer":
        low, high = torch.iinfo(source), torch.iinfo(target)
        return high.min <= low.min and low.max <= high.max
    small, big = torch.finfo(source), torch.finfo(target)
    coarse, fine = EPS.get(source, small.eps), EPS.get(target, big.eps)
    finest = small.tiny * coarse >= big.tiny * fine  # the least number above zero
    return small.max <= big.max and coarse >= fine and finest


def name(dtype: torch.dtype) -> str:
    """As people write it: float32."""
    return str(dtype).removeprefix("torch.")


def overflows(source: torch.Tensor, target: torch.dtype) -> bool:
    """Whether a finite value would become infinite, NaN or clipped, or an integer another one. Reads the data."""
    if is_wider(target, source.dtype) or source.numel() == 0:
        return False
    return any(_overflows(piece, target) for piece in _pieces(source))


def _pieces(tensor: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Views of a tensor whose checks need little memory: they make several temporary tensors of its size."""
    if tensor.numel() <= PIECE:
        return (tensor,)
    longest = max(range(tensor.dim()), key=tensor.shape.__getitem__)
    return tensor.split(max(1, PIECE * tensor.shape[longest] // tensor.numel()), longest)


def _overflows(source: torch.Tensor, target: torch.dtype) -> bool:
    if kind(target) == "integer":
        return _changed(source, source.to(target))
    finite = torch.isfinite(wide(source))
    cast = source.to(target)
    if bool((finite & ~torch.isfinite(wide(cast))).any()):
        return True
    return kind(target) == "float" and target.itemsize == 1 and _clipped(source, cast)


def from_number(number: int | float, dtype: torch.dtype, checked: bool) -> torch.Tensor | None:
    """A 0-d tensor of a Python number; None where it is too large for `dtype` (`checked`: also for a float)."""
    try:
        if kind(dtype) == "integer":
            limits = torch.iinfo(dtype)
            return torch.tensor(int(number), dtype=dtype) if limits.min <= number <= limits.max else None
        exact = torch.tensor(float(number), dtype=torch.complex128 if dtype.is_complex else torch.float64)
    except (OverflowError, ValueError):  # an int beyond any float; infinity or NaN as an int
        return None
    return None if checked and overflows(exact, dtype) else exact.to(dtype)


def wide(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor that can be calculated with: torch does nothing in eight-bit floats, little in half complex numbers."""
    if tensor.dtype == PAIRS:
        return tensor.view(torch.uint8)
    if tensor.dtype == torch.complex32:
        return tensor.to(torch.complex64)
    return tensor.float() if tensor.is_floating_point() and tensor.dtype.itemsize == 1 else tensor


def _clipped(source: torch.Tensor, cast: torch.Tensor) -> bool:
    """Whether a value beyond the largest one became that: eight-bit floats saturate instead of overflowing."""
    limit = torch.finfo(cast.dtype)
    values = wide(source)
    return bool(((values.abs() * (1 - limit.eps) > limit.max) & torch.isfinite(values)).any())


def _changed(source: torch.Tensor, cast: torch.Tensor) -> bool:
    """Whether an integer changed: it does not come back, or its highest bit has become a sign or stopped being one."""
    signed = [tensor for tensor in (source, cast) if torch.iinfo(tensor.dtype).min < 0]
    sign_lost = len(signed) == 1 and bool((signed[0] < 0).any())
    return sign_lost or not torch.equal(_bits(cast.to(source.dtype)), _bits(source))


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    """Equal bits are equal integers of one type; torch compares no uint64 itself."""
    return tensor.reshape(-1).contiguous().view(torch.uint8)
