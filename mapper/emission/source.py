"""The generated file: header, sizes, operations, classes, load."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from mapper._version import __version__
from mapper.architecture import UNREAD, Architecture, Leaf, Place
from mapper.emission.assumed import assumed
from mapper.emission.bodies import Activation, Bodies, Body
from mapper.emission.caching import NO_CACHE, annotation, cache_method, cached_tower
from mapper.emission.config_class import Sizes, collect_sizes
from mapper.emission.config_text import annotation_of, config_text
from mapper.emission.constructors import TORCH_DTYPES
from mapper.emission.drafts import CLOSE, LEFT_OUT, OPEN, ClassText, Draft, blocks_of
from mapper.emission.dropout_calls import deepening_rows, place_dropout, training_source, weighing_operations
from mapper.emission.expressions import comment, quoted
from mapper.emission.identifiers import rename_table
from mapper.emission.line_breaks import lines
from mapper.emission.lists import Classes
from mapper.emission.module_tree import Folder, assign_owners, module_tree, order_children
from mapper.emission.naming import describe, name_classes
from mapper.emission.parameters import written
from mapper.emission.paths import Paths
from mapper.emission.printing import WIDTH
from mapper.emission.simpler import without_single_loops
from mapper.emission.ties import tie_text, tied_leaves, untied_text
from mapper.emission.train import told
from mapper.emission.types import Types, main_dtype
from mapper.errors import ArchitectureError
from mapper.flows.flow import Flow
from mapper.flows.program import Program, program_of, read_items
from mapper.operations.registry import operation_names, operation_source, operations_needed

_LEFT_OUT = re.compile(rf", \w+={LEFT_OUT}")
_MARK = re.compile(f"{OPEN}(\\d+){CLOSE}")
_CLASS = re.compile("\x03(\\d+)\x04")
_ATTRIBUTE = re.compile(r"self\.(?:register_buffer\(\"|)(\w+)")
_CONTAINER = re.compile(r"self\.(\w+) = (?:nn\.(?:Module|Parameter)(?:Dict|List)\(|\x03(\d+))")
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(eq=False)
class _File:
    """What is known while one file is written."""

    architecture: Architecture
    program: Program | None
    root: Folder
    renames: dict[str, str]
    sizes: Sizes
    classes: list[ClassText] = field(default_factory=list)
    outputs: dict[str, str] = field(default_factory=dict)  # field of the output -> annotation
    opened: set[Place] = field(default_factory=set)  # containers and buffers that a forward looks into


@dataclass(frozen=True)
class Emitted:
    """A finished file: its text, the program that it runs (None: a skeleton), and the class of each folder."""

    text: str
    program: Program | None
    classes: dict[Place, str]


def emit_source(
    architecture: Architecture,
    flows: Callable[[str], Flow],
    activation: Activation,
    options: Mapping[str, bool],
    unlisted: frozenset[str] = frozenset(),
) -> Emitted:
    """The source of a model as one self-contained file. Raises MapperError where a flow breaks a check.

    Of the sizes in `unlisted` the config has no list with an element for each stage.
    """
    root = module_tree(architecture)
    skeleton = architecture.reading == "skeleton"
    program = None if skeleton else program_of(architecture, flows, options)
    if program is not None and architecture.dropout is not None:
        place_dropout(program)
    sizes = collect_sizes(architecture, unlisted)
    file = _File(architecture, program, root, rename_table(architecture), sizes)
    paths = Paths(root, file.renames)
    cache = options.get("cache", False)
    if cache and program is not None:
        cached_tower(program)
    file.opened = paths.opened
    methods = _methods(file, paths, activation, cache)
    unread = _unread(architecture, program)
    classes = Classes(root, paths, methods, sizes.field, sizes.stages, unlisted=unlisted, unread=unread)
    classes.learn(program)
    sizes.unite()
    file.classes = classes.run()
    if half := sizes.stages.half_read() | sizes.stages.half_written(written(file.classes)):
        return emit_source(architecture, flows, activation, options, unlisted | half)
    name_classes(file.classes, root, set(operation_names()), program)
    named = {draft.folder.place: done.name for done in file.classes for draft in done.drafts}
    return Emitted(_Writer(file).text(), program, named)


def _unread(architecture: Architecture, program: Program | None) -> dict[int, str]:
    """The leaves that no forward reads, each with why it is in the checkpoint, if that is known."""
    if program is None:
        return {}
    used = read_items(program)
    reasons = dict(architecture.unused)
    return {
        id(leaf): next((reasons[key] for key in Leaf.keys(leaf) if key in reasons), "no forward reads it")
        for leaf in architecture.leaves
        if id(leaf) not in used
    }


def _methods(
    file: _File, paths: Paths, activation: Activation, cache: bool
) -> Callable[[Folder, Draft], list[str]]:
    program = file.program
    if program is None:
        return lambda folder, draft: _refusal(file) if folder is file.root else []
    owners = assign_owners(file.root, program)
    order_children(file.root, program)
    types = Types(program, _annotations(file.architecture))
    file.outputs = types.outputs
    bodies = Bodies(program, owners, paths, types, activation)

    def methods(folder: Folder, draft: Draft) -> list[str]:
        text: list[str] = []
        for block in sorted(blocks_of(folder), key=lambda block: block is not folder.block):
            piece = program.piece(block)
            if bodies.is_inlined(block):
                continue
            body = Body(bodies, piece, draft).text()
            text += ([""] if text else []) + (_public(file, body) if piece is program.root else body)
        if cache and folder is file.root:
            text += ["", *cache_method(program, draft)]
        return text

    return methods


def _annotations(architecture: Architecture) -> dict[str, str]:
    return {name: annotation(spec) for name, spec in architecture.inputs.items()}


def _public(file: _File, body: list[str]) -> list[str]:
    """The root's signature: required inputs first, the others None unless given."""
    inputs = file.architecture.inputs
    assert file.program is not None
    if not inputs.keys() >= set(file.program.inputs):  # only the option cache reads what no flow binds
        raise ArchitectureError(NO_CACHE)
    idle = [name for name, spec in inputs.items() if UNREAD in spec]
    names = sorted(
        [*file.program.inputs, *idle],
        key=lambda name: (bool(inputs.get(name, {}).get("optional")), list(inputs).index(name)),
    )
    parameters = [
        f"{name}: {annotation(inputs[name])}{' = None' if inputs[name].get('optional') else ''}"
        for name in names
    ]
    start = next(index for index, line in enumerate(body) if line.endswith(":") and "->" in line)
    head = lines(f"def forward({', '.join(['self', *parameters])}) -> Output:", 4)
    sized = [name for name in names if inputs[name].get("kind", "tensor") == "tensor"]
    shapes = ", ".join(f"{name} ({', '.join(map(str, inputs[name].get('shape', [])))})" for name in sized)
    if idle:
        shapes += f"; {' and '.join(idle)} {'is' if len(idle) == 1 else 'are'} not read"
    return [*head, *_docstring(shapes, 8), *body[start + 1 :]]


