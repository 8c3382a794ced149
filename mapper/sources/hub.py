"""Models on the Hugging Face hub, through its client: the cache first, headers by ranges."""

from __future__ import annotations

import os
import socket
import string
import sys
import threading
import urllib.parse
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from mapper import limits
from mapper.checkpoint import Checkpoint
from mapper.errors import MapperError, MissingSourceError, SourceError, listed, shorten
from mapper.sources import sharded
from mapper.sources.cache import MAIN, cache_folder, find_snapshot
from mapper.sources.directory import Choice, choose, directory_name, open_directory, read_table
from mapper.sources.documents import read_config
from mapper.sources.remote import BLOCK, RangeFile
from mapper.sources.shards import Shard, joined

CONNECT_SECONDS = (
    4.0  # until the hub counts as out of reach; a look-up of its name alone can hang for a minute
)
READ_SECONDS = 15.0  # without a byte
RETRIES = 2
CONNECTIONS = 8
PUNCTUATION = "-_."
ON = ("1", "ON", "YES", "TRUE")


class Repo(NamedTuple):
    """One revision of a repository as the hub describes it."""

    name: str
    revision: str
    commit: str
    files: list[str]


def is_id(text: str) -> bool:
    """Whether `text` could be the id of a model on the hub: `name` or `owner/name`."""
    parts = text.split("/")
    allowed = set(string.ascii_letters + string.digits + PUNCTUATION)
    return len(parts) <= 2 and all(
        0 < len(part) <= limits.HUB_NAME_CHARACTERS
        and allowed.issuperset(part)
        and part.strip(PUNCTUATION)
        and ".." not in part
        for part in parts
    )


def is_revision(text: str) -> bool:
    """Whether `text` could be a branch, tag or commit."""
    allowed = set(string.ascii_letters + string.digits + PUNCTUATION + "/+")
    return (
        0 < len(text) <= limits.HUB_REVISION_CHARACTERS
        and allowed.issuperset(text)
        and all(part.strip(".") for part in text.split("/"))
    )


def open_hub(name: str, purpose: str, revision: str | None) -> Checkpoint:
    """The checkpoint of the model `name`: from the cache if its weights are there, else from the hub."""
    snapshot = find_snapshot(name, revision)
    if snapshot is not None:
        try:
            return open_directory(snapshot, _source(snapshot, revision))
        except SourceError:  # the cache may hold a part: the config of an earlier look
            pass
    _require_connection(name, "not in the cache" if snapshot is None else "only in part in the cache")
    with _client_errors(name, revision), _quiet():
        repo = _describe(name, revision)
        choice = choose(repo.files, repo.name)
        if purpose == "weights":
            return _download(repo, choice, revision)
        return _headers(repo, choice, revision)


@contextmanager
def asking(what: str) -> Iterator[None]:
    """Ask the hub itself for something else than a model; SourceError where it does not answer."""
    if reason := _out_of_reach():
        raise SourceError(f"{what}: {reason}; a connection is needed")
    with _client_errors(what, None), _quiet():
        yield


def _source(snapshot: Path, revision: str | None) -> str:
    name = directory_name(snapshot)
    return f"{name}@{revision}" if revision else name


def endpoint() -> str:
    """The address of the hub."""
    return (os.environ.get("HF_ENDPOINT") or "https://huggingface.co").rstrip("/")


def _require_connection(name: str, cached: str) -> None:
    """Raise MissingSourceError within seconds if the hub is switched off or out of reach."""
    remedy = "give a local directory, or fetch it once with a connection"
    if reason := _out_of_reach():
        raise MissingSourceError(f"{name}: no local path, {cached}, and {reason}; {remedy}")


def _out_of_reach() -> str | None:
    """Why the hub is not asked, or does not answer; None if it can be asked."""
    from huggingface_hub import constants

    switched_off = [
        word for word in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE") if os.environ.get(word, "").upper() in ON
    ]
    if switched_off or constants.is_offline_mode():
        return f"the hub is not asked ({(switched_off or ['HF_HUB_OFFLINE'])[0]} is set)"
    failure = _unreachable(endpoint())
    return f"the hub cannot be reached ({failure})" if failure else None


