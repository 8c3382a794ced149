"""What contradicts: config against shapes and names, blocks against each other, fields that no rule read."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mapper.architecture import Block, Leaf, Place, Question
from mapper.errors import ArchitectureError, HintError, listed, shorten
from mapper.flows import arithmetic
from mapper.inference.config import Config
from mapper.inference.evidence import Known
from mapper.inference.facts import Facts
from mapper.inference.families import Families
from mapper.inference.fields import IDLE, Found, idle_of
from mapper.inference.hints import DEFAULT
from mapper.inference.roots import task_of_config
from mapper.inference.scopes import TOWER_LISTS, Scope
from mapper.inference.unheeded import of_what_lacks, told_by_names
from mapper.naming.members import misfit
from mapper.rulebook.facts import FactRule
from mapper.rulebook.ignored import Ignored
from mapper.rulebook.values import in_words, shown

if TYPE_CHECKING:
    from mapper.rulebook.flows import FlowRule

_BOUNDS = ("most", "divides", "length", "total")  # fields of a fact that say what it may be beside others
_CHANNELS = ("layer.input_size", "hidden_size")  # of what a layer reads, and of what it gives
_READ = "input_size"  # of what stands between towers
# Words of fields with how many states are read at once.
_JOINED = "stack_merge_group_downsample_reduction_factor"
_BACKBONE = "features"  # the task of a class whose outputs are maps of stages
# How many channels of a head rotary embeddings turn, and their share.
_TURNED = ("rotary.dim", "rotary.fraction")
# The queries show that the other factor of the rows, the head size, is as said.
_OF_KINDS = "attention.kv_heads"
_SHOWN = ("shape", "name")  # evidence that the checkpoint itself gives


def check_config(facts: Facts) -> list[str]:
    """Findings for the field of an unlisted type that means another size than the one that weights show.

    ArchitectureError where a field says something else than the checkpoint shows, or several fields of an unlisted
    type do: such a config is that of another checkpoint.
    """
    others: dict[str, ArchitectureError] = {}  # by the field that says it
    for scope, name, known in list(facts.used.values()):
        others |= _check(facts, scope, name, known)
        _check_entries(facts, scope, known)
    for scope in {id(scope): scope for scope, _, _ in facts.used.values()}.values():
        _check_lists(facts, scope)
    for scope in _towers(facts):
        for role in TOWER_LISTS:
            if counted := scope.solved.get(role):
                facts.use(scope, role, counted)
                others |= _check(facts, scope, role, counted)
    if len(others) > 1:
        raise next(iter(others.values()))
    return [f"{error}; what it shows is taken" for error in others.values()]


def against_graph(facts: Facts) -> list[str]:
    """What the operations of a graph show otherwise than what the model is read with. Activations have several names."""
    told = []
    for scope, name, known in facts.used.values():
        for seen in facts.from_graph(scope, name):
            if seen.value != known.value and facts.declared.types.get(name) != "activation":
                told.append(
                    f"{name} is {known.value} ({known.evidence}: {known.source}) at '{scope.block.home}', and the graph shows "
                    f"{seen.value} ({seen.source})"
                )
    return told


def _check_lists(facts: Facts, scope: Scope) -> None:
    """ArchitectureError where a list lacks elements that a shape or a field counts: rows of a router, say."""
    for role, value in scope.block.roles.items():
        elements = value if isinstance(value, list) else []
        counted = facts.get(scope, facts.full_name(scope, role)) if elements else None
        if counted is None or counted.evidence == "name" or not isinstance(counted.value, int):
            continue
        homes = [item.home if isinstance(item, Block) else item.place for item in elements]
        there = {index for home in homes if isinstance(home[-1], tuple) for index in home[-1]}
        if there and len(there) != counted.value:
            place = Place(homes[0][:-1])
            lacking = sorted(set(range(counted.value)) - there)
            lacks = f": {place} lacks {listed([str(index) for index in lacking])}" if lacking else ""
            raise ArchitectureError(
                f"{role} is {counted.value} ({counted.source}), but the names show {len(there)}{lacks}",
                fact=facts.full_name(scope, role),
                at=str(scope.block.home),
            )


def _check_entries(facts: Facts, scope: Scope, known: Known) -> None:
    """ArchitectureError where a list of a fact has an entry for each element of another, and not as many of them are there."""
    rule = known.by
    if rule is None or not rule.entry or not rule.over or rule.over in TOWER_LISTS:
        return
    if not facts.families.speak_for(scope):  # what nobody vouches for may list more than these elements
        return
    entries, count = facts.get(scope, facts.full_name(scope, rule.entry)), scope.count_of(rule.over)
    if entries is None or not isinstance(entries.value, list) or count in (None, len(entries.value)):
        return
    if all(entry == entries.value[0] for entry in entries.value):
        return  # one value says it of any number
    raise ArchitectureError(
        f"{rule.entry} has {len(entries.value)} entries ({entries.source}), but the names show {count} {rule.over}",
        fact=facts.full_name(scope, rule.entry),
        at=str(scope.block.home),
    )


def _towers(facts: Facts) -> list[Scope]:
    found = {id(scope.tower): scope.tower for scope, _, _ in facts.used.values() if scope.tower}
    return list(found.values())


def _check(facts: Facts, scope: Scope, name: str, known: Known) -> dict[str, ArchitectureError]:
    """By its field, what the config of a type that nobody lists says otherwise of a size that one weight shows.

    Where another field says what the weight shows, the one that says otherwise means another size.
    """
    others: dict[str, ArchitectureError] = {}
    told = facts.hints.stated(scope, name)
    if told is not None and told.value == known.value:
        facts.hints.heard.add(told.source)
        return others  # the user says that the config is wrong
    one_stage = scope.index_of("stages") is not None  # a field with one value is about all of them together
    found = list(facts.from_config(scope, name, listed_only=one_stage))
    is_said = any(said.evidence != "default" and said.value == known.value for said in found)
    for said in found:
        if said.evidence == "default":
            continue  # not said here; what stands in its place is checked by `left_out`
        if said.problem:
            raise ArchitectureError(said.problem, fact=name, at=str(scope.block.home))
        if (known.evidence in _SHOWN or known.shown) and said.value != known.value:
            error = ArchitectureError(
                f"config {said.source} says {name} is {said.value!r}, but {_otherwise(scope, name, known, said)}",
                fact=facts.full_name(scope, name),
                at=str(scope.block.home),
                candidates=[known.value] if known.evidence != DEFAULT else [],
            )
            is_listed = facts.families.speak_for(scope) and not facts.families.goes_by_names(scope)
            if is_listed or (known.evidence != "shape" and not _fits_elsewhere(facts, scope, name, said)):
                raise error
            if not is_said:
                others[said.source] = error
    return others


def _otherwise(scope: Scope, name: str, known: Known, said: Known) -> str:
    """What else than the config says is so, how that is known, and what to do; of a tower among others no name reaches it alone."""
    value, source = known.value, known.source
    if known.evidence == DEFAULT:
        return f"with the defaults of what the config leaves out it is {value} ({source}); say in the config what is left out"
    is_only = scope.tower is None or scope.tower_name == "tower"
    remedy = f"correct the config, or --set {name}={json.dumps(value)}" if is_only else "correct the config"
    if known.evidence != "name":
        return f"the checkpoint shows {value} ({source}); {remedy}"
    is_short = name in TOWER_LISTS and isinstance(said.value, int) and value < said.value
    lost = "the file may have lost the rest: get it whole; if it never had more, " if is_short else ""
    return f"the names show {value} ({source}); {lost}{remedy}"


def _fits_elsewhere(facts: Facts, scope: Scope, name: str, said: Known) -> bool:
    """Whether other layers of the tower show what a field says: it is then that of one kind of layers."""
    return name == _OF_KINDS and any(
        other is not scope and other.tower is scope.tower and known.shown and known.value == said.value
        for other, used, known in facts.used.values()
        if used == name
    )


def check_agreement(facts: Facts, flows: Iterable[tuple[Scope, FlowRule]]) -> None:
    """ArchitectureError where a block has another size than a step of it goes with: whole heads are turned by angles of their size.

    Of a listed type its family says it; in others one kind of layers may have a size of its own.
    """
    for scope, rule in flows:
        if scope.tower is None or (
            facts.families.speak_for(scope) and not facts.families.goes_by_names(scope)
        ):
            continue
        for name, others in rule.agrees_with.items():
            own = facts.get(scope, name)
            found = {other: known.value for other in others if (known := facts.get(scope.tower, other))}
            if own and found and own.value not in found.values():
                told = " and ".join(f"{other} of the tower is {value}" for other, value in found.items())
                raise ArchitectureError(
                    f"{name} is {own.value} ({own.source}), but {told}",
                    fact=others[0],
                    at=str(scope.block.home),
                )


def left_out(facts: Facts) -> list[str]:
    """Findings for counts that the config leaves out, where its type's default asks for more layers or fewer."""
    found: dict[str, None] = {}
    for scope in _towers(facts):
        for role in TOWER_LISTS:
            counted = scope.solved.get(role)
            said = next(facts.from_config(scope, role), None) if counted else None
            if counted and said and said.evidence == "default" and said.value != counted.value:
                found[f"config {said.source}, {said.value}; the names show {counted.value} {role}"] = None
    return list(found)