def _refusal(file: _File) -> list[str]:
    """The forward of a skeleton: it says what is missing."""
    missing = file.architecture.missing or ["no flow fits these names"]
    told = "; ".join(comment(reason) for reason in missing[:3]).replace('"', "'")
    return [
        "    def forward(self, *inputs: Tensor) -> Tensor:",
        *lines(f"raise RuntimeError({quoted('a skeleton: ' + told)})", 8),
    ]


def _docstring(text: str, indent: int) -> list[str]:
    pad = " " * indent
    if len(text) + indent + 6 <= WIDTH:
        return [f'{pad}"""{text}"""']
    rows = _wrapped(text, WIDTH - indent - 6)
    return [f'{pad}"""{rows[0]}', *(pad + row for row in rows[1:]), f'{pad}"""']


def _noted(rows: list[str], why: str) -> list[str]:
    """A statement with the reason why nothing reads what it makes, behind it or above."""
    if not why:
        return rows
    note = f"# unused: {comment(why)}"
    if len(rows) == 1 and len(rows[0]) + len(note) + 2 <= WIDTH:
        return [f"{rows[0]}  {note}"]
    pad = rows[0][: len(rows[0]) - len(rows[0].lstrip())]
    first, *rest = _wrapped(note, WIDTH - len(pad) - 2)
    return [pad + first, *(f"{pad}# {row}" for row in rest), *rows]


