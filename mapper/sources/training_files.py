"""What training code saves in one file: which of its tables are models, and which are the rest of a run.

A table is told by what it is, not by what it is called: an optimizer's has `param_groups` or moments for each parameter,
a model's has tensors under the names of modules.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from mapper.sources.pickles import Opaque, StoredTensor

# Under which names training code keeps the weights, the most telling first.
WRAPPERS = (
    "state_dict", "model_state_dict", "model_state", "model", "module", "net", "network", "params_ema", "params", "weights",
    "ema",
)  # fmt: skip
# What an optimizer keeps for each parameter.
MOMENTS = frozenset((
    "exp_avg", "exp_avg_sq", "max_exp_avg_sq", "exp_avg_diff", "exp_avg_sq_row", "exp_avg_sq_col", "exp_avg_var", "exp_inf",
    "momentum_buffer", "square_avg", "grad_avg", "acc_delta", "slow_buffer", "state1", "state2",
))  # fmt: skip
SCHEDULE = frozenset(("last_epoch", "_step_count", "base_lrs", "_last_lr"))
SCALER = frozenset(
    ("growth_factor", "backoff_factor", "growth_interval", "growth_tracker", "_growth_tracker")
)
UNNAMED = frozenset(
    ("shadow_params", "collected_params")
)  # averages in the order of parameters, without their names
RANDOM = ("rng", "random")
AVERAGES = ("ema", "swa", "average", "averaged", "averages", "shadow")
DEPTH = 4  # tables within tables that are looked into for models
OTHERS = 16  # models beside the one that is read: more are not named
LOOKED_AT = 100_000  # entries that are looked at to tell what tables are: with more, all of them are models

OPTIMIZER, RUN = "optimizer", "run"  # kinds of tables that are no model


class Model(NamedTuple):
    """A table with the tensors of one model, and the words that lead to it."""

    path: tuple[str, ...]
    table: Any

    @property
    def name(self) -> str:
        return ".".join(self.path)

    @property
    def is_average(self) -> bool:
        """Whether its name says that its weights are averages of another's."""
        return any(part in AVERAGES for word in self.path for part in word.lower().split("_"))


class Found(NamedTuple):
    """Which models a file is read as, together, and the others, each a model of its own."""

    read: list[Model]
    others: list[Model]


def find_models(value: Any) -> Found:
    """The models in what was saved. Several that are of one rank are read together, each under its name."""
    models = list(_Search().models(value, (), DEPTH))
    if len(models) < 2:
        return Found(models, [])
    first = min(models, key=_rank)
    if first.path[-1] in WRAPPERS[:-1]:
        return Found([first], [model for model in models if model is not first][:OTHERS])
    own = [model for model in models if not model.is_average] or [first]
    return Found(own, [model for model in models if model.is_average and model is not first][:OTHERS])


def without_state(table: Any) -> Any:
    """A model's table without those in it that an optimizer keeps."""
    search = _Search()
    if not isinstance(table, dict):
        return table
    return {key: item for key, item in table.items() if search.kind(key, item) != OPTIMIZER}


def items(table: Any) -> Iterable[tuple[Any, Any]]:
    return table.items() if isinstance(table, dict) else enumerate(table)


def is_tensor(item: Any) -> bool:
    return isinstance(item, StoredTensor) or (isinstance(item, Opaque) and bool(item.unread))


def is_table(item: Any) -> bool:
    return isinstance(item, (dict, list, tuple)) and not isinstance(item, StoredTensor)


def _rank(model: Model) -> tuple[bool, int]:
    word = model.path[-1]
    return model.is_average and word not in WRAPPERS[:-1], WRAPPERS.index(word) if word in WRAPPERS else len(
        WRAPPERS
    )


