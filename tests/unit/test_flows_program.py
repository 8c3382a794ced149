from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest

from mapper.architecture import Architecture, Block, Fact, Leaf, Place
from mapper.checkpoint import Checkpoint, TensorInfo
from mapper.errors import FlowError
from mapper.flows.flow import parse_flow
from mapper.flows.program import Program, is_dispensable, link, program_of, unused_leaves
from tests.flow_rules import flow_rule, written

LEAF = {"weight": TensorInfo((2, 2), "F32")}


def leaf(place: str) -> Leaf:
    return Leaf(Place(place.split(".")), "Linear", LEAF, "")


def block(role: str, flow: str | None, *, facts: dict[str, Any] | None = None, **roles: Any) -> Block:
    made = Block("other", role, Place((role,)), roles=roles, flow=flow)
    made.facts = {name: Fact(name, value, "*", "rule", "") for name, value in (facts or {}).items()}
    return made


def layers(*flows: str) -> list[Block]:
    """Layers of one Linear each, one for each flow."""
    made = []
    for at, flow in enumerate(flows):
        layer = block("layers", flow, dense=leaf(f"layers.{at}.dense"))
        layer.indices, layer.home = (at,), Place(("layers", (at,)))
        made.append(layer)
    return made


def linked(root: Block, options: dict[str, bool] | None = None, **bodies: str) -> Program:
    """The program of a tree of blocks; `layer_x` is the body of layer/x."""
    flows = {}
    for key, body in bodies.items():
        name = key.replace("_", "/", 1)
        takes = () if key.startswith(("root", "tower")) else ("x",)
        known = ("tower", "layers", "dense", "head", "part")
        flows[name] = parse_flow(flow_rule(body, name, takes=takes, options=known))
    return link(Architecture(Checkpoint("x", "manifest", {}), [], root), flows.__getitem__, options or {})


ROOT = "return output(y=tower())"


def test_a_name_that_nobody_above_assigns_is_an_input_of_the_root() -> None:
    root = block("root", "root/x", tower=block("tower", "tower/x", dense=leaf("dense")))
    program = linked(root, root_x=ROOT, tower_x="return dense(input_ids) + mask")
    assert program.inputs == ["input_ids", "mask"]


def test_an_input_may_be_called_as_an_operation_is() -> None:
    root = block("root", "root/x", tower=block("tower", "tower/x", dense=leaf("dense")))
    program = linked(root, root_x=ROOT, tower_x="return dense(merge_heads(input_ids)) + padding_mask")
    assert program.inputs == ["input_ids", "padding_mask"]


def test_a_name_is_passed_down_from_where_it_is_assigned() -> None:
    tower = block("tower", "tower/x", layers=layers("layer/x"))
    body = "mask = padding_mask(attention_mask)\nx = ids\nfor layer in layers:\n  x = layer(x)\nreturn x"
    program = linked(
        block("root", "root/x", tower=tower), root_x=ROOT, tower_x=body, layer_x="return dense(x, mask)"
    )
    assert program.piece(tower.roles["layers"][0]).context == ["mask"]  # type: ignore[index, arg-type]
    assert program.piece(tower).context == ["attention_mask", "ids"]


def test_an_assignment_that_nobody_below_reads_is_dropped() -> None:
    tower = block("tower", "tower/x", layers=layers("layer/x"))
    body = "mask = padding_mask(attention_mask)\nx = ids\nfor layer in layers:\n  x = layer(x)\nreturn x"
    program = linked(
        block("root", "root/x", tower=tower), root_x=ROOT, tower_x=body, layer_x="return dense(x)"
    )
    assert program.inputs == ["ids"]
    assert not [row for row in written(program.piece(tower).statements) if "mask" in row]


def test_elements_of_a_list_all_take_what_any_of_them_needs() -> None:
    tower = block("tower", "tower/x", layers=layers("layer/x", "layer/y"))
    body = "x = ids\nfor layer in layers:\n  x = layer(x)\nreturn x"
    program = linked(
        block("root", "root/x", tower=tower),
        root_x=ROOT, tower_x=body, layer_x="return dense(x, mask)", layer_y="return dense(x, cos)",
    )  # fmt: skip
    assert [program.piece(each).context for each in tower.roles["layers"]] == [["mask", "cos"]] * 2  # type: ignore[union-attr, arg-type]


def test_a_keyword_in_a_call_is_the_callees_context() -> None:
    tower = block("tower", "tower/x", dense=leaf("dense"))
    root = block("root", "root/x", tower=tower)
    program = linked(
        root, root_x="return output(y=tower(input_ids=decoder_input_ids))", tower_x="return dense(input_ids)"
    )
    assert program.inputs == ["decoder_input_ids"]


def test_the_order_of_inputs_is_that_of_their_first_use() -> None:
    root = block("root", "root/x", tower=block("tower", "tower/x", dense=leaf("dense")), head=leaf("head"))
    program = linked(
        root, root_x="x = tower()\nreturn output(y=head(x, last))", tower_x="return dense(first)"
    )
    assert program.inputs == ["first", "last"]


