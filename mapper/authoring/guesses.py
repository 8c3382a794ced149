"""What a module without a role may be, for a first draft: by where it stands, its shape, and what stands beside it.

A guess needs evidence that leaves one role; where several would do, the words decide if one is clearly closer, and
where they do not either, nothing is guessed: the roles that would do are said instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import permutations
from typing import TYPE_CHECKING

from mapper.architecture import ROW_NORMS, Architecture, Block, Leaf, Place
from mapper.authoring.pairs import pairs
from mapper.errors import joined
from mapper.flows import arithmetic
from mapper.rulebook.flows import ANY, FlowRule, aligned
from mapper.words import normal

if TYPE_CHECKING:
    from mapper.rulebook.rulebook import Rulebook

_ALIKE = 0.75  # of a word that a role is known by, to count for it
_CLEARLY = 0.15  # how much closer the closest must be than the next
_FEW = 2  # roles that a flow may lack of which a block has fewer
_MOST = 4  # modules without a role in one block: of more, nothing can be said
_BLOCKS = ("feed_forward", "attention")  # what a folder in a layer may be that nothing is known of
_TABLES = {
    "vocab_size": "token",
    "positions": "position",
    "segments": "token_type",
}  # by what their rows count
_FIRST, _SECOND = "norm_attention", "norm_feed_forward"
_HEAD = "/lm_head"  # of the whole, not of its tower

Env = dict[str, int]  # extents as flows write them, or symbols: what they are here


@dataclass(frozen=True)
class Guess:
    """A role as a family's `names` write it, with its reason; without one, the roles that would do."""

    role: str = ""
    why: str = ""
    kind: str = ""  # of the leaf, where the role is for another than it was taken for
    among: tuple[str, ...] = ()