def untaken_stages(facts: Facts) -> list[str]:
    """Lines for a backbone of which the config takes other stages than its last, where no rule reads which."""
    return [
        f"config {name} is {shorten(str(taken))}, but what is read is the last of {count} stages"
        for scope in _towers(facts)
        if (counted := scope.solved.get("stages"))
        for count in [counted.value]
        for part in facts.config.parts(scope.tower_name)
        for field, last in (("out_indices", count), ("out_features", f"stage{count}"))
        for name, taken in [(f"{part}.{field}", facts.config.part(part).get(field))]
        if name not in facts.config.read and isinstance(taken, list) and taken[-1:] not in ([], [last], [-1])
    ]


def given_stages(facts: Facts) -> list[str]:
    """Findings for a backbone that stands alone: its class gives the maps of some stages, which no flow here does."""
    task = task_of_config(facts.config)
    if task is None or task.value != _BACKBONE:
        return []
    said = {field: facts.config.part("").get(field) for field in ("out_features", "out_indices")}
    return [
        f"config {field} is {shorten(str(taken))}: its class gives the maps of these stages, what is read the last state"
        for field, taken in said.items()
        if isinstance(taken, list) and taken
    ]


def check_bounds(facts: Facts) -> None:
    """ArchitectureError where a fact lies beyond what another one allows: more chosen experts than there are."""
    for scope, name, known in list(facts.used.values()):
        for rule in facts.speaking.every(scope, name):
            if rule.when and not facts.speaking.holds(rule, scope):
                continue
            for bound in _BOUNDS:
                text = getattr(rule, bound)
                limit = _limit(facts, scope, rule, text) if text and known.value is not None else None
                told = _beyond(bound, known.value, limit) if limit is not None else ""
                if told:
                    raise ArchitectureError(
                        f"{name} is {shorten(str(known.value))} ({known.source}), {told} {text} = {limit}",
                        fact=name,
                        at=str(scope.block.home),
                    )


