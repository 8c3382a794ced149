"""`save_tree` and `load_tree`: the leaves of any nested structure to a file or stream, and back by their paths."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from mapper.errors import FormatError, MissingSourceError, StructureError, UnsupportedLeaf, shorten
from mapper.outputs.files import whole_file
from mapper.weights.loading.flat_table import Held
from mapper.weights.loading.pairing import Plan, Write
from mapper.weights.loading.writing import write
from mapper.weights.trees.leaf_bytes import LeafWriter, default_load_leaf, default_save_leaf
from mapper.weights.trees.matched import Fitting, told
from mapper.weights.trees.records import Entry, RecordReader, path_text, write_record
from mapper.weights.trees.walking import Leaf, Walked, walk


def save_tree(
    dest: Any,
    tree: Any,
    *,
    filter_spec: Any = default_save_leaf,
    is_leaf: Callable[[Any], bool] | None = None,
) -> None:
    """Write the leaves of `tree` to a path, or as one record to a binary stream.

    Containers are dicts, lists, tuples, named tuples, dataclasses, modules, and what is registered with
    torch.utils._pytree or jax.tree_util. Leaves are tensors, arrays and Python's numbers; all others are left out.
    `filter_spec` is a function (writer, leaf), or a tree of functions that begins as `tree` does, with None for a
    subtree to leave out. `is_leaf(node)` stops the walk. Nothing is written before all leaves are encoded.

        mapper.save_tree("state.tree", {"step": 3, "model": model})
    """
    leaves = [
        entry for leaf in walk(tree, filter_spec, is_leaf).leaves if (entry := _encoded(leaf)) is not None
    ]
    if isinstance(dest, (str, os.PathLike)):
        with whole_file(Path(dest)) as partial, open(partial, "wb") as file:
            write_record(file.write, leaves)
        return
    _check_stream(dest, "write")
    write_record(dest.write, leaves)


def _encoded(leaf: Leaf) -> tuple[Entry, LeafWriter] | None:
    """What a leaf's function writes; None where it writes nothing."""
    assert leaf.function is not None
    writer = LeafWriter()
    try:
        leaf.function(writer, leaf.value)
    except Exception as error:
        path = path_text(leaf.path)
        if isinstance(error, UnsupportedLeaf) and leaf.function is default_save_leaf:
            raise UnsupportedLeaf(f"{path}: {error}", path) from None
        raise StructureError(f"{path}: the function of filter_spec failed: {told(error)}", path) from error
    if not writer.was_used:
        return None
    try:
        return Entry(leaf.paths, writer.size), writer
    except UnsupportedLeaf as error:
        path = path_text(leaf.path)
        raise UnsupportedLeaf(f"{path}: {error}", path) from None


def _check_stream(stream: Any, method: str) -> None:
    if isinstance(stream, io.TextIOBase) or not callable(getattr(stream, method, None)):
        kind = type(stream).__name__
        raise TypeError(f"a path or a binary file object is wanted, not a {kind}")
    able = getattr(stream, {"read": "readable", "write": "writable"}[method], None)
    if callable(able) and not able():
        raise TypeError(f"the {type(stream).__name__} was not opened to {method}; open it with 'rb' or 'wb'")


def load_tree(
    src: Any,
    like: Any,
    *,
    filter_spec: Any = default_load_leaf,
    is_leaf: Callable[[Any], bool] | None = None,
    strict: bool = True,
    by: str = "path",
) -> Any:
    """A tree as `like` with the leaves that `save_tree` wrote to `src`, a path or a binary stream.

    Leaves are matched by path (with `by="order"` as they follow one another) and have the type, shape and dtype of
    those in `like`, of which meta tensors and jax.ShapeDtypeStruct have no type. StructureError names every leaf that
    disagrees, or that one side lacks; with `strict=False` those of `like` stay, and others are dropped. `filter_spec`
    has functions (reader, leaf of `like`), whose result is taken. `like` stays as it is, but for modules in it: they
    are filled in place, after every check.

        tree = mapper.load_tree("state.tree", {"step": 0, "model": model})
    """
    if by not in ("path", "order"):
        raise ValueError(f"by is {by!r}; known are 'path', 'order'")
    if isinstance(src, (str, os.PathLike)):
        return _load_file(Path(src), like, filter_spec, is_leaf, strict, by)
    _check_stream(src, "read")
    walked = walk(like, filter_spec, is_leaf)
    reader = RecordReader(src.read, "the stream")
    return _finished(walked, Fitting(walked, reader, strict, by).run(like))


def _load_file(path: Path, like: Any, filter_spec: Any, is_leaf: Any, strict: bool, by: str) -> Any:
    walked = walk(like, filter_spec, is_leaf)
    with _opened(path) as file:
        fit = Fitting(walked, RecordReader(file.read, str(path), file), strict, by)
        replaced = fit.run(like, lambda: _more(path) if file.read(1) else None)
    return _finished(walked, replaced)


def _opened(path: Path) -> BinaryIO:
    try:
        return open(path, "rb")
    except FileNotFoundError:
        raise MissingSourceError(f"{shorten(str(path))}: no such file; check the path") from None
    except IsADirectoryError as error:
        raise FormatError(f"{path} is a folder; a file of mapper.save_tree is wanted") from error


def _more(path: Path) -> None:
    raise FormatError(f"{path}: more data follows the record; open the file to read one record after another")


def _finished(walked: Walked, replaced: list[Leaf]) -> Any:
    """The tree put together, and the modules in it filled: all of them, or none if a copy fails."""
    result = walked.rebuilt()
    writes = [
        Write(leaf.state, Held(leaf.result))
        for leaf in replaced
        if leaf.state and leaf.result is not leaf.value
    ]
    write(Plan(writes=writes), False, None)
    return result
