"""`mapper rules new`: the first draft of a family file, from a checkpoint that no family lists.

What the vocabulary already reads is left out. What it does not is guessed from the closest word that it knows, and
marked: a guess is a question to whoever finishes the file. The checkpoint itself becomes the first example.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from mapper.naming.words import normal
from mapper.rulebook.shorten import short_header
from mapper.rulebook.strict import with_point

if TYPE_CHECKING:
    from mapper.architecture import Architecture, Leaf
    from mapper.checkpoint import Checkpoint
    from mapper.rulebook.rulebook import Rulebook

_PATTERNS = 5  # that a family is recognised by
_SILENT = ("architectures", "model_type")  # fields that no list calls irrelevant, and every example has
_ALWAYS = ("_name_or_path", "transformers_version", "torch_dtype", "dtype")


def draft(checkpoint: Checkpoint, rulebook: Rulebook) -> str:
    """The text of a family file. Raises what inference raises."""
    from mapper.inference import infer

    architecture = infer(checkpoint, rulebook)
    config = dict(checkpoint.config or {})
    model_type = config.get("model_type")
    name = _word(model_type if isinstance(model_type, str) else checkpoint.source)
    patterns = list(_recognised(architecture.leaves))
    lines = [
        f"family: {name}",
        f"model_types: [{_scalar(model_type)}]" if isinstance(model_type, str) else "model_types: []",
        "source: [say where the architecture is published]",
        *_known_by(architecture.family, patterns),
        *_names(architecture, rulebook),
        *_facts(architecture),
        "examples:",
        "  - name: the checkpoint that this draft was made from",
        *_header(short_header(architecture.leaves)),
        *_config(config, rulebook),
        "    expect: {unmapped: []}               # then: reading: exact, and the facts that matter",
        "  - name: a near miss",
        "    tensors:",
        *_near_miss(architecture.leaves, patterns),
        "    expect: {match: false}",
    ]
    return "\n".join(lines) + "\n"


def _word(text: str) -> str:
    kept = "".join(letter if letter.isalnum() else "_" for letter in text.rsplit("/", 1)[-1].lower())
    return kept.strip("_") or "new_family"


def _known_by(family: str | None, patterns: Iterable[str]) -> Iterator[str]:
    """What tells the family from others: names; its model type alone where they are those of a family there is."""
    if family is None:
        yield "recognise:                                # names that together no other family has"
        yield from (f'  - "{pattern}"' for pattern in patterns)
        return
    yield f"extends: {family}  # if nothing differs: one more word in the model_types of {family}, and no family"
    yield f"by_type_only: true  # guessed: say recognise instead, if a name tells it from {family}"


def _recognised(leaves: Iterable[Leaf]) -> Iterator[str]:
    """Patterns of a layer's leaves, one for each block and role."""
    seen: set[tuple[str, ...]] = set()
    for leaf in leaves:
        kind = tuple(step for step, _ in leaf.block)
        in_list = any(isinstance(part, tuple) for part in leaf.place[1:])
        if in_list and kind not in seen and len(seen) < _PATTERNS:
            seen.add(kind)
            yield _pattern(leaf, _start(leaf))


def _start(leaf: Leaf) -> int:
    """Where a pattern for a leaf begins: at its list, or at its folder."""
    at = next((at for at, part in enumerate(leaf.place) if isinstance(part, tuple)), len(leaf.place) - 1)
    return max(at - 1, 0)


def _pattern(leaf: Leaf, start: int = 0) -> str:
    words = [part if isinstance(part, str) else "{n}" for part in leaf.place[start:]]
    return ".".join(("{root}", *words))


def _names(architecture: Architecture, rulebook: Rulebook) -> Iterator[str]:
    """Leaves without a role: what the closest known word would mean, as a guess."""
    without = [leaf for leaf in architecture.leaves if leaf.role is None and leaf.kind != "Buffer"]
    idle = {_pattern(leaf, _start(leaf)): leaf for leaf in without}
    known = _known_words(rulebook)
    rows = [_guess(pattern, leaf, known) for pattern, leaf in idle.items()]
    yield from ["names:", *rows] if any(not row.startswith("#") for row in rows) else rows


