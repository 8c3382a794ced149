"""The public inputs of a model: which of those that the vocabulary declares its flows read, and in what shape."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from mapper.architecture import UNREAD, Block
from mapper.errors import FlowError
from mapper.flows import arithmetic
from mapper.flows.language import dotted, every, is_has, targets
from mapper.flows.program import Program, is_dispensable
from mapper.flows.references import has_role
from mapper.rulebook.facts import InputRule

_WHERE = ("has", "when")  # of what is said of an input: where it holds
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
            raise FlowError(_unassigned(program, name))
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


def _unassigned(program: Program, name: str) -> str:
    """What is wrong where nobody gives a name: a flow that gives it beside roles alone is named, with these."""
    for piece in program.pieces.values():
        roles = list(_giving(piece.flow.statements, name)) if name in piece.context else []
        if roles:
            block, flow = piece.block, piece.flow.rule.name
            return f"no flow fits {block.role} at '{block.home}': {flow} lacks {' or '.join(roles)}"
    readers = (piece for piece in program.pieces.values() if name in piece.flow.free_names)
    reader = next((piece for piece in readers if name in piece.context), program.root)
    where = f" at '{reader.block.home}'" if reader.block.home else ""
    return (
        f"nothing that is read here gives the {name.replace('_', ' ')} that {reader.block.role}{where} takes, "
        f"by {reader.flow.rule.name}"
    )


def _giving(statements: Iterable[ast.stmt], name: str) -> Iterator[str]:
    """The roles that guards ask for around an assignment of a name, those of one guard together."""
    for node in (node for statement in statements for node in every(statement) if isinstance(node, ast.If)):
        roles = [dotted(call.args[0]) or "" for call in every(node.test) if is_has(call)]  # type: ignore[attr-defined]
        given = (
            target
            for part in node.body
            if isinstance(part, ast.Assign)
            for target in targets(part.targets[0])
        )
        if roles and name in given:
            yield " and ".join(roles)


def _of_flows(program: Program, lookup: Lookup) -> dict[str, dict[str, Any]]:
    """What flows say of inputs for themselves; of one that a flow reads under a guard alone, where the guard holds."""
    found: dict[str, dict[str, Any]] = {}
    for piece in program.pieces.values():
        for key, specs in piece.flow.rule.inputs.items():
            spec = next((spec for spec in specs if _holds(spec, piece.block, lookup)), {})
            if spec and (UNREAD in spec or key in piece.context or key not in piece.flow.free_names):
                shape = {"shape": _extents(spec["shape"], piece.block, lookup)} if "shape" in spec else {}
                found[key] = {**{name: said for name, said in spec.items() if name not in _WHERE}, **shape}
    return found


def _holds(spec: Mapping[str, Any], block: Block, lookup: Lookup) -> bool:
    """Whether what is said of an input is said of this block's."""
    return ("has" not in spec or has_role(block, spec["has"])) and all(
        _has_one_of(block, name, values, lookup) for name, values in spec.get("when", {}).items()
    )


def _has_one_of(block: Block, name: str, values: Any, lookup: Lookup) -> bool:
    try:
        return lookup(block, name) in (values if isinstance(values, list) else [values])
    except KeyError:
        return False


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
