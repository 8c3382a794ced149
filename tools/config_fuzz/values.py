"""Other values that a field of a config could plausibly have."""

from __future__ import annotations

import copy
import inspect
import math
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

Siblings = dict[str, Any]  # fields that change with another
Option = tuple[Any, Siblings]

ACTIVATIONS = ("gelu", "relu", "silu", "gelu_new", "quick_gelu", "tanh")
LAYERS = re.compile(r"(^|_)(num_hidden_layers|n_layers?|num_layers|layers|depth)$")
HEADS = re.compile(r"(^|_)(attention_heads|n_heads?|num_heads)$")
KV_HEADS = re.compile(r"num_key_value_heads$|num_kv_heads$")
HEAD_DIM = re.compile(r"head_dim$|attention_head_size$|^d_kv$|kv_channels|d_head$|dim_head$")
WIDTH = re.compile(
    r"hidden_size|hidden_dim|d_model|embed_dim|embedding_size|intermediate|ffn|d_ff|_dim$|channels"
)
TOKEN = re.compile(r"(token_id|token_index|_start_id|_end_id|pad_index|bos_index|eos_index)$")
INDICES = re.compile(r"indices|indexes|layer_ids|feature_layers?$|attention_layers$")
ACTIVATION = re.compile(r"(^|_)(act|activation|act_fn|activation_function|activation_fn)(_|$)|hidden_act")
ROPE = ("rope_parameters", "rope_scaling")


def alone(*values: Any) -> list[Option]:
    return [(value, {}) for value in values]


def values_for(name: str, value: Any, beside: Mapping[str, Any], kind: type, ids: list[int]) -> list[Option]:
    """Other values of a field, each with what must change along; `ids` are words of the stored inputs."""
    if isinstance(value, bool):
        return alone(not value)
    if isinstance(value, str):
        words = ACTIVATIONS if ACTIVATION.search(name) or value in ACTIVATIONS else words_for(name, kind)
        return alone(*(word for word in words if word != value))
    if isinstance(value, int):
        return _numbers(name, value, beside, ids)
    if isinstance(value, float):
        return alone(*_floats(name, value))
    if value is None:
        return alone(*_in_place_of_null(name, beside, ids))
    return alone(*_lists(name, value, beside)) if isinstance(value, list) else []


def words_for(name: str, kind: type) -> list[str]:
    """The words that a config class's own files compare a field with."""
    found: dict[str, None] = {}
    for line in _source(Path(inspect.getfile(kind)).parent).splitlines():
        told = re.search(rf"\b{re.escape(name)}\b\W*\s*(?:==|!=|in|not in)\s*(.*)", line)
        found.update(dict.fromkeys(re.findall(r"[\"']([a-zA-Z][\w\-]{1,30})[\"']", told[1]) if told else ()))
    return list(found)


@cache
def _source(folder: Path) -> str:
    paths = [*sorted(folder.glob("modeling_*.py")), *sorted(folder.glob("configuration_*.py"))]
    return "\n".join(path.read_text(encoding="utf-8") for path in paths)


