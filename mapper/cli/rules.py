"""`mapper rules check | explain | list`."""

from __future__ import annotations

import click

from mapper.cli.options import Group


@click.group(
    cls=Group,
    examples="""
    mapper rules check my_family.yaml
    mapper rules explain encoder.layer.0.attention.self.query.weight
    mapper rules list
    """,
)
def rules() -> None:
    """Check, explain and list the rule files."""
