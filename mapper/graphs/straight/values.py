"""What a name of the graph is while its source is written: a tensor's expression, or whole numbers that Python has itself."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from mapper.graphs.graph import Node

_PLAIN = re.compile(r"-?\w+(\.\w+)*(\[-?\d+\])?")


@dataclass(frozen=True)
class Made:
    """What gave a value: a node, what went into it, and which of its outputs the value is."""

    node: Node
    inputs: tuple[Held | None, ...]
    place: int = 0

    def of(self, *operators: str) -> bool:
        """Whether it is one of these operators of ONNX."""
        return self.node.operator in operators and not self.node.domain


@dataclass(frozen=True)
class Held:
    """One value: `text` is an expression that gives it; with `items` it is whole numbers instead, of rank 0 or 1."""

    text: str = ""
    items: tuple[str, ...] | None = None  # each an expression; `*x.shape` stands for several
    is_scalar: bool = False
    dtype: str | None = None  # where it is known
    rank: int | None = None
    shape: tuple[int | str | None, ...] | None = None  # a text: what gives it; None: not known
    floats: tuple[float, ...] | None = None  # a small constant of floats
    number: str = ""  # how a constant of one number is written beside a tensor
    sure: bool = False  # whether the shape follows from inputs and weights alone, not from what the file says of values between
    made: Made | None = field(default=None, compare=False)

    @property
    def is_sizes(self) -> bool:
        return self.items is not None

    @property
    def whole(self) -> str:
        """The type of whole numbers."""
        return self.dtype or "I64"

    @property
    def known_shape(self) -> tuple[int | str | None, ...] | None:
        """The sizes, None for one that is not known; None where not even the rank is."""
        if self.items is not None:
            is_open = any(item.startswith("*") for item in self.items)
            return () if self.is_scalar else (None if is_open else len(self.items),)
        if self.shape is not None:
            return self.shape
        return None if self.rank is None else (None,) * self.rank

    @property
    def constants(self) -> list[int] | None:
        """The numbers, where all of them are known."""
        if self.items is None:
            return None
        try:
            return [int(item) for item in self.items]
        except ValueError:
            return None

    def as_python(self) -> str:
        """Whole numbers as Python writes them."""
        assert self.items is not None
        return self.items[0] if self.is_scalar else f"[{', '.join(self.items)}]"

    def as_tensor(self) -> str:
        """The value as a tensor."""
        if self.items is None:
            return self.text
        kind = "int32" if self.dtype == "I32" else "int64"
        if not self.items:
            return f"torch.zeros(0, dtype=torch.{kind})"
        return f"torch.tensor({self.as_python()}{', dtype=torch.int32' if self.dtype == 'I32' else ''})"

    @property
    def is_plain(self) -> bool:
        """Whether it can stand twice without being computed twice."""
        return bool(_PLAIN.fullmatch(self.text))


def sizes(items: list[str], is_scalar: bool = False, dtype: str = "I64") -> Held:
    """Whole numbers of Python; `dtype` is that of the tensor that they stand for."""
    return Held(items=tuple(items), is_scalar=is_scalar, dtype=dtype, rank=0 if is_scalar else 1)


def text_of(held: Held) -> str:
    """A value as a tensor."""
    return held.as_tensor() if held.is_sizes else held.text


def in_brackets(item: str) -> str:
    """An expression that can be a part of a product."""
    return item if _PLAIN.fullmatch(item) else f"({item})"
