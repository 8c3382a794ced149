"""The command `mapper`: arguments, exit codes, printing.

click alone, without typer and rich: they cost 0.11 s of the 0.3 s that a whole `mapper inspect` may take.
"""

from mapper._collector import collection_paused

# modules are kept: to look among them for what is not takes a tenth of the time of an `inspect`
with collection_paused(for_good=True):
    from mapper.cli.app import main

__all__ = ["main"]
