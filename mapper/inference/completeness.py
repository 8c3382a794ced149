"""What a checkpoint lacks: tensors that its other layers have, and names that every checkpoint of a family has."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Any

from mapper.architecture import NORMS, Leaf, Place
from mapper.catalogue import published
from mapper.errors import listed, shorten
from mapper.inference.config import Config
from mapper.inference.matching import AnyFamily, FamilyMatch
from mapper.inference.names import EITHER, Names, ends, words_of
from mapper.inference.scopes import Scope
from mapper.naming.members import DIRECTIONS, LENGTHS, UNDIVIDED
from mapper.naming.vocabulary import in_region, pattern_words
from mapper.rulebook.complete import ROOT, holds, lacking, lesser
from mapper.rulebook.elements import Words, spelled
from mapper.rulebook.families import Family
from mapper.rulebook.vocabulary import Region

LOST = "; if part of the file is lost, get it whole"  # what to do about a line here that is fatal


class Gap(str):
    """A line about tensors that are not there, or make no sense, with their names."""

    tensors: tuple[str, ...] = ()


def tensors_of(line: str) -> tuple[str, ...]:
    """The tensors that a line is about; none where it is about something else."""
    return line.tensors if isinstance(line, Gap) else ()


def _gap(place: Place, names: Iterable[str], line: str) -> Gap:
    """A line about some tensors of a module in every layer that it stands for."""
    gap = Gap(line)
    gap.tensors = tuple(f"{path}.{name}" if name else path for path in place.expand() for name in names)
    return gap


def _missing(place: Place, name: str, why: str) -> Gap:
    return _gap(place, [name], f"{place}.{name} is missing: {why}")


_BIASED = ("Linear", *NORMS, "Conv1d", "Conv2d", "Conv3d")
_STACKED = ("in_proj_weight", "in_proj_bias")
_PAIRS = (("weight", "bias"), ("running_mean", "running_var"))
_NORMED = tuple(zip(LENGTHS, DIRECTIONS, strict=True))
_TENSORS = (
    "weight",
    "bias",
    "gamma",
    "scale",
    "beta",
)  # what equal modules of two layers both have or both lack


def lacking_names(
    family: Family, names: Names, model_type: str | None, without: Iterable[str] = ()
) -> list[str]:
    """A line for the patterns of a family that do not occur though every checkpoint of it has them.

    Of a tower, the whole may say that it is `without` some.
    """
    lacking = [name for name in lacking_patterns(family, names, model_type) if name not in {*without}]
    return [_has_no(lacking, family)] if lacking else []


def _has_no(patterns: Iterable[str], family: AnyFamily) -> str:
    """A line for what a family's checkpoints have; a pattern without what it stands below."""
    words = dict.fromkeys(pattern.removeprefix(f"{ROOT}.") for pattern in patterns)
    return f"the checkpoint has no {listed(list(words))}, which every {family.name} has"


def lacking_patterns(family: Family, names: Names, model_type: str | None) -> list[str]:
    """The patterns of a family that do not occur though every checkpoint of it has them."""
    wanted = [*family.requires, *family.requires_of.get(model_type or "", ())]
    for pattern, others in (*family.implies.items(), *family.implies_of.get(model_type or "", {}).items()):
        wanted += others if names.has(pattern) else ()
    return [pattern for pattern in wanted if not names.has(pattern)]


def absent_names(match: FamilyMatch, names: Names, config: Config) -> list[str]:
    """What every checkpoint of a family has, but for biases, and one of an unlisted type has not.

    What such a family knows without a field, it knows of checkpoints that are whole: of where positions are from, say.
    """
    if match.by_type or not config.is_of_a_class or match.family.towers:
        return []
    return [name for name in lacking_patterns(match.family, names, None) if not name.endswith(".bias")]


def lacking_of_examples(
    family: Family, names: Names, without: Iterable[str], elsewhere: Iterable[Region]
) -> list[str]:
    """A line for what every complete example of a family has and the checkpoint has not.

    What `without` says may be missing; what is `elsewhere` is of towers that other families read.
    """
    may_be_missing = _may_be_missing(family, without, elsewhere)
    every = lacking(family.complete, names.tensors(), family.recognise)
    missed = [path for path in every if not may_be_missing(path)]
    return [_has_no(map(spelled, missed), family)] if missed else []


