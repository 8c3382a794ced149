"""TorchScript archives: the tensors of `torch.jit.save`, and the constants of its modules, read without running its code.

An archive is a zip of `data.pkl` (modules as objects, their attributes a table each), `constants.pkl` (tensors that code alone
holds) and `code/`, the source of each class, from which single lines are read as text:
https://github.com/pytorch/pytorch/blob/main/torch/csrc/jit/docs/serialization.md
"""

from __future__ import annotations

import ast
import re
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from mapper import limits
from mapper.checkpoint import Observed
from mapper.sources.pickles import Opaque, StoredTensor
from mapper.sources.training_files import is_tensor

ROOT = "__torch__"  # how the names of its classes begin
CONSTANTS = "CONSTANTS"
PACKED = f"{ROOT}.torch.classes."  # of objects of torch's own that are no modules
FINAL = re.compile(r"^  (\w+) : Final\[[^=]*\] = (.{1,200})$", re.MULTILINE)
CLASS = re.compile(r"^class (\w+)\(", re.MULTILINE)
BOUND = re.compile(r"^ {4,}(\w+) = \w+\.(\w+)$", re.MULTILINE)
STATE = re.compile(r"^  __(?:parameters|buffers)__ = \[(.*)\]$", re.MULTILINE)
WORD = re.compile(r'"([^"]*)"')
CALL = re.compile(r"\btorch\.(\w+)\(")
LONGEST = 2_000  # characters of the arguments of one call
# What a call of an operation shows of the module that holds its weight: where that stands among the arguments, and what else.
# https://github.com/pytorch/pytorch/blob/main/aten/src/ATen/native/native_functions.yaml
_PLAIN = {3: "stride", 4: "padding", 5: "dilation"}
_TURNED = {3: "stride", 4: "padding", 5: "output_padding"}
CALLS: Mapping[str, tuple[int, Mapping[int, str]]] = {
    **{f"conv{axes}d": (1, _PLAIN) for axes in (1, 2, 3)},
    **{f"conv_transpose{axes}d": (1, _TURNED) for axes in (1, 2, 3)},
    "_convolution": (1, {**_PLAIN, 6: "transposed", 7: "output_padding"}),
    "batch_norm": (1, {7: "eps"}),
    "instance_norm": (1, {7: "eps"}),
    "layer_norm": (2, {4: "eps"}),
    "group_norm": (2, {1: "num_groups", 4: "eps"}),
    "linear": (1, {}),
    "prelu": (1, {}),
    "embedding": (0, {}),
}
USUAL = {"bias": 2}  # where other tensors of a module stand among the arguments
BESIDE: Mapping[str, Mapping[str, int]] = {
    "batch_norm": {"running_mean": 3, "running_var": 4},
    "layer_norm": {"bias": 3},
    "group_norm": {"bias": 3},
}
# What a constant of a module says as a fact; of a transposed convolution another.
FACTS = {
    "stride": "chain.stride",
    "padding": "chain.padding",
    "dilation": "chain.dilation",
    "eps": "norm.eps",
    "num_groups": "chain.groups",
}
TRANSPOSED = {
    "stride": "chain.up_stride",
    "padding": "chain.up_padding",
    "output_padding": "chain.output_padding",
}
WORDS = {"valid": "0"}  # of a padding, beside `same`


def modules(value: Any) -> dict[str, Opaque]:
    """Path -> module, of the module that an archive holds and those in it, each object once; `""` is the whole."""
    found: dict[str, Opaque] = {}
    seen: set[int] = set()
    waiting: list[tuple[tuple[str, ...], Any]] = [((), value)]
    while waiting:
        path, item = waiting.pop()
        if not _is_module(item) or id(item) in seen or len(path) > limits.NAME_DEPTH:
            continue
        seen.add(id(item))
        found[".".join(path)] = item
        below = [((*path, str(word)), inner) for word, inner in item.attributes.items()]
        waiting += reversed(below)
    return found


def state(found: Mapping[str, Opaque], code: Code) -> dict[str, Any]:
    """The tensors among the attributes of the modules, each under its path; none that is empty and no part of the state."""
    held = {}
    for path, module in found.items():
        listed = {word for words in STATE.findall(code.of(module.kind)) for word in WORD.findall(words)}
        for word, item in module.attributes.items():
            if is_tensor(item) and (
                word in listed or not isinstance(item, StoredTensor) or 0 not in item.shape
            ):
                held[f"{path}.{word}" if path else str(word)] = item
    return held


def _is_module(item: Any) -> bool:
    return isinstance(item, Opaque) and item.kind.startswith(f"{ROOT}.")


