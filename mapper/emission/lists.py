"""What stands in lists and dicts of modules: a comprehension where it can be, and each element by itself where not."""

from __future__ import annotations

import ast
from dataclasses import dataclass, replace
from itertools import accumulate, groupby

from mapper.architecture import Fact, Leaf
from mapper.emission.classes import NAME_CLOSE, named_place, word_of
from mapper.emission.config_class import symbol_name
from mapper.emission.drafts import Argument, Draft
from mapper.emission.expressions import literal
from mapper.emission.kinds import MOST, fact_of_kind, kinds_of, told_by
from mapper.emission.module_tree import Folder
from mapper.emission.parameters import is_extent
from mapper.emission.paths import is_number
from mapper.emission.rolled import (
    FEWEST,
    Column,
    column,
    column_of,
    firsts_and_others,
    indexed,
    is_beside,
    padding_text,
    period,
    plain_hint,
    put_marks,
    repeated,
    same_argument,
    split_marks,
)
from mapper.emission.rounds import InRounds
from mapper.emission.runs import COUNT
from mapper.emission.settings import INDEX
from mapper.emission.stages import INPUTS, WIDTHS

FEW_OF_A_CLASS = 3  # elements of one class among others; of fewer each is written by itself
ELEMENT = "layer"  # what a loop over runs calls each of their layers


