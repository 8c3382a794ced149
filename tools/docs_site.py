"""Hook of mkdocs: pages that stand elsewhere in the repository, reference pages made from the code, and links between all of them.

A page keeps the place that readers of the repository find it in; here it is put into the site, and links that lead to it follow. Links to files that
are no pages (source, rules) become their paths: the site has no address of a repository to lead to.
"""

from __future__ import annotations

import posixpath
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent

PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
    "rules/README.md": "rules.md",
    "rules/CONTENTS.md": "contents.md",
    "mapper/weights/README.md": "weights.md",
}  # in the repository: in the site
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")
SHOWN = re.compile(r'(?<=<img src=")[^":]+(?=")')  # a picture with a size of its own, in markup
NAMED = re.compile(
    r"^```(\w+) ([\w./]+)$", flags=re.MULTILINE
)  # a block that is a file: its name is the title
FENCE = re.compile(r"^(```.*?^```$)", flags=re.DOTALL | re.MULTILINE)


def on_files(files: Any, config: Any) -> Any:
    """Put the pages of `PAGES` and the reference pages among those of docs/."""
    from mkdocs.structure.files import File

    if str(ROOT) not in sys.path:  # here: mkdocs puts the path back after it has read the hook
        sys.path.insert(0, str(ROOT))
    from tools.reference_pages import reference_pages

    made = {site: (ROOT / path).read_text(encoding="utf-8") for path, site in PAGES.items()}
    made |= {f"reference/{name}.md": text for name, text in reference_pages().items()}
    for site, text in made.items():
        files.append(File.generated(config, site, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """A page whose links lead to pages of the site."""
    site = page.file.src_uri
    own = next((path for path, there in PAGES.items() if there == site), f"docs/{site}")
    return NAMED.sub(r'```\1 title="\2"', relinked(markdown, own, site))


def relinked(markdown: str, own: str, site: str) -> str:
    """The text of the page `own` of the repository as the page `site`: its links, outside of blocks of code, follow."""
    parts = FENCE.split(markdown)
    return "".join(part if part.startswith("```") else _relinked(part, own, site) for part in parts)


def _relinked(text: str, own: str, site: str) -> str:
    def follow(found: re.Match[str]) -> str:
        mark, words, target = found.groups()
        if "://" in target or target.startswith(("#", "mailto:")):
            return found.group()
        path, _, anchor = target.partition("#")
        near, there = near_of(path)
        if not near:
            return words if there in words else f"{words} (`{there}`)"
        return f"{mark}[{words}]({near}{'#' + anchor if anchor else ''})"

    def near_of(path: str) -> tuple[str, str]:
        """Where a file of the repository is, seen from the page, "" for nowhere in the site; and its path."""
        there = posixpath.normpath(posixpath.join(posixpath.dirname(own), path))
        to = PAGES.get(there) or (there.removeprefix("docs/") if there.startswith("docs/") else "")
        return (posixpath.relpath(to, posixpath.dirname(site) or ".") if to else ""), there

    return LINK.sub(follow, SHOWN.sub(lambda found: near_of(found.group())[0], text))
