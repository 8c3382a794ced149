"""The description of a model: the output of inference and the only input of everything after it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import field
from itertools import product
from typing import Any

from mapper._dataclass import dataclass
from mapper.checkpoint import Checkpoint, TensorInfo
from mapper.words import spelled

LEAF_KINDS = (
    "Linear", "Embedding", "LayerNorm", "RMSNorm", "BatchNorm", "GroupNorm", "Conv1d", "Conv2d", "Conv3d",
    "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d", "LSTM", "GRU", "RNN", "PReLU", "Bilinear", "Affine", "Parameter", "Buffer",
)  # fmt: skip
ROW_NORMS = ("LayerNorm", "RMSNorm")
NORMS = (*ROW_NORMS, "BatchNorm", "GroupNorm")
RECURRENT_KINDS = ("LSTM", "GRU", "RNN")
BARE = ("Parameter", "Buffer")  # of what is one tensor and no module
BLOCK_KINDS = (
    "layer", "attention", "feed_forward", "moe", "norm", "embedding", "convolution", "recurrent", "state_space", "head", "other",
)  # fmt: skip
DROPS = (
    "result",
    "input",
    "probabilities",
    "path",
    "rows",
    "skips",
)  # ways in which training drops something
EVIDENCE = (
    "given",
    "shape",
    "config",
    "graph",
    "name",
    "weights",
    "behaviour",
    "rule",
    "default",
)  # strongest first
READINGS = ("exact", "unverified", "graph", "skeleton")
CONTRADICTION = "contradiction"  # in place of a reading: of what is shown of a checkpoint that is refused
_SHOWN_CANDIDATES = 12
UNREAD = "unread"  # of an input: why it is taken though nothing reads it


class Place(tuple[str | tuple[int, ...], ...]):
    """A folded path: words, and for a list element the tuple of indices it stands for.

    `Place(("encoder", "layer", (0, 1, 2), "attention"))` stands for three folders with equal contents.
    """

    __slots__ = ()

    def __str__(self) -> str:
        return ".".join(part if isinstance(part, str) else spelled(part) for part in self)

    def expand(self) -> Iterator[str]:
        """Every concrete path, in order."""
        choices = [(part,) if isinstance(part, str) else tuple(map(str, part)) for part in self]
        for words in product(*choices):
            yield ".".join(words)

    def first(self) -> str:
        """The first concrete path."""
        return ".".join(part if isinstance(part, str) else str(part[0]) for part in self)

    @property
    def instances(self) -> int:
        """How many concrete paths it stands for."""
        count = 1
        for part in self:
            count *= 1 if isinstance(part, str) else len(part)
        return count

    @property
    def is_element(self) -> bool:
        """Whether it is an element of a list: its last part is a number."""
        return any(isinstance(part, tuple) for part in self[-1:])

    def child(self, *parts: str | tuple[int, ...]) -> Place:
        return Place((*self, *parts))

    def within(self, other: Place) -> bool:
        """Whether `other` is this place or one of its ancestors."""
        return self[: len(other)] == other


class Numbered(tuple[int, ...]):
    """The index of a folder that is an element of a list by the number at the end of its name: `layer1`, `layer2`."""

    word: str  # the folder's name

    def __new__(cls, index: int, word: str) -> Numbered:
        made = super().__new__(cls, (index,))
        made.word = word
        return made


@dataclass(frozen=True)
class Fact:
    """One thing known about the model, and why."""

    name: str  # dotted, block first: "attention.heads"
    value: Any  # JSON values only
    at: str  # scope, a folded path with "*": "transformer.layer.*"
    evidence: str  # one of EVIDENCE
    source: str  # "n_heads", "encoder.layer.0.attention.self.query.weight [384, 384]", "families/bert.yaml"
    rule: str = ""  # "families/bert.yaml:12": the rule that says so, or where; "" where no rule does
    against: Any = field(default=None, compare=False)  # of one that lost: the value that won
    same_as: tuple[str, ...] = field(
        default=(), compare=False
    )  # sizes that go on into it: of the first that has its value a source has one field for both

    @property
    def known_from(self) -> str:
        """Its evidence in words: of what the equation of a shape gave, with that of the other numbers in it."""
        is_solved = self.evidence != "shape" and "] = " in self.source
        return f"shape and {self.evidence}" if is_solved else self.evidence


@dataclass(frozen=True)
class Question:
    """A fact that nothing shows and that the model needs: what to ask whoever knows the model."""

    fact: str  # "attention.heads"
    at: str  # where nobody knows it, as a fact's: "transformer.layer.*"
    candidates: tuple[Any, ...] = ()  # JSON values that shapes and rules leave; none: any of the fact's type
    part: str = ""  # what to narrow the answer to, where another part may have another: "vision"
    blocks: tuple[Block, ...] = field(default=(), repr=False, compare=False)  # that lack it
    why: str = (
        ""  # what makes it doubtful, where a rule says so: "models with these names have a gate or none"
    )
    doc: str = (
        ""  # what the fact is, in a line: "how position ids are counted: all, or tokens (without padding)"
    )
    kind: str = ""  # what it may be, in words: "a whole number from 1"
    places: tuple[str, ...] = field(
        default=(), repr=False, compare=False
    )  # of a chain: every layer that lacks it

    @property
    def name(self) -> str:
        """What `--set` and `hints` call it: `vision:attention.heads`."""
        return f"{self.part}:{self.fact}" if self.part else self.fact

    @property
    def set(self) -> str:
        """How a command line answers it."""
        said = f"{self.name}=VALUE"
        return f"--set '{said}'" if "{" in said else f"--set {said}"  # a shell would take braces apart

    def __str__(self) -> str:
        where = f" at {self.at}" if self.at not in ("", "*") else ""
        values = [json.dumps(value) for value in self.candidates[:_SHOWN_CANDIDATES]]
        more = len(self.candidates) - len(values)
        could = f"; possible here: {', '.join(values)}{f' and {more} more' if more else ''}" if values else ""
        told = self.why or self.doc
        why = f" ({told})" if told else ""
        return f"{self.fact} is unknown{where}{why}{could}; say {self.set}"


@dataclass(frozen=True)
class Unfit:
    """Blocks that no flow fits, and those flows that come nearest, each in words."""

    role: str
    places: tuple[str, ...]  # of equal blocks, folded
    nearest: tuple[str, ...]
    asks: tuple[str, ...] = ()  # the facts that decide between flows which nothing else keeps from fitting

    def __str__(self) -> str:
        return f"{self.head}: {'; '.join(self.nearest)}"

    @property
    def head(self) -> str:
        """`no flow fits attention at 'layers.0.mix' and 3 more`, or what the choice between several depends on."""
        first = f" at '{self.places[0]}'" if self.places and self.places[0] else ""
        more = f" and {len(self.places) - 1} more" if len(self.places) > 1 else ""
        if self.asks:
            return f"which flow fits {self.role}{first}{more} depends on {', '.join(self.asks)}"
        return f"no flow fits {self.role}{first}{more}"


@dataclass
class Leaf:
    """A module that owns tensors (or a bare Parameter / Buffer: then `place` is the key and `tensors` has the one name "")."""

    place: Place
    kind: str  # one of LEAF_KINDS
    tensors: dict[str, TensorInfo]
    why: str  # what decided the kind: "vocabulary/attention.yaml: q_lin", "shape"
    block: tuple[
        tuple[str, tuple[int, ...] | None], ...
    ] = ()  # role path of its block: (("layers", (0, 1)), ("attention", None))
    role: str | None = None  # its role in that block; None: unmapped
    form: str = "plain"  # "transposed" ([in, out] weight), "offset" (a norm that scales by 1 + weight), ...
    facts: dict[str, Fact] = field(
        default_factory=dict
    )  # constructor arguments no shape shows: eps, stride, ...
    fixed: tuple[
        int, ...
    ] = ()  # positions in `place` of numbers that are names, as in `layer.0.convolution`: no lists

    @property
    def has_bias(self) -> bool:
        return not {"bias", "beta"}.isdisjoint(self.tensors)

    @property
    def is_transposed(self) -> bool:
        """Whether a map's weight is [in, out]: a family says so, or the bias has the length of the second extent alone."""
        shape = self.tensors["weight"].shape if "weight" in self.tensors else ()
        bias = self.tensors.get("bias")
        return self.form == "transposed" or (bias is not None and bias.shape == shape[1:] != shape[:1])

    @property
    def has_one_gain(self) -> bool:
        """Whether a norm scales all channels, however many, by one number `g` (ScaleNorm, paper 1910.05895)."""
        return self.kind == "RMSNorm" and "g" in self.tensors and self.tensors["g"].shape == (1,)

    def keys(self) -> Iterator[str]:
        """Checkpoint keys of every instance."""
        for path in self.place.expand():
            for name in self.tensors:
                yield f"{path}.{name}" if name and self.place else name or path


