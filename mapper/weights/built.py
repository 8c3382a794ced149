"""Models of mapper's own as data: the architecture that a model was emitted from, and the model back from it."""

from __future__ import annotations

from typing import Any

from mapper.architecture import Architecture
from mapper.errors import FormatError
from mapper.weights.blueprint_reader import read_data


def source_from(data: Any) -> str:
    """The source of an architecture as data. Raises FormatError for data that is broken or hostile."""
    return _emitted(data)[0]


def _emitted(data: Any) -> tuple[str, Architecture, dict[str, bool]]:
    from mapper.emission import emit

    try:
        architecture, options = read_data(data)
        return emit(architecture, **options), architecture, options
    except FormatError:
        raise
    except Exception as error:  # whatever data from a stranger brings about, the file is at fault
        raise FormatError(f"the stored architecture cannot be built: {error}") from error
