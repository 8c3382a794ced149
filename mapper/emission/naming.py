"""Names and docstrings of generated classes: after their role, told apart by tower, by what they have, by number."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from itertools import count, product, takewhile

from mapper.architecture import Block, Leaf, Place
from mapper.emission.drafts import ClassText, blocks_of
from mapper.emission.expressions import comment
from mapper.emission.identifiers import camel
from mapper.emission.kinds import attends
from mapper.emission.module_tree import Folder
from mapper.flows.program import Program
from mapper.flows.references import has_role
from mapper.flows.words import docstring
from mapper.rulebook.pages import JOINED
from mapper.words import unnumbered

_CALLED = {
    "layers": "layer",
    "stages": "stage",
    "experts": "expert",
    "single_heads": "single_head",
    "convolutions": "convolution",
    "blocks": "block",
    "moe": "mixture_of_experts",
}
RESERVED_CLASSES = frozenset(  # of the file itself, and Python's that it reads
    {
        "Config",
        "Output",
        "Tensor",
        "Path",
        "F",
        "Model",
        "RENAMED",
        "RuntimeError",
        "FileNotFoundError",
        "ValueError",
    }
)


def name_classes(
    classes: list[ClassText], root: Folder, taken: set[str], program: Program | None = None
) -> None:
    """Gives every class a name that no other has."""
    taken = taken | RESERVED_CLASSES
    by_name: dict[str, list[ClassText]] = {}
    for done in classes:
        if done.drafts[0].folder is root:
            done.name = "Model"
        else:
            by_name.setdefault(camel(base_name(done.drafts[0].folder)), []).append(done)
    for base, group in by_name.items():
        names = _names_of(base, group, program)
        for done in group:
            done.name = _unique(names[id(done)], taken)
            taken.add(done.name)


_SAID = {"moe": "experts"}
_TOO_SHORT = ("self", "cls")  # names of folders that say nothing without the one around them


def base_name(folder: Folder) -> str:
    """What a class is called if no other has the name."""
    block = folder.block or (folder.methods[0] if folder.methods else None)
    if block is None or (folder.block is None and len(folder.methods) > 1):
        words = [part for part in folder.place if isinstance(part, str)] or ["items"]
        return "_".join(words[-2:]) if words[-1] in _TOO_SHORT else words[-1]
    if block.flow and block.flow.startswith("tower/"):
        name = _tower_name(block.flow.partition("/")[2])
        return _ENCODER if name == "decoder" and _POOLING in block.roles else name
    role = unnumbered(block.role)
    return _CALLED.get(role, role)


_ENCODER = "encoder"
_NOUNS = frozenset({_ENCODER, "decoder"})
_POOLING = "pooling"  # of what makes one vector of a text, and no text, however its mask is


def _tower_name(flow: str) -> str:
    """`decoder_mixed` is a decoder: what stands behind the noun tells flows apart, not classes. Of steps one says it."""
    steps = [step.split("_") for step in flow.split(JOINED)]
    words = next((step for step in steps if not _NOUNS.isdisjoint(step)), steps[0])
    words = [_ENCODER] if words == ["embeddings"] else words  # which any has
    at = next((at for at, word in enumerate(words) if word in _NOUNS), len(words))
    return "_".join(words[: at + 1])


def _names_of(base: str, group: list[ClassText], program: Program | None) -> dict[int, str]:
    """A name for each class of one base: told apart by their towers, and within one by what they are."""
    by_tower: dict[str, list[ClassText]] = {}
    for done in group:
        by_tower.setdefault(done.drafts[0].folder.tower, []).append(done)
    names: dict[int, str] = {}
    for role, peers in by_tower.items():
        tower = camel(role) if role and len(by_tower) > 1 else ""
        if len(peers) == 1:  # the encoder, not the encoder's encoder
            names[id(peers[0])] = base if tower == base else tower + base
        else:
            names |= _told_apart(tower + base, peers, program)
    return names


def _told_apart(plain: str, peers: list[ClassText], program: Program | None) -> dict[int, str]:
    """A name for each class: by the roles, steps or flags that others have not, its own or those of the blocks below.

    After these by what its docstring says that others' do not, and by where in a list it stands.
    """
    best: dict[int, str] = {}
    sorts = (_leafy, _steps, _flags, _upsampling)
    kinds = [partial(whose, words_of) for words_of in sorts for whose in (_own, _inner)]
    kinds.insert(1, partial(_own, attends))  # what it is, before what its parts have
    for most, kind in product((1, 2), kinds):
        names = _named_by(kind, most, plain, peers)
        if len(set(names.values())) > len(set(best.values())):
            best = names
    alike = [[done for done in peers if best[id(done)] == name] for name in dict.fromkeys(best.values())]
    for group in alike if len(alike) > 1 else []:
        if len(group) > 1:
            best |= _told_apart(best[id(group[0])], group, program)
    if len(set(best.values())) == 1:
        names = _named_by(partial(_own, partial(_said, program)), 1, plain, peers)
        return names if len(set(names.values())) > 1 else best | _by_place(plain, peers)
    return best


_ORDINALS = ("First", "Second", "Third", "Fourth", "Fifth", "Sixth", "Seventh", "Eighth", "Ninth", "Tenth")


def _by_place(plain: str, peers: list[ClassText]) -> dict[int, str]:
    """`FirstStage` where each class is of another element of one list, all but one of one element alone."""
    places = {id(done): [draft.folder.place for draft in done.drafts] for done in peers}
    every = [place for some in places.values() for place in some]
    for at in range(min(map(len, every))):
        parts = {key: {place[at] for place in some} for key, some in places.items()}
        if len(set().union(*parts.values())) > 1:
            break
    else:
        return {}
    single = {key: next(iter(own)) for key, own in parts.items() if len(own) == 1}
    found = {key: part[0] for key, part in single.items() if isinstance(part, tuple) and len(part) == 1}
    is_list = all(isinstance(part, tuple) for own in parts.values() for part in own)
    if not is_list or len(found) < len(peers) - 1 or len({*found.values()}) < len(found):
        return {}
    if max(found.values(), default=len(_ORDINALS)) >= len(_ORDINALS):
        return {}
    word = next((part for part in reversed(every[0][:at]) if isinstance(part, str)), "")
    element = camel(_CALLED.get(word, word.removesuffix("s")))
    is_element = all(len(place) == at + 1 for place in every)
    where = "" if plain.startswith(element) or (is_element and element in plain) else element
    return {key: f"{_ORDINALS[number]}{where}{plain}" for key, number in found.items()}


_PHRASE = re.compile(r",? with |, | and |: ")
# what ends the words that a phrase begins with
_ENDS = frozenset(
    ["to", "of", "by", "for", "in", "over", "after", "before", "from", "at", "on", "as", "where", "that"]
)
_ARTICLES = frozenset({"a", "an", "the"})


def _said(program: Program | None, block: Block) -> list[str]:
    """What the docstring of a block says it is with, each in the words before any preposition: `max_pooling`."""
    found = []
    for phrase in _PHRASE.split(_doc(block, program))[1:]:
        words = [*takewhile(lambda word: word not in _ENDS, phrase.lower().split())]
        words = [word for word in words if word not in _ARTICLES and word.isalpha()]
        if len(words) > 1 and words[-1].endswith("ed"):
            words = words[:-1]
        found.append("_".join(words[:3]))
    return [*filter(None, found)]


def _named_by(
    words_of: Callable[[ClassText], set[str]], most: int, plain: str, peers: list[ClassText]
) -> dict[int, str]:
    """`LayerWithExperts` where one has what the others have not; the plain name where nothing is more, or for the most usual."""
    every = {id(done): words_of(done) for done in peers}
    common = set.intersection(*every.values())
    extras = {key: words - common for key, words in every.items()}
    usual = max(peers, key=_instances) if all(extras.values()) else None
    names: dict[int, str] = {}
    for done in peers:
        own = extras[id(done)]
        others = set().union(*(extras[id(other)] for other in peers if other is not done))
        told = sorted(own, key=lambda word: (word in others, len(word), word))[:most]
        words = "".join(camel(_SAID.get(word, _plain(word, common))) for word in told)
        more = "And" if "With" in plain else "With"
        names[id(done)] = plain if done is usual or not own else f"{plain}{more}{words}"
    return names


def _plain(word: str, common: set[str]) -> str:
    """`residual` of `residual_1`, but where all have another one: then the number tells them apart."""
    plain = unnumbered(word)
    return word if any(unnumbered(other) == plain for other in common) else plain


def _own(words_of: Callable[[Block], list[str]], done: ClassText) -> set[str]:
    """The words of the blocks whose forward a class holds."""
    return {word for block in blocks_of(done.drafts[0].folder) for word in words_of(block)}


def _inner(words_of: Callable[[Block], list[str]], done: ClassText) -> set[str]:
    """The words of the blocks below these."""
    below = (inner for block in blocks_of(done.drafts[0].folder) for inner in block.blocks())
    return {word for inner in below for word in words_of(inner)}


def _flags(block: Block) -> list[str]:
    """What is so of a block and may not be of others: `layer.residual`, a stride of more than 1."""
    words = {name: name.rpartition(".")[2] for name in block.facts}
    return [
        words[name]
        for name, fact in block.facts.items()
        if fact.value is True or (words[name] == "stride" and fact.value not in (None, 1))
    ]


def _upsampling(block: Block) -> list[str]:
    """Whether a map grows by a convolution, where another block of the same roles may make steps."""
    leaves = (value for value in block.roles.values() if isinstance(value, Leaf))
    return ["upsampling"] if any(leaf.kind.startswith("ConvTranspose") for leaf in leaves) else []


def _steps(block: Block) -> list[str]:
    """What a block's flow was put together from, or the flow that is written out."""
    return (block.flow or "").partition("/")[2].split(JOINED) if block.flow else []


