"""Text by the settings of generation and by a search with beams, beside the reference's `generate` with the same settings."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from mapper._api import describe
from mapper.running.generating import continued, rewritten
from mapper.running.generation_settings import FILE, rules_of
from mapper.running.session import Session, Wishes

WORDS, MOST = 23, 14
SOURCE = [5, 9, 7, 11, 5, 9, 2]
SEARCHES: list[dict[str, Any]] = [
    {"num_beams": 3},
    {"num_beams": 4, "length_penalty": 2.0, "early_stopping": True},
    {"num_beams": 4, "length_penalty": -1.0, "early_stopping": "never"},
    {"num_beams": 5, "length_penalty": 0.3, "early_stopping": "never", "eos_token_id": [2, 8, 12]},
    {"num_beams": 2, "no_repeat_ngram_size": 2, "repetition_penalty": 1.3, "renormalize_logits": True},
    {"num_beams": 3, "min_length": 9, "forced_eos_token_id": 2, "early_stopping": True},
]
# What else settings say, with one beam and with three.
SETTINGS: list[dict[str, Any]] = [
    {"repetition_penalty": 1.7},
    {"no_repeat_ngram_size": 2, "suppress_tokens": [4, 6], "begin_suppress_tokens": [9, 13, 17]},
    {"min_new_tokens": 8, "eos_token_id": [2, 3, 4, 5, 6, 7, 8, 9]},
    {"forced_bos_token_id": 6, "begin_suppress_tokens": [9, 13, 17], "forced_eos_token_id": 2},
    {"bad_words_ids": [[7], [9, 11], [2]], "sequence_bias": [[[5], 2.5], [[5, 13], -3.0]]},
    {"encoder_no_repeat_ngram_size": 2},
]
CASES = SEARCHES + SETTINGS + [{**said, "num_beams": 3} for said in SETTINGS]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Any, Session]]:
    """An encoder-decoder and a decoder that are sure enough of themselves to differ: the reference's, and a session of each."""
    sizes = {"vocab_size": WORDS, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    t5 = transformers.T5Config(
        d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, decoder_start_token_id=0, **sizes
    )
    llama = transformers.LlamaConfig(
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        initializer_range=0.6,
        **sizes,
    )
    found = {}
    for name, kind, config in (
        ("encoder-decoder", transformers.T5ForConditionalGeneration, t5),
        ("decoder", transformers.LlamaForCausalLM, llama),
    ):
        torch.manual_seed(4)
        model = kind(config).eval()
        if name == "encoder-decoder":
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.add_(torch.randn_like(parameter) * 0.4)
        folder = tmp_path_factory.mktemp(name)
        model.save_pretrained(folder)
        found[name] = (model, Session(describe(folder, None, purpose="weights"), Wishes(max_tokens=MOST)))
    return found


def told(
    session: Session, said: dict[str, Any], tokens: Callable[..., Iterator[int]], *given: Any
) -> list[int]:
    """The tokens with other settings beside the weights."""
    session.beside.json(FILE)
    session.beside._json[FILE] = said
    return list(tokens(session, *given, rules_of(session)))


def wanted(model: Any, ids: list[int], said: dict[str, Any]) -> list[int]:
    """The reference's tokens, without what ends or fills them."""
    config = transformers.GenerationConfig(max_new_tokens=MOST, do_sample=False, **said)
    made = model.generate(torch.tensor([ids]), generation_config=config)[0].tolist()
    start = 1 if model.config.is_encoder_decoder else len(ids)
    ends = said["eos_token_id"] if isinstance(said["eos_token_id"], list) else [said["eos_token_id"]]
    found = made[start:]
    stop = next((at for at, token in enumerate(found) if token in ends), len(found))
    return found[:stop]


BOTH = [("encoder-decoder", said) for said in CASES]
BOTH += [
    ("decoder", said) for said in CASES if "encoder_no_repeat_ngram_size" not in said
]  # it has no source


@pytest.mark.parametrize(("name", "said"), BOTH, ids=json.dumps)
def test_text_is_that_of_the_reference(
    models: dict[str, tuple[Any, Session]], name: str, said: dict[str, Any]
) -> None:
    model, session = models[name]
    full = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 0, **said}
    if name == "decoder":
        found = told(session, full, continued, SOURCE[:3])
        assert found == wanted(model, SOURCE[:3], full)
    else:
        found = told(session, full, rewritten, {"input_ids": torch.tensor([SOURCE])}, [0])
        assert found == wanted(model, SOURCE, full)
    assert session.noted() == []


def test_settings_change_what_is_found(models: dict[str, tuple[Any, Session]]) -> None:
    """Beams find another text than the likeliest token at each step, or the tests above show nothing."""
    plain: dict[str, Any] = {"eos_token_id": 2}
    for name, first in (
        ("encoder-decoder", ({"input_ids": torch.tensor([SOURCE])}, [0])),
        ("decoder", (SOURCE[:3],)),
    ):
        session, way = models[name][1], rewritten if name == "encoder-decoder" else continued
        texts = {tuple(told(session, {**plain, **said}, way, *first)) for said in [{}, *CASES]}
        assert len(texts) >= 10


def test_what_is_not_done_is_said(models: dict[str, tuple[Any, Session]], tmp_path: Path) -> None:
    session = models["decoder"][1]
    told(session, {"eos_token_id": 2, "penalty_alpha": 0.6, "guidance_scale": 1.0}, continued, [5])
    assert [note.split(",")[0] for note in session.noted()] == [f"{FILE} has penalty_alpha"]
