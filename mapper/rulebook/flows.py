"""Flow files: how data flows through one block. The body's language is read by `mapper.flows`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import field, fields, replace
from functools import cached_property
from typing import Any

from mapper._dataclass import dataclass
from mapper.errors import RuleError
from mapper.rulebook.fields import Fields, Lines

NAME = re.compile(r"[a-z][a-z0-9_]*/[a-z][a-z0-9_]*(\+[a-z][a-z0-9_]*)*")
TOPICS_WITHOUT_INPUT = ("tower", "root")
_WORDS = re.compile(r'^ *"([^"]*)"$', re.MULTILINE)  # statements that are strings
_IN_PLACE = re.compile(
    r"^( *)if has\(([\w.]+)\):\n\1  (\w+) = \2\(\3\)(?=\n\1(?!else\b|elif\b)\S|\n(?!\1)|\n?\Z)", re.MULTILINE
)  # `if has(map): x = map(x)`, and nothing else
ANY = "_"  # an extent that a flow leaves open
EITHER = " | "  # between roles beside a step of which one is enough


@dataclass(frozen=True)
class FlowRule:
    """One rule for a block: what it needs, when it applies, which sizes it relates and what it computes."""

    name: str  # "layer/two_way": topic and name
    doc: str
    takes: tuple[str, ...]  # positional parameters of the forward
    needs: tuple[str, ...]  # roles that must be there
    options: tuple[str, ...]  # roles that may be absent
    when: dict[str, tuple[Any, ...]]  # fact -> the values with which this flow may be chosen
    shapes: dict[str, tuple[str, ...]]  # role -> extents of its weight as expressions over facts
    leaves: dict[str, dict[str, Any]]  # role -> constructor arguments that no shape shows
    values: dict[str, tuple[Any, ...]]  # fact -> the values that it may take
    body: str
    file: str  # as printed in messages: "flows/layer.yaml"
    line: int  # of the body's first line in the file
    calls: tuple[str, ...] = ()
    """Topics of flows without leaves that this one calls, each chosen by its facts alone."""
    ties: dict[str, str] = field(default_factory=dict)
    """Role -> role path of the leaf whose weight it has, where head.tied says so."""
    reads_elsewhere: tuple[str, ...] = ()
    """Roles that it may have and never reads: a flow around it does."""
    extends: str | None = None
    """The flow whose statements, but for its return, come before these; what it declares holds here too."""
    ignored: dict[str, str] = field(default_factory=dict)
    """Roles that may be there and that this computation does not read -> why."""
    without: tuple[str, ...] = ()
    """Role paths beside which a root is not for the task that a user says or the heads allow: words, of one for images."""
    prefer_if: tuple[str, ...] = ()
    """Role paths that speak for a root where several tasks fit the heads and nobody says which."""
    by_name_only: bool = False
    """Whether its roles and shapes do not tell it from another flow: taken only where a family names it."""
    inputs: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    """Public inputs that are otherwise here than vocabulary/inputs.yaml says: `shape`, `dtype` or `optional`.

    Of several the first that holds: beside a role (`has`), or where facts have these values (`when`).
    """
    beside: tuple[str, ...] = ()
    """Of a step: roles that must be there, which another step reads; `a | b` where one is enough."""
    is_unnamed: bool = False
    """Of a step: whether it is `empty` or `plain`, which no flow is named for."""
    outputs: dict[str, str] = field(default_factory=dict)
    """Of a step of a root: what the model returns -> the expression that it is, by a guard or not."""
    also_for: tuple[str, ...] = ()
    """Other roles whose blocks take the flows of its page."""
    agrees_with: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Of a step: fact -> facts of the tower around the block, one of which has the same value where no family says otherwise."""
    must_be_read: tuple[str, ...] = ()
    """Of a page: names that its steps bind, one of which that nothing reads makes another network."""
    steps: tuple[str, ...] = ()
    """The steps of its block's page that it was put together from; none where it is written out."""

    @cached_property
    def topic(self) -> str:
        return self.name.partition("/")[0]

    @cached_property
    def short(self) -> str:
        """Its name on its page."""
        return self.name.partition("/")[2]

    @cached_property
    def words(self) -> tuple[str, ...]:
        """What branches of the body add to the docstring."""
        return tuple(dict.fromkeys(_WORDS.findall(self.body)))

    @cached_property
    def kept_widths(self) -> dict[str, tuple[str, str]]:
        """Optional maps of a value (`if has(map): x = map(x)`) -> the sizes of both sides, which are one where there is none."""
        roles = (role for _, role, _ in _IN_PLACE.findall(self.body))
        every = {role: self.shapes[role] for role in roles if role in self.shapes and role not in self.ties}
        return {
            role: (extents[0], extents[1])
            for role, extents in every.items()
            if len(extents) > 1 and all(text.isidentifier() and text != ANY for text in extents[:2])
        }

    @cached_property
    def stored(self) -> tuple[str, ...]:
        """Those of the needed roles that must have a tensor: one that may be tied to another need not."""
        return tuple(role for role in self.needs if role not in self.ties)

    @cached_property
    def roles(self) -> tuple[str, ...]:
        """Every role it can use, the needed ones first."""
        return self.needs + self.options + self.reads_elsewhere + self.calls

    @cached_property
    def roles_beside(self) -> tuple[str, ...]:
        """Roles of which the paths beside it begin: of `tower.embeddings.token` the tower."""
        either = (path for paths in self.beside for path in paths.split(EITHER))
        return tuple(path.partition(".")[0] for path in either)


