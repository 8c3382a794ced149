"""By what rules are found without reading their files: families by types and patterns, flows by topics and roles.

An index is made of the rules as they are read, all of them, so that a mistake in any file is found; it is kept beside the
files' content for the next process, and is plain JSON.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property, partial
from itertools import chain, compress
from typing import TYPE_CHECKING, Any, NamedTuple

from mapper._collector import collection_paused
from mapper.rulebook.signs import Signs

if TYPE_CHECKING:
    from mapper.rulebook.families import Family
    from mapper.rulebook.flows import FlowRule
    from mapper.rulebook.pages import Page
    from mapper.rulebook.strict import Document


class FamilyEntry:
    """What a family is found by. A `Family` has the same, and more."""

    __slots__ = ("_files", "by_type_only", "model_types", "name", "signs", "towers")

    def __init__(
        self,
        files: _FamilyFiles,
        name: str,
        types: Sequence[str],
        signs: Signs,
        only: bool,
        towers: Sequence[str],
    ):
        self._files, self.name, self.model_types = files, name, types
        self.signs, self.by_type_only, self.towers = signs, only, towers

    @property
    def recognise(self) -> tuple[str, ...]:
        return self.signs.recognise

    @property
    def recognise_shapes(self) -> Mapping[str, Sequence[Any]]:
        return self.signs.shapes

    def read(self) -> Family:
        """The whole family."""
        return self._files.whole(self.name)

    @property
    def noted(self) -> set[str]:
        """The families that were read by their entries, and those that they extend, since this was cleared."""
        return self._files.noted

    def note_all(self) -> None:
        """Note every family: something was asked that all of them answer together."""
        self._files.noted.update(self._files)


class FlowEntry(NamedTuple):
    """What a flow is chosen by."""

    at: int  # the number of its file
    needs: list[str]  # roles that must be there
    uses: list[str]  # and those that may be
    by_name_only: bool
    without: list[str]  # role paths beside which a root is not chosen
    when: dict[str, list[Any]]  # fact -> the values with which it may be chosen
    values: list[str]  # facts of which it takes some values
    also_for: list[str]  # other roles whose blocks take it


class SpineEntry(NamedTuple):
    """What is known of a page with a spine before it is read."""

    facts: list[str]  # by which its steps are chosen
    read: Callable[[], Page]


# ------------------------------------------------------------------------------------------------------ making
def index_vocabulary(documents: Sequence[Document]) -> list[str]:
    """What each file is called."""
    from mapper.rulebook.chain import SECTION, read_chain_words
    from mapper.rulebook.composites import read_composites
    from mapper.rulebook.facts import read_config_vocabulary, read_inputs
    from mapper.rulebook.named_activations import read_activations
    from mapper.rulebook.vocabulary import plain_vocabulary, read_vocabulary

    for document in documents:
        read = read_vocabulary(document)
        document.made = read and plain_vocabulary(read)
    config = read_config_vocabulary(documents)
    _ = [*config.facts.values(), *config.unlisted.values()]
    _ = read_inputs(documents), read_activations(documents), read_composites(documents)
    _ = read_chain_words(document for document in documents if document.data["vocabulary"] == SECTION)
    return [document.data["vocabulary"] for document in documents]


def index_families(documents: Sequence[Document]) -> dict[str, Any]:
    """A row for each family, in their order: its file's number, then what a `FamilyEntry` has, signs by their number."""
    from mapper.rulebook.families import alike, made
    from mapper.rulebook.family_file import read_families

    number = {id(document): at for at, document in enumerate(documents)}
    families = read_families(documents)
    for family in families:  # what is otherwise read when it is first asked for: no later reading checks it
        _ = tuple(family.own_facts.values())
        _ = family.own_examples if family.document.lacks is None else ()
    for group in alike(families):
        if len(group) > 1 or group[0].document.made is None:
            shared = made(group)
            for family in group:
                family.document.made = shared
    signs: dict[str, int] = {}
    rows = []
    for family in families:
        said = json.dumps([family.recognise, family.recognise_shapes, family.absent])
        sign = signs.setdefault(said, len(signs))
        row = [family.name, family.model_types, sign, family.by_type_only, list(family.towers)]
        rows.append([number[id(family.document)], *row])
    return {"signs": [json.loads(said) for said in signs], "families": rows}


