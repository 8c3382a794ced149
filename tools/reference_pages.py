"""Reference pages made from the code and the rules: facts, roles, operations, rule keys, options, each with where it is used.

    python tools/reference_pages.py FOLDER      # writes them there; the documentation's build asks for their text

What is used is read off the rules themselves: a flow uses a fact that its body, its shapes or its conditions name, a role that it needs or may have, an
operation that its body calls. The same rules give the same text.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import click

from mapper.cli.app import app
from mapper.operations.registry import operation_calls, operation_names, operation_signature, operation_source
from mapper.rulebook.flows import FlowRule
from mapper.rulebook.rulebook import Rulebook, shipped_folder

Uses = dict[str, Counter[str]]  # what is used -> file -> how many times
Taken = tuple[tuple[str, ...], FlowRule]  # the roles whose blocks may take a flow, and the flow

_FACT = re.compile(r"\bfact\.([a-z_][a-z0-9_.]*)")
_WORD = re.compile(r"[a-z_][a-z0-9_.]*")
_CALL = re.compile(r"\b([a-z_][a-z0-9_]*)\(", re.IGNORECASE)
_ARITHMETIC = (
    "expr",
    "each",
    "marks",
    "runs",
    "firsts",
    "factor",
    "entry",
    "shared",
    "most",
    "divides",
    "length",
    "total",
)
_FAMILIES = 6  # named of those that say something of a fact, before it says how many more there are


def reference_pages() -> dict[str, str]:
    """Name of each page -> its text."""
    rulebook = Rulebook()
    rules = list(flow_rules(rulebook))
    return {
        "facts": facts_page(rulebook, rules),
        "roles": roles_page(rulebook, rules),
        "operations": operations_page(rules),
        "rule_keys": rule_keys_page(rulebook),
        "cli": options_page(),
    }


def flow_rules(rulebook: Rulebook) -> Iterator[tuple[tuple[str, ...], FlowRule]]:
    """Each flow that is written out and each step of a slot, once, with the roles whose blocks may take it."""
    whole = list(rulebook.flows.values())
    taken = [((rule.topic, *rule.also_for), rule) for rule in whole]
    for topic in sorted({rule.topic for rule in whole} | set(rulebook.flows.spines)):
        for page in rulebook.flows.pages(topic):
            base = (page.base,) if page.base else ()
            taken += [((page.topic, *page.also_for), rule) for rule in (*page.flows, *base, *page.steps)]
    return iter({(rule.file, rule.name, rule.line): (topics, rule) for topics, rule in taken}.values())


# ---------------------------------------------------------------------------------------------------------------- facts
def facts_page(rulebook: Rulebook, rules: Iterable[Taken]) -> str:
    """Every fact: what it is, its type, the fields of configs that say it, the flows that read it, the families that say something of it."""
    vocabulary = rulebook.config_vocabulary
    families: dict[str, list[str]] = defaultdict(list)
    own: dict[str, list[Any]] = defaultdict(list)  # what families say of facts that are theirs alone
    for family in rulebook.families:
        for name in family.facts:
            families[name].append(family.name)
        for name, rules_of in family.own_facts.items():
            own[name] += rules_of
    names = sorted({*vocabulary.facts, *vocabulary.unlisted, *families})
    used, kinds = fact_uses(rules, names), block_kinds(rulebook)
    computing = fact_computing(rulebook, names)
    rows = []
    for name in names:
        said = [*vocabulary.facts.get(name, ()), *vocabulary.unlisted.get(name, ()), *own.get(name, ())]
        doc = next((rule.doc for rule in said if rule.doc), "")
        kind = next((rule.type for rule in said if rule.type), "") or ""
        fields = dict.fromkeys(field for rule in said for field in rule.config)
        told = {
            "fields of configs": ", ".join(map(code, fields)),
            "read by flows of": places(used_by_kind(used, name, kinds)),
            "facts that hang on it": some(computing[name]),
            "families that say more": some(families[name]),
        }
        rows.append((f"{code(name)}{f', {kind}' if kind else ''}", lines(doc, told)))
    head = ("fact, and its type", "what it is, and where it is used")
    return page(
        "Facts",
        "What is found out about a model. `mapper inspect SRC --why FACT` says how one is known there, `--set FACT=VALUE` gives one. Fields are those of "
        "`rules/vocabulary/config*.yaml`; a family may read others. What no flow reads goes into the constructor of a leaf (`norm.eps`), or other facts hang on it.",
        table(head, rows),
    )


def fact_uses(rules: Iterable[Taken], names: Iterable[str]) -> Uses:
    """Which files of flows read each fact, by its whole name, or as `heads` in a flow of attention: then under `attention.heads`."""
    known, used = set(names), defaultdict(Counter)
    for topics, rule in rules:
        shapes = " ".join(extent for extents in rule.shapes.values() for extent in extents)
        words = {
            *rule.when,
            *rule.values,
            *_FACT.findall(f"{rule.body} {rule.leaves} {shapes}"),
            *_WORD.findall(shapes),
        }
        words |= {"activation"} & set(_CALL.findall(rule.body))
        own = {f"{topic}.{word}" for topic in topics for word in words if "." not in word.rstrip(".")}
        for name in own | {whole for word in words if (whole := whole_name(word, rule.topic, known))}:
            used[name][rule.file] += 1
    return used


def fact_computing(rulebook: Rulebook, names: Iterable[str]) -> dict[str, list[str]]:
    """Which facts hang on each fact: by arithmetic, a list that they look into, or a condition."""
    known, found = set(names), defaultdict(dict)
    vocabulary = rulebook.config_vocabulary
    tables = (vocabulary.facts, vocabulary.unlisted, *(family.facts for family in rulebook.families))
    for name, rules in ((name, rules) for table in tables for name, rules in table.items()):
        for rule in rules:
            said = (getattr(rule, field) for field in _ARITHMETIC)
            words = {*rule.when, *_WORD.findall(" ".join(text for text in said if text))}
            for other in {whole for word in words if (whole := whole_name(word, "", known))} - {name}:
                found[other][name] = None
    return defaultdict(list, {name: list(others) for name, others in found.items()})


def whole_name(word: str, topic: str, known: set[str]) -> str:
    """The fact that a word of a flow means: `heads` of an attention is `attention.heads`; "" for none."""
    word = word.rstrip(".")
    while word:
        for name in (word, f"{topic}.{word}", f"attention.{word}" if "attention" in topic else ""):
            if name in known:
                return name
        word = word.rpartition(".")[0]
    return ""


# ---------------------------------------------------------------------------------------------------------------- roles
def roles_page(rulebook: Rulebook, rules: Iterable[Taken]) -> str:
    """Every role: names that mean it, and the flows that read it."""
    words: dict[str, dict[str, None]] = defaultdict(dict)
    files: dict[str, dict[str, None]] = defaultdict(dict)
    for file in rulebook.vocabulary:
        for entry in file.entries:
            if entry.section in ("roles", "blocks", "lists"):
                words[entry.target].update(
                    dict.fromkeys((*entry.names, *(f"…{part}…" for part in entry.parts)))
                )
                files[entry.target][file.name] = None
    used = role_uses(rules)
    kinds = block_kinds(rulebook)
    rows = []
    for role in sorted(words):
        told = {
            "vocabulary": ", ".join(files[role]),
            "read by flows of": read_by(used, role, kinds),
        }
        rows.append((code(role), lines(", ".join(map(code, words[role])), told)))
    return page(
        "Roles",
        "What a module, a tensor or a folder is to the block around it. A name means a role by what stands here, where its neighbours are as the file of "
        "the vocabulary says; `…part…` is a part of its last word. `mapper rules explain KEY` says which line decided.",
        table(("role", "names that mean it, and where it is used"), rows),
    )


def block_kinds(rulebook: Rulebook) -> dict[str, str]:
    """Whose roles the blocks of a role have: `text_pooler` those of a `pooler`."""
    kinds: dict[str, str] = {}
    for file in rulebook.vocabulary:
        kinds |= file.block_kinds
    for file in rulebook.vocabulary:
        kinds |= file.roles_of
    return kinds


def used_by_kind(uses: Uses, role: str, kinds: dict[str, str]) -> Counter[str]:
    """Where a role is read, by flows of its block or else of the kind of block that this is."""
    block, dot, last = role.rpartition(".")
    block = block.rpartition(".")[2]
    return uses[role] or (uses[f"{kinds.get(block, 'other')}.{last}"] if dot else uses[role])


def read_by(uses: Uses, role: str, kinds: dict[str, str]) -> str:
    """Where a role is read; of one that no flow names, where its block is, which then runs as it stands in a file."""
    if found := used_by_kind(uses, role, kinds):
        return places(found)
    parts = role.split(".")
    for end in range(len(parts) - 1, 0, -1):
        block = parts[end - 1]
        if whole := uses[".".join(parts[:end])] or uses[block] or uses[kinds.get(block, "")]:
            return f"as a part of {code(block)}: {places(whole)}"
    return "none: it is named, and no flow runs it"


def role_uses(rules: Iterable[Taken]) -> Uses:
    """Which files of flows read each role: `attention.query` by the topic of the flow, `tower.embeddings.token` by its last two words."""
    used: Uses = defaultdict(Counter)
    for topics, rule in rules:
        names = set()
        for role in (
            *rule.needs,
            *rule.options,
            *rule.reads_elsewhere,
            *(path for paths in rule.beside for path in paths.split(" | ")),
            *rule.ignored,
            *rule.calls,
        ):
            words = role.split(".")
            names |= {role, *words, ".".join(words[-2:]), *(f"{topic}.{words[0]}" for topic in topics)}
        for name in names:
            used[name][rule.file] += 1
    return used


# ----------------------------------------------------------------------------------------------------------- operations
def operations_page(rules: Iterable[Taken]) -> str:
    """Every operation: how it is called, what it computes, the flows that call it, the operations that do."""
    names = operation_names()
    used: Uses = defaultdict(Counter)
    for _, rule in rules:
        for name in set(_CALL.findall(rule.body)) & set(names):
            used[name][rule.file] += 1
    callers: dict[str, list[str]] = defaultdict(list)
    for name in names:
        for called in operation_calls(name):
            callers[called].append(name)
    parts = []
    for name in names:
        node = ast.parse(operation_source(name)).body[0]
        doc = ast.get_docstring(node) or ""  # type: ignore[arg-type]
        signature = operation_signature(name)
        shown = ", ".join(map(": ".join, zip(signature.parameters, signature.annotations, strict=True)))
        called = [f"called by flows of {places(used[name])}"] if used[name] else []
        called += [f"called by {', '.join(map(code, callers[name]))}"] if callers[name] else []
        where = f"`mapper/operations/{signature.topic}.py`; {'; '.join(called) or 'called where the compiler puts it'}"
        returns = f" -> {signature.returns}" if signature.returns else ""
        parts.append(f"## {name}\n\n```python\n{name}({shown}){returns}\n```\n\n{escaped(doc)}\n\n{where}")
    return page(
        "Operations",
        "Arithmetic that a flow calls by name because torch has no line for it. What a model calls is copied into its source.",
        *parts,
    )


# ------------------------------------------------------------------------------------------------------------ rule keys
def rule_keys_page(rulebook: Rulebook) -> str:
    """Every key of rule files with what it says and how often, and where, the shipped rules have it."""
    text = (shipped_folder() / "README.md").read_text(encoding="utf-8")
    counted = {name: key_uses(entries) for name, entries in KEYED.items()}
    parts = []
    for section, uses in counted.items():
        (body,) = re.findall(rf"^## {section}\n(.*?)(?=^## |\Z)", text, flags=re.DOTALL | re.MULTILINE)
        rows = re.findall(r"^\| `(\w+)` \| (.*) \|$", body, flags=re.MULTILINE)
        shown = [
            (
                code(key),
                says,
                str(uses[key].total()),
                some(sorted(uses[key], key=lambda f: (-uses[key][f], f))),
            )
            for key, says in rows
        ]
        parts.append(f"## {section}\n\n{table(('key', 'what it says', 'times', 'in'), shown)}")
    return page(
        "Rule keys",
        "How often the shipped rules have each key, and in which files most often. What stands around the tables, with namings, dropout and examples, is in "
        "[the page about rules](../../rules/README.md).",
        *parts,
    )


def key_uses(entries: Any) -> Uses:
    """How often each key stands in entries, by file."""
    used: Uses = defaultdict(Counter)
    for file, entry in entries():
        for key in entry:
            used[str(key)][file] += 1
    return used


def _documents(kind: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for document in Rulebook().documents(kind):
        yield document.label, document.data


def _family_entries() -> Iterator[tuple[str, dict[str, Any]]]:
    yield from _documents("families")


def _page_entries() -> Iterator[tuple[str, dict[str, Any]]]:
    yield from ((file, data) for file, data in _documents("flows") if "block" in data)


def _flow_entries() -> Iterator[tuple[str, dict[str, Any]]]:
    """Flows, written out in a file or on a page, and steps of slots."""
    for file, data in _documents("flows"):
        if "flow" in data:
            yield file, data
            continue
        rows = data.get("rows") or {}
        around = [
            slot for row in (rows if isinstance(rows, list) else [rows]) for slot in row.get("slots", ())
        ]
        slots = [*data.get("spine", ()), *data.get("fills", ()), *around, "flows"]
        for slot in dict.fromkeys(slots):
            steps = data.get(slot)
            yield from (
                (file, step)
                for step in (steps.values() if isinstance(steps, dict) else ())
                if isinstance(step, dict)
            )


def _vocabulary_entries() -> Iterator[tuple[str, dict[str, Any]]]:
    """Entries that are more than a pattern, in every section of words."""
    for file, data in _documents("vocabulary"):
        for section in (
            "roles",
            "blocks",
            "lists",
            "numbered",
            "numbered_blocks",
            "named_blocks",
            "towers",
            "kinds",
        ):
            table = data.get(section)
            for entries in table.values() if isinstance(table, dict) else ():
                yield from (
                    (file, entry)
                    for entry in (entries if isinstance(entries, list) else [entries])
                    if isinstance(entry, dict)
                )


def _fact_entries() -> Iterator[tuple[str, dict[str, Any]]]:
    """Definitions of facts: of the vocabulary, of families and of their types."""
    for kind in ("vocabulary", "families"):
        for file, data in _documents(kind):
            for table in (data.get("facts"), data.get("unlisted"), *(data.get("types") or {}).values()):
                for said in table.values() if isinstance(table, dict) else ():
                    yield from (
                        (file, one)
                        for one in (said if isinstance(said, list) else [said])
                        if isinstance(one, dict)
                    )


KEYED = {
    "Families": _family_entries,
    "Pages": _page_entries,
    "Flows": _flow_entries,
    "Vocabulary": _vocabulary_entries,
    "Facts": _fact_entries,
}


# -------------------------------------------------------------------------------------------------------------- options
def options_page() -> str:
    """Every command with its arguments and options; behind it which commands share an option."""
    parts, shared = [], defaultdict(list)
    for name, command in commands(app):
        rows = []
        for parameter in command.params:
            if isinstance(parameter, click.Option) and not parameter.hidden:
                spelled = ", ".join(parameter.opts)
                value = "" if parameter.is_flag else f" {parameter.metavar or parameter.name.upper()}"  # type: ignore[union-attr]
                rows.append((code(spelled + value), (parameter.help or "") + _default(parameter)))
                shared[max(parameter.opts, key=len)].append(name)
        arguments = " ".join(
            p.metavar or str(p.name).upper() for p in command.params if isinstance(p, click.Argument)
        )
        examples = "\n".join(getattr(command, "examples", ()))
        parts.append(
            f"## mapper {name}\n\n```\nmapper {name} [OPTIONS] {arguments}\n```\n\n{escaped(cleaned(command.help))}\n\n"
            + (table(("option", "what it does"), rows) + "\n\n" if rows else "")
            + (f"```\n{examples}\n```" if examples else "")
        )
    index = [
        (code(option), ", ".join(code(name) for name in names)) for option, names in sorted(shared.items())
    ]
    return page(
        "Command line",
        "What `--help` of each command says.",
        *parts,
        "## Options, and the commands that have them\n\n" + table(("option", "commands"), index),
    )


def _default(option: click.Option) -> str:
    """` (64 when left out)`, where `--help` says it too."""
    return f" ({option.default} when left out)" if option.show_default else ""


def commands(group: click.Group, above: str = "") -> Iterator[tuple[str, click.Command]]:
    """Every command by its words, in the order of `--help`."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from commands(command, f"{above}{name} ")
        elif command is not None:
            yield above + name, command


