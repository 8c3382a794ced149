"""generated/ is what `tools/validate.py --sources` writes now: byte for byte, importable with torch alone, keys as in the header."""

from __future__ import annotations

import ast
import importlib.util
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest
import torch

from mapper._build import NothingDrawn, renamed
from mapper.emission import emit

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.xdist_group("catalogue")  # one process reads all of it once


def _tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("validate", ROOT / "tools" / "validate.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


VALIDATE = _tool()
RULEBOOK = VALIDATE.Rulebook()
FAMILIES = [family for family in RULEBOOK.families if family.model_types]
FILES = sorted(path.stem for path in (ROOT / "generated").glob("*.py"))


@cache
def models() -> dict:
    """Every model of the catalogue as it is read now."""
    return {name: VALIDATE.read(name, RULEBOOK) for name in VALIDATE.names()}


@cache
def shown() -> dict[str, str]:
    """The model that each file is of."""
    return VALIDATE.representatives(models())


def named(stem: str) -> str:
    """The model that a file says it is of, which another test holds to `shown`: to read all takes much longer than one."""
    return (
        (ROOT / "generated" / f"{stem}.py").read_text(encoding="utf-8").removeprefix('"""').partition(":")[0]
    )


ALLOWED = {"__future__", "math", "dataclasses", "pathlib", "torch", "typing", "safetensors"}


@pytest.mark.parametrize("stem", FILES)
def test_source_is_regenerated_to_the_byte(stem: str) -> None:
    assert emit(VALIDATE.read(named(stem), RULEBOOK)) == (ROOT / "generated" / f"{stem}.py").read_text(
        encoding="utf-8"
    )


@pytest.mark.parametrize("stem", FILES)
def test_source_imports_with_torch_alone_and_has_the_headers_keys(stem: str) -> None:
    path = ROOT / "generated" / f"{stem}.py"
    tree = ast.parse(path.read_text(encoding="utf-8"))
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in imported} <= ALLOWED
    spec = importlib.util.spec_from_file_location(f"generated_{stem}", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up there
    spec.loader.exec_module(module)
    with torch.device("meta"), NothingDrawn():
        model = module.Model()
    header = VALIDATE.find(named(stem)).tensors
    renames = getattr(module, "RENAMED", {})  # words that cannot be attributes
    made = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    assert made == {renamed(name, renames): info.shape for name, info in header.items()}


def test_the_folder_holds_the_catalogues_classes_and_nothing_else() -> None:
    expected = {f"{stem}.py" for stem in shown()} | {"README.md", "parity.json"}
    assert {path.name for path in (ROOT / "generated").iterdir() if path.name != "__pycache__"} == expected
    assert {stem: named(stem) for stem in shown()} == shown()


def test_the_page_is_regenerated() -> None:
    record = VALIDATE.json.loads((ROOT / "generated" / "parity.json").read_text())
    rows = [VALIDATE.describe(name, architecture, record) for name, architecture in models().items()]
    page = VALIDATE.index(rows, shown(), record)
    assert page == (ROOT / "generated" / "README.md").read_text(encoding="utf-8")


def test_nothing_of_the_catalogue_is_left_without_a_role() -> None:
    exact = [read for read in models().values() if getattr(read, "reading", "") == "exact"]
    assert len(exact) == 169
    assert not [key for read in exact for key in read.unmapped]


# several streams are mixed or scaled again in every layer, so that what rounding differs by grows
BOUNDS = {"glm5_next": 5e-5, "glm5_next_text": 5e-5, "glm5_next_vision": 5e-5, "gemma3n_text": 3e-5}


def test_every_model_type_that_a_family_vouches_for_has_a_passing_record() -> None:
    record = VALIDATE.json.loads((ROOT / "generated" / "parity.json").read_text())["types"]
    for family in FAMILIES:
        for model_type in family.model_types:
            figures = [value for value in record[model_type].values() if isinstance(value, float)]
            assert figures, f"{family.name}: nothing compared for {model_type}"
            assert max(figures) <= BOUNDS.get(model_type, 1e-5), f"{family.name}: {model_type}"
