"""One class in the making: lines with places for values, so that equal classes can be merged and unequal values passed in."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from mapper.architecture import Block, Fact, Place
from mapper.emission.config_class import symbol_name
from mapper.emission.expressions import expression, literal
from mapper.emission.identifiers import RESERVED
from mapper.emission.module_tree import Folder
from mapper.emission.ratios import Scaled
from mapper.emission.simpler import without_ones, without_sums_of_one
from mapper.flows.language import copied

# Before the names of sizes that are none of the block's own: `mapper.emission.width_names`.
FOLLOWED = "followed_"
LEFT_OUT = "\x05"  # in place of a value: the argument is not written
OPEN, CLOSE = "\x01", "\x02"  # around the number of an argument; no name that reaches the text holds them


# What a size is for, in the hint of an extent.
_FOR = re.compile(r"(in|out)_(channels|features)$|(?<=_)size$")


@dataclass
class Argument:
    """A value in a constructor: an expression over symbols, or a literal."""

    hint: str  # the parameter's name if the value has to be passed in
    value: Any = None
    expression: ast.expr | None = None  # over symbols of the draft
    symbols: dict[str, Fact] = field(default_factory=dict)
    usual: Any = None  # torch's own default: the argument is left out where it is no more than a number that is the same
    local: str = ""  # what a class calls the value that it works out more than once
    is_followed: bool = False  # no flow says what it is: its expression is of sizes that it has to equal
    default: Any = None  # the same of what no file says: no field of the config says it either

    def is_plain(self) -> bool:
        """Whether it is a number or a size as it is."""
        return self.expression is None or isinstance(self.expression, ast.Name)

    def key(self) -> str:
        """What must agree for two classes to be one; the values need not."""
        return f"{self.hint}:{self.expression_text()}"

    def expression_text(self) -> str:
        if isinstance(self.expression, ast.Name):  # most are: no text of another node is a name
            return self.expression.id
        return ast.dump(self.expression) if self.expression else ""

    def form(self) -> str:
        """What must agree for two drafts to be one class: what is followed to sizes is a number for all that."""
        return f"{self.hint}:" if self.is_followed else self.key()


@dataclass(eq=False)
class Draft:
    """The class of one folder: constructor lines, methods and the arguments both mention."""

    folder: Folder
    base: str = "nn.Module"
    lines: list[str] = field(default_factory=list)
    methods: list[str] = field(default_factory=list)  # finished text of each
    arguments: list[Argument] = field(default_factory=list)
    symbols: dict[str, Fact] = field(default_factory=dict)
    attributes: dict[str, str] = field(
        default_factory=dict
    )  # self.NAME that the methods read -> line that sets it
    children: dict[str, Place] = field(default_factory=dict)  # attribute -> the folder or leaf it holds
    own_names: set[str] = field(default_factory=set)  # symbols that are not called as their facts are
    needs_config: bool = False  # a child takes the config
    options: dict[str, str] = field(
        default_factory=dict
    )  # line that not every instance has -> mark of its switch
    loops: set[str] = field(default_factory=set)  # names that comprehensions bind
    unread: dict[str, str] = field(default_factory=dict)  # attribute that no forward reads -> why it is there
    scaled: Mapping[int, Scaled] = field(default_factory=dict)  # widths that are a multiple of others

    def place(self, argument: Argument) -> str:
        """The mark that stands for an argument in a line."""
        self.arguments.append(argument)
        return f"{OPEN}{len(self.arguments) - 1}{CLOSE}"

    def symbol(self, fact: Fact, prefix: str, name: str = "") -> str:
        """The name of a fact in this class; `prefix` tells two facts of one name apart."""
        name = name or symbol_name(fact.name)
        while name in self.symbols and self.symbols[name].value != fact.value:
            name = f"{prefix}_{name}"
        self.symbols.setdefault(name, fact)
        return name

    def size(self, hint: str, value: Any, node: ast.expr | None, facts: dict[str, Fact], prefix: str) -> str:
        """A mark for a value that an expression over facts gives; a literal where there is none."""
        if node is None:
            return self.place(Argument(hint, value))
        symbols: dict[str, Fact] = {}
        names: dict[str, ast.expr] = {}
        for name, fact in facts.items():
            symbol = self.followed(fact, hint) if name.startswith(FOLLOWED) else self.symbol(fact, prefix)
            names[name], read = self.written(fact, symbol, prefix)
            symbols |= read
        local = self.local_of(*facts.values()) if isinstance(node, (ast.Name, ast.Attribute)) else ""
        put = _Names(names).visit(copied(node))
        is_followed = any(name.startswith(FOLLOWED) for name in facts)
        return self.place(Argument(hint, value, put, symbols, local=local, is_followed=is_followed))

    def followed(self, fact: Fact, hint: str) -> str:
        """The name of a size that is another block's, after what it is for here: `in_channels`."""
        known = next((name for name, other in self.symbols.items() if other is fact), None)
        found = _FOR.search(hint)
        names = [found[0], hint] if found else [hint]
        names += [f"{hint}_{number}" for number in range(2, len(self.symbols) + 3)]
        name = known or next(name for name in names if name not in self.symbols)
        self.symbols[name] = fact
        self.own_names.add(name)
        return name

    def followed_argument(self, argument: Argument, hint: str) -> Argument:
        """What a child is given that is worked out of several sizes."""
        assert argument.expression is not None
        symbols = {name: self.followed(fact, hint) for name, fact in argument.symbols.items()}
        names: dict[str, ast.expr] = {name: ast.Name(symbol) for name, symbol in symbols.items()}
        facts = {symbols[name]: fact for name, fact in argument.symbols.items()}
        put = _Names(names).visit(copied(argument.expression))
        return Argument(hint, argument.value, put, facts, is_followed=True)

    def local_of(self, fact: Fact, *others: Fact) -> str:
        """What a class calls a width that it works out of another."""
        scaled = self.scaled_of(fact)
        return scaled.name if scaled is not None and not others else ""

    def scaled_of(self, fact: Fact) -> Scaled | None:
        """What a width is of another that the class knows."""
        scaled = self.scaled.get(id(fact))
        knows = scaled is not None and any(scaled.base is own for own in facts_of(self.folder))
        return scaled if knows else None

    def written(self, fact: Fact, symbol: str, prefix: str) -> tuple[ast.expr, dict[str, Fact]]:
        """A fact as an expression over symbols: by its own, or as so many times another that the class knows."""
        scaled = self.scaled_of(fact)
        if scaled is None:
            return ast.Name(symbol), {symbol: fact}
        base, ratio = self.symbol(scaled.base, prefix), self.symbol(scaled.ratio, prefix)
        symbols = {base: scaled.base, ratio: scaled.ratio}
        if scaled.is_part:
            return ast.BinOp(ast.Name(base), ast.FloorDiv(), ast.Name(ratio)), symbols
        return ast.BinOp(ast.Name(ratio), ast.Mult(), ast.Name(base)), symbols

    def attribute(self, fact: Fact, prefix: str) -> str:
        """`self.NAME` for a fact that a method reads; set in the constructor."""
        symbol = name = self.symbol(fact, prefix)
        while name in RESERVED or self.folder.has_attribute(name):
            name = f"{prefix}_{name}"
        if name not in self.attributes:
            mark = self.place(Argument(symbol, fact.value, ast.Name(symbol), {symbol: fact}))
            self.attributes[name] = f"self.{name} = {mark}"
        return f"self.{name}"

    def key(self) -> tuple[Any, ...]:
        """Equal for drafts that can be one class."""
        return *self.text(), tuple(argument.form() for argument in self.arguments), self.needs_config

    def text(self) -> tuple[Any, ...]:
        """What is written, with marks in place of the arguments."""
        return self.base, tuple(self.lines), tuple(self.attributes.values()), tuple(self.methods)


