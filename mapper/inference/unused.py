"""Leaves that no forward reads, and why: a rule names them, or the flow of their block leaves them."""

from __future__ import annotations

from mapper.architecture import Block, Leaf, Place
from mapper.flows.program import Program
from mapper.naming.vocabulary import Vocabulary, in_region
from mapper.words import normal


def why_unread(program: Program, leaf: Leaf) -> str:
    """Why the flow of its block, or of one around it, leaves a leaf unread, if it says so."""
    for piece in program.pieces.values():
        for role, why in piece.flow.rule.ignored.items():
            held = piece.block.roles.get(role)
            for part in held if isinstance(held, list) else [held]:
                if part is leaf or (isinstance(part, Block) and any(item is leaf for item in part.leaves())):
                    return why
    return ""


def why_unused(leaf: Leaf, vocabulary: Vocabulary) -> str:
    """Why no forward reads a leaf, if a rule says so; patterns name the module, one of its tensors or a folder around it."""
    trie = vocabulary.tries["unused"]
    folders = (Place(leaf.place[:end]) for end in range(len(leaf.place) - 1, 0, -1))
    places = [leaf.place, *(leaf.place.child(name) for name in leaf.tensors if name), *folders]
    for place in places:
        words = [normal(part) if isinstance(part, str) else part for part in place]
        for match in trie.matches(words):
            if match.entry.region is None or in_region(match.entry.region, place):
                return match.entry.target
    return ""