def _unreachable(address: str) -> str | None:
    """Why no connection to the host of `address`, or the proxy before it, can be made; None if one can."""
    url = urllib.parse.urlsplit(address)
    proxy = urllib.request.getproxies().get(url.scheme)
    if proxy and not urllib.request.proxy_bypass(url.hostname or ""):
        url = urllib.parse.urlsplit(proxy if "://" in proxy else f"//{proxy}")
    outcome: list[str | None] = []

    def connect() -> None:
        try:
            port = url.port or {"http": 80}.get(url.scheme, 443)
            socket.create_connection((url.hostname or "", port), CONNECT_SECONDS).close()
            outcome.append(None)
        except (OSError, ValueError, UnicodeError) as error:
            outcome.append(f"{url.hostname}: {(getattr(error, 'strerror', None) or str(error)).lower()}")

    # A daemon: looking a name up has no time limit, and must not keep the process either.
    thread = threading.Thread(target=connect, daemon=True)
    thread.start()
    thread.join(CONNECT_SECONDS)
    return outcome[0] if outcome else f"{url.hostname}: no answer within {CONNECT_SECONDS:.0f} s"


@contextmanager
def _client_errors(name: str, revision: str | None) -> Iterator[None]:
    """What the hub's client raises, as one line each."""
    from huggingface_hub import errors

    try:
        yield
    except MapperError:
        raise
    except errors.GatedRepoError as error:
        hint = f"ask for access at {endpoint()}/{name}, then log in with `hf auth login` or set HF_TOKEN"
        raise SourceError(f"{name}: the model is gated; {hint}") from error
    except errors.RevisionNotFoundError as error:
        raise MissingSourceError(
            f"{name}: the hub has no revision {shorten(revision or MAIN)} of it"
        ) from error
    except errors.RepositoryNotFoundError as error:
        hint = "check the name, or log in with `hf auth login` if it is private"
        raise MissingSourceError(f"{name}: no local path, and the hub has no such model; {hint}") from error
    except Exception as error:
        if not isinstance(error, OSError) and type(error).__module__.partition(".")[0] not in _CLIENTS:
            raise
        reason = str(error).strip().split("\n")[0][:200] or type(error).__name__
        raise SourceError(f"{name}: the hub did not answer as expected ({reason}); try again") from error


_CLIENTS = ("huggingface_hub", "httpx", "httpx2", "httpcore", "httpcore2", "requests", "urllib3", "json")


@contextmanager
def _quiet() -> Iterator[None]:
    """No log lines of the client, and progress bars on a terminal only."""
    from huggingface_hub.utils import (  # type: ignore[attr-defined]
        are_progress_bars_disabled,
        disable_progress_bars,
        enable_progress_bars,
        logging,
    )

    level = logging.get_verbosity()
    hide = not sys.stderr.isatty() and not are_progress_bars_disabled()
    logging.set_verbosity_error()
    if hide:
        disable_progress_bars()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if hide:
            enable_progress_bars()


def _describe(name: str, revision: str | None) -> Repo:
    from huggingface_hub import HfApi

    info = HfApi(endpoint=endpoint()).model_info(name, revision=revision, timeout=READ_SECONDS)
    files = [sibling.rfilename for sibling in info.siblings or []]
    full = info.id if info.id and is_id(info.id) else name  # a short id is answered with the full one
    return Repo(full, revision or MAIN, info.sha or revision or MAIN, files)


def _fetch(repo: Repo, file: str) -> str:
    """The local path of `file`, from the cache or downloaded to it."""
    from huggingface_hub import hf_hub_download

    return hf_hub_download(
        repo.name,
        file,
        revision=repo.revision,
        endpoint=endpoint(),
        cache_dir=cache_folder(),
        etag_timeout=READ_SECONDS,
    )


