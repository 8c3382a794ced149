"""Files on trees of arrays: what libraries that nest their parameters by slashes or tables call those of torch."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from mapper.rulebook.fields import Fields
from mapper.rulebook.namings import KIND
from mapper.rulebook.rulebook import rule_files
from mapper.rulebook.strict import Document, load_yaml

TREE = "tree"
SLASH = "/"


@dataclass(frozen=True)
class Tree:
    """One such file. Words are those between the slashes of a name."""

    name: str
    containers: tuple[str, ...]
    separator: (
        str  # between words; but for a slash, only the last word stands behind one, and may have others in it
    )
    first: tuple[tuple[str, ...], ...]  # words that are cut off at the start
    last: dict[str, str]  # what the last word becomes; a tree with others is none of these
    bare: tuple[str, ...]  # endings of last words that are modules with a weight alone
    numbered: tuple[str, ...]  # words that a number follows after an underscore
    channels_last: tuple[str, ...]  # last words of maps stored [..., in, out]
    lettered: dict[str, str]  # words before a number, as in `W1`: the folder that they become with it
    listed: tuple[str, ...]  # lists side by side, as `weights.0` and `biases.0`: each last word has one
    in_turn: tuple[str, ...]  # lists of all arrays, weights and biases in turn
    beside: dict[str, tuple[str, ...]]  # lists of what else norms have, each as many for every norm
    suffix: str  # at the end of names, cut off
    dropped: tuple[str, ...]  # words between slashes that say nothing
    recurrent: dict[str, str]  # last words of a layer that has all but a bias of them: what they become
    sides: dict[str, str]  # beginnings of words in such a layer's path -> the ending of that direction
    zeros: dict[str, str]  # last words of what torch stores twice -> that of the second, which is zero
    is_whole: bool  # whether no module stands beside it: parameters of modules have such names too
    is_shown: bool  # whether biases show if maps are stored [..., in, out]
    telling: tuple[str, ...]  # last words of which one must be there
    left: dict[str, str]  # last words, or first ones with a slash behind them, of what no model has -> why
    examples: tuple[dict[str, Any], ...]

    @property
    def is_nested(self) -> bool:
        """Whether every word stands between slashes."""
        return self.separator == SLASH


@lru_cache(maxsize=1)
def trees() -> tuple[Tree, ...]:
    """All files of this kind: the user's own, then the shipped ones."""
    documents = [load_yaml(path) for path in rule_files(KIND)]
    return tuple(read_tree(document) for document in documents if TREE in document.data)


def read_tree(document: Document) -> Tree:
    """What one file says."""
    fields = Fields(document.data, document.label, lambda keys: document.line(*keys))
    fields.words("source")
    found = Tree(
        fields.text(TREE),
        fields.words("containers"),
        fields.text("separator", SLASH),
        tuple(tuple(words.split(".")) for words in fields.words("first")),
        {key: str(value) for key, value in fields.mapping("last").items()},
        fields.words("bare"),
        fields.words("numbered"),
        fields.words("channels_last"),
        {key: str(value) for key, value in fields.mapping("lettered").items()},
        fields.words("listed"),
        fields.words("in_turn"),
        {key: tuple(value) for key, value in fields.mapping("beside").items()},
        fields.text("suffix", ""),
        fields.words("dropped"),
        {key: str(value) for key, value in fields.mapping("recurrent").items()},
        {key: str(value) for key, value in fields.mapping("sides").items()},
        {key: str(value) for key, value in fields.mapping("zeros").items()},
        fields.flag("whole"),
        fields.flag("shown_by_bias"),
        fields.words("telling"),
        {key: str(value) for key, value in fields.mapping("left").items()},
        tuple(fields.sequence("examples")),
    )
    fields.done()
    return found
