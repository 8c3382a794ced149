"""What rule files say about facts: where a config has them, what they are when it has not, how they follow from others."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from typing import Any

from mapper._dataclass import dataclass
from mapper.errors import RuleError, shorten
from mapper.rulebook.fact_tables import AllOf, FactRules, FirstOf
from mapper.rulebook.fields import Fields
from mapper.rulebook.ignored import Ignored, read_ignored
from mapper.rulebook.strict import Document
from mapper.rulebook.values import TYPES

ROWS = (
    "types"  # a family's table of facts by model type, and in a list of definitions the place of what it says
)
TYPE = "model_type"  # the fact that such a row is chosen by
# lists of words
_WORDS = (
    "unasked", "unassumed", "usual", "by_class", "telling", "counting", "choosing", "expected", "harmless", "stored",
    "having", "affirming", "unchosen", "by_layers", "by_types",
)  # fmt: skip
_CONSTANT = "the published code"  # why a type has a value for which its row gives no reason
UNSET: Any = type("Unset", (), {"__repr__": lambda self: "UNSET"})()  # None is a value that a rule may state


@dataclass(frozen=True)
class FactRule:
    """One way to know one fact. Several for one name are tried in order, those of a family first."""

    name: str
    file: str
    line: int
    type: str | None = None  # one of TYPES; None where another rule for the same name says it
    doc: str = ""
    same_as: tuple[
        str, ...
    ] = ()  # sizes that go on into this one: where both have one value, a source has one field
    config: tuple[str, ...] = ()  # fields of the config, dotted below its top, first that is there wins
    silent: bool = False  # `config: []`: no field of the config says it, whatever the vocabulary's words are
    stated: bool = False  # only where the file says it: the default of its type is none
    towers: dict[str, tuple[str, ...]] = field(default_factory=dict)  # tower -> fields that only it reads
    map: dict[str, Any] = field(default_factory=dict)  # value in the config, as text -> value of the fact
    weights: dict[str, Any] = field(
        default_factory=dict
    )  # the statistic of trained weights that tells it, where nothing else does
    tried: tuple[Any, ...] = ()  # published values to try where a model may tell which it is
    untold: bool = False  # no behaviour that can be judged tells it
    by_whole: bool = False  # how a whole of an unlisted type reads a part, whose own type may be listed
    nullable: bool = False  # whether null in the config is a value ("none") and not an absence
    per: str | None = None  # the config has a list, with one value for each element of this list role
    repeated: bool = False  # that list begins anew where it ends
    entry: str | None = None  # the fact whose entry, for an element of `over`, is the value
    item: int | None = None  # of an entry that is a list itself: the position of the value in it
    apart: bool = (
        False  # elements of `over` in which it differs are told apart, equal as their tensors may be
    )
    at: tuple[str, ...] = ()  # words of paths or of role paths: the rule holds below these alone
    when: dict[str, tuple[Any, ...]] = field(
        default_factory=dict
    )  # it holds where other facts have these values
    has: tuple[str, ...] = ()  # names that must be in the checkpoint for `value`: then the evidence is "name"
    lacks: tuple[str, ...] = ()  # names that must not be
    holds: dict[str, str] = field(default_factory=dict)  # role path in a block here -> kind of its leaf
    as_long: dict[str, str] = field(
        default_factory=dict
    )  # role path in a block here -> one with as many rows
    square: tuple[str, ...] = ()  # role paths in a block here: tables of a square number of rows
    block: dict[str, bool] = field(default_factory=dict)  # role in the block here -> whether it is there
    tower: dict[str, bool] = field(default_factory=dict)  # role path in the tower -> whether it is there
    rows: str = ""  # role path in the block or the tower: the value is the number of rows of its weight
    columns: str = ""  # the same of its columns
    kernels: str = ""  # a role: the last extents of its weights, in the order of their names
    stored: str = ""  # names of a row of numbers, which may have no role: the value is how many they are
    doubt: str = ""  # why nobody knows it here, whatever weaker sources say: published models differ
    value: Any = UNSET  # a constant of the published code
    expr: str | None = None  # arithmetic over other facts
    each: str | None = (
        None  # arithmetic over other facts and `index`, for each element of `over`: an entry of `among`
    )
    marks: str | None = None  # a fact with a list of positions: those of `over` have the second of `among`
    runs: str | None = (
        None  # a fact with lengths of runs of `over`: the first of each has its entry of `firsts`
    )
    firsts: str | None = None  # a fact with an entry for each run; other elements have `otherwise`
    factor: str | None = None  # a fact by which each length is multiplied, and rounded up
    among: tuple[Any, ...] = ()
    over: str = "layers"
    shared: str | None = (
        None  # the fact whose entries have the value in common; `otherwise` where they have not
    )
    otherwise: Any = None
    but: tuple[Any, ...] = ()  # entries of `shared` that do not count
    default: Any = UNSET  # where the config is silent
    most: str | None = None  # arithmetic over other facts: the value is at most this
    divides: str | None = None  # the value divides this
    total: str | None = None  # the entries of the list add up to this
    length: str | None = None  # the list has so many entries
    why: str = ""

    @cached_property
    def without_fields(self) -> FactRule:
        """The same where another rule says which fields of the config speak; itself where it has none."""
        return replace(self, config=(), towers={}) if self.config or self.towers else self

    @cached_property
    def is_constant(self) -> bool:
        """Whether it gives its value wherever it holds."""
        return self.value is not UNSET and not self.by_names

    @cached_property
    def is_about_fields(self) -> bool:
        """Whether it says which fields of the config speak, or that none does."""
        return bool(self.config or self.towers or self.silent)

    @cached_property
    def is_everywhere(self) -> bool:
        """Whether it holds for each block, whatever is known of it."""
        asked = (self.at, self.when, self.holds, self.as_long, self.square, self.block, self.tower)
        return not any(asked)

    @cached_property
    def is_counted(self) -> bool:
        """Whether its value is an extent of tensors."""
        return bool(self.rows or self.columns or self.kernels or self.stored)

    @cached_property
    def place(self) -> str:
        """FILE:LINE of the definition."""
        return f"{self.file}:{self.line}"

    @cached_property
    def by_names(self) -> bool:
        """Whether its value holds because of names, or of the kinds and shapes of leaves, that the checkpoint has."""
        by_leaves = self.holds or self.block or self.tower or self.as_long or self.square
        return bool(self.has or self.lacks or (by_leaves and self.value is not UNSET))


@dataclass(frozen=True)
class TowerConfig:
    """Where a tower finds its own part of a config."""

    configs: tuple[str, ...]  # fields that hold a config of its own


@dataclass(frozen=True)
class ConfigVocabulary:
    """`vocabulary/config.yaml`: facts, and the fields of a config that say nothing about the computation."""

    facts: FactRules
    towers: dict[str, TowerConfig]
    tasks: dict[str, str]  # last words of a class name in `architectures` -> task
    headless: str | None  # the task of a checkpoint whose heads say nothing
    ignored: Ignored  # fields of a config that change nothing
    unused: dict[str, str]  # pattern of names that no forward reads -> why
    # what holds before all other rules where no family lists the model_type
    unlisted: FactRules = field(default_factory=lambda: FirstOf(()))
    unasked: frozenset[str] = frozenset()  # facts in which types may differ and no output shows it
    alike: dict[str, tuple[Any, ...]] = field(
        default_factory=dict
    )  # values that compute the same where all fit
    unassumed: frozenset[str] = frozenset()  # facts whose default says nothing where there is no config
    usual: frozenset[str] = frozenset()  # facts that every class has, so that a family's default counts
    by_class: frozenset[str] = frozenset()  # facts whose default is that of the classes of a family's types
    # parts of names of fields that a computation must need: of an unlisted type none is passed over
    telling: frozenset[str] = frozenset()
    counting: frozenset[str] = frozenset()  # more of these, which say nothing of what a field implies
    choosing: frozenset[str] = frozenset()  # the same of fields with a word or a list
    expected: frozenset[str] = frozenset()  # the same of flags that are mostly true: false asks for another
    by_layers: frozenset[str] = frozenset()  # fields that say which layers have which part
    by_types: frozenset[str] = frozenset()  # fields that say which layers have windows
    harmless: frozenset[str] = frozenset()  # parts of names of fields that no computation needs
    stored: frozenset[str] = frozenset()  # of flags of which what is stored shows the same
    having: frozenset[str] = frozenset()  # beginnings of flags before the name of a part that is there
    affirming: frozenset[str] = frozenset()  # more beginnings of flags without which they say the same
    unchosen: frozenset[str] = frozenset()  # words as values that choose nothing
    shown: dict[str, tuple[str, ...]] = field(default_factory=dict)  # role -> flags that say it is there
    only_with: dict[str, tuple[str, ...]] = field(default_factory=dict)  # role, or several -> their fields
    # fields that some types compute with and others ignore -> values with which they change nothing
    disputed: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    # a map whose bias may show that it is stored [in, out] -> patterns of all that are stored alike
    transposed: dict[str, tuple[str, ...]] = field(default_factory=dict)
    quantised: dict[str, str] = field(default_factory=dict)  # pattern of names of weights -> by whom
    quantised_fields: tuple[str, ...] = ()  # fields of the config that say so
    by_layer: tuple[str, ...] = ()  # fields with what single layers have otherwise, by their numbers
    partial: dict[str, tuple[str, ...]] = field(
        default_factory=dict
    )  # what a file holds that is no model -> words of which each of its names has one
    ranks: dict[str, int] = field(
        default_factory=dict
    )  # word of an adapter's names -> the axis that is its rank
    unpacked: tuple[str, ...] = ()  # methods whose weights flows unpack as they compute

    @cached_property
    def types(self) -> dict[str, str]:
        """The type of each fact."""
        own = types_beside({}, self.facts)
        return own | types_beside(own, self.unlisted)


@dataclass(frozen=True)
class InputRule:
    """`vocabulary/inputs.yaml`: one public input of a model."""

    name: str
    shape: tuple[Any, ...]  # names of free extents, numbers, or fact names
    dtype: str
    optional: bool
    doc: str
    kind: str = "tensor"  # "cache": keys and values of every layer; "index": a position; "state": what an earlier call gave; all three only with the option cache
    made_up: tuple[Any, ...] = ()  # of each row in made-up inputs: numbers, or names of free extents
    unlisted: bool = False  # only of models whose family lists no types: others have what makes it


@dataclass(frozen=True)
class ActivationRule:
    """`vocabulary/activations.yaml`: one activation as an expression over x."""

    name: str
    expression: str
    file: str
    line: int


def _arithmetic(fields: Fields, key: str) -> str | None:
    """Arithmetic as text; a number stands for itself."""
    value = fields.any(key)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return str(value)
    if value is not None and not isinstance(value, str):
        fields.fail(f"expected arithmetic over facts, not {shorten(str(value))}", key)
    return value


_READERS: dict[str, Callable[[Fields, str], Any]] = {
    **dict.fromkeys(("at", "config", "has", "lacks", "square", "same_as"), Fields.words),
    **dict.fromkeys(("nullable", "apart", "stated", "repeated", "untold", "by_whole"), Fields.flag),
    **dict.fromkeys(("doc", "over", "why", "doubt", "rows", "columns", "kernels", "stored"), Fields.text),
    **dict.fromkeys(("map", "holds", "as_long", "weights"), Fields.mapping),
    **dict.fromkeys(("among", "but", "tried"), lambda fields, key: tuple(fields.sequence(key))),
    **dict.fromkeys(("type", "per", "entry", "item", "value", "default", "otherwise"), Fields.any),
    **dict.fromkeys(
        ("expr", "each", "marks", "runs", "firsts", "factor", "shared", "most", "divides", "length", "total"),
        _arithmetic,
    ),
    "when": Fields.choices,
    **dict.fromkeys(
        ("block", "tower"),
        lambda fields, key: {path: there is True for path, there in fields.mapping(key).items()},
    ),
    "towers": lambda fields, key: {
        tower: fields.inner(fields.data[key], key).words(tower) for tower in fields.mapping(key)
    },
}  # how each field of a fact is read


def types_of(row: str) -> list[str]:
    """The model types that a row is of: `saga, epic`."""
    return [word.strip() for word in row.split(",")]


def read_rows(fields: Fields, others: Container[str] = ()) -> tuple[tuple[str, ...], Rows]:
    """`types:` of a family: the model types that have a row, and what the rows define of each fact; `others` are none.

    A row is named by a type, or by several with commas between. A cell is a definition or a list of them, as in
    `facts:`; a single word or number is a constant of the published code.
    """
    types: dict[str, None] = {}
    rows: dict[str, list[tuple[_Keys, dict[str, Any]]]] = {}
    for row, said in fields.mapping(ROWS).items():
        own = types_of(row)
        types |= dict.fromkeys(own)
        for name, cell in fields.inner(said, ROWS, row).data.items():
            if name in others:
                continue
            where: _Keys = (ROWS, row, name)
            placed = [((*where, at), item) for at, item in enumerate(cell)] if isinstance(cell, list) else []
            for keys, item in placed or [(where, cell)]:
                rows.setdefault(name, []).append((keys, _of_types(fields, item, own, keys)))
    return tuple(types), rows


def _of_types(fields: Fields, cell: Any, types: list[str], keys: _Keys) -> dict[str, Any]:
    """The definition in a cell, for these types alone."""
    if not isinstance(cell, dict):
        return {"value": cell, "why": _CONSTANT, "when": {TYPE: types}}
    conditions = fields.inner(cell, *keys).mapping("when")
    if TYPE in conditions:
        fields.fail("the row says for which types it holds", *keys, "when", TYPE)
    return {**cell, "when": {TYPE: types, **conditions}}


def read_fact(fields: Fields, name: str) -> FactRule:
    """One fact definition of a vocabulary or a family."""
    said = {key: _READERS[key](fields, key) for key in fields.data if key in _READERS}
    fields.done(_READERS)
    silent = fields.data.get("config") == []
    rule = FactRule(name=name, file=fields.file, line=fields.line(), silent=silent, **said)
    if rule.type is not None and rule.type not in TYPES:
        fields.fail(f"{rule.type!r} is no type; allowed: {', '.join(TYPES)}", "type")
    if rule.each is not None and not rule.among:
        fields.fail("each chooses from a list: the field 'among' is missing")
    if rule.marks is not None and len(rule.among) != 2:
        fields.fail("marks tells two values apart: 'among' must have both, the marked one last")
    if (rule.runs is None) != (rule.firsts is None):
        fields.fail("runs have their entries: 'runs' and 'firsts' stand together")
    if (rule.has or rule.lacks) and rule.value is UNSET and not rule.doubt:
        fields.fail("has and lacks decide a value: the field 'value' is missing")
    return rule


_Keys = tuple[Any, ...]  # where a definition stands in what is around it
Rows = Mapping[str, Sequence[tuple[_Keys, dict[str, Any]]]]  # fact -> what rows of `types:` define of it


class FactTable(FactRules):
    """The definitions of one file by fact, tried in order: each is read when it is first asked for."""

    def __init__(self, fields: Fields, key: str, rows: Rows | None = None):
        self._fields, self._key, self._rows = fields, key, rows or {}
        said = fields.mapping(key)
        self._said = {**said, **{name: [] for name in self._rows if name not in said}}
        self._read: dict[str, tuple[FactRule, ...]] = {}

    def get(self, name: str, default: Any = None) -> Any:
        return self[name] if name in self._said else default

    def __getitem__(self, name: str) -> tuple[FactRule, ...]:
        if name not in self._read:
            self._read[name] = tuple(self._rules(name))
        return self._read[name]

    def __contains__(self, name: object) -> bool:
        return name in self._said

    def __iter__(self) -> Iterator[str]:
        return iter(self._said)

    def __len__(self) -> int:
        return len(self._said)

    def _rules(self, name: str) -> Iterator[FactRule]:
        for keys, item in self._placed(name):
            yield read_fact(self._fields.inner(item, *keys), name)

    def _placed(self, name: str) -> Iterator[tuple[_Keys, Any]]:
        """One mapping, or a list of them; what rows say stands where the list says `types`, else before it."""
        said, rows = self._said[name], self._rows.get(name, ())
        if not isinstance(said, list):
            yield from (*rows, ((self._key, name), said))
            return
        if ROWS not in said:
            yield from rows
        for at, item in enumerate(said):
            yield from rows if item == ROWS else [((self._key, name, at), item)]

    def types(self, name: str) -> set[str]:
        """The types that the definitions of a fact say, without reading them."""
        return {item["type"] for item in self._items(name) if item.get("type")}

    @cached_property
    def apart(self) -> dict[str, str]:
        """The facts by which equal elements are told apart, each with the role of their list; no other is read."""
        found = [name for name in self._said if any(item.get("apart") for item in self._items(name))]
        return {name: rule.over for name in found for rule in self[name] if rule.apart}

    def _items(self, name: str) -> list[dict[str, Any]]:
        """The definitions of a fact, in no order."""
        said = self._said.get(name, ())
        items = said if isinstance(said, list) else [said]
        if name in self._rows:
            items = [*items, *(item for _, item in self._rows[name])]
        return [item for item in items if isinstance(item, dict)]


def fields_of(document: Document) -> Fields:
    return Fields(document.data, document.label, lambda keys: document.line(*keys))


def read_config_vocabulary(documents: Iterable[Document]) -> ConfigVocabulary:
    """The files named `vocabulary: config`; where two say the same of a fact, the first wins, but for unlisted types all are tried."""
    found = ConfigVocabulary(FirstOf(), {}, {}, None, Ignored(), {})
    facts: list[FactTable] = []
    unlisted: list[FactTable] = []
    ignored = Ignored()
    words: dict[str, set[str]] = {key: set() for key in _WORDS}
    quantised_fields: dict[str, None] = {}
    by_layer: dict[str, None] = {}
    unpacked: dict[str, None] = {}
    headless: str | None = None
    for _, fields in files_of(documents, "config"):
        facts.append(FactTable(fields, "facts"))
        unlisted.append(FactTable(fields, "unlisted"))
        for name, value in fields.mapping("towers").items():
            inner = fields.inner(value, "towers", name)
            found.towers.setdefault(name, TowerConfig(inner.words("configs")))
            inner.done()
        _merge(found.tasks, {suffix: str(task) for suffix, task in fields.mapping("tasks").items()})
        headless = headless or fields.any("headless")
        _merge(found.transposed, fields.choices("transposed"))
        for key, said in words.items():
            said.update(fields.words(key))
        _merge(found.disputed, fields.choices("disputed"))
        _merge(found.alike, fields.choices("alike"))
        _merge(found.shown, fields.choices("shown"))
        _merge(found.only_with, fields.choices("only_with"))
        ignored = read_ignored(fields).beside(ignored)
        _merge(found.quantised, {pattern: str(who) for pattern, who in fields.mapping("quantised").items()})
        _merge(found.partial, fields.choices("partial"))
        _merge(found.ranks, _axes(fields))
        quantised_fields.update(dict.fromkeys(fields.words("quantised_fields")))
        by_layer.update(dict.fromkeys(fields.words("by_layer")))
        unpacked.update(dict.fromkeys(fields.words("unpacked")))
        _merge(found.unused, {pattern: str(why) for pattern, why in fields.mapping("unused").items()})
        fields.done()
    sets: dict[str, Any] = {key: frozenset(every) for key, every in words.items()}
    return replace(
        found,
        facts=FirstOf(facts),
        unlisted=AllOf(unlisted),
        headless=headless,
        ignored=ignored,
        **sets,
        quantised_fields=tuple(quantised_fields),
        by_layer=tuple(by_layer),
        unpacked=tuple(unpacked),
    )


def _axes(fields: Fields) -> dict[str, int]:
    axes = fields.mapping("ranks")
    for word, axis in axes.items():
        if type(axis) is not int or axis < 0:
            fields.fail("expected the number of an axis, from 0", "ranks", word)
    return axes


def read_inputs(documents: Iterable[Document]) -> dict[str, InputRule]:
    """Public inputs by name, in the order of the file: the order of a forward's parameters."""
    found: dict[str, InputRule] = {}
    for _, fields in files_of(documents, "inputs"):
        for name, value in fields.mapping("inputs").items():
            found.setdefault(name, read_input(fields.inner(value, "inputs", name), name))
        fields.done()
    return found


