"""Tiny checkpoints by other packages, each with inputs and outputs, for tools/foreign.py.

    PYTHONPATH=PACKAGES python tools/foreign_cases.py CASES            # all whose package is there
    PYTHONPATH=PACKAGES python tools/foreign_cases.py CASES --only lit_qwen3 swin

PACKAGES is a folder into which `pip install --no-deps --target PACKAGES` put timm, torchvision, litgpt, x-transformers,
vit-pytorch, spandrel, segmentation-models-pytorch, diffusers and what they need. Weights are random, norms perturbed.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
import yaml
from safetensors.torch import save_file
from torch import nn


class Row(NamedTuple):
    """A model by the path of what makes it, with arguments; the shapes of its inputs."""

    made_by: str  # "package.module:name"
    arguments: dict[str, Any]
    inputs: tuple[tuple[int, ...] | str, ...] = ((1, 3, 64, 64),)  # a shape of normal numbers, or "ids"
    settings: str = ""  # a file beside the weights that the package writes


LAYERS = {"dim": 64, "depth": 2, "heads": 4, "attn_dim_head": 16}
SMALL = {
    "image_size": 32,
    "patch_size": 8,
    "num_classes": 10,
    "dim": 64,
    "depth": 2,
    "heads": 4,
    "mlp_dim": 96,
}
STAGES = {"embed_dim": 24, "depths": [2, 2], "num_heads": [2, 2], "window_size": 4, "img_size": 16}
IMAGE_32, IMAGE_16 = ((1, 3, 32, 32),), ((1, 3, 16, 16),)
TORCHVISION = [
    "alexnet",
    "convnext_tiny",
    "densenet121",
    "efficientnet_b0",
    "mobilenet_v2",
    "mobilenet_v3_small",
    "regnet_y_400mf",
    "resnet18",
    "resnext50_32x4d",
    "shufflenet_v2_x0_5",
    "squeezenet1_0",
    "swin_t",
    "swin_v2_t",
    "vgg11",
    "vgg11_bn",
]
TIMM: dict[str, dict[str, Any]] = {
    "vit_tiny_patch16_224": {"img_size": 64, "depth": 2},
    "beit_base_patch16_224": {"img_size": 64, "depth": 2, "embed_dim": 48, "num_heads": 3},
    "swin_tiny_patch4_window7_224": {"img_size": 64, "window_size": 2, "depths": [2, 2], "num_heads": [2, 4], "embed_dim": 32},
    "eva02_tiny_patch14_224": {"img_size": 64, "patch_size": 16, "depth": 2},
    "mixer_s16_224": {"img_size": 64},
    **{name: {} for name in ("convnext_atto", "densenet121", "efficientnet_b0", "mobilenetv3_small_050", "resnet26", "vgg11")},
}  # fmt: skip
LITGPT = [
    "Qwen2.5-0.5B",
    "Mistral-7B-v0.1",
    "phi-2",
    "Gemma-2-2b",
    "falcon-7b",
    "stablelm-3b-4e1t",
    "Qwen3-0.6B",
    "gemma-3-1b-it",
]
ROWS = {
    **{name: Row(f"torchvision.models:{name}", {"weights": None, "num_classes": 10}) for name in TORCHVISION},
    **{f"timm_{name}": Row("timm:create_model", {"model_name": name, "num_classes": 10, **more}, settings="timm") for name, more in TIMM.items()},
    **{f"litgpt_{name}": Row("litgpt.model:GPT", {"name": name}, ("ids",), "litgpt") for name in LITGPT},
    "vit_pytorch": Row("vit_pytorch:ViT", SMALL, IMAGE_32),
    "simple_vit": Row("vit_pytorch:SimpleViT", SMALL, IMAGE_32),
    "xt_decoder": Row("x_transformers:TransformerWrapper", {"num_tokens": 100, "max_seq_len": 32, "attn_layers": {"Decoder": LAYERS}}, ("ids",)),
    "xt_encoder": Row("x_transformers:TransformerWrapper", {"num_tokens": 100, "max_seq_len": 32, "attn_layers": {"Encoder": LAYERS}}, ("ids",)),
    "esrgan": Row("spandrel.architectures.ESRGAN.__arch.RRDB:RRDBNet", {"num_filters": 16, "num_blocks": 2, "scale": 4}, IMAGE_16),
    "compact": Row("spandrel.architectures.Compact.__arch.SRVGG:SRVGGNetCompact", {"num_feat": 16, "num_conv": 4, "upscale": 2}, IMAGE_16),
    "swinir": Row("spandrel.architectures.SwinIR.__arch.SwinIR:SwinIR", {**STAGES, "upsampler": "pixelshuffledirect", "upscale": 2}, IMAGE_16),
    "nafnet": Row("spandrel.architectures.NAFNet.__arch.NAFNet_arch:NAFNet", {"width": 8, "middle_blk_num": 1, "enc_blk_nums": [1, 1], "dec_blk_nums": [1, 1]}, IMAGE_16),
    "unet": Row("segmentation_models_pytorch:Unet", {"encoder_name": "resnet18", "encoder_weights": None, "classes": 3}),
}  # fmt: skip


def made(row: Row) -> tuple[nn.Module, dict[str, str]]:
    """The model, and the settings that its package has beside it, by the name of the file."""
    module, _, name = row.made_by.partition(":")
    make: Callable[..., nn.Module] = getattr(importlib.import_module(module), name)
    arguments = dict(row.arguments)
    if row.settings == "litgpt":
        config = importlib.import_module("litgpt.config").Config.from_name(
            arguments["name"], n_layer=2, n_embd=64, n_head=4, n_query_groups=4 if "phi" in arguments["name"] else 2,
            head_size=16, intermediate_size=96, padded_vocab_size=100, vocab_size=100, block_size=64, rope_adjustments=None,
        )  # fmt: skip
        return make(config), {"model_config.yaml": yaml.dump(dataclasses.asdict(config))}
    if isinstance(arguments.get("attn_layers"), dict):
        ((kind, layers),) = arguments["attn_layers"].items()
        arguments["attn_layers"] = getattr(importlib.import_module(module), kind)(**layers)
    model = make(**arguments)
    if row.settings == "timm":
        more = {key: value for key, value in arguments.items() if key not in ("model_name", "num_classes")}
        config = {"architecture": arguments["model_name"], "num_classes": 10, "num_features": model.num_features, "model_args": more}  # fmt: skip
        return model, {"config.json": json.dumps(config)}
    return model, {}


def perturb(model: nn.Module) -> nn.Module:
    """The model with no vector at its neutral value, and statistics of their own."""
    generator = torch.Generator().manual_seed(7)
    for parameter in model.parameters():
        if parameter.dim() < 2 or not parameter.abs().max():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.05)
    for name, buffer in model.named_buffers():
        if name.endswith("running_mean"):
            buffer.copy_(torch.randn(buffer.shape, generator=generator) * 0.1)
        if name.endswith("running_var"):
            buffer.copy_(torch.rand(buffer.shape, generator=generator) + 0.5)
    return model.eval()


def write(name: str, row: Row, folder: Path) -> None:
    """One case: its folder, and what the package gives beside it."""
    torch.manual_seed(0)
    model, settings = made(row)
    perturb(model)
    values = [torch.randint(1, 90, (1, 8)) if shape == "ids" else torch.randn(shape) for shape in row.inputs]  # type: ignore[arg-type]
    inputs = {f"x{at}": value for at, value in enumerate(values)}
    outputs = model(*values)
    (folder / name).mkdir(parents=True, exist_ok=True)
    state = {key: value.contiguous().clone() for key, value in model.state_dict().items()}
    save_file(state, folder / name / "model.safetensors")
    for file, text in settings.items():
        (folder / name / file).write_text(text)
    kinds = {path: type(module).__name__ for path, module in model.named_modules()}
    torch.save({"inputs": inputs, "outputs": outputs, "kinds": kinds}, folder / f"{name}.io")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("cases", type=Path, help="where to put them")
    parser.add_argument("--only", nargs="+", default=list(ROWS), choices=list(ROWS), metavar="CASE", help="these cases")  # fmt: skip
    arguments = parser.parse_args()
    for name in arguments.only:
        try:
            with torch.no_grad():
                write(name, ROWS[name], arguments.cases)
        except Exception as error:  # another package may fail in any way: the others are made all the same
            print(f"{name}: not made: {type(error).__name__}: {error}")
        else:
            print(f"{name}: made", flush=True)


if __name__ == "__main__":
    main()
