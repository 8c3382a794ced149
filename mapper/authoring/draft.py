"""`mapper rules new`: the first draft of a family file, from a checkpoint that no family lists.

What the vocabulary already reads is left out. What it does not is guessed from the closest word that it knows, and
marked: a guess is a question to whoever finishes the file. The checkpoint itself becomes the first example.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, count
from typing import TYPE_CHECKING, Any

from mapper.authoring.guesses import Guess, Guesser
from mapper.authoring.shorten import short_header
from mapper.rulebook.strict import with_point

if TYPE_CHECKING:
    from mapper.architecture import Architecture, Leaf
    from mapper.checkpoint import Checkpoint
    from mapper.rulebook.rulebook import Rulebook

_PATTERNS = 5  # that a family is recognised by
_SILENT = ("architectures", "model_type")  # fields that no list ignores, and every example has
_ALWAYS = ("_name_or_path", "transformers_version", "torch_dtype", "dtype")


def draft(checkpoint: Checkpoint, rulebook: Rulebook) -> str:
    """The text of a family file. Raises what inference raises."""
    from mapper.inference import infer

    architecture = infer(checkpoint, rulebook)
    config = dict(checkpoint.config or {})
    model_type = config.get("model_type")
    name = _free(_word(model_type if isinstance(model_type, str) else checkpoint.source), rulebook)
    patterns = list(_recognised(architecture.leaves))
    names = list(_names(architecture, rulebook))
    lines = [
        f"family: {name}",
        f"model_types: [{_scalar(model_type)}]" if isinstance(model_type, str) else "model_types: []",
        "source: [say where the architecture is published]",
        *_known_by(architecture.family, patterns),
        *_lists(architecture),
        *names,
        *_facts(architecture),
        "examples:",
        "  - name: the checkpoint that this draft was made from",
        *_header(short_header(architecture.leaves)),
        *_config(config, rulebook),
        _expected(name, names),
        "  - name: a near miss",
        "    tensors:",
        *_near_miss(architecture.leaves, patterns),
        "    expect: {match: false}",
    ]
    return "\n".join(lines) + "\n"


def _word(text: str) -> str:
    kept = "".join(letter if letter.isalnum() else "_" for letter in text.rsplit("/", 1)[-1].lower())
    return kept.strip("_") or "new_family"


def _free(word: str, rulebook: Rulebook) -> str:
    """A name that no family has: a type that one lists may be drafted anew."""
    taken = {family.name for family in rulebook.families}
    numbered = (f"{word}_{number}" for number in count(2))
    return next(name for name in chain([word], numbered) if name not in taken)


def _known_by(family: str | None, patterns: Iterable[str]) -> Iterator[str]:
    """What tells the family from others: names; its model type alone where they are those of a family there is."""
    if family is None:
        yield "recognise:                                # names that together no other family has"
        yield from (f'  - "{pattern}"' for pattern in patterns)
        return
    yield f"extends: {family}  # if nothing differs: one more word in the model_types of {family}, and no family"
    yield f"# chosen by its type alone; if a name tells it from {family}, say recognise: with the names that do"


def _recognised(leaves: Iterable[Leaf]) -> Iterator[str]:
    """Patterns of a layer's leaves, one for each block and role."""
    seen: set[tuple[str, ...]] = set()
    given: set[str] = set()
    for leaf in leaves:
        kind = tuple(step for step, _ in leaf.block)
        in_list = any(isinstance(part, tuple) for part in leaf.place[1:])
        pattern = _pattern(leaf, _start(leaf))
        if in_list and kind not in seen and len(seen) < _PATTERNS and pattern not in given:
            seen.add(kind)
            given.add(pattern)
            yield pattern


def _start(leaf: Leaf) -> int:
    """Where a pattern for a leaf begins: at its list, or at its folder."""
    at = next((at for at, part in enumerate(leaf.place) if isinstance(part, tuple)), len(leaf.place) - 1)
    return max(at - 1, 0)


def _pattern(leaf: Leaf, start: int = 0) -> str:
    words = [part if isinstance(part, str) else "{n}" for part in leaf.place[start:]]
    return ".".join(("{root}", *words))


