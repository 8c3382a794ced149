from __future__ import annotations

import pytest

from mapper.emission.guard import check_source
from mapper.errors import FlowError
from mapper.operations.registry import operation_names, operation_source

HEAD = (
    "from __future__ import annotations\n\nimport math\nfrom statistics import NormalDist\n\n"
    "import torch\nimport torch.nn.functional as F\nfrom torch import Tensor, nn\n"
)


def check(text: str) -> None:
    check_source(f"{HEAD}\n\n{text}\n")


@pytest.mark.parametrize(
    "text",
    [
        '"""A docstring."""',
        'RENAMED = {\n    "type": "type_",\n}',
        "torch.export.register_dataclass(Output)\n\n\nclass Output:\n    x: Tensor",
        "from pathlib import Path\n\n\ndef load(path: Path) -> Path:\n    from safetensors.torch import load_file\n\n    return load_file(path)",
        "class Model(nn.Module):\n    def __init__(self, size: int = 3):\n        super().__init__()\n        self.size = max(size, 1)",
    ],
)
def test_definitions_pass(text: str) -> None:
    check(text)


def test_every_operation_may_be_copied() -> None:
    for name in operation_names():
        text = operation_source(name)
        called = "\n".join(f"def {other}(): ..." for other in operation_names() if other in text)
        check(f"{called}\n\n\n{text}")


@pytest.mark.parametrize("text", ["x = (", "def f(:\n    pass", "x = 1\0", "(" * 3000])
def test_what_does_not_parse_is_refused(text: str) -> None:
    with pytest.raises(FlowError, match="the generated source does not parse"):
        check(text)


@pytest.mark.parametrize(
    "text",
    [
        "print",
        "eval",
        "exec",
        "open",
        "__import__",
        "getattr",
        "globals",
        "undefined",
        "__builtins__",
        "setattr",
    ],
)
def test_a_name_that_nothing_defines_is_refused(text: str) -> None:
    with pytest.raises(FlowError, match=rf"line \d+ of the generated source reads '{text}'"):
        check(f"def f(x):\n    return {text}(x)")


@pytest.mark.parametrize("name", ["eval", "exec", "open", "compile"])
def test_a_builtin_stays_out_of_reach_where_something_has_its_name(name: str) -> None:
    with pytest.raises(FlowError, match=f"reads '{name}'"):
        check(f"def f({name}):\n    return {name}\n\n\ndef g(x):\n    return {name}(x)")


@pytest.mark.parametrize("name", ["__class__", "__globals__", "__subclasses__", "__dict__", "__reduce__"])
def test_names_of_the_machinery_are_refused(name: str) -> None:
    with pytest.raises(FlowError, match=f"reads '{name}'"):
        check(f"def f(x):\n    return x.{name}")


@pytest.mark.parametrize("name", ["load", "save", "hub", "ops", "utils", "serialization", "jit", "_C"])
def test_parts_of_torch_that_reach_files_or_processes_are_refused(name: str) -> None:
    with pytest.raises(FlowError, match=f"reads '{name}'"):
        check(f"def f(x):\n    return torch.{name}")


@pytest.mark.parametrize(
    "text",
    [
        "import os",
        "import torch.hub",
        "from torch import hub",
        "from torch import *",
        "from math import sqrt",
        "from pathlib import os",
        "from . import x",
        "from safetensors.torch import save_file",
        "def f():\n    import subprocess",
    ],
)
def test_other_imports_are_refused(text: str) -> None:
    with pytest.raises(FlowError, match=r"line \d+ of the generated source imports"):
        check(text)


@pytest.mark.parametrize(
    "text",
    [
        "math.sqrt(2)",
        "x = math.sqrt(2)",
        "x = {'a': math.pi}",
        "for x in (1, 2):\n    y = x",
        "if math.pi:\n    x = 1",
        "with x: ...",
        "del F",
        "x: int = 1",
    ],
)
def test_importing_runs_nothing_but_definitions(text: str) -> None:
    with pytest.raises(FlowError, match=r"line \d+ of the generated source is no definition"):
        check(text)