def read_input(fields: Fields, name: str) -> InputRule:
    rule = InputRule(
        name,
        tuple(fields.sequence("shape")),
        fields.text("dtype"),
        fields.flag("optional"),
        fields.text("doc", ""),
        fields.text("kind", "tensor"),
        tuple(fields.sequence("made_up")),
        fields.flag("unlisted"),
    )
    fields.done()
    if rule.kind not in ("tensor", "cache", "index", "state"):
        fields.fail(f"{rule.kind!r} is not tensor, cache, index or state", "kind")
    return rule


def files_of(documents: Iterable[Document], name: str) -> Iterator[tuple[Document, Fields]]:
    for document in documents:
        if isinstance(document.data, dict) and document.data.get("vocabulary") == name:
            fields = fields_of(document)
            fields.text("vocabulary")
            yield document, fields


def _merge(into: dict[str, Any], more: Mapping[str, Any]) -> None:
    for key, value in more.items():
        into.setdefault(key, value)


def types_beside(known: Mapping[str, str], table: FactRules) -> dict[str, str]:
    """The types of a table's facts, beside those that other tables say of them. RuleError where these are others."""
    return {
        name: fact_type(name, types | {known[name]} - {"any"} if name in known else types)
        for name, types in table.all_types.items()
    }


def fact_type(name: str, types: set[str]) -> str:
    """The type that the rules for one fact agree on; "any" if none says."""
    if len(types) > 1:
        raise RuleError(f"the fact {name!r} has two types: {', '.join(sorted(types))}")
    return next(iter(types), "any")