# ----------------------------------------------------------------------------------------------------------------- text
def page(title: str, introduction: str, *parts: str) -> str:
    return (
        "\n\n".join((f"# {title}", "Made from the code by `tools/reference_pages.py`.", introduction, *parts))
        + "\n"
    )


def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *(tuple(map(_cell, row)) for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def lines(first: str, told: dict[str, str]) -> str:
    """A cell of several lines: what it is about, then what is known under each word."""
    return "<br>".join(
        [*filter(None, [first]), *(f"*{word}:* {said}" for word, said in told.items() if said)]
    )


def places(files: Counter[str]) -> str:
    """`flows/attention.yaml` × 12, the file with most first."""
    return ", ".join(
        f"{code(file)} × {count}"
        for file, count in sorted(files.items(), key=lambda item: (-item[1], item[0]))
    )


def some(names: list[str]) -> str:
    more = f" and {len(names) - _FAMILIES} more" if len(names) > _FAMILIES else ""
    return ", ".join(map(code, names[:_FAMILIES])) + more


def code(text: str) -> str:
    return f"`{text}`"


def cleaned(text: str | None) -> str:
    """Paragraphs of a help text without the marks of click."""
    return inspect.cleandoc((text or "").replace("\b", ""))


def escaped(text: str) -> str:
    """Words of a docstring as markdown shows them: no brackets become links, no stars emphasis."""
    return re.sub(r"([*<\[\]_])", r"\\\1", text)


def _cell(text: str) -> str:
    return re.sub(r"(?<!\\)\|", r"\\|", text).replace("\n", " ")


def main(folder: str) -> None:
    for name, text in reference_pages().items():
        Path(folder).mkdir(parents=True, exist_ok=True)
        (Path(folder) / f"{name}.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