def _known_words(rulebook: Rulebook) -> dict[str, str]:
    entries = (entry for file in rulebook.vocabulary for entry in file.entries if entry.section == "roles")
    return {normal(name.rpartition(".")[2]): entry.target for entry in entries for name in entry.names}


def _guess(pattern: str, leaf: Leaf, known: Mapping[str, str]) -> str:
    word = next(part for part in reversed(leaf.place) if isinstance(part, str))
    shapes = ", ".join(f"{name} {list(info.shape)}".strip() for name, info in leaf.tensors.items())
    close = get_close_matches(normal(word), known, n=1, cutoff=0.7)
    if not close:
        return f'#  "{pattern}": say its role; it is {leaf.kind} {shapes}'
    inside = leaf.block[-1][0] if leaf.block else ""
    target = known[close[0]].rpartition(".")[2]
    role = target if inside in ("", "layers", "tower") else f"{inside}.{target}"
    return f'  "{pattern}": {role}  # guessed from {close[0]!r}; it is {leaf.kind} {shapes}'


def _facts(architecture: Architecture) -> Iterator[str]:
    """Facts that keep a flow from being chosen, each with the first value that would do, and the fields nobody read."""
    asked = {question.fact: question.candidates for question in architecture.questions if question.candidates}
    if asked:
        yield "facts:"
    for name, values in asked.items():
        one = f"# guessed: one of {', '.join(map(_scalar, values))}" if len(values) > 1 else "# guessed"
        yield f"  {name}: {{value: {_scalar(values[0])}, why: say where this is written}}  {one}"
    told = [*architecture.missing, *architecture.findings]
    for line in dict.fromkeys(line for line in told if line.split(" ", 1)[0] not in asked):
        yield f"# {line}"[:110]


def _header(patterns: Mapping[str, list[int]]) -> Iterator[str]:
    yield "    tensors:"
    for pattern, shape in patterns.items():
        yield f"      {json.dumps(pattern)}: {shape}"


def _near_miss(leaves: Iterable[Leaf], patterns: list[str]) -> Iterator[str]:
    """A checkpoint with the first of the names alone."""
    first = next((leaf for leaf in leaves if patterns and _pattern(leaf).endswith(patterns[0][6:])), None)
    for name, info in first.tensors.items() if first else ():
        path = ".".join(part if isinstance(part, str) else "0" for part in first.place) if first else ""
        yield f"      {json.dumps(f'{path}.{name}' if name else path)}: {list(info.shape)}"


def _config(config: Mapping[str, Any], rulebook: Rulebook) -> Iterator[str]:
    vocabulary = rulebook.config_vocabulary
    ignored = vocabulary.irrelevant.difference(_SILENT).union(_ALWAYS)
    kept = {key: value for key, value in config.items() if key not in ignored and value is not None}
    if kept:
        yield "    config:"
        yield from _mapping(kept, 6)


def _mapping(data: Mapping[str, Any], indent: int) -> Iterator[str]:
    for key, value in data.items():
        if isinstance(value, Mapping) and value:
            yield f"{'':{indent}}{_scalar(str(key))}:"
            yield from _mapping(value, indent + 2)
        else:
            yield f"{'':{indent}}{_scalar(str(key))}: {_scalar(value)}"


def _scalar(value: Any) -> str:
    """A value as YAML that means the same to every reader."""
    if isinstance(value, float):
        if not math.isfinite(value):
            return json.dumps(str(value))
        return with_point(value)
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_scalar, value))}]"
    if isinstance(value, str) and value.replace("_", "").isalnum() and value[0].isalpha():
        return (
            value
            if value not in ("true", "false", "null", "yes", "no", "on", "off", "y", "n")
            else f'"{value}"'
        )
    return json.dumps(value)