def lesser_elements(
    family: Family,
    names: Names,
    without: Iterable[str],
    elsewhere: Iterable[Region],
    varying: Container[str],
) -> list[str]:
    """A line for what an element of a list lacks, where no complete example of the family has one with the rest alone.

    Beside what may be missing anywhere some may lack what is `varying`, as folded paths.
    """
    anywhere = _may_be_missing(family, without, elsewhere)
    paths = lesser(
        family.complete,
        names.tensors(),
        family.recognise,
        lambda path: anywhere(path) or spelled(path) in varying,
    )
    return [
        f"{Place(path)} is missing: no {family.name} has an element with the rest alone" for path in paths
    ]


def _may_be_missing(
    family: Family, without: Iterable[str], elsewhere: Iterable[Region]
) -> Callable[[Words], bool]:
    """Whether a path, which may be a folder, is what a pattern means, or stands elsewhere."""
    optional, others = [pattern_words(pattern) for pattern in without], list(elsewhere)
    return lambda path: (
        any(ends(path, words) for words in optional)
        or _holds_alone(family, path, optional)
        or any(in_region(region, path) for region in others)
    )


def _holds_alone(family: Family, folder: Words, optional: Iterable[Sequence[str]]) -> bool:
    """Whether a folder has nothing in the examples but what patterns mean, and its bias: that never stands alone."""
    own = {words[-1] for words in optional if len(words) > 1 and ends(folder, words[:-1])} - {"bias"}
    return bool(own) and holds(family.complete, folder) <= own | {"bias"}


def may_lack(
    family: Family, config: Mapping[str, Any], model_type: str | None, common: Iterable[str]
) -> list[str]:
    """Patterns of what need not be there: what a field of the config says is not, what may be left out, what nobody reads."""
    decided = unpromised(family, config, model_type)
    either = (
        part
        for pattern in (*decided, *family.optional, *family.unused, *common)
        for part in pattern.split(EITHER)
    )
    return list(either)


def lacking_kept_roles(family: Family, every: Iterable[Scope]) -> list[str]:
    """A line for each role that every block of that name has in a family, and one here has not."""
    lines = []
    for scope in every:
        for path in family.requires_roles:
            block, _, role = path.rpartition(".")
            if scope.block.role == block and role not in scope.block.roles:
                where = f" at '{scope.block.home}'" if scope.block.home else ""
                lines.append(f"{block}{where} has no {role}, which every {family.name} has")
    return lines


def unread_names(family: Family, idle: Iterable[Leaf]) -> list[str]:
    """A line for each leaf without a use under a name that every checkpoint of a family has: its shapes make no sense."""
    patterns = [
        pattern_words(either)
        for pattern in (*family.requires, *family.recognise)
        for either in pattern.split(EITHER)
    ]
    lines: list[str] = []
    for leaf in idle:
        words = words_of(leaf.place)
        if any(ends(path, pattern) for path in (words, words[:-1]) for pattern in patterns):
            shapes = ", ".join(f"{name} {list(info.shape)}".strip() for name, info in leaf.tensors.items())
            lines.append(
                _gap(
                    leaf.place,
                    leaf.tensors,
                    f"{leaf.place} is read by no flow, though every {family.name} needs it: it is {shapes}",
                )
            )
    return lines


def broken_promises(
    family: Family, config: Mapping[str, Any], names: Names, model_type: str | None = None
) -> tuple[list[str], list[str]]:
    """Lines for tensors that a field of the config says are there and are not, and for those that it says are not."""
    lacking, extra = [], []
    for field, patterns in {**family.present_if, **family.present_if_of.get(model_type or "", {})}.items():
        said = _said(config, field)
        if not isinstance(said, (bool, int, float, str, list)):
            continue
        promised = _asks(said)
        for pattern in patterns:
            if (
                promised
                and not names.has(pattern)
                and all(map(names.has, family.present_beside.get((field, pattern), ())))
            ):
                lacking.append(f"the checkpoint has no {pattern!r}, though config {field} is {_shown(said)}")
            if not promised and names.has(pattern):
                extra.append(f"the checkpoint has {pattern!r}, though config {field} is {_shown(said)}")
    return lacking, extra


def _said(config: Mapping[str, Any], field: str) -> object:
    """What a config says of a field; of `field=word` whether that is its value, or among its values."""
    name, _, word = field.partition("=")
    value = _value(config, name)
    if not word or value is None:
        return value
    return word in map(str, value) if isinstance(value, list) else word == str(value)


def _value(config: Mapping[str, Any], field: str) -> object:
    """The value of a field (`part.field`: of one inside of a part), or of the one config inside that has it."""
    folder, _, last = field.rpartition(".")
    if folder:
        part = config.get(folder)
        return part.get(last) if isinstance(part, Mapping) else None
    inner = [part[field] for part in config.values() if isinstance(part, Mapping) and field in part]
    return config.get(field, inner[0] if len(inner) == 1 else None)


