"""Vocabularies of SentencePiece beside the library itself and the reference's tokenizers, and those in a GGUF file."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import mapper
from mapper.checkpoint import Checkpoint
from mapper.errors import FormatError, HintError, MapperError
from mapper.running.beside import Beside
from mapper.running.pieces import read_pieces
from mapper.running.tokenizing import words_of
from mapper.sources.companions import within
from tests.gguf_files import gguf_bytes

sentencepiece = pytest.importorskip("sentencepiece")
LINES = [
    "The old owl sat over the mill, and the fox flew.",
    "Who sat where? The owl's mill was old: 12 owls, 345 foxes!",
    "Überall flog die Eule; l'été, la chouette a volé.",
    "A fox   and a mill (and a fox) were there; there were owls too.",
]
TEXTS = [*LINES, "", " two  spaces ", "emoji 🦉 and 猫", "ﬁne ½", "Owl<s>fox </s> mill"]


def trained(kind: str, **more: Any) -> bytes:
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LINES * 3),
        model_writer=out,
        model_type=kind,
        minloglevel=2,
        num_threads=1,
        hard_vocab_limit=False,
        **more,
    )
    return out.getvalue()


@pytest.fixture(scope="module")
def models() -> dict[str, bytes]:
    plain = {"normalization_rule_name": "identity", "remove_extra_whitespaces": False}
    return {
        "unigram": trained("unigram", vocab_size=90),
        "controls": trained(
            "unigram", vocab_size=94, control_symbols="[CLS],[SEP],<cls>,<sep>,<pad>,<mask>,[MASK]"
        ),
        "bracketed": trained(
            "unigram", vocab_size=94, unk_piece="[UNK]", control_symbols="[PAD],[CLS],[SEP]"
        ),
        "pegasus": trained("unigram", vocab_size=90, pad_id=0, eos_id=1, unk_id=2, bos_id=-1),
        "pairs": trained("bpe", vocab_size=400, byte_fallback=True, **plain),
        "without_prefix": trained("bpe", vocab_size=400, byte_fallback=True, add_dummy_prefix=False, **plain),
    }


def words_in(folder: Path) -> Any:
    return words_of(Beside(Checkpoint("here", "safetensors", {}, companions=lambda: within(folder, "here"))))


def placed(folder: Path, name: str, data: bytes, **settings: Any) -> Path:
    (folder / name).write_bytes(data)
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


@pytest.mark.parametrize(
    ("kind", "name", "settings"),
    [
        ("unigram", "spiece.model", {"tokenizer_class": "T5Tokenizer"}),
        ("pairs", "tokenizer.model", {"tokenizer_class": "LlamaTokenizer"}),
        ("without_prefix", "tokenizer.model", {}),
    ],
)
def test_texts_are_split_as_the_library_does(
    kind: str, name: str, settings: dict[str, Any], models: dict[str, bytes], tmp_path: Path
) -> None:
    words = words_in(placed(tmp_path, name, models[kind], **settings))
    library = sentencepiece.SentencePieceProcessor(model_proto=models[kind])
    for text in TEXTS[:-1]:
        ids = words.encode(text, is_whole=False).ids
        assert ids == library.encode(text), text
        if text == text.strip():
            assert words.decode(ids, with_special=True).replace("<unk>", " ⁇ ") == library.decode(ids), text


CLASSES: list[tuple[str, str, str, dict[str, Any]]] = [
    ("T5Tokenizer", "unigram", "spiece.model", {}),
    ("XLMRobertaTokenizer", "unigram", "sentencepiece.bpe.model", {}),
    ("CamembertTokenizer", "unigram", "sentencepiece.bpe.model", {}),
    ("AlbertTokenizer", "controls", "spiece.model", {"do_lower_case": True}),
    ("XLNetTokenizer", "controls", "spiece.model", {}),
    ("DebertaV2Tokenizer", "bracketed", "spm.model", {"do_lower_case": True}),
    ("LlamaTokenizer", "pairs", "tokenizer.model", {"legacy": False, "add_bos_token": True}),
]


@pytest.mark.parametrize(("name", "kind", "file", "settings"), CLASSES)
def test_what_a_class_puts_around_texts_is_the_references(
    name: str, kind: str, file: str, settings: dict[str, Any], models: dict[str, bytes], tmp_path: Path
) -> None:
    folder = placed(tmp_path, file, models[kind], tokenizer_class=name, **settings)
    reference = getattr(transformers, name).from_pretrained(folder)
    words = words_in(folder)
    for text in TEXTS[:4]:
        assert words.encode(text).ids == reference(text)["input_ids"], text
        assert words.encode(text, "the mill").ids == reference(text, "the mill")["input_ids"], text


SPOKEN: list[tuple[str, str, str, str, dict[str, Any]]] = [
    ("MBartTokenizer", "unigram", "fr_XX", "fr_XX", {}),
    ("MBart50Tokenizer", "unigram", "pl_PL", "pl_PL", {"src_lang": "de_DE"}),
    ("M2M100Tokenizer", "unigram", "fr", "__fr__", {"src_lang": "de"}),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "kind", "code", "word", "settings"), SPOKEN)
def test_a_text_says_what_it_is_in(
    name: str,
    kind: str,
    code: str,
    word: str,
    settings: dict[str, Any],
    models: dict[str, bytes],
    tmp_path: Path,
) -> None:
    folder = placed(tmp_path, "sentencepiece.bpe.model", models[kind], tokenizer_class=name, **settings)
    pieces = read_pieces(models[kind], "x").words
    table = {word: at for at, word in enumerate(["<s>", "<pad>", "</s>", "<unk>", *pieces[3:]])}
    (folder / "vocab.json").write_text(json.dumps(table))
    reference = getattr(transformers, name).from_pretrained(folder)
    words = words_in(folder)
    assert words.tokenizer.token_to_id(word) == reference.convert_tokens_to_ids(word)
    for text in TEXTS[:3]:
        assert words.encode(text).ids == reference(text)["input_ids"], text
        assert words.decode(words.encode(text).ids) == text
    words.speaks(code)
    reference.src_lang = code
    assert words.encode(TEXTS[0]).ids == reference(TEXTS[0])["input_ids"]
    with pytest.raises(FormatError, match="stands around texts"):
        words.speaks("tlh")


def test_what_stands_around_a_text_is_the_classs_and_not_an_older_files(tmp_path: Path) -> None:
    words = {word: at for at, word in enumerate(["<unk>", "</s>", "eng_Latn", "fra_Latn", "the", "owl"])}
    told = {
        "version": "1.0",
        "added_tokens": [
            {"id": at, "content": word, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
            for word, at in words.items()
            if word not in ("the", "owl")
        ],
        "pre_tokenizer": {"type": "Whitespace"},
        "model": {"type": "WordLevel", "vocab": words, "unk_token": "<unk>"},
    }  # fmt: skip
    placed(tmp_path, "tokenizer.json", json.dumps(told).encode(), tokenizer_class="NllbTokenizer")
    read = words_in(tmp_path)
    assert read.encode("the owl").ids == [2, 4, 5, 1]
    read.speaks("fra_Latn")
    assert read.encode("the owl").ids == [3, 4, 5, 1]
    placed(
        tmp_path, "tokenizer.json", json.dumps(told).encode(), tokenizer_class="NllbTokenizer", src_lang="tlh"
    )
    assert words_in(tmp_path).encode("the owl").ids == [4, 5]
    settings = {"tokenizer_class": "NllbTokenizer", "legacy_behaviour": True}
    placed(tmp_path, "tokenizer.json", json.dumps(told).encode(), **settings)
    assert words_in(tmp_path).encode("the owl").ids == [4, 5]


@pytest.mark.filterwarnings("ignore")
def test_words_of_pretraining_stand_before_those_of_the_file(
    models: dict[str, bytes], tmp_path: Path
) -> None:
    folder = placed(tmp_path, "spiece.model", models["pegasus"], tokenizer_class="PegasusTokenizer")
    words = words_in(folder)
    assert [
        words.tokenizer.token_to_id(word)
        for word in ("<pad>", "</s>", "<mask_1>", "<unk_2>", "<unk_102>", "<unk>")
    ] == [0, 1, 2, 4, 104, 105]
    library = sentencepiece.SentencePieceProcessor(model_proto=models["pegasus"])
    for text in TEXTS[:4]:
        assert words.encode(text).ids == [*(at + 103 for at in library.encode(text)), 1], text
    other = placed(tmp_path, "spiece.model", models["pegasus"], tokenizer_class="PegasusTokenizer", offset=0)
    with pytest.raises(MapperError, match="of 'PegasusTokenizer' is not read"):
        words_in(other)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("name", "kind", "source", "target", "asked"),
    [
        ("M2M100", "M2M100Tokenizer", "de", "fr", "forced_bos_token_id"),
        ("MBart", "MBartTokenizer", "de_DE", "fr_XX", "decoder_start_token_id"),
    ],
)
def test_a_translation_begins_with_the_language_that_is_asked_for(
    name: str, kind: str, source: str, target: str, asked: str, models: dict[str, bytes], tmp_path: Path
) -> None:
    folder = placed(tmp_path, "sentencepiece.bpe.model", models["unigram"], tokenizer_class=kind)
    pieces = read_pieces(models["unigram"], "x").words
    table = {word: at for at, word in enumerate(["<s>", "<pad>", "</s>", "<unk>", *pieces[3:]])}
    (folder / "vocab.json").write_text(json.dumps(table))
    reference = getattr(transformers, kind).from_pretrained(folder, src_lang=source)
    words = words_in(folder)
    start = {"decoder_start_token_id": words.tokenizer.token_to_id("ro_RO") or 2}
    sizes = {f"{side}_{what}": 2 for side in ("encoder", "decoder") for what in ("layers", "attention_heads")}
    config = getattr(transformers, f"{name}Config")(
        vocab_size=words.tokenizer.get_vocab_size(),
        d_model=16,
        encoder_ffn_dim=24,
        decoder_ffn_dim=24,
        init_std=0.6,
        **sizes,
    )
    torch.manual_seed(3)
    model = getattr(transformers, f"{name}ForConditionalGeneration")(config).eval()
    model.generation_config = transformers.GenerationConfig(
        num_beams=2, pad_token_id=1, eos_token_id=2, **start
    )
    model.save_pretrained(folder)
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": kind}))
    given = reference(TEXTS[0], return_tensors="pt")
    wanted = model.generate(
        **given, max_new_tokens=8, **{asked: reference.convert_tokens_to_ids(words_of_language(kind, target))}
    )
    answer = mapper.run(folder, TEXTS[0], language=target, source_language=source, max_tokens=8)
    assert isinstance(answer, dict)
    assert answer["input_ids"] == given["input_ids"][0].tolist()
    found = wanted[0, 1:].tolist()
    assert answer["ids"] == (found[: found.index(2)] if 2 in found else found)
    with pytest.raises(HintError, match="no token stands for the language 'tlh'"):
        mapper.run(folder, TEXTS[0], language="tlh")


def words_of_language(kind: str, code: str) -> str:
    return f"__{code}__" if kind == "M2M100Tokenizer" else code


def test_a_gguf_file_has_the_same_vocabulary_in_its_metadata(
    models: dict[str, bytes], tmp_path: Path
) -> None:
    for kind, model in (("pairs", "llama"), ("unigram", "t5")):
        pieces = read_pieces(models[kind], "x")
        metadata = {
            "general.architecture": "llama",
            "tokenizer.ggml.model": model,
            "tokenizer.ggml.tokens": pieces.words,
            "tokenizer.ggml.scores": pieces.scores,
            "tokenizer.ggml.token_type": pieces.kinds,
            "tokenizer.ggml.bos_token_id": 1,
            "tokenizer.ggml.eos_token_id": 2,
        }
        file = tmp_path / f"{kind}.gguf"
        file.write_bytes(gguf_bytes(metadata, {"w": np.zeros((2, 2), np.float32)}))
        words = words_of(Beside(Checkpoint("here", "gguf", {}, weights=[file])))
        library = sentencepiece.SentencePieceProcessor(model_proto=models[kind])
        for text in LINES if kind == "unigram" else TEXTS[:-1]:
            assert words.encode(text, is_whole=False).ids == library.encode(text), text
        around = words.encode("the owl").ids
        assert around == (
            [1, *library.encode("the owl")] if kind == "pairs" else [*library.encode("the owl"), 2]
        )


@pytest.mark.filterwarnings("ignore:Recommended")
def test_a_second_file_says_the_ids(models: dict[str, bytes], tmp_path: Path) -> None:
    pieces = read_pieces(models["unigram"], "x")
    table = {word: at for at, word in enumerate(["</s>", "<unk>", *pieces.words[3:], "▁unseen", "<pad>"])}
    for name in ("source.spm", "target.spm"):
        (tmp_path / name).write_bytes(models["unigram"])
    (tmp_path / "vocab.json").write_text(json.dumps(table))
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "MarianTokenizer", "source_lang": "a", "target_lang": "b"})
    )
    reference = transformers.MarianTokenizer.from_pretrained(tmp_path)
    words = words_in(tmp_path)
    for text in TEXTS[:4]:
        ids = words.encode(text).ids
        assert ids == reference(text)["input_ids"], text
        assert words.decode(ids) == reference.decode(ids, skip_special_tokens=True).strip()


def test_what_is_no_vocabulary_is_one_line(models: dict[str, bytes], tmp_path: Path) -> None:
    for data in (b"", b"\x0a\xff\xff\xff\xff\x0f", models["unigram"][:-400][5:], b"words"):
        with pytest.raises(MapperError, match=r"spiece\.model"):
            words_in(placed(tmp_path, "spiece.model", data))
    with pytest.raises(FormatError, match="words or characters"):
        read_pieces(trained("char", vocab_size=40), "spiece.model")
