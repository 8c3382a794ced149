"""Tiny models of the reference library as GGUF files: named by the gguf package, arranged as llama.cpp's converter does.

The model that is read back must be the reference's: the same tensors, the same outputs.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import mapper
from mapper.errors import MapperError
from mapper.sources import open_source
from tests.gguf_files import gguf_bytes, pairs

gguf = pytest.importorskip("gguf")
transformers = pytest.importorskip("transformers")

SIZES = {
    "vocab_size": 96, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 64, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
SMALL = {"vocab_size": 96, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
WIDE = {**SIZES, "head_dim": 32}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
T5 = {"vocab_size": 96, "d_model": 64, "d_kv": 16, "d_ff": 96, "num_layers": 2, "num_decoder_layers": 3, "num_heads": 4,
      "decoder_start_token_id": 0}  # fmt: skip
OF_T5 = {"embedding_length": 64, "block_count": 2, "decoder_block_count": 3, "feed_forward_length": 96, "attention.head_count": 4,
         "attention.key_length": 16, "attention.value_length": 16, "attention.relative_buckets_count": 32,
         "attention.layer_norm_rms_epsilon": 1e-6, "decoder_start_token_id": 0}  # fmt: skip
LATENT = {**SIZES, "num_hidden_layers": 3, "num_key_value_heads": 4, "n_routed_experts": 4, "num_experts_per_tok": 2,
          "n_shared_experts": 1, "moe_intermediate_size": 32, "kv_lora_rank": 24, "q_lora_rank": 40, "qk_nope_head_dim": 16,
          "qk_rope_head_dim": 8, "v_head_dim": 12, "first_k_dense_replace": 1, "routed_scaling_factor": 1.5}  # fmt: skip
OF_LATENT = {"attention.head_count_kv": 1, "attention.key_length": 32, "attention.value_length": 24, "attention.key_length_mla": 24,
             "attention.value_length_mla": 12, "rope.dimension_count": 8, "attention.kv_lora_rank": 24, "expert_count": 4,
             "expert_used_count": 2, "expert_shared_count": 1, "expert_feed_forward_length": 32, "expert_weights_scale": 1.5,
             "leading_dense_block_count": 1, "expert_gating_func": 1}  # fmt: skip
IN_FILE = {  # of a case whose name is not the architecture's
    "mixtral": "llama", "stablelm_normed": "stablelm", "gptneox_sequential": "gptneox", "falcon_two_norms": "falcon",
    "t5_gated": "t5", "phi3_long": "phi3", "granitemoe_shared": "granitemoe",
    "deepseek2_lite": "deepseek2",
}  # fmt: skip
READ_ALONE = {"bert", "lfm2"}  # a pooler has no place there, nor is there one number of heads for all layers
# Architecture in the file -> class of the reference, its config, and settings that are not the same by another name.
CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "llama": ("Llama", {**SIZES, "rope_theta": 1e5}, {}),
    "mixtral": ("Mixtral", {**SIZES, "num_local_experts": 4}, {"expert_count": 4, "expert_used_count": 2}),
    "granite": (
        "Granite",
        {**SIZES, "embedding_multiplier": 12.0, "residual_multiplier": 0.5, "attention_multiplier": 0.125, "logits_scaling": 8.0},
        {"embedding_scale": 12.0, "residual_scale": 0.5, "attention.scale": 0.125, "logit_scale": 8.0},
    ),
    "qwen2": ("Qwen2", SIZES, {}),
    "qwen2moe": (
        "Qwen2Moe",
        {**SIZES, **EXPERTS, "shared_expert_intermediate_size": 48},
        {"expert_count": 4, "expert_used_count": 2, "expert_feed_forward_length": 32, "expert_shared_feed_forward_length": 48},
    ),
    "qwen3": ("Qwen3", WIDE, {}),
    "qwen3moe": (
        "Qwen3Moe",
        {**WIDE, **EXPERTS, "norm_topk_prob": True},
        {"expert_count": 4, "expert_used_count": 2, "expert_feed_forward_length": 32},
    ),
    "phi3": ("Phi3", SIZES, {}),
    "phi3_long": (
        "Phi3",
        {
            **SIZES, "original_max_position_embeddings": 16, "partial_rotary_factor": 0.75,
            "rope_scaling": {"rope_type": "longrope", "short_factor": [1.0] * 6, "long_factor": [1.0, 1.1, 1.5, 2.0, 3.0, 4.5]},
        },
        {"rope.scaling.original_context_length": 16, "rope.dimension_count": 12},
    ),
    "gpt-oss": (
        "GptOss",
        {
            **WIDE, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 8,
            "rope_scaling": {
                "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "beta_fast": 32.0, "beta_slow": 1.0,
                "truncate": False,
            },
        },
        {
            "expert_count": 4, "expert_used_count": 2, "expert_feed_forward_length": 96, "attention.sliding_window": 8,
            "rope.scaling.type": "yarn", "rope.scaling.factor": 4.0, "rope.scaling.original_context_length": 16,
        },
    ),
    "granitemoe": (
        "GraniteMoe",
        {**SIZES, "num_local_experts": 4, "num_experts_per_tok": 2, "embedding_multiplier": 12.0, "logits_scaling": 8.0},
        {
            "expert_count": 4, "expert_used_count": 2, "embedding_scale": 12.0, "residual_scale": 1.0, "attention.scale": 1.0,
            "logit_scale": 8.0,
        },
    ),
    "granitemoe_shared": (
        "GraniteMoeShared",
        {**SIZES, "num_local_experts": 4, "num_experts_per_tok": 2, "shared_intermediate_size": 48},
        {
            "expert_count": 4, "expert_used_count": 2, "embedding_scale": 1.0, "residual_scale": 1.0, "attention.scale": 1.0,
            "logit_scale": 1.0, "expert_shared_feed_forward_length": 48,
        },
    ),
    "deepseek2": ("DeepseekV2", LATENT, OF_LATENT),
    "deepseek2_lite": ("DeepseekV2", {**LATENT, "q_lora_rank": None}, OF_LATENT),
    "lfm2": (
        "Lfm2",
        {**SIZES, "num_hidden_layers": 3, "layer_types": ["conv", "full_attention", "conv"], "block_auto_adjust_ff_dim": False},
        {"attention.head_count_kv": [0, 2, 0], "shortconv.l_cache": 3},
    ),
    "minimax-m2": (
        "MiniMaxM2",
        {**WIDE, "num_local_experts": 4, "num_experts_per_tok": 2, "rotary_dim": 16},
        {"expert_count": 4, "expert_used_count": 2, "expert_feed_forward_length": 96, "rope.dimension_count": 16},
    ),
    "ernie4_5-moe": (
        "Ernie4_5_Moe",
        {**SIZES, "num_hidden_layers": 3, "moe_num_experts": 4, "moe_k": 2, "moe_intermediate_size": 32, "moe_layer_end_index": 2},
        {
            "expert_count": 4, "expert_used_count": 2, "expert_feed_forward_length": 32, "expert_shared_count": 2,
            "leading_dense_block_count": 1, "interleave_moe_layer_step": 1,
        },
    ),
    "hunyuan-moe": ("HunYuanMoEV1", {**WIDE, "num_experts": 4, "moe_topk": 2}, {"expert_count": 4, "expert_used_count": 2}),
    "modern-bert": (
        "ModernBertModel",
        {**{key: value for key, value in SIZES.items() if key != "num_key_value_heads"}, "num_hidden_layers": 4,
         "local_attention": 8, "global_attn_every_n_layers": 3, "cls_token_id": 1, "sep_token_id": 2},
        {"attention.sliding_window": 8, "rope.freq_base_swa": 10000.0},
    ),
    "gemma": ("Gemma", WIDE, {}),
    "gemma2": (
        "Gemma2",
        {**WIDE, "query_pre_attn_scalar": 256, "sliding_window": 16},
        {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0, "attention.sliding_window": 16},
    ),
    "gemma3": (
        "Gemma3",
        {**WIDE, "hidden_size": 640, "num_hidden_layers": 7, "query_pre_attn_scalar": 256, "sliding_window": 16},
        {"attention.sliding_window": 16},
    ),
    "olmo2": ("Olmo2", SIZES, {}),
    "starcoder2": ("Starcoder2", SIZES, {}),
    "gpt2": ("GPT2LMHeadModel", {**SMALL, "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 64}, {}),
    "bloom": ("Bloom", {**SMALL, "hidden_size": 64, "n_layer": 2, "n_head": 4}, {}),
    "mamba": (
        "Mamba",
        {**SMALL, "hidden_size": 64, "num_hidden_layers": 2, "state_size": 8},
        {"ssm.conv_kernel": 4, "ssm.inner_size": 128, "ssm.state_size": 8, "ssm.time_step_rank": 4},
    ),
    "mamba2": (
        "Mamba2",
        {**SMALL, "hidden_size": 64, "num_hidden_layers": 2, "state_size": 8, "num_heads": 8, "head_dim": 16, "n_groups": 2},
        {
            "ssm.conv_kernel": 4, "ssm.inner_size": 128, "ssm.state_size": 8, "ssm.time_step_rank": 8,
            "ssm.group_count": 2,
        },
    ),
    "nemotron": ("Nemotron", SIZES, {"rope.dimension_count": 8}),
    "phi2": ("Phi", SIZES, {"rope.dimension_count": 8}),
    "stablelm": ("StableLm", SIZES, {"rope.dimension_count": 4, "use_parallel_residual": False}),
    "stablelm_normed": (
        "StableLm",
        {**SIZES, "use_parallel_residual": True, "qk_layernorm": True, "use_qkv_bias": True},
        {"rope.dimension_count": 4, "use_parallel_residual": True},
    ),
    "gptneox": ("GPTNeoX", SIZES, {"rope.dimension_count": 4, "use_parallel_residual": True}),
    "gptneox_sequential": (
        "GPTNeoX",
        {**SIZES, "use_parallel_residual": False, "rope_theta": 5e4},
        {"rope.dimension_count": 4, "use_parallel_residual": False},
    ),
    "falcon": ("Falcon", {**SIZES, "multi_query": True}, {"attention.head_count_kv": 1, "feed_forward_length": 256}),
    "falcon_two_norms": (
        "Falcon",
        {**SIZES, "num_kv_heads": 2, "new_decoder_architecture": True},
        {"attention.head_count_kv": 2, "feed_forward_length": 256},
    ),
    "starcoder": (
        "GPTBigCode",
        {**SMALL, "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 64, "n_inner": 96},
        {"attention.head_count_kv": 1, "feed_forward_length": 96},
    ),
    "olmo": ("Olmo", {**SIZES, "clip_qkv": 0.5}, {"attention.layer_norm_epsilon": 1e-5, "attention.clamp_kqv": 0.5}),
    "olmoe": ("Olmoe", {**SIZES, **EXPERTS}, {"expert_count": 4, "expert_used_count": 2}),
    "exaone4": (
        "Exaone4",
        {**SIZES, "num_hidden_layers": 4, "sliding_window": 8, "sliding_window_pattern": 4},
        {"attention.sliding_window": 8, "attention.sliding_window_pattern": [True, True, True, False]},
    ),
    "smollm3": ("SmolLM3", {**SIZES, "num_hidden_layers": 4}, {}),
    "ernie4_5": ("Ernie4_5", {**WIDE, "use_bias": True}, {}),
    "hunyuan-dense": ("HunYuanDenseV1", {**WIDE, "attention_bias": True}, {}),
    "cohere2": (
        "Cohere2",
        {**WIDE, "num_hidden_layers": 4, "sliding_window": 8},
        {"attention.sliding_window": 8, "logit_scale": 0.0625},
    ),
    "glm4": ("Glm4", {**WIDE, "attention_bias": False}, {"rope.dimension_count": 16}),
    "eurobert": ("EuroBertModel", SIZES, {}),
    "t5": ("T5ForConditionalGeneration", {**T5, "feed_forward_proj": "relu"}, OF_T5),
    "t5_gated": ("T5ForConditionalGeneration", {**T5, "feed_forward_proj": "gated-gelu"}, OF_T5),
    "bert": ("BertModel", {key: value for key, value in SIZES.items() if key != "num_key_value_heads"}, {}),
}  # fmt: skip
SETTINGS = {
    "block_count": ("num_hidden_layers", "n_layer"),
    "embedding_length": ("hidden_size", "n_embd"),
    "feed_forward_length": ("intermediate_size",),
    "context_length": ("max_position_embeddings", "n_positions"),
    "attention.head_count": ("num_attention_heads", "n_head"),
    "attention.head_count_kv": ("num_key_value_heads", "num_attention_heads", "n_head"),
    "attention.key_length": ("head_dim",),
    "vocab_size": ("vocab_size",),
}


def metadata(architecture: str, config: Any, more: dict[str, Any]) -> dict[str, Any]:
    """What llama.cpp's converter would say of a config."""
    found: dict[str, Any] = {}
    for key, fields in SETTINGS.items():
        values = [value for field in fields if (value := getattr(config, field, None)) is not None]
        found |= {key: values[0]} if values else {}
    for field in ("rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "norm_epsilon", "norm_eps"):
        if hasattr(config, field):
            rms = field == "rms_norm_eps" or architecture == "mamba"
            found[f"attention.layer_norm_{'rms_' if rms else ''}epsilon"] = float(getattr(config, field))
    rope = getattr(config, "rope_parameters", None) or {}
    rope = rope.get("full_attention", rope)
    found |= {"rope.freq_base": float(rope["rope_theta"])} if rope else {}
    whole = {f"{architecture}.{key}": value for key, value in {**found, **more}.items()}
    return {"general.architecture": architecture, **whole}


def plus_one(key: str, array: Any, _: Any) -> Any:
    return array + 1 if key.endswith("norm.weight") else array


def turned(key: str, array: Any, config: Any) -> Any:
    heads = {"attn_q": config.num_attention_heads, "attn_k": getattr(config, "num_key_value_heads", 1)}
    found = heads.get(key.split(".")[-2])
    return pairs(array, found) if found else array


def of_mamba(key: str, array: Any, _: Any) -> Any:
    return (
        -np.exp(array)
        if key.endswith("ssm_a")
        else array.squeeze(1)
        if key.endswith("ssm_conv1d.weight")
        else array
    )


def of_mamba_2(key: str, array: Any, config: Any) -> Any:
    if key.endswith(("ssm_a", "ssm_d")):
        return of_mamba(key, array, config).reshape(-1, 1)
    return array.reshape(config.n_groups, -1) if "ssm_norm" in key else of_mamba(key, array, config)


def thirds(key: str, array: Any, config: Any) -> Any:
    if "attn_qkv" not in key:
        return array
    heads = getattr(config, "n_head", None) or config.num_attention_heads
    return array.reshape(heads, 3, -1, *array.shape[1:]).swapaxes(0, 1).reshape(array.shape)


def of_falcon(key: str, array: Any, config: Any) -> Any:
    """Of each group its queries, its key and its value; in the file all queries, then all keys, then all values."""
    if "attn_qkv" not in key:
        return array
    groups = config.num_kv_heads if config.new_decoder_architecture else 1
    size = config.hidden_size // config.num_attention_heads
    rows = array.reshape(groups, -1, size, array.shape[-1])
    return np.concatenate(
        [part.reshape(-1, array.shape[-1]) for part in (rows[:, :-2], rows[:, -2], rows[:, -1])]
    )


def cut(case: str, tensors: dict[str, torch.Tensor]) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """What the converter keeps in several tensors, by its names, and what is left."""
    left, found = dict(tensors), {}
    for name, tensor in tensors.items():
        layer = f"blk.{name.split('.')[2]}" if ".layers." in name else ""
        word, end = name.split(".")[-1], ".bias" if name.endswith("_bias") else ".weight"
        if word.startswith("gate_up_proj"):  # a gate and a map in turn
            halves = [tensor[..., at::2] for at in (0, 1)]
            parts = [half if end == ".bias" else half.mT for half in halves]
            found |= dict(
                zip((f"{layer}.ffn_gate_exps{end}", f"{layer}.ffn_up_exps{end}"), parts, strict=True)
            )
        elif word.startswith("down_proj") and "experts" in name and tensor.dim() > 1 and case == "gpt-oss":
            found[f"{layer}.ffn_down_exps{end}"] = tensor if end == ".bias" else tensor.mT
        elif "input_linear" in name:
            at = "shexp" if "shared" in name else "exps"
            parts = tensor.chunk(2, dim=-2)
            found |= dict(
                zip((f"{layer}.ffn_gate_{at}{end}", f"{layer}.ffn_up_{at}{end}"), parts, strict=True)
            )
        elif "kv_b_proj" in name:  # of each head the keys' rows, then the values'
            keys, values = tensor.unflatten(0, (4, -1)).split([16, 12], dim=1)
            found |= {f"{layer}.attn_k_b.weight": keys.mT, f"{layer}.attn_v_b.weight": values}
        else:
            continue
        del left[name]
    return left, {key: tensor.numpy() for key, tensor in found.items()}


ARRANGED: dict[str, Callable[[str, Any, Any], Any]] = {
    **dict.fromkeys(
        ("llama", "mixtral", "granite", "granitemoe", "granitemoe_shared", "olmo", "smollm3"), turned
    ),
    **dict.fromkeys(("gemma", "gemma2", "gemma3", "nemotron"), plus_one),
    **dict.fromkeys(("bloom", "gptneox", "gptneox_sequential"), thirds),
    **dict.fromkeys(("falcon", "falcon_two_norms"), of_falcon),
    "mamba2": of_mamba_2,
    "lfm2": lambda key, array, _: array.squeeze(1) if "shortconv.conv" in key else array,
    "ernie4_5-moe": lambda key, array, _: array.squeeze(0) if "exp_probs_b" in key else array,
    "gpt2": lambda key, array, _: array.T if array.ndim == 2 and key.startswith("blk") else array,
    "qwen2moe": lambda key, array, _: array[0] if "gate_inp_shexp" in key else array,
    "mamba": of_mamba,
}


def named(
    architecture: str, tensors: dict[str, torch.Tensor], layers: int
) -> dict[str, np.ndarray[Any, Any]]:
    """The tensors under the names that the gguf package has for them, experts stacked."""
    number = {name: key for key, name in gguf.MODEL_ARCH_NAMES.items()}[architecture]
    table = gguf.get_tensor_name_map(number, layers)
    found: dict[str, Any] = {}
    for name, tensor in tensors.items():
        path, expert, rest = name.partition(".experts." if ".experts." in name else ".norms.")
        stacked = path + (".experts" if expert == ".experts." else "")
        short = f"{stacked}.{rest.partition('.')[2]}" if expert else name
        short = short.replace("dt_bias", "dt.bias").replace("correction_bias", "correction.bias")
        spellings = [short, short.removeprefix("transformer."), short.removesuffix(".weight")]
        key = next(
            key for word in spellings if (key := table.get_name(word, try_suffixes=(".weight", ".bias")))
        )
        key += "" if key.endswith((".weight", ".bias", "ssm_a", "ssm_d")) else ".weight"
        found.setdefault(key, {})[int(rest.split(".")[0]) if expert else -1] = tensor.float().numpy()
    return {
        key: parts[-1] if -1 in parts else np.stack([parts[at] for at in sorted(parts)])
        for key, parts in found.items()
    }


def saved(case: str, folder: Path) -> Any:
    """The reference's model with random weights, saved in `folder`."""
    word, options, _ = CASES[case]
    kind = getattr(transformers, word if hasattr(transformers, word) else f"{word}ForCausalLM")
    torch.manual_seed(0)
    model = kind(kind.config_class(**options)).eval()
    if case == "t5_gated":  # whose published checkpoints have a head of their own
        model.lm_head.weight = torch.nn.Parameter(torch.randn(96, 64) / 8)
        model.config.tie_word_embeddings = model.config.scale_decoder_outputs = False
        model.scale_decoder_outputs = False
    for parameter in model.parameters():
        parameter += torch.randn_like(parameter) * 0.02
    model.save_pretrained(folder)
    return model


def own_tensors(folder: Path) -> dict[str, torch.Tensor]:
    found = load_file(folder / "model.safetensors")
    return {key: value for key, value in found.items() if "pooler" not in key}


def as_they_are(key: str, array: Any, _: Any) -> Any:
    return array


def as_gguf(
    case: str, model: Any, own: dict[str, torch.Tensor], path: Path, architecture: str = "", **more: Any
) -> Path:
    """The file that llama.cpp's converter would make; `architecture`: another than the model's."""
    known = IN_FILE.get(case, case)
    layers = max(getattr(model.config, field, 2) for field in ("num_hidden_layers", "num_decoder_layers"))
    arrange = ARRANGED.get(case, as_they_are)
    whole, parts = cut(case, own)
    theirs = {
        key: arrange(key, array, model.config) for key, array in named(known, whole, layers).items()
    } | parts
    scaling = getattr(model.config, "rope_parameters", None) or {}
    theirs |= {
        f"rope_factors_{word}.weight": np.array(scaling[f"{word}_factor"], np.float32)
        for word in ("short", "long")
        if f"{word}_factor" in scaling
    }
    said = metadata(architecture or known, model.config, {**CASES[case][2], **more})
    path.write_bytes(gguf_bytes(said, theirs))
    return path


def check_outputs(
    path: Path, model: Any, reading: str = "exact", hints: dict[str, Any] | None = None
) -> None:
    read_as = mapper.inspect(path, hints=hints).architecture
    assert read_as.reading == reading, read_as.findings
    inputs = {"input_ids": torch.randint(3, 96, (2, 24))}
    if model.config.is_encoder_decoder:
        inputs["decoder_input_ids"] = torch.randint(3, 96, (2, 9))
    ours, reference = mapper.build(path, hints=hints)(**inputs), model(**inputs)
    output = "logits" if hasattr(reference, "logits") else "last_hidden_state"
    torch.testing.assert_close(getattr(ours, output), getattr(reference, output), rtol=0, atol=1e-5)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", CASES)
@torch.no_grad()
def test_the_model_is_the_references(case: str, tmp_path: Path) -> None:
    model = saved(case, tmp_path)
    own = own_tensors(tmp_path)
    path = as_gguf(case, model, own, tmp_path / "model.gguf")
    arrange = ARRANGED.get(case, as_they_are)
    checkpoint = open_source(path, purpose="weights")
    assert checkpoint.read is not None
    read = checkpoint.read(list(checkpoint.tensors))
    assert read.keys() == own.keys()
    for key, tensor in own.items():  # sums with one, and logarithms, are not undone to the last bit
        torch.testing.assert_close(
            read[key], tensor.float(), rtol=0, atol=1e-6 if arrange in (plus_one, of_mamba, of_mamba_2) else 0
        )
    check_outputs(path, model)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", [case for case in CASES if case not in READ_ALONE])
@torch.no_grad()
def test_what_is_written_as_gguf_is_the_references(case: str, tmp_path: Path) -> None:
    model = saved(case, tmp_path / "first")
    mapper.rename(tmp_path / "first", "gguf", tmp_path / "model.gguf")
    check_outputs(tmp_path / "model.gguf", model)


@torch.no_grad()
def test_what_a_file_would_have_for_each_layer_is_not_written(tmp_path: Path) -> None:
    saved("lfm2", tmp_path / "first")
    with pytest.raises(MapperError, match="gguf/lfm2 cannot say layer_types"):
        mapper.rename(tmp_path / "first", "gguf", tmp_path / "model.gguf")


AS_STORED = {"embedding.scale": None}
TOLD: dict[str, dict[str, Any]] = {  # what only llama.cpp's code knows of an architecture that no naming has
    "llama": {**AS_STORED, "rotary.style": "interleaved", "feed_forward.activation": "silu"},
    "granite": {"rotary.style": "interleaved", "feed_forward.activation": "silu", "head.scale": 0.125},
    "qwen3": {**AS_STORED, "rotary.style": "half", "feed_forward.activation": "silu"},
    "gemma": {"embedding.scale": 8.0, "rotary.style": "half", "feed_forward.activation": "gelu_pytorch_tanh"},
    "phi2": {**AS_STORED, "rotary.style": "half", "feed_forward.activation": "gelu_new"},
    "stablelm": {**AS_STORED, "rotary.style": "half", "feed_forward.activation": "silu"},
    "nemotron": {**AS_STORED, "rotary.style": "half", "feed_forward.activation": "relu2"},
    "gpt2": {**AS_STORED, "feed_forward.activation": "gelu_new"},
    "cohere2": {
        **AS_STORED, "rotary.style": "interleaved", "feed_forward.activation": "silu", "head.scale": 0.0625,
        "attention.pattern": "mixed", "attention.layer_types": [*["sliding_attention"] * 3, "full_attention"],
        "model.blocks.3:attention.rotary": False,
    },
    "deepseek2": {
        **AS_STORED, "rotary.style": "interleaved", "feed_forward.activation": "silu", "moe.normalise": False,
    },
    "qwen3moe": {
        "rotary.style": "half", "feed_forward.activation": "silu", **AS_STORED, "moe.scoring": "softmax",
        "moe.normalise": True,
    },
}  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", TOLD)
@torch.no_grad()
def test_an_architecture_that_no_naming_has_is_the_references_when_told(case: str, tmp_path: Path) -> None:
    model = saved(case, tmp_path)
    path = as_gguf(case, model, own_tensors(tmp_path), tmp_path / "model.gguf", "tale")
    asked = {question.fact for question in mapper.inspect(path).architecture.questions}
    assert {name for name in TOLD[case] if name in ("rotary.style", "head.scale")} <= asked
    check_outputs(path, model, "unverified", TOLD[case])
