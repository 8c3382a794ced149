"""What a message about a tree promises, and values that look like tensors but have no bytes of their own."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
import torch

import mapper

HINT = 'by="order"'


def record(tree: Any) -> io.BytesIO:
    stream = io.BytesIO()
    mapper.save_tree(stream, tree)
    stream.seek(0)
    return stream


def message(stored: Any, like: Any) -> str:
    with pytest.raises(mapper.StructureError) as raised:
        mapper.load_tree(record(stored), like)
    return str(raised.value)


def test_by_order_is_only_advised_where_it_repairs_everything() -> None:
    stored, like = {"a": 1, "x": 2}, {"a": 0, "y": 0}
    assert HINT in message(stored, like)
    assert mapper.load_tree(record(stored), like, by="order") == {"a": 1, "y": 2}
    assert HINT not in message({"a": 1, "x": 2}, {"a": 1.5, "y": 0})


def test_by_order_is_not_advised_where_it_would_exchange_leaves() -> None:
    assert HINT not in message({"a": 1, "x": 2}, {"y": 0, "a": 0})


@pytest.mark.filterwarnings("ignore:.*nested tensors:UserWarning")
def test_a_nested_tensor_is_named_by_its_place_before_a_byte_is_written(tmp_path: Path) -> None:
    nested = torch.nested.nested_tensor([torch.ones(1), torch.ones(2)])
    stream = io.BytesIO()
    with pytest.raises(mapper.UnsupportedLeaf, match="nested tensor") as raised:
        mapper.save_tree(stream, {"q": [1, nested]})
    assert raised.value.path == "['q'][1]" and not stream.getvalue()
    with pytest.raises(mapper.UnsupportedLeaf, match="nested tensor") as raised:
        mapper.save_states(tmp_path / "x", torch.nn.Linear(1, 1), {"q": nested})
    assert raised.value.path == "aux['q']" and not list(tmp_path.iterdir())