_INTEGERS: tuple[tuple[re.Pattern[str], Callable[[int], list[int]]], ...] = (
    (KV_HEADS, lambda value: [1, 2, 4]),
    (HEAD_DIM, lambda value: [value * 2, value // 2]),
    (re.compile("window"), lambda value: [3, 2, 7, 1]),
    (re.compile("local_attention|chunk_size$|radius"), lambda value: [4, 2, 6, 8]),
    (re.compile("theta|base$"), lambda value: [max(2, value // 20), value * 7]),
    (re.compile("position_embeddings$|n_positions|n_ctx"), lambda value: [value * 2, 32, 16]),
    (re.compile("kernel"), lambda value: [value + 2, value - 2, value + 1]),
    (re.compile("stride|dilat|per_tok|top_?k"), lambda value: [1, 2, 3]),
    (re.compile("type_vocab|vocab"), lambda value: [value + 3]),
    (re.compile("patch_size|image_size"), lambda value: [value // 2, value * 2]),
    (re.compile("layer$|_index$|index"), lambda value: [-1, -2, 0, 1] if value < 0 else [value + 1]),
    (WIDTH, lambda value: [value * 2, value + 8, value // 2]),
)


def _numbers(name: str, value: int, beside: Mapping[str, Any], ids: list[int]) -> list[Option]:
    if TOKEN.search(name) and not name.startswith("num_"):
        return alone(*(word for word in [*ids[:3], value + 1, 0] if word != value))
    if LAYERS.search(name):
        return [(count, _of_length(beside, value, count)) for count in (1, 3) if count != value]
    if HEADS.search(name):
        return list(_heads(value, beside))
    made = next((make for pattern, make in _INTEGERS if pattern.search(name)), None)
    other = made(value) if made else [value + 1, value * 2, value // 2, value - 1, 0]
    return alone(*dict.fromkeys(number for number in other if number != value and (number > 0 or not made)))


def _of_length(beside: Mapping[str, Any], count: int, wanted: int) -> Siblings:
    """Lists with an entry for each layer, for another number of layers."""
    lists = {key: item for key, item in beside.items() if isinstance(item, list) and len(item) == count > 1}
    return {
        key: [item[at % count] for at in range(wanted)]
        for key, item in lists.items()
        if not INDICES.search(key) and "section" not in key and key != "stage_names"
    }


def _heads(value: int, beside: Mapping[str, Any]) -> Iterator[Option]:
    """Half and twice as many heads, with heads of keys and sizes of heads that fit."""
    kv = next((key for key in beside if KV_HEADS.search(key) and isinstance(beside[key], int)), None)
    size = next((key for key in beside if HEAD_DIM.search(key) and isinstance(beside[key], int)), None)
    for count in (value // 2, value * 2):
        if count < 1:
            continue
        along = (
            {kv: count}
            if kv and (beside[kv] in (value, 0) or beside[kv] > count or count % beside[kv])
            else {}
        )
        yield count, along
        if size and beside[size] * value // count >= 2:
            yield count, {**along, size: beside[size] * value // count}


def _floats(name: str, value: float) -> list[float]:
    if not math.isfinite(value):
        return [1.0]
    if re.search(r"eps(ilon)?$|_eps_|^eps", name) and value < 0.02:
        return [max(value * 1000, 1e-2), 0.05]
    if re.search(r"theta|base$|_base_", name):
        return [value / 20, value * 7]
    if "rotary" in name and 0 < value <= 1:
        return [share for share in (0.5, 0.25, 1.0) if share != value]
    if re.search("cap|clip|limit|clamp|bound", name):
        return [value / 50, value / 2] if value else [2.0, 0.5]
    return [value * 0.5, value * 1.7, value * 0.1] if value else [0.5, 0.1]


def _in_place_of_null(name: str, beside: Mapping[str, Any], ids: list[int]) -> list[Any]:
    if name in ROPE:
        return rope_variants(beside, {"rope_theta": beside.get("rope_theta") or 10000.0})
    found = {
        TOKEN: ids[:2],
        re.compile("cap|clip|limit|clamp"): [2.0, 0.5, 0.2],
        re.compile("window"): [3, 2],
        KV_HEADS: [1, 2],
        HEAD_DIM: [8, 16],
        re.compile("theta"): [500.0],
        re.compile("partial_rotary|rotary_pct"): [0.5],
        ACTIVATION: list(ACTIVATIONS),
        re.compile("layer_types"): [],
    }
    return next((values for pattern, values in found.items() if pattern.search(name)), [True, 2, 0.5])


def _lists(name: str, value: list[Any], beside: Mapping[str, Any]) -> list[Any]:
    if name in ("out_features", "out_indices", "stage_names") or TOKEN.search(name) or not value:
        return []
    if all(isinstance(item, bool) for item in value):
        middle = len(value) // 2
        other = [
            [not item for item in value],
            [(not item) if at == middle else item for at, item in enumerate(value)],
        ]
    elif all(isinstance(item, str) for item in value):
        other = [value[::-1], value[1:] + value[:1], *([item] * len(value) for item in dict.fromkeys(value))]
    elif all(isinstance(item, int) for item in value):
        other = _whole_numbers(name, value)
    elif all(isinstance(item, (int, float)) for item in value):
        other = [[item * 0.5 for item in value], [*value[:-1], value[-1] * 1.7 + 0.1], value[::-1]]
    else:
        other = [copy.deepcopy(value)[::-1]]
    return [item for at, item in enumerate(other) if item and item != value and item not in other[:at]]


def _whole_numbers(name: str, value: list[int]) -> list[list[int]]:
    if INDICES.search(name):
        return [[0], [1], value[:1], value[1:], [0, 1]]
    if re.search("heads", name):
        return [[max(1, item // 2) for item in value], [item * 2 for item in value]]
    if "section" in name:
        return [value[::-1], value[1:] + value[:1]]
    return [[*value[:-1], value[-1] + 1], [item * 2 for item in value], value[::-1], [1] * len(value)]


def rope_variants(beside: Mapping[str, Any], given: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Other rotary positions with arguments that fit, for inputs of a dozen positions."""
    kept = ("rope_theta", "partial_rotary_factor", "mrope_section", "mrope_interleaved")
    base = {key: value for key, value in given.items() if key in kept}
    half = _turned(beside, given) // 2
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8}
    long = {"rope_type": "longrope", "factor": 4.0, "original_max_position_embeddings": 8}
    found: list[dict[str, Any]] = [
        {"rope_type": "linear", "factor": 2.0},
        {"rope_type": "linear", "factor": 8.0},
        {"rope_type": "dynamic", "factor": 4.0, "original_max_position_embeddings": 8},
        {"rope_type": "dynamic", "factor": 2.0},
        yarn,
        {
            **yarn,
            "original_max_position_embeddings": 16,
            "beta_fast": 4.0,
            "beta_slow": 0.5,
            "attention_factor": 1.5,
        },
        {**yarn, "factor": 8.0, "mscale": 0.7, "mscale_all_dim": 1.0},
        {**yarn, "factor": 8.0, "original_max_position_embeddings": 32, "truncate": False},
        {**yarn, "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
        {**long, "short_factor": [1.0] * half, "long_factor": [1.0 + 0.5 * at for at in range(half)]},
        {**long, "short_factor": [1.0 + 0.25 * at for at in range(half)], "long_factor": [4.0] * half},
    ]
    more = [
        {**given, "rope_theta": (base.get("rope_theta") or 10000.0) / 20},
        {**given, "partial_rotary_factor": 0.5},
    ]
    return [item for item in ([{**base, **one} for one in found] + more) if item != given]


def _turned(beside: Mapping[str, Any], given: Mapping[str, Any]) -> int:
    """Channels of a head that are turned."""
    size = beside.get("qk_rope_head_dim") or beside.get("head_dim")
    if not isinstance(size, int):
        width, heads = beside.get("hidden_size"), beside.get("num_attention_heads")
        size = width // heads if isinstance(width, int) and isinstance(heads, int) and heads else 8
    share = given.get("partial_rotary_factor") or beside.get("partial_rotary_factor") or 1.0
    return max(2, int(size * share))
