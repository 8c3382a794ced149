"""Records in streams: where they end, what damage is, and that nothing is written too early."""

import io
import json
import struct
import zlib

import numpy as np
import pytest
import torch

import mapper
from mapper.errors import FormatError, StructureError
from mapper.weights.trees.records import MAGIC
from tests.weights.aux_values import same
from tests.weights.streams import Plain, Trickle, loaded, saved

TREE = {"a": [1, torch.arange(3.0)], "b": np.float32(2), "s": "text"}
LIKE = {"a": [0, torch.zeros(3)], "b": np.float32(0), "s": "text"}


def test_records_follow_one_another_after_other_bytes():
    stream = io.BytesIO()
    stream.write(b"before")
    for number in range(3):
        mapper.save_tree(stream, [number, torch.full((2,), number)])
        stream.write(b"between")
    stream.seek(6)
    for number in range(3):
        assert same(mapper.load_tree(stream, [0, torch.zeros(2, dtype=torch.int64)])[0], number)
        assert stream.read(7) == b"between"
    assert stream.read() == b""


@pytest.mark.parametrize("kind", [Trickle, Plain])
def test_a_stream_need_not_seek_nor_give_what_is_asked(kind):
    out = kind()
    mapper.save_tree(out, TREE)
    mapper.save_tree(out, [5])
    assert bytes(out.written) == saved(TREE) + saved([5])
    stream = kind(bytes(out.written))
    assert same(mapper.load_tree(stream, LIKE), TREE)
    assert mapper.load_tree(stream, [0]) == [5]


def test_a_failed_check_still_consumes_the_record():
    stream = io.BytesIO(saved(TREE) + saved([5]))
    with pytest.raises(StructureError):
        mapper.load_tree(stream, [torch.ones(1)])
    assert mapper.load_tree(stream, [0]) == [5]


def test_a_text_stream_is_a_type_error():
    for call in (lambda: mapper.save_tree(io.StringIO(), [1]), lambda: mapper.load_tree(io.StringIO(), [1])):
        with pytest.raises(TypeError, match="binary"):
            call()


def test_nothing_is_written_before_all_leaves_are_encoded():
    stream = io.BytesIO()
    with pytest.raises(mapper.UnsupportedLeaf):
        mapper.save_tree(stream, [torch.ones(5), {"x": torch.ones(1, device="meta")}])
    assert stream.getvalue() == b""


def test_every_truncation_is_a_format_error():
    data = saved(TREE)
    for end in range(len(data)):
        with pytest.raises(FormatError):
            loaded(data[:end], LIKE)


def test_every_flipped_byte_is_a_format_error():
    data = saved({"a": 1, "t": torch.ones(2)})
    for at in range(len(data)):
        for mask in (0x01, 0x80, 0xFF):
            broken = bytearray(data)
            broken[at] ^= mask
            with pytest.raises(FormatError):
                loaded(bytes(broken), {"a": 1, "t": torch.ones(2)})


@pytest.mark.parametrize(
    "data", [b"", b"\x00" * 500, b"PK\x03\x04" * 50, b'{"a": 1}' * 30, MAGIC, b"\x80\x04" * 99]
)
def test_foreign_data_are_a_format_error(data, tmp_path):
    path = tmp_path / "foreign"
    path.write_bytes(data)
    with pytest.raises(FormatError, match="foreign") as caught:
        mapper.load_tree(path, LIKE)
    assert "\n" not in str(caught.value)
    with pytest.raises(FormatError):
        loaded(data, LIKE)


def test_what_follows_in_a_file_is_a_format_error(tmp_path):
    path = tmp_path / "two"
    path.write_bytes(saved([1]) + saved([2]))
    with pytest.raises(FormatError, match="two: more data"):
        mapper.load_tree(path, [0])
    with open(path, "rb") as file:
        assert mapper.load_tree(file, [0]) + mapper.load_tree(file, [0]) == [1, 2]


def record(header, body=b"", version=(1, 0), size=None):
    """A record with right checksums, whatever it says."""
    fields = struct.pack("<8sHHQIQ", MAGIC, *version, size or len(header), zlib.crc32(header), len(body))
    return fields + struct.pack("<I", zlib.crc32(fields)) + header + body


def leaf(data):
    return data + struct.pack("<I", zlib.crc32(data))


def described(node, raw=b""):
    head = json.dumps(node).encode()
    return len(head).to_bytes(4, "little") + head + raw


def one(node, raw=b""):
    """A record of one leaf at the root, which a default would have to read."""
    data = described(node, raw)
    return record(json.dumps({"leaves": [{"path": [], "size": len(data)}]}).encode(), leaf(data))


def test_the_format_is_what_its_description_says():
    tensor = {"type": "torch.Tensor", "dtype": "float32", "shape": [2]}
    data = one(tensor, struct.pack("<2f", 1, 2))
    assert torch.equal(loaded(data, torch.zeros(2)), torch.tensor([1.0, 2.0]))


