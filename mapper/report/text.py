"""The report as text: what it is, the tree, the facts with their evidence, and what to do about the rest."""

from __future__ import annotations

from typing import NamedTuple

from mapper.architecture import CONTRADICTION, Architecture, Fact
from mapper.errors import cut
from mapper.report.chain import value_text
from mapper.report.heading import first_line, stored
from mapper.report.name_tree import levels, rows, tree
from mapper.report.parts import part_lines
from mapper.report.questions import asked, explained
from mapper.report.style import Paint, plain
from mapper.report.wording import folded, printable
from mapper.report.wrapping import fitted

MEANING = {
    "exact": "a family vouches for this model type: its outputs were compared with the reference implementation",
    "unverified": "a flow fits, but nobody has compared this architecture with its reference; mapper verify does",
    CONTRADICTION: "what was read before it was refused; nothing is made of it",
    "graph": "no flow fits its names; its own graph runs it, as straight-line code",
    "skeleton": "typed modules only: no flow fits, so forward says what is missing",
}
_ASKED = "a flow fits once all that is asked below is answered; nobody has compared this architecture with its reference"
_CHOSEN = "what is asked below decides which flow fits; until then typed modules only, whose forward says what is missing"
_ROLELESS = (
    "typed modules only: no flow fits, and answers alone hardly help as long as tensors have no role (below)"
)
_VERIFY = "mapper verify compares it with a reference, where there is one"
_REFUSED = "what its tensors are; why no model is made of them is said below"
_BEGIN = "what has no role gets one by a rule: mapper rules new SRC begins the file"
SCREEN = 48  # lines that a report takes where folding can make it
_FACT_WIDTH = 44
_TELLING = ("given", "config", "shape", "graph", "name", "weights", "behaviour", "default", "rule")
_USUAL = "vocabulary/"  # where the defaults stand that hold for all families


class Amounts(NamedTuple):
    """How many of each are shown."""

    facts: int
    keys: int
    sentences: int
    questions: int = 40
    letters: int = 400  # of a sentence
    nearest: int = 3  # flows that come near a block without one
    rows: int | None = None  # of the tree; None: all that its levels have


_ALL, _FEWER, _FEWEST = Amounts(40, 10, 12), Amounts(20, 6, 6), Amounts(12, 4, 3)
_LESS = Amounts(8, 2, 2, questions=5, letters=140, rows=12, nearest=2)  # for what has much of everything
_LEAST = Amounts(4, 1, 1, questions=3, letters=150, rows=6, nearest=1)
_ALL_ASKED = (
    _LESS._replace(questions=24),
    _LEAST._replace(questions=24),
)  # one command is to answer all of them


def as_text(
    architecture: Architecture,
    paint: Paint = plain,
    depth: int | None = None,
    width: int | None = None,
    lines: int = SCREEN,
) -> str:
    """The report; ends without a newline.

    `depth` is how many levels of folders are shown; when left out, as many as fit in so many `lines`, but for those that
    say what is asked. With `width` no
    line is wider, and none is broken inside of a word.
    """
    if architecture.parts:
        parts = _section("parts", list(part_lines(architecture, paint)), paint)
        return fitted(f"{_head(architecture, paint)}\n\n{parts}", width)
    deepest = levels(architecture)
    if depth is not None:
        return fitted(_whole(architecture, paint, min(depth, deepest), _ALL, width), width)
    amounts = [(level, some) for level in range(deepest, 0, -1) for some in (_FEWER, _FEWEST)]
    fewest = [(1, some) for some in (_FEWEST, *_ALL_ASKED, _LESS, _LEAST)]
    for level, some in [(deepest, _ALL), *amounts, *fewest]:
        text = fitted(_whole(architecture, paint, level, some, width), width)
        if text.count("\n") - explained(architecture.questions, some.questions) < lines:
            break
    return text


