"""Pictures among words, beside the reference's processors and what its models go on with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

import mapper
from mapper.errors import HintError, SourceError
from tests.running_models import WORDS
from tests.unit.test_running_images import drawn

tokenizers = pytest.importorskip("tokenizers")
SPECIAL = [
    "<image>",
    "<start_of_image>",
    "<end_of_image>",
    "<image_soft_token>",
    "<|image_pad|>",
    "<|video_pad|>",
    "<|vision_start|>",
    "<|vision_end|>",
]
VISION = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "image_size": 32,
    "patch_size": 8,
}
TEXT = {
    "vocab_size": len(WORDS) + len(SPECIAL),
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 48,
    "initializer_range": 0.3,
    "bos_token_id": 2,
    "eos_token_id": 3,
    "pad_token_id": 0,
    "tie_word_embeddings": False,
}
CHAT = "{% for m in messages %}{% for c in m.content %}{{ '<image>' if c.type == 'image' else c.text }} {% endfor %}{% endfor %}"


def tokenizer_of(image: str = "<image>") -> Any:
    """Words between spaces, and those that stand for parts of pictures."""
    made = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({word: at for at, word in enumerate(WORDS)}, unk_token="[UNK]")
    )
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    extra = {"image_token": image, "boi_token": "<start_of_image>", "eoi_token": "<end_of_image>"}
    found = transformers.PreTrainedTokenizerFast(
        tokenizer_object=made,
        unk_token="[UNK]",
        pad_token="[PAD]",
        eos_token="[SEP]",
        bos_token="[CLS]",
        extra_special_tokens=extra,
        additional_special_tokens=SPECIAL,
    )
    found.add_special_tokens({"additional_special_tokens": SPECIAL})
    return found


def llava() -> tuple[Any, Any, str]:
    config = transformers.LlavaConfig(
        vision_config=transformers.CLIPVisionConfig(**VISION, projection_dim=16),
        text_config=transformers.LlamaConfig(**TEXT),
        image_token_index=ids()["<image>"],
    )
    images = transformers.CLIPImageProcessorPil(size={"shortest_edge": 32}, crop_size=32)
    processor = transformers.LlavaProcessor(
        images,
        tokenizer_of(),
        patch_size=8,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=CHAT,
    )
    return transformers.LlavaForConditionalGeneration(config), processor, "<image>"


def gemma() -> tuple[Any, Any, str]:
    vision = transformers.SiglipVisionConfig(**VISION, vision_use_head=False)
    text = transformers.Gemma3TextConfig(**TEXT, head_dim=8, query_pre_attn_scalar=8, sliding_window=64)
    tokenizer = tokenizer_of("<image_soft_token>")
    tokenizer.image_token_id = tokenizer.convert_tokens_to_ids("<image_soft_token>")
    config = transformers.Gemma3Config(
        text_config=text,
        vision_config=vision,
        mm_tokens_per_image=4,
        image_token_id=tokenizer.image_token_id,
    )
    images = transformers.Gemma3ImageProcessorPil(size={"height": 32, "width": 32})
    processor = transformers.Gemma3Processor(images, tokenizer, image_seq_length=4)
    return transformers.Gemma3ForConditionalGeneration(config), processor, "<start_of_image>"


def qwen() -> tuple[Any, Any, str]:
    vision = {
        "depth": 2,
        "embed_dim": 32,
        "hidden_size": 32,
        "num_heads": 4,
        "mlp_ratio": 2,
        "patch_size": 8,
        "spatial_merge_size": 2,
    }
    names = ids()
    config = transformers.Qwen2VLConfig(
        vision_config=vision,
        text_config={
            **TEXT,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [1, 1, 2]},
        },
        image_token_id=names["<|image_pad|>"],
        video_token_id=names["<|video_pad|>"],
        vision_start_token_id=names["<|vision_start|>"],
        vision_end_token_id=names["<|vision_end|>"],
    )
    images = transformers.Qwen2VLImageProcessorPil(
        patch_size=8, size={"shortest_edge": 1024, "longest_edge": 2048}
    )
    return (
        transformers.Qwen2VLForConditionalGeneration(config),
        images,
        "<|vision_start|><|image_pad|><|vision_end|>",
    )


def ids() -> dict[str, int]:
    return dict(tokenizer_of().get_vocab())


def saved(folder: Path, model: Any, processor: Any) -> Path:
    model.eval().save_pretrained(folder)
    tokenizer_of().save_pretrained(folder)
    processor.save_pretrained(folder)
    drawn().save(folder / "picture.png")
    return folder


def test_a_text_about_a_picture_goes_on_as_the_references(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, processor, word = llava()
    folder = saved(tmp_path, model, processor)
    given = processor(images=drawn(), text=f"{word} who sat where", return_tensors="pt")
    with torch.no_grad():
        wanted = model.generate(**given, max_new_tokens=8, do_sample=False)[
            0, given["input_ids"].shape[1] :
        ].tolist()
    answer = mapper.run(folder, f"{word} who sat where", image=folder / "picture.png", max_tokens=8)
    assert answer["input_ids"] == given["input_ids"][0].tolist()
    assert answer["ids"] == wanted[: len(answer["ids"])] and answer["ids"]
    assert mapper.run(folder, "who sat where", image=drawn(), chat=True, max_tokens=8)["ids"] == answer["ids"]
    told = mapper.run(folder, "who sat where", image=drawn(), max_tokens=8)
    assert told["ids"] == answer["ids"] and "they go before it" in told["notes"][0]
    with pytest.raises(HintError, match="has <image> 1 times, and 2 pictures are given with image="):
        mapper.run(folder, f"{word} who", image=[drawn(), drawn()])
    (folder / "processor_config.json").write_text(json.dumps({"processor_class": "TalesProcessor"}))
    (folder / "preprocessor_config.json").write_text(
        json.dumps({"image_processor_type": "CLIPImageProcessor"})
    )
    with pytest.raises(SourceError, match=r"is known of LlavaProcessor.*not of TalesProcessor"):
        mapper.run(folder, "who", image=drawn())


def test_pictures_with_words_around_them_read_both_ways(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, processor, word = gemma()
    folder = saved(tmp_path, model, processor)
    given = processor(images=drawn(), text=f"{word} who sat where", return_tensors="pt")
    with torch.no_grad():
        wanted = model.generate(**given, max_new_tokens=6, do_sample=False)[0, given["input_ids"].shape[1] :]
    answer = mapper.run(folder, f"{word} who sat where", image=drawn(), max_tokens=6)
    assert answer["input_ids"] == given["input_ids"][0].tolist()
    assert answer["ids"] == wanted.tolist()[: len(answer["ids"])] and answer["ids"]


def test_pictures_of_their_own_sizes_are_packed(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, images, words = qwen()
    folder = saved(tmp_path, model, images)
    settings = json.loads((folder / "preprocessor_config.json").read_text())
    (folder / "preprocessor_config.json").write_text(
        json.dumps({**settings, "processor_class": "Qwen2VLProcessor"})
    )
    pixels = images(drawn(), return_tensors="pt")
    count = int(pixels["image_grid_thw"].prod()) // 4
    tokenizer = tokenizer_of()
    text = f"{words} who sat where"
    row = tokenizer(text.replace("<|image_pad|>", "<|image_pad|>" * count), return_tensors="pt")["input_ids"]
    kinds = (row == ids()["<|image_pad|>"]).long()
    with torch.no_grad():
        wanted = model.generate(
            input_ids=row, mm_token_type_ids=kinds, **pixels, max_new_tokens=6, do_sample=False
        )[0, row.shape[1] :].tolist()
    answer = mapper.run(folder, text, image=drawn(), max_tokens=6)
    assert answer["input_ids"] == row[0].tolist()
    assert answer["ids"] == wanted[: len(answer["ids"])] and answer["ids"]
    searched = mapper.run(folder, text, image=drawn(), max_tokens=6, beams=2)
    with torch.no_grad():
        best = model.generate(
            input_ids=row, mm_token_type_ids=kinds, **pixels, max_new_tokens=6, do_sample=False, num_beams=2
        )[0, row.shape[1] :].tolist()
    assert searched["ids"] == best[: len(searched["ids"])] and searched["ids"]
    made = mapper.build(folder, cache=True)
    past, last = made.new_cache(1, row.shape[1]), row.shape[1] - 2  # type: ignore[operator]
    with torch.no_grad():
        whole = made(row, mm_token_type_ids=kinds, **pixels).logits
        made(row[:, :last], mm_token_type_ids=kinds[:, :last], past=past, **pixels)
        grids = {"mm_token_type_ids": kinds, "image_grid_thw": pixels["image_grid_thw"]}
        steps = made(row[:, last:], past=past, start=last, **grids).logits
        plain = made(row[:, last:], past=past, start=last).logits
    torch.testing.assert_close(steps, whole[:, last:], atol=1e-5, rtol=1e-5)
    assert (plain - steps).abs().max() > 1e-3  # without its places a picture is as long as its features
