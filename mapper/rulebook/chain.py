"""`vocabulary: chain`: what may lie between the layers of a network that no family knows, each as an expression over x."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from dataclasses import fields as fields_in

from mapper.rulebook.facts import fields_of
from mapper.rulebook.fields import Fields
from mapper.rulebook.strict import Document

SECTION = "chain"
TABLES = ("activation", "pooling", "reduction", "positions", "output", "skip", "paired", "halved")


@dataclass(frozen=True)
class ChainWords:
    """All files of this kind together, the first first."""

    order: dict[str, int] = field(default_factory=dict)  # word of a name -> where it stands in a network
    shortcut: set[str] = field(default_factory=set)  # words of what lies between a block's input and its end
    ends: set[str] = field(default_factory=set)  # words of what gives outputs
    spread: set[str] = field(default_factory=set)  # words of what stands beside a mean
    spread_alone: set[str] = field(default_factory=set)  # words of a vector beside a network
    advantage: set[str] = field(default_factory=set)  # words of a head of a dueling network
    beside: set[str] = field(default_factory=set)  # words of networks that read the same input
    residual: set[str] = field(default_factory=set)  # words of folders with a sum at their end
    apart: set[str] = field(default_factory=set)  # words of parts with which layers are no chain
    scaling: set[str] = field(default_factory=set)  # words of layers that scale channels by their means
    factor: set[str] = field(default_factory=set)  # words of a vector that outputs are multiplied by
    offset: set[str] = field(default_factory=set)  # and of one that is added to them
    cells: set[str] = field(
        default_factory=set
    )  # words of layers that one step calls with the state of the last
    cell_input: set[str] = field(default_factory=set)  # of these those of the map of the input
    cell_state: set[str] = field(default_factory=set)  # and of the map of the state
    gates: dict[str, str] = field(
        default_factory=dict
    )  # word or letter of an LSTM's gate -> one of i, f, g, o
    gates_of_state: set[str] = field(default_factory=set)  # letters of those that read the state
    graph: set[str] = field(default_factory=set)  # words of linear layers that read the neighbours in a graph
    graph_folders: set[str] = field(default_factory=set)  # and of their folders, where nothing is convolved
    auxiliary: set[str] = field(default_factory=set)  # folders of heads that training alone reads
    copies: set[str] = field(default_factory=set)  # folders with the layers of another
    over_channels: set[str] = field(default_factory=set)  # words of norms of maps at each place
    dilated: set[str] = field(default_factory=set)  # words of paths of convolutions that are mostly dilated
    gating: set[str] = field(default_factory=set)  # words that say of a layer no more than that it is a gate
    weighing: set[str] = field(default_factory=set)  # words of layers that weigh positions
    locating: set[str] = field(default_factory=set)  # words of layers that give an affine transform
    querying: set[str] = field(default_factory=set)  # words of layers that a sequence is compared with
    labels: set[str] = field(default_factory=set)  # words of a table that gives one vector for the whole
    masking: set[str] = field(default_factory=set)  # words of a last layer that lets the input through
    pooled: set[str] = field(default_factory=set)  # words of arms of a fork that begin with a pooling
    tables: dict[str, dict[str, str]] = field(default_factory=dict)  # one of TABLES -> word -> expression
    candidates: dict[str, tuple[str, ...]] = field(default_factory=dict)  # fact -> what to ask for


_SECTIONS = [one.name for one in fields_in(ChainWords) if one.default_factory is set]  # lists of words


def read_chain_words(documents: Iterable[Document]) -> ChainWords:
    """What the files named `vocabulary: chain` say. Raises RuleError."""
    found = ChainWords()
    for document in documents:
        fields = fields_of(document)
        fields.text("vocabulary")
        for rank, words in enumerate(fields.sequence("order")):
            found.order.update({str(word): rank for word in words if str(word) not in found.order})
        for section in _SECTIONS:
            getattr(found, section).update(fields.words(section))
        found.gates.update(
            {**{str(word): str(gate) for word, gate in fields.mapping("gates").items()}, **found.gates}
        )
        for table in TABLES:
            rows = found.tables.setdefault(table, {})
            rows.update({**_expressions(fields, table), **rows})
        for fact, values in fields.choices("candidates").items():
            found.candidates.setdefault(fact, tuple(map(str, values)))
        fields.done()
    return found


def _expressions(fields: Fields, table: str) -> dict[str, str]:
    rows = fields.mapping(table)
    for word, text in rows.items():
        if not isinstance(text, str):
            fields.fail("expected an expression over x", table, word)
    return {str(word): text for word, text in rows.items()}