class Guesser:
    """Goes through a checkpoint block by block; what is guessed is known to what comes after."""

    def __init__(self, architecture: Architecture, rulebook: Rulebook):
        self.architecture, self.rulebook = architecture, rulebook
        self.words = _known_words(rulebook)
        self.idle = [leaf for leaf in architecture.leaves if leaf.role is None and leaf.kind != "Buffer"]
        self.config = architecture.checkpoint.config or {}
        self.found: dict[Place, Guess] = {}

    def all(self) -> dict[Place, Guess]:
        """A guess, or none, for each module without a role."""
        blocks = list(self.architecture.root.blocks())
        self._last_norm()
        for block in sorted(blocks, key=lambda block: -len(block.home)):
            if next(block.leaves(), None):
                self._beside(block)
        for block in blocks:
            if block.kind == "layer":
                self._folders(block)
                self._norms(block)
        self._tables()
        return {leaf.place: self.found.get(leaf.place, Guess()) for leaf in self.idle}

    def _beside(self, block: Block) -> None:
        """What a block lacks that has some of the roles of a flow."""
        topic = block.kind if block.kind != "other" else block.role
        name = block.role.rstrip("_0123456789")  # the second attention of a layer is told apart by its folder
        here = self._idle_in(block.home)
        if topic == "layer" or not 0 < len(here) <= _MOST or not block.roles:
            return
        roles: dict[Place, dict[str, None]] = {leaf.place: {} for leaf in here}
        for rules in self._plainest_first(topic, block):
            for rule, env in rules:
                lacking = [role for role in rule.needs if role not in block.roles]
                if len(lacking) > max(len(block.roles), _FEW):
                    continue  # more than is there: that it is this flow nothing says
                others = [role for role in rule.roles if role not in block.roles]
                for chosen in _assignments(rule, here, lacking or others, lacking, env):
                    for leaf, role in zip(here, chosen, strict=True):
                        roles[leaf.place][role] = None
            if any(roles.values()):
                break
        there = joined(list(block.roles))
        why = f"{name} has {there} here, and its shape is that of what is lacking"
        self._settle(here, roles, name, why)

    def _plainest_first(self, topic: str, block: Block) -> Iterator[list[tuple[FlowRule, Env]]]:
        """The flows that have a use for all roles of a block, with the sizes that these show, by their conditions."""
        fitting = [rule for rule in self._rules(topic) if block.roles.keys() <= set(rule.roles)]
        for count in sorted({len(rule.when) for rule in fitting}):
            alike = ((rule, _env(block, rule)) for rule in fitting if len(rule.when) == count)
            yield [(rule, env) for rule, env in alike if env is not None]

    def _folders(self, layer: Block) -> None:
        """A folder of a layer in which nothing has a role: the block that its shapes make, if they make one alone."""
        width = _width([*layer.leaves(), *self._idle_in(layer.home)])
        folders: dict[Place, list[Leaf]] = {}
        for leaf in self._open(self._idle_below(layer.home)):
            if leaf.kind == "Linear" and len(leaf.place) > len(layer.home) + 1:
                folders.setdefault(_folder(leaf), []).append(leaf)
        if width is None:
            return
        for folder, leaves in folders.items():
            topics = self._topics(layer, folder)
            roles: dict[Place, dict[str, None]] = {leaf.place: {} for leaf in leaves}
            fitting = [topic for topic in topics if self._makes(topic, leaves, {"hidden_size": width}, roles)]
            if len(fitting) == 1:
                why = f"the shapes of this folder are those of a {fitting[0]} in a layer of {width}"
                self._settle(leaves, roles, fitting[0], why)

    def _topics(self, layer: Block, folder: Place) -> list[str]:
        """What a folder may be that has no role in it: what its own name says, else what the layer has not yet."""
        blocks = list(layer.blocks())
        named = [block.kind for block in blocks if block.home == folder and block.kind in _BLOCKS]
        there = {block.kind for block in blocks if next(block.leaves(), None)}
        return named[:1] or [topic for topic in _BLOCKS if topic not in there]

    def _makes(
        self, topic: str, leaves: Sequence[Leaf], env: Env, roles: dict[Place, dict[str, None]]
    ) -> bool:
        """Whether leaves are all that a flow of a topic needs, the plainest that fits; notes what each would be."""
        whole = [
            rule
            for rule in self._rules(topic)
            if len(rule.needs) == len(leaves) <= _MOST
            and set(rule.needs) <= set(rule.shapes)
            and not rule.by_name_only
        ]
        ranked = sorted(whole, key=lambda rule: (-self._weight(topic, rule), len(rule.when)))
        fits = [(rule, list(_assignments(rule, leaves, rule.needs, rule.needs, env))) for rule in ranked]
        fits = [(rule, made) for rule, made in fits if made]
        # of the flows of the same roles the one whose shapes leave the least open
        alike = [made for rule, made in fits if set(rule.needs) == set(fits[0][0].needs)]
        for chosen in min(alike, key=len, default=[]):
            for leaf, role in zip(leaves, chosen, strict=True):
                roles[leaf.place][role] = None
        return bool(fits)

    def _weight(self, topic: str, rule: FlowRule) -> int:
        """How many words are known of what a flow needs: the more, the more models have it."""
        return sum(len(self.words.get(f"{topic}.{role}", ())) for role in rule.needs)

    def _norms(self, layer: Block) -> None:
        """Two norms of a layer: the first stands with its attention, if their numbers or words tell which is first."""
        here = [leaf for leaf in self._open(self._idle_in(layer.home)) if leaf.kind in ROW_NORMS]
        lacking = [role for role in (_FIRST, _SECOND) if role not in layer.roles]
        if len(here) == 1 and len(lacking) == 1:
            other = next(role for role in (_FIRST, _SECOND) if role != lacking[0])
            self._say(here[0], lacking[0], f"the layer's other norm is {other}")
            return
        numbers = {leaf.place: _last_number(leaf) for leaf in here}
        if (
            len(here) == 2 == len(lacking)
            and len(set(numbers.values())) == 2
            and None not in numbers.values()
        ):
            for leaf, role in zip(
                sorted(here, key=lambda leaf: numbers[leaf.place] or 0), lacking, strict=True
            ):
                place = "first" if role == _FIRST else "second"
                self._say(leaf, role, f"by its number the {place} of the layer's two norms")
            return
        self._settle(
            here, {leaf.place: dict.fromkeys(lacking) for leaf in here}, "", "the layer has no such norm yet"
        )

    def _tables(self) -> None:
        """Tables and heads outside of layers: what has as many rows as the config says there are words."""
        taken = {leaf.role for leaf in self.architecture.root.leaves()}
        for fact, role in _TABLES.items():
            fields = {str(self.config[name]): name for name in self._fields(fact) if name in self.config}
            could = [f"embeddings.{role}"] if role not in taken else []
            could += [_HEAD] if fact == "vocab_size" and _HEAD[1:] not in taken else []
            rows = {leaf.place: _rows(leaf) for leaf in self._open(self.idle)}
            here = [leaf for leaf in self._open(self.idle) if str(rows[leaf.place]) in fields]
            why = [
                f"it has {rows[leaf.place]} rows, as config {fields[str(rows[leaf.place])]} says"
                for leaf in here
            ]
            roles = {
                leaf.place: dict.fromkeys(
                    name for name in could if name == _HEAD or "bias" not in leaf.tensors
                )
                for leaf in here
            }
            self._settle(here, roles, "", why[0] if why else "")

    def _fields(self, fact: str) -> list[str]:
        rules = self.rulebook.config_vocabulary.facts.get(fact, ())
        return [*(name for rule in rules for name in rule.config), fact]

    def _last_norm(self) -> None:
        outside = [
            leaf
            for leaf in self._open(self.idle)
            if leaf.kind in ROW_NORMS and not any(isinstance(part, tuple) for part in leaf.place)
        ]
        roles = {leaf.role for leaf in self.architecture.root.leaves()}
        if len(outside) == 1 and "final_norm" not in roles:
            self._say(outside[0], "final_norm", "the only norm outside of the layers")

    def _settle(
        self, leaves: Sequence[Leaf], roles: Mapping[Place, Mapping[str, None]], block: str, why: str
    ) -> None:
        """Give each leaf the role that is left for it, or whose words are clearly closest to its own, no role twice.

        Where there is neither, what would do is kept.
        """
        could = {
            leaf.place: [f"{block}.{role}" if block else role for role in roles[leaf.place]]
            for leaf in leaves
        }
        rest = [leaf for leaf in leaves if could[leaf.place]]
        while rest:
            found = {leaf.place: self._closest(leaf, could[leaf.place]) for leaf in rest}
            chosen = [role for role, _ in found.values()]
            sure = [leaf for leaf in rest if found[leaf.place][0] and chosen.count(found[leaf.place][0]) == 1]
            if not sure:
                break
            for leaf in sure:
                role, said = found[leaf.place]
                self._say(leaf, role, f"{why}; {said}" if said else why)
            rest = [leaf for leaf in rest if leaf not in sure]
            for leaf in rest:
                could[leaf.place] = [role for role in could[leaf.place] if role not in chosen]
        for leaf in rest:
            self.found[leaf.place] = Guess(among=tuple(could[leaf.place]))

    def _say(self, leaf: Leaf, role: str, why: str) -> None:
        kind = (
            "Embedding"
            if role.startswith("embeddings.") and role.rpartition(".")[2] in _TABLES.values()
            else ""
        )
        self.found[leaf.place] = Guess(role, why, kind if leaf.kind == "Linear" else "")

    def _closest(self, leaf: Leaf, roles: Sequence[str]) -> tuple[str, str]:
        """The only role, or the one by whose words a leaf is called, with what is like it; "" where that is none."""
        if len(roles) < 2:
            return (roles[0] if roles else ""), ""
        name = normal(str(next(part for part in reversed(leaf.place) if isinstance(part, str))))
        scores = sorted(
            ((*max((_alikeness(name, word), word) for word in self._words(role)), role) for role in roles),
            reverse=True,
        )
        best, word, role = scores[0]
        if best < _ALIKE or best - scores[1][0] < _CLEARLY:
            return "", ""
        return role, f"{name!r} is like {word!r}"

    def _words(self, role: str) -> list[str]:
        return [*self.words.get(role.lstrip("/"), ()), role.lstrip("/").rpartition(".")[2]]

    def _rules(self, topic: str) -> list[FlowRule]:
        """The flows of a topic, those among them that steps make: every two that can stand together in one at least."""
        known = self.rulebook.paired
        if topic not in known:
            pages = self.rulebook.flows.pages(topic)
            made = [rule for page in pages for rule in pairs(page)]
            known[topic] = [*self.rulebook.flows.of_topic(topic), *made]
        return known[topic]

    def _open(self, leaves: Iterable[Leaf]) -> list[Leaf]:
        return [leaf for leaf in leaves if leaf.place not in self.found]

    def _idle_in(self, home: Place) -> list[Leaf]:
        return [leaf for leaf in self.idle if _folder(leaf) == home]

    def _idle_below(self, home: Place) -> list[Leaf]:
        return [leaf for leaf in self.idle if leaf.place.within(home)]


