"""Good weights with configs that contradict them, hold values of the wrong type, or are no configs."""

from __future__ import annotations

import json
from typing import Any

from tests.hostile import HEADS, LAYERS, Case, Config, spoilt

CODE = "__import__('os').system('touch pwned')"


def _fields(base: str, rows: dict[str, tuple[dict[str, Any], str]]) -> list[Case]:
    """Fields over the good config; the second of a row is a fragment of the refusal, or "=": as good as before."""
    return [
        spoilt(name, base, config=changes, same=base)
        if error == "="
        else spoilt(name, base, config=changes, error=error)
        for name, (changes, error) in rows.items()
    ]


CONTRADICTING = {
    "heads that do not divide": ({"num_attention_heads": 3}, "does not divide by 3"),
    "more heads than channels": ({"num_attention_heads": 32}, "does not divide by 32"),
    "twelve layers said": ({"num_hidden_layers": 12}, "layers is 12, but the names show 4"),
    "fewer layers said": ({"num_hidden_layers": 2}, "layers is 2, but the names show 4"),
    "another vocabulary": ({"vocab_size": 99}, "vocab_size"),
    "another width": ({"hidden_size": 32}, "hidden_size"),
    "another inner width": ({"intermediate_size": 99}, "intermediate_size"),
    "more positions said": ({"max_position_embeddings": 512}, "positions"),
    "more segments said": ({"type_vocab_size": 4}, "segments"),
    "no heads at all": ({"num_attention_heads": ...}, "attention.heads is unknown"),
    "heads of null": ({"num_attention_heads": None}, "attention.heads is unknown"),
    "heads as text": ({"num_attention_heads": "4"}, "num_attention_heads"),
    "heads as a list": ({"num_attention_heads": [4]}, "num_attention_heads"),
    "heads as an object": ({"num_attention_heads": {"a": 4}}, "num_attention_heads"),
    "heads as true": ({"num_attention_heads": True}, "num_attention_heads"),
    "heads of zero": ({"num_attention_heads": 0}, "num_attention_heads"),
    "heads below zero": ({"num_attention_heads": -4}, "num_attention_heads"),
    "heads of a half": ({"num_attention_heads": 4.5}, "num_attention_heads"),
    "heads as a whole float": ({"num_attention_heads": 4.0}, "="),
    "heads beyond all bounds": ({"num_attention_heads": 10**30}, "num_attention_heads"),
    "heads as code": ({"num_attention_heads": CODE}, "num_attention_heads"),
    "layers as text": ({"num_hidden_layers": "4"}, "num_hidden_layers"),
    "layers below zero": ({"num_hidden_layers": -4}, "num_hidden_layers"),
    "layers as a list": ({"num_hidden_layers": [1, 2, 3, 4]}, "num_hidden_layers"),
    "vocabulary of zero": ({"vocab_size": 0}, "vocab_size"),
    "vocabulary as an object": ({"vocab_size": {}}, "vocab_size"),
    "width as text": ({"hidden_size": "sixteen"}, "hidden_size"),
    "eps as text": ({"layer_norm_eps": "1e-12"}, "layer_norm_eps"),
    "eps as a list": ({"layer_norm_eps": [1e-12]}, "layer_norm_eps"),
    "eps below zero": ({"layer_norm_eps": -1e-5}, "layer_norm_eps"),
    "eps of a million": ({"layer_norm_eps": 1e300}, "layer_norm_eps"),
    "activation unknown": ({"hidden_act": "nosuch"}, "'nosuch'"),
    "activation as code": ({"hidden_act": CODE}, "__import__"),
    "activation as a list": ({"hidden_act": ["gelu"]}, "hidden_act"),
    "activation as a number": ({"hidden_act": 3}, "hidden_act"),
    "activation as an object": ({"hidden_act": {"name": "gelu"}}, "hidden_act"),
    "activation with a line break": ({"hidden_act": "gelu\n\nimport os"}, "hidden_act"),
    "activation of 5,000 characters": ({"hidden_act": "gelu" * 1250}, "hidden_act"),
    "activation empty": ({"hidden_act": ""}, "hidden_act"),
    "causal as text": ({"is_decoder": "yes"}, "is_decoder"),
    "positions of another kind": ({"position_embedding_type": "relative_key"}, "position_embedding_type"),
    "positions as code": ({"position_embedding_type": CODE}, "position_embedding_type"),
    "two fields that agree": ({"n_heads": HEADS}, "="),
    "cross attention said": ({"is_decoder": True, "add_cross_attention": True}, "add_cross_attention"),
}