def _asks(said: object) -> bool:
    """Whether a field asks for what it present_if: anywhere, where it has a value for each stage."""
    return any(map(_asks, said)) if isinstance(said, list) else said not in (False, 0, "", "none")


def unpromised(family: Family, config: Mapping[str, Any], model_type: str | None = None) -> list[str]:
    """Patterns of what a field of the config says that is not there."""
    every = {**family.present_if, **family.present_if_of.get(model_type or "", {})}
    said = {field: _said(config, field) for field in every}
    silent = [field for field, value in said.items() if value is not None and not _asks(value)]
    return [pattern for field in silent for pattern in every[field]]


def deciding(family: Family, model_type: str | None) -> dict[str, list[str]]:
    """Pattern -> the fields of the config of which one must ask for it, of a family's type."""
    found: dict[str, list[str]] = {}
    for field, patterns in {**family.present_if, **family.present_if_of.get(model_type or "", {})}.items():
        for pattern in patterns:
            found.setdefault(pattern, []).append(field)
    return found


def asks_for(config: Mapping[str, Any], field: str) -> bool:
    """Whether a field of a config is there and asks for what it decides."""
    said = _said(config, field)
    return said is not None and _asks(said)


def has_more(family: Family, model_type: str, names: Names, config: Mapping[str, Any]) -> bool:
    """Whether names are there that a type has only where a field of its config asks for them, and none does."""
    said = stated(model_type, config)
    return any(
        names.has(pattern) and not any(asks_for(said, field) for field in fields)
        for pattern, fields in deciding(family, model_type).items()
    )