def test_a_leaf_that_no_statement_reads_is_found() -> None:
    root = block("root", "root/x", tower=block("tower", "tower/x", dense=leaf("dense")), head=leaf("head"))
    program = linked(root, root_x=ROOT, tower_x="y = dense(ids)\nreturn ids")
    assert [str(item.place) for item in unused_leaves(program)] == ["dense", "head"]


def test_a_leaf_of_a_block_further_down_counts_as_read() -> None:
    tower = block("tower", "tower/x", dense=leaf("dense"))
    root = block("root", "root/x", tower=tower)
    program = linked(
        root, root_x="return output(y=F.linear(tower(), tower.dense.weight))", tower_x="return ids"
    )
    assert unused_leaves(program) == []


def test_a_call_of_a_block_without_a_flow_is_an_error() -> None:
    root = block("root", "root/x", tower=block("tower", None, dense=leaf("dense")))
    with pytest.raises(FlowError, match="no flow fits tower at 'tower'"):
        linked(root, root_x=ROOT)


def test_a_role_that_is_not_there_is_an_error_that_says_what_to_guard() -> None:
    with pytest.raises(FlowError, match=r"root/x uses role 'head', which '' lacks, without has\(head\)"):
        root = block("root", "root/x", dense=leaf("dense"))
        root.home = Place()
        linked(root, root_x="return output(y=dense(ids) + head)")


def test_an_unknown_fact_in_a_guard_is_an_error() -> None:
    root = block("root", "root/x", dense=leaf("dense"))
    with pytest.raises(FlowError, match="root/x needs fact kind, which is unknown here"):
        linked(root, root_x="if fact.kind == 'a':\n  return output(y=dense(ids))\nreturn output(y=ids)")


def test_a_guard_takes_the_facts_of_its_own_block() -> None:
    body = "if fact.kind == 'a':\n  return dense(ids)\nreturn ids"
    towers = {
        name: block(name, "tower/x", facts={"kind": kind}, dense=leaf(f"{name}.dense"))
        for name, kind in (("tower", "a"), ("part", "b"))
    }
    root = block("root", "root/x", **towers)
    program = linked(root, root_x="return output(a=tower(), b=part())", tower_x=body)
    assert written(program.piece(towers["tower"]).statements) == ["return dense(ids)"]
    assert written(program.piece(towers["part"]).statements) == ["return ids"]


def test_an_input_is_dispensable_if_only_operations_read_it_that_take_none() -> None:
    root = block("root", "root/x", dense=leaf("dense"))
    taken = linked(root, root_x="mask = padding_mask(attention_mask)\nreturn output(y=dense(ids, mask))")
    assert is_dispensable(taken, "attention_mask")
    assert not is_dispensable(taken, "ids")
    assert not is_dispensable(taken, "unknown")


@pytest.mark.parametrize(
    ("value", "is_asked"),
    [
        ("None if image_sizes is None else image_sizes[:, None] != 0", True),
        ("image_sizes * 2 if image_sizes is not None else ids", True),
        ("image_sizes if attention_mask is None else attention_mask", False),
        ("image_sizes[:, None] != 0", False),
    ],
)
def test_an_input_is_dispensable_if_it_is_said_what_is_done_without_it(value: str, is_asked: bool) -> None:
    root = block("root", "root/x", dense=leaf("dense"))
    taken = linked(root, root_x=f"mask = {value}\nreturn output(y=dense(ids, mask))")
    assert is_dispensable(taken, "image_sizes") is is_asked


def test_states_are_collected_where_the_option_says_so() -> None:
    tower = block("tower", "tower/x", layers=layers("layer/x"))
    root = block("root", "root/x", tower=tower)
    body = "x = ids\nfor layer in layers:\n  x = layer(x)\nreturn x"
    program = linked(root, {"hidden_states": True}, root_x=ROOT, tower_x=body, layer_x="return dense(x)")
    assert (
        written(program.root.statements)[-1] == "return output(y=tower_output, hidden_states=hidden_states)"
    )


def test_a_block_inside_of_one_without_a_flow_can_be_called_from_further_out() -> None:
    inner = block("part", "part/x", dense=leaf("dense"))
    root = block("root", "root/x", tower=block("tower", None, part=inner))
    program = linked(root, part_x="return dense(x)", root_x="return output(y=tower.part(input_ids))")
    assert program.inputs == ["input_ids"]
    assert program.piece(inner).block is inner


def test_what_reading_linked_is_written_unless_an_option_or_other_blocks_ask_for_more() -> None:
    root = block("root", "root/x", tower=block("tower", "tower/x", dense=leaf("dense")))
    flows = {
        name: parse_flow(flow_rule(body, name, options=("tower", "dense")))
        for name, body in (("root/x", ROOT), ("tower/x", "return dense(ids)"))
    }
    architecture = Architecture(Checkpoint("x", "manifest", {}), [], root)
    architecture.program = known = link(architecture, flows.__getitem__, {})
    assert program_of(architecture, flows.__getitem__, {"cache": False}) is known
    assert program_of(architecture, flows.__getitem__, {"cache": True}) is not known
    other = deepcopy(architecture)
    assert program_of(other, flows.__getitem__, {}).piece(other.root).block is other.root
    assert program_of(replace(architecture, root=other.root), flows.__getitem__, {}) is not known
