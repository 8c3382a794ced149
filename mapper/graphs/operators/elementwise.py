"""One number at a time: arithmetic, comparison, activations. https://onnx.ai/onnx/operators/"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from mapper.graphs.operators import operator
from mapper.graphs.operators.common import beside, wide


@operator("Add", since=7)
def add(a: Tensor, b: Tensor) -> Tensor:
    return (wide(a) + wide(b)).to(a.dtype)


@operator("Add", until=6)
def add_1(
    a: Tensor, b: Tensor, *, broadcast: int = 0, axis: int | None = None, consumed_inputs: Any = None
) -> Tensor:
    return a + beside(a, b, broadcast, axis)


@operator("Sub", since=7)
def sub(a: Tensor, b: Tensor) -> Tensor:
    return (wide(a) - wide(b)).to(a.dtype)


@operator("Sub", until=6)
def sub_1(
    a: Tensor, b: Tensor, *, broadcast: int = 0, axis: int | None = None, consumed_inputs: Any = None
) -> Tensor:
    return a - beside(a, b, broadcast, axis)


@operator("Mul", since=7)
def mul(a: Tensor, b: Tensor) -> Tensor:
    return (wide(a) * wide(b)).to(a.dtype)


@operator("Mul", until=6)
def mul_1(
    a: Tensor, b: Tensor, *, broadcast: int = 0, axis: int | None = None, consumed_inputs: Any = None
) -> Tensor:
    return a * beside(a, b, broadcast, axis)


@operator("Div", since=7)
def div(a: Tensor, b: Tensor) -> Tensor:
    """A quotient; of whole numbers without its fraction."""
    if a.is_floating_point() or a.is_complex():
        return a / b
    return torch.div(wide(a), wide(b), rounding_mode="trunc").to(a.dtype)


@operator("Div", until=6)
def div_1(
    a: Tensor, b: Tensor, *, broadcast: int = 0, axis: int | None = None, consumed_inputs: Any = None
) -> Tensor:
    return div(a, beside(a, b, broadcast, axis))


@operator("Pow", since=7)
def pow_(a: Tensor, b: Tensor) -> Tensor:
    return torch.pow(wide(a), wide(b)).to(a.dtype)


@operator("Pow", until=6)
def pow_1(a: Tensor, b: Tensor, *, broadcast: int = 0, axis: int | None = None) -> Tensor:
    return torch.pow(a, beside(a, b, broadcast, axis))


@operator("Mod", since=10)
def mod(a: Tensor, b: Tensor, *, fmod: int = 0) -> Tensor:
    """The remainder, with the divisor's sign, or with `fmod` the dividend's."""
    found = torch.fmod(wide(a), wide(b)) if fmod else torch.remainder(wide(a), wide(b))
    return found.to(a.dtype)


@operator("Equal", since=7)
def equal(a: Tensor, b: Tensor) -> Tensor:
    return a == b


@operator("Equal", until=6)
def equal_1(a: Tensor, b: Tensor, *, broadcast: int = 0, axis: int | None = None) -> Tensor:
    return a == beside(a, b, broadcast, axis)


@operator("Less", since=7)
def less(a: Tensor, b: Tensor) -> Tensor:
    return wide(a) < wide(b)


@operator("Greater", since=7)
def greater(a: Tensor, b: Tensor) -> Tensor:
    return wide(a) > wide(b)


@operator("LessOrEqual", since=12)
def less_or_equal(a: Tensor, b: Tensor) -> Tensor:
    return wide(a) <= wide(b)


@operator("GreaterOrEqual", since=12)
def greater_or_equal(a: Tensor, b: Tensor) -> Tensor:
    return wide(a) >= wide(b)


@operator("And", since=7)
def and_(a: Tensor, b: Tensor) -> Tensor:
    return a & b


@operator("Or", since=7)
def or_(a: Tensor, b: Tensor) -> Tensor:
    return a | b


@operator("Xor", since=7)
def xor(a: Tensor, b: Tensor) -> Tensor:
    return a ^ b


@operator("Not")
def not_(x: Tensor) -> Tensor:
    return ~x


@operator("BitwiseAnd", since=18)
def bitwise_and(a: Tensor, b: Tensor) -> Tensor:
    return (wide(a) & wide(b)).to(a.dtype)


@operator("BitwiseOr", since=18)
def bitwise_or(a: Tensor, b: Tensor) -> Tensor:
    return (wide(a) | wide(b)).to(a.dtype)


@operator("BitwiseXor", since=18)
def bitwise_xor(a: Tensor, b: Tensor) -> Tensor:
    return (wide(a) ^ wide(b)).to(a.dtype)


@operator("BitwiseNot", since=18)
def bitwise_not(x: Tensor) -> Tensor:
    return (~wide(x)).to(x.dtype)


@operator("BitShift", since=11)
def bit_shift(a: Tensor, b: Tensor, *, direction: str) -> Tensor:
    left, right = wide(a), wide(b)
    return (left << right if direction == "LEFT" else left >> right).to(a.dtype)


@operator("Max")
def max_(*xs: Tensor) -> Tensor:
    found = wide(xs[0])
    for x in xs[1:]:
        found = torch.maximum(found, wide(x))
    return found.to(xs[0].dtype)


@operator("Min")
def min_(*xs: Tensor) -> Tensor:
    found = wide(xs[0])
    for x in xs[1:]:
        found = torch.minimum(found, wide(x))
    return found.to(xs[0].dtype)


@operator("Sum")
def sum_(*xs: Tensor) -> Tensor:
    found = xs[0]
    for x in xs[1:]:
        found = found + x
    return found


@operator("Mean")
def mean(*xs: Tensor) -> Tensor:
    return sum_(*xs) / len(xs)


@operator("Clip", since=11)
def clip(x: Tensor, low: Tensor | None = None, high: Tensor | None = None) -> Tensor:
    found = wide(x)
    if low is not None:
        found = torch.maximum(found, wide(low))
    if high is not None:
        found = torch.minimum(found, wide(high))
    return found.to(x.dtype)


@operator("Clip", until=10)
def clip_1(
    x: Tensor,
    *,
    max: float = 3.4028234663852886e38,
    min: float = -3.4028234663852886e38,
    consumed_inputs: Any = None,
) -> Tensor:
    return x.clamp(min, max)


@operator("Abs")
def abs_(x: Tensor) -> Tensor:
    return x if x.dtype in (torch.uint16, torch.uint32, torch.uint64) else x.abs()


@operator("Sign", since=9)
def sign(x: Tensor) -> Tensor:
    return torch.where(x.isnan(), x, x.sign()) if x.is_floating_point() else wide(x).sign().to(x.dtype)


@operator("Round", since=11)
def round_(x: Tensor) -> Tensor:
    return x.round()


@operator("IsNaN", since=9)
def is_nan(x: Tensor) -> Tensor:
    return x.isnan()


@operator("IsInf", since=10)
def is_inf(x: Tensor, *, detect_negative: int = 1, detect_positive: int = 1) -> Tensor:
    found = torch.zeros_like(x, dtype=torch.bool)
    if detect_positive:
        found = found | torch.isposinf(x)
    if detect_negative:
        found = found | torch.isneginf(x)
    return found


@operator("Where", since=9)
def where(condition: Tensor, a: Tensor, b: Tensor) -> Tensor:
    return torch.where(condition, a, b)


@operator("Softmax", since=13)
def softmax(x: Tensor, *, axis: int = -1) -> Tensor:
    return x.softmax(axis)


@operator("LogSoftmax", since=13)
def log_softmax(x: Tensor, *, axis: int = -1) -> Tensor:
    return x.log_softmax(axis)


@operator("Hardmax", since=13)
def hardmax(x: Tensor, *, axis: int = -1) -> Tensor:
    """1 at the first of the largest numbers, else 0."""
    return F.one_hot(x.argmax(axis), x.shape[axis]).movedim(-1, axis).to(x.dtype)


@operator("Softmax", until=12)
def softmax_1(x: Tensor, *, axis: int = 1) -> Tensor:
    """Over all axes from `axis` on, as before version 13."""
    return x.flatten(axis).softmax(-1).view(x.shape) if axis else x.flatten().softmax(-1).view(x.shape)


@operator("LogSoftmax", until=12)
def log_softmax_1(x: Tensor, *, axis: int = 1) -> Tensor:
    return x.flatten(axis).log_softmax(-1).view(x.shape)


@operator("Hardmax", until=12)
def hardmax_1(x: Tensor, *, axis: int = 1) -> Tensor:
    return hardmax(x.flatten(axis)).view(x.shape)


@operator("PRelu", since=7)
def prelu(x: Tensor, slope: Tensor) -> Tensor:
    return torch.where(x < 0, x * slope, x)


@operator("PRelu", until=6)
def prelu_1(x: Tensor, slope: Tensor, *, consumed_inputs: Any = None) -> Tensor:
    per_channel = slope.dim() == 1 and slope.shape[0] > 1
    return torch.where(x < 0, x * (slope.view(-1, *(1,) * (x.dim() - 2)) if per_channel else slope), x)


@operator("LeakyRelu")
def leaky_relu(x: Tensor, *, alpha: float = 0.01) -> Tensor:
    return F.leaky_relu(x, alpha)


@operator("ThresholdedRelu", since=10)
def thresholded_relu(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    return torch.where(x > alpha, x, torch.zeros_like(x))


@operator("Elu")
def elu(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    return F.elu(x, alpha)


@operator("Celu", since=12)
def celu(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    return F.celu(x, alpha)


@operator("Selu")
def selu(x: Tensor, *, alpha: float = 1.6732632423543772, gamma: float = 1.0507009873554805) -> Tensor:
    return gamma * torch.where(x > 0, x, alpha * torch.expm1(x))


@operator("Gelu", since=20)
def gelu(x: Tensor, *, approximate: str = "none") -> Tensor:
    return F.gelu(x) if approximate == "none" else F.gelu(x, approximate=approximate)


@operator("HardSigmoid")
def hard_sigmoid(x: Tensor, *, alpha: float = 0.2, beta: float = 0.5) -> Tensor:
    return (alpha * x + beta).clamp(0, 1)


@operator("HardSwish", since=14)
def hard_swish(x: Tensor) -> Tensor:
    return x * (x / 6 + 0.5).clamp(0, 1)


@operator("Swish", since=24)
def swish(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    return x * torch.sigmoid(alpha * x)


@operator("Softplus")
def softplus(x: Tensor) -> Tensor:
    return torch.logaddexp(x, torch.zeros_like(x))


@operator("Shrink", since=9)
def shrink(x: Tensor, *, bias: float = 0.0, lambd: float = 0.5) -> Tensor:
    zero = torch.zeros_like(x)
    return torch.where(x < -lambd, x + bias, torch.where(x > lambd, x - bias, zero)).to(x.dtype)


@operator("Mish", since=18)
def mish(x: Tensor) -> Tensor:
    return F.mish(x)


@operator("Identity")
def identity(x: Any) -> Any:
    return x


@operator("Relu")
def relu(x: Tensor) -> Tensor:
    return F.relu(x)


@operator("Tanh")
def tanh(x: Tensor) -> Tensor:
    return x.tanh()


@operator("Sigmoid")
def sigmoid(x: Tensor) -> Tensor:
    return x.sigmoid()


@operator("Softsign")
def softsign(x: Tensor) -> Tensor:
    return F.softsign(x)


@operator("Reciprocal")
def reciprocal(x: Tensor) -> Tensor:
    return x.reciprocal()


@operator("Sqrt", since=1)
def sqrt(x: Tensor) -> Tensor:
    return x.sqrt()


@operator("Exp", since=1)
def exp(x: Tensor) -> Tensor:
    return x.exp()


@operator("Log", since=1)
def log(x: Tensor) -> Tensor:
    return x.log()


@operator("Neg", since=1)
def neg(x: Tensor) -> Tensor:
    return x.neg()


@operator("Ceil", since=1)
def ceil(x: Tensor) -> Tensor:
    return x.ceil()


@operator("Floor", since=1)
def floor(x: Tensor) -> Tensor:
    return x.floor()


@operator("Erf", since=9)
def erf(x: Tensor) -> Tensor:
    return x.erf()


@operator("Sin", since=7)
def sin(x: Tensor) -> Tensor:
    return x.sin()


@operator("Cos", since=7)
def cos(x: Tensor) -> Tensor:
    return x.cos()


@operator("Tan", since=7)
def tan(x: Tensor) -> Tensor:
    return x.tan()


@operator("Asin", since=7)
def asin(x: Tensor) -> Tensor:
    return x.asin()


@operator("Acos", since=7)
def acos(x: Tensor) -> Tensor:
    return x.acos()


@operator("Atan", since=7)
def atan(x: Tensor) -> Tensor:
    return x.atan()


@operator("Sinh", since=9)
def sinh(x: Tensor) -> Tensor:
    return x.sinh()


@operator("Cosh", since=9)
def cosh(x: Tensor) -> Tensor:
    return x.cosh()


@operator("Asinh", since=9)
def asinh(x: Tensor) -> Tensor:
    return x.asinh()


@operator("Acosh", since=9)
def acosh(x: Tensor) -> Tensor:
    return x.acosh()


@operator("Atanh", since=9)
def atanh(x: Tensor) -> Tensor:
    return x.atanh()
