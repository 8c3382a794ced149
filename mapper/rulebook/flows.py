"""Flow files: how data flows through one block. The body's language is read by `mapper.flows`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from mapper.errors import RuleError
from mapper.rulebook.fields import Fields, Lines

NAME = re.compile(r"[a-z][a-z0-9_]*/[a-z][a-z0-9_]*")
TOPICS_WITHOUT_INPUT = ("tower", "root")
ANY = "_"  # an extent that a flow leaves open


@dataclass(frozen=True)
class FlowRule:
    """One rule for a block: what it needs, when it applies, which sizes it relates and what it computes."""

    name: str  # "layer/post_norm": topic and name
    doc: str
    takes: tuple[str, ...]  # positional parameters of the forward
    needs: tuple[str, ...]  # roles that must be there
    options: tuple[str, ...]  # roles that may be absent
    when: dict[str, tuple[Any, ...]]  # fact -> the values with which this flow may be chosen
    shapes: dict[str, tuple[str, ...]]  # role -> extents of its weight as expressions over facts
    leaves: dict[str, dict[str, Any]]  # role -> constructor arguments that no shape shows
    values: dict[str, tuple[Any, ...]]  # fact -> the values that it may take
    body: str
    file: str  # as printed in messages: "flows/layer/post_norm.yaml"
    line: int  # of the body's first line in the file
    parts: tuple[str, ...] = ()
    """Topics of flows without leaves that this one calls, each chosen by its facts alone."""
    ties: dict[str, str] = field(default_factory=dict)
    """Role -> role path of the leaf whose weight it has, where head.tied says so."""
    lends: tuple[str, ...] = ()
    """Roles that it may have and never reads: a flow around it does."""
    after: str | None = None
    """The flow whose statements, but for its return, come before these; what it declares holds here too."""
    unread: dict[str, str] = field(default_factory=dict)
    """Roles that may be there and that this computation does not read -> why."""
    without: tuple[str, ...] = ()
    """Role paths beside which a root is not for the task that a user says or the heads allow: words, of one for images."""
    signs: tuple[str, ...] = ()
    """Role paths that speak for a root where several tasks fit the heads and nobody says which."""
    by_name_only: bool = False
    """Whether its roles and shapes do not tell it from another flow: taken only where a family names it."""
    inputs: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Public inputs that are otherwise here than vocabulary/inputs.yaml says: `shape`, `dtype` or `optional`."""

    @cached_property
    def topic(self) -> str:
        return self.name.partition("/")[0]

    @cached_property
    def roles(self) -> tuple[str, ...]:
        """Every role it can use, the needed ones first."""
        return self.needs + self.options + self.lends + self.parts


def read_flow(data: Any, file: str, lines: Lines) -> FlowRule:
    """The flow in one rule file; raises RuleError with file and line."""
    fields = Fields(data, file, lines)
    name = fields.text("flow")
    if not NAME.fullmatch(name):
        fields.fail("a flow is named topic/name, in small letters", "flow")
    topic = name.partition("/")[0]
    rule = FlowRule(
        name=name,
        doc=fields.text("doc"),
        takes=fields.words("takes", () if topic in TOPICS_WITHOUT_INPUT else ("x",)),
        needs=fields.words("needs"),
        options=fields.words("options"),
        when=fields.choices("when"),
        shapes={role: _extents(fields, role, value) for role, value in fields.mapping("shapes").items()},
        leaves={role: _arguments(fields, role, value) for role, value in fields.mapping("leaves").items()},
        values=fields.choices("values"),
        body=fields.text("forward"),
        file=file,
        line=fields.line("forward") + 1,  # a block scalar begins below its key
        parts=fields.words("parts"),
        signs=fields.words("signs"),
        without=fields.words("without"),
        ties={role: str(path) for role, path in fields.mapping("ties").items()},
        unread={role: str(why) for role, why in fields.mapping("unread").items()},
        inputs={key: dict(value) for key, value in fields.mapping("inputs").items()},
        lends=fields.words("lends"),
        after=fields.any("after"),
        by_name_only=fields.flag("by_name_only"),
    )
    fields.done()
    if rule.after is None:
        _check_roles(fields, rule)
    return rule


def continued(rule: FlowRule, flows: Mapping[str, FlowRule], seen: tuple[str, ...] = ()) -> FlowRule:
    """The flow with the statements of those it comes after. Raises RuleError."""
    if rule.after is None:
        return rule
    where = f"{rule.file}:{rule.line}: {rule.name} comes after"
    if rule.after not in flows or rule.after in (*seen, rule.name):
        raise RuleError(
            f"{where} {rule.after!r}, {'itself' if rule.after in flows else 'which there is not'}"
        )
    base = continued(flows[rule.after], flows, (*seen, rule.name))
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
        for key in ("needs", "options", "lends", "parts", "without")
    }
    words["options"] = tuple(role for role in words["options"] if role not in words["needs"])
    body = "\n".join([*rows[: ends[0]], rule.body])
    return replace(rule, **declared, **words, body=body, line=rule.line - ends[0], after=None)  # type: ignore[arg-type]


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


def _check_roles(fields: Fields, rule: FlowRule) -> None:
    twice = set(rule.needs) & set(rule.options)
    if twice:
        fields.fail(f"{sorted(twice)[0]!r} is both needed and an option", "options")
    for key, table in (("shapes", rule.shapes), ("leaves", rule.leaves)):
        for role in table:
            if role.partition(".")[0] not in rule.roles:
                fields.fail(f"{role!r} is in neither needs nor options", key, role)