@dataclass(frozen=True)
class Drop:
    """A site of dropout in a block."""

    way: str  # one of DROPS: what comes out or goes in, or the probabilities of an attention
    role: str  # whose, "" for the block's own
    rate: str  # the name of the fact


@dataclass
class Dropout:
    """What of a config's dropout stands in the blocks, and what does not."""

    written: list[str] = field(default_factory=list)  # "hidden_dropout_prob = 0.1", as the config has it
    left: list[str] = field(default_factory=list)  # with the reason


@dataclass(frozen=True)
class Filled:
    """One slot of a flow that was put together from steps."""

    slot: str
    step: str  # that fills it
    others: tuple[str, ...]  # that fitted too, and are weaker


@dataclass
class Block:
    """Leaves and blocks that compute one thing together.

    A folded block stands for every instance of its place. `home` is the lowest common folder of its leaves.
    """

    kind: str  # one of BLOCK_KINDS
    role: str  # its role in the enclosing block; "root" for the whole model
    home: Place
    indices: tuple[int, ...] | None = (
        None  # positions in the enclosing block's list role, if it is an element
    )
    roles: dict[str, Leaf | Block | list[Block] | list[Leaf]] = field(
        default_factory=dict
    )  # a list role: one element per signature
    flow: str | None = None  # name of the rule, "layer/two_way"
    facts: dict[str, Fact] = field(
        default_factory=dict
    )  # by the name that the flow uses: "head_dim", "rotary.base", or a size symbol

    drops: list[Drop] = field(default_factory=list)  # of an architecture that is to be trained
    slots: list[Filled] = field(default_factory=list)  # of a flow that was put together from steps

    def blocks(self) -> Iterator[Block]:
        """Every block below, not this one, depth first."""
        for value in self.roles.values():
            for item in value if isinstance(value, list) else [value]:
                if isinstance(item, Block):
                    yield item
                    yield from item.blocks()

    def leaves(self) -> Iterator[Leaf]:
        """Every leaf in the roles of this block and of those below."""
        for value in self.roles.values():
            for item in value if isinstance(value, list) else [value]:
                if isinstance(item, Block):
                    yield from item.leaves()
                else:
                    yield item


