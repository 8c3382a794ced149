"""The registry gives operations as text that stands on its own."""

from __future__ import annotations

import ast
import builtins
import math
import subprocess
import sys
from statistics import NormalDist

import pytest

from mapper import operations

GIVEN = {"torch", "F", "nn", "Tensor", "math", "NormalDist"}  # what a generated file imports


def test_reading_operations_imports_no_torch():
    code = (
        "import sys, mapper.operations as o; o.operation_source('attend'); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_signatures_say_what_goes_in_and_what_comes_out():
    signature = operations.operation_signature("attend_softcap")
    assert signature.parameters == ("q", "k", "v", "mask", "scale", "cap", "is_causal")
    assert signature.required == 6 and signature.arity == 1 and signature.topic == "attention"
    assert signature.annotations[3] == "Tensor | None"
    assert operations.operation_signature("stream_weights").arity == 3
    assert operations.operation_signature("rotary_frequencies_yarn").required == 5
    module = operations.operation_signature("LinearTransposed")
    assert module.is_module and module.parameters == ("in_features", "out_features", "bias")
    assert operations.operation_signature("empty_cache").arity == 0


def test_needed_operations_come_before_those_that_call_them():
    needed = operations.operations_needed(["attend_sinks", "selective_scan"])
    assert needed.index("softmax_masked") < needed.index("attend_sinks")
    assert needed.index("decay_pairs") < needed.index("linear_scan") < needed.index("selective_scan")
    assert len(set(needed)) == len(needed)


def test_an_unknown_operation_is_a_key_error():
    with pytest.raises(KeyError):
        operations.operation_source("attend_everything")


def is_in_order(name):
    """Whether an operation is documented, typed and fits the page."""
    source = operations.operation_source(name)
    node = ast.parse(source).body[0]
    signature = operations.operation_signature(name)
    is_typed = all(signature.annotations) and (signature.returns or signature.is_module)
    is_narrow = all(len(line) <= 110 for line in source.splitlines())
    return bool(ast.get_docstring(node)) and is_narrow and is_typed and not node.decorator_list


def test_operations_are_documented_typed_and_fit_the_page():
    assert [name for name in operations.operation_names() if not is_in_order(name)] == []


@pytest.mark.parametrize("letter", sorted({name[0] for name in operations.operation_names()}))
def test_operations_run_on_what_a_generated_file_imports(letter):
    for name in operations.operation_names():
        if name.startswith(letter):
            runs_on_what_a_generated_file_imports(name)


def runs_on_what_a_generated_file_imports(name):
    import torch
    import torch.nn.functional as F
    from torch import Tensor, nn

    space = {"torch": torch, "F": F, "nn": nn, "Tensor": Tensor, "math": math, "NormalDist": NormalDist}
    text = "\n\n".join(operations.operation_source(n) for n in operations.operations_needed([name]))
    exec(compile("from __future__ import annotations\n" + text, name, "exec"), space)
    tree = ast.parse(text)
    bound = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    bound |= {n.arg for n in ast.walk(tree) if isinstance(n, ast.arg)}
    used = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
    assert used - bound - GIVEN - set(dir(builtins)) <= set(operations.operation_names()), name
    assert used - bound - set(dir(builtins)) <= space.keys(), name
