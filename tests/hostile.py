"""Bad inputs: small good checkpoints, each spoilt in one way, with what must come of it.

A case either is refused (one `error:` line that holds a fragment) or is read right (exit code 0, a fragment in what the
report says, and where the spoiling cannot matter the same output as before).
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

Tensors = dict[str, Any]
Config = dict[str, Any]
WIDTH, INNER, WORDS, POSITIONS, LAYERS, HEADS = 16, 24, 50, 32, 4, 4
DTYPES = {
    "float64": "F64", "float32": "F32", "float16": "F16", "int64": "I64", "int32": "I32", "int16": "I16", "int8": "I8",
    "uint8": "U8", "bool": "BOOL", "complex64": "C64", "uint16": "U16", "uint32": "U32", "uint64": "U64",
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One input. `error` is a fragment of the refusal; without it `says` is one of the report, `reading` its trust."""

    name: str
    make: Callable[[Path], Path | str]  # writes it below the folder and gives the source
    error: str = ""
    says: str = ""
    reading: str = ""
    same: str = ""  # the good checkpoint whose output it must have
    arguments: tuple[str, ...] = ()
    either: bool = False  # refused or a skeleton: both are right


class Raw(bytes):
    """A tensor of a dtype that numpy lacks: bytes with the name and the shape that the header gives."""

    dtype_name: str
    shape: tuple[int, ...]


def raw(dtype: str, shape: tuple[int, ...], size: int | None = None) -> Raw:
    from mapper.checkpoint import DTYPE_BYTES

    made = Raw(int(np.prod(shape) * DTYPE_BYTES[dtype]) if size is None else size)
    made.dtype_name, made.shape = dtype, shape
    return made


def noise(*shape: int, seed: int = 0, scale: float = 0.3) -> np.ndarray[Any, Any]:
    return (np.random.default_rng(seed + sum(shape)).standard_normal(shape) * scale).astype(np.float32)