@dataclass(frozen=True)
class Origin:
    """What a reading was made from besides the tensors; with it the same rules read the same again."""

    config: dict[str, Any] | None = None  # without what no rule reads: label tables, training settings
    hints: dict[str, Any] = field(default_factory=dict)
    families: bool = True  # whether they were asked


@dataclass
class Architecture:
    """What a checkpoint is, and how it is known."""

    checkpoint: Checkpoint
    leaves: list[Leaf]  # folded, in checkpoint order; every tensor belongs to exactly one
    root: Block
    family: str | None = None
    towers: dict[str, str] = field(
        default_factory=dict
    )  # tower -> the family that reads it, if it is another
    reading: str = "skeleton"
    rules: str = ""  # digest of the rule set
    facts: list[Fact] = field(default_factory=list)
    inputs: dict[str, dict[str, Any]] = field(
        default_factory=dict
    )  # name: {"shape": ["batch", "length"], "dtype": "int64", "optional": bool}
    findings: list[str] = field(default_factory=list)
    unused: list[tuple[str, str]] = field(default_factory=list)  # (key, why)
    unmapped: list[str] = field(default_factory=list)  # keys without a role in the chosen flow
    lost: list[Fact] = field(
        default_factory=list
    )  # what else was said about a fact of `facts`, of the same name and scope, and did not win
    rulebook: Any = field(
        default=None, repr=False, compare=False
    )  # the rules it was read by; emission takes its flows from there
    refusal: str = ""  # why no source may be written at all, not even a skeleton: quantised weights
    notes: list[str] = field(default_factory=list)  # what is no doubt about the reading, but should be known
    missing: list[str] = field(
        default_factory=list
    )  # what forbids a flow: unknown facts, roles without a leaf (skeletons); has the texts of the next two
    questions: list[Question] = field(default_factory=list)  # what to say so that it can be built
    unfit: list[Unfit] = field(default_factory=list)  # blocks without a flow that need one
    origin: Origin = field(default_factory=Origin, repr=False, compare=False)
    unheard: dict[str, str] = field(
        default_factory=dict, repr=False, compare=False
    )  # hints that nothing in the model rests on, as they were written, each with its name
    what: str = ""  # what it is in words, whatever else is known: "a diffusion U-Net", "shard 1 of 7"
    parts: dict[str, Architecture] = field(
        default_factory=dict
    )  # of several models in one source: each by its name; the whole then has no blocks of its own
    forward: list[str] = field(
        default_factory=list
    )  # of a chain: what is called, and between what is unknown
    shown: dict[Place, str] = field(
        default_factory=dict
    )  # folder -> kind of block that it is by what it holds, beside those of `root`: no flow rests on it
    dropout: Dropout | None = None  # the option `train`: blocks hold their sites
    program: Any = field(
        default=None, repr=False, compare=False
    )  # its flows, linked without options: the `Program` of `mapper.flows.program`, None where they cannot be
    graph: Any = field(
        default=None, repr=False, compare=False
    )  # of the reading "graph": the model of `mapper.graphs.graph` that runs it

    def shown_blocks(self) -> Iterator[Block]:
        """A block for each folder of `shown`, the outermost first, with all its leaves by their names in it."""
        found = {folder: Block(kind, kind, folder) for folder, kind in self.shown.items()}
        for leaf in self.leaves if found else ():
            for length in range(1, len(leaf.place)):
                if block := found.get(Place(leaf.place[:length])):
                    block.roles[str(Place(leaf.place[length:]))] = leaf
        yield from sorted(found.values(), key=lambda block: len(block.home))
