"""save_tree and load_tree: containers, leaves, checks against `like`, modules."""

import dataclasses
from collections import OrderedDict, defaultdict, deque, namedtuple
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import mapper
from mapper.errors import MissingSourceError, StructureError, UnsupportedLeaf
from mapper.weights.arrays import raw_bytes
from tests.weights.aux_values import nan, same
from tests.weights.streams import loaded, saved

Pair = namedtuple("Pair", "left right")


@dataclasses.dataclass(frozen=True)
class Frozen:
    w: Any
    name: str = "name"
    rate: float = 0.5


@dataclasses.dataclass(slots=True)
class Slotted:
    w: Any


def ones() -> torch.Tensor:
    return torch.ones(2)


CONTAINERS = {
    "dict": lambda v: {"a": v, 1: v, "1": v, 2.5: v, None: v, (1, ("x", None)): v},
    "boolean key": lambda v: {True: v, "True": v},
    "ordered": lambda v: OrderedDict([("b", v), ("a", v)]),
    "default": lambda v: defaultdict(list, {"a": [v]}),
    "list": lambda v: [v, [v, []], ()],
    "tuple": lambda v: (v, (v,), {}),
    "named": lambda v: Pair(v, Pair(v, None)),
    "frozen": lambda v: Frozen(v, rate=float(v.sum())),
    "slotted": lambda v: [Slotted(v)],
    "registered": lambda v: deque([v, v], maxlen=5),
    "leaf": lambda v: v,
}


@pytest.mark.parametrize("kind", CONTAINERS)
def test_a_container_comes_back_as_it_is(kind):
    make = CONTAINERS[kind]
    like = make(torch.zeros(2))
    back = loaded(saved(make(ones())), like)
    assert repr(back) == repr(make(ones()))
    assert type(back) is type(like)
    assert "0." in repr(like)


def test_a_default_dict_keeps_its_factory():
    assert loaded(saved(defaultdict(list, a=1)), defaultdict(list, a=0)).default_factory is list


def test_the_tree_of_a_model_keeps_its_ties():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[1].weight = model[0].weight
    tree = mapper.tree(model)
    back = loaded(saved(tree), tree)
    assert type(back) is mapper.Tree
    assert back.tied == {"1.weight": "0.weight"}


LEAVES = [
    *(True, False, 0, -1, 2**100, -(10**5000), 0.5, -0.0, 5e-324, float("inf"), nan(0x7FF8_0000_0000_0007)),
    *(1j, complex(-0.0, float("nan")), np.float32(2), np.bool_(True), np.datetime64("NaT"), np.str_("a\0")),
    *(
        np.arange(6).reshape(2, 3).T,
        np.arange(0, 4, dtype=">f8"),
        np.array(3, "c16"),
        np.zeros((0, 2)),
        np.array("x"),
    ),
    *(np.zeros(2, [("a", "i1"), ("b", "f8")]), torch.ones(()), torch.zeros(3, 0), torch.ones(4)[::2]),
    *(torch.ones(2, 3).t(), torch.ones(3).expand(2, 3), torch.tensor([1 + 2j]).conj()),
]


@pytest.mark.parametrize("leaf", LEAVES, ids=lambda leaf: type(leaf).__name__)
def test_a_leaf_comes_back_bit_for_bit(leaf):
    assert same(loaded(saved({"x": leaf}), {"x": leaf}), {"x": leaf})


DTYPES = sorted(
    {d for d in vars(torch).values() if isinstance(d, torch.dtype) and not str(d).startswith("torch.q")},
    key=str,
)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.filterwarnings("ignore:.*omplexHalf")
def test_a_tensor_of_every_dtype_comes_back_bit_for_bit(dtype):
    raw = torch.arange(96, dtype=torch.uint8) * 37
    flat = raw % 2 == 1 if dtype is torch.bool else raw.view(dtype)
    tree = [flat, flat[::2], flat.view(2, -1).t(), flat[1], flat[:0]]
    assert same(loaded(saved(tree), tree), tree)
    assert same(loaded(saved(tree), [leaf.to("meta") for leaf in tree]), tree)


def test_leaves_of_other_types_are_those_of_like():
    here, there = (
        [lambda: 1, object(), "text", None, b"x", torch.float32],
        [lambda: 2, object(), "t", None, b"", 1.5],
    )
    data = saved({"a": [*there[:5]], "n": 1})
    back = loaded(data, {"a": here[:5], "n": 0})
    assert all(one is other for one, other in zip(back["a"], here, strict=False))
    assert back["n"] == 1


