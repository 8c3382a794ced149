"""What the model is for: from the class that the config names, or from the heads in the checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from mapper.errors import HintError, listed, shorten
from mapper.flows.references import has_role
from mapper.inference.case import Doubts
from mapper.inference.compose import Composed, compose, compose_each
from mapper.inference.config import Config
from mapper.inference.evidence import Known
from mapper.inference.facts import Facts
from mapper.inference.families import Families
from mapper.inference.misfits import LACKS, misfits
from mapper.inference.nearest import against_defaults, decisive, nears
from mapper.inference.scopes import Scope, is_tower
from mapper.inference.select import Choice, choose, fitting_flows, named_flows, specificity
from mapper.rulebook.flows import FlowRule
from mapper.rulebook.index import FlowTable, SpineEntry
from mapper.rulebook.pages import Page

TASK = "task"
ROOT = "root"
_NEAR = 2  # roles that a flow lacks and is still told of


def task_of_config(config: Config) -> Known | None:
    """The task that the saved class's name ends in."""
    tasks = config.vocabulary.tasks
    for name in config.class_names:
        endings = [ending for ending in tasks if name.endswith(ending)]
        if endings:
            return Known(tasks[max(endings, key=len)], "config", f"architectures: {name}")
    return None


def choose_root(root: Scope, flows: FlowTable, families: Families, facts: Facts, doubts: Doubts) -> Choice:
    """The root's flow: the one for the task that is stated or configured, else the one that the heads allow.

    A flow for several tasks stands for its first where nobody says which.
    """
    stated, configured = facts.hints.stated(root, TASK), task_of_config(facts.config)
    task = stated or configured
    if stated and not (configured and configured.value == stated.value):
        flows = _suited(root, flows, families)
    if task is None:
        asked = _of_library(root, flows, families, facts)
    else:
        facts.solved(root, TASK, task)
        asked = choose(root, flows, families, facts)
    if asked.flow:
        return asked
    if stated:
        _refuse_for_others(root, stated, asked, flows, facts)
        return asked
    allowed = _by_heads(root, _suited(root, flows, families), families, facts, doubts.notes)
    if task is None:
        return allowed
    is_served = task.value in _tasks(flows)
    if (
        allowed.flow is None
    ):  # what the config says may fit with an answer: the heads of others say nothing more
        return asked if is_served and _is_near(root, asked, facts) else allowed
    if is_served and not families.are_vouched_for and _has_head(allowed.flow, facts):
        return _of_other_task(root, task, asked, allowed.flow, facts)
    if is_served and _is_bare(root, allowed.flow, facts):
        doubts.notes.append(
            f"config {task.source} is {shorten(task.value)}, but the file holds the base model alone"
        )
    else:
        lacking = _lacking(root, [one for one in asked.considered if _serves(one, task)], facts)
        doubts.findings.append(_other_heads(task, allowed.flow) + (f": {lacking}" if lacking else ""))
    return allowed


def _of_library(root: Scope, flows: FlowTable, families: Families, facts: Facts) -> Choice:
    """The flow for the task that a library is for whose names these are, where they fit it: its config names no class."""
    known = facts.get(root, TASK) if families.are_known_by_names else None
    if known is None or known.problem:
        return Choice()
    return choose(root, _suited(root, flows, families), families, facts)


def _is_near(root: Scope, asked: Choice, facts: Facts) -> bool:
    """Whether an answer is all that keeps some flow from fitting."""
    return any(one.asks or one.asks_of_defaults for one in nears(root, asked.considered, facts))


def _has_head(flow: FlowRule, facts: Facts) -> bool:
    return facts.config.vocabulary.headless not in flow.when.get(TASK, (facts.config.vocabulary.headless,))


def _of_other_task(root: Scope, task: Known, asked: Choice, flow: FlowRule, facts: Facts) -> Choice:
    """What is asked of a type that nobody lists, whose config says one task and whose heads are those of another."""
    facts.solved(root, TASK, task)
    near = nears(root, asked.considered, facts)
    if decisive(near, asked) or against_defaults(near):
        return asked  # with an answer they are those of its own
    tasks = [str(word) for word in flow.when[TASK]]
    return Choice(asks={TASK: tasks}, reasons=[_other_heads(task, flow)])


