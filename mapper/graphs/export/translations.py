"""Operations of torch for which its exporter has no ONNX, written in ONNX's own."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch

LAST = -1
INT64 = 7  # of ONNX's types


@cache
def translations() -> dict[Any, Callable[..., Any]]:
    """What `torch.onnx.export` takes as its table; onnxscript is imported now."""
    from onnxscript import opset18

    op: Any = opset18  # whose types know less than the operators take

    def sort_stable(
        self: Any, stable: bool = False, dim: int = LAST, descending: bool = False
    ) -> tuple[Any, Any]:
        """TopK of all values: of equal ones the lower index comes first, whichever way they are sorted.

        https://onnx.ai/onnx/operators/onnx__TopK.html
        """
        axis = op.Constant(value_ints=[dim])
        size = op.Gather(op.Shape(self), axis)
        return op.TopK(self, size, axis=dim, largest=int(descending), sorted=1)

    def which_repeated(repeats: Any, output_size: Any = None) -> Any:
        """Each index as often as `repeats` (N,) says: of a place, how many indices end before it."""
        ends = op.CumSum(repeats, op.Constant(value_int=0))
        size = op.ReduceSum(repeats, keepdims=0)
        places = op.Range(op.Constant(value_int=0), size, op.Constant(value_int=1))
        axis = op.Constant(value_ints=[1])
        is_before = op.LessOrEqual(ends, op.Unsqueeze(places, axis))
        return op.ReduceSum(op.Cast(is_before, to=INT64), axis, keepdims=0)

    def repeated(self: Any, repeats: Any, dim: int | None = None, output_size: Any = None) -> Any:
        """Each row along `dim` as often as `repeats` (N,) says; of all values in a row without one."""
        if dim is None:
            self = op.Reshape(self, op.Constant(value_ints=[-1]))
        return op.Gather(self, which_repeated(repeats), axis=dim or 0)

    def solved_triangular(
        A: Any, B: Any, *, upper: bool, left: bool = True, unitriangular: bool = False
    ) -> Any:
        """X of A X = B, A = I + N with N below the diagonal: (I + N)^-1 = (I - N)(I + N^2)(I + N^4) ..., as N^size is 0."""
        if upper or not left or not unitriangular or not isinstance(A.shape[-1], int):
            raise ValueError("triangular systems other than A X = B, ones on A's diagonal, have no ONNX here")
        power = op.Neg(op.Trilu(A, op.Constant(value_int=-1), upper=0))
        for step in range((A.shape[-1] - 1).bit_length()):
            power = power if step == 0 else op.MatMul(power, power)
            B = op.Add(B, op.MatMul(power, B))
        return B

    aten = torch.ops.aten
    return {
        aten.linalg_solve_triangular.default: solved_triangular,
        aten.sort.stable: sort_stable,
        aten.repeat_interleave.Tensor: which_repeated,
        aten.repeat_interleave.self_Tensor: repeated,
    }
