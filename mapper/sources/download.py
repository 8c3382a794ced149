"""Files of the hub into its cache: checked for room first, gone on with where they were cut, whole or not there.

A blob has its name once all its bytes are there, checked and synced; until then they are in `NAME.incomplete`, as the
hub's own client calls them. A snapshot links a file once its blob has its name, and a branch names the snapshot once
all the files that were asked for are in it. So a process that is killed leaves nothing that could be taken for whole.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import string
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Any, BinaryIO, NamedTuple, TypeVar

from mapper import limits
from mapper._progress import Transfer, note, showing
from mapper._units import in_bytes
from mapper.errors import FormatError, MapperError, SourceError, shorten
from mapper.sources import transfer
from mapper.sources.hub_cache import LOCKS, PARTIAL, cache_folder, repository_folder
from mapper.sources.reach import endpoint

CONNECTIONS = 8  # for headers
DOWNLOADS = 4  # files at once; one connection seldom fills the line
LOCK_SECONDS = 2.0  # until it is said that another process fetches the same file
ROOM = 2**24  # bytes that are left free
SHA256 = 64  # hexadecimal digits: what the hub names large files by
HASHED = 2**20  # bytes read at once of what is here already
ALLOWED = frozenset(string.ascii_letters + string.digits + "-_.")
PLAIN_LIMIT = 50_000_000_000  # bytes; the hub sends longer files by its own protocol alone

Result = TypeVar("Result")
Item = TypeVar("Item")


class Remote(NamedTuple):
    """One file as the hub describes it."""

    file: str
    url: str
    name: str  # of its blob: the hash of a large file
    size: int


class Download:
    """Some files of one commit of a repository, on their way into the cache."""

    def __init__(self, repo: str, commit: str, revision: str):
        self.repo = repo
        self.commit = _checked(commit, f"{repo}: the commit")
        self.revision = revision
        self.folder = repository_folder(repo)
        self.snapshot = self.folder / "snapshots" / self.commit
        self._stop = threading.Event()
        self._progress = Transfer(f"fetching {repo}", 0)

    def fetch(self, files: list[str], most: int | None = None) -> dict[str, int]:
        """Get all of `files` into the snapshot; those that are there already are not asked for.

        Returns those of more than `most` bytes with their sizes, which are left where they are.
        """
        absent = [file for file in files if not self._has(file)]
        left: dict[str, int] = {}
        with _written():
            if absent:
                remote = in_parallel(self._describe, absent, CONNECTIONS)
                left = {entry.file: entry.size for entry in remote if most is not None and entry.size > most}
                remote = [entry for entry in remote if entry.file not in left]
                blobs = {entry.name: entry for entry in remote if not self._is_whole(entry)}
                self._check_room(list(blobs.values()))
                self._get(list(blobs.values()))
                for entry in remote:
                    with _locked(self.folder.name, entry):
                        self._link(entry)
        return left

    def finish(self) -> Path:
        """Let the branch or tag name the snapshot, and return its folder."""
        if self.revision != self.commit:
            with _written():
                self._refer()
        return self.snapshot

    def _has(self, file: str) -> bool:
        return (self.snapshot / file).is_file()

    def _describe(self, file: str) -> Remote:
        from huggingface_hub import get_hf_file_metadata, hf_hub_url

        url = hf_hub_url(self.repo, file, revision=self.commit, endpoint=endpoint())
        what = f"{self.repo}: {file}"
        found = transfer.repeat(
            what,
            lambda: get_hf_file_metadata(url, timeout=transfer.READ_SECONDS, endpoint=endpoint()),
        )
        if found.etag is None or found.size is None:
            lacks = "tag" if found.etag is None else "size"
            raise SourceError(f"{what}: the hub does not say the file's {lacks}; is HF_ENDPOINT a hub?")
        return Remote(file, url, _checked(found.etag, f"{what}: the tag"), found.size)

    def _blob(self, entry: Remote) -> Path:
        return self.folder / "blobs" / entry.name

    def _is_whole(self, entry: Remote) -> bool:
        blob = self._blob(entry)
        return blob.is_file() and blob.stat().st_size == entry.size

    def _check_room(self, entries: list[Remote]) -> None:
        """Raise SourceError if the disk has not room for what is still to come."""
        needed = sum(entry.size - min(_size(self._partial(entry)), entry.size) for entry in entries)
        place = cache_folder()
        while not place.exists():
            place = place.parent
        free = shutil.disk_usage(place).free
        if needed + ROOM > free:
            raise SourceError(
                f"{self.repo}: {in_bytes(needed)} are to be fetched and {in_bytes(free)} are free in "
                f"{cache_folder()}; make room, or set HF_HUB_CACHE to a folder on another disk"
            )

    def _get(self, entries: list[Remote]) -> None:
        """Get the blobs, several at once; the first failure stops them all."""
        self._progress = Transfer(f"fetching {self.repo}", sum(entry.size for entry in entries))
        (self.folder / "blobs").mkdir(parents=True, exist_ok=True)
        with showing(self._progress.line):
            in_parallel(self._get_blob, entries, DOWNLOADS, self._stop.set)

    def _get_blob(self, entry: Remote) -> None:
        if entry.size > PLAIN_LIMIT:
            self._get_by_client(entry)  # which takes the lock itself
            return
        with _locked(self.folder.name, entry):
            if self._is_whole(entry):  # another process got it meanwhile
                self._progress.add(entry.size)
                return
            partial = self._partial(entry)
            if not self._fill(partial, entry):
                note(f"{self.repo}: {entry.file} came with other bytes than the hub says; fetching it anew")
                partial.unlink()
                if not self._fill(partial, entry):
                    partial.unlink()
                    raise FormatError(
                        f"{self.repo}: {entry.file} has not the hash {shorten(entry.name)} that the hub says, "
                        "fetched twice; what stands between here and the hub changes it"
                    )
            os.replace(partial, self._blob(entry))
            sync_folder(partial.parent)

    def _get_by_client(self, entry: Remote) -> None:
        from huggingface_hub import hf_hub_download

        hf_hub_download(
            self.repo, entry.file, revision=self.commit, endpoint=endpoint(), cache_dir=cache_folder()
        )
        self._progress.add(entry.size)

    def _partial(self, entry: Remote) -> Path:
        return self._blob(entry).with_name(entry.name + PARTIAL)

    def _fill(self, partial: Path, entry: Remote) -> bool:
        """Get the rest of the file; whether it is what the hub calls it. Without a hash it is got anew."""
        has_hash = len(entry.name) == SHA256
        goes_on = has_hash and partial.exists() and _size(partial) <= entry.size
        with open(partial, "r+b" if goes_on else "w+b") as file:
            digest = hashlib.sha256()
            while piece := file.read(HASHED):
                digest.update(piece)
                self._progress.add(len(piece))
            transfer.repeat(
                f"{self.repo}: {entry.file}",
                lambda: self._continue(file, digest, entry),
                file.tell,
                self._stop.wait,
            )
            file.flush()
            os.fsync(file.fileno())
        good = not has_hash or digest.hexdigest() == entry.name
        if not good:
            self._progress.add(-entry.size)
        return good

    def _continue(self, file: BinaryIO, digest: Any, entry: Remote) -> None:
        """Get the bytes from the end of `file` to the end of the remote one."""
        from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

        if self._stop.is_set():
            raise _Stopped
        if file.tell() == entry.size:
            return
        with transfer.opened(entry.url, build_hf_headers(), file.tell()) as answer:
            if answer.size is not None and answer.size != entry.size:
                raise SourceError(
                    f"{self.repo}: {entry.file} has {entry.size:,} bytes, says the hub, and "
                    f"{answer.size:,}, says the server that sends it; try again"
                )
            skipped = file.tell() - answer.start  # a server that sends no parts starts again
            for piece in answer.pieces:
                if self._stop.is_set():
                    raise _Stopped
                fresh = piece[skipped:] if skipped else piece
                skipped = max(skipped - len(piece), 0)
                if file.tell() + len(fresh) > entry.size:
                    raise SourceError(
                        f"{self.repo}: {entry.file} goes on after its {entry.size:,} bytes; try again"
                    )
                file.write(fresh)
                digest.update(fresh)
                self._progress.add(len(fresh))
        file.flush()
        if file.tell() < entry.size:
            raise ConnectionError(f"after {file.tell():,} of {entry.size:,} bytes")

    def _link(self, entry: Remote) -> None:
        """Let the snapshot have the file: as a link to its blob, or the blob itself where there are no links."""
        pointer = self.snapshot / entry.file
        if pointer.is_file() and pointer.stat().st_size == entry.size:
            return
        pointer.parent.mkdir(parents=True, exist_ok=True)
        fresh = pointer.with_name(pointer.name + PARTIAL)
        with suppress(FileNotFoundError):
            fresh.unlink()
        try:
            fresh.symlink_to(os.path.relpath(self._blob(entry), pointer.parent))
        except OSError:
            os.replace(self._blob(entry), pointer)
        else:
            os.replace(fresh, pointer)
        sync_folder(pointer.parent)

    def _refer(self) -> None:
        from mapper.outputs.files import write_text

        place = self.folder / "refs" / self.revision
        with suppress(OSError, UnicodeDecodeError):
            if place.read_text() == self.commit:
                return
        place.parent.mkdir(parents=True, exist_ok=True)
        write_text(place, self.commit)


class _Stopped(Exception):
    """Another file failed."""


def in_parallel(
    action: Callable[[Item], Result], items: list[Item], count: int, stop: Callable[[], None] = lambda: None
) -> list[Result]:
    """What `action` returns for each item. After the first failure no other is begun, and `stop` is called.

    The threads are daemons, unlike those of a pool: an interrupt does not wait for a server that has fallen silent.
    """
    results: dict[int, Result] = {}
    waiting = deque(enumerate(items))
    ended: SimpleQueue[BaseException | None] = SimpleQueue()

    def work() -> None:
        try:
            while (next_one := _taken(waiting)) is not None:
                number, item = next_one
                results[number] = action(item)
            ended.put(None)
        except BaseException as error:
            ended.put(error)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(min(count, len(items)))]
    for thread in threads:
        thread.start()
    first = None
    try:
        for _ in threads:
            failed = ended.get()
            if failed is not None and (first is None or isinstance(first, _Stopped)):
                first = failed
                waiting.clear()
                stop()
    except BaseException:  # an interrupt
        waiting.clear()
        stop()
        raise
    if first is not None:
        raise first
    return [results[number] for number in range(len(items))]


def _taken(waiting: deque[Item]) -> Item | None:
    try:
        return waiting.popleft()
    except IndexError:
        return None


@contextmanager
def _locked(folder: str, entry: Remote) -> Iterator[None]:
    """Hold the lock of a blob, which the hub's own client takes too; the system frees it with its process."""
    from filelock import Timeout
    from huggingface_hub.utils import WeakFileLock  # type: ignore[attr-defined]

    place = cache_folder() / LOCKS / folder / f"{entry.name}.lock"
    place.parent.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        try:
            stack.enter_context(WeakFileLock(place, timeout=LOCK_SECONDS))
        except Timeout:
            note(f"{entry.file}: another process is fetching it; waiting for that")
            stack.enter_context(WeakFileLock(place))
        yield


