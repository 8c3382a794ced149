"""What the model is for: from the class that the config names, or from the heads in the checkpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mapper.errors import HintError, listed, shorten
from mapper.flows.references import has_role
from mapper.inference.choice import LACKS, Choice, choose, misfits, named_flows, specificity
from mapper.inference.config import Config
from mapper.inference.facts import Facts
from mapper.inference.families import Families
from mapper.inference.known import Known
from mapper.inference.nearest import why_none
from mapper.inference.scopes import Scope, is_tower
from mapper.rulebook.flows import FlowRule

TASK = "task"


def task_of_config(config: Config) -> Known | None:
    """The task that the saved class's name ends in."""
    tasks = config.vocabulary.tasks
    for name in config.class_names:
        endings = [ending for ending in tasks if name.endswith(ending)]
        if endings:
            return Known(tasks[max(endings, key=len)], "config", f"architectures: {name}")
    return None


def choose_root(
    root: Scope,
    flows: Mapping[str, FlowRule],
    families: Families,
    facts: Facts,
    findings: list[str],
    notes: list[str],
) -> Choice:
    """The root's flow: the one for the task that is stated or configured, else the one that the heads allow.

    A flow for several tasks stands for its first where nobody says which.
    """
    stated, configured = facts.stated(root, TASK), task_of_config(facts.config)
    task = stated or configured
    if stated and not (configured and configured.value == stated.value):
        flows = _suited(root, flows, families)
    if task:
        facts.solved(root, TASK, task)
        choice = choose(root, flows, families, facts)
        if choice.flow:
            return choice
        if stated:
            raise _refused(stated, choice, root, flows, facts)
    lacking = _lacking(root, choice.considered, facts) if task else ""
    choice = _by_heads(root, _suited(root, flows, families), families, facts)
    served = task and any(task.value in rule.when.get(TASK, ()) for rule in flows.values())
    if task and choice.flow and served and _is_bare(root, choice.flow, facts):
        notes.append(
            f"config {task.source} is {shorten(task.value)}, but the file holds the base model alone"
        )
    elif task and choice.flow:
        findings.append(
            f"config {task.source} is {shorten(task.value)}, but the heads are those of {choice.flow.name}"
            + (f": {lacking}" if lacking else "")
        )
    return choice


def _refused(
    stated: Known, choice: Choice, root: Scope, flows: Mapping[str, FlowRule], facts: Facts
) -> HintError:
    """The error for a task that the heads are not for, with those that they are for."""
    roots = [rule for rule in flows.values() if rule.topic == "root" and rule.when.get(TASK)]
    fitting = [rule for rule in roots if not any(misfits(root, rule, facts, (TASK,)))]
    tasks = dict.fromkeys(str(task) for rule in fitting for task in rule.when[TASK])
    why = f"possible here: {', '.join(tasks)}" if tasks else why_none(root, choice, facts)
    return HintError(f"{stated.source} does not go with the heads; {why}")


def _suited(root: Scope, flows: Mapping[str, FlowRule], families: Families) -> dict[str, FlowRule]:
    """The flows without the roots that are not for what the towers read, but for those that a family names."""
    named = families.flows(root)
    return {
        name: rule
        for name, rule in flows.items()
        if name in named or not any(has_role(root.block, path) for path in rule.without)
    }


def _lacking(root: Scope, rules: Sequence[FlowRule], facts: Facts) -> str:
    """What the flow for the task lacks that lacks least: `root/masked_lm needs 'head'`; "" where none lacks a role."""
    short = [
        (rule, [fault.name for fault in misfits(root, rule, facts) if fault.kind == LACKS]) for rule in rules
    ]
    short = sorted((item for item in short if item[1]), key=lambda item: len(item[1]))
    return f"{short[0][0].name} needs {listed(short[0][1])}" if short else ""


def _is_bare(root: Scope, flow: FlowRule, facts: Facts) -> bool:
    """Whether a file holds a base model as it was saved by itself, whatever class its config is left with.

    Then it has no head, and its names lack the folder that holds the base model inside of one with a head.
    """
    towers = [scope for scope in root.children if is_tower(scope.block)]
    headless = facts.config.vocabulary.headless in flow.when.get(TASK, ())
    return headless and len(towers) == 1 and not towers[0].block.home


def _by_heads(root: Scope, flows: Mapping[str, FlowRule], families: Families, facts: Facts) -> Choice:
    named = named_flows(root, flows, families)
    rules = named or [rule for rule in flows.values() if rule.topic == "root" and not rule.by_name_only]
    fitting = [rule for rule in rules if not any(misfits(root, rule, facts, (TASK,)))]
    if not fitting:
        return Choice(considered=rules, reasons=[] if rules else ["there is no flow for a root"])
    headless = facts.config.vocabulary.headless  # a tied head is no tensor: without any, there is none
    fitting = [rule for rule in fitting if headless in rule.when.get(TASK, ())] or fitting
    signs = {rule.name: sum(has_role(root.block, path) for path in rule.signs) for rule in fitting}
    fitting = [rule for rule in fitting if signs[rule.name] == max(signs.values())]
    tasks = list(dict.fromkeys(str(rule.when[TASK][0]) for rule in fitting if TASK in rule.when))
    if len(tasks) > 1:
        return Choice(asks={TASK: tasks}, reasons=[f"task is unknown: the heads allow {', '.join(tasks)}"])
    rule = max(fitting, key=specificity)
    if TASK in rule.when:
        heads = [role for role in root.block.roles if role in rule.roles]
        facts.solved(root, TASK, Known(rule.when[TASK][0], "name", f"roles {', '.join(heads)}"))
    return Choice(rule, named=bool(named))
