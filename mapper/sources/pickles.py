"""The restricted pickle interpreter: what a pickle says, without doing it.

A pickle is a program that may import and call anything. This machine runs its opcodes over plain values; a
name is never looked up, and a call is an entry of `_MEANINGS`, which makes a plain value too, or an `Opaque`.

https://github.com/python/cpython/blob/main/Lib/pickletools.py has the opcodes, `torch.save` the few names.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, NamedTuple

from mapper import limits
from mapper.checkpoint import TORCH_NAMES
from mapper.errors import FormatError, shorten

STOP = ord(".")
DTYPES = {
    "DoubleStorage": "F64", "FloatStorage": "F32", "HalfStorage": "F16", "BFloat16Storage": "BF16",
    "LongStorage": "I64",
    "IntStorage": "I32", "ShortStorage": "I16", "CharStorage": "I8", "ByteStorage": "U8", "BoolStorage":
    "BOOL",
    "ComplexFloatStorage": "C64", "ComplexDoubleStorage": "C128", "UntypedStorage": "U8",
    **{word: name for name, word in TORCH_NAMES.items() if name != "F4"},  # whose pairs no storage of a file has
}  # fmt: skip


class Global(NamedTuple):
    """A name that the pickle asks to import; it stays a name."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


class Storage(NamedTuple):
    """The bytes that tensors are views of."""

    key: str
    dtype: str  # "" where the class is not known
    elements: int


class StoredTensor(NamedTuple):
    """A view of a storage; `offset` and `strides` count elements of `dtype`."""

    storage: Storage
    dtype: str
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class Opaque:
    """Something that a reader of tensors has no use for. `unread` says why, if it stands for a tensor."""

    __slots__ = ("attributes", "is_module", "kind", "unread")

    def __init__(self, unread: str | None = None, kind: str = ""):
        self.unread = unread
        self.kind = kind  # its class, as far as the pickle says
        self.is_module = False  # whether its attributes are those of torch's modules
        self.attributes: dict[Any, Any] = {}  # what an object of plain values would have, as data


MODULE = {"_parameters", "_modules"}  # attributes of every torch.nn.Module


class Pickled(NamedTuple):
    """What one pickle says."""

    value: Any
    end: int  # the byte after it
    tensors: list[StoredTensor]  # all that it makes
    foreign: list[str]  # what it asks to call besides, each once: never looked up


def interpret(data: bytes, name: str, start: int = 0) -> Pickled:
    """What the pickle in `data` at `start` says. `name` is for errors."""
    machine = Machine(data, name, start)
    value = machine.run()
    return Pickled(value, machine.position, machine.tensors, list(machine.foreign))


_ATOMS = (
    str,
    int,
    float,
    bytes,
    type(None),
)  # the only keys of a table: hashing nested tuples can take forever


