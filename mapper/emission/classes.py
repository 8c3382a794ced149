"""Classes from folders: equal ones merged, unequal values passed in, children built in the order of the data."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from mapper.architecture import Block, Fact, Leaf, Numbered, Place
from mapper.emission.config_class import symbol_name
from mapper.emission.constructors import Constructor
from mapper.emission.drafts import Argument, ClassText, Draft, facts_of, resolve
from mapper.emission.expressions import literal
from mapper.emission.identifiers import RESERVED_IN_DICT
from mapper.emission.kinds import MOST, fact_of_kind, kinds_of, side_by_side, told_by
from mapper.emission.merge import is_same, join, merge_fixed, merge_options
from mapper.emission.module_tree import Folder
from mapper.emission.parameters import tidy
from mapper.emission.paths import Paths, is_number, list_folder
from mapper.emission.settings import INDEX, Setting, list_depth, of_tensor, setting, shared_facts
from mapper.emission.stages import Stages
from mapper.emission.unread import with_sizes
from mapper.flows.program import Piece, Program
from mapper.flows.references import refer

NAME_OPEN, NAME_CLOSE = "\x03", "\x04"  # around the number of a class, until all classes have names
STAGE = "stage_width"  # what a shape calls a width that no flow declares
MethodsOf = Callable[[Folder, Draft], list[str]]


@dataclass(eq=False)
class Classes:
    """Builds the classes of a module tree from the innermost folders outwards."""

    root: Folder
    paths: Paths
    methods: MethodsOf
    field_of: Callable[[Fact, str], str | None]
    stages: Stages
    settings: dict[int, Setting] = field(default_factory=dict)  # by leaf
    counts: dict[Place, Fact] = field(default_factory=dict)  # list folder -> the fact that says how many
    lengths: dict[Place, Fact] = field(default_factory=dict)  # list folder -> a list with an entry for each
    finished: list[ClassText] = field(default_factory=list)
    of_folder: dict[int, int] = field(default_factory=dict)  # folder -> its class
    draft_of: dict[int, tuple[ClassText, int]] = field(default_factory=dict)
    unread: Mapping[int, str] = field(default_factory=dict)  # leaf that no forward reads -> why it is there
    blocks: list[Block] = field(default_factory=list)
    outer: dict[int, Fact] = field(
        default_factory=dict
    )  # a block's fact -> the one for it in the block around
    numbers: dict[int, tuple[int, ...]] = field(
        default_factory=dict
    )  # depth of a place -> which elements of the list there are being made

    def learn(self, program: Program | None) -> None:
        """What the flows say about leaves and lists."""
        self.blocks = [piece.block for piece in program.pieces.values()] if program else []
        for piece in program.pieces.values() if program else ():
            for role, value in piece.block.roles.items():
                for item in value if isinstance(value, list) else [value]:
                    if isinstance(item, Leaf):
                        said = self.as_long_as_its_stage(item, setting(item, role, piece.block, piece.flow))
                        if isinstance(value, list):
                            listed = [one for one in value if isinstance(one, Leaf)]
                            said = replace(said, depth=list_depth(listed, len(piece.block.home)))
                        if id(item) in self.unread:  # nothing runs it, and so nothing is known of how
                            said = replace(said, arguments=None)
                        self.settings.setdefault(id(item), said)
                    elif isinstance(value, list) and (fact := _count_of(piece.block, role)):
                        if isinstance(item.indices, Numbered):  # folders with names: no list counts them
                            self.counts[Place(item.home[:-1])] = fact
                        else:
                            self.counts[list_folder([item.home], Place(piece.block.home))] = fact
            self.learn_lengths(piece)
            for (
                role
            ) in piece.flow.rule.shapes:  # `embeddings.token`: a leaf of a block below that has no flow
                reference = refer(piece.block, [*role.split(".")], {})
                for item in reference.items if reference and not reference.rest else ():
                    if isinstance(item, Leaf):
                        said = setting(item, role, piece.block, piece.flow)
                        inner = self.settings.setdefault(id(item), said)
                        self.outer |= shared_facts(inner, said)

    def learn_lengths(self, piece: Piece) -> None:
        """Which lists a forward goes through side by side: they are as long as each other, or as a list of the config."""
        for words, lists in side_by_side(piece):
            for word in words:
                items = piece.block.roles.get(word)
                if not isinstance(items, list) or not items:
                    continue
                homes = [item.home if isinstance(item, Block) else item.place for item in items]
                if not any(isinstance(part, tuple) for part in homes[0][len(piece.block.home) :]):
                    continue  # folders with names: no list counts them
                place = list_folder(homes, Place(piece.block.home))
                if lists:
                    self.lengths[place] = lists[0]
                elif fact := _count_of(piece.block, "layers"):
                    self.counts.setdefault(place, fact)

    def as_long_as_its_stage(self, leaf: Leaf, said: Setting) -> Setting:
        """With the stage's width as the length of a norm beside it, or as what a map reads, where the flow declares none."""
        if read := self.stages.inputs.get(id(leaf)):
            shape = said.shape or ("_",) * 2
            if len(shape) > 1 and shape[1] == "_":
                shape = (shape[0], STAGE, *shape[2:])
                return replace(said, shape=shape, facts={**(said.facts or {}), STAGE: read})
        length = self.stages.lengths.get(id(leaf))
        if length is None or said.shape:
            return said
        return replace(said, shape=(STAGE,), facts={**(said.facts or {}), STAGE: length})

    def run(self) -> list[ClassText]:
        """Every class, each after those it uses."""
        levels: dict[int, list[Folder]] = {}
        self.height(self.root, levels)
        for level in sorted(levels):
            groups: dict[object, list[Draft]] = {}
            for folder in levels[level]:
                draft = self.draft(folder)
                groups.setdefault(draft.key(), []).append(draft)
            for drafts in merge_options(merge_fixed(list(groups.values()))):
                self.finish(drafts)
        return self.finished

    def finish(self, drafts: list[Draft]) -> None:
        done = resolve(drafts, self.field_of)
        tidy(done)
        at = next((at for at, other in enumerate(self.finished) if is_same(other, done)), len(self.finished))
        before = 0
        if at < len(self.finished):
            before = len(self.finished[at].drafts)
            done = join(self.finished[at], done)
        else:
            self.finished.append(done)
        for index, draft in enumerate(drafts, before):
            self.of_folder[id(draft.folder)] = at
            self.draft_of[id(draft.folder)] = (done, index)

    def height(self, folder: Folder, levels: dict[int, list[Folder]]) -> int:
        """How many classes are nested below; folders that become classes are filed under it."""
        below = [
            self.height(child, levels) for child in folder.children.values() if isinstance(child, Folder)
        ]
        height = max(below, default=0)
        if not self.is_class(folder):
            return height
        levels.setdefault(height, []).append(folder)
        return height + 1

    def is_class(self, folder: Folder) -> bool:
        if folder is self.root or folder.block is not None or folder.methods:
            return True
        words = {self.paths.attribute(key) for key in folder.children if isinstance(key, str)}
        leaves = [child for child in folder.children.values() if isinstance(child, Leaf)]
        only_parameters = len(leaves) == len(folder.children) and all(
            leaf.kind == "Parameter" for leaf in leaves
        )
        return bool(words & RESERVED_IN_DICT) or (folder.has_parameters() and not only_parameters)

    def draft(self, folder: Folder) -> Draft:
        """The class of one folder, with marks where its values stand."""
        draft = Draft(folder, scaled=self.stages.scaled)
        whole = folder.children.get("")
        if (
            isinstance(whole, Leaf) and not whole.place
        ):  # saved without a model around it: the model is one, too
            draft.base, _, arguments = self.child(draft, whole, "").partition("(")
            draft.lines.append(f"super().__init__({arguments}")
            draft.methods = self.methods(folder, draft)
            return draft
        numbered = any(isinstance(key, tuple) or is_number(key) for key in folder.children)
        if numbered and folder is not self.root and not folder.has_parameters():
            draft.base = "nn.ModuleList" if folder.is_sequence else "nn.ModuleDict"
            draft.lines.append(f"super().__init__({self.container_items(draft, folder)})")
        else:
            elements = folder.elements() if folder is not self.root else None
            if elements is not None:  # a list with tensors of its own beside
                draft.base = "nn.ModuleList"
                draft.lines.append(f"super().__init__({self.container_items(draft, elements)})")
            for key, child in folder.children.items():
                if elements is not None and isinstance(key, tuple):
                    continue
                for word in [key] if isinstance(key, str) else map(str, key):
                    draft.lines.append(self.child_line(draft, word, child))
        draft.methods = self.methods(folder, draft)
        return draft

    def child_line(self, draft: Draft, word: str, child: Folder | Leaf) -> str:
        name = self.paths.attribute(word)
        text = self.child(draft, child, name)
        draft.children[name] = child.place
        if why := self.why_unread(child):
            draft.unread[name] = why
        if isinstance(child, Leaf) and child.kind == "Buffer":
            return f"self.register_buffer({literal(name)}, {text})"
        if is_number(name):
            bare = isinstance(child, Leaf) and child.kind == "Parameter"
            return f"self.{'register_parameter' if bare else 'add_module'}({literal(name)}, {text})"
        return f"self.{name} = {text}"

    def why_unread(self, child: Folder | Leaf) -> str:
        """Why a child is there of which no forward reads anything; empty where some does."""
        if isinstance(child, Leaf):
            return self.unread.get(id(child), "")
        reasons = {self.why_unread(item) for item in child.children.values()}
        return reasons.pop() if len(reasons) == 1 else ""

    def child(self, draft: Draft, child: Folder | Leaf, name: str) -> str:
        """The expression that makes a child."""
        if isinstance(child, Leaf):
            made = Constructor(draft, child, name, self.setting_of(child))
            return made.text_with(self.root.unread.get(id(child), {}))
        if id(child) in self.of_folder:
            return self.call(draft, child, self.arguments(child))
        leaves = [item for item in child.children.values() if isinstance(item, Leaf)]
        parameters = bool(leaves) and all(leaf.kind == "Parameter" for leaf in leaves)
        if child.is_sequence:
            kind = "nn.ParameterList" if parameters else "nn.ModuleList"
        else:
            kind = "nn.ParameterDict" if parameters else "nn.ModuleDict"
        return f"{kind}({self.container_items(draft, child)})"

    def setting_of(self, leaf: Leaf) -> Setting:
        """What its flow says of a leaf, of the element of a list that is being made."""
        said = self.settings.get(id(leaf), Setting())
        if whole := self.root.wholes.get(id(leaf)):
            said = of_tensor(self.settings.get(id(whole), Setting()), leaf)
        if id(leaf) in self.unread:
            said = with_sizes(leaf, said, self.blocks)
        numbers = leaf.place[said.depth] if said.depth is not None else ()
        if said.depth is None or isinstance(numbers, str):
            return said
        return replace(said, indices=self.numbers.get(said.depth, numbers[:1]))

    def element(self, draft: Draft, folder: Folder, key: tuple[int, ...], child: Folder | Leaf) -> str:
        """The expression that makes an element of a list, or each of several in a loop over `index`."""
        depth = len(folder.place)
        self.numbers[depth] = key
        made = self.child(draft, child, f"{_word(folder)}_{key[0]}")
        del self.numbers[depth]
        return made

    def by_element(self, child: Folder | Leaf, depth: int) -> list[list[str]]:
        """What is in arguments of its leaves that are others for each element of the list at that depth."""
        if isinstance(child, Leaf):
            said = self.settings.get(id(child), Setting())
            return said.by_element() if said.depth == depth else []
        if id(child) in self.of_folder:
            return []
        return [names for item in child.children.values() for names in self.by_element(item, depth)]

    def arguments(self, folder: Folder) -> dict[str, Argument]:
        """What the class of a folder has to be given for this folder."""
        done, index = self.draft_of[id(folder)]
        return {name: values[index] for name, values in done.parameters.items()}

    def call(
        self,
        draft: Draft,
        folder: Folder,
        arguments: dict[str, Argument],
        given: dict[str, str] | None = None,
    ) -> str:
        done, _ = self.draft_of[id(folder)]
        parts = ["config"] if done.takes_config else []
        draft.needs_config |= done.takes_config
        role = folder.block.role if folder.block else _word(folder)
        for name, argument in arguments.items():
            parts.append(
                f"{name}={(given or {}).get(name) or self.pass_on(draft, name, argument, role, done.is_short)}"
            )
        return f"{NAME_OPEN}{self.of_folder[id(folder)]}{NAME_CLOSE}({', '.join(parts)})"

    def pass_on(self, draft: Draft, name: str, argument: Argument, role: str, is_short: bool) -> str:
        """What the class of a child is given: a size of the whole stream by its name, one of a block by the child's role too."""
        if argument.expression is None:
            return draft.place(Argument(f"{role}_{name}" if is_short else name, argument.value))
        fact = next(iter(argument.symbols.values()))
        around = self.outer.get(id(fact))
        if around is not None and any(around is own for own in facts_of(draft.folder)):
            symbol, fact = draft.symbol(around, role), around
        elif "." in fact.name:
            symbol = draft.symbol(fact, role, f"{role}_{name}")
        else:
            symbol = draft.symbol(fact, draft.folder.block.role if draft.folder.block else "inner")
        node, symbols = draft.written(fact, symbol, role)
        return draft.place(Argument(symbol, fact.value, node, symbols, local=draft.local_of(fact)))

    def container_items(self, draft: Draft, folder: Folder) -> str:
        """What stands in the brackets of nn.ModuleList or nn.ModuleDict."""
        if folder.is_sequence:
            return self.sequence(draft, folder)
        if alike := self.alike(draft, folder):
            return alike
        pairs = []
        for key, child in folder.children.items():
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
        return "{" + ", ".join(pairs) + "}"

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
        if differing:  # equal as their tensors may be
            groups = [((index,), child) for key, child in groups for index in key]
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
            else f"*({texts[run[0]]} for _ in range({self.run_length(draft, folder, len(run), len(order), runs)}))"
            for run in runs
        ]
        return f"[{', '.join(parts)}]"

    def repeats(self, folder: Folder, runs: list[list[tuple[int, ...]]]) -> bool:
        """Whether what stands behind a first element is once here and more often in other stages."""
        fact = self.counts.get(folder.place)
        return fact is not None and len(runs) == 2 and len(runs[0]) == 1 and bool(self.stages.element(fact))

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
        given = {name: name for name in varying}
        if [[arguments[name].value for arguments in order] for name in varying] == [
            [True] + [False] * (len(order) - 1)
        ]:
            given = {varying[0]: "index == 0"}  # a child of the first element alone
        draft.loops.update(given.values())
        call = self.call(draft, first, order[0], given)
        if len(order) == 1 and folder.place not in self.counts:
            return f"[{call}]"
        if not varying:
            return f"{call} for _ in range({self.count(draft, folder, len(order))})"
        if "index == 0" in given.values():
            return f"{call} for index in range({self.count(draft, folder, len(order))})"
        marks = [self.each(draft, folder, name, [a[name] for a in order]) for name in varying]
        if len(varying) == 1:
            return f"{call} for {varying[0]} in {marks[0]}"
        return f"{call} for {', '.join(varying)} in zip({', '.join(marks)}, strict=True)"

    def each(self, draft: Draft, folder: Folder, name: str, arguments: list[Argument]) -> str:
        """The values of one parameter, an element's each: a list of the config that has them, or numbers."""
        values = tuple(item.value for item in arguments)
        facts = [next(iter(item.symbols.values()), None) if item.is_plain() else None for item in arguments]
        found = self.stages.list_of(facts)
        if found is None and (some := self.stages.some_of(facts)):
            symbol = draft.symbol(some[0], _word(folder), f"{_word(folder)}_{name}")
            items: list[ast.expr] = [ast.Subscript(ast.Name(symbol), ast.Constant(at)) for at in some[1]]
            return draft.place(Argument(symbol, values, ast.Tuple(items), {symbol: some[0]}))
        if found is None:
            return draft.place(Argument(f"{_word(folder)}_{name}", values))
        size, is_shifted = found
        symbol = draft.symbol(size, _word(folder), f"{_word(folder)}_{name}")
        node: ast.expr = ast.Name(symbol)
        symbols = {symbol: size}
        if is_shifted:  # `[3, *config.hidden_sizes[:-1]]`
            but_last = ast.Slice(None, ast.UnaryOp(ast.USub(), ast.Constant(1)))
            first: ast.expr = ast.Constant(values[0])
            if entry := self.stages.entries.get(id(facts[0])):
                first = ast.Name(draft.symbol(entry, _word(folder)))
                symbols[first.id] = entry
            node = ast.List([first, ast.Starred(ast.Subscript(node, but_last))])
        return draft.place(Argument(symbol, values, node, symbols))

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
            made = fact_of_kind(folder, kind, _word(folder))
            self.stages.made.append(made)
            symbol = draft.symbol(made, _word(folder), made.name.replace(".", "_"))
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
        symbol = draft.symbol(listed, _word(folder))
        mark = draft.place(Argument(symbol, tuple(listed.value), ast.Name(symbol), {symbol: listed}))
        word = "kind" if isinstance(value, str) else symbol_name(listed.name)
        draft.loops.add(word)
        test = f"{word} == {literal(value)}" if isinstance(value, str) else word if value else f"not {word}"
        return f"{texts[rare]} if {test} else {texts[usual]} for {word} in {mark}"

    def run_length(
        self, draft: Draft, folder: Folder, number: int, total: int, runs: list[list[tuple[int, ...]]]
    ) -> str:
        """How many equal elements stand in a row: all but the others, where these are once each."""
        fact = self.counts.get(folder.place)
        is_only = sum(len(run) > 1 for run in runs) < 2
        listed = self.lengths.get(folder.place)
        if listed is not None and len(listed.value) == total and is_only:
            symbol = draft.symbol(listed, _word(folder))
            whole = ast.Call(ast.Name("len"), [ast.Name(symbol)], [])
            rest = ast.BinOp(whole, ast.Sub(), ast.Constant(total - number))
            return draft.place(Argument(f"{_word(folder)}_count", number, rest, {symbol: listed}))
        if fact is None or fact.value != total or number == total or not is_only:
            return self.count(draft, folder, number)
        symbol = draft.symbol(fact, _word(folder))
        others = ast.BinOp(ast.Name(symbol), ast.Sub(), ast.Constant(total - number))
        return draft.place(Argument(f"{_word(folder)}_count", number, others, {symbol: fact}))

    def count(self, draft: Draft, folder: Folder, number: int) -> str:
        listed = self.lengths.get(folder.place)
        if listed is not None and len(listed.value) == number:
            symbol = draft.symbol(listed, _word(folder))
            node = ast.Call(ast.Name("len"), [ast.Name(symbol)], [])
            return draft.place(Argument(f"{_word(folder)}_count", number, node, {symbol: listed}))
        fact = self.counts.get(folder.place)
        if fact is None or fact.value != number:
            return draft.place(Argument(f"{_word(folder)}_count", number))
        symbol = draft.symbol(fact, _word(folder))
        return draft.place(Argument(symbol, fact.value, ast.Name(symbol), {symbol: fact}))


def _count_of(block: Block, role: str) -> Fact | None:
    """The fact that says how many elements a list has: `layers`, or `heads` of `single_heads`."""
    return block.facts.get(role) or block.facts.get(role.rpartition("_")[2])


def _word(folder: Folder) -> str:
    from mapper.emission.identifiers import identifier

    return identifier(next((part for part in reversed(folder.place) if isinstance(part, str)), "items"))
