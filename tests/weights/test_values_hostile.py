"""A stored structure of aux that nobody wrote: always FormatError, never much memory."""

import copy
import json

import hypothesis
import hypothesis.strategies as st
import pytest
import torch

from mapper.errors import FormatError
from mapper.weights.values.aux_values import decode, encode

TENSORS = {"0": torch.arange(8, dtype=torch.uint8), "1": torch.arange(3.0)}


def reading(node, parts=()):
    return decode({"root": {"dict": {"x": node}}, "parts": list(parts)}, TENSORS.__getitem__)


def deep(levels):
    node = 1
    for _ in range(levels):
        node = {"list": [node]}
    return node


RAW = {"torch.tensor": "0", "dtype": "float32"}
BROKEN = {
    "no tag": {"unknown": 1},
    "empty": {},
    "bare list": [1],
    "two tags": {"list": [], "tuple": []},
    "nan": float("nan"),
    "infinite": float("inf"),
    "float": {"float": "7ff"},
    "float word": {"float": 3},
    "complex": {"complex": [1.0]},
    "complex of integers": {"complex": [1, 2]},
    "int": {"int": "*"},
    "int of list": {"int": [1]},
    "bytes": {"bytes": "é"},
    "bytes of no tensor": {"bytes": {"stored": "9"}},
    "bytes of floats": {"bytes": {"stored": "1"}},
    "bytes of number": {"bytes": {"stored": 3}},
    "str": {"str": "/w=="},
    "dtype": {"torch.dtype": "save"},
    "dtype of number": {"torch.dtype": 5},
    "device": {"torch.device": "nowhere"},
    "device of list": {"torch.device": []},
    "device number": {"torch.device": "cuda:99999999999999999999"},
    "size": {"torch.Size": [1 << 70]},
    "size of words": {"torch.Size": ["a"]},
    "list of": {"list": {"a": 1}},
    "dict of": {"dict": []},
    "items of": {"items": [[1]]},
    "items of number": {"items": 5},
    "key list": {"items": [[[1], 2]]},
    "key dict": {"items": [[{"dict": {}}, 2]]},
    "key deep": {"items": [[{"tuple": [{"tuple": [deep(1)]}]}, 2]]},
    "key twice": {"items": [[1, 2], [True, 3]]},
    "part": {"part": 0},
    "part negative": {"part": -1},
    "part boolean": {"part": False},
    "part list": {"part": []},
    "deep": deep(60),
    "no tensor": {"torch.tensor": "7"},
    "tensor by number": {"torch.tensor": 0},
    "tensor by list": {"torch.tensor": ["0"]},
    "raw without shape": RAW,
    "raw too long": RAW | {"shape": [3]},
    "raw negative": RAW | {"shape": [-2, -1]},
    "raw of words": RAW | {"shape": ["2"]},
    "raw boolean": RAW | {"shape": [True, 2]},
    "raw beyond": RAW | {"shape": [0, 1 << 47, 1 << 47]},
    "raw dimensions": RAW | {"shape": [1] * 1000 + [2]},
    "raw of floats": {"torch.tensor": "1", "dtype": "float32", "shape": [3]},
    "raw quantized": {"torch.tensor": "0", "dtype": "qint8", "shape": [8]},
    "order": {"torch.tensor": "1", "order": [1]},
    "order twice": {"torch.tensor": "1", "order": [0, 0]},
    "order of words": {"torch.tensor": "1", "order": ["a"]},
    "order boolean": {"torch.tensor": "1", "order": [False]},
    "gradient": {"torch.tensor": "0", "requires_grad": True},
    "array": {"numpy.array": "1"},
    "array of others": {"numpy.array": "1", "dtype": "<f8"},
    "array of objects": {"numpy.array": "0", "dtype": "|O", "shape": [1]},
    "array of lists": {"numpy.array": "0", "dtype": "f4,f4", "shape": [1]},
    "array of names": {"numpy.array": "0", "dtype": "float64", "shape": [1]},
    "array of units": {"numpy.array": "0", "dtype": "<M8[years]", "shape": [1]},
    "array of wide text": {"numpy.array": "0", "dtype": "<U999999999", "shape": [0]},
    "array of ml_dtypes": {"numpy.array": "0", "dtype": "ml_dtypes.finfo", "shape": [8]},
    "array fields": {"numpy.array": "0", "dtype": {"fields": [["a", "<f4", 8]], "size": 8}, "shape": [1]},
    "array fields twice": {
        "numpy.array": "0",
        "dtype": {"fields": [["a", "<f4", 0]] * 2, "size": 8},
        "shape": [1],
    },
    "array fields of": {"numpy.array": "0", "dtype": {"fields": 5, "size": 8}, "shape": [1]},
    "array size": {"numpy.array": "0", "dtype": {"fields": [], "size": -8}, "shape": [1]},
    "array base": {"numpy.array": "0", "dtype": {"base": "<f4", "shape": [1 << 40]}, "shape": [1]},
    "scalar": {"numpy.scalar": "AA==", "dtype": "<f4"},
    "scalar of array": {"numpy.scalar": "AAAAAAAAAAA=", "dtype": {"base": "<f4", "shape": [2]}},
    "scalar of text": {"numpy.scalar": "/w==", "dtype": "str_"},
    "scalar alone": {"numpy.scalar": 5},
    "counter": {"Counter": 3},
    "ordered": {"OrderedDict": [[{}, 1]]},
}