def _lists(architecture: Architecture) -> Iterator[str]:
    """Numbered folders that are no list of layers to the vocabulary: no family says so, another file does."""
    words: dict[str, None] = {}
    for leaf in architecture.leaves:
        at = next((at for at, part in enumerate(leaf.place) if isinstance(part, tuple)), 0)
        if 0 < at < len(leaf.place) - 1 and not any(numbers for _, numbers in leaf.block):
            words[str(leaf.place[at - 1])] = None
    if words:
        yield f"# no list of layers to the vocabulary: {', '.join(words)}; if it is one, begin with a file of rules"
        yield "# that says so, in the folder of this one, and draft again with --rules: vocabulary/layers.yaml with"
        yield "#   vocabulary: layers"
        yield f"#   lists: {{layers: [{', '.join(map(_scalar, words))}]}}"


def _names(architecture: Architecture, rulebook: Rulebook) -> Iterator[str]:
    """Leaves that no rule names: what each would be where the evidence leaves one thing, else what it is."""
    shown = {leaf.place: Guess(_path(leaf), leaf.why) for leaf in architecture.leaves if _is_shown(leaf)}
    guessed = shown | Guesser(architecture, rulebook).all()
    leaves = {leaf.place: leaf for leaf in architecture.leaves}
    rows: dict[str, str] = {}
    for place, guess in guessed.items():
        pattern = _name(leaves[place])
        rows.setdefault(pattern, _row(pattern, leaves[place], guess))
    yield from ["names:"] if any(not row.startswith("#") for row in rows.values()) else []
    yield from rows.values()


def _is_shown(leaf: Leaf) -> bool:
    """Whether shapes and neighbours alone give it its role: no rule is its reason."""
    return leaf.role is not None and leaf.kind != "Buffer" and ".yaml" not in leaf.why


def _path(leaf: Leaf) -> str:
    """Its role as `names` of a family write it: from the element of a list on that it is in."""
    lists = [at for at, (_, index) in enumerate(leaf.block) if index is not None]
    inner = leaf.block[max(lists) + 1 :] if lists else leaf.block
    return ".".join([*(role for role, _ in inner), leaf.role or ""])


def _name(leaf: Leaf) -> str:
    """What a leaf is called in the element of a list that it is in: a pattern that says more would hide the element."""
    numbers = [at for at, part in enumerate(leaf.place) if isinstance(part, tuple)]
    last = len(leaf.place) - 1
    start = max((at + 1 for at in numbers if at < last), default=max(last - 1, 0))
    if last in numbers:  # an element by itself: with the word of its list
        start = min(start, max(last - 1, 0))
    words = [part if isinstance(part, str) else "{n}" for part in leaf.place[start:]]
    return ".".join(words)


def _expected(family: str, names: Iterable[str]) -> str:
    """What the draft itself already holds of its checkpoint, so that `mapper rules check` passes before it is settled."""
    if any(row.startswith("#") for row in names):
        return f"    expect: {{family: {family}}}  # then: unmapped: [], reading: exact, and the facts that matter"
    return "    expect: {unmapped: []}  # then: reading: exact, and the facts that matter"


def _row(pattern: str, leaf: Leaf, guess: Guess) -> str:
    shapes = ", ".join(f"{name} {list(info.shape)}".strip() for name, info in leaf.tensors.items())
    what = f"{leaf.kind} {shapes}"
    if guess.role:
        said = f"{{role: {guess.role}, kind: {guess.kind}}}" if guess.kind else guess.role
        return f"  {json.dumps(pattern)}: {said}  # guessed: {guess.why}; it is {what}"
    could = f", {' or '.join(guess.among)}" if guess.among else ""
    if leaf.kind == "Linear" and any(role.startswith("embeddings.") for role in guess.among):
        could += " (a table: {role: ..., kind: Embedding})"
    return f"#  {json.dumps(pattern)}: say its role{could}; it is {what}"


def _facts(architecture: Architecture) -> Iterator[str]:
    """What nobody knows, with what it could be, and the fields nobody read: all to be said, none of it guessed."""
    asked = {question.fact: question for question in reversed(architecture.questions)}
    if asked:
        yield "#facts:                                   # what nothing shows: say each that remains, with its reason"
    for name, question in asked.items():
        values = ", ".join(map(_scalar, question.candidates))
        yield _comment(f"  {name}: {{value: ..., why: ...}}", f"one of {values}" if values else "a value")
    for unfit in architecture.unfit:
        yield f"# {unfit.head}:"
        yield from (f"#   {text}" for text in unfit.nearest)
    told = {*map(str, architecture.questions), *map(str, architecture.unfit)}
    lines = [*architecture.missing, *architecture.findings]
    yield from (f"# {line}" for line in dict.fromkeys(lines) if line not in told)


def _comment(text: str, why: str) -> str:
    return f"#{text}  # {why}"


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
    ignored = vocabulary.ignored.always.difference(_SILENT).union(_ALWAYS)
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
