"""What is written node after node, as a person writes it: a value that only the next line reads stands there, names are counted anew."""

from __future__ import annotations

import ast
import keyword
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

WIDTH = 84  # characters of a line that takes another in
CHOICE = 104  # of a line that chooses between two values: names are shorter once they are counted anew
WORD = re.compile(r"[A-Za-z_]\w*")
VARIABLE = re.compile(
    r"(?<![\w.])[A-Za-z_]\w*"
)  # no attribute: a layer's result is often called as the layer
_ASKED = re.compile(r"( *)if (.+):")
_MADE = re.compile(r"( *)([A-Za-z_]\w*) = (.+)")
_MADE_ALL = re.compile(r" *((?:[A-Za-z_]\w*, )*[A-Za-z_]\w*,?) = (?!=).+")
NEW = ("tensor", "arange", "zeros", "ones", "full", "empty", "as_tensor")  # what torch makes tensors of
COUNT = re.compile(r"_+\d*(?:_+\d+)*$")
_RANKS: dict[type[ast.operator], int] = {
    ast.Add: 1, ast.Sub: 1, ast.Mult: 2, ast.Div: 2, ast.MatMult: 2, ast.FloorDiv: 2, ast.Mod: 2, ast.Pow: 3,
}  # fmt: skip
_FREE = (
    ast.Call,
    ast.keyword,
    ast.Assign,
    ast.Tuple,
    ast.List,
    ast.If,
    ast.Slice,
)  # around these no brackets are needed


def tidy(rows: list[str], outputs: list[str], taken: Iterable[str]) -> tuple[list[str], list[str]]:
    """The rows and the expressions of the outputs, shorter; names are `taken` that mean something else."""
    rows = [rows[at] for at in used(rows, outputs)]
    names, words = _counted(
        rows, set(taken)
    )  # before anything is joined, which depends on how long names are
    rows, outputs = [renamed(row, names) for row in rows], [renamed(text, names) for text in outputs]
    counts = Counter(word for row in [*rows, *outputs] for word in VARIABLE.findall(row))
    made: list[str] = []
    for row in rows:
        row = _with_before(made, row, counts)
        row = _with_before(made, _chosen(made, row, counts), counts)
        if not _unaliased(made, row, counts):
            made.append(row)
    names, _ = _counted(made, set(taken), words)
    return [renamed(row, names) for row in made], [renamed(text, names) for text in outputs]


def _with_before(made: list[str], row: str, counts: Counter[str]) -> str:
    """A row with the values that the rows before it make for it alone; these are taken away."""
    while made and (joined := _joined(made[-1], row, counts)) is not None:
        made.pop()
        row = joined
    return row


def _chosen(made: list[str], row: str, counts: Counter[str]) -> str:
    """A row that ends a choice between two values of one variable, as one statement; the rows before it are taken away.

    `if a: x = b` and `else: x = c` are `x = b if a else c`.
    """
    *_, test, first, other = ["", "", "", *made]
    found, beside, asked = _MADE.fullmatch(first), _MADE.fullmatch(row), _ASKED.fullmatch(test)
    if found is None or beside is None or asked is None or found[2] != beside[2]:
        return row
    inner = f"{asked[1]}    "
    if other != f"{asked[1]}else:" or found[1] != inner or beside[1] != inner:
        return row
    text = f"{asked[1]}{found[2]} = {found[3]} if {asked[2]} else {beside[3]}"
    if len(text) > CHOICE:
        return row
    del made[-3:]
    counts[found[2]] -= 1
    return text


def _unaliased(made: list[str], row: str, counts: Counter[str]) -> bool:
    """Whether a row only gives a value another name, which it then has from the start: what made it is written anew."""
    found = _MADE.fullmatch(row)
    if found is None or not VARIABLE.fullmatch(found[3]) or counts[found[3]] != 2:
        return False
    for at in reversed(range(len(made))):
        before = _MADE.fullmatch(made[at])
        if len(made[at]) - len(made[at].lstrip()) < len(found[1]) or found[2] in VARIABLE.findall(made[at]):
            return False  # outside of the branch, or the name has another value there
        if before is not None and before[1] == found[1] and before[2] == found[3]:
            made[at] = f"{found[1]}{found[2]} = {before[3]}"
            return True
    return False


