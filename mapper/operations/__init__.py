"""The arithmetic that flows call, one file per topic. Importing this package never imports torch."""

from mapper.operations.registry import (
    Signature,
    operation_calls,
    operation_names,
    operation_signature,
    operation_source,
    operations_needed,
)

# A saved model names the version that its flows were written for. Raise VERSION with every change after which an old
# flow would not run or would compute something else: an operation renamed, taken out or given another meaning, a
# parameter or a return value changed. New operations and new last parameters with a default change nothing. OLDEST is
# the lowest version whose flows still mean the same. What those of version 1 were called: rulebook/renamed.py.
# Version 3: what is a line or two of torch is written out in the flows, and one function serves where several differed
# by an argument (`is_causal`, `scale`, `bias`). Version 4: the same of those that one flow alone called. Version 6: the
# same of sinusoids, masks, groups and padding. Version 7: the same of dilated convolutions, scales of series, masks of
# blocks and prompts. Version 8: the same of square maps and overlapping windows. Version 9:
# convolutions of a list have arguments by element, and are called.
# A flow of before that calls none of those that are gone means the same.
# What to write in place of those that are gone: flows/retired.py.
VERSION = 9
OLDEST = 4

__all__ = [
    "OLDEST",
    "VERSION",
    "Signature",
    "operation_calls",
    "operation_names",
    "operation_signature",
    "operation_source",
    "operations_needed",
]