def index_flows(documents: Sequence[Document]) -> dict[str, dict[str, list[Any]]]:
    """Each flow that is written out by name with what a `FlowEntry` has; the spines of each topic with what a `SpineEntry` has."""
    from mapper.rulebook.pages import page_of, plain_page, read_flows, whole

    pages = [page_of(document) for document in documents]
    rules = read_flows(pages)
    number = {rule.name: at for at, page in enumerate(pages) for rule in page.flows}
    spines: dict[str, list[Any]] = {}
    for at, page in enumerate(pages):
        if page.slots:
            others = [other for other, more in enumerate(pages) if more.fills(page, pages)]
            joined = whole([page, *(pages[other] for other in others)])
            for topic in (page.topic, *page.also_for):
                spines.setdefault(topic, []).append([[at, *others], joined.facts()])
    for document, page in zip(documents, pages, strict=True):
        document.made = plain_page(page)
    return {"spines": spines, "flows": _flow_rows(rules, number)}


def _flow_rows(rules: Mapping[str, FlowRule], number: Mapping[str, int]) -> dict[str, list[Any]]:
    return {name: _row(rule, number[name]) for name, rule in rules.items()}


def _row(rule: FlowRule, at: int) -> list[Any]:
    """What a `FlowEntry` has of a flow of this file."""
    return [
        at,
        rule.stored,
        [role for role in (*rule.roles, *rule.ignored) if role not in rule.stored],
        rule.by_name_only,
        rule.without,
        rule.when,
        list(rule.values),
        rule.also_for,
    ]


def index_dropout(documents: Sequence[Document]) -> dict[str, int]:
    """The number of the file that says where each model type drops what: the first that does."""
    from mapper.rulebook.dropout import read_dropout

    rows = [(name, at) for at, document in enumerate(documents) for name in read_dropout(document)]
    return dict(reversed(rows))


def index_settings(documents: Sequence[Document]) -> list[Any]:
    """What the files on settings of other libraries say."""
    from mapper.rulebook.settings import settings_rows

    return settings_rows(documents)


INDEXES: Mapping[str, Callable[[Sequence[Document]], Any]] = {
    "vocabulary": index_vocabulary,
    "families": index_families,
    "flows": index_flows,
    "dropout": index_dropout,
    "namings/settings": index_settings,
}


# ------------------------------------------------------------------------------------------------------- using
@collection_paused()
def family_entries(index: Mapping[str, Any], document: Callable[[int], Document]) -> list[FamilyEntry]:
    """The entries of an index, the families of which are read from its documents."""
    rows = index.get("families", ())
    files = _FamilyFiles({name: at for at, name, *_ in rows}, document)
    signs = [Signs(tuple(names), shapes, tuple(absent)) for names, shapes, absent in index.get("signs", ())]
    return [FamilyEntry(files, name, types, signs[sign], *rest) for _, name, types, sign, *rest in rows]


class _FamilyFiles(Mapping[str, "Family"]):
    """Families by name as their files have them, without what they inherit."""

    def __init__(self, numbers: Mapping[str, int], document: Callable[[int], Document]):
        self._numbers, self._document = numbers, document
        self._own: dict[str, Family] = {}
        self._whole: dict[str, Family] = {}
        self.noted: set[str] = set()

    def __getitem__(self, name: str) -> Family:
        if name not in self._own:
            from mapper.rulebook.family_file import read_family

            self._own[name] = read_family(self._document(self._numbers[name]))
        return self._own[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._numbers)

    def __len__(self) -> int:
        return len(self._numbers)

    def whole(self, name: str) -> Family:
        """With what it inherits."""
        if name not in self._whole:
            from mapper.rulebook.families import inherited

            self._whole[name] = inherited(self[name], self)
        own: str | None = name
        while own is not None and own not in self.noted:
            self.noted.add(own)
            own = self[own].extends
        return self._whole[name]


def flow_table(index: Mapping[str, Any], document: Callable[[int], Document]) -> FlowTable:
    """The flows of an index, read from its documents."""
    from mapper.rulebook.flows import continued
    from mapper.rulebook.pages import joined, page_of

    page = cache(lambda at: page_of(document(at)))
    spine = cache(lambda *files: joined([page(at) for at in files]))
    entries = {name: FlowEntry(*row) for name, row in index.get("flows", {}).items()}
    spines = {
        topic: [SpineEntry(facts, partial(spine, *files)) for files, facts in rows]
        for topic, rows in index.get("spines", {}).items()
    }
    files = FlowTable(entries, lambda name: page(entries[name].at).flow(name))
    return FlowTable(entries, cache(lambda name: continued(files[name], files)), spines)


