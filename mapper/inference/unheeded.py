"""Fields of a config that nobody read: whether some computation must need one, by its name and its value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from typing import TYPE_CHECKING, Any, NamedTuple

from mapper.architecture import Block
from mapper.rulebook.flows import EITHER
from mapper.words import parts

if TYPE_CHECKING:
    from mapper.inference.scopes import Scope
    from mapper.rulebook.facts import ConfigVocabulary


def must_be_read(field: str, value: Any, vocabulary: ConfigVocabulary, is_of_a_class: bool) -> bool:
    """Whether a model is another one without a field, by its dotted name.

    Where a class wrote the config, with `model_type`, any flag that is set may change what it computes, whatever it
    is called; training code keeps flags of its own beside the sizes of a model.
    """
    words = parts(field.rpartition(".")[2])
    if not words.isdisjoint(vocabulary.harmless):
        return False
    numbers = vocabulary.telling | vocabulary.counting
    if isinstance(value, bool):
        if not value:
            return not words.isdisjoint(vocabulary.expected)
        if not words.isdisjoint(vocabulary.stored) or _is_usual(field, vocabulary):
            return False
        return is_of_a_class or not words.isdisjoint(numbers | vocabulary.choosing)
    if isinstance(value, (int, float)):
        return value not in (0, 1) and not words.isdisjoint(numbers)
    return _chooses(value, vocabulary.unchosen) and not words.isdisjoint(vocabulary.choosing)


def _is_usual(field: str, vocabulary: ConfigVocabulary) -> bool:
    """Whether a flag says of most models what is so: `use_rope`, but neither `no_rope` nor `rope_on_values`."""
    name = field.rpartition(".")[2]
    plain = (name.removeprefix(start) for start in vocabulary.having | vocabulary.affirming)
    return not vocabulary.expected.isdisjoint((name, *plain))


def _chooses(value: Any, unchosen: Set[str]) -> bool:
    """Whether a word is none of those that stand for nothing, or a list more than factors of one."""
    if isinstance(value, str):
        return value.lower() not in unchosen
    return bool(value) and not (
        isinstance(value, list) and len(value) > 1 and all(item == 1 for item in value)
    )


class Told(NamedTuple):
    """Fields, by the last word of their names, whose answer something else shows."""

    names: frozenset[str]
    flags: frozenset[str]  # only where they are true: a part is there

    def says(self, field: str, value: Any) -> bool:
        name = field.rpartition(".")[2]
        return name in self.names or (value is True and name in self.flags)

    def also(self, names: Iterable[str]) -> Told:
        return self._replace(names=self.names.union(names))


NOTHING = Told(frozenset(), frozenset())


def told_by_names(vocabulary: ConfigVocabulary, root: Scope) -> Told:
    """Flags of parts that are there, and fields of parts that are not, or of layers that differ."""
    scopes = (root, *root.below())
    roles = {
        f"{block}.{role}"
        for scope in scopes
        for block in (scope.block.kind, scope.block.role)
        for role in scope.block.roles
    }
    shown = (fields for role, fields in vocabulary.shown.items() if role in roles)
    stored = {word for leaf in root.block.leaves() for word in leaf.place if isinstance(word, str)}
    flags = {start + word for word in stored for start in ("", *vocabulary.having)}
    names = of_what_lacks(vocabulary, root).union(vocabulary.by_layers if _differ(scopes) else ())
    return Told(names, frozenset(flags).union(*shown))


def of_what_lacks(vocabulary: ConfigVocabulary, root: Scope) -> frozenset[str]:
    """Fields that nothing but parts need which the checkpoint has not."""
    words = {word for scope in (root, *root.below()) for word in (scope.block.kind, *scope.block.roles)}
    lacking = (
        fields for either, fields in vocabulary.only_with.items() if words.isdisjoint(either.split(EITHER))
    )
    return frozenset().union(*lacking)


def _differ(scopes: Iterable[Scope]) -> bool:
    """Whether layers of some stack have other parts than the rest of it."""
    stacks = (value for scope in scopes for value in scope.block.roles.values() if isinstance(value, list))
    kinds = ({frozenset(item.roles) for item in stack if isinstance(item, Block)} for stack in stacks)
    return any(len(kind) > 1 for kind in kinds)


def repeats_a_number(value: Any, field: str, read: Mapping[str, Any]) -> bool:
    """Whether a list has one number alone, which a field that was read has, whose name ends alike: `[1e4, 1e4]`, a base."""
    if not isinstance(value, list) or len(value) < 2 or any(item != value[0] for item in value):
        return False
    if isinstance(value[0], bool) or not isinstance(value[0], (int, float)):
        return False
    last = _last_word(field)
    return any(said == value[0] and _last_word(name) == last for name, said in read.items())


def _last_word(field: str) -> str:
    return field.rpartition(".")[2].rpartition("_")[2]
