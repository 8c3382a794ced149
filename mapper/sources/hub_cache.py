"""The hub's local cache: where a model's files lie, found without the hub's client.

The layout, `models--ORG--NAME/{refs,snapshots,blobs}`, is documented:
https://huggingface.co/docs/huggingface_hub/guides/manage-cache
"""

from __future__ import annotations

import os
from pathlib import Path

PREFIX = "models--"
LOCKS = ".locks"
PARTIAL = ".incomplete"  # what the name of a file that is still to come ends with
MAIN = "main"


def cache_folder() -> Path:
    """Where the hub's client keeps files; the environment is read at each call."""
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if os.environ.get(name):
            return Path(os.path.expanduser(os.environ[name]))
    home = os.environ.get("HF_HOME")
    if not home:
        base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
        home = os.path.join(base, "huggingface")
    return Path(os.path.expanduser(home)) / "hub"


def repository_folder(repo: str) -> Path:
    """Where the cache keeps the repository `repo`, which was checked to be an id."""
    return cache_folder() / (PREFIX + repo.replace("/", "--"))


def find_snapshot(repo: str, revision: str | None) -> Path | None:
    """The folder of the cached files of `repo`, or None. A short name may be cached under its full id."""
    folder = cache_folder()
    candidates = [repository_folder(repo)]
    if "/" not in repo and folder.is_dir():
        named = [
            entry
            for entry in os.listdir(folder)
            if entry.startswith(PREFIX) and entry.split("--", 2)[2:] == [repo]
        ]
        candidates += [folder / named[0]] if len(named) == 1 else []
    for candidate in candidates:
        snapshot = candidate / "snapshots" / _commit(candidate, revision or MAIN)
        if snapshot.is_dir():
            return snapshot
    return None


def _commit(folder: Path, revision: str) -> str:
    """The commit that a branch or tag pointed at when it was fetched; a commit stands for itself."""
    try:
        commit = (folder / "refs" / revision).read_text().strip()
    except (OSError, UnicodeDecodeError):
        return revision
    return commit if commit.isalnum() else revision