def read_flow(data: Any, file: str, lines: Lines) -> FlowRule:
    """The flow in a rule file of its own; raises RuleError with file and line."""
    fields = Fields(data, file, lines)
    name = fields.text("flow")
    if not NAME.fullmatch(name):
        fields.fail("a flow is named topic/name, in small letters", "flow")
    return read_rule(fields, name)


def read_rule(fields: Fields, name: str, is_step: bool = False) -> FlowRule:
    """A flow, or a step of one, under a name; raises RuleError with file and line.

    A step may say shapes of roles that other steps read.
    """
    topic = name.partition("/")[0]
    body = fields.text("forward")
    rule = FlowRule(
        name=name,
        doc=fields.text("doc"),
        takes=fields.words("takes", () if topic in TOPICS_WITHOUT_INPUT else ("x",)),
        needs=fields.words("needs"),
        options=fields.words("options"),
        when=fields.choices("when"),
        shapes=read_shapes(fields),
        leaves={role: _arguments(fields, role, value) for role, value in fields.mapping("leaves").items()},
        values=fields.choices("values"),
        body=body,
        file=fields.file,
        line=fields.line("forward") + body.endswith("\n"),  # a block scalar begins below its key
        calls=fields.words("calls"),
        prefer_if=fields.words("prefer_if"),
        without=fields.words("without"),
        ties={role: str(path) for role, path in fields.mapping("ties").items()},
        ignored={role: str(why) for role, why in fields.mapping("ignored").items()},
        inputs={key: _each(value) for key, value in fields.mapping("inputs").items()},
        reads_elsewhere=fields.words("reads_elsewhere"),
        extends=fields.any("extends"),
        by_name_only=fields.flag("by_name_only"),
        beside=fields.words("beside"),
        outputs={name: str(value) for name, value in fields.mapping("outputs").items()},
        agrees_with=fields.choices("agrees_with"),
    )
    fields.done()
    if rule.extends is None:
        _check_roles(fields, rule, ("leaves",) if is_step else ("shapes", "leaves"))
    return rule


_TUPLES = (
    "takes", "needs", "options", "calls", "reads_elsewhere", "prefer_if", "without", "beside", "also_for",
    "must_be_read",
)  # fmt: skip
_TABLES_OF_TUPLES = ("when", "shapes", "values", "agrees_with")
_NONE = dict.fromkeys(_TUPLES, ())

Plain = list[dict[str, Any]]


def plain_rule(rule: FlowRule) -> Plain:
    """What a rule says that is not usual, as JSON has it: words, tables of words, and the rest but for the file's name."""
    said = {name: value for name, value in vars(rule).items() if value not in ((), {}, None, False)}
    plain = [
        name
        for name in (field.name for field in fields(rule))
        if name in said and name not in (*_TUPLES, *_TABLES_OF_TUPLES, "file")
    ]
    return [
        {name: said[name] for name in names if name in said} for names in (_TUPLES, _TABLES_OF_TUPLES, plain)
    ]


def rule_of(said: Plain, file: str) -> FlowRule:
    """The rule that was written as plain data. There are hundreds on the pages of a model: none is checked again."""
    words, tables, plain = said
    rule = object.__new__(FlowRule)
    held = rule.__dict__
    held.update(_NONE)
    held.update(
        when={},
        shapes={},
        values={},
        leaves={},
        ties={},
        ignored={},
        inputs={},
        outputs={},
        agrees_with={},
        file=file,
    )
    held.update(plain)
    for name, value in words.items():
        held[name] = tuple(value)
    for name, table in tables.items():
        held[name] = {key: tuple(values) for key, values in table.items()}
    return rule


