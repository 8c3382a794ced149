"""A base and a low-rank adapter (LoRA, arXiv 2106.09685) as one checkpoint: its updates merged into the weights, or beside them.

An adapter as PEFT writes it names each update by the module that it belongs to: `base_model.model.PATH.lora_A.weight`
(rank, in) and `lora_B.weight` (out, rank). The updated weight is W + scale * B A. `adapter_config.json` gives the scale:
lora_alpha / r, or lora_alpha / sqrt(r) with use_rslora.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from mapper.checkpoint import Adapted, Checkpoint, TensorInfo
from mapper.errors import SourceError, listed, shorten
from mapper.inference.updates import SETTINGS
from mapper.naming.members import DOWN, UP, UPDATED
from mapper.rulebook.values import shown

if TYPE_CHECKING:
    import torch

    from mapper.architecture import Architecture, Leaf

_WRAPPERS = ("base_model.model.", "base_model.")
# Other ways to begin change the base's weights.
_INITIAL = (True, False, None, "gaussian", "eva", "orthogonal")
_DECLINED: Mapping[str, tuple[Any, ...]] = {  # a field that changes what an update computes -> the values that change nothing
    "use_dora": (False, None), "use_qalora": (False, None), "lora_bias": (False, None), "layer_replication": (None,),
    "alora_invocation_tokens": (None,), "trainable_token_indices": (None,), "target_parameters": (None, []),
    "arrow_config": (None,), "velora_config": (None,), "use_bdlora": (None, False), "megatron_config": (None,),
}  # fmt: skip
_TASKS = {  # task_type -> what a head that the adapter brings is for
    "SEQ_CLS": "sequence_classification", "TOKEN_CLS": "token_classification", "QUESTION_ANS": "question_answering",
    "CAUSAL_LM": "causal_lm",
}  # fmt: skip
_PLAIN = re.compile(r"\^?[\w.-]+\$?")  # a pattern that is a path, not a regular expression


@dataclass(frozen=True)
class Update:
    """What an adapter adds to one module of the base."""

    path: str  # of the module, as the base has it
    down: str  # keys in the adapter: A, and
    up: str  # B
    scale: float
    rank: int
    transposed: bool  # the base's weight is [in, out]

    def keys(self) -> dict[str, str]:
        """The name beside the base's weight -> the adapter's key."""
        at = next(at for at, word in enumerate(DOWN) if self.down.endswith(word))
        return {f"{self.path}.{DOWN[at]}": self.down, f"{self.path}.{UP[at]}": self.up}

    @property
    def weight(self) -> str:
        return f"{self.path}.weight"


@dataclass(frozen=True)
class Adapter:
    """An adapter, each of its tensors at its place in the base."""

    checkpoint: Checkpoint
    updates: tuple[Update, ...]
    whole: Mapping[str, str]  # key in the base, or one that it has not yet -> the adapter's key
    notes: tuple[str, ...]


def adapted(base: Architecture, adapter: Checkpoint, merge: bool) -> Checkpoint:
    """The base's checkpoint with an adapter. Raises SourceError for what is no LoRA of this base, and says why."""
    found = _read(base, adapter)
    checkpoint = base.checkpoint
    kept = checkpoint.tensors
    cast = _usual(kept.values())
    tensors = dict(kept)
    tensors |= {
        key: _as(adapter.tensors[own], kept[key].dtype if key in kept else cast)
        for key, own in found.whole.items()
    }
    config = checkpoint.config
    if not merge:
        for update in found.updates:
            tensors |= {
                key: _as(adapter.tensors[own], kept[update.weight].dtype)
                for key, own in update.keys().items()
            }
        config = {**(config or {}), SETTINGS: {**_scales(found.updates), **_rate(adapter)}}
    said = _said(found, checkpoint.source, merge)
    both = replace(
        checkpoint,
        tensors=tensors,
        config=config,
        notes=[*checkpoint.notes, f"{said}; {len(found.updates)} updates", *found.notes],
        document=None,
        adapted=(*checkpoint.adapted, said),
    )
    both.where = lambda name: None
    if checkpoint.read is not None and adapter.read is not None:
        both.read = lambda names: _tensors(checkpoint, found, tensors, merge, names)
    return both


def _said(found: Adapter, base: str, merge: bool) -> Adapted:
    """What a report and a saved model say of an adapter."""
    settings = found.checkpoint.adapter or {}
    alphas = {_alpha(settings, _module(update.down)) for update in found.updates}
    ranks = {update.rank for update in found.updates}
    return Adapted(base, found.checkpoint.source, tuple(sorted(ranks)), tuple(sorted(alphas)), merge)


