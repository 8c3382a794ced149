"""Pages of flows: all that is known of one kind of block, in one file.

A page has whole flows (`flows:`), a spine, or both. The spine is a row of slots in the order of the data; each slot is
filled by one of its steps, on its own, and the steps that were taken make one ordinary flow: `assemble`. Slots that
stand around several others alike (norms and sums around each sub-layer) are written once: `rows`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from mapper._collector import collection_paused
from mapper._dataclass import dataclass
from mapper.errors import RuleError
from mapper.rulebook.fields import Fields, Lines
from mapper.rulebook.flows import (
    TOPICS_WITHOUT_INPUT,
    FlowRule,
    Plain,
    continued,
    plain_rule,
    read_flow,
    read_rule,
    read_shapes,
    rule_of,
    with_usual_shapes,
    with_words,
)
from mapper.rulebook.returned import returns

if TYPE_CHECKING:
    from mapper.rulebook.strict import Document

EMPTY = "empty"  # the step by which a slot is left out, where its conditions hold
PLAIN = "plain"  # the step that is usual: what a flow is called does not mention it
SLOT = "SLOT"  # in the slots of `rows`: the one that they stand around
JOINED = "+"  # between the names of the steps of a flow

_TABLES = ("when", "values", "leaves", "ties", "ignored", "inputs", "agrees_with")
_PATHS = ("prefer_if", "without", "beside")


@dataclass(frozen=True)
class Slot:
    """One place of a spine, and the steps that may fill it."""

    name: str
    steps: tuple[
        FlowRule, ...
    ]  # a step is a part of a flow: its body may be empty, and returns in the last slot
    around: str = ""  # the slot without which this one is left out too

    @cached_property
    def unnamed(self) -> FlowRule | None:
        """The step that is meant where a flow's name has none of this slot."""
        return next((step for step in self.steps if step.is_unnamed), None)

    @cached_property
    def needs(self) -> frozenset[str]:
        """The roles that some step needs."""
        return frozenset(role for step in self.steps for role in step.needs)

    @cached_property
    def facts(self) -> frozenset[str]:
        """The facts by which its steps are chosen."""
        return frozenset(name for step in self.steps for name in step.when)

    def with_needs(
        self, roles: frozenset[str], assumed: tuple[tuple[str, Any], ...] = ()
    ) -> Sequence[FlowRule]:
        """The steps that may be taken where just these of the needed roles are free; one with ties has roles without.

        Of those only the ones that allow the values that are assumed of facts.
        """
        key = roles, assumed
        if key not in self._takers:
            steps = [step for step in self.steps if step.ties or roles.issuperset(step.needs)]
            barred = {id(step) for step in steps for name, value in assumed if not _allows(step, name, value)}
            self._takers[key] = [step for step in steps if id(step) not in barred]
        return self._takers[key]

    @cached_property
    def _takers(self) -> dict[tuple[frozenset[str], tuple[tuple[str, Any], ...]], list[FlowRule]]:
        return {}

    def tied(self, ties: Mapping[str, str]) -> Slot:
        """The slot, the steps of which know what others say of the roles that they need; made once for the same ties."""
        said = tuple((role, path) for role, path in ties.items() if role in self.needs)
        if said not in self._tied:
            self._tied[said] = replace(self, steps=tuple(_told(step, said) for step in self.steps))
        return self._tied[said] if said else self

    @cached_property
    def _tied(self) -> dict[tuple[tuple[str, str], ...], Slot]:
        return {}


