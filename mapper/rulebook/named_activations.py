"""`vocabulary: activations`: activations by the name that configs use."""

from __future__ import annotations

from collections.abc import Iterable

from mapper.rulebook.facts import ActivationRule, files_of
from mapper.rulebook.strict import Document


def read_activations(documents: Iterable[Document]) -> dict[str, ActivationRule]:
    """Activations by the name that configs use."""
    found: dict[str, ActivationRule] = {}
    for document, fields in files_of(documents, "activations"):
        for name, value in fields.mapping("activations").items():
            if not isinstance(value, str):
                fields.fail("expected an expression over x", "activations", name)
            line = fields.line("activations", name)
            found.setdefault(name, ActivationRule(name, value, document.label, line))
        fields.done()
    return found