def task_of(adapter: Checkpoint, base: Checkpoint, both: Checkpoint) -> dict[str, str]:
    """The hint that says what a head is for which the base has not; nothing where it brings none, or does not say it."""
    task = _TASKS.get(str((adapter.adapter or {}).get("task_type")))
    brings = any(
        name not in base.tensors and not name.endswith(tuple(f".{word}" for word in UPDATED))
        for name in both.tensors
    )
    return {"task": task} if task and brings else {}


def check_ties(merged: Architecture, adapter: Checkpoint) -> None:
    """Raises SourceError where a merged table is a head's too: the adapter was trained beside the head as it was."""
    if updates_a_tie(merged, adapter):
        raise SourceError(
            f"{adapter.source} updates the embedding, whose table is the head's too; merged, the head would change as "
            "well: leave merge out"
        )


def updates_a_tie(architecture: Architecture, adapter: Checkpoint) -> bool:
    """Whether one of the updates is of a table that is a head's too."""
    tied = any(fact.name == "head.tied" and fact.value for fact in architecture.facts)
    return tied and any(name.endswith(DOWN[1]) for name in adapter.tensors)


def _scales(updates: Sequence[Update]) -> dict[str, Any]:
    """The scale of most updates, and those of the others by their modules."""
    usual = Counter(update.scale for update in updates).most_common(1)[0][0]
    others = {update.path: update.scale for update in updates if update.scale != usual}
    return {"scale": usual, **({"scales": others} if others else {})}


def _rate(adapter: Checkpoint) -> dict[str, Any]:
    """The adapter's own dropout, where it has any: no source writes it, and a header says so of what is in the config."""
    rate = (adapter.adapter or {}).get("lora_dropout")
    return {"lora_dropout": rate} if rate else {}


def _scale(settings: Mapping[str, Any], path: str, rank: int) -> float:
    """What an update of a module is multiplied by. Raises SourceError for settings that do not say it."""
    alpha = _alpha(settings, path)
    said = _of_module(settings, "rank_pattern", "r", path)
    if said != rank:
        raise SourceError(
            f"adapter_config.json: the rank of {shorten(path)} is {shown(said)}, its tensors have {rank}"
        )
    return float(alpha / math.sqrt(rank) if settings.get("use_rslora") else alpha / rank)


def _alpha(settings: Mapping[str, Any], path: str) -> float:
    alpha = _of_module(settings, "alpha_pattern", "lora_alpha", path)
    if isinstance(alpha, bool) or not isinstance(alpha, (int, float)) or not math.isfinite(alpha):
        raise SourceError(f"adapter_config.json: lora_alpha is {shown(alpha)}; it should be a number")
    return float(alpha)


def _module(down: str) -> str:
    """The module of an update, as the adapter's settings name it."""
    return _unwrapped(down).rpartition(".lora_")[0]


def _of_module(settings: Mapping[str, Any], patterns: str, otherwise: str, path: str) -> Any:
    """The value of the first pattern that a module's path ends in, else that of all modules."""
    table = settings.get(patterns) or {}
    if not isinstance(table, Mapping):
        raise SourceError(f"adapter_config.json: {patterns} should be an object")
    for pattern, value in table.items():
        if not _PLAIN.fullmatch(pattern):  # running a stranger's expression may take forever
            raise SourceError(
                f"adapter_config.json: {patterns} has the expression {shorten(pattern)}; only paths are read"
            )
        words = pattern.strip("^$")
        if path == words or (path.endswith(f".{words}") and not pattern.startswith("^")):
            return value
    return settings.get(otherwise)


def _read(base: Architecture, adapter: Checkpoint) -> Adapter:
    settings = adapter.adapter
    if settings is None:
        raise SourceError(
            f"{adapter.source} has no adapter_config.json beside it, which says how its updates are scaled"
        )
    _check(settings, adapter.source)
    names = {_unwrapped(key): key for key in adapter.tensors}
    downs = _downs(names, adapter.source)
    move, notes = _moved(base.checkpoint, list(downs), adapter.source)
    leaves = {str(place): leaf for leaf in base.leaves for place in leaf.place.expand()}
    updates, used = [], set()
    for path, word in downs.items():
        down, up = f"{path}.{word}", _up(path, word, names, adapter.source)
        used |= {down, up}
        updates.append(_update(move(path), names[down], names[up], leaves, base.checkpoint, adapter))
    stored = {
        f"{path}.{_BASE}.weight": f"{path}.weight" for path in downs
    }  # an updated table is saved with its update
    whole = {move(stored.get(name, name)): key for name, key in names.items() if name not in used}
    kept = {move(stored[name]) for name in names if name in stored}
    _check_whole(whole, kept, settings, base.checkpoint, adapter)
    return Adapter(adapter, tuple(updates), whole, tuple(notes))


