"""Pictures as numbers, beside the reference's processors, and what models of images answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import mapper
from mapper.architecture import Architecture, Block, Place
from mapper.checkpoint import Checkpoint
from mapper.errors import FormatError, HintError, SourceError
from mapper.running.pictures import opened, prepared
from mapper.running.preprocessors import settings_of
from mapper.running.session import Session
from mapper.running.tables import rows
from mapper.sources.companions import within
from tests.running_models import WORDS, with_words

Image = pytest.importorskip("PIL.Image")
PROCESSORS: list[tuple[str, dict[str, Any]]] = [
    ("ViT", {}),
    ("ViT", {"resample": 1, "size": {"height": 61, "width": 40}, "do_normalize": False}),
    ("Siglip", {"size": {"height": 384, "width": 384}}),
    ("Beit", {"do_center_crop": True, "crop_size": {"height": 300, "width": 200}}),
    ("DeiT", {}),
    ("Pvt", {}),
    ("Segformer", {"do_rescale": False}),
    ("Blip", {}),
    ("CLIP", {}),
    ("CLIP", {"size": {"shortest_edge": 64, "longest_edge": 80}, "crop_size": 70}),
    ("Bit", {"rescale_factor": 0.01}),
    ("ChineseCLIP", {}),
    ("MobileNetV1", {}),
    ("MobileNetV2", {}),
    ("MobileViT", {}),
    ("ConvNext", {"size": {"shortest_edge": 224}}),
    ("ConvNext", {}),
    ("PoolFormer", {}),
    ("Levit", {}),
    ("Detr", {"size": {"shortest_edge": 80, "longest_edge": 100}}),
    ("ConditionalDetr", {"size": {"shortest_edge": 60, "longest_edge": 100}}),
    ("DeformableDetr", {"size": {"shortest_edge": 70, "longest_edge": 90}}),
    ("Gemma3", {"do_pan_and_scan": False}),
    ("Yolos", {"size": {"shortest_edge": 80, "longest_edge": 101}}),
    ("RTDetr", {"size": {"height": 64, "width": 48}}),
    ("DPT", {"keep_aspect_ratio": True, "ensure_multiple_of": 14, "size": {"height": 518, "width": 518}}),
]


def drawn(width: int = 150, height: int = 97) -> Any:
    """A picture with edges, a ramp and noise."""
    random = np.random.default_rng(0)
    y, x = np.mgrid[0:height, 0:width]
    red, green = 255 * (np.hypot(x - 60, y - 40) < 30), 255 * x / width
    blue = random.integers(0, 255, (height, width))
    return Image.fromarray(np.stack([red, green, blue], -1).astype(np.uint8))


def session_of(folder: Path) -> Session:
    """A session that has files and nothing else."""
    checkpoint = Checkpoint("here", "safetensors", {}, companions=lambda: within(folder, "here"))
    return Session(Architecture(checkpoint, [], Block("other", "root", Place(()))))


@pytest.mark.parametrize(("name", "settings"), PROCESSORS)
@pytest.mark.parametrize("turned", [False, True])
def test_a_picture_is_prepared_as_the_reference_does(
    name: str, settings: dict[str, Any], turned: bool, tmp_path: Path
) -> None:
    processor = getattr(transformers, f"{name}ImageProcessorPil")(**settings)
    processor.save_pretrained(tmp_path)
    picture = drawn(97, 150) if turned else drawn()
    wanted = processor(picture, return_tensors="np")["pixel_values"][0]
    found = prepared(picture, *settings_of(session_of(tmp_path), "images"))
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, atol=1e-4)


def test_every_class_of_the_tables_is_compared() -> None:
    from tests.unit.test_running_sounds import EXTRACTORS

    other = {
        "Timm",
        "Qwen2VL",
        "Data2VecVision",
    }  # by the tests of a config and of prompts; Beit's under an older name
    for table, compared in (("images", PROCESSORS), ("sounds", EXTRACTORS)):
        listed = {name for row in rows(table) for name in row["classes"]}
        assert listed - other == {name for name, _ in compared} & listed


def test_a_file_with_the_class_alone_has_the_settings_of_its_class(tmp_path: Path) -> None:
    (tmp_path / "preprocessor_config.json").write_text(
        '{"feature_extractor_type": "CLIPFeatureExtractor", "size": 32}'
    )
    wanted = transformers.CLIPImageProcessorPil(size={"shortest_edge": 32})(drawn(), return_tensors="np")[
        "pixel_values"
    ][0]
    np.testing.assert_allclose(
        prepared(drawn(), *settings_of(session_of(tmp_path), "images")), wanted, atol=1e-4
    )


@pytest.mark.parametrize(
    "said", [{"size": -3}, {"size": {"height": 10**9, "width": 9}}, {"image_std": [0.5, 0.5]}, {"size": "x"}]
)
def test_settings_that_mean_nothing_are_one_line(tmp_path: Path, said: dict[str, Any]) -> None:
    (tmp_path / "preprocessor_config.json").write_text(
        json.dumps({"image_processor_type": "ViTImageProcessor", **said})
    )
    with pytest.raises(FormatError, match="the settings of the image processor do not fit together"):
        prepared(drawn(), *settings_of(session_of(tmp_path), "images"))


def test_what_is_no_picture_is_one_line(tmp_path: Path) -> None:
    drawn().save(tmp_path / "whole.png")
    whole = (tmp_path / "whole.png").read_bytes()
    hostile = {
        "empty.png": b"",
        "cut.png": whole[: len(whole) // 2],
        "text.png": b"not a picture",
        "vast.png": whole[:16] + (60_000).to_bytes(4, "big") * 2 + whole[24:],
    }
    for name, data in hostile.items():
        (tmp_path / name).write_bytes(data)
        with pytest.raises(FormatError) as caught:
            opened(tmp_path / name)
        assert name in str(caught.value) and "\n" not in str(caught.value)
    assert opened(tmp_path / "whole.png").size == (150, 97)


def saved(folder: Path, model: Any, processor: Any) -> Path:
    model.eval().save_pretrained(folder)
    processor.save_pretrained(folder)
    drawn().save(folder / "picture.png")
    return folder


VISION = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}


def test_a_picture_is_labelled(tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = transformers.ViTConfig(
        **VISION, image_size=32, patch_size=8, id2label={0: "owl", 1: "fox"}, initializer_range=0.4
    )
    processor = transformers.ViTImageProcessorPil(size={"height": 32, "width": 32})
    model = transformers.ViTForImageClassification(config)
    folder = saved(tmp_path, model, processor)
    with torch.no_grad():
        wanted = model(**processor(drawn(), return_tensors="pt")).logits[0].softmax(-1)
    answer = mapper.run(folder, folder / "picture.png")
    assert {row["label"]: row["score"] for row in answer["labels"]} == pytest.approx(
        {"owl": float(wanted[0]), "fox": float(wanted[1])}, abs=1e-4
    )
    (folder / "preprocessor_config.json").unlink()
    with pytest.raises(
        SourceError, match=r"no preprocessor_config\.json .* pixel_values \[batch, channels, height, width\]"
    ):
        mapper.run(folder, folder / "picture.png")
    (folder / "preprocessor_config.json").write_text('{"image_processor_type": "TalesImageProcessor"}')
    with pytest.raises(SourceError, match="is for 'TalesImageProcessor', which is not known; known are ViT"):
        mapper.run(folder, folder / "picture.png")


@pytest.mark.parametrize("kind", ["CLIP", "Siglip"])
def test_a_picture_is_compared_with_texts(tmp_path: Path, kind: str) -> None:
    text = {
        "vocab_size": len(WORDS),
        "max_position_embeddings": 16,
        "eos_token_id": 3,
        "bos_token_id": 2,
        "pad_token_id": 0,
    }
    torch.manual_seed(0)
    more = {"projection_size": 32} if kind == "Siglip" else {}
    config = getattr(transformers, f"{kind}Config")(
        text_config={**VISION, **text, **more}, vision_config={**VISION, "image_size": 32, "patch_size": 8}
    )
    model = getattr(transformers, f"{kind}Model")(config)
    processor = getattr(transformers, f"{kind}ImageProcessorPil")(
        **(
            {"crop_size": 32, "size": {"shortest_edge": 32}}
            if kind == "CLIP"
            else {"size": {"height": 32, "width": 32}}
        )
    )
    folder = with_words(saved(tmp_path, model, processor))
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**settings, "model_max_length": 16}))
    texts = ["the owl", "the old fox flew over"]
    tokenizer = transformers.BertTokenizer.from_pretrained(folder)
    is_siglip = kind == "Siglip"
    filled = {"padding": "max_length", "max_length": 16} if is_siglip else {"padding": True}
    given = tokenizer(texts, return_tensors="pt", **filled)
    masks = {} if is_siglip else {"attention_mask": given["attention_mask"]}
    pixels = processor(drawn(), return_tensors="pt")["pixel_values"]
    with torch.no_grad():
        logits = model(input_ids=given["input_ids"], pixel_values=pixels, **masks).logits_per_image[0]
    wanted = logits.sigmoid() if is_siglip else logits.softmax(-1)
    answer = mapper.run(folder, folder / "picture.png", text=texts)
    found = {row["label"]: row["score"] for row in answer["labels"]}
    assert [found[text] for text in texts] == pytest.approx(wanted.tolist(), abs=1e-4)
    with pytest.raises(HintError, match="give some with text="):
        mapper.run(folder, folder / "picture.png")


@pytest.mark.parametrize("kind", ["Yolos", "ConditionalDetr"])
def test_things_are_found_with_their_boxes(tmp_path: Path, kind: str) -> None:
    torch.manual_seed(0)
    names = {0: "owl", 1: "fox", 2: "mill"}
    common = {"id2label": names, "num_labels": 3}
    if kind == "Yolos":
        config = transformers.YolosConfig(
            **VISION,
            **common,
            image_size=[32, 32],
            patch_size=8,
            num_detection_tokens=12,
            initializer_range=0.6,
        )
    else:
        backbone = transformers.ResNetConfig(
            embedding_size=8, hidden_sizes=[8, 8], depths=[1, 1], out_features=["stage2"]
        )
        sizes = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "num_queries": 12}
        heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2}
        widths = {"encoder_ffn_dim": 16, "decoder_ffn_dim": 16, "init_std": 0.6, "init_xavier_std": 3.0}
        config = transformers.ConditionalDetrConfig(
            **sizes, **heads, **widths, **common, use_timm_backbone=False, backbone_config=backbone
        )
    model = getattr(transformers, f"{kind}ForObjectDetection")(config)
    processor = getattr(transformers, f"{kind}ImageProcessorPil")(size={"height": 32, "width": 32})
    folder = saved(tmp_path, model, processor)
    with torch.no_grad():
        out = model(pixel_values=processor(drawn(), return_tensors="pt")["pixel_values"])
    wanted = processor.post_process_object_detection(out, threshold=0.5, target_sizes=[(97, 150)])[0]
    order = wanted["scores"].argsort(descending=True)
    answer = mapper.run(folder, folder / "picture.png")
    rows = answer["objects"]
    assert answer["use"] == "detect" and rows
    assert [row["label"] for row in rows] == [names[int(at)] for at in wanted["labels"][order]]
    for row, at in zip(rows, order, strict=True):
        assert row["score"] == pytest.approx(float(wanted["scores"][at]), abs=1e-4)
        assert row["box"] == pytest.approx(wanted["boxes"][at].tolist(), abs=0.05)


def test_a_picture_is_described_by_a_decoder_that_reads_it(tmp_path: Path) -> None:
    torch.manual_seed(0)
    text = {
        "vocab_size": len(WORDS),
        "bos_token_id": 2,
        "sep_token_id": 3,
        "pad_token_id": 0,
        "eos_token_id": 3,
    }
    config = transformers.BlipConfig(
        text_config={
            **VISION,
            **text,
            "encoder_hidden_size": 32,
            "max_position_embeddings": 40,
            "projection_dim": 16,
        },
        vision_config={**VISION, "image_size": 32, "patch_size": 8, "projection_dim": 16},
        initializer_range=0.5,
    )
    model = transformers.BlipForConditionalGeneration(config)
    processor = transformers.BlipImageProcessorPil(size={"height": 32, "width": 32})
    folder = with_words(saved(tmp_path, model, processor))
    pixels = processor(drawn(), return_tensors="pt")["pixel_values"]
    with torch.no_grad():
        wanted = model.generate(pixel_values=pixels, max_new_tokens=8, do_sample=False)[0].tolist()
    answer = mapper.run(folder, folder / "picture.png", max_tokens=8)
    assert answer["use"] == "caption"
    assert [2, *answer["ids"]] == wanted[: len(answer["ids"]) + 1] and answer["ids"]


def test_a_config_that_says_how_pictures_are_prepared_is_enough(tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = transformers.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 8], depths=[1, 1], id2label={0: "owl", 1: "fox"}
    )
    model = transformers.ResNetForImageClassification(config).eval()
    model.save_pretrained(tmp_path)
    drawn().save(tmp_path / "picture.png")
    own = {
        "input_size": [3, 32, 32],
        "interpolation": "bicubic",
        "crop_pct": 0.95,
        "crop_mode": "center",
        "mean": [0.4] * 3,
        "std": [0.2] * 3,
    }
    saved_config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**saved_config, "pretrained_cfg": own}))
    shorter = drawn().resize((int(33 * 150 / 97), 33), 3)  # floor of 32 / 0.95
    pixels = np.asarray(shorter, np.float64)[round(0.5) :][:32, round(9.5) :][:, :32]
    x = torch.from_numpy((pixels.transpose(2, 0, 1) / 255 - 0.4) / 0.2).float()[None]
    with torch.no_grad():
        wanted = model(pixel_values=x).logits[0].softmax(-1)
    answer = mapper.run(tmp_path, tmp_path / "picture.png")
    found = {row["label"]: row["score"] for row in answer["labels"]}
    assert found == pytest.approx({"owl": float(wanted[0]), "fox": float(wanted[1])}, abs=1e-5)
    (tmp_path / "config.json").write_text(
        json.dumps({**saved_config, "pretrained_cfg": {**own, "crop_mode": "border"}})
    )
    with pytest.raises(SourceError, match="in a way that is not known"):
        mapper.run(tmp_path, tmp_path / "picture.png")


def test_depth_is_a_picture_of_the_same_size(tmp_path: Path) -> None:
    torch.manual_seed(0)
    sizes = {**VISION, "num_hidden_layers": 4, "image_size": 28, "patch_size": 14}
    backbone = transformers.Dinov2Config(**sizes, out_indices=[1, 2, 3, 4], reshape_hidden_states=False)
    config = transformers.DepthAnythingConfig(
        backbone_config=backbone,
        reassemble_hidden_size=32,
        neck_hidden_sizes=[8, 8, 16, 16],
        fusion_hidden_size=16,
        head_hidden_size=8,
    )
    model = transformers.DepthAnythingForDepthEstimation(config)
    processor = transformers.DPTImageProcessorPil(
        size={"height": 28, "width": 28}, keep_aspect_ratio=True, ensure_multiple_of=14
    )
    folder = saved(tmp_path, model, processor)
    out = folder / "depth.png"
    answer = mapper.run(folder, folder / "picture.png", out=out)
    pixels = processor(drawn(), return_tensors="pt")["pixel_values"]
    with torch.no_grad():
        grid = model(pixel_values=pixels).predicted_depth
    assert answer["lowest"] <= float(grid.min()) + 0.1 * float(grid.max() - grid.min())
    with Image.open(out) as picture:
        assert picture.size == (150, 97) and answer["highest"] > answer["lowest"]
    with pytest.raises(SourceError, match="say overwrite=True"):
        mapper.run(folder, folder / "picture.png", out=out)


def test_a_vector_of_a_picture_is_the_pooled_one(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = transformers.ViTModel(transformers.ViTConfig(**VISION, image_size=32, patch_size=8))
    processor = transformers.ViTImageProcessorPil(size={"height": 32, "width": 32})
    folder = saved(tmp_path, model, processor)
    with torch.no_grad():
        wanted = model(**processor(drawn(), return_tensors="pt")).pooler_output[0]
    assert mapper.run(folder, drawn())["embedding"] == pytest.approx(wanted.tolist(), abs=1e-4)
