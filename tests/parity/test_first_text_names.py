"""Text models under the names of their first releases, which have no config, against the reference library."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import save_file
from torch import Tensor, nn

import mapper
from tests.parity.harness import TOLERANCE, randomise

Tensors = dict[str, Tensor]
RECURRENT = {
    r"^rwkv\.embeddings": "emb", r"^rwkv\.": "", r"pre_ln": "ln0", r"\.attention\.": ".att.", r"\.feed_forward\.": ".ffn.",
    r"time_mix_key": "time_mix_k", r"time_mix_value": "time_mix_v", r"time_mix_receptance": "time_mix_r",
}  # fmt: skip
MASKED = {
    r"^roberta\.embeddings\.word_embeddings": "encoder.sentence_encoder.embed_tokens",
    r"^roberta\.embeddings\.position_embeddings": "encoder.sentence_encoder.embed_positions",
    r"^roberta\.embeddings\.LayerNorm": "encoder.sentence_encoder.layernorm_embedding",
    r"^roberta\.encoder\.layer\.": "encoder.sentence_encoder.layers.",
    r"attention\.self\.query": "self_attn.q_proj", r"attention\.self\.key": "self_attn.k_proj",
    r"attention\.self\.value": "self_attn.v_proj", r"attention\.output\.dense": "self_attn.out_proj",
    r"attention\.output\.LayerNorm": "self_attn_layer_norm", r"intermediate\.dense": "fc1",
    r"output\.dense": "fc2", r"output\.LayerNorm": "final_layer_norm", r"^lm_head\.": "encoder.lm_head.",
}  # fmt: skip


def renamed(model: nn.Module, table: dict[str, str]) -> Tensors:
    made = {}
    for name, tensor in model.state_dict().items():
        for pattern, word in table.items():
            name = re.sub(pattern, word, name)
        made[name] = tensor.clone()
    return made


def fused(tensors: Tensors) -> Tensors:
    """Projections of queries, keys and values in one, under the words of the oldest files."""
    made = {}
    for name, tensor in tensors.items():
        if "q_proj" in name:
            parts = [tensors[name.replace("q_proj", f"{part}_proj")] for part in "qkv"]
            made[name.replace("q_proj.", "in_proj_")] = torch.cat(parts)
        elif "k_proj" not in name and "v_proj" not in name:
            made[name] = tensor
    return {
        name.replace("encoder.", "decoder.", 1).replace("layernorm_embedding", "emb_layer_norm"): tensor
        for name, tensor in made.items()
    }


def built(folder: Path, tensors: Tensors, **hints: object) -> nn.Module:
    save_file(tensors, folder / "model.safetensors")
    return mapper.build(folder, hints=hints)


@pytest.mark.parametrize("layers", [2, 7])
@torch.no_grad()
def test_recurrence_without_queries_under_its_first_names(tmp_path: Path, layers: int) -> None:
    """The stored weights know of no halving: the reference divides as it loads, every sixth layer."""
    config = transformers.RwkvConfig(
        vocab_size=60, hidden_size=16, num_hidden_layers=layers, attention_hidden_size=16, intermediate_size=24,
        layer_norm_epsilon=1e-5, rescale_every=0,
    )  # fmt: skip
    model = randomise(transformers.RwkvForCausalLM(config)).eval()
    ids = torch.randint(1, 60, (2, 9))
    made = built(tmp_path, renamed(model, RECURRENT))(input_ids=ids)
    torch.testing.assert_close(made.logits, model(ids).logits, atol=TOLERANCE, rtol=TOLERANCE)


@pytest.mark.parametrize("is_fused", [False, True])
@torch.no_grad()
def test_masked_words_under_the_names_of_the_first_release(tmp_path: Path, is_fused: bool) -> None:
    config = transformers.RobertaConfig(
        vocab_size=60, hidden_size=24, num_hidden_layers=2, num_attention_heads=3, intermediate_size=40, max_position_embeddings=18,
        type_vocab_size=1, pad_token_id=1, layer_norm_eps=1e-5,
    )  # fmt: skip
    model = randomise(transformers.RobertaForMaskedLM(config)).eval()
    model.roberta.embeddings.token_type_embeddings.weight.zero_()  # they have none
    tensors = renamed(model, MASKED)
    kept = re.compile(r"token_type|position_ids|token_type_ids")
    tensors = {name: tensor for name, tensor in tensors.items() if not kept.search(name)}
    tensors["encoder.lm_head.weight"] = tensors.pop(
        "encoder.lm_head.decoder.weight", model.lm_head.decoder.weight.clone()
    )
    tensors.pop("encoder.lm_head.decoder.bias", None)
    ids, mask = torch.randint(4, 60, (2, 9)), torch.ones(2, 9, dtype=torch.long)
    ids[1, 6:], mask[1, 6:] = 1, 0
    net = built(tmp_path, fused(tensors) if is_fused else tensors, **{"attention.heads": 3})
    made, wanted = net(input_ids=ids, attention_mask=mask).logits, model(ids, mask).logits
    torch.testing.assert_close(made[mask > 0], wanted[mask > 0], atol=TOLERANCE, rtol=TOLERANCE)


def sequences(is_pre: bool) -> tuple[nn.Module, Tensors]:
    """A translator of the reference library, and its weights as the first library writes them."""
    sizes = {
        "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 3, "decoder_attention_heads": 3, "encoder_ffn_dim": 40,
        "decoder_ffn_dim": 48, "d_model": 24, "scale_embedding": True, "activation_function": "relu", "pad_token_id": 1,
        "max_position_embeddings": 32,
    }  # fmt: skip
    if is_pre:
        config = transformers.M2M100Config(vocab_size=60, **sizes)
        model: nn.Module = transformers.M2M100ForConditionalGeneration(config)
    else:
        words = {"langs": ["en", "de"], "src_vocab_size": 60, "tgt_vocab_size": 60}
        model = transformers.FSMTForConditionalGeneration(transformers.FSMTConfig(**words, **sizes))
    model = randomise(model).eval()
    for table in (module for module in model.modules() if hasattr(module, "make_weight")):
        table.make_weight(*table.weight.shape, table.padding_idx)  # waves, which were drawn at random, too
    made = renamed(model, {r"^model\.": "", r"^lm_head": "decoder.output_projection", r"^shared.*": ""})
    made = {
        name: tensor for name, tensor in made.items() if name and not name.endswith("embed_positions.weights")
    }
    for half in ("encoder", "decoder"):
        made.pop(f"{half}.embed_positions.weight", None)
        made |= {f"{half}.embed_positions._float_tensor": torch.zeros(1), f"{half}.version": torch.ones(1)}
    return model, made


@pytest.mark.parametrize("is_pre", [False, True])
@torch.no_grad()
def test_a_translator_under_the_names_of_the_library_that_it_was_trained_with(
    tmp_path: Path, is_pre: bool
) -> None:
    model, tensors = sequences(is_pre)
    words = torch.randint(4, 60, (2, 9))
    mask = torch.ones(2, 9, dtype=torch.long)
    words[1, 7:], mask[1, 7:] = 1, 0
    inputs = {"input_ids": words, "attention_mask": mask, "decoder_input_ids": torch.randint(4, 60, (2, 6))}
    made = built(tmp_path, tensors, **{"attention.heads": 3})(**inputs).logits
    wanted = model(**inputs, use_cache=False).logits  # with a cache it hides no later words
    torch.testing.assert_close(made, wanted, atol=TOLERANCE, rtol=TOLERANCE)
