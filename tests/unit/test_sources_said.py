"""What a source is, said first: one shard of several, an adapter, an optimizer; its size as stored; what is not installed."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save, save_file

import mapper
from mapper.cli import main
from mapper.errors import ArchitectureError, FormatError
from mapper.sources import ggml, open_source
from mapper.sources.quantised.plain import plain
from tests.hub import Serve

SHARD = "model-00002-of-00007.safetensors"


def head(source: object, **options: object) -> str:
    return str(mapper.inspect(source, **options)).split("\n")[0]  # type: ignore[arg-type]


def lone(folder: Path, *names: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        save_file({f"model.layers.{name[6:11]}.self_attn.q_proj.weight": torch.ones(4, 4)}, folder / name)
    return folder / names[0]


def test_a_lone_shard_is_said_to_be_one_with_what_is_missing(tmp_path: Path) -> None:
    shard = lone(tmp_path / "x", SHARD, "model-00003-of-00007.safetensors")
    (tmp_path / "x/config.json").write_text('{"model_type": "llama"}')
    assert head(shard) == f"{SHARD}: shard 2 of 7; no known family, skeleton"
    text = str(mapper.inspect(shard))
    assert "the file is shard 2 of 7 of a checkpoint; beside it 'model-00001-of-00007.safetensors'" in text
    assert "and 2 more are missing" in text
    with pytest.raises(ArchitectureError, match="shard 2 of 7"):
        mapper.generate(shard)
    assert open_source(shard, purpose="weights").read is not None  # its tensors can be had all the same


def test_a_shard_with_the_others_beside_it_says_so(tmp_path: Path) -> None:
    shard = lone(tmp_path / "x", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
    assert "shard 1 of 2" in head(shard)
    assert "the others stand beside it: give the whole" in str(mapper.inspect(shard))
    assert "shard" not in head(tmp_path / "x")
    torch.save({"a.weight": torch.ones(2, 2)}, tmp_path / "pytorch_model-00001-of-00003.bin")
    assert "shard 1 of 3" in head(tmp_path / "pytorch_model-00001-of-00003.bin")
    assert "shard" not in head(lone(tmp_path / "y", "model-00001-of-00001.safetensors"))


def test_a_lone_shard_on_the_hub(serve: Serve) -> None:
    serve({"org/big": {SHARD: save({"a.weight": torch.ones(2, 2)}), "README.md": b"x"}})
    for purpose in ("headers", "weights"):
        checkpoint = open_source(f"org/big:{SHARD}", purpose=purpose)
        assert checkpoint.what == "shard 2 of 7" and "and 3 more are missing" in checkpoint.lacking


def lora(folder: Path, config: dict[str, object] | None, **more: torch.Tensor) -> Path:
    folder.mkdir()
    ranks = {"q_proj": 8, "v_proj": 4}
    tensors = {
        f"base_model.model.layers.{layer}.{name}.lora_{side}.weight": torch.ones(shape)
        for layer in range(2)
        for name, rank in ranks.items()
        for side, shape in (("A", (rank, 16)), ("B", (16, rank)))
    }
    save_file({**tensors, **more}, folder / "adapter_model.safetensors")
    if config is not None:
        (folder / "adapter_config.json").write_text(json.dumps(config))
    return folder


CONFIG = {
    "peft_type": "LORA",
    "base_model_name_or_path": "org/base",
    "r": 8,
    "lora_alpha": 16,
    "target_modules": ["v_proj", "q_proj"],
}


def test_an_adapter_is_named_with_its_base_rank_alpha_and_targets(tmp_path: Path) -> None:
    said = "an adapter (LoRA) for org/base, rank 4 to 8, alpha 16, targets q_proj, v_proj; no known family, skeleton"
    assert head(lora(tmp_path / "one", CONFIG)) == f"one: {said}"
    assert head(tmp_path / "one/adapter_model.safetensors") == f"adapter_model.safetensors: {said}"
    assert "an adapter (LoRA), rank 4 to 8, targets q_proj, v_proj;" in head(lora(tmp_path / "two", None))
    head_too = {"base_model.model.score.weight": torch.ones(2, 16)}
    assert said in head(lora(tmp_path / "three", CONFIG, **head_too))
    assert "targets .*_proj;" in head(lora(tmp_path / "four", {**CONFIG, "target_modules": ".*_proj"}))
    strange = {"base_model_name_or_path": 3, "lora_alpha": "x\n", "target_modules": {"a": 1}, "r": []}
    assert "an adapter (LoRA), rank 4 to 8, targets q_proj, v_proj;" in head(lora(tmp_path / "five", strange))


def test_adapters_of_other_tools_are_named_by_their_tensors() -> None:
    kohya = {
        "lora_unet_mid_attn.lora_down.weight": [16, 8],
        "lora_unet_mid_attn.lora_up.weight": [8, 16],
        "lora_unet_mid_attn.alpha": [],
    }
    assert "an adapter (LoRA), rank 16, alpha among its tensors, targets lora_unet_mid_attn;" in head(kohya)
    assert "an adapter (LoHa, LoKr or IA3);" in head({"a.ia3_l": [4, 1], "b.ia3_l": [4, 1]})


def test_other_things_beside_a_base_are_named_too(tmp_path: Path) -> None:
    folder = tmp_path / "prompt"
    folder.mkdir()
    save_file({"prompt_embeddings": torch.ones(8, 16)}, folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": "org/base"}))
    assert head(folder) == "prompt: a learned prompt for org/base; no known family, skeleton"
    save_file(
        {"a.weight": torch.ones(2, 2)}, folder / "model.safetensors"
    )  # a whole model: the adapter is beside it
    (folder / "config.json").write_text("{}")
    (folder / "adapter_config.json").write_text("[")
    assert head(folder) == "prompt: no known family, skeleton"


def test_an_adapter_on_the_hub(serve: Serve, tmp_path: Path) -> None:
    folder = lora(tmp_path / "lora", CONFIG)
    serve({"org/lora": {path.name: path.read_bytes() for path in folder.iterdir()}})
    assert "for org/base, rank 4 to 8, alpha 16" in head("org/lora")
    assert open_source("org/lora", purpose="weights").adapter == CONFIG


def test_the_state_of_an_optimizer_is_named(tmp_path: Path) -> None:
    model = torch.nn.Linear(3, 3)
    for kind in (torch.optim.AdamW, lambda of: torch.optim.SGD(of, momentum=0.9)):
        optimizer = kind(model.parameters())
        model(torch.ones(1, 3)).sum().backward()
        optimizer.step()
        torch.save(optimizer.state_dict(), tmp_path / "optimizer.pt")
        assert (
            head(tmp_path / "optimizer.pt")
            == "optimizer.pt: the state of an optimizer; no known family, skeleton"
        )


def quantised(path: Path) -> Path:
    import gguf

    table = np.linspace(-1, 1, 64 * 64, dtype=np.float32).reshape(64, 64)
    kind = gguf.GGMLQuantizationType.Q4_1
    writer = gguf.GGUFWriter(path, "unheard-of")
    writer.add_tensor("blk.0.attn_q.weight", gguf.quants.quantize(table, kind), raw_dtype=kind)
    writer.add_tensor("output_norm.weight", np.ones(64, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_sizes_are_those_that_are_stored(tmp_path: Path) -> None:
    checkpoint = open_source(quantised(tmp_path / "x.gguf"), purpose="headers")
    blocks = 64 * 64 // 32 * 20
    assert checkpoint.stored() == {"Q4_1": (4096, blocks), "F32": (64, 256)}
    report = mapper.inspect(tmp_path / "x.gguf")
    assert "4,160 parameters (Q4_1, F32, 2.8 kB)" in str(report)
    document = json.loads(report.to_json())
    assert document["bytes"] == blocks + 256
    assert sorted(leaf["bytes"] for leaf in document["leaves"]) == [256, blocks]
    np.savez_compressed(tmp_path / "x.npz", a=np.zeros((1000, 100), np.float32))
    (size,) = open_source(tmp_path / "x.npz", purpose="headers").stored().values()
    assert size[0] == 100_000 and size[1] < 10_000
    scaled = {
        "a.weight": {"shape": [128, 128], "dtype": "F8_E4M3"},
        "a.weight_scale_inv": [1, 1],
        "b.weight": [2, 2],
    }
    assert plain(open_source(scaled, purpose="headers"), ()).stored() == {
        "F8_E4M3": (16384, 16388),
        "F32": (4, 16),
    }


def test_what_is_not_installed_is_said_by_inspect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quantised(tmp_path / "x.gguf")
    assert "not installed" not in str(mapper.inspect(tmp_path / "x.gguf"))
    monkeypatch.setattr(ggml, "is_installed", lambda: False)
    report = mapper.inspect(tmp_path / "x.gguf")
    note = "the weights cannot be read here: the package gguf, which unpacks Q4_1, is not installed; pip install 'checkpoint-mapper[gguf]'"
    assert f"note: {note}" in str(report) and note in report.to_json()
    assert "not installed" not in mapper.generate(tmp_path / "x.gguf")  # the same source everywhere
    assert "not installed" not in str(mapper.inspect({"a.weight": [2, 2]}))


@pytest.fixture
def linked(tmp_path: Path) -> Path:
    """A folder of links, as `stow` makes it."""
    store, folder = tmp_path / "store", tmp_path / "folder"
    store.mkdir()
    folder.mkdir()
    save_file({"a.weight": torch.ones(2, 2)}, store / "weights")
    (store / "config").write_text('{"model_type": "unheard-of"}')
    for name, target in (("model.safetensors", "weights"), ("config.json", "config")):
        (folder / name).symlink_to(store / target)
    return folder


def test_links_are_followed_where_the_user_says_so(linked: Path, tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"is a link out of its directory.*say follow_links=True"):
        mapper.inspect(linked)
    checkpoint = mapper.inspect(linked, follow_links=True).architecture.checkpoint
    assert checkpoint.config == {"model_type": "unheard-of"}
    model = torch.nn.ModuleDict({"a": torch.nn.Linear(2, 2, bias=False)})
    with pytest.raises(FormatError, match="is a link out of its directory"):
        mapper.load_weights(model, linked)
    assert mapper.load_weights(model, linked, follow_links=True).loaded == ["a.weight"]
    assert mapper.diff(linked, linked / "model.safetensors", values=True, follow_links=True).weights_equal
    assert mapper.convert(linked, tmp_path / "out", follow_links=True).tensors == 1
    assert torch.equal(mapper.build(linked, follow_links=True).state_dict()["a.weight"], torch.ones(2, 2))


COMMANDS = ("inspect", "build", "generate", "verify", "convert", "diff", "rules explain", "rules new")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_takes_the_option(
    command: str, linked: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = {"convert": [str(tmp_path / "out")], "diff": [str(linked)]}.get(command, [])
    arguments = [*command.split(), str(linked), *more]
    assert main(arguments) == 2
    assert (
        "is a link out of its directory" in (said := capsys.readouterr().err) and "say --follow-links" in said
    )
    code = main([*arguments, "--follow-links"])
    said = capsys.readouterr().err
    assert (code, said) == (0, "") or "a skeleton does not run" in said


def test_an_index_still_names_no_file_elsewhere_and_devices_are_not_read(linked: Path) -> None:
    os.unlink(linked / "model.safetensors")
    index = linked / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a.weight": "../store/weights"}}))
    with pytest.raises(FormatError, match="which is no file beside the index"):
        mapper.inspect(linked, follow_links=True)
    index.unlink()
    (linked / "model.safetensors").symlink_to("/dev/zero")
    with pytest.raises(mapper.MapperError, match="not a regular file"):
        mapper.inspect(linked, follow_links=True)