def _check(settings: Mapping[str, Any], source: str) -> None:
    """Raises SourceError by name for every adapter that is not a plain LoRA."""
    kind = settings.get("peft_type", "LORA")
    if kind != "LORA":
        raise SourceError(
            f"{source} is an adapter of the type {shown(kind)}; LORA is what can be added to a base"
        )
    for name, plain in _DECLINED.items():
        if settings.get(name) not in plain:
            what = "is a DoRA" if name == "use_dora" else f"has {name} = {shown(settings[name])}"
            raise SourceError(
                f"{source} {what}, which is not a plain LoRA; merge it into its base with the library that wrote it"
            )
    initial = settings.get("init_lora_weights", True)
    if initial not in _INITIAL:
        raise SourceError(
            f"{source} has init_lora_weights = {shown(initial)}, whose base has other weights than the one "
            "it names; save it as a plain LoRA with the library that wrote it"
        )


def _unwrapped(key: str) -> str:
    """A name in an adapter without what PEFT puts around it."""
    wrapper = next((word for word in _WRAPPERS if key.startswith(word)), "")
    words = key.removeprefix(wrapper).split(".")
    inner = [at for at, word in enumerate(words) if at and word == "default" and words[at - 1] in _NAMED]
    words = [word for at, word in enumerate(words) if at not in inner and word != "modules_to_save"]
    return ".".join(words)


_BASE = "base_layer"  # what PEFT calls a module that it has put its own around
_NAMED = ("lora_A", "lora_B", "lora_embedding_A", "lora_embedding_B", "modules_to_save")


def _moved(base: Checkpoint, paths: list[str], source: str) -> tuple[Callable[[str], str], list[str]]:
    """How a path of the adapter is called in the base: the same, or all of them with a prefix more or less."""
    modules = {name.removesuffix(".weight") for name in base.tensors if name.endswith(".weight")}
    if any(path in modules for path in paths):
        lacking = [path for path in paths if path not in modules]
    else:
        longer = {known.removesuffix(paths[0]) for known in modules if known.endswith(f".{paths[0]}")}
        shorter = {paths[0].removesuffix(known) for known in modules if paths[0].endswith(f".{known}")}
        for prefix in sorted(longer):
            if all(prefix + path in modules for path in paths):
                return partial(_place, more=prefix), [f"the base has the prefix {prefix}"]
        for prefix in sorted(shorter):
            if all(path.removeprefix(prefix) in modules for path in paths):
                return partial(_place, less=prefix), [f"the adapter has the prefix {prefix}"]
        lacking = paths
    if lacking:
        raise SourceError(
            f"{source} is no adapter of {base.source}: the base has no weight at {listed(lacking)} "
            f"({len(lacking)} of {len(paths)} updates)"
        )
    return _place, []


def _place(path: str, more: str = "", less: str = "") -> str:
    return more + path.removeprefix(less)


def _downs(names: Iterable[str], source: str) -> dict[str, str]:
    """The paths of the modules that are updated, with the word for the first matrix. Raises SourceError for none."""
    names = list(names)
    downs = {
        name.removesuffix(f".{word}"): word for name in names for word in DOWN if name.endswith(f".{word}")
    }
    if not downs:
        raise SourceError(
            f"{source} has no updates of low rank: none of its {len(names)} names ends in lora_A.weight"
        )
    return downs


def _up(path: str, word: str, names: Container[str], source: str) -> str:
    """The name of the second matrix beside the first. Raises SourceError where it is missing."""
    up = f"{path}.{UP[DOWN.index(word)]}"
    if up not in names:
        raise SourceError(
            f"{source}: {shorten(up)} is missing beside {shorten(f'{path}.{word}')}; download it again"
        )
    return up


def _update(
    path: str, down: str, up: str, leaves: Mapping[str, Leaf], base: Checkpoint, adapter: Checkpoint
) -> Update:
    leaf = leaves.get(path)
    kind = leaf.kind if leaf is not None else "Parameter"
    is_table = down.endswith(DOWN[1])
    if not _is_updatable(kind, is_table):
        raise SourceError(
            f"{adapter.source} updates {shorten(path)}, a {kind}; maps, convolutions and embeddings can be updated"
        )
    shape, a, b = (
        table[key].shape
        for table, key in ((base.tensors, f"{path}.weight"), (adapter.tensors, down), (adapter.tensors, up))
    )
    transposed = not is_table and leaf is not None and leaf.is_transposed
    if not _fits(a, b, shape[::-1] if transposed or is_table else shape):
        raise SourceError(
            f"{adapter.source}: the update of {shorten(path)}, {list(b)} times {list(a)}, does not fit its weight {list(shape)}"
        )
    return Update(path, down, up, _scale(adapter.adapter or {}, _module(down), a[0]), a[0], transposed)