@contextmanager
def _written() -> Iterator[None]:
    """What the system says against writing the cache, as one line."""
    try:
        yield
    except OSError as error:
        place = cache_folder()
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            hint = "make room and run the command again: it goes on from there"
            raise SourceError(f"{place}: no room is left; {hint}") from error
        if isinstance(error, MapperError) or error.errno not in _UNWRITABLE:
            raise
        said = os.strerror(error.errno).lower()
        hint = "set HF_HUB_CACHE to a folder that can be"
        raise SourceError(f"{place}: the cache cannot be written: {said}; {hint}") from error


_UNWRITABLE = (
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.ENOTDIR,
    errno.EEXIST,
    errno.EISDIR,
    errno.ENAMETOOLONG,
)


def _checked(name: str, what: str) -> str:
    """`name`, which comes from outside and becomes that of a file."""
    if (
        not 0 < len(name) <= limits.HUB_TAG_CHARACTERS
        or not ALLOWED.issuperset(name)
        or name.startswith(".")
        or name.endswith(PARTIAL)
    ):
        raise FormatError(f"{what} is {shorten(name)}, which is no name for a file in the cache")
    return name


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def sync_folder(path: Path) -> None:
    """Let the names in a folder survive a failure of the power, where the system can."""
    with suppress(OSError):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
