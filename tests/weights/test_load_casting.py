"""Which dtype fits into which, under each rule of casting."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import mapper
from tests.weights.snapshots import Holder, bits, refused

WIDER = [  # from, to: every value of the first is one of the second
    ("float16", "float32"),
    ("float16", "float64"),
    ("bfloat16", "float32"),
    ("bfloat16", "float64"),
    ("float32", "float64"),
    ("float8_e4m3fn", "float16"),
    ("float8_e4m3fn", "bfloat16"),
    ("float8_e4m3fn", "float32"),
    ("float8_e5m2", "float16"),
    ("float8_e5m2", "float32"),
    ("int8", "int16"),
    ("int8", "int64"),
    ("int16", "int32"),
    ("int32", "int64"),
    ("uint8", "int16"),
    ("uint8", "int64"),
    ("uint8", "uint16"),
    ("uint32", "int64"),
    ("complex64", "complex128"),
]
NARROWER = [
    *((to, start) for start, to in WIDER),
    ("float16", "bfloat16"),
    ("bfloat16", "float16"),
    ("uint8", "int8"),
    ("int8", "uint8"),
    ("int64", "uint64"),
]
KINDS = {
    "bool": ["bool"],
    "integer": ["uint8", "int32", "int64"],
    "float": ["float8_e4m3fn", "float16", "bfloat16", "float32", "float64"],
    "complex": ["complex64", "complex128"],
}
OTHER = [
    (start, to) for one, two in itertools.permutations(KINDS, 2) for start in KINDS[one] for to in KINDS[two]
]
ALL = sorted({name for pair in WIDER for name in pair} | {"bool"})


def tensor(dtype: str, values: Any = (0, 1, 1)) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float32).to(getattr(torch, dtype))


def holder(dtype: str) -> Holder:
    return Holder(w=tensor(dtype, (1, 0, 0)))


@pytest.mark.parametrize("casting", ["no", "safe", "same_kind", "unsafe"])
@pytest.mark.parametrize("dtype", ALL)
def test_the_same_dtype_always_fits(dtype: str, casting: str) -> None:
    model = holder(dtype)
    report = mapper.load_weights(model, {"w": tensor(dtype)}, casting=casting)
    assert bits(model.w) == bits(tensor(dtype)) and report.cast == []


@pytest.mark.parametrize("casting", ["safe", "same_kind", "unsafe"])
@pytest.mark.parametrize(("start", "to"), WIDER)
def test_a_wider_dtype_of_the_same_kind_takes_it(start: str, to: str, casting: str) -> None:
    model = holder(to)
    mapper.load_weights(model, {"w": tensor(start)}, casting=casting)
    assert bits(model.w) == bits(tensor(to))


@pytest.mark.parametrize("casting", ["same_kind", "unsafe"])
@pytest.mark.parametrize(("start", "to"), NARROWER)
def test_a_narrower_dtype_of_the_same_kind_takes_what_fits(start: str, to: str, casting: str) -> None:
    model = holder(to)
    mapper.load_weights(model, {"w": tensor(start)}, casting=casting)
    assert bits(model.w) == bits(tensor(to))


@pytest.mark.parametrize(("start", "to"), NARROWER)
def test_safe_casting_refuses_a_narrower_dtype(start: str, to: str) -> None:
    model = holder(to)
    with refused(model) as caught:
        mapper.load_weights(model, {"w": tensor(start)}, casting="safe")
    assert caught.kinds == {"w": "dtype"}


@pytest.mark.parametrize(("start", "to"), WIDER + NARROWER)
def test_no_casting_refuses_every_other_dtype(start: str, to: str) -> None:
    model = holder(to)
    with refused(model) as caught:
        mapper.load_weights(model, {"w": tensor(start)}, casting="no")
    assert caught.kinds == {"w": "dtype"}


@pytest.mark.parametrize("casting", ["no", "safe", "same_kind"])
@pytest.mark.parametrize(("start", "to"), OTHER)
def test_another_kind_is_refused(start: str, to: str, casting: str) -> None:
    model = holder(to)
    with refused(model) as caught:
        mapper.load_weights(model, {"w": tensor(start)}, casting=casting)
    assert caught.kinds == {"w": "dtype"}


@pytest.mark.filterwarnings("ignore:Casting complex values")
@pytest.mark.parametrize(("start", "to"), OTHER)
def test_unsafe_casting_takes_another_kind(start: str, to: str) -> None:
    model = holder(to)
    assert mapper.load_weights(model, {"w": tensor(start)}, casting="unsafe").loaded == ["w"]
    assert bits(model.w) == bits(tensor(to))


def test_same_kind_is_the_default() -> None:
    model = holder("float16")
    assert mapper.load_weights(model, {"w": tensor("float64")}).ok
    with refused(model):
        mapper.load_weights(model, {"w": tensor("int64")})


def test_the_models_dtype_stays() -> None:
    model = nn.Linear(2, 1).half()
    mapper.load_weights(model, {"weight": torch.ones(1, 2), "bias": torch.ones(1).double()})
    assert model.weight.dtype == model.bias.dtype == torch.float16


def test_a_float_becomes_no_integer_by_default() -> None:
    model = Holder(count=torch.tensor(2))
    with refused(model) as caught:
        mapper.load_weights(model, {"count": torch.tensor(2.9)})
    assert caught.kinds == {"count": "dtype"}


# overflow


@pytest.mark.parametrize(
    ("start", "to", "value"),
    [
        ("float32", "float16", 1e6),
        ("float32", "float16", -1e6),
        ("float32", "float16", 65520.0),
        ("bfloat16", "float16", 1e30),
        ("float64", "float32", 1e300),
        ("float64", "bfloat16", 1e300),
        ("float32", "bfloat16", 3.4e38),
        ("float32", "float8_e5m2", 1e6),
        ("complex128", "complex64", 1e300),
        ("complex128", "complex64", 1e300j),
        ("int64", "int32", 2**31),
        ("int64", "int8", 128),
        ("int16", "uint8", -1),
        ("int8", "uint8", -1),
        ("uint8", "int8", 200),
        ("int64", "uint64", -1),
        ("int64", "int32", -(2**31) - 1),
    ],
)
def test_a_value_that_does_not_fit_is_an_overflow(start: str, to: str, value: Any) -> None:
    model = Holder(w=torch.zeros(2).to(getattr(torch, to)))
    wide = {int: torch.int64, float: torch.float64, complex: torch.complex128}[type(value)]
    source = torch.tensor([0, value], dtype=wide)
    with refused(model) as caught:
        mapper.load_weights(model, {"w": source.to(getattr(torch, start))})
    assert caught.kinds == {"w": "overflow"}


@pytest.mark.parametrize(
    ("start", "to", "value"),
    [
        ("float32", "float16", 65519.0),
        ("float32", "float16", 1e-30),
        ("float64", "float32", 0.1),
        ("int64", "int32", 2**31 - 1),
        ("int64", "uint8", 255),
        ("int64", "int8", -128),
        ("uint8", "int8", 127),
    ],
)
def test_a_value_that_fits_after_rounding_is_no_overflow(start: str, to: str, value: Any) -> None:
    model = Holder(w=torch.zeros(1).to(getattr(torch, to)))
    source = torch.tensor([value], dtype=getattr(torch, start))
    mapper.load_weights(model, {"w": source})
    assert bits(model.w) == bits(source.to(getattr(torch, to)))


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan")])
@pytest.mark.parametrize("to", ["float16", "bfloat16", "float32", "float8_e5m2"])
def test_values_that_are_not_finite_are_data(value: float, to: str) -> None:
    model = Holder(w=torch.zeros(1).to(getattr(torch, to)))
    source = torch.tensor([value], dtype=torch.float64)
    assert mapper.load_weights(model, {"w": source}).ok
    assert torch.equal(model.w.double(), source) or (value != value and bool(model.w.double().isnan()))


def test_infinity_beside_a_value_that_overflows_is_still_an_overflow() -> None:
    model = Holder(w=torch.zeros(2).half())
    with refused(model) as caught:
        mapper.load_weights(model, {"w": torch.tensor([float("inf"), 1e9])})
    assert caught.kinds == {"w": "overflow"}


def test_unsafe_casting_lets_a_value_overflow() -> None:
    model = Holder(w=torch.zeros(1).half())
    mapper.load_weights(model, {"w": torch.tensor([1e6])}, casting="unsafe")
    assert model.w.tolist() == [float("inf")]


@pytest.mark.parametrize("strict", [False, {"missing", "unexpected"}])
def test_an_overflow_that_is_not_fatal_is_reported_and_not_written(strict: Any) -> None:
    model = Holder(w=torch.zeros(2).half(), v=torch.zeros(1))
    report = mapper.load_weights(model, {"w": torch.tensor([1.0, 1e6]), "v": torch.ones(1)}, strict=strict)
    assert [(entry.path, entry.kind) for entry in report.mismatched] == [("w", "overflow")]
    assert report.loaded == ["v"] and model.w.tolist() == [0, 0]


def test_an_empty_array_cannot_overflow() -> None:
    model = Holder(w=torch.zeros(0, 2).half())
    assert mapper.load_weights(model, {"w": torch.zeros(0, 2).double()}).loaded == ["w"]


def test_a_large_tensor_with_one_value_too_many_is_an_overflow() -> None:
    model = Holder(w=torch.zeros(1_000_003).half())
    source = torch.zeros(1_000_003)
    source[-1] = 1e6
    with refused(model) as caught:
        mapper.load_weights(model, {"w": source})
    assert caught.kinds == {"w": "overflow"}


# the report of casts


def test_every_cast_is_in_the_report() -> None:
    model = Holder(a=torch.zeros(1), b=torch.zeros(1), c=torch.zeros(1, dtype=torch.int64))
    source = {"a": torch.ones(1).half(), "b": torch.ones(1), "c": torch.ones(1, dtype=torch.int8)}
    report = mapper.load_weights(model, source)
    assert [entry.path for entry in report.cast] == ["a", "c"]
    assert "float16" in str(report.cast[0].source) and "float32" in str(report.cast[0].target)
    assert "int8" in str(report.cast[1].source) and "int64" in str(report.cast[1].target)


def test_a_numpy_dtype_of_the_same_kind_is_cast_too() -> None:
    model = Holder(a=torch.zeros(2))
    report = mapper.load_weights(model, {"a": np.array([1.5, 2.5])})
    assert model.a.tolist() == [1.5, 2.5]
    assert "float64" in str(report.cast[0].source)


def test_a_numpy_dtype_of_another_kind_is_refused() -> None:
    model = Holder(a=torch.zeros(2))
    with refused(model) as caught:
        mapper.load_weights(model, {"a": np.array([1, 2])})
    assert caught.kinds == {"a": "dtype"}


# arrays of numpy


@pytest.mark.parametrize("code", ["<f4", ">f4", "<f8", ">f8", ">f2", "<f2"])
def test_any_byte_order_gives_the_same_values(code: str) -> None:
    model = Holder(a=torch.zeros(2, 3))
    mapper.load_weights(model, {"a": np.arange(6, dtype=code).reshape(2, 3)})
    assert model.a.tolist() == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize("code", [">i2", ">i4", ">i8", ">u2", "u1"])
def test_any_byte_order_of_integers_gives_the_same_values(code: str) -> None:
    model = Holder(a=torch.zeros(3, dtype=torch.int64))
    mapper.load_weights(model, {"a": np.array([1, 2, 200 if code == "u1" else 300], dtype=code)})
    assert model.a.tolist()[:2] == [1, 2] and int(model.a[2]) in (200, 300)


def test_any_byte_order_of_complex_numbers_gives_the_same_values() -> None:
    model = Holder(a=torch.zeros(2, dtype=torch.complex64))
    mapper.load_weights(model, {"a": np.array([1 + 2j, 3 - 4j], ">c8")})
    assert model.a.tolist() == [1 + 2j, 3 - 4j]


def test_the_same_dtype_in_another_byte_order_is_no_cast() -> None:
    model = Holder(a=torch.zeros(2))
    report = mapper.load_weights(model, {"a": np.array([1, 2], ">f4")}, casting="no")
    assert report.cast == [] and model.a.tolist() == [1, 2]


LAYOUTS: dict[str, Any] = {
    "columns first": np.asfortranarray(np.arange(6, dtype="f4").reshape(2, 3)),
    "backwards": np.arange(5, -1, -1, dtype="f4")[::-1].reshape(2, 3),
    "backwards in both": np.ascontiguousarray(np.arange(6, dtype="f4").reshape(2, 3)[::-1, ::-1])[::-1, ::-1],
    "every second": np.repeat(np.arange(6, dtype="f4"), 2)[::2].reshape(2, 3),
    "transposed": np.arange(6, dtype="f4").reshape(2, 3).T.copy().T,
    "not aligned": np.frombuffer(b"x" + np.arange(6, dtype="f4").tobytes(), "f4", offset=1).reshape(2, 3),
    "a field of records": np.array([(0, i) for i in range(6)], dtype="u1,f4")["f1"].reshape(2, 3),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_any_memory_order_gives_the_same_values(layout: str) -> None:
    model = Holder(a=torch.zeros(2, 3))
    mapper.load_weights(model, {"a": LAYOUTS[layout]})
    assert model.a.tolist() == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize("assign", [True, False])
def test_a_read_only_array_is_a_source_without_a_warning(assign: bool) -> None:
    array = np.ones((1, 2), "f4")
    array.flags.writeable = False
    model = nn.Linear(2, 1, bias=False)
    mapper.load_weights(model, {"weight": array}, assign=assign)
    assert model.weight.tolist() == [[1, 1]]


def test_a_broadcast_array_is_a_source() -> None:
    model = Holder(a=torch.zeros(2, 3))
    mapper.load_weights(model, {"a": np.broadcast_to(np.float32(4), (2, 3))})
    assert model.a.tolist() == [[4, 4, 4], [4, 4, 4]]


def test_an_array_without_dimensions_is_a_source() -> None:
    model = Holder(a=torch.tensor(0.0))
    mapper.load_weights(model, {"a": np.array(4, ">f4")})
    assert float(model.a) == 4


def test_an_empty_array_is_a_source() -> None:
    model = Holder(a=torch.zeros(0, 3))
    assert mapper.load_weights(model, {"a": np.zeros((0, 3), ">f4", order="F")}).loaded == ["a"]


@pytest.mark.parametrize(
    "name", ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"]
)
def test_extended_numpy_dtypes_are_taken_bit_for_bit(name: str) -> None:
    extended = pytest.importorskip("ml_dtypes")
    size = 2 if name == "bfloat16" else 1
    raw = np.arange(256 * (256 if size == 2 else 1), dtype=f"u{size}")
    model = Holder(a=torch.zeros(raw.size).to(getattr(torch, name)))
    mapper.load_weights(model, {"a": raw.view(getattr(extended, name))}, casting="no")
    assert model.a.view(torch.uint8).numpy().tobytes() == raw.tobytes()


def test_extended_numpy_dtypes_are_floats() -> None:
    extended = pytest.importorskip("ml_dtypes")
    model = Holder(a=torch.zeros(2))
    report = mapper.load_weights(model, {"a": np.array([1.5, 2.5], extended.bfloat16)})
    assert model.a.tolist() == [1.5, 2.5] and "bfloat16" in str(report.cast[0].source)


def test_extended_numpy_scalars_are_arrays_without_dimensions() -> None:
    extended = pytest.importorskip("ml_dtypes")
    model = Holder(a=torch.tensor(0.0))
    mapper.load_weights(model, {"a": extended.bfloat16(1.5)})
    assert float(model.a) == 1.5


def test_bits_of_a_nan_are_kept_where_the_dtype_is() -> None:
    payload = torch.tensor([0x7FC12345, -0x3EDCBB], dtype=torch.int32).view(torch.float32)
    model = Holder(a=torch.zeros(2))
    mapper.load_weights(model, {"a": payload})
    assert bits(model.a) == bits(payload)


def test_a_conjugated_view_gives_its_values() -> None:
    model = Holder(a=torch.zeros(1, dtype=torch.complex64))
    mapper.load_weights(model, {"a": torch.tensor([1 + 2j]).conj()})
    assert model.a.tolist() == [1 - 2j]


def test_an_expanded_tensor_gives_its_values() -> None:
    model = Holder(a=torch.zeros(2, 3))
    mapper.load_weights(model, {"a": torch.tensor([[1.0], [2.0]]).expand(2, 3)})
    assert model.a.tolist() == [[1, 1, 1], [2, 2, 2]]


EIGHT_BITS = ["float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"]
HALVES = ["float16", "bfloat16"]


@pytest.mark.filterwarnings("ignore:nothing was loaded")
@pytest.mark.parametrize("to", [*EIGHT_BITS, *HALVES, "float32", "float64"])
@pytest.mark.parametrize("start", [*EIGHT_BITS, *HALVES])
def test_safe_casting_takes_exactly_what_can_hold_every_value(start: str, to: str) -> None:
    """All values of the small type, there and compared."""
    eight = start in EIGHT_BITS
    numbers = torch.arange(256 if eight else 65536, dtype=torch.int32)
    every = numbers.to(torch.uint8 if eight else torch.uint16).view(getattr(torch, start))
    wide = every.double()
    finite = wide[wide.isfinite()]
    holds = bool((finite.to(getattr(torch, to)).double() == finite).all())
    model = Holder(w=torch.zeros(1).to(getattr(torch, to)))
    report = mapper.load_weights(model, {"w": every[:1]}, casting="safe", strict=False)
    assert report.ok == (holds or start == to)


@pytest.mark.filterwarnings("ignore:ComplexHalf|nothing was loaded")
@pytest.mark.parametrize(
    "name", ["complex32", "uint16", "uint32", "uint64", "float4_e2m1fn_x2", "float8_e8m0fnu"]
)
def test_rare_dtypes_are_loaded_and_compared(name: str) -> None:
    dtype = getattr(torch, name, None)
    if dtype is None:
        pytest.skip("this torch has it not")
    width = dtype.itemsize
    one, other = (torch.full((4 * width,), byte, dtype=torch.uint8).view(dtype) for byte in (1, 2))
    shared = one.clone()
    model = Holder(a=shared, b=shared)
    assert mapper.load_weights(model, {"a": other, "b": other.clone()}).ok
    assert bits(model.a) == bits(other)
    with refused(model) as caught:
        mapper.load_weights(model, {"a": one, "b": other})
    assert [entry.kind for entry in caught.report.mismatched] == ["tie"]


def test_pairs_of_four_bit_floats_are_no_other_floats() -> None:
    dtype = getattr(torch, "float4_e2m1fn_x2", None)
    if dtype is None:
        pytest.skip("this torch has it not")
    model = Holder(a=torch.zeros(2))
    with refused(model) as caught:
        mapper.load_weights(model, {"a": torch.zeros(2, dtype=torch.uint8).view(dtype)})
    assert caught.kinds == {"a": "dtype"}
