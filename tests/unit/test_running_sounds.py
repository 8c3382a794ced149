"""Sounds as numbers, beside the reference's feature extractors, and what models of sounds answer."""

from __future__ import annotations

import io
import json
import re
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import mapper
from mapper.errors import FormatError, SourceError
from mapper.running.preprocessors import settings_of
from mapper.running.sound_steps import prepared
from mapper.running.waves import read_wav, resampled
from tests.running_models import WORDS, with_words
from tests.unit.test_running_images import session_of

RATE = 16_000
EXTRACTORS: list[tuple[str, dict[str, Any]]] = [
    ("Wav2Vec2", {}),
    ("Wav2Vec2", {"do_normalize": False}),
    ("Whisper", {}),
    ("Whisper", {"feature_size": 128, "chunk_length": 3, "n_fft": 512, "hop_length": 200}),
    ("AST", {}),
    ("AST", {"max_length": 64, "num_mel_bins": 40, "do_normalize": False}),
    ("SeamlessM4T", {}),
    ("SeamlessM4T", {"num_mel_bins": 40, "stride": 3}),
    ("Clap", {"sampling_rate": RATE, "truncation": "rand_trunc", "frequency_max": 7000}),
    (
        "Clap",
        {
            "sampling_rate": RATE,
            "max_length_s": 2,
            "feature_size": 32,
            "frequency_min": 50,
            "frequency_max": 7000,
        },
    ),
]


def synthesised(seconds: float = 1.37, rate: int = RATE) -> np.ndarray[Any, np.dtype[np.float32]]:
    """A tone that rises, another that comes and goes, and noise."""
    time = np.arange(int(seconds * rate)) / rate
    rising, pulsing = (
        np.sin(2 * np.pi * (200 + 900 * time) * time),
        np.sin(2 * np.pi * 3100 * time) * (time % 0.3 < 0.1),
    )
    noise = np.random.default_rng(0).normal(size=len(time))
    return (0.4 * rising + 0.2 * pulsing + 0.01 * noise).astype(np.float32)


def as_wav(samples: Any, rate: int = RATE, width: int = 2, channels: int = 1) -> bytes:
    """A file of whole numbers."""
    whole = np.round(np.asarray(samples, np.float64) * (2 ** (8 * width - 1) - 1)).astype(np.int64)
    data = (
        (whole + 128).astype(np.uint8).tobytes()
        if width == 1
        else b"".join(int(x).to_bytes(width, "little", signed=True) for x in whole)
    )
    out = io.BytesIO()
    with wave.open(out, "wb") as sound:
        sound.setnchannels(channels), sound.setsampwidth(width), sound.setframerate(rate)
        sound.writeframes(data)
    return out.getvalue()


@pytest.mark.filterwarnings(
    "ignore:At least one mel filter"
)  # the lowest bands of 128 lie between two frequencies
@pytest.mark.parametrize(("name", "settings"), EXTRACTORS)
def test_a_sound_is_prepared_as_the_reference_does(
    name: str, settings: dict[str, Any], tmp_path: Path
) -> None:
    extractor = getattr(transformers, f"{name}FeatureExtractor")(**settings)
    extractor.save_pretrained(tmp_path)
    more = {"pad_to_multiple_of": settings["stride"]} if "stride" in settings else {}
    wanted = extractor(synthesised(), sampling_rate=RATE, return_tensors="np", **more)
    found = prepared(synthesised(), *settings_of(session_of(tmp_path), "sounds"))
    for key, value in found.items():
        assert value.shape == wanted[key][0].shape
        np.testing.assert_allclose(value, wanted[key][0], atol=1e-4)


@pytest.mark.parametrize("width", [1, 2, 3, 4])
def test_samples_of_every_width_are_read(width: int, tmp_path: Path) -> None:
    (tmp_path / "tone.wav").write_bytes(as_wav(synthesised(0.05), 8_000, width))
    samples, rate = read_wav(tmp_path / "tone.wav")
    assert rate == 8_000
    np.testing.assert_allclose(samples, synthesised(0.05), atol=2.5 / 2 ** (8 * width - 1) + 1e-6)


def test_several_channels_are_heard_as_their_mean(tmp_path: Path) -> None:
    (tmp_path / "two.wav").write_bytes(as_wav([0.5, 0.25, -0.5, 0.0], channels=2))
    assert read_wav(tmp_path / "two.wav")[0] == pytest.approx([0.375, -0.25], abs=1e-4)


def test_a_sound_at_another_rate_is_the_same_sound() -> None:
    time = [np.arange(int(0.5 * rate)) / rate for rate in (44_100, RATE)]
    high, wanted = (np.sin(2 * np.pi * 440 * t).astype(np.float32) for t in time)
    found = resampled(high, 44_100, RATE)
    assert len(found) == len(wanted)
    inner = slice(200, -200)  # at its ends the sound is cut, there are no neighbours
    np.testing.assert_allclose(found[inner], wanted[inner], atol=2e-3)
    beyond = np.sin(2 * np.pi * 12_000 * time[0]).astype(
        np.float32
    )  # above what 16,000 samples a second hold
    assert np.abs(resampled(beyond, 44_100, RATE)[inner]).max() < 0.01


