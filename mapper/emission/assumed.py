"""What a source that nobody compared rests on without evidence, for its first lines."""

from __future__ import annotations

from typing import Any

from mapper.architecture import Architecture, Fact
from mapper.emission.expressions import comment, literal

_USUAL = "vocabulary/"  # where the defaults stand that hold for all families
_LIKELY = ("weights", "behaviour")  # evidence that is a likelihood
_SHOWN = 12


def assumed(architecture: Architecture) -> str:
    """`Assumed, as nothing here says it: norm.eps = 1e-05 (layer_norm_epsilon, left out: the default of gpt2).`; "" where nothing is, or a type vouches for it.

    What is so of nearly every model unless something says otherwise is left out.
    """
    if architecture.reading != "unverified":
        return ""
    told = [_said(fact) for fact in architecture.facts if _is_assumed(fact)]
    told = list(dict.fromkeys(told))
    more = f" and {len(told) - _SHOWN} more" if len(told) > _SHOWN else ""
    return f"Assumed, as nothing here says it: {', '.join(told[:_SHOWN])}{more}." if told else ""


def _is_assumed(fact: Fact) -> bool:
    if fact.evidence in _LIKELY:
        return True
    is_usual = fact.source.startswith(_USUAL) and not _is_size(fact.value)
    return fact.evidence == "default" and fact.value not in (None, False) and not is_usual


def _is_size(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value not in (0, 1)


def _said(fact: Fact) -> str:
    return comment(f"{fact.name} = {literal(fact.value)} ({fact.source.partition(' (')[0]})")