# What listed types of a BERT's names differ in is asked where the type is none of theirs.
ANSWERED = ("--set", "position.counting=all")
TYPES: dict[str, tuple[Any, str]] = {
    "of an unknown model": ("nosuchmodel", "nosuchmodel"),
    "as a list": (["bert"], "model_type"),
    "as an object": ({"bert": 1}, "model_type"),
    "as a number": (7, "model_type"),
    "as true": (True, "model_type"),
    "empty": ("", "model_type"),
    "as code": (CODE, "__import__"),
    "of 5,000 characters": ("bert" * 1250, "bertbert"),
    "with a line break": ("bert\nimport os", "bert"),
    "with a null byte": ("bert\0", "bert"),
    "in capitals": ("BERT", "BERT"),
    "of another family": ("llama", "llama"),
}

# A type with a llama's names whose config says what each layer is.
LAYERED = {"model_type": "smollm3", "architectures": ["SmolLM3ForCausalLM"]}
LLAMA = {
    "more kv heads than heads": ({"num_key_value_heads": 8}, "kv_heads"),
    "kv heads that do not fit": ({"num_key_value_heads": 3}, "3"),
    "kv heads of zero": ({"num_key_value_heads": 0}, "num_key_value_heads"),
    "kv heads against the shapes": ({"num_key_value_heads": 4}, "kv_heads"),
    "another head size": ({"head_dim": 8}, "head_dim"),
    "head size as text": ({"head_dim": "4"}, "head_dim"),
    "rope theta as text": ({"rope_theta": "10000"}, "rope_theta"),
    "rope theta of zero": ({"rope_theta": 0}, "rope_theta"),
    "rope theta below zero": ({"rope_theta": -10000.0}, "rope_theta"),
    "rope scaling as text": ({"rope_scaling": "linear"}, "rope_scaling"),
    "rope scaling as a list": ({"rope_scaling": [1, 2]}, "rope_scaling"),
    "rope scaling without factor": ({"rope_scaling": {"type": "linear"}}, "rotary.factor"),
    "rope scaling factor as text": ({"rope_scaling": {"type": "linear", "factor": "2"}}, "factor"),
    "rope scaling factor of zero": ({"rope_scaling": {"type": "linear", "factor": 0}}, "factor"),
    "rope scaling factor below zero": ({"rope_scaling": {"type": "linear", "factor": -2.0}}, "factor"),
    "rope scaling type as a list": ({"rope_scaling": {"type": ["linear"], "factor": 2.0}}, "type"),
    "rope scaling empty": ({"rope_scaling": {}}, "="),
    "rope scaling null": ({"rope_scaling": None}, "="),
    "longrope without factors": ({"rope_scaling": {"type": "longrope"}}, "rotary."),
    "longrope factors of another length": (
        {
            "rope_scaling": {
                "type": "longrope",
                "short_factor": [1.0],
                "long_factor": [1.0, 2.0, 3.0],
                "original_max_position_embeddings": 16,
            }
        },
        "factor",
    ),
    "longrope factors as text": (
        {
            "rope_scaling": {
                "type": "longrope",
                "short_factor": ["a", "b"],
                "long_factor": [None, {}],
                "original_max_position_embeddings": 16,
            }
        },
        "factor",
    ),
    "llama3 without its parts": ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "rotary."),
    "yarn with a factor of one": ({"rope_scaling": {"rope_type": "yarn", "factor": "x"}}, "factor"),
    "rope parameters as a list": ({"rope_theta": ..., "rope_parameters": [10000.0]}, "rope_parameters"),
    "a window below zero, which nothing reads": ({"sliding_window": -1}, "="),
    "a window of zero": ({"sliding_window": 0}, "="),
    "a window as text": ({"sliding_window": "all"}, "="),
    "too few layer types": ({**LAYERED, "layer_types": ["full_attention"] * 2}, "layer_types"),
    "too many layer types": ({**LAYERED, "layer_types": ["full_attention"] * 9}, "layer_types"),
    "layer types as text": ({**LAYERED, "layer_types": "full_attention"}, "layer_types"),
    "tied in spite of a head": ({"tie_word_embeddings": True}, "="),
    "tied as text": ({"tie_word_embeddings": "false"}, "tie_word_embeddings"),
    "a bias said that is not there": ({"attention_bias": True}, "attention_bias"),
    "a bias in the feed-forward said": ({"mlp_bias": True}, "mlp_bias"),
    "quantised by GPTQ": ({"quantization_config": {"quant_method": "gptq", "bits": 4}}, "gptq"),
    "quantised as a list": ({"quantization_config": [1]}, "quantization_config"),
}

