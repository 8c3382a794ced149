"""What models of texts answer, beside the reference's pipelines on the same folders."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import save_file

import mapper
from mapper.errors import HintError, MapperError, SourceError, shorten
from mapper.running.texts import best_span, joined
from tests.running_models import WORDS, bert, with_words

pytest.importorskip("tokenizers")
CONTEXT = "The old owl sat. The fox flew over the mill, a owls mill."
LABELS = {"id2label": {0: "O", 1: "B-BIRD", 2: "I-BIRD"}, "label2id": {"O": 0, "B-BIRD": 1, "I-BIRD": 2}}


def pipeline(task: str, folder: Path) -> Any:
    tokenizer = transformers.BertTokenizer.from_pretrained(folder)
    return transformers.pipeline(task, model=str(folder), tokenizer=tokenizer, device="cpu")


def run(folder: Path, text: Any, **more: Any) -> dict[str, Any]:
    answer = mapper.run(folder, text, **more)
    assert isinstance(answer, dict)
    return answer


def test_hidden_words_are_filled_in(tmp_path: Path) -> None:
    folder = bert(tmp_path, "ForMaskedLM")
    wanted = pipeline("fill-mask", folder)("The [MASK] sat.", top_k=3)
    answer = run(folder, "The [MASK] sat.", top=3)
    assert [row["id"] for row in answer["masks"][0]] == [row["token"] for row in wanted]
    assert [row["score"] for row in answer["masks"][0]] == pytest.approx(
        [row["score"] for row in wanted], abs=1e-5
    )
    assert answer["use"] == "fill" and answer["input"] == "The [MASK] sat."
    with pytest.raises(HintError, match=r"put \[MASK\] where a word is to be found"):
        run(folder, "The owl sat.")


@pytest.mark.parametrize("kind", ["single_label_classification", "multi_label_classification", "regression"])
def test_a_text_is_labelled_with_the_names_of_the_config(tmp_path: Path, kind: str) -> None:
    folder = bert(tmp_path, "ForSequenceClassification", problem_type=kind, **LABELS)
    wanted = pipeline("text-classification", folder)("the owl flew", top_k=3)
    answer = run(folder, "the owl flew")
    assert [row["label"] for row in answer["labels"]] == [row["label"] for row in wanted]
    assert [row["score"] for row in answer["labels"]] == pytest.approx(
        [row["score"] for row in wanted], abs=1e-5
    )


def test_two_texts_are_labelled_together(tmp_path: Path) -> None:
    folder = bert(tmp_path, "ForSequenceClassification", **LABELS)
    wanted = pipeline("text-classification", folder)({"text": "the owl", "text_pair": "a fox flew"}, top_k=3)
    answer = run(folder, "the owl", context="a fox flew")
    assert [row["label"] for row in answer["labels"]] == [row["label"] for row in wanted]
    assert answer["labels"][0]["score"] == pytest.approx(wanted[0]["score"], abs=1e-5)


def test_a_file_of_modules_makes_a_vector_of_what_fills_in_words(tmp_path: Path) -> None:
    folder = bert(tmp_path, "ForMaskedLM")
    (folder / "modules.json").write_text(
        json.dumps([{"path": "", "type": "m.Transformer"}, {"path": "1_Pooling", "type": "m.Pooling"}])
    )
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_mean_tokens": True}))
    tokenizer = transformers.BertTokenizer.from_pretrained(folder)
    model = transformers.BertModel.from_pretrained(folder, add_pooling_layer=False).eval()
    with torch.no_grad():
        wanted = model(**tokenizer("the old owl", return_tensors="pt")).last_hidden_state[0].mean(0)
    answer = run(folder, "the old owl")
    assert answer["use"] == "embed" and "notes" not in answer
    assert answer["embedding"] == pytest.approx(wanted.tolist(), abs=1e-5)


def test_a_question_is_answered_from_its_context(tmp_path: Path) -> None:
    folder = bert(tmp_path, "ForQuestionAnswering")
    encoding = transformers.BertTokenizer.from_pretrained(folder)(
        "who sat?", CONTEXT, return_tensors="pt", return_offsets_mapping=True
    )
    offsets = encoding.pop("offset_mapping")[0].tolist()
    model = transformers.BertForQuestionAnswering.from_pretrained(folder).eval()
    with torch.no_grad():
        out = model(**encoding)
    inside = [at for at, kind in enumerate(encoding["token_type_ids"][0]) if kind == 1][
        :-1
    ]  # without the last [SEP]
    pairs = [(first, last) for first in inside for last in inside if first <= last < first + 15]
    first, last = max(
        pairs, key=lambda pair: float(out.start_logits[0, pair[0]] + out.end_logits[0, pair[1]])
    )
    answer = run(folder, "who sat?", context=CONTEXT)
    assert (answer["start"], answer["end"]) == (offsets[first][0], offsets[last][1])
    assert answer["text"] == CONTEXT[answer["start"] : answer["end"]]
    with pytest.raises(HintError, match="give it with context="):
        run(folder, "who sat?")
    with pytest.raises(HintError, match="the context is empty"):
        run(folder, "who sat?", context=" ")
    with pytest.raises(HintError, match=r"'answer', which reads no language= \(that is for rewrite and"):
        run(folder, "who sat?", context=CONTEXT, language="en")


def test_an_answer_does_not_end_before_it_begins() -> None:
    start, end = torch.full((6,), -9.0), torch.full((6,), -9.0)
    start[4], end[1], end[5], start[0] = 5.0, 6.0, 4.0, 9.0
    first, last, score = best_span(start, end, torch.tensor([False, True, True, True, True, True]))
    assert (first, last) == (4, 5)
    assert 0 < score < 1


def test_words_are_labelled_and_joined(tmp_path: Path) -> None:
    folder = bert(tmp_path, "ForTokenClassification", **LABELS)
    wanted = pipeline("token-classification", folder)(CONTEXT)
    answer = run(folder, CONTEXT)
    rows = [row for row in answer["tokens"] if row["label"] != "O"]
    assert [(row["label"], row["start"], row["end"]) for row in rows] == [
        (row["entity"], row["start"], row["end"]) for row in wanted
    ]
    text = "Ada Lovelace, Paris"
    tokens = [("B-P", 0, 3), ("I-P", 4, 12), ("I-L", 14, 19)]
    made = [{"text": text[a:b], "start": a, "end": b, "label": kind, "score": 0.5} for kind, a, b in tokens]
    assert [(row["text"], row["label"]) for row in joined(made, text)] == [
        ("Ada Lovelace", "P"),
        ("Paris", "L"),
    ]


def test_a_vector_is_the_mean_where_nothing_says_so_and_that_is_told(tmp_path: Path) -> None:
    folder = bert(tmp_path, "Model")
    texts = ["the owl", "the old fox flew over the mill."]
    states = pipeline("feature-extraction", folder)(texts)
    answers = mapper.run(folder, texts)
    assert isinstance(answers, list)
    for answer, wanted in zip(answers, states, strict=True):
        assert answer["embedding"] == pytest.approx(torch.tensor(wanted[0]).mean(0).tolist(), abs=1e-5)
        assert "modules.json" in answer["notes"][0]


@pytest.mark.parametrize(
    "mode", ["cls_token", "max_tokens", "mean_sqrt_len_tokens", "lasttoken", "weightedmean_tokens"]
)
def test_a_vector_is_pooled_as_the_modules_say(tmp_path: Path, mode: str) -> None:
    folder = bert(tmp_path, "Model")
    modules = [
        {"path": "", "type": "m.Transformer"},
        {"path": "1_Pooling", "type": "m.Pooling"},
        {"path": "2_Normalize", "type": "m.Normalize"},
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({f"pooling_mode_{mode}": True}))
    texts = ["the owl", "the old fox flew over the mill."]
    answers = mapper.run(folder, texts)
    for text, answer in zip(texts, answers, strict=True):
        states = torch.tensor(pipeline("feature-extraction", folder)(text)[0])
        places = torch.arange(1, len(states) + 1)[:, None]
        wanted = {
            "cls_token": states[0],
            "max_tokens": states.amax(0),
            "mean_sqrt_len_tokens": states.sum(0),  # the length is divided out by the norm
            "lasttoken": states[-1],
            "weightedmean_tokens": (states * places).sum(0),
        }[mode]
        assert answer["embedding"] == pytest.approx((wanted / wanted.norm()).tolist(), abs=1e-5)


def test_a_text_beyond_the_settings_is_cut_and_that_is_told(tmp_path: Path) -> None:
    folder = bert(tmp_path, "ForSequenceClassification", **LABELS)
    answer = run(folder, "owl " * 60)
    assert answer["notes"] == ["a text has 62 tokens and is read up to 40: its tokenizer's settings say so"]
    assert answer["labels"][0]["score"] == run(folder, "owl " * 38)["labels"][0]["score"]
    note = f"{shorten(str(folder / 'vocab.txt'))} is taken as a text, not as the file of that name"
    assert any(row.startswith(note) for row in run(folder, str(folder / "vocab.txt"))["notes"])
    assert ["notes" in row for row in mapper.run(folder, ["owl " * 60, "owl"])] == [True, False]


def test_text_goes_on_as_the_reference_does_with_and_without_a_cache(tmp_path: Path) -> None:
    sizes = {"n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": len(WORDS), "n_positions": 64}
    torch.manual_seed(1)
    model = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(**sizes, eos_token_id=0, bos_token_id=0)
    ).eval()
    model.save_pretrained(tmp_path)
    with_words(tmp_path)
    tokenizer = transformers.BertTokenizer.from_pretrained(tmp_path)
    ids = torch.tensor([tokenizer("the old owl")["input_ids"][:-1]])
    wanted = model.generate(ids, max_new_tokens=12, do_sample=False, pad_token_id=0)[
        0, ids.shape[1] :
    ].tolist()
    told: list[str] = []
    answer = run(tmp_path, "the old owl", max_tokens=12, tell=told.append)
    assert answer["ids"] == wanted[: len(answer["ids"])] and answer["ids"]
    assert "".join(told) == answer["text"]
    drawn = [
        run(tmp_path, "the old owl", max_tokens=8, temperature=2.0, seed=seed)["ids"] for seed in (5, 5, 6)
    ]
    assert drawn[0] == drawn[1] != drawn[2]


def test_an_encoder_decoder_rewrites_as_the_reference_does(tmp_path: Path) -> None:
    sizes = {
        "d_model": 32,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "encoder_ffn_dim": 48,
        "decoder_ffn_dim": 48,
    }
    heads = {"encoder_attention_heads": 4, "decoder_attention_heads": 4, "max_position_embeddings": 64}
    tokens = {
        "vocab_size": len(WORDS),
        "pad_token_id": 0,
        "bos_token_id": 2,
        "eos_token_id": 3,
        "decoder_start_token_id": 3,
    }
    config = transformers.BartConfig(
        **sizes, **heads, **tokens, forced_bos_token_id=2, forced_eos_token_id=None, init_std=0.5
    )
    torch.manual_seed(2)
    model = transformers.BartForConditionalGeneration(config).eval()
    model.generation_config.no_repeat_ngram_size = 2
    model.save_pretrained(tmp_path)
    with_words(tmp_path)
    tokenizer = transformers.BertTokenizer.from_pretrained(tmp_path)
    ids = torch.tensor([tokenizer("the old owl flew.")["input_ids"]])
    wanted = model.generate(ids, max_new_tokens=10, do_sample=False, num_beams=1)[0, 1:].tolist()
    answer = run(tmp_path, "the old owl flew.", max_tokens=10)
    assert answer["use"] == "rewrite"
    assert answer["ids"] == [at for at in wanted if at != 3][: len(answer["ids"])]
    assert len(answer["ids"]) > 2


def test_what_is_missing_is_said_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = bert(tmp_path, "ForMaskedLM")
    (folder / "vocab.txt").unlink()
    with pytest.raises(
        SourceError, match=r"no tokenizer\.json stands beside the weights.*put tokenizer\.json there"
    ):
        run(folder, "the owl")
    (folder / "tokenizer.json").write_text("{]")
    with pytest.raises(MapperError, match=r"tokenizer\.json is no tokenizer"):
        run(folder, "the owl")
    monkeypatch.setitem(__import__("sys").modules, "tokenizers", None)
    with pytest.raises(MapperError, match=r"pip install 'checkpoint-mapper\[run\]'"):
        run(folder, "the owl")


def test_a_model_without_a_use_says_what_it_takes(tmp_path: Path) -> None:
    sizes = {
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "intermediate_size": 44,
        "vocab_size": 30,
        "hidden_size": 64,
    }
    transformers.BrosModel(transformers.BrosConfig(**sizes)).save_pretrained(tmp_path)
    with pytest.raises(
        SourceError, match=r"take input_ids \[batch, length\], bbox \[batch, length, 4\] have no such use"
    ):
        run(tmp_path, "the owl")


def test_a_model_that_asks_for_answers_says_so_first(tmp_path: Path) -> None:
    shapes = {"lstm.weight_ih_l0": (12, 4), "lstm.weight_hh_l0": (12, 3), "linear.weight": (2, 3)}
    save_file({name: torch.zeros(shape) for name, shape in shapes.items()}, tmp_path / "model.safetensors")
    with pytest.raises(
        SourceError, match=r"what it takes is known once .* first: chain\.positions is unknown"
    ):
        run(tmp_path, "the owl")
