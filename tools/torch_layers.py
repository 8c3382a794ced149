"""Trained models with their layers under torch's names, which leave open where the norms stand.

    python tools/torch_layers.py OUT CHECKPOINT...        # folders of tools/train_tiny.py

The layers get the names of `nn.TransformerEncoderLayer`, the same for norms before sub-layers and behind them, and what
stands around them those of tutorials. Nothing is trained: queries, keys and values are joined, maps turned. The truth,
OUT/NAME/truth.json, is the `facts` of the reading with the old names and config; with them as answers the new checkpoint
must give what the old one gives, or it is an error. For tools/evidence_table.py.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from math import isqrt
from pathlib import Path
from typing import Any

import torch
from evidence_table import opened, truly
from safetensors.torch import save_file

from mapper._build import build_architecture
from mapper.architecture import Architecture, Block, Leaf

LAYER = {
    "output": "self_attn.out_proj",
    "up": "linear1",
    "down": "linear2",
    "norm_attention": "norm1",
    "norm_feed_forward": "norm2",
}
AROUND = {
    "token": "embedding",
    "position": "pos_embedding",
    "final_norm": "encoder.norm",
    "class_token": "cls_token",
    "position_table": "pos_embedding",
    "patch": "patch_embedding",
    "classifier": "head",
}
CLOSE = 0.01  # of outputs: the names say torch's own epsilon

Tensors = dict[str, torch.Tensor]
Taken = Callable[[str], Tensors]


def facts_of(whole: Architecture) -> dict[str, Any]:
    return {fact.name: fact.value for fact in whole.facts}


def renamed(whole: Architecture) -> Tensors:
    """The tensors of a model by their new names; what has no other keeps its own."""
    assert whole.checkpoint.read is not None
    facts, found = facts_of(whole), {}
    left = dict(whole.checkpoint.read(list(whole.checkpoint.tensors)))
    for block in (block for block in whole.root.blocks() if block.role == "layers"):
        for at, number in enumerate(block.indices or ()):
            found |= layer(block, at, left, facts, f"encoder.layers.{number}.")
    for leaf in (leaf for leaf in whole.leaves if leaf.role in AROUND):
        for key, name in zip(leaf.keys(), leaf.tensors, strict=True):
            value = left.pop(key)
            if leaf.role == "position":  # some tables have rows before those of the positions
                value = value[len(value) - facts["positions"] :]
            found[".".join(filter(None, (AROUND[str(leaf.role)], name)))] = value
    return {name: value.float().contiguous() for name, value in (found | left).items()}


def layer(block: Block, at: int, left: Tensors, facts: dict[str, Any], prefix: str) -> Tensors:
    """The tensors of one layer, which `left` loses."""
    leaves = {leaf.role: leaf for leaf in block.leaves()}

    def taken(role: str) -> Tensors:
        return turned(leaves[role], [*leaves[role].place.expand()][at], left)

    joint = spread(taken("qkv"), facts) if "qkv" in leaves else joined(taken)
    found = {f"{prefix}self_attn.in_proj_{name}": value for name, value in joint.items()}
    for role, called in LAYER.items():
        found |= {f"{prefix}{called}.{name}": value for name, value in taken(role).items()}
    return found


def turned(leaf: Leaf, path: str, left: Tensors) -> Tensors:
    """The tensors of one instance of a leaf, a map as [out, in]; `left` loses them."""
    own = {name: left.pop(f"{path}.{name}") for name in leaf.tensors}
    return {name: value.T if leaf.is_transposed and value.ndim == 2 else value for name, value in own.items()}


def joined(taken: Taken) -> Tensors:
    """Queries, keys and values behind each other."""
    parts = [taken(role) for role in ("query", "key", "value")]
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}


def spread(joint: Tensors, facts: dict[str, Any]) -> Tensors:
    """The same of a joint map, with a copy for each head of keys and values that all heads share."""
    heads, shared = facts["attention.heads"], facts.get("attention.kv_heads")
    if shared != 1:
        return joint
    found: Tensors = {}
    for name, value in joint.items():
        size = len(value) // (heads + 2)
        query, key, own = value.split([heads * size, size, size])
        found[name] = torch.cat([query, *[key] * heads, *[own] * heads])
    return found


def outputs(whole: Architecture) -> torch.Tensor:
    """What a model gives of inputs that are always the same."""
    random, facts = torch.Generator().manual_seed(0), facts_of(whole)
    model = build_architecture(whole, torch.float32, "cpu")
    with torch.inference_mode():
        if "pixel_values" in whole.inputs:
            side = isqrt(facts["positions"]) * facts["patch_size"]
            return model(pixel_values=torch.randn(2, 3, side, side, generator=random)).logits
        given = model(input_ids=torch.randint(1, facts["vocab_size"], (2, 40), generator=random))
    if hasattr(given, "logits"):
        return given.logits
    table = next(leaf for leaf in whole.leaves if leaf.role == "token")  # no head is stored: it is tied
    return given.last_hidden_state @ whole.checkpoint.read([*table.keys()])[next(table.keys())].float().T


def case(source: str, out: Path) -> None:
    """One model under its new names. Raises ValueError where it is another then."""
    name, checkpoint = opened(source)
    whole = truly(checkpoint)
    (out / name).mkdir(parents=True, exist_ok=True)
    save_file(renamed(whole), out / name / "model.safetensors")
    (out / name / "truth.json").write_text(json.dumps({"facts": facts_of(whole)}))
    again = truly(opened(str(out / name))[1])
    apart = float((outputs(whole) - outputs(again)).abs().max())
    if not apart < CLOSE:
        raise ValueError(f"{name}: outputs differ by {apart}")
    print(f"{name}: {apart:.1e} apart", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("sources", nargs="+")
    options = parser.parse_args()
    for source in options.sources:
        case(source, options.out)


if __name__ == "__main__":
    main()