def test_what_is_no_sound_is_one_line(tmp_path: Path) -> None:
    whole = as_wav(synthesised(0.01))
    hostile = {
        "empty.wav": b"",
        "text.wav": b"not a sound",
        "cut.wav": whole[:30],
        "silent.wav": as_wav([]),
        "floats.wav": whole[:20] + (3).to_bytes(2, "little") + whole[22:],
        "still.wav": whole[:24] + (0).to_bytes(4, "little") + whole[28:],
        "no_channel.wav": whole[:22] + (0).to_bytes(2, "little") + whole[24:],
        "short.wav": whole[:-20],
        "long.wav": whole[:40] + (2**32 - 1).to_bytes(4, "little") + whole[44:],
    }
    for name, data in hostile.items():
        (tmp_path / name).write_bytes(data)
        with pytest.raises(FormatError) as caught:
            read_wav(tmp_path / name)
        assert name in str(caught.value) and "\n" not in str(caught.value)


def saved(folder: Path, model: Any, extractor: Any) -> Path:
    model.eval().save_pretrained(folder)
    extractor.save_pretrained(folder)
    (folder / "speech.wav").write_bytes(as_wav(synthesised()))
    return folder


def test_letters_are_spelled_as_the_reference_does(tmp_path: Path) -> None:
    torch.manual_seed(0)
    letters = ["<pad>", "<s>", "</s>", "<unk>", "|", *"ABCDEFGHIJK"]
    config = transformers.Wav2Vec2Config(
        vocab_size=len(letters), hidden_size=32, num_hidden_layers=1, num_attention_heads=4, intermediate_size=48, initializer_range=0.5,
        conv_dim=[16, 16], conv_stride=[5, 40], conv_kernel=[10, 40], num_feat_extract_layers=2, num_conv_pos_embeddings=8,
        num_conv_pos_embedding_groups=2, pad_token_id=0,
    )  # fmt: skip
    model = transformers.Wav2Vec2ForCTC(config)
    extractor = transformers.Wav2Vec2FeatureExtractor()
    folder = saved(tmp_path, model, extractor)
    (folder / "vocab.json").write_text(json.dumps({letter: at for at, letter in enumerate(letters)}))
    (folder / "tokenizer_config.json").write_text(
        '{"word_delimiter_token": "|", "pad_token": "<pad>", "unk_token": "<unk>"}'
    )
    tokenizer = transformers.Wav2Vec2CTCTokenizer(folder / "vocab.json")
    samples, _ = read_wav(folder / "speech.wav")
    with torch.no_grad():
        logits = model(**extractor(samples, sampling_rate=RATE, return_tensors="pt")).logits[0]
    answer = mapper.run(folder, folder / "speech.wav")
    assert answer["use"] == "spell" and len(answer["ids"]) > 5
    spelled = tokenizer.decode(
        logits.argmax(-1)
    )  # skipping special tokens there joins what stands on both sides of one
    assert answer["text"] == re.sub("<[^>]*>", "", spelled)
    with pytest.raises(SourceError, match=r"takes a sound .* there is no file"):
        mapper.run(folder, folder / "gone.wav")


def test_speech_is_transcribed_as_the_reference_does_and_its_language_is_heard(tmp_path: Path) -> None:
    torch.manual_seed(3)
    config = transformers.WhisperConfig(
        vocab_size=len(WORDS), num_mel_bins=16, d_model=32, encoder_layers=1, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=48, decoder_ffn_dim=48, max_source_positions=100, max_target_positions=40,
        pad_token_id=0, bos_token_id=2, eos_token_id=3, decoder_start_token_id=2, init_std=0.6, suppress_tokens=None, begin_suppress_tokens=None,
    )  # fmt: skip
    model = transformers.WhisperForConditionalGeneration(config)
    extractor = transformers.WhisperFeatureExtractor(feature_size=16, chunk_length=2)
    folder = with_words(saved(tmp_path, model, extractor))
    said = {
        "decoder_start_token_id": 2, "eos_token_id": 3, "suppress_tokens": [9, 10], "begin_suppress_tokens": [11],
        "lang_to_id": {"<|en|>": 20, "<|de|>": 21}, "task_to_id": {"transcribe": 22}, "no_timestamps_token_id": 23,
    }  # fmt: skip
    (folder / "generation_config.json").write_text(json.dumps(said))
    samples, _ = read_wav(folder / "speech.wav")
    features = extractor(samples, sampling_rate=RATE, return_tensors="pt")["input_features"]
    with torch.no_grad():
        first = model(features, decoder_input_ids=torch.tensor([[2]])).logits[0, -1]
        language = max((20, 21), key=lambda at: float(first[at]))
        ids = [2, language, 22, 23]
        while len(ids) < 4 + 10:
            logits = model(features, decoder_input_ids=torch.tensor([ids])).logits[0, -1]
            logits[[9, 10, *([11] if len(ids) == 4 else [])]] = -torch.inf
            if int(logits.argmax()) == 3:
                break
            ids.append(int(logits.argmax()))
    answer = mapper.run(folder, folder / "speech.wav", max_tokens=10)
    assert answer["language"] == {20: "<|en|>", 21: "<|de|>"}[language]
    assert answer["ids"] == ids[4:]
    cut = len(ids) == 4 + 10
    assert ("the text is cut at 10 tokens; --max-tokens allows more" in answer.get("notes", [])) is cut
    with pytest.raises(mapper.MapperError, match="'fr' is no language that it lists: 'en, de'"):
        mapper.run(folder, folder / "speech.wav", language="fr")