class _Names(ast.NodeTransformer):
    """`fact.head_dim` and `head_dim` become the symbol of that fact."""

    def __init__(self, names: Mapping[str, ast.expr]):
        self.names = names

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        from mapper.flows.language import dotted

        name = (dotted(node) or "").removeprefix("fact.")
        return self.names[name] if name in self.names else self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return self.names.get(node.id, node)


@dataclass(eq=False)
class ClassText:
    """A finished class: its name, and what its constructor must be given besides the config."""

    name: str
    drafts: list[Draft]
    parameters: dict[str, list[Argument]]  # parameter -> its value in each draft
    takes_config: bool
    resolved: list[str] = field(default_factory=list)  # text of each argument
    locals: dict[str, str] = field(default_factory=dict)  # name -> what the constructor works out once
    is_short: bool = False  # its parameters go without the name of the one child that they are for


def resolve(draft_list: list[Draft], field_of: Any) -> ClassText:
    """Arguments of equal drafts as text: a field of the config, a literal, or a parameter where the instances differ."""
    finished = ClassText("", draft_list, {}, draft_list[0].needs_config)
    for index in range(len(draft_list[0].arguments)):
        arguments = [draft.arguments[index] for draft in draft_list]
        finished.resolved.append(_argument_text(finished, arguments, field_of))
    return finished


