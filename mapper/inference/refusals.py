"""Files that hold something beside a model, not one: adapters, the state of an optimizer, one shard of several."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mapper.errors import shorten
from mapper.inference.config import Config

if TYPE_CHECKING:
    from mapper.checkpoint import Checkpoint

_NO_MODEL = ", not a model"  # between what a file holds and what to do about it
_SHOWN = 4  # targets that are named
_LONGEST = 60  # characters of one setting


def holds_only(checkpoint: Checkpoint, config: Config) -> str:
    """What each of the tensors is a part of, with what to do, as the vocabulary says it; "" for those of a model.

    An adapter that says that it is one may have modules of its own beside its maps: a new head, say.
    """
    keys = checkpoint.tensors
    enough = any if checkpoint.adapter is not None else all
    for what, words in config.vocabulary.partial.items():
        tells = frozenset(words)
        if keys and enough(not tells.isdisjoint(key.split(".")) for key in keys):
            return what
    return ""


def what_part(checkpoint: Checkpoint, config: Config, held: str) -> str:
    """`an adapter (LoRA) for gpt2, rank 8, alpha 16, targets c_attn`; "" for what may be a whole model."""
    if checkpoint.what:
        return checkpoint.what
    what, ranks = held.partition(_NO_MODEL)[0], config.vocabulary.ranks
    is_adapter = checkpoint.adapter is not None or any(
        not ranks.keys().isdisjoint(key.split(".")) for key in (checkpoint.tensors if held else ())
    )
    return what + _settings(checkpoint, ranks) if held and is_adapter else what


def _settings(checkpoint: Checkpoint, ranks: dict[str, int]) -> str:
    """The base, rank, alpha and targets of an adapter: as its config says, else as its tensors show."""
    said = checkpoint.adapter or {}
    base, alpha, targets = (
        said.get(name) for name in ("base_model_name_or_path", "lora_alpha", "target_modules")
    )
    of = f" for {_short(base)}" if isinstance(base, str) and base else ""
    shown = []
    rank = _rank(checkpoint, ranks) or said.get("r")
    shown += [f"rank {rank}"] if rank else []
    if isinstance(alpha, (int, float)):
        shown.append(f"alpha {alpha:g}")
    elif any(key.rpartition(".")[2] == "alpha" for key in checkpoint.tensors):
        shown.append("alpha among its tensors")
    names = targets if isinstance(targets, list) else _targets(checkpoint, ranks)
    if isinstance(targets, str):
        shown.append(f"targets {_short(targets)}")
    elif names:
        shown.append(f"targets {_several(sorted(map(str, names)))}")
    return ", ".join([of, *shown])


def _short(text: str) -> str:
    return shorten(text, _LONGEST)[1:-1]


def _several(names: list[str]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(map(_short, names[:_SHOWN])) + (f" and {more} more" if more > 0 else "")


def _rank(checkpoint: Checkpoint, ranks: dict[str, int]) -> str:
    """The rank that the shapes show: one, or the least and the most."""
    found: set[int] = set()
    for key, info in checkpoint.tensors.items():
        for word in set(key.split(".")) & ranks.keys():
            if len(info.shape) > ranks[word]:
                found.add(info.shape[ranks[word]])
    if not found:
        return ""
    return str(min(found)) if len(found) == 1 else f"{min(found)} to {max(found)}"


def _targets(checkpoint: Checkpoint, ranks: dict[str, int]) -> set[str]:
    """The last words of the modules that are adapted."""
    found: set[str] = set()
    for key in checkpoint.tensors:
        words = key.split(".")
        at = next((at for at, word in enumerate(words) if word in ranks), 0)
        while at and words[at - 1].isdigit():
            at -= 1
        if at:
            found.add(words[at - 1])
    return found
