"""Reads an ONNX file as a `Model`: every field is checked as it is read, and no tensor's bytes are.

https://github.com/onnx/onnx/blob/main/onnx/onnx.proto
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from mapper import limits
from mapper.checkpoint import TensorInfo
from mapper.errors import FormatError, shorten
from mapper.graphs import checks
from mapper.graphs.graph import NARROW, Argument, Attribute, Function, Graph, Model, Node, TensorRef, Value
from mapper.sources import onnx, sharded
from mapper.sources.files import base_name, open_regular, reading, refuse_impostor, stamp
from mapper.sources.shards import Place, check_shape
from mapper.sources.wire import BYTES, FOUR, VARINT, Field, Message

KINDS = {1: "tensor", 4: "sequence", 5: "map", 8: "sparse", 9: "optional"}
ATTRIBUTE_TYPES = {2: "f", 3: "i", 4: "s", 5: "t", 6: "g", 7: "floats", 8: "ints", 9: "strings", 10: "tensors", 11: "graphs"}  # fmt: skip
BY_TYPE = {1: "f", 2: "i", 3: "s", 4: "t", 5: "g", 6: "floats", 7: "ints", 8: "strings", 9: "tensors", 10: "graphs"}  # fmt: skip
EMPTY: dict[str, Callable[[], Any]] = {"f": float, "i": int, "s": bytes}  # a default is not written in proto3
AI_ONNX = "ai.onnx"


def read_model(path: str | Path, follow_links: bool = False) -> Model:
    """The model in a local file. Raises FormatError for what no model can be, SourceError for what cannot be opened.

    Tensors in files beside it must lie in its folder and be there whole; `follow_links` allows links out of it.
    """
    name = base_name(path)
    file, size = open_regular(path)
    with file, reading(name):
        start = file.read(512)
        refuse_impostor(start, size, name)
        reader = _Reader(Message(file, size, name), Path(path), stamp(file), follow_links)
        try:
            model = reader.model()
        except RecursionError:  # the depth of messages is bounded above this
            reader.refuse("its graphs lie too deep in each other")
    checks.check_model(model)
    return model


class _Reader:
    """The messages of one file."""

    def __init__(self, message: Message, path: Path, own: tuple[int, ...], follow_links: bool):
        self.message, self.path, self.stamp, self.follow_links = message, path, own, follow_links
        self.name = message.name
        self.beside: dict[str, tuple[str, int, tuple[int, ...]]] = {}
        self.depth = 0

    def refuse(self, why: str) -> NoReturn:
        raise FormatError(f"{self.name}: {why}")

    def parts(self, whole: Field) -> list[Field]:
        if whole.wire != BYTES:
            raise self.message.damaged(whole.start, "a number where a message is")
        return list(self.message.fields(whole.start, whole.end))

    def text(self, part: Field) -> str:
        return self.message.text(part)

    def pairs(self, parts: list[Field], number: int) -> dict[str, str]:
        """The texts under a repeated field of key and value."""
        found = [
            {inner.number: inner for inner in self.parts(part)} for part in parts if part.number == number
        ]
        limit = limits.METADATA_BYTES
        return {
            self.text(pair[1]): self.message.bytes(pair[2], limit).decode("utf-8", "replace")
            if 2 in pair
            else ""
            for pair in found
            if 1 in pair
        }

    def model(self) -> Model:
        parts = list(self.message.fields())
        graph = onnx.graph_of(self.message, parts)
        numbers = {part.number: part for part in parts}
        version = numbers[1].value if 1 in numbers else 0
        producer = self.text(numbers[2]) if 2 in numbers else ""
        functions = [self.function(part) for part in parts if part.number == 25]
        return Model(
            self.graph(graph),
            self.opsets(parts, 8),
            {(one.domain, one.name, one.overload): one for one in functions},
            self.pairs(parts, 14),
            version,
            producer,
            self.name,
        )

    def opsets(self, parts: list[Field], number: int) -> dict[str, int]:
        found: dict[str, int] = {}
        for part in parts:
            if part.number == number:
                inner = {one.number: one for one in self.parts(part)}
                domain = self.text(inner[1]) if 1 in inner else ""
                found[domain_of(domain)] = signed(inner[2].value) if 2 in inner else 0
        return found

    def graph(self, whole: Field) -> Graph:
        self.depth += 1
        if self.depth > limits.GRAPH_DEPTH:
            self.refuse(
                f"graphs lie in graphs more than {limits.GRAPH_DEPTH} deep, which is the most that is read"
            )
        graph, parts = Graph(), self.parts(whole)
        for part in parts:
            if part.number == 1:
                graph.nodes.append(self.node(part))
            elif part.number == 2:
                graph.name = self.text(part)
            elif part.number == 5:
                self.initialiser(graph, part)
            elif part.number in (11, 12, 13):
                value = self.value(part)
                graph.values[value.name] = value
                if part.number != 13:
                    (graph.inputs if part.number == 11 else graph.outputs).append(value)
            elif part.number == 15:
                self.refuse("an initialiser is sparse, which is not read")
        graph.metadata = self.pairs(parts, 16)
        self.depth -= 1
        return graph

    def initialiser(self, graph: Graph, part: Field) -> None:
        made = self.tensor(part)
        if made.name in graph.initialisers:
            self.refuse(f"two initialisers have the name {shorten(made.name)}")
        graph.initialisers[made.name] = made
        if len(graph.initialisers) > limits.TENSORS:
            self.refuse(f"more than {limits.TENSORS:,} tensors, which is the most that is read")

    def node(self, whole: Field) -> Node:
        node, parts = Node(""), self.parts(whole)
        for part in parts:
            if part.number == 1:
                node.inputs.append(self.text(part))
            elif part.number == 2:
                node.outputs.append(self.text(part))
            elif part.number == 3:
                node.name = self.text(part)
            elif part.number == 4:
                node.operator = self.text(part)
            elif part.number == 5:
                name, value = self.attribute(part)
                node.attributes[name] = value
            elif part.number == 7:
                node.domain = domain_of(self.text(part))
            elif part.number == 8:
                node.overload = self.text(part)
        node.metadata = self.pairs(parts, 9)
        return node

    def attribute(self, whole: Field) -> tuple[str, Attribute]:
        parts = self.parts(whole)
        last = {part.number: part for part in parts}
        name = self.text(last[1]) if 1 in last else ""
        if 21 in last and last[21].size:
            return name, Argument(self.text(last[21]))
        kind = BY_TYPE.get(last[20].value) if 20 in last else None
        if kind is None and 20 not in last:  # ir_version 1 and 2 do not say
            kind = next(
                (ATTRIBUTE_TYPES[part.number] for part in parts if part.number in ATTRIBUTE_TYPES), "i"
            )
        if kind is None:
            return name, Argument("")  # a type or a sparse tensor: what reads it refuses it
        number = next(number for number, word in ATTRIBUTE_TYPES.items() if word == kind)
        held = [part for part in parts if part.number == number]
        if kind in EMPTY and not held:
            return name, EMPTY[kind]()
        found = [value for part in held for value in self.values(kind, part, name)]
        if len(kind) > 1:
            return name, found
        if not found:
            self.refuse(f"attribute {shorten(name)} has no value")
        return name, found[0]

    def values(self, kind: str, part: Field, name: str) -> list[Any]:
        """The values in one field of an attribute."""
        if kind in ("i", "ints"):
            if part.wire not in (VARINT, BYTES):
                raise self.message.damaged(part.start, "no whole number")
            return [signed(value) for value in self.message.numbers(part, limits.ATTRIBUTE_ITEMS)]
        if kind in ("f", "floats"):
            if part.wire not in (FOUR, BYTES) or part.size % 4:
                raise self.message.damaged(part.start, "no float")
            data = self.message.bytes(part._replace(wire=BYTES), 4 * limits.ATTRIBUTE_ITEMS)
            return list(struct.unpack(f"<{part.size // 4}f", data))
        if kind in ("s", "strings"):
            return [self.message.bytes(part, limits.METADATA_BYTES)]
        return [self.tensor(part)] if kind in ("t", "tensors") else [self.graph(part)]

    def function(self, whole: Field) -> Function:
        parts = self.parts(whole)
        texts: dict[int, list[str]] = {}
        for part in parts:
            if part.number in (1, 4, 5, 6, 10, 13):
                texts.setdefault(part.number, []).append(self.text(part))
        one = partial(_last, texts)
        return Function(
            one(1),
            domain_of(one(10)),
            one(13),
            texts.get(4, []),
            texts.get(5, []),
            texts.get(6, []),
            dict(self.attribute(part) for part in parts if part.number == 11),
            [self.node(part) for part in parts if part.number == 7],
            self.opsets(parts, 9),
            self.pairs(parts, 14),
        )

    def value(self, whole: Field) -> Value:
        parts = self.parts(whole)
        last = {part.number: part for part in parts}
        name = self.text(last[1]) if 1 in last else ""
        found = self.typed(name, last[2]) if 2 in last else Value(name)
        return replace(found, metadata=self.pairs(parts, 4))

    def typed(self, name: str, whole: Field, depth: int = 0) -> Value:
        found = next((part for part in self.parts(whole) if part.number in KINDS), None)
        if found is None:
            return Value(name)
        inner = {part.number: part for part in self.parts(found)}
        kind = KINDS[found.number]
        if kind in ("sequence", "optional") and 1 in inner:
            if depth > limits.GGUF_DEPTH:
                self.refuse(f"the type of {shorten(name)} is nested too deep")
            element = self.typed(name, inner[1], depth + 1)
            return Value(
                name,
                element.dtype,
                element.shape,
                kind if element.kind == "tensor" else f"{kind} of {element.kind}",
            )
        if kind == "map":
            return Value(name, kind=kind)
        dtype = type_name(inner[1].value) if 1 in inner and inner[1].wire == VARINT else None
        return Value(name, dtype, self.extents(inner[2], name) if 2 in inner else None, kind)

    def extents(self, whole: Field, name: str) -> tuple[int | str | None, ...]:
        found: list[int | str | None] = []
        for part in self.parts(whole):
            if part.number != 1:
                continue
            inner = {one.number: one for one in self.parts(part)}
            if 1 in inner:
                value = signed(inner[1].value)
                found.append(None if value == -1 else value)  # some exporters write -1 for an unknown size
            else:
                found.append((self.text(inner[2]) or None) if 2 in inner else None)
        check_shape([extent for extent in found if isinstance(extent, int)], name, self.name)
        if len(found) > limits.DIMENSIONS:
            self.refuse(
                f"value {shorten(name)} has {len(found):,} dimensions, at most {limits.DIMENSIONS} are read"
            )
        return tuple(found)

    def tensor(self, whole: Field) -> TensorRef:
        """Where a tensor is. Raises FormatError where it cannot be there."""
        entry = onnx.read_entry(self.message, whole)
        if entry.kind == onnx.TEXTS:
            shape = check_shape([signed(extent) for extent in entry.dims], entry.key, self.name)
            return self.own(entry.key, TensorInfo(shape, "STRING"), whole.start, whole.end, "texts")
        if entry.kind in NARROW:
            return self.narrow(entry)
        entry.dims = [signed(extent) for extent in entry.dims]
        info = onnx.info_of(entry, self.name)
        if entry.is_external:
            return self.outside(onnx.place_of(entry, info, self.name), entry.external.get("location", ""))
        part, is_plain = onnx.numbers_of(entry, info, self.name)
        return self.own(entry.key, info, part.start, part.end, "plain" if is_plain else "varints")

    def own(self, key: str, info: TensorInfo, start: int, end: int, packing: str) -> TensorRef:
        return TensorRef(key, info.dtype, info.shape, os.fspath(self.path), start, end, packing, self.stamp)

    def narrow(self, entry: onnx.Entry) -> TensorRef:
        dtype = NARROW[entry.kind]
        info = TensorInfo(check_shape([signed(extent) for extent in entry.dims], entry.key, self.name), dtype)
        if entry.is_external or len(entry.data) > 1:
            self.refuse(
                f"tensor {shorten(entry.key)} of {dtype} is in pieces or another file, which is not read"
            )
        number, part = next(iter(entry.data.items()), (onnx.RAW, Field(onnx.RAW, BYTES, 0, 0)))
        needed = -(-info.size * int(dtype[1:]) // 8)
        if (
            number not in (onnx.RAW, onnx.INTS)
            or part.size < needed
            or (number == onnx.RAW and part.size > needed)
        ):
            self.refuse(
                f"tensor {shorten(entry.key)} has {part.size:,} bytes where {dtype} {list(info.shape)} needs {needed:,}"
            )
        return self.own(
            entry.key, info, part.start, part.end, "narrow" if number == onnx.RAW else "narrow varints"
        )

    def outside(self, place: Place, location: str) -> TensorRef:
        """A tensor in a file beside the model."""
        if location not in self.beside:
            folder = os.path.dirname(os.path.abspath(self.path))
            sharded.refuse_outside(folder, location, self.name, self.follow_links)
            path = os.path.join(folder, location)
            file, size = open_regular(path)
            with file:
                self.beside[location] = path, size, stamp(file)
        path, size, seen = self.beside[location]
        end = onnx.end_of(place, location, size, self.name)
        return TensorRef(
            place.key, place.info.dtype, place.info.shape, path, place.offset, end, "plain", seen
        )


def domain_of(text: str) -> str:
    """A domain as it is written here: ONNX's own is ""."""
    return "" if text == AI_ONNX else text


def type_name(kind: int) -> str:
    """ONNX's number of a type of elements, in words."""
    if kind == onnx.TEXTS:
        return "STRING"
    return NARROW[kind] if kind in NARROW else onnx.DTYPES.get(kind, str(kind))


def signed(value: int) -> int:
    """A number of 64 bits as its sign says."""
    return value - 2**64 if value >= 2**63 else value


def _last(texts: dict[int, list[str]], number: int) -> str:
    return texts[number][-1] if number in texts else ""
