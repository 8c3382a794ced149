"""Diffusion models between the names of their first releases and diffusers', by tables of both that are written here."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

import mapper
from mapper.errors import MapperError
from tests.parity.harness import TOLERANCE, randomise
from tests.parity.test_denoising_names import GROUPS, HEADS, TEXT, JointPatches, LargeUNet, UNet
from tests.parity.test_diffusers_names import Autoencoder
from tests.parity.test_first_names import (
    AXES,
    HEAD,
    PATCHES,
    UNET,
    Flux,
    Tensors,
    first_autoencoder,
    fused,
    renamed,
)

STEPS = torch.tensor([3.0, 500.0])
Case = tuple[
    Tensors, Tensors, dict[str, Any], Tensor, Tensors
]  # first names, diffusers', hints, output, inputs


def noise(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(len(shape)))


def autoencoder() -> Case:
    model, image = randomise(Autoencoder().eval()), noise(2, 3, 16, 24)
    first = {
        name.replace("conv_shortcut", "nin_shortcut"): each for name, each in first_autoencoder(model).items()
    }
    return first, model.state_dict(), {"norm.groups": GROUPS}, model(image), {"pixel_values": image}


def unet() -> Case:
    model, image = randomise(UNet().eval()), noise(2, 3, 8, 12)
    hints = {"norm.groups": GROUPS, "unet.heads": HEADS}
    inputs = {"sample": image, "timestep": STEPS, "encoder_hidden_states": TEXT}
    return renamed(model.state_dict(), UNET), model.state_dict(), hints, model(image, STEPS), inputs


def large_unet() -> Case:
    model, image, text = randomise(LargeUNet().eval()), noise(2, 3, 8, 12), noise(2, 6)
    sizes = torch.tensor([[8.0, 12.0], [16.0, 9.0]])
    hints = {"norm.groups": GROUPS, "unet.head_width": 4, "size_embedding.width": 4}
    inputs = {
        "sample": image,
        "timestep": STEPS,
        "encoder_hidden_states": TEXT,
        "text_embeds": text,
        "time_ids": sizes,
    }
    return (
        renamed(model.state_dict(), UNET),
        model.state_dict(),
        hints,
        model(image, STEPS, text, sizes),
        inputs,
    )


def patches() -> Case:
    model, image, pooled = randomise(JointPatches(True).eval()), noise(2, 4, 8, 8), noise(2, 10)
    state = model.state_dict()
    named = {name: each for name, each in state.items() if name != "pos_embed.pos_embed"}
    first = fused(renamed(named, PATCHES)) | {"pos_embed": state["pos_embed.pos_embed"]}
    for name in ("final_layer", "joint_blocks.1.context_block"):  # shifts come first
        for part in ("weight", "bias"):
            key = f"{name}.adaLN_modulation.1.{part}"
            first[key] = torch.cat(first[key].chunk(2)[::-1])
    inputs = {
        "hidden_states": image,
        "encoder_hidden_states": TEXT,
        "pooled_projections": pooled,
        "timestep": STEPS,
    }
    wanted = model(image, TEXT, pooled, STEPS)
    return first, state, {"attention.heads": HEADS, "image.size": 8}, wanted, inputs


CASES = {"autoencoder": autoencoder, "unet": unet, "patches": patches}
FIRST = {"autoencoder": "compvis", "unet": "compvis", "patches": "sai"}


def written(folder: Path, tensors: Tensors) -> Path:
    folder.mkdir()
    save_file({name: each.detach().clone() for name, each in tensors.items()}, folder / "model.safetensors")
    return folder / "model.safetensors"


def answers(notes: list[str]) -> dict[str, Any]:
    """What the notes say that is to be given when it is read."""
    said = [each for note in notes for each in re.findall(r"--set (\S+?)=(\[.*?\]|\S+)", note)]
    return {name: json.loads(value) if value[0] == "[" else value for name, value in said}


def same(file: Path, tensors: Tensors) -> None:
    found = load_file(file)
    assert found.keys() == tensors.keys()
    assert [name for name, each in tensors.items() if not found[name].equal(each)] == []


@pytest.mark.parametrize("case", CASES)
def test_it_has_the_names_and_the_numbers_of_the_other_and_computes_the_same(
    case: str, tmp_path: Path
) -> None:
    with torch.no_grad():
        first, theirs, hints, wanted, inputs = CASES[case]()
    source, there = (
        written(tmp_path / "first", first),
        tmp_path / "there" / "diffusion_pytorch_model.safetensors",
    )
    mapper.rename(source, "diffusers", there.parent, hints=hints)
    with pytest.raises(FileExistsError):
        mapper.rename(source, "diffusers", there.parent, hints=hints)
    mapper.rename(source, "diffusers", there.parent, hints=hints, overwrite=True)
    same(there, theirs)
    with torch.no_grad():
        got = mapper.build(there.parent)(**inputs).sample
    assert float((got - wanted).abs().max() / wanted.std()) <= TOLERANCE
    done = mapper.rename(there.parent, FIRST[case], tmp_path / "back.safetensors")
    same(tmp_path / "back.safetensors", first)
    with torch.no_grad():
        again = mapper.build(tmp_path / "back.safetensors", hints=answers(done.notes))(**inputs).sample
    assert float((again - wanted).abs().max() / wanted.std()) <= TOLERANCE


@pytest.mark.parametrize("is_guided", [False, True])
def test_fused_maps_are_taken_apart_and_the_last_halves_turned(is_guided: bool, tmp_path: Path) -> None:
    model, image, pooled = randomise(Flux(is_guided).eval()), noise(2, 6, 6), noise(2, 10)
    step, guidance = torch.tensor([0.3, 0.9]), torch.tensor([3.5, 1.0])
    at = torch.tensor([[0.0, row, column] for row in range(2) for column in range(3)])
    first = model.state_dict()
    with torch.no_grad():
        wanted = model(image, pooled, step, guidance, torch.cat((torch.zeros(5, 3), at)))
    there = tmp_path / "there" / "diffusion_pytorch_model.safetensors"
    there.parent.mkdir()
    mapper.rename(written(tmp_path / "first", first), "diffusers", there, hints={"rotary.sizes": AXES})
    found = load_file(there)
    halves = first["final_layer.adaLN_modulation.1.weight"].chunk(2)
    assert found["norm_out.linear.weight"].equal(torch.cat(halves[::-1]))
    assert found["single_transformer_blocks.1.attn.to_k.weight"].equal(
        first["single_blocks.1.linear1.weight"][16:32]
    )
    config = json.loads((there.parent / "config.json").read_text())
    assert config["attention_head_dim"] == HEAD and config["guidance_embeds"] is is_guided
    inputs = {"hidden_states": image, "encoder_hidden_states": TEXT, "pooled_projections": pooled, "timestep": step, "img_ids": at, "txt_ids": torch.zeros(5, 3)}  # fmt: skip
    inputs |= {"guidance": guidance} if is_guided else {}
    with torch.no_grad():
        got = mapper.build(there.parent)(**inputs).sample
    assert float((got - wanted).abs().max() / wanted.std()) <= TOLERANCE
    done = mapper.rename(there.parent, "bfl", tmp_path / "back.safetensors")
    assert answers(done.notes) == {"rotary.sizes": AXES}
    same(tmp_path / "back.safetensors", first)


def renamed_unet(folder: Path, **said: Any) -> Path:
    """A U-Net as diffusers has it, whose config says something else."""
    first, _, hints, _, _ = unet()
    folder.mkdir()
    file = folder / "diffusion_pytorch_model.safetensors"
    mapper.rename(written(folder / "first", first), "diffusers", file, hints=hints)
    config = folder / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | said))
    return folder


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"norm_eps": 1e-6}, "norm.eps is 1e-06 here, and compvis/unet says 1e-05"),
        ({"flip_sin_to_cos": False}, "timestep.cosine_first is false here, and compvis/unet says true"),
        ({"freq_shift": 1}, "timestep.shift is 1 here, and compvis/unet says 0"),
    ],
)
def test_what_is_another_in_blocks_that_are_arranged_otherwise_is_found(
    said: dict[str, Any], why: str, tmp_path: Path
) -> None:
    with pytest.raises(MapperError, match=re.escape(why)):
        mapper.rename(renamed_unet(tmp_path / "said", **said), "compvis", tmp_path / "x.safetensors")


def test_heads_that_no_setting_says_are_refused_stage_by_stage(tmp_path: Path) -> None:
    first, _, hints, _, _ = large_unet()
    folder = tmp_path / "there"
    folder.mkdir()
    source = written(tmp_path / "first", first)
    mapper.rename(source, "diffusers", folder / "diffusion_pytorch_model.safetensors", hints=hints)
    config = json.loads((folder / "config.json").read_text())
    assert config["attention_head_dim"] == [2, 4] and config["addition_time_embed_dim"] == 4
    with pytest.raises(MapperError, match=r"attention\.heads is unknown at input_blocks"):
        mapper.rename(folder, "compvis", tmp_path / "x.safetensors")


def test_stages_of_several_lengths_have_no_place_in_one_list(tmp_path: Path) -> None:
    folder = renamed_unet(tmp_path / "there")
    tensors = load_file(folder / "diffusion_pytorch_model.safetensors")
    more = {
        name.replace("down_blocks.1.resnets.0", "down_blocks.1.resnets.1"): each.clone()
        for name, each in tensors.items()
        if name.startswith("down_blocks.1.resnets.0") and "conv_shortcut" not in name
    }
    shapes = {
        name: (each[:, :1].repeat(1, 16, 1, 1) if "conv1.weight" in name else each)
        for name, each in more.items()
    }
    shapes |= {name: each[:1].repeat(16) for name, each in more.items() if ".norm1." in name}
    save_file({**tensors, **shapes}, folder / "diffusion_pytorch_model.safetensors")
    with pytest.raises(MapperError, match=r"layers\.\{n\} has 2 elements there, and not everywhere here"):
        mapper.rename(folder, "compvis", tmp_path / "x.safetensors")


def test_a_part_of_a_single_file_is_renamed_by_itself(tmp_path: Path) -> None:
    first, theirs, hints, _, _ = autoencoder()
    other = unet()[0]
    whole = {f"first_stage_model.{name}": each for name, each in first.items()}
    whole |= {f"model.diffusion_model.{name}": each for name, each in other.items()}
    file = written(tmp_path / "whole", whole)
    out = tmp_path / "vae.safetensors"
    mapper.rename(f"{file}#vae", "diffusers", out, hints=hints)
    same(out, theirs)
    with pytest.raises(MapperError, match="name one"):
        mapper.rename(file, "diffusers", tmp_path / "x.safetensors")