def _leafy(block: Block) -> list[str]:
    """The roles of a block, without the parts that its flow calls: these are methods, not modules."""
    return [role for role, value in block.roles.items() if not (isinstance(value, Block) and not value.roles)]


def _instances(done: ClassText) -> int:
    return sum(Place(draft.folder.place).instances for draft in done.drafts)


def _unique(name: str, taken: set[str]) -> str:
    if name not in taken:
        return name
    return next(f"{name}{number}" for number in count(2) if f"{name}{number}" not in taken)


def describe(done: ClassText, program: Program | None) -> str:
    """The docstring: where in the checkpoint, and what the flow says it does."""
    places = _patterns([draft.folder.place for draft in done.drafts])
    where = ", ".join(places[:2]) + (f" and {len(places) - 2} more" if len(places) > 2 else "")
    block = done.drafts[0].folder.block
    doc = _doc(block, program)
    if doc.startswith(where.lower()):  # "the model with a language modeling head"
        return comment(f"{doc[0].upper()}{doc[1:]}.")
    if not doc and not done.drafts[0].methods:
        doc = "holds what the module around it computes with"
    return comment(f"{where}: {doc}." if doc else f"{where}.")


def _patterns(places: list[Place]) -> list[str]:
    """The places of a class, those that differ in their numbers alone as one."""
    alike: dict[tuple[str, ...], list[Place]] = {}
    for place in places:
        alike.setdefault(tuple(part if isinstance(part, str) else "*" for part in place), []).append(place)
    return [
        ".".join(_star({place[at] for place in group}) for at in range(len(group[0]))) or "The model"
        for group in alike.values()
    ]


def _star(parts: set[str | tuple[int, ...]]) -> str:
    part = next(iter(parts))
    return pattern(Place((part,))) if len(parts) == 1 else "*"


def _doc(block: Block | None, program: Program | None) -> str:
    if block is None or program is None or id(block) not in program.pieces:
        return ""
    flow = program.piece(block).flow
    doc = docstring(
        flow.rule.doc, flow.worded, lambda role: has_role(block, role), lambda name: block.facts[name].value
    )
    return " ".join(doc.split()).rstrip(".")


def pattern(place: Place) -> str:
    """A folded path with a star for every list."""
    return (
        ".".join(part if isinstance(part, str) else "*" if len(part) > 1 else str(part[0]) for part in place)
        or "The model"
    )
