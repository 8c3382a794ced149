"""Which lists are `nn.Sequential`: those whose forward passes one value through all elements in turn, and no others."""

from __future__ import annotations

import pytest

from mapper.emission.sequential import as_arguments, is_chain

HEAD = "    def forward(self, x: Tensor) -> Tensor:"
LOOP = ["        for layer in self:", "            x = layer(x)", "        return x"]


@pytest.mark.parametrize(
    ("methods", "expected"),
    [
        ([HEAD, *LOOP], True),
        ([HEAD, "        return self[1](self[0](x))"], True),
        ([HEAD, "        return self[0](x)"], False),  # the second one is called by nobody
        ([HEAD, "        return self[2](self[1](self[0](x)))"], False),
        ([HEAD, "        return self[0](self[1](x))"], False),
        ([HEAD, "        return self[2](self[0](x))"], False),
        ([HEAD, "        return self[1](F.relu(self[0](x)))"], False),
        ([HEAD, *LOOP[:2], "        return x + 1"], False),
        (["    def forward(self, x: Tensor, mask: Tensor) -> Tensor:", *LOOP], False),
        ([HEAD, *LOOP, "", "    def pooling(self, x: Tensor) -> Tensor:", "        return x"], False),
        ([], False),
    ],
)
def test_a_chain_calls_every_element_once_and_in_order(methods: list[str], expected: bool) -> None:
    assert is_chain(methods, True, 2) is expected
    assert not is_chain(methods, False, 2)  # it holds more than its elements


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ("super().__init__([a(1), b(2)])", "super().__init__(a(1), b(2))"),
        ("super().__init__(a(n) for n in sizes)", "super().__init__(*(a(n) for n in sizes))"),
        (
            "super().__init__([a(), *(b() for _ in range(3))])",
            "super().__init__(a(), *(b() for _ in range(3)))",
        ),
    ],
)
def test_elements_stand_side_by_side(row: str, expected: str) -> None:
    assert as_arguments(row) == expected
