"""An answer that was found: a value, how, and how sure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Found:
    """An answer to a question of a reading, as a hint that says its evidence."""

    value: Any
    evidence: str  # "weights", "behaviour", or "default" where neither tells it from others
    source: str  # "15.9 against 10.2 for 6"

    def as_hint(self) -> dict[str, Any]:
        """As `hints` and a remembered file have it: plain data."""
        return {"value": self.value, "evidence": self.evidence, "source": self.source}
