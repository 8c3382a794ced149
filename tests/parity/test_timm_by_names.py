"""Networks of timm that no family lists by type, from its own config.json, against timm itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

import mapper
from tests.parity.harness import check_keys, imported, quiet, randomise
from tests.parity.timm_reference import timm

TOLERANCE = 1e-4  # of the scores' standard deviation: float32, and up to a hundred layers of random weights
SMALL = {"depth": 2, "embed_dim": 48, "num_heads": 4}
ASKED = {"aimv2_large_patch14_224": {"norm.kind": "RMSNorm"}}  # what nothing stored says
CASES: list[tuple[str, int, dict[str, Any]]] = [  # the name, the side of an image, what makes it small
    ("eva02_tiny_patch14_224", 56, {"img_size": 56, **SMALL}),
    ("eva02_base_patch14_224", 56, {"img_size": 56, **SMALL}),
    ("eva02_base_patch16_clip_224", 64, {"img_size": 64, **SMALL}),
    (
        "levit_128s",
        64,
        {"img_size": 64, "embed_dim": [16, 24, 32], "key_dim": 4, "depth": [1, 2, 1], "num_heads": [2, 3, 4]},
    ),
    (
        "levit_256d",
        64,
        {"img_size": 64, "embed_dim": [16, 24, 32], "key_dim": 4, "depth": [1, 2, 1], "num_heads": [2, 3, 4]},
    ),
    (
        "levit_512_s8",
        64,
        {"img_size": 64, "embed_dim": [16, 24, 32], "key_dim": 4, "depth": [1, 2, 1], "num_heads": [2, 3, 4]},
    ),
    ("twins_svt_small", 64, {"img_size": 64, "depths": [1, 2, 2, 1]}),
    ("twins_pcpvt_small", 64, {"img_size": 64, "depths": [1, 1, 2, 1]}),
    ("mobilevit_xxs", 64, {}),
    ("resnest14d", 64, {}),
    ("resnest50d_4s2x40d", 64, {}),
    ("resnest50d_1s4x24d", 64, {}),
    ("mobilevitv2_050", 64, {}),
    ("mobilevitv2_050", 96, {}),  # a map of three places, whose patches are of two
    ("hiera_tiny_224", 224, {"stages": [1, 2, 2, 1]}),
    (
        "davit_tiny",
        96,
        {
            "depths": [1, 1, 2, 1],
            "embed_dims": [32, 64, 96, 128],
            "num_heads": [2, 4, 6, 8],
            "window_size": 5,
        },
    ),
    (
        "davit_base_fl",
        96,
        {"depths": [1, 1, 2, 1], "embed_dims": [32, 64, 96, 128], "num_heads": [1, 2, 3, 4]},
    ),
    ("focalnet_tiny_srf", 64, {}),
    ("edgenext_xx_small", 64, {}),
    ("lcnet_050", 64, {}),
    ("mobilenetv1_100", 64, {}),
    ("mobilenetv4_conv_small_050", 64, {}),
    ("mobilenetv4_conv_medium", 64, {}),
    ("caformer_s18", 64, {}),
    ("convformer_s18", 64, {}),
    (
        "maxvit_pico_rw_256",
        64,
        {
            "img_size": 64,
            "embed_dim": [32, 64],
            "depths": [1, 2],
            "block_type": ["M", "M"],
            "stem_width": [8, 32],
        },
    ),
    (
        "maxvit_tiny_tf_224",
        96,
        {
            "img_size": 96,
            "embed_dim": [32, 64],
            "depths": [1, 2],
            "block_type": ["M", "M"],
            "stem_width": 32,
            "head_hidden_size": 16,
        },
    ),
    ("vit_pe_spatial_tiny_patch16_512", 64, {"img_size": 64, **SMALL}),
    ("vit_small_patch16_rope_224", 64, {"img_size": 64, **SMALL}),
    ("vit_small_patch16_rope_ape_224", 64, {"img_size": 64, **SMALL}),
    ("vit_medium_patch16_rope_reg1_gap_256", 64, {"img_size": 64, **SMALL}),
    ("vit_medium_patch16_reg4_gap_256", 64, {"img_size": 64, **SMALL}),
    ("eva02_enormous_patch14_clip_224", 56, {"img_size": 56, **SMALL}),
    ("ghostnet_050", 64, {}),
    ("gmixer_12_224", 224, {}),
    ("resnetv2_50x1_bit", 64, {}),
    ("resnetv2_50", 64, {"layers": [1, 2, 1, 1], "channels": [32, 64, 96, 128]}),
    ("resnetv2_18", 64, {"layers": [1, 2, 1, 1], "channels": [32, 64, 96, 128]}),
    ("resnetv2_34d", 64, {"layers": [1, 2, 1, 1], "channels": [32, 64, 96, 128]}),
    ("resnetv2_50t", 64, {"layers": [1, 2, 1, 1], "channels": [32, 64, 96, 128]}),
    ("resnetv2_50d_gn", 64, {"layers": [1, 2, 1, 1], "channels": [128, 256, 384, 512]}),
    ("resnetblur18", 64, {"layers": [1, 2, 1, 1], "channels": [32, 64, 96, 128]}),
    ("resnetblur50d", 64, {"layers": [1, 2, 1, 1], "channels": [16, 24, 32, 40]}),
    ("resnetaa50", 64, {"layers": [1, 2, 1, 1], "channels": [16, 24, 32, 40]}),
    ("resnetaa34d", 64, {"layers": [1, 2, 1, 1], "channels": [32, 64, 96, 128]}),
    ("densenetblur121d", 64, {"growth_rate": 8, "block_config": [2, 3, 2, 2]}),
    ("mobilenetv4_conv_aa_medium", 64, {}),
    ("mobilenetv4_conv_blur_medium", 96, {}),
    ("efficientnet_blur_b0", 64, {}),
    ("res2net50d", 64, {"layers": [1, 2, 1, 1], "channels": [16, 24, 32, 40]}),
    ("res2next50", 64, {"layers": [1, 2, 1, 1], "channels": [16, 24, 32, 40]}),
    ("skresnet18", 64, {"layers": [1, 2, 1, 1], "channels": [32, 64, 96, 128]}),
    ("skresnext50_32x4d", 64, {"layers": [1, 2, 1, 1], "channels": [32, 64, 96, 128]}),
    ("legacy_seresnet18", 64, {"layers": [1, 2, 1, 1]}),
    ("resnet32ts", 64, {"width_factor": 0.125}),
    ("gcresnext26ts", 64, {}),
    ("eca_resnet33ts", 64, {"width_factor": 0.125}),
    ("regnetz_b16", 64, {"width_factor": 0.34}),
    ("regnetz_d8", 64, {"width_factor": 0.25}),
    ("resnet50_clip_gap", 64, {"width_factor": 0.125}),
    ("efficientnet_b1_pruned", 64, {}),  # TensorFlow's padding and epsilon without its prefix
    ("efficientnet_el", 64, {}),  # no residual in the first stage
    ("mobilenet_edgetpu_100", 64, {}),
    ("mobilenetv3_large_150d", 64, {}),  # two convolutions at the end, without a residual
    ("fbnetv3_b", 64, {}),
    ("mobilenetv3_rw", 64, {}),
    ("hgnetv2_b0", 64, {}),
    ("hgnetv2_b4", 64, {}),
    ("resnet50c", 64, {"layers": [1, 2, 1, 1], "channels": [16, 24, 32, 40]}),
    ("ecaresnetlight", 64, {"layers": [1, 2, 1, 1], "channels": [16, 24, 32, 40]}),
    ("ghostnetv2_100", 64, {}),
    ("repghostnet_050", 64, {}),
    ("cs3darknet_s", 64, {}),
    ("cs3darknet_focus_s", 64, {}),
    ("regnetz_005", 64, {}),
    ("skresnet50d", 64, {"layers": [1, 2, 1, 1], "channels": [16, 24, 32, 40]}),
    ("resnet50_gn", 64, {"layers": [1, 2, 1, 1], "channels": [32, 64, 96, 128]}),
    ("inception_v3", 96, {}),
    ("aimv2_large_patch14_224", 56, {"img_size": 56, **SMALL}),
]


@pytest.mark.parametrize(("name", "side", "smaller"), CASES, ids=[f"{case[0]}_{case[1]}" for case in CASES])
def test_a_network_that_its_config_and_names_tell(
    name: str, side: int, smaller: dict[str, Any], tmp_path: Path
) -> None:
    with quiet():
        model = randomise(timm.create_model(name, num_classes=5, **smaller).eval())
    save_file(
        {key: value.contiguous() for key, value in model.state_dict().items()}, tmp_path / "model.safetensors"
    )
    pool = getattr(model, "global_pool", None)
    config = {"architecture": name, "num_classes": 5, "num_features": model.num_features}
    config |= {"global_pool": pool} if isinstance(pool, str) else {}
    config |= {"model_args": smaller} if smaller else {}
    (tmp_path / "config.json").write_text(json.dumps(config))
    hints = ASKED.get(name, {})
    read = mapper.inspect(tmp_path, hints=hints).architecture
    assert read.reading == "unverified", (read.questions, read.findings, read.missing)
    assert not read.unmapped
    (tmp_path / "generated_model.py").write_text(mapper.generate(tmp_path, hints=hints))
    built, loaded = (
        mapper.build(tmp_path, hints=hints),
        imported(tmp_path / "generated_model.py").load(tmp_path),
    )
    check_keys(tmp_path, built, loaded)
    image = torch.randn((2, 3, side, side), generator=torch.Generator().manual_seed(1))
    with torch.no_grad(), quiet():
        wanted, out, other = model(image), built(pixel_values=image), loaded(pixel_values=image)
    assert float((out.logits - wanted).abs().max() / wanted.std()) <= TOLERANCE
    assert torch.equal(out.logits, other.logits)
