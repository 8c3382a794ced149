"""The first stage: the leaves and blocks of a checkpoint, how many layers there are, and what is known of facts."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence

from mapper._dataclass import dataclass
from mapper.architecture import Leaf, Place
from mapper.inference.asking import Asked
from mapper.inference.case import Case, Doubts
from mapper.inference.chains.elements import unfolded
from mapper.inference.config import Config
from mapper.inference.counting import count_layers
from mapper.inference.declared_facts import declared_facts
from mapper.inference.facts import Facts
from mapper.inference.families import words_of
from mapper.inference.hints import GivenHints, check_scopes, read_hints
from mapper.inference.observed import by_fact
from mapper.inference.pruned import pruned
from mapper.inference.scopes import Scope, leaf_scope, scopes
from mapper.inference.split_layers import differing_elements
from mapper.inference.unused import why_unused
from mapper.naming.blocks import build_blocks
from mapper.naming.leaf_groups import with_taken_roles
from mapper.naming.resolve import Groups, resolve
from mapper.naming.shown_roles import with_shown_roles
from mapper.naming.vocabulary import Vocabulary


@dataclass
class Outline:
    """Leaves in blocks, and what is known of them."""

    leaves: list[Leaf]
    read: list[Leaf]  # those that a forward may read
    unused: list[tuple[Leaf, str]]  # the others, each with why
    root: Scope
    facts: Facts
    asked: Asked

    def every(self) -> Iterator[Scope]:
        """The blocks, from the outermost on."""
        yield self.root
        yield from self.root.below()


def lay_out(case: Case, doubts: Doubts) -> Outline:
    """The outline of a checkpoint; equal layers that a config tells apart are blocks of their own."""
    vocabulary = words_of(case.rulebook, case.families, case.names)
    notes, findings = list(doubts.notes), list(doubts.findings)
    outline = _placed(case, doubts, vocabulary, None)
    if apart := differing_elements(outline.root, outline.facts):
        doubts.notes, doubts.findings = notes, findings
        outline = _placed(case, doubts, vocabulary, apart)
    narrowed = any(item.at for item in outline.facts.hints.given)
    flows = case.rulebook.flows.everything() if narrowed else ()
    is_known = (
        case.families.whole is not None
    )  # else its layers may yet be a chain, each with a name of its own
    bare = (leaf for leaf in outline.read if leaf.role is None or not is_known)
    loose = (leaf_scope(outline.root, one) for leaf in bare for one in unfolded(leaf))
    check_scopes(
        outline.facts.hints.given, outline.root, {part for rule in flows for part in rule.calls}, loose
    )
    return outline


def _unnamed(case: Case, named: Sequence[Leaf], shown: Sequence[Leaf], read: Container[Place]) -> list[str]:
    """A line for each module that shapes alone give a role, though a family vouches for the type: all its names are known."""
    if not case.families.are_vouched_for:
        return []
    return [
        f"{leaf.place} is read as {leaf.role} ({leaf.why}), and no rule names it"
        for leaf, before in zip(shown, named, strict=True)
        if leaf.role != before.role and leaf.place in read
    ]


def _placed(case: Case, doubts: Doubts, vocabulary: Vocabulary, apart: Groups | None) -> Outline:
    """The blocks that the leaves make, and what is known of them."""
    leaves = case.chain.leaves() if case.chain else resolve(case.tree, vocabulary, apart)
    shown = leaves if case.chain else with_shown_roles(leaves, vocabulary)
    named, leaves = leaves, with_taken_roles(shown, case.taken)
    reasons = [(leaf, why_unused(leaf, vocabulary)) for leaf in leaves]
    read = [leaf for leaf, why in reasons if not why]
    doubts.findings += _unnamed(case, named, shown, {leaf.place for leaf in read})
    root = scopes(build_blocks(read, vocabulary))
    facts = known_facts(case, root, vocabulary)
    doubts.notes += [f"{item.source}: {item.note}" for item in facts.hints.given if item.note]
    doubts.notes += pruned(case.checkpoint.tensors)
    for place, line in count_layers(root):
        if case.judges(place):
            doubts.gap([line])
        else:
            doubts.findings.append(line)
    unused = [(leaf, why) for leaf, why in reasons if why]
    return Outline(leaves, read, unused, root, facts, Asked(root, facts))


def known_facts(case: Case, root: Scope, vocabulary: Vocabulary) -> Facts:
    """What config, families and the user say of the blocks."""
    families, words = case.families, case.rulebook.config_vocabulary
    listed = families.match.model_type if families.match and families.match.by_type else None
    config = Config(case.checkpoint.config, words, listed, families.fields_said() if listed else frozenset())
    config.lone = _lone_tower(root, vocabulary)
    config.halves = families.halves
    config.looked_up = case.looked_up
    declared = declared_facts(case.rulebook, families, case.rulebook.flow_facts)
    hints = GivenHints(read_hints(case.hints, declared.types, case.rulebook))
    return Facts(declared, families, config, case.names, hints, by_fact(case.checkpoint.observed))


def _lone_tower(root: Scope, vocabulary: Vocabulary) -> str | None:
    """What the path of the only tower says that it is: `vision_model.encoder` in a checkpoint of that part alone."""
    towers = [scope for scope in root.below() if scope.tower is scope]
    words = towers[0].block.home if len(towers) == 1 else ()
    return next(filter(None, (vocabulary.tower(words[: at + 1]) for at in range(len(words)))), None)