@dataclass(frozen=True)
class Page:
    """What one file says of a kind of block."""

    topic: str
    flows: tuple[FlowRule, ...]  # written out
    slots: tuple[Slot, ...] = ()
    base: FlowRule | None = (
        None  # what every flow of the spine has: its words, parameters, conditions, usual shapes
    )

    more: tuple[Slot, ...] = ()
    """Steps for slots of the spine of this topic that stands on another page."""
    outputs: tuple[str, ...] = ()
    """What its flows may return, in this order; steps say what each is."""

    @property
    def also_for(self) -> tuple[str, ...]:
        """Other roles whose blocks take the flows of its spine."""
        return self.base.also_for if self.base else ()

    @cached_property
    def steps(self) -> tuple[FlowRule, ...]:
        return tuple(step for slot in self.slots for step in slot.steps)

    @cached_property
    def tied(self) -> frozenset[str]:
        """The roles that some step says to be those of others where they have no tensors."""
        return frozenset(role for step in self.steps for role in step.ties)

    def where(self, keeps: Callable[[FlowRule], bool]) -> Page:
        """The page with these of its steps: the same one for the same steps."""
        kept = tuple(map(keeps, self.steps))
        if kept not in self._parts:
            those = iter(kept)
            slots = (
                replace(slot, steps=tuple(step for step in slot.steps if next(those))) for slot in self.slots
            )
            self._parts[kept] = replace(self, slots=tuple(slots))
        return self if all(kept) else self._parts[kept]

    @cached_property
    def _parts(self) -> dict[tuple[bool, ...], Page]:
        return {}

    def made_of(self, taken: Mapping[str, FlowRule]) -> FlowRule:
        """The flow that steps make, by the slots that they fill: put together once."""
        steps = self.in_order(taken)
        key = tuple(map(id, steps))
        if key not in self._made:
            self._made[key] = steps, assemble(self, steps)
        return self._made[key][1]

    @cached_property
    def _made(self) -> dict[tuple[int, ...], tuple[Sequence[FlowRule], FlowRule]]:
        """By the identities of steps, which are kept beside it so that no other is ever called the same."""
        return {}

    def allowed(self, fact: str) -> list[Any]:
        """The values of a fact with which some step may be taken."""
        return list(dict.fromkeys(value for step in self.steps for value in step.when.get(fact, ())))

    def in_order(self, taken: Mapping[str, FlowRule]) -> list[FlowRule]:
        """Steps by the slots that they fill, in the order of the spine."""
        return [taken[slot.name] for slot in self.slots if slot.name in taken]

    @cached_property
    def centres_first(self) -> list[Slot]:
        """The slots in the order in which they are filled: those that others stand around decide whether these are there."""
        return sorted(self.slots, key=lambda slot: bool(slot.around))

    def fills(self, page: Page, pages: Sequence[Page]) -> bool:
        """Whether its steps are for the spine of a page: it has all these slots, or no spine of the topic has."""
        wanted = {slot.name for slot in self.more}
        spines = [one for one in pages if one.slots and one.topic == self.topic]
        having = [one for one in spines if wanted <= {slot.name for slot in one.slots}]
        return bool(wanted) and page in (having or spines)

    def flow(self, name: str) -> FlowRule:
        """The flow of this name that is written out here."""
        return next(rule for rule in self.flows if rule.name == name)

    def facts(self) -> list[str]:
        """The facts by which steps are chosen, or of which they take some values."""
        rules = [*self.steps, *([self.base] if self.base else [])]
        return list(dict.fromkeys(name for rule in rules for name in (*rule.when, *rule.values)))


def _allows(step: FlowRule, name: str, value: Any) -> bool:
    """Whether a step may be taken where a fact has this value."""
    return value in step.when.get(name, (value,))


def _told(step: FlowRule, ties: Sequence[tuple[str, str]]) -> FlowRule:
    """A step that knows with what the roles are tied that it needs."""
    more = {role: path for role, path in ties if role in step.needs and role not in step.ties}
    return replace(step, ties={**step.ties, **more}) if more else step


def _named(steps: Iterable[FlowRule]) -> list[FlowRule]:
    """The steps that a flow is called by: all but those that are just left out, and the usual ones."""
    return [step for step in steps if not step.is_unnamed]


def is_empty(step: FlowRule) -> bool:
    return step.is_unnamed and not step.body


def left_out(slot: Slot, taken: Mapping[str, FlowRule]) -> bool:
    """Whether a slot stands around one that was left empty."""
    return slot.around in taken and is_empty(taken[slot.around])


