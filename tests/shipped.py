"""The shipped rules, read once in each process that runs tests: with all examples this takes seconds."""

from __future__ import annotations

from mapper.rulebook.rulebook import Rulebook

RULEBOOK = Rulebook()
