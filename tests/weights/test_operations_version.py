"""Saved models name the version of the operations that their flows call: what they call may not change without a new one."""

from __future__ import annotations

from pathlib import Path

from mapper.operations import OLDEST, VERSION, operation_names, operation_signature

PINNED = Path(__file__).with_name("operations.txt")


def written(name: str) -> str:
    """An operation as one line: parameters, those with a default behind a bar, and what it gives back."""
    known = operation_signature(name)
    needed, more = known.parameters[: known.required], known.parameters[known.required :]
    return f"{name}({', '.join(needed)} | {', '.join(more)}) -> {known.returns}"


def parts(line: str) -> tuple[str, list[str], list[str], str]:
    name, _, rest = line.partition("(")
    parameters, _, returns = rest.partition(") -> ")
    needed, _, more = parameters.partition(" | ")
    return name, [*filter(None, needed.split(", "))], [*filter(None, more.split(", "))], returns


def test_what_saved_models_may_call_is_as_it_was_in_this_version() -> None:
    """New operations, and new last parameters with a default, are no change. Otherwise: raise VERSION in
    mapper/operations/__init__.py (and OLDEST, unless old flows mean the same), then write the list anew:

        python -c "from tests.weights.test_operations_version import *; PINNED.write_text(whole())"
    """
    first, *lines = PINNED.read_text().splitlines()
    assert first == f"version {VERSION}"
    for line in lines:
        name, needed, more, returns = parts(line)
        assert name in operation_names(), f"{name} is gone"
        _, now_needed, now_more, now_returns = parts(written(name))
        assert now_needed == needed, f"{name} takes other parameters"
        assert now_more[: len(more)] == more, f"{name} takes other parameters with a default"
        assert now_returns == returns, f"{name} gives back something else"


def test_the_oldest_version_is_one_that_was() -> None:
    assert 1 <= OLDEST <= VERSION


def whole() -> str:
    return "".join(f"{line}\n" for line in (f"version {VERSION}", *map(written, operation_names())))