class Machine:
    """Runs the opcodes of one pickle."""

    def __init__(self, data: bytes, name: str, position: int):
        self.data = data
        self.name = name
        self.position = position
        self.stack: list[Any] = []
        self.marks: list[list[Any]] = []  # the stacks below each mark
        self.memo: dict[int, Any] = {}
        self.tensors: list[StoredTensor] = []
        self.foreign: dict[str, None] = {}

    def run(self) -> Any:
        try:
            return self._run()
        except FormatError:
            raise
        except IndexError:
            raise self.damaged("it is cut short") from None
        except KeyError:
            raise self.damaged("an opcode or a memo entry is unknown") from None
        except (struct.error, ValueError, TypeError, OverflowError, AttributeError) as error:
            raise self.damaged("an opcode does not fit its arguments") from error

    def _run(self) -> Any:
        data, actions = self.data, _ACTIONS
        for _ in range(limits.PICKLE_OPCODES):
            code = data[self.position]
            self.position += 1
            if code == STOP:
                return self.stack.pop()
            actions[code](self)
        raise FormatError(
            f"{self.name}: more than {limits.PICKLE_OPCODES:,} pickle opcodes, which is the most that is read"
        )

    def damaged(self, why: str) -> FormatError:
        return FormatError(
            f"{self.name}: the pickle is damaged at byte {self.position:,}: {why}; download it again"
        )

    def take(self, count: int) -> bytes:
        """The next `count` bytes."""
        start = self.position
        if count < 0 or start + count > len(self.data):
            raise self.damaged(f"it promises {count:,} more bytes and has {len(self.data) - start:,}")
        self.position = start + count
        return self.data[start : self.position]

    def number(self, form: str) -> Any:
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def line(self, encoding: str = "utf-8") -> str:
        end = self.data.find(b"\n", self.position, self.position + limits.PICKLE_LINE_BYTES)
        if end < 0:
            raise self.damaged("a line has no end")
        return self.take(end + 1 - self.position)[:-1].decode(encoding)

    def push(self, value: Any) -> Any:
        self.stack.append(value)

    def bytes(self, count: int) -> None:
        self.push(self.take(count))

    def mark(self) -> None:
        if len(self.marks) >= limits.PICKLE_DEPTH:
            raise FormatError(f"{self.name}: a pickle nested more than {limits.PICKLE_DEPTH} levels deep")
        self.marks.append(self.stack)
        self.stack = []

    def to_mark(self) -> list[Any]:
        items = self.stack
        self.stack = self.marks.pop()
        return items

    def pop(self) -> None:
        if self.stack:
            self.stack.pop()
        else:
            self.to_mark()

    def table(self) -> None:
        items = self.to_mark()
        self.push({})
        self.set_items(items)

    def pop_many(self, count: int) -> tuple[Any, ...]:
        if len(self.stack) < count:
            raise IndexError
        items = tuple(self.stack[-count:])
        del self.stack[-count:]
        return items

    def set_items(self, items: list[Any]) -> None:
        """Enter keys and values, in turn, into the table on top of the stack, or into an object's attributes."""
        made = self.stack[-1]
        table = made.attributes if isinstance(made, Opaque) else made
        if not isinstance(table, dict):
            return
        for key, value in zip(items[::2], items[1::2], strict=True):
            if not isinstance(key, _ATOMS):
                continue
            if key in table:
                raise FormatError(f"{self.name}: {shorten(str(key))} stands twice in one table of the pickle")
            table[key] = value

    def extend(self, items: list[Any]) -> None:
        if isinstance(self.stack[-1], list):
            self.stack[-1].extend(items)

    def call(self, function: Any, arguments: Any) -> None:
        """What a call would give, if it is one that tables and tensors are made with."""
        meaning = _MEANINGS.get(str(function)) if isinstance(function, Global) else None
        if meaning is None or not isinstance(arguments, tuple):
            self.refrain(function)
            return
        value = meaning(*arguments)
        if isinstance(value, StoredTensor):
            self.tensors.append(value)
        self.push(value)

    def reduce(self) -> None:
        self.call(*self.pop_many(2))

    def new_object_with_keywords(self) -> None:
        self.refrain(self.pop_many(3)[0])

    def old_object(self, function: Any = None) -> None:
        items = self.to_mark()
        self.refrain(function or (items[0] if items else None))

    def refrain(self, function: Any) -> None:
        """A call that is not made."""
        name = str(function) if isinstance(function, Global) else "an object"
        if name not in _PLAIN and len(self.foreign) < limits.PICKLE_FOREIGN:
            self.foreign[name] = None
        self.push(Opaque(kind=str(function) if isinstance(function, Global) else ""))

    def build(self) -> None:
        """Attributes of an object, kept as data: nothing is done with them."""
        state = self.stack.pop()
        if isinstance(made := self.stack[-1], Opaque) and isinstance(state, dict):
            made.is_module = made.is_module or state.keys() >= MODULE
            made.attributes |= state

    def global_name(self, module: Any, name: Any) -> None:
        known = isinstance(module, str) and isinstance(name, str)
        self.push(Global(module, name) if known else Opaque())

    def persistent(self, identity: Any) -> None:
        """A storage: ("storage", class, key, device, elements), and from old versions a view of it, or a module's class."""
        if isinstance(identity, tuple) and identity[:1] == ("module",) and isinstance(identity[-1], str):
            self.push(identity[1])
            return
        if not isinstance(identity, tuple) or len(identity) < 5 or identity[0] != "storage":
            self.push(Opaque())
            return
        _, kind, key, _, count = identity[:5]
        if not isinstance(key, str) or type(count) is not int or count < 0:
            raise self.damaged("a storage has no key or size")
        if len(identity) > 5 and identity[5] is not None:
            raise FormatError(
                f"{self.name}: storage {shorten(key)} is a view of another; load it with torch and "
                "save it again"
            )
        self.push(Storage(key, DTYPES.get(kind.name, "") if isinstance(kind, Global) else "", count))

    def integer(self, size: int) -> None:
        if size > limits.PICKLE_INTEGER_BYTES:
            raise FormatError(
                f"{self.name}: an integer of {size:,} bytes in the pickle, at most "
                f"{limits.PICKLE_INTEGER_BYTES} are read"
            )
        self.push(int.from_bytes(self.take(size), "little", signed=True))

    def text_integer(self) -> None:
        line = self.line().rstrip("L")
        if len(line) > 2 * limits.PICKLE_INTEGER_BYTES:
            raise FormatError(f"{self.name}: an integer of {len(line):,} digits in the pickle")
        self.push({"00": False, "01": True}[line] if line in ("00", "01") else int(line))

    def get(self, index: int) -> None:
        self.push(self.memo[index])

    def put(self, index: int) -> None:
        self.memo[index] = self.stack[-1]

    def refuse(self) -> None:
        raise FormatError(
            f"{self.name}: the pickle uses opcode {self.data[self.position - 1]:#04x}, which "
            "torch.save never writes"
        )


