"""A flow under every combination of its guards: does it specialise, use what it names, and call only what there is?"""

from __future__ import annotations

import ast
from collections.abc import Collection, Container, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any

from mapper.errors import FlowError
from mapper.flows.answers import Answer, Question, answers, count_of, guards_of
from mapper.flows.flow import Flow, known_names, parse_flow
from mapper.flows.groups import Found, Group, found_in, groups_of, joined
from mapper.flows.guards import ROLE, parts, question
from mapper.flows.language import below, dotted, targets
from mapper.flows.retired import not_callable
from mapper.flows.walk import bindings, nodes
from mapper.operations.registry import operation_names, operation_signature
from mapper.rulebook.flows import FlowRule

MAX_TIED = 2**20  # answers to guards that hang together: some twenty seconds
MAX_GUARDS = 6  # of a flow or of a step: 2 ** 6 combinations are still read by a person


def combinations(flow: Flow) -> Iterator[Answer]:
    """Every answer to the guards: roles present, options chosen, values of facts."""
    return answers(guards_of(flow.statements).choices())


def check_length(rule: FlowRule) -> None:
    """Checks that a flow or a step has no more guards than a person reads. Raises FlowError."""
    count = _decisions(parse_flow(rule, shared=True).statements)
    if count > MAX_GUARDS:
        raise FlowError(
            f"{rule.file}:{rule.line}: {rule.name} has {count} guards; at most {MAX_GUARDS}, make it two"
        )


def _decisions(statements: Iterable[ast.stmt]) -> int:
    """How many questions a reader meets: roles that are asked for together wherever one of them is are one, a part."""
    asked: dict[Question, set[Any]] = {}
    tests = (node.test for statement in statements for node in below(statement) if isinstance(node, ast.If))
    for at, test in enumerate(tests):
        together = test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) else []
        for node in parts(test):
            name = question(node)
            asked.setdefault(name, set()).add(at if node in together and name[0] == ROLE else (at, name))
    return len({frozenset(places) for places in asked.values()})


def check_flow(rule: FlowRule, known: Container[str] | None = None) -> int:
    """Checks one flow under all combinations of its guards; returns how many there were. Raises FlowError.

    `known` are the names that flows above it bind and public inputs; without them its free names are not checked.
    """
    flow = parse_flow(rule, shared=True)
    if known is not None:
        _check_context(flow, known)
    _check_calls(flow)
    _check_declared(rule)
    groups = list(groups_of(flow))
    found = [_found(rule, group) for group in groups]
    _check_end(rule, [end for one in found for end in one.ends])
    _check_roles(rule, groups, found)
    used = frozenset().union(*(one.ever for one in found))
    spared = {*rule.reads_elsewhere, *rule.ignored}
    unused = [role for role in rule.roles if role not in used and role not in spared]
    if unused:
        raise FlowError(f"{rule.file}:{rule.line}: {rule.name} names role {unused[0]!r} and never uses it")
    return count_of(guards_of(flow.statements).choices())


def _found(rule: FlowRule, group: Group) -> Found:
    """What is left of a group, whose guards must not have more answers than can be tried."""
    most = count_of((question, values) for question, values, _ in group.choices)
    if most > MAX_TIED:
        raise FlowError(
            f"{rule.file}:{rule.line}: {rule.name}: guards that hang together have {most:,} answers; at most {MAX_TIED:,}, let a step ask less"
        )
    return found_in(group)


def _check_end(rule: FlowRule, ends: Collection[ast.expr | None]) -> None:
    if None in ends or not ends:
        raise FlowError(
            f"{rule.file}:{rule.line}: {rule.name} does not end in return under every combination of its guards"
        )
    is_root = rule.topic == "root"
    if any(is_root != (_is_output(end) and "output" not in rule.roles) for end in ends):
        raise FlowError(f"{rule.file}:{rule.line}: a root ends in output(...), and nothing else does")


def _is_output(end: ast.expr | None) -> bool:
    return isinstance(end, ast.Call) and dotted(end.func) == "output"