def test_the_memory_of_leaves_is_their_own():
    tensor = ones()
    back = loaded(saved([tensor, tensor]), [tensor, tensor])
    back[0].zero_()
    assert torch.equal(back[1], tensor)


@pytest.mark.parametrize(
    ("stored", "here"),
    [
        *((True, 1), (1, True), (1, 1.0), (1.0, 1), (1.0, 1j), (1, torch.ones((), dtype=torch.int64))),
        *(
            (np.float64(1), 1.0),
            (1.0, np.float64(1)),
            (np.float32(1), np.float64(1)),
            (np.float32(1), np.ones((), "f4")),
        ),
        *((ones(), np.ones(2, "f4")), (np.ones(2, "f4"), ones()), (np.ones(2, ">f4"), np.ones(2, "<f4"))),
        *(
            (ones(), torch.ones(3)),
            (ones(), torch.ones(1, 2)),
            (torch.ones(1), torch.ones(())),
            (ones(), ones().half()),
        ),
        *((ones(), ones().half().to("meta")), (1, ones().to("meta")), (torch.ones(3), ones().to("meta"))),
        *((ones(), "text"), (1, None), (ones(), print)),
    ],
    ids=str,
)
def test_another_type_shape_or_dtype_is_an_error_that_names_both(stored, here):
    with pytest.raises(StructureError) as caught:
        loaded(saved({"inner": [0, Frozen(stored)]}), {"inner": [0, Frozen(here)]})
    assert caught.value.path == "['inner'][1].w"
    assert "1 problem, nothing was changed" in str(caught.value)
    assert "here" in str(caught.value)
    assert "stored" in str(caught.value)


def test_a_leaf_on_one_side_is_an_error_with_its_neighbours():
    with pytest.raises(StructureError) as caught:
        loaded(saved({"a": {"x": 1, "y": 2}}), {"a": {"x": 1, "z": ones()}})
    text = str(caught.value)
    assert caught.value.path == "['a']['z']"
    assert "['a']['z']   only in like: Tensor float32 [2]" in text
    assert "['a']['y']   only in the file: int" in text
    assert "at ['a']: like has ['x'], ['z']; the file has ['x'], ['y']" in text


def test_without_strict_missing_leaves_stay_and_others_are_dropped():
    kept = ones()
    back = loaded(saved({"a": 1, "gone": 2}), {"a": 0, "new": kept}, strict=False)
    assert back == {"a": 1, "new": kept}
    assert back["new"] is kept


def test_without_strict_another_shape_is_still_an_error():
    with pytest.raises(StructureError):
        loaded(saved([ones()]), [torch.ones(3)], strict=False)


def test_all_problems_are_counted_and_twenty_shown():
    with pytest.raises(StructureError) as caught:
        loaded(saved([1.0] * 50), [1] * 50)
    assert "50 problems" in str(caught.value)
    assert "and 30 more" in str(caught.value)


def test_a_missing_leaf_never_shifts_the_next_one():
    back = loaded(
        saved({"a": ones(), "c": ones() * 3}), {"a": ones(), "b": ones(), "c": ones()}, strict=False
    )
    assert torch.equal(back["c"], ones() * 3)


def test_by_order_takes_leaves_under_other_names_with_all_checks():
    data = saved({"a": 1, "s": "text", "b": ones()})
    assert same(loaded(data, Pair(0, [torch.zeros(2)]), by="order"), Pair(1, [ones()]))
    with pytest.raises(StructureError, match="shape") as caught:
        loaded(data, Pair(0, torch.zeros(3)), by="order")
    assert caught.value.path == ".right"
    with pytest.raises(StructureError, match="only in like"):
        loaded(data, (0, torch.zeros(2), 3), by="order")
    with pytest.raises(StructureError, match="only in the file"):
        loaded(data, (0,), by="order")


def test_the_error_says_where_by_order_would_do():
    with pytest.raises(StructureError, match='by="order"'):
        loaded(saved({"a": 1, "b": ones()}), {"c": 0, "d": ones()})