def _assignments(
    rule: FlowRule, leaves: Sequence[Leaf], free: Sequence[str], lacking: Sequence[str], env: Env
) -> Iterator[tuple[str, ...]]:
    """Roles for these leaves, each another, with nothing lacking after it and every shape as the flow has it."""
    if len(lacking) > len(leaves) or len(free) > 2 * _MOST:
        return
    for chosen in permutations(free, len(leaves)):
        if set(lacking) <= set(chosen) and _known(rule, zip(chosen, leaves, strict=True), env) is not None:
            yield chosen


def _known(rule: FlowRule, taken: Iterable[tuple[str, Leaf]], env: Env) -> Env | None:
    """The sizes that these leaves in these roles show beside those of `env`; None where they contradict."""
    known, products = dict(env), []
    for role, leaf in taken:
        extents, shape = rule.shapes.get(role), _shape(leaf)
        if extents is None or len(aligned(extents, len(shape))) != len(shape):
            return None
        for text, extent in zip(aligned(extents, len(shape)), shape, strict=True):
            if text.isidentifier() and text != ANY and known.setdefault(text, extent) != extent:
                return None
            products += [] if text.isidentifier() else [(text, extent)]
    return known if all(_holds(text, extent, known) for text, extent in products) else None


def _holds(text: str, extent: int, known: Env) -> bool:
    """Whether `2 * intermediate_size` is what it should be, as far as its parts are known; notes what it shows."""
    node = arithmetic.parse(text)
    if any(name not in known for name in arithmetic.names(node)):
        return known.setdefault(text, extent) == extent
    try:
        return bool(arithmetic.evaluate(node, known) == extent)
    except ValueError:
        return False


