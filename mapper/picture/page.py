"""One HTML file that needs nothing else: no server, no network, no other file.

What comes from a checkpoint is data: JSON in which no tag can end, put on the page as text. The policy in the head allows
the two scripts and the style of the page by their digests, and nothing from anywhere.
"""

from __future__ import annotations

import hashlib
import json
from base64 import b64encode
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

ASSETS = Path(__file__).resolve().parent / "assets"
_SCRIPTS = ("draw.js", "panel.js", "print.js", "page.js")  # the last starts it
_UNSAFE = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


@cache
def asset(name: str) -> str:
    """The text of a file of the page."""
    return (ASSETS / name).read_text(encoding="utf-8")


def page(documents: list[dict[str, Any]], title: str, differences: str = "") -> str:
    """A page of one document, or of two that are compared, with what differs as text."""
    library = f"/*! dagre, MIT licence\n{asset('dagre.LICENSE.txt')}*/\n{asset('dagre.min.js')}"
    script = "\n".join(map(asset, _SCRIPTS))
    style = asset("draw.css") + asset("page.css")
    data = as_json({"documents": documents, "differences": differences.splitlines()})
    allowed = " ".join(f"'sha256-{_digest(text)}'" for text in (library, script))
    policy = f"default-src 'none'; script-src {allowed}; style-src 'sha256-{_digest(style)}'; base-uri 'none'; form-action 'none'"
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(title)}</title>
<style>{style}</style>
</head>
{asset("page.html")}
<script type="application/json" id="data">{data}</script>
<script>{library}</script>
<script>{script}</script>
</html>
"""


def as_json(value: Any) -> str:
    """JSON that is safe inside of a script element."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for character, escaped in _UNSAFE.items():
        text = text.replace(character, escaped)
    return text


def _digest(text: str) -> str:
    """As a browser computes it of the text of an element."""
    return b64encode(hashlib.sha256(text.encode()).digest()).decode()