class Code:
    """The source of the classes in an archive, read a class at a time."""

    def __init__(self, archive: zipfile.ZipFile, records: Mapping[str, zipfile.ZipInfo], prefix: str):
        self.archive, self.records, self.prefix = archive, records, prefix
        self.files: dict[str, dict[str, str]] = {}
        self.left = limits.CODE_BYTES

    def of(self, kind: str) -> str:
        """The text of the class `kind`; "" where the archive has none, or more than is read."""
        home, _, name = kind.rpartition(".")
        file = f"{self.prefix}code/{home.replace('.', '/')}.py"
        if file not in self.files:
            self.files[file] = self._classes(self.records.get(file))
        return self.files[file].get(name, "")

    def _classes(self, record: zipfile.ZipInfo | None) -> dict[str, str]:
        if record is None or record.file_size > self.left:
            return {}
        self.left -= record.file_size
        text = self.archive.read(record).decode("utf-8", "replace")
        starts = [(found[1], found.start()) for found in CLASS.finditer(text)]
        ends = [*(start for _, start in starts), len(text)][1:]
        return {name: text[start:end] for (name, start), end in zip(starts, ends, strict=True)}


def observed(found: Mapping[str, Opaque], code: Code) -> Iterator[Observed]:
    """What the constants of modules with weights show of them as facts."""
    for path, module in found.items():
        if any(map(is_tensor, module.attributes.values())):
            yield from shown(path, constants_of(module, code.of(module.kind)), module.kind)


def shown(path: str, constants: dict[str, Any], where: str) -> Iterator[Observed]:
    """What constants of the module at `path` show as facts; `where` they stand."""
    turned = constants.get("transposed") is True
    if constants.get("padding_mode", "zeros") != "zeros":
        constants.pop("padding", None)  # what else than zeros is padded, no fact says
    for word, fact in (TRANSPOSED if turned else FACTS).items():
        if constants.get(word) is not None:
            yield Observed(fact, path, as_fact(word, constants[word]), f"{word} of {where}")


def constants_of(module: Opaque, text: str) -> dict[str, Any]:
    """The constants of a module: attributes that its class declares final, and what its calls say beside its weight."""
    finals = {name: _literal(value) for name, value in FINAL.findall(text)}
    plain = {
        word: item for word, item in module.attributes.items() if isinstance(item, (bool, int, float, str))
    }
    bound = dict(BOUND.findall(text))
    called: dict[str, Any] = {}
    for _, weight, words, arguments in calls(text):
        if bound.get(weight) == "weight":
            called |= {word: _literal(arguments[at]) for at, word in words.items() if at < len(arguments)}
    whole = called | plain | finals
    return {str(word): item for word, item in whole.items() if item is not None}


def calls(text: str) -> Iterator[tuple[str, str, Mapping[int, str], list[str]]]:
    """The calls in a source of operations with a weight: the operation, that argument, what else says something, and all."""
    for found in CALL.finditer(text):
        if found[1] in CALLS:
            (at, words), arguments = CALLS[found[1]], arguments_at(text, found.end())
            if at < len(arguments):
                yield found[1], arguments[at], words, arguments


def arguments_at(text: str, start: int) -> list[str]:
    """The arguments of a call from `start` on, at the commas that stand in no brackets."""
    found, depth = [""], 0
    for letter in text[start : start + LONGEST]:
        depth += (letter in "([") - (letter in ")]")
        if depth < 0:
            break
        if letter == "," and depth == 0:
            found.append("")
        else:
            found[-1] += letter
    return [one.strip() for one in found]


def _literal(text: str) -> Any:
    """The value that a text writes out; None for any other text."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None


def as_fact(word: str, value: Any) -> Any:
    """A constant as a fact has it: `2x1` for one number for each axis."""
    if word == "eps":
        return value
    if isinstance(value, (list, tuple)):
        return "x".join(map(str, value))
    return WORDS.get(value, value) if isinstance(value, str) else str(value)


class Frozen:
    """The tensors that code alone holds, under names by the calls that read them: `conv2d_1.weight`, else `constants.c7`."""

    def __init__(self, constants: Sequence[Any], texts: Iterable[str]):
        self.observed: list[Observed] = []
        self._names: dict[str, str] = {}
        self._count: Counter[str] = Counter()
        for text in texts:
            for operation, weight, words, arguments in calls(text):
                if weight.startswith(f"{CONSTANTS}."):
                    self._name(operation, weight, words, arguments)
        self.state = {self._called(at): item for at, item in enumerate(constants) if is_tensor(item)}

    def _name(self, operation: str, weight: str, words: Mapping[int, str], arguments: list[str]) -> None:
        self._count[operation] += 1
        module = f"{operation}_{self._count[operation]}"
        self._names.setdefault(weight, f"{module}.weight")
        for word, at in {**USUAL, **BESIDE.get(operation, {})}.items():
            if at < len(arguments) and arguments[at].startswith(f"{CONSTANTS}."):
                self._names.setdefault(arguments[at], f"{module}.{word}")
        said = {word: _literal(arguments[at]) for at, word in words.items() if at < len(arguments)}
        turned = {"transposed": True} if "transpose" in operation else {}
        self.observed += shown(module, said | turned, f"torch.{operation}")

    def _called(self, at: int) -> str:
        return self._names.get(f"{CONSTANTS}.c{at}", f"constants.c{at}")
