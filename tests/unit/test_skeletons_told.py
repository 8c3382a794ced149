"""What is said of a checkpoint a part of which nobody understands: which one it is, and what to do next."""

from __future__ import annotations

import pytest

from mapper.errors import HintError
from mapper.report.text import as_text
from tests.unit.test_inference_unlisted_layers import example, read

NEXT = "what has no role gets one by a rule: mapper rules new SRC begins the file"


def test_what_nothing_gives_is_named_in_words() -> None:
    source = example("llama")
    with pytest.raises(
        HintError, match="nothing that is read here gives the temperature that attention at 'model"
    ):
        read(source, source.tensors, {"attention:attention.temperature_scaled": True, "rotary.style": "half"})


def test_the_next_step_is_said_where_all_that_is_missing_is_a_role() -> None:
    source = example("bert")
    words = next(name for name in source.tensors if name.endswith("word_embeddings.weight"))
    tensors = {**source.tensors, words.replace("word_embeddings", "lamp"): source.tensors[words]}
    found = read(source, tensors, {"position.counting": "all"})
    assert not (found.unfit or found.questions) and found.missing == ["no flow reads 'embeddings.lamp'"]
    assert NEXT in as_text(found)


def test_the_next_step_is_said_beside_questions_too() -> None:
    source = example("prophetnet")
    tensors = {
        name.replace("feed_forward_layer_norm", "lamp").replace("ngram_embeddings", "shade"): info
        for name, info in source.tensors.items()
    }
    found = read(source, tensors)
    assert found.reading == "skeleton" and found.questions and found.unmapped
    assert NEXT in as_text(found)
