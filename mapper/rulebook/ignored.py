"""`ignored:` in rule files: the fields of a config that change nothing, and with which values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any

from mapper._dataclass import dataclass
from mapper.rulebook.fields import Fields

KEY = "ignored"
ANY = "any"  # the entry with the fields that change nothing whatever they say


@dataclass(frozen=True)
class Ignored:
    """Fields that change nothing: with any value, or with some."""

    always: frozenset[str] = frozenset()  # `speech_*`: all that start so
    valued: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)

    def beside(self, other: Ignored | None) -> Ignored:
        """Both, the other's values first: where it says with which ones a field changes nothing, others change something."""
        if other is None:
            return self
        if not (self.always or self.valued):  # of most files: hundreds of fields are not copied
            return other
        return Ignored((self.always - set(other.valued)) | other.always, {**self.valued, **other.valued})

    def fields(self) -> tuple[str, ...]:
        return (*sorted(self.always), *self.valued)

    def where(self, keeps: Callable[[str], bool]) -> Ignored:
        """Those fields of which it is true."""
        valued = {name: values for name, values in self.valued.items() if keeps(name)}
        return Ignored(frozenset(filter(keeps, self.always)), valued)


def read_ignored(fields: Fields) -> Ignored:
    """`ignored: {any: [seq_length], is_decoder: [false]}`."""
    said = fields.choices(KEY)
    always = said.pop(ANY, ())
    for name in always:
        if not isinstance(name, str):
            fields.fail("expected a list of fields", KEY, ANY)
    return Ignored(frozenset(always), said)
