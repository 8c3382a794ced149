"""The arithmetic that flows call, one file per topic. Importing this package never imports torch."""

from mapper.operations.registry import (
    Signature,
    operation_calls,
    operation_names,
    operation_signature,
    operation_source,
    operations_needed,
)

__all__ = [
    "Signature",
    "operation_calls",
    "operation_names",
    "operation_signature",
    "operation_source",
    "operations_needed",
]
