"""Lists whose elements are called one after another: torch's own `nn.Sequential` has that forward."""

from __future__ import annotations

import re

from mapper.emission.expressions import split

_START = "super().__init__("
_LOOP = ["for", "layer", "in", "self:", "x", "=", "layer(x)", "return", "x"]
_NESTED = re.compile(r"return ((?:self\[\d+\]\()+)x(\)+)$")
_INDEX = re.compile(r"\[(\d+)\]")


def is_chain(methods: list[str], is_list: bool, count: int) -> bool:
    """Whether the methods of a class are one forward that passes its input through all its `count` elements in turn."""
    if not is_list or not methods or methods[0].strip() != "def forward(self, x: Tensor) -> Tensor:":
        return False
    body = " ".join(row.strip() for row in methods[1:])
    if body.split() == _LOOP:
        return True
    found = _NESTED.match(body)
    numbers = [int(number) for number in _INDEX.findall(found[1])] if found else []
    is_in_order = bool(numbers) and numbers == [*range(count - 1, -1, -1)]
    return is_in_order and len(found[2]) == count  # type: ignore[index]


def as_arguments(row: str) -> str:
    """`super().__init__([a, b])` as `nn.Sequential` takes its elements: side by side."""
    items = row.removeprefix(_START).removesuffix(")")
    is_list = items.startswith("[") and items.endswith("]") and len(split(items)) == 1
    return f"{_START}{items[1:-1]})" if is_list else f"{_START}*({items}))"