def test_fields_of_a_later_minor_version_are_ignored():
    data = described({"type": "number", "value": 3, "new": []})
    header = json.dumps({"leaves": [{"path": ["a"], "size": len(data), "new": 1}], "also new": {}}).encode()
    assert loaded(record(header, leaf(data), version=(1, 7)), {"a": 0}) == {"a": 3}


def test_a_later_major_version_is_named():
    with pytest.raises(FormatError, match=r"version 2\.3 is newer than 1\.0"):
        loaded(record(b"anything", version=(2, 3)), [0])


HEADERS = {
    "not JSON": b"{",
    "not ASCII": b"\xff",
    "deep": b'{"leaves": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "no object": b"[]",
    "no list": b'{"leaves": {}}',
    "no leaf": b'{"leaves": [3]}',
    "no path": b'{"leaves": [{"size": 0}]}',
    "no size": b'{"leaves": [{"path": []}]}',
    "negative": b'{"leaves": [{"path": [], "size": -4}]}',
    "boolean": b'{"leaves": [{"path": [], "size": true}]}',
    "huge": b'{"leaves": [{"path": [], "size": 99999999999999999999999999}]}',
    "digits": b'{"leaves": [{"path": [], "size": ' + b"9" * 6000 + b"}]}",
    "other size": b'{"leaves": [{"path": [], "size": 1}]}',
    "step": b'{"leaves": [{"path": [{"attribute": 3}], "size": 0}]}',
    "key": b'{"leaves": [{"path": [[1]], "size": 0}]}',
    "not finite": b'{"leaves": [{"path": [NaN], "size": 0}]}',
    "also": b'{"leaves": [{"path": [], "also": 3, "size": 0}]}',
    "twice": b'{"leaves": [{"path": [1], "size": 0}, {"path": [1], "size": 0}]}',
}


@pytest.mark.parametrize("kind", HEADERS)
def test_a_header_that_says_nonsense_is_a_format_error(kind):
    leaves = 2 if kind == "twice" else 1
    with pytest.raises(FormatError):
        loaded(record(HEADERS[kind], leaf(b"") * leaves), [0])


LEAVES = {
    "no type": {},
    "type": {"type": "function"},
    "dtype": {"type": "torch.Tensor", "dtype": "save", "shape": []},
    "dtype is a list": {"type": "torch.Tensor", "dtype": [], "shape": []},
    "shape": {"type": "torch.Tensor", "dtype": "float32", "shape": [-1]},
    "beyond": {"type": "torch.Tensor", "dtype": "float32", "shape": [1 << 47, 1 << 47, 0]},
    "more than there is": {"type": "torch.Tensor", "dtype": "float32", "shape": [1 << 40]},
    "order": {"type": "torch.Tensor", "dtype": "float32", "shape": [0, 2], "order": [0, 0]},
    "order of words": {"type": "torch.Tensor", "dtype": "float32", "shape": [0, 2], "order": ["a", []]},
    "objects": {"type": "numpy.ndarray", "dtype": "|O", "shape": []},
    "word": {"type": "numpy.ndarray", "dtype": "O,O", "shape": []},
    "fields": {"type": "numpy.ndarray", "dtype": {"fields": [["a", "<f4", -5]], "size": 4}, "shape": []},
    "objects in fields": {
        "type": "numpy.ndarray",
        "dtype": {"fields": [["a", "|O8", 0]], "size": 8},
        "shape": [],
    },
    "deep type": {"type": "numpy.ndarray", "dtype": {"base": {"base": {"base": 1}}}, "shape": []},
    "scalar": {"type": "numpy.generic", "numpy.scalar": "AAAA", "dtype": "<f8"},
    "not base64": {"type": "numpy.generic", "numpy.scalar": "é", "dtype": "<f8"},
    "number": {"type": "number", "value": "text"},
    "float": {"type": "number", "value": {"float": "zz"}},
}


@pytest.mark.parametrize("kind", LEAVES)
@pytest.mark.parametrize(
    "like", [torch.zeros(2), np.zeros(2), np.float64(1), 1.0, torch.zeros(2, device="meta")], ids=str
)
def test_a_leaf_that_says_nonsense_is_an_error_with_its_path(kind, like):
    with pytest.raises(StructureError) as caught:
        loaded(one(LEAVES[kind]), like)
    assert caught.value.path == "the root"


def test_a_claimed_size_takes_no_memory():
    import tracemalloc

    header = json.dumps({"leaves": [{"path": [], "size": 1 << 50}]}).encode()
    fields = struct.pack("<8sHHQIQ", MAGIC, 1, 0, len(header), zlib.crc32(header), (1 << 50) + 4)
    data = fields + struct.pack("<I", zlib.crc32(fields)) + header + b"little"
    tracemalloc.start()
    try:
        with pytest.raises(FormatError, match="cut short"):
            loaded(data, 1)
        with pytest.raises(FormatError, match="allowed"):
            loaded(record(b"", size=1 << 60), 1)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()