def _other_heads(task: Known, flow: FlowRule) -> str:
    """What the config says a model is for, and what the heads in the file are for."""
    words = " or ".join(shorten(str(word)) for word in flow.when.get(TASK, ())) or flow.name
    return f"config {task.source} is for the task {shorten(task.value)}, but the heads in the file are for {words}"


def _of_any_task(root: Scope, flows: FlowTable, facts: Facts) -> list[FlowRule]:
    """The flows that would fit if another task were told: none where what stands below is not read."""
    roots = [rule for rule in flows.values() if rule.topic == ROOT and rule.when.get(TASK)]
    fitting = [rule for rule in roots if not any(misfits(root, rule, facts, (TASK,)))]
    return fitting + [one.flow for one in _made(_composed(root, flows, facts)).values() if one.flow]


def _refuse_for_others(root: Scope, stated: Known, asked: Choice, flows: FlowTable, facts: Facts) -> None:
    """HintError for a task that the heads are not for, with those that they are for, unless an answer may make it fit."""
    fitting = [] if _is_near(root, asked, facts) else _of_any_task(root, flows, facts)
    tasks = dict.fromkeys(str(task) for rule in fitting for task in rule.when[TASK])
    if tasks:
        raise HintError(f"{stated.source} does not go with the heads; possible here: {', '.join(tasks)}")


def _suited(root: Scope, flows: FlowTable, families: Families) -> FlowTable:
    """The flows without the roots that are not for what the towers read, but for those that a family names."""
    named = families.flows(root)

    def barred(paths: Iterable[str]) -> bool:
        return any(has_role(root.block, path) for path in paths)

    pages = [page.where(lambda step: not barred(step.without)) for page in flows.pages(ROOT)]
    spines = [SpineEntry(page.facts(), partial(_same, page)) for page in pages]
    without = [name for name, entry in flows.entries.items() if name not in named and barred(entry.without)]
    return flows.but(without, {ROOT: spines})


def _same(page: Page) -> Page:
    return page


def _tasks_of_steps(flows: FlowTable) -> list[Any]:
    """The tasks that the steps of a root are for, in their order."""
    return list(dict.fromkeys(task for page in flows.pages(ROOT) for task in page.allowed(TASK)))


def _tasks(flows: FlowTable) -> set[Any]:
    """The tasks that some root is for."""
    written = (task for entry in flows.entries.values() for task in entry.when.get(TASK, ()))
    return {*_tasks_of_steps(flows), *written}


def _composed(root: Scope, flows: FlowTable, facts: Facts) -> list[Composed]:
    """What steps make of a root for each task."""
    pages = flows.pages(ROOT)
    return compose_each(root, pages, flows, facts, [{TASK: task} for task in _tasks_of_steps(flows)])


def _supposed(root: Scope, flows: FlowTable, facts: Facts) -> dict[str, Composed]:
    """The roots that steps make where each task is taken for known, and facts that follow from it with it."""
    found: dict[str, Composed] = {}
    for task in _tasks_of_steps(flows):
        with facts.supposing(root, {TASK: Known(task, "name", "supposed")}):
            found |= _made([compose(root, flows.pages(ROOT), flows, facts)])
    return found


def _made(found: Iterable[Composed]) -> dict[str, Composed]:
    """The roots that steps make, each for the first of its tasks."""
    return {one.flow.name: one for one in found if one.flow}


def _near(found: Iterable[Composed]) -> list[FlowRule]:
    """What comes near to a root, where there is none."""
    every = (rule for one in found for rule in one.near)
    return list({rule.name: rule for rule in every if all(rule.when.values())}.values())


def _serves(rule: FlowRule, task: Known) -> bool:
    """Whether a flow is for a task, as far as it says."""
    return task.value in rule.when.get(TASK, (task.value,))


def _lacking(root: Scope, rules: Sequence[FlowRule], facts: Facts) -> str:
    """What the flow for the task lacks that lacks least: `root/masked_lm needs 'head'`; "" where none is near."""
    short = [
        (rule, [fault.name for fault in misfits(root, rule, facts) if fault.kind == LACKS]) for rule in rules
    ]
    short = sorted((item for item in short if 0 < len(item[1]) <= _NEAR), key=lambda item: len(item[1]))
    return f"{short[0][0].name} needs {listed(short[0][1])}" if short else ""


