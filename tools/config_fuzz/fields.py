"""What is changed in a config: a field, its other name, a layout of older files, a field that no class has, two at once."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tools.config_fuzz.values import ROPE, TOKEN, Option, rope_variants, values_for

Path = tuple[str, ...]
Patch = list[tuple[Path, Any]]
LEFT_OUT = "(left out)"  # the new value of a field that is taken away
NEVER = frozenset(
    [
        "architectures",
        "model_type",
        "dtype",
        "torch_dtype",
        "transformers_version",
        "_name_or_path",
        "name_or_path",
        "id2label",
        "label2id",
        "quantization_config",
        "return_dict",
        "auto_map",
        "num_labels",
        "stage_names",
        "task_specific_params",
        "pruned_heads",
    ]
)
OF_TRAINING = re.compile(
    r"drop(out|path|_rate|_path)?|pdrop|initializer|init_std|init_range|init_factor|_cost$|_loss|loss_|coef(ficient)?$"
    r"|^mask_(time|feature)|num_return|suppress_tokens|ignore_index|jitter|matcher|criterion|spec_augment|use_cache|gradient"
    r"|output_(attentions|hidden_states)|problem_type|forced_|chunk_size_feed|ctc_|label_|noise_ratio|freeze"
)
STRAY: dict[str, Any] = {  # fields of some classes, put where no class has them
    "rope_scaling": {"rope_type": "linear", "factor": 2.0}, "rope_theta": 500.0, "partial_rotary_factor": 0.5,
    "sliding_window": 3, "final_logit_softcapping": 2.0, "attn_logit_softcapping": 2.0, "logits_scaling": 3.0,
    "embedding_multiplier": 2.0, "residual_multiplier": 0.5, "attention_multiplier": 0.3, "query_pre_attn_scalar": 3.0,
    "scale_embedding": True, "parallel_attn": True, "use_parallel_residual": True, "alibi": True, "clip_qkv": 0.3,
    "position_embedding_type": "relative_key", "layer_norm_eps": 0.03, "rms_norm_eps": 0.03, "norm_eps": 0.03,
    "hidden_act": "relu", "activation_function": "tanh", "is_decoder": True, "is_causal": True, "head_dim": 4,
    "num_heads": 2, "n_head": 2, "num_key_value_heads": 1, "pre_norm": True, "norm_topk_prob": False, "rotary_dim": 2,
    "routed_scaling_factor": 2.5, "scoring_func": "sigmoid", "layer_types": ["sliding_attention", "full_attention"],
    "attention_bias": True, "tie_word_embeddings": True, "rotary_pct": 0.5, "rope_local_base_freq": 300.0,
    "no_rope_layers": [1, 0], "window_size": 2, "relative_attention": True, "swiglu_limit": 0.3, "n_group": 2,
    "nobody_knows_this": 3,
}  # fmt: skip


@dataclass(frozen=True)
class Change:
    """One field, or two, with the values to try: each is the old value, the new one, and what to write."""

    field: str
    kind: str
    options: tuple[tuple[Any, Any, Patch], ...]
    weight: float = 1.0


def changes(raw: Mapping[str, Any], config: Any, ids: list[int], rng: random.Random) -> list[Change]:
    """Everything that can be changed in a config, in an order by chance, fields of training last."""
    found = [change for part in parts(raw, config) for change in _of_part(*part, ids)]
    shuffled = [
        Change(
            change.field, change.kind, tuple(rng.sample(change.options, len(change.options))), change.weight
        )
        for change in found
    ]
    return sorted(shuffled, key=lambda change: -(rng.random() ** (1.0 / change.weight)))


def parts(
    raw: Mapping[str, Any], config: Any, path: Path = ()
) -> Iterator[tuple[Path, Mapping[str, Any], Any]]:
    """The whole and each part that is a config: its path, what the file has there, and its object."""
    from transformers import PreTrainedConfig

    yield path, raw, config
    for name, value in raw.items():
        inner = attribute(config, name)
        if isinstance(value, dict) and isinstance(inner, PreTrainedConfig):
            yield from parts(value, inner, (*path, name))


def attribute(config: Any, name: str) -> Any:
    """A field of a config object; None for one that differs from layer to layer."""
    try:
        return getattr(config, name, None)
    except Exception:
        return None


def _of_part(path: Path, raw: Mapping[str, Any], config: Any, ids: list[int]) -> Iterator[Change]:
    kind = type(config)
    inner = {path_[len(path)] for path_, _, _ in parts(raw, config, path) if len(path_) > len(path)}
    for name, value in raw.items():
        if name not in inner and name not in NEVER and not name.startswith("_"):
            yield from _field(path, raw, name, value, kind, "present", ids)
            yield _change(path, name, value, [(LEFT_OUT, {})], "absent", 1.5)
    for name in sorted({field.name for field in dataclasses.fields(kind)} - {*raw} - NEVER):
        value = attribute(config, name)
        if not name.startswith("_") and isinstance(value, (bool, int, float, str, list, type(None))):
            yield from _field(path, raw, name, value, kind, "default", ids)
    yield from _other_names(path, raw, kind, ids)
    yield from _older_names(path, raw, config, ids)
    known = {*raw, *dir(config), *kind.attribute_map}
    for name, value in STRAY.items():
        if name not in known:
            yield _change(path, name, None, [(value, {})], "unknown", 0.05)


def _change(
    path: Path,
    name: str,
    old: Any,
    values: Sequence[Option],
    kind: str,
    weight: float,
    before: Sequence[Any] = (),
) -> Change:
    written = [
        (
            old,
            new,
            [*before, ((*path, name), new), *(((*path, other), item) for other, item in along.items())],
        )
        for new, along in values
    ]
    return Change(".".join((*path, name)), kind, tuple(written), weight)


def _field(
    path: Path, raw: Mapping[str, Any], name: str, value: Any, kind: type, what: str, ids: list[int]
) -> Iterator[Change]:
    """A field with other values, and each entry of one that is an object."""
    if name in ROPE and isinstance(value, dict):
        yield from _turned(path, raw, name, value, kind, what, ids)
    elif isinstance(value, dict):
        for key, item in value.items() if len(value) < 40 else ():
            yield from _field((*path, name), value, key, item, kind, what, ids)
    elif values := values_for(name, value, raw, kind, ids):
        dull = OF_TRAINING.search(name)
        yield _change(path, name, value, values, what, 0.1 if dull else 0.5 if TOKEN.search(name) else 1.5)


def _turned(
    path: Path,
    raw: Mapping[str, Any],
    name: str,
    value: dict[str, Any],
    kind: type,
    what: str,
    ids: list[int],
) -> Iterator[Change]:
    """Rotary positions: other kinds, their numbers, and where older files had them."""
    nested = {key: item for key, item in value.items() if isinstance(item, dict)}
    for key, item in nested.items():
        yield _change((*path, name), key, item, [(one, {}) for one in rope_variants(raw, item)], "rope", 2.0)
    flat = {} if nested else value
    if flat:
        yield _change(path, name, value, [(one, {}) for one in rope_variants(raw, value)], "rope", 3.0)
    for at, inner in nested.items() or [("", flat)]:
        for key, item in inner.items():
            if key != "rope_type":
                yield from _field((*path, name, *([at] if at else [])), inner, key, item, kind, what, ids)
    base = flat.get("rope_theta")
    if base and not set(flat) - {"rope_theta", "rope_type"}:
        gone = [((*path, name), LEFT_OUT)]
        yield _change(path, "rope_theta", value, [(base / 20, {})], "legacy", 0.6, gone)
        scaled = [({"type": "linear", "factor": 4.0}, {"rope_theta": base})]
        yield _change(path, "rope_scaling", value, scaled, "legacy", 0.6, gone)
        yield _change(path, "partial_rotary_factor", None, [(0.5, {"rope_theta": base})], "legacy", 0.4, gone)


def _other_names(path: Path, raw: Mapping[str, Any], kind: type, ids: list[int]) -> Iterator[Change]:
    for other, own in kind.attribute_map.items():
        if other not in raw and own in raw and not isinstance(raw[own], dict):
            values = values_for(own, raw[own], raw, kind, ids)
            if values:
                yield _change(path, other, raw[own], values, "alias", 0.8, [((*path, own), LEFT_OUT)])


def _older_names(path: Path, raw: Mapping[str, Any], config: Any, ids: list[int]) -> Iterator[Change]:
    """What the class takes out of the fields that it does not declare."""
    text = inspect.getsource(inspect.getmodule(type(config)))  # type: ignore[arg-type]
    for name in sorted(set(re.findall(r"kwargs\.(?:pop|get)\(\s*[\"'](\w+)[\"']", text)) - {*raw} - NEVER):
        value = attribute(config, name)
        plain = value if isinstance(value, (bool, int, float, str, list)) else None
        yield from _field(path, raw, name, plain, type(config), "legacy", ids)


def strays(raw: Mapping[str, Any], config: Any, fields: Mapping[str, Any]) -> list[Change]:
    """Fields that no class here has, in the whole and in each part."""
    return [
        _change(path, name, None, [(value, {})], "unknown", 1.0)
        for path, part, inner in parts(raw, config)
        for name, value in fields.items()
        if name not in {*part, *dir(inner), *type(inner).attribute_map}
    ]


def pairs(found: Sequence[Change], rng: random.Random) -> list[Change]:
    """Two fields at once; each field is in two pairs or so."""
    lively = [change for change in found if not OF_TRAINING.search(change.field.rpartition(".")[2])]
    order = [change for change in lively if change.kind != "unknown"] * 2
    rng.shuffle(order)
    made = []
    for one, other in zip(order[::2], order[1::2], strict=False):
        options = tuple(
            ([old, old_2], [new, new_2], [*patch, *patch_2])
            for (old, new, patch), (old_2, new_2, patch_2) in zip(
                one.options, other.options * 9, strict=False
            )
            if _apart(patch, patch_2)
        )
        if options:
            made.append(Change(f"{one.field} + {other.field}", f"{one.kind}+{other.kind}", options[:3]))
    return made


def _apart(one: Patch, other: Patch) -> bool:
    """Whether no path of one patch lies in the other's."""
    return not any(a[: len(b)] == b or b[: len(a)] == a for a, _ in one for b, _ in other)


def patched(raw: Mapping[str, Any], patch: Patch) -> dict[str, Any]:
    """The config with the changes."""
    made = copy.deepcopy(dict(raw))
    for path, value in patch:
        at = made
        for word in path[:-1]:
            at = at[word]
        if isinstance(value, str) and value == LEFT_OUT:
            at.pop(path[-1], None)
        else:
            at[path[-1]] = copy.deepcopy(value)
    return made