class _Writer:
    """Puts the parts together once every class has a name."""

    def __init__(self, file: _File):
        self.file = file

    def text(self) -> str:
        classes = [self.class_text(done) for done in self.file.classes]
        body = "\n\n\n".join("\n".join(rows) for rows in classes)
        load = self.load()
        words = set(_WORD.findall(body))
        needed = list(operations_needed(sorted(words & set(operation_names()))))
        operations = self.operations(needed)
        parts = [
            self.head(body, operations),
            config_text(self.file.sizes),
            self.output(),
            *operations,
            body,
            load,
        ]
        return "\n\n\n".join(part for part in parts if part) + "\n"

    def operations(self, names: Iterable[str]) -> list[str]:
        """The source of each; where something is dropped, of those that weigh by attention as training has them."""
        if self.file.architecture.dropout is None:
            return [operation_source(name) for name in names]
        weighed = weighing_operations()
        return [
            training_source(name, weighed) if name in weighed else operation_source(name) for name in names
        ]

    def head(self, body: str, operations: list[str]) -> str:
        architecture = self.file.architecture
        everything = "\n".join([body, *operations])
        doc = [
            f'"""{comment(architecture.checkpoint.source)}: written by mapper {__version__}, rules {architecture.rules[:12]}.',
            "",
        ]
        doc += [*_reading(architecture), *self.dropout(), ""]
        doc += ["Load the weights with `load(path)`; the attributes are the names in the checkpoint."]
        if architecture.checkpoint.is_packed:
            doc += ["It reads what `mapper build` writes: the checkpoint stores them in other types."]
        doc += ['"""']
        imports = ["from __future__ import annotations", ""]
        imports += ["import math"] if re.search(r"\bmath\.", everything) else []
        imports += ["from dataclasses import dataclass"] if self.file.sizes.used or self.file.program else []
        imports += ["from pathlib import Path"]
        imports += ["from statistics import NormalDist"] if "NormalDist(" in everything else []
        imports += ["from typing import Any"] if re.search(r": Any\b|\[Any\]", body) else []
        imports += ["", "import torch"]
        imports += ["import torch.nn.functional as F"] if re.search(r"\bF\.", everything) else []
        imports += ["from torch import Tensor, nn"]
        return "\n".join([*doc, "", *imports, *self.renames()])

    def dropout(self) -> list[str]:
        """What training mode does."""
        if self.file.program is None:
            return []
        dropout = self.file.architecture.dropout
        if dropout is None:
            normed = any(leaf.kind == "BatchNorm" for leaf in self.file.architecture.leaves)
            apart = ", the batch norms apart" if normed else ""
            return _wrapped(
                f"No dropout is written: training mode computes the same{apart}; `mapper generate --train` writes it."
            )
        return [row for text in told(dropout) for row in _wrapped(comment(text), WIDTH)]

    def renames(self) -> list[str]:
        if not self.file.renames:
            return []
        pairs = [f"    {quoted(word)}: {quoted(name)}," for word, name in self.file.renames.items()]
        return [
            "",
            "# Words of the checkpoint's names that cannot be attributes, and what stands for them here.",
            "RENAMED = {",
            *pairs,
            "}",
        ]

    def output(self) -> str:
        program = self.file.program
        if program is None:
            return ""
        fields = self.file.outputs
        rows = ["@dataclass", "class Output:", '    """What the model returns."""', ""]
        rows += [f"    {name}: {annotation}" for name, annotation in fields.items()]
        return "\n".join([*rows, "", "", "torch.export.register_dataclass(Output)"])

    def class_text(self, done: ClassText) -> list[str]:
        draft = done.drafts[0]
        rows = [f"class {done.name}({self.base(draft)}):", *_docstring(describe(done, self.file.program), 4)]
        constructor = self.constructor(done, draft)
        methods = [self.fill(done, row) for row in draft.methods]
        declared = self.declarations(done)
        rows += ["", *declared] if declared else []
        rows += ["", *constructor] if constructor else []
        return [*rows, "", *methods] if methods else rows

    def base(self, draft: Draft) -> str:
        return draft.base

    def declarations(self, done: ClassText) -> list[str]:
        """Annotations in the class for what torch's own do not tell: buffers, and elements that are looked into."""
        draft = done.drafts[0]
        rows = [
            f"    {name}: Tensor"
            for name in draft.children
            if f'self.register_buffer("{name}", ' in "\n".join(draft.lines) and self.is_opened(done, name)
        ]
        own = any(folder.folder.place in self.file.opened for folder in done.drafts)
        return ["    __getitem__: Any", *rows] if draft.base != "nn.Module" and own else rows

    def is_opened(self, done: ClassText, name: str) -> bool:
        """Whether a forward looks into a child of any instance."""
        return any(draft.children.get(name) in self.file.opened for draft in done.drafts)

    def annotated(self, done: ClassText, row: str) -> str:
        """`self.x: Any = ...` where the forward reads what is in a container, by names that torch does not annotate."""
        found = _CONTAINER.match(row)
        if found is None or not self.is_opened(done, found[1]):
            return row
        if found[2] and self.file.classes[int(found[2])].drafts[0].base == "nn.Module":
            return row  # a class of its own: its attributes have annotations
        return f"self.{found[1]}: Any{row[found.end(1) :]}"

    def constructor(self, done: ClassText, draft: Draft) -> list[str]:
        is_root = draft.folder is self.file.root
        parameters = ["self"]
        if done.takes_config:
            parameters.append("config: Config = Config()" if is_root else "config: Config")
        parameters += [
            f"{name}: {_common([value.value for value in values])}"
            for name, values in done.parameters.items()
        ]
        made = [row for row in draft.lines if row.startswith("super()")]
        start = made or ["super().__init__()"]
        rows = [
            *start,
            *draft.attributes.values(),
            *(row for row in draft.lines if row not in made),
            *self.casts(draft),
        ]
        deepening = self.deepening(draft)
        if rows == ["super().__init__()"] and not deepening:
            return []
        text = lines(f"def __init__({', '.join(parameters)}):", 4)
        at = 1 if rows[0] == "super().__init__()" else 0
        rows[at:at] = [f"{name} = {value}" for name, value in done.locals.items()]
        for row in rows:
            is_option = row in draft.options
            if is_option:
                text += lines(f"if {self.fill(done, draft.options[row])}:", 8)
            made_here = lines(self.fill(done, self.annotated(done, row)), 12 if is_option else 8)
            text += _noted(made_here, self.why_unread(done, row))
        return [*text, *(row for part in deepening for row in lines(part, 8))]

    def why_unread(self, done: ClassText, row: str) -> str:
        """Why a line makes what no forward of any instance reads."""
        name = _ATTRIBUTE.match(row)
        has = [draft for draft in done.drafts if name and name[1] in draft.children]
        reasons = {draft.unread.get(name[1], "") for draft in has} if name else set()
        return reasons.pop() if len(reasons) == 1 else ""

    def deepening(self, draft: Draft) -> list[str]:
        """How rates grow with depth, in the class of a tower."""
        rows: list[str] = []
        for tower in blocks_of(draft.folder):
            rates = {id(b): drop.rate for b in tower.blocks() for drop in b.drops if drop.way == "path"}
            classes = {
                done.name: rates[id(block)]
                for done in self.file.classes
                for other in done.drafts
                for block in blocks_of(other.folder)
                if id(block) in rates
            }
            rows += deepening_rows(tower, classes)
        return rows

    def casts(self, draft: Draft) -> list[str]:
        """The checkpoint's own floating-point type, where it is not torch's default; leaves of another type by name."""
        if draft.folder is not self.file.root:
            return []
        main = main_dtype(self.file.architecture)
        return [f"self.to({TORCH_DTYPES[main]})"] if main != "F32" else []

    def fill(self, done: ClassText, row: str) -> str:
        row = _MARK.sub(lambda match: done.resolved[int(match[1])], row)
        row = without_single_loops(_LEFT_OUT.sub("", row))
        return _CLASS.sub(lambda match: self.file.classes[int(match[1])].name, row)

    def load(self) -> str:
        program = self.file.program
        pairs = tied_leaves(program) if program else []
        untied = untied_text(pairs) if pairs else ""
        prefix = self.file.architecture.checkpoint.prefix
        text = _load_text(self.file.classes[-1].takes_config, bool(self.file.renames), untied, prefix)
        paths = Paths(self.file.root, self.file.renames)
        return f"{tie_text(pairs, paths)}\n\n\n{text}" if pairs else text