SAID = {
    "a field for heads that the type has not": ("bert", {"n_heads": 2}, "n_heads"),
    "layer types that the type has not": ("llama", {"layer_types": "full_attention"}, "layer_types"),
    "a partial rotation of zero": ("llama", {"partial_rotary_factor": 0}, "partial_rotary_factor"),
    "a partial rotation of two": ("llama", {"partial_rotary_factor": 2.0}, "partial_rotary_factor"),
    "two rope bases": (
        "llama",
        {"rope_parameters": {"rope_theta": 5000.0, "rope_type": "default"}},
        "config rope_theta says 10000.0",
    ),
    "a norm after the fact": ("llama", {"use_qk_norm": True}, "use_qk_norm"),
    "unknown fields": ("llama", {"zz_unknown": 1, CODE: CODE}, "zz_unknown"),
    "a hidden field that matters": ("llama", {"embedding_multiplier": 12.0}, "embedding_multiplier"),
}

SKELETONS = {
    "rope scaling of an unknown type": ({"rope_scaling": {"type": "nosuch", "factor": 2.0}}, "not 'nosuch'"),
    "rope scaling as code": ({"rope_scaling": {"type": CODE, "factor": 2.0}}, "__import__"),
    "unknown layer types": ({**LAYERED, "layer_types": ["nosuch"] * LAYERS}, "not 'nosuch'"),
    "layer types of numbers": ({**LAYERED, "layer_types": [1, 2, 3, 4]}, "[1, 2, 3, 4]"),
    "layer types of lists": ({**LAYERED, "layer_types": [["a"], {}, None, 1.5]}, "[['a']"),
}

ARCHITECTURES: dict[str, tuple[Any, str]] = {
    "of code": ([CODE + "Model"], "="),
    "of a class statement": (["A: pass\nclass BModel"], "="),
    "as text": ("BertModel", "="),
    "as a number": (5, "="),
    "of numbers": ([1, None, {}], "="),
    "of 5,000 characters": (["x" * 5000 + "Model"], "="),
    "of nothing": ([], "="),
    "with a surrogate": (["Bert\ud800Model"], "surrogate"),
}

