"""Naming files: their examples, the gguf package as a second opinion on names, and what a reader refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mapper.errors import RuleError
from mapper.rulebook.namings import Naming, namings, read_naming
from mapper.rulebook.strict import parse_yaml
from mapper.sources.renaming import Contents, named

NAMED = [naming for naming in namings() if naming.architectures]


class Vector:
    """A tensor that any arrangement fits."""

    def __init__(self, name: str, shape: tuple[int, ...]):
        self.name, self.shape = name, shape

    def part(self, number: int) -> Vector:
        return Vector(self.name, self.shape[1:])


def target(naming: Naming, name: str) -> str:
    shape = (1, 12, 12) if "_exps" in name else (12, 12)
    heads = {f"x.{key}": 2 for key in ("attention.head_count", "attention.head_count_kv")}
    found, _ = named(naming, Contents(heads, [Vector(name, shape)]), "x.", "file")
    return found[0].name


@pytest.mark.parametrize("naming", NAMED, ids=lambda naming: naming.name)
def test_the_examples_of_a_naming_are_as_it_says(naming: Naming) -> None:
    assert naming.examples
    for example in naming.examples:
        assert {name: target(naming, name) for name in example["names"]} == example["names"]


@pytest.mark.parametrize(
    "naming", [one for one in NAMED if one.container == "gguf"], ids=lambda naming: naming.name
)
def test_the_gguf_package_calls_the_same_tensors_so(naming: Naming) -> None:
    package = pytest.importorskip("gguf")
    number = {name: key for key, name in package.MODEL_ARCH_NAMES.items()}[naming.architectures[0]]
    table, known = package.get_tensor_name_map(number, 4), package.MODEL_TENSORS[number]
    theirs = {package.TENSOR_NAMES[tensor].format(bid=3) for tensor in known}
    for pattern, model in naming.names.items():
        ours = ".".join(pattern).replace("{n}", "3")
        if ours not in theirs:  # what it extends has more than this architecture
            continue
        name = model.replace("{n}", "3").replace(".{e}", "")
        spellings = [name, name.removeprefix("transformer."), f"{name}.weight"]
        assert ours in [table.get_name(spelling) for spelling in spellings], name


def read(text: str) -> Any:
    document = parse_yaml(text, "naming.yaml", Path("naming.yaml"))
    return read_naming(document, {str(document.data["naming"]): document})


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("tale: 1", "unknown field 'tale'"),
        ("names: {a: 3}", "expected the beginning of a name"),
        ('names: {a: "b.{n}"}', "expected the beginning of a name"),
        ("arranged: {a: {tale: 1}}", "unknown tale; allowed: pairs"),
        ("config: {a: {tale: 1}}", "unknown tale; allowed: value"),
        ("extends: b", "there is no other naming 'b'"),
        ("extends: a", "there is no other naming 'a'"),
    ],
)
def test_what_no_naming_may_have_is_refused_with_its_line(line: str, expected: str) -> None:
    with pytest.raises(RuleError, match=r"naming\.yaml:\d: ") as caught:
        read(f"naming: a\ncontainer: gguf\n{line}\n")
    assert expected in str(caught.value)
