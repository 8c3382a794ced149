"""The picture as an SVG of its own: the page's own drawing, run by a small JavaScript engine (the extra `picture`)."""

from __future__ import annotations

import json
from typing import Any

from mapper.errors import MapperError
from mapper.picture.page import asset

# What dagre takes from a browser: it copies two plain tables.
_BROWSER = (
    "globalThis.structuredClone = (value) => value === undefined ? value : JSON.parse(JSON.stringify(value));"
)
_MEMORY = 512 * 2**20  # bytes; a picture of thousands of nodes takes a tenth


def svg(document: dict[str, Any]) -> str:
    """An SVG file of a document. Raises MapperError without the engine."""
    try:
        from quickjs import Context
    except ImportError:
        raise MapperError(
            "an SVG is drawn by quickjs, which is not installed: pip install 'checkpoint-mapper[picture]'; --html needs nothing"
        ) from None
    engine = Context()
    engine.set_memory_limit(_MEMORY)
    for text in (_BROWSER, asset("dagre.min.js") + ";globalThis.dagre = dagre;", asset("draw.js")):
        engine.eval(text)
    engine.set("data", json.dumps(document))
    engine.set("style", asset("draw.css"))
    # through JSON: a text that was put together of many is no plain string in the engine, which its binding refuses
    drawn: str = json.loads(engine.eval("JSON.stringify(standalone(JSON.parse(data), style))"))
    return drawn
