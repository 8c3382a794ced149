from __future__ import annotations

import subprocess
import sys

import pytest

import mapper


def in_a_new_process(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout


def test_importing_the_package_loads_nothing_of_it() -> None:
    loaded = in_a_new_process(
        "import sys, mapper; print([n for n in sys.modules if n.startswith(('mapper.', 'torch', 'numpy'))])"
    )
    assert loaded.strip() == "[]"


def test_importing_the_package_takes_under_ten_milliseconds() -> None:
    code = "import time, importlib; s = time.process_time(); import mapper; print(time.process_time() - s)"
    assert min(float(in_a_new_process(code)) for _ in range(3)) < 0.010


def test_every_public_name_stays_what_it_is_when_used_twice() -> None:
    code = """
import mapper
first = {name: getattr(mapper, name) for name in mapper.__all__}
import mapper.errors, mapper.report, mapper.cli, mapper.architecture
changed = [name for name in first if getattr(mapper, name) is not first[name]]
print(changed, [name for name in first if type(first[name]).__name__ == "module"])
"""
    assert in_a_new_process(code).strip() == "[] []"


def test_no_submodule_carries_a_public_name() -> None:
    from importlib.util import find_spec

    assert [name for name in mapper.__all__ if name[0] != "_" and find_spec(f"mapper.{name}")] == []


def test_dir_shows_what_is_public() -> None:
    assert dir(mapper) == sorted(mapper.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'mapper' has no attribute 'open'"):
        mapper.open


def test_reading_a_checkpoint_never_imports_torch() -> None:
    source = {"tensors": {"layer.0.attention.query.weight": {"shape": [8, 8], "dtype": "F32"}}}
    code = f"import sys, mapper; mapper.inspect({source!r}).to_json(); print('torch' in sys.modules)"
    assert in_a_new_process(code).strip() == "False"