def _common(values: list[object]) -> str:
    """The annotation of a parameter that is given each of these."""
    kinds = list(dict.fromkeys(map(annotation_of, values)))
    if len(kinds) == 1 or not all(isinstance(value, tuple) for value in values):
        return kinds[0]
    return annotation_of(tuple(item for value in values for item in value))  # type: ignore[attr-defined]


def _reading(architecture: Architecture) -> list[str]:
    meaning = {
        "exact": f"Reading: exact (family {architecture.family}).",
        "unverified": "Reading: unverified. The names and shapes fit, but nobody has vouched for this architecture: compare before you rely on it.",
        "skeleton": "Reading: skeleton. The modules are typed and load strictly; no flow says how the data passes through them.",
    }
    notes = [comment(note) for note in architecture.checkpoint.notes]
    rows: list[str] = []
    for text in [meaning[architecture.reading], assumed(architecture), *notes]:
        rows += _wrapped(text) if text else []
    return rows


def _wrapped(text: str, width: int = WIDTH) -> list[str]:
    rows = [""]
    for word in text.split(" "):
        if len(rows[-1]) + len(word) + 1 > width:
            rows.append("")
        rows[-1] += (" " if rows[-1] else "") + word
    return rows


def _load_text(has_config: bool, renamed: bool, untied: str, prefix: str) -> str:
    signature = (
        "def load(path: str | Path, config: Config = Config()) -> Model:"
        if has_config
        else "def load(path: str | Path) -> Model:"
    )
    model = "Model(config)" if has_config else "Model()"
    tensors = "_renamed(tensors)" if renamed else "tensors"
    tie = "\n    tie(model)" if untied else ""
    part = _part_text(prefix) if prefix else ""
    text = f'''{signature}
    """The model with the weights of a .safetensors file or of a directory of them, ready to evaluate."""
    from safetensors.torch import load_file

    files = [Path(path)] if Path(path).is_file() else sorted(Path(path).glob("*.safetensors"))
    if not files:
        raise FileNotFoundError(f"no .safetensors file in {{path}}")
    tensors = {{
        name: tensor
        for file in files
        for name, tensor in load_file(file).items()
        if not name.startswith("__aux__.")  # what is saved beside a model, for training to go on
    }}
{part}{untied}    with torch.device("meta"):
        model = {model}
    model.load_state_dict({tensors}, strict=True, assign=True){tie}
    return model.eval()'''
    if not renamed:
        return text
    helper = """def _renamed(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {
        ".".join(RENAMED.get(word, word) for word in name.split(".")): tensor
        for name, tensor in tensors.items()
    }"""
    return f"{helper}\n\n\n{text}"


def _part_text(prefix: str) -> str:
    """What takes one model out of a file of several, where the file given is that one."""
    return f"""    prefix = {quoted(prefix)}
    if any(name.startswith(prefix) for name in tensors):  # a file of several models, this one among them
        tensors = {{
            name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)
        }}
"""
