"""The public inputs of a model: which of those that the vocabulary declares its flows read, and in what shape."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from mapper.architecture import UNREAD, Block
from mapper.errors import FlowError
from mapper.flows import arithmetic
from mapper.flows.program import Program, is_dispensable
from mapper.rulebook.facts import InputRule

Lookup = Callable[[Block, str], Any]  # a fact of a block; KeyError where nothing is known of it


def public_inputs(
    program: Program, declared: Mapping[str, InputRule], lookup: Lookup, has_types: bool = False
) -> dict[str, dict[str, Any]]:
    """Each input in the order of the vocabulary. FlowError for a name that it does not declare.

    Of a family that lists types (`has_types`) checkpoints are whole: vectors stand for no words there.

    Besides those that the flows read, those that they say are taken and not read (`unread`).
    """
    names = program.inputs
    for name in names:
        if name not in declared:
            raise FlowError(
                f"{name!r} is assigned by no flow above and is no input that vocabulary/inputs.yaml declares"
            )
        if has_types and declared[name].unlisted:
            raise FlowError(
                f"the layers read {declared[name].doc}, and no tensor of the checkpoint gives them"
            )
    own = _of_flows(program, lookup)
    idle = {name for name, spec in own.items() if UNREAD in spec and name not in names}
    return {
        name: {
            "shape": list(rule.shape),
            "dtype": rule.dtype,
            "optional": rule.optional or name in idle or is_dispensable(program, name),
            **({"made_up": list(rule.made_up)} if rule.made_up else {}),
            **{key: value for key, value in own.get(name, {}).items() if key != UNREAD or name in idle},
        }
        for name, rule in declared.items()
        if name in names or name in idle
    }


def _of_flows(program: Program, lookup: Lookup) -> dict[str, dict[str, Any]]:
    """What flows say of inputs for themselves; of one that a flow reads under a guard alone, where the guard holds."""
    return {
        key: {**spec, **({"shape": _extents(spec["shape"], piece.block, lookup)} if "shape" in spec else {})}
        for piece in program.pieces.values()
        for key, spec in piece.flow.rule.inputs.items()
        if UNREAD in spec or key in piece.context or key not in piece.flow.free_names
    }


def _extents(shape: Iterable[Any], block: Block, lookup: Lookup) -> list[Any]:
    """A shape in which what is known of the block stands as numbers."""
    found: list[Any] = []
    for extent in shape:
        node = arithmetic.parse(str(extent))
        try:
            known = {name: lookup(block, name) for name in arithmetic.names(node)}
        except KeyError:
            found.append(extent)
        else:
            found.append(arithmetic.evaluate(node, known))
    return found