def _tensor(storage: Any, offset: Any, shape: Any, strides: Any, *_: Any) -> StoredTensor | Opaque:
    return _view(storage, storage.dtype if isinstance(storage, Storage) else "", offset, shape, strides)


def _typed_tensor(
    storage: Any, offset: Any, shape: Any, strides: Any, _: Any, __: Any, dtype: Any, *___: Any
) -> Any:
    """A tensor over untyped bytes."""
    return _view(
        storage, DTYPES.get(dtype.name, "") if isinstance(dtype, Global) else "", offset, shape, strides
    )


def _view(storage: Any, dtype: str, offset: Any, shape: Any, strides: Any) -> StoredTensor | Opaque:
    if (
        not isinstance(storage, Storage)
        or type(offset) is not int
        or not _are_sizes(shape)
        or not _are_sizes(strides)
    ):
        raise ValueError
    if offset < 0 or len(shape) != len(strides):
        raise ValueError
    if not dtype:
        return Opaque("has a dtype that no safetensors name stands for")
    return StoredTensor(storage, dtype, offset, shape, strides)


def _are_sizes(value: Any) -> bool:
    return isinstance(value, tuple) and all(type(item) is int and 0 <= item < 2**63 for item in value)


def _by_type(function: Any, _: Any, arguments: Any, *__: Any) -> Any:
    """A tensor of a subclass, or with attributes: the tensor."""
    meaning = _MEANINGS.get(str(function)) if isinstance(function, Global) else None
    return (
        meaning(*arguments)
        if meaning in (_tensor, _typed_tensor) and isinstance(arguments, tuple)
        else Opaque()
    )


def _table(*arguments: Any) -> dict[Any, Any]:
    """An ordered or default dict; Python 2 gave it its items as a list of pairs."""
    pairs = arguments[0] if arguments and isinstance(arguments[0], list) else []
    return {key: value for key, value in pairs if isinstance(key, _ATOMS)}


def _unread(why: str) -> Callable[..., Opaque]:
    return lambda *_: Opaque(why)


_MEANINGS: dict[str, Callable[..., Any]] = {
    "collections.OrderedDict": _table,
    "collections.defaultdict": lambda *_: {},
    "builtins.dict": lambda *_: {},
    "torch.Size": lambda sizes, *_: sizes if _are_sizes(sizes) else Opaque(),
    "torch._utils._rebuild_tensor": _tensor,
    "torch._utils._rebuild_tensor_v2": _tensor,
    "torch._utils._rebuild_tensor_v3": _typed_tensor,
    "torch._utils._rebuild_parameter": lambda tensor, *_: tensor,
    "torch._utils._rebuild_parameter_with_state": lambda tensor, *_: tensor,
    "torch._tensor._rebuild_from_type_v2": _by_type,
    "torch._utils._rebuild_qtensor": _unread("is quantised by torch"),
    "torch._utils._rebuild_sparse_tensor": _unread("is sparse"),
    "torch._utils._rebuild_sparse_csr_tensor": _unread("is sparse"),
    "torch._utils._rebuild_nested_tensor": _unread("is a nested tensor"),
    "torch._utils._rebuild_meta_tensor_no_storage": _unread("is on the meta device and has no data"),
    "torch._utils._rebuild_device_tensor_from_numpy": _unread("was saved from another device"),
    "torch._utils._rebuild_device_tensor_from_cpu_tensor": _unread("was saved from another device"),
}  # fmt: skip

