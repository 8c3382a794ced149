"""Names of temporary files and folders: who writes there, and whether that writer still lives."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import socket
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

PARTIAL = "partial"  # what is being written
ASIDE = "aside"  # what was at the path, where two folders cannot be exchanged in one step
_SHOWN = 40  # characters of the path's own name; with what follows always less than the 255 bytes of a name
_NAME = re.compile(
    r"\.(?P<stem>.*)\.(?P<name>[0-9a-f]{8})-(?P<host>[0-9a-f]{8})-(?P<pid>\d+)-(?P<start>\d+)-[0-9a-f]{8}"
    r"\.(?P<kind>partial|aside)",
    re.DOTALL,
)


def temporary(path: Path, kind: str) -> Path:
    """A free name beside `path`, which no other writer takes: renaming never crosses a file system."""
    pid = os.getpid()
    writer = f"{_digest(path.name)}-{_host()}-{pid}-{_started(pid) or 0}-{secrets.token_hex(4)}"
    return path.with_name(f".{path.name[:_SHOWN]}.{writer}.{kind}")


def put_aside(path: Path) -> Path | None:
    """The folder that was at `path` and whose successor has not come; None where there is none."""
    found = list(_of(path, (ASIDE,)))
    return max(found, key=lambda entry: entry.stat().st_mtime_ns, default=None)


def remove_leftovers(path: Path) -> None:
    """Remove what writers of `path` left that no longer live; a folder put aside comes back if none took its place."""
    for entry in list(_of(path, (PARTIAL, ASIDE))):
        if _is_dead(entry):
            if entry.name.endswith(ASIDE) and not os.path.lexists(path):
                os.rename(entry, path)
            else:
                remove(entry)


def remove(path: Path) -> None:
    """Remove a temporary file or folder, if it is there; a failure to do so is the next writer's to repair."""
    with suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            with suppress(OSError):
                path.chmod(0o700)  # a folder that kept a read-only mode
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


@contextmanager
def held(path: Path) -> Iterator[None]:
    """A lock on `path` that ends with this process at the latest: a writer in another container has other pids."""
    descriptor = os.open(path, os.O_RDONLY) if fcntl is not None else -1
    try:
        if fcntl is not None:
            with suppress(OSError):  # a file system without locks
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        if descriptor >= 0:
            os.close(descriptor)


def _of(path: Path, kinds: tuple[str, ...]) -> Iterator[Path]:
    """The temporary files and folders beside `path` that belong to it."""
    digest = _digest(path.name)
    try:
        names = os.listdir(path.parent)
    except (OSError, ValueError):  # a zero byte
        return
    for name in names:
        match = _NAME.fullmatch(name)
        if match and match["name"] == digest and match["kind"] in kinds:
            yield path.with_name(name)


def _is_dead(entry: Path) -> bool:
    """Whether its writer was on this machine, is gone, and holds no lock on it."""
    match = _NAME.fullmatch(entry.name)
    if match is None or match["host"] != _host():
        return False
    if _lives(int(match["pid"]), int(match["start"])):
        return False
    return fcntl is None or not _is_locked(entry)


def _lives(pid: int, start: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):  # somebody else's process
        pass
    now = _started(pid)
    return now is None or start == 0 or now == start  # another start: the number was given out again


def _started(pid: int) -> int | None:
    """When the process began, in ticks since the machine's start; -1 for one that has ended; None if nobody says."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        return -1 if fields[0] == b"Z" else int(fields[19])
    except (OSError, IndexError, ValueError):
        return None


def _is_locked(entry: Path) -> bool:
    try:
        descriptor = os.open(entry, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return False


def _host() -> str:
    return _digest(socket.gethostname())


def _digest(text: str) -> str:
    return f"{zlib.crc32(text.encode('utf-8', 'surrogateescape')):08x}"
