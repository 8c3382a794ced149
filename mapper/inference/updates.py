"""Low-rank updates beside weights (LoRA): what each is scaled by, which no tensor shows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from mapper.architecture import Fact, Leaf
from mapper.checkpoint import TensorInfo
from mapper.naming.members import UPDATED
from mapper.rulebook.values import shown

SETTINGS = "adapter_config"  # the field of a config that says how the updates beside the weights are scaled
FACT = "adapter.scale"
_ENDINGS = tuple(f".{word}" for word in UPDATED)


def without_updates(tensors: Mapping[str, TensorInfo]) -> dict[str, TensorInfo]:
    """The tensors by whose names an architecture is recognised: an adapter may stand beside any."""
    names = "\n".join(
        (*tensors, "")
    )  # one text: of a hundred thousand names few models have any that ends so
    if not any(f"{ending}\n" in names for ending in _ENDINGS):
        return dict(tensors)
    return {name: info for name, info in tensors.items() if not name.endswith(_ENDINGS)}


def scale(leaves: Iterable[Leaf], config: Mapping[str, Any] | None) -> list[str]:
    """Gives each updated leaf its scale; says of the others why it is not known."""
    said = (config or {}).get(SETTINGS)
    table = said if isinstance(said, Mapping) else {}
    stored = table.get("scales")
    others = stored if isinstance(stored, Mapping) else {}
    unknown = []
    facts: dict[float, Fact] = {}
    for leaf in leaves:
        if not set(UPDATED) & set(leaf.tensors):
            continue
        found = {others.get(str(path), table.get("scale")) for path in leaf.place.expand()}
        value = next(iter(found))
        if len(found) > 1:
            unknown.append(
                f"the updates at {leaf.place} have {len(found)} scales; merge them into the weights (--merge)"
            )
        elif isinstance(value, bool) or not isinstance(value, (int, float)):
            unknown.append(
                f"the scale of the update at {leaf.place} is {shown(value)}; name base and adapter apart (--adapter)"
            )
        else:
            facts.setdefault(
                value, Fact(FACT, float(value), "*", "config", "lora_alpha and r of adapter_config.json")
            )
            leaf.facts["scale"] = facts[value]
    return unknown