def _whole(architecture: Architecture, paint: Paint, depth: int, most: Amounts, width: int | None) -> str:
    """The report with so many levels, and so much of each section."""
    parts = [
        _head(architecture, paint),
        "\n".join([*_tree(architecture, paint, depth, width, most.rows), *_folded(architecture, depth)]),
        _section("forward", _lines(architecture.forward, most.facts), paint),
        _section("facts", _facts(architecture.facts, paint, most.facts, width), paint),
        _section("findings", _sentences(architecture.findings, most), paint, style="doubt"),
        _section("unused, with their reason", _unused(architecture, most), paint),
        _section("without a role", _keys(architecture.unmapped, most.keys), paint, style="doubt"),
        _section("unknown", _unknown(architecture, most), paint, style="bad"),
        _section("to be answered", asked(architecture.questions, most.questions), paint, style="bad"),
    ]
    return "\n\n".join(part for part in parts if part)


def _tree(
    architecture: Architecture, paint: Paint, depth: int, width: int | None, most: int | None
) -> list[str]:
    lines = tree(architecture, paint, depth, width)
    if most is None or len(lines) <= most:
        return lines
    return [*lines[:most], f"and {len(lines) - most:,} more rows, all of them with --depth {depth}"]


def _folded(architecture: Architecture, depth: int) -> list[str]:
    """How to see what is folded."""
    deepest, whole = levels(architecture), len(rows(architecture))
    if depth >= deepest or len(rows(architecture, depth)) == whole:
        return []
    more = f"--depth {depth + 1} shows more, " if depth + 1 < deepest else ""
    return [f"folded, {depth} of {deepest} levels; {more}--depth {deepest} shows all {whole:,} rows"]


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


def _meaning(architecture: Architecture) -> str:
    """How far to trust the reading; of rules that are not the shipped ones nobody knows what they were compared with."""
    if architecture.reading == "exact" and architecture.rulebook:
        own = architecture.rulebook.own_families({architecture.family, *architecture.towers.values()})
        if own:
            return f"{printable(own[0].file)} lists this model type; nobody has compared it here; mapper verify does"
    if architecture.reading == "skeleton" and architecture.refusal:
        return _REFUSED
    if architecture.reading == "unverified" and architecture.questions:
        return _ASKED
    if architecture.reading == "unverified":
        return _doubtful(architecture)
    if architecture.questions and architecture.unfit and all(one.asks for one in architecture.unfit):
        return _CHOSEN
    if architecture.reading == "skeleton" and architecture.questions and architecture.unmapped:
        return _ROLELESS
    return MEANING[architecture.reading]


def _doubtful(architecture: Architecture) -> str:
    """What keeps a reading without questions from being trusted, where it is more than that nobody compared it."""
    if architecture.missing:
        return "a flow fits, but nothing is built as long as what stands under unknown is not said"
    if architecture.unmapped:
        return f"a flow fits, but has no use for the tensors without a role below; {_VERIFY}"
    if architecture.findings:
        return f"a flow fits, but see the findings below; {_VERIFY}"
    return MEANING["unverified"]


def _section(title: str, lines: list[str], paint: Paint, style: str = "title") -> str:
    return "\n".join([paint(style, title), *(f"  {line}" for line in lines)]) if lines else ""


def _lines(texts: list[str], most: int) -> list[str]:
    most = _room(len(texts), most)
    return [*map(printable, texts[:most]), *_more(len(texts) - most)]


def _sentences(texts: list[str], most: Amounts) -> list[str]:
    count = _room(len(texts), most.sentences)
    return [*(printable(text, limit=most.letters) for text in texts[:count]), *_more(len(texts) - count)]


def _unknown(architecture: Architecture, most: Amounts) -> list[str]:
    """What forbids a forward and is no question: blocks without a flow, each with what comes near below it."""
    told = {str(item) for item in (*architecture.unfit, *architecture.questions)}
    lines = []
    count = _room(len(architecture.unfit), most.sentences)
    for item in architecture.unfit[:count]:
        lines.append(printable(f"{item.head}:", limit=most.letters))
        lines += [f"  {printable(text, limit=most.letters)}" for text in item.nearest[: most.nearest]]
    rest = _sentences([text for text in architecture.missing if text not in told], most)
    is_new = (lines or rest) and architecture.unmapped and not architecture.refusal
    return [*lines, *_more(len(architecture.unfit) - count), *rest, *([_BEGIN] if is_new else [])]


