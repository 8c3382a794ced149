"""`mapper rules check`: schema, flows under all their guards, examples, and which examples a rule would steal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from mapper.authoring.dropout import check_dropout
from mapper.authoring.expectations import read_example
from mapper.authoring.found import FileCheck
from mapper.authoring.pairs import pairs
from mapper.authoring.passed import Passed
from mapper.authoring.read_facts import unread_facts
from mapper.errors import MapperError, RuleError, shorten
from mapper.rulebook.dropout import KIND as DROPOUT
from mapper.rulebook.examples import (
    FAMILIES,
    FOLDER,
    OF,
    Example,
    header,
    is_near_miss,
    lone_files,
    path_beside,
)
from mapper.rulebook.families import Family
from mapper.rulebook.family_file import read_family
from mapper.rulebook.flows import continued
from mapper.rulebook.libraries import LIBRARY, library_documents, read_library
from mapper.rulebook.namings import KIND, NAMING, naming_documents, read_naming
from mapper.rulebook.pages import Page, page_of
from mapper.rulebook.settings import SETTINGS, read_settings, wrong_examples
from mapper.rulebook.strict import Document, load_yaml
from mapper.rulebook.trees import TREE, read_tree
from mapper.rulebook.vocabulary import read_vocabulary
from mapper.running.checking import check_running
from mapper.running.tables import KIND as RUNNING
from mapper.running.tables import documents as running_documents

if TYPE_CHECKING:
    from mapper.architecture import Architecture
    from mapper.checkpoint import Checkpoint
    from mapper.inference.names import Names
    from mapper.rulebook.rulebook import Rulebook

_KINDS = {
    "family": "families",
    "flow": "flows",
    "block": "flows",
    "vocabulary": "vocabulary",
    DROPOUT: DROPOUT,
    RUNNING: RUNNING,
    NAMING: KIND,
    TREE: KIND,
    SETTINGS: KIND,
    LIBRARY: KIND,
}


def check_rules(
    rulebook: Rulebook,
    files: Sequence[Path] = (),
    run: bool = False,
    folders: Iterable[str | Path] = (),
    examples: bool = True,
) -> list[FileCheck]:
    """Check these rule files, and those of these folders, beside the rest of the rule set; or every file of it.

    Of files that are named it is also said which examples of others they would take. `run` also builds the model of
    every example that has a flow, and runs it: that needs torch. Without `examples` none is read.
    """
    known = _by_path(rulebook) if files else {}
    chosen = [_document(Path(file), rulebook, known) for file in files]
    named = {document.path.resolve() for _, document in chosen}
    chosen += [
        (kind, document)
        for kind in rulebook.kinds
        for document in rulebook.documents(kind)
        if document.path.resolve() not in named and _is_in(document.path, folders)
    ]
    documents, lone = (chosen, []) if chosen else everything(rulebook)
    checker = Checker(rulebook, bool(chosen), run, examples)
    return [checker.file(kind, document) for kind, document in documents] + lone


def everything(rulebook: Rulebook) -> tuple[list[tuple[str, Document]], list[FileCheck]]:
    """Every file of a rule set with its kind; and what is wrong with files of examples that belong to none."""
    documents = [
        *((kind, document) for kind in rulebook.kinds for document in rulebook.documents(kind)),
        *((RUNNING, document) for document in running_documents(rulebook.folders)),
    ]
    lone = lone_files(rulebook.folders)
    return documents, [FileCheck(label, FOLDER, "", [f"{label}:1: no family beside it"]) for label in lone]


def _is_in(path: Path, folders: Iterable[str | Path]) -> bool:
    return any(path.resolve().is_relative_to(Path(folder).resolve()) for folder in folders)


def _by_path(rulebook: Rulebook) -> dict[Path, tuple[str, Document]]:
    """The documents of a rule set with their kinds, by where they really are, which takes long to ask the disk."""
    every = ((kind, document) for kind in rulebook.kinds for document in rulebook.documents(kind))
    known: dict[Path, tuple[str, Document]] = {}
    for kind, document in every:
        known.setdefault(document.path.resolve(), (kind, document))
    return known


def _document(
    path: Path, rulebook: Rulebook, known: dict[Path, tuple[str, Document]]
) -> tuple[str, Document]:
    """The file's document in the rule set; a file from elsewhere is added to it, and to what is known."""
    if path.resolve() in known:
        return known[path.resolve()]
    document = load_yaml(path)
    if isinstance(document.data, dict) and OF in document.data:
        return FAMILIES, _family_of(document, rulebook)
    kinds = [kind for key, kind in _KINDS.items() if isinstance(document.data, dict) and key in document.data]
    if not kinds:
        raise RuleError(f"{document.label}:1: no rule file: it starts with none of {', '.join(_KINDS)}")
    if kinds[0] in rulebook.kinds:
        rulebook.add(kinds[0], document)
        known[path.resolve()] = kinds[0], document
    return kinds[0], document


