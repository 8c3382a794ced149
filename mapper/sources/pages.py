"""Addresses of the hub's pages, and names that were nearly right."""

from __future__ import annotations

import os
from collections.abc import Iterable
from difflib import SequenceMatcher
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from mapper.errors import SourceError, shorten
from mapper.sources.files import SHOWN
from mapper.sources.hub_cache import MAIN, PREFIX, cache_folder
from mapper.sources.reach import endpoint
from mapper.sources.sharded import is_inside
from mapper.words import close_to

HUB = "https://huggingface.co"
HOSTS = ("huggingface.co", "www.huggingface.co", "hf.co")  # of the public hub
FILE_PAGES = ("blob", "resolve", "raw", "edit")  # /owner/name/blob/REVISION/FILE
FOLDER_PAGE = "tree"  # /owner/name/tree/REVISION[/FOLDER]
# First words of addresses below which no models are.
OTHERS = {
    "datasets": "a data set", "spaces": "a space", "docs": "documentation", "papers": "a paper", "collections": "a collection",
    "blog": "an article", "organizations": "an organisation", "models": "a list of models", "api": "the hub's interface",
}  # fmt: skip
NEAR = 0.75  # how alike a name must be to be offered; 1 is the same
WORSE = 0.08  # how much less alike than the best the others offered may be


class Page(NamedTuple):
    """What the address of a page stands for: a model, at a revision, one file or one folder of it."""

    name: str  # the id
    revision: str | None = None
    file: str | None = None
    folder: str = ""


def page_of(text: str) -> Page:
    """The model that a page of the hub is about. Raises SourceError for any other address."""
    words = _words(text)
    if not words or words[0] in OTHERS:
        kind = OTHERS[words[0]] if words else "the hub itself"
        raise SourceError(
            f"{_shown(text)}: the address of {kind}, not of a model; give that of a model's page"
        )
    single = len(words) == 1 or words[1] in (*FILE_PAGES, FOLDER_PAGE)  # old models have no owner
    name, rest = "/".join(words[: 1 if single else 2]), words[1 if single else 2 :]
    page = Page(name)
    if len(rest) > 1 and rest[0] in (
        *FILE_PAGES,
        FOLDER_PAGE,
    ):  # others, discussions say, are about the model
        kind, revision, path = rest[0], rest[1], "/".join(rest[2:])
        shown = {"folder": path} if kind == FOLDER_PAGE else {"file": path or None}
        page = Page(name, None if revision == MAIN else revision, **shown)
    if not _is_sound(page):
        raise SourceError(f"{_shown(text)}: not the address of a model's page, as {HUB}/owner/name is")
    return page


def _is_sound(page: Page) -> bool:
    """Whether the parts of an address are what they are for: no path leads out of the repository."""
    from mapper.sources.hub import is_id, is_revision

    paths = [path for path in (page.file, page.folder) if path]
    return (
        is_id(page.name)
        and (page.revision is None or is_revision(page.revision))
        and all(map(is_inside, paths))
    )


def _words(text: str) -> list[str]:
    """The parts of the path of an address below the hub's own."""
    try:
        url, own = urlsplit(text), urlsplit(endpoint())
        hosts = (*HOSTS, own.netloc.lower())
        is_hub = url.netloc.lower() in hosts
    except ValueError:
        is_hub = False
    if not is_hub:
        raise SourceError(
            f"{_shown(text)}: not an address of the hub ({endpoint()}); download the file and give its path, or set "
            "HF_ENDPOINT if it is a mirror"
        )
    path = url.path
    if own.netloc.lower() == url.netloc.lower():
        path = path.removeprefix(own.path)
    return [unquote(word) for word in path.split("/") if word]


def _shown(text: str) -> str:
    return shorten(text, SHOWN)[1:-1]


def neighbours(name: str, answered: bool = False) -> str:
    """What a name that nothing is found under may have been meant for, as the end of a sentence; "" for nothing near.

    Unless the hub `answered` that it has no such model, a name without its owner is right where one owner has it.
    """
    from mapper.catalogue import names

    near = _near(name, [*names(), *_cached()], answered)
    return f"; did you mean {' or '.join(near)}?" if near else ""


def _near(name: str, known: Iterable[str], answered: bool) -> list[str]:
    """At most three of the known ids, the most alike first: by the whole id, or by its last part alone."""
    wanted = name.lower()
    by_text: dict[str, list[str]] = {}
    for repo in dict.fromkeys(known):
        text = repo.lower() if "/" in wanted else repo.lower().rpartition("/")[2]
        by_text.setdefault(text, []).append(repo)
    same = by_text.get(wanted, ())
    if same and ("/" in wanted or (len(same) == 1 and not answered)):  # it is right: something else is wrong
        return []
    found = close_to(wanted, by_text, 3, NEAR)
    if found:
        least = _alike(wanted, found[0]) - WORSE
        found = [text for text in found if _alike(wanted, text) >= least]
    if "/" in wanted and not found:  # right but for its owner
        last = wanted.rpartition("/")[2]
        found = [text for text in by_text if text.rpartition("/")[2] == last]
    return [repo for text in found for repo in by_text[text]][:3]


def _alike(one: str, other: str) -> float:
    return SequenceMatcher(None, other, one).ratio()


def _cached() -> list[str]:
    """The ids of the models in the hub's cache."""
    try:
        entries = os.listdir(cache_folder())
    except OSError:
        return []
    return [entry.removeprefix(PREFIX).replace("--", "/") for entry in entries if entry.startswith(PREFIX)]