def _limit(facts: Facts, scope: Scope, rule: FactRule, text: str) -> Any:
    """What the bound is here; None where a fact in it is unknown."""
    node = arithmetic.parse_rule(text, rule.file, rule.line)
    values = {}
    for name in arithmetic.names(node):
        known = facts.get(scope, facts.full_name(scope, name))
        if known is None or known.value is None:
            return None
        values[name] = known.value
    return arithmetic.evaluate(node, values)


def _beyond(bound: str, value: Any, limit: Any) -> str:
    """How a value passes a bound; "" if it does not."""
    if isinstance(value, list):
        return _list_beyond(bound, value, limit)
    if bound == "divides":
        return "which does not divide" if limit % value else ""
    return "more than" if value > limit else ""


def _list_beyond(bound: str, value: list[Any], limit: Any) -> str:
    """The same for a list, whose bound is on its length, its total or each of its entries."""
    if bound == "length":
        return f"{len(value)} entries where there must be" if len(value) != limit else ""
    if not all(isinstance(item, (int, float)) for item in value):
        return "not numbers up to"
    if bound == "total":
        return f"{sum(value)} in all where there must be" if sum(value) != limit else ""
    return "with an entry beyond" if value and max(value) > limit else ""


def check_frequencies(leaves: Iterable[Leaf], facts: Facts) -> None:
    """HintError where an answer makes rotary embeddings of other channels than the stored frequencies are for."""
    given = [item for item in facts.hints.given if item.name in _TURNED]
    tables = [leaf for leaf in leaves if leaf.role == "rotary" and leaf.kind == "Buffer"]
    shapes = [info.shape for leaf in tables for info in leaf.tensors.values()]
    stored = {2 * shape[0] for shape in shapes if len(shape) == 1}
    used = {known.value for _, name, known in facts.used.values() if name == _TURNED[0]}
    if given and stored and used - stored:
        raise HintError(
            f"{given[0].source} makes rotary embeddings of {listed([str(value) for value in sorted(used - stored)])} channels, and "
            f"the frequencies of '{tables[0].place}' are for {listed([str(value) for value in sorted(stored)])}",
            fact=given[0].name,
        )


def _stack(scope: Scope) -> Scope | None:
    """The tower or stage around a block."""
    return next(
        (outer for outer in scope.up() if outer is outer.tower or outer.block.role.startswith("stages")), None
    )


def _gives_other_channels(scope: Scope) -> bool:
    """Whether shapes show a layer that reads another width than it gives."""
    read, given = (scope.solved.get(name) for name in _CHANNELS)
    return read is not None and given is not None and read.value != given.value


