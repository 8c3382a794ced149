"""The tensors of a graph under names that a module can have: dotted as in the file, made safe, each once."""

from __future__ import annotations

from dataclasses import dataclass, field

from mapper.emission.identifiers import RESERVED, RESERVED_IN_DICT, identifier
from mapper.graphs.graph import TensorRef
from mapper.sources.onnx_graph import is_counted

DEPTH = 16  # words of one name


@dataclass
class Tree:
    """Modules by their words; a leaf is a tensor."""

    children: dict[str, Tree | TensorRef] = field(default_factory=dict)
    made: str = ""  # the expression that makes it with all that is in it, of one of torch's layers


@dataclass
class Weights:
    """Every tensor by its dotted name."""

    tree: Tree = field(default_factory=Tree)
    refs: dict[str, TensorRef] = field(default_factory=dict)
    used: frozenset[str] = frozenset()  # names of values that something reads
    names: dict[int, str] = field(default_factory=dict)  # of each TensorRef, by its id
    layers: dict[tuple[str, tuple[int, ...]], str] = field(default_factory=dict)

    def add(self, name: str, ref: TensorRef, fallback: str) -> str:
        """Enter a tensor; its dotted name in the module."""
        if id(ref) in self.names:
            return self.names[id(ref)]
        words = [
            safe(word)
            for word in name.partition(";")[0].replace("/", ".").replace(":", "_").split(".")
            if word
        ][-DEPTH:]
        if not words or is_counted(name):
            words = [safe(fallback)]
        return self._place(words, ref)

    def layer(self, words: list[str], made: str, tensors: dict[str, TensorRef]) -> str:
        """Enter a layer with its tensors; its dotted name. One that is there with the same tensors is taken again."""
        key = made, tuple(id(ref) for ref in tensors.values())
        if key in self.layers:
            return self.layers[key]
        tree, path = self.tree, []
        for word in words[:-1]:
            word, tree = self._folder(tree, word)
            path.append(word)
        word = _free(words[-1], tree, is_module=True)
        path.append(word)
        tree.children[word] = Tree(dict(tensors), made)
        dotted = self.layers[key] = ".".join(path)
        for name, ref in tensors.items():
            self.refs[f"{dotted}.{name}"] = ref
            self.names.setdefault(id(ref), f"{dotted}.{name}")
        return dotted

    def _place(self, words: list[str], ref: TensorRef) -> str:
        tree, path = self.tree, []
        for word in words[:-1]:
            word, found = self._folder(tree, word)
            path.append(word)
            tree = found
        word = _free(words[-1], tree)
        tree.children[word] = ref
        dotted = ".".join([*path, word])
        self.refs[dotted], self.names[id(ref)] = ref, dotted
        return dotted

    def _folder(self, tree: Tree, word: str) -> tuple[str, Tree]:
        """The module of that name, another where a tensor has it."""
        while isinstance(held := tree.children.get(word), TensorRef) or (held is not None and held.made):
            word += "_"
        found = tree.children.setdefault(word, Tree())
        assert isinstance(found, Tree)
        return word, found


def safe(word: str) -> str:
    """A word that can be an attribute of a module, or an index."""
    if word.isascii() and word.isdigit() and len(word) < 7:
        return str(int(word))
    made = identifier(word)
    while made in RESERVED or made in RESERVED_IN_DICT or made == "self":
        made += "_"
    return made


def _free(word: str, tree: Tree, is_module: bool = False) -> str:
    if word.isdigit() and not (is_module and word not in tree.children):
        word = f"_{word}"
    made, count = word, 1
    while made in tree.children:
        count += 1
        made = f"{word}_{count}"
    return made


def is_list(tree: Tree) -> bool:
    """Whether the children are numbered from 0 on, and modules."""
    words = list(tree.children)
    return bool(words) and sorted(words) == sorted(map(str, range(len(words)))) and _are_modules(tree)


def is_dict(tree: Tree) -> bool:
    """Whether some child is a number, and the children are no list."""
    return any(word.isdigit() for word in tree.children) and not is_list(tree)


def kind_of(tree: Tree) -> str:
    """The class of torch that holds modules of such names: numbers are no attributes in Python."""
    return "nn.ModuleList" if is_list(tree) else "nn.ModuleDict" if is_dict(tree) else "nn.Module"


def _are_modules(tree: Tree) -> bool:
    return all(isinstance(child, Tree) for child in tree.children.values())


def path_text(whole: Tree, dotted: str, start: str = "self") -> str:
    """A dotted name as an expression on the module."""
    text, tree = start, whole
    for word in dotted.split("."):
        child = tree.children[word]
        if is_list(tree):
            text += f"[{word}]"
        else:
            text += f'["{word}"]' if is_dict(tree) and isinstance(child, Tree) else f".{word}"
        tree = child if isinstance(child, Tree) else Tree()
    return text