def _family_of(examples: Document, rulebook: Rulebook) -> Document:
    """The family's document beside which a file of examples stands."""
    for document in rulebook.documents(FAMILIES):
        other = path_beside(document.path)
        if other and other.resolve() == examples.path.resolve():
            return document
    raise RuleError(f"{examples.label}:1: no family beside it: the folder {FAMILIES!r} has no such file")


def check_library(document: Document, rulebook: Rulebook) -> tuple[int, list[str]]:
    """The number of examples of a library's naming, and what each has lost on its way there and back."""
    from mapper.weights.renaming.proof import wrong_round_trips

    naming = read_library(document, library_documents())
    none = [] if naming.examples else [f"{document.label}: no example"]
    return len(naming.examples), none + list(wrong_round_trips(naming, rulebook))


def check_naming(document: Document) -> tuple[int, list[str]]:
    """The number of examples of a naming file, and which of them are not as it says."""
    from mapper.sources.renaming import example_name
    from mapper.sources.trees import example_names

    if SETTINGS in document.data:
        settings = read_settings(document)
        none = [] if settings.examples else [f"{document.label}: no example"]
        return len(settings.examples), none + wrong_examples(settings)
    if TREE in document.data:
        tree = read_tree(document)
        examples = [
            (name, example_names(tree, example).get(name, name), wanted)
            for example in tree.examples
            for name, wanted in example.get("names", {}).items()
        ]
    else:
        naming = read_naming(document, naming_documents())
        examples = [
            (name, example_name(naming, name), wanted)
            for example in naming.examples
            for name, wanted in example.get("names", {}).items()
        ]
    problems = [
        f"{document.label}: {shorten(name)} becomes {shorten(found)}, and the example says {shorten(str(wanted))}"
        for name, found, wanted in examples
        if found != wanted
    ]
    if not examples and (
        TREE in document.data or naming.architectures
    ):  # what others extend has none of its own
        problems = [f"{document.label}: no example"]
    return len(examples), problems


