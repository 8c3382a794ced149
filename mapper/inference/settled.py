"""Sizes that were settled for blocks, and what they say of the blocks around and below."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from mapper.inference.evidence import Known
from mapper.inference.scopes import Scope, sizes_below


class Settled:
    """Looks up what the equations of shapes gave."""

    def __init__(self, is_complete: bool = False) -> None:
        self.is_complete = is_complete  # whether all sizes are
        self._shared: dict[Scope, Mapping[str, Known]] = {}

    def of(self, scope: Scope, name: str) -> Iterator[Known]:
        """What was settled for the block, for one around it, or alike for all blocks below one of these."""
        for outer in scope.up():
            known = outer.solved.get(name) or (self._below(outer).get(name) if self.is_complete else None)
            if known:
                yield known
            if known or outer is scope.tower:
                break
        else:
            return
        if not known and scope.tower and scope.tower.parent:
            yield from _around(scope.tower.parent, name)

    def _below(self, scope: Scope) -> Mapping[str, Known]:
        """Sizes that have one value in all blocks below; known once all sizes are."""
        if scope not in self._shared:
            self._shared[scope] = sizes_below(scope)
        return self._shared[scope]


def _around(scope: Scope, name: str) -> Iterator[Known]:
    """What was settled for the blocks around a tower, without those of other towers."""
    yield from [outer.solved[name] for outer in scope.up() if name in outer.solved][:1]
