"""The report as text: what it is, the tree, the facts with their evidence, and what to do about the rest."""

from __future__ import annotations

from mapper.architecture import Architecture, Fact
from mapper.checkpoint import Checkpoint
from mapper.report.chain import value_text
from mapper.report.style import Paint, plain
from mapper.report.tree import tree
from mapper.report.words import counted, folded, in_bytes, printable, rounded

MEANING = {
    "exact": "a family vouches for this model type: its outputs were compared with the reference implementation",
    "unverified": "a flow fits, but nobody has compared this architecture with its reference; mapper verify does",
    "skeleton": "typed modules only: no flow fits, so forward says what is missing",
}
STYLE = {"exact": "good", "unverified": "doubt", "skeleton": "bad"}
SHOWN_FACTS = 40
SHOWN_KEYS = 10
SHOWN_SENTENCES = 12
_FACT_WIDTH = 44


def as_text(architecture: Architecture, paint: Paint = plain) -> str:
    """The whole report; ends without a newline."""
    if architecture.parts:
        from mapper.report.parts import part_lines

        return f"{_head(architecture, paint)}\n\n{_section('parts', list(part_lines(architecture, paint)), paint)}"
    parts = [
        _head(architecture, paint),
        tree(architecture, paint),
        _section("facts", _facts(architecture.facts, paint), paint),
        _section("findings", _sentences(architecture.findings), paint, style="doubt"),
        _section("unused, with their reason", _unused(architecture), paint),
        _section("without a role", _keys(architecture.unmapped), paint, style="doubt"),
        _section("unknown", _sentences(architecture.missing), paint, style="bad"),
    ]
    return "\n\n".join(part for part in parts if part)


def first_line(architecture: Architecture, paint: Paint = plain) -> str:
    """The source, its family and how far to trust the reading."""
    return f"{paint('name', printable(architecture.checkpoint.source))}: {what_it_is(architecture, paint)}"


def what_it_is(architecture: Architecture, paint: Paint = plain) -> str:
    """What it is in words, the family, and how far to trust the reading."""
    if architecture.parts:
        return printable(architecture.what)
    family = printable(architecture.family) if architecture.family else "no known family"
    if architecture.towers:
        family += " (" + ", ".join(f"{tower}: {name}" for tower, name in architecture.towers.items()) + ")"
    reading = paint(STYLE.get(architecture.reading, "name"), architecture.reading)
    what = f"{printable(architecture.what, limit=400)}; " if architecture.what else ""
    return f"{what}{family}, {reading}"


def _head(architecture: Architecture, paint: Paint) -> str:
    checkpoint = architecture.checkpoint
    lines = [
        first_line(architecture, paint),
        f"{stored(checkpoint)}, {checkpoint.container}",
        *([] if architecture.parts else [f"{architecture.reading}: {_meaning(architecture)}"]),
        *(f"note: {printable(note, limit=400)}" for note in [*checkpoint.notes, *architecture.notes]),
    ]
    if architecture.rules:
        lines.append(paint("faint", f"rules {architecture.rules}"))
    return "\n".join(lines)


def stored(checkpoint: Checkpoint) -> str:
    """`104 tensors, 22.7 million parameters (F32, I64, 90.9 MB)`."""
    types = checkpoint.stored()
    size = in_bytes(sum(taken for _, taken in types.values()))
    dtypes = ", ".join(list(types)[:3])
    return f"{counted(len(checkpoint.tensors), 'tensor')}, {rounded(checkpoint.parameters)} parameters" + (
        f" ({dtypes}, {size})" if types else ""
    )


def _meaning(architecture: Architecture) -> str:
    """How far to trust the reading; of rules that are not the shipped ones nobody knows what they were compared with."""
    if architecture.reading == "exact" and architecture.rulebook:
        own = architecture.rulebook.own_families({architecture.family, *architecture.towers.values()})
        if own:
            return f"{printable(own[0].file)} lists this model type; nobody has compared it here; mapper verify does"
    return MEANING[architecture.reading]


def _section(title: str, lines: list[str], paint: Paint, style: str = "title") -> str:
    return "\n".join([paint(style, title), *(f"  {line}" for line in lines)]) if lines else ""


def _sentences(texts: list[str]) -> list[str]:
    shown = [printable(text, limit=400) for text in texts[:SHOWN_SENTENCES]]
    return [*shown, *_more(len(texts) - len(shown))]


def _facts(facts: list[Fact], paint: Paint) -> list[str]:
    """One line for each value with one kind of evidence: its first source, however many places it holds at."""
    merged: dict[tuple[str, str, str], list[Fact]] = {}
    for fact in facts:
        merged.setdefault((fact.name, value_text(fact.value), fact.evidence), []).append(fact)
    shown = sorted(merged.values(), key=_weakest_last)[:SHOWN_FACTS]
    named = [f"{printable(same[0].name)} = {value_text(same[0].value)}" for same in shown]
    wide = min(max(map(len, named), default=0), _FACT_WIDTH)
    lines = [f"{left:{wide}}  {_evidence(same, paint)}" for left, same in zip(named, shown, strict=True)]
    return [*lines, *_more(len(merged) - len(shown))]


def _weakest_last(same: list[Fact]) -> int:
    """What the user said first, the defaults last; otherwise in the order of inference."""
    return {"given": 0, "default": 2}.get(same[0].evidence, 1)


def _evidence(same: list[Fact], paint: Paint) -> str:
    first = same[0]
    style = "doubt" if first.evidence in ("default", "name") else "faint"
    places = [
        printable(at, limit=48) for at in dict.fromkeys(fact.at for fact in same) if at not in ("", "*")
    ]
    more = f" and {len(places) - 1} more" if len(places) > 1 else ""
    where = f" (at {places[0]}{more})" if places else ""
    return paint(style, f"{first.evidence}: {printable(first.source, limit=80)}{where}")


def _unused(architecture: Architecture) -> list[str]:
    by_reason: dict[str, list[str]] = {}
    for key, why in architecture.unused:
        by_reason.setdefault(why, []).append(key)
    return [f"{name}: {printable(why)}" for why, keys in by_reason.items() for name in _keys(keys)]


def _keys(keys: list[str]) -> list[str]:
    """Folded keys: one line for those that differ in numbers only."""
    names = [printable(name) for name in folded(keys)]
    return [*names[:SHOWN_KEYS], *_more(len(names) - SHOWN_KEYS)]


def _more(count: int) -> list[str]:
    return [f"and {count:,} more, all of them with --json"] if count > 0 else []
