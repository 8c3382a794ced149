"""Modules with a forward of their own as classes; those that do the same are one."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise

from mapper.emission.identifiers import camel
from mapper.emission.line_breaks import lines
from mapper.emission.printing import WIDTH
from mapper.graphs.straight.blocks import Block, Call, Path, Statement, Step
from mapper.graphs.straight.tidying import WORD, on_device, renamed, tidy
from mapper.graphs.straight.weights import Tree, is_list, kind_of, path_text

PAD = "        "  # of a statement in a forward
DEVICE = "device"  # the variable
GIVEN = "given_"  # what a class takes, until all of its calls are known
HINTS = {"attn_mask": "mask"}  # keywords of torch's calls, and what is given there
ATTENTION = "scaled_dot_product_attention"
TAKES = {"rotary": ("", "cos", "sin"), f"F.{ATTENTION}": ("query", "key", "value")}  # by place
USUAL = ("x", "y", "z")


@dataclass
class Written:
    """A class: what its forward takes, its statements, and what it gives."""

    name: str
    members: list[str]
    rows: list[str]
    gives: list[str]
    kinds: list[str]  # of each value that is taken: Tensor or int
    words: list[set[str]]  # what its callers call it
    base: str

    def text(self) -> str:
        """The whole class."""
        names = self.names()
        table = {f"{GIVEN}{at}": name for at, name in enumerate(names)}
        taken = [f"{name}: {kind}" for name, kind in zip(names, self.kinds, strict=True)]
        given = "Tensor" if len(self.gives) == 1 else f"tuple[{', '.join(['Tensor'] * len(self.gives))}]"
        return "\n".join([
            f"class {self.name}({self.base}):", "    def __init__(self) -> None:", "        super().__init__()", *broken(self.members), "",
            *signature(["self", *taken], given),
            *broken([
                *(renamed(row, table) for row in self.rows),
                f"{PAD}return {', '.join(renamed(one, table) for one in self.gives)}",
            ]),
        ])  # fmt: skip

    def names(self) -> list[str]:
        """What each value is called: as by every caller, where that says something."""
        known = {word for row in [*self.rows, *self.gives] for word in WORD.findall(row)}
        found: list[str] = []
        for words in self.words:
            word = next(iter(words)) if len(words) == 1 else ""
            said = [
                word,
                *(f"{word}{count}" for count in range(2, len(self.words)) if word),
                *USUAL,
                *(f"x{count}" for count in range(2, len(self.words) + 2)),
            ]
            found.append(next(one for one in said if one and one not in known and one not in found))
        return found


def broken(rows: list[str]) -> list[str]:
    """Statements whose lines are no longer than they may be."""
    return [line for row in rows for line in lines(row.lstrip(), len(row) - len(row.lstrip()))]


def signature(names: list[str], given: str) -> list[str]:
    """The head of a forward."""
    row = f"    def forward({', '.join(names)}) -> {given}:"
    if len(row) <= WIDTH:
        return [row]
    return ["    def forward(", *(f"        {name}," for name in names), f"    ) -> {given}:"]


def called_for(rows: list[str], inputs: Iterable[str]) -> dict[str, str]:
    """What variables are called for how they are used: what attention takes, and cosines and sines."""
    found = dict.fromkeys(inputs, "")
    for row in rows:
        if "rotary(" not in row and ATTENTION not in row:
            continue
        for call in ast.walk(ast.parse(row.strip())):
            words = TAKES.get(ast.unparse(call.func), ()) if isinstance(call, ast.Call) else ()
            if isinstance(call, ast.Call) and words:
                pairs = [
                    *zip(words, call.args, strict=False),
                    *((HINTS.get(one.arg or "", ""), one.value) for one in call.keywords),
                ]
                for word, value in pairs:
                    if word and isinstance(value, ast.Name):
                        found.setdefault(value.id, word)
    return {name: word for name, word in found.items() if word}


class Classes:
    """Every class of a file, the inner ones first. `sizes` are the names of whole numbers."""

    def __init__(
        self, tree: Tree, members: Callable[[Tree, Path], list[str]], sizes: set[str], taken: set[str]
    ):
        self.tree, self.members, self.sizes, self.taken = tree, members, sizes, taken
        self.words: dict[str, str] = {}  # what variables are called that say something
        self.of: dict[Path, str] = {}
        self.found: dict[str, Written] = {}

    def rows(self, block: Block) -> list[str]:
        """The statements of a forward, as they are written in it. The classes that it calls are written first."""
        for step in block.steps:
            if isinstance(step, Call):
                self._enter(step.block)
        found: list[str] = []
        steps = block.steps
        at = 0
        while at < len(steps):
            run = self._run(block, steps, at)
            if run:
                found += self._loop(block, run)
                at += len(run)
                continue
            found.append(PAD + self._text(block, steps[at]))
            at += 1
        return found

    def _text(self, block: Block, step: Step) -> str:
        if isinstance(step, Statement):
            return self._local(block, step.text)
        return f"{', '.join(step.makes)} = {self._place(block, step.block.path)}({', '.join(step.given)})"

    def _place(self, block: Block, path: Path) -> str:
        return f"self{path_text(self.tree, '.'.join(path))[len(self._prefix(block)) :]}"

    def _prefix(self, block: Block) -> str:
        return path_text(self.tree, ".".join(block.path)) if block.path else "self"

    def _local(self, block: Block, text: str) -> str:
        """A statement as the module says it, whose own `self` is what it names."""
        prefix = self._prefix(block)
        ends = [
            (node.col_offset, node.end_col_offset or 0)
            for node in ast.walk(ast.parse(text))
            if isinstance(node, (ast.Attribute, ast.Subscript))
            and text[node.col_offset : node.end_col_offset] == prefix
        ]
        for start, end in sorted(ends, reverse=True):
            text = f"{text[:start]}self{text[end:]}"
        return text

    def _run(self, block: Block, steps: list[Step], at: int) -> list[Call]:
        """The calls of all modules of a list, one after the other, each with what the one before gives."""
        first = steps[at]
        if not isinstance(first, Call) or first.block.path[-1] != "0":
            return []
        home = self._held(first.block.path[:-1])
        if not is_list(home):
            return []
        run = [step for step in steps[at : at + len(home.children)] if isinstance(step, Call)]
        paths = [(*first.block.path[:-1], str(place)) for place in range(len(home.children))]
        if len(run) < 2 or [step.block.path for step in run] != paths:
            return []
        is_same = len({self.of[path] for path in paths}) == 1 and all(len(step.makes) == 1 for step in run)
        return run if is_same and self._is_chain(block, steps, run) else []

    def _is_chain(self, block: Block, steps: list[Step], run: list[Call]) -> bool:
        if len({len(step.given) for step in run}) > 1:
            return False
        moving = _moving(run)
        if len(moving) != 1 or any(run[0].given.count(run[0].given[at]) > 1 for at in moving):
            return False
        for before, step in pairwise(run):
            (name,) = before.makes
            others = [one for one in steps if one is not step and name in one.reads]
            if step.given[moving[0]] != name or step.given.count(name) > 1 or others or name in block.gives:
                return False
        return True

    def _loop(self, block: Block, run: list[Call]) -> list[str]:
        (moving,), (name,) = _moving(run), run[-1].makes
        word = f"{_snake(self.of[run[0].block.path])}__"
        given = [name if at == moving else one for at, one in enumerate(run[0].given)]
        place = self._place(block, run[0].block.path[:-1])
        return [
            f"{PAD}{name} = {run[0].given[moving]}", f"{PAD}for {word} in {place}:", f"{PAD}    {name} = {word}({', '.join(given)})"
        ]  # fmt: skip

    def _held(self, path: Path) -> Tree:
        tree = self.tree
        for word in path:
            child = tree.children[word]
            assert isinstance(child, Tree)
            tree = child
        return tree

    def _enter(self, block: Block) -> None:
        """The class of a block: one that is there and does the same, or another."""
        table = {name: f"{GIVEN}{at}" for at, name in enumerate(block.takes)}
        rows = [renamed(row, table) for row in self.rows(block)]
        rows, gives = tidy(rows, list(block.gives), {*self.taken, *table.values(), "_"})
        rows, gives = _returned(rows, gives)
        rows, gives = placed(
            rows, gives, next((table[name] for name in block.takes if name not in self.sizes), "")
        )
        tree = self._held(block.path)
        members = self.members(tree, block.path)
        kinds = ["int" if name in self.sizes else "Tensor" for name in block.takes]
        key = "\n".join([*members, "", *rows, *gives, *kinds])
        if key not in self.found:
            words: list[set[str]] = [set() for _ in kinds]
            name = self._name(block.path)
            self.found[key] = Written(name, members, rows, gives, kinds, words, kind_of(tree))
        known = self.found[key]
        self.of[block.path] = known.name
        for called, name in zip(known.words, block.takes, strict=True):
            called.add(self.words.get(name, ""))

    def _name(self, path: Path) -> str:
        """A free name: `layers.0.self_attn` is a SelfAttn, `layers.0` a Layer."""
        word = next((word for word in reversed(path) if not word.isdigit()), "block")
        if path[-1].isdigit() and len(word) > 2:
            word = word.removesuffix("s")
        base = {"Model": "Body"}.get(camel(word), camel(word)) if len(word) > 1 else "Block"
        names = {*self.taken, *(one.name for one in self.found.values()), *dir(builtins)}
        made, count = base, 1
        while made in names:
            count += 1
            made = f"{base}{count}"
        return made

    def texts(self) -> list[str]:
        """The classes, each after those that it calls."""
        return [one.text() for one in self.found.values()]


def _moving(run: list[Call]) -> list[int]:
    """The places at which calls are given different values."""
    return [at for at in range(len(run[0].given)) if len({step.given[at] for step in run}) > 1]


def _snake(name: str) -> str:
    made = "".join(f"_{char.lower()}" if char.isupper() else char for char in name).strip("_")
    return made.rstrip("0123456789_") or "block"


def _returned(rows: list[str], gives: list[str]) -> tuple[list[str], list[str]]:
    """A last value that is given as it is made needs no name."""
    start = f"{PAD}{gives[0]} = " if len(gives) == 1 and rows else ""
    if not start or not rows[-1].startswith(start):
        return rows, gives
    return rows[:-1], [rows[-1][len(start) :]]


def placed(rows: list[str], outputs: list[str], first: str) -> tuple[list[str], list[str]]:
    """The rows, whose new tensors are on the device of what is given first; without that torch's own choice holds."""
    made = [on_device(row, DEVICE) for row in rows] if first else rows
    told = [on_device(text, DEVICE) for text in outputs] if first else outputs
    is_used = made != rows or told != outputs
    return [*([f"{PAD}{DEVICE} = {first}.device"] if is_used else []), *made], told


def are_plain(rows: Iterable[str]) -> bool:
    """Whether rows are plain statements, one after the other."""
    return all(row.startswith(PAD) and row[len(PAD)] != " " and not row.endswith(":") for row in rows)