def _facts(facts: list[Fact], paint: Paint, most: int, width: int | None) -> list[str]:
    """One line for each value with one kind of evidence: its first source, however many places it holds at.

    Of too many, those that were said of this checkpoint are shown before those that hold for all of its kind.
    """
    merged: dict[tuple[str, str, str], list[Fact]] = {}
    for fact in facts:
        merged.setdefault((fact.name, value_text(fact.value), fact.evidence), []).append(fact)
    by_telling = sorted(merged.values(), key=_least_telling_last if most < _ALL.facts else _weakest_last)
    first = by_telling[: _room(len(merged), most)]
    shown = [same for same in sorted(merged.values(), key=_weakest_last) if same in first]
    named = [f"{printable(same[0].name)} = {value_text(same[0].value)}" for same in shown]
    wide = min(max(map(len, named), default=0), _FACT_WIDTH)
    rooms = [max(width - max(wide, len(left)) - 4, 24) if width else None for left in named]
    lines = [
        f"{left:{wide}}  {_evidence(same, paint, room)}"
        for left, same, room in zip(named, shown, rooms, strict=True)
    ]
    return [*lines, *_more(len(merged) - len(shown))]


def _least_telling_last(same: list[Fact]) -> int:
    """What is so of any model unless something says otherwise is told last, behind what rules say of this kind."""
    first = same[0]
    is_usual = first.evidence == "default" and first.source.startswith(_USUAL)
    return len(_TELLING) if is_usual else _TELLING.index(first.evidence)


def _weakest_last(same: list[Fact]) -> int:
    """What the user said first, the defaults last; otherwise in the order of inference."""
    return {"given": 0, "default": 2}.get(same[0].evidence, 1)


def _evidence(same: list[Fact], paint: Paint, room: int | None) -> str:
    first = same[0]
    style = "doubt" if first.evidence in ("default", "name") else "faint"
    places = [
        printable(at, limit=48) for at in dict.fromkeys(fact.at for fact in same) if at not in ("", "*")
    ]
    more = f" and {len(places) - 1} more" if len(places) > 1 else ""
    where = f" (at {places[0]}{more})" if places else ""
    source = f"{first.known_from}: {printable(first.source, limit=80)}"
    if room and len(source + where) > room:  # on a narrow terminal: --why has all of it
        return paint(style, cut(source, room))
    return paint(style, source + where)


def _unused(architecture: Architecture, most: Amounts) -> list[str]:
    by_reason: dict[str, list[str]] = {}
    for key, why in architecture.unused:
        by_reason.setdefault(why, []).append(key)
    lines = [
        f"{name}: {printable(why)}" for why, keys in by_reason.items() for name in _keys(keys, most.keys)
    ]
    count = _room(len(lines), most.keys * 4)
    return [*lines[:count], *_more(len(lines) - count)]


def _keys(keys: list[str], most: int) -> list[str]:
    """Folded keys: one line for those that differ in numbers only, or in the tensor of a module."""
    modules: dict[str, list[str]] = {}
    for key in folded(keys):
        module, dot, tensor = key.rpartition(".")
        modules.setdefault(module + dot, []).append(tensor)
    names = [
        printable(module + (tensors[0] if len(tensors) == 1 else f"{{{','.join(tensors)}}}"))
        for module, tensors in modules.items()
    ]
    most = _room(len(names), most)
    return [*names[:most], *_more(len(names) - most)]


def _room(count: int, most: int) -> int:
    """How many of so many lines are printed: to say that one more is left out takes a line as well."""
    return count if count <= most + 1 else most


def _more(count: int) -> list[str]:
    return [f"and {count:,} more; all of them with --json"] if count > 0 else []
