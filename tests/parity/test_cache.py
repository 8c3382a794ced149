"""The key/value cache of decoders: a prefill and then single steps give what one forward over all gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounter

import mapper
from mapper.errors import MapperError
from tests.parity.harness import pair, quiet, reference, transformers

SIZES = {
    "vocab_size": 99,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 48,
    "max_position_embeddings": 40,
}
NEOX = {key: value for key, value in SIZES.items() if key != "num_key_value_heads"}
LATENT = {  # keys of 12 and 4 channels, values of 10
    **NEOX,
    "kv_lora_rank": 16,
    "q_lora_rank": 20,
    "qk_nope_head_dim": 12,
    "qk_rope_head_dim": 4,
    "v_head_dim": 10,
    "first_k_dense_replace": 2,
}
TYPES = ["sliding_attention", "full_attention"]
DECODERS: dict[str, Any] = {
    "LlamaForCausalLM": lambda: transformers.LlamaConfig(**SIZES),
    "MistralForCausalLM": lambda: transformers.MistralConfig(**SIZES, sliding_window=5),
    "MixtralForCausalLM": lambda: transformers.MixtralConfig(**SIZES, num_local_experts=4),
    "Qwen2ForCausalLM": lambda: transformers.Qwen2Config(
        **SIZES, use_sliding_window=True, sliding_window=5, max_window_layers=1
    ),
    "Qwen3Model": lambda: transformers.Qwen3Config(**SIZES, head_dim=16),
    "Phi3ForCausalLM": lambda: transformers.Phi3Config(**SIZES, pad_token_id=0),
    "GPT2LMHeadModel": lambda: transformers.GPT2Config(
        vocab_size=99, n_embd=32, n_layer=2, n_head=4, n_positions=40
    ),
    "GPTNeoXForCausalLM": lambda: transformers.GPTNeoXConfig(**NEOX),
    "BloomForCausalLM": lambda: transformers.BloomConfig(vocab_size=99, hidden_size=32, n_layer=2, n_head=4),
    "Gemma2ForCausalLM": lambda: transformers.Gemma2Config(**SIZES, head_dim=16, sliding_window=5),
    "Gemma3ForCausalLM": lambda: transformers.Gemma3TextConfig(
        **SIZES, head_dim=16, sliding_window=5, layer_types=TYPES
    ),
    "BertLMHeadModel": lambda: transformers.BertConfig(**NEOX, is_decoder=True),
    "MiMoV2FlashForCausalLM": lambda: transformers.MiMoV2FlashConfig(
        **SIZES,
        head_dim=24,
        v_head_dim=12,
        n_routed_experts=4,
        moe_intermediate_size=24,
        num_experts_per_tok=2,
        sliding_window=4,
        layer_types=TYPES[::-1],
        mlp_layer_types=["dense", "sparse"],
    ),
    "RobertaForCausalLM": lambda: transformers.RobertaConfig(**NEOX, is_decoder=True),
    "XmodForCausalLM": lambda: transformers.XmodConfig(
        **NEOX, is_decoder=True, languages=["en_XX", "de_DE"], default_language="de_DE"
    ),
    "OPTForCausalLM": lambda: transformers.OPTConfig(**{**NEOX, "ffn_dim": 48, "intermediate_size": None}),
    "XGLMForCausalLM": lambda: transformers.XGLMConfig(
        vocab_size=99, d_model=32, num_layers=2, attention_heads=4, ffn_dim=48
    ),
    "Llama4ForCausalLM": lambda: transformers.Llama4TextConfig(
        **SIZES,
        intermediate_size_mlp=40,
        num_local_experts=4,
        moe_layers=[0],
        no_rope_layers=[1, 0],
        attention_chunk_size=4,
        floor_scale=3,
    ),
    "DeepseekV2ForCausalLM": lambda: transformers.DeepseekV2Config(**LATENT),
    "StableLmForCausalLM": lambda: transformers.StableLmConfig(**SIZES, qk_layernorm=True),
}
IDS = torch.randint(3, 99, (2, 11), generator=torch.Generator().manual_seed(0))
LEFT = torch.ones_like(IDS)
LEFT[0, :3] = 0


def saved(name: str, folder: Path) -> Path:
    with quiet():
        reference(name, DECODERS[name]()).save_pretrained(folder)
    return folder


def decode(model: nn.Module, given: dict[str, Tensor], first: int, last: int) -> Tensor:
    """Hidden states of a prefill of `first` positions and of single steps after it, side by side."""
    past = model.new_cache(len(IDS), last + 4)
    parts, start = [], 0
    for stop in [first, *range(first + 1, last + 1)]:
        step = {key: value[:, start:stop] for key, value in given.items()}
        if "attention_mask" in given:
            step["attention_mask"] = given["attention_mask"][:, :stop]
        with torch.no_grad():
            parts.append(model(**step, past=past, start=start).last_hidden_state)
        start = stop
    return torch.cat(parts, dim=1)


@pytest.mark.parametrize("name", DECODERS)
def test_prefill_and_steps_equal_the_whole_forward(name: str, tmp_path: Path) -> None:
    folder = saved(name, tmp_path)
    whole, model = mapper.build(folder), mapper.build(folder, cache=True)
    positions = (LEFT.cumsum(1) - 1).clamp(min=0)
    inputs: list[dict[str, Tensor]] = [
        {"input_ids": IDS},
        {"input_ids": IDS, "attention_mask": LEFT},
        {"input_ids": IDS, "attention_mask": LEFT, "position_ids": positions},
    ]
    for given in inputs[: 2 if name.startswith("Bloom") else 3]:
        with torch.no_grad():
            wanted, alone = whole(**given).last_hidden_state, model(**given).last_hidden_state
        keep = given.get("attention_mask", torch.ones_like(IDS)).bool()
        bound = 1e-5 * wanted.abs().max().clamp(min=1)
        assert (alone - wanted)[keep].abs().max() <= bound  # without a cache the model is what it was
        assert (decode(model, given, 6, 11) - wanted)[keep].abs().max() <= bound


def test_a_stored_table_of_angles_goes_on_where_the_cache_ends(tmp_path: Path) -> None:
    config = transformers.RoFormerConfig(**NEOX, is_decoder=True)
    with quiet():
        reference("RoFormerForCausalLM", config).save_pretrained(tmp_path)
    whole = mapper.build(tmp_path)(input_ids=IDS).last_hidden_state
    steps = decode(mapper.build(tmp_path, cache=True), {"input_ids": IDS}, 4, IDS.shape[1])
    torch.testing.assert_close(steps, whole, rtol=1e-5, atol=1e-5)


def test_generated_file_has_the_cache_and_keeps_its_keys(tmp_path: Path) -> None:
    made = pair(reference("LlamaForCausalLM", DECODERS["LlamaForCausalLM"]()), tmp_path)
    text = mapper.generate(tmp_path, cache=True)
    assert "def new_cache(self, batch: int, length: int)" in text
    assert "past" not in made.source
    assert set(mapper.build(tmp_path, cache=True).state_dict()) == set(made.built.state_dict())


def test_a_step_compiles_once_and_exports(tmp_path: Path) -> None:
    model = mapper.build(saved("Gemma3ForCausalLM", tmp_path), cache=True)
    torch._dynamo.reset()
    with quiet(), torch.no_grad():
        wanted = model(IDS).logits
        past = model.new_cache(2, 12)
        counter = CompileCounter()
        step = torch.compile(model, fullgraph=True, backend=counter)
        steps = [step(IDS[:, at : at + 1], past=past, start=torch.tensor(at)).logits for at in range(11)]
        torch.testing.assert_close(torch.cat(steps, dim=1), wanted, rtol=1e-5, atol=1e-5)
        assert counter.frame_count == 1
        past = model.new_cache(2, 12)
        arguments = {"past": past, "start": torch.tensor(0)}
        program = torch.export.export(model, (IDS[:, :1],), arguments).module()
        exported = program(IDS[:, :1], past=past, start=torch.tensor(0)).logits
        torch.testing.assert_close(exported, wanted[:, :1], rtol=1e-5, atol=1e-5)


def test_an_encoder_has_no_cache(tmp_path: Path) -> None:
    sizes = {key: value for key, value in SIZES.items() if key != "num_key_value_heads"}
    with quiet():
        reference("BertModel", transformers.BertConfig(**sizes)).save_pretrained(tmp_path)
    with pytest.raises(MapperError, match="it has no cache"):
        mapper.generate(tmp_path, cache=True)


def test_a_state_beside_keys_and_values_has_no_cache(tmp_path: Path) -> None:
    sizes = {
        "mamba_n_heads": 4,
        "mamba_d_head": 16,
        "mamba_d_ssm": 64,
        "mamba_d_state": 8,
        "mamba_n_groups": 1,
    }
    with quiet():
        config = transformers.FalconH1Config(**SIZES, **sizes, mamba_chunk_size=4)
        reference("FalconH1ForCausalLM", config).save_pretrained(tmp_path)
    with pytest.raises(MapperError, match="has a state beside keys and values"):
        mapper.generate(tmp_path, cache=True)