def named(page: Page, name: str) -> FlowRule | None:
    """The flow that is called by its steps, those left out that are empty; None where none is so called."""
    wanted = {f"{page.topic}/{word}" for word in name.partition("/")[2].split(JOINED)}
    taken: dict[str, FlowRule] = {}
    for slot in page.centres_first:
        if left_out(slot, taken):
            continue
        step = next((step for step in slot.steps if step.name in wanted), slot.unnamed)
        if step is None:
            return None
        taken[slot.name] = step
    complete = wanted == {step.name for step in _named(taken.values())}
    return assemble(page, page.in_order(taken)) if complete else None


def assemble(page: Page, steps: Sequence[FlowRule]) -> FlowRule:
    """The flow that steps make, one for each slot of a page that is not left out, in their order."""
    base = page.base
    assert base is not None
    names = tuple(step.short for step in _named(steps))
    needs = _union(step.needs for step in steps)
    words: dict[str, Any] = {
        "needs": needs,
        "options": tuple(role for role in _union(step.options for step in steps) if role not in needs),
        "reads_elsewhere": _union([base.reads_elsewhere, *(step.reads_elsewhere for step in steps)]),
        "calls": _union(step.calls for step in steps),
    }
    used = {role for roles in words.values() for role in roles}
    tables: dict[str, Any] = {key: merged_key(key, [base, *steps]) for key in _TABLES}
    tables |= {key: _union(getattr(step, key) for step in steps) for key in _PATHS}
    by_itself = {role for step in steps for role in step.options if role in step.ignored}
    tables["ignored"] = {
        role: why for role, why in tables["ignored"].items() if role in by_itself or role not in used
    }
    shapes = {**base.shapes, **merged_key("shapes", steps)}
    return replace(
        base,
        name=f"{page.topic}/{JOINED.join(names)}",
        doc=with_words(base.doc, [step.doc for step in steps if step.doc]),
        shapes={role: extents for role, extents in shapes.items() if role.partition(".")[0] in used},
        body=_body(base, steps) + _returned(page, steps),
        steps=names,
        **words,
        **tables,
    )


def _returned(page: Page, steps: Sequence[FlowRule]) -> str:
    """The last statement, where the page says in which order its flows return what steps give."""
    given = merged_key("outputs", steps)
    pairs = {name: given[name] for name in page.outputs if name in given}
    return "".join(f"{line}\n" for line in returns(pairs)) if page.outputs else ""


def _body(base: FlowRule, steps: Sequence[FlowRule]) -> str:
    """The statements of steps; where some of these are words, with those of all others between them, in order."""
    bodies = [(step.doc, step.body.rstrip()) for step in steps]
    if any(step.words for step in steps):
        rows = [text for doc, body in bodies for text in (f"{json.dumps(doc)}" if doc else "", body)]
        return "".join(f"{text}\n" for text in (json.dumps(base.doc), *rows) if text)
    return "".join(f"{body}\n" for _, body in bodies if body)


