"""Classes from folders: equal ones merged, unequal values passed in, children built in the order of the data."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from mapper.architecture import Block, Fact, Leaf, Numbered, Place
from mapper.emission.constructors import Constructor
from mapper.emission.drafts import Argument, ClassText, Draft, facts_of, resolve
from mapper.emission.expressions import literal
from mapper.emission.identifiers import RESERVED_IN_DICT, identifier
from mapper.emission.kinds import side_by_side
from mapper.emission.merge import is_same, join, merge_fixed, merge_options
from mapper.emission.module_tree import Folder
from mapper.emission.parameters import tidy
from mapper.emission.paths import Paths, is_number, list_folder
from mapper.emission.sequential import as_arguments, is_chain
from mapper.emission.settings import Setting, list_depth, of_tensor, setting, shared_facts
from mapper.emission.stages import Stages
from mapper.emission.unread import as_its_like, with_sizes
from mapper.emission.width_names import with_widths
from mapper.flows.program import Piece, Program
from mapper.flows.references import refer

NAME_OPEN, NAME_CLOSE = "\x03", "\x04"  # around the number of a class, until all classes have names
STAGE = "stage_width"  # what a shape calls a width that no flow declares
MethodsOf = Callable[[Folder, Draft], list[str]]


@dataclass(eq=False)
class Drafts:
    """Builds the classes of a module tree from the innermost folders outwards; `Classes` writes what stands in lists."""

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
    unlisted: frozenset[str] = frozenset()  # lists of sizes that the config does not have
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

        if program is not None:
            self.settings = with_widths(self.settings, program, self.stages, self.unlisted)

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
        count = sum(len(key) for key in folder.children if isinstance(key, tuple))
        if draft.base == "nn.ModuleList" and is_chain(draft.methods, len(draft.lines) == 1, count):
            draft.base, draft.methods = "nn.Sequential", []
            draft.lines = [as_arguments(draft.lines[0])]
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
            said = with_sizes(leaf, as_its_like(leaf, said, self.read()), self.blocks)
        numbers = leaf.place[said.depth] if said.depth is not None else ()
        if said.depth is None or isinstance(numbers, str):
            return said
        return replace(said, indices=self.numbers.get(said.depth, numbers[:1]))

    def read(self) -> Iterator[tuple[Leaf, Setting]]:
        """The leaves that forwards read, each with what its flow says of it."""
        leaves = (
            item
            for block in self.blocks
            for value in block.roles.values()
            for item in (value if isinstance(value, list) else [value])
        )
        for leaf in leaves:
            if isinstance(leaf, Leaf) and id(leaf) not in self.unread and id(leaf) in self.settings:
                yield leaf, self.settings[id(leaf)]

    def element(self, draft: Draft, folder: Folder, key: tuple[int, ...], child: Folder | Leaf) -> str:
        """The expression that makes an element of a list, or each of several in a loop over `index`."""
        depth = len(folder.place)
        self.numbers[depth] = key
        made = self.child(draft, child, f"{word_of(folder)}_{key[0]}")
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
        role = folder.block.role if folder.block else word_of(folder)
        for name, argument in arguments.items():
            parts.append(
                f"{name}={(given or {}).get(name) or self.pass_on(draft, name, argument, role, done.is_short)}"
            )
        return f"{NAME_OPEN}{self.of_folder[id(folder)]}{NAME_CLOSE}({', '.join(parts)})"

    def pass_on(self, draft: Draft, name: str, argument: Argument, role: str, is_short: bool) -> str:
        """What the class of a child is given: a size of the whole stream by its name, one of a block by the child's role too."""
        if argument.expression is None:
            return draft.place(Argument(f"{role}_{name}" if is_short else name, argument.value))
        if not argument.is_plain():
            return draft.place(draft.followed_argument(argument, f"{role}_{name}" if is_short else name))
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
        raise NotImplementedError

    def count(self, draft: Draft, folder: Folder, number: int) -> str:
        """How many elements a list has: by the list or the size that says so, or as a number."""
        listed = self.lengths.get(folder.place)
        if listed is not None and len(listed.value) == number:
            symbol = draft.symbol(listed, word_of(folder))
            node = ast.Call(ast.Name("len"), [ast.Name(symbol)], [])
            return draft.place(Argument(f"{word_of(folder)}_count", number, node, {symbol: listed}))
        fact = self.counts.get(folder.place)
        if fact is None or fact.value != number:
            return draft.place(Argument(f"{word_of(folder)}_count", number))
        symbol = draft.symbol(fact, word_of(folder))
        return draft.place(Argument(symbol, fact.value, ast.Name(symbol), {symbol: fact}))

    def each(self, draft: Draft, folder: Folder, name: str, arguments: list[Argument]) -> str:
        """The values of one parameter, an element's each."""
        raise NotImplementedError


def _count_of(block: Block, role: str) -> Fact | None:
    """The fact that says how many elements a list has: `layers`, or `heads` of `single_heads`."""
    return block.facts.get(role) or block.facts.get(role.rpartition("_")[2])


def word_of(folder: Folder) -> str:
    return identifier(next((part for part in reversed(folder.place) if isinstance(part, str)), "items"))


# Words of lists that say nothing of what is in them.
_ANY_LIST = frozenset({"layers", "layer", "blocks", "block", "items", "h"})


def named_place(folder: Folder) -> str:
    """What a list is called, or what it is in where that is any list."""
    words = [part for part in folder.place if isinstance(part, str)] or ["items"]
    if words[-1] in _ANY_LIST and (folder.tower or len(words) > 1):
        return identifier(folder.tower or words[-2])
    return identifier(words[-1])
