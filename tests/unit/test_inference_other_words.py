"""Checkpoints of listed types under a type that nobody lists and under other usual words: what is built is the same."""

from __future__ import annotations

from typing import Any

import pytest

from mapper.architecture import Architecture
from tests.shipped import RULEBOOK
from tests.unit.test_inference_asking import example, renamed

WORDS: dict[str, dict[str, str]] = {  # a type of the examples, and words of its names for others
    "llama": {"self_attn": "attention", "q_proj": "wq", "k_proj": "wk", "v_proj": "wv", "o_proj": "wo"},
    "gemma": {"gate_proj": "w1", "up_proj": "w3", "down_proj": "w2", "embed_tokens": "tok_embeddings"},
    "nemotron": {"q_proj": "query_proj", "k_proj": "key_proj", "v_proj": "value_proj", "self_attn": "attn"},
    "paligemma": {"multi_modal_projector": "mm_projector", "input_layernorm": "ln_1", "post_attention_layernorm": "ln_2"},
    "xglm": {"self_attn": "self_attention", "fc1": "lin1", "fc2": "lin2"},
}  # fmt: skip


def flows(architecture: Architecture) -> list[str | None]:
    return sorted({block.flow or "" for block in architecture.root.blocks()})


def forms(architecture: Architecture) -> set[Any]:
    """The kinds of norms, and how they scale."""
    said = any(fact.name == "norm.offset" and fact.value is True for fact in architecture.facts)
    kinds = {leaf.kind for leaf in architecture.leaves}
    return {*kinds, said or any(leaf.form == "offset" for leaf in architecture.leaves)}


@pytest.mark.parametrize("model_type", WORDS)
def test_other_words_for_the_same_are_asked_or_read_alike(model_type: str) -> None:
    made = renamed.renamed(example(model_type), RULEBOOK, words=WORDS[model_type])
    assert made.told is not None and made.told.missing == []
    assert flows(made.told) == flows(made.listed)
    assert forms(made.told) == forms(made.listed)
    scales = [{str(fact.value) for fact in one.facts if fact.name == "embedding.scale"} for one in (made.told, made.listed)]  # fmt: skip
    assert scales[0] == scales[1]