def _union(groups: Iterable[Iterable[str]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(word for group in groups for word in group))


def merged_key(key: str, rules: Iterable[FlowRule]) -> dict[str, Any]:
    """The tables of several rules as one; of what two say of a fact, the values that both allow."""
    merged: dict[str, Any] = {}
    for rule in rules:
        for name, value in getattr(rule, key).items():
            both = key in ("when", "values") and name in merged
            merged[name] = tuple(item for item in merged[name] if item in value) if both else value
    return merged


@collection_paused()
def page_of(document: Document) -> Page:
    """What a rule file says."""
    if document.made is not None:
        return _page(document.made, document.label)
    return read_page(document.data, document.label, lambda keys: document.line(*keys))


def plain_page(page: Page) -> list[Any]:
    """All of a page as JSON has it, but for the file's name."""

    def rows(rules: Iterable[FlowRule]) -> list[Any]:
        return [plain_rule(rule) for rule in rules]

    slots, more = (
        [[one.name, one.around, rows(one.steps)] for one in group] for group in (page.slots, page.more)
    )
    return [page.topic, rows(page.flows), slots, rows([page.base] if page.base else []), more, page.outputs]


def _page(made: Sequence[Any], file: str) -> Page:
    """The page that `plain_page` wrote down."""
    topic, flows, slots, base, more, outputs = made

    def rules(rows: Iterable[Plain]) -> tuple[FlowRule, ...]:
        return tuple([rule_of(said, file) for said in rows])

    def of(group: Iterable[Sequence[Any]]) -> tuple[Slot, ...]:
        return tuple([Slot(name, rules(steps), around) for name, around, steps in group])

    return Page(topic, rules(flows), of(slots), next(iter(rules(base)), None), of(more), tuple(outputs))


def read_flows(pages: Sequence[Page]) -> dict[str, FlowRule]:
    """Every flow that is written out by name, in the order of the files. Raises RuleError where two have one name."""
    flows: dict[str, FlowRule] = {}
    for rule in (rule for page in pages for rule in page.flows):
        if rule.name in flows:
            raise RuleError(
                f"{rule.file}:{rule.line}: the flow {rule.name!r} is already in {flows[rule.name].file}"
            )
        flows[rule.name] = rule
    _check_ends([page for page in pages if page.slots])
    return {name: continued(rule, flows) for name, rule in flows.items()}


def _check_ends(pages: Sequence[Page]) -> None:
    """Flows of several spines of one topic have different names: no step of their last slots is called alike."""
    ends: dict[str, str] = {}
    for page in pages:
        for step in page.slots[-1].steps:
            if step.name in ends:
                raise RuleError(
                    f"{step.file}:{step.line}: a spine in {ends[step.name]} ends in {step.name!r} too: call it otherwise"
                )
            ends[step.name] = step.file


def whole(pages: Sequence[Page]) -> Page:
    """The page of a spine, the first, with the steps for it that stand on others. Raises RuleError."""
    page, more = pages[0], [slot for other in pages[1:] for slot in other.more]
    for slot in more:
        if slot.name not in [known.name for known in page.slots]:
            step = slot.steps[0]
            raise RuleError(f"{step.file}:{step.line}: the spine of {page.topic!r} has no slot {slot.name!r}")
    made = joined(pages)
    _check_names(made)
    _check_shapes(made)
    _check_end(made)
    return made


def joined(pages: Sequence[Page]) -> Page:
    """The same of pages that were seen to fit."""
    page, more = pages[0], [slot for other in pages[1:] for slot in other.more]
    filled = (
        replace(slot, steps=sum((other.steps for other in more if other.name == slot.name), slot.steps))
        for slot in page.slots
    )
    return replace(page, slots=tuple(filled)) if more else page


def read_page(data: Any, file: str, lines: Lines) -> Page:
    """The flows of one file; raises RuleError with file and line."""
    if isinstance(data, dict) and "block" not in data:
        rule = read_flow(data, file, lines)
        return Page(rule.topic, (rule,))
    fields = Fields(data, file, lines)
    topic = fields.text("block")
    spine = fields.words("spine")
    takes = fields.words("takes", () if topic in TOPICS_WITHOUT_INPUT else ("x",))
    flows = tuple(_inner(fields, topic, takes, "flows", name) for name in fields.mapping("flows"))
    also = () if spine else fields.words("also_for")
    flows = tuple(replace(rule, also_for=also) for rule in flows) if also else flows
    flows = flows if spine else with_usual_shapes(fields, flows)
    base = _base(fields, topic, takes) if spine else None
    slots = _slots(fields, topic, takes, spine)
    more = tuple(_slot(fields, topic, takes, name, "") for name in fields.words("fills"))
    outputs = fields.words("outputs")
    fields.text("doc", "")
    fields.done()
    made = Page(topic, flows, slots, base, more, outputs)
    return whole([made]) if base else made


def _base(fields: Fields, topic: str, takes: tuple[str, ...]) -> FlowRule:
    return FlowRule(
        name=f"{topic}/{EMPTY}",
        doc=fields.text("doc"),
        takes=takes,
        needs=(),
        options=(),
        when=fields.choices("when"),
        shapes=read_shapes(fields),
        leaves={},
        values=fields.choices("values"),
        body="",
        file=fields.file,
        line=fields.line("spine"),
        ignored={role: str(why) for role, why in fields.mapping("ignored").items()},
        reads_elsewhere=fields.words("reads_elsewhere"),
        also_for=fields.words("also_for"),
        must_be_read=fields.words("must_be_read"),
    )


def _slots(fields: Fields, topic: str, takes: tuple[str, ...], spine: Sequence[str]) -> tuple[Slot, ...]:
    """The slots of a spine; a row of them for each that `rows` are of."""
    rows = fields.inner(fields.mapping("rows"), "rows")
    centres, row = rows.words("of"), rows.words("slots")
    rows.done()
    if set(centres) - set(spine) or bool(centres) != (SLOT in row):
        fields.fail(f"rows are of slots in the spine, and have {SLOT} where these stand", "rows")
    slots: list[Slot] = []
    for name in spine:
        for one in row if name in centres else (name,):
            around = name if name in centres and one != SLOT else ""
            key = name if one == SLOT else one
            slots.append(_slot(fields, topic, takes, key, around))
    return tuple(slots)


def _slot(fields: Fields, topic: str, takes: tuple[str, ...], key: str, around: str) -> Slot:
    steps = tuple(_inner(fields, topic, takes, key, name, around) for name in fields.mapping(key))
    if not steps:
        fields.fail(f"the slot {key!r} of the spine has no steps", "spine")
    if len([step for step in steps if step.is_unnamed]) > 1:
        fields.fail(f"a slot has one step at most that is {EMPTY} or {PLAIN}", key)
    return Slot(f"{key}_{around}" if around else key, steps, around)


def _inner(
    fields: Fields, topic: str, takes: tuple[str, ...], key: str, name: str, around: str = ""
) -> FlowRule:
    """A flow of the table `flows:`, or a step of a slot; it takes what its page says, unless it says otherwise."""
    table = fields.mapping(key)[name]
    given = _renamed(table if isinstance(table, dict) else {}, around)
    is_step = key != "flows"
    lacking: dict[str, Any] = {"takes": list(takes)}
    if is_step:
        lacking |= {"doc": "", "forward": ""}
    called = "_".join(word for word in (name, key if name == PLAIN else "", around) if word)
    called = called if is_step else name
    rule = read_rule(fields.inner({**lacking, **given}, key, name), f"{topic}/{called}", is_step)
    return replace(rule, is_unnamed=is_step and name in (EMPTY, PLAIN))


def _renamed(data: Any, slot: str) -> Any:
    """What a step of a row says, with the name of the slot that the row stands around."""
    if isinstance(data, dict):
        return {_renamed(key, slot): _renamed(value, slot) for key, value in data.items()}
    if isinstance(data, list):
        return [_renamed(item, slot) for item in data]
    return data.replace(SLOT, slot) if slot and isinstance(data, str) else data


def _check_names(page: Page) -> None:
    seen: set[str] = set()
    for step in _named(page.steps):
        if step.name in seen:
            raise RuleError(f"{step.file}:{step.line}: two steps are called {step.name!r}")
        seen.add(step.name)


def _check_shapes(page: Page) -> None:
    """What a step says of a role that another step reads is of one that some step does."""
    roles = {role for step in page.steps for role in step.roles}
    for step in page.steps:
        for role in step.shapes:
            if role.partition(".")[0] not in roles:
                where = f"{step.file}:{step.line}: {step.name}"
                raise RuleError(f"{where} says the shape of {role!r}, which no step of the page reads")


def _check_end(page: Page) -> None:
    """What is returned is said by the steps of the last slot, or by the order of the outputs."""
    last = page.slots[-1].steps if not page.outputs else ()
    for step in last:
        if "return" not in step.body:
            raise RuleError(f"{step.file}:{step.line}: the last slot returns, and {step.name} does not")
    for step in page.steps:
        for name in step.outputs:
            if name not in page.outputs:
                where = f"{step.file}:{step.line}: {step.name}"
                raise RuleError(f"{where} gives {name!r}, which is not among the outputs")