def check_widths(root: Scope) -> None:
    """ArchitectureError where the blocks of one stack have different sizes for what they pass on.

    Where a layer gives other channels than it reads, as its shapes say, those of a stack differ.
    """
    seen: dict[tuple[int, str], Known] = {}
    scopes = (root, *root.below())
    widening = {id(_stack(scope)) for scope in scopes if _gives_other_channels(scope)}
    for scope in scopes:
        stack = _stack(scope)
        for name, known in scope.solved.items():
            if "." in name or known.evidence != "shape" or stack is None:
                continue
            if name in _CHANNELS and id(stack) in widening:
                continue
            first = seen.setdefault((id(stack), name), known)
            if first.value != known.value:
                raise ArchitectureError(
                    f"{name} is {first.value} in {first.source}, but {known.value} in {known.source}",
                    fact=name,
                    at=str(scope.block.home),
                )


def check_modules(leaves: Iterable[Leaf]) -> None:
    """ArchitectureError where the tensors of one module contradict each other: a bias of another length."""
    for leaf in leaves:
        told = misfit(leaf.kind, leaf.tensors) if leaf.role is not None else ""
        if told:
            raise ArchitectureError(f"{leaf.place}.{told}", tensors=leaf.keys())


def harmful_fields(facts: Facts, root: Scope) -> tuple[list[str], list[Question]]:
    """What no flow does though the config asks for it: fields that change nothing with other values than theirs.

    Of a type that no family lists, also fields that nobody read and that some computation must need, and the question
    whether they change nothing.
    """
    config, families = facts.config, facts.families
    ignored = families.ignored()
    fields = config.harmful(ignored, of_what_lacks(config.vocabulary, root))
    is_open = config.changes_its_network or not families.are_vouched_for
    unread = _needed(facts, root, ignored) if is_open else []
    if is_open:
        given = {item.name: item.value for item in facts.hints.given}
        fields += config.disputed(given)
    told = [*fields, *(f"{found.name} = {shown(found.value)}" for found in unread)]
    lines = [f"config {shorten(field)} asks for what no flow here does" for field in told]
    return lines, [_whether_idle(facts, unread)] if unread else []


def _needed(facts: Facts, root: Scope, ignored: Mapping[str, Ignored]) -> list[Found]:
    """The fields that nobody read and that some computation must need."""
    towers = _towers(facts)
    layers = {known.value for scope in towers if (known := scope.solved.get("layers"))}
    given = {item.name: item.value for item in facts.hints.given}
    said = given | _shown_ratios(towers) | _shown_groups(root, towers)
    _check_idle(facts)
    told = told_by_names(facts.config.vocabulary, root)
    return facts.config.telling(ignored, layers - {1}, towers, said, told)


def _check_idle(facts: Facts) -> None:
    """HintError where a user says of no field of the config that it changes nothing."""
    for item in (item for item in facts.hints.given if item.name == IDLE):
        facts.hints.heard.add(item.source)
        for name in sorted(idle_of({IDLE: item.value})):
            if not facts.config.mentions(name):
                raise HintError(f"{item.source} says {shorten(name)}, which the config has not", fact=IDLE)


def _whether_idle(facts: Facts, unread: Iterable[Found]) -> Question:
    """Whether fields change nothing, beside those of which a user said so."""
    said = [item.value for item in facts.hints.given if item.name == IDLE]
    names = ",".join([*said, *(found.name for found in unread)])
    why = "a model may need what no rule reads; where one does, this is another network"
    doc = next((rule.doc for rule in facts.declared.common.get(IDLE, ()) if rule.doc), "")
    return Question(IDLE, "*", (names,), why=why, doc=doc, kind=in_words("text"))


def _shown_ratios(towers: Sequence[Scope]) -> dict[str, Any]:
    """How much wider the feed-forward networks of each tower are than its hidden states, as shapes show it."""
    found: dict[str, Any] = {}
    for at, tower in enumerate(towers):
        widths = {
            known.value
            for scope in tower.below()
            if (known := scope.solved.get("feed_forward.intermediate_size"))
        }
        width = tower.solved.get("hidden_size")
        if width and len(widths) == 1:
            found[f"feed_forward.ratio.{at}"] = widths.pop() / width.value
    return found


def _shown_groups(root: Scope, towers: Sequence[Scope]) -> dict[str, Any]:
    """How many states of a tower a block outside of the towers reads at once, as shapes show it."""
    widths = {known.value for tower in towers if (known := tower.solved.get("hidden_size"))}
    between = [scope.solved.items() for scope in root.below() if scope.tower is None]
    sizes = {known.value for solved in between for name, known in solved if name.endswith(_READ)}
    found = {size // width for size in sizes for width in widths if size > width and size % width == 0}
    return {f"{_JOINED}.{count}": count for count in found}


def unread_fields(config: Config, families: Families) -> list[str]:
    """A finding for the fields that no rule read and none ignores."""
    fields = config.unread(families.ignored())
    if not fields:
        return []
    what = "field is" if len(fields) == 1 else "fields are"
    return [f"config {what} read by no rule: {listed(fields)}"]
