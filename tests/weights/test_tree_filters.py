"""Functions for leaves: each in its own stream, as one function or as a tree that begins as the tree does."""

import io
import json

import numpy as np
import pytest
import torch

import mapper
from mapper import default_load_leaf, default_save_leaf
from mapper.errors import FormatError, StructureError, UnsupportedLeaf
from tests.weights.aux_values import same
from tests.weights.streams import loaded, saved


def save_text(writer, leaf):
    if isinstance(leaf, str):
        writer.write(leaf.encode())
    else:
        default_save_leaf(writer, leaf)


def load_text(reader, leaf):
    return reader.read().decode() if isinstance(leaf, str) else default_load_leaf(reader, leaf)


def test_a_function_may_store_what_the_default_leaves_out():
    tree = {"name": "new", "empty": "", "w": torch.ones(2), "f": print}
    data = saved(tree, filter_spec=save_text)
    back = loaded(data, {"name": "", "empty": "x", "w": torch.zeros(2), "f": print}, filter_spec=load_text)
    assert same(back, tree)


@pytest.mark.parametrize("size", [0, 1, 3, 10_000, -1, None])
def test_reading_too_little_or_too_much_disturbs_no_other_leaf(size):
    def greedy(reader, leaf):
        if isinstance(leaf, str):
            reader.read(size)
            return "read"
        return default_load_leaf(reader, leaf)

    data = saved(["abc", torch.ones(2), "de", 5], filter_spec=save_text)
    assert same(
        loaded(data, ["", torch.zeros(2), "", 0], filter_spec=greedy), ["read", torch.ones(2), "read", 5]
    )


def test_a_reader_is_a_binary_stream():
    def save(writer, leaf):
        writer.write(memoryview(json.dumps(leaf).encode() + b"\n"))
        np.save(writer, np.arange(3))

    def load(reader, leaf):
        line, array = reader.readline(), np.load(reader)
        assert (array == np.arange(3)).all()
        assert (reader.read(), reader.read(5)) == (b"", b"")
        reader.seek(0)
        start = bytearray(2)
        assert reader.readinto(start) == 2
        assert (start, reader.tell()) == (line[:2], 2)
        return json.loads(line)

    assert loaded(saved(["text", None], filter_spec=save), [0, 0], filter_spec=load) == ["text", None]


def test_both_defaults_can_follow_one_another_in_one_leaf():
    def save(writer, leaf):
        default_save_leaf(writer, leaf)
        writer.write(b"--")
        default_save_leaf(writer, leaf * 2)

    def load(reader, leaf):
        first = default_load_leaf(reader, leaf)
        assert reader.read(2) == b"--"
        return first + default_load_leaf(reader, leaf)

    tree = [torch.ones(3, dtype=torch.complex128), 1.5]
    back = loaded(
        saved(tree, filter_spec=save), [torch.zeros(3, dtype=torch.complex128), 0.0], filter_spec=load
    )
    assert same(back, [tree[0] * 3, 4.5])


def test_the_defaults_work_with_any_stream():
    stream = io.BytesIO()
    leaves = [torch.ones(2, 3).t(), np.float32(2), True, torch.ones(2, dtype=torch.complex128)]
    for leaf in leaves:
        default_save_leaf(stream, leaf)
    stream.seek(0)
    assert same([default_load_leaf(stream, leaf) for leaf in leaves], leaves)
    assert default_load_leaf(stream, "text") == "text"
    with pytest.raises(FormatError):
        default_load_leaf(io.BytesIO(b"no leaf at all"), 1)


def test_writing_nothing_leaves_a_leaf_out():
    def arrays_only(writer, leaf):
        if isinstance(leaf, torch.Tensor):
            default_save_leaf(writer, leaf)

    data = saved({"w": torch.ones(2), "step": 3}, filter_spec=arrays_only)
    assert same(loaded(data, {"w": torch.zeros(2)}), {"w": torch.ones(2)})
    with pytest.raises(StructureError, match="only in like") as caught:
        loaded(data, {"w": torch.zeros(2), "step": 0})
    assert caught.value.path == "['step']"
    keep = lambda reader, leaf: leaf if isinstance(leaf, int) else default_load_leaf(reader, leaf)  # noqa: E731
    assert loaded(data, {"w": torch.zeros(2), "step": 0}, filter_spec=keep)["step"] == 0


def test_a_function_that_reads_a_leaf_that_is_not_stored_makes_it_missing():
    like = {"a": "", "b": "kept"}
    data = saved({"a": "text"}, filter_spec=save_text)
    with pytest.raises(StructureError, match="only in like: str") as caught:
        loaded(data, like, filter_spec=load_text)
    assert caught.value.path == "['b']"
    assert loaded(data, like, filter_spec=load_text, strict=False) == {"a": "text", "b": "kept"}