@pytest.mark.parametrize("kind", BROKEN)
def test_nonsense_is_a_format_error(kind):
    with pytest.raises(FormatError) as caught:
        reading(BROKEN[kind])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "structure", [None, [], 3, {}, {"root": 1}, {"root": {"list": []}}, {"root": {"dict": {}}, "parts": 3}]
)
def test_a_structure_is_a_dict_at_the_root(structure):
    with pytest.raises(FormatError):
        decode(structure, TENSORS.__getitem__)


def test_a_tensor_is_read_once_whatever_the_file_says():
    with pytest.raises(FormatError, match="more than once"):
        reading({"list": [{"torch.tensor": "1"}, {"torch.tensor": "1"}]})


def test_unknown_fields_beside_a_tag_are_ignored():
    assert reading({"list": [1], "since": "1.9"}) == {"x": [1]}


def test_a_key_made_of_one_part_many_times_takes_no_time():
    key = {"part": 0}
    with pytest.raises(FormatError):
        reading({"items": [[{"tuple": [key, key]}, 1]]}, parts=[{"tuple": []}])


SAMPLE, SAMPLE_TENSORS = encode(
    {
        "opt": {
            0: {"m": torch.ones(2), "betas": (0.9, 0.999), "step": torch.tensor(3)},
            "k": {(1, None): b"x"},
        },
        "rng": [2**300, "\ud800", float("inf"), 1j, torch.ones(2, dtype=torch.complex128).view(2, 1).t()],
        "np": [torch.ones(2).numpy(), torch.ones(1).numpy()[0], torch.float32, torch.Size([1])],
    }
)


def places(node, path=()):
    """Every place in JSON."""
    yield path
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, child in items:
        yield from places(child, (*path, key))


PLACES = [path for path in places(SAMPLE) if path]
JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@hypothesis.settings(max_examples=60)
@hypothesis.given(st.sampled_from(PLACES), JUNK)
def test_any_change_of_a_structure_gives_a_value_or_a_format_error(path, junk):
    structure = json.loads(json.dumps(copy.deepcopy(SAMPLE)))
    inside = structure
    for key in path[:-1]:
        inside = inside[key]
    inside[path[-1]] = junk
    try:
        found = decode(
            structure, {name: tensor.clone() for name, tensor in SAMPLE_TENSORS.items()}.__getitem__
        )
    except FormatError:
        return
    assert type(found) is dict
