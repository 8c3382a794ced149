"""aux through JSON and stored tensors: the same types, the same bits, the same sharing; or an error with its place."""

import json
import random
from collections import Counter, OrderedDict, defaultdict, namedtuple

import numpy as np
import pytest
import torch
from torch import nn

import mapper
from mapper.errors import UnsupportedLeaf
from mapper.weights.values.aux_values import encode
from tests.weights.aux_values import nan, same, through

PLAIN = [
    *(None, True, False, 0, 1, -1, 2**63, 2**255, 2**256, -(2**256), 10**6000, -(10**30000)),
    *(1.0, -0.0, 5e-324, 1.7976931348623157e308, 0.1, 1e22, float("inf"), float("-inf")),
    *(float("nan"), nan(0x7FF8_0000_0000_0001), nan(0xFFF8_0000_DEAD_BEEF)),
    *(1j, complex(-0.0, float("nan")), complex(float("inf"), -0.0)),
    *(
        "",
        "text",
        "\0",
        "\ud800",
        "\ud83d\ude00",
        "😀",
        "\udfff\ud800x",
        "\u2028",
        "a" * 70_000,
        "é" * 70_000,
    ),
    *(b"", b"\0\xff", bytes(range(256)) * 40),
    *(torch.float32, torch.float8_e8m0fnu, torch.uint1, torch.complex32),
    *(torch.device("cpu"), torch.device("cuda", 3), torch.device("meta")),
    *(torch.Size([]), torch.Size([2, 0, 3]), (), (1,), [], [[]], {}, ((), [()])),
]


@pytest.mark.parametrize("value", PLAIN, ids=lambda value: repr(type(value)))
def test_a_plain_value_comes_back_with_its_type_and_its_bits(value):
    assert same(through({"x": value}), {"x": value})


KEYS = [
    *(
        0,
        "0",
        None,
        1.5,
        "None",
        -0.5,
        float("inf"),
        2**300,
        1j,
        b"0",
        "\ud800",
        (),
        (0,),
        ("0", (None, 2.5)),
    ),
    *(torch.float32, torch.device("cpu"), torch.Size([3]), np.float32(7), np.str_("k"), (np.int8(5), "k")),
]


def test_keys_of_every_kind_stay_apart_and_in_order():
    aux = {"x": {key: place for place, key in enumerate(KEYS)}}
    assert same(through(aux), aux)


@pytest.mark.parametrize("key", [True, 1, 1.0])
def test_equal_keys_of_other_types_keep_their_type(key):
    assert same(through({"x": {key: "one"}}), {"x": {key: "one"}})


def test_the_top_may_have_keys_that_are_not_strings():
    assert same(through({0: "a", "0": "b"}), {0: "a", "0": "b"})


DTYPES = sorted(
    {d for d in vars(torch).values() if isinstance(d, torch.dtype) and not str(d).startswith("torch.q")},
    key=str,
)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.filterwarnings("ignore:.*omplexHalf")
def test_a_tensor_of_every_dense_type_comes_back_bit_for_bit(dtype):
    raw = torch.arange(96, dtype=torch.uint8)
    flat = raw % 2 == 1 if dtype is torch.bool else raw.view(dtype)
    shapes = {"flat": flat, "steps": flat[::3], "grid": flat.view(2, -1), "turned": flat.view(2, -1).t()}
    aux = shapes | {"one": flat[1], "none": flat[:0], "empty": flat[:0].view(0, 3)}
    assert same(through(aux), aux)


def test_tensors_that_overlap_are_stored_each_for_itself():
    base = torch.arange(8.0)
    aux = {"a": base[:6], "b": base[2:], "spread": base[:1].expand(4), "windows": base.unfold(0, 4, 1)}
    assert same(through(aux), aux)


def test_conjugates_and_negatives_are_stored_as_their_values():
    value = torch.tensor([1 + 2j, 3 - 4j])
    aux = {"conj": value.conj(), "imag": value.conj().imag, "grid": value.conj().view(1, 2).t()}
    assert same(through(aux), aux)


@pytest.mark.parametrize("wide", [torch.float32, torch.complex128])
def test_the_memory_order_of_a_dense_tensor_comes_back(wide):
    aux = {
        "image": torch.zeros(2, 3, 4, 5, dtype=wide).contiguous(memory_format=torch.channels_last),
        "turned": torch.zeros(3, 5, dtype=wide).t(),
    }
    back = through(aux)
    assert {key: value.stride() for key, value in back.items()} == {
        key: value.stride() for key, value in aux.items()
    }


def test_a_parameter_stays_one_and_a_tensor_keeps_its_wish_for_a_gradient():
    grown = torch.ones(2, requires_grad=True) * 2
    aux = {"p": nn.Parameter(torch.ones(2)), "frozen": nn.Parameter(torch.ones(2), False), "grown": grown}
    back = through(aux)
    assert same(back, aux)
    assert back["grown"].is_leaf


