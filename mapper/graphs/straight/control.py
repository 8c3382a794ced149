"""Branches and loops of a graph as Python's own. Nothing is run while it is written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from mapper.errors import ArchitectureError
from mapper.graphs.graph import Graph, Node
from mapper.graphs.straight.values import Held, text_of

if TYPE_CHECKING:
    from mapper.graphs.straight.writer import Writer


def _graph(writer: Writer, node: Node, name: str) -> Graph:
    found = node.attributes.get(name)
    if not isinstance(found, Graph):
        raise ArchitectureError(f"{writer.source}: {node} has no graph {name!r}")
    return found


def _bound(writer: Writer, inner: Graph, held: list[Held]) -> list[Held]:
    """Write a graph with its inputs bound; names in it do not outlive it."""
    around = dict(writer.held)
    for value, given in zip(inner.inputs, held, strict=True):
        writer.held[value.name] = given
    found = writer.graph(inner)
    writer.held = around
    return found


_SIGNS = {"Equal": ("==", "!="), "Less": ("<", ">="), "Greater": (">", "<=")}  # and their opposites


def _condition(held: Held, is_opposite: bool = False) -> str:
    """A condition as Python's own, where it compares sizes or is a constant."""
    made = held.made
    if made is not None and made.of("Not") and made.inputs[0] is not None:
        return _condition(made.inputs[0], not is_opposite)
    if made is not None and made.of("Cast") and made.inputs[0] is not None and made.inputs[0].dtype == "BOOL":
        return _condition(made.inputs[0], is_opposite)
    sides = (
        [one.items for one in made.inputs if one is not None and one.items is not None]
        if made is not None
        else []
    )
    if made is not None and len(sides) == len(made.inputs) and all(map(_is_one, sides)):
        if made.of(*_SIGNS) and len(sides) == 2:
            return f"{sides[0][0]} {_SIGNS[made.node.operator][is_opposite]} {sides[1][0]}"
        if made.of("Cast") and sides[0][0].removeprefix("-").isdigit() and held.dtype == "BOOL":
            return str((int(sides[0][0]) != 0) != is_opposite)
    return f"not {text_of(held)}" if is_opposite else text_of(held)


def _is_one(items: tuple[str, ...]) -> bool:
    return len(items) == 1 and not items[0].startswith("*")


def write_if(writer: Writer, node: Node) -> None:
    """One of two graphs."""
    condition = writer.input(node.inputs[0])
    assert condition is not None
    names = [writer.variable(_word(writer, node, place)) for place in range(len(node.outputs))]
    writer.say(f"if {_condition(condition)}:")
    given: list[list[Held]] = []
    for branch in ("then_branch", "else_branch"):
        if branch == "else_branch":
            writer.say("else:")
        writer.indent += 1
        found = _bound(writer, _graph(writer, node, branch), [])
        if len(found) != len(names):
            raise ArchitectureError(
                f"{writer.source}: the branches of an If have another number of outputs than it has"
            )
        for name, held in zip(names, found, strict=True):
            writer.say(f"{name} = {text_of(held)}")
        if not names:
            writer.say("pass")
        writer.indent -= 1
        given.append(found)
    for value, name, one, other in zip(node.outputs, names, *given, strict=True):
        writer.held[value] = _either(name, one, other)


def _word(writer: Writer, node: Node, place: int) -> str:
    """What a value of two branches is called: for what makes it in one of them."""
    for branch in (value for value in node.attributes.values() if isinstance(value, Graph)):
        name = branch.outputs[place].name if place < len(branch.outputs) else ""
        for inner in reversed(branch.nodes):
            if name in inner.outputs and inner.operator == "Identity":
                name = inner.inputs[0]
            elif name in inner.outputs and name:
                is_branch = inner.operator == "If" and not inner.domain
                at = inner.outputs.index(name)
                return _word(writer, inner, at) if is_branch else writer.word_of(name, inner)
    return "chosen"