def _each(value: Any) -> list[dict[str, Any]]:
    """What is said of an input, be it for all blocks or for some."""
    return [dict(spec) for spec in (value if isinstance(value, list) else [value])]


def read_shapes(fields: Fields) -> dict[str, tuple[str, ...]]:
    """The table `shapes:` of a mapping: role -> extents."""
    return {role: _extents(fields, role, value) for role, value in fields.mapping("shapes").items()}


def with_usual_shapes(fields: Fields, flows: tuple[FlowRule, ...]) -> tuple[FlowRule, ...]:
    """The flows of a page without a spine, each role with the page's shape where the flow says none of its own."""
    usual = read_shapes(fields)
    unknown = set(usual).difference(*(rule.roles for rule in flows))
    if unknown:
        fields.fail(f"no flow of the page has the role {sorted(unknown)[0]!r}", "shapes")
    if not usual:
        return flows
    return tuple(replace(rule, shapes=_filled(rule, usual)) for rule in flows)


def _filled(rule: FlowRule, usual: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """In the order of the roles: a size is said to be from the first that shows it."""
    lacking = [role for role in usual if role in rule.roles and role not in rule.shapes]
    if not lacking:
        return rule.shapes
    every = {**usual, **rule.shapes}
    return {role: every[role] for role in (*rule.needs, *rule.options) if role in every} | rule.shapes


def continued(rule: FlowRule, flows: Mapping[str, FlowRule], seen: tuple[str, ...] = ()) -> FlowRule:
    """The flow with the statements of those it comes after. Raises RuleError."""
    if rule.extends is None:
        return rule
    where = f"{rule.file}:{rule.line}: {rule.name} comes after"
    if rule.extends not in flows or rule.extends in (*seen, rule.name):
        raise RuleError(
            f"{where} {rule.extends!r}, {'itself' if rule.extends in flows else 'which there is not'}"
        )
    base = continued(flows[rule.extends], flows, (*seen, rule.name))
    rows = base.body.splitlines()
    ends = [at for at, row in enumerate(rows) if row.startswith("return")]
    if len(ends) != 1:
        raise RuleError(f"{where} {base.name}, which does not end in one return")
    declared = {
        key: {**getattr(base, key), **getattr(rule, key)}
        for key in ("when", "shapes", "leaves", "values", "ties", "inputs")
    }
    words = {
        key: tuple(dict.fromkeys((*getattr(base, key), *getattr(rule, key))))
        for key in ("needs", "options", "reads_elsewhere", "calls", "without")
    }
    words["options"] = tuple(role for role in words["options"] if role not in words["needs"])
    body = "\n".join([*rows[: ends[0]], rule.body])
    return replace(rule, **declared, **words, body=body, line=rule.line - ends[0], extends=None)  # type: ignore[arg-type]


def with_words(base: str, words: Sequence[str]) -> str:
    """`self-attention with a causal mask, grouped queries and rotary embeddings`."""
    words = list(dict.fromkeys(words))
    joint = (
        ", with" if ", " in base else " with"
    )  # what is said of a part of the base is said before the comma
    return (
        f"{base}{joint} {', '.join(words[:-1])}{' and ' if words[1:] else ''}{words[-1]}" if words else base
    )


def aligned(extents: tuple[str, ...], rank: int) -> tuple[str, ...]:
    """Declared extents for a tensor of `rank` dimensions: a leading "..." stands for any others."""
    if extents[:1] != ("...",):
        return extents
    return (ANY,) * (rank + 1 - len(extents)) + extents[1:]


def _extents(fields: Fields, role: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(item, (str, int)) for item in value):
        fields.fail("expected a list of extents such as [heads * head_dim, hidden_size]", "shapes", role)
    return tuple(map(str, value))


def _arguments(fields: Fields, role: str, value: Any) -> dict[str, Any]:
    inner = fields.inner(value, "leaves", role)
    return dict(inner.data)


def _check_roles(fields: Fields, rule: FlowRule, tables: Sequence[str]) -> None:
    twice = set(rule.needs) & set(rule.options)
    if twice:
        fields.fail(f"{sorted(twice)[0]!r} is both needed and an option", "options")
    for key in tables:
        for role in getattr(rule, key):
            if role.partition(".")[0] not in rule.roles:
                fields.fail(f"{role!r} is in neither needs nor options", key, role)