def test_a_tensor_with_more_dimensions_than_a_container_takes_comes_back():
    aux = {"x": torch.arange(2.0).view((1,) * 30 + (2,)), "y": np.zeros((1,) * 40)}
    assert same(through(aux), aux)


def test_no_dense_tensor_is_copied():
    tensor, array = torch.zeros(6, 5).t(), np.asfortranarray(np.zeros((4, 3)))
    _, stored = encode({"t": tensor, "a": array, "wide": torch.zeros(3, dtype=torch.complex128)})
    assert stored["0"].data_ptr() == tensor.data_ptr()
    assert stored["1"].data_ptr() == array.__array_interface__["data"][0]


ARRAYS = [
    *(np.array(word, dtype) for word in ([1, 0, 1], 3, [[2], [3]]) for dtype in "?bBhHiIlLqQefdgFDG"),
    *(np.arange(0, 6, dtype=word) for word in (">i4", ">f8", ">c16", "<u2", ">M8[s]", "<m8[25us]")),
    *(np.arange(6.0).reshape(2, 3).T, np.arange(24).reshape(2, 3, 4).transpose(1, 0, 2), np.arange(9)[::-2]),
    *(np.zeros((0, 3)), np.zeros((2, 0), "c16"), np.broadcast_to(np.float32(2), (3, 2)), np.array("")),
    *(
        np.array(["a\0", "bcd"]),
        np.array([b"", b"\0x"]),
        np.array([], str),
        np.array(["\ud800"]),
        np.zeros(2, "V5"),
    ),
    *(np.array(["NaT"], "M8[ns]"), np.frombuffer(b"read", "u1"), np.zeros(9, "u1")[1:].view("f8")),
    np.ones(
        2, np.dtype([("a", "i1"), ("b", ">f8", (2, 1)), ("c", [("d", "U2"), ("e", "m8[us]")])], align=True)
    ),
    np.ones(2, np.dtype({"names": ["x", "y"], "formats": ["i4", "u1"], "offsets": [8, 1], "itemsize": 20})),
    np.ones(2, np.dtype([(("a title", "n"), "f4"), ("é", "S3")])),
]


@pytest.mark.parametrize("array", ARRAYS, ids=lambda array: f"{array.dtype} {array.shape}"[:60])
def test_an_array_comes_back_with_type_byte_order_and_memory_order(array):
    assert same(through({"x": array}), {"x": array})


SCALARS = [
    *(np.dtype(word).type(1) for word in "?bBhHiIlLqQefdgFDG"),
    *(
        np.float32("nan"),
        np.uint32(0x7FA00001).view(np.float32),
        np.datetime64("NaT"),
        np.datetime64("2026-01-01"),
    ),
    *(np.timedelta64(5, "25s"), np.str_("a\0\ud800"), np.str_(""), np.bytes_(b"a\0"), np.bytes_(b"")),
    *(np.void(b"abc"), np.array([(1, 2.0)], dtype=[("a", "<i2"), ("b", ">f8")])[0]),
]


@pytest.mark.parametrize("scalar", SCALARS, ids=lambda scalar: type(scalar).__name__)
def test_a_numpy_scalar_comes_back_as_one(scalar):
    back = through({"x": scalar})["x"]
    assert (type(back), back.dtype, back.dtype.char) == (type(scalar), scalar.dtype, scalar.dtype.char)
    assert same(np.asarray(back), np.asarray(scalar))


def test_the_types_of_ml_dtypes_come_back_bit_for_bit():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    kinds = [
        kind for kind in vars(ml_dtypes).values() if isinstance(kind, type) and issubclass(kind, np.generic)
    ]
    aux = {kind.__name__: [np.ones(3, kind), np.ones((2, 3), kind).T, kind(1)] for kind in kinds}
    assert len(kinds) > 10
    assert same(through(aux), aux)


def test_what_is_reached_twice_is_stored_once_and_stays_shared():
    tensor, inner, array = torch.ones(3), [1], np.ones(2)
    aux = {"a": [tensor, inner, array], "b": (tensor, inner, {"c": array})}
    assert len(encode(aux)[1]) == 2
    back = through(aux)
    assert same(back, aux)
    assert all(back["a"][at] is back["b"][at] for at in (0, 1))
    assert back["a"][2] is back["b"][2]["c"]


def test_sharing_on_every_level_does_not_multiply():
    value = []
    for _ in range(200):
        value = [value, (value, value)]
    structure, _ = encode({"x": value})
    assert len(json.dumps(structure)) < 50_000


@pytest.mark.parametrize("wrap", [lambda x: [x], lambda x: (x,), lambda x: {"k": x}, lambda x: {0: (x,)}])
def test_ten_thousand_levels_come_back(wrap):
    value = torch.ones(1)
    for _ in range(10_000):
        value = wrap(value)
    back, levels = through({"x": value})["x"], 0
    while not isinstance(back, torch.Tensor):
        back, levels = next(iter(back.values() if isinstance(back, dict) else back)), levels + 1
    assert levels >= 10_000