class Checker:
    """Checks files of one rule set; what concerns all of them is found out once."""

    def __init__(
        self, rulebook: Rulebook, alone: bool, run: bool, examples: bool, passed: Passed | None = None
    ):
        self.rulebook, self.alone, self.run, self.examples = rulebook, alone, run, examples
        self.passed = passed
        self._spines: dict[tuple[str, str], int | MapperError] = {}

    def file(self, kind: str, document: Document) -> FileCheck:
        data = document.data if isinstance(document.data, dict) else {}
        key = next(key for key, its in _KINDS.items() if its == kind and (key in data or kind != KIND))
        found = FileCheck(document.label, kind, str(data.get(key, "")))
        checks = {
            "families": self.family,
            "flows": self.flow,
            DROPOUT: self.dropout,
            RUNNING: self.running,
            KIND: self.naming,
        }
        try:
            checks.get(kind, self.words)(document, found)
        except MapperError as error:
            found.problems.append(error.in_command())
        return found

    def dropout(self, document: Document, found: FileCheck) -> None:
        found.problems += check_dropout(document, self.rulebook)

    def running(self, document: Document, found: FileCheck) -> None:
        check_running(document, self.rulebook)

    def naming(self, document: Document, found: FileCheck) -> None:
        is_library = LIBRARY in document.data
        found.examples, found.problems = (
            check_library(document, self.rulebook) if is_library else check_naming(document)
        )

    def words(self, document: Document, found: FileCheck) -> None:
        read_vocabulary(document)
        rules = self.rulebook
        _ = (rules.vocabulary, rules.config_vocabulary, rules.inputs, rules.activations, rules.composites)

    def flow(self, document: Document, found: FileCheck) -> None:
        from mapper.flows.arithmetic import parse_rule
        from mapper.flows.combinations import check_flow, check_length

        page = page_of(document)
        spines = self.rulebook.flows.pages(page.topic) if page.slots or page.more else []
        spines = [
            spine for spine in spines if page.more or (spine.base and spine.base.file == document.label)
        ]
        page = replace(page, slots=page.slots or page.more)
        flows = [continued(rule, self.rulebook.flows) for rule in page.flows]
        for rule in (*flows, *page.steps, *([page.base] if page.base else [])):
            for extents in rule.shapes.values():
                for text in extents:
                    if text not in ("...", "_"):  # extents left open
                        parse_rule(text, rule.file, rule.line)
            check_length(rule)
        for rule in flows:
            found.combinations += check_flow(rule, self.known_names)
        for spine in spines:
            found.combinations += self.spine(spine)

    def spine(self, page: Page) -> int:
        """How many combinations the flows of a spine have. Raises MapperError. It is checked once for all pages that fill it."""
        key = (page.topic, page.base.file if page.base else "")
        if key not in self._spines:
            self._spines[key] = _tried(page, self.known_names)
        found = self._spines[key]
        if isinstance(found, MapperError):
            raise found
        return found

    def family(self, document: Document, found: FileCheck) -> None:
        read_family(document)
        found.problems += type_problems(document, self.rulebook)
        noted = self.rulebook.noted_families
        noted.clear()
        family = _family_in(document, self.rulebook)
        found.problems += _family_problems(family, self.rulebook)
        found.problems += unread_facts(family, self.rulebook)
        examples = family.examples if self.examples else []
        found.examples += len(examples)
        for example in examples:
            architecture, differences = read_example(example, family, self.rulebook)
            found.problems += [
                f"{example.file}:{example.line}: example {example.name!r}: {text}" for text in differences
            ]
            if self.run and architecture and not differences and not is_near_miss(example):
                found.problems += self.run_model(example, architecture, document, found)
        found.rests_on = tuple(sorted(noted))
        if self.alone:
            found.problems += self.stolen(family)

    def run_model(
        self, example: Example, architecture: Architecture, document: Document, found: FileCheck
    ) -> Iterator[str]:
        """What stops the model of an example, random weights in it, on made-up inputs; nothing does if it ran before."""
        from mapper._trial import run_header
        from mapper.emission import emit

        if architecture.reading == "skeleton" or architecture.missing:
            return
        try:
            text = emit(architecture)
            key = self.passed.run_key(architecture, text) if self.passed else ""
            if not (self.passed and key in self.passed.ran(document)):
                with _one_thread():
                    run_header(architecture, text)
        except MapperError as error:
            yield f"{example.file}:{example.line}: example {example.name!r}: {error.in_command()}"
            return
        found.runs += 1
        found.ran += (key,)

    @cached_property
    def known_names(self) -> set[str]:
        """What a flow may read that it does not bind itself."""
        from mapper.flows.cached import MADE
        from mapper.flows.combinations import bound_names

        return bound_names(self.rulebook.flows.everything()) | set(self.rulebook.inputs) | MADE

    @cached_property
    def headers(self) -> list[_Header]:
        """Every example that is to match."""
        every = [(family, example) for family in self.rulebook.families for example in family.examples]
        return [_Header(*item, header(item[1])) for item in every if not is_near_miss(item[1])]

    def stolen(self, family: Family) -> Iterator[str]:
        """Examples of other families that would now be read as this one, though they do not say so."""
        from mapper.inference.matching import is_recognised
        from mapper.inference.names import may_show

        for one in self.headers:
            if family.name in (one.family.name, one.example.expect.get("family")):
                continue
            if not may_show(family.signs, one.words):
                continue
            if not is_recognised(family, one.names):
                continue
            example, match = one.example, one.match(self.rulebook)
            if isinstance(match, MapperError):
                yield f"{example.file}:{example.line}: example {example.name!r}: {match}"
            elif match == family.name:
                yield f"{family.file}:{family.line}: steals example {example.name!r} of {one.family.file}"


