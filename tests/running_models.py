"""Tiny random models with the files that stand beside real ones, for those who run them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
import transformers

WORDS = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "a",
    "the",
    "owl",
    "fox",
    "sat",
    "flew",
    "over",
    "old",
    "mill",
    "who",
    "where",
    "did",
    "##s",
    "##ed",
    ".",
    "?",
    ",",
    "!",
    "1",
    "2",
]
SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "vocab_size": len(WORDS),
    "max_position_embeddings": 48,
}


def bert(folder: Path, task: str, **more: Any) -> Path:
    """A BERT for a task, with vocab.txt and tokenizer_config.json."""
    config = transformers.BertConfig(**{**SIZES, **more})
    torch.manual_seed(0)
    model = getattr(transformers, f"Bert{task}")(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(4)  # so that answers differ clearly
    model.save_pretrained(folder)
    return with_words(folder)


def with_words(folder: Path) -> Path:
    """The vocabulary of `WORDS` beside a model."""
    (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    settings = {"tokenizer_class": "BertTokenizer", "do_lower_case": True, "model_max_length": 40}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder
