"""A graph as the data of a page: plain JSON values, every text of a file made printable."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from mapper.architecture import Architecture, Fact
from mapper.emission import emitted
from mapper.errors import MapperError
from mapper.picture.code import Code
from mapper.picture.graph import LOOSE, OPERATION, PORT, UNREAD, Graph, Node, graph
from mapper.report.chain import value_text
from mapper.report.heading import stored, what_it_is
from mapper.report.questions import plain_values
from mapper.report.text import MEANING
from mapper.report.wording import in_bytes, printable

if TYPE_CHECKING:
    from mapper.values.result import Values as Measured

_TEXT = 400  # characters of a name that are shown
_OPENED = 100  # nodes that stand in the picture as it opens, or fewer
_ANSWERS = 16  # values of a question that are there to copy

_Facts = dict[tuple[str, ...], int]  # what is shown of a fact -> its place in the document


def document(
    architecture: Architecture, values: Measured | None = None, differs: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """What a page shows of a reading.

    `values` is what was measured of the weights: a row for the panel of each tensor, and what is wrong; `differs` says of keys how they differ from
    those of another checkpoint. Raises SourceError where the source holds several models.
    """
    refuse_several(architecture)
    program, code = None, None
    refused = ""
    try:
        file = emitted(architecture)
        program, code = file.program, Code(file.text, file.classes)
    except MapperError as error:  # something is open: the page says what, and shows what is known
        refused = "" if architecture.questions else error.in_command()  # the questions say it themselves
    found = graph(architecture, program, differs)
    numbers = _values(architecture, values)
    facts = _facts(found)
    return {
        "title": printable(architecture.checkpoint.source, _TEXT),
        "subtitle": f"{what_it_is(architecture)} · {stored(architecture.checkpoint)}",
        "reading": architecture.reading,
        "meaning": MEANING.get(architecture.reading, ""),
        "flows": program is not None,
        "nodes": _nodes(found, code, facts, numbers),
        "edges": [[edge.level, edge.start, edge.end, edge.way] for edge in found.edges],
        "open": opened(found),
        "facts": [list(fact) for fact in facts],
        "source": code.rows if code else [],
        "refused": printable(refused, _TEXT),
        "notices": [*_wrong(values), *notices(architecture)],
        "inputs": _inputs(architecture),
        "values": numbers,
    }


def _values(architecture: Architecture, values: Measured | None) -> dict[str, dict[str, str]]:
    if values is None:
        return {}
    from mapper.picture.measured import rows  # numpy: only now

    return {printable(key, _TEXT): dict(row) for key, row in rows(architecture, values).items()}


def _wrong(values: Measured | None) -> list[dict[str, str]]:
    """What is wrong with the weights, and what is worth knowing of them."""
    if values is None:
        return []
    told = [("finding", trouble.text) for trouble in values.troubles] + [
        ("note", note) for note in values.notes
    ]
    return [{"kind": kind, "text": printable(text, 2 * _TEXT), "set": ""} for kind, text in told]


def refuse_several(architecture: Architecture) -> None:
    """Raise SourceError for a source with several models: one picture is of one."""
    if architecture.parts:
        from mapper.sources.parts import refuse_whole

        parts = {name: part.checkpoint for name, part in architecture.parts.items()}
        refuse_whole(architecture.checkpoint, parts, architecture.rulebook)


def notices(architecture: Architecture) -> list[dict[str, Any]]:
    """What a reader has to know or to answer, the gravest first; `set` is what answers it on a command line."""
    asked = [
        {
            "kind": "question",
            "text": printable(str(question), 2 * _TEXT),
            "set": printable(question.set, _TEXT),
            "values": plain_values(question, _ANSWERS),
        }
        for question in architecture.questions
    ]
    answered = {str(question) for question in architecture.questions}
    rows = [("unknown", text) for text in architecture.missing if text not in answered]
    rows += [("finding", text) for text in architecture.findings]
    rows += [("unmapped", f"{key}: no role") for key in architecture.unmapped[:_OPENED]]
    rows += [("note", note) for note in [*architecture.checkpoint.notes, *architecture.notes]]
    told = [{"kind": kind, "text": printable(text, 2 * _TEXT), "set": ""} for kind, text in rows]
    return asked + told


def opened(found: Graph) -> list[int]:
    """The nodes that are open at first: level by level, of several alike one, as long as all of a level find room."""
    shown, ahead = 1, [found.root]
    result: list[int] = []
    while ahead:
        shown += sum(len(node.children) for node in ahead)
        if result and shown > _OPENED:
            break
        result += [node.id for node in ahead]
        ahead = [child for node in ahead for child in _worth_opening(found, node)]
    return result


def _worth_opening(found: Graph, node: Node) -> list[Node]:
    """The largest of each role: of layers that differ, the one that stands for most."""
    best: dict[str, Node] = {}
    for child in found.inside(node):
        if child.title in (LOOSE, UNREAD) or not child.children:
            continue
        known = best.get(child.role)
        if known is None or child.count > known.count:
            best[child.role] = child
    return list(best.values())


def _nodes(
    found: Graph, code: Code | None, facts: _Facts, numbers: Mapping[str, Mapping[str, str]]
) -> list[dict[str, Any]]:
    links = _links(found)
    whole = max(1, found.root.bytes)
    return [
        {
            "id": node.id,
            "parent": node.parent,
            "kind": node.kind,
            "title": printable(node.title, _TEXT),
            "detail": printable(node.detail, _TEXT),
            "role": node.role,
            "place": printable(str(node.place), _TEXT),
            "link": links[node.id],
            "count": node.count,
            "indices": node.indices,
            "children": node.children,
            "bytes": node.bytes,
            "size": in_bytes(node.bytes),
            "share": round(node.bytes / whole, 5),
            "tensors": [
                [printable(tensor.key, _TEXT), list(tensor.shape), tensor.dtype, tensor.count, tensor.bytes]
                for tensor in node.tensors
            ],
            "facts": list(dict.fromkeys(facts[_fact(fact)] for fact in node.facts)),
            "origin": printable(node.origin, _TEXT),
            "flow": node.flow,
            "steps": node.steps,
            "differs": node.differs,
            "idle": printable(node.idle, _TEXT),
            "mark": printable(node.mark or _wrong_numbers(node, numbers), _TEXT),
            "asks": node.asks,
            "alone": _is_alone(found, node),
            "lines": _lines(node, code),
        }
        for node in found.nodes
    ]


def _is_alone(found: Graph, node: Node) -> bool:
    """Whether a port is the only one of its side, inside of a block: what goes through needs no name there."""
    if node.kind != PORT or node.parent in (None, found.root.id):
        return False
    around = found.nodes[node.parent or 0]
    return sum(other.kind == PORT and other.role == node.role for other in found.inside(around)) == 1


def _lines(node: Node, code: Code | None) -> list[int]:
    if code is None or node.kind in (OPERATION, PORT):
        return []
    return list(code.of(node.place) or ())


def _links(found: Graph) -> list[str]:
    """What a page's address calls each node: its first path, with the role behind it where others share the path."""
    paths = [printable(node.place.first(), _TEXT) for node in found.nodes]
    held: Counter[str] = Counter()
    links = []
    for node, path in zip(found.nodes, paths, strict=True):
        if node.kind in (OPERATION, PORT):
            links.append("")
            continue
        name = path if path and not held[path] else f"{path}/{node.role or node.title}"
        held[path] += 1
        held[name] += name != path
        links.append(name if held[name] == 1 else f"{name}~{node.id}")
    return links


def _wrong_numbers(node: Node, numbers: Mapping[str, Mapping[str, str]]) -> str:
    """What is wrong with the numbers of a module's tensors, where they were read."""
    told = (numbers.get(printable(tensor.key, _TEXT), {}).get("wrong", "") for tensor in node.tensors)
    return ", ".join(dict.fromkeys(filter(None, told)))


def _facts(found: Graph) -> _Facts:
    """Every fact once: equal blocks repeat those of the whole."""
    shown = dict.fromkeys(_fact(fact) for node in found.nodes for fact in node.facts)
    return {fact: number for number, fact in enumerate(shown)}


def _fact(fact: Fact) -> tuple[str, ...]:
    where = "" if fact.at in ("", "*") else fact.at
    shown = [fact.name, value_text(fact.value), fact.evidence, fact.source, where, fact.rule]
    return tuple(printable(text, _TEXT) for text in shown)


def _inputs(architecture: Architecture) -> list[list[str]]:
    rows: Iterable[tuple[str, Mapping[str, Any]]] = architecture.inputs.items()
    return [
        [name, f"({', '.join(map(str, spec.get('shape', ())))})", str(spec.get("dtype", "")),
         "optional" if spec.get("optional") else "required"]
        for name, spec in rows
    ]  # fmt: skip
