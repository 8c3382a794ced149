"""A reading as a graph: a node for each different block and module, in it what it holds, between them the data.

Equal layers are one node with a count, as they are one block in the reading, so the size of the graph grows with what
differs. A skeleton has its nodes in the order of the names, joined by edges that say so and claim no data.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from mapper.architecture import Architecture, Block, Fact, Leaf, Place
from mapper.flows.program import Program
from mapper.picture.folders import gather, parted
from mapper.picture.trace import End, Level, Operation, Port, trace
from mapper.report.summary import block_summary, layer_summary, leaf_summary

ORDER = "order"  # of an edge: as the names stand, where nothing says how the data goes
ONLY, CHANGED = "only", "changed"
LOOSE, UNREAD = "without a role", "not read"
_FEW = 8  # leaves without a block that stand side by side
EMPTY = "empty"  # a slot that no step fills
OTHER = "other"  # a kind of block, and of folders
OPERATION, PORT = "operation", "port"  # kinds of nodes that hold no tensor


@dataclass(frozen=True)
class Tensor:
    """Tensors of equal modules, folded."""

    key: str  # "layers.{0..11}.attention.query.weight"
    shape: tuple[int, ...]
    dtype: str
    count: int
    bytes: int  # of all of them


@dataclass(eq=False)
class Node:
    """A block, a module, an operation, or where data comes in or goes out."""

    id: int
    parent: int | None
    kind: str  # of LEAF_KINDS or BLOCK_KINDS, "operation" or "port"
    title: str
    detail: str = ""
    role: str = ""
    place: Place = field(default_factory=Place)
    count: int = 1  # how many stand for one in the node around
    indices: str = ""  # "0–5": which elements of their list
    tensors: list[Tensor] = field(default_factory=list)
    facts: list[Fact] = field(default_factory=list)
    origin: str = ""  # what the name or the flow was known by
    flow: str = ""
    steps: list[str] = field(default_factory=list)
    differs: str = ""  # of two that are compared: ONLY here, CHANGED
    mark: str = ""  # why it stands out: "without a role", "no flow fits"
    idle: str = ""  # why no forward reads it, where that is known
    asks: list[int] = field(default_factory=list)  # which of the reading's questions are about it
    bytes: int = 0  # of it and all in it, every instance
    children: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Edge:
    """From one node to another, both in the node `level`."""

    level: int
    start: int
    end: int
    way: str  # one of trace.WAYS, or "order"


@dataclass
class Graph:
    """All nodes, the whole model first, and all edges."""

    nodes: list[Node] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)

    @property
    def root(self) -> Node:
        return self.nodes[0]

    def inside(self, node: Node) -> Iterator[Node]:
        return (self.nodes[child] for child in node.children)


def graph(
    architecture: Architecture, program: Program | None, differs: Mapping[str, str] | None = None
) -> Graph:
    """The graph of a reading; without a program no edge is called data. `differs` are keys that are ONLY here or CHANGED."""
    levels = trace(program, _unasked(architecture)) if program is not None else {}
    builder = _Builder(architecture, levels, differs or {})
    builder.block(architecture.root, None)
    builder.loose()
    return builder.finished()


def _unasked(architecture: Architecture) -> set[str]:
    """Inputs that count or label positions and are made where nobody gives them."""
    return {
        name
        for name, spec in architecture.inputs.items()
        if spec.get("optional") and str(spec.get("dtype", "")).startswith("int")
    }


class _Builder:
    def __init__(self, architecture: Architecture, levels: Mapping[int, Level], differs: Mapping[str, str]):
        self.architecture, self.levels, self.differs = architecture, levels, differs
        self.graph = Graph()
        self.known: dict[int, int] = {}  # identity of a leaf or block -> its node
        self.drawn = {id(end) for level in levels.values() for end in level.ends() if isinstance(end, Block)}
        self.open_keys = set(architecture.unmapped)
        self.idle = dict(architecture.unused)
        self.asked: dict[int, list[int]] = defaultdict(list)  # identity of a block -> the questions about it
        for at, question in enumerate(architecture.questions):
            for about in question.blocks:
                self.asked[id(about)].append(at)
        self.folders: dict[tuple[int, str], int] = {}
        self.shown = list(architecture.shown_blocks())
        self.gathered: set[int] = set()  # nodes of these

    def add(self, parent: Node | None, kind: str, title: str) -> Node:
        node = Node(len(self.graph.nodes), parent.id if parent else None, kind, title)
        self.graph.nodes.append(node)
        if parent is not None:
            parent.children.append(node.id)
        return node

    def block(self, block: Block, parent: Node | None, *, of_list: int = 0) -> None:
        """A node for a block and all in it; `of_list` different elements make its list."""
        if next(block.leaves(), None) is None and parent is not None:  # it computes, and holds nothing
            self.known[id(block)] = self.add(parent, OPERATION, block.role.replace("_", " ")).id
            return
        title = _singular(block.role) if of_list else block.role.replace("_", " ")
        node = self.add(parent, block.kind, title if parent else "model")
        self.known[id(block)] = node.id
        node.role, node.place, node.flow = block.role, block.home, block.flow or ""
        node.facts = list(block.facts.values())
        node.steps = [f"{filled.slot}: {filled.step}" for filled in block.slots if filled.step != EMPTY]
        node.detail = _detail(block)
        node.origin = self.rule_of(block)
        node.asks = list(dict.fromkeys(self.asked[id(block)]))
        node.mark = self.open_of(node)
        if of_list and block.indices:
            node.count = len(block.indices)
            node.indices = _span(block.indices) if of_list > 1 or node.count == 1 else ""
        for value in block.roles.values():
            self.items(value, node)
        if id(block) in self.levels:
            self.gathered |= gather(self.graph, node, self.shown, self.known)
        self.level(block, node)

    def items(self, value: Leaf | Block | list[Block] | list[Leaf], node: Node) -> None:
        items = value if isinstance(value, list) else [value]
        for item in items:
            if isinstance(item, Leaf):
                self.leaf(item, node)
            elif id(item) in self.drawn or next(item.leaves(), None) is not None:
                self.block(item, node, of_list=len(items) if isinstance(value, list) else 0)

    def leaf(self, leaf: Leaf, parent: Node) -> None:
        title = leaf.role.replace("_", " ") if leaf.role else str(Place(leaf.place[len(parent.place) :]))
        node = self.add(parent, leaf.kind, title)
        self.known[id(leaf)] = node.id
        node.role, node.place = leaf.role or "", leaf.place
        node.count = max(1, leaf.place.instances // max(1, parent.place.instances))
        node.detail, node.origin = leaf_summary(leaf), leaf.why
        node.idle = next((self.idle[key] for key in leaf.keys() if key in self.idle), "")  # noqa: SIM118
        node.facts = list(leaf.facts.values())
        node.tensors = list(_tensors(leaf))
        node.bytes = sum(tensor.bytes for tensor in node.tensors)
        node.mark = self.doubt(leaf)
        if self.differs:
            node.differs = _of_all({self.differs.get(key, "") for key in leaf.keys()})  # noqa: SIM118

    def open_of(self, node: Node) -> str:
        """`asks for attention.heads`: what has to be answered of a block."""
        names = [self.architecture.questions[at].fact for at in node.asks]
        return f"asks for {', '.join(names)}" if names else ""

    def doubt(self, leaf: Leaf) -> str:
        """Why a leaf stands out: nothing is known of it. One that is known to be of no use does not."""
        if self.open_keys.isdisjoint(leaf.keys()):
            return ""
        return LOOSE

    def rule_of(self, block: Block) -> str:
        """Where the flow of a block is written."""
        rule = self.architecture.rulebook.flows.get(block.flow) if block.flow else None
        return f"{rule.file}:{rule.line}" if rule is not None else ""

    def level(self, block: Block, node: Node) -> None:
        """The edges inside of a block, between the nodes that stand directly in it."""
        found = self.levels.get(id(block))
        if found is None:
            self.in_order(node)
            return
        ends: dict[object, int] = {}
        for end in found.ends():
            if isinstance(end, Operation):
                ends[end] = self.mark(end, self.around(end, found, node)).id
        edges: dict[tuple[int, int, int, str], Edge] = {}
        for start, end, way in found.edges.values():
            pair = (self.end(start, node, ends), self.end(end, node, ends))
            for level, first, last in parted(self.graph, *pair) if pair[0] != pair[1] else ():
                first = self.through(level, True, ends) if first is None else first
                last = self.through(level, False, ends) if last is None else last
                edges.setdefault((level, first, last, way), Edge(level, first, last, way))
        self.graph.edges += edges.values()

    def around(self, operation: Operation, level: Level, node: Node) -> Node:
        """The node that an operation stands in: the folder of all that it joins, where they share one."""
        made_of = [start for start, end, _ in level.edges.values() if end is operation]
        items = [end for end in made_of if isinstance(end, (Leaf, Block))]
        homes = {self.graph.nodes[self.end(end, node, {})].parent for end in items}
        home = homes.pop() if len(homes) == 1 and len(items) == len(made_of) else None
        return node if home is None else self.graph.nodes[home]

    def through(self, level: int, is_input: bool, ends: dict[object, int]) -> int:
        """The port of a folder that the data goes in or out by."""
        key = (level, is_input)
        if key not in ends:
            ends[key] = self.mark(Port("x", is_input), self.graph.nodes[level]).id
        return ends[key]

    def end(self, end: End, node: Node, ends: dict[object, int]) -> int:
        if isinstance(end, (Leaf, Block)):
            return self.lifted(self.known[id(end)], node)
        if end not in ends:
            ends[end] = self.mark(end, node).id
        return ends[end]

    def mark(self, end: End, node: Node) -> Node:
        """A node for an operation or a port."""
        if isinstance(end, Operation):
            return self.add(node, OPERATION, end.label)
        assert isinstance(end, Port)
        made = self.add(node, PORT, end.name.replace("_", " "))
        made.role = "input" if end.is_input else "output"
        return made

    def lifted(self, identity: int, node: Node) -> int:
        """The node directly in `node`, or in a folder there that is no block of a flow, that holds another."""
        at = self.graph.nodes[identity]
        while at.parent is not None and at.parent != node.id and at.parent not in self.gathered:
            at = self.graph.nodes[at.parent]
        return at.id

    def in_order(self, node: Node) -> None:
        """What nothing is known of but the order of the names."""
        if not self.levels:
            pairs = zip(node.children, node.children[1:], strict=False)
            self.graph.edges += [Edge(node.id, start, end, ORDER) for start, end in pairs]

    def loose(self) -> None:
        """Leaves that no block took: a few as they are, many by their folders."""
        left = [leaf for leaf in self.architecture.leaves if id(leaf) not in self.known]
        if not left:
            return
        top = self.graph.root
        if top.children:
            open_ones = any(self.doubt(leaf) for leaf in left)
            top = self.add(top, OTHER, LOOSE if open_ones else UNREAD)
            top.mark = LOOSE if open_ones else ""
        first = len(self.graph.nodes)
        for leaf in left:
            self.leaf(leaf, self.folder(top, leaf) if len(left) > _FEW else top)
        for node in [top, *self.graph.nodes[first:]]:
            self.in_order(node)

    def folder(self, top: Node, leaf: Leaf) -> Node:
        """A node for the folder of a leaf, and those around it; an index goes with the word before it."""
        node = top
        for depth in range(1, len(leaf.place)):
            part, ahead = leaf.place[depth - 1], leaf.place[depth : depth + 1]
            if isinstance(part, tuple):
                continue
            indices = ahead[0] if ahead and isinstance(ahead[0], tuple) else ()
            key = (node.id, str(Place((part, indices) if indices else (part,))))
            if key not in self.folders:
                made = self.add(node, OTHER, part)
                made.place = Place(leaf.place[: depth + bool(indices)])
                made.count, made.indices = max(1, len(indices)), _span(indices) if indices else ""
                self.folders[key] = made.id
            node = self.graph.nodes[self.folders[key]]
        return node

    def finished(self) -> Graph:
        unfit = {place for found in self.architecture.unfit for place in found.places}
        for node in reversed(self.graph.nodes):
            node.bytes += sum(child.bytes for child in self.graph.inside(node))
            if node.children:
                node.differs = _of_all({child.differs for child in self.graph.inside(node) if child.bytes})
            if str(node.place) in unfit and not node.mark and not node.tensors and not node.flow:
                node.mark = "no flow fits"
        return self.graph


def _tensors(leaf: Leaf) -> Iterable[Tensor]:
    count = leaf.place.instances
    for name, info in leaf.tensors.items():
        key = f"{leaf.place}.{name}" if name and leaf.place else name or str(leaf.place)
        yield Tensor(key, tuple(info.shape), info.dtype, count, count * info.bytes)


def _of_all(found: set[str]) -> str:
    """What is said of several together: they are only here where each is, else something in them differs."""
    return found.pop() if len(found) == 1 else CHANGED if found - {""} else ""


def _detail(block: Block) -> str:
    return layer_summary(block) if block.kind == "layer" else ", ".join(block_summary(block))


def _singular(role: str) -> str:
    return role.removesuffix("s").replace("_", " ")


def _span(indices: tuple[int, ...]) -> str:
    """`0–5`, `0, 2, 4`, `0, 2 … 22`."""
    first, last = indices[0], indices[-1]
    if len(indices) > 2 and last - first == len(indices) - 1:
        return f"{first}–{last}"
    if len(indices) > 4:
        return f"{first}, {indices[1]} … {last}"
    return ", ".join(map(str, indices))
