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
    for field in ("rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "norm_epsilon"):
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


def of_bloom(key: str, array: Any, config: Any) -> Any:
    if "attn_qkv" not in key:
        return array
    return array.reshape(config.n_head, 3, -1, *array.shape[1:]).swapaxes(0, 1).reshape(array.shape)


ARRANGED: dict[str, Callable[[str, Any, Any], Any]] = {
    **dict.fromkeys(("llama", "mixtral", "granite"), turned),
    **dict.fromkeys(("gemma", "gemma2", "gemma3"), plus_one),
    "gpt2": lambda key, array, _: array.T if array.ndim == 2 and key.startswith("blk") else array,
    "qwen2moe": lambda key, array, _: array[0] if "gate_inp_shexp" in key else array,
    "mamba": of_mamba,
    "bloom": of_bloom,
}


def named(
    architecture: str, tensors: dict[str, torch.Tensor], layers: int
) -> dict[str, np.ndarray[Any, Any]]:
    """The tensors under the names that the gguf package has for them, experts stacked."""
    number = {name: key for key, name in gguf.MODEL_ARCH_NAMES.items()}[architecture]
    table = gguf.get_tensor_name_map(number, layers)
    found: dict[str, Any] = {}
    for name, tensor in tensors.items():
        path, expert, rest = name.partition(".experts.")
        short = f"{path}.experts.{rest.partition('.')[2]}" if expert else name
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


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", CASES)
@torch.no_grad()
def test_the_model_is_the_references(case: str, tmp_path: Path) -> None:
    word, options, more = CASES[case]
    kind = getattr(transformers, word if hasattr(transformers, word) else f"{word}ForCausalLM")
    torch.manual_seed(0)
    model = kind(kind.config_class(**options)).eval()
    for parameter in model.parameters():
        parameter += torch.randn_like(parameter) * 0.02
    model.save_pretrained(tmp_path)
    own = {
        key: value for key, value in load_file(tmp_path / "model.safetensors").items() if "pooler" not in key
    }
    architecture = "llama" if case == "mixtral" else case
    layers = getattr(model.config, "num_hidden_layers", 2)
    arrange = ARRANGED.get(case, lambda key, array, _: array)
    theirs = {
        key: arrange(key, array, model.config) for key, array in named(architecture, own, layers).items()
    }
    path = tmp_path / "model.gguf"
    path.write_bytes(gguf_bytes(metadata(architecture, model.config, more), theirs))

    checkpoint = open_source(path, purpose="weights")
    assert checkpoint.read is not None
    read = checkpoint.read(list(checkpoint.tensors))
    assert read.keys() == own.keys()
    for key, tensor in own.items():  # sums with one, and logarithms, are not undone to the last bit
        torch.testing.assert_close(
            read[key], tensor.float(), rtol=0, atol=1e-6 if arrange in (plus_one, of_mamba) else 0
        )
    assert mapper.inspect(path).architecture.reading == "exact"
    ids = torch.randint(3, 96, (2, 24))
    ours, reference = mapper.build(path)(input_ids=ids), model(input_ids=ids)
    output = "logits" if hasattr(reference, "logits") else "last_hidden_state"
    torch.testing.assert_close(getattr(ours, output), getattr(reference, output), rtol=0, atol=1e-5)
