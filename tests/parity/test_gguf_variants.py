"""GGUF files with other settings than those of `test_gguf`: as other checkpoints of a type, or other converters, have them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import mapper
from mapper.errors import MapperError
from tests.gguf_files import gguf_bytes
from tests.parity import test_gguf
from tests.parity.test_gguf import (
    CASES,
    LATENT,
    OF_LATENT,
    SIZES,
    WIDE,
    as_gguf,
    check_outputs,
    own_tensors,
    saved,
)

YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
OF_YARN = {
    "rope.scaling.type": "yarn", "rope.scaling.factor": 4.0, "rope.scaling.original_context_length": 16,
}  # fmt: skip
LINEAR = {**SIZES, "rope_scaling": {"rope_type": "linear", "factor": 4.0}}
GROUPED = {**LATENT, "n_group": 2, "topk_group": 1, "topk_method": "group_limited_greedy"}
OF_GROUPED = {**OF_LATENT, "expert_group_count": 2, "expert_group_used_count": 1}
SCALED = {**LATENT, "rope_scaling": {**YARN, "mscale": 0.707, "mscale_all_dim": 0.707}}
OF_SCALED = {**OF_LATENT, **OF_YARN, "rope.scaling.yarn_log_multiplier": 0.0707}
# What it is about -> the case of `test_gguf` that it varies, the config, and the settings of the file.
VARIANTS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    # its converter says true wherever the config has no such field; the norm before the feed-forward shows it
    "stablelm, said to be parallel": ("stablelm", SIZES, {"rope.dimension_count": 4, "use_parallel_residual": True}),
    "falcon, groups with one norm": (
        "falcon",
        {**SIZES, "num_kv_heads": 2, "new_decoder_architecture": True, "num_ln_in_parallel_attn": 1},
        {"attention.head_count_kv": 2, "feed_forward_length": 256},
    ),
    "groups of experts": ("deepseek2", GROUPED, OF_GROUPED),
    "scores scaled for a long context": ("deepseek2", SCALED, OF_SCALED),
    "turns that are kept": (
        "qwen3",
        {**WIDE, "rope_scaling": {**YARN, "beta_fast": 8.0, "beta_slow": 2.0}},
        {**OF_YARN, "rope.scaling.yarn_beta_fast": 8.0, "rope.scaling.yarn_beta_slow": 2.0},
    ),
    "a factor of scores": (
        "qwen3",
        {**WIDE, "rope_scaling": {**YARN, "attention_factor": 1.5}},
        {**OF_YARN, "rope.scaling.yarn_attn_factor": 1.5},
    ),
    "a factor without a type": ("llama", LINEAR, {"rope.scaling.factor": 4.0}),
    "the first key of a factor": ("llama", LINEAR, {"rope.scale_linear": 4.0}),
    "every second layer sees everything": (
        "modern-bert",
        {**CASES["modern-bert"][1], "global_attn_every_n_layers": 2},
        {**CASES["modern-bert"][2], "attention.sliding_window_pattern": 2},
    ),
    "all of a head turns": ("phi2", {**SIZES, "partial_rotary_factor": 1.0}, {}),
    "all of a head turns, as its type has it seldom": (
        "glm4", {**WIDE, "attention_bias": False, "partial_rotary_factor": 1.0}, {},
    ),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("about", VARIANTS)
@torch.no_grad()
def test_other_settings_are_read_and_written(
    about: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case, options, more = VARIANTS[about]
    monkeypatch.setitem(test_gguf.CASES, case, (CASES[case][0], options, more))
    model = saved(case, tmp_path / "first")
    check_outputs(as_gguf(case, model, own_tensors(tmp_path / "first"), tmp_path / "model.gguf"), model)
    mapper.rename(tmp_path / "first", "gguf", tmp_path / "written.gguf")
    check_outputs(tmp_path / "written.gguf", model)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("options", "more", "asked"),
    [(GROUPED, OF_GROUPED, "moe.group_score"), (SCALED, OF_SCALED, "attention.scaling")],
)
@torch.no_grad()
def test_what_decides_is_asked_of_an_architecture_that_no_naming_has(
    options: dict[str, Any], more: dict[str, Any], asked: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(test_gguf.CASES, "deepseek2", (CASES["deepseek2"][0], options, more))
    model = saved("deepseek2", tmp_path)
    path = as_gguf("deepseek2", model, own_tensors(tmp_path), tmp_path / "model.gguf", "tale")
    found = mapper.inspect(path, hints=test_gguf.TOLD["deepseek2"]).architecture
    assert asked in {question.fact for question in found.questions}


@torch.no_grad()
def test_the_one_head_of_keys_is_written_as_one(tmp_path: Path) -> None:
    saved("falcon", tmp_path / "first")  # whose config has as many as there are heads, which nothing reads
    mapper.rename(tmp_path / "first", "gguf", tmp_path / "model.gguf")
    config = mapper.inspect(tmp_path / "model.gguf").architecture.checkpoint.config
    assert config is not None and config["num_kv_heads"] == 1


UNSAID = {
    "deepseek2": ({**GROUPED, "topk_method": "greedy"}, "moe.grouped is false here"),  # in some layers alone
    "starcoder": ({**CASES["starcoder"][1], "multi_query": False}, "attention.fused is per_head here"),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", UNSAID)
@torch.no_grad()
def test_what_no_file_can_say_is_not_written(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options, why = UNSAID[case]
    monkeypatch.setitem(test_gguf.CASES, case, (CASES[case][0], options, {}))
    saved(case, tmp_path / "first")
    with pytest.raises(MapperError, match=why):
        mapper.rename(tmp_path / "first", "gguf", tmp_path / "model.gguf")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("case", "part"), [("deepseek2", "attn_v_b"), ("gpt-oss", "exps.bias"), ("granitemoe", "gate_exps")]
)
@torch.no_grad()
def test_parts_of_one_tensor_may_lie_in_two_files(
    case: str, part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file is cut between its tensors, wherever it gets too large."""
    model = saved(case, tmp_path / "first")
    kept: list[Any] = []

    def keep(said: dict[str, Any], tensors: dict[str, Any]) -> bytes:
        kept.extend((said, tensors))
        return b""

    monkeypatch.setattr(test_gguf, "gguf_bytes", keep)
    as_gguf(case, model, own_tensors(tmp_path / "first"), tmp_path / "unused")
    said, tensors = kept
    for number in (0, 1):
        here = {name: array for name, array in tensors.items() if (part in name) == bool(number)}
        settings = {"split.no": number, "split.count": 2} | ({} if number else said)
        (tmp_path / f"model-0000{number + 1}-of-00002.gguf").write_bytes(gguf_bytes(settings, here))
    check_outputs(tmp_path / "model-00001-of-00002.gguf", model)


IDLE = (
    "attention.max_alibi_bias",
    "router_logit_softcapping",
    "attention.output_scale",
    "attention.temperature_scale",
)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("key", IDLE)
@torch.no_grad()
def test_what_few_architectures_compute_is_not_passed_over(key: str, tmp_path: Path) -> None:
    model = saved("qwen3", tmp_path)
    path = as_gguf("qwen3", model, own_tensors(tmp_path), tmp_path / "model.gguf", "tale", **{key: 8.0})
    with pytest.raises(MapperError, match="asks for what no flow here does"):
        mapper.build(path, hints=test_gguf.TOLD["qwen3"])
