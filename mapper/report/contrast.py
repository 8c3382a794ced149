"""What two readings say differently: blocks and roles, facts, flows, each with where it holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from mapper.architecture import Architecture, Block, Fact, Leaf, Place
from mapper.errors import joined
from mapper.report.wording import counted
from mapper.weights.comparing.places import FUSED

Path = tuple[str, ...]  # role names from the root; elements of a list together
# What a reader asks first; the rest follows by name.
_FIRST = (
    "layers",
    "hidden_size",
    "attention.heads",
    "attention.kv_heads",
    "attention.head_dim",
    "rotary.base",
)
_IMPLIED = {
    "attention.kv_heads": "attention.heads"
}  # where a side does not say it, as many as there are of these: where both have as many, these tell it
_DETAILS = 4  # facts named with a block that one side has
ONLY = 8  # facts of one side that are named
_ROLES = ("query", "key", "value", "output")  # in the order in which they are spoken of; others by name


@dataclass(frozen=True)
class Contrast:
    """One difference: `subject` is `only` on side "a" or "b", or has the values `a` and `b`."""

    subject: str
    where: str = ""  # "24 attention blocks"; "" for the whole model
    a: Any = None
    b: Any = None
    only: str = ""
    defaults: str = ""  # sides whose value is a default of the rules: "a", "b", "ab"

    def as_dict(self) -> dict[str, Any]:
        """One entry of `architecture` in `mapper diff --json`."""
        from mapper.report.as_json import finite

        return {
            "subject": self.subject,
            "where": self.where,
            "only": self.only,
            "a": finite(self.a),
            "b": finite(self.b),
            "defaults": list(self.defaults),
        }


@dataclass
class _Part:
    """What stands at one role path, all elements of a list together."""

    kind: str
    count: int = 0
    kinds: Counter[str] = field(default_factory=Counter)  # of leaves
    tensors: Counter[str] = field(default_factory=Counter)
    flows: dict[str, None] = field(default_factory=dict)
    fused: set[str] = field(
        default_factory=set
    )  # of a block: maps of it that hold several; of a leaf: what holds it


def contrasts(a: Architecture, b: Architecture) -> list[Contrast]:
    """The differences, those of what there is before those of how it computes; exchanging the sides exchanges nothing else."""
    if a.parts or b.parts:
        return list(_of_models(a.parts, b.parts))
    parts = _parts(a.root), _parts(b.root)
    facts = _facts(a), _facts(b)
    alone = _alone(facts, parts, (a.checkpoint.config is None, b.checkpoint.config is None))
    told = sorted([*_roles(*parts, alone, _shared(*facts)), *_tensors(*parts)], key=lambda item: item.only)
    values = list(_values(*facts, parts))
    counts = [
        item for item in _counts(*parts) if (item.a, item.b) not in {(same.a, same.b) for same in values}
    ]
    return [*told, *counts, *values, *_kinds(*parts), *_flows(*parts), *_remaining(alone, parts)]


def _of_models(a: Mapping[str, Architecture], b: Mapping[str, Architecture]) -> Iterator[Contrast]:
    """Of several models those that one side alone has, then the differences of each."""
    for only, mine, theirs in (("a", a, b), ("b", b, a)):
        yield from (Contrast(f"the part {name}", only=only) for name in mine if name not in theirs)
    for name in a:
        for contrast in contrasts(a[name], b[name]) if name in b else ():
            where = f"{name}: {contrast.where}" if contrast.where else name
            yield replace(contrast, where=where)


def words(name: str) -> str:
    """A role or a fact as a person says it: `key_norm`, `attention.kv_heads`."""
    block, dot, rest = name.partition(".")
    if dot and block == "moe":
        name = rest if rest.startswith("expert") else f"expert_{rest}"
    name = name.replace("kv_", "key/value ").replace("moe", "mixture of experts")
    return name.replace("_", " ").replace(".", " ")


# ---------------------------------------------------------------------------------------------------------- parts
def _parts(root: Block) -> dict[Path, _Part]:
    found: dict[Path, _Part] = {
        (): _Part(root.kind, 1, flows=dict.fromkeys([root.flow] if root.flow else []))
    }
    pending: list[tuple[Path, Block]] = [((), root)]
    while pending:
        path, block = pending.pop()
        for role, value in block.roles.items():
            for item in value if isinstance(value, list) else [value]:
                if isinstance(item, Leaf):
                    if role in FUSED:
                        found[path].fused.add(role)
                    for name in FUSED.get(role, (role,)):  # in one map or in several: both have them
                        _add_leaf(found, (*path, name), item, role)
                elif any(True for _ in item.leaves()):  # others are steps of a flow, no parts of a model
                    part = found.setdefault((*path, role), _Part(item.kind))
                    part.count += item.home.instances
                    part.flows |= dict.fromkeys([item.flow] if item.flow else [])
                    pending.append(((*path, role), item))
    return found


def _add_leaf(found: dict[Path, _Part], path: Path, leaf: Leaf, role: str) -> None:
    part = found.setdefault(path, _Part("leaf"))
    part.fused |= {role} & FUSED.keys()
    part.count += leaf.place.instances
    part.kinds[leaf.kind] += leaf.place.instances
    for name in leaf.tensors:
        part.tensors[name] += leaf.place.instances


def _roles(
    a: dict[Path, _Part], b: dict[Path, _Part], alone: dict[str, list[Fact]], shared: list[Fact]
) -> Iterator[Contrast]:
    """Blocks and leaves on one side, those of one block in one sentence; not what is inside of such a block."""
    for side, mine, theirs in (("a", a, b), ("b", b, a)):
        groups: dict[tuple[Path, int], list[str]] = {}
        for path, part in mine.items():
            if path not in theirs and path[:-1] in theirs:
                groups.setdefault((path[:-1], part.count), []).append(path[-1])
        for (above, count), roles in sorted(groups.items()):
            details = _details(roles, alone[side], shared)
            yield Contrast(_joined(_ordered(roles), count) + details, _where(above, mine, count), only=side)


def _details(roles: list[str], facts: list[Fact], shared: list[Fact]) -> str:
    """The sizes of the one block that a side has; each is taken out of the facts that remain to be told."""
    if len(roles) > 1:
        return ""
    own, others = (
        [fact for fact in some if fact.name.startswith(f"{roles[0]}.") and _telling(fact.value)]
        for some in (facts, shared)
    )
    for fact in own:
        facts.remove(fact)
    chosen = sorted(own + others, key=lambda fact: fact.evidence != "shape")  # what weights show first
    shown = [f"{words(fact.name.partition('.')[2])} {value_words(fact.value)}" for fact in chosen[:_DETAILS]]
    return f" ({', '.join(shown)})" if shown else ""


def _joined(roles: list[str], count: int) -> str:
    """`query and key norms`: what ends in the same word together."""
    by_last: dict[str, list[str]] = {}
    for role in roles:
        first, _, last = words(role).rpartition(" ") if role.endswith("_norm") else ("", "", words(role))
        by_last.setdefault(last, []).append(first)
    named = []
    for last, firsts in by_last.items():
        many = last == "norm" and (len(firsts) > 1 or count > 1)
        named.append(f"{joined([first for first in firsts if first])} {last}{'s' if many else ''}".strip())
    return joined(named)


def _tensors(a: dict[Path, _Part], b: dict[Path, _Part]) -> Iterator[Contrast]:
    """Tensors that the same leaves have on one side alone: biases, for the most part."""
    for side, mine, theirs in (("a", a, b), ("b", b, a)):
        groups: dict[tuple[Path, str], list[str]] = {}
        for path, part in mine.items():
            other = theirs.get(path)
            if (
                not other
                or len(part.tensors) <= len(other.tensors)
                or part.kinds.keys() != other.kinds.keys()
            ):
                continue
            for name in part.tensors.keys() - other.tensors.keys():
                groups.setdefault((path[:-1], name), []).append(path[-1])
        for (above, name), roles in sorted(groups.items()):
            what = "biases" if name == "bias" and len(roles) > 1 else words(name)
            yield Contrast(
                f"{what} of {joined([words(role) for role in _ordered(roles)])}",
                _where(above, mine),
                only=side,
            )


def _counts(a: dict[Path, _Part], b: dict[Path, _Part]) -> Iterator[Contrast]:
    """How many there are, where a block has another number of them: layers, experts, norms in some layers."""
    for path in sorted(a.keys() & b.keys()):
        counts = a[path].count, b[path].count
        above = a[path[:-1]].count, b[path[:-1]].count
        if counts[0] == counts[1] or counts[0] * above[1] == counts[1] * above[0]:
            continue
        if all(whole and count % whole == 0 for count, whole in zip(counts, above, strict=True)):
            counts = counts[0] // above[0], counts[1] // above[1]
        yield Contrast(_plural(path[-1]), _above(path[:-1], a, b), *counts)


def _kinds(a: dict[Path, _Part], b: dict[Path, _Part]) -> Iterator[Contrast]:
    """Leaves of another kind, `LayerNorm` and `RMSNorm`; all roles with the same change in one sentence."""
    groups: dict[tuple[str, str], list[str]] = {}
    for path in sorted(a.keys() & b.keys()):
        kinds = _kind_words(a[path]), _kind_words(b[path])
        if kinds[0] != kinds[1] and a[path].fused == b[path].fused:
            groups.setdefault(kinds, []).append(words(path[-1]))
    for (ours, theirs), roles in groups.items():
        yield Contrast(joined(list(dict.fromkeys(roles))), "", ours, theirs)


def _kind_words(part: _Part) -> str:
    """What a role is made of: the kinds of its leaf, or that it is a block, as a head of one map or of several may be."""
    return " and ".join(sorted(part.kinds)) or "a block of several"


def _flows(a: dict[Path, _Part], b: dict[Path, _Part]) -> Iterator[Contrast]:
    """Flows of blocks that both have; the same change in several places is told once."""
    groups: dict[tuple[str, str, str], None] = {}
    for path in sorted(a.keys() & b.keys(), key=lambda path: (len(path), path)):
        ours, theirs = ", ".join(sorted(a[path].flows)), ", ".join(sorted(b[path].flows))
        is_layout = a[path].fused != b[path].fused  # not what is computed, but how it is stored
        if ours and theirs and ours != theirs and (path or a.keys() == b.keys()) and not is_layout:
            groups[words(path[-1]) if path else "the model", ours, theirs] = None
    for subject, ours, theirs in groups:
        yield Contrast(f"flow of {subject}", "", ours, theirs)


# ---------------------------------------------------------------------------------------------------------- facts
@dataclass
class _Known:
    """The facts of a reading: by name, and by name and role path."""

    by_name: dict[str, list[Fact]] = field(default_factory=dict)
    paths: dict[str, Path] = field(default_factory=dict)  # scope -> role path

    def values(self, name: str, path: Path | None = None) -> list[Any]:
        """Its different values, in order; of one role path, or of all."""
        found: list[Any] = []
        for fact in self.by_name.get(name, []):
            if (path is None or self.path(fact) == path) and fact.value not in found:
                found.append(fact.value)
        return found

    def path(self, fact: Fact) -> Path:
        return self.paths.get(fact.at, (fact.at,))

    def defaulted(self, name: str) -> bool:
        return all(fact.evidence == "default" for fact in self.by_name.get(name, []))


def _facts(architecture: Architecture) -> _Known:
    known = _Known(paths=_scopes(architecture.root))
    for fact in architecture.facts:
        known.by_name.setdefault(fact.name, []).append(fact)
    return known


def _scopes(root: Block) -> dict[str, Path]:
    """What facts call a place, as the role path of what stands there; the outermost where several do."""
    found: dict[str, Path] = {"*": (), "": ()}
    pending: list[tuple[Path, Block]] = [((), root)]
    for path, block in pending:
        for role, value in block.roles.items():
            for item in value if isinstance(value, list) else [value]:
                found.setdefault(_scope(item.place if isinstance(item, Leaf) else item.home), (*path, role))
                if isinstance(item, Block):
                    pending.append(((*path, role), item))
    return found


def _scope(place: Place) -> str:
    return ".".join(part if isinstance(part, str) else "*" for part in place)


def _alone(
    facts: tuple[_Known, _Known],
    parts: tuple[dict[Path, _Part], dict[Path, _Part]],
    silent: tuple[bool, bool],
) -> dict[str, list[Fact]]:
    """Facts of one side that the other knows nothing of: no defaults, nor what rests on a config where the other has none.

    A rule's statement does: it holds for the type that the config says. So does what only a flow that is chosen by the
    config reads off shapes, where the other side has the same tensors.
    """
    found: dict[str, list[Fact]] = {}
    for side, at, other in (("a", 0, 1), ("b", 1, 0)):
        mine, there = facts[at], parts[other]
        found[side] = [
            same[0]
            for name, same in mine.by_name.items()
            if name not in facts[other].by_name
            and name not in (*_IMPLIED, "attention.fused")
            and not all(_is_weak(fact, mine.path(fact), there, silent[other]) for fact in same)
        ]
    return found


def _is_weak(fact: Fact, path: Path, there: dict[Path, _Part], is_silent: bool) -> bool:
    """Whether a fact of one side would hold for the other, too, for all that is known."""
    if fact.evidence == "default" or not is_silent:
        return fact.evidence == "default"
    return fact.evidence in ("config", "rule") or (fact.evidence == "shape" and path in there)


def _shared(a: _Known, b: _Known) -> list[Fact]:
    """Facts that both sides know alike and not by default: of a block that one side has, the other knows them elsewhere."""
    both = (name for name in a.by_name if _alike(a.values(name), b.values(name)))
    return [a.by_name[name][0] for name in both if not (a.defaulted(name) or b.defaulted(name))]


def _values(a: _Known, b: _Known, parts: tuple[dict[Path, _Part], dict[Path, _Part]]) -> Iterator[Contrast]:
    """Facts that both sides know with different values: once for the whole model where it has one value."""
    names = (a.by_name.keys() & b.by_name.keys()) | {
        name for name in _IMPLIED if (name in a.by_name) != (name in b.by_name)
    }
    for name in sorted(names, key=lambda name: (_FIRST.index(name) if name in _FIRST else len(_FIRST), name)):
        ours, theirs = (known.values(name) or known.values(_IMPLIED.get(name, "")) for known in (a, b))
        if _alike(ours, theirs) or not (ours and theirs) or _is_implied(name, a, b):
            continue
        if len(ours) == len(theirs) == 1:
            yield _fact(name, "", ours[0], theirs[0], a, b)
            continue
        for path in sorted({a.path(fact) for fact in a.by_name.get(name, [])}):
            mine, others = a.values(name, path), b.values(name, path)
            if mine and others and not _alike(mine, others):
                yield _fact(name, _above(path, *parts), _one(mine), _one(others), a, b)


def _is_implied(name: str, a: _Known, b: _Known) -> bool:
    """Whether it follows from another fact on both sides, and differs as that one does."""
    other = _IMPLIED.get(name, "")
    return all(not known.values(name) or known.values(name) == known.values(other) for known in (a, b))


def _fact(name: str, where: str, ours: Any, theirs: Any, a: _Known, b: _Known) -> Contrast:
    defaults = "".join(
        side for side, known in (("a", a), ("b", b)) if name in known.by_name and known.defaulted(name)
    )
    return Contrast(_short(name), where, ours, theirs, defaults=defaults)


def _short(name: str) -> str:
    """`attention.kv_heads` is of an attention, as everyone knows; `norm.eps` is not without its norm."""
    first, _, rest = name.partition(".")
    return words(rest if first == "attention" and rest.endswith("heads") and rest != "heads" else name)


def _alike(ours: list[Any], theirs: list[Any]) -> bool:
    return len(ours) == len(theirs) and all(value in theirs for value in ours)


def _one(values: list[Any]) -> Any:
    return values[0] if len(values) == 1 else values


def _remaining(
    alone: dict[str, list[Fact]], parts: tuple[dict[Path, _Part], dict[Path, _Part]]
) -> Iterator[Contrast]:
    """What one side alone says, in one sentence: a switch that is off says nothing, and a list too much."""
    for side in "ab":
        facts = [fact for fact in alone[side] if _telling(fact.value)]
        named = [f"{words(fact.name)} {value_words(fact.value)}" for fact in facts]
        if named:
            more = f" and {counted(len(named) - ONLY, 'more fact')}" if len(named) > ONLY else ""
            yield Contrast(", ".join(named[:ONLY]) + more, only=side)


def _telling(value: Any) -> bool:
    return value is not None and value is not False and not isinstance(value, (list, dict))


def value_words(value: Any) -> str:
    """`yes`, `1,000,000`, `1e-06`, `none`, a text as it is."""
    from mapper.report.chain import value_text

    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return "none"
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15 and value >= 1000:
        value = int(value)
    return f"{value:,}" if isinstance(value, int) else value_text(value)


# ----------------------------------------------------------------------------------------------------------- where
def _where(path: Path, parts: dict[Path, _Part], count: int | None = None) -> str:
    """`24 attention blocks`, `6 of 24 layers`, `the embeddings`; nothing for the model itself and its only tower."""
    if not path or path == ("tower",):
        return ""
    whole, noun = parts[path].count, words(path[-1])
    tower = f" ({words(path[0])})" if len(path) > 1 and path[0] != "tower" else ""
    if whole == 1:
        return f"the {noun}{tower}"
    some = f"{count:,} of " if count is not None and count < whole else ""
    return f"{some}{whole:,} {noun if noun.endswith('s') else f'{noun} blocks'}{tower}"


def _above(path: Path, a: dict[Path, _Part], b: dict[Path, _Part]) -> str:
    """Which of several towers or heads a fact or a number is of."""
    if not path or path[0] == "tower" or (path not in a and path not in b):
        return ""
    return words(path[0])


def _plural(role: str) -> str:
    noun = words(role)
    return noun if noun.endswith("s") else f"{noun}s"


def _ordered(roles: list[str]) -> list[str]:
    """Query before key before value, and their norms alike."""
    place = {role: at for at, role in enumerate(_ROLES)}
    return sorted(roles, key=lambda role: (place.get(role.partition("_")[0], len(_ROLES)), role))