# What pickle itself asks for to make plain values; protocol 2, which torch takes, writes bytes by `encode`.
_PLAIN = {
    f"{module}.{name}"
    for module in ("builtins", "__builtin__")
    for name in ("set", "frozenset", "bytes", "bytearray", "complex", "list", "tuple", "slice", "range", "xrange")
} | {
    "_codecs.encode", "torch.device", "torch.serialization._get_layout", "collections.Counter", "collections.deque",
    "numpy.dtype", "numpy.core.multiarray.scalar", "numpy._core.multiarray.scalar",
    "numpy.core.multiarray._reconstruct", "numpy._core.multiarray._reconstruct",
}  # fmt: skip

_OPCODES: dict[str | int, Callable[[Machine], Any]] = {
    0x80: lambda m: m.take(1),  # PROTO
    0x95: lambda m: m.take(8),  # FRAME
    "(": Machine.mark,
    "0": Machine.pop,
    "1": Machine.to_mark,
    "2": lambda m: m.push(m.stack[-1]),
    "N": lambda m: m.push(None),
    0x88: lambda m: m.push(True),
    0x89: lambda m: m.push(False),
    "I": Machine.text_integer,
    "L": Machine.text_integer,
    "J": lambda m: m.push(m.number("<i")),
    "K": lambda m: m.push(m.number("<B")),
    "M": lambda m: m.push(m.number("<H")),
    0x8A: lambda m: m.integer(m.number("<B")),
    0x8B: lambda m: m.integer(m.number("<i")),
    "F": lambda m: m.push(float(m.line())),
    "G": lambda m: m.push(m.number(">d")),
    "S": lambda m: m.push(m.line().strip("'\"")),
    "T": lambda m: m.push(m.take(m.number("<i")).decode("latin-1")),
    "U": lambda m: m.push(m.take(m.number("<B")).decode("latin-1")),
    "B": lambda m: m.bytes(m.number("<I")),
    "C": lambda m: m.bytes(m.number("<B")),
    0x8E: lambda m: m.bytes(m.number("<Q")),
    0x96: lambda m: m.bytes(m.number("<Q")),
    "V": lambda m: m.push(m.line("raw-unicode-escape")),
    "X": lambda m: m.push(m.take(m.number("<I")).decode()),
    0x8C: lambda m: m.push(m.take(m.number("<B")).decode()),
    0x8D: lambda m: m.push(m.take(m.number("<Q")).decode()),
    "]": lambda m: m.push([]),
    "l": lambda m: m.push(m.to_mark()),
    "a": lambda m: m.extend([m.stack.pop()]),
    "e": lambda m: m.extend(m.to_mark()),
    ")": lambda m: m.push(()),
    "t": lambda m: m.push(tuple(m.to_mark())),
    0x85: lambda m: m.push(m.pop_many(1)),
    0x86: lambda m: m.push(m.pop_many(2)),
    0x87: lambda m: m.push(m.pop_many(3)),
    "}": lambda m: m.push({}),
    "d": Machine.table,
    "s": lambda m: m.set_items(list(m.pop_many(2))),
    "u": lambda m: m.set_items(m.to_mark()),
    0x8F: lambda m: m.push(Opaque()),  # a set
    0x90: Machine.to_mark,
    0x91: lambda m: (m.to_mark(), m.push(Opaque())),
    "c": lambda m: m.global_name(m.line(), m.line()),
    0x93: lambda m: m.global_name(*m.pop_many(2)),
    "R": Machine.reduce,
    0x81: Machine.reduce,  # NEWOBJ
    0x92: Machine.new_object_with_keywords,
    "i": lambda m: m.old_object(Global(m.line(), m.line())),
    "o": Machine.old_object,
    "b": lambda m: m.build(),
    "P": lambda m: (m.line(), m.push(Opaque())),
    "Q": lambda m: m.persistent(m.stack.pop()),
    "p": lambda m: m.put(int(m.line())),
    "q": lambda m: m.put(m.number("<B")),
    "r": lambda m: m.put(m.number("<I")),
    "g": lambda m: m.get(int(m.line())),
    "h": lambda m: m.get(m.number("<B")),
    "j": lambda m: m.get(m.number("<I")),
    0x94: lambda m: m.put(len(m.memo)),
    **dict.fromkeys((0x82, 0x83, 0x84, 0x97, 0x98), Machine.refuse),  # registered extensions, buffers outside
}
_ACTIONS = {ord(code) if isinstance(code, str) else code: action for code, action in _OPCODES.items()}