DOCUMENTS: dict[str, tuple[bytes, str]] = {
    "config is a list": (b"[1, 2]", "array"),
    "config is a number": (b"7", "number"),
    "config is null": (b"null", "null"),
    "config is text": (b'"bert"', "string"),
    "config is empty": (b"", "empty"),
    "config is cut short": (b'{"model_type": "bert", "num_att', "not JSON"),
    "config is no JSON": (b"model_type: bert\n", "not JSON"),
    "config is Python": (b"__import__('os').system('touch pwned')", "not JSON"),
    "config has comments": (b'{"a": 1 // two\n}', "not JSON"),
    "config is binary": (bytes(range(256)), "not UTF-8"),
    "config is UTF-16": ('{"model_type": "bert"}'.encode("utf-16"), "not UTF-8"),
    "config is deep": (b'{"a":' * 500 + b"1" + b"}" * 500, "deep"),
    "config is very deep": (b'{"a":' * 200_000 + b"1" + b"}" * 200_000, "deep"),
    "config is deep lists": (b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "deep"),
    "config is huge": (b'{"a": "' + b"x" * 21_000_000 + b'"}', "bytes of JSON"),
    "config is HTML": (b"<!DOCTYPE html><html><body>404</body></html>", "web page"),
    "config is an LFS pointer": (
        b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n",
        "git-lfs",
    ),
    "config has an integer of 5,000 digits": (b'{"a": ' + b"9" * 5000 + b"}", "config.json"),
}


def _with_bom(said: Config) -> bytes:
    return b"\xef\xbb\xbf" + json.dumps(said).encode()


def _twice(said: Config) -> bytes:
    return json.dumps(said).encode()[:-1] + b', "num_attention_heads": 2}'


def _number(text: str) -> Any:
    return lambda said: json.dumps({**said, "layer_norm_eps": "EPS"}).replace('"EPS"', text).encode()


CASES: list[Case] = [
    *(spoilt(name, base, config=changes, says=says, reading="unverified") for name, (base, changes, says) in SAID.items()),
    *(spoilt(name, "llama", config=changes, says=says, reading="skeleton") for name, (changes, says) in SKELETONS.items()),
    *_fields("bert", CONTRADICTING),
    *_fields("llama", LLAMA),
    *_fields("bert", {f"architectures {name}": ({"architectures": value}, error) for name, (value, error) in ARCHITECTURES.items()}),
    *(
        spoilt(f"a model type {name}", "bert", config={"model_type": value}, says=says, reading="unverified", arguments=ANSWERED)
        for name, (value, says) in TYPES.items()
    ),
    *(
        spoilt(name, "bert", config=lambda said, data=data: data, error=error)
        for name, (data, error) in DOCUMENTS.items()
    ),
    spoilt("config with a byte order mark", "bert", config=_with_bom, same="bert"),
    spoilt("config with a field twice", "bert", config=_twice, error="num_attention_heads"),
    spoilt("eps of NaN", "bert", config=_number("NaN"), error="layer_norm_eps"),
    spoilt("eps of infinity", "bert", config=_number("Infinity"), error="layer_norm_eps"),
    spoilt("eps of 1e999", "bert", config=_number("1e999"), error="layer_norm_eps"),
    spoilt("config is an empty object", "bert", config=lambda said: {}, error="attention.heads is unknown", arguments=ANSWERED),
    spoilt("config of another model", "bert", config=lambda said: {"model_type": "llama", "num_attention_heads": 4},
           says="llama", reading="unverified", arguments=ANSWERED),
    spoilt("config nested in itself", "bert", config=lambda said: {"text_config": said, "vision_config": said}, says="", arguments=ANSWERED),
    spoilt("gpt2 with another inner width", "gpt2", config={"n_inner": 99}, error="n_inner"),
    spoilt("gpt2 with heads of zero", "gpt2", config={"n_head": 0}, error="n_head"),
    spoilt("gpt2 with scores scaled by layer", "gpt2", config={"scale_attn_by_inverse_layer_idx": True},
           error="scale_attn_by_inverse_layer_idx"),
    spoilt("gpt2 with another activation", "gpt2", config={"activation_function": "nosuch"}, error="nosuch"),
]  # fmt: skip
