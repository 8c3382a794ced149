"""Vision transformers under the names of image libraries, without a config, against the reference's own outputs."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor

import mapper
from tests.parity.harness import TOLERANCE, reference
from tests.parity.test_library_names import State, joined, renamed

IMAGE = torch.randn((2, 3, 32, 32), generator=torch.Generator().manual_seed(1))
SWIN = {
    "image_size": 32, "patch_size": 4, "embed_dim": 8, "depths": [2, 2], "num_heads": [2, 4], "window_size": 4, "num_labels": 5,
}  # fmt: skip
VIT = {
    "image_size": 32, "patch_size": 8, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
    "intermediate_size": 48, "layer_norm_eps": 1e-6, "num_labels": 5,
}  # fmt: skip
PARTS = [f"{part}_proj." for part in "qkv"]
LAYER = (
    (r"attention\.relative_position_bias\.", "attn."),
    (r"attention\.o_proj", "attn.proj"),
    (r"attention\.", "attn."),
    (r"layernorm_before", "norm1"),
    (r"layernorm_after", "norm2"),
    (r"^swin\.layernorm\.", "norm."),
)


def shifted(state: State, name: Callable[[int], str]) -> State:
    """What halves a map, under the name of the stage behind it."""
    pattern = r"^swin\.encoder\.layers\.(\d+)\.downsample\."
    return {re.sub(pattern, lambda match: name(int(match[1])), key): value for key, value in state.items()}


def timm_swin(state: Mapping[str, Tensor]) -> State:
    found = joined(renamed(state, *LAYER), PARTS, "qkv.")
    return renamed(
        shifted(found, lambda at: f"layers.{at + 1}.downsample."),
        (r"^swin\.encoder\.layers", "layers"),
        (r"^swin\.embeddings\.patch_embeddings\.projection", "patch_embed.proj"),
        (r"^swin\.embeddings\.norm", "patch_embed.norm"),
        (r"^classifier", "head.fc"),
    )


def torchvision_swin(state: Mapping[str, Tensor]) -> State:
    found = joined(renamed(state, *LAYER), PARTS, "qkv.")
    return renamed(
        shifted(found, lambda at: f"features.{2 * at + 2}."),
        (r"^swin\.encoder\.layers\.0\.blocks", "features.1"),
        (r"^swin\.encoder\.layers\.1\.blocks", "features.3"),
        (r"mlp\.fc1", "mlp.0"),
        (r"mlp\.fc2", "mlp.3"),
        (r"^swin\.embeddings\.patch_embeddings\.projection", "features.0.0"),
        (r"^swin\.embeddings\.norm", "features.0.2"),
        (r"^classifier", "head"),
    )


def torchvision_vit(state: Mapping[str, Tensor]) -> State:
    found = renamed(
        state,
        (r"^vit\.embeddings\.cls_token", "class_token"),
        (r"^vit\.embeddings\.position_embeddings", "encoder.pos_embedding"),
        (r"^vit\.embeddings\.patch_embeddings\.projection", "conv_proj"),
        (r"^vit\.layers\.(\d+)\.", r"encoder.layers.encoder_layer_\1."),
        (r"attention\.o_proj", "self_attention.out_proj"),
        (r"attention\.([qkv]_proj)\.", r"self_attention.\1."),
        (r"layernorm_before", "ln_1"),
        (r"layernorm_after", "ln_2"),
        (r"mlp\.fc1", "mlp.0"),
        (r"mlp\.fc2", "mlp.3"),
        (r"^vit\.layernorm", "encoder.ln"),
        (r"^classifier", "heads.head"),
    )
    return joined(found, PARTS, "in_proj_")


LAYER_2 = (
    (r"attention\.self\.(query|key|value)\.", r"attn.\1."),
    (r"attention\.self\.continuous_position_bias_mlp", "attn.cpb_mlp"),
    (r"attention\.self\.", "attn."),
    (r"attention\.output\.dense", "attn.proj"),
    (r"layernorm_before", "norm1"),
    (r"layernorm_after", "norm2"),
    (r"intermediate\.dense", "mlp.fc1"),
    (r"(blocks\.\d+)\.output\.dense", r"\1.mlp.fc2"),
    (r"^swinv2\.", "swin."),
    (r"^swin\.layernorm\.", "norm."),
)
WEIGHTS = [f"{part}.weight" for part in (r"query", "key", "value")]


def timm_swinv2(state: Mapping[str, Tensor]) -> State:
    found = joined(renamed(state, *LAYER_2), WEIGHTS, "qkv.weight")
    return renamed(
        shifted(found, lambda at: f"layers.{at + 1}.downsample."),
        (r"query\.bias", "q_bias"),
        (r"value\.bias", "v_bias"),
        (r"^swin\.encoder\.layers", "layers"),
        (r"^swin\.embeddings\.patch_embeddings\.projection", "patch_embed.proj"),
        (r"^swin\.embeddings\.norm", "patch_embed.norm"),
        (r"^classifier", "head.fc"),
    )


def torchvision_swinv2(state: Mapping[str, Tensor]) -> State:
    """With a bias of keys, which is stored and not read, and the table whose length shows the windows."""
    found = renamed(state, *LAYER_2)
    for name in list(found):
        if name.endswith("query.bias"):
            found[name.replace("query", "key")] = torch.full_like(found[name], 0.7)
        if name.endswith("logit_scale"):
            found[name.replace("logit_scale", "relative_coords_table")] = torch.zeros(1, 7, 7, 2)
    found = joined(joined(found, WEIGHTS, "qkv.weight"), [one.replace("weight", "bias") for one in WEIGHTS], "qkv.bias")  # fmt: skip
    return renamed(
        shifted(found, lambda at: f"features.{2 * at + 2}."),
        (r"^swin\.encoder\.layers\.0\.blocks", "features.1"),
        (r"^swin\.encoder\.layers\.1\.blocks", "features.3"),
        (r"mlp\.fc1", "mlp.0"),
        (r"mlp\.fc2", "mlp.3"),
        (r"^swin\.embeddings\.patch_embeddings\.projection", "features.0.0"),
        (r"^swin\.embeddings\.norm", "features.0.2"),
        (r"^classifier", "head"),
    )


def first_swin2sr(state: Mapping[str, Tensor]) -> State:
    """With the tables that show the windows, and the masks that are stored where windows are shifted."""
    found = renamed(state, *LAYER_2)
    for name in list(found):
        if name.endswith("logit_scale"):
            found[name.replace("logit_scale", "relative_coords_table")] = torch.zeros(1, 7, 7, 2)
    return renamed(
        joined(found, WEIGHTS, "qkv.weight")
        | {"swin2sr.encoder.stages.0.layers.1.attn_mask": torch.zeros(9, 16, 16)},
        (r"query\.bias", "q_bias"),
        (r"value\.bias", "v_bias"),
        (r"(layers\.\d+)\.output\.dense", r"\1.mlp.fc2"),
        (r"stages\.(\d+)\.layers\.", r"stages.\1.residual_group.blocks."),
        (r"patch_embed(dings)?\.projection", "patch_embed.proj"),
        (r"^swin2sr\.embeddings\.patch_embeddings\.layernorm", "patch_embed.norm"),
        (r"^swin2sr\.encoder\.stages", "layers"),
        (r"^swin2sr\.embeddings\.", ""),
        (r"^swin2sr\.first_convolution", "conv_first"),
        (r"^swin2sr\.layernorm", "norm"),
        (r"^swin2sr\.conv_after_body", "conv_after_body"),
        (r"^upsample\.conv", "upsample.0"),
    )


CASES: dict[str, tuple[str, dict[str, Any], Callable[[Mapping[str, Tensor]], State], dict[str, Any]]] = {
    "timm_swin": ("Swin", SWIN, timm_swin, {}),
    "torchvision_swin": ("Swin", SWIN, torchvision_swin, {}),
    "timm_swinv2": ("Swinv2", SWIN, timm_swinv2, {"attention.window_size": 4}),
    "torchvision_swinv2": ("Swinv2", SWIN, torchvision_swinv2, {}),
    "torchvision_vit": ("ViT", VIT, torchvision_vit, {"attention.heads": 4}),
}


@pytest.mark.parametrize("name", CASES)
def test_an_image_model_that_names_alone_tell(name: str, tmp_path: Path) -> None:
    kind, config, names, hints = CASES[name]
    model = reference(f"{kind}ForImageClassification", getattr(transformers, f"{kind}Config")(**config))
    torch.save(names(model.state_dict()), tmp_path / "model.pth")
    read = mapper.inspect(tmp_path, hints=hints).architecture
    assert (read.family, read.reading) == (name, "unverified"), (read.findings, read.missing)
    assert not read.unmapped + read.findings
    with torch.no_grad():
        wanted = model(pixel_values=IMAGE).logits
        found = mapper.build(tmp_path, hints=hints)(pixel_values=IMAGE).logits
    assert float((found - wanted).abs().max() / wanted.std()) <= TOLERANCE


def test_an_image_made_larger_by_the_first_names(tmp_path: Path) -> None:
    config = transformers.Swin2SRConfig(
        image_size=12, patch_size=1, embed_dim=16, depths=[2, 1], num_heads=[2, 4], window_size=4, mlp_ratio=2.0,
        upscale=2, upsampler="pixelshuffledirect",
    )  # fmt: skip
    model = reference("Swin2SRForImageSuperResolution", config)
    torch.save(first_swin2sr(model.state_dict()), tmp_path / "model.pth")
    read = mapper.inspect(tmp_path).architecture
    assert (read.family, read.reading) == ("swin2sr_first", "unverified"), (read.findings, read.missing)
    assert not read.unmapped + read.findings
    pixels = torch.rand(1, 3, 12, 16, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        wanted, found = model(pixels).reconstruction, mapper.build(tmp_path)(pixels).reconstruction
    assert float((found - wanted).abs().max() / wanted.std()) <= TOLERANCE