def _either(name: str, one: Held, other: Held) -> Held:
    """A variable with what is known of both values that it may have."""
    shapes = one.known_shape, other.known_shape
    is_same = None not in shapes and len(shapes[0] or ()) == len(shapes[1] or ())
    shape = tuple(
        size if size == beside and isinstance(size, int) else None
        for size, beside in zip(shapes[0] or (), shapes[1] or (), strict=False)
    )
    return Held(
        name,
        dtype=one.dtype if one.dtype == other.dtype else None,
        rank=len(shape) if is_same else None,
        shape=shape if is_same else None,
    )


def _carried(writer: Writer, node: Node, values: list[str], inner: Graph, first: int) -> list[str]:
    """Variables of what a loop hands on, with their first values."""
    names = []
    for place, value in enumerate(values):
        held = writer.input(value)
        name = writer.variable(writer.word_of(inner.inputs[first + place].name, node))
        writer.say(f"{name} = {text_of(held) if held is not None else None}")
        names.append(name)
    return names


def write_loop(writer: Writer, node: Node) -> None:
    """As often as is said, while a condition holds."""
    body = _graph(writer, node, "body")
    limit, going = (writer.input(name) for name in [*node.inputs, "", ""][:2])
    carried = _carried(writer, node, node.inputs[2:], body, 2)
    collected = [writer.variable("collected") for _ in node.outputs[len(carried) :]]
    for name in collected:
        writer.say(f"{name} = []")
    step, on = writer.variable("step"), writer.variable("going")
    writer.say(f"{step}, {on} = 0, {text_of(going) if going is not None else True}")
    bound = "" if limit is None else f"{step} < {limit.as_python() if limit.is_sizes else limit.text} and "
    writer.say(f"while {bound}{on}:")
    writer.indent += 1
    now = writer.variable("index")
    writer.say(f"{now} = torch.tensor({step})")
    inputs = [
        Held(now, dtype="I64", rank=0),
        Held(on, dtype="BOOL", rank=0),
        *(Held(name, dtype=one.dtype) for name, one in zip(carried, body.inputs[2:], strict=False)),
    ]
    if len(inputs) != len(body.inputs) or len(body.outputs) != 1 + len(carried) + len(collected):
        raise ArchitectureError(
            f"{writer.source}: the body of a Loop has another number of values than it has"
        )
    writer.say(f"{on} = torch.as_tensor({on})")
    found = [text_of(held) for held in _bound(writer, body, inputs)]
    for name, text in zip(collected, found[1 + len(carried) :], strict=True):
        writer.say(f"{name}.append({text})")
    writer.say(f"{', '.join([on, *carried])} = {', '.join(found[: 1 + len(carried)])}")
    writer.say(f"{step} += 1")
    writer.indent -= 1
    _hand_out(
        writer,
        node,
        body,
        carried,
        [f"torch.stack({name}) if {name} else torch.zeros(0)" for name in collected],
    )


def _hand_out(writer: Writer, node: Node, body: Graph, carried: list[str], stacked: list[str]) -> None:
    """What a loop gives: `carried` are the last of the values of its body that `stacked` does not gather."""
    last = body.outputs[len(body.outputs) - len(carried) - len(stacked) :]
    for value, name, said in zip(node.outputs, carried, last, strict=False):
        writer.held[value] = Held(name, dtype=said.dtype)
    for value, text in zip(node.outputs[len(carried) :], stacked, strict=True):
        name = writer.variable(writer.word_of(value, node))
        writer.say(f"{name} = {text}")
        writer.held[value] = Held(name)


def _numbers(node: Node, name: str, count: int) -> list[int]:
    said = node.attributes.get(name)
    return [item for item in said if isinstance(item, int)] if isinstance(said, list) else [0] * count