def _check_roles(rule: FlowRule, groups: Sequence[Group], found: Sequence[Found]) -> None:
    """Every needed role is used always; an optional one is only used behind has(role)."""
    for role in rule.needs:
        if not _is_always(rule, role, groups, found):
            raise FlowError(
                f"{rule.file}:{rule.line}: {rule.name} needs role {role!r} but does not use it under every combination"
            )
    loose = frozenset().union(*(one.loose for one in found))
    for role in rule.options:
        if role in loose:
            raise FlowError(
                f"{rule.file}:{rule.line}: {rule.name} uses the option {role!r} without has({role})"
            )


def _is_always(rule: FlowRule, role: str, groups: Sequence[Group], found: Sequence[Found]) -> bool:
    """Whether a flow has a name under every answer: in one row of it always, or in this one where not in that one."""
    if any(role in one.always for one in found):
        return True
    naming = [group for group, one in zip(groups, found, strict=True) if role in one.ever]
    return len(naming) > 1 and role in _found(rule, joined(naming)).always


def _check_declared(rule: FlowRule) -> None:
    """Shapes and arguments are those of roles that the flow has, its own or of the flow that it comes after."""
    for role in (*rule.shapes, *rule.leaves):
        if role.partition(".")[0] not in rule.roles:
            raise FlowError(
                f"{rule.file}:{rule.line}: {rule.name} has no role {role!r}, whose shape it declares"
            )


def _check_calls(flow: Flow) -> None:
    """Every call is of a role, a loop variable over one, an operation with as many arguments as it takes, or torch."""
    calls = [_calls(statement) for statement in flow.statements]
    own = flow.roles.union(*(loops for loops, _ in calls))
    known = known_names()
    for node, name, wrong in (call for _, found in calls for call in found):
        if name not in own and name not in known:
            raise FlowError(f"{_where(flow, node)}: {not_callable(name, flow.rule.name)}")
        if wrong and name not in flow.roles:
            raise FlowError(f"{_where(flow, node)}: {wrong}")


@lru_cache(maxsize=2**13)
def _calls(statement: ast.stmt) -> tuple[frozenset[str], list[tuple[ast.Call, str, str]]]:
    """Loop variables in a statement of a parsed body; its calls by a name, with what is wrong with them for an operation."""
    heads = (node.target for node in below(statement) if isinstance(node, ast.For))
    calls = [
        (node, node.func.id, _misfit(node, node.func.id))
        for node in below(statement)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    ]
    return frozenset(name for head in heads for name in targets(head)), calls


def _misfit(node: ast.Call, name: str) -> str:
    """Where an operation does not take what it is called with, that; else nothing."""
    if name not in operation_names():
        return ""
    signature = operation_signature(name)
    given = len(node.args) + len(node.keywords)
    unknown = [keyword.arg for keyword in node.keywords if keyword.arg not in signature.parameters]
    if not unknown and signature.required <= given <= len(signature.parameters):
        return ""
    wanted = ", ".join(signature.parameters)
    return f"{name}({wanted}) is called with {given} arguments{f' and {unknown[0]!r}' if unknown else ''}"


def _where(flow: Flow, node: ast.expr | ast.stmt) -> str:
    return f"{flow.rule.file}:{flow.rule.line + node.lineno - 1}"


def bound_names(flows: Iterable[FlowRule]) -> set[str]:
    """Names that some flow hands to those below it."""
    bound: set[str] = set()
    for flow in map(parse_flow, flows):
        bound.update(flow.rule.takes)
        bound.update(bindings(flow.statements))
        calls = (node for node in nodes(flow.statements) if isinstance(node, ast.Call))
        bound.update(str(keyword.arg) for call in calls for keyword in call.keywords)
    return bound


def _check_context(flow: Flow, known: Container[str]) -> None:
    """Every free name of a flow is bound by some flow above it, or is a public input."""
    rule = flow.rule
    for name in flow.free_names:
        if name not in known:
            raise FlowError(
                f"{rule.file}:{rule.line}: {rule.name} reads {name!r}, which no flow binds and no input is"
            )