def _download(repo: Repo, choice: Choice, revision: str | None) -> Checkpoint:
    """The checkpoint with its weights in the cache: the files of one format, and the config."""
    files = list(choice.files)
    if choice.listing is not None:
        files = [choice.listing, *sharded.read_index(_fetch(repo, choice.listing))]
    if "config.json" in repo.files:
        files.insert(0, "config.json")
    paths = [_fetch(repo, file) for file in files]
    folders = {path[: -len(file)] for path, file in zip(paths, files, strict=True)}
    if len(folders) > 1:
        raise SourceError(
            f"{repo.name}: the model changed on the hub while it was fetched; run the command again"
        )
    return open_directory(folders.pop(), f"{repo.name}@{revision}" if revision else repo.name)


def _headers(repo: Repo, choice: Choice, revision: str | None) -> Checkpoint:
    """The checkpoint without its weights: the config, and the first bytes of each weight file."""
    config = read_config(_fetch(repo, "config.json")) if "config.json" in repo.files else None
    parts: dict[str, list[str]] = {file: [] for file in choice.files}
    if choice.listing is not None:
        parts = sharded.read_index(_fetch(repo, choice.listing))
        absent = [file for file in parts if file not in repo.files]
        if absent:
            seen = f"{len(absent)} of {len(parts)} shards of {choice.listing}"
            raise MissingSourceError(f"{repo.name}: the hub lacks {seen}: {listed(absent)}")
    with ThreadPoolExecutor(min(CONNECTIONS, len(parts))) as pool:
        shards = list(pool.map(lambda file: _remote_shard(repo, file), parts))
    for shard, keys in zip(shards, parts.values(), strict=True):
        if choice.listing is not None:
            sharded.check_against_index(shard, keys, choice.listing)
    return joined(
        shards,
        f"{repo.name}@{revision}" if revision else repo.name,
        config,
        [choice.note] if choice.note else [],
    )


def _remote_shard(repo: Repo, file: str) -> Shard:
    """The table of one weight file on the hub."""
    from huggingface_hub import hf_hub_url
    from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

    url = hf_hub_url(repo.name, file, revision=repo.commit, endpoint=endpoint())
    headers = {**build_hf_headers(), "Accept-Encoding": "identity"}
    start, size = _get_range(url, headers, 0, BLOCK)
    ranges = RangeFile(lambda first, end: _get_range(url, headers, first, end)[0], size, start)
    return read_table(ranges, size, file, offsets=False)  # type: ignore[arg-type]


def _get_range(url: str, headers: dict[str, str], start: int, end: int) -> tuple[bytes, int]:
    """The bytes from `start` up to `end`, and the size of the whole file. Never more is read."""
    from huggingface_hub.utils import hf_raise_for_status, http_stream_backoff  # type: ignore[attr-defined]

    options: dict[str, Any] = {"timeout": READ_SECONDS, "follow_redirects": True, "max_retries": RETRIES}
    with http_stream_backoff(
        "GET", url, headers={**headers, "Range": f"bytes={start}-{end - 1}"}, **options
    ) as response:
        if response.status_code == 416:  # an empty file has no range
            return b"", 0
        hf_raise_for_status(response)
        whole = response.status_code == 200  # the range was ignored: the start can be read all the same
        if whole and start:
            raise SourceError(
                f"{url}: the server does not send parts of a file; download it and give its path"
            )
        total = (
            response.headers.get("Content-Length")
            if whole
            else response.headers.get("Content-Range", "").rpartition("/")[2]
        )
        if total is None or not total.isdecimal():
            raise SourceError(
                f"the hub does not say how long the file is ({url.rpartition('/')[2]}); download "
                "it and give its path"
            )
        data = bytearray()
        for chunk in response.iter_raw():
            data += chunk
            if len(data) >= end - start:
                break
    return bytes(data[: end - start]), int(total)