def _argument_text(finished: ClassText, arguments: list[Argument], field_of: Any) -> str:
    if all(argument.default is not None and argument.value == argument.default for argument in arguments):
        return LEFT_OUT
    arguments = _without_ones(arguments)
    first = arguments[0]
    if len({argument.key() for argument in arguments}) > 1:
        is_number = any(argument.expression is None for argument in arguments)
        if is_number and all(argument.value == first.value for argument in arguments):
            return literal(first.value)
        return _parameter(finished, first.hint, arguments)
    if first.expression is None:
        if all(argument.value == first.value for argument in arguments):
            return literal(first.value)
        return _parameter(finished, first.hint, arguments)
    names: dict[str, str] = {}
    for symbol in first.symbols:
        facts = [argument.symbols[symbol] for argument in arguments]
        fields = {
            field_of(fact, draft.folder.tower) for fact, draft in zip(facts, finished.drafts, strict=True)
        }
        if len(fields) == 1 and None not in fields:
            names[symbol] = f"config.{fields.pop()}"
            finished.takes_config = True
        elif None in fields and all(fact.value == facts[0].value for fact in facts):
            names[symbol] = literal(facts[0].value)  # differs elsewhere, never here
        else:
            passed = [Argument(symbol, fact.value, ast.Name(symbol), {symbol: fact}) for fact in facts]
            names[symbol] = _parameter(finished, symbol, passed)
    whole = isinstance(first.value, tuple) and isinstance(
        first.expression, ast.Subscript | ast.BinOp | ast.ListComp
    )  # of a loop
    if names and not whole and all(symbol_is_literal(text) for text in names.values()):
        is_usual = first.usual is not None and first.value == first.usual
        return LEFT_OUT if is_usual else literal(first.value)
    put = _Names({symbol: ast.Name(text) for symbol, text in names.items()}).visit(copied(first.expression))
    return expression(without_sums_of_one(put), outer=isinstance(put, ast.Tuple))


def facts_of(folder: Folder) -> list[Fact]:
    """The facts of the blocks whose forward the folder's class holds."""
    return [fact for block in blocks_of(folder) for fact in block.facts.values()]


def blocks_of(folder: Folder) -> list[Block]:
    """Blocks whose forward the folder's class holds."""
    return ([folder.block] if folder.block else []) + folder.methods


def _without_ones(arguments: list[Argument]) -> list[Argument]:
    """Without factors of 1 that no file says: that something is once everywhere goes without saying."""
    first = arguments[0]
    alike = all(argument.key() == first.key() for argument in arguments)
    ones = {symbol for symbol in first.symbols if all(_is_one(a.symbols.get(symbol)) for a in arguments)}
    if first.expression is None or not alike or not ones or first.is_plain():
        return arguments
    shorter = without_ones(first.expression, ones)
    left = {node.id for node in ast.walk(shorter) if isinstance(node, ast.Name)}
    symbols = [{key: fact for key, fact in a.symbols.items() if key in left} for a in arguments]
    if not left:
        return arguments
    return [replace(a, expression=shorter, symbols=own) for a, own in zip(arguments, symbols, strict=True)]


def _is_one(fact: Fact | None) -> bool:
    return fact is not None and fact.value == 1 and fact.evidence in ("default", "rule")


def symbol_is_literal(text: str) -> bool:
    """Whether a symbol has become its value."""
    return not text.isidentifier() and not text.startswith("config.")


def _parameter(finished: ClassText, name: str, arguments: list[Argument]) -> str:
    """The parameter that gives these values: one for equal values of one fact, called after the fact if it can be."""
    values = [argument.value for argument in arguments]
    fact = fact_of(arguments)
    if fact is not None:
        for other, held in finished.parameters.items():
            known = fact_of(held)
            if known is not None and known.name == fact.name and [a.value for a in held] == values:
                return other
        short = symbol_name(fact.name)
        if any(_own(draft, argument) for draft, argument in zip(finished.drafts, arguments, strict=True)):
            found = _FOR.search(name)
            short = found[0] if found else name
        name = name if short in finished.parameters else short
    loops = {loop for draft in finished.drafts for loop in draft.loops}
    while name in loops or (
        name in finished.parameters and [a.value for a in finished.parameters[name]] != values
    ):
        name = f"{name}_2"
    finished.parameters.setdefault(name, arguments)
    return name


def _own(draft: Draft, argument: Argument) -> bool:
    """Whether a class calls an argument by what it is for there, not by its fact."""
    return not draft.own_names.isdisjoint(argument.symbols)


def fact_of(arguments: list[Argument]) -> Fact | None:
    """The fact whose values a parameter has, and after which it is called."""
    return next(iter(arguments[0].symbols.values()), None)
