"""Tables that no name shows: a matrix without a bias that another layer reads the rows of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from mapper.architecture import Leaf
from mapper.inference.chains.answers import Answers
from mapper.inference.chains.elements import EMBEDDING, LINEAR, Element, element_of
from mapper.inference.chains.links import Link
from mapper.inference.chains.naming import ENCODER, ranked

_KIND = "Embedding"


def with_tables(leaves: Sequence[Leaf], ranks: Mapping[str, int]) -> list[Leaf]:
    """The leaves, those as tables that are no linear layers by what the others read: nobody reads so many features as they would give.

    The last layer of a network gives what nobody reads, too: it reads what another layer gives, and what it reads nobody else does,
    or its name does not say that it comes first. One column with as many rows as a table has a weight for each of them (1703.04247).
    """
    elements = {id(leaf): element for leaf in leaves if (element := element_of(leaf)) and element.is_main}
    doubtful = [leaf for leaf in leaves if _is_doubtful(elements.get(id(leaf)))]
    settled = [element for element in elements.values() if not _is_doubtful(element)]
    read = {element.inputs for element in settled}
    given = {element.outputs for element in settled}
    given |= {
        element.outputs // 2 for element in settled if element.is_bidirectional
    }  # both directions, summed
    given |= {
        element.outputs
        for element in map(elements.get, map(id, doubtful))
        if element and element.inputs in given
    }
    tables = {
        id(leaf)
        for leaf in doubtful
        if _reads_rows((element := elements[id(leaf)]).inputs, read, given)
        and element.outputs not in read
        and (element.inputs not in given or ranked(leaf.place, ranks) <= ENCODER)
    }
    rows = {element.inputs for element in elements.values() if element.group == EMBEDDING}
    tables |= {
        id(leaf) for leaf in doubtful if elements[id(leaf)].inputs == 1 and elements[id(leaf)].outputs in rows
    }
    return [replace(leaf, kind=_KIND) if id(leaf) in tables else leaf for leaf in leaves]


def ask_tied(links: Sequence[Link], answers: Answers) -> None:
    """Asks whether what the last layer gives is compared with every row of the only table, which is as wide: scores of all words or items (1608.05859)."""
    mains = [link.element for link in links if link.element.is_main]
    tables = [element for element in mains if element.group == EMBEDDING]
    last = mains[-1]
    if len(tables) == 1 and last.group == LINEAR and last.outputs == tables[0].outputs > 1:
        among = (last.name, f"{last.name} @ transposed({tables[0].name}.weight)")
        answers.find(last.leaf, "chain.gives", among=among)


def _reads_rows(width: int, read: set[int], given: set[int]) -> bool:
    """Whether some layer reads a row of a table, or several in one row that no layer gives (a language model, 2003)."""
    return width in read or (width > 1 and any(each % width == 0 for each in read - given))


def _is_doubtful(element: Element | None) -> bool:
    """Whether it is a matrix alone, which may be that of a linear layer or a table."""
    if element is None or element.group != LINEAR or element.outputs == 1:  # no table has one row alone
        return False
    return set(element.leaf.tensors) == {"weight"}
