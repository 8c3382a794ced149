"""Whatever the names are: they never become code, every tensor finds its place, and its name can be had back."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from mapper._build import renamed
from mapper._compiling import compile_source
from mapper.emission.guard import check_source
from mapper.emission.identifiers import RESERVED, RESERVED_IN_DICT
from mapper.errors import MapperError
from mapper.inference import infer
from mapper.sources import open_source
from tests.shipped import RULEBOOK

HOSTILE = [
    "__import__('os').system('touch pwned')", '"""', "'''\nimport os\n'''", "class", "None", "λ", "a b", "a-b", "a_b", "a_b_",
    "A_B", "0", "00", "1", "7", "1000000000000", "-1", "\\", "\n", "\r\n", "\0", "{x}", "%s", "#", "self", "config", "super",
    "__init__", "__class__", "_", "__", "weight", "bias", "gamma", "running_mean", "num_batches_tracked", "weight_hh_l0",
    "weight_ih_l0", "norm", "layer", "layers", "attention", "query", "Model", "Config", "Output", "Tensor", "torch", "nn",
    "F", "RENAMED", "RuntimeError", "load", "Path", "x" * 300, "\u202e", "\x85", "\u2028", "é", "e\u0301", "ﬁ", "fi", "²", "٣",
]  # fmt: skip
words = st.one_of(
    st.sampled_from(HOSTILE),
    st.sampled_from(sorted(RESERVED | RESERVED_IN_DICT)),
    st.text(st.characters(exclude_characters=".", exclude_categories=["Cs"]), min_size=1, max_size=12),
)
keys = st.lists(words, min_size=1, max_size=4).map(".".join)
shapes = st.lists(st.integers(0, 3), max_size=4).map(tuple)
dtypes = st.sampled_from(
    [torch.float32, torch.float16, torch.int64, torch.bool, torch.uint8, torch.complex64]
)
checkpoints = st.dictionaries(keys, st.tuples(shapes, dtypes), min_size=1, max_size=8)


def tensors(described: dict[str, tuple[tuple[int, ...], torch.dtype]]) -> dict[str, torch.Tensor]:
    made = enumerate(described.items(), 1)
    return {key: torch.full(shape, at % 2, dtype=dtype) for at, (key, (shape, dtype)) in made}


def source_of(held: dict[str, torch.Tensor]) -> str | None:
    """The generated file; None where a name is a tensor and a folder, which no module can be."""
    from mapper.emission import emit

    try:
        return emit(infer(open_source(held, purpose="weights"), RULEBOOK))
    except MapperError as error:
        assert "both a tensor and a folder" in str(error) and "\n" not in str(error)
        return None


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
@given(checkpoints)
@settings(max_examples=100)
def test_names_never_become_code_and_every_tensor_has_its_place(described) -> None:
    held = tensors(described)
    text = source_of(held)
    if text is None:
        return
    ast.parse(text)
    check_source(text)
    assert text.isascii()
    module = compile_source(text, "hostile")
    table = getattr(module, "RENAMED", {})
    with torch.device("meta"):
        model = module.Model()
    state = {renamed(key, table): tensor for key, tensor in held.items()}
    assert len(state) == len(held)
    back = {name: word for word, name in table.items()}
    assert {renamed(name, back) for name in model.state_dict()} == set(held)
    model.load_state_dict(state, strict=True, assign=True)
    for name, tensor in model.state_dict().items():
        assert (tensor.dtype, tensor.shape) == (state[name].dtype, state[name].shape)


@pytest.mark.parametrize("word", HOSTILE)
def test_a_generated_file_loads_its_checkpoint(word: str, tmp_path: Path) -> None:
    held = {
        f"{word}.weight": torch.ones(2, 3),
        f"{word}.bias": torch.ones(2),
        f"{word}s.{word}": torch.ones(1),
    }
    text = source_of(held)
    assert text is not None
    save_file(held, tmp_path / "model.safetensors")
    model = compile_source(text, "hostile").load(tmp_path)
    assert len(model.state_dict()) == 3


@given(st.text(max_size=60))
@settings(max_examples=100)
def test_no_text_leaves_a_comment_or_a_literal(text: str) -> None:
    from mapper.emission.expressions import comment, quoted

    assert ast.literal_eval(quoted(text)) == text
    assert comment(text).isascii() and comment(text).isprintable()
    assert isinstance(ast.parse(f'"""{comment(text)}."""\nx = 1  # {comment(text)}\n').body[1], ast.Assign)
