"""Whether layers that make no chain are a network all the same, by what each may read."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from mapper.inference.chains.elements import EMBEDDING, LINEAR
from mapper.inference.chains.nodes import INPUT, Node, Sources, outputs_of
from mapper.inference.chains.pairs import has_pairs
from mapper.inference.chains.texts import names_in
from mapper.rulebook.chain import ChainWords

_OUTPUTS = 6  # of one network
_COUNTED = 3  # layers of one name, of which it is said that they are of one network
_EXTRA = 2  # inputs of vectors beside the first


def is_likely(nodes: Sequence[Node], words: ChainWords) -> bool:
    """Whether layers read what others give: what has no place for its sizes is no network of these layers alone."""
    if has_pairs(nodes):
        return True
    sources = Sources(nodes, words)
    sources.solve()
    known = {name: text for name, (text, _) in sources.known.items()}
    may_be_read = {name for texts in sources.open.values() for text in texts for name in names_in(text)}
    ends = [node for node in outputs_of(known, nodes) if node.name not in may_be_read]
    if len(ends) > _OUTPUTS or len(sources.inputs) > _EXTRA + 1:
        return False
    if any(known[node.name] in sources.inputs and node.name not in sources.open for node in ends):
        return False  # it reads the input, and nobody what it gives
    texts = {*known.values(), *(text for several in sources.open.values() for text in several)}
    if _is_of_maps_alone(nodes) and not _is_counted(nodes) and any(map(_joins_input, texts)):
        return False  # what another input would have to fill up is no sign of one
    has_tables = any(node.first.group == EMBEDDING for node in nodes)
    is_joined = any(not _is_name(text) for text in known.values()) or bool(sources.open)
    is_several = len(sources.inputs) > 1
    return (is_joined or has_tables or is_several) and (not is_several or _is_one(sources, nodes))


def _is_of_maps_alone(nodes: Sequence[Node]) -> bool:
    return all(element.group == LINEAR for node in nodes for element in node.elements if element.is_main)


def _is_counted(nodes: Sequence[Node]) -> bool:
    """Whether layers have one name with a number each, `fc1`, `fc2`, `fc3`, or names whose numbers count them."""
    words = Counter(re.sub(r"\d+", "", node.name) for node in nodes if re.search(r"\d", node.name))
    numbers = sorted(int(found[0]) for node in nodes if (found := re.search(r"\d{1,6}$", node.name)))
    is_one = len(words) == 1 and words.total() == len(nodes)
    return len(nodes) >= _COUNTED and (is_one or numbers == list(range(1, len(nodes) + 1)))


def _joins_input(text: str) -> bool:
    """Whether an input stands beside what a layer gives."""
    found = names_in(text)
    return len(found) > 1 and any(name.startswith(INPUT) for name in found)


def _is_one(sources: Sources, nodes: Sequence[Node]) -> bool:
    """Whether layers that read inputs of their own are joined, or each of them begins a folder of several layers."""
    entering = [node for node in nodes if sources.known[node.name][0] in sources.inputs]
    folders = Counter(node.first.leaf.place[:1] for node in nodes)
    return _is_connected(sources) or all(folders[node.first.leaf.place[:1]] > 1 for node in entering)


def _is_connected(sources: Sources) -> bool:
    """Whether every layer is of one network, by what each reads or may read: more than the input joins them."""
    home = {node.name: node.name for node in sources.nodes}

    def top(name: str) -> str:
        while home[name] != name:
            name = home[name]
        return name

    for name, (text, _) in sources.known.items():
        for said in (text, *sources.open.get(name, ())):
            for other in names_in(said):
                if other in home:
                    home[top(other)] = top(name)
    return len({top(name) for name in home}) == 1


def _is_name(text: str) -> bool:
    return names_in(text) == (text,)