def _is_updatable(kind: str, is_table: bool) -> bool:
    """Whether an update of low rank, of a table or of a map, may be one of a leaf of this kind."""
    if is_table:
        return kind == "Embedding"
    return kind == "Linear" or (kind.startswith("Conv") and "Transpose" not in kind)


def _fits(a: Sequence[int], b: Sequence[int], weight: Sequence[int]) -> bool:
    """Whether the matrices [rank, in, ...] and [out, rank, 1, ...] are an update of a weight [out, in, ...]."""
    if not len(a) == len(b) == len(weight):
        return False
    meets = b[1:2] == a[:1] and a[1:] == weight[1:] and b[0] == weight[0]
    return meets and all(extent == 1 for extent in b[2:])


def _check_whole(
    whole: Mapping[str, str],
    kept: Container[str],
    settings: Mapping[str, Any],
    base: Checkpoint,
    adapter: Checkpoint,
) -> None:
    """Tensors that are no updates: biases and modules that the settings say were trained whole. Raises SourceError."""
    saved = tuple(map(str, settings.get("modules_to_save") or ()))
    biases = settings.get("bias", "none") != "none"
    for name, key in whole.items():
        words = name.split(".")
        around = [".".join(words[:at]) for at in range(1, len(words))]
        is_saved = any(module.endswith(saved) for module in around)
        if (
            name not in kept
            and not is_saved
            and not (biases and name.endswith(".bias") and name in base.tensors)
        ):
            raise SourceError(
                f"{adapter.source}: nothing says what {shorten(key)} is for: no update, and not in modules_to_save"
            )
        if name in base.tensors and base.tensors[name].shape != adapter.tensors[key].shape:
            raise SourceError(
                f"{adapter.source}: {shorten(key)} has the shape {list(adapter.tensors[key].shape)}, the base's is "
                f"{list(base.tensors[name].shape)}"
            )


def _usual(infos: Iterable[TensorInfo]) -> str:
    """The type of the base's first float."""
    return next((info.dtype for info in infos if info.dtype in ("F32", "F16", "BF16", "F64")), "F32")


def _as(info: TensorInfo, dtype: str) -> TensorInfo:
    return TensorInfo(info.shape, dtype)


def _tensors(
    base: Checkpoint, adapter: Adapter, header: Mapping[str, TensorInfo], merge: bool, names: Iterable[str]
) -> dict[str, torch.Tensor]:
    """The named tensors, each in the type that the header says."""
    from mapper.sources.storage import torch_dtype

    assert base.read is not None and adapter.checkpoint.read is not None
    wanted = list(names)
    theirs = dict(adapter.whole)
    if not merge:
        theirs |= {name: key for update in adapter.updates for name, key in update.keys().items()}
    own = [name for name in wanted if name in theirs]
    found = base.read([name for name in wanted if name not in theirs])
    read = adapter.checkpoint.read([theirs[name] for name in own])
    found |= {name: read[theirs[name]].to(torch_dtype(header[name].dtype, name)) for name in own}
    if merge:
        for update in adapter.updates:
            if update.weight in found and update.weight in wanted:
                a_b = adapter.checkpoint.read([update.down, update.up])
                found[update.weight] = merged(found[update.weight], a_b[update.down], a_b[update.up], update)
    return {name: found[name] for name in wanted}


def merged_weights(architecture: Architecture) -> dict[str, torch.Tensor]:
    """The tensors of a model, each update that stands beside a weight added to it."""
    checkpoint = architecture.checkpoint
    assert checkpoint.read is not None
    found = checkpoint.read(checkpoint.tensors)
    for leaf in architecture.leaves:
        words = next((pair for pair in zip(DOWN, UP, strict=True) if pair[0] in leaf.tensors), None)
        for path in map(str, leaf.place.expand() if words else ()):
            down, up = (f"{path}.{word}" for word in words or ())
            rank, scale = checkpoint.tensors[down].shape[0], leaf.facts["scale"].value
            update = Update(path, down, up, scale, rank, leaf.is_transposed and down.endswith(DOWN[0]))
            found[update.weight] = merged(found[update.weight], found.pop(down), found.pop(up), update)
    return found


def merged(weight: torch.Tensor, down: torch.Tensor, up: torch.Tensor, update: Update) -> torch.Tensor:
    """The weight with its update, summed in float32 and given back in the weight's type."""
    a, b = down.float(), up.float()
    delta = (b.flatten(1) @ a.flatten(1)).reshape(b.shape[0], *a.shape[1:]) * update.scale
    if update.transposed or update.down.endswith(DOWN[1]):
        delta = delta.t()
    return (weight.float() + delta).to(weight.dtype)