def test_speech_that_is_heard_as_samples_is_transcribed_as_the_reference_does(tmp_path: Path) -> None:
    torch.manual_seed(12)  # of which the text ends by itself
    config = transformers.MoonshineConfig(
        vocab_size=len(WORDS), hidden_size=32, intermediate_size=48, encoder_num_hidden_layers=1, decoder_num_hidden_layers=2,
        encoder_num_attention_heads=4, decoder_num_attention_heads=4, bos_token_id=2, eos_token_id=3, decoder_start_token_id=2,
        pad_token_id=0, initializer_range=0.5,
    )  # fmt: skip
    model = transformers.MoonshineForConditionalGeneration(config)
    extractor = transformers.Wav2Vec2FeatureExtractor(do_normalize=False)
    folder = with_words(saved(tmp_path, model, extractor))
    samples, _ = read_wav(folder / "speech.wav")
    with torch.no_grad():
        ids = model.generate(
            **extractor(samples, sampling_rate=RATE, return_tensors="pt"), max_new_tokens=10, do_sample=False
        )[0]
    answer = mapper.run(folder, folder / "speech.wav", max_tokens=10)
    assert answer["use"] == "transcribe" and len(set(answer["ids"])) > 2
    assert answer["ids"] == [at for at in ids[1:].tolist() if at != 3]


def test_a_sound_is_labelled(tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = transformers.ASTConfig(
        hidden_size=32, num_hidden_layers=1, num_attention_heads=4, intermediate_size=48, max_length=64, num_mel_bins=32,
        id2label={0: "owl", 1: "fox"}, initializer_range=0.5,
    )  # fmt: skip
    model = transformers.ASTForAudioClassification(config)
    extractor = transformers.ASTFeatureExtractor(max_length=64, num_mel_bins=32)
    folder = saved(tmp_path, model, extractor)
    samples, _ = read_wav(folder / "speech.wav")
    with torch.no_grad():
        wanted = model(**extractor(samples, sampling_rate=RATE, return_tensors="pt")).logits[0].softmax(-1)
    answer = mapper.run(folder, (samples, RATE))
    assert {row["label"]: row["score"] for row in answer["labels"]} == pytest.approx(
        {"owl": float(wanted[0]), "fox": float(wanted[1])}, abs=1e-4
    )


@pytest.mark.parametrize("truncation", ["rand_trunc", "fusion"])
def test_texts_are_compared_with_a_sound_as_the_reference_does(truncation: str, tmp_path: Path) -> None:
    torch.manual_seed(1)
    audio = {
        "enable_fusion": truncation == "fusion",
        "fusion_type": "aff_2d",
        "spec_size": 64, "num_mel_bins": 32, "window_size": 2, "patch_size": 4, "patch_stride": [4, 4], "patch_embeds_hidden_size": 16,
        "depths": [1, 1, 1, 1], "num_attention_heads": [2, 2, 4, 4], "hidden_size": 128, "projection_dim": 24,
    }  # fmt: skip
    text = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 44, "vocab_size": len(WORDS),
            "max_position_embeddings": 48, "projection_dim": 24, "pad_token_id": 0}  # fmt: skip
    config = transformers.ClapConfig(audio_config=audio, text_config=text, projection_dim=24)
    model = transformers.ClapModel(config).eval()
    extractor = transformers.ClapFeatureExtractor(
        sampling_rate=RATE, feature_size=32, max_length_s=2, frequency_max=7000, truncation=truncation
    )
    model.save_pretrained(tmp_path), extractor.save_pretrained(tmp_path)
    with_words(tmp_path)
    (tmp_path / "sound.wav").write_bytes(as_wav(synthesised()))
    texts = ["the owl", "a fox flew over"]
    words = transformers.BertTokenizer.from_pretrained(tmp_path)(texts, padding=True, return_tensors="pt")
    samples = read_wav(tmp_path / "sound.wav")[0]
    features = extractor(samples, sampling_rate=RATE, return_tensors="pt")
    with torch.no_grad():
        out = model(input_ids=words["input_ids"], attention_mask=words["attention_mask"], **features)
    wanted = dict(zip(texts, out.logits_per_audio[0].softmax(-1).tolist(), strict=True))
    answer = mapper.run(tmp_path, tmp_path / "sound.wav", text=texts)
    assert isinstance(answer, dict)
    assert {row["label"]: row["score"] for row in answer["labels"]} == pytest.approx(wanted, abs=1e-5)
    assert max(wanted.values()) - min(wanted.values()) > 1e-3
