"""Models of files that `mapper.generate` wrote: the reading that a file came from is made again from the model's tensors."""

from __future__ import annotations

import linecache
from collections.abc import Iterator
from dataclasses import replace
from types import FunctionType
from typing import Any

from torch import nn

from mapper._build import Made, light
from mapper.checkpoint import Checkpoint
from mapper.emission.origin import (
    Told,
    apart_from_versions,
    is_of_graph,
    is_origin_there,
    is_unedited,
    told_by,
)
from mapper.errors import MapperError, shorten
from mapper.rulebook.examples import expand
from mapper.weights.built.sameness import new_model, why_edited

OF_GRAPH = "it was written from an ONNX graph, which is not stored; mapper.build of that file makes the model"


def reading_of(model: nn.Module) -> Made | str:
    """What a model of a generated file was emitted from, or why that cannot be told."""
    file, text = _file_of(type(model))
    told = told_by(text)
    if told is None or not is_unedited(text):
        edited = is_origin_there(text)
        return f"{shorten(file)} was edited since mapper wrote it" if edited else ""
    if changed := why_edited(model, text):
        return f"the model was changed: {changed}"
    if is_of_graph(text):
        return OF_GRAPH
    return _read_again(model, told, text) or (
        f"the rules have changed since {shorten(file)} was written; generate it again"
    )


def _file_of(made_by: type[nn.Module]) -> tuple[str, str]:
    """The file that a class is from, and its text as far as there is one."""
    forward = vars(made_by).get("forward")
    if not isinstance(forward, FunctionType):
        return "", ""
    file = forward.__code__.co_filename
    linecache.checkcache(file)
    return file, "".join(linecache.getlines(file, forward.__globals__))


def _read_again(model: nn.Module, told: Told, text: str) -> Made | None:
    """The reading whose source is this text."""
    from mapper.emission import emit
    from mapper.inference import infer

    wanted = apart_from_versions(text)
    checkpoint, origin = _checkpoint(model, told), told.origin
    for rulebook in _rulebooks():
        try:
            read = infer(checkpoint, rulebook, hints=origin.hints, use_families=origin.families)
            emitted = emit(read, **told.options)
        except MapperError:
            continue
        if apart_from_versions(emitted) == wanted:
            return Made(light(read), told.options, emitted)
    return None


def _rulebooks() -> Iterator[Any]:
    """The shipped rules with the user's own, then whatever else this process has read by."""
    from mapper.rulebook.rulebook import rulebook_of, rulebooks_in_use

    first = rulebook_of()
    yield first
    yield from (other for other in rulebooks_in_use() if other is not first)


def _checkpoint(model: nn.Module, told: Told) -> Checkpoint:
    """The checkpoint that the model's file was made from: a model may have been cast since."""
    from mapper.sources.in_memory import open_tensors

    forward: Any = vars(type(model))["forward"]
    words = {new: old for old, new in forward.__globals__.get("RENAMED", {}).items()}
    states = new_model(type(model)).state_dict(keep_vars=True)
    keys = {".".join(words.get(word, word) for word in name.split(".")): name for name in states}
    checkpoint = open_tensors({key: states[name] for key, name in keys.items()}, told.source)
    tensors = checkpoint.tensors
    for dtype, places in told.types.items():
        for key in {key for place in places for key in expand(place)} & tensors.keys():
            tensors[key] = tensors[key]._replace(dtype=dtype)
    return replace(
        checkpoint, config=told.origin.config, notes=list(told.notes), prefix=told.prefix, read=None
    )
