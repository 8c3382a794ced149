"""Headers of well-known models, shipped with the package; each is reconstructed and says so."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from mapper.catalogue.records import read_record
from mapper.checkpoint import Checkpoint
from mapper.sources.documents import parse
from mapper.sources.manifest import from_document

HEADERS = Path(__file__).with_name("headers.zip")
SUFFIX = ".json"


@lru_cache(maxsize=1)
def names() -> tuple[str, ...]:
    """The hub ids in the catalogue, sorted."""
    from zipfile import ZipFile  # here, because the table of config fields is read without it

    with ZipFile(HEADERS) as archive:
        return tuple(record.removesuffix(SUFFIX) for record in archive.namelist())


def find(name: str) -> Checkpoint | None:
    """The header of the model `name`, or None. A name without its owner is found if no two owners have it.

    >>> find("distilbert-base-uncased").source
    'distilbert/distilbert-base-uncased'
    """
    repo = _resolve(name.lower())
    if repo is None:
        return None
    document = parse(read_record(HEADERS.read_bytes(), repo + SUFFIX) or b"", f"{repo} in the catalogue")
    checkpoint = from_document(document, repo)
    made = document["evidence"]
    checkpoint.notes = [f"header from the bundled catalogue ({made}), not from the hub"]
    if document.get("config_evidence"):
        source = f" ({document['config_source']})" if document.get("config_source") else ""
        checkpoint.notes.append(f"evidence for its config: {document['config_evidence']}{source}")
    if document.get("note"):
        checkpoint.notes.append(f"about this header: {document['note']}")
    return checkpoint


def _resolve(name: str) -> str | None:
    """The hub id that `name`, in lower case as the hub compares, stands for."""
    exact = [repo for repo in names() if repo.lower() == name]
    if exact or "/" in name:
        return exact[0] if exact else None
    last = [repo for repo in names() if repo.lower().rpartition("/")[2] == name]
    return last[0] if len(last) == 1 else None
