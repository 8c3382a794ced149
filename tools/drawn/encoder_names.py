"""What the tensors of tools/drawn/encoders.py are called in each scheme, and the config that its classes would have written."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from tools.drawn.encoders import (
    BUCKETS,
    COUNTED,
    FURTHEST,
    HEADS,
    INNER,
    LABELS,
    LAYERS,
    NARROW,
    POSITIONS,
    SEGMENTS,
    WINDOW,
    WORDS,
    Draw,
)
from tools.drawn.parts import HIDDEN

EMBEDDINGS = {
    "words": "{body}embeddings.word_embeddings", "positions": "{body}embeddings.position_embeddings",
    "types": "{body}embeddings.token_type_embeddings", "embedding_norm": "{body}embeddings.LayerNorm",
    "projection": "{body}embeddings_project", "relative": "{body}encoder.relative_attention_bias",
    "pooler": "{body}pooler.dense", "classes": "classifier",
}  # fmt: skip
BERT = EMBEDDINGS | {
    "layers": "{body}encoder.layer.", "q": "attention.self.query", "k": "attention.self.key",
    "v": "attention.self.value", "qkv": "attention.self.qkv", "q_norm": "attention.self.q_norm",
    "k_norm": "attention.self.k_norm", "o": "attention.output.dense", "up": "intermediate.dense", "down": "output.dense",
    "final_norm": "{body}encoder.LayerNorm", "transform": "cls.predictions.transform.dense",
    "transform_norm": "cls.predictions.transform.LayerNorm", "decoder": "cls.predictions.decoder",
    "decoder_bias": "cls.predictions.bias",
}  # fmt: skip
OF_HEAD = {
    "transform": "lm_head.dense", "transform_norm": "lm_head.layer_norm", "decoder": "lm_head.decoder",
    "decoder_bias": "lm_head.bias", "class_dense": "classifier.dense",
}  # fmt: skip
NAMES = {
    "bert": BERT,
    "roberta": BERT | OF_HEAD | {"final_norm": "{body}LayerNorm"},
    "distilbert": EMBEDDINGS | {
        "layers": "{body}transformer.layer.", "q": "attention.q_lin", "k": "attention.k_lin", "v": "attention.v_lin",
        "o": "attention.out_lin", "norm_1": "sa_layer_norm", "norm_2": "output_layer_norm", "up": "ffn.lin1",
        "down": "ffn.lin2", "final_norm": "{body}transformer.layer_norm", "transform": "vocab_transform",
        "transform_norm": "vocab_layer_norm", "decoder": "vocab_projector", "decoder_bias": "vocab_projector.bias",
        "class_dense": "pre_classifier",
    },
    "modern": EMBEDDINGS | {
        "words": "{body}embeddings.tok_embeddings", "embedding_norm": "{body}embeddings.norm",
        "projection": "{body}embeddings.projection", "layers": "{body}layers.", "norm_1": "attn_norm",
        "norm_2": "mlp_norm", "qkv": "attn.Wqkv", "o": "attn.Wo", "q_norm": "attn.q_norm", "k_norm": "attn.k_norm",
        "up": "mlp.Wi", "gate_up": "mlp.Wi", "down": "mlp.Wo", "final_norm": "{body}final_norm",
        "relative": "{body}relative_attention_bias", "transform": "head.dense", "transform_norm": "head.norm",
        "decoder": "decoder", "decoder_bias": "decoder.bias",
    },
    "nomic": BERT | {
        "embedding_norm": "{body}emb_ln", "layers": "{body}encoder.layers.", "norm_1": "norm1", "norm_2": "norm2",
        "qkv": "attn.Wqkv", "o": "attn.out_proj", "q_norm": "attn.q_norm", "k_norm": "attn.k_norm",
        "gate": "mlp.fc12", "up": "mlp.fc11", "down": "mlp.fc2", "final_norm": "{body}encoder.norm",
    },
    "llama": {
        "words": "{body}embed_tokens", "layers": "{body}layers.", "norm_1": "input_layernorm",
        "norm_2": "post_attention_layernorm", "q": "self_attn.q_proj", "k": "self_attn.k_proj",
        "v": "self_attn.v_proj", "o": "self_attn.o_proj", "q_norm": "self_attn.q_norm", "k_norm": "self_attn.k_norm",
        "gate": "mlp.gate_proj", "up": "mlp.up_proj", "down": "mlp.down_proj", "final_norm": "{body}norm",
        "decoder": "lm_head", "classes": "classifier",
    },
    "albert": EMBEDDINGS | {
        "projection": "{body}encoder.embedding_hidden_mapping_in", "pooler": "{body}pooler",
        "layers": "{body}encoder.albert_layer_groups.0.albert_layers.", "q": "attention.query", "k": "attention.key",
        "v": "attention.value", "o": "attention.dense", "norm_1": "attention.LayerNorm",
        "norm_2": "full_layer_layer_norm", "up": "ffn", "down": "ffn_output", "transform": "predictions.dense",
        "transform_norm": "predictions.LayerNorm", "decoder": "predictions.decoder", "decoder_bias": "predictions.bias",
    },
}  # fmt: skip
GATED = {  # what layers with BERT's names call a gated feed-forward, and its norms
    "norm_1": "attn_ln", "norm_2": "mlp_ln", "gate": "mlp.gate_proj", "up": "mlp.up_proj", "down": "mlp.down_proj",
}  # fmt: skip
PLACED = {
    "post": {"norm_1": "attention.output.LayerNorm", "norm_2": "output.LayerNorm"},
    "pre": {"norm_1": "attention.LayerNorm", "norm_2": "intermediate.LayerNorm"},
}


def names(one: Draw) -> dict[str, str]:
    """What each part is called."""
    found = dict(NAMES[one.scheme])
    if one.scheme in ("bert", "roberta"):
        found |= PLACED[one.placement]
        if one.gated:
            found |= GATED | {"gate_up": f"mlp.{'gate_up' if one.gate_fused == 'first' else 'up_gate'}_proj"}
    if one.scheme == "roberta" and one.head == "classes":
        found["classes"] = "classifier.out_proj"
    if one.scheme == "nomic" and not one.gated:
        found["up"] = "mlp.fc1"
    if one.tied:
        found["decoder"] = found.get("decoder_bias", ".bias").removesuffix(".bias")
    return found


def renamed(one: Draw, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    called = names(one)
    found = {}
    for name, tensor in tensors.items():
        part, _, ending = name.rpartition(".")
        if part.startswith("layers."):
            _, layer, part = part.split(".")
            found[f"{called['layers']}{layer}.{called[part]}.{ending}"] = tensor
        else:
            found[f"{called[part]}.{ending}"] = tensor
    return {name.format(body=one.body): tensor for name, tensor in found.items()}


HEAD_CLASSES = {
    "none": "Model", "pooler": "Model", "masked": "ForMaskedLM", "classes": "ForSequenceClassification",
    "tokens": "ForTokenClassification",
}  # fmt: skip
KINDS = {"order": "absolute", "padding": "absolute", "rotary": "rope", "relative": "relative_bias"}
FIELDS = {  # fields of a config as other schemes call them
    "distilbert": {
        "hidden_size": "dim", "num_attention_heads": "n_heads", "num_hidden_layers": "n_layers",
        "intermediate_size": "hidden_dim", "hidden_act": "activation",
    },
    "modern": {"hidden_act": "hidden_activation", "layer_norm_eps": "norm_eps", "rope_theta": "global_rope_theta"},
    "nomic": {
        "hidden_size": "n_embd", "num_attention_heads": "n_head", "num_hidden_layers": "n_layer",
        "intermediate_size": "n_inner", "hidden_act": "activation_function", "max_position_embeddings": "n_positions",
        "layer_norm_eps": "layer_norm_epsilon",
    },
}  # fmt: skip


def config(one: Draw) -> dict[str, Any]:
    """What a class of the model hub would have written of a draw."""
    is_classes = one.head in ("classes", "tokens")
    found: dict[str, Any] = {
        "model_type": "unheard_of", "architectures": [f"UnheardOf{HEAD_CLASSES[one.head]}"], "hidden_size": HIDDEN,
        "num_attention_heads": HEADS, "num_hidden_layers": LAYERS, "vocab_size": WORDS, "intermediate_size": INNER,
        "max_position_embeddings": POSITIONS + COUNTED.get(one.position, 0), "hidden_act": one.activation,
        "initializer_range": 0.02, "torch_dtype": "float32", "transformers_version": "4.57.1",
        "pad_token_id": 1 if one.position == "padding" else 0,
        "rms_norm_eps" if one.norm == "rms" else "layer_norm_eps": one.eps,
        "id2label": {str(index): f"LABEL_{index}" for index in range(LABELS)} if is_classes else None,
        "label2id": {f"LABEL_{index}": index for index in range(LABELS)} if is_classes else None,
        "tie_word_embeddings": one.tied, "rope_theta": one.base if one.position == "rotary" else None,
        "position_embedding_type": KINDS.get(one.position, one.position) if one.named_type else None,
        "alibi": True if one.position == "alibi" and not one.named_type else None,
        "relative_attention_num_buckets": BUCKETS if one.position == "relative" else None,
        "relative_attention_max_distance": FURTHEST if one.position == "relative" else None,
        "embedding_size": NARROW if one.narrow else None,
    } | OWN[one.scheme](one)  # fmt: skip
    called = FIELDS.get(one.scheme, {})
    return {called.get(name, name): value for name, value in found.items() if value is not None}


def of_bert(one: Draw) -> dict[str, Any]:
    return {
        "attention_probs_dropout_prob": 0.1, "hidden_dropout_prob": 0.1, "classifier_dropout": None, "use_cache": True,
        "type_vocab_size": SEGMENTS if one.types else 0,
    }  # fmt: skip


def of_distilbert(one: Draw) -> dict[str, Any]:
    return {
        "attention_dropout": 0.1, "dropout": 0.1, "qa_dropout": 0.1, "seq_classif_dropout": 0.2, "tie_weights_": True,
        "sinusoidal_pos_embds": one.position == "sinusoidal",
    }  # fmt: skip


def of_modern(one: Draw) -> dict[str, Any]:
    is_mixed, kinds = one.window == "types", ["sliding_attention", "full_attention", "sliding_attention"]
    return {
        "attention_bias": one.bias, "mlp_bias": one.bias, "decoder_bias": True, "norm_bias": one.norm == "layer",
        "classifier_bias": one.bias, "attention_dropout": 0.0, "mlp_dropout": 0.0, "embedding_dropout": 0.0,
        "classifier_pooling": "cls", "classifier_activation": "gelu", "classifier_dropout": 0.0,
        "local_attention": WINDOW if one.window else None, "layer_types": kinds if is_mixed else None,
        "num_key_value_heads": one.kv_heads, "type_vocab_size": SEGMENTS if one.types else None,
    }  # fmt: skip


def of_nomic(one: Draw) -> dict[str, Any]:
    is_gated = {"gelu": "geglu", "silu": "swiglu"} if one.gated else {}
    return {
        "hidden_act": is_gated.get(one.activation, one.activation), "prenorm": one.placement == "pre",
        "qkv_proj_bias": one.bias, "mlp_fc1_bias": one.bias, "mlp_fc2_bias": one.bias, "attn_pdrop": 0.0,
        "rope_theta": None, "rotary_emb_base": one.base if one.position == "rotary" else None,
        "rotary_emb_fraction": 1.0 if one.position == "rotary" else 0.0, "rotary_emb_interleaved": False,
        "use_rms_norm": one.norm == "rms", "type_vocab_size": SEGMENTS if one.types else 0, "causal": False,
        "parallel_block": False, "use_flash_attn": True,
    }  # fmt: skip


def of_llama(one: Draw) -> dict[str, Any]:
    return {
        "num_key_value_heads": one.kv_heads, "attention_bias": False, "mlp_bias": False, "attention_dropout": 0.0,
        "classifier_pooling": "cls" if one.head == "classes" else None, "use_cache": False,
    }  # fmt: skip


def of_albert(one: Draw) -> dict[str, Any]:
    return of_bert(one) | {"num_hidden_groups": 1, "inner_group_num": 1, "use_cache": None}


OWN = {
    "bert": of_bert, "roberta": of_bert, "distilbert": of_distilbert, "modern": of_modern, "nomic": of_nomic,
    "llama": of_llama, "albert": of_albert,
}  # fmt: skip