def container(tensors: Mapping[str, Any]) -> bytes:
    """The bytes of a safetensors file, whatever the names are."""
    header, data = {}, b""
    for name, tensor in tensors.items():
        dtype = tensor.dtype_name if isinstance(tensor, Raw) else DTYPES[str(tensor.dtype)]
        held = bytes(tensor) if isinstance(tensor, Raw) else tensor.tobytes()
        header[name] = {
            "dtype": dtype,
            "shape": list(tensor.shape),
            "data_offsets": [len(data), len(data) + len(held)],
        }
        data += held
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def write(folder: Path, tensors: Mapping[str, Any], config: Any = None) -> Path:
    """A model directory; a config that is bytes is written as it is."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.safetensors").write_bytes(container(tensors))
    if config is not None:
        text = config if isinstance(config, bytes) else json.dumps(config).encode()
        (folder / "config.json").write_bytes(text)
    return folder


def _maps(shapes: Mapping[str, tuple[int, int]], bias: bool = True) -> Tensors:
    made = {f"{name}.weight": noise(*shape, seed=len(name)) for name, shape in shapes.items()}
    if bias:
        made |= {f"{name}.bias": noise(shape[0], seed=len(name)) for name, shape in shapes.items()}
    return made


def _norm(name: str, bias: bool = True) -> Tensors:
    made: Tensors = {f"{name}.weight": 1 + noise(WIDTH, seed=len(name), scale=0.1)}
    return made | ({f"{name}.bias": noise(WIDTH, seed=2, scale=0.1)} if bias else {})


def bert(layers: int = LAYERS) -> tuple[Tensors, Config]:
    made: Tensors = {
        "embeddings.word_embeddings.weight": noise(WORDS, WIDTH),
        "embeddings.position_embeddings.weight": noise(POSITIONS, WIDTH),
        "embeddings.token_type_embeddings.weight": noise(2, WIDTH),
        **_norm("embeddings.LayerNorm"),
        **_maps({"pooler.dense": (WIDTH, WIDTH)}),
    }
    for at in range(layers):
        layer = f"encoder.layer.{at}"
        square = {f"{layer}.attention.self.{word}": (WIDTH, WIDTH) for word in ("query", "key", "value")}
        square[f"{layer}.attention.output.dense"] = (WIDTH, WIDTH)
        made |= (
            _maps(square) | _norm(f"{layer}.attention.output.LayerNorm") | _norm(f"{layer}.output.LayerNorm")
        )
        made |= _maps(
            {f"{layer}.intermediate.dense": (INNER, WIDTH), f"{layer}.output.dense": (WIDTH, INNER)}
        )
    config = {
        "model_type": "bert", "architectures": ["BertModel"], "hidden_size": WIDTH, "num_hidden_layers": layers,
        "num_attention_heads": HEADS, "intermediate_size": INNER, "vocab_size": WORDS,
        "max_position_embeddings": POSITIONS, "type_vocab_size": 2, "hidden_act": "gelu", "layer_norm_eps": 1e-12,
    }  # fmt: skip
    return made, config


def llama(layers: int = LAYERS) -> tuple[Tensors, Config]:
    made: Tensors = {
        "model.embed_tokens.weight": noise(WORDS, WIDTH),
        "lm_head.weight": noise(WORDS, WIDTH, seed=5),
    }
    for at in range(layers):
        layer = f"model.layers.{at}"
        made |= _maps({f"{layer}.self_attn.{word}_proj": (WIDTH, WIDTH) for word in "qo"}, bias=False)
        made |= _maps({f"{layer}.self_attn.{word}_proj": (WIDTH // 2, WIDTH) for word in "kv"}, bias=False)
        made |= _maps({f"{layer}.mlp.{word}_proj": (INNER, WIDTH) for word in ("gate", "up")}, bias=False)
        made |= _maps({f"{layer}.mlp.down_proj": (WIDTH, INNER)}, bias=False)
        made |= _norm(f"{layer}.input_layernorm", bias=False) | _norm(
            f"{layer}.post_attention_layernorm", bias=False
        )
    made |= _norm("model.norm", bias=False)
    config = {
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": WIDTH, "intermediate_size": INNER,
        "num_hidden_layers": layers, "num_attention_heads": HEADS, "num_key_value_heads": HEADS // 2, "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": False, "vocab_size": WORDS,
        "max_position_embeddings": POSITIONS,
    }  # fmt: skip
    return made, config


def gpt2(layers: int = LAYERS) -> tuple[Tensors, Config]:
    made: Tensors = {
        "wte.weight": noise(WORDS, WIDTH),
        "wpe.weight": noise(POSITIONS, WIDTH),
        **_norm("ln_f"),
    }
    for at in range(layers):
        layer = f"h.{at}"
        made |= _norm(f"{layer}.ln_1") | _norm(f"{layer}.ln_2")
        for name, shape in {
            "attn.c_attn": (WIDTH, 3 * WIDTH), "attn.c_proj": (WIDTH, WIDTH),
            "mlp.c_fc": (WIDTH, 4 * WIDTH), "mlp.c_proj": (4 * WIDTH, WIDTH),
        }.items():  # fmt: skip
            made[f"{layer}.{name}.weight"] = noise(*shape)
            made[f"{layer}.{name}.bias"] = noise(shape[1])
    config = {
        "model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_embd": WIDTH, "n_head": HEADS, "n_layer": layers,
        "n_positions": POSITIONS, "vocab_size": WORDS, "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5,
    }  # fmt: skip
    return made, config


GOOD: dict[str, Callable[[], tuple[Tensors, Config]]] = {"bert": bert, "llama": llama, "gpt2": gpt2}


def spoilt(
    name: str,
    base: str,
    tensors: Callable[[Tensors], object] | None = None,
    config: Mapping[str, Any] | Callable[[Config], Any] | None = None,
    **expected: Any,
) -> Case:
    """A good checkpoint with changed tensors (in place) and a changed config (fields over its own, or a function)."""

    def make(folder: Path) -> Path:
        held, said = GOOD[base]()
        if tensors is not None:
            tensors(held)
        changed: Any = said
        if callable(config):
            changed = config(said)
        elif config is not None:
            changed = {key: value for key, value in {**said, **config}.items() if value is not ...}
        return write(folder / base, held, changed)

    if expected.get("same") == "":
        expected["same"] = base
    return Case(name, make, **expected)


def cases() -> Iterator[Case]:
    from tests import hostile_configs, hostile_files, hostile_tensors

    yield from hostile_configs.CASES
    yield from hostile_tensors.CASES
    yield from hostile_files.CASES