def stated(model_type: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """A config of a type; what it leaves out is what the class has by default."""
    row = published.find(model_type)
    return {**(row.fields if row else {}), **config}


def by_element(family: Family, config: Mapping[str, Any], model_type: str | None) -> list[str]:
    """Patterns of what a field of the config says of each element of a list: some have it, and others not."""
    fields = deciding(family, model_type).items()
    return [
        pattern for pattern, names in fields if any(isinstance(_said(config, name), list) for name in names)
    ]


def varying(leaves: Iterable[Leaf], varies: Iterable[str]) -> set[str]:
    """The folded paths of what some elements of a list have and others have not, as a family says by roles, and of folders of these alone."""
    roles = {*varies}
    found: set[str] = set()
    others: set[str] = set()
    for leaf in leaves:
        path = words_of(leaf.place)
        own = {spelled(tuple(path[:end])) for end in range(1, len(path) + 1)}
        inside = {leaf.role, *(role for role, _ in leaf.block)}
        (others if roles.isdisjoint(inside) else found).update(own)
    return found - others


def _shown(value: bool | float | str | list[Any]) -> str:
    return shorten(value) if isinstance(value, str) else str(value).lower()


def lacking_biases(family: Family, leaves: Iterable[Leaf], settled: Iterable[str] = ()) -> list[str]:
    """A line for each map and norm without a bias, where the family gives every one of them a bias.

    `settled` are patterns of biases of which a field of the config says whether they are there.
    """
    if family.unbiased is None:
        return []
    said = [pattern.removesuffix(".bias") for pattern in settled if pattern.endswith(".bias")]
    without = [pattern_words(pattern) for pattern in (*family.unbiased, *said)]
    leaves = list(leaves)
    lacking: list[str] = [
        _missing(leaf.place, "bias", f"every {family.name} has it")
        for leaf in leaves
        if leaf.role is not None
        and leaf.kind in _BIASED
        and not leaf.has_bias
        and not any(ends(words_of(leaf.place), words) for words in without)
    ]
    optional = [pattern_words(pattern) for pattern in (*family.optional, *settled)]
    return lacking + [
        _missing(Place(place[:-1]), str(place[-1]), f"every {family.name} has it")
        for place in _stacked_biases(leaves)
        if not any(ends(words_of(place), words) for words in optional)
    ]


def _stacked_biases(leaves: Iterable[Leaf]) -> Iterator[Place]:
    """Where biases of bare maps for queries, keys and values would stand, and do not: `torch.nn.MultiheadAttention`'s."""
    places = {leaf.place for leaf in leaves}
    for place in sorted(places, key=str):
        if place and place[-1] == _STACKED[0] and (bias := Place((*place[:-1], _STACKED[1]))) not in places:
            yield bias


def has_no_biases(leaves: Iterable[Leaf]) -> bool:
    """Whether no map and no norm has a bias: another architecture than one whose all have, and no incomplete file."""
    return not any(leaf.has_bias for leaf in leaves if leaf.kind in _BIASED)


def lacking_tensors(leaves: Iterable[Leaf]) -> list[str]:
    """A line for each module that lacks a tensor which the same module of another layer has."""
    leaves = list(leaves)
    beside = _stand_beside(leaves)
    alike: dict[tuple[str, ...], list[Leaf]] = {}
    for leaf in leaves:
        if "" not in leaf.tensors and leaf.place and isinstance(leaf.place[-1], str):
            alike.setdefault(tuple(part if isinstance(part, str) else "*" for part in leaf.place), []).append(
                leaf
            )
    uneven = [line for group in alike.values() if len(group) > 1 for line in _unequal(group, beside)]
    return uneven + [line for leaf in leaves if "" not in leaf.tensors for line in _halves(leaf)]


def _halves(leaf: Leaf) -> Iterator[str]:
    """What a norm, a weight-normed kernel or a recurrent layer has of a pair without the other."""
    is_divided = any(name in leaf.tensors for name in UNDIVIDED)  # its vectors are called as directions are
    pairs = [*(() if is_divided else _NORMED), *_recurrent_pairs(leaf)]
    for pair in [*_PAIRS, *pairs] if leaf.kind == "BatchNorm" else pairs:
        there = [name for name in pair if name in leaf.tensors]
        if len(there) == 1:
            (lacking,) = set(pair) - set(there)
            yield _missing(leaf.place, lacking, f"it has {there[0]}")
    if "beta" in leaf.tensors and "gamma" not in leaf.tensors:
        yield _missing(leaf.place, "gamma", "it has beta")


def _recurrent_pairs(leaf: Leaf) -> Iterator[tuple[str, str]]:
    """What a recurrent layer does with its input and with its state before: `weight_ih_l0` and `weight_hh_l0`."""
    for name in leaf.tensors:
        for of_input, of_state in (("_ih_", "_hh_"), ("_hh_", "_ih_")):
            if of_input in name:
                yield name, name.replace(of_input, of_state)


def _unequal(group: list[Leaf], beside: Mapping[Place, set[str]]) -> Iterator[str]:
    for name in _TENSORS:
        having = [leaf for leaf in group if name in leaf.tensors]
        for leaf in group if having else ():
            if name in leaf.tensors or not any(other in leaf.tensors for other in _TENSORS):
                continue
            alike = (other for other in having if not _are_apart(leaf.place, other.place, beside, name))
            if (other := next(alike, None)) is not None:
                yield _missing(leaf.place, name, f"{other.place} has one")


def _are_apart(one: Place, other: Place, beside: Mapping[Place, set[str]], name: str) -> bool:
    """Whether modules are of blocks of two kinds: beside each stands what the other has not.

    Of a bias it is enough that something stands beside the one that has none: a norm adds its own.
    """
    mine, theirs = beside[Place(one[:-1])], beside[Place(other[:-1])]
    return bool(mine - theirs) and (name == "bias" or bool(theirs - mine))


def _stand_beside(leaves: Iterable[Leaf]) -> dict[Place, set[str]]:
    """Folder -> the names in it."""
    found: dict[Place, set[str]] = {}
    for leaf in leaves:
        for at in range(len(leaf.place)):
            found.setdefault(Place(leaf.place[:at]), set()).add(str(leaf.place[at]))
    return found


def lacking_elements(folder: str, indices: Iterable[int]) -> list[str]:
    """A line for the numbers that a list of layers leaves out."""
    present = set(indices)
    last = max(present, default=-1)
    if last + 1 == len(present):
        return []
    first = next(at for at in range(last) if at not in present)
    count = last + 1 - len(present)
    more = f" and {count - 1:,} more are" if count > 1 else " is"
    return [f"{folder}.{first}{more} missing: the list goes on to {last}"]


def lacking_recognition(families: Iterable[AnyFamily], names: Names, model_type: str | None) -> str:
    """What a checkpoint lacks of the family that lists its model_type, where it has the greater part of it; else ""."""
    for family in families:
        if model_type in family.model_types:
            shapes = family.recognise_shapes
            lacking = [pattern for pattern in family.recognise if not names.has(pattern, shapes.get(pattern))]
            if 0 < len(lacking) <= len(family.recognise) / 2:
                return _has_no(lacking, family)
    return ""