def test_a_state_dict_keeps_its_order_and_the_versions_of_its_modules():
    states = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)).state_dict()
    back = through({"ema": states})["ema"]
    assert same(back, states)
    assert type(back) is OrderedDict
    assert back._metadata == states._metadata


def test_the_tree_of_a_model_keeps_its_ties():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[1].weight = model[0].weight
    tree = mapper.tree(model)
    back = through({"ema": tree})["ema"]
    assert same(back, tree)
    assert (type(back), back.tied) == (mapper.Tree, {"1.weight": "0.weight"})


def test_a_state_dict_with_other_attributes_is_refused():
    states = OrderedDict(a=1)
    states.origin = "elsewhere"
    with pytest.raises(UnsupportedLeaf, match="attributes") as caught:
        encode({"x": [states]})
    assert caught.value.path == "aux['x'][0]"


def test_a_counter_keeps_its_counts():
    counted = Counter({30: 1, "x": -2, 80: 0})
    assert same(through({"x": counted}), {"x": counted})


GENERATORS = ["MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64"]


@pytest.mark.parametrize("kind", GENERATORS)
def test_a_numpy_generator_goes_on_where_it_stood(kind):
    generator = np.random.Generator(getattr(np.random, kind)(7))
    generator.random(3, np.float32)
    state = through({"g": generator.bit_generator.state})["g"]
    expected = generator.random(5)
    other = np.random.Generator(getattr(np.random, kind)(8))
    other.bit_generator.state = state
    assert (other.random(5) == expected).all()


def test_the_global_random_states_go_in_unchanged():
    aux = {"torch": torch.get_rng_state(), "random": random.getstate(), "numpy": np.random.get_state()}
    back = through(aux)
    assert same(back, aux)
    torch.set_rng_state(back["torch"])
    random.setstate(back["random"])
    np.random.set_state(back["numpy"])


class _Number(int):
    pass


_Pair = namedtuple("_Pair", "a b")


def _cycle():
    inner = {}
    inner["again"] = [inner]
    return inner


UNSUPPORTED = {
    "function": (lambda: None, ""),
    "object": (object(), ""),
    "set": ({1}, ""),
    "frozenset": (frozenset(), ""),
    "bytearray": (bytearray(b"x"), ""),
    "range": (range(3), ""),
    "class": (int, ""),
    "module": (nn.Linear(2, 2), ""),
    "integer subclass": (_Number(3), ""),
    "named tuple": (_Pair(1, 2), ""),
    "defaultdict": (defaultdict(list), ""),
    "sparse": (torch.ones(2, 2).to_sparse(), ""),
    "compressed": (torch.ones(2, 2), ""),
    "meta": (torch.ones(2, device="meta"), ""),
    "object array": (np.array([None]), ""),
    "strings of any length": (np.array(["a"], object), ""),
    "masked": (np.ma.array([1]), ""),
    "key": ({"k": {(1, object()): 2}}, "['k'][(1, <object>)]"),
    "tensor as key": ({torch.ones(1): 2}, "[<Tensor>]"),
    "itself": (_cycle(), "['again'][0]"),
    "deep": ([{"a": (0, {0: {1}})}], "[0]['a'][1][0]"),
}


@pytest.mark.filterwarnings("ignore:.*Sparse")
@pytest.mark.parametrize("kind", UNSUPPORTED)
def test_what_cannot_be_stored_is_named_by_its_place(kind):
    value, path = UNSUPPORTED[kind]
    value = value.to_sparse_csr() if kind == "compressed" else value
    with pytest.raises(UnsupportedLeaf) as caught:
        encode({"opt": {"hooks": [0, value]}})
    assert caught.value.path == "aux['opt']['hooks'][1]" + path
    assert str(caught.value).startswith(caught.value.path + ": ")
    assert "\n" not in str(caught.value)


@pytest.mark.filterwarnings("ignore")
def test_a_quantized_tensor_is_refused():
    with pytest.raises(UnsupportedLeaf, match="quantised"):
        encode({"x": torch.quantize_per_tensor(torch.ones(2), 1.0, 0, torch.qint8)})


def test_a_tensor_of_a_subclass_is_refused():
    class Mine(torch.Tensor):
        pass

    with pytest.raises(UnsupportedLeaf, match="Mine"):
        encode({"x": torch.ones(2).as_subclass(Mine)})


def test_a_list_that_contains_itself_is_refused_at_any_depth():
    bottom = []
    value = bottom
    for _ in range(5_000):
        value = [value]
    bottom.append(value)
    with pytest.raises(UnsupportedLeaf, match="contains itself"):
        encode({"x": value})


@pytest.mark.parametrize("aux", [[], OrderedDict(), None, 3])
def test_aux_itself_is_a_dict(aux):
    with pytest.raises(UnsupportedLeaf) as caught:
        encode(aux)
    assert caught.value.path == "aux"