class _Search:
    """Looks at each entry once for each question, and at so many in all: a table may hold another many times over."""

    def __init__(self) -> None:
        self.left = LOOKED_AT
        self.known: dict[tuple[str, int], str] = {}

    def models(self, item: Any, path: tuple[str, ...], depth: int) -> Iterator[Model]:
        """The models at a table or below it: itself, where what it holds is not a model for itself."""
        held = list(items(item)) if is_table(item) else []
        tables = [(key, inner) for key, inner in held if is_table(inner) and self.has_tensor(inner)]
        loose = [(str(key), inner) for key, inner in held if is_tensor(inner)]
        kinds = [self.kind(key, inner) for key, inner in tables]
        rest = [pair for pair, kind in zip(tables, kinds, strict=True) if not kind]
        if rest and depth and _is_of_a_run(loose, rest, kinds):
            for key, inner in rest:
                yield from self.models(inner, (*path, str(key)), depth - 1)
        elif rest or any(_is_weight(tensor) for _, tensor in loose) or not kinds:
            yield Model(path, item)

    def kind(self, key: Any, item: Any, depth: int = DEPTH) -> str:
        """OPTIMIZER, RUN for all else that is no model (schedules, scalers, random numbers, single values), or ""."""
        if not is_table(item) or self.left <= 0:
            return ""
        known = (str(key), id(item))
        if known not in self.known:
            self.left -= len(item)
            self.known[known] = self._kind(str(key), item, depth)
        return self.known[known]

    def _kind(self, key: str, item: Any, depth: int) -> str:
        if _is_optimizer(item):
            return OPTIMIZER
        words = {word for word in item if isinstance(word, str)} if isinstance(item, dict) else set()
        if words & SCHEDULE or len(words & SCALER) > 1 or words & UNNAMED:
            return RUN
        if key not in WRAPPERS and not any(map(_is_weight, self.tensors(item))) and self.left > 0:
            return RUN
        if any(word in key.lower() for word in RANDOM) and all(map(_is_bytes, self.tensors(item))):
            return RUN
        if not depth or any(is_tensor(below) for _, below in items(item)):
            return ""
        inner = [self.kind(word, below, depth - 1) for word, below in items(item) if is_table(below)]
        return OPTIMIZER if OPTIMIZER in inner and all(inner) else ""

    def has_tensor(self, table: Any) -> bool:
        return self.left <= 0 or next(self.tensors(table), None) is not None

    def tensors(self, table: Any) -> Iterator[Any]:
        """The tensors below a table."""
        waiting, seen = [table], {id(table)}
        while waiting and self.left > 0:
            for _, item in items(waiting.pop()):
                self.left -= 1
                if is_tensor(item):
                    yield item
                elif is_table(item) and id(item) not in seen:
                    seen.add(id(item))
                    waiting.append(item)


def _is_optimizer(item: Any) -> bool:
    """Whether a table is what an optimizer's `state_dict()` gives, or the moments in it."""
    if not isinstance(item, dict):
        return False
    groups = item.get("param_groups")
    if isinstance(groups, (list, tuple)) and any(isinstance(group, dict) for group in groups):
        return True
    return _are_moments(item) or _are_moments(item.get("state"))


def _are_moments(item: Any) -> bool:
    """Whether a table holds moments for each parameter: in a table of its own, or as the last word of a name."""
    if not isinstance(item, dict) or not item:
        return False
    inner = [value for value in item.values() if isinstance(value, dict)]
    if inner:
        return all(any(word in MOMENTS for word in value) or not value for value in inner) and any(inner)
    tensors = [key for key, value in item.items() if is_tensor(value)]
    last = [key.rpartition(".")[2] for key in tensors if isinstance(key, str)]
    return (
        bool(last)
        and len(last) == len(tensors)
        and any(word in MOMENTS for word in last)
        and all(word in MOMENTS or word == "step" for word in last)
    )


def _is_of_a_run(loose: list[tuple[str, Any]], rest: list[tuple[Any, Any]], kinds: list[str]) -> bool:
    """Whether a table holds models beside what a run keeps, and is no model itself: a loss has no module's name."""
    if any("." in key for key, _ in loose):
        return False
    if OPTIMIZER in kinds:
        return True
    is_wrapped = any(key in WRAPPERS for key, _ in rest)
    are_named = any(_is_state_dict(table) for _, table in rest)
    return (is_wrapped or are_named) and not any(len(_shape(tensor)) > 1 for _, tensor in loose)


def _is_state_dict(table: Any) -> bool:
    """Whether a table has tensors under the names of modules within modules."""
    return isinstance(table, Mapping) and any(
        isinstance(key, str) and "." in key and is_tensor(item) for key, item in table.items()
    )


def _shape(tensor: Any) -> tuple[int, ...]:
    return (
        tensor.shape if isinstance(tensor, StoredTensor) else (0, 0)
    )  # of what is not read, nobody knows it


def _is_weight(tensor: Any) -> bool:
    """Whether it may be a parameter: more than one number."""
    return any(extent != 1 for extent in _shape(tensor))


def _is_bytes(tensor: Any) -> bool:
    return isinstance(tensor, StoredTensor) and tensor.dtype == "U8" and len(tensor.shape) == 1