def _tried(page: Page, known: set[str]) -> int | MapperError:
    """How many combinations the flows of a spine have, or what is wrong with the first that is not in order."""
    from mapper.flows.combinations import check_flow

    try:
        return sum(check_flow(rule, known) for rule in pairs(page))
    except MapperError as error:
        return error


class _Header:
    """An example with what is asked of its names for one family after another, each found once."""

    def __init__(self, family: Family, example: Example, read: Checkpoint):
        self.family, self.example, self.read = family, example, read
        self._match: list[str | MapperError | None] = []

    @cached_property
    def words(self) -> set[str]:
        from mapper.inference.names import words_in

        return words_in(self.read.tensors)

    @cached_property
    def names(self) -> Names:
        from mapper.inference.names import Names
        from mapper.naming.tree import grow

        return Names(grow(self.read.tensors))

    def match(self, rulebook: Rulebook) -> str | MapperError | None:
        """The name of the family whose names these are."""
        if not self._match:
            model_type = (self.read.config or {}).get("model_type")
            self._match = [_matching(self.names, model_type, rulebook)]
        return self._match[0]


def _matching(names: Names, model_type: str | None, rulebook: Rulebook) -> str | MapperError | None:
    """The name of the family whose names these are."""
    from mapper.inference.matching import match_family

    try:
        match = match_family(rulebook.family_entries, names, model_type)
    except MapperError as error:
        return error
    return match.family.name if match else None


@contextmanager
def _one_thread() -> Iterator[None]:
    """Torch on one core: models of examples are so small that several wait for each other most of the time."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _family_in(document: Document, rulebook: Rulebook) -> Family:
    name = document.data["family"]
    named = (entry.read() for entry in rulebook.family_entries if entry.name == name)
    return next(family for family in named if family.file == document.label)


def type_problems(document: Document, rulebook: Rulebook) -> list[str]:
    """The rows of a family's types that are of no type: other files decide that."""
    if "types" not in document.data:
        return []
    family = _family_in(document, rulebook)
    return [
        f"{family.file}:{family.line}: types: no family lists the model type {word!r}, and no example names it"
        for word in _unknown_types(family, rulebook)
    ]


def _unknown_types(family: Family, rulebook: Rulebook) -> list[str]:
    """Model types with a row in a family that nobody lists, and no example has for itself or for a tower."""
    if not family.types:
        return []
    known = {word for other in rulebook.family_entries for word in other.model_types}
    kin = [other for other in rulebook.families if family.name in (other.name, other.extends)]
    for config in (example.config for other in kin for example in other.examples if example.config):
        parts = (part for part in (config, *config.values()) if isinstance(part, dict))
        known |= {str(part.get("model_type")) for part in parts}
    return [word for word in family.types if word not in known]


def _family_problems(family: Family, rulebook: Rulebook) -> Iterator[str]:
    from mapper.inference.computed import sources

    where = f"{family.file}:{family.line}:"
    if not any(not is_near_miss(example) for example in family.examples):
        yield f"{where} no example that matches"
    if not any(is_near_miss(example) for example in family.examples):
        yield f"{where} no near miss: an example with expect {{match: false}}"
    for key, names in family.flows.items():
        for name in names:
            if name not in rulebook.flows:
                yield f"{where} flows.{key}: there is no flow {name!r}"
    for rules in family.facts.values():
        for rule in rules:
            sources(rule)  # raises RuleError for what is not arithmetic