def test_a_leaf_on_meta_allocates_nothing_and_has_no_python_type():
    big = torch.empty(1 << 40, device="meta")
    back = loaded(
        saved({"x": np.ones(2, "f4"), "y": ones()}), {"x": ones().to("meta"), "y": ones().to("meta")}
    )
    assert same(back, {"x": np.ones(2, "f4"), "y": ones()})
    assert big.is_meta


def test_a_parameter_stays_one():
    like = [nn.Parameter(torch.zeros(2), requires_grad=False), torch.zeros(2, requires_grad=True)]
    back = loaded(saved([nn.Parameter(ones()), ones()]), like)
    assert type(back[0]) is nn.Parameter
    assert [leaf.requires_grad for leaf in back] == [False, True]


def test_a_container_that_contains_itself_is_named():
    inner = {}
    inner["again"] = [inner]
    with pytest.raises(StructureError, match="contains itself") as caught:
        saved([inner])
    assert caught.value.path == "[0]['again'][0]"
    with pytest.raises(StructureError, match="contains itself"):
        loaded(saved([1]), [inner])


def test_three_thousand_levels_are_no_matter():
    tree, like = ones(), torch.zeros(2)
    for _ in range(3_000):
        tree, like = [tree], [like]
    back = loaded(saved(tree), like)
    for _ in range(3_000):
        back = back[0]
    assert torch.equal(back, ones())


@pytest.mark.filterwarnings("ignore:.*Sparse")
@pytest.mark.parametrize(
    "make", [lambda: ones().to("meta"), lambda: ones().to_sparse(), lambda: np.array([None])]
)
def test_an_array_without_bits_to_store_is_named(make, tmp_path):
    path = tmp_path / "tree"
    path.write_bytes(b"old")
    with pytest.raises(UnsupportedLeaf) as caught:
        mapper.save_tree(path, {"a": [1, make()]})
    assert caught.value.path == "['a'][1]"
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["tree"]


def test_a_number_beyond_the_limit_is_refused_when_it_is_saved(monkeypatch):
    monkeypatch.setattr("mapper.limits.LEAF_HEADER_BYTES", 1_000)
    with pytest.raises(UnsupportedLeaf, match="a number of"):
        saved([1 << 10_000])


def test_a_key_that_cannot_be_stored_is_named():
    with pytest.raises(UnsupportedLeaf) as caught:
        saved({"a": {object(): 1}})
    assert caught.value.path == "['a'][<object>]"


def test_is_leaf_stops_the_walk():
    tree = {"a": [1, 2], "b": 3}
    assert loaded(saved(tree, is_leaf=lambda node: isinstance(node, list)), {"b": 0}) == {"b": 3}
    like = {"a": [0, 0], "b": 0}
    back = loaded(saved({"b": 3}), like, is_leaf=lambda node: isinstance(node, list))
    assert back == {"a": [0, 0], "b": 3}
    assert back["a"] is like["a"]


@pytest.mark.parametrize("kind", [str, lambda path: path])
def test_a_file_has_the_name_that_was_given(kind, tmp_path):
    path = tmp_path / "tree.state"
    mapper.save_tree(kind(path), [1, ones()])
    assert [entry.name for entry in tmp_path.iterdir()] == ["tree.state"]
    assert same(mapper.load_tree(kind(path), [0, ones()]), [1, ones()])


def test_a_missing_file_and_a_foreign_object_are_told_apart(tmp_path):
    with pytest.raises(MissingSourceError):
        mapper.load_tree(tmp_path / "none", [1])
    with pytest.raises(mapper.FormatError):
        mapper.load_tree(tmp_path, [1])
    for call in (lambda: mapper.load_tree(3, [1]), lambda: mapper.save_tree(3, [1])):
        with pytest.raises(TypeError):
            call()
    with pytest.raises(ValueError, match="by is"):
        mapper.load_tree(tmp_path, [1], by="name")


def test_a_large_tensor_is_not_copied_for_the_file(tmp_path, monkeypatch):
    import tracemalloc

    tree = {"x": np.ones(1 << 22), "y": torch.ones(1 << 20)}
    tracemalloc.start()
    try:
        mapper.save_tree(tmp_path / "tree", tree)
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()


def test_views_of_one_file_are_apart(tmp_path):
    mapper.save_tree(tmp_path / "tree", [ones(), ones()])
    back = mapper.load_tree(tmp_path / "tree", [ones(), ones()])
    assert raw_bytes(back[0]).data_ptr() != raw_bytes(back[1]).data_ptr()
