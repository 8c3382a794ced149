"""The config of a checkpoint: which part a tower reads, what was read, and what nobody read."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any, cast

from mapper.inference.completed import Completed, complete
from mapper.inference.fields import Found, idle_of, is_said, is_same, spread, tells_apart, with_lone_values
from mapper.inference.forms import ANY, ANYWHERE, could_be_meant, field_names, is_form, may_be_there
from mapper.inference.scopes import Scope
from mapper.inference.unheeded import NOTHING, Told, must_be_read, repeats_a_number
from mapper.rulebook.facts import TYPE, ConfigVocabulary, FactRule
from mapper.rulebook.ignored import Ignored
from mapper.rulebook.values import shown
from mapper.words import parts

_ABSENT: Any = object()
_NAMING = ("model_type", "architecture", "architectures")  # what says what the whole or a part of it is
_TYPES = "layer_types"  # the field that says of each layer which kind it is of
_SHOWN = 200  # characters of a field that nobody reads: longer ones are named, not kept


class Config:
    """Looks fields up for a block, and remembers which were looked up with success."""

    def __init__(
        self,
        data: Mapping[str, Any] | None,
        vocabulary: ConfigVocabulary,
        listed_type: str | None = None,
        said: frozenset[str] = frozenset(),
    ):
        self.data: Mapping[str, Any] = data if isinstance(data, Mapping) else {}
        self.seen: Completed = complete(
            self.data, listed_type, said
        )  # what a listed type's classes make of it
        self.vocabulary = vocabulary
        self.read: set[str] = set()
        self.looked_up: set[str] = set()  # also for facts that no flow needed in the end
        self.folders = {name for tower in vocabulary.towers.values() for name in tower.configs}
        self.halves: frozenset[str] = frozenset()  # towers that are one text's
        self.lone: str | None = None  # the tower that the path of a checkpoint's only tower names
        self._parts: dict[str | None, tuple[str, ...]] = {}  # asked for each field of each block
        self._got: dict[tuple[str, str], Found | None] = {}  # the same
        self._of: dict[tuple[int, str | None], tuple[FactRule, list[Found]]] = {}  # by rule and tower
        self._may: dict[int, tuple[FactRule, bool]] = {}  # by rule
        self._silent: dict[str, Config] = {}  # by type

    @property
    def model_type(self) -> str | None:
        """What the config calls the architecture."""
        return self.type_of("")

    def type_of(self, folder: str) -> str | None:
        """The `model_type` of a part of the config, or, where it has none, its `architecture` (timm); "" is the whole."""
        part = self.part(folder)
        value = part.get("model_type") if part.get("model_type") is not None else part.get("architecture")
        return value if isinstance(value, str) and value.strip() else None

    @cached_property
    def says_more_than_its_type(self) -> bool:
        """Whether it is a config that leaves fields out, not a type that somebody said of a checkpoint without one."""
        return not self.data.keys() <= set(_NAMING)

    @cached_property
    def is_of_a_class(self) -> bool:
        """Whether a class wrote it, with all its fields; timm names a network alone."""
        return self.data.get("model_type") is not None and self.says_more_than_its_type

    @property
    def changes_its_network(self) -> bool:
        """Whether it names a network of a library (timm) and says what is otherwise in this one."""
        return self.data.get("model_type") is None and bool(self.data.get("model_args"))

    @property
    def class_names(self) -> list[str]:
        """The class names that the config says were saved."""
        names = self.data.get("architectures")
        names = [names] if isinstance(names, str) else names
        return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []

    def find(self, rule: FactRule, scope: Scope) -> list[Found]:
        """The rule's fields that are there for this block, the strongest first. null is absent unless the rule allows it.

        Where there is none, the default that its type has for one of them.
        """
        if not self.may_have(rule):
            return []
        if self._tells_layers_apart:
            return self._find(rule, scope)
        key = id(rule), scope.tower_name
        if key not in self._of:
            self._of[key] = rule, self._find(rule, scope)
        return self._of[key][1]

    def of_type(self, model_type: str) -> Config:
        """What a config of a type has that leaves out all fields: the defaults of its class."""
        if model_type not in self._silent:
            self._silent[model_type] = Config({}, self.vocabulary, model_type)
        return self._silent[model_type]

    def may_have(self, rule: FactRule) -> bool:
        """Whether a field of a rule may be there for some block: of most rules no config has one."""
        if id(rule) not in self._may:
            self._may[id(rule)] = rule, may_be_there(rule, self._names)
        return self._may[id(rule)][1]

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(field_names(self.seen.data))

    def offered(self, doubt: FactRule, scope: Scope) -> FactRule:
        """A doubt whose candidates begin with what its fields say."""
        said = [item.value for item in self.find(doubt, scope)] if doubt.config else []
        return replace(doubt, among=(*said, *doubt.among)) if said else doubt

    def _find(self, rule: FactRule, scope: Scope) -> list[Found]:
        found: list[Found] = []
        defaults: list[Found] = []
        for part, keys in self._places(rule, scope):
            if defaults and self.is_aside(part, scope):
                break  # the whole's class has the field: what another tower says is not about this block
            for key in keys:
                if ANY in key and found:
                    continue  # a field that is known by its whole name says it
                if key == TYPE and self.type_of(part) is None:
                    continue  # a type that is no word is none
                field = self._of_layer(part, key, scope) or (
                    self._of_form(part, key, rule) if is_form(key) else self._get(part, key)
                )
                if field and (field.value is not None or rule.nullable) and field not in found:
                    (defaults if field.default_of else found).append(field)
            if found:
                self.looked_up.update(field.name for field in found if not field.by_form)
                return found
        return [] if rule.stated else defaults[:1]

    @cached_property
    def _tells_layers_apart(self) -> bool:
        """Whether some part says of single layers what they have otherwise: what else is looked up is a tower's alike."""
        parts = [self.part(name) for name in ("", *self.folders)]
        return any(part.get(name) for part in parts for name in self.vocabulary.by_layer)

    def _of_layer(self, part: str, key: str, scope: Scope) -> Found | None:
        """A field as the layers that a block is in have it, where a part says of single layers what they have otherwise."""
        if not self._tells_layers_apart:
            return None
        said = [name for name in self.vocabulary.by_layer if self.part(part).get(name)]
        indices = scope.index_of("layers") if said else None
        start = f"{part}." if part else ""
        found = [self._get("", f"{start}{name}.{index}.{key}") for name in said for index in indices or ()]
        alike = bool(found) and all(one and found[0] and one.value == found[0].value for one in found)
        return found[0] if alike else None

    def is_aside(self, part: str, scope: Scope) -> bool:
        """Whether a part of the config is another tower's than the block's, which has none of its own."""
        own = {
            *self.parts("text"),
            *self.parts(scope.tower_name if scope.tower_name != "tower" else self.lone),
        }
        return bool(part) and part not in own

    def use(self, found: Iterable[Found]) -> None:
        """Note that a fact of the model comes from these fields."""
        names = [item.name for item in found if not item.default_of and not item.is_name]
        if not names:
            return
        self.read.update(names, [self.seen.twins[name] for name in names if name in self.seen.twins])
        self.looked_up.update(names)

    def _places(self, rule: FactRule, scope: Scope) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Parts of the config ("" is its top) with the fields to look for there."""
        tower = scope.tower_name
        if tower in rule.towers:
            yield "", rule.towers[tower]
        top = tuple(key[1:] for key in rule.config if key.startswith("/"))
        if top:  # said of a tower, but not in its part
            yield "", top
        parts = self.parts(tower)
        for part in parts:
            if tower in rule.towers:
                yield part, rule.towers[tower]
            yield part, rule.config
        if not parts:
            yield "", rule.config
            for part in self._only_part() if tower in (None, "tower") else ():
                yield part, rule.config
        elif whole := tuple(key for key in rule.config if key.partition(".")[0] in self.folders):
            yield "", whole  # a family writes the whole way: `text_config.hidden_act`

    def parts(self, tower: str | None) -> tuple[str, ...]:
        """The sub-configs of a tower that this config has, dotted where one is inside of another."""
        if tower not in self._parts:
            known = self.vocabulary.towers.get(tower or "")
            names = known.configs if known else ()
            self._parts[tower] = tuple(name for name in names if self._part(name) is not None)
        return self._parts[tower] or (self.parts("text") if tower in self.halves else ())

    def part(self, folder: str) -> Mapping[str, Any]:
        """A sub-config by the field that holds it; "" is the whole."""
        return self._part(folder) or {}

    def _part(self, folder: str) -> Mapping[str, Any] | None:
        found: Any = self.seen.data
        for name in folder.split(".") if folder else ():
            found = found.get(name)
            if not isinstance(found, Mapping):
                return None
        return cast("Mapping[str, Any]", found)

    def _only_part(self) -> Sequence[str]:
        """The config of the main tower, for whatever stands outside of named towers."""
        texts = self.parts(self.lone) or self.parts("text")
        every = [part for tower in self.vocabulary.towers for part in self.parts(tower)]
        return texts[:1] or (every if len(every) == 1 else [])

    def _get(self, part: str, key: str) -> Found | None:
        if (part, key) not in self._got:
            self._got[part, key] = self._looked_up(part, key)
        return self._got[part, key]

    def _of_form(self, part: str, pattern: str, rule: FactRule) -> Found | None:
        """What fields say whose names are of a form, if all that could be meant by it say the same.

        Numbers could be, or flags where the fact is one; of a rule with a map the values that it names.
        """
        is_flag = self.vocabulary.types.get(rule.name) == "flag"
        said = [
            name
            for name, value in self.part(part).items()
            if fnmatchcase(name, pattern) and could_be_meant(value, rule.map, is_flag)
        ]
        values = {self.part(part)[name] for name in said}
        found = self._get(part, said[0]) if len(values) == 1 else None
        return found and replace(found, by_form=True)

    def _anywhere(self, part: str, pattern: str) -> Found | None:
        """The first field of a part whose name is of a form, whatever it holds: null says that its class has the option."""
        names = (name for name in field_names(self.part(part)) if fnmatchcase(name, pattern))
        return next((Found(name, name, by_form=True, is_name=True) for name in names), None)

    def _looked_up(self, part: str, key: str) -> Found | None:
        if key.startswith(ANYWHERE):
            return self._anywhere(part, key.removeprefix(ANYWHERE))
        if ANY in key:  # whether there is such a field: what it says depends on who asks
            return next((self._get(part, name) for name in self.part(part) if fnmatchcase(name, key)), None)
        value: Any = self.seen.data
        name = f"{part}.{key}" if part else key
        words = name.split(".")
        for at, word in enumerate(words):
            if not isinstance(value, Mapping) and not word.isdecimal():
                return Found(".".join(words[:at]), value, wanted=False)
            value = _entry(value, word)
            if value is _ABSENT or (value is None and at < len(words) - 1):
                return None
        return Found(self.seen.moved.get(name, name), value, default_of=self.seen.default_of(name))

    def unread(self, ignored: Mapping[str, Ignored]) -> list[str]:
        """Fields that no fact came from and no rule ignores, in order; `ignored` by the part of the config."""
        return [found.name for found, known in self._left(ignored) if not known]

    def harmful(self, ignored: Mapping[str, Ignored], elsewhere: Container[str] = ()) -> list[str]:
        """Those of them that change nothing with some values, and have another: what they ask for is not done.

        `elsewhere` are fields that only parts need which are not there.
        """
        left = (found for found, known in self._left(ignored) if known)
        return [f"{found.name} = {shown(found.value)}" for found in left if found.name not in elsewhere]

    def telling(
        self,
        ignored: Mapping[str, Ignored],
        counts: Container[int],
        towers: Sequence[Scope],
        said: Mapping[str, Any],
        told: Told = NOTHING,
    ) -> list[Found]:
        """Those that nobody knows and that some computation must need, by their names or as they tell layers apart.

        `counts` are the numbers of layers that there are; a part of the config is for one of the towers, or for nothing.
        `said` are the facts that a user gave: what they repeat is known. `told` are those whose answer the names show.
        """
        idle = {
            part for part in self.folders if towers and all(self.is_aside(part, tower) for tower in towers)
        }
        left = (found for found, known in self._left(ignored) if not known)
        idle |= idle_of(said)
        if any(name.rpartition(".")[2] == _TYPES for name in self.read):
            told = told.also(self.vocabulary.by_types)
        read = {name: found.value for name in self.read if (found := self._get("", name))}
        unknown = (
            found
            for whole in left
            for found in spread(whole)
            if idle.isdisjoint((found.name, found.name.partition(".")[0]))
            and not repeats_a_number(found.value, found.name, read)
        )
        asked = [
            found
            for found in unknown
            if (
                not told.says(found.name, found.value)
                and must_be_read(found.name, found.value, self.vocabulary, self.is_of_a_class)
            )
            or tells_apart(found.value, counts)
            or self.is_of_layer(found.name)
        ]
        lone = with_lone_values(asked)
        return [found for found in asked if not (found.name in lone and is_said(found, said))]

    def disputed(self, said: Mapping[str, Any]) -> list[str]:
        """Those that nobody read, that some types compute with and others ignore, whatever a family says of its own.

        Of `said`, the facts that a user gave, one with the same value is what the field is for.
        """
        idle = self.vocabulary.disputed
        every = (found for found in self._fields(self.data, "", frozenset()) if found.name not in self.read)
        named = ((found, idle.get(found.name.rpartition(".")[2])) for found in every)
        return [
            f"{found.name} = {shown(found.value)}"
            for found, values in named
            if values is not None
            and not any(is_same(found.value, value) for value in (*values, *said.values()))
        ]

    def is_of_layer(self, field: str) -> bool:
        """Whether a field, by its dotted name, is what single layers have otherwise, or this network."""
        return not set(self.vocabulary.by_layer).isdisjoint(field.split("."))

    def is_needed(self, field: str) -> bool:
        """Whether a number in a field must be needed by some computation, by the last word of its dotted name."""
        return not self.vocabulary.telling.isdisjoint(parts(field.rpartition(".")[2]))

    def is_idle(self, field: str, ignored: Mapping[str, Ignored]) -> bool:
        """Whether families say of a field that is there, by its dotted name, that it changes nothing."""
        found = self._get("", field)
        folder, _, name = field.partition(".")
        judges = [(field, ignored.get("")), (name, ignored.get(folder) if name else None)]
        said = [(name, rules) for name, rules in judges if rules is not None]
        return found is not None and any(
            changes_nothing(Found(name, found.value), rules) for name, rules in said
        )

    def mentions(self, field: str) -> bool:
        """Whether a field is there, at the top or in a tower's part."""
        places = ["", *(name for name, value in self.data.items() if isinstance(value, Mapping))]
        return any(self._get(part, field.removeprefix("/")) is not None for part in places)

    def consult(self, fields: Iterable[str], folder: str = "") -> None:
        """Note that these fields of a part decide on something, there or in a part inside of it."""
        start = f"{folder}." if folder else ""
        inner = [f"{name}." for name, value in self.part(folder).items() if isinstance(value, Mapping)]
        self.looked_up.update(start + part + field for field in fields for part in ("", *inner))

    def needed(self, ignored: Mapping[str, Ignored]) -> dict[str, Any]:
        """The config without what changes nothing: a reading from it is the same, its findings included."""
        return self._needed(self.data, "", {found.name: known for found, known in self._left(ignored)})

    def _needed(self, data: Mapping[str, Any], prefix: str, left: Mapping[str, bool]) -> dict[str, Any]:
        kept: dict[str, Any] = {}
        for key in sorted(data):
            name, value = f"{prefix}{key}", data[key]
            if name in left and name not in self.looked_up:
                is_name = not left[name] and len(shown(value)) > _SHOWN
                kept[key] = "..." if is_name else value
            elif name in self.looked_up or (key in _NAMING and value is not None):
                kept[key] = value
            elif isinstance(value, Mapping):
                inner = self._needed(value, f"{name}.", left)
                if inner or name in self.folders:
                    kept[key] = inner
        return kept

    def _left(self, ignored: Mapping[str, Ignored]) -> Iterator[tuple[Found, bool]]:
        """Each field that nobody read, and whether some values of it are known."""
        common = self.vocabulary.ignored
        whole = common.beside(ignored.get(""))
        for found in self._fields(self.data, "", whole.always):
            judges = [(found, whole)]
            for folder in ignored:
                if folder and found.name.startswith(f"{folder}."):
                    inner = Found(found.name[len(folder) + 1 :], found.value)
                    judges.append((inner, common.beside(ignored[folder])))
            if found.name in self.seen.computed:
                continue
            if found.name not in self.read and not any(
                changes_nothing(item, rules) for item, rules in judges
            ):
                known = any(
                    word in rules.valued
                    for item, rules in judges
                    for word in (item.name, item.name.rpartition(".")[2])
                )
                yield found, known

    def _fields(
        self, data: Mapping[str, Any], prefix: str, ignored: frozenset[str], depth: int = 0
    ) -> Iterator[Found]:
        parts = {name for part in self.vocabulary.towers.values() for name in part.configs}
        for key, value in data.items():
            name = f"{prefix}{key}"
            opened = key in parts or self.is_of_layer(name)
            opened = opened or any(read.startswith(f"{name}.") for read in self.read)
            if isinstance(value, Mapping) and opened and key not in ignored and depth < 4:
                yield from self._fields(value, f"{name}.", ignored, depth + 1)
            else:
                yield Found(name, value)


def _entry(value: Any, word: str) -> Any:
    """The entry of an object by its name, or of a list by its number."""
    if isinstance(value, Mapping):
        return value.get(word, _ABSENT)
    return value[int(word)] if isinstance(value, list) and int(word) < len(value) else _ABSENT


def changes_nothing(found: Found, ignored: Ignored) -> bool:
    """Whether a field is one that changes nothing, or has a value with which it does not."""
    last = found.name.rpartition(".")[2]
    if found.value is None or last.startswith("_") or last in ignored.always or found.name in ignored.always:
        return True
    if any(word.endswith("*") and found.name.startswith(word[:-1]) for word in ignored.always):
        return True
    for name in (found.name, last):
        if name in ignored.valued:
            return any(is_same(found.value, value) for value in ignored.valued[name])
    return False