def write_scan(writer: Writer, node: Node) -> None:
    """Once for each slice of its inputs."""
    body, count = _graph(writer, node, "body"), node.attributes.get("num_scan_inputs")
    states = len(node.inputs) - (count if isinstance(count, int) else 0)
    scanned = [text_of(held) for held in map(writer.input, node.inputs[states:]) if held is not None]
    if (
        not isinstance(count, int)
        or not 1 <= count <= len(node.inputs)
        or len(body.inputs) != len(node.inputs)
        or len(body.outputs) != len(node.outputs)
    ):
        raise ArchitectureError(
            f"{writer.source}: the body of a Scan has another number of values than it has"
        )
    carried = _carried(writer, node, node.inputs[:states], body, 0)
    collected = [writer.variable("collected") for _ in node.outputs[states:]]
    for name in collected:
        writer.say(f"{name} = []")
    axes, step = _numbers(node, "scan_input_axes", count), writer.variable("step")
    writer.say(f"for {step} in range({scanned[0]}.shape[{axes[0]}]):")
    writer.indent += 1
    slices = _sliced(writer, node, body, scanned, step)
    found = [text_of(held) for held in _bound(writer, body, [Held(name) for name in [*carried, *slices]])]
    for name, text in zip(collected, found[states:], strict=True):
        writer.say(f"{name}.append({text})")
    if carried:
        writer.say(f"{', '.join(carried)} = {', '.join(found[:states])}")
    writer.indent -= 1
    _hand_out(writer, node, body, carried, _stacked(node, collected))


def _sliced(writer: Writer, node: Node, body: Graph, scanned: Sequence[str], step: str) -> list[str]:
    """The names of what one step of a Scan reads of each of its last inputs."""
    axes = _numbers(node, "scan_input_axes", len(scanned))
    ways = _numbers(node, "scan_input_directions", len(scanned))
    names = []
    for given, text, axis, way in zip(body.inputs[-len(scanned) :], scanned, axes, ways, strict=True):
        names.append(writer.variable(writer.word_of(given.name, node)))
        at = f"{text}.shape[{axis}] - 1 - {step}" if way else step
        writer.say(f"{names[-1]} = {text}.select({axis}, {at})")
    return names


def _stacked(node: Node, collected: Sequence[str]) -> list[str]:
    """What all steps of a Scan gave, as one tensor each."""
    axes = _numbers(node, "scan_output_axes", len(collected))
    ways = _numbers(node, "scan_output_directions", len(collected))
    return [
        f"torch.stack({name}{'[::-1]' if way else ''}, {axis})"
        for name, axis, way in zip(collected, axes, ways, strict=True)
    ]


def write_sequence_map(writer: Writer, node: Node) -> None:
    """Once for each item of a list; what else is a list is taken item by item beside it."""
    body = _graph(writer, node, "body")
    given = [text_of(held) for held in map(writer.input, node.inputs) if held is not None]
    if len(body.inputs) != len(given) or len(body.outputs) != len(node.outputs):
        raise ArchitectureError(
            f"{writer.source}: the body of a SequenceMap has another number of values than it has"
        )
    names = [writer.variable(writer.word_of(value, node)) for value in node.outputs]
    for name in names:
        writer.say(f"{name} = []")
    step = writer.variable("step")
    writer.say(f"for {step} in range(len({given[0]})):")
    writer.indent += 1
    items = [f"{given[0]}[{step}]"]
    items += [f"{text}[{step}] if isinstance({text}, list) else {text}" for text in given[1:]]
    held = []
    for value, text in zip(body.inputs, items, strict=True):
        held.append(Held(writer.variable(writer.word_of(value.name, node)), dtype=value.dtype))
        writer.say(f"{held[-1].text} = {text}")
    for name, found in zip(names, _bound(writer, body, held), strict=True):
        writer.say(f"{name}.append({text_of(found)})")
    writer.indent -= 1
    writer.held |= {value: Held(name) for value, name in zip(node.outputs, names, strict=True)}


WRITTEN: dict[str, Callable[[Writer, Node], None]] = {
    "If": write_if, "Loop": write_loop, "Scan": write_scan, "SequenceMap": write_sequence_map
}  # fmt: skip
