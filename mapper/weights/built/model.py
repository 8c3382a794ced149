"""Models of mapper's own as data: the architecture that a model was emitted from, and the model back from it.

A model that `mapper.build` made knows its architecture by its class; for one of a generated file the reading is made
again. A model that is not what its source makes any more has none: a replaced layer, another setting, a subclass.
"""

from __future__ import annotations

from typing import Any

from torch import nn

from mapper._build import Made, empty_model, light, made_of, remember, type_as_stored
from mapper.errors import FormatError
from mapper.weights.built.blueprint import as_data
from mapper.weights.built.generated import reading_of
from mapper.weights.built.reader import read_data
from mapper.weights.built.sameness import why_edited


def architecture_data(model: nn.Module) -> dict[str, Any] | None:
    """The architecture of a model of mapper's own as a JSON value; None for any other, and for an edited one."""
    found = data_and_source(model)
    return None if found is None else found[0]


def data_and_source(model: nn.Module) -> tuple[dict[str, Any], str] | None:
    """`architecture_data` with the source that is emitted from it."""
    made = _found(model)
    return None if isinstance(made, str) else (as_data(made.architecture, made.options), made.text)


def why_not_built(model: nn.Module) -> str:
    """Why a model has no architecture although its source is mapper's; "" for one that has, or is somebody else's."""
    made = _found(model)
    return made if isinstance(made, str) else ""


def module_from(data: Any, tensors: int | None = None) -> nn.Module:
    """The model of an architecture as data, in eval mode on the meta device, with the dtypes it was read with.

    Only source that mapper emits from the data is compiled. `tensors` is how many it must have. Raises FormatError
    for data that is broken or hostile.
    """
    made = _emitted(data, tensors)
    try:
        model = empty_model(made.text, made.architecture.checkpoint)
        type_as_stored(model, made.architecture.checkpoint)
    except Exception as error:  # whatever data from a stranger brings about, the file is at fault
        raise _unbuildable(error) from error
    remember(model, Made(light(made.architecture), made.options, made.text))
    return model.eval()


def _found(model: nn.Module) -> Made | str:
    made = made_of(model)
    if made is None:
        return reading_of(model)
    changed = why_edited(model, made.text)
    return f"the model was changed: {changed}" if changed else made


def _emitted(data: Any, tensors: int | None = None) -> Made:
    from mapper.emission import emit

    try:
        architecture, options = read_data(data)
        count = len(architecture.checkpoint.tensors)
        if tensors is not None and count != tensors:
            raise FormatError(f"the stored architecture has {count} tensors, and {tensors} are stored")
        return Made(architecture, options, emit(architecture, **options))
    except FormatError:
        raise
    except Exception as error:
        raise _unbuildable(error) from error


def _unbuildable(error: Exception) -> FormatError:
    reason = str(error).partition("\n")[0].rstrip(".")
    return FormatError(f"the stored architecture cannot be built: {type(error).__name__}: {reason}")