class FlowTable(Mapping[str, "FlowRule"]):
    """Flows by name, each read when it is first asked for."""

    def __init__(
        self,
        entries: Mapping[str, FlowEntry],
        read: Callable[[str], FlowRule],
        spines: Mapping[str, Sequence[SpineEntry]] | None = None,
    ):
        self.entries, self._read, self.spines = entries, read, spines or {}
        self._composed: dict[str, FlowRule] = {}
        self._roles: dict[str, tuple[frozenset[str], frozenset[str]]] = {}

    def __getitem__(self, name: str) -> FlowRule:
        if name in self.entries:
            return self._read(name)
        if name not in self._composed:
            self._composed[name] = self._compose(name)
        return self._composed[name]

    def _compose(self, name: str) -> FlowRule:
        """The flow of a spine: `attention/separate+rotary+causal`."""
        from mapper.rulebook.pages import named

        topic = name.partition("/")[0]
        for page in self.pages(topic):
            rule = named(page, name)
            if rule:
                return rule
        raise KeyError(name)

    def pages(self, topic: str) -> list[Page]:
        """The pages with the spines of a topic."""
        return [spine.read() for spine in self.spines.get(topic, ())]

    def everything(self) -> list[FlowRule]:
        """Every flow that is written out, and every step of a spine with what its page says of all."""
        spines = [page for topic in self.spines for page in self.pages(topic)]
        pages = {id(page): page for page in spines}.values()  # one may be of several roles
        bases = [page.base for page in pages if page.base]
        return [*self.values(), *bases, *(step for page in pages for step in page.steps)]

    def facts(self) -> list[str]:
        """The facts by which flows and steps are chosen, or of which they take some values."""
        of_spines = (spine.facts for spines in self.spines.values() for spine in spines)
        return list(dict.fromkeys([*self.named(self).facts(), *chain.from_iterable(of_spines)]))

    def __contains__(self, name: object) -> bool:
        return name in self.entries

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def of_topic(self, topic: str) -> Flows:
        """Those of a topic that may be chosen by their fit."""
        return self._topics.get(topic) or self.named(())

    @cached_property
    def _topics(self) -> dict[str, Flows]:
        found: dict[str, list[str]] = {}
        for name, entry in self.entries.items():
            topics = () if entry.by_name_only else (name.partition("/")[0], *entry.also_for)
            for topic in topics:
                found.setdefault(topic, []).append(name)
        return {topic: self.named(names) for topic, names in found.items()}

    def entry(self, name: str) -> FlowEntry:
        """What a flow is chosen by; a family may name one that is put together from steps."""
        return self.entries.get(name) or FlowEntry(*_row(self[name], 0))

    def roles(self, name: str) -> tuple[frozenset[str], frozenset[str]]:
        """The roles that a flow must have, and all that it has a use for."""
        if name not in self._roles:
            entry = self.entry(name)
            self._roles[name] = frozenset(entry.needs), frozenset((*entry.needs, *entry.uses))
        return self._roles[name]

    def named(self, names: Iterable[str]) -> Flows:
        return Flows(self, tuple(names))

    def but(
        self, names: Iterable[str], spines: Mapping[str, Sequence[SpineEntry]] | None = None
    ) -> FlowTable:
        """The others; for those topics other spines."""
        without = frozenset(names)
        return FlowTable(
            {name: item for name, item in self.entries.items() if name not in without},
            self._read,
            {**self.spines, **(spines or {})},
        )


class Flows(Sequence["FlowRule"]):
    """Some flows, in order."""

    def __init__(self, table: FlowTable, names: tuple[str, ...]):
        self.table, self.names = table, names

    def __getitem__(self, at: Any) -> Any:
        return Flows(self.table, self.names[at]) if isinstance(at, slice) else self.table[self.names[at]]

    def __len__(self) -> int:
        return len(self.names)

    def facts(self) -> list[str]:
        """The facts by which they are chosen, or of which they take some values."""
        entries = map(self.table.entry, self.names)
        used = ((*entry.when, *entry.values) for entry in entries)
        return list(dict.fromkeys(chain.from_iterable(used)))

    def with_use_for(self, roles: Mapping[str, bool]) -> Flows:
        """Those that lack none of these roles, and have a use for each that must be read: no other can fit a block."""
        read = {role for role, must in roles.items() if must}
        there = roles.keys()
        by_name = map(self.table.roles, self.names)
        fitting = [needs <= there and read <= uses for needs, uses in by_name]
        return Flows(self.table, tuple(compress(self.names, fitting)))

    def where(self, holds: Callable[[str, Sequence[Any]], bool]) -> Flows:
        """Those of which every condition holds: of each the fact and the values that are meant are asked for."""
        asked = [self.table.entry(name).when for name in self.names]
        fitting = [all(holds(fact, allowed) for fact, allowed in when.items()) for when in asked]
        return Flows(self.table, tuple(compress(self.names, fitting)))
