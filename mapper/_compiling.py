"""Generated source as a module, and its models through pickle: the source goes along and is compiled where it is read.

The classes of a built model come from a text, so no other process could import them. `pickle`, `torch.save`,
`multiprocessing` and `copy` ask each object how it is made: by a `Compiled` class, which a copy takes as it is and a
pickle as text. The text passes the check of every generated source; against a pickle that means harm no check helps,
since unpickling itself calls whatever the pickle names.
"""

from __future__ import annotations

import hashlib
import linecache
import sys
from collections.abc import Callable
from functools import lru_cache, partial
from types import CodeType, ModuleType
from typing import Any

from mapper.errors import FlowError, FormatError

_KNOWN = 64  # texts


def compile_source(text: str, name: str) -> ModuleType:
    """The generated file as a module. Its source stays readable to `inspect`, tracebacks and torch.compile."""
    label = label_of(text)
    file = f"<mapper: {name}, {label[-8:]}>"
    module = ModuleType(label)
    module.__file__ = file
    sys.modules[label] = module  # dataclasses look their module up there
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    exec(_code(text, file), module.__dict__)
    let_travel(module, text, name)
    return module


@lru_cache(maxsize=_KNOWN)
def _code(text: str, file: str) -> CodeType:
    """A model that is built again is not compiled again."""
    code: CodeType = compile(text, file, "exec")
    return code


def label_of(text: str) -> str:
    """What the module of a generated file is called, in every process."""
    return f"mapper_generated_{hashlib.sha256(text.encode()).hexdigest()[:16]}"


class Compiled:
    """A class of a generated source; a pickle holds the source's text instead, once for all objects in it."""

    def __init__(self, made: type, text: str, name: str) -> None:
        self.made = made
        self._text = text
        self._name = name  # of the source

    def __reduce__(self) -> tuple[Callable[..., Compiled], tuple[str, ...]]:
        return compiled, (self._text, self._name, self.made.__name__)

    def __copy__(self) -> Compiled:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Compiled:
        return self


class Travelling:
    """The `__reduce_ex__` of a generated class; a subclass that somebody else wrote is pickled as any other."""

    def __init__(self, compiled: Compiled) -> None:
        self.compiled = compiled

    def __get__(self, instance: Any, owner: type) -> Any:
        return self if instance is None else partial(self._reduce, instance)

    def _reduce(self, instance: Any, protocol: Any) -> Any:
        usual: Any = object.__reduce_ex__(instance, max(int(protocol), 2))
        if type(instance) is not self.compiled.made:
            return usual
        _, (_, *arguments), *state = usual
        return new, (self.compiled, *arguments), *state


def let_travel(module: ModuleType, text: str, name: str) -> None:
    """Give the classes of a generated source a way into another process."""
    for made in vars(module).values():
        if isinstance(made, type) and made.__module__ == module.__name__:
            made.__reduce_ex__ = Travelling(Compiled(made, text, name))  # type: ignore[method-assign, assignment]


def new(compiled: Compiled, *arguments: Any) -> Any:
    """An object of the class without its state, which pickle and copy put in."""
    return compiled.made.__new__(compiled.made, *arguments)


def compiled(text: str, name: str, made: str) -> Compiled:
    """The class `made` of a source, which is compiled unless this process has it. Raises FormatError."""
    from mapper.emission.guard import check_source

    module = sys.modules.get(label_of(text))
    if module is None:
        try:
            check_source(text)
        except FlowError as error:
            raise FormatError(f"the pickle of {name} holds no source of mapper's: {error}") from error
        module = compile_source(text, name)
    found = vars(module).get(made)
    travelling = vars(found).get("__reduce_ex__") if isinstance(found, type) else None
    if not isinstance(travelling, Travelling):
        raise FormatError(f"the pickle of {name} names a class {made!r} that its source does not have")
    return travelling.compiled