def _env(block: Block, rule: FlowRule) -> Env | None:
    """What the roles that a block has show of the sizes of a flow; None where they contradict it."""
    there = [
        (role, value)
        for role, value in block.roles.items()
        if isinstance(value, Leaf) and role in rule.shapes
    ]
    return _known(rule, there, {})


def _folder(leaf: Leaf) -> Place:
    """Where a leaf stands: a list of one's elements is no folder."""
    return Place(leaf.place[: -2 if isinstance(leaf.place[-1], tuple) else -1])


def _shape(leaf: Leaf) -> tuple[int, ...]:
    weight = leaf.tensors.get("weight") or max(leaf.tensors.values(), key=lambda info: len(info.shape))
    return weight.shape[::-1] if leaf.form == "transposed" else tuple(weight.shape)


def _width(leaves: Sequence[Leaf]) -> int | None:
    """How wide a layer is: what its norms have, or what its attention reads."""
    widths = {_shape(leaf)[0] for leaf in leaves if leaf.kind in ROW_NORMS}
    widths = widths or {_shape(leaf)[-1] for leaf in leaves if leaf.role in ("query", "key", "value", "qkv")}
    return widths.pop() if len(widths) == 1 else None


def _last_number(leaf: Leaf) -> int | None:
    word = str(leaf.place[-1])
    digits = word[len(word.rstrip("0123456789")) :]
    return int(digits) if digits else None


def _known_words(rulebook: Rulebook) -> dict[str, list[str]]:
    """The words of each role, as the vocabulary has them: the last of each pattern."""
    found: dict[str, list[str]] = {}
    for file in rulebook.vocabulary:
        for entry in file.entries:
            if entry.section == "roles":
                words = [normal(name.rpartition(".")[2]) for name in entry.names]
                found.setdefault(entry.target, []).extend(words)
    return found


def _alikeness(name: str, word: str) -> float:
    """From 0 to 1: as letters go, where there are four; a word in the other, or that begins a part of it, is like it."""
    parts = word.split("_")
    if word in name.split("_") or (len(name) >= 3 and any(part.startswith(name) for part in parts)):
        return 0.95
    return (
        SequenceMatcher(None, name, word).ratio() if min(len(name), len(word)) >= 4 else float(name == word)
    )


def _rows(leaf: Leaf) -> int | None:
    """How many rows a table outside of lists has."""
    weight = leaf.tensors.get("weight") or next(iter(leaf.tensors.values()))
    is_table = len(weight.shape) == 2 and not any(isinstance(part, tuple) for part in leaf.place)
    return weight.shape[0] if is_table else None
