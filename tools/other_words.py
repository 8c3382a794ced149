"""A checkpoint under other usual words: the names that one more library would have given its parts and maps.

`python tools/renamed.py CHECKPOINTS --words SEED` reads them. Each group of words that mean the same is changed for
half of the checkpoints, all projections of an attention together, and the maps of a gated network; norms that stand
around sub-layers keep their words where a checkpoint has more than two, as each library means others by these.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from mapper.checkpoint import Checkpoint

if TYPE_CHECKING:
    from torch import Tensor

WORDS = (  # of modules: each group means the same
    ("vision_tower", "vision_model", "visual", "image_encoder", "vision_encoder"),
    ("multi_modal_projector", "mm_projector", "connector", "visual_projector", "aligner"),
    ("language_model", "text_model", "llm"),
    ("audio_tower", "audio_encoder", "audio_model", "speech_encoder"),
    ("self_attn", "attention", "attn", "self_attention"),
    ("mlp", "feed_forward", "ffn"),
    ("embed_tokens", "tok_embeddings", "word_embeddings", "token_embedding"),
    ("fc1", "linear1", "lin1"),
    ("fc2", "linear2", "lin2"),
)
TOGETHER = (  # groups of words that a library chooses at once: each row is one library's
    (
        ("q_proj", "k_proj", "v_proj", "o_proj"),
        ("wq", "wk", "wv", "wo"),
        ("query_proj", "key_proj", "value_proj", "out_proj"),
    ),
    (("gate_proj", "up_proj", "down_proj"), ("w1", "w3", "w2")),
    (
        ("input_layernorm", "post_attention_layernorm"),
        ("norm1", "norm2"),
        ("ln_1", "ln_2"),
        ("attention_norm", "ffn_norm"),
    ),
)
MORE_NORMS = ("pre_feedforward_layernorm", "post_feedforward_layernorm")  # beside which the two mean others


def drawn(names: Iterable[str], seed: str) -> dict[str, str]:
    """Words of these names -> others that mean the same and are not there."""
    there, choose = {word for name in names for word in name.split(".")}, random.Random(seed)
    found: dict[str, str] = {}
    for group in WORDS:
        own, others = [word for word in group if word in there], [word for word in group if word not in there]
        if choose.random() < 0.5 and len(own) == 1 and others:
            found[own[0]] = choose.choice(others)
    for first, *rest in TOGETHER:
        changed = dict(zip(first, choose.choice(rest), strict=True))
        is_whole = there.issuperset(first) and there.isdisjoint((*changed.values(), *MORE_NORMS))
        if choose.random() < 0.5 and is_whole:
            found |= changed
    return found


def reworded(checkpoint: Checkpoint, words: Mapping[str, str]) -> Checkpoint:
    """The checkpoint with these words for its own."""
    former = {
        ".".join(words.get(word, word) for word in name.split(".")): name for name in checkpoint.tensors
    }
    read = checkpoint.read

    def under_new_names(names: Iterable[str]) -> dict[str, Tensor]:
        wanted = list(names)
        assert read is not None
        tensors = read([former[name] for name in wanted])
        return {name: tensors[former[name]] for name in wanted}

    return replace(
        checkpoint,
        tensors={name: checkpoint.tensors[old] for name, old in former.items()},
        read=under_new_names if read else None,
        where=lambda _: None,
        rows=lambda _: [],
    )