def test_none_leaves_a_subtree_out_on_both_sides():
    tree = {"net": torch.nn.Linear(2, 2), "opt": [1, 2], "step": 3}
    save = {"net": default_save_leaf, "opt": None, "step": default_save_leaf}
    data = saved(tree, filter_spec=save)
    assert len(data) < len(saved(tree))
    with pytest.raises(StructureError, match="only in like"):
        loaded(data, {"net": torch.nn.Linear(2, 2), "opt": [0, 0], "step": 0})
    load = {"net": default_load_leaf, "opt": None, "step": default_load_leaf}
    like = {"net": torch.nn.Linear(2, 2), "opt": [0, 0], "step": 0}
    back = loaded(data, like, filter_spec=load)
    assert (back["opt"], back["step"]) == ([0, 0], 3)
    assert loaded(saved(tree), like, filter_spec=load | {"net": None})["net"] is like["net"]


def test_none_leaves_out_what_is_matched_in_order_too():
    load = {"a": default_load_leaf, "opt": None, "c": default_load_leaf}
    assert loaded(
        saved({"a": 1, "opt": 2, "b": 3}), {"a": 0, "opt": 0, "c": 0}, filter_spec=load, by="order"
    ) == {
        "a": 1,
        "opt": 0,
        "c": 3,
    }


def test_a_tree_of_functions_goes_as_deep_as_it_likes():
    spec = [None, (default_save_leaf, {"a": lambda writer, leaf: writer.write(b"custom")})]
    data = saved([1, (2, {"a": [3, 4]})], filter_spec=spec)
    load = [None, (default_load_leaf, {"a": lambda reader, leaf: reader.read()})]
    assert loaded(data, [0, (0, {"a": [0, 0]})], filter_spec=load) == [0, (2, {"a": [b"custom", b"custom"]})]


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ({"b": default_save_leaf}, "the root"),
        ({"a": [default_save_leaf]}, "['a']"),
        ({"a": [default_save_leaf, {}]}, "['a'][1]"),
        ({"a": 3}, "['a']"),
        ([default_save_leaf], "the root"),
    ],
)
def test_a_tree_of_functions_begins_as_the_tree_does(spec, path):
    with pytest.raises(StructureError, match="filter_spec") as caught:
        saved({"a": [1, 2]}, filter_spec=spec)
    assert caught.value.path == path


def fails(stream, leaf):
    raise KeyError("no such\nthing")


def test_an_exception_names_the_leaf_and_is_the_cause():
    with pytest.raises(StructureError, match="KeyError") as caught:
        saved({"a": [0, 1]}, filter_spec={"a": [default_save_leaf, fails]})
    assert (caught.value.path, type(caught.value.__cause__)) == ("['a'][1]", KeyError)
    assert "\n" not in str(caught.value)
    with pytest.raises(StructureError, match="KeyError") as caught:
        loaded(saved({"a": [0, 1]}), {"a": [0, 0]}, filter_spec={"a": [default_load_leaf, fails]})
    assert (caught.value.path, type(caught.value.__cause__)) == ("['a'][1]", KeyError)


def test_what_a_default_refuses_inside_a_function_is_the_cause():
    with pytest.raises(StructureError) as caught:
        saved([torch.ones(1, device="meta")], filter_spec=save_text)
    assert type(caught.value.__cause__) is UnsupportedLeaf
    with pytest.raises(StructureError) as caught:
        loaded(saved([1]), [1.0], filter_spec=load_text)
    assert type(caught.value.__cause__) is StructureError


def test_text_is_no_bytes():
    with pytest.raises(StructureError) as caught:
        saved(["a"], filter_spec=lambda writer, leaf: writer.write(leaf))
    assert type(caught.value.__cause__) is TypeError


def test_a_result_is_checked_where_both_have_shape_and_dtype():
    data = saved([torch.ones(2)])
    assert loaded(data, [torch.ones(2)], filter_spec=lambda reader, leaf: "text") == ["text"]
    assert loaded(data, [torch.ones(2)], filter_spec=lambda reader, leaf: np.ones(2, "f4"))[0].sum() == 2
    for wrong in (torch.ones(3), torch.ones(2).double(), np.ones(2)):
        with pytest.raises(StructureError) as caught:
            loaded(data, [torch.ones(2)], filter_spec=lambda reader, leaf, wrong=wrong: wrong)
        assert caught.value.path == "[0]"


def test_a_result_for_a_module_must_be_an_array():
    net = torch.nn.Linear(2, 2)
    with pytest.raises(StructureError, match="returned str"):
        loaded(saved(net), net, filter_spec=lambda reader, leaf: "text")
    loaded(saved(net), net, filter_spec=lambda reader, leaf: np.full(leaf.shape, 7, "f4"))
    assert net.weight.eq(7).all()
    assert net.bias.eq(7).all()


def test_a_buffer_may_be_used_again_after_writing():
    buffer = bytearray(1)

    def save(writer, leaf):
        buffer[0] = leaf
        writer.write(buffer)

    data = saved([1, 2, 3], filter_spec=save)
    assert loaded(data, [0, 0, 0], filter_spec=lambda reader, leaf: reader.read()[0]) == [1, 2, 3]


def test_the_public_functions_are_the_defaults():
    assert mapper.default_save_leaf is default_save_leaf
    assert mapper.save_tree.__kwdefaults__["filter_spec"] is default_save_leaf
    assert mapper.load_tree.__kwdefaults__["filter_spec"] is default_load_leaf
