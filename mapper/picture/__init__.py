"""A reading as a picture: blocks, the data between them, and the evidence; a page for a browser, or an SVG. Imports no torch."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mapper.architecture import Architecture
    from mapper.values.result import Values

_HEIGHT = 560  # pixels of a page in a notebook


def as_html(architecture: Architecture, values: Values | None = None) -> str:
    """One HTML file that needs no other and no network. `values`: what was measured of the weights."""
    from mapper.picture.document import document
    from mapper.picture.page import page

    found = document(architecture, values)
    return page([found], found["title"])


def as_svg(architecture: Architecture) -> str:
    """The picture alone, as it is when the page opens. Raises MapperError without the extra `picture`."""
    from mapper.picture.document import document
    from mapper.picture.svg import svg

    return svg(document(architecture))


def in_notebook(page: str) -> str:
    """A page as a part of another, which it can neither read nor change."""
    style = f"width:100%;height:{_HEIGHT}px;border:1px solid #8886;border-radius:8px"
    return f'<iframe sandbox="allow-scripts" style="{style}" title="the model as a picture" srcdoc="{escape(page)}"></iframe>'
