"""A network that is no chain: layers that read several others, or inputs of their own. What sizes and names leave open is asked."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from mapper.architecture import Leaf
from mapper.errors import HintError, shorten
from mapper.inference.chains.activations import activation_of
from mapper.inference.chains.answers import Answers
from mapper.inference.chains.bare import bare_values, meant, unread
from mapper.inference.chains.between import Between
from mapper.inference.chains.combined import BARE, EACH, Reader, does_not_read, in_positions
from mapper.inference.chains.elements import (
    CONVOLUTION,
    EMBEDDING,
    LINEAR,
    NORM,
    RECURRENT,
)
from mapper.inference.chains.ends import is_spread_of_read
from mapper.inference.chains.extents import Window
from mapper.inference.chains.forks import is_free
from mapper.inference.chains.links import MAPS, ROWS, START, Data, Link, follow
from mapper.inference.chains.network import Woven
from mapper.inference.chains.nodes import (
    IDS,
    INPUT,
    Node,
    Sources,
    outputs_of,
)
from mapper.inference.chains.outputs import SIZES
from mapper.inference.chains.pooling import pooling_of
from mapper.inference.chains.split import take
from mapper.inference.chains.states import repeated, states_of, stored_of
from mapper.inference.chains.texts import NAME, names_in, names_in_calls, sayable
from mapper.inference.chains.value import NoReadingError, Value
from mapper.inference.chains.widths import TAKES, left_for, measure, refuse_unknown
from mapper.inference.leaf_shapes import weight_shape

if TYPE_CHECKING:
    from mapper.rulebook.facts import ActivationRule

READS, GIVES = "chain.reads", "chain.gives"
_DIGITS = 8  # of how wide an input may be said to be
_MAKING = re.compile(r"\b(maps|image|rows|columns|positions)(_\d+)?\(")  # of positions maps, or the other way
_IN_ORDER = "the order that sizes and names show"
_ACTIVATION = "chain.activation"
_NOTHING = "none"  # of a layer that is of no use
_SUMMED = re.compile(
    r"\b([A-Za-z_][\w.-]*)\(([\w.]+(?: *[+-] *[\w.]+)*)\)"
)  # names in a function, alone or as a sum


def _has_matrix(node: Node) -> bool:
    """Whether a layer has one matrix, stored as torch has it."""
    leaf = node.first.leaf
    return node.first.group in (LINEAR, EMBEDDING) and not leaf.is_transposed and leaf.form == "plain"


def _is_name(text: str) -> bool:
    return names_in(text) == (text,)


@dataclass
class Run:
    """Layers one after the other, the first of which reads an expression."""

    nodes: list[Node]
    value: Value | None = None  # what it reads
    variable: str = ""
    data: Data = field(default_factory=lambda: Data(START))
    windows: list[list[Window]] | None = None


class Weaving:
    """Writes the statements of such a network."""

    def __init__(
        self, woven: Woven, leaves: Sequence[Leaf], answers: Answers, activations: dict[str, ActivationRule]
    ):
        self.answers, self.activations = answers, activations
        own, roles = iter(leaves), iter(woven.roles())
        self._leaves = {leaf.place.first(): leaf for leaf in woven.bare}
        self.roles: dict[int, str] = {}
        self.nodes = [self._with_leaves(node, own, roles) for node in woven.nodes]
        self.by_name = {node.name: node for node in self.nodes}
        self.bare = bare_values(woven.bare, roles)
        self.before = woven.before
        self.sources = Sources(self.nodes, answers.words)
        self.takes = dict(self._told_inputs())  # in order, with their widths; 0: not said
        self.sources.inputs |= {name: width for name, width in self.takes.items() if width}
        self.variables: dict[str, str] = {}
        self.called: Sequence[Node] = self.nodes  # in the order in which they are
        self.known: dict[str, Value] = dict(self.bare)
        self.known |= {f"{node.name}.weight": self._weight(node) for node in self.nodes if _has_matrix(node)}
        self.windows: dict[str, list[list[Window]] | None] = {}

    def _weight(self, node: Node) -> Value:
        """The matrix of a layer, which another may be multiplied with: `fc @ transposed(emb.weight)`."""
        shape = weight_shape(node.first.leaf)
        return Value(f"{self.roles[id(node.first)]}.weight", Data(ROWS, shape[-1]), rows=shape[0])

    def _with_leaves(self, node: Node, leaves: Iterator[Leaf], roles: Iterator[str]) -> Node:
        elements = tuple(replace(element, leaf=next(leaves)) for element in node.elements)
        self.roles |= {id(element): next(roles) for element in elements}
        return Node(elements)

    def _told_inputs(self) -> Iterator[tuple[str, int]]:
        """The inputs as they were told: `a, b`, or `a:11, b:3` with how many features each has."""
        for text in self.answers.told(TAKES).split(","):
            name, _, width = (part.strip() for part in text.partition(":"))
            if width and not (width.isdecimal() and len(width) < _DIGITS):
                raise HintError(f"--set {TAKES}: {width!r} is no number of features", fact=TAKES)
            if name:
                yield name, int(width or 0)

    # --------------------------------------------------------------------------------------------- what is read
    def reads(self) -> dict[str, str]:
        """What each layer reads: as it was told, as sizes and names show it, or the first that it may be."""
        sources, answers = self.sources, self.answers
        told = {node.name: self._by_layer(answers.published(node.first.leaf, READS)) for node in self.nodes}
        for name, text in told.items():
            if text:
                self._check(self.by_name[name], text)
                sources.known[name] = (text, "")
        for name, before in self.before.items():
            if name not in sources.known and {name, before} <= self.by_name.keys():
                sources.known[name] = (before, _IN_ORDER)
        sources.solve()
        found = {}
        for node in self.nodes:
            text, why = sources.known[node.name]
            shown = (text, why) if why else None
            among = sources.open.get(node.name, (text,))
            value = answers.find(node.first.leaf, READS, usual=shown, among=among)
            found[node.name] = self._by_layer(value) if value else among[0]
        measure(self, found)
        return found

    def _by_layer(self, text: str) -> str:
        """An expression with a layer's name for that of a norm or slopes behind it: what is read of both is the same."""
        names = {sayable(element.name): node.name for node in self.nodes for element in node.elements}
        return NAME.sub(lambda found: names.get(found[0], found[0]), text)

    def _check(self, node: Node, text: str) -> None:
        """Inputs are all names that are no layer's; those that vectors are read from are noted with their widths."""
        for name in names_in(text):
            if (
                not self.is_own(name)
                and not (name.isidentifier() and is_free(name))
                and name not in (INPUT, IDS)
            ):
                raise self.answers.refuse(node.first.leaf, READS, text, f"no layer is called {name!r}")
        if _is_name(text) and text not in self.by_name and node.first.group != EMBEDDING:
            self.sources.note(text, node)

    def is_own(self, name: str) -> bool:
        """Whether it is a layer, a matrix of one, or a tensor of none: no input."""
        return name in self.by_name or name in self.known

    # ------------------------------------------------------------------------------------------------ statements
    def run(self, between: Between) -> None:
        """Everything, into `between`."""
        reads, told = self.reads(), self._by_layer(self.answers.told(GIVES))
        self.gives, self.is_told = told, bool(told)
        self._take_codes([*reads.values(), told])
        self.texts = reads = {name: text for name, text in reads.items() if name in self.by_name}
        self.readers: dict[str, list[str]] = {}
        for name, text in reads.items():
            for source in names_in(text):
                self.readers.setdefault(source, []).append(name)
        self.rows = set(self._rows([*reads.values(), told]))
        self.stored = stored_of(self.nodes, self.answers, self._leaves)
        others = [node for node in self.nodes if node.name not in self.stored]
        self.begins = states_of(others, reads, self.answers)
        runs = self._runs(reads)
        self.called = [node for run in runs for node in run.nodes]
        ends = [node for node in outputs_of(reads, self.nodes) if node.name not in names_in(told)]
        ends = [node for node in ends if node.name not in self.begins.values()]
        ends = [node for node in ends if self.answers.told_at(node.first.leaf, GIVES) != _NOTHING]
        for run in runs:
            self._write(between, run, ends)
        said = [*reads.values(), told, *(", ".join(names) for names in self.stored.values())]
        between.written.problems += unread(self.bare, said, self.answers, self._leaves)
        self._finish(between, ends)

    def entries(self, names: Iterable[str]) -> list[str]:
        """The inputs that what layers give comes of, in order."""
        seen: dict[str, None] = {}
        waiting = [name for name in names if name in self.by_name]
        while waiting:
            name = waiting.pop(0)
            if name not in seen:
                seen[name] = None
                waiting[:0] = names_in(self.texts.get(name, ""))
        return [name for name in seen if not self.is_own(name)]

    def _take_codes(self, texts: Iterable[str]) -> None:
        """Tables whose rows are looked for, and not called with numbers: no layers."""
        named = {name for text in texts for names in names_in_calls("nearest", text) for name in names[-1:]}
        for node in [node for node in self.nodes if node.first.group == EMBEDDING and node.name in named]:
            data = Data(ROWS, node.first.outputs)
            text = f"{self.roles[id(node.first)]}.weight"
            self.known[node.name] = Value(text, data, (node.name,), rows=node.first.inputs)
            self.bare[node.name] = self.known[node.name]
            self.nodes.remove(node)
            del self.by_name[node.name]

    def _rows(self, texts: Iterable[str]) -> Iterator[str]:
        """Inputs with a row of characters for each word: what an expression reads of each."""
        for text in texts:
            for names in names_in_calls(EACH, text):
                yield from self.entries(names)

    def _refuse_idle(self, ends: Sequence[Node]) -> None:
        """Raises HintError for a layer that nobody reads and that is no output: something was not said."""
        idle = [node.name for node in ends if not is_spread_of_read(node, self.nodes, self.texts)]
        if idle:
            name = idle[0]
            why = (
                f"nobody reads {name!r}, and it is no output: say what reads it, or {name}:{GIVES}={_NOTHING}"
            )
            raise HintError(f"--set {GIVES}: {shorten(self.gives)}: {why}", fact=GIVES)

    def _runs(self, reads: Mapping[str, str]) -> list[Run]:
        """The layers, those that nothing parts together, each behind what it reads."""
        runs: dict[str, Run] = {}
        left = self._givers_first()
        while left:
            ready = [
                node
                for node in left
                if all(name in runs for name in self._needs(node) if name in self.by_name)
            ]
            if not ready:
                told = (node for node in left if self.answers.published(node.first.leaf, READS))
                node = next(told, left[0])  # what nobody told is a guess, and no error
                raise self._unread(node, reads[node.name], f"{node.name} reads what comes of itself")
            node = ready[0]
            left.remove(node)
            before = reads[node.name]
            if (
                before in self.by_name
                and node.name not in self.begins  # it waits for another run
                and len(self.readers[before]) == 1
                and before not in names_in(self.gives)
                and runs[before].nodes[-1].name == before
            ):
                runs[before].nodes.append(node)
                runs[node.name] = runs[before]
            else:
                runs[node.name] = Run([node])
        return list({id(run): run for run in runs.values()}.values())

    def _givers_first(self) -> list[Node]:
        """All layers, those first of which a state comes that another begins with: an encoder's input is the first."""
        before, waiting = set[str](), [name for name in self.begins.values() if name]
        while waiting:
            name = waiting.pop()
            if name in self.by_name and name not in before:
                before.add(name)
                waiting += names_in(self.texts.get(name, ""))
        return sorted(self.nodes, key=lambda node: node.name not in before)

    def _needs(self, node: Node) -> tuple[str, ...]:
        """The layers that come before one: those that it reads, and that whose last state it begins with."""
        return (*names_in(self.texts[node.name]), *filter(None, [self.begins.get(node.name)]))

    def _unread_layers(self) -> list[Node]:
        return [node for node in self.nodes if node.name not in self.readers]

    def _states(self, run: Run) -> dict[str, tuple[str, str]]:
        """For each recurrent layer the variable of the state it begins with, and that of the last one if another reads it."""
        kept = {name: "state_of_" + re.sub(r"\W", "_", name) for name in self.begins.values()}
        names = [node.name for node in run.nodes if node.first.group == RECURRENT]
        begun = {name: kept.get(before, "") for name, before in self.begins.items()}
        begun |= {name: self._beginning(name) for name in self.stored}
        return {name: (begun.get(name, ""), kept.get(name, "_")) for name in names}

    def _beginning(self, name: str) -> str:
        """The stored state that a layer begins with, once for every input."""
        roles = {other: value.text for other, value in self.bare.items()}
        return repeated(self.stored[name], self._leaves, roles, next(iter(self.entries([name]))))

    def _write(self, between: Between, run: Run, ends: Sequence[Node]) -> None:
        first, last = run.nodes[0], run.nodes[-1]
        value = in_positions(self._value(self.texts[first.name], first), first.first)
        if value.text in self.rows:
            value = replace(value, text=f"{value.text}.flatten(0, 1)", is_name=False)
        links = self._links(run, value)
        inner = Between(
            links, [self.roles[id(link.element)] for link in links], self.answers, self.activations
        )
        inner.is_sequence, inner.has_frames = value.data.is_sequence, False
        inner.reads_sequence = any(node.first.group == RECURRENT for node in self.nodes)
        inner.windows = deepcopy(self._windows(value, links[0]))
        inner.firsts = self._following(last, links[-1])
        inner.states = self._states(run)
        inner.is_mean = any(is_spread_of_read(one, [last], self.texts) for one in self._unread_layers())
        inner.is_whole_read = bool(self.readers.get(last.name)) and not inner.firsts
        run.variable = self._variable(last)
        inner.name = value.text if value.is_name else "x"
        if not value.is_name:
            between.add(f"{run.variable} = {value.text}")
            inner.name = run.variable
        inner.through()
        if last in ends:
            inner.output(links[-1])
        take(between, inner, run.variable)
        is_row = (
            last.first.group == EMBEDDING and sum(node.first.group == EMBEDDING for node in self.nodes) > 1
        )
        is_sequence = inner.is_sequence and links[-1].after.form != MAPS and not is_row
        is_reduced = any(node.first.group not in (LINEAR, NORM) for node in run.nodes) and not is_row
        is_single = links[-1].after.form == ROWS and not is_sequence and (is_reduced or value.data.is_single)
        data = replace(links[-1].after, is_sequence=is_sequence, is_single=is_single)
        self.known[last.name] = Value(run.variable, data, (last.name,), is_name=True)
        self.windows[last.name] = inner.windows

    def _value(self, text: str, node: Node) -> Value:
        """What a layer reads, as an expression over variables."""
        names = dict(self.known)
        refuse_unknown(self, text, node)
        for name in names_in(text):
            if name not in names and not self.is_own(name):
                width = 0 if node.first.group == EMBEDDING else self.sources.inputs.get(name, 0)
                width = width or (
                    node.first.inputs if _is_name(text) else left_for(self, text, node, name, names)
                )
                names[name] = Value(name, self._entering(text, node, width), (name,), is_name=True)
        try:
            return Reader(text, names, self.function).read()
        except NoReadingError as error:
            raise self._unread(node, text, str(error)) from None

    @staticmethod
    def _entering(text: str, node: Node, width: int) -> Data:
        """An input as it stands in an expression: maps where a convolution reads it and no word makes maps of it."""
        if node.first.group != CONVOLUTION or _is_name(text) or _MAKING.search(text):
            return Data(START, width)
        return Data(MAPS, width, len(node.first.kernel))

    def _unread(self, node: Node, text: str, why: str) -> HintError | NoReadingError:
        """The error for what a layer cannot read: of whoever said it, or, where nobody did, that it is to be said."""
        if self.answers.published(node.first.leaf, READS):
            return self.answers.refuse(node.first.leaf, READS, text, why)
        return NoReadingError(
            f"what {node.name} reads is not known: say --set '{node.name}:{READS}=A & B', of layers' names"
        )

    def _links(self, run: Run, value: Value) -> list[Link]:
        links: list[Link] = []
        before = value.data if not value.is_name or value.sources[0] in self.by_name else Data(START)
        before = (
            replace(before, form="rows")
            if before.form == START and not value.is_name and run.nodes[0].first.group != EMBEDDING
            else before
        )
        before = Data(START) if run.nodes[0].first.group == EMBEDDING else before
        before = self._normed(run.nodes[0]) if before.form == START else before
        before = self._wider(run.nodes[0], value) if before.form == START else before
        if before.form == ROWS and not before.width:  # nothing shows how wide it is
            before = replace(before, width=run.nodes[0].elements[0].inputs)
        for node in run.nodes:
            for element in node.elements:
                given = links[-1].after if links else before
                link = follow(given, element)
                is_half = link is not None and element.group == LINEAR and link.groups > 1
                if link is None or (is_half and not value.is_name):
                    raise self._unread(node, self.texts[node.name], does_not_read(element, given))
                links.append(link)
        return links

    def _normed(self, node: Node) -> Data:
        """The input as a norm reads it that stands by itself: maps where a convolution reads what it gives."""
        readers = (self.by_name[name].first.kernel for name in self.readers.get(node.name, ()))
        axes = next((len(kernel) for kernel in readers if kernel), 0)
        is_norm = node.first.group == NORM and axes
        return Data(MAPS, node.first.inputs, axes) if is_norm else Data(START)

    def _wider(self, node: Node, value: Value) -> Data:
        """An input that was said to have more channels than a group of the convolution reads."""
        width, axes = self.takes.get(value.text, 0), len(node.first.kernel)
        is_grouped = axes and width > node.first.inputs
        return Data(MAPS, width, axes) if is_grouped else Data(START)

    def _windows(self, value: Value, link: Link) -> list[list[Window]] | None:
        """How maps came about, where all that is read has come about the same."""
        if link.before.form == START:
            return [[] for _ in link.element.kernel]
        found = [self.windows.get(name) for name in value.sources]
        return (
            found[0]
            if found and all(each == found[0] for each in found) and value.data.form == MAPS
            else None
        )

    def _following(self, node: Node, link: Link) -> list[Link]:
        """The first layer of whoever reads a layer, where an activation or what is read of a sequence stands before it."""
        readers = [self.by_name[name] for name in self.readers.get(node.name, ())]
        is_plain = [self.texts[reader.name] == node.name for reader in readers]
        is_bare = bool(readers) and all(
            node.name in self._bare(self.texts[reader.name]) for reader in readers
        )
        if is_bare:
            self.answers.told(_ACTIVATION)  # what was said of all is said by what is read, too
            said = [self.answers.told_at(element.leaf, _ACTIVATION) for element in node.elements]
            is_bare = {"", "none"}.issuperset(said)
        if not readers or is_bare or (node.first.group in (RECURRENT, EMBEDDING) and not all(is_plain)):
            return []
        reader = readers[is_plain.index(True)] if True in is_plain else readers[0]
        found = follow(
            replace(link.after, is_sequence=True) if is_plain.count(True) else link.after, reader.first
        )
        return [found or Link(reader.first, link.after, link.after)]

    def _bare(self, text: str) -> set[str]:
        """The layers that stand alone in an activation, or summed in it: it is the one behind them."""
        table = self.answers.words.tables["activation"]
        return {
            name
            for word, names in _SUMMED.findall(text)
            if word in BARE or activation_of(word, table, self.activations)
            for name in names_in(names)
        }

    def function(self, word: str, value: Value) -> str | None:
        """A word of a table as a function: an activation, a reduction, a pooling."""
        tables, axes = self.answers.words.tables, value.data.axes
        if word == EACH:
            ids = next((name for name in self.entries(value.sources) if name in self.rows), "")
            return f"{value.text}.unflatten(0, {ids}.shape[:2])" if ids else None
        if activation := activation_of(word, tables["activation"], self.activations):
            return re.sub(r"\bx\b", value.text, activation)
        table = tables["reduction"] if value.data.form == MAPS else tables["positions"]
        if word in table:
            return re.sub(
                r"\bx\b", value.text, table[word].format(axes=axes, sides="1", half=value.data.width // 2)
            )
        kernels = [node.first.kernel for node in self.nodes if node.first.group == CONVOLUTION]
        pooled = pooling_of(word, kernels, axes, tables["pooling"]) if axes else None
        if pooled:
            return re.sub(r"\bx\b", value.text, pooled.expression)
        return (
            re.sub(r"\bx\b", value.text, tables["output"][word].format(channel=1 if axes else -1))
            if word in tables["output"] and SIZES not in tables["output"][word]
            else None
        )

    def _variable(self, node: Node) -> str:
        plain = re.sub(r"\W", "_", node.name)
        is_taken = plain in self.sources.inputs or plain in self.roles.values()  # a role becomes a module
        plain = f"layer_{plain}" if is_taken or not is_free(plain) else plain
        while plain in self.variables.values():
            plain += "_"
        self.variables[node.name] = plain
        return plain

    def _finish(self, between: Between, ends: Sequence[Node]) -> None:
        values = [self.known[node.name] for node in ends]
        names = [self.variables[node.name] for node in ends]
        if self.is_told:
            try:
                entering = {name: self._as_input(name) for name in self.sources.inputs}
                values = Reader(self.gives, entering | self.known, self.function).several()
            except NoReadingError as error:
                raise HintError(f"--set {GIVES}: {shorten(self.gives)}: {error}", fact=GIVES) from None
            self._refuse_idle(ends)
            names = [f"output_{number}" for number in range(1, len(values) + 1)]
        elif among := self._meeting(ends) or meant(ends, self.bare, self.answers, self._leaves):
            self.answers.find(ends[0].first.leaf, GIVES, among=among)
        names = ["output"] if len(names) == 1 else names
        shown = ", ".join(f"{name}={value.text}" for name, value in zip(names, values, strict=True))
        between.add(f"return output({shown})")

    def _as_input(self, name: str) -> Value:
        """An input that an output is put together with, in the form that whoever reads it alone reads."""
        readers = (self.by_name[one] for one, text in self.texts.items() if text == name)
        kernel = next((node.first.kernel for node in readers), ())
        data = Data(MAPS if kernel else ROWS, self.sources.inputs[name], len(kernel))
        return Value(name, data, (name,), is_name=True)

    def _meeting(self, ends: Sequence[Node]) -> tuple[str, ...]:
        """What two outputs of the same width may come to that come of inputs of their own, or one of which is a table: it is not stored."""
        if len(ends) != 2 or ends[0].gives.width != ends[1].gives.width:
            return ()
        one, other = (node.name for node in ends)
        if not set(self.entries([one])) & set(self.entries([other])):
            return f"{one}, {other}", f"dot({one}, {other})", f"{one} & {other}"
        table, rest = (one, other) if ends[0].first.group == EMBEDDING else (other, one)
        is_table = self.by_name[table].first.group == EMBEDDING
        return (f"{one}, {other}", f"{rest} + sum({table})") if is_table else ()