def _is_bare(root: Scope, flow: FlowRule, facts: Facts) -> bool:
    """Whether a file holds a base model as it was saved by itself, whatever class its config is left with.

    Then it has no head, and its names lack the folder that holds the base model inside of one with a head.
    """
    towers = [scope for scope in root.children if is_tower(scope.block)]
    headless = facts.config.vocabulary.headless in flow.when.get(TASK, ())
    return headless and len(towers) == 1 and not towers[0].block.home


class _Fitting(NamedTuple):
    """The flows of a root that the roles allow, whatever they are for."""

    rules: list[FlowRule]
    made: Mapping[str, Composed]  # those that steps make, by their names
    tried: Callable[[], list[FlowRule]]
    is_named: bool  # by the family


def _by_heads(root: Scope, flows: FlowTable, families: Families, facts: Facts, notes: list[str]) -> Choice:
    """The flow for the one task that the heads allow, or that is said of those that they do."""
    found = _allowed(root, flows, families, facts)
    if not found.rules:
        considered = found.tried()
        none = [] if considered else ["there is no flow for a root"]
        return Choice(reasons=none, tried=lambda: considered)
    fitting, tied = _bare_first(found.rules, facts.config.vocabulary.headless)
    fitting = _by_signs(root, fitting)
    tasks = list(dict.fromkeys(_first_task(rule) for rule in fitting if TASK in rule.when))
    doubt = facts.doubt(root, TASK) if tasks else None
    tasks = list(dict.fromkeys([*tasks, *doubt.among])) if doubt and {*tasks} <= {*doubt.among} else tasks
    said = facts.get(root, TASK) if len(tasks) > 1 else None
    is_said = said is not None and not said.problem and said.value in tasks
    if said is not None and is_said:
        fitting = [rule for rule in fitting if rule.when.get(TASK, (None,))[0] == said.value]
        if not fitting:  # one that is in doubt, and for which there is no flow here
            return Choice(reasons=[f"no flow here is for task = {shorten(str(said.value))}"])
    elif len(tasks) > 1:
        return Choice(asks={TASK: tasks}, reasons=[f"task is unknown: the heads allow {', '.join(tasks)}"])
    if tied and task_of_config(facts.config) is None:
        notes.append(
            f"no head is stored, and one that is tied to the token embeddings is no tensor: --set task={'|'.join(tied)}"
        )
    rule = max(fitting, key=specificity)
    if TASK in rule.when and not is_said:
        heads = [role for role in root.block.roles if role in rule.roles]
        facts.solved(root, TASK, Known(rule.when[TASK][0], "name", f"roles {', '.join(heads)}"))
    slots = found.made[rule.name].slots if rule.name in found.made else ()
    return Choice(rule, named=found.is_named, slots=slots)


def _allowed(root: Scope, flows: FlowTable, families: Families, facts: Facts) -> _Fitting:
    """What is written out comes before what steps make of the same tasks."""
    named = named_flows(root, flows, families)
    rules = flows.named(rule.name for rule in named) if named else flows.of_topic(ROOT)
    fitting = fitting_flows(root, rules, facts, (TASK,))
    found = [] if named else _composed(root, flows, facts)
    made = _made(found)
    served = {task for rule in fitting for task in rule.when.get(TASK, ())}
    steps = [one.flow for one in made.values() if one.flow]
    fitting += [rule for rule in steps if not served.intersection(rule.when.get(TASK, ()))]
    if not fitting and not named and not families.are_vouched_for:
        made = _supposed(root, flows, facts)
        fitting = [one.flow for one in made.values() if one.flow]
    return _Fitting(fitting, made, lambda: [*rules, *_near(found)], bool(named))


def _bare_first(fitting: list[FlowRule], headless: str | None) -> tuple[list[FlowRule], list[str]]:
    """Those without a head where there are any, and the tasks of the others with a tied one, which is no tensor."""
    bare = [rule for rule in fitting if headless in rule.when.get(TASK, ())]
    others = [_first_task(rule) for rule in fitting if bare and rule.ties and TASK in rule.when]
    return bare or fitting, list(dict.fromkeys(others))


def _by_signs(root: Scope, fitting: list[FlowRule]) -> list[FlowRule]:
    """Those for which most roles speak."""
    signs = {rule.name: sum(has_role(root.block, path) for path in rule.prefer_if) for rule in fitting}
    return [rule for rule in fitting if signs[rule.name] == max(signs.values())]


def _first_task(rule: FlowRule) -> str:
    """The task that a flow stands for where nobody says which."""
    return str(rule.when[TASK][0])