def used(rows: list[str], outputs: list[str]) -> list[int]:
    """The places of rows without those that make what nothing reads: no row does anything else."""
    counts = Counter(word for row in [*rows, *outputs] for word in VARIABLE.findall(row))
    kept: list[int] = []
    for at in reversed(range(len(rows))):
        found = _MADE_ALL.fullmatch(rows[at])
        names = [name for name in WORD.findall(found[1]) if name != "_"] if found is not None else []
        words = Counter(VARIABLE.findall(rows[at]))
        if found is not None and all(counts[name] == words[name] == 1 for name in names):
            counts -= words
        else:
            kept.append(at)
    return kept[::-1]


def on_device(row: str, device: str) -> str:
    """A row whose new tensors are made on a device: torch makes them on its own otherwise."""
    tree = _tree(row) if any(f"torch.{word}(" in row for word in NEW) else None
    ends = [
        node.end_col_offset or 0
        for node in (ast.walk(tree) if tree is not None else ())
        if isinstance(node, ast.Call) and _is_new(node)
    ]
    indent = len(row) - len(row.lstrip())
    for end in sorted(ends, reverse=True):
        at = indent + end - 1
        row = f"{row[:at]}, device={device}{row[at:]}"
    return row


def _is_new(node: ast.Call) -> bool:
    of = node.func
    if not isinstance(of, ast.Attribute) or not isinstance(of.value, ast.Name) or of.value.id != "torch":
        return False
    return of.attr in NEW and all(word.arg != "device" for word in node.keywords)


def _tree(row: str) -> ast.stmt | None:
    text = row.strip()
    try:
        return ast.parse(f"{text} pass" if text.endswith(":") else text).body[0]
    except SyntaxError:  # `else:`
        return None


def _joined(before: str, row: str, counts: Counter[str]) -> str | None:
    """The row with the value that the one before makes for it alone; None where that is not so, or too long."""
    found = _MADE.fullmatch(before)
    if found is None or counts[found[2]] != 2 or not re.search(rf"\b{found[2]}\b", row):
        return None
    indent = len(row) - len(row.lstrip())
    if indent != len(found[1]) or len(row) + len(found[3]) > WIDTH + len(found[2]):
        return None
    tree = _tree(row)
    if not isinstance(tree, (ast.Assign, ast.If)):
        return None
    parents = {id(child): node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    names = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and node.id == found[2] and isinstance(node.ctx, ast.Load)
    ]
    if len(names) != 1:
        return None
    value = ast.parse(found[3], mode="eval").body
    text = found[3] if _stands(value, names[0], parents[id(names[0])]) else f"({found[3]})"
    at = indent + names[0].col_offset
    return row[:at] + text + row[at + len(found[2]) :]


def _stands(value: ast.expr, name: ast.Name, around: ast.AST) -> bool:
    """Whether an expression can stand in the place of a name as it is."""
    if isinstance(value, (ast.Name, ast.Attribute, ast.Call, ast.Subscript)):
        return True
    if isinstance(around, ast.BinOp) and isinstance(value, ast.BinOp):
        own, other = _RANKS.get(type(value.op), 0), _RANKS.get(type(around.op), 9)
        return own > other or (own == other and around.left is name and own < _RANKS[ast.Pow])
    is_called = isinstance(around, ast.Call) and around.func is name
    return isinstance(around, _FREE) and not is_called


def _counted(
    rows: list[str], taken: set[str], words: Mapping[str, str] | None = None
) -> tuple[dict[str, str], dict[str, str]]:
    """A new name for each that a row makes: its word, counted where there are several; and the word of each new name.

    `words` are those of names that have been counted before.
    """
    found: dict[str, str] = {}
    told: dict[str, str] = {}
    fixed = frozenset(taken)
    for name in _stored(rows):
        if name in found or name in fixed:
            continue
        word = (words or {}).get(name) or COUNT.sub("", name)
        word = name if not word or keyword.iskeyword(word) else word
        made, count = word, 1
        while made in taken or made == "_":
            count += 1
            made = f"{word}{count}" if not word[-1:].isdigit() else f"{word}_{count}"
        taken.add(made)
        found[name], told[made] = made, word
    return found, told


def _stored(rows: list[str]) -> Iterator[str]:
    """The names that rows make, in order."""
    for row in rows:
        tree = _tree(row)
        for node in ast.walk(tree) if tree is not None else ():
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                yield node.id


def renamed(row: str, names: dict[str, str]) -> str:
    """A row with other names for variables."""
    tree = _tree(row)
    if tree is None:
        return row
    indent = len(row) - len(row.lstrip())
    places = [
        (node.col_offset, node.id)
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and node.id in names
    ]
    for place, name in sorted(places, reverse=True):
        row = row[: indent + place] + names[name] + row[indent + place + len(name) :]
    return row
