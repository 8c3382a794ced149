"""Fields of a config that nobody read: whether some computation must need one, by its name and its value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from mapper.architecture import Block
from mapper.words import parts

if TYPE_CHECKING:
    from mapper.inference.scopes import Scope
    from mapper.rulebook.facts import ConfigVocabulary

_THERE = ("use_", "has_", "add_", "with_", "enable_")  # before the name of a part that is there
_PLAIN = ("", "none", "null", "default", "auto")  # words that choose nothing


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
        usual = words & vocabulary.expected
        if usual and not value:
            return True
        is_short = field.rpartition(".")[2].count("_") < 2  # `use_rope`, not `rope_on_values`
        if (is_short and usual) or any("_" in word for word in usual):
            return False
        return value and (is_of_a_class or not words.isdisjoint(numbers | vocabulary.choosing))
    if isinstance(value, (int, float)):
        return value not in (0, 1) and not words.isdisjoint(numbers)
    return _chooses(value) and not words.isdisjoint(vocabulary.choosing)


def _chooses(value: Any) -> bool:
    """Whether a word is none of those that stand for nothing, or a list more than factors of one."""
    if isinstance(value, str):
        return value.lower() not in _PLAIN
    return bool(value) and not (isinstance(value, list) and all(item == 1 for item in value))


def told_by_names(vocabulary: ConfigVocabulary, root: Scope) -> set[str]:
    """Fields that say what the names show: a part that is there, or more of a part that is not."""
    scopes = (root, *root.below())
    roles = {f"{scope.block.kind}.{role}" for scope in scopes for role in scope.block.roles}
    words = {word for role in roles for word in role.split(".")}
    shown = (fields for role, fields in vocabulary.shown.items() if role in roles)
    others = (fields for word, fields in vocabulary.only_with.items() if word not in words)
    stored = {word for leaf in root.block.leaves() for word in leaf.place if isinstance(word, str)}
    flags = {start + word for word in stored for start in ("", *_THERE)}
    return flags.union(*shown, *others, vocabulary.by_layers if _differ(scopes) else ())


def _differ(scopes: Iterable[Scope]) -> bool:
    """Whether layers of some stack have other parts than the rest of it."""
    stacks = (value for scope in scopes for value in scope.block.roles.values() if isinstance(value, list))
    kinds = ({frozenset(item.roles) for item in stack if isinstance(item, Block)} for stack in stacks)
    return any(len(kind) > 1 for kind in kinds)


def repeats_a_number(value: Any, field: str, read: Mapping[str, Any]) -> bool:
    """Whether a list has one number alone, which a field that was read has under a like name: `[1e4, 1e4]`, a base."""
    if not isinstance(value, list) or not value or any(item != value[0] for item in value):
        return False
    words = parts(field.rpartition(".")[2])
    return any(
        said == value[0] and not words.isdisjoint(parts(name.rpartition(".")[2]))
        for name, said in read.items()
    )
