"""Naming files: their examples, the gguf package as a second opinion on names, and what a reader refuses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mapper.authoring.check import check_rules
from mapper.errors import RuleError
from mapper.rulebook.libraries import library_namings
from mapper.rulebook.namings import Naming, namings, read_naming
from mapper.rulebook.rulebook import Rulebook, rule_files, rulebook_of
from mapper.rulebook.strict import parse_yaml
from mapper.weights.renaming.parts import Halves
from mapper.weights.renaming.proof import wrong_round_trips
from mapper.weights.renaming.table import Made

NAMED = [naming for naming in namings() if naming.architectures]


FILES = rule_files("namings")
SHIPPED = rulebook_of()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_examples_of_a_naming_are_as_it_says(path: Path) -> None:
    (found,) = check_rules(SHIPPED, [path])
    assert found.problems == [] and found.kind == "namings" and found.name
    assert found.examples or path.stem == "decoder"


def test_an_example_that_is_not_so_is_told(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("naming: a\ncontainer: gguf\nnames: {x: q}\nexamples: [{names: {x.weight: z.weight}}]\n")
    (found,) = check_rules(Rulebook(), [file])
    assert found.problems == [f"{file}: 'x.weight' becomes 'q.weight', and the example says 'z.weight'"]


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
        name = model.replace("{n}", "3").replace(".norms.{e}", "").replace(".{e}", "")
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


def test_halves_that_stay_where_they_are_are_told_though_the_way_back_undoes_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (flux,) = (naming for naming in library_namings() if naming.label == "diffusers/flux")
    assert list(wrong_round_trips(flux, SHIPPED)) == []
    made = Made.of

    def as_they_stand(self: Made, read: Any) -> Any:
        parts = (replace(part, turn=None) if isinstance(part.turn, Halves) else part for part in self.parts)
        return made(replace(self, parts=tuple(parts)), read)

    monkeypatch.setattr(Made, "of", as_they_stand)
    told = list(wrong_round_trips(flux, SHIPPED))
    assert any("the weight of tower.last_modulation has other numbers there" in text for text in told)
    assert not any("is not what it was" in text for text in told)
