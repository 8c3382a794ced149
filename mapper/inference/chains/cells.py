"""A recurrent cell that is put together of linear layers: each step calls them with the state of the last.

Either one map reads the input and another the state, or each reads both side by side; with four of them, the gates of an LSTM.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from mapper.architecture import Leaf
from mapper.inference.chains.activations import activation_of
from mapper.inference.chains.between import IDS, INPUT, Between, Written
from mapper.inference.chains.elements import EMBEDDING, LINEAR, Element, roles_by_number
from mapper.inference.chains.links import ROWS, START, Data, Link
from mapper.rulebook.chain import ChainWords
from mapper.words import parts

if TYPE_CHECKING:
    from mapper.inference.chains.answers import Answers
    from mapper.rulebook.facts import ActivationRule

LSTM_NOTE = "maps of four gates are taken for an LSTM's: three of them through a sigmoid, the candidate and the state through tanh"
_GATES = "ifgo"  # of an LSTM: input, forget, candidate, output
_ENDS = re.compile(r"(.*?)_?([a-z])")  # a letter behind what maps of one kind share
_ORDERS = ("input_first", "state_first")
_POSITIONS = ("all", "last", "mean", "max")


@dataclass(frozen=True)
class Cell:
    """The layers of such a network."""

    entering: tuple[Element, ...]  # maps of the input to the state, one or one for each gate
    keeping: tuple[Element, ...]  # maps of the state to the next one; none where the others read both
    giving: tuple[Element, ...]  # a map to the output that reads both side by side
    behind: tuple[Element, ...]  # linear layers that read the states, one after the other
    tables: tuple[Element, ...]  # an embedding of what is read
    rest: tuple[Leaf, ...]

    @property
    def state(self) -> int:
        """How wide the state is."""
        return self.entering[0].outputs

    @property
    def is_gated(self) -> bool:
        """Whether there is a map for each gate."""
        return len(self.entering) > 1

    @property
    def inputs(self) -> int:
        """How many features each step reads."""
        return self.entering[0].inputs - (0 if self.keeping else self.state)

    def elements(self) -> Iterator[Element]:
        yield from (*self.tables, *self.entering, *self.keeping, *self.giving, *self.behind)

    def roles(self) -> list[str]:
        """`linear_1`, `linear_2`: what each is, by number."""
        return roles_by_number(self.elements())

    def leaves(self) -> list[Leaf]:
        """Every leaf, those of the network with their roles."""
        pairs = zip(self.elements(), self.roles(), strict=True)
        return [*(replace(element.leaf, role=role, facts={}) for element, role in pairs), *self.rest]


def cell_of(elements: Sequence[Element], rest: Sequence[Leaf], words: ChainWords) -> Cell | None:
    """The cell that linear layers are by their names and sizes; None for others."""
    linear = [element for element in elements if element.group == LINEAR]
    tables = tuple(element for element in elements if element.group == EMBEDDING)
    if len(linear) + len(tables) < len(elements) or len(tables) > 1:
        return None
    found = _gated(linear, words) or _plain(linear, words)
    if found is None:
        return None
    taken = {id(element) for group in found for element in group}
    behind = [element for element in linear if id(element) not in taken]
    cell = Cell(*found, tuple(behind), tables, tuple(rest))
    widths = [cell.state, *(element.outputs for element in behind)]
    is_line = all(element.inputs == width for element, width in zip(behind, widths, strict=False))
    reads_rows = not tables or tables[0].outputs == cell.inputs
    return cell if is_line and reads_rows and cell.inputs > 0 and not (cell.giving and behind) else None


Roles = Callable[[Sequence[Element]], list[str]]  # variables of layers
Maps = tuple[tuple[Element, ...], tuple[Element, ...], tuple[Element, ...]]


def has_gates(elements: Sequence[Element], words: ChainWords) -> bool:
    """Whether some maps are called as the four gates of a cell are: they stand side by side."""
    return bool(_groups([element for element in elements if element.group == LINEAR], words))


def _groups(linear: Sequence[Element], words: ChainWords) -> dict[str, tuple[Element, ...]]:
    """Maps of four gates, in order, by what they share in their names."""
    stems: dict[str, dict[str, Element]] = {}
    for element in linear:
        if named := _gate(element, words):
            stems.setdefault(named[0], {})[named[1]] = element
    whole = {stem: gates for stem, gates in stems.items() if set(gates) == set(_GATES)}
    return {stem: tuple(gates[letter] for letter in _GATES) for stem, gates in whole.items()}


def _gated(linear: Sequence[Element], words: ChainWords) -> Maps | None:
    """Maps of four gates: of the input and of the state, or of both side by side."""
    groups = _groups(linear, words)
    if any(len({(each.inputs, each.outputs) for each in group}) > 1 for group in groups.values()):
        return None
    firsts = {stem: group[0] for stem, group in groups.items()}
    if len(groups) == 1 and all(first.inputs > first.outputs for first in firsts.values()):
        return next(iter(groups.values())), (), ()
    square = [stem for stem, first in firsts.items() if first.inputs == first.outputs]
    if len(square) > 1:  # no size shows which of them reads the state, but a letter may
        square = [stem for stem in square if stem.lower().rstrip("_")[-1:] in words.gates_of_state]
    if len(groups) != 2 or len(square) != 1 or len({first.outputs for first in firsts.values()}) > 1:
        return None
    keeping = groups[square[0]]
    return next(group for group in groups.values() if group is not keeping), keeping, ()


def _gate(element: Element, words: ChainWords) -> tuple[str, str] | None:
    """What maps of one kind share in their names, and the letter of the gate: `forget_gate`, `W_f`."""
    name = str(element.leaf.place[-1])
    word = next((word for word in words.gates if word in parts(name) and len(word) > 1), "")
    if word and ("gate" in name or words.gates[word] == "g"):
        return "", words.gates[word]
    found = _ENDS.fullmatch(name)
    return (found[1], words.gates[found[2]]) if found and found[2] in words.gates else None


def _plain(linear: Sequence[Element], words: ChainWords) -> Maps | None:
    """One map of the input and one of the state, or one of both side by side, and maybe one to the output beside."""
    entering = [element for element in linear if _is_called(element, words.cell_input)]
    keeping = [element for element in linear if _is_called(element, words.cell_state)]
    if len(entering) != 1:
        return None
    (first,) = entering
    if keeping:
        (last, *others) = keeping
        fits = last.inputs == last.outputs == first.outputs and not others
        return ((first,), (last,), ()) if fits else None
    giving = [element for element in linear if element.inputs == first.inputs and element is not first]
    is_both = first.inputs > first.outputs and len(giving) <= 1
    return ((first,), (), tuple(giving)) if is_both else None


def _is_called(element: Element, words: set[str]) -> bool:
    return not words.isdisjoint(parts(str(element.leaf.place[-1])))


def write_cell(
    cell: Cell, leaves: Sequence[Leaf], answers: Answers, activations: dict[str, ActivationRule]
) -> tuple[Written, dict[str, list[dict[str, Any]]]]:
    """The statements, and the shape of the input; `leaves` are those of the cell as the blocks have them."""
    own = iter(leaves)
    elements = [replace(element, leaf=next(own)) for element in cell.elements()]
    links = [Link(element, Data(START), Data(ROWS, element.outputs)) for element in elements]
    between = Between(links, cell.roles(), answers, activations)
    by_old = dict(zip(map(id, cell.elements()), zip(elements, cell.roles(), strict=True), strict=True))

    def roles(group: Sequence[Element]) -> list[str]:
        return [by_old[id(element)][1] for element in group]

    first = by_old[id(cell.entering[0])][0].leaf
    between.name = f"{roles(cell.tables)[0]}({IDS})" if cell.tables else INPUT
    _write_steps(between, cell, first, roles)
    last = links[-1]
    for number, element in enumerate(cell.behind):
        if number:
            value = answers.find(by_old[id(cell.behind[number - 1])][0].leaf, "chain.activation")
            between.say(
                activation_of(value, between.tables["activation"], activations)
                if value not in (None, "none")
                else "x"
            )
        between.say(f"{by_old[id(element)][1]}(x)")
    between.output(last)
    between.add("return output(output=x)")
    inputs = {} if cell.tables else {INPUT: [{"shape": ["batch", "length", cell.inputs]}]}
    return between.written, inputs


def _write_steps(between: Between, cell: Cell, leaf: Leaf, roles: Roles) -> None:
    """The loop over all positions, and what is read of its states."""
    between.add(f"x = {between.name}")
    between.add(f"hidden = x.new_zeros(x.shape[0], {cell.state})")
    if cell.is_gated:
        between.add("memory = hidden")
    between.add("states = []")
    body = _step(between, cell, leaf, roles)
    between.add("for step in x.unbind(1):")
    for line in body:
        between.add(f"    {line}")
    between.add("x = torch.stack(states, dim=1)")
    between.name, between.is_sequence = "x", True
    value = between.answers.find(leaf, "chain.positions", among=_POSITIONS)
    if value is not None and value not in _POSITIONS:
        raise between.answers.refuse(
            leaf, "chain.positions", value, f"possible here: {', '.join(_POSITIONS)}"
        )
    between.say(between.tables["positions"][value] if value else "x")


def _step(between: Between, cell: Cell, leaf: Leaf, roles: Roles) -> list[str]:
    """The statements of one step."""
    maps = _maps(cell, roles)
    body = []
    if not cell.keeping:
        order = between.answers.find(leaf, "chain.joined", among=_ORDERS)
        if order not in (None, *_ORDERS):
            raise between.answers.refuse(leaf, "chain.joined", str(order), f"allowed: {', '.join(_ORDERS)}")
        both = "hidden, step" if order == _ORDERS[1] else "step, hidden"
        body.append(f"both = torch.cat(({both}), dim=-1)")
    if cell.giving:
        body.append(f"states.append({roles(cell.giving)[0]}(both))")
    if cell.is_gated:
        i, f, g, o = maps
        body.append(f"memory = torch.sigmoid({f}) * memory + torch.sigmoid({i}) * torch.tanh({g})")
        body.append(f"hidden = torch.sigmoid({o}) * torch.tanh(memory)")
    else:
        value = between.answers.find(leaf, "chain.recurrent_activation", among=("tanh", "relu", "none"))
        text = activation_of(value, between.tables["activation"], between.activations) if value else ""
        body.append("hidden = " + (re.sub(r"\bx\b", f"({maps[0]})", text) if text else maps[0]))
    return body if cell.giving else [*body, "states.append(hidden)"]


def _maps(cell: Cell, roles: Roles) -> list[str]:
    """What each map, or both of a gate, give of one step."""
    if cell.keeping:
        pairs = zip(roles(cell.entering), roles(cell.keeping), strict=True)
        return [f"{one}(step) + {other}(hidden)" for one, other in pairs]
    return [f"{role}(both)" for role in roles(cell.entering)]
