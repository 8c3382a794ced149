"""Architecture to source text: classes, sizes, statements, checks."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from mapper.architecture import Architecture
from mapper.errors import ArchitectureError, FlowError
from mapper.flows.flow import flow_of
from mapper.flows.language import copied, parse_expression

if TYPE_CHECKING:
    from mapper.emission.source import Emitted
    from mapper.rulebook.facts import ActivationRule


def emit(
    architecture: Architecture, *, cache: bool = False, hidden_states: bool = False, train: bool = False
) -> str:
    """The source of a model as one self-contained file.

    `cache` adds a key/value cache to decoders; `hidden_states` makes the output hold what went into each layer;
    `train` writes dropout where the config has it.
    """
    return emitted(architecture, cache=cache, hidden_states=hidden_states, train=train).text


def emitted(
    architecture: Architecture, *, cache: bool = False, hidden_states: bool = False, train: bool = False
) -> Emitted:
    """`emit`, and beside the text which class each folder has, and the program that the file runs."""
    from mapper.emission.caching import with_cache
    from mapper.emission.guard import check_source
    from mapper.emission.origin import with_origin
    from mapper.emission.source import emit_source
    from mapper.emission.train import with_dropout

    if architecture.refusal:
        raise ArchitectureError(architecture.refusal)
    if architecture.missing and architecture.reading != "skeleton":
        raise _missing(architecture)
    if architecture.graph is not None:
        return _of_graph(architecture, {"cache": cache, "hidden_states": hidden_states, "train": train})
    rulebook = architecture.rulebook
    if cache:
        architecture = with_cache(architecture)
    if train:
        architecture = with_dropout(architecture)
    options = {"cache": cache, "hidden_states": hidden_states, "train": train}
    activation = partial(_activation, rulebook.activations)
    found = emit_source(architecture, partial(flow_of, rulebook), activation, options)
    text = with_origin(found.text, architecture, options)
    check_source(text)
    return replace(found, text=text)


def _of_graph(architecture: Architecture, options: dict[str, bool]) -> Emitted:
    from mapper.emission.guard import check_source
    from mapper.emission.origin import with_origin
    from mapper.emission.source import Emitted
    from mapper.graphs.straight.hook import source_of

    text = with_origin(source_of(architecture, options), architecture, options)
    check_source(text)
    return Emitted(text, None, {})


def _activation(rules: Mapping[str, ActivationRule], word: str, argument: ast.expr) -> ast.expr:
    """An activation by its name in configs, of an argument. Raises FlowError for a name that no rule has."""
    rule = rules.get(word)
    if rule is None:
        raise FlowError(
            f"there is no activation {word!r}; vocabulary/activations.yaml lists those that there are"
        )
    found: ast.expr = _Argument(argument).visit(parse_expression(rule.expression, rule.file, rule.line))
    return found


def _missing(architecture: Architecture) -> ArchitectureError:
    """The error for the first of what is missing; a question's fact and what it could be are in its fields."""
    first, more = architecture.missing[0], len(architecture.missing) - 1
    text = f"{first} (and {more} more: see inspect)" if more else first
    asked = next((question for question in architecture.questions if str(question) == first), None)
    if asked is None:
        return ArchitectureError(text)
    return ArchitectureError(text, fact=asked.fact, at=asked.at, candidates=asked.candidates)


class _Argument(ast.NodeTransformer):
    """Puts the argument where an activation's rule says `x`."""

    def __init__(self, argument: ast.expr):
        self.argument = argument

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return copied(self.argument) if node.id == "x" else node