@dataclass(eq=False)
class Classes(InRounds):
    """The classes of a module tree, with all that their lists hold."""

    def container_items(self, draft: Draft, folder: Folder) -> str:
        """What stands in the brackets of nn.ModuleList or nn.ModuleDict."""
        if folder.is_sequence:
            return self.sequence(draft, folder)
        if alike := self.alike(draft, folder):
            return alike
        items = [*folder.children.items()]
        rounds = self.in_rounds(draft, folder)
        if rounds is None:
            pairs = self.pairs(draft, folder, items)
        else:
            before, behind = items[: rounds[0].start], items[rounds[0].end :]
            pairs = [*self.pairs(draft, folder, before), rounds[1], *self.pairs(draft, folder, behind)]
        return "{" + ", ".join(pairs) + "}"

    def pairs(
        self, draft: Draft, folder: Folder, items: list[tuple[str | tuple[int, ...], Folder | Leaf]]
    ) -> list[str]:
        """What stands in the brackets of nn.ModuleDict for these children."""
        pairs = []
        for key, child in items:
            if isinstance(key, tuple) and len(key) > 1 and key == tuple(range(len(key))):
                each = f"str({INDEX}): {self.child(draft, child, 'item_0')}"
                draft.loops.add(INDEX)
                pairs.append(f"**{{{each} for {INDEX} in range({self.count(draft, folder, len(key))})}}")
                continue
            for name in [key] if isinstance(key, str) else map(str, key):
                word = self.paths.attribute(name)
                pairs.append(
                    f"{literal(word)}: {self.child(draft, child, word if not is_number(word) else f'item_{word}')}"
                )
        return pairs

    def alike(self, draft: Draft, folder: Folder) -> str:
        """Children of one class and with the same values, by the numbers in their names; empty where they differ."""
        children = [child for child in folder.children.values() if isinstance(child, Folder)]
        classes = {self.of_folder.get(id(child)) for child in folder.children.values()}
        if not folder.stem or len(classes) != 1 or None in classes:
            return ""
        given = [self.arguments(child) for child in children]
        values = [{name: argument.value for name, argument in item.items()} for item in given]
        if any(item != values[0] for item in values):
            return ""
        call, count = self.call(draft, children[0], given[0]), self.count(draft, folder, len(children))
        return f'{{f"{folder.stem}{{index}}": {call} for index in range({count})}}'

    def sequence(self, draft: Draft, folder: Folder) -> str:
        groups = [(key, child) for key, child in folder.children.items() if isinstance(key, tuple)]
        classes = {self.of_folder.get(id(child)) for _, child in groups}
        roles = {child.block.role for _, child in groups if isinstance(child, Folder) and child.block}
        if len(classes) == 1 and None not in classes and len(roles) <= 1:
            return self.same_class(draft, folder, groups)
        differing = [names for _, child in groups for names in self.by_element(child, len(folder.place))]
        if differing and len(groups) == 1 and not any("kernel" in names for names in differing):
            draft.loops.add(INDEX)
            each = self.element(draft, folder, *groups[0])
            return f"{each} for {INDEX} in range({self.count(draft, folder, len(groups[0][0]))})"
        if not differing and (rolled := self.rolled(draft, folder)):
            return rolled
        if differing:  # equal as their tensors may be
            groups = [((index,), child) for key, child in groups for index in key]
        if comprehension := self.leaves(draft, folder, groups) or self.in_part(draft, folder, groups):
            return comprehension
        texts = {key: self.element(draft, folder, key[:1], child) for key, child in groups}
        order = sorted((index, key) for key in texts for index in key)
        if len(texts) == 1 and len(order) > 1:
            return f"{next(iter(texts.values()))} for _ in range({self.count(draft, folder, len(order))})"
        runs: list[list[tuple[int, ...]]] = []
        for _, key in order:
            if runs and runs[-1][0] == key:
                runs[-1].append(key)
            else:
                runs.append([key])
        if len(runs) > 2 and (chosen := self.chosen(draft, folder, texts, order)):
            return chosen
        parts = [
            texts[run[0]]
            if len(run) == 1 and not (run is runs[-1] and self.repeats(folder, runs))
            else f"*({texts[run[0]]} for _ in range({self.run_length(draft, folder, len(run), len(order), runs, start)}))"
            for run, start in zip(runs, accumulate(map(len, runs), initial=0), strict=False)
        ]
        return f"[{', '.join(parts)}]"

    def leaves(
        self, draft: Draft, folder: Folder, groups: list[tuple[tuple[int, ...], Folder | Leaf]]
    ) -> str:
        """Leaves of one kind as a loop over what differs; empty where they are few, or differ in more than numbers."""
        order = sorted((index, key, child) for key, child in groups for index in key)
        if len(groups) < FEWEST or not all(isinstance(child, Leaf) for _, child in groups):
            return ""
        before = len(draft.arguments)
        made = [split_marks(self.element(draft, folder, (index,), child)) for index, _, child in order]
        rows = [[draft.arguments[number] for number in numbers] for _, numbers in made]
        del draft.arguments[before:]
        if len({text for text, _ in made}) > 1:
            return ""
        loop: dict[str, str] = {}  # name -> what it goes through
        passed: dict[str, tuple[int, ...]] = {}  # and the numbers that it is
        columns = [[*one] for one in zip(*rows, strict=True)]
        last = sorted(range(len(columns)), key=lambda at: columns[at][0].hint.endswith(INPUTS))
        made_of = {at: self.in_loop(draft, folder, columns[at], loop, passed) for at in last}
        given = [made_of[at] for at in range(len(columns))]
        loop = {name: loop[name] for name in given if name in loop}
        if None in given or not loop:
            del draft.arguments[before:]
            return ""
        draft.loops.update(loop)
        head = f"{', '.join(loop)} in zip({', '.join(loop.values())}, strict=True)"
        if len(loop) == 1:
            head = f"{next(iter(loop))} in {next(iter(loop.values()))}"
        return f"{put_marks(made[0][0], [text or '' for text in given])} for {head}"

    def in_loop(
        self,
        draft: Draft,
        folder: Folder,
        arguments: list[Argument],
        loop: dict[str, str],
        passed: dict[str, tuple[int, ...]],
    ) -> str | None:
        """An argument of all elements: one and the same, or what a loop calls it; None where neither is."""
        if all(same_argument(argument, arguments[0]) for argument in arguments):
            return draft.place(arguments[0])
        values, name = tuple(argument.value for argument in arguments), plain_hint(arguments[0].hint)
        if not all(type(value) is int for value in values) or name in loop:
            return None
        if name == "padding" and (text := padding_text(values, passed)):
            return text
        passed[name] = values
        loop[name] = self.each(draft, folder, name, arguments)
        return name

    def rolled(self, draft: Draft, folder: Folder) -> str:
        """Runs that begin with one class and go on with another, as a loop over their sizes; empty where they do not."""
        counts = self.stages.counts.get(folder.place, [])
        runs = firsts_and_others(folder, counts)
        depth = column_of(self.stages, [*counts]) if counts else None
        if not runs or depth is None:
            return ""
        firsts, others = [first for first, _ in runs], [other for _, other in runs if other is not None]
        classes = [{self.of_folder.get(id(child)) for child in some} for some in (firsts, others)]
        if not others or None in classes[0] | classes[1] or max(map(len, classes)) > 1:
            return ""
        columns = self.columns([self.arguments(first) for first in firsts])
        if not columns or COUNT in columns:
            return ""
        given = self.same_columns(columns, [self.arguments(other) if other else None for _, other in runs])
        if given is None:
            return ""
        columns[COUNT] = depth
        draft.loops.update({*columns, ELEMENT})
        first = self.call(draft, firsts[0], self.arguments(firsts[0]), {name: name for name in columns})
        other = self.call(draft, others[0], self.arguments(others[0]), given)
        marks = []
        for name, found in columns.items():
            fact = found.listed.fact
            symbol = draft.symbol(fact, word_of(folder), f"{word_of(folder)}_{name}")
            values = tuple(fact.value[at] for at in found.places)
            marks.append(draft.place(Argument(symbol, values, found.expression(symbol), {symbol: fact})))
        loop = f"for {', '.join(columns)} in zip({', '.join(marks)}, strict=True)"
        return f"{ELEMENT} {loop} for {ELEMENT} in [{first}, *({other} for _ in range({COUNT} - 1))]"

    def columns(self, order: list[dict[str, Argument]]) -> dict[str, Column]:
        """The lists that the parameters in which elements differ are of; none where one is of no list."""
        varying = [name for name in order[0] if len({repr(given[name].value) for given in order}) > 1]
        found = {name: column(self.stages, [given[name] for given in order]) for name in varying}
        return {name: one for name, one in found.items() if one} if all(found.values()) else {}

    def same_columns(
        self, columns: dict[str, Column], order: list[dict[str, Argument] | None]
    ) -> dict[str, str] | None:
        """Which of the columns each parameter has that differs, of the elements that are there; None where it has none."""
        there = [(at, given) for at, given in enumerate(order) if given]
        names: dict[str, str] = {}
        for name, argument in there[0][1].items():
            if all(given[name].value == argument.value for _, given in there) and len(there) > 1:
                continue
            own = [(at, column(self.stages, [given[name]])) for at, given in there]
            same = (
                word
                for word, whole in columns.items()
                if all(one and one == Column(whole.listed, whole.places[at : at + 1]) for at, one in own)
            )
            word = next(same, None)
            if word is None:
                return None
            names[name] = word
        return names

    def repeats(self, folder: Folder, runs: list[list[tuple[int, ...]]]) -> bool:
        """Whether what stands behind a first element is once here, and as often or more often in other stages."""
        fact = self.counts.get(folder.place)
        if fact is None or len(runs) != 2 or len(runs[0]) != 1:
            return False
        alike = [
            other for other in self.counts.values() if (other.name, other.value) == (fact.name, fact.value)
        ]
        return bool(self.stages.element(fact)) or (fact.value == len(runs) and len(alike) > 1)

    def same_class(
        self, draft: Draft, folder: Folder, groups: list[tuple[tuple[int, ...], Folder | Leaf]]
    ) -> str:
        """Elements of one class: a comprehension, over the values in which they differ."""
        first = groups[0][1]
        assert isinstance(first, Folder)
        by_index = {
            index: self.arguments(child)
            for key, child in groups
            if isinstance(child, Folder)
            for index in key
        }
        order = [by_index[index] for index in sorted(by_index)]
        varying = [
            name
            for name in order[0]
            if any(arguments[name].value != order[0][name].value for arguments in order)
        ]
        of_first = [True] + [False] * (len(order) - 1)  # a child of the first element alone
        is_of_first = [[given[name].value for given in order] for name in varying] == [of_first]
        if varying and not is_of_first:
            return self.over(draft, folder, first, order, varying)
        draft.loops.update(["index == 0"] if is_of_first else [])
        call = self.call(draft, first, order[0], dict.fromkeys(varying, "index == 0"))
        if len(order) == 1 and folder.place not in self.counts:
            return f"[{call}]"
        return f"{call} for {'index' if varying else '_'} in range({self.count(draft, folder, len(order))})"

    def over(
        self,
        draft: Draft,
        folder: Folder,
        first: Folder,
        order: list[dict[str, Argument]],
        varying: list[str],
    ) -> str:
        """Elements of one class over the values in which they differ."""
        given = {name: name for name in varying}
        draft.loops.update(varying)
        call = self.call(draft, first, order[0], given)
        last = sorted(varying, key=lambda name: name.endswith(INPUTS))  # by what the others give
        made = {name: self.each(draft, folder, name, [a[name] for a in order]) for name in last}
        marks = [made[name] for name in varying]
        if len(varying) == 1:
            return f"{call} for {varying[0]} in {marks[0]}"
        return f"{call} for {', '.join(varying)} in zip({', '.join(marks)}, strict=True)"

    def in_part(
        self, draft: Draft, folder: Folder, groups: list[tuple[tuple[int, ...], Folder | Leaf]]
    ) -> str:
        """Several elements of one class as a loop over lists, each of the others by itself; empty where there is no such."""
        order = sorted((index, key, child) for key, child in groups for index in key)
        parts = [
            [child for _, _, child in same]
            for _, same in groupby(order, key=lambda item: self.kind_of(item[2]))
        ]
        loops = [self.loops_of(part) if len(part) > 1 else [] for part in parts]
        alone = [part for part, loop in zip(parts, loops, strict=True) if not loop]
        if len(alone) == len(parts) or any(len(part) > 1 for part in alone):
            return ""
        texts, at = [], 0
        for part, varying in zip(parts, loops, strict=True):
            first = part[0]
            if varying and isinstance(first, Folder):
                given = [self.arguments(child) for child in part if isinstance(child, Folder)]
                texts.append(f"*({self.over(draft, folder, first, given, varying)})")
            else:
                texts.append(self.element(draft, folder, (order[at][0],), first))
            at += len(part)
        return f"[{', '.join(texts)}]"

    def kind_of(self, child: Folder | Leaf) -> int:
        """What elements of a list of one class have in common."""
        return self.of_folder.get(id(child), -id(child))

    def loops_of(self, part: list[Folder | Leaf]) -> list[str]:
        """The parameters in which elements of one class differ, where each is a part of a list of the Config."""
        folders = [child for child in part if isinstance(child, Folder) and id(child) in self.of_folder]
        if len(folders) < len(part) or len(part) < FEW_OF_A_CLASS:
            return []
        return [*self.columns([self.arguments(folder) for folder in folders])]

    def each(self, draft: Draft, folder: Folder, name: str, arguments: list[Argument]) -> str:
        """The values of one parameter, an element's each: a list of the config that has them, or numbers."""
        values = tuple(item.value for item in arguments)
        facts = [next(iter(item.symbols.values()), None) if item.is_plain() else None for item in arguments]
        if (whole := indexed(arguments)) is not None:
            symbol = draft.symbol(whole, word_of(folder), f"{word_of(folder)}_{name}")
            return draft.place(Argument(symbol, values, ast.Name(symbol), {symbol: whole}))
        found = self.stages.list_of(facts)
        if found is None and (row := column_of(self.stages, facts)):
            symbol = draft.symbol(row.listed.fact, word_of(folder), f"{word_of(folder)}_{name}")
            return draft.place(Argument(symbol, values, row.expression(symbol), {symbol: row.listed.fact}))
        if found is None and (some := self.stages.some_of(facts)):
            symbol = draft.symbol(some[0], word_of(folder), f"{word_of(folder)}_{name}")
            if loop := repeated(symbol, some[1], len(some[0].value)):
                return draft.place(Argument(symbol, values, loop, {symbol: some[0]}))
            items: list[ast.expr] = [ast.Subscript(ast.Name(symbol), ast.Constant(at)) for at in some[1]]
            return draft.place(Argument(symbol, values, ast.Tuple(items), {symbol: some[0]}))
        if found is None:
            return self.numbers_of(draft, folder, name, arguments)
        size, is_shifted = found
        symbol = draft.symbol(size, word_of(folder), f"{word_of(folder)}_{name}")
        node: ast.expr = ast.Name(symbol)
        symbols = {symbol: size}
        if is_shifted:  # `[3, *config.hidden_sizes[:-1]]`
            but_last = ast.Slice(None, ast.UnaryOp(ast.USub(), ast.Constant(1)))
            first: ast.expr = ast.Constant(values[0])
            if entry := self.stages.entries.get(id(facts[0])):
                first = ast.Name(draft.symbol(entry, word_of(folder)))
                symbols[first.id] = entry
            elif (before := facts[0]) is not None:
                first = ast.Name(draft.followed(before, arguments[0].hint))
                symbols[first.id] = before
            node = ast.List([first, ast.Starred(ast.Subscript(node, but_last))])
        return draft.place(Argument(symbol, values, node, symbols))

    def numbers_of(self, draft: Draft, folder: Folder, name: str, arguments: list[Argument]) -> str:
        """Numbers that no list has, as one that the Config has; what is no size of its own stays where it is."""
        word, values = named_place(folder), tuple(argument.value for argument in arguments)
        facts = [next(iter(item.symbols.values()), None) if item.is_plain() else None for item in arguments]
        is_number = all(type(value) in (int, float) for value in values)
        if is_number and name.endswith(WIDTHS) and (row := self.of_previous(draft, word, arguments)):
            return draft.place(row)
        if not is_number or is_extent(name) or name.endswith(INPUTS):
            return draft.place(Argument(f"{word}_{name}", values))
        place, times = str(folder.place), period(values)
        values = values[: len(values) // times]
        made = Fact(
            f"{word}.{name.removesuffix('s')}s", [*values], place, "shape", f"{place}: {name} of each"
        )
        made = next((other for other in self.stages.made if other.name == made.name), made)
        if made.value != [*values]:
            return draft.place(Argument(f"{word}_{name}", values * times))
        if (first := facts[0]) is not None and all(fact and fact.name == first.name for fact in facts):
            source = f"{first.source} and {len(facts) - 1} more"
            made = replace(made, evidence=first.evidence, source=source, rule=first.rule)
        self.stages.made.append(made)
        symbol = draft.symbol(made, word, f"{word}_{name.removesuffix('s')}s")
        node: ast.expr = ast.Name(symbol)
        if times > 1:
            node = ast.BinOp(node, ast.Mult(), ast.Constant(times))
        return draft.place(Argument(symbol, values * times, node, {symbol: made}))

    def of_previous(self, draft: Draft, word: str, arguments: list[Argument]) -> Argument | None:
        """Widths of elements that are those of the ones before, or after, as a list says that was made of these."""
        values = tuple(argument.value for argument in arguments)
        made = next((made for made in self.stages.made if is_beside(made, word, values)), None)
        if made is None:
            return None
        symbol = draft.symbol(made, word, made.name.replace(".", "_"))
        one, symbols = ast.Constant(1), {symbol: made}
        if values[1:] == tuple(made.value[:-1]):
            end, cut = arguments[0], ast.Slice(None, ast.UnaryOp(ast.USub(), one))
        else:
            end, cut = arguments[-1], ast.Slice(one, None)
        last: ast.expr = ast.Constant(end.value)
        if end.is_plain() and (fact := next(iter(end.symbols.values()), None)):
            last = ast.Name(draft.followed(fact, end.hint))
            symbols[last.id] = fact
        rest = ast.Starred(ast.Subscript(ast.Name(symbol), cut))
        row = [rest, last] if end is arguments[-1] else [last, rest]
        return Argument(symbol, values, ast.List(row), symbols)

    def chosen(
        self,
        draft: Draft,
        folder: Folder,
        texts: dict[tuple[int, ...], str],
        order: list[tuple[int, tuple[int, ...]]],
    ) -> str:
        """Elements of a few classes that take turns: which is where, by the numbers of all but the most usual one."""
        fact = self.counts.get(folder.place)
        if (
            fact is None
            or fact.value != len(order)
            or not all(text.endswith(f"{NAME_CLOSE}(config)") for text in texts.values())
        ):
            return ""
        keys = sorted(texts, key=len)
        if len(keys) > MOST:
            return ""
        if len(keys) == 2 and (listed := self.by_entries(draft, folder, texts, keys)):
            return listed
        kinds = kinds_of(folder, keys)
        text = texts[keys[-1]] if kinds else ""
        for kind in reversed(kinds):
            made = fact_of_kind(folder, kind, word_of(folder))
            self.stages.made.append(made)
            symbol = draft.symbol(made, word_of(folder), made.name.replace(".", "_"))
            mark = draft.place(Argument(symbol, tuple(kind.numbers), ast.Name(symbol), {symbol: made}))
            text = f"{texts[kind.key]} if {INDEX} in {mark} else {text}"
        draft.loops.add(INDEX)
        each = f"for {INDEX} in range({self.count(draft, folder, len(order))})"
        return f"{text} {each}" if kinds else ""

    def by_entries(
        self, draft: Draft, folder: Folder, texts: dict[tuple[int, ...], str], keys: list[tuple[int, ...]]
    ) -> str:
        """Elements of two classes by a list of the config with an entry for each; empty where there is none."""
        listed, (rare, usual) = self.lengths.get(folder.place), keys
        value = None if listed is None else told_by(listed, rare, usual)
        if listed is None or value is None:
            return ""
        symbol = draft.symbol(listed, word_of(folder))
        mark = draft.place(Argument(symbol, tuple(listed.value), ast.Name(symbol), {symbol: listed}))
        word = "kind" if isinstance(value, str) else symbol_name(listed.name)
        draft.loops.add(word)
        test = f"{word} == {literal(value)}" if isinstance(value, str) else word if value else f"not {word}"
        return f"{texts[rare]} if {test} else {texts[usual]} for {word} in {mark}"

    def run_length(
        self,
        draft: Draft,
        folder: Folder,
        number: int,
        total: int,
        runs: list[list[tuple[int, ...]]],
        start: int,
    ) -> str:
        """How many equal elements stand in a row: all but the others, where these are once each."""
        if own := self.rest_of_run(draft, folder, number, start):
            return own
        fact = self.counts.get(folder.place)
        is_only = sum(len(run) > 1 for run in runs) < 2
        listed = self.lengths.get(folder.place)
        if listed is not None and len(listed.value) == total and is_only:
            symbol = draft.symbol(listed, word_of(folder))
            whole = ast.Call(ast.Name("len"), [ast.Name(symbol)], [])
            rest = ast.BinOp(whole, ast.Sub(), ast.Constant(total - number))
            return draft.place(Argument(f"{word_of(folder)}_count", number, rest, {symbol: listed}))
        if fact is None or fact.value != total or number == total or not is_only:
            return self.count(draft, folder, number)
        symbol = draft.symbol(fact, word_of(folder))
        others = ast.BinOp(ast.Name(symbol), ast.Sub(), ast.Constant(total - number))
        return draft.place(Argument(symbol, number, others, {symbol: fact}))

    def rest_of_run(self, draft: Draft, folder: Folder, number: int, start: int) -> str:
        """How many equal elements end a run of one width: all of it, or all but its first; empty where they do not."""
        end = 0
        for fact in self.stages.counts.get(folder.place, ()):
            first, end = end, end + fact.value
            is_end = first <= start <= first + 1 and start + number == end
            if is_end and self.stages.element(fact):
                symbol = draft.symbol(fact, word_of(folder), f"{word_of(folder)}_{COUNT}")
                node: ast.expr = ast.Name(symbol)
                if start > first:
                    node = ast.BinOp(node, ast.Sub(), ast.Constant(1))
                return draft.place(Argument(symbol, number, node, {symbol: fact}))
        return ""
